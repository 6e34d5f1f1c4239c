/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decides at the driver which packets the user plane takes, by the role of the interface:
 *
 *   GTPU   (N3, N9, S1-U, S5-U)  UDP/2152, also in fragments, to one of gtpu_addrs; whatever the MAC, as the address is
 *                                ours alone. Of a datagram in fragments only the first has the port: where that is
 *                                another one (PFCP at the same address), those behind it are the kernel's too
 *   ROUTED (N6, SGi)             unicast IP to our MAC, not to an address of the kernel's own, and inside
 *                                ue_prefixes when there are any
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

#include "steer.bpf.h"
#include "upf.h"
#include "wire.h"

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

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct steer_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

/* With roles, mac and all, what the offload asks of the interface too. */
#include "offload.bpf.h"
#include "spread.bpf.h"

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

/* Whether a tag is that of a VLAN of ours. */
static __always_inline int is_own_vlan(const struct steer_config *cfg, __be16 tci)
{
	__u32 vid = bpf_ntohs(tci) & 0xfff;
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
	__u32 offset;
	const __u32 zero = 0;
	const struct steer_config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct steer_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct packet packet = {};
	int is_own = 0;
	__be16 type, tci = 0;

	if (!cfg || !count)
		return XDP_PASS;
	if (!(cfg->flags & (STEER_ROLE_GTPU | STEER_ROLE_ROUTED | STEER_VLANS)))
		return pass(count, STEER_PASS_NOT_CONFIGURED);
	if ((const void *)(eth + 1) > end)
		return pass(count, STEER_PASS_MALFORMED);
	if (!read_type(data, end, &type, &offset, &tci))
		return pass(count, STEER_PASS_MALFORMED);
	if (offset > sizeof(*eth))
		is_own = is_own_vlan(cfg, tci);
	if (!is_own && !(cfg->flags & (STEER_ROLE_GTPU | STEER_ROLE_ROUTED)))
		return pass(count, STEER_PASS_NOT_CONFIGURED);
	if (type == bpf_htons(ETH_P_IP) || type == bpf_htons(ETH_P_IPV6))
		parse_ip(ctx, &packet, offset, type == bpf_htons(ETH_P_IPV6));
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
