/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides at the driver which packets the user plane takes, by the role of the interface:
 *
 *   GTPU   (N3, N9, S1-U, S5-U)  UDP/2152, or any fragment of UDP, to one of gtpu_addrs; whatever the MAC, as the
 *                                address is ours alone
 *   ROUTED (N6, SGi)             unicast IP to our MAC, not to an address of the kernel's own, and inside
 *                                ue_prefixes when there are any
 *
 * Those go to the AF_XDP socket of the receive queue; all else (ARP, ND, ping to ourselves, BGP, ssh, ...) goes to
 * the kernel. A packet that is ours while its queue has no socket is dropped and counted: the kernel would answer
 * GTP-U with ICMP port unreachable, which a peer takes for path failure, and would route a UE's packet past its
 * session.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"

#define ETH_ALEN 6
#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86DD
#define ETH_P_8021AD 0x88A8
#define VLAN_TAGS_MAX 2

#define IPPROTO_HOPOPTS 0
#define IPPROTO_UDP 17
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_AH 51
#define IPPROTO_DSTOPTS 60
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define IP6_MF 0x0001
#define IP6_OFFSET 0xfff8
#define EXTENSIONS_MAX 8 /* RFC 8200 names six, one of them twice */

#define GTPU_PORT 2152 /* 3GPP TS 29.281, 4.4.2 */

struct ethernet {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__be16 type;
} __attribute__((packed));

struct vlan_tag {
	__be16 tci;
	__be16 type;
};

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__be16 checksum;
	__u8 source[4];
	__u8 destination[4];
};

struct ipv6 {
	__be32 version_class_flow;
	__be16 payload_length;
	__u8 next;
	__u8 hop_limit;
	struct steer_address source;
	struct steer_address destination;
};

struct extension {
	__u8 next;
	__u8 length;
	__be16 fragment;
	__be32 id;
};

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__be16 checksum;
};

_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct ipv4) == 20 && sizeof(struct ipv6) == 40 &&
		       sizeof(struct extension) == 8 && sizeof(struct udp) == 8,
	       "wire layouts");

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
	__uint(max_entries, STEER_QUEUES_MAX);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct steer_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* What parsing finds out. Only a bad IP header is malformed (the kernel drops it); a packet cut short further in has
 * no UDP port, and where routed goes to the user plane, lest the kernel forward it. */
struct packet {
	struct steer_address destination;
	__be16 udp_port;  /* destination port, 0 when there is none */
	__u8 is_v6;
	__u8 is_fragment; /* of UDP */
	__u8 is_unicast;
	__u8 is_malformed;
};

static __always_inline void parse_udp(struct packet *packet, const void *at, const void *end)
{
	const struct udp *udp = at;

	if ((const void *)(udp + 1) <= end)
		packet->udp_port = udp->destination;
}

static __always_inline void parse_ipv4(struct packet *packet, const void *at, const void *end)
{
	const struct ipv4 *ip = at;
	__u32 header;

	if ((const void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5) {
		packet->is_malformed = 1;
		return;
	}
	packet->destination.bytes[10] = 0xff;
	packet->destination.bytes[11] = 0xff;
	__builtin_memcpy(&packet->destination.bytes[12], ip->destination, 4);
	/* Not 0/8 (this network), 127/8 (loopback), 169.254/16 (link-local), 224/3 (multicast, reserved, broadcast). */
	packet->is_unicast = ip->destination[0] != 0 && ip->destination[0] != 127 && ip->destination[0] < 224 &&
			     !(ip->destination[0] == 169 && ip->destination[1] == 254);
	if (ip->protocol != IPPROTO_UDP)
		return;
	if (ip->fragment & bpf_htons(IP_MF | IP_OFFSET)) {
		packet->is_fragment = 1;
		return;
	}
	header = (ip->version_ihl & 15) * 4;
	parse_udp(packet, at + header, end);
}

/* Walks to UDP, past at most EXTENSIONS_MAX extension headers; an unknown header ends the walk. */
static __always_inline void parse_extensions(struct packet *packet, __u8 next, const void *at, const void *end)
{
	for (int i = 0; i <= EXTENSIONS_MAX; i++) {
		const struct extension *extension = at;

		if (next == IPPROTO_UDP) {
			parse_udp(packet, at, end);
			return;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH &&
		    next != IPPROTO_FRAGMENT)
			return;
		if ((const void *)(extension + 1) > end)
			return;
		if (next == IPPROTO_FRAGMENT) {
			/* An atomic fragment (RFC 6946) is whole: walk on. Of a real one, every piece names the same next
			 * header here (RFC 8200, 4.5), so all pieces take the same way. */
			if (extension->fragment & bpf_htons(IP6_OFFSET | IP6_MF)) {
				packet->is_fragment = extension->next == IPPROTO_UDP;
				return;
			}
			at += 8;
		} else if (next == IPPROTO_AH) {
			at += (extension->length + 2) * 4; /* RFC 4302, 2.2 */
		} else {
			at += (extension->length + 1) * 8; /* RFC 8200, 4.2 */
		}
		next = extension->next;
	}
}

static __always_inline void parse_ipv6(struct packet *packet, const void *at, const void *end)
{
	const struct ipv6 *ip = at;
	const __u8 *to;
	__u64 high;

	if ((const void *)(ip + 1) > end || (ip->version_class_flow & bpf_htonl(0xf0000000)) != bpf_htonl(0x60000000)) {
		packet->is_malformed = 1;
		return;
	}
	packet->is_v6 = 1;
	packet->destination = ip->destination;
	to = ip->destination.bytes;
	__builtin_memcpy(&high, to, 8);
	/* Not ff00::/8, fe80::/10, nor ::/32: unspecified, loopback, and the v4-mapped forms that would stand for an
	 * IPv4 address in our maps. */
	packet->is_unicast = to[0] != 0xff && !(to[0] == 0xfe && (to[1] & 0xc0) == 0x80) &&
			     (high & bpf_cpu_to_be64(0xffffffff00000000ull)) != 0;
	if (packet->is_unicast)
		parse_extensions(packet, ip->next, ip + 1, end);
}

static __always_inline int pass(struct steer_counters *count, enum steer_pass reason)
{
	count->passed[reason]++;
	return XDP_PASS;
}

static __always_inline int take(struct xdp_md *ctx, struct steer_counters *count, enum steer_class class)
{
	long action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);

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
	return take(ctx, count, packet->is_v6 ? STEER_ROUTED_V6 : STEER_ROUTED_V4);
}

static __always_inline int steer(struct xdp_md *ctx)
{
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethernet *eth = (const void *)(long)ctx->data;
	const void *at = eth + 1;
	const __u32 zero = 0;
	const struct steer_config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct steer_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct packet packet = {};
	__be16 type;

	if (!cfg || !count)
		return XDP_PASS;
	if (!(cfg->flags & (STEER_ROLE_GTPU | STEER_ROLE_ROUTED)))
		return pass(count, STEER_PASS_NOT_CONFIGURED);
	if (at > end)
		return pass(count, STEER_PASS_MALFORMED);
	type = eth->type;
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		const struct vlan_tag *tag = at;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((const void *)(tag + 1) > end)
			return pass(count, STEER_PASS_MALFORMED);
		type = tag->type;
		at = tag + 1;
	}
	if (type == bpf_htons(ETH_P_IP))
		parse_ipv4(&packet, at, end);
	else if (type == bpf_htons(ETH_P_IPV6))
		parse_ipv6(&packet, at, end);
	else
		return pass(count, STEER_PASS_NOT_IP);
	if (packet.is_malformed)
		return pass(count, STEER_PASS_MALFORMED);
	if (!packet.is_unicast)
		return pass(count, STEER_PASS_NOT_UNICAST);
	if (cfg->flags & STEER_ROLE_GTPU && (packet.is_fragment || packet.udp_port == bpf_htons(GTPU_PORT)) &&
	    bpf_map_lookup_elem(&gtpu_addrs, &packet.destination))
		return take(ctx, count, packet.is_fragment ? STEER_GTPU_FRAGMENT : STEER_GTPU);
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

char _license[] SEC("license") = "Apache-2.0";
