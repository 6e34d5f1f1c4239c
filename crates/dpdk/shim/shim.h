/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What Rust needs of DPDK: the headers whose declarations bindgen reads, and functions for what DPDK has only as
 * static inline or as a macro.
 */
#ifndef KAIDO_DPDK_SHIM_H
#define KAIDO_DPDK_SHIM_H

#include <stddef.h>
#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_mbuf.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_version.h>

/* What DPDK has as macros that are no plain numbers. */
static const uint16_t KAIDO_MBUF_HEADROOM = RTE_PKTMBUF_HEADROOM;
static const uint64_t KAIDO_RX_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t KAIDO_TX_CHAINS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t KAIDO_RSS = RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP | RTE_ETH_RSS_TCP | RTE_ETH_RSS_GTPU;

/* Takes a line of the log, or a part of one, with its level (RTE_LOG_...). */
typedef void (*kaido_log_sink)(uint32_t level, const char *text, size_t len);

/* Has DPDK's log go to `sink`; 0, or -1 when there is no memory for a stream. */
int kaido_log_to(kaido_log_sink sink);

/* The error of the calling thread's last DPDK call. */
int kaido_errno(void);

/* The lcore id of the calling thread; LCORE_ID_ANY when it is not registered. */
uint32_t kaido_lcore_id(void);

uint16_t kaido_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);
uint16_t kaido_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **mbufs, uint16_t count);

/* Takes `count` mbufs without data, or none; 0 when they were had. */
int kaido_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t count);

/* Gives back packets with all their segments. */
void kaido_free_bulk(struct rte_mbuf **mbufs, uint32_t count);

/* Whether nobody else has a reference to the segment or its buffer. */
int kaido_is_sole_owner(const struct rte_mbuf *mbuf);

#endif
