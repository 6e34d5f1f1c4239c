/* SPDX-License-Identifier: Apache-2.0 */
/* What upf.bpf.c and its loader (src/abi.rs) share. A change here is a change there: sizes are asserted on both
 * sides. Numbers are in host byte order unless said otherwise. */
#ifndef KAIDO_UPF_H
#define KAIDO_UPF_H

#include <linux/types.h>

#include "steer.h"

/* steer_config.flags: the roles of the interface, and whether ue_prefixes holds any. */
#define STEER_ROLE_GTPU 1u   /* N3, N9, S1-U, S5-U: GTP-U to our addresses */
#define STEER_ROLE_ROUTED 2u /* N6, SGi: packets routed through us */
#define STEER_PREFIXES 4u    /* ROUTED takes only destinations inside ue_prefixes */
/* How a queue's packets are spread over its sockets; neither: all go to the first. */
#define STEER_BY_UE 8u
#define STEER_BY_TEID 16u
#define STEER_VLANS 64u /* vlans holds some: frames in them are ours, whatever is in them */
#define STEER_NO_WIRE 128u /* packets of the same host may come without the checksums of TCP and UDP */

/* Map capacities, in entries. */
#define STEER_VLANS_MAX 4096 /* identifiers */
#define STEER_TARGETS_MAX 16 /* sockets of one queue; a power of two */
#define STEER_PREFIXES_MAX 65536

struct steer_config {
	__u32 flags;
	__u8 mac[6]; /* the interface's own */
	__u16 spare;
	__u32 targets;  /* sockets a queue's packets are spread over */
	__u32 instance; /* network instance of untagged packets to UEs, for the offload; all ones for none */
};
_Static_assert(sizeof(struct steer_config) == 20, "steer_config");

/* What a packet is, when it is ours: index of redirected[] and no_socket[]. */
enum steer_class {
	STEER_GTPU = 0,          /* UDP/2152 to one of our addresses */
	STEER_GTPU_FRAGMENT = 1, /* a fragment of UDP to one of our addresses */
	STEER_ROUTED_V4 = 2,
	STEER_ROUTED_V6 = 3,
	STEER_VLAN = 4,          /* a frame in a VLAN of ours, and no G-PDU to one of our addresses */
	STEER_CLASSES = 5,
};

/* Why a packet went to the kernel: index of passed[]. */
enum steer_pass {
	STEER_PASS_NOT_CONFIGURED = 0, /* the interface has no role */
	STEER_PASS_NOT_IP = 1,         /* ARP, LLDP, a third VLAN tag, ... */
	STEER_PASS_MALFORMED = 2,      /* an Ethernet or IP header cut short or of another version */
	STEER_PASS_LOCAL = 3,          /* to an address the kernel answers for */
	STEER_PASS_NOT_UNICAST = 4,    /* multicast, broadcast, link-local, loopback, unspecified */
	STEER_PASS_OTHER_MAC = 5,      /* ROUTED or in a VLAN of ours, but not sent to our MAC */
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
_Static_assert(sizeof(struct steer_counters) == 144, "steer_counters");

#endif
