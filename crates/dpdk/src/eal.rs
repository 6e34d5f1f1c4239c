//! The EAL, DPDK's environment: started once in a process, cleaned up when the last that uses it is gone.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::capture::captured;
use crate::error::{DpdkError, reason};
use crate::{log, sys};

static STARTED: AtomicBool = AtomicBool::new(false);

/// A started EAL. Clones are the same; when the last is dropped, after all ports, DPDK is cleaned up.
#[derive(Clone, Debug)]
pub struct Eal(Arc<Inner>);

/// A pool of a closed device.
pub(crate) trait RetiredPool: fmt::Debug + Send {
    /// Frees it.
    ///
    /// # Safety
    /// No device is open that could have one of its mbufs.
    unsafe fn free(self: Box<Self>);
}

#[derive(Debug)]
struct Inner {
    /// Pools of closed devices, of which another device may still have an mbuf.
    retired: Mutex<Vec<Box<dyn RetiredPool>>>,
}

/// The options that choose EAL threads.
const CORE_OPTIONS: [&str; 5] = ["-l", "-c", "-s", "-S", "--lcores"];

/// Lines of the usage text end here: what matters stands before them.
const USAGE: &str = "Usage:";

impl Eal {
    /// Starts DPDK with EAL arguments, such as `["--no-huge", "--no-pci", "--vdev=net_ring0"]`. Without an argument
    /// that chooses cores it gets one, on which nothing runs: packets are our workers' work.
    ///
    /// To be called while the process has one thread: what others print meanwhile goes to the log. The calling
    /// thread keeps its CPUs.
    ///
    /// # Errors
    /// [`DpdkError::Start`] with what DPDK said, [`DpdkError::StartedBefore`], [`DpdkError::Argument`].
    pub fn start(arguments: &[impl AsRef<str>]) -> Result<Self, DpdkError> {
        let argv = argv(arguments)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::StartedBefore);
        }
        log::redirect();
        log::clear();
        let cpus = rustix::thread::sched_getaffinity(None);
        // DPDK keeps pointers to its arguments.
        let argv: &'static mut [*mut c_char] =
            Vec::leak(argv.into_iter().map(CString::into_raw).chain([std::ptr::null_mut()]).collect());
        let count = i32::try_from(argv.len() - 1).unwrap_or(i32::MAX);
        // SAFETY: `argv` holds that many C strings and a null behind them, for ever; DPDK is started once.
        let (status, printed) = captured(|| unsafe { sys::rte_eal_init(count, argv.as_mut_ptr()) });
        if let Ok(cpus) = cpus
            && let Err(error) = rustix::thread::sched_setaffinity(None, &cpus)
        {
            tracing::warn!(%error, "DPDK has bound the main thread to one CPU");
        }
        let complaints = log::complaints();
        if status < 0 {
            return Err(DpdkError::Start { said: said(&complaints, &printed) });
        }
        for line in printed.lines() {
            tracing::info!(target: "dpdk", "{line}");
        }
        Ok(Self(Arc::new(Inner { retired: Mutex::new(Vec::new()) })))
    }

    /// Brings up a device that was not named at the start, by what would stand in its `--vdev` argument, such as
    /// `net_af_packet1,iface=eth1`. A name brings up a device once in a process: one that
    /// was closed does not come back.
    ///
    /// # Errors
    /// [`DpdkError::Argument`], [`DpdkError::Call`].
    pub fn probe(&self, device: &str) -> Result<(), DpdkError> {
        let argument =
            CString::new(device).map_err(|_| DpdkError::Argument { argument: device.to_owned() })?;
        log::clear();
        // SAFETY: the EAL is started, and the text lives through the call.
        let status = unsafe { sys::rte_dev_probe(argument.as_ptr()) };
        if status >= 0 {
            return Ok(());
        }
        Err(DpdkError::Call {
            device: device.to_owned(),
            call: "rte_dev_probe",
            reason: reason(status),
            said: log::complaints(),
        })
    }

    /// Makes the calling thread known to DPDK, which gives it caches of its own in front of the mbuf pools, until
    /// it ends. Where that cannot be, the pools serve it without.
    pub(crate) fn register_thread(&self) {
        // SAFETY: reads a variable of this thread.
        if unsafe { sys::kaido_lcore_id() } != sys::LCORE_ID_ANY {
            return;
        }
        // SAFETY: the EAL is started, and the thread is not registered.
        if unsafe { sys::rte_thread_register() } < 0 {
            tracing::debug!(
                reason = reason(crate::error::last_error()),
                "DPDK keeps no caches for this thread"
            );
            return;
        }
        REGISTERED.with_borrow_mut(|registered| *registered = Some(EalThread { _eal: self.clone() }));
    }

    /// Keeps a pool of which not all mbufs have come back, until no device is left that could have one.
    pub(crate) fn retire(&self, pool: impl RetiredPool + 'static) {
        self.0.retired.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(pool));
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let retired = std::mem::take(self.retired.get_mut().unwrap_or_else(PoisonError::into_inner));
        for pool in retired {
            // SAFETY: every device had an `Eal`, and so is closed.
            unsafe { pool.free() };
        }
        // SAFETY: started once, and nothing of DPDK is in use any more.
        let status = unsafe { sys::rte_eal_cleanup() };
        if status < 0 {
            tracing::warn!(reason = reason(status), "DPDK could not be cleaned up");
        }
    }
}

thread_local! {
    static REGISTERED: RefCell<Option<EalThread>> = const { RefCell::new(None) };
}

/// A registration that ends with its thread. It holds the EAL, which must not end before.
struct EalThread {
    _eal: Eal,
}

impl Drop for EalThread {
    fn drop(&mut self) {
        // SAFETY: this thread was registered by `register_thread`, and the EAL still runs.
        unsafe { sys::rte_thread_unregister() };
    }
}

/// The arguments as C has them: a program name before, a null behind.
fn argv(arguments: &[impl AsRef<str>]) -> Result<Vec<CString>, DpdkError> {
    let arguments: Vec<&str> = arguments.iter().map(AsRef::as_ref).collect();
    let mut all = vec!["kaido".to_owned()];
    let chooses_cores =
        arguments.iter().any(|argument| CORE_OPTIONS.iter().any(|option| argument.starts_with(option)));
    if !chooses_cores {
        all.extend(["-l".to_owned(), first_cpu().to_string()]);
    }
    all.extend(arguments.into_iter().map(str::to_owned));
    let fault = |argument: &str| DpdkError::Argument { argument: argument.to_owned() };
    all.into_iter().map(|argument| CString::new(argument.as_str()).map_err(|_| fault(&argument))).collect()
}

/// The first CPU that this thread may run on.
fn first_cpu() -> usize {
    let may = rustix::thread::sched_getaffinity(None);
    may.ok().and_then(|cpus| (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| cpus.is_set(cpu))).unwrap_or(0)
}

/// What went wrong, in one line: what was printed before the usage, and what the log complained of.
fn said(complaints: &str, printed: &str) -> String {
    let printed = printed.split_once(USAGE).map_or(printed, |(before, _)| before);
    let mut said: Vec<&str> = printed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    // The options are read several times, and complained of each time.
    said.dedup();
    said.truncate(4);
    if !complaints.is_empty() {
        said.push(complaints);
    }
    if said.is_empty() { "it says nothing of why".to_owned() } else { said.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(arguments: &[&str]) -> Vec<String> {
        argv(arguments).unwrap().into_iter().map(|word| word.into_string().unwrap()).collect()
    }

    #[test]
    fn a_core_is_chosen_where_none_is() {
        let cpu = first_cpu().to_string();
        assert_eq!(words(&["--no-huge"]), ["kaido", "-l", &cpu, "--no-huge"]);
        assert_eq!(words(&["--lcores=3"]), ["kaido", "--lcores=3"]);
        assert_eq!(words(&["-l", "1"]), ["kaido", "-l", "1"]);
        assert!(matches!(argv(&["a\0b"]), Err(DpdkError::Argument { .. })));
    }

    #[test]
    fn the_usage_is_left_out_of_a_message() {
        assert_eq!(
            said("EAL: a; EAL: b", "x: no option '--y'\nx: no option '--y'\n\nUsage: x\n  -z\n"),
            "x: no option '--y'; EAL: a; EAL: b"
        );
        assert_eq!(said("", ""), "it says nothing of why");
    }
}
