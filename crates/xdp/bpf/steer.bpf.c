/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides at the driver which packets the user plane takes, by the role of the interface:
 *
 *   GTPU   (N3, N9, S1-U, S5-U)  UDP/2152, also in fragments, to one of gtpu_addrs; whatever the MAC, as the address is
 *                                ours alone. Of a datagram in fragments only the first has the port: where that is
 *                                another one (PFCP at the same address), those behind it are the kernel's too
 *   ROUTED (N6, SGi)             unicast IP to our MAC, not to an address of the kernel's own, and inside
 *                                ue_prefixes when there are any
 *   NDN                          frames of type 0x8624 to our MAC, or to a group; an NDN router's. Where the router has a
 *                                UDP port: UDP to it, or any fragment of UDP, to one of gtpu_addrs, too
 *
 * The roles are those of untagged frames, and of frames in VLANs that nobody has. Frames in a VLAN that is a port of its own
 * (vlans) are all the user plane's, which has a TAP device for what is the kernel's; but for those to another host's MAC.
 *
 * Those go to an AF_XDP socket of the receive queue; all else (ARP, ND, ping to ourselves, BGP, ssh, ...) goes to
 * the kernel. A packet that is ours while its queue has no socket is dropped and counted: the kernel would answer
 * GTP-U with ICMP port unreachable, which a peer takes for path failure, and would route a UE's packet past its
 * session.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"
#include "wire.h"

/* How long the fragments of a datagram may be apart: as long as hosts wait for the rest of one (RFC 8200, 4.5). */
#define DATAGRAM_NS_MAX (60ull * 1000000000)

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct steer_config);
	__uint(max_entries, 1);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, 2 * STEER_ADDRESSES_MAX);
} gtpu_addrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, 2 * STEER_ADDRESSES_MAX);
} local_addrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__type(key, struct steer_prefix);
	__type(value, __u8);
	__uint(max_entries, 2 * STEER_PREFIXES_MAX);
	__uint(map_flags, BPF_F_NO_PREALLOC);
} ue_prefixes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, STEER_QUEUES_MAX * STEER_TARGETS_MAX);
} sockets SEC(".maps");

/* By VLAN identifier: whether it is a port of its own. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u8);
	__uint(max_entries, STEER_VLANS_MAX);
} vlans SEC(".maps");

/* Datagrams whose first fragment was the kernel's, and when it came, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct steer_datagram);
	__type(value, __u64);
	__uint(max_entries, STEER_DATAGRAMS_MAX);
} datagrams SEC(".maps");

/* Datagrams of which a fragment came before the first, or whose first was ours, and when. All that follow go to the user
 * plane, which waits for the rest and returns what is the kernel's. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct steer_datagram);
	__type(value, __u64);
	__uint(max_entries, STEER_DATAGRAMS_MAX);
} held SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct steer_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* With roles, mac and all, what the offload asks of the interface too. */
#include "offload.bpf.h"
#include "spread.bpf.h"

/* What parsing finds out. Only a bad IP header is malformed (the kernel drops it); a packet cut short further in has
 * no UDP port, and where routed goes to the user plane, lest the kernel forward it. */
struct packet {
	struct steer_address destination;
	struct steer_datagram datagram; /* of a fragment, but for the destination */
	__be16 udp_port;  /* destination port, 0 when there is none */
	__u16 payload;    /* offset of the UDP payload in the frame */
	__u64 outer[2];   /* what the outer addresses are spread by */
	__u8 is_v6;
	__u8 is_fragment; /* of UDP; udp_port is that of the first one */
	__u8 is_later;    /* not the first one */
	__u8 is_returned; /* the user plane held it, and it is the kernel's */
	__u8 is_unicast;
	__u8 is_malformed;
};

static __always_inline void parse_udp(struct packet *packet, const void *data, __u32 offset, const void *end)
{
	const struct udp *udp = data + offset;

	if (offset > SPREAD_OFFSET_MAX || (const void *)(udp + 1) > end)
		return;
	packet->udp_port = udp->destination;
	packet->payload = offset + sizeof(*udp);
}

static __always_inline void parse_ipv4(struct packet *packet, const void *data, __u32 offset, const void *end)
{
	const struct ipv4 *ip = data + offset;

	if ((const void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5) {
		packet->is_malformed = 1;
		return;
	}
	packet->destination.bytes[10] = 0xff;
	packet->destination.bytes[11] = 0xff;
	__builtin_memcpy(&packet->destination.bytes[12], ip->destination, 4);
	packet->outer[0] = spread_address(ip->source, 0);
	packet->outer[1] = spread_address(ip->destination, 0);
	/* Not 0/8 (this network), 127/8 (loopback), 169.254/16 (link-local), 224/3 (multicast, reserved, broadcast). */
	packet->is_unicast = ip->destination[0] != 0 && ip->destination[0] != 127 && ip->destination[0] < 224 &&
			     !(ip->destination[0] == 169 && ip->destination[1] == 254);
	if (ip->protocol != IPPROTO_UDP)
		return;
	if (ip->fragment & bpf_htons(IP_MF | IP_OFFSET)) {
		packet->is_fragment = 1;
		packet->is_later = (ip->fragment & bpf_htons(IP_OFFSET)) != 0;
		packet->datagram.source.bytes[10] = 0xff;
		packet->datagram.source.bytes[11] = 0xff;
		__builtin_memcpy(&packet->datagram.source.bytes[12], ip->source, 4);
		packet->datagram.id = ip->id;
		if (packet->is_later)
			return;
	}
	parse_udp(packet, data, offset + (ip->version_ihl & 15) * 4, end);
}

/* Walks to UDP, past at most EXTENSIONS_MAX extension headers; an unknown header ends the walk. */
static __always_inline void parse_extensions(struct packet *packet, __u8 next, const void *data, __u32 offset,
					     const void *end)
{
	for (int i = 0; i <= EXTENSIONS_MAX; i++) {
		const struct extension *extension = data + offset;

		if (next == IPPROTO_UDP) {
			parse_udp(packet, data, offset, end);
			return;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH &&
		    next != IPPROTO_FRAGMENT)
			return;
		if (offset > SPREAD_OFFSET_MAX || (const void *)(extension + 1) > end)
			return;
		if (next == IPPROTO_FRAGMENT) {
			/* An atomic fragment (RFC 6946) is whole: walk on. Of a real one, every piece names the same next
			 * header here (RFC 8200, 4.5), so all pieces take the same way. */
			if (extension->fragment & bpf_htons(IP6_OFFSET | IP6_MF)) {
				packet->is_fragment = extension->next == IPPROTO_UDP;
				packet->is_later = (extension->fragment & bpf_htons(IP6_OFFSET)) != 0;
				packet->datagram.id = extension->id;
				if (packet->is_fragment && !packet->is_later)
					parse_udp(packet, data, offset + 8, end);
				return;
			}
			offset += 8;
		} else if (next == IPPROTO_AH) {
			offset += (extension->length + 2) * 4; /* RFC 4302, 2.2 */
		} else {
			offset += (extension->length + 1) * 8; /* RFC 8200, 4.2 */
		}
		next = extension->next;
	}
}

static __always_inline void parse_ipv6(struct packet *packet, const void *data, __u32 offset, const void *end)
{
	const struct ipv6 *ip = data + offset;
	const __u8 *to;
	__u64 high;

	if ((const void *)(ip + 1) > end || (ip->version_class_flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000)) {
		packet->is_malformed = 1;
		return;
	}
	packet->is_v6 = 1;
	packet->destination = ip->destination;
	packet->datagram.source = ip->source;
	packet->outer[0] = spread_address(ip->source.bytes, 1);
	packet->outer[1] = spread_address(ip->destination.bytes, 1);
	to = ip->destination.bytes;
	__builtin_memcpy(&high, to, 8);
	/* Not ff00::/8, fe80::/10, nor ::/32: unspecified, loopback, and the v4-mapped forms that would stand for an
	 * IPv4 address in our maps. */
	packet->is_unicast = to[0] != 0xff && !(to[0] == 0xfe && (to[1] & 0xc0) == 0x80) &&
			     (high & bpf_cpu_to_be64(0xffffffff00000000ull)) != 0;
	if (packet->is_unicast)
		parse_extensions(packet, ip->next, data, offset + sizeof(*ip), end);
}

/* Reads the IP packet at `offset`. Global, so that the verifier looks at it once, and not on with every way through it. */
__noinline int parse_ip(struct xdp_md *ctx, struct packet *packet, __u32 offset, __u32 is_v6)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;

	if (!packet || offset > sizeof(struct ethernet) + VLAN_TAGS_MAX * sizeof(struct vlan_tag))
		return 0;
	if (is_v6)
		parse_ipv6(packet, data, offset, end);
	else
		parse_ipv4(packet, data, offset, end);
	return 0;
}

static __always_inline int pass(struct steer_counters *count, enum steer_pass reason)
{
	count->passed[reason]++;
	return XDP_PASS;
}

/* What a packet that is ours is spread by, hashed. */
static __always_inline __u32 spread(const struct xdp_md *ctx, const struct packet *packet, enum steer_class class,
				    int by_teid)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	__u64 value = packet->outer[1];

	if (class == STEER_GTPU_FRAGMENT ||
	    (class == STEER_GTPU && !spread_tunnel(data, end, packet->payload, by_teid, &value)))
		value = packet->outer[0] * 31 + packet->outer[1];
	return spread_mix(value);
}

/* The kernel gives a socket only what came in on the queue it is bound to, so the choice is among those of the queue. */
static __always_inline int take(struct xdp_md *ctx, const struct steer_config *cfg, struct steer_counters *count,
				const struct packet *packet, enum steer_class class)
{
	__u32 socket = ctx->rx_queue_index * STEER_TARGETS_MAX;
	long action;

	if (cfg->flags & (STEER_BY_UE | STEER_BY_TEID)) {
		__u64 hash = spread(ctx, packet, class, cfg->flags & STEER_BY_TEID);

		socket += (hash * cfg->targets >> 32) & (STEER_TARGETS_MAX - 1);
	}
	action = bpf_redirect_map(&sockets, socket, XDP_DROP);

	if (action == XDP_REDIRECT)
		count->redirected[class]++;
	else
		count->no_socket[class]++;
	return action;
}

static __always_inline int route(struct xdp_md *ctx, const struct steer_config *cfg, struct steer_counters *count,
				 const struct ethernet *eth, const struct packet *packet)
{
	struct steer_prefix prefix = {.length = 128, .bytes = {}};

	if (__builtin_memcmp(eth->destination, cfg->mac, ETH_ALEN))
		return pass(count, STEER_PASS_OTHER_MAC);
	/* Where one interface has both roles, what is sent to a GTP-U address and is not GTP-U is the kernel's. */
	if (bpf_map_lookup_elem(&local_addrs, &packet->destination) ||
	    bpf_map_lookup_elem(&gtpu_addrs, &packet->destination))
		return pass(count, STEER_PASS_LOCAL);
	if (cfg->flags & STEER_PREFIXES) {
		__builtin_memcpy(prefix.bytes, packet->destination.bytes, 16);
		if (!bpf_map_lookup_elem(&ue_prefixes, &prefix))
			return pass(count, STEER_PASS_NO_PREFIX);
	}
	return take(ctx, cfg, count, packet, packet->is_v6 ? STEER_ROUTED_V6 : STEER_ROUTED_V4);
}

static __always_inline int take_ndn(struct xdp_md *ctx, const struct steer_config *cfg, struct steer_counters *count,
				    const struct ethernet *eth, const struct packet *packet)
{
	if (!(eth->destination[0] & 1) && __builtin_memcmp(eth->destination, cfg->mac, ETH_ALEN))
		return pass(count, STEER_PASS_OTHER_MAC);
	return take(ctx, cfg, count, packet, STEER_NDN);
}

/* Whether a UDP packet to one of our addresses is ours, which takes what goes to that port. Of a fragment the first one
 * decides for those that follow. */
static __always_inline int is_ours(struct packet *packet, __be16 port)
{
	__u64 now;
	const __u64 *since;

	if (!packet->is_fragment)
		return packet->udp_port == port;
	now = bpf_ktime_get_ns();
	packet->datagram.destination = packet->destination;
	if (!packet->is_later && packet->udp_port == port) {
		/* A sender uses its identifications again. */
		bpf_map_delete_elem(&datagrams, &packet->datagram);
		bpf_map_delete_elem(&held, &packet->datagram);
		return 1;
	}
	if (packet->is_returned) {
		bpf_map_delete_elem(&held, &packet->datagram);
	} else {
		since = bpf_map_lookup_elem(&held, &packet->datagram);
		if (since && now - *since <= DATAGRAM_NS_MAX)
			return 1;
		if (packet->is_later) {
			since = bpf_map_lookup_elem(&datagrams, &packet->datagram);
			if (since && now - *since <= DATAGRAM_NS_MAX)
				return 0;
			bpf_map_update_elem(&held, &packet->datagram, &now, BPF_ANY);
			return 1;
		}
	}
	bpf_map_update_elem(&datagrams, &packet->datagram, &now, BPF_ANY);
	return 0;
}

/* Whether the user plane returned a frame: metadata is before it, which no driver puts there. */
static __always_inline int is_returned(const struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data;
	const __u32 *mark = (const void *)(long)ctx->data_meta;

	return (const void *)(mark + 1) <= data && *mark == STEER_RETURNED;
}

/* Whether a tag is that of a VLAN of ours. */
static __always_inline int is_own_vlan(const struct steer_config *cfg, const struct vlan_tag *tag)
{
	__u32 vid = bpf_ntohs(tag->tci) & 0xfff;
	const __u8 *own = cfg->flags & STEER_VLANS ? bpf_map_lookup_elem(&vlans, &vid) : 0;

	return own && *own;
}

/* A frame in a VLAN of ours: whatever it is, but one to another host. */
static __always_inline int take_vlan(struct xdp_md *ctx, const struct steer_config *cfg, struct steer_counters *count,
				     const struct ethernet *eth, const struct packet *packet)
{
	if (packet->udp_port == bpf_htons(GTPU_PORT) && !packet->is_fragment &&
	    bpf_map_lookup_elem(&gtpu_addrs, &packet->destination))
		return take(ctx, cfg, count, packet, STEER_GTPU);
	if (!(eth->destination[0] & 1) && __builtin_memcmp(eth->destination, cfg->mac, ETH_ALEN))
		return pass(count, STEER_PASS_OTHER_MAC);
	return take(ctx, cfg, count, packet, STEER_VLAN);
}

/* Global, so that the verifier looks at it once, however many ways of the offload lead here. */
__noinline int steer(struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethernet *eth = data;
	__u32 offset = sizeof(*eth);
	const __u32 zero = 0;
	const struct steer_config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct steer_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct packet packet = {};
	int is_own = 0;
	__be16 type;

	if (!cfg || !count)
		return XDP_PASS;
	if (!(cfg->flags & (STEER_ROLE_GTPU | STEER_ROLE_ROUTED | STEER_ROLE_NDN | STEER_VLANS)))
		return pass(count, STEER_PASS_NOT_CONFIGURED);
	if ((const void *)(eth + 1) > end)
		return pass(count, STEER_PASS_MALFORMED);
	type = eth->type;
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		const struct vlan_tag *tag = data + offset;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((const void *)(tag + 1) > end)
			return pass(count, STEER_PASS_MALFORMED);
		if (!i)
			is_own = is_own_vlan(cfg, tag);
		type = tag->type;
		offset += sizeof(*tag);
	}
	if (!is_own && !(cfg->flags & (STEER_ROLE_GTPU | STEER_ROLE_ROUTED | STEER_ROLE_NDN)))
		return pass(count, STEER_PASS_NOT_CONFIGURED);
	if (type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6))
		parse_ip(ctx, &packet, offset, type == bpf_htons(ETH_P_IPV6));
	else if (type == bpf_htons(ETH_P_NDN) && cfg->flags & STEER_ROLE_NDN && !is_own)
		return take_ndn(ctx, cfg, count, eth, &packet);
	else if (!is_own)
		return pass(count, STEER_PASS_NOT_IP);
	packet.is_returned = is_returned(ctx);
	if (is_own)
		return take_vlan(ctx, cfg, count, eth, &packet);
	if (packet.is_malformed)
		return pass(count, STEER_PASS_MALFORMED);
	if (!packet.is_unicast)
		return pass(count, STEER_PASS_NOT_UNICAST);
	if (cfg->flags & STEER_ROLE_GTPU && (packet.is_fragment || packet.udp_port == bpf_htons(GTPU_PORT)) &&
	    bpf_map_lookup_elem(&gtpu_addrs, &packet.destination) && is_ours(&packet, bpf_htons(GTPU_PORT)))
		return take(ctx, cfg, count, &packet, packet.is_fragment ? STEER_GTPU_FRAGMENT : STEER_GTPU);
	if (cfg->flags & STEER_ROLE_NDN && cfg->ndn_udp && (packet.is_fragment || packet.udp_port == cfg->ndn_udp) &&
	    bpf_map_lookup_elem(&gtpu_addrs, &packet.destination) && is_ours(&packet, cfg->ndn_udp))
		return take_ndn(ctx, cfg, count, eth, &packet);
	if (cfg->flags & STEER_ROLE_ROUTED)
		return route(ctx, cfg, count, eth, &packet);
	return pass(count, STEER_PASS_NOT_GTPU);
}

SEC("xdp")
int steer_plain(struct xdp_md *ctx)
{
	return steer(ctx);
}

/* For interfaces whose packets may span several buffers (MTU above 3506); all headers lie in the first. */
SEC("xdp.frags")
int steer_frags(struct xdp_md *ctx)
{
	return steer(ctx);
}

/* With the offload in front: what it leaves, as it came, is steered. */
SEC("xdp")
int offload_plain(struct xdp_md *ctx)
{
	int action = offload_path(ctx, 0);

	return action < 0 ? steer(ctx) : action;
}

SEC("xdp.frags")
int offload_frags(struct xdp_md *ctx)
{
	int action = offload_path(ctx, 1);

	return action < 0 ? steer(ctx) : action;
}

char _license[] SEC("license") = "Apache-2.0";
