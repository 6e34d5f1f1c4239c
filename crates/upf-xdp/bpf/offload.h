/* SPDX-License-Identifier: Apache-2.0 */
/* What the offload and its writer (src/offload/) share. A change here is a change there: sizes are asserted on both
 * sides. Numbers are in host byte order unless said otherwise.
 *
 *   key ─ hash ─▶ bucket of four records ─▶ template, hop
 *                                 ├ of several rules ▶ group of four lines ─▶ template, hop
 *                                 ├ with a rate ▶ policer
 *                                 └ now and then ▶ usage cells
 *
 * What a packet needs of its session is one line, at a place that the key alone tells: it waits for memory once. A group lies near a
 * place that the key tells too, and is read in that same wait; a policer is a second, now and then. */
#ifndef KAIDO_OFFLOAD_H
#define KAIDO_OFFLOAD_H

#include <linux/types.h>

/* offload_record.key_scope, with the network instance of a UE's address in the lower half. */
#define OFFLOAD_SCOPE_TUNNEL 0x10000u /* key_value: local IPv4 address, then TEID */
#define OFFLOAD_SCOPE_IPV4 0x20000u   /* key_value: the UE's address */
#define OFFLOAD_SCOPE_IPV6 0x30000u   /* key_value: upper half of the UE's addresses */
#define OFFLOAD_SCOPE_TUNNEL_IPV6 0x40000u /* key_value: TEID; the number of the local IPv6 address in the lower half */
#define OFFLOAD_SCOPE_SHIFT 16
#define OFFLOAD_SCOPES 4

/* offload_rule.flags. */
#define OFFLOAD_DOWNLINK 0x1u         /* counts downlink; else uplink, with the checks on source and destination */
#define OFFLOAD_TUNNEL 0x2u           /* into the tunnel of a template; else routed by a hop */
#define OFFLOAD_GATE_CLOSED 0x4u
#define OFFLOAD_FAR_DROP 0x8u
#define OFFLOAD_LINES 0x10u           /* of a record: its rules are the lines of group `target`, `teid` of them */
#define OFFLOAD_QUOTA 0x20u           /* a counter has a quota */
#define OFFLOAD_QFI_MATCH 0x40u       /* packets have that QFI, or are the engine's */
#define OFFLOAD_QFI_MARK 0x80u        /* the tunnel has a PDU session container */
#define OFFLOAD_CONTAINER_UPLINK 0x100u
#define OFFLOAD_EXACT 0x200u          /* its counts are in the usage cells at once */
#define OFFLOAD_QFI_MATCH_SHIFT 10    /* six bits */
#define OFFLOAD_QFI_SHIFT 16          /* six bits */
#define OFFLOAD_POLICERS_SHIFT 22     /* two bits: how many of cells[] are policers, behind the counters */
#define OFFLOAD_USAGE_SHIFT 24        /* three bits: how many of cells[] count what passes */
#define OFFLOAD_USAGE_DROPPED 0x8000000u /* behind those stands one that counts what QoS enforcement drops, alone */
#define OFFLOAD_BEFORE_QOS_SHIFT 28   /* a bit each of the first four: counts dropped packets too */

#define OFFLOAD_CELLS_MAX 5
#define OFFLOAD_USAGE_MAX 4
#define OFFLOAD_POLICERS_MAX 2
#define OFFLOAD_LINES_MAX 4
#define OFFLOAD_BUCKET_RECORDS 4

/* Set in the place of a rule that is a line: group, and line of it; else it is a record. */
#define OFFLOAD_PLACE_LINE 0x80000000u

/* offload_record.key_scope of a record whose key is gone, while programs may still be reading it. */
#define OFFLOAD_SCOPE_GONE 0xffffffffu

/* offload_record.counted: what was counted and is not in the usage cells yet. Octets below, packets above them, and a bit that says
 * that no limit is near, so that there may be some. */
#define OFFLOAD_COUNTED_PACKET 0x10000000000ull
#define OFFLOAD_COUNTED_FAR 0x8000000000000000ull
/* Octets after which they go to the cells, and what is near to a limit: more than the records of a cell keep back. */
#define OFFLOAD_COUNTED_MAX 65536
#define OFFLOAD_COUNTED_NEAR 1048576

/* offload_line.asks. */
#define OFFLOAD_ASK_QFI 0x1u      /* packets have that QFI */
#define OFFLOAD_ASK_PROTOCOL 0x2u
#define OFFLOAD_ASK_IPV4 0x4u     /* the remote address is in that IPv4 network */
#define OFFLOAD_ASK_IPV6 0x8u     /* it is in an IPv6 network: the engine knows which */
#define OFFLOAD_ASK_PORTS 0x10u
#define OFFLOAD_ASK_ENGINE 0x20u  /* what matches is the engine's */

/* Set in offload_rule.target, beside the number of a VRF: packets go by its routes. */
#define OFFLOAD_ROUTED 0x80000000u

/* offload_route.way, or a hop. */
#define OFFLOAD_WAY_ENGINE 0xffffffffu
#define OFFLOAD_WAY_LINK 0xfffffffeu /* to the neighbour that the packet is for, by the hop that offload_neighbours has */

/* offload_template.flags. */
#define OFFLOAD_TEMPLATE_IPV6 1u
#define OFFLOAD_TEMPLATE_CHECKSUM 2u /* UDP has a checksum */

/* offload_cell.marks. */
#define OFFLOAD_MARK_EXHAUSTED 1u /* a quota is used up */

/* offload_policer: digits behind the point of a nanosecond, and of what an octet takes. As crates/table/src/policer.rs has it. */
#define OFFLOAD_TICK_SHIFT 10
#define OFFLOAD_COST_SHIFT 24
#define OFFLOAD_PACKET_MAX 65535
#define OFFLOAD_TAKERS_MAX 64
/* Octets that a rule takes from its policers ahead of its packets, at most, and as a part of their depth. */
#define OFFLOAD_CREDIT_MAX 16384
#define OFFLOAD_CREDIT_SHIFT 4
#define OFFLOAD_OWN_WORDS 64
/* offload_ues: bits of an address, or of an IPv6 address's upper half, that are not its network's. */
#define OFFLOAD_UE_HOST_BITS 8
#define OFFLOAD_PORTS_MAX 64
#define OFFLOAD_ROUTES_MAX 32
#define OFFLOAD_NEIGHBOURS_MAX 16384
#define OFFLOAD_DEVICES_MAX 256
#define OFFLOAD_OWN_MAX 4096
#define OFFLOAD_VLANS_MAX 4096
#define OFFLOAD_EVENTS_BYTES 1048576
#define OFFLOAD_NO_INSTANCE 0xffffffffu

/* offload_vlan_role.flags. */
#define OFFLOAD_VLAN_GTPU 1u /* tunnels to our addresses come in by it */
#define OFFLOAD_VLAN_LAN 2u  /* a tenant's: the engine is its neighbour, and answers neighbour discovery */

/* offload_hop.flags. */
#define OFFLOAD_HOP_REDIRECT 1u /* packets that came in there are redirected too: the driver is no good at XDP_TX */

/* offload_globals.flags. */
#define OFFLOAD_PORT_FIXED 1u /* the outer source port is 2152, else the flow's entropy */
#define OFFLOAD_ECN 2u        /* congestion marks of outer headers go over to the packet inside */
#define OFFLOAD_NO_SYN 4u     /* TCP segments that open a connection are the engine's, which lowers the MSS that they announce */

/* What becomes of a packet. Never changed while packets find it but for `counted`. */
struct offload_rule {
	__u32 flags;
	__u32 teid;    /* of the tunnel it goes into, network byte order */
	__u32 target;  /* template; or hop of IPv4, before that of IPv6; or OFFLOAD_ROUTED and a VRF */
	__u32 cells[OFFLOAD_CELLS_MAX]; /* usage cells, then policers; the last, where it is none, octets taken ahead from those */
	__u64 counted;
};
_Static_assert(sizeof(struct offload_rule) == 40, "offload_rule");

/* One cache line. */
struct offload_record {
	__u64 key_value;
	__u32 key_scope; /* zero: there is none. Written last */
	__u32 ue_ipv4;   /* network byte order; zero for none */
	__u64 ue_ipv6;   /* upper half, network byte order; zero for none */
	struct offload_rule rule;
};
_Static_assert(sizeof(struct offload_record) == 64, "offload_record");

/* A rule, and what packets must be that match. Addresses and ports are the remote end's and the UE's, in host byte order. */
struct offload_line {
	__u32 remote;
	__u16 remote_ports[2]; /* lowest and highest */
	__u16 local_ports[2];
	__u8 prefix_len;
	__u8 qfi;
	__u8 protocol;
	__u8 asks;
	struct offload_rule rule;
	__u32 counted_in; /* the line of the group that counts for those that count in the same cells */
	__u32 spare;
};
_Static_assert(sizeof(struct offload_line) == 64, "offload_line");

/* The rules of a key, in the order of precedence. */
struct offload_group {
	struct offload_line lines[OFFLOAD_LINES_MAX];
};

/* A token bucket, as crates/table/src/policer.rs has it. */
struct offload_bucket_of_tokens {
	__u64 until;
	__u64 byte_cost;
	__u64 depth;
	__u64 byte_cost_was;
};

/* The rates of a QER. */
struct offload_policer {
	struct offload_bucket_of_tokens buckets[2]; /* uplink, downlink */
};
_Static_assert(sizeof(struct offload_policer) == 64, "offload_policer");

/* Records are numbered through all buckets. */
struct offload_bucket {
	struct offload_record records[OFFLOAD_BUCKET_RECORDS];
};

/* As crates/upf/src/usage.rs has it: counts, complements of the counts at which a report is due, and
 * marks, whose upper half the workers have for themselves. */
struct offload_cell {
	__u64 bytes[4]; /* uplink bytes, uplink packets, downlink bytes, downlink packets */
	__u64 limits[3]; /* uplink, downlink, total */
	__u64 marks;
};
_Static_assert(sizeof(struct offload_cell) == 64, "offload_cell");

/* Outer header of a tunnel. Sums are ones' complement sums of octets as they lie in memory. */
struct offload_template {
	__u32 valid;
	__u32 flags;
	__u32 sum;     /* of the IPv4 header without its length */
	__u32 udp_sum; /* of the pseudo-header of UDP without its length */
	__u32 hop;
	__u32 tos;    /* or Traffic Class */
	__u32 copied; /* bits of that octet, none of them set in it, that the packet's own gives */
	__u32 spare;
	__be32 source[4]; /* an IPv4 address is the first of them */
	__be32 destination[4];
};
_Static_assert(sizeof(struct offload_template) == 64, "offload_template");

/* Of an IPv4 address in the lower half, or the upper half of an IPv6 address. */
struct offload_prefix {
	__u64 value;
	__u64 mask;
};

/* Where packets to a prefix go: in the order of length, the longest first. */
struct offload_route {
	struct offload_prefix to;
	__u32 way;
	__u32 vrf; /* whose route it is */
};

/* Routes that replace each other whole. */
struct offload_routes {
	__u32 len[2]; /* of IPv4 and IPv6 */
	struct offload_route routes[2][OFFLOAD_ROUTES_MAX];
};

struct offload_hop {
	__u32 valid;
	__u32 ifindex;
	__u32 mtu; /* octets of an IP packet */
	__u16 tag;   /* VLAN tag control information, zero for untagged; of two tags the outer (802.1ad) */
	__u16 inner; /* that of the inner tag, zero for none */
	__u8 destination[6];
	__u8 source[6];
	__u8 port; /* what is sent by it is counted so */
	__u8 flags;
	__u16 pad;
	struct offload_prefix near; /* destinations on the link itself, which it does not lead to */
};
_Static_assert(sizeof(struct offload_hop) == 48, "offload_hop");

struct offload_globals {
	__u64 seed[4];
	__u64 policers_began; /* the moment zero of their clock, in nanoseconds of the monotonic clock */
	__u32 buckets;
	__u32 flags;
	__u64 own[OFFLOAD_OWN_WORDS]; /* a filter: a clear bit says that an address is not the node's */
	__u32 routes_at; /* which of both stand */
	/* By scope: how many groups there is room for, where most of its records have one; else zero. */
	__u32 groups[OFFLOAD_SCOPES];
	__u32 ue_shift; /* of the number of a bit of offload_ues; zero where packets from UE to UE are simply routed */
	struct offload_routes routes[2];
};
_Static_assert(sizeof(struct offload_globals) == 3672, "offload_globals");

/* Key of vlans: TCI identifiers of both tags, outer zero where there is one tag. */
struct offload_vlan {
	__u16 outer;
	__u16 inner;
};
_Static_assert(sizeof(struct offload_vlan) == 4, "offload_vlan");

/* Value of vlans: what comes in by a VLAN. */
struct offload_vlan_role {
	__u32 instance; /* network instance of packets to UEs, all ones for none */
	__u16 slot;     /* where its packets are counted */
	__u16 flags;
};
_Static_assert(sizeof(struct offload_vlan_role) == 8, "offload_vlan_role");

/* A counter reached a limit. */
struct offload_event {
	__u32 cell;
};
_Static_assert(sizeof(struct offload_event) == 4, "offload_event");

/* Why a packet was left to the steering: index of handed[]. */
enum offload_hand {
	OFFLOAD_HAND_NOT_CANDIDATE = 0, /* not IP to our MAC in a role of the port, or no instance for its VLAN */
	OFFLOAD_HAND_SEGMENTS = 1,      /* spans several buffers */
	OFFLOAD_HAND_OUTER = 2,         /* outer header: options, extension headers, fragment, checksum, length */
	OFFLOAD_HAND_GTPU = 3,          /* no G-PDU, or a header that must be answered or refused */
	OFFLOAD_HAND_INNER = 4,         /* UE packet: options, extension headers, checksum, length */
	OFFLOAD_HAND_UNKNOWN = 5,       /* no record */
	OFFLOAD_HAND_SOURCE = 6,        /* not from the UE's address */
	OFFLOAD_HAND_DESTINATION = 7,   /* to the node itself, or to what no router forwards to */
	OFFLOAD_HAND_HOP_LIMIT = 8,     /* last hop */
	OFFLOAD_HAND_QFI = 9,           /* another QoS flow */
	OFFLOAD_HAND_NEXT_HOP = 10,     /* not known here */
	OFFLOAD_HAND_TOO_BIG = 11,      /* for the next hop's MTU */
	OFFLOAD_HAND_HEADROOM = 12,     /* no room for the headers */
	OFFLOAD_HAND_RULE = 13,         /* no line that is known here matches */
	OFFLOAD_HAND_QUOTA = 14,        /* a quota is used up, or a limit is reached by this packet */
	OFFLOAD_HAND_RATE = 15,         /* its rate was changed, and what is taken is to be reckoned anew */
	OFFLOAD_HAND_SYN = 16,          /* opens a TCP connection, and MSS are lowered */
	OFFLOAD_HAND_CHECKSUM = 17,     /* a checksum takes the payload, which is not read here */
	OFFLOAD_HAND_OTHER_UE = 18,     /* may be for another UE, and UEs are kept apart or reach each other in the engine */
	OFFLOAD_HANDS = 19,
};

enum offload_drop {
	OFFLOAD_DROP_GATE_CLOSED = 0,
	OFFLOAD_DROP_FAR_DROP = 1,
	OFFLOAD_DROP_MBR_EXCEEDED = 2,
	OFFLOAD_DROPS = 3,
};

/* Packets, per CPU and slot: of one port of the interface. Slot 0 has what no other has. */
struct offload_counters {
	__u64 packets[2]; /* forwarded, uplink and downlink */
	__u64 bytes[2];   /* of IP, without tunnels */
	__u64 handed[OFFLOAD_HANDS];
	__u64 dropped[OFFLOAD_DROPS];
	__u64 events_late; /* thresholds that found the ring full, and were put back */
	__u64 received_bytes; /* of the frames that were forwarded or dropped, as they came */
	__u64 sent[OFFLOAD_PORTS_MAX][2]; /* frames and their bytes, by the port of the hop */
};
_Static_assert(sizeof(struct offload_counters) == 1248, "offload_counters");

#endif
