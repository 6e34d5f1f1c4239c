/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdio.h>

#include "shim.h"

/* Rust has this one as a number of its own. */
_Static_assert(RTE_BAD_IOVA == UINT64_MAX, "RTE_BAD_IOVA");

static ssize_t write_log(void *cookie, const char *text, size_t len)
{
	kaido_log_sink sink = (kaido_log_sink)(uintptr_t)cookie;

	/* DPDK flushes after each message, on the thread that logs: the level is the message's. */
	sink((uint32_t)rte_log_cur_msg_loglevel(), text, len);
	return (ssize_t)len;
}

int kaido_log_to(kaido_log_sink sink)
{
	cookie_io_functions_t functions = { .write = write_log };
	FILE *stream = fopencookie((void *)(uintptr_t)sink, "w", functions);

	return stream == NULL ? -1 : rte_openlog_stream(stream);
}

int kaido_errno(void)
{
	return rte_errno;
}

uint32_t kaido_lcore_id(void)
{
	return rte_lcore_id();
}

uint16_t kaido_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_rx_burst(port, queue, mbufs, count);
}

uint16_t kaido_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, mbufs, count);
}

int kaido_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count)
{
	return rte_pktmbuf_alloc_bulk(pool, mbufs, count);
}

void kaido_free_bulk(struct rte_mbuf **mbufs, uint32_t count)
{
	rte_pktmbuf_free_bulk(mbufs, count);
}

int kaido_is_sole_owner(const struct rte_mbuf *mbuf)
{
	if (rte_mbuf_refcnt_read(mbuf) != 1 || RTE_MBUF_CLONED(mbuf))
		return 0;
	return !RTE_MBUF_HAS_EXTBUF(mbuf) || rte_mbuf_ext_refcnt_read(mbuf->shinfo) == 1;
}
