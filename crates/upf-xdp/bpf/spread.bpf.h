/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spreads the packets of a receive queue over the AF_XDP sockets bound to it: by the UE's address, so that both
 * directions of a session meet in one worker, or by the TEID. src/spread.rs gives the same hashes.
 *
 *   G-PDU     the inner source; by TEID, the TEID
 *   routed    the destination
 *   else      (fragments, signalling, what is broken) both outer addresses
 */
#ifndef KAIDO_SPREAD_BPF_H
#define KAIDO_SPREAD_BPF_H

#include <bpf/bpf_endian.h>

#include "steer.bpf.h"
#include "wire.h"

/* Finalizer of MurmurHash3, upper half: every bit of the value moves every bit of it. */
static __always_inline __u32 spread_mix(__u64 value)
{
	value ^= value >> 33;
	value *= 0xff51afd7ed558ccdull;
	value ^= value >> 33;
	value *= 0xc4ceb9fe1a85ec53ull;
	value ^= value >> 33;
	return value >> 32;
}

/* The source of the T-PDU at `offset`. */
static __always_inline int spread_inner(const void *data, const void *end, __u32 offset, __u64 *value)
{
	const struct ipv4 *ip = data + offset;
	const struct ipv6 *ip6 = data + offset;

	if ((const void *)(ip + 1) > end)
		return 0;
	if (ip->version_ihl >> 4 == 4) {
		*value = spread_address(ip->source, 0);
		return 1;
	}
	if (ip->version_ihl >> 4 != 6 || (const void *)(ip6 + 1) > end)
		return 0;
	*value = spread_address(ip6->source.bytes, 1);
	return 1;
}

/* What a G-PDU, whose GTP-U header is at `offset`, is spread by; false when it is none. */
static __always_inline int spread_tunnel(const void *data, const void *end, __u32 offset, int by_teid, __u64 *value)
{
	const struct gtpu *gtpu = data + offset;
	const struct gtpu_optional *optional;
	__u32 chain;
	__u8 next;

	if (offset > HEADERS_MAX || (const void *)(gtpu + 1) > end)
		return 0;
	if ((gtpu->flags & GTPU_VERSION_MASK) != GTPU_VERSION || gtpu->type != GTPU_G_PDU)
		return 0;
	if (by_teid) {
		*value = bpf_ntohl(gtpu->teid);
		return 1;
	}
	offset += sizeof(*gtpu);
	if (!(gtpu->flags & GTPU_OPTIONAL))
		return spread_inner(data, end, offset, value);
	optional = data + offset;
	if ((const void *)(optional + 1) > end)
		return 0;
	next = gtpu->flags & GTPU_EXTENSION ? optional->next : 0;
	offset += sizeof(*optional);
	chain = offset + GTPU_CHAIN_MAX;
	for (int i = 0; i < GTPU_EXTENSIONS_MAX && next; i++) {
		const __u8 *extension = data + offset;
		__u32 last;

		if (extension + 1 > (const __u8 *)end || !extension[0])
			return 0;
		offset += extension[0] * 4;
		if (offset > chain)
			return 0;
		last = offset - 1;
		/* Else the compiler checks one past it, which says nothing to the verifier. */
		barrier_var(last);
		extension = data + last;
		if (extension + 1 > (const __u8 *)end)
			return 0;
		next = *extension;
	}
	return !next && spread_inner(data, end, offset, value);
}

#endif
