/* SPDX-License-Identifier: Apache-2.0 */
/* What port.bpf.c and its loader (src/port/abi.rs) share. A change here is a change there: sizes are asserted on both sides.
 * Numbers are in host byte order unless said otherwise. */
#ifndef KAIDO_PORT_H
#define KAIDO_PORT_H

#include <linux/types.h>

#include "steer.h"

/* port_config.flags: which matches there are. */
#define PORT_TYPE 1u     /* frames of `type` to our MAC, or to a group */
#define PORT_ADDRESS 2u  /* packets of `protocol` to one of addresses */
#define PORT_UDP_PORT 4u /* of these only what goes to `udp_port`, and fragments of it */
#define PORT_ROUTED 8u   /* unicast IP to our MAC, and to no address of the kernel's */
#define PORT_ALL 16u     /* every frame */

struct port_config {
	__u32 flags;
	__u8 mac[6];     /* the interface's own */
	__be16 type;     /* EtherType */
	__be16 udp_port;
	__u8 protocol;   /* IP protocol */
	__u8 spare;
};
_Static_assert(sizeof(struct port_config) == 16, "port_config");

/* By what a packet is ours: index of redirected[] and no_socket[]. */
enum port_class {
	PORT_CLASS_TYPE = 0,
	PORT_CLASS_ADDRESS = 1,
	PORT_CLASS_ROUTED = 2,
	PORT_CLASS_ALL = 3,
	PORT_CLASSES = 4,
};

/* Why a packet went to the kernel: index of passed[]. */
enum port_pass {
	PORT_PASS_NOT_CONFIGURED = 0, /* there are no matches */
	PORT_PASS_NOT_IP = 1,         /* ARP, LLDP, a third VLAN tag, ... */
	PORT_PASS_MALFORMED = 2,      /* an Ethernet or IP header cut short or of another version */
	PORT_PASS_LOCAL = 3,          /* to an address the kernel answers for */
	PORT_PASS_NOT_UNICAST = 4,    /* multicast, broadcast, link-local, loopback, unspecified */
	PORT_PASS_OTHER_MAC = 5,      /* it matches, but was not sent to our MAC */
	PORT_PASS_NO_MATCH = 6,
	PORT_PASSES = 7,
};

/* Packets, per CPU. */
struct port_counters {
	__u64 redirected[PORT_CLASSES];
	__u64 no_socket[PORT_CLASSES]; /* ours, but no socket on the queue: dropped */
	__u64 passed[PORT_PASSES];
};
_Static_assert(sizeof(struct port_counters) == 120, "port_counters");

#endif
