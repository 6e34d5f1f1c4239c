/*
 * CPU time of this thread to send a frame out of a veth device, by one way:
 *
 *   send_cost DEVICE WAY BATCH BYTES SECONDS
 *
 * WAY: xdp (AF_XDP in copy mode, BATCH descriptors before the kernel is called; it sends 32 a call), xdp-budget (the same, with
 * XDP_MAX_TX_SKB_BUDGET of BATCH), mmsg (AF_PACKET, sendmmsg past the queueing discipline), ring (AF_PACKET's transmit ring past it),
 * live (BPF_PROG_TEST_RUN of a program that redirects BATCH frames to the device, without a buffer for each).
 *
 * Prints user and system nanoseconds a frame, soft interrupts that a call leads to included, and those of a call.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_packet.h>
#include <linux/if_xdp.h>
#include <net/if.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FRAMES 2048
#define FRAME_BYTES 2048
#define BATCH_MAX 256
#define BUDGET_OPTION 9 /* XDP_MAX_TX_SKB_BUDGET, Linux 6.17 */

static int ifindex, bytes, batch, fd;
static unsigned char *memory;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void *map(size_t length, int descriptor, off_t offset)
{
	int flags = descriptor < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
	void *at = mmap(NULL, length, PROT_READ | PROT_WRITE, flags | MAP_POPULATE, descriptor, offset);

	if (at == MAP_FAILED)
		die("mmap");
	return at;
}

/* An Ethernet frame with an IPv4 packet to another host. */
static void write_frame(unsigned char *at)
{
	static const unsigned char head[] = {2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45};

	memset(at, 0, bytes);
	memcpy(at, head, sizeof head);
	at[16] = (bytes - 14) >> 8;
	at[17] = bytes - 14;
	at[22] = 64;
	at[23] = 17;
}

static void call(void)
{
	if (sendto(fd, NULL, 0, MSG_DONTWAIT, NULL, 0) < 0 && errno != EAGAIN && errno != EBUSY && errno != ENOBUFS)
		die("sendto");
}

/* AF_XDP */

static uint32_t *tx_producer, *tx_consumer, *completion_producer, *completion_consumer, sent;
static struct xdp_desc *descriptors;

static void open_xdp(int has_budget)
{
	struct sockaddr_xdp address = {
		.sxdp_family = AF_XDP, .sxdp_ifindex = ifindex, .sxdp_flags = XDP_COPY | XDP_USE_NEED_WAKEUP};
	struct xdp_umem_reg umem = {.len = FRAMES * FRAME_BYTES, .chunk_size = FRAME_BYTES};
	struct xdp_mmap_offsets offsets;
	socklen_t length = sizeof offsets;
	int frames = FRAMES;
	char *tx, *completion;

	memory = map(FRAMES * FRAME_BYTES, -1, 0);
	umem.addr = (uintptr_t)memory;
	for (int i = 0; i < FRAMES; i++)
		write_frame(memory + i * FRAME_BYTES);
	fd = socket(AF_XDP, SOCK_RAW, 0);
	if (fd < 0 || setsockopt(fd, SOL_XDP, XDP_UMEM_REG, &umem, sizeof umem) ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_FILL_RING, &frames, sizeof frames) ||
	    setsockopt(fd, SOL_XDP, XDP_UMEM_COMPLETION_RING, &frames, sizeof frames) ||
	    setsockopt(fd, SOL_XDP, XDP_TX_RING, &frames, sizeof frames) ||
	    getsockopt(fd, SOL_XDP, XDP_MMAP_OFFSETS, &offsets, &length))
		die("AF_XDP");
	if (has_budget && setsockopt(fd, SOL_XDP, BUDGET_OPTION, &batch, sizeof batch))
		die("XDP_MAX_TX_SKB_BUDGET");
	tx = map(offsets.tx.desc + FRAMES * sizeof *descriptors, fd, XDP_PGOFF_TX_RING);
	completion = map(offsets.cr.desc + FRAMES * sizeof(uint64_t), fd, XDP_UMEM_PGOFF_COMPLETION_RING);
	tx_producer = (uint32_t *)(tx + offsets.tx.producer);
	tx_consumer = (uint32_t *)(tx + offsets.tx.consumer);
	descriptors = (struct xdp_desc *)(tx + offsets.tx.desc);
	completion_producer = (uint32_t *)(completion + offsets.cr.producer);
	completion_consumer = (uint32_t *)(completion + offsets.cr.consumer);
	/* The socket that was here before may still be taken apart. */
	for (int tries = 0; bind(fd, (struct sockaddr *)&address, sizeof address); tries++) {
		if (errno != EBUSY || tries == 100)
			die("bind");
		usleep(10000);
	}
}

static void send_xdp(void)
{
	for (int i = 0; i < batch; i++) {
		uint32_t at = (sent + i) % FRAMES;

		descriptors[at] = (struct xdp_desc){.addr = (uint64_t)at * FRAME_BYTES, .len = bytes};
	}
	sent += batch;
	__atomic_store_n(tx_producer, sent, __ATOMIC_RELEASE);
	while (__atomic_load_n(tx_consumer, __ATOMIC_ACQUIRE) != sent)
		call();
	__atomic_store_n(completion_consumer, __atomic_load_n(completion_producer, __ATOMIC_ACQUIRE), __ATOMIC_RELEASE);
}

/* AF_PACKET */

static struct mmsghdr messages[BATCH_MAX];
static struct iovec parts[BATCH_MAX];

static void open_packet(int has_ring)
{
	struct sockaddr_ll address = {.sll_family = AF_PACKET, .sll_ifindex = ifindex};
	struct tpacket_req ring = {
		.tp_block_size = 1 << 16, .tp_block_nr = FRAMES * FRAME_BYTES >> 16, .tp_frame_size = FRAME_BYTES, .tp_frame_nr = FRAMES};
	int one = 1, version = TPACKET_V2, room = 8 << 20;

	fd = socket(AF_PACKET, SOCK_RAW, 0);
	if (fd < 0 || setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &one, sizeof one) ||
	    setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &room, sizeof room))
		die("AF_PACKET");
	if (has_ring && (setsockopt(fd, SOL_PACKET, PACKET_VERSION, &version, sizeof version) ||
			 setsockopt(fd, SOL_PACKET, PACKET_TX_RING, &ring, sizeof ring)))
		die("PACKET_TX_RING");
	memory = map(FRAMES * FRAME_BYTES, has_ring ? fd : -1, 0);
	if (bind(fd, (struct sockaddr *)&address, sizeof address))
		die("bind");
	for (int i = 0; i < batch && !has_ring; i++) {
		write_frame(memory + i * FRAME_BYTES);
		parts[i] = (struct iovec){.iov_base = memory + i * FRAME_BYTES, .iov_len = bytes};
		messages[i].msg_hdr = (struct msghdr){.msg_iov = &parts[i], .msg_iovlen = 1};
	}
}

static void send_messages(void)
{
	for (int done = 0; done < batch;) {
		int now = sendmmsg(fd, messages + done, batch - done, 0);

		if (now < 0 && errno != ENOBUFS && errno != EAGAIN)
			die("sendmmsg");
		done += now > 0 ? now : 0;
	}
}

static void send_ring(void)
{
	static unsigned char frame[FRAME_BYTES];

	if (!frame[12])
		write_frame(frame);
	for (int i = 0; i < batch; i++) {
		struct tpacket2_hdr *header = (void *)(memory + (sent + i) % FRAMES * FRAME_BYTES);

		while (__atomic_load_n(&header->tp_status, __ATOMIC_ACQUIRE) & (TP_STATUS_SEND_REQUEST | TP_STATUS_SENDING))
			call();
		/* The frames that a port sends lie elsewhere. */
		memcpy((unsigned char *)header + TPACKET_ALIGN(sizeof *header), frame, bytes);
		header->tp_len = bytes;
		__atomic_store_n(&header->tp_status, TP_STATUS_SEND_REQUEST, __ATOMIC_RELEASE);
	}
	sent += batch;
	call();
}

/* Frames without buffers of the kernel's */

static int bpf(int command, union bpf_attr *attributes, const char *what)
{
	int result = syscall(SYS_bpf, command, attributes, sizeof *attributes);

	if (result < 0)
		die(what);
	return result;
}

static int program;

static void open_live(void)
{
	uint32_t key = 0, value = ifindex;
	union bpf_attr create = {.map_type = BPF_MAP_TYPE_DEVMAP, .key_size = 4, .value_size = 4, .max_entries = 1};
	int devices = bpf(BPF_MAP_CREATE, &create, "a map of devices");
	union bpf_attr update = {.map_fd = devices, .key = (uintptr_t)&key, .value = (uintptr_t)&value};
	/* return bpf_redirect_map(&devices, 0, 0) */
	struct bpf_insn code[] = {
		{.code = BPF_LD | BPF_DW | BPF_IMM, .dst_reg = 1, .src_reg = BPF_PSEUDO_MAP_FD, .imm = devices},
		{0},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 2},
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 3},
		{.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr load = {.prog_type = BPF_PROG_TYPE_XDP, .insns = (uintptr_t)code, .license = (uintptr_t)"Apache-2.0"};

	load.insn_cnt = sizeof code / sizeof *code;
	bpf(BPF_MAP_UPDATE_ELEM, &update, "the device");
	program = bpf(BPF_PROG_LOAD, &load, "a program");
	memory = map(FRAME_BYTES, -1, 0);
	write_frame(memory);
}

static void send_live(void)
{
	union bpf_attr run = {0};

	run.test.prog_fd = program;
	run.test.data_in = (uintptr_t)memory;
	run.test.data_size_in = bytes;
	run.test.repeat = batch;
	run.test.batch_size = 64;
	run.test.flags = BPF_F_TEST_XDP_LIVE_FRAMES;
	bpf(BPF_PROG_TEST_RUN, &run, "BPF_PROG_TEST_RUN");
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static double seconds_of(struct timeval time)
{
	return time.tv_sec + time.tv_usec / 1e6;
}

int main(int count, char **arguments)
{
	struct rusage before, after;
	void (*send)(void);
	double began, lasts, user, system;
	long calls = 0;

	if (count != 6 || !(ifindex = if_nametoindex(arguments[1])))
		die("send_cost DEVICE WAY BATCH BYTES SECONDS");
	batch = atoi(arguments[3]);
	bytes = atoi(arguments[4]);
	lasts = atof(arguments[5]);
	if (!strcmp(arguments[2], "live")) {
		open_live();
		send = send_live;
	} else if (batch > BATCH_MAX) {
		die("at most 256 a batch");
	} else if (!strncmp(arguments[2], "xdp", 3)) {
		open_xdp(!strcmp(arguments[2], "xdp-budget"));
		send = send_xdp;
	} else {
		open_packet(!strcmp(arguments[2], "ring"));
		send = strcmp(arguments[2], "ring") ? send_messages : send_ring;
	}
	for (began = now(); now() - began < 0.05;)
		send();
	getrusage(RUSAGE_THREAD, &before);
	for (began = now(); now() - began < lasts; calls++)
		send();
	getrusage(RUSAGE_THREAD, &after);
	user = seconds_of(after.ru_utime) - seconds_of(before.ru_utime);
	system = seconds_of(after.ru_stime) - seconds_of(before.ru_stime);
	printf("{\"user_ns\": %.1f, \"system_ns\": %.1f, \"call_us\": %.1f}\n", user * 1e9 / calls / batch,
	       system * 1e9 / calls / batch, (user + system) * 1e6 / calls);
	return 0;
}
