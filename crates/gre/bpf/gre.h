/* SPDX-License-Identifier: Apache-2.0 */
/* What gre.bpf.c and its loader (src/xdp.rs) share. Numbers are in host byte order unless said otherwise. */
#ifndef KAIDO_GRE_H
#define KAIDO_GRE_H

#include <linux/types.h>

#include "steer.h"

/* Rules for tunnel packets, and behind them those for what the engine puts into tunnels. */
#define GRE_RULES_MAX 512
/* Two sets of rules: one is obeyed, the other is written when the rules change. */
#define GRE_BANKS 2
/* Counters of rules: those of both sets may differ in all. */
#define GRE_PLACES 1024

/* gre_rule.family: 0 for both. */
#define GRE_V4 4
#define GRE_V6 6

/* gre_rule.inner, a bit each. */
#define GRE_INNER_V4 1
#define GRE_INNER_V6 2
#define GRE_INNER_ETHERNET 4
#define GRE_PLAIN 8 /* in no tunnel: what the engine puts into one */

enum gre_key {
	GRE_KEY_ANY = 0,
	GRE_KEY_ABSENT = 1,
	GRE_KEY_IS = 2,
};

enum gre_verdict {
	GRE_PASS = 0, /* out of the peer port, as it is */
	GRE_STRIP = 1,
	GRE_DROP = 2,
	GRE_HAND = 3, /* more than is done here: to the engine */
	GRE_PUNT = 4, /* to the kernel */
};

/* gre_rule.flags */
#define GRE_TTL_UNIFORM 1
#define GRE_DSCP_UNIFORM 2

/* A rule: addresses as in steer_address, in words of the network's order. */
struct gre_rule {
	__u64 source_mask[2];
	__u64 source[2];
	__u64 destination_mask[2];
	__u64 destination[2];
	__u32 key;
	__u8 family;
	__u8 key_match;
	__u8 inner;
	__u8 verdict;
	__u8 flags;
	__u8 pad;
	__u16 place; /* where it is counted: index of gre_totals */
	__u8 pad_end[4];
};
_Static_assert(sizeof(struct gre_rule) == 80, "gre_rule");

/* gre_config.flags */
#define GRE_OTHERS_HANDED 1 /* all packets that are in no tunnel are the engine's, which puts them into one */
#define GRE_ENGINE 2        /* all is the engine's but what is the kernel's */
#define GRE_PEER_PORT 4        /* there is a peer port; without one its packets are the kernel's */

struct gre_config {
	__u32 first;    /* index of the first rule */
	__u32 rules;    /* how many there are */
	__u32 encapsulations; /* how many there are behind them */
	__u32 flags;
	__u32 mtu;      /* of the peer port's link, in octets without Ethernet */
	__u32 unmatched;  /* enum gre_verdict, and gre_rule.flags in the second octet */
	__u32 unreadable; /* enum gre_verdict */
};
_Static_assert(sizeof(struct gre_config) == 28, "gre_config");

/* Why a packet was dropped: index of gre_counters.dropped. */
enum gre_drop {
	GRE_DROP_RULE = 0,
	GRE_DROP_MALFORMED = 1,
	GRE_DROP_VERSION = 2,
	GRE_DROP_FLAGS = 3,
	GRE_DROP_IP_MALFORMED = 4,
	GRE_DROP_IP_CHECKSUM = 5,
	GRE_DROP_INNER = 6,
	GRE_DROP_CONGESTION = 7,
	GRE_DROPS = 8,
};

/* Packets, per CPU, and octets with Ethernet. */
struct gre_counters {
	__u64 passed;   /* as they came */
	__u64 stripped;
	__u64 handed;   /* to the engine */
	__u64 kernel;   /* to the kernel's own network */
	__u64 octets;   /* of those that passed, were stripped, or were dropped, as they came */
	__u64 sent;     /* octets that left */
	__u64 dropped[GRE_DROPS];
};
_Static_assert(sizeof(struct gre_counters) == 112, "gre_counters");

/* Of one rule, per CPU. */
struct gre_totals {
	__u64 packets;
	__u64 octets;
};

#endif
