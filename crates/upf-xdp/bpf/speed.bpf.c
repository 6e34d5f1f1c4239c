/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the offload under BPF_PROG_TEST_RUN. A test run repeats a program on one packet, and this one rewrites its
 * packet: repeated as it is, it would be timed on packets that miss. So each run first puts the packet back, as one of a
 * session drawn at random, so that neither record nor counter is in a cache; what that costs is timed by itself.
 */
#include "upf.bpf.c"

#include "speed.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct speed_config);
	__uint(max_entries, 1);
} speed_config SEC(".maps");

/* Where the frame of each direction has the addresses that change: both have the UE's packet's. */
#define SPEED_TEID 46        /* Ethernet, IPv4, UDP, four octets of GTP-U */
#define SPEED_INNER 50
#define SPEED_TAG 14         /* behind the EtherType of the tag */
#define SPEED_TAG_LEN 4
#define SPEED_INNER_BEHIND_CONTAINER (SPEED_INNER + CONTAINER_LEN)

/* UDP packets over IPv4 that came in by an interface with the sink. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} speed_back SEC(".maps");

/* Puts the session's address into an IPv4 header whose checksum is that of address SPEED_FIRST_UE. */
static __always_inline void speed_address(struct ipv4 *ip, __u8 *address, __u32 session)
{
	__be32 ue = bpf_htonl(SPEED_FIRST_UE + session);
	__be32 added = bpf_htonl(session);

	ip->checksum = ~fold_sum((__u64)(__u16)~ip->checksum + (added & 0xffff) + (added >> 16));
	__builtin_memcpy(address, &ue, 4);
}

/* Puts the packet back, as one of another session; false when it cannot. */
static __always_inline int speed_draw(struct xdp_md *ctx, struct speed_config *cfg)
{
	long length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u32 number, session, ue;
	__u64 random;
	void *data;

	/* Else the compiler does the sum on 32 bits of the pointers, which the verifier forbids. */
	barrier_var(length);
	/* xorshift64 */
	random = cfg->random;
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	cfg->random = random;
	number = (random >> 32) * cfg->sessions >> 32;
	session = cfg->idle_of > 1 ? number + number / (cfg->idle_of - 1) : number;
	ue = cfg->first + (cfg->tenants ? session / cfg->tenants : session);
	if (bpf_xdp_adjust_head(ctx, (int)(length - cfg->length)))
		return 0;
	data = (void *)(long)ctx->data;
	if (data + SPEED_FRAME_MAX > (void *)(long)ctx->data_end)
		return 0;
	__builtin_memcpy(data, cfg->frame, SPEED_FRAME_MAX);
	if (cfg->flags & SPEED_UPLINK) {
		struct ipv4 *ip = data + (cfg->flags & SPEED_CONTAINER ? SPEED_INNER_BEHIND_CONTAINER : SPEED_INNER);
		__be32 teid = bpf_htonl(cfg->first + session);

		__builtin_memcpy(data + SPEED_TEID, &teid, 4);
		speed_address(ip, ip->source, ue);
	} else if (cfg->flags & SPEED_TAGGED) {
		struct ipv4 *ip = data + sizeof(struct ethernet) + SPEED_TAG_LEN;
		__be16 *tag = data + SPEED_TAG;

		if (cfg->tenants)
			*tag = bpf_htons(bpf_ntohs(*tag) + session % cfg->tenants);
		speed_address(ip, ip->destination, ue);
	} else {
		struct ipv4 *ip = data + sizeof(struct ethernet);

		speed_address(ip, ip->destination, ue);
	}
	return 1;
}

SEC("xdp")
int speed(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct speed_config *cfg = bpf_map_lookup_elem(&speed_config, &zero);

	if (!cfg || !speed_draw(ctx, cfg))
		return XDP_ABORTED;
	if (cfg->flags & SPEED_FAST_PATH && offload_path(ctx, 0) < 0)
		cfg->handed++;
	return XDP_PASS;
}

/* Live frames: the kernel sends what this makes out of an interface. */
SEC("xdp")
int live(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct speed_config *cfg = bpf_map_lookup_elem(&speed_config, &zero);

	return cfg && speed_draw(ctx, cfg) ? XDP_TX : XDP_ABORTED;
}

SEC("xdp")
int sink(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	const struct ethernet *eth = (const void *)(long)ctx->data;
	const struct ipv4 *ip = (const void *)(eth + 1);
	__u64 *back = bpf_map_lookup_elem(&speed_back, &zero);

	if (!back || (const void *)(ip + 1) > (const void *)(long)ctx->data_end || eth->type != bpf_htons(ETH_P_IP) ||
	    ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	++*back;
	return XDP_DROP;
}
