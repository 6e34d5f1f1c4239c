/* SPDX-License-Identifier: Apache-2.0 */
/* The programs' side of grace periods (src/grace.rs): an element for each CPU, in an array that user space has mapped too. */
#ifndef KAIDO_GRACE_BPF_H
#define KAIDO_GRACE_BPF_H

#include <linux/types.h>

#include <bpf/bpf_helpers.h>

/* Of a CPU: odd while a program on it works by what it found in the tables. A cache line. */
struct grace_reader {
	__u64 turns;
	__u64 spare[7];
};
_Static_assert(sizeof(struct grace_reader) == 64, "grace_reader");

/* Begins or ends the reading of the tables. Not torn apart from what is read: an addition whose result is used is a full
 * barrier on every architecture. */
static __always_inline void grace_turn(struct grace_reader *reader)
{
	__u64 turns = __sync_fetch_and_add(&reader->turns, 1);

	asm volatile("" : : "r"(turns));
}

#endif
