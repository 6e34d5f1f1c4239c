/* SPDX-License-Identifier: Apache-2.0 */
/* What all steering programs and their loaders share: keys of maps, and how many entries these have. Numbers are in host byte
 * order unless said otherwise. src/abi.rs and src/prefix.rs have the same. */
#ifndef KAIDO_STEER_H
#define KAIDO_STEER_H

#include <linux/types.h>

/* Map capacities, in entries. Address maps have twice the room the loader fills: it adds new entries before it
 * deletes old ones. */
#define STEER_QUEUES_MAX 256
#define STEER_ADDRESSES_MAX 4096
/* Datagrams in fragments that are the kernel's, remembered by their first fragment; the least recent give way. */
#define STEER_DATAGRAMS_MAX 1024
/* Metadata of frames that the engine returns to the kernel. */
#define STEER_RETURNED 0x4b414944u

/* IPv6, or IPv4 as ::ffff:a.b.c.d; network byte order. */
struct steer_address {
	__u8 bytes[16];
};
_Static_assert(sizeof(struct steer_address) == 16, "steer_address");

/* Key of a map of prefixes: struct bpf_lpm_trie_key with 16 bytes. An IPv4 prefix of n bits has length 96 + n. */
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

#endif
