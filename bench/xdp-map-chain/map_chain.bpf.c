/* SPDX-License-Identifier: GPL-2.0-only OR Apache-2.0 */
/*
 * The classical XDP design of a UPF, as a baseline for `kaido bench micro`: each rule of a session lies in a map of its
 * own, and a packet goes from map to map.
 *
 *   uplink    TEID ─▶ pdr_uplink ──▶ far ─▶ qer ─▶ urr ─▶ route_cache (or bpf_fib_lookup) ─▶ decapsulated, redirected
 *   downlink  UE   ─▶ pdr_downlink ▶ far ─▶ qer ─▶ urr ─▶ route_cache (or bpf_fib_lookup) ─▶ encapsulated, redirected
 *
 * Where a key has several PDRs, or a PDR several QERs and URRs, `pdr_*` leads to `rules`, of which the first counts that the packet
 * matches; it has as many lookups of `rated_qer` and `urr` as it has QERs and URRs.
 *
 * The UPF proper is `uplink` and `downlink`. Around them `run_*` restore the frame from a template before every run and
 * give it the keys of a random session: under BPF_PROG_TEST_RUN with a repeat count one frame lives through all runs, so
 * a program that rewrites it would from the second run on measure a miss. `wrap_*` do the same work without the UPF, one
 * bpf_xdp_adjust_head included, and are what is subtracted.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "map_chain.h"

#define AF_INET 2
#define ETH_ALEN 6
#define ETH_P_IP 0x0800
#define IPPROTO_UDP 17
#define IP_DF 0x4000
#define IP_MF_OR_OFFSET 0x3fff
#define TTL 64

#define GTPU_PORT 2152     /* 3GPP TS 29.281, 4.4.2 */
#define GTPU_G_PDU 255     /* table 6.1-1 */
#define GTPU_PDU_SESSION 0x85 /* figure 5.2.1-3 */
#define GTPU_OPTIONAL 0x07 /* any of E, S, PN */
#define EXTENSIONS_MAX 4

struct ethernet {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__be16 type;
} __attribute__((packed));

struct ipv4 {
	__u8 version_ihl;
	__u8 tos;
	__be16 total_length;
	__be16 id;
	__be16 fragment;
	__u8 ttl;
	__u8 protocol;
	__sum16 checksum;
	__be32 source;
	__be32 destination;
} __attribute__((packed));

struct udp {
	__be16 source;
	__be16 destination;
	__be16 length;
	__sum16 checksum;
} __attribute__((packed));

struct gtpu {
	__u8 flags;
	__u8 type;
	__be16 length;
	__be32 teid;
} __attribute__((packed));

struct gtpu_optional {
	__be16 sequence;
	__u8 npdu;
	__u8 next;
} __attribute__((packed));

struct pdu_session {
	__u8 length;
	__u8 type;
	__u8 qfi;
	__u8 next;
} __attribute__((packed));

struct tunnel {
	struct ethernet ethernet;
	struct ipv4 ip;
	struct udp udp;
	struct gtpu gtpu;
	struct gtpu_optional optional;
	struct pdu_session container;
} __attribute__((packed));

#define CONTAINER_LEN (sizeof(struct gtpu_optional) + sizeof(struct pdu_session))
#define TUNNEL_LEN (sizeof(struct tunnel) - sizeof(struct ethernet))

_Static_assert(TUNNEL_LEN == 44 && sizeof(struct tunnel) + 28 == CHAIN_UPLINK_HEADERS &&
		       sizeof(struct ethernet) + 28 == CHAIN_DOWNLINK_HEADERS,
	       "wire layouts");

/* Capacities of one are the loader's to raise. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, struct chain_pdr);
	__uint(max_entries, 1);
} pdr_uplink SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, struct chain_pdr);
	__uint(max_entries, 1);
} pdr_downlink SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_far);
	__uint(max_entries, 1);
} far SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_qer);
	__uint(max_entries, 1);
} qer SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_urr);
	__uint(max_entries, 1);
} urr SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_rules);
	__uint(max_entries, 1);
} rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_rated_qer);
	__uint(max_entries, 1);
} rated_qer SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __be32);
	__type(value, struct chain_route);
	__uint(max_entries, CHAIN_ROUTES_MAX);
} route_cache SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct chain_state);
	__uint(max_entries, 1);
} state SEC(".maps");

const volatile struct chain_config config;

static __always_inline __u16 folded(__u32 sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* RFC 1624: the TTL is the high octet of its word, so one less is 0x0100 less in network order. */
static __always_inline void decrement_ttl(struct ipv4 *ip)
{
	__u32 sum = (__u32)ip->checksum + bpf_htons(0x0100);

	ip->checksum = sum + (sum >= 0xffff);
	ip->ttl--;
}

static __always_inline __sum16 header_checksum(const struct ipv4 *ip)
{
	const __u16 *words = (const void *)ip;
	__u32 sum = 0;

	for (int at = 0; at < 10; at++)
		sum += words[at];
	return ~folded(sum);
}

/* What tells the rule of a packet, where a key has several; of the remote end. */
struct flow {
	__be32 remote;
	__u16 port;
	__u8 protocol;
	__u8 qfi;
};

/* The rules of a session after its PDR. */
struct chain {
	const struct chain_far *far;
	struct chain_urr *urrs[CHAIN_URRS_MAX];
	__u8 qfi;
	__u8 is_open;
};

/* Whether a rate lets so many octets pass. As others do, without a lock: packets of one session on two CPUs may pass together. */
static __always_inline int is_within_rate(struct chain_rated_qer *qer, int is_downlink, __u32 octets)
{
	volatile __u64 *until = &qer->until_ns[is_downlink];
	__u64 now = bpf_ktime_get_ns(), begins = *until;

	if (begins + qer->window_ns < now)
		begins = now - qer->window_ns;
	if (begins > now)
		return 0;
	*until = begins + (__u64)octets * qer->cost_ps / 1000;
	return 1;
}

static __always_inline int is_match(const struct chain_rule *rule, const struct flow *flow)
{
	return (!rule->qfi || rule->qfi == flow->qfi) && (!rule->protocol || rule->protocol == flow->protocol) &&
	       !((rule->remote ^ flow->remote) & rule->mask) && flow->port >= rule->ports[0] &&
	       flow->port <= rule->ports[1];
}

static __always_inline int follow_rule(const struct chain_rule *rule, int is_downlink, __u32 octets, struct chain *chain)
{
	chain->far = bpf_map_lookup_elem(&far, &rule->far_id);
	if (!chain->far)
		return 0;
	chain->is_open = 1;
	for (int at = 0; at < CHAIN_QERS_MAX && at < rule->qers; at++) {
		struct chain_rated_qer *found = bpf_map_lookup_elem(&rated_qer, &rule->qer_ids[at]);

		if (!found)
			return 0;
		chain->is_open &= is_downlink ? found->downlink_open : found->uplink_open;
		if (found->is_rated && !is_within_rate(found, is_downlink, octets))
			return 0;
		chain->qfi = found->qfi ? found->qfi : chain->qfi;
	}
	for (int at = 0; at < CHAIN_URRS_MAX && at < rule->urrs; at++) {
		chain->urrs[at] = bpf_map_lookup_elem(&urr, &rule->urr_ids[at]);
		if (!chain->urrs[at])
			return 0;
	}
	return 1;
}

static __always_inline int follow(const struct chain_pdr *pdr, const struct flow *flow, int is_downlink, __u32 octets,
				  struct chain *chain)
{
	const struct chain_qer *found;

	if (config.has_rules) {
		const struct chain_rules *of_key = bpf_map_lookup_elem(&rules, &pdr->far_id);

		if (!of_key)
			return 0;
		for (__u32 at = 0; at < CHAIN_RULES_MAX && at < of_key->count; at++)
			if (is_match(&of_key->rules[at], flow))
				return follow_rule(&of_key->rules[at], is_downlink, octets, chain);
		return 0;
	}
	chain->far = bpf_map_lookup_elem(&far, &pdr->far_id);
	found = bpf_map_lookup_elem(&qer, &pdr->qer_id);
	chain->urrs[0] = bpf_map_lookup_elem(&urr, &pdr->urr_id);
	if (!chain->far || !found || !chain->urrs[0])
		return 0;
	chain->is_open = is_downlink ? found->downlink_open : found->uplink_open;
	chain->qfi = found->qfi;
	return 1;
}

static __always_inline void count(const struct chain *chain, int is_downlink, __u32 octets)
{
	for (int at = 0; at < CHAIN_URRS_MAX; at++) {
		struct chain_urr *urr = chain->urrs[at];

		if (!urr)
			break;
		__sync_fetch_and_add(is_downlink ? &urr->downlink_bytes : &urr->uplink_bytes, octets);
		__sync_fetch_and_add(is_downlink ? &urr->downlink_packets : &urr->uplink_packets, 1);
	}
}

/* The flow of an IPv4 packet; without ports behind a header with options. */
static __always_inline struct flow flow_of(const struct ipv4 *ip, const void *end, int is_downlink)
{
	const struct udp *udp = (const void *)(ip + 1);
	struct flow flow = {
		.remote = is_downlink ? ip->source : ip->destination,
		.protocol = ip->protocol,
	};

	if ((const void *)(udp + 1) <= end)
		flow.port = bpf_ntohs(is_downlink ? udp->source : udp->destination);
	return flow;
}

static __noinline const struct chain_route *ask_kernel(struct xdp_md *ctx, __be32 source, __be32 destination)
{
	struct bpf_fib_lookup fib = {
		.family = AF_INET,
		.ifindex = ctx->ingress_ifindex,
		.ipv4_src = source,
		.ipv4_dst = destination,
	};
	struct chain_route route = {};

	if (bpf_fib_lookup(ctx, &fib, sizeof(fib), 0) != BPF_FIB_LKUP_RET_SUCCESS)
		return 0;
	route.ifindex = fib.ifindex;
	__builtin_memcpy(route.destination, fib.dmac, ETH_ALEN);
	__builtin_memcpy(route.source, fib.smac, ETH_ALEN);
	bpf_map_update_elem(&route_cache, &destination, &route, BPF_ANY);
	return bpf_map_lookup_elem(&route_cache, &destination);
}

static __always_inline const struct chain_route *route(struct xdp_md *ctx, __be32 source, __be32 destination)
{
	const struct chain_route *known = bpf_map_lookup_elem(&route_cache, &destination);

	return known ? known : ask_kernel(ctx, source, destination);
}

static __always_inline int leave(struct xdp_md *ctx, const struct chain_route *route)
{
	struct ethernet *link = (void *)(long)ctx->data;

	if ((void *)(link + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	__builtin_memcpy(link->destination, route->destination, ETH_ALEN);
	__builtin_memcpy(link->source, route->source, ETH_ALEN);
	link->type = bpf_htons(ETH_P_IP);
	return bpf_redirect(route->ifindex, 0);
}

/* Octets of the GTP-U header with its chain of extension headers; 0 for what is no G-PDU or malformed. */
static __always_inline __u32 gtpu_length(const struct gtpu *gtpu, const void *end)
{
	const struct gtpu_optional *optional = (const void *)(gtpu + 1);
	const __u8 *at = (const void *)(optional + 1);
	__u32 length = sizeof(*gtpu) + sizeof(*optional);
	__u8 next;

	if (gtpu->type != GTPU_G_PDU || gtpu->flags >> 4 != 3)
		return 0;
	if (!(gtpu->flags & GTPU_OPTIONAL))
		return sizeof(*gtpu);
	if ((const void *)at > end)
		return 0;
	next = gtpu->flags & 0x04 ? optional->next : 0;
	for (int walked = 0; next; walked++) {
		__u32 octets;

		if (walked == EXTENSIONS_MAX || (const void *)(at + 1) > end)
			return 0;
		octets = *at * 4;
		at += octets;
		/* The verifier follows the one pointer that was compared with the end. */
		barrier_var(at);
		if (!octets || (const void *)at > end)
			return 0;
		next = at[-1];
		length += octets;
	}
	return length;
}

/* The QFI of a PDU session container that comes first, which is where all put it. */
static __always_inline __u8 qfi_of(const struct gtpu *gtpu, const void *end)
{
	const struct gtpu_optional *optional = (const void *)(gtpu + 1);
	const struct pdu_session *container = (const void *)(optional + 1);

	if (!(gtpu->flags & 0x04) || (const void *)(container + 1) > end || optional->next != GTPU_PDU_SESSION)
		return 0;
	return container->qfi & 0x3f;
}

static __always_inline int uplink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *link = data;
	struct ipv4 *outer = (void *)(link + 1), *inner;
	struct udp *udp = (void *)(outer + 1);
	struct gtpu *gtpu = (void *)(udp + 1);
	const struct chain_route *hop;
	const struct chain_pdr *pdr;
	struct chain chain = {};
	struct flow flow = {};
	__u32 length, octets;

	if ((void *)(gtpu + 1) > end || link->type != bpf_htons(ETH_P_IP) || outer->version_ihl != 0x45 ||
	    outer->protocol != IPPROTO_UDP || (outer->fragment & bpf_htons(IP_MF_OR_OFFSET)) ||
	    udp->destination != bpf_htons(GTPU_PORT))
		return XDP_PASS;
	length = gtpu_length(gtpu, end);
	if (!length || length > 256)
		return XDP_PASS;
	inner = (void *)gtpu + length;
	if ((void *)(inner + 1) > end || inner->version_ihl >> 4 != 4)
		return XDP_PASS;
	pdr = bpf_map_lookup_elem(&pdr_uplink, &gtpu->teid);
	if (!pdr || !pdr->remove_outer || inner->source != pdr->ue || inner->ttl <= 1)
		return XDP_DROP;
	octets = bpf_ntohs(inner->total_length);
	if (config.has_rules) {
		flow = flow_of(inner, end, 0);
		flow.qfi = qfi_of(gtpu, end);
	}
	if (!follow(pdr, &flow, 0, octets, &chain) || !chain.far->forward || !chain.is_open)
		return XDP_DROP;
	if (octets > config.mtu)
		return XDP_PASS;
	hop = route(ctx, inner->source, inner->destination);
	if (!hop)
		return XDP_PASS;
	count(&chain, 0, octets);
	decrement_ttl(inner);
	if (bpf_xdp_adjust_head(ctx, sizeof(*outer) + sizeof(*udp) + length))
		return XDP_ABORTED;
	return leave(ctx, hop);
}

static __always_inline void encapsulate(struct tunnel *tunnel, const struct chain_far *far, __u8 qfi, __u32 octets)
{
	__u32 gtpu_octets = octets + CONTAINER_LEN;
	__u32 udp_octets = gtpu_octets + sizeof(struct gtpu) + sizeof(struct udp);

	tunnel->ip = (struct ipv4){
		.version_ihl = 0x45,
		.tos = far->tos,
		.total_length = bpf_htons(udp_octets + sizeof(struct ipv4)),
		.fragment = bpf_htons(IP_DF),
		.ttl = TTL,
		.protocol = IPPROTO_UDP,
		.source = far->local,
		.destination = far->peer,
	};
	tunnel->ip.checksum = header_checksum(&tunnel->ip);
	tunnel->udp = (struct udp){
		.source = bpf_htons(GTPU_PORT),
		.destination = bpf_htons(GTPU_PORT),
		.length = bpf_htons(udp_octets),
	};
	tunnel->gtpu = (struct gtpu){
		.flags = 0x34,
		.type = GTPU_G_PDU,
		.length = bpf_htons(gtpu_octets),
		.teid = far->teid,
	};
	tunnel->optional = (struct gtpu_optional){ .next = GTPU_PDU_SESSION };
	tunnel->container = (struct pdu_session){ .length = 1, .qfi = qfi };
}

static __always_inline int downlink(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct ethernet *link = data;
	struct ipv4 *ip = (void *)(link + 1);
	const struct chain_route *hop;
	const struct chain_pdr *pdr;
	struct tunnel *tunnel;
	struct chain chain = {};
	struct flow flow = {};
	__u32 octets;

	if ((void *)(ip + 1) > end || link->type != bpf_htons(ETH_P_IP) || ip->version_ihl >> 4 != 4)
		return XDP_PASS;
	pdr = bpf_map_lookup_elem(&pdr_downlink, &ip->destination);
	if (!pdr || ip->ttl <= 1)
		return XDP_PASS;
	octets = bpf_ntohs(ip->total_length);
	if (config.has_rules)
		flow = flow_of(ip, end, 1);
	if (!follow(pdr, &flow, 1, octets, &chain) || !chain.far->forward || !chain.far->create_outer || !chain.is_open)
		return XDP_DROP;
	if (octets + TUNNEL_LEN > config.mtu)
		return XDP_PASS;
	hop = route(ctx, chain.far->local, chain.far->peer);
	if (!hop)
		return XDP_PASS;
	count(&chain, 1, octets);
	decrement_ttl(ip);
	if (bpf_xdp_adjust_head(ctx, -(int)TUNNEL_LEN))
		return XDP_ABORTED;
	tunnel = (void *)(long)ctx->data;
	if ((void *)(tunnel + 1) > (void *)(long)ctx->data_end)
		return XDP_ABORTED;
	encapsulate(tunnel, chain.far, chain.qfi, octets);
	return leave(ctx, hop);
}

/* xorshift64* (Vigna 2016), scaled to the number of sessions. */
static __always_inline __u32 random_session(struct chain_state *run)
{
	__u64 random = run->random;

	random ^= random >> 12;
	random ^= random << 25;
	random ^= random >> 27;
	run->random = random;
	return ((random * 0x2545f4914f6cdd1dULL) >> 32) * config.sessions >> 32;
}

static __always_inline struct chain_state *this_run(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&state, &zero);
}

static __always_inline __sum16 with_address(__u32 sum, __be32 address)
{
	return ~folded(sum + (address & 0xffff) + (address >> 16));
}

/* In words: memcpy would go octet by octet, as the compiler knows no alignment. Sizes are even. */
static __always_inline void copy(void *to, const volatile void *from, __u32 octets)
{
	__u32 at = 0;

	for (; at + 8 <= octets; at += 8)
		*(__u64 *)(to + at) = *(const volatile __u64 *)(from + at);
	for (; at + 2 <= octets; at += 2)
		*(__u16 *)(to + at) = *(const volatile __u16 *)(from + at);
}

/* Writes the headers of a random session's uplink frame. */
static __always_inline int write_uplink(struct xdp_md *ctx, struct chain_state *run)
{
	__u8 *data = (void *)(long)ctx->data;
	struct ipv4 *inner = (void *)(data + sizeof(struct tunnel));
	struct tunnel *tunnel = (void *)data;
	__u32 session = random_session(run);

	if ((void *)(data + CHAIN_UPLINK_HEADERS) > (void *)(long)ctx->data_end)
		return 0;
	copy(data, config.uplink, CHAIN_UPLINK_HEADERS);
	tunnel->gtpu.teid = bpf_htonl(session + 1);
	inner->source = bpf_htonl(config.first_ue + session);
	inner->checksum = with_address(config.uplink_sum, inner->source);
	return 1;
}

/* Writes the headers of a random session's downlink frame. */
static __always_inline int write_downlink(struct xdp_md *ctx, struct chain_state *run)
{
	__u8 *data = (void *)(long)ctx->data;
	struct ipv4 *ip = (void *)(data + sizeof(struct ethernet));
	__u32 session = random_session(run);

	if ((void *)(data + CHAIN_DOWNLINK_HEADERS) > (void *)(long)ctx->data_end)
		return 0;
	copy(data, config.downlink, CHAIN_DOWNLINK_HEADERS);
	ip->destination = bpf_htonl(config.first_ue + session);
	ip->checksum = with_address(config.downlink_sum, ip->destination);
	return 1;
}

/* Gives the frame the length it arrived with. */
static __always_inline int restore(struct xdp_md *ctx)
{
	long length = (long)ctx->data_end - (long)ctx->data;
	int excess;

	/* Keeps the compiler from mixing the sum with pointers, which the verifier refuses. */
	barrier_var(length);
	excess = length - (int)config.frame_len;

	return !excess || !bpf_xdp_adjust_head(ctx, excess);
}

/* One change of the length a run, as the UPF's own is one and `restore` undoes it: the wrapper's is a half of each. */
static __always_inline int stretch(struct xdp_md *ctx, struct chain_state *run)
{
	run->stretched ^= 1;
	return !bpf_xdp_adjust_head(ctx, run->stretched ? -(int)TUNNEL_LEN : (int)TUNNEL_LEN);
}

#define RUN(direction)                                                                          \
	SEC("xdp")                                                                              \
	int run_##direction(struct xdp_md *ctx)                                                 \
	{                                                                                       \
		struct chain_state *run = this_run();                                           \
		int action;                                                                     \
                                                                                                \
		if (!run || !restore(ctx) || !write_##direction(ctx, run))                      \
			return XDP_ABORTED;                                                     \
		action = direction(ctx);                                                        \
		if (action != XDP_REDIRECT)                                                     \
			run->failed++;                                                          \
		return action;                                                                  \
	}                                                                                       \
                                                                                                \
	SEC("xdp")                                                                              \
	int wrap_##direction(struct xdp_md *ctx)                                                \
	{                                                                                       \
		struct chain_state *run = this_run();                                           \
                                                                                                \
		if (!run || !stretch(ctx, run) || !write_##direction(ctx, run))                 \
			return XDP_ABORTED;                                                     \
		return XDP_REDIRECT;                                                            \
	}

RUN(uplink)
RUN(downlink)

/* The kernel gives bpf_fib_lookup to programs under the GPL alone. */
char _license[] SEC("license") = "GPL";
