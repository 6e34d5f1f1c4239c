//! What can go wrong before packets flow.

use std::ffi::CStr;

use crate::sys;

/// DPDK could not be started, or a device not be opened. [`DpdkError::help`] says how to mend it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// The EAL refused its arguments or the machine.
    #[error("DPDK does not start: {said}")]
    Start {
        /// What it said, in one line.
        said: String,
    },
    /// The EAL was started before: it starts once in a process, whether that went well or not.
    #[error("DPDK has been started in this process already, and starts once only")]
    StartedBefore,
    /// An argument with a NUL byte.
    #[error("{argument:?} is no argument for DPDK: it has a NUL byte in it")]
    Argument {
        /// The argument.
        argument: String,
    },
    /// There is no such device.
    #[error("DPDK has no device `{name}`; it has {}", listed(.known))]
    NoDevice {
        /// The name that was asked for.
        name: String,
        /// The names of those that there are.
        known: Vec<String>,
    },
    /// The device cannot do what was asked of it.
    #[error("{device}: {fault}")]
    Unable {
        /// The device.
        device: String,
        /// What it cannot.
        fault: String,
    },
    /// The frame pool has too few frames for the rings.
    #[error("{device}: its rings take {wanted} frames, and the pool has no more")]
    Frames {
        /// The device.
        device: String,
        /// Frames that the device's mbufs own.
        wanted: usize,
    },
    /// The pool stands on pages that may move, and devices would be told where they are now.
    #[error("devices would be given physical addresses of memory that is not in reserved huge pages")]
    MovablePages,
    /// A call failed.
    #[error("{device}: {call}: {reason}{}", parenthesis(.said))]
    Call {
        /// The device, or what stands in its place.
        device: String,
        /// The function of DPDK.
        call: &'static str,
        /// Its error.
        reason: String,
        /// What its log said meanwhile; may be empty.
        said: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn parenthesis(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(" ({said})") }
}

/// What a word in DPDK's messages points to. The first that occurs counts.
const HINTS: &[(&str, &str)] = &[
    (
        "another primary process",
        "another DPDK process has this prefix; give this one its own: \"--file-prefix=kaido\"",
    ),
    (
        "ermission denied",
        "run as root, or let the user read and write the hugepage mount, /dev/vfio and DPDK's runtime folder",
    ),
    ("not permitted", "run as root, or with CAP_IPC_LOCK, CAP_SYS_ADMIN and CAP_NET_ADMIN"),
    (
        "IOMMU",
        "turn the IOMMU on (intel_iommu=on or amd_iommu=on on the kernel's command line), or allow \
         vfio's no-IOMMU mode",
    ),
    (
        "VFIO",
        "`modprobe vfio-pci`, then `dpdk-devbind.py -b vfio-pci ADDRESS` for each device that is to be DPDK's",
    ),
    (
        "ugepage",
        "reserve some: `sysctl vm.nr_hugepages=512`, and `mount -t hugetlbfs none /dev/hugepages` where that is \
         not mounted; or go without them by \"--no-huge\"",
    ),
    ("option", "the arguments are DPDK's EAL parameters; `dpdk-testpmd --help` lists them"),
    ("argument", "the arguments are DPDK's EAL parameters; `dpdk-testpmd --help` lists them"),
    ("memory", "\"-m 512\" asks for 512 MB; reserve as many huge pages, or give \"--no-huge\" as well"),
    ("Frame size", "lower the port's mtu"),
    (
        "parse device",
        "`dpdk-testpmd --help` explains --vdev; a driver must be installed (Debian: apt-get install librte-net-...)",
    ),
];

impl DpdkError {
    /// How to mend it, in a sentence.
    pub fn help(&self) -> &'static str {
        match self {
            Self::Start { said } | Self::Call { said, .. } => {
                let hint = HINTS.iter().find(|(word, _)| said.contains(word));
                hint.map_or("the log above is all that DPDK says of it; see docs/dpdk.md", |(_, help)| help)
            }
            Self::StartedBefore => "start it once, with the arguments of all devices",
            Self::Argument { .. } => "write each argument as text of its own",
            Self::NoDevice { .. } => {
                "a NIC goes by its PCI address once `dpdk-devbind.py -b vfio-pci ADDRESS` has given it to DPDK, a \
                 virtual device by the name in its --vdev argument"
            }
            Self::Unable { .. } => "lower what the configuration asks of the device",
            Self::Frames { .. } => "raise node.frames, or lower the descriptors of the device",
            Self::MovablePages => {
                "reserve huge pages for the frame pool, or give \"--iova-mode=va\", which needs an IOMMU for real devices"
            }
        }
    }
}

/// What DPDK calls an error number, negative or not.
pub(crate) fn reason(code: i32) -> String {
    // SAFETY: the text is static or of this thread, until its next call, and is copied at once.
    unsafe { CStr::from_ptr(sys::rte_strerror(code.saturating_abs())) }.to_string_lossy().into_owned()
}

/// The error of this thread's last call that says only that it failed.
pub(crate) fn last_error() -> i32 {
    // SAFETY: reads a variable of this thread.
    unsafe { sys::kaido_errno() }
}
