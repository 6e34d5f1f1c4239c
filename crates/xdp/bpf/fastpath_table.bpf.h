/* SPDX-License-Identifier: Apache-2.0 */
/* The fast path's tables: how a record is found, and how its counters move. src/fastpath/table.rs writes them. */
#ifndef KAIDO_FASTPATH_TABLE_BPF_H
#define KAIDO_FASTPATH_TABLE_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "fastpath.h"
#include "steer.h"

/* Shared by the programs of all interfaces; sizes are set by who makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_globals);
	__uint(max_entries, 1);
} fast_globals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_bucket);
	__uint(max_entries, 1);
} fast_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_cell);
	__uint(max_entries, 1);
} fast_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_template);
	__uint(max_entries, 1);
} fast_templates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_hop);
	__uint(max_entries, 1);
} fast_hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct fast_reader);
	__uint(max_entries, 1);
} fast_readers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, FAST_OWN_MAX);
} fast_own SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, FAST_DEVICES_MAX);
} fast_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, FAST_EVENTS_BYTES);
} fast_events SEC(".maps");

/* Of the interface alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct fast_vlan);
	__type(value, struct fast_vlan_role);
	__uint(max_entries, 2 * FAST_VLANS_MAX);
} fast_vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct fast_counters);
	__uint(max_entries, 1); /* slots: who loads it says how many */
} fast_counters SEC(".maps");

/* Begins or ends the reading of the tables. Not torn apart from what is read: an addition whose result is used is a full
 * barrier on every architecture. */
static __always_inline void fast_turn(struct fast_reader *reader)
{
	__u64 turns = __sync_fetch_and_add(&reader->turns, 1);

	asm volatile("" : : "r"(turns));
}

/* Packets and rules are read in words where their fields allow it: fields of octets would be read octet by octet. */
static __always_inline __u32 word_at(const void *at)
{
	return *(const __u32 *)at;
}

static __always_inline __u64 long_at(const void *at)
{
	return *(const __u64 *)at;
}

/* The halves of a 64 x 64 bit product, folded: BPF has no instruction for the upper one. */
static __always_inline __u64 fold_product(__u64 a, __u64 b)
{
	__u64 al = (__u32)a, ah = a >> 32, bl = (__u32)b, bh = b >> 32;
	__u64 low = al * bl, left = al * bh, right = ah * bl;
	__u64 middle = (low >> 32) + (__u32)left + (__u32)right;

	return a * b ^ (ah * bh + (left >> 32) + (right >> 32) + (middle >> 32));
}

/* As crates/table/src/hash.rs: without the seed, nobody can choose a bucket. */
static __always_inline __u64 fast_hash(const struct fast_globals *globals, __u64 value, __u64 scope)
{
	__u64 inner = fold_product(value ^ globals->seed[0], scope ^ globals->seed[1]);

	return fold_product(inner ^ globals->seed[2], (value + (scope << 32)) ^ globals->seed[3]);
}

/* The record of a number. */
static __always_inline struct fast_record *fast_record_at(__u32 at)
{
	__u32 index = at / FAST_BUCKET_RECORDS;
	struct fast_bucket *bucket = bpf_map_lookup_elem(&fast_buckets, &index);

	return bucket ? &bucket->records[at % FAST_BUCKET_RECORDS] : 0;
}

/* Finds a key's record in one of its two buckets: its number and one, or zero. */
static __always_inline __u32 fast_search(__u32 index, __u64 value, __u32 scope)
{
	const struct fast_bucket *bucket = bpf_map_lookup_elem(&fast_buckets, &index);
	__u64 differs[FAST_BUCKET_RECORDS];
	__u32 found = 0;

	if (!bucket)
		return 0;
	/* All of them are read before one is compared, so that their lines are on their way at once. Scopes first: where a new
	 * record's scope is seen, its key is too. */
	for (int i = 0; i < FAST_BUCKET_RECORDS; i++)
		differs[i] = *(const volatile __u32 *)&bucket->records[i].key_scope ^ scope;
	for (int i = 0; i < FAST_BUCKET_RECORDS; i++)
		differs[i] |= *(const volatile __u64 *)&bucket->records[i].key_value ^ value;
	/* Without branches: which of them it is cannot be predicted. The last, where an old record and its successor are there. */
	for (__u32 i = 0; i < FAST_BUCKET_RECORDS; i++) {
		__u32 same = ((differs[i] | -differs[i]) >> 63) - 1;

		found = (found & ~same) | ((i + 1) & same);
	}
	return found ? index * FAST_BUCKET_RECORDS + found : 0;
}

/* Finds a key's record: its number and one; zero for none. Global, as other functions here, so that the verifier looks at it
 * once and not once for every way that leads to it. */
__noinline __u32 fast_find(__u64 value, __u32 scope)
{
	const __u32 zero = 0;
	const struct fast_globals *globals = bpf_map_lookup_elem(&fast_globals, &zero);
	__u64 hash, buckets;
	__u32 found;

	if (!globals)
		return 0;
	hash = fast_hash(globals, value, scope);
	buckets = globals->buckets;
	found = fast_search((hash & 0xffffffff) * buckets >> 32, value, scope);
	if (!found)
		found = fast_search((hash >> 32) * buckets >> 32, value, scope);
	return found;
}

/* Whether the count has reached a limit; the first to see it takes the limit away, and puts it back when the ring has
 * no room, so that a later packet tells. Whether it is near. */
static __always_inline int fast_check_limit(__u64 *limit, __u64 count, __u32 cell, struct fast_counters *counters)
{
	struct fast_event event = {.cell = cell};
	__u64 at = ~*(volatile __u64 *)limit, taken;

	if (count + FAST_COUNTED_NEAR < at)
		return 0;
	if (count < at)
		return 1;
	taken = __sync_lock_test_and_set(limit, 0);
	if (taken && bpf_ringbuf_output(&fast_events, &event, sizeof(event), 0)) {
		__sync_lock_test_and_set(limit, taken);
		counters->events_late++;
		return 1;
	}
	return 0;
}

/* Moves a usage cell by packets and octets; whether a limit is near. */
static __always_inline int fast_move(__u32 at, __u32 is_downlink, __u64 packets, __u64 bytes, struct fast_counters *counters)
{
	struct fast_cell *cell = bpf_map_lookup_elem(&fast_cells, &at);
	__u64 own, total;
	int near;

	if (!cell)
		return 0;
	if (is_downlink) {
		__sync_fetch_and_add(&cell->bytes[3], packets);
		own = __sync_fetch_and_add(&cell->bytes[2], bytes) + bytes;
		total = own + *(volatile __u64 *)&cell->bytes[0];
		near = fast_check_limit(&cell->limits[1], own, at, counters);
	} else {
		__sync_fetch_and_add(&cell->bytes[1], packets);
		own = __sync_fetch_and_add(&cell->bytes[0], bytes) + bytes;
		total = own + *(volatile __u64 *)&cell->bytes[2];
		near = fast_check_limit(&cell->limits[0], own, at, counters);
	}
	return fast_check_limit(&cell->limits[2], total, at, counters) | near;
}

/* Moves all usage cells of a record by what was counted in it. */
static __noinline int fast_settle(struct fast_record *record, struct fast_counters *counters)
{
	__u64 taken = __sync_lock_test_and_set(&record->counted, 0) & ~FAST_COUNTED_FAR;
	__u32 flags = record->flags, count = flags >> FAST_USAGE_SHIFT & 3;
	int near = 0;

	for (__u32 i = 0; i < FAST_USAGE_MAX && i < count; i++)
		near |= fast_move(record->usage[i], flags & FAST_DOWNLINK, taken / FAST_COUNTED_PACKET,
				  taken % FAST_COUNTED_PACKET, counters);
	if (!near && !(flags & FAST_EXACT))
		__sync_fetch_and_or(&record->counted, FAST_COUNTED_FAR);
	return 0;
}

/* Counts a packet of a record: one that goes on, or one that does not, in the cells that count before QoS enforcement. */
__noinline int fast_count(__u32 at_record, __u32 bytes, int is_dropped, __u32 slot)
{
	struct fast_record *record = fast_record_at(at_record);
	struct fast_counters *counters = bpf_map_lookup_elem(&fast_counters, &slot);
	__u32 flags, count;
	__u64 counted;

	if (!record || !counters)
		return 0;
	flags = record->flags;
	count = flags >> FAST_USAGE_SHIFT & 3;
	if (is_dropped) {
		for (__u32 i = 0; i < FAST_USAGE_MAX && i < count; i++)
			if (flags >> (FAST_BEFORE_QOS_SHIFT + i) & 1)
				fast_move(record->usage[i], flags & FAST_DOWNLINK, 1, bytes, counters);
		counters->dropped[flags & FAST_GATE_CLOSED ? FAST_DROP_GATE_CLOSED : FAST_DROP_FAR_DROP]++;
		return 0;
	}
	if (count) {
		counted = __sync_fetch_and_add(&record->counted, FAST_COUNTED_PACKET + bytes);
		if (!(counted & FAST_COUNTED_FAR) || counted % FAST_COUNTED_PACKET + bytes >= FAST_COUNTED_MAX)
			fast_settle(record, counters);
	}
	counters->packets[flags & FAST_DOWNLINK]++;
	counters->bytes[flags & FAST_DOWNLINK] += bytes;
	return 0;
}

#endif
