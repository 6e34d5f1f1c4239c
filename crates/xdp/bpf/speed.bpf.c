/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Times the fast path under BPF_PROG_TEST_RUN. A test run repeats a program on one packet, and this one rewrites its
 * packet: repeated as it is, it would be timed on packets that miss. So each run first puts the packet back, as one of a
 * session drawn at random, so that neither record nor counter is in a cache; what that costs is timed by itself.
 */
#include "steer.bpf.c"

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

/* Puts the session's address into an IPv4 header whose checksum is that of address SPEED_FIRST_UE. */
static __always_inline void speed_address(struct ipv4 *ip, __u8 *address, __u32 session)
{
	__be32 ue = bpf_htonl(SPEED_FIRST_UE + session);
	__be32 added = bpf_htonl(session);

	ip->checksum = ~fold_sum((__u64)(__u16)~ip->checksum + (added & 0xffff) + (added >> 16));
	__builtin_memcpy(address, &ue, 4);
}

SEC("xdp")
int speed(struct xdp_md *ctx)
{
	const __u32 zero = 0;
	struct speed_config *cfg = bpf_map_lookup_elem(&speed_config, &zero);
	long length = (void *)(long)ctx->data_end - (void *)(long)ctx->data;
	__u32 session;
	__u64 random;
	void *data;

	/* Else the compiler does the sum on 32 bits of the pointers, which the verifier forbids. */
	barrier_var(length);
	if (!cfg)
		return XDP_ABORTED;
	/* xorshift64 */
	random = cfg->random;
	random ^= random << 13;
	random ^= random >> 7;
	random ^= random << 17;
	cfg->random = random;
	session = (random >> 32) * cfg->sessions >> 32;
	if (bpf_xdp_adjust_head(ctx, (int)(length - cfg->length)))
		return XDP_ABORTED;
	data = (void *)(long)ctx->data;
	if (data + SPEED_FRAME_MAX > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(data, cfg->frame, SPEED_FRAME_MAX);
	if (cfg->flags & SPEED_UPLINK) {
		struct ipv4 *ip = data + SPEED_INNER;
		__be32 teid = bpf_htonl(session);

		__builtin_memcpy(data + SPEED_TEID, &teid, 4);
		speed_address(ip, ip->source, session);
	} else {
		struct ipv4 *ip = data + sizeof(struct ethernet);

		speed_address(ip, ip->destination, session);
	}
	if (cfg->flags & SPEED_FAST_PATH && fast_path(ctx, 0) < 0)
		cfg->handed++;
	return XDP_PASS;
}
