/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The offload: what the engine does with a packet of a session whose record fits, done in the driver. A packet that is
 * not plainly such a one is left as it came, with a reason counted, to the steering and so to the engine, which drops,
 * answers and counts. So nothing is dropped here but what gate, FAR or a rate say, and nothing is changed before it is
 * certain that the packet goes out.
 */
#ifndef KAIDO_OFFLOAD_BPF_H
#define KAIDO_OFFLOAD_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "grace.bpf.h"
#include "offload.h"
#include "offload_table.bpf.h"
#include "steer.h"
#include "wire.h"

#define OUTER_TTL 64
#define ENTROPY_PORT_BASE 49152
#define TUNNEL_OVERHEAD (20 + 8 + 8)
#define IPV6_MORE 20 /* octets that an IPv6 header is longer */
#define CONTAINER_LEN 8 /* optional part and PDU session container */
#define ICMPV6_SOLICITATION 135
#define ICMPV6_ADVERTISEMENT 136
#define TCP_FLAGS_AT 13
#define TCP_CHECKSUM_AT 16
#define TCP_SYN 2
#define OFFLOAD_OFFSET_MAX 128 /* of what is behind tags, a plain IP header, UDP and GTP-U */

/* The UE's packet, and what it is looked up by. */
struct offload_packet {
	const void *ip;
	__u64 key_value;
	__u32 key_scope;
	__u32 offset; /* of the UE's packet in the frame */
	__u32 total;  /* octets of the UE's packet */
	__u8 is_v6;
	__u8 hops;
	__u8 qfi;
	__u8 has_qfi;
	__u32 slot;     /* of its port */
	__u8 class;     /* ToS or Traffic Class octet, as it is to be */
	__u8 is_marked; /* it is not that yet */
	__u8 is_tunnelled; /* it came in a tunnel */
};

/* Reads the UE's packet of at most `room` octets; false when it is not a plain one. */
static __always_inline int offload_read_ip(struct offload_packet *packet, const void *at, const void *end, __u32 room)
{
	const struct ipv4 *ip = at;
	const struct ipv6 *ip6 = at;
	__u8 next;

	packet->ip = at;
	if ((const void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl == 0x45) {
		packet->is_v6 = 0;
		packet->total = bpf_ntohs(ip->total_length);
		packet->hops = ip->ttl;
		packet->class = ip->tos;
		return packet->total >= sizeof(*ip) && packet->total <= room && is_checksum_right(ip);
	}
	if (ip->version_ihl >> 4 != 6 || (const void *)(ip6 + 1) > end || !ip6->payload_length)
		return 0;
	next = ip6->next;
	packet->is_v6 = 1;
	packet->total = sizeof(*ip6) + bpf_ntohs(ip6->payload_length);
	packet->hops = ip6->hop_limit;
	packet->class = bpf_ntohl(ip6->version_class_flow) >> 20;
	/* Extension headers are walked by the engine. */
	return packet->total <= room && next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_FRAGMENT &&
	       next != IPPROTO_AH && next != IPPROTO_DSTOPTS;
}

/* What offload_walk returns: the lengths, and the QoS flow with a bit that says there is one. */
#define WALK_SHIFT 16
#define WALK_HAS_QFI 0x40

/* Walks the optional part of a GTP-U header at `offset`, in `length` octets: how many it takes, and the QoS flow above. Zero
 * when the engine has to look. */
__noinline __u32 offload_walk(struct xdp_md *ctx, __u32 offset, __u32 length, __u32 flags)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct gtpu_optional *optional;
	__u32 taken = sizeof(*optional), has_container = 0, flow = 0;
	__u8 next;

	if (offset > OFFLOAD_OFFSET_MAX)
		return 0;
	optional = data + offset;
	if (length < sizeof(*optional) || (const void *)(optional + 1) > end)
		return 0;
	next = flags & GTPU_EXTENSION ? optional->next : 0;
	for (int i = 0; i < GTPU_EXTENSIONS_MAX && next; i++) {
		const __u8 *extension = data + offset + taken;
		__u32 last;

		if (extension + 4 > (const __u8 *)end || !extension[0])
			return 0;
		if (next == GTPU_CONTAINER) {
			if (!has_container && extension[1] >> 4 <= 1)
				flow = WALK_HAS_QFI | (extension[2] & 0x3f);
			has_container = 1;
		} else if (next & GTPU_COMPREHENSION) {
			return 0;
		}
		taken += extension[0] * 4;
		if (taken > length || taken > sizeof(*optional) + GTPU_CHAIN_MAX)
			return 0;
		last = offset + taken - 1;
		/* Else the compiler checks one past it, which says nothing to the verifier. */
		barrier_var(last);
		extension = data + last;
		if (extension + 1 > (const __u8 *)end)
			return 0;
		next = *extension;
	}
	return next ? 0 : taken | flow << WALK_SHIFT;
}

/* Gives the packet the marks of its outer header; false when it cannot carry them. */
static __always_inline int offload_take_marks(struct offload_packet *packet, __u8 outer)
{
	int marks = ecn_of(outer, packet->class);

	packet->is_marked = marks != (packet->class & ECN);
	packet->class = (packet->class & ~ECN) | (marks & ECN);
	return marks >= 0;
}

/* Reads a G-PDU in a UDP datagram at `offset`, `header` octets behind that of the outer header; a reason, or -1 when all is
 * well. */
static __always_inline int offload_read_tunnel(struct xdp_md *ctx, struct offload_packet *packet, const void *data,
					    const void *end, __u32 offset, __u32 header, __u32 globals)
{
	__u8 outer = globals & OFFLOAD_ECN ? packet->class & ECN : 0;
	const struct udp *udp = data + offset;
	const struct gtpu *gtpu = (const void *)(udp + 1);
	__u32 room, length;

	if ((const void *)(gtpu + 1) > end)
		return OFFLOAD_HAND_GTPU;
	room = bpf_ntohs(udp->length);
	if (room < sizeof(*udp) + sizeof(*gtpu) || room > packet->total - header)
		return OFFLOAD_HAND_GTPU;
	room -= sizeof(*udp) + sizeof(*gtpu);
	length = bpf_ntohs(gtpu->length);
	if ((gtpu->flags & GTPU_VERSION_MASK) != GTPU_VERSION || gtpu->type != GTPU_G_PDU || length > room)
		return OFFLOAD_HAND_GTPU;
	packet->key_value |= bpf_ntohl(gtpu->teid);
	packet->is_tunnelled = 1;
	offset += sizeof(*udp) + sizeof(*gtpu);
	if (gtpu->flags & GTPU_OPTIONAL) {
		__u32 walked = offload_walk(ctx, offset, length, gtpu->flags);
		__u32 taken = walked & ((1 << WALK_SHIFT) - 1);

		if (!taken || taken > sizeof(struct gtpu_optional) + GTPU_CHAIN_MAX)
			return OFFLOAD_HAND_GTPU;
		offset += taken;
		length -= taken;
		packet->has_qfi = !!(walked >> WALK_SHIFT & WALK_HAS_QFI);
		packet->qfi = walked >> WALK_SHIFT & 0x3f;
	}
	packet->offset = offset;
	if (!offload_read_ip(packet, data + offset, end, length))
		return OFFLOAD_HAND_INNER;
	return !outer || offload_take_marks(packet, outer) ? -1 : OFFLOAD_HAND_INNER;
}

/* The packet's destination as a key of maps. */
static __always_inline struct steer_address offload_destination(const struct offload_packet *packet)
{
	struct steer_address address = {.bytes = {[10] = 0xff, [11] = 0xff}};

	if (packet->is_v6)
		__builtin_memcpy(address.bytes, ((const struct ipv6 *)packet->ip)->destination.bytes, 16);
	else
		__builtin_memcpy(address.bytes + 12, ((const struct ipv4 *)packet->ip)->destination, 4);
	return address;
}

/* Whether an address, its words in network byte order, may be one of the node's own. */
static __always_inline int offload_is_own(const struct offload_globals *globals, const struct offload_packet *packet)
{
	struct steer_address address;
	__u64 words[2] = {};
	__u32 bit;

	if (packet->is_v6) {
		words[0] = long_at(((const struct ipv6 *)packet->ip)->destination.bytes);
		words[1] = long_at(((const struct ipv6 *)packet->ip)->destination.bytes + 8);
	} else {
		words[1] = word_at(((const struct ipv4 *)packet->ip)->destination);
	}
	bit = (words[0] ^ words[1]) * 0x9e3779b97f4a7c15ull >> 52;
	if (!(globals->own[bit >> 6 & (OFFLOAD_OWN_WORDS - 1)] >> (bit & 63) & 1))
		return 0;
	address = offload_destination(packet);
	return bpf_map_lookup_elem(&offload_own, &address) != 0;
}

/* Whether routers forward to the packet's destination: not to multicast, broadcast, loopback, link-local. */
static __always_inline int offload_is_routed(const struct offload_packet *packet)
{
	const __u8 *to;
	__u64 high, low;

	if (!packet->is_v6) {
		to = ((const struct ipv4 *)packet->ip)->destination;
		return to[0] < 224 && to[0] != 127 && to[0] != 0 && !(to[0] == 169 && to[1] == 254);
	}
	to = ((const struct ipv6 *)packet->ip)->destination.bytes;
	high = long_at(to);
	low = long_at(to + 8);
	return to[0] != 0xff && !(to[0] == 0xfe && (to[1] & 0xc0) == 0x80) && (high | (low & ~bpf_cpu_to_be64(1)));
}

/* The way of a destination by the routes of a VRF: of an IPv4 address, or of the upper half of an IPv6 address. */
__noinline __u32 offload_way(__u64 to, __u32 family, __u32 vrf)
{
	const __u32 zero = 0;
	const struct offload_globals *globals = bpf_map_lookup_elem(&offload_globals, &zero);
	const struct offload_routes *routes;
	__u32 len;

	if (!globals)
		return OFFLOAD_WAY_ENGINE;
	family &= 1;
	routes = &globals->routes[*(const volatile __u32 *)&globals->routes_at & 1];
	len = routes->len[family];
	for (__u32 i = 0; i < OFFLOAD_ROUTES_MAX && i < len; i++) {
		const struct offload_route *route = &routes->routes[family][i];

		if ((to & route->to.mask) == route->to.value && route->vrf == vrf)
			return route->way;
	}
	return OFFLOAD_WAY_ENGINE;
}

/* The packet's destination as prefixes are compared with it. */
static __always_inline __u64 offload_to(const struct offload_packet *packet)
{
	if (packet->is_v6)
		return bpf_be64_to_cpu(long_at(((const struct ipv6 *)packet->ip)->destination.bytes));
	return bpf_ntohl(word_at(((const struct ipv4 *)packet->ip)->destination));
}

/* Whether the packet's destination may be a UE's, or lie behind one, where that matters. As crates/upf/src/ue_networks.rs has it. */
static __always_inline int offload_may_be_ue(const struct offload_globals *globals, const struct offload_packet *packet)
{
	__u32 shift = globals->ue_shift, at;
	const volatile __u64 *word;
	__u64 bit;

	if (!shift)
		return 0;
	bit = (offload_to(packet) >> OFFLOAD_UE_HOST_BITS) * 0x9e3779b97f4a7c15ull >> (shift & 63);
	at = bit >> 6;
	word = bpf_map_lookup_elem(&offload_ues, &at);
	return !word || *word >> (bit & 63) & 1;
}

/* Whether the packet's destination is on the link of a tenant's LAN, where no gateway leads. */
static __always_inline int offload_is_near(const struct offload_hop *hop, const struct offload_packet *packet)
{
	return (offload_to(packet) & hop->near.mask) == hop->near.value;
}

static __always_inline int offload_is_source_right(const struct offload_record *record, const struct offload_packet *packet)
{
	if (!record->ue_ipv4 && !record->ue_ipv6)
		return 1;
	if (packet->is_v6)
		return record->ue_ipv6 &&
		       long_at(((const struct ipv6 *)packet->ip)->source.bytes) == record->ue_ipv6;
	return record->ue_ipv4 && word_at(((const struct ipv4 *)packet->ip)->source) == record->ue_ipv4;
}

static __always_inline __u16 fold_words(__u64 words)
{
	words ^= words >> 32;
	words ^= words >> 16;
	return words;
}

/* The outer source port of a flow: vectors/README.md says how. */
static __always_inline __u32 offload_entropy_port(const struct offload_packet *packet, const void *end)
{
	const __be16 *ports;
	__u32 header;
	__u16 folded;
	__u8 protocol;
	int is_whole = 1;

	if (packet->is_v6) {
		const struct ipv6 *ip = packet->ip;

		folded = fold_words(long_at(ip->source.bytes) ^ long_at(ip->source.bytes + 8) ^
				    long_at(ip->destination.bytes) ^ long_at(ip->destination.bytes + 8));
		protocol = ip->next;
		header = sizeof(*ip);
		ports = (const void *)(ip + 1);
	} else {
		const struct ipv4 *ip = packet->ip;

		folded = fold_words(word_at(ip->source) ^ word_at(ip->destination));
		protocol = ip->protocol;
		header = sizeof(*ip);
		ports = (const void *)(ip + 1);
		is_whole = !(ip->fragment & bpf_htons(IP_MF | IP_OFFSET));
	}
	if (is_whole && (protocol == IPPROTO_TCP || protocol == IPPROTO_UDP || protocol == IPPROTO_SCTP) &&
	    packet->total >= header + 4 && (const void *)(ports + 2) <= end)
		folded ^= ports[0] ^ ports[1];
	return ENTROPY_PORT_BASE + ((bpf_ntohs(folded) ^ protocol) & 0x3fff);
}

/* Takes a hop off the UE's packet. */
static __always_inline void offload_decrement_ttl(void *at, int is_v6)
{
	struct ipv4 *ip = at;
	__u32 sum;

	if (is_v6) {
		((struct ipv6 *)at)->hop_limit--;
		return;
	}
	/* RFC 1624 equation 3: ~m + m' is 0xfeff whatever m is, as m' = m - 0x0100. */
	sum = (__u16)~bpf_ntohs(ip->checksum) + 0xfeffu;
	sum = (sum & 0xffff) + (sum >> 16);
	ip->checksum = bpf_htons((__u16)~sum);
	ip->ttl--;
}

/* Writes the UE's packet's ToS or Traffic Class octet; its first 20 octets are there. */
static __always_inline void offload_set_class(void *at, const struct offload_packet *packet)
{
	struct ipv4 *ip = at;
	__u8 *octets = at;

	if (packet->is_v6) {
		octets[0] = 0x60 | packet->class >> 4;
		octets[1] = (octets[1] & 0x0f) | packet->class << 4;
		return;
	}
	ip->checksum = updated(ip->checksum, bpf_htons(0x4500 | ip->tos), bpf_htons(0x4500 | packet->class));
	ip->tos = packet->class;
}

/* What goes before the UE's packet in a tunnel behind the IP header, in words; the last two only with a PDU session container. */
struct offload_tunnel {
	__be32 udp[2];
	__be32 gtpu[2];
	__be32 container[2];
};

struct offload_outer_ipv4 {
	__be32 ip[5];
	struct offload_tunnel tunnel;
};

struct offload_outer_ipv6 {
	__be32 ip[10];
	struct offload_tunnel tunnel;
};

_Static_assert(sizeof(struct offload_outer_ipv4) == TUNNEL_OVERHEAD + CONTAINER_LEN &&
		       sizeof(struct offload_outer_ipv6) == TUNNEL_OVERHEAD + IPV6_MORE + CONTAINER_LEN,
	       "tunnel headers");

#define OFFLOAD_SUM_UNKNOWN 0x10000u

/* The ones' complement sum of the UE's packet as it goes out, a hop less, by its headers alone: what its own checksum covers sums to
 * the complement of the pseudo-header. As crates/wire/src/checksum.rs has it (`sum_of_ip`). OFFLOAD_SUM_UNKNOWN where it has no
 * checksum of all its payload. */
static __always_inline __u32 offload_sum(const struct offload_packet *packet, const void *end)
{
	const struct udp *udp;
	__u32 upper;
	__u64 sum;
	__u8 protocol;

	if (packet->is_v6) {
		const struct ipv6 *ip = packet->ip;

		protocol = ip->next;
		upper = packet->total - sizeof(*ip);
		udp = (const void *)(ip + 1);
		/* Addresses and length are in the header and in the pseudo-header. */
		sum = (__u64)bpf_htonl(6u << 28 | (__u32)packet->class << 20 | (bpf_ntohl(ip->version_class_flow) & 0xfffff)) +
		      bpf_htons((__u32)protocol << 8 | (__u8)(ip->hop_limit - 1)) + (__u16)~bpf_htons(protocol);
		if (protocol == IPPROTO_ICMPV6)
			return fold_sum(sum);
	} else {
		const struct ipv4 *ip = packet->ip;

		protocol = ip->protocol;
		upper = packet->total - sizeof(*ip);
		udp = (const void *)(ip + 1);
		if (ip->fragment & bpf_htons(IP_MF | IP_OFFSET))
			return OFFLOAD_SUM_UNKNOWN;
		/* The header's own sum is zero, and so is that of an ICMP message. */
		if (protocol == IPPROTO_ICMP)
			return 0;
		sum = (__u64)word_at(ip->source) + word_at(ip->destination) + bpf_htons(protocol) + bpf_htons(upper);
		sum = (__u16)~fold_sum(sum);
	}
	if (protocol == IPPROTO_UDP && ((const void *)(udp + 1) > end || bpf_ntohs(udp->length) != upper || !udp->checksum))
		return OFFLOAD_SUM_UNKNOWN;
	return protocol == IPPROTO_UDP || protocol == IPPROTO_TCP ? fold_sum(sum) : OFFLOAD_SUM_UNKNOWN;
}

/* Whether the sender has left the checksum of TCP or UDP to its device: the field has the sum of the pseudo-header then. As
 * crates/wire/src/checksum.rs has it (`unfinished`). */
static __always_inline int offload_is_unfinished(const struct offload_packet *packet, const void *end)
{
	const __be16 *field;
	const void *upper;
	__u8 protocol;
	__u64 sum;

	if (packet->is_v6) {
		const struct ipv6 *ip = packet->ip;

		protocol = ip->next;
		upper = ip + 1;
		sum = bpf_htons(packet->total - sizeof(*ip));
		for (int i = 0; i < 16; i += 4)
			sum += (__u64)word_at(ip->source.bytes + i) + word_at(ip->destination.bytes + i);
	} else {
		const struct ipv4 *ip = packet->ip;

		if (ip->fragment & bpf_htons(IP_MF | IP_OFFSET))
			return 0;
		protocol = ip->protocol;
		upper = ip + 1;
		sum = (__u64)word_at(ip->source) + word_at(ip->destination) + bpf_htons(packet->total - sizeof(*ip));
	}
	if (protocol == IPPROTO_UDP)
		field = upper + __builtin_offsetof(struct udp, checksum);
	else if (protocol == IPPROTO_TCP)
		field = upper + TCP_CHECKSUM_AT;
	else
		return 0;
	return (const void *)(field + 1) <= end && *field == fold_sum(sum + bpf_htons(protocol));
}

/* Writes what is behind the outer IP header of a packet of `total` octets, without UDP checksum. */
static __always_inline void offload_write_tunnel(struct offload_tunnel *tunnel, const struct offload_rule *rule, __u32 total,
					      __u32 port)
{
	__u32 container = rule->flags & OFFLOAD_QFI_MARK ? CONTAINER_LEN : 0;

	tunnel->udp[0] = bpf_htonl(port << 16 | GTPU_PORT);
	tunnel->udp[1] = bpf_htonl(((__u32)(sizeof(struct udp) + sizeof(struct gtpu)) + container + total) << 16);
	tunnel->gtpu[0] = bpf_htonl((__u32)(container ? GTPU_VERSION | GTPU_EXTENSION : GTPU_VERSION) << 24 |
				    GTPU_G_PDU << 16 | (total + container));
	tunnel->gtpu[1] = rule->teid;
	if (container) {
		tunnel->container[0] = bpf_htonl(GTPU_CONTAINER);
		tunnel->container[1] = bpf_htonl(1u << 24 | (rule->flags & OFFLOAD_CONTAINER_UPLINK ? 0x10u << 16 : 0) |
						 (rule->flags >> OFFLOAD_QFI_SHIFT & 0x3f) << 8);
	}
}

/* Writes the UDP checksum where there is none yet: `sum` is that of the UE's packet and of the pseudo-header without length. */
static __always_inline void offload_write_checksum(struct offload_tunnel *tunnel, const struct offload_rule *rule, __u64 sum)
{
	__u16 checksum;

	/* The length of UDP is in the pseudo-header too. */
	sum += (__u64)tunnel->udp[0] + 2ull * tunnel->udp[1] + tunnel->gtpu[0] + tunnel->gtpu[1];
	if (rule->flags & OFFLOAD_QFI_MARK)
		sum += (__u64)tunnel->container[0] + tunnel->container[1];
	checksum = ~fold_sum(sum);
	/* Zero says that there is none. */
	tunnel->udp[1] |= bpf_htonl(checksum ? bpf_ntohs(checksum) : 0xffff);
}

static __always_inline void offload_write_ipv4(struct offload_outer_ipv4 *outer, const struct offload_template *template,
					    __u32 length, __u32 copied)
{
	__u16 checksum = ~fold_sum((__u64)template->sum + bpf_htons(length) + bpf_htons(copied));

	outer->ip[0] = bpf_htonl(0x45u << 24 | (template->tos | copied) << 16 | length);
	outer->ip[1] = bpf_htonl(0x4000); /* identification 0, DF */
	outer->ip[2] = bpf_htonl(OUTER_TTL << 24 | IPPROTO_UDP << 16 | bpf_ntohs(checksum));
	outer->ip[3] = template->source[0];
	outer->ip[4] = template->destination[0];
}

static __always_inline void offload_write_ipv6(struct offload_outer_ipv6 *outer, const struct offload_template *template,
					    __u32 length, __u32 copied)
{
	outer->ip[0] = bpf_htonl(6u << 28 | (template->tos | copied) << 20);
	outer->ip[1] = bpf_htonl((length - (__u32)sizeof(struct ipv6)) << 16 | IPPROTO_UDP << 8 | OUTER_TTL);
	for (int i = 0; i < 4; i++) {
		outer->ip[2 + i] = template->source[i];
		outer->ip[6 + i] = template->destination[i];
	}
}

/* Octets of the outer headers. */
static __always_inline __u32 offload_overhead(const struct offload_template *template, __u32 flags)
{
	return TUNNEL_OVERHEAD + (template->flags & OFFLOAD_TEMPLATE_IPV6 ? IPV6_MORE : 0) +
	       (flags & OFFLOAD_QFI_MARK ? CONTAINER_LEN : 0);
}

/* Writes the outer headers at `at`; false when there is no room. `sum` is that of the UE's packet, where the template asks for a
 * checksum. */
static __always_inline int offload_write_outer(void *at, const void *end, const struct offload_packet *packet,
					    const struct offload_rule *rule, const struct offload_template *template,
					    __u32 port, __u32 sum)
{
	__u32 copied = packet->class & template->copied, length = packet->total + offload_overhead(template, rule->flags);
	struct offload_tunnel *tunnel;

	if (template->flags & OFFLOAD_TEMPLATE_IPV6) {
		struct offload_outer_ipv6 *outer = at;

		if ((const void *)(outer + 1) > end)
			return 0;
		offload_write_ipv6(outer, template, length, copied);
		tunnel = &outer->tunnel;
	} else {
		struct offload_outer_ipv4 *outer = at;

		if ((const void *)(outer + 1) > end)
			return 0;
		offload_write_ipv4(outer, template, length, copied);
		tunnel = &outer->tunnel;
	}
	offload_write_tunnel(tunnel, rule, packet->total, port);
	if (template->flags & OFFLOAD_TEMPLATE_CHECKSUM)
		offload_write_checksum(tunnel, rule, (__u64)template->udp_sum + sum);
	return 1;
}

/* Rewrites the frame: from here on it goes out. False when there is no room for the headers: then it is as before. */
static __always_inline int offload_rewrite(struct xdp_md *ctx, const struct offload_packet *packet,
					const struct offload_rule *rule, const struct offload_template *template,
					const struct offload_hop *hop, __u32 port, __u32 sum, __u32 surplus)
{
	__u32 overhead = template ? offload_overhead(template, rule->flags) : 0;
	__u32 inner = hop->tag ? hop->inner : 0;
	__u32 headers = sizeof(struct ethernet) + (hop->tag ? sizeof(struct vlan_tag) : 0) +
			(inner ? sizeof(struct vlan_tag) : 0) + overhead;
	__u32 is_v6 = template ? template->flags & OFFLOAD_TEMPLATE_IPV6 : packet->is_v6;
	__be16 type = bpf_htons(is_v6 ? ETH_P_IPV6 : ETH_P_IP);
	void *data, *end, *at;

	if (bpf_xdp_adjust_head(ctx, (int)packet->offset - (int)headers))
		return 0;
	data = (void *)(long)ctx->data;
	end = (void *)(long)ctx->data_end;
	at = data + sizeof(struct ethernet);
	/* Room for two tags and an IPv4 header's first words: less was never parsed. */
	if (at + sizeof(struct ipv4) > end)
		return 0;
	/* Both addresses are the hop's, in the order of the wire. */
	*(__u64 *)data = long_at(hop->destination);
	*(__u32 *)(data + 8) = word_at(hop->destination + 8);
	if (hop->tag) {
		struct vlan_tag *tag = at;

		((struct ethernet *)data)->type = bpf_htons(inner ? ETH_P_8021AD : ETH_P_8021Q);
		tag->tci = bpf_htons(hop->tag);
		tag->type = inner ? bpf_htons(ETH_P_8021Q) : type;
		at += sizeof(*tag);
		if (inner) {
			tag++;
			tag->tci = bpf_htons(inner);
			tag->type = type;
			at += sizeof(*tag);
		}
	} else {
		((struct ethernet *)data)->type = type;
	}
	if (template) {
		if (!offload_write_outer(at, end, packet, rule, template, port, sum))
			return 0;
		at += overhead;
	}
	if (at + sizeof(struct ipv4) > end)
		return 0;
	offload_decrement_ttl(at, packet->is_v6);
	if (packet->is_marked)
		offload_set_class(at, packet);
	if (surplus)
		bpf_xdp_adjust_tail(ctx, -(int)surplus);
	return 1;
}

/* Whether a packet is UDP to the port of GTP-U. */
static __always_inline int offload_is_to_tunnel(const struct offload_packet *packet, const void *end)
{
	const struct udp *udp;
	__u8 protocol;

	if (packet->is_v6) {
		protocol = ((const struct ipv6 *)packet->ip)->next;
		udp = packet->ip + sizeof(struct ipv6);
	} else {
		protocol = ((const struct ipv4 *)packet->ip)->protocol;
		udp = packet->ip + sizeof(struct ipv4);
	}
	return protocol == IPPROTO_UDP && (const void *)(udp + 1) <= end && udp->destination == bpf_htons(GTPU_PORT);
}

/* Finds the UE's packet and its key; a reason, or -1 when all is well. */
static __always_inline int offload_read(struct xdp_md *ctx, struct offload_packet *packet, const void *data, const void *end,
				     const struct steer_config *cfg, __u32 globals)
{
	const struct ethernet *eth = data;
	struct offload_vlan vlan = {};
	__u32 instance = cfg->instance;
	__u32 is_gtpu = cfg->flags & STEER_ROLE_GTPU, is_lan = 0;
	__u32 offset = sizeof(*eth), length;
	__be16 type;
	const struct ipv4 *ip;

	if ((const void *)(eth + 1) > end || word_at(eth->destination) != word_at(cfg->mac) ||
	    word_at(eth->destination + 2) != word_at(cfg->mac + 2))
		return OFFLOAD_HAND_NOT_CANDIDATE;
	type = eth->type;
	if (type == bpf_htons(ETH_P_8021Q) || type == bpf_htons(ETH_P_8021AD)) {
		const struct offload_vlan_role *found;

		for (int i = 0; i < VLAN_TAGS_MAX; i++) {
			const struct vlan_tag *tag = data + offset;

			if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
				break;
			if ((const void *)(tag + 1) > end)
				return OFFLOAD_HAND_NOT_CANDIDATE;
			vlan.outer = vlan.inner;
			vlan.inner = bpf_ntohs(tag->tci) & 0xfff;
			type = tag->type;
			offset += sizeof(*tag);
		}
		found = bpf_map_lookup_elem(&offload_vlans, &vlan);
		if (!found)
			return OFFLOAD_HAND_NOT_CANDIDATE;
		instance = found->instance;
		is_gtpu = found->flags & OFFLOAD_VLAN_GTPU;
		is_lan = found->flags & OFFLOAD_VLAN_LAN;
		packet->slot = found->slot;
	}
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		return OFFLOAD_HAND_NOT_CANDIDATE;
	packet->offset = offset;
	length = end - data;
	/* Else the compiler may add the offset to half a pointer, which the verifier refuses. */
	barrier_var(length);
	if (!offload_read_ip(packet, data + offset, end, length - offset) ||
	    packet->is_v6 != (type == bpf_htons(ETH_P_IPV6)))
		return OFFLOAD_HAND_OUTER;
	ip = packet->ip;
	if (is_gtpu && offload_is_to_tunnel(packet, end)) {
		__u32 header = packet->is_v6 ? sizeof(struct ipv6) : sizeof(struct ipv4);
		struct steer_address to = offload_destination(packet);

		/* A packet to a UE may be to that port too: only one to an address of ours is found as a tunnel. */
		if (packet->is_v6) {
			const __u32 *endpoint = bpf_map_lookup_elem(&offload_endpoints, &to);

			if (endpoint)
				packet->key_scope = OFFLOAD_SCOPE_TUNNEL_IPV6 | (*endpoint & 0xffff);
			else if (instance == OFFLOAD_NO_INSTANCE)
				return OFFLOAD_HAND_UNKNOWN;
		} else if (instance == OFFLOAD_NO_INSTANCE || bpf_map_lookup_elem(&gtpu_addrs, &to)) {
			if (ip->fragment & bpf_htons(IP_MF | IP_OFFSET))
				return OFFLOAD_HAND_OUTER;
			packet->key_value = (__u64)bpf_ntohl(word_at(ip->destination)) << 32;
			packet->key_scope = OFFLOAD_SCOPE_TUNNEL;
		}
		if (packet->key_scope)
			return offload_read_tunnel(ctx, packet, data, end, offset + header, header, globals);
	}
	if (instance == OFFLOAD_NO_INSTANCE)
		return OFFLOAD_HAND_NOT_CANDIDATE;
	/* Neighbours confirm a UE's address, which the engine has answered for, by a solicitation to that address. */
	if (is_lan && packet->is_v6 && ((const struct ipv6 *)packet->ip)->next == IPPROTO_ICMPV6) {
		const __u8 *kind = packet->ip + sizeof(struct ipv6);

		if ((const void *)(kind + 1) > end || *kind == ICMPV6_SOLICITATION || *kind == ICMPV6_ADVERTISEMENT)
			return OFFLOAD_HAND_NOT_CANDIDATE;
	}
	if (packet->is_v6) {
		packet->key_value = bpf_be64_to_cpu(long_at(((const struct ipv6 *)packet->ip)->destination.bytes));
		packet->key_scope = OFFLOAD_SCOPE_IPV6 | instance;
	} else {
		packet->key_value = bpf_ntohl(word_at(ip->destination));
		packet->key_scope = OFFLOAD_SCOPE_IPV4 | instance;
	}
	return -1;
}

/* What a line is asked about a packet: the halves of two words, which a function takes that the verifier looks at once. */
#define FLOW_HAS_QFI 0x40u
#define FLOW_IPV6 0x80u
#define FLOW_PORTS 0x100u        /* they are known */
#define FLOW_PORTS_UNKNOWN 0x200u /* of a fragment, or too short */
#define FLOW_PROTOCOL_SHIFT 16

/* The flow of a packet: its QFI, protocol and marks. */
static __always_inline __u32 offload_flow(const struct offload_packet *packet, const void *end, __u32 is_downlink, __u32 *remote,
				       __u32 *ports)
{
	__u32 flow = packet->has_qfi ? FLOW_HAS_QFI | packet->qfi : 0;
	const __be16 *upper;
	__u32 header;
	int is_whole = 1;
	__u8 protocol;

	*remote = 0;
	*ports = 0;
	if (packet->is_v6) {
		const struct ipv6 *ip = packet->ip;

		protocol = ip->next;
		header = sizeof(*ip);
		upper = (const void *)(ip + 1);
		flow |= FLOW_IPV6;
	} else {
		const struct ipv4 *ip = packet->ip;

		protocol = ip->protocol;
		header = sizeof(*ip);
		upper = (const void *)(ip + 1);
		is_whole = !(ip->fragment & bpf_htons(IP_MF | IP_OFFSET));
		*remote = bpf_ntohl(word_at(is_downlink ? ip->source : ip->destination));
	}
	flow |= (__u32)protocol << FLOW_PROTOCOL_SHIFT;
	if (protocol != IPPROTO_TCP && protocol != IPPROTO_UDP && protocol != IPPROTO_SCTP)
		return flow;
	if (!is_whole || packet->total < header + 4 || (const void *)(upper + 2) > end)
		return flow | FLOW_PORTS_UNKNOWN;
	/* The remote end's above the UE's. */
	*ports = is_downlink ? (__u32)bpf_ntohs(upper[0]) << 16 | bpf_ntohs(upper[1]) :
			       (__u32)bpf_ntohs(upper[1]) << 16 | bpf_ntohs(upper[0]);
	return flow | FLOW_PORTS;
}

/* The place of the first line that a packet matches, or zero: the engine knows. `at` is the group's first. As
 * crates/upf/src/record/lines.rs has it. */
__noinline __u32 offload_choose(__u32 at, __u32 count, __u32 flow, __u32 remote, __u32 ports)
{
	for (__u32 i = 0; i < OFFLOAD_LINES_MAX && i < count; i++) {
		const struct offload_line *line = offload_line_at(at + i);
		__u32 asks, far_port = ports >> 16, near_port = ports & 0xffff;

		if (!line)
			return 0;
		asks = line->asks;
		if (asks & OFFLOAD_ASK_QFI && (flow & (FLOW_HAS_QFI | 0x3f)) != (FLOW_HAS_QFI | line->qfi))
			continue;
		if (asks & OFFLOAD_ASK_PROTOCOL && (flow >> FLOW_PROTOCOL_SHIFT & 0xff) != line->protocol)
			continue;
		if (asks & OFFLOAD_ASK_IPV6) {
			if (flow & FLOW_IPV6)
				return 0;
			continue;
		}
		if (asks & OFFLOAD_ASK_IPV4) {
			__u64 mask = ~0ull << (32 - (line->prefix_len & 63));

			if (flow & FLOW_IPV6 || (remote ^ line->remote) & (__u32)mask)
				continue;
		}
		if (asks & OFFLOAD_ASK_PORTS) {
			if (flow & FLOW_PORTS_UNKNOWN)
				return 0;
			if (!(flow & FLOW_PORTS) || far_port < line->remote_ports[0] ||
			    far_port > line->remote_ports[1] || near_port < line->local_ports[0] ||
			    near_port > line->local_ports[1])
				continue;
		}
		return asks & OFFLOAD_ASK_ENGINE ? 0 : at + i;
	}
	return 0;
}

/* Whether a packet may open a TCP connection: of IPv4 and IPv6 without options, as the engine asks. */
static __always_inline int offload_may_be_syn(const struct offload_packet *packet, const void *end)
{
	const __u8 *flags;
	__u8 protocol;

	if (packet->is_v6) {
		protocol = ((const struct ipv6 *)packet->ip)->next;
		flags = packet->ip + sizeof(struct ipv6) + TCP_FLAGS_AT;
	} else {
		protocol = ((const struct ipv4 *)packet->ip)->protocol;
		flags = packet->ip + sizeof(struct ipv4) + TCP_FLAGS_AT;
	}
	return protocol == IPPROTO_TCP && ((const void *)(flags + 1) > end || *flags & TCP_SYN);
}

/* Does with a packet what its record says; a reason to hand it over in `*reason`, else an XDP action. The order of the
 * checks is the engine's. */
static __always_inline int offload_apply(struct xdp_md *ctx, const struct offload_globals *globals,
				      struct offload_counters *counters, const struct offload_packet *packet,
				      __u32 at, __u32 surplus, int *reason)
{
	const struct offload_record *record = offload_record_at(at);
	const struct offload_template *template = 0;
	const void *end = (const void *)(long)ctx->data_end;
	__u32 flags, target, overhead = 0, sum = 0, port = GTPU_PORT;
	const struct offload_rule *rule;
	const struct offload_hop *hop;
	int action = XDP_TX;
	__u64 *sent;

	*reason = OFFLOAD_HAND_UNKNOWN;
	if (!record)
		return 0;
	rule = &record->rule;
	flags = rule->flags;
	*reason = OFFLOAD_HAND_SOURCE;
	if (!(flags & OFFLOAD_DOWNLINK) && !offload_is_source_right(record, packet))
		return 0;
	*reason = OFFLOAD_HAND_DESTINATION;
	if (!offload_is_routed(packet) || offload_is_own(globals, packet))
		return 0;
	*reason = OFFLOAD_HAND_OTHER_UE;
	if (!(flags & OFFLOAD_DOWNLINK) && offload_may_be_ue(globals, packet))
		return 0;
	*reason = OFFLOAD_HAND_HOP_LIMIT;
	if (packet->hops <= 1)
		return 0;
	*reason = OFFLOAD_HAND_SYN;
	if (globals->flags & OFFLOAD_NO_SYN && offload_may_be_syn(packet, end))
		return 0;
	if (flags & OFFLOAD_LINES) {
		__u32 remote, ports, flow = offload_flow(packet, end, flags & OFFLOAD_DOWNLINK, &remote, &ports);

		*reason = OFFLOAD_HAND_RULE;
		at = offload_choose(OFFLOAD_PLACE_LINE | rule->target * OFFLOAD_LINES_MAX, rule->teid, flow, remote, ports);
		if (!at)
			return 0;
		rule = offload_rule_at(at);
		if (!rule)
			return 0;
		flags = rule->flags;
	}
	*reason = OFFLOAD_HAND_QFI;
	if (flags & OFFLOAD_QFI_MATCH && !(packet->has_qfi && packet->qfi == (flags >> OFFLOAD_QFI_MATCH_SHIFT & 0x3f)))
		return 0;
	/* A packet that is dropped is counted, too, by a URR that measures before QoS enforcement. */
	*reason = OFFLOAD_HAND_QUOTA;
	if (flags & OFFLOAD_QUOTA && offload_is_due(at, packet->total))
		return 0;
	if (flags & (OFFLOAD_GATE_CLOSED | OFFLOAD_FAR_DROP)) {
		*reason = -1;
		offload_count_drop(at, packet->total, flags & OFFLOAD_GATE_CLOSED ? OFFLOAD_DROP_GATE_CLOSED : OFFLOAD_DROP_FAR_DROP,
				packet->slot);
		return XDP_DROP;
	}
	if (flags >> OFFLOAD_POLICERS_SHIFT & 3) {
		int admits = offload_admits(at, packet->total);

		*reason = OFFLOAD_HAND_RATE;
		if (admits > 0)
			return 0;
		if (admits < 0) {
			*reason = -1;
			offload_count_drop(at, packet->total, OFFLOAD_DROP_MBR_EXCEEDED, packet->slot);
			return XDP_DROP;
		}
	}
	*reason = OFFLOAD_HAND_NEXT_HOP;
	target = rule->target;
	/* From tunnel to tunnel there are no records. */
	if (flags & OFFLOAD_TUNNEL && packet->is_tunnelled)
		return 0;
	if (flags & OFFLOAD_TUNNEL) {
		template = bpf_map_lookup_elem(&offload_templates, &target);
		if (!template || !*(const volatile __u32 *)&template->valid)
			return 0;
		barrier();
		target = template->hop;
		overhead = offload_overhead(template, flags);
		if (template->flags & OFFLOAD_TEMPLATE_CHECKSUM) {
			*reason = OFFLOAD_HAND_CHECKSUM;
			sum = offload_sum(packet, end);
			if (sum & OFFLOAD_SUM_UNKNOWN)
				return 0;
			*reason = OFFLOAD_HAND_NEXT_HOP;
		}
		if (!(globals->flags & OFFLOAD_PORT_FIXED))
			port = offload_entropy_port(packet, end);
	} else if (target & OFFLOAD_ROUTED) {
		target = offload_way(offload_to(packet), packet->is_v6, target & ~OFFLOAD_ROUTED);
		if (target == OFFLOAD_WAY_LINK) {
			struct steer_address address = offload_destination(packet);
			const __u32 *neighbour = bpf_map_lookup_elem(&offload_neighbours, &address);

			target = neighbour ? *neighbour : OFFLOAD_WAY_ENGINE;
		}
	} else {
		target += packet->is_v6;
	}
	hop = bpf_map_lookup_elem(&offload_hops, &target);
	if (!hop || !*(const volatile __u32 *)&hop->valid)
		return 0;
	barrier();
	if (!template && offload_is_near(hop, packet))
		return 0;
	*reason = OFFLOAD_HAND_TOO_BIG;
	if (packet->total + overhead > hop->mtu)
		return 0;
	/* Asked before anything is changed: a device that is gone hands the packet over. */
	*reason = OFFLOAD_HAND_NEXT_HOP;
	if (hop->ifindex != ctx->ingress_ifindex || hop->flags & OFFLOAD_HOP_REDIRECT) {
		action = bpf_redirect_map(&offload_devices, hop->ifindex, XDP_ABORTED);
		if (action != XDP_REDIRECT)
			return 0;
	}
	*reason = OFFLOAD_HAND_HEADROOM;
	if (!offload_rewrite(ctx, packet, rule, template, hop, port, sum, surplus))
		return 0;
	*reason = -1;
	sent = counters->sent[hop->port & (OFFLOAD_PORTS_MAX - 1)];
	sent[0]++;
	sent[1] += (long)ctx->data_end - (long)ctx->data;
	offload_count(at, packet->total, packet->slot);
	if (flags >> OFFLOAD_POLICERS_SHIFT & 3)
		offload_take(at, packet->total);
	return action;
}

/* An XDP action, or -1: the packet is as it came, and the steering's. */
static __always_inline int offload_path(struct xdp_md *ctx, int is_multi_buffer)
{
	const __u32 zero = 0;
	const struct steer_config *cfg = bpf_map_lookup_elem(&config, &zero);
	const struct offload_globals *globals = bpf_map_lookup_elem(&offload_globals, &zero);
	struct offload_counters *counters;
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	struct offload_packet packet = {};
	__u32 cpu = bpf_get_smp_processor_id();
	struct grace_reader *reader = bpf_map_lookup_elem(&offload_readers, &cpu);
	__u32 length = end - data;
	int reason, action = -1;
	__u32 found, slot;

	if (!reader || !cfg || !globals)
		return -1;
	if (is_multi_buffer && bpf_xdp_get_buff_len(ctx) != (__u64)(end - data))
		reason = OFFLOAD_HAND_SEGMENTS;
	else
		reason = offload_read(ctx, &packet, data, end, cfg, globals->flags);
	if (reason < 0 && cfg->flags & STEER_NO_WIRE && !packet.is_tunnelled && offload_is_unfinished(&packet, end))
		reason = OFFLOAD_HAND_CHECKSUM;
	/* A copy: the verifier forgets what it knows of a variable whose address is taken. */
	slot = packet.slot;
	counters = bpf_map_lookup_elem(&offload_counters, &slot);
	if (!counters)
		return -1;
	if (reason < 0) {
		reason = OFFLOAD_HAND_UNKNOWN;
		grace_turn(reader);
		found = offload_find(packet.key_value, packet.key_scope);
		if (found) {
			__u32 surplus = length - packet.offset - packet.total;

			action = offload_apply(ctx, globals, counters, &packet, found - 1, surplus, &reason);
		}
		grace_turn(reader);
		if (reason < 0) {
			counters->received_bytes += length;
			return action;
		}
	}
	if (reason >= 0 && reason < OFFLOAD_HANDS)
		counters->handed[reason]++;
	return -1;
}

#endif
