/* SPDX-License-Identifier: Apache-2.0 */
/* What steer.bpf.c and its loader (src/abi.rs) share. A change here is a change there: sizes are asserted on both
 * sides. Numbers are in host byte order unless said otherwise. */
#ifndef KAIDO_STEER_H
#define KAIDO_STEER_H

#include <linux/types.h>

/* steer_config.flags: the roles of the interface, and whether ue_prefixes holds any. */
#define STEER_ROLE_GTPU 1u   /* N3, N9, S1-U, S5-U: GTP-U to our addresses */
#define STEER_ROLE_ROUTED 2u /* N6, SGi: packets routed through us */
#define STEER_PREFIXES 4u    /* ROUTED takes only destinations inside ue_prefixes */
/* How a queue's packets are spread over its sockets; neither: all go to the first. */
#define STEER_BY_UE 8u
#define STEER_BY_TEID 16u
#define STEER_ROLE_NDN 32u /* frames of NDN to our MAC, or to a group */
#define STEER_VLANS 64u    /* vlans holds some: frames in them are ours, whatever is in them */

/* Map capacities, in entries. Address maps have twice the room the loader fills: it adds new entries before it
 * deletes old ones. */
#define STEER_QUEUES_MAX 256
#define STEER_VLANS_MAX 4096 /* identifiers */
#define STEER_TARGETS_MAX 16 /* sockets of one queue; a power of two */
#define STEER_ADDRESSES_MAX 4096
#define STEER_PREFIXES_MAX 65536
/* Datagrams in fragments that are the kernel's, remembered by their first fragment; the least recent give way. */
#define STEER_DATAGRAMS_MAX 1024
/* Metadata of frames that the user plane returns to the kernel. */
#define STEER_RETURNED 0x4b414944u

struct steer_config {
	__u32 flags;
	__u8 mac[6]; /* the interface's own */
	__u16 ndn_udp; /* NDN: port of the UDP that is NDN at the addresses of gtpu_addrs, network byte order; 0 for none */
	__u32 targets;  /* sockets a queue's packets are spread over */
	__u32 instance; /* network instance of untagged packets to UEs, for the offload; all ones for none */
};
_Static_assert(sizeof(struct steer_config) == 20, "steer_config");

/* IPv6, or IPv4 as ::ffff:a.b.c.d; network byte order. */
struct steer_address {
	__u8 bytes[16];
};
_Static_assert(sizeof(struct steer_address) == 16, "steer_address");

/* Key of ue_prefixes: struct bpf_lpm_trie_key with 16 bytes. An IPv4 prefix of n bits has length 96 + n. */
struct steer_prefix {
	__u32 length; /* bits */
	__u8 bytes[16];
};
_Static_assert(sizeof(struct steer_prefix) == 20, "steer_prefix");

/* A datagram that came in fragments: what all of them have in common. */
struct steer_datagram {
	struct steer_address source;
	struct steer_address destination;
	__u32 id; /* network byte order; IPv4's 16 bits in the lower half of memory */
};
_Static_assert(sizeof(struct steer_datagram) == 36, "steer_datagram");

/* What a packet is, when it is ours: index of redirected[] and no_socket[]. */
enum steer_class {
	STEER_GTPU = 0,          /* UDP/2152 to one of our addresses */
	STEER_GTPU_FRAGMENT = 1, /* a fragment of UDP to one of our addresses */
	STEER_ROUTED_V4 = 2,
	STEER_ROUTED_V6 = 3,
	STEER_NDN = 4,           /* a frame of NDN */
	STEER_VLAN = 5,          /* a frame in a VLAN of ours, and no G-PDU to one of our addresses */
	STEER_CLASSES = 6,
};

/* Why a packet went to the kernel: index of passed[]. */
enum steer_pass {
	STEER_PASS_NOT_CONFIGURED = 0, /* the interface has no role */
	STEER_PASS_NOT_IP = 1,         /* ARP, LLDP, a third VLAN tag, ... */
	STEER_PASS_MALFORMED = 2,      /* an Ethernet or IP header cut short or of another version */
	STEER_PASS_LOCAL = 3,          /* to an address the kernel answers for */
	STEER_PASS_NOT_UNICAST = 4,    /* multicast, broadcast, link-local, loopback, unspecified */
	STEER_PASS_OTHER_MAC = 5,      /* ROUTED, NDN or in a VLAN of ours, but not sent to our MAC */
	STEER_PASS_NO_PREFIX = 6,      /* ROUTED, but outside ue_prefixes */
	STEER_PASS_NOT_GTPU = 7,       /* only GTPU here, and it is none of ours */
	STEER_PASSES = 8,
};

/* Packets, per CPU. */
struct steer_counters {
	__u64 redirected[STEER_CLASSES];
	__u64 no_socket[STEER_CLASSES]; /* ours, but no socket on the queue: dropped */
	__u64 passed[STEER_PASSES];
};
_Static_assert(sizeof(struct steer_counters) == 160, "steer_counters");

#endif
