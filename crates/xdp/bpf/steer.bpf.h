/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What programs that bring packets to AF_XDP sockets share: the parsing of a frame down to UDP, and fragments of which only the
 * first tells whose they are.
 */
#ifndef KAIDO_STEER_BPF_H
#define KAIDO_STEER_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "steer.h"
#include "wire.h"

#define HEADERS_MAX 0x3fff /* octets; no headers reach further */

/* How long the fragments of a datagram may be apart: as long as hosts wait for the rest of one (RFC 8200, 4.5). */
#define DATAGRAM_NS_MAX (60ull * 1000000000)

/* Datagrams whose first fragment was the kernel's, and when it came, in nanoseconds. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct steer_datagram);
	__type(value, __u64);
	__uint(max_entries, STEER_DATAGRAMS_MAX);
} datagrams SEC(".maps");

/* Datagrams of which a fragment came before the first, or whose first was ours, and when. All that follow go to the
 * engine, which waits for the rest and returns what is the kernel's. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__type(key, struct steer_datagram);
	__type(value, __u64);
	__uint(max_entries, STEER_DATAGRAMS_MAX);
} held SEC(".maps");

/* The part of an address that names an end: an IPv4 address whole, of IPv6 the /64. */
static __always_inline __u64 spread_address(const __u8 *address, int is_v6)
{
	if (is_v6) {
		__u64 high;

		__builtin_memcpy(&high, address, 8);
		return bpf_be64_to_cpu(high);
	} else {
		__u32 word;

		__builtin_memcpy(&word, address, 4);
		return bpf_ntohl(word);
	}
}

/* The type of a frame behind up to VLAN_TAGS_MAX tags, and where what it names begins; of a tagged frame the first tag. False when
 * a tag is cut short. */
static __always_inline int read_type(const void *data, const void *end, __be16 *type, __u32 *offset, __be16 *tci)
{
	*offset = sizeof(struct ethernet);
	*type = ((const struct ethernet *)data)->type;
	for (int i = 0; i < VLAN_TAGS_MAX; i++) {
		const struct vlan_tag *tag = data + *offset;

		if (*type != bpf_htons(ETH_P_8021Q) && *type != bpf_htons(ETH_P_8021AD))
			break;
		if ((const void *)(tag + 1) > end)
			return 0;
		if (!i)
			*tci = tag->tci;
		*type = tag->type;
		*offset += sizeof(*tag);
	}
	return 1;
}

/* What parsing finds out. Only a bad IP header is malformed (the kernel drops it); a packet cut short further in has
 * no UDP port, and where routed goes to the engine, lest the kernel forward it. */
struct packet {
	struct steer_address destination;
	struct steer_datagram datagram; /* of a fragment, but for the destination */
	__be16 udp_port;  /* destination port, 0 when there is none */
	__u16 payload;    /* offset of the UDP payload in the frame */
	__u64 outer[2];   /* what flows are spread by: the parts of the outer addresses that name ends */
	__u8 is_v6;
	__u8 protocol;    /* what is behind the IP header, or the extension headers that were walked past */
	__u8 is_fragment; /* of UDP; udp_port is that of the first one */
	__u8 is_later;    /* not the first one */
	__u8 is_returned; /* the engine held it, and it is the kernel's */
	__u8 is_unicast;
	__u8 is_malformed;
};

static __always_inline void parse_udp(struct packet *packet, const void *data, __u32 offset, const void *end)
{
	const struct udp *udp = data + offset;

	if (offset > HEADERS_MAX || (const void *)(udp + 1) > end)
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
	packet->protocol = ip->protocol;
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

		packet->protocol = next;
		if (next == IPPROTO_UDP) {
			parse_udp(packet, data, offset, end);
			return;
		}
		if (next != IPPROTO_HOPOPTS && next != IPPROTO_ROUTING && next != IPPROTO_DSTOPTS && next != IPPROTO_AH &&
		    next != IPPROTO_FRAGMENT)
			return;
		if (offset > HEADERS_MAX || (const void *)(extension + 1) > end)
			return;
		if (next == IPPROTO_FRAGMENT) {
			/* An atomic fragment (RFC 6946) is whole: walk on. Of a real one, every piece names the same next
			 * header here (RFC 8200, 4.5), so all pieces take the same way. */
			if (extension->fragment & bpf_htons(IP6_OFFSET | IP6_MF)) {
				packet->protocol = extension->next;
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

/* Whether the engine returned a frame: metadata is before it, which no driver puts there. */
static __always_inline int is_returned(const struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data;
	const __u32 *mark = (const void *)(long)ctx->data_meta;

	return (const void *)(mark + 1) <= data && *mark == STEER_RETURNED;
}

#endif
