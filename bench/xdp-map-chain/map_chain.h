/* SPDX-License-Identifier: Apache-2.0 */
/* What map_chain.bpf.c and its loader (crates/bench/src/chain/abi.rs) share. A change here is a change there: sizes are
 * asserted on both sides. Numbers are in host byte order unless said otherwise. */
#ifndef KAIDO_MAP_CHAIN_H
#define KAIDO_MAP_CHAIN_H

#include <linux/types.h>

/* Octets of headers that are written anew before every run: the longest template. */
#define CHAIN_UPLINK_HEADERS 86 /* Ethernet, IPv4, UDP, GTP-U with its PDU session container, IPv4, UDP */
#define CHAIN_DOWNLINK_HEADERS 42 /* Ethernet, IPv4, UDP */

/* Destinations in the route cache. */
#define CHAIN_ROUTES_MAX 1024

/* Packet Detection Rule: found by TEID uplink, by UE address downlink. */
struct chain_pdr {
	__u32 far_id;
	__u32 qer_id;
	__u32 urr_id;
	__be32 ue; /* the only inner source uplink */
	__u8 remove_outer;
	__u8 pad[3];
};
_Static_assert(sizeof(struct chain_pdr) == 20, "chain_pdr");

/* Forwarding Action Rule. */
struct chain_far {
	__u8 forward;
	__u8 create_outer;
	__u8 tos;
	__u8 pad;
	__be32 teid;
	__be32 peer;
	__be32 local;
};
_Static_assert(sizeof(struct chain_far) == 16, "chain_far");

/* Sessions of SMFs in use: several PDRs on a key, each with filters and with several QERs and URRs. */
#define CHAIN_RULES_MAX 4
#define CHAIN_QERS_MAX 2
#define CHAIN_URRS_MAX 4

/* One of several PDRs of a key; what is zero may be anything. */
struct chain_rule {
	__be32 remote; /* network of the remote end */
	__be32 mask;
	__u16 ports[2]; /* of the remote end, lowest and highest */
	__u8 protocol;
	__u8 qfi; /* uplink */
	__u8 qers;
	__u8 urrs;
	__u32 far_id;
	__u32 qer_ids[CHAIN_QERS_MAX];
	__u32 urr_ids[CHAIN_URRS_MAX];
};
_Static_assert(sizeof(struct chain_rule) == 44, "chain_rule");

/* The PDRs of a key in the order of precedence. */
struct chain_rules {
	__u32 count;
	struct chain_rule rules[CHAIN_RULES_MAX];
};
_Static_assert(sizeof(struct chain_rules) == 180, "chain_rules");

/* QoS Enforcement Rule with a maximum bit rate. */
struct chain_rated_qer {
	__u8 uplink_open;
	__u8 downlink_open;
	__u8 qfi; /* 0: none */
	__u8 is_rated;
	__u32 cost_ps;    /* picoseconds an octet */
	__u64 window_ns;  /* as long may a burst be */
	__u64 until_ns[2]; /* uplink and downlink: until when what has passed lasts at the rate */
};
_Static_assert(sizeof(struct chain_rated_qer) == 32, "chain_rated_qer");

/* QoS Enforcement Rule. */
struct chain_qer {
	__u8 uplink_open;
	__u8 downlink_open;
	__u8 qfi; /* 0: no PDU session container */
	__u8 pad;
};
_Static_assert(sizeof(struct chain_qer) == 4, "chain_qer");

/* Usage Reporting Rule: its counts. */
struct chain_urr {
	__u64 uplink_bytes;
	__u64 uplink_packets;
	__u64 downlink_bytes;
	__u64 downlink_packets;
};
_Static_assert(sizeof(struct chain_urr) == 32, "chain_urr");

/* Where packets to an address leave, and how their Ethernet header looks. */
struct chain_route {
	__u32 ifindex;
	__u8 destination[6];
	__u8 source[6];
};
_Static_assert(sizeof(struct chain_route) == 16, "chain_route");

/* What the loader sets before it loads. Templates are whole headers with the TEID, the UE's address and the checksum of
 * the IPv4 header that has it left zero. */
struct chain_config {
	__u32 sessions;
	__u32 mtu;       /* largest IP packet that leaves, in octets */
	__u32 frame_len; /* octets of a frame as it arrives */
	__u32 first_ue;  /* address of session 0 */
	__u32 uplink_sum;   /* one's complement sum of the inner header without the UE's address, folded */
	__u32 downlink_sum; /* the same of the downlink header */
	__u32 has_rules; /* keys have several PDRs: see chain_rules */
	__u32 pad;
	__u8 uplink[88];
	__u8 downlink[48];
};
_Static_assert(sizeof(struct chain_config) == 168, "chain_config");

/* What runs keep, per CPU. */
struct chain_state {
	__u64 random;    /* never zero */
	__u64 failed;    /* runs that did not end in a redirect */
	__u64 stretched; /* measuring the wrapper alone: the frame is longer now */
};
_Static_assert(sizeof(struct chain_state) == 24, "chain_state");

#endif
