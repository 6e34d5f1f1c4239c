/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GRE header removal as a bump in the wire: what comes in by this interface leaves by its peer port, packets of rules
 * that say so without their outer IP and GRE headers. Everything that takes more (pieces, checksums over the payload,
 * routing, outer extension headers) is left to the engine as it came; where the engine does all, everything is, but for
 * what is the kernel's.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "gre.h"
#include "wire.h"

#define IPPROTO_GRE 47
#define ETH_P_TEB 0x6558
#define LINK_MAX (14 + 4 * VLAN_TAGS_MAX)
#define IP_MAX 60
/* Farthest that a rule's packet begins in its frame: Ethernet, IPv4 or IPv6, GRE with all options. */
#define OFFSET_MAX (LINK_MAX + IP_MAX + 16)

#define GRE_CHECKSUM 0x8000
#define GRE_KEY 0x2000
#define GRE_SEQUENCE 0x1000
#define GRE_REFUSED 0x4c00 /* routing, strict source route, highest of recursion control (RFC 2784, 2.3) */
#define GRE_VERSION 0x0007

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct gre_config);
	__uint(max_entries, GRE_BANKS);
} gre_config SEC(".maps");

/* Which of the configurations, with its rules, is obeyed. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} gre_bank SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct gre_rule);
	__uint(max_entries, GRE_BANKS * GRE_RULES_MAX);
} gre_rules SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct gre_totals);
	__uint(max_entries, GRE_PLACES);
} gre_totals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct gre_counters);
	__uint(max_entries, 1);
} gre_counters SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, 1);
} gre_peer_port SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, STEER_QUEUES_MAX);
} gre_sockets SEC(".maps");

struct gre {
	__be16 flags;
	__be16 protocol;
};

/* A tunnel packet, and what the search for its rule has found. */
struct seen {
	__u64 source[2];
	__u64 destination[2];
	__u32 key;
	__u8 family;
	__u8 has_key;
	__u8 inner;
	__u8 found;
	__u32 place;
	__u32 verdict;
	__u32 flags;
	__u32 first; /* rules before the first that is tried */
};

static __always_inline struct gre_counters *counters(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&gre_counters, &zero);
}

static __always_inline int hand(struct xdp_md *ctx)
{
	struct gre_counters *counted = counters();

	if (counted)
		counted->handed++;
	/* The kernel's, where there is no engine. */
	return bpf_redirect_map(&gre_sockets, ctx->rx_queue_index, XDP_PASS);
}

static __always_inline int drop(struct xdp_md *ctx, const struct gre_config *config, enum gre_drop reason)
{
	struct gre_counters *counted = counters();

	if (config->flags & GRE_ENGINE)
		return hand(ctx);
	if (counted) {
		counted->dropped[reason]++;
		counted->octets += bpf_xdp_get_buff_len(ctx);
	}
	return XDP_DROP;
}

static __always_inline int punt(void)
{
	struct gre_counters *counted = counters();

	if (counted)
		counted->kernel++;
	return XDP_PASS;
}

/* Whether a packet may leave by the peer port here; the engine says of one that is too long that it is. */
static __always_inline int fits(struct xdp_md *ctx, const struct gre_config *config)
{
	return !(config->flags & GRE_ENGINE) && bpf_xdp_get_buff_len(ctx) <= LINK_MAX + config->mtu;
}

/* As it is. */
static __always_inline int to_peer_port(struct xdp_md *ctx, const struct gre_config *config)
{
	struct gre_counters *counted = counters();
	__u32 length = bpf_xdp_get_buff_len(ctx);

	if (!(config->flags & GRE_PEER_PORT))
		return punt();
	if (!fits(ctx, config))
		return hand(ctx);
	if (counted) {
		counted->passed++;
		counted->octets += length;
		counted->sent += length;
	}
	return bpf_redirect_map(&gre_peer_port, 0, XDP_PASS);
}

static __always_inline int meets(const struct gre_rule *rule, const struct seen *seen)
{
	if (rule->family && rule->family != seen->family)
		return 0;
	if ((seen->source[0] & rule->source_mask[0]) != rule->source[0] ||
	    (seen->source[1] & rule->source_mask[1]) != rule->source[1] ||
	    (seen->destination[0] & rule->destination_mask[0]) != rule->destination[0] ||
	    (seen->destination[1] & rule->destination_mask[1]) != rule->destination[1])
		return 0;
	if (!(rule->inner & seen->inner))
		return 0;
	if (rule->key_match == GRE_KEY_ABSENT)
		return !seen->has_key;
	if (rule->key_match == GRE_KEY_IS)
		return seen->has_key && rule->key == seen->key;
	return 1;
}

static long try_rule(__u32 number, void *context)
{
	struct seen *seen = context;
	const struct gre_rule *rule;

	number += seen->first;
	rule = bpf_map_lookup_elem(&gre_rules, &number);
	if (!rule)
		return 1;
	if (!meets(rule, seen))
		return 0;
	seen->found = 1;
	seen->place = rule->place;
	seen->verdict = rule->verdict;
	seen->flags = rule->flags;
	return 1;
}

static __always_inline void find(struct seen *seen, __u32 first, __u32 rules)
{
	seen->first = first;
	bpf_loop(rules, try_rule, seen, 0);
}

static __always_inline void count(const struct seen *seen, __u32 length)
{
	struct gre_totals *totals;

	if (!seen->found)
		return;
	totals = bpf_map_lookup_elem(&gre_totals, &seen->place);
	if (totals) {
		totals->packets++;
		totals->octets += length;
	}
}

static __always_inline void see_ipv4(struct seen *seen, const struct ipv4 *ip)
{
	seen->family = GRE_V4;
	seen->source[1] = bpf_cpu_to_be64(0xffff00000000ull);
	seen->destination[1] = seen->source[1];
	__builtin_memcpy((__u8 *)&seen->source[1] + 4, ip->source, 4);
	__builtin_memcpy((__u8 *)&seen->destination[1] + 4, ip->destination, 4);
}

static __always_inline void see_ipv6(struct seen *seen, const struct ipv6 *ip6)
{
	seen->family = GRE_V6;
	__builtin_memcpy(seen->source, &ip6->source, 16);
	__builtin_memcpy(seen->destination, &ip6->destination, 16);
}

static __always_inline int is_extension(__u8 next)
{
	return next == IPPROTO_HOPOPTS || next == IPPROTO_ROUTING || next == IPPROTO_DSTOPTS || next == IPPROTO_AH ||
	       next == IPPROTO_FRAGMENT;
}

/* Whether GRE is what IPv6 extension headers from `offset` on lead to. */
static __always_inline int leads_to_gre(struct xdp_md *ctx, __u32 offset, __u8 next)
{
	for (int i = 0; i < EXTENSIONS_MAX; i++) {
		__u8 header[2];

		if (!is_extension(next) || bpf_xdp_load_bytes(ctx, offset, header, sizeof(header)))
			break;
		if (next == IPPROTO_FRAGMENT)
			offset += 8;
		else if (next == IPPROTO_AH)
			offset += 4 * (header[1] + 2);
		else
			offset += 8 * (header[1] + 1);
		next = header[0];
	}
	return next == IPPROTO_GRE;
}

/* What goes over from the outer header to the packet in it; what is wrong with that packet, else negative. */
static __always_inline int apply(void *at, const void *end, __u8 inner, __u8 tos, __u8 hops, __u32 flags)
{
	struct ipv4 *ip = at;
	struct ipv6 *ip6 = at;
	int ecn;

	if (inner == GRE_INNER_V4) {
		__u8 class, left;

		if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || (ip->version_ihl & 15) < 5)
			return GRE_DROP_INNER;
		ecn = ecn_of(tos, ip->tos);
		if (ecn < 0)
			return GRE_DROP_CONGESTION;
		class = ((flags & GRE_DSCP_UNIFORM ? tos : ip->tos) & ~ECN) | ecn;
		left = flags & GRE_TTL_UNIFORM && hops < ip->ttl ? hops : ip->ttl;
		if (class != ip->tos)
			ip->checksum = updated(ip->checksum, bpf_htons(ip->version_ihl << 8 | ip->tos),
					       bpf_htons(ip->version_ihl << 8 | class));
		if (left != ip->ttl)
			ip->checksum = updated(ip->checksum, bpf_htons(ip->ttl << 8 | ip->protocol),
					       bpf_htons(left << 8 | ip->protocol));
		ip->tos = class;
		ip->ttl = left;
	} else if (inner == GRE_INNER_V6) {
		__u8 *octets = at;
		__u8 class;

		if ((void *)(ip6 + 1) > end || octets[0] >> 4 != 6)
			return GRE_DROP_INNER;
		class = octets[0] << 4 | octets[1] >> 4;
		ecn = ecn_of(tos, class);
		if (ecn < 0)
			return GRE_DROP_CONGESTION;
		class = ((flags & GRE_DSCP_UNIFORM ? tos : class) & ~ECN) | ecn;
		octets[0] = 0x60 | class >> 4;
		octets[1] = (octets[1] & 0x0f) | class << 4;
		if (flags & GRE_TTL_UNIFORM && hops < ip6->hop_limit)
			ip6->hop_limit = hops;
	} else if (at + 14 > end) {
		return GRE_DROP_INNER;
	}
	return -1;
}

/* Ethernet with so many tags, kept while the packet moves. */
struct link {
	struct ethernet ethernet;
	__u32 tags[VLAN_TAGS_MAX]; /* identifier of the protocol, and tag, as they lie in the frame */
};

/* Moves Ethernet and tags up to the packet at `offset`; cuts off what is behind `total` octets of it. */
static __always_inline int strip(struct xdp_md *ctx, const struct gre_config *config, __u32 tags, __u32 offset, __u32 total,
				 __u8 inner, __be16 protocol)
{
	__u32 link_len = sizeof(struct ethernet) + 4 * tags, came = bpf_xdp_get_buff_len(ctx), wanted, length;
	struct link kept = {};
	struct gre_counters *counted;
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	__u8 *at = data;

	if (data + LINK_MAX > end)
		return drop(ctx, config, GRE_DROP_INNER);
	__builtin_memcpy(&kept.ethernet, at, sizeof(kept.ethernet));
	__builtin_memcpy(&kept.tags[0], at + 12, 4);
	__builtin_memcpy(&kept.tags[1], at + 16, 4);
	if (inner == GRE_INNER_ETHERNET) {
		struct ethernet *frame = data + (offset & 127);

		if ((void *)(frame + 1) > end)
			return drop(ctx, config, GRE_DROP_INNER);
		__builtin_memcpy(&kept.ethernet, frame, sizeof(kept.ethernet));
		/* Tags come behind the addresses of the frame that was in the tunnel. */
		link_len = 4 * tags;
	}
	if (bpf_xdp_adjust_head(ctx, (int)offset - (int)link_len))
		return drop(ctx, config, GRE_DROP_INNER);
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	at = data;
	if (data + LINK_MAX > end)
		return drop(ctx, config, GRE_DROP_INNER);
	__builtin_memcpy(at, &kept.ethernet, 12);
	at += 12;
	if (tags > 0) {
		__builtin_memcpy(at, &kept.tags[0], 4);
		at += 4;
	}
	if (tags > 1) {
		__builtin_memcpy(at, &kept.tags[1], 4);
		at += 4;
	}
	if (inner != GRE_INNER_ETHERNET)
		__builtin_memcpy(at, &protocol, 2);
	wanted = link_len + total;
	length = bpf_xdp_get_buff_len(ctx);
	if (length > wanted && bpf_xdp_adjust_tail(ctx, (int)wanted - (int)length))
		return drop(ctx, config, GRE_DROP_INNER);
	counted = counters();
	if (counted) {
		counted->stripped++;
		counted->octets += came;
		counted->sent += wanted;
	}
	return bpf_redirect_map(&gre_peer_port, 0, XDP_PASS);
}

static __always_inline int obey(struct xdp_md *ctx, const struct gre_config *config, __u32 verdict,
				enum gre_drop reason)
{
	switch (verdict) {
	case GRE_PASS:
		return to_peer_port(ctx, config);
	case GRE_DROP:
		return drop(ctx, config, reason);
	case GRE_PUNT:
		return punt();
	default:
		return hand(ctx);
	}
}

static __always_inline int run(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data;
	void *end = (void *)(long)ctx->data_end;
	struct ethernet *ethernet = data;
	const struct gre_config *config;
	struct seen seen = {};
	struct gre *gre;
	struct ipv4 *ip;
	struct ipv6 *ip6;
	__u32 zero = 0, *bank, offset = sizeof(*ethernet), tags = 0, outer_len, packet_len, frame_len = bpf_xdp_get_buff_len(ctx);
	__be16 type;
	__u16 flags;
	__u8 tos, hops;
	int wrong;

	bank = bpf_map_lookup_elem(&gre_bank, &zero);
	config = bank ? bpf_map_lookup_elem(&gre_config, bank) : NULL;
	if (!config)
		return XDP_ABORTED;
	if ((void *)(ethernet + 1) > end)
		return to_peer_port(ctx, config);
	type = ethernet->type;
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		const struct vlan_tag *tag = data + offset;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((const void *)(tag + 1) > end)
			goto other;
		type = tag->type;
		offset += sizeof(*tag);
		tags++;
	}
	/* More tags than are kept here. */
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD))
		return config->flags & GRE_PEER_PORT ? hand(ctx) : punt();
	ip = data + offset;
	ip6 = data + offset;
	if (type == bpf_htons(ETH_P_IP)) {
		__u32 header;

		if ((void *)(ip + 1) > end || ip->version_ihl >> 4 != 4 || ip->protocol != IPPROTO_GRE)
			goto other;
		header = (ip->version_ihl & 15) * 4;
		packet_len = bpf_ntohs(ip->total_length);
		if (header < sizeof(*ip) || header > packet_len || offset + packet_len > frame_len)
			return drop(ctx, config, GRE_DROP_IP_MALFORMED);
		if (header != sizeof(*ip) || ip->fragment & bpf_htons(IP_MF | IP_OFFSET))
			return hand(ctx);
		if (!is_checksum_right(ip))
			return drop(ctx, config, GRE_DROP_IP_CHECKSUM);
		see_ipv4(&seen, ip);
		tos = ip->tos;
		hops = ip->ttl;
		outer_len = sizeof(*ip);
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		__u8 next;

		if ((void *)(ip6 + 1) > end || *(__u8 *)ip6 >> 4 != 6)
			goto other;
		next = ip6->next;
		if (is_extension(next) && leads_to_gre(ctx, offset + sizeof(*ip6), next))
			return hand(ctx);
		if (next != IPPROTO_GRE)
			goto other;
		packet_len = sizeof(*ip6) + bpf_ntohs(ip6->payload_length);
		if (!ip6->payload_length || offset + packet_len > frame_len)
			return drop(ctx, config, GRE_DROP_IP_MALFORMED);
		see_ipv6(&seen, ip6);
		tos = bpf_ntohs(*(__be16 *)ip6) >> 4;
		hops = ip6->hop_limit;
		outer_len = sizeof(*ip6);
	} else {
		goto other;
	}
	gre = data + offset + outer_len;
	if (packet_len < outer_len + sizeof(*gre) || (void *)(gre + 1) > end)
		return obey(ctx, config, config->unreadable, GRE_DROP_MALFORMED);
	flags = bpf_ntohs(gre->flags);
	if (flags & GRE_VERSION)
		return obey(ctx, config, config->unreadable, GRE_DROP_VERSION);
	if (flags & GRE_REFUSED)
		return obey(ctx, config, config->unreadable, GRE_DROP_FLAGS);
	outer_len += sizeof(*gre);
	if (flags & GRE_CHECKSUM)
		outer_len += 4;
	if (flags & GRE_KEY) {
		const __be32 *key = data + offset + outer_len;

		if (packet_len < outer_len + 4 || (void *)(key + 1) > end)
			return obey(ctx, config, config->unreadable, GRE_DROP_MALFORMED);
		seen.key = bpf_ntohl(*key);
		seen.has_key = 1;
		outer_len += 4;
	}
	if (flags & GRE_SEQUENCE) {
		if (packet_len < outer_len + 4)
			return obey(ctx, config, config->unreadable, GRE_DROP_MALFORMED);
		outer_len += 4;
	}
	if (gre->protocol == bpf_htons(ETH_P_IP))
		seen.inner = GRE_INNER_V4;
	else if (gre->protocol == bpf_htons(ETH_P_IPV6))
		seen.inner = GRE_INNER_V6;
	else if (gre->protocol == bpf_htons(ETH_P_TEB))
		seen.inner = GRE_INNER_ETHERNET;
	seen.verdict = config->unmatched & 0xff;
	seen.flags = config->unmatched >> 8;
	type = gre->protocol;
	find(&seen, config->first, config->rules);
	if (seen.verdict == GRE_PUNT) {
		count(&seen, frame_len);
		return punt();
	}
	/* Of a sum over the payload the engine says whether it is right. */
	if (seen.verdict == GRE_HAND || flags & GRE_CHECKSUM || config->flags & GRE_ENGINE)
		return hand(ctx);
	if (seen.verdict != GRE_STRIP) {
		if (seen.verdict == GRE_DROP || fits(ctx, config))
			count(&seen, frame_len);
		return obey(ctx, config, seen.verdict, GRE_DROP_RULE);
	}
	/* What cannot be in good order here is for the engine to say. */
	if (!(config->flags & GRE_PEER_PORT) || !seen.inner || offset + packet_len - outer_len > LINK_MAX + config->mtu)
		return hand(ctx);
	outer_len += offset;
	if (outer_len > OFFSET_MAX)
		return hand(ctx);
	count(&seen, frame_len);
	/* A packet that is cut off by the outer length is not longer than that. */
	if (packet_len + offset < outer_len + (seen.inner == GRE_INNER_V4 ? 20 : seen.inner == GRE_INNER_V6 ? 40 : 14))
		return drop(ctx, config, GRE_DROP_INNER);
	wrong = apply(data + outer_len, end, seen.inner, tos, hops, seen.flags);
	if (wrong >= 0)
		return drop(ctx, config, wrong);
	return strip(ctx, config, tags, outer_len, packet_len + offset - outer_len, seen.inner, type);
other:
	if (config->flags & GRE_OTHERS_HANDED)
		return hand(ctx);
	if (config->encapsulations) {
		if (type == bpf_htons(ETH_P_IP) && (void *)(ip + 1) <= end)
			see_ipv4(&seen, ip);
		else if (type == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end)
			see_ipv6(&seen, ip6);
		else
			return to_peer_port(ctx, config);
		seen.inner = GRE_PLAIN;
		find(&seen, config->first + config->rules, config->encapsulations);
		if (seen.found)
			return hand(ctx);
	}
	return to_peer_port(ctx, config);
}

SEC("xdp")
int gre_plain(struct xdp_md *ctx)
{
	return run(ctx);
}

SEC("xdp.frags")
int gre_frags(struct xdp_md *ctx)
{
	return run(ctx);
}

char _license[] SEC("license") = "Apache-2.0";
