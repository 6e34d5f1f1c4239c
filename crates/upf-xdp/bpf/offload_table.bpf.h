/* SPDX-License-Identifier: Apache-2.0 */
/* The offload's tables: how a record is found, and how its counters move. src/offload/table.rs writes them. */
#ifndef KAIDO_OFFLOAD_TABLE_BPF_H
#define KAIDO_OFFLOAD_TABLE_BPF_H

#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

#include "grace.bpf.h"
#include "offload.h"
#include "steer.h"

/* Shared by the programs of all interfaces; sizes are set by who makes them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_globals);
	__uint(max_entries, 1);
} offload_globals SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_bucket);
	__uint(max_entries, 1);
} offload_buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_group);
	__uint(max_entries, 1);
} offload_groups SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_policer);
	__uint(max_entries, 1);
} offload_policers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_cell);
	__uint(max_entries, 1);
} offload_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_template);
	__uint(max_entries, 1);
} offload_templates SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct offload_hop);
	__uint(max_entries, 1);
} offload_hops SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct grace_reader);
	__uint(max_entries, 1);
} offload_readers SEC(".maps");

/* A bit for each network that may have UEs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
	__uint(max_entries, 1);
} offload_ues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, OFFLOAD_OWN_MAX);
} offload_own SEC(".maps");

/* Numbers of the local IPv6 addresses that tunnels end at. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u32);
	__uint(max_entries, STEER_ADDRESSES_MAX);
} offload_endpoints SEC(".maps");

/* Hops to addresses on links. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct steer_address);
	__type(value, __u32);
	__uint(max_entries, OFFLOAD_NEIGHBOURS_MAX);
} offload_neighbours SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, OFFLOAD_DEVICES_MAX);
} offload_devices SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, OFFLOAD_EVENTS_BYTES);
} offload_events SEC(".maps");

/* Of the interface alone. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct offload_vlan);
	__type(value, struct offload_vlan_role);
	__uint(max_entries, 2 * OFFLOAD_VLANS_MAX);
} offload_vlans SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct offload_counters);
	__uint(max_entries, 1); /* slots: who loads it says how many */
} offload_counters SEC(".maps");

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
static __always_inline __u64 offload_hash(const struct offload_globals *globals, __u64 value, __u64 scope)
{
	__u64 inner = fold_product(value ^ globals->seed[0], scope ^ globals->seed[1]);

	return fold_product(inner ^ globals->seed[2], (value + (scope << 32)) ^ globals->seed[3]);
}

/* The record of a number. */
static __always_inline struct offload_record *offload_record_at(__u32 at)
{
	__u32 index = at / OFFLOAD_BUCKET_RECORDS;
	struct offload_bucket *bucket = bpf_map_lookup_elem(&offload_buckets, &index);

	return bucket ? &bucket->records[at % OFFLOAD_BUCKET_RECORDS] : 0;
}

/* A line of a group, by its place. */
static __always_inline struct offload_line *offload_line_at(__u32 at)
{
	__u32 index = (at & ~OFFLOAD_PLACE_LINE) / OFFLOAD_LINES_MAX;
	struct offload_group *group = bpf_map_lookup_elem(&offload_groups, &index);

	return group ? &group->lines[at % OFFLOAD_LINES_MAX] : 0;
}

/* The rule of a place, a record or a line. */
static __always_inline struct offload_rule *offload_rule_at(__u32 at)
{
	struct offload_record *record;
	struct offload_line *line;

	if (at & OFFLOAD_PLACE_LINE) {
		line = offload_line_at(at);
		return line ? &line->rule : 0;
	}
	record = offload_record_at(at);
	return record ? &record->rule : 0;
}

/* The place at which the packets of a rule are counted: its own, or that of another line with the same cells. */
static __always_inline __u32 offload_counted_at(__u32 at)
{
	struct offload_line *line;

	if (!(at & OFFLOAD_PLACE_LINE))
		return at;
	line = offload_line_at(at);
	return line ? (at & ~(OFFLOAD_LINES_MAX - 1)) | (line->counted_in & (OFFLOAD_LINES_MAX - 1)) : at;
}

/* Finds a key's record in one of its two buckets: its number and one, or zero. */
static __always_inline __u32 offload_search(__u32 index, __u64 value, __u32 scope)
{
	const struct offload_bucket *bucket = bpf_map_lookup_elem(&offload_buckets, &index);
	__u64 differs[OFFLOAD_BUCKET_RECORDS];
	__u32 found = 0;

	if (!bucket)
		return 0;
	/* All of them are read before one is compared, so that their lines are on their way at once. Scopes first: where a new
	 * record's scope is seen, its key is too. */
	for (int i = 0; i < OFFLOAD_BUCKET_RECORDS; i++)
		differs[i] = *(const volatile __u32 *)&bucket->records[i].key_scope ^ scope;
	for (int i = 0; i < OFFLOAD_BUCKET_RECORDS; i++)
		differs[i] |= *(const volatile __u64 *)&bucket->records[i].key_value ^ value;
	/* Without branches: which of them it is cannot be predicted. The last, where an old record and its successor are there. */
	for (__u32 i = 0; i < OFFLOAD_BUCKET_RECORDS; i++) {
		__u32 same = ((differs[i] | -differs[i]) >> 63) - 1;

		found = (found & ~same) | ((i + 1) & same);
	}
	return found ? index * OFFLOAD_BUCKET_RECORDS + found : 0;
}

/* Has the lines of the group on their way that a key's record of several rules would have, while its bucket is read: to know from
 * the record which group it is would be a second wait. It lies there, or as near as there was room. */
static __always_inline void offload_expect_group(const struct offload_globals *globals, __u64 hash, __u32 scope)
{
	__u32 kind = (scope >> OFFLOAD_SCOPE_SHIFT) - 1, index;
	const struct offload_group *group;
	__u64 groups;

	if (kind >= OFFLOAD_SCOPES)
		return;
	groups = *(const volatile __u32 *)&globals->groups[kind];
	if (!groups)
		return;
	index = (hash >> 16 & 0xffffffff) * groups >> 32;
	group = bpf_map_lookup_elem(&offload_groups, &index);
	if (!group)
		return;
	for (int i = 0; i < OFFLOAD_LINES_MAX; i++)
		(void)*(const volatile __u32 *)&group->lines[i].remote;
}

/* Finds a key's record: its number and one; zero for none. Global, as other functions here, so that the verifier looks at it
 * once and not once for every way that leads to it. */
__noinline __u32 offload_find(__u64 value, __u32 scope)
{
	const __u32 zero = 0;
	const struct offload_globals *globals = bpf_map_lookup_elem(&offload_globals, &zero);
	__u64 hash, buckets;
	__u32 found;

	if (!globals)
		return 0;
	hash = offload_hash(globals, value, scope);
	offload_expect_group(globals, hash, scope);
	buckets = globals->buckets;
	found = offload_search((hash & 0xffffffff) * buckets >> 32, value, scope);
	if (!found)
		found = offload_search((hash >> 32) * buckets >> 32, value, scope);
	return found;
}

/* Whether the count has reached a limit; the first to see it takes the limit away, and puts it back when the ring has
 * no room, so that a later packet tells. Whether it is near. */
static __always_inline int offload_check_limit(__u64 *limit, __u64 count, __u32 cell, struct offload_counters *counters)
{
	struct offload_event event = {.cell = cell};
	__u64 at = ~*(volatile __u64 *)limit, taken;

	if (count + OFFLOAD_COUNTED_NEAR < at)
		return 0;
	if (count < at)
		return 1;
	taken = __sync_lock_test_and_set(limit, 0);
	if (taken && bpf_ringbuf_output(&offload_events, &event, sizeof(event), 0)) {
		__sync_lock_test_and_set(limit, taken);
		counters->events_late++;
		return 1;
	}
	return 0;
}

/* Moves a usage cell by packets and octets; whether a limit is near. */
static __always_inline int offload_move(__u32 at, __u32 is_downlink, __u64 packets, __u64 bytes, struct offload_counters *counters)
{
	struct offload_cell *cell = bpf_map_lookup_elem(&offload_cells, &at);
	__u64 own, total;
	int near;

	if (!cell)
		return 0;
	if (is_downlink) {
		__sync_fetch_and_add(&cell->bytes[3], packets);
		own = __sync_fetch_and_add(&cell->bytes[2], bytes) + bytes;
		total = own + *(volatile __u64 *)&cell->bytes[0];
		near = offload_check_limit(&cell->limits[1], own, at, counters);
	} else {
		__sync_fetch_and_add(&cell->bytes[1], packets);
		own = __sync_fetch_and_add(&cell->bytes[0], bytes) + bytes;
		total = own + *(volatile __u64 *)&cell->bytes[2];
		near = offload_check_limit(&cell->limits[0], own, at, counters);
	}
	return offload_check_limit(&cell->limits[2], total, at, counters) | near;
}

/* How many of a rule's cells count what passes. */
static __always_inline __u32 offload_usage_of(__u32 flags)
{
	return flags >> OFFLOAD_USAGE_SHIFT & 7;
}

/* Moves all usage cells of a rule by what was counted in it. */
static __noinline int offload_settle(struct offload_rule *rule, struct offload_counters *counters)
{
	__u64 taken = __sync_lock_test_and_set(&rule->counted, 0) & ~OFFLOAD_COUNTED_FAR;
	__u32 flags = rule->flags, count = offload_usage_of(flags);
	int near = 0;

	for (__u32 i = 0; i < OFFLOAD_USAGE_MAX && i < count; i++)
		near |= offload_move(rule->cells[i], flags & OFFLOAD_DOWNLINK, taken / OFFLOAD_COUNTED_PACKET,
				  taken % OFFLOAD_COUNTED_PACKET, counters);
	if (!near && !(flags & OFFLOAD_EXACT))
		__sync_fetch_and_or(&rule->counted, OFFLOAD_COUNTED_FAR);
	return 0;
}

/* Counts a packet that a rule drops, or its rate: in the cells that count before QoS enforcement, and in that of the dropped. */
__noinline int offload_count_drop(__u32 at, __u32 bytes, __u32 reason, __u32 slot)
{
	struct offload_rule *rule = offload_rule_at(at);
	struct offload_counters *counters = bpf_map_lookup_elem(&offload_counters, &slot);
	__u32 flags, count;
	int near = 0;

	if (!rule || !counters)
		return 0;
	flags = rule->flags;
	count = offload_usage_of(flags);
	for (__u32 i = 0; i < OFFLOAD_USAGE_MAX && i < count; i++)
		if (flags >> (OFFLOAD_BEFORE_QOS_SHIFT + i) & 1)
			near |= offload_move(rule->cells[i], flags & OFFLOAD_DOWNLINK, 1, bytes, counters);
	if (flags & OFFLOAD_USAGE_DROPPED && count < OFFLOAD_CELLS_MAX)
		near |= offload_move(rule->cells[count], flags & OFFLOAD_DOWNLINK, 1, bytes, counters);
	if (near) {
		struct offload_rule *counting = offload_rule_at(offload_counted_at(at));

		if (counting)
			__sync_fetch_and_and(&counting->counted, ~OFFLOAD_COUNTED_FAR);
	}
	if (reason < OFFLOAD_DROPS)
		counters->dropped[reason]++;
	return 0;
}

/* Counts a packet that goes on. */
__noinline int offload_count(__u32 at, __u32 bytes, __u32 slot)
{
	struct offload_rule *rule = offload_rule_at(offload_counted_at(at));
	struct offload_counters *counters = bpf_map_lookup_elem(&offload_counters, &slot);
	__u32 flags;
	__u64 counted;

	if (!rule || !counters)
		return 0;
	flags = rule->flags;
	if (offload_usage_of(flags)) {
		counted = __sync_fetch_and_add(&rule->counted, OFFLOAD_COUNTED_PACKET + bytes);
		if (!(counted & OFFLOAD_COUNTED_FAR) || counted % OFFLOAD_COUNTED_PACKET + bytes >= OFFLOAD_COUNTED_MAX)
			offload_settle(rule, counters);
	}
	counters->packets[flags & OFFLOAD_DOWNLINK]++;
	counters->bytes[flags & OFFLOAD_DOWNLINK] += bytes;
	return 0;
}

/* Whether a counter with a quota is used up, or would reach a limit by this packet: then the packet is the engine's, which stops
 * what is to be stopped before the next. While no limit is near nobody looks. */
__noinline int offload_is_due(__u32 at, __u32 bytes)
{
	struct offload_rule *rule = offload_rule_at(offload_counted_at(at));
	__u32 flags, count;

	if (!rule || *(volatile __u64 *)&rule->counted & OFFLOAD_COUNTED_FAR)
		return 0;
	flags = rule->flags;
	count = offload_usage_of(flags);
	for (__u32 i = 0; i < OFFLOAD_USAGE_MAX && i < count; i++) {
		__u32 index = rule->cells[i];
		struct offload_cell *cell = bpf_map_lookup_elem(&offload_cells, &index);
		__u64 up, down, own;

		if (!cell)
			continue;
		up = *(volatile __u64 *)&cell->bytes[0];
		down = *(volatile __u64 *)&cell->bytes[2];
		own = (flags & OFFLOAD_DOWNLINK ? down : up) + bytes;
		if (*(volatile __u64 *)&cell->marks & OFFLOAD_MARK_EXHAUSTED ||
		    own >= ~*(volatile __u64 *)&cell->limits[flags & OFFLOAD_DOWNLINK] ||
		    up + down + bytes >= ~*(volatile __u64 *)&cell->limits[2])
			return 1;
	}
	return 0;
}

/* What octets take at a rate. */
static __always_inline __u64 offload_cost(__u64 bytes, __u64 byte_cost)
{
	return bytes * (byte_cost >> OFFLOAD_COST_SHIFT) +
	       (bytes * (byte_cost & ((1ull << OFFLOAD_COST_SHIFT) - 1)) >> OFFLOAD_COST_SHIFT);
}

/* How far a bucket is ahead of the clock: nothing where a time is further ahead than any packet can have put it. */
static __always_inline __u64 offload_ahead(__u64 until, __u64 now, __u64 byte_cost, __u64 depth)
{
	__s64 ahead = until - now;

	if (ahead <= 0 || (__u64)ahead > depth + offload_cost(OFFLOAD_PACKET_MAX, byte_cost) * OFFLOAD_TAKERS_MAX)
		return 0;
	return ahead;
}

static __always_inline struct offload_bucket_of_tokens *offload_tokens(const struct offload_rule *rule, __u32 i)
{
	__u32 flags = rule->flags, count = offload_usage_of(flags) + !!(flags & OFFLOAD_USAGE_DROPPED) + i, index;
	struct offload_policer *policer;

	if (count >= OFFLOAD_CELLS_MAX)
		return 0;
	index = rule->cells[count];
	policer = bpf_map_lookup_elem(&offload_policers, &index);
	return policer ? &policer->buckets[flags & OFFLOAD_DOWNLINK] : 0;
}

/* What is left of the octets that a rule took ahead of its packets, or nothing where it has no room to keep that. So many packets
 * need neither the policers, which lie at places that only the rule tells, nor the clock. */
static __always_inline __u32 *offload_credit(struct offload_rule *rule)
{
	__u32 flags = rule->flags;
	__u32 used = offload_usage_of(flags) + !!(flags & OFFLOAD_USAGE_DROPPED) + (flags >> OFFLOAD_POLICERS_SHIFT & 3);

	return used < OFFLOAD_CELLS_MAX ? &rule->cells[OFFLOAD_CELLS_MAX - 1] : 0;
}

/* The policers' clock. */
static __always_inline __u64 offload_now(void)
{
	const __u32 zero = 0;
	const struct offload_globals *globals = bpf_map_lookup_elem(&offload_globals, &zero);

	return globals ? (bpf_ktime_get_ns() - globals->policers_began) << OFFLOAD_TICK_SHIFT : 0;
}

/* Whether all rates of a rule let a packet pass, of which nothing is taken: 0, -1 when not, 1 when the engine knows. */
__noinline int offload_admits(__u32 at, __u32 bytes)
{
	struct offload_rule *rule = offload_rule_at(at);
	const volatile __u32 *credit;
	int admits = 0;
	__u64 now;

	if (!rule)
		return 1;
	credit = offload_credit(rule);
	if (credit && *credit >= bytes)
		return 0;
	now = offload_now();
	for (__u32 i = 0; i < OFFLOAD_POLICERS_MAX && i < (rule->flags >> OFFLOAD_POLICERS_SHIFT & 3); i++) {
		const volatile struct offload_bucket_of_tokens *tokens = offload_tokens(rule, i);
		__u64 cost, depth, ahead;

		if (!tokens)
			return 1;
		cost = tokens->byte_cost;
		if (!cost)
			continue;
		if (tokens->byte_cost_was)
			return 1;
		depth = tokens->depth;
		ahead = offload_ahead(tokens->until, now, cost, depth);
		if (ahead && ahead >= depth)
			admits = -1;
	}
	return admits;
}

/* Has a bucket pay for octets. */
static __always_inline void offload_pay(struct offload_bucket_of_tokens *tokens, __u64 bytes, __u64 now)
{
	__u64 cost = *(volatile __u64 *)&tokens->byte_cost, depth = *(volatile __u64 *)&tokens->depth;
	__u64 until = *(volatile __u64 *)&tokens->until, spent = offload_cost(bytes, cost);

	if (!cost)
		return;
	for (int tries = 0; tries < 8; tries++) {
		__u64 after = (offload_ahead(until, now, cost, depth) ? until : now) + spent;
		__u64 found = __sync_val_compare_and_swap(&tokens->until, until, after);

		if (found == until)
			return;
		until = found;
	}
	/* Overtaken so often, it adds to what the others have made of it: that is ahead of the clock. */
	__sync_fetch_and_add(&tokens->until, spent);
}

/* How many octets a rule may take ahead: a part of the depth of each of its buckets. */
static __always_inline __u32 offload_ahead_of(const struct offload_rule *rule)
{
	__u32 octets = OFFLOAD_CREDIT_MAX;

	for (__u32 i = 0; i < OFFLOAD_POLICERS_MAX && i < (rule->flags >> OFFLOAD_POLICERS_SHIFT & 3); i++) {
		const volatile struct offload_bucket_of_tokens *tokens = offload_tokens(rule, i);
		__u64 cost, part;

		if (!tokens)
			return 0;
		cost = tokens->byte_cost;
		part = tokens->depth >> OFFLOAD_CREDIT_SHIFT;
		for (int halves = 0; halves < 5 && offload_cost(octets, cost) > part; halves++)
			octets >>= 1;
		if (offload_cost(octets, cost) > part)
			return 0;
	}
	return octets;
}

/* Takes what a packet costs that passes. */
__noinline int offload_take(__u32 at, __u32 bytes)
{
	struct offload_rule *rule = offload_rule_at(at);
	__u32 *credit, ahead = 0;
	__u64 now;

	if (!rule)
		return 0;
	credit = offload_credit(rule);
	if (credit && *(volatile __u32 *)credit >= bytes) {
		if (__sync_fetch_and_add(credit, -bytes) >= bytes)
			return 0;
		/* Somebody was faster. */
		__sync_fetch_and_add(credit, bytes);
	}
	if (credit)
		ahead = offload_ahead_of(rule);
	now = offload_now();
	for (__u32 i = 0; i < OFFLOAD_POLICERS_MAX && i < (rule->flags >> OFFLOAD_POLICERS_SHIFT & 3); i++) {
		struct offload_bucket_of_tokens *tokens = offload_tokens(rule, i);

		if (!tokens)
			break;
		offload_pay(tokens, bytes + ahead, now);
	}
	if (credit && ahead)
		__sync_fetch_and_add(credit, ahead);
	return 0;
}

#endif
