/* SPDX-License-Identifier: Apache-2.0 */
/* Packet formats as the programs read them. Fields are in network byte order. */
#ifndef KAIDO_WIRE_H
#define KAIDO_WIRE_H

#include <linux/types.h>

#include <bpf/bpf_helpers.h>

#include "steer.h"

#define ETH_ALEN 6
#define ETH_P_IP 0x0800
#define ETH_P_8021Q 0x8100
#define ETH_P_IPV6 0x86DD
#define ETH_P_8021AD 0x88A8
#define VLAN_TAGS_MAX 2

#define IPPROTO_HOPOPTS 0
#define IPPROTO_ICMP 1
#define IPPROTO_TCP 6
#define IPPROTO_UDP 17
#define IPPROTO_ROUTING 43
#define IPPROTO_FRAGMENT 44
#define IPPROTO_AH 51
#define IPPROTO_ICMPV6 58
#define IPPROTO_DSTOPTS 60
#define IPPROTO_SCTP 132
#define IP_MF 0x2000
#define IP_OFFSET 0x1fff
#define IP6_MF 0x0001
#define IP6_OFFSET 0xfff8
#define EXTENSIONS_MAX 8 /* RFC 8200 names six, one of them twice */

/* 3GPP TS 29.281: 4.4.2, 5.1, 5.2. */
#define GTPU_PORT 2152
#define GTPU_VERSION 0x30 /* version 1, protocol type GTP */
#define GTPU_VERSION_MASK 0xf0
#define GTPU_OPTIONAL 0x07 /* any of E, S and PN */
#define GTPU_EXTENSION 0x04
#define GTPU_G_PDU 255
#define GTPU_CONTAINER 0x85     /* PDU session container, TS 38.415 */
#define GTPU_COMPREHENSION 0x80 /* the endpoint must understand the extension */
#define GTPU_EXTENSIONS_MAX 8
#define GTPU_CHAIN_MAX 512 /* octets */

struct ethernet {
	__u8 destination[ETH_ALEN];
	__u8 source[ETH_ALEN];
	__be16 type;
} __attribute__((packed));

/* The field of RFC 3168, low in the ToS or Traffic Class octet. */
#define ECN 3
#define ECN_CAPABLE_1 1
#define ECN_CAPABLE_0 2
#define ECN_CONGESTED 3

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

/* 3GPP TS 29.281, 5.1. */
struct gtpu {
	__u8 flags;
	__u8 type;
	__be16 length;
	__be32 teid;
};

/* What any of the flags E, S and PN brings. */
struct gtpu_optional {
	__be16 sequence;
	__u8 npdu;
	__u8 next;
};

_Static_assert(sizeof(struct ethernet) == 14 && sizeof(struct ipv4) == 20 && sizeof(struct ipv6) == 40 &&
		       sizeof(struct extension) == 8 && sizeof(struct udp) == 8 && sizeof(struct gtpu) == 8 &&
		       sizeof(struct gtpu_optional) == 4,
	       "wire layouts");

static __always_inline __u16 fold_sum(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return sum;
}

/* Whether the checksum of an IPv4 header without options is right. */
static __always_inline int is_checksum_right(const struct ipv4 *ip)
{
	const __u32 *words = (const void *)ip;

	return fold_sum((__u64)words[0] + words[1] + words[2] + words[3] + words[4]) == 0xffff;
}

/* RFC 6040, 4.2: what becomes of both; negative when the packet cannot carry the mark. */
static __always_inline int ecn_of(__u8 outer, __u8 inner)
{
	outer &= ECN;
	inner &= ECN;
	if (!inner)
		return outer == ECN_CONGESTED ? -1 : 0;
	if (outer == ECN_CONGESTED)
		return ECN_CONGESTED;
	if (inner == ECN_CAPABLE_0 && outer == ECN_CAPABLE_1)
		return ECN_CAPABLE_1;
	return inner;
}

/* The checksum of a header of which one word changed (RFC 1624). */
static __always_inline __be16 updated(__be16 checksum, __be16 old, __be16 new)
{
	__u32 sum = (__u16)~checksum + (__u16)~old + (__u32)new;

	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return ~(__u16)sum;
}

#endif
