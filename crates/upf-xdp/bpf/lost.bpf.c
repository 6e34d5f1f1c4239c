/* SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only */
/*
 * Counts the frames that the offload redirects to a device and that the device does not take. The kernel frees them, and no
 * counter of the device or of the program tells:
 *
 *   xdp_do_redirect ── the device takes no redirected frames ──▶ xdp_redirect_err
 *         └─▶ bulk queue ─▶ ndo_xdp_xmit ── its ring is full ──▶ xdp_devmap_xmit, drops
 *                                └─────── it refuses ──────────▶ xdp_devmap_xmit, drops and err
 *
 * Only programs under a licence compatible with the GPL may read the device of a tracepoint, so this file has two licences.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* What is read of the kernel's structures; libbpf finds where it lies. */
struct ns_common {
	unsigned int inum;
} __attribute__((preserve_access_index));

struct net {
	struct ns_common ns;
} __attribute__((preserve_access_index));

typedef struct {
	struct net *net;
} __attribute__((preserve_access_index)) possible_net_t;

struct net_device {
	int ifindex;
	possible_net_t nd_net;
} __attribute__((preserve_access_index));

/* Written before the programs are attached. */
struct lost_config {
	__u32 netns;   /* inode of the node's network namespace: an index means nothing in another */
	__u32 devices; /* the offload's map of devices */
};

struct lost_frames {
	__u64 refused; /* the device takes none */
	__u64 full;    /* it had no room */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct lost_config);
	__uint(max_entries, 1);
} lost_config SEC(".maps");

/* By index of the interface; only those that the node sends out of have an entry. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, __u32);
	__type(value, struct lost_frames);
	__uint(max_entries, 256);
} lost_frames SEC(".maps");

/* (from device, to device, frames sent, frames dropped, error) */
SEC("tp_btf/xdp_devmap_xmit")
int lost_at_device(__u64 *ctx)
{
	const struct net_device *to = (const struct net_device *)ctx[1];
	int drops = (int)ctx[3], err = (int)ctx[4];
	struct lost_frames *lost;
	struct lost_config *config;
	__u32 first = 0, ifindex;

	if (drops <= 0)
		return 0;
	config = bpf_map_lookup_elem(&lost_config, &first);
	if (!config || to->nd_net.net->ns.inum != config->netns)
		return 0;
	ifindex = to->ifindex;
	lost = bpf_map_lookup_elem(&lost_frames, &ifindex);
	if (lost)
		__sync_fetch_and_add(err < 0 ? &lost->refused : &lost->full, drops);
	return 0;
}

/* (from device, program, target, error, type of the map, id of the map, index) */
SEC("tp_btf/xdp_redirect_err")
int lost_before_device(__u64 *ctx)
{
	__u32 map_id = ctx[5], ifindex = ctx[6], first = 0;
	struct lost_frames *lost;
	struct lost_config *config;

	config = bpf_map_lookup_elem(&lost_config, &first);
	if (!config || map_id != config->devices)
		return 0;
	lost = bpf_map_lookup_elem(&lost_frames, &ifindex);
	if (lost)
		__sync_fetch_and_add(&lost->refused, 1);
	return 0;
}

char _license[] SEC("license") = "Dual BSD/GPL";
