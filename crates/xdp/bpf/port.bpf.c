/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Brings a port's packets to AF_XDP sockets by a few matches, for functions without a program of their own:
 *
 *   type     frames of an EtherType to our MAC, or to a group
 *   address  packets of an IP protocol to one of addresses and our MAC; of UDP all, or those to one port. Of a datagram in
 *            fragments only the first has the port: where that is another one, those behind it are the kernel's too
 *   routed   unicast IP to our MAC, and to no address of the kernel's own
 *   all      every frame, of a port that is one of a bridge
 *
 * VLAN tags are passed over. Those go to the AF_XDP socket of the receive queue; all else (ARP, ND, ping to ourselves, ssh, ...)
 * goes to the kernel. A packet that is ours while its queue has no socket is dropped and counted.
 */
#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "port.h"
#include "steer.bpf.h"
#include "wire.h"

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__type(key, __u32);
	__type(value, struct port_config);
	__uint(max_entries, 1);
} config SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, 2 * STEER_ADDRESSES_MAX);
} addresses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, struct steer_address);
	__type(value, __u8);
	__uint(max_entries, 2 * STEER_ADDRESSES_MAX);
} local_addrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__type(key, __u32);
	__type(value, __u32);
	__uint(max_entries, STEER_QUEUES_MAX);
} sockets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__type(key, __u32);
	__type(value, struct port_counters);
	__uint(max_entries, 1);
} counters SEC(".maps");

static __always_inline int pass(struct port_counters *count, enum port_pass reason)
{
	count->passed[reason]++;
	return XDP_PASS;
}

static __always_inline int take(struct xdp_md *ctx, struct port_counters *count, enum port_class class)
{
	long action = bpf_redirect_map(&sockets, ctx->rx_queue_index, XDP_DROP);

	if (action == XDP_REDIRECT)
		count->redirected[class]++;
	else
		count->no_socket[class]++;
	return action;
}

static __always_inline int is_to_mac(const struct port_config *cfg, const struct ethernet *eth)
{
	return !__builtin_memcmp(eth->destination, cfg->mac, ETH_ALEN);
}

/* As is_to_mac, or to a group. */
static __always_inline int is_to_us(const struct port_config *cfg, const struct ethernet *eth)
{
	return eth->destination[0] & 1 || is_to_mac(cfg, eth);
}

/* Whether a packet is of the protocol, and to one of the addresses. */
static __always_inline int is_addressed(const struct port_config *cfg, struct packet *packet)
{
	if (!(cfg->flags & PORT_ADDRESS) || packet->protocol != cfg->protocol)
		return 0;
	if (!(cfg->flags & PORT_UDP_PORT))
		return bpf_map_lookup_elem(&addresses, &packet->destination) != 0;
	return (packet->is_fragment || packet->udp_port == cfg->udp_port) &&
	       bpf_map_lookup_elem(&addresses, &packet->destination) && is_ours(packet, cfg->udp_port);
}

static __always_inline int port(struct xdp_md *ctx)
{
	const void *data = (const void *)(long)ctx->data;
	const void *end = (const void *)(long)ctx->data_end;
	const struct ethernet *eth = data;
	const __u32 zero = 0;
	const struct port_config *cfg = bpf_map_lookup_elem(&config, &zero);
	struct port_counters *count = bpf_map_lookup_elem(&counters, &zero);
	struct packet packet = {};
	__be16 type, tci;
	__u32 offset;

	if (!cfg || !count)
		return XDP_PASS;
	if (cfg->flags & PORT_ALL)
		return take(ctx, count, PORT_CLASS_ALL);
	if (!(cfg->flags & (PORT_TYPE | PORT_ADDRESS | PORT_ROUTED)))
		return pass(count, PORT_PASS_NOT_CONFIGURED);
	if ((const void *)(eth + 1) > end || !read_type(data, end, &type, &offset, &tci))
		return pass(count, PORT_PASS_MALFORMED);
	if (cfg->flags & PORT_TYPE && type == cfg->type)
		return is_to_us(cfg, eth) ? take(ctx, count, PORT_CLASS_TYPE) : pass(count, PORT_PASS_OTHER_MAC);
	if (type != bpf_htons(ETH_P_IP) && type != bpf_htons(ETH_P_IPV6))
		return pass(count, PORT_PASS_NOT_IP);
	parse_ip(ctx, &packet, offset, type == bpf_htons(ETH_P_IPV6));
	packet.is_returned = is_returned(ctx);
	if (packet.is_malformed)
		return pass(count, PORT_PASS_MALFORMED);
	if (!packet.is_unicast)
		return pass(count, PORT_PASS_NOT_UNICAST);
	if (is_addressed(cfg, &packet))
		return is_to_us(cfg, eth) ? take(ctx, count, PORT_CLASS_ADDRESS) : pass(count, PORT_PASS_OTHER_MAC);
	if (!(cfg->flags & PORT_ROUTED))
		return pass(count, PORT_PASS_NO_MATCH);
	if (!is_to_mac(cfg, eth))
		return pass(count, PORT_PASS_OTHER_MAC);
	/* What is sent to an address and does not match is the kernel's. */
	if (bpf_map_lookup_elem(&local_addrs, &packet.destination) ||
	    bpf_map_lookup_elem(&addresses, &packet.destination))
		return pass(count, PORT_PASS_LOCAL);
	return take(ctx, count, PORT_CLASS_ROUTED);
}

SEC("xdp")
int port_plain(struct xdp_md *ctx)
{
	return port(ctx);
}

/* For interfaces whose packets may span several buffers (MTU above 3506); all headers lie in the first. */
SEC("xdp.frags")
int port_frags(struct xdp_md *ctx)
{
	return port(ctx);
}

char _license[] SEC("license") = "Apache-2.0";
