/* SPDX-License-Identifier: Apache-2.0 */
/* What speed.bpf.c and src/speed.rs share. */
#ifndef KAIDO_SPEED_H
#define KAIDO_SPEED_H

#include <linux/types.h>

#define SPEED_FRAME_MAX 192
#define SPEED_FIRST_UE 0x0a000000 /* 10.0.0.0; the session number is added, and to TEIDs too */
#define SPEED_UPLINK 1u
#define SPEED_FAST_PATH 2u /* else only what restores the packet */
#define SPEED_CONTAINER 4u /* uplink packets have a PDU session container */
#define SPEED_TAGGED 8u    /* downlink packets have a VLAN tag: of session 0 that of the frame */

struct speed_config {
	__u64 random;   /* state of the generator, not zero */
	__u32 sessions; /* that have packets */
	__u32 flags;
	__u32 length;   /* of the frame */
	__u32 handed;   /* packets the offload did not forward: the measurement is void then */
	__u32 first;    /* session; the frame is of the UE of number 0 all the same */
	__u32 idle_of;  /* of so many sessions that follow one another the last has no packets; 0: all have */
	__u32 tenants;  /* so many sessions that follow one another are of a tenant each, and have the same address; 0: of one */
	__u32 spare;
	__u8 frame[SPEED_FRAME_MAX]; /* session 0's */
};
_Static_assert(sizeof(struct speed_config) == 232, "speed_config");

#endif
