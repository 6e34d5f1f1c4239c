//! A device: found by name, set up with as many queues as there are workers, and closed with the last of them.

use std::ffi::{CStr, CString, c_char};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::error::{DpdkError, reason};
use crate::mbufs::MbufPool;
use crate::memory::DpdkPool;
use crate::{log, sys};

/// How a device is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DpdkOptions {
    /// Queues each way: one for each worker.
    pub queues: u16,
    /// Descriptors of a receive queue; the device may take another number near it.
    pub rx_descriptors: u16,
    /// Descriptors of a transmit queue; likewise.
    pub tx_descriptors: u16,
    /// Largest IP packet, in bytes. Frames that do not fit one buffer of 3840 bytes are received as chains.
    pub mtu: u16,
    /// Whether frames to other Ethernet addresses are received too.
    pub promiscuous: bool,
}

impl Default for DpdkOptions {
    fn default() -> Self {
        Self { queues: 1, rx_descriptors: 1024, tx_descriptors: 1024, mtu: 1500, promiscuous: false }
    }
}

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// Its name: a PCI address, or that of a virtual device.
    pub name: String,
    /// Its driver, such as `net_ice`.
    pub driver: String,
    /// Its Ethernet address.
    pub mac: [u8; 6],
    /// Largest IP packet, in bytes.
    pub mtu: u16,
}

/// An open device.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) port: u16,
    pub(crate) info: DeviceInfo,
    pub(crate) memory: DpdkPool,
    /// Most segments of a packet that it sends.
    pub(crate) segments_max: usize,
    /// Receive and transmit pools by queue; `None` once they are closed.
    pools: Mutex<Vec<[MbufPool; 2]>>,
}

impl Device {
    /// Opens and starts the device.
    pub(crate) fn open(memory: &DpdkPool, name: &str, options: &DpdkOptions) -> Result<Self, DpdkError> {
        let port = find(name)?;
        let call = Calls { name };
        let mut found = sys::rte_eth_dev_info::default();
        // SAFETY: the port exists, and there is room for the answer.
        call.check("rte_eth_dev_info_get", || unsafe { sys::rte_eth_dev_info_get(port, &raw mut found) })?;
        // Whether the longest packets take several frames.
        let chained = !memory.frames().pool.frame_size().holds_mtu(options.mtu.into());
        check(name, options, &found, chained)?;
        let (mut rx, mut tx) = (options.rx_descriptors, options.tx_descriptors);
        let conf = configuration(options, &found, chained);
        let chains = found.tx_offload_capa & sys::KAIDO_TX_CHAINS != 0;
        let mut mac = sys::rte_ether_addr::default();
        // SAFETY: the port exists; what the calls read and write lives through them.
        unsafe {
            let queues = options.queues;
            call.check("rte_eth_dev_configure", || {
                sys::rte_eth_dev_configure(port, queues, queues, &raw const conf)
            })?;
            call.check("rte_eth_dev_adjust_nb_rx_tx_desc", || {
                sys::rte_eth_dev_adjust_nb_rx_tx_desc(port, &raw mut rx, &raw mut tx)
            })?;
            call.check("rte_eth_macaddr_get", || sys::rte_eth_macaddr_get(port, &raw mut mac))?;
        }
        memory.map_for(name, found.device)?;
        let info = DeviceInfo {
            name: name.to_owned(),
            driver: text(found.driver_name),
            mac: mac.addr_bytes,
            mtu: options.mtu,
        };
        let segments_max = match (chains, found.tx_desc_lim.nb_seg_max) {
            (false, _) => 1,
            (true, 0) => SEGMENTS_MAX,
            (true, limit) => usize::from(limit).min(SEGMENTS_MAX),
        };
        // From here on, dropping it closes the port.
        let device = Self { port, info, memory: memory.clone(), segments_max, pools: Mutex::new(Vec::new()) };
        for queue in 0..options.queues {
            device.add_queue(queue, rx, tx, &conf)?;
        }
        if options.promiscuous {
            // SAFETY: the port exists.
            call.check("rte_eth_promiscuous_enable", || unsafe { sys::rte_eth_promiscuous_enable(port) })?;
        }
        // Neighbour discovery comes by multicast. A device without a filter has nothing to turn off.
        // SAFETY: the port exists.
        let status = unsafe { sys::rte_eth_allmulticast_enable(port) };
        if status < 0 {
            tracing::debug!(device = name, reason = reason(status), "the device's multicast filter stays");
        }
        // SAFETY: the port is set up.
        call.check("rte_eth_dev_start", || unsafe { sys::rte_eth_dev_start(port) })?;
        Ok(device)
    }

    fn add_queue(&self, queue: u16, rx: u16, tx: u16, conf: &sys::rte_eth_conf) -> Result<(), DpdkError> {
        let (port, call) = (self.port, Calls { name: &self.info.name });
        // SAFETY: the port exists.
        let node = unsafe { sys::rte_eth_dev_socket_id(port) };
        let pools = [
            MbufPool::create(&self.memory, &format!("kaido_rx_{port}_{queue}"), rx, node)?,
            MbufPool::create(&self.memory, &format!("kaido_tx_{port}_{queue}"), tx, node)?,
        ];
        let mempool = pools[0].mempool();
        // Kept before the driver sees them, whatever becomes of it.
        self.pools.lock().unwrap_or_else(PoisonError::into_inner).push(pools);
        let mut found = sys::rte_eth_dev_info::default();
        let node = node.cast_unsigned();
        // SAFETY: the port exists; what the calls read and write lives through them, and the pool until the
        // device is closed.
        unsafe {
            call.check("rte_eth_dev_info_get", || sys::rte_eth_dev_info_get(port, &raw mut found))?;
            found.default_rxconf.offloads = conf.rxmode.offloads;
            found.default_txconf.offloads = conf.txmode.offloads;
            let (rx_conf, tx_conf) = (&raw const found.default_rxconf, &raw const found.default_txconf);
            call.check("rte_eth_rx_queue_setup", || {
                sys::rte_eth_rx_queue_setup(port, queue, rx, node, rx_conf, mempool.as_ptr())
            })?;
            call.check("rte_eth_tx_queue_setup", || {
                sys::rte_eth_tx_queue_setup(port, queue, tx, node, tx_conf)
            })
        }
    }

    /// The receive and the transmit pool of a queue.
    pub(crate) fn mempools(&self, queue: u16) -> Option<[NonNull<sys::rte_mempool>; 2]> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(usize::from(queue)).map(|[rx, tx]| [rx.mempool(), tx.mempool()])
    }

    /// Mbufs of a queue's pools that are not in them.
    pub(crate) fn out(&self, queue: u16) -> [usize; 2] {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.get(usize::from(queue)).map_or([0; 2], |[rx, tx]| [rx.out(), tx.out()])
    }

    /// What the device has counted; `None` when it does not say.
    pub(crate) fn statistics(&self) -> Option<sys::rte_eth_stats> {
        let mut stats = sys::rte_eth_stats::default();
        // SAFETY: the port exists, and there is room for the answer.
        let status = unsafe { sys::rte_eth_stats_get(self.port, &raw mut stats) };
        (status == 0).then_some(stats)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let call = Calls { name: &self.info.name };
        // SAFETY: the port exists, and no queue of it is in use.
        let closed = unsafe {
            call.check("rte_eth_dev_stop", || sys::rte_eth_dev_stop(self.port))
                .and(call.check("rte_eth_dev_close", || sys::rte_eth_dev_close(self.port)))
        };
        if let Err(error) = &closed {
            tracing::warn!(%error, "a device could not be closed");
        }
        let pools = std::mem::take(self.pools.get_mut().unwrap_or_else(PoisonError::into_inner));
        for pool in pools.into_iter().flatten() {
            if closed.is_ok() && pool.out() == 0 {
                // SAFETY: all mbufs have come back.
                unsafe { pool.free() };
            } else {
                self.memory.eal().retire(pool);
            }
        }
    }
}

/// Most segments of a packet: 64 KiB, and some to spare for segments that are not full.
pub(crate) const SEGMENTS_MAX: usize = 32;

/// Calls that answer with a negative error.
struct Calls<'d> {
    name: &'d str,
}

impl Calls<'_> {
    fn check(&self, call: &'static str, body: impl FnOnce() -> i32) -> Result<(), DpdkError> {
        log::clear();
        let status = body();
        if status >= 0 {
            return Ok(());
        }
        Err(DpdkError::Call {
            device: self.name.to_owned(),
            call,
            reason: reason(status),
            said: log::complaints(),
        })
    }
}

fn find(name: &str) -> Result<u16, DpdkError> {
    let mut port = 0;
    let known = CString::new(name).is_ok_and(|name| {
        // SAFETY: the name and the answer live through the call.
        unsafe { sys::rte_eth_dev_get_port_by_name(name.as_ptr(), &raw mut port) == 0 }
    });
    if known { Ok(port) } else { Err(DpdkError::NoDevice { name: name.to_owned(), known: names() }) }
}

/// The devices that there are.
fn names() -> Vec<String> {
    let mut names = Vec::new();
    let mut next = 0;
    loop {
        // SAFETY: asks for the next port that nobody owns, from one on.
        let found = unsafe { sys::rte_eth_find_next_owned_by(next, 0) };
        let Some(port) = u16::try_from(found).ok().filter(|&port| u32::from(port) < sys::RTE_MAX_ETHPORTS)
        else {
            return names;
        };
        let mut name = [0 as c_char; sys::RTE_ETH_NAME_MAX_LEN as usize];
        // SAFETY: the name is never longer.
        if unsafe { sys::rte_eth_dev_get_name_by_port(port, name.as_mut_ptr()) } == 0 {
            names.push(text(name.as_ptr()));
        }
        next = port + 1;
    }
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: what DPDK calls a name ends with a NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn check(
    name: &str,
    options: &DpdkOptions,
    found: &sys::rte_eth_dev_info,
    chained: bool,
) -> Result<(), DpdkError> {
    let unable = |fault: String| Err(DpdkError::Unable { device: name.to_owned(), fault });
    let queues = found.max_rx_queues.min(found.max_tx_queues);
    if options.queues == 0 || options.queues > queues {
        return unable(format!("{} queues are wanted, and it has 1 to {queues}", options.queues));
    }
    if options.mtu > found.max_mtu || options.mtu < found.min_mtu {
        let (low, high) = (found.min_mtu, found.max_mtu);
        return unable(format!("an MTU of {} is wanted, and it takes {low} to {high}", options.mtu));
    }
    if chained && found.rx_offload_capa & sys::KAIDO_RX_SCATTER == 0 {
        tracing::warn!(device = name, mtu = options.mtu, "the driver does not say that it receives chains");
    }
    Ok(())
}

fn configuration(options: &DpdkOptions, found: &sys::rte_eth_dev_info, chained: bool) -> sys::rte_eth_conf {
    let mut conf = sys::rte_eth_conf::default();
    conf.rxmode.mtu = options.mtu.into();
    if chained {
        conf.rxmode.offloads = found.rx_offload_capa & sys::KAIDO_RX_SCATTER;
    }
    conf.txmode.offloads = found.tx_offload_capa & sys::KAIDO_TX_CHAINS;
    let hashes = found.flow_type_rss_offloads & sys::KAIDO_RSS;
    if options.queues > 1 && hashes != 0 {
        conf.rxmode.mq_mode = sys::rte_eth_rx_mq_mode_RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = hashes;
    }
    conf
}
