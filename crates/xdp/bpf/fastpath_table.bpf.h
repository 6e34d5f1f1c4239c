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
	__type(value, struct fast_record);
	__uint(max_entries, 1);
} fast_records SEC(".maps");

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
	__type(value, __u32);
	__uint(max_entries, 2 * FAST_VLANS_MAX);
} fast_vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct fast_counters);
	__uint(max_entries, 1);
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

/* Finds a key's record in one of its two buckets. */
static __always_inline __u32 fast_search(__u32 index, __u32 tag, __u64 value, __u32 scope)
{
	const struct fast_bucket *bucket = bpf_map_lookup_elem(&fast_buckets, &index);

	if (!bucket)
		return 0;
	for (int i = 0; i < FAST_BUCKET_ENTRIES; i++) {
		__u64 entry = *(const volatile __u64 *)&bucket->entries[i];
		const struct fast_record *record;
		const struct fast_cell *cell;
		__u32 at;

		if (entry >> FAST_TAG_SHIFT != tag)
			continue;
		/* Touched before the record is read, so that both lines are on their way at once. */
		at = entry >> FAST_CELL_SHIFT & FAST_NUMBER_MASK;
		cell = bpf_map_lookup_elem(&fast_cells, &at);
		if (cell)
			(void)*(const volatile __u64 *)&cell->limits[2];
		at = entry & FAST_NUMBER_MASK;
		record = at ? bpf_map_lookup_elem(&fast_records, &at) : 0;
		if (record && record->key_value == value && record->key_scope == scope)
			return at;
	}
	return 0;
}

/* Finds a key's record; zero for none. Global, as other functions here, so that the verifier looks at it once and not once
 * for every way that leads to it. */
__noinline __u32 fast_find(__u64 value, __u32 scope)
{
	const __u32 zero = 0;
	const struct fast_globals *globals = bpf_map_lookup_elem(&fast_globals, &zero);
	__u64 hash, buckets;
	__u32 record;

	if (!globals)
		return 0;
	hash = fast_hash(globals, value, scope);
	buckets = globals->buckets;
	record = fast_search((hash & 0xffffffff) * buckets >> 32, hash >> FAST_TAG_SHIFT, value, scope);
	if (!record)
		record = fast_search((hash >> 16 & 0xffffffff) * buckets >> 32, hash >> FAST_TAG_SHIFT, value, scope);
	return record;
}

/* Whether the count has reached a limit; the first to see it takes the limit away, and puts it back when the ring has
 * no room, so that a later packet tells. */
static __always_inline void fast_check_limit(__u64 *limit, __u64 count, __u32 session, __u32 cell,
					     struct fast_counters *counters)
{
	struct fast_event event = {.session = session, .cell = cell};
	__u64 taken;

	if (count < ~*(volatile __u64 *)limit)
		return;
	taken = __sync_lock_test_and_set(limit, 0);
	if (taken && bpf_ringbuf_output(&fast_events, &event, sizeof(event), 0)) {
		__sync_lock_test_and_set(limit, taken);
		counters->events_late++;
	}
}

/* Moves the counters of a record: all for a packet that goes on, those before QoS enforcement for one that does not. */
__noinline int fast_count(__u32 at_record, __u32 bytes, int is_dropped)
{
	const __u32 zero = 0;
	const struct fast_record *record = bpf_map_lookup_elem(&fast_records, &at_record);
	struct fast_counters *counters = bpf_map_lookup_elem(&fast_counters, &zero);
	__u32 flags, session, count;

	if (!record || !counters)
		return 0;
	flags = record->flags;
	session = record->session;
	count = flags >> FAST_USAGE_SHIFT & 3;

	for (__u32 i = 0; i < FAST_USAGE_MAX; i++) {
		struct fast_cell *cell;
		__u64 own, total;
		__u32 at;

		if (i >= count)
			break;
		if (is_dropped && !(flags >> (FAST_BEFORE_QOS_SHIFT + i) & 1))
			continue;
		at = record->usage[i];
		cell = bpf_map_lookup_elem(&fast_cells, &at);
		if (!cell)
			continue;
		if (flags & FAST_DOWNLINK) {
			__sync_fetch_and_add(&cell->bytes[3], 1);
			own = __sync_fetch_and_add(&cell->bytes[2], bytes) + bytes;
			total = own + *(volatile __u64 *)&cell->bytes[0];
			fast_check_limit(&cell->limits[1], own, session, at, counters);
		} else {
			__sync_fetch_and_add(&cell->bytes[1], 1);
			own = __sync_fetch_and_add(&cell->bytes[0], bytes) + bytes;
			total = own + *(volatile __u64 *)&cell->bytes[2];
			fast_check_limit(&cell->limits[0], own, session, at, counters);
		}
		fast_check_limit(&cell->limits[2], total, session, at, counters);
	}
	if (is_dropped) {
		counters->dropped[flags & FAST_GATE_CLOSED ? FAST_DROP_GATE_CLOSED : FAST_DROP_FAR_DROP]++;
	} else {
		counters->packets[flags & FAST_DOWNLINK]++;
		counters->bytes[flags & FAST_DOWNLINK] += bytes;
	}
	return 0;
}

#endif
