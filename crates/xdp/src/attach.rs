//! Attaching a program to an interface by a `bpf_link`, and asking which mode that gave.

use std::ffi::{CStr, c_char, c_int};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libbpf_sys as sys;

use crate::Error;

/// Largest MTU, in bytes, at which veth takes a program without multi-buffer: a page less headroom, skb tail and
/// Ethernet header.
pub const PLAIN_MTU_MAX: u32 = 3506;

/// Where in the kernel the program runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver where it can, else generic.
    #[default]
    Auto,
    /// In the driver, or an error.
    Native,
    /// After the kernel has built its packet buffer: any interface, slower.
    Generic,
}

/// An attached program; taken off on drop, unless it is to [stay](Link::stay).
#[derive(Debug)]
pub(crate) struct Link {
    fd: OwnedFd,
    pub(crate) ifindex: u32,
    pub(crate) mode: AttachMode,
    /// Whether somebody else keeps it.
    stays: bool,
}

impl Link {
    pub(crate) fn attach(
        program: BorrowedFd<'_>,
        ifindex: u32,
        mode: AttachMode,
        multi_buffer: bool,
    ) -> Result<Self, Error> {
        let interface = interface_name(ifindex)?;
        let native = || create(program, ifindex, sys::XDP_FLAGS_DRV_MODE);
        let generic = || create(program, ifindex, sys::XDP_FLAGS_SKB_MODE);
        let created = match mode {
            AttachMode::Native => native(),
            AttachMode::Generic => generic(),
            // Generic only where the driver has no XDP at all: one that refuses for a reason (MTU, for one) must
            // say so, not become slow in silence.
            AttachMode::Auto => match native() {
                Err(error)
                    if error.raw_os_error() == Some(libc::EOPNOTSUPP)
                        && !too_large(ifindex, multi_buffer) =>
                {
                    generic()
                }
                result => result,
            },
        };
        let fd = created.map_err(|source| explain(source, ifindex, interface, mode, multi_buffer))?;
        let mode = query(ifindex)?.0;
        Ok(Self { fd, ifindex, mode, stays: false })
    }

    /// Has a link go on with another program: each packet meets the one of before or this. What somebody else keeps, stays.
    pub(crate) fn take_over(fd: OwnedFd, program: BorrowedFd<'_>) -> Result<Self, Error> {
        let fault = |source| Error::Sys { action: "taking over an attached XDP program", source };
        let ifindex = interface_of(fd.as_fd()).map_err(fault)?;
        // SAFETY: plain numbers; no options.
        let result = unsafe { sys::bpf_link_update(fd.as_raw_fd(), program.as_raw_fd(), std::ptr::null()) };
        if result != 0 {
            return Err(fault(io::Error::from_raw_os_error(-result)));
        }
        Ok(Self { fd, ifindex, mode: query(ifindex)?.0, stays: true })
    }

    /// Whether the program stays when this is dropped: then somebody else keeps it, by a pin or a descriptor.
    pub(crate) fn stay(&mut self, stays: bool) {
        self.stays = stays;
    }

    /// Takes the program off now.
    pub(crate) fn detach(self) -> Result<(), Error> {
        self.detach_now().map_err(|source| Error::Sys { action: "detaching the XDP program", source })
    }

    fn detach_now(&self) -> io::Result<()> {
        // SAFETY: a plain call on our own descriptor.
        let result = unsafe { sys::bpf_link_detach(self.fd.as_raw_fd()) };
        if result == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(-result)) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        // Closing the descriptor detaches too, but only once no other process holds a copy (a child forked since).
        // An error means that the interface is gone or that `detach` came first: nothing is left attached.
        let _ = self.detach_now();
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The interface that a link has its program on, by its index; `None` where that is gone.
///
/// # Errors
/// [`Error::Sys`] when it is no link of an XDP program.
pub fn link_interface(link: BorrowedFd<'_>) -> Result<Option<u32>, Error> {
    let found = interface_of(link);
    let found =
        found.map_err(|source| Error::Sys { action: "asking for a link of an XDP program", source })?;
    Ok((found != 0).then_some(found))
}

/// Takes the program of a link off its interface, whoever else keeps the link; a no-op where the interface is gone.
///
/// # Errors
/// [`Error::Sys`].
pub fn detach_link(link: OwnedFd) -> Result<(), Error> {
    let link = Link { fd: link, ifindex: 0, mode: AttachMode::Auto, stays: true };
    match link.detach_now() {
        Err(error) if error.raw_os_error() != Some(libc::ENOLINK) => {
            Err(Error::Sys { action: "detaching an XDP program", source: error })
        }
        _ => Ok(()),
    }
}

fn interface_of(link: BorrowedFd<'_>) -> io::Result<u32> {
    let mut info = sys::bpf_link_info::default();
    let mut len = u32::try_from(size_of_val(&info)).unwrap_or(0);
    // SAFETY: the kernel writes no more than that length.
    let result = unsafe { sys::bpf_link_get_info_by_fd(link.as_raw_fd(), &raw mut info, &raw mut len) };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(-result));
    }
    if info.type_ != sys::BPF_LINK_TYPE_XDP {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: the field of links of this type.
    Ok(unsafe { info.__bindgen_anon_1.xdp.ifindex })
}

fn create(program: BorrowedFd<'_>, ifindex: u32, flags: u32) -> io::Result<OwnedFd> {
    let target = c_int::try_from(ifindex).map_err(|_| io::Error::from_raw_os_error(libc::ENODEV))?;
    // SAFETY: a C struct of integers and pointers, for which zero means "not given".
    let mut options: sys::bpf_link_create_opts = unsafe { core::mem::zeroed() };
    options.sz = size_of_val(&options) as u64;
    options.flags = flags;
    // SAFETY: the options live through the call, with their true size.
    let fd = unsafe { sys::bpf_link_create(program.as_raw_fd(), target, sys::BPF_XDP, &options) };
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: a fresh descriptor that no one else owns.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn ask_driver(ifindex: u32) -> Result<sys::bpf_xdp_query_opts, Error> {
    let target = c_int::try_from(ifindex).map_err(|_| Error::NoInterface { ifindex })?;
    let mut options =
        sys::bpf_xdp_query_opts { sz: size_of::<sys::bpf_xdp_query_opts>() as u64, ..Default::default() };
    // SAFETY: the options live through the call, with their true size.
    let result = unsafe { sys::bpf_xdp_query(target, 0, &mut options) };
    if result < 0 {
        let source = io::Error::from_raw_os_error(-result);
        return Err(Error::Sys { action: "asking for the attached XDP program", source });
    }
    Ok(options)
}

/// The mode of the program on an interface of this namespace.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::Sys`].
pub fn attached_mode(ifindex: u32) -> Result<AttachMode, Error> {
    Ok(query(ifindex)?.0)
}

/// The mode and the id of the program attached to an interface of this namespace; id zero when there is none.
pub(crate) fn query(ifindex: u32) -> Result<(AttachMode, u32), Error> {
    let options = ask_driver(ifindex)?;
    Ok(match u32::from(options.attach_mode) {
        sys::XDP_ATTACHED_SKB => (AttachMode::Generic, options.skb_prog_id),
        sys::XDP_ATTACHED_DRV => (AttachMode::Native, options.drv_prog_id),
        _ => (AttachMode::Native, options.prog_id),
    })
}

fn explain(
    source: io::Error,
    ifindex: u32,
    interface: String,
    mode: AttachMode,
    multi_buffer: bool,
) -> Error {
    match source.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Error::Permission { action: "attaching an XDP program" },
        Some(libc::EBUSY | libc::EEXIST) => {
            let program = query(ifindex).map_or(0, |(_, program)| program);
            Error::AlreadyAttached { interface, program }
        }
        // veth says ERANGE, most NIC drivers EINVAL or EOPNOTSUPP.
        Some(libc::ERANGE) => Error::MtuTooLarge { mtu: mtu(&interface).unwrap_or(0), interface },
        Some(libc::EINVAL | libc::EOPNOTSUPP) if too_large(ifindex, multi_buffer) => {
            Error::MtuTooLarge { mtu: mtu(&interface).unwrap_or(0), interface }
        }
        Some(libc::EOPNOTSUPP) if mode == AttachMode::Native => Error::NativeUnsupported { interface },
        Some(libc::ENODEV) => Error::NoInterface { ifindex },
        _ => Error::Sys { action: "attaching the XDP program", source },
    }
}

/// Whether the MTU may be why a driver refused a program.
fn too_large(ifindex: u32, multi_buffer: bool) -> bool {
    !multi_buffer
        && interface_name(ifindex).ok().and_then(|name| mtu(&name)).is_some_and(|mtu| mtu > PLAIN_MTU_MAX)
}

fn interface_name(ifindex: u32) -> Result<String, Error> {
    let mut name: [c_char; libc::IF_NAMESIZE] = [0; libc::IF_NAMESIZE];
    // SAFETY: a buffer of the size the call asks for; on success it holds a C string.
    unsafe {
        if libc::if_indextoname(ifindex, name.as_mut_ptr()).is_null() {
            return Err(Error::NoInterface { ifindex });
        }
        Ok(CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned())
    }
}

/// The MAC address of an Ethernet interface of the calling thread's network namespace: what
/// [`PortSteeringConfig::mac`](crate::PortSteeringConfig::mac) wants.
///
/// # Errors
/// [`Error::NoInterface`].
pub fn interface_mac(ifindex: u32) -> Result<[u8; 6], Error> {
    let missing = Error::NoInterface { ifindex };
    let Some(answer) = ask(&interface_name(ifindex)?, libc::SIOCGIFHWADDR) else { return Err(missing) };
    // SAFETY: SIOCGIFHWADDR filled this field of the union in.
    let octets = unsafe { answer.ifr_ifru.ifru_hwaddr.sa_data };
    Ok(std::array::from_fn(|at| octets[at].cast_unsigned()))
}

/// The MTU of an interface, in bytes.
fn mtu(interface: &str) -> Option<u32> {
    let answer = ask(interface, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU filled this field of the union in.
    u32::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
}

/// Asks about an interface of the calling thread's namespace (sysfs would show that of whoever mounted it).
fn ask(interface: &str, question: libc::Ioctl) -> Option<libc::ifreq> {
    // SAFETY: a fresh descriptor, owned from here on.
    let socket = unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(fd)
    };
    // SAFETY: a C struct of integers.
    let mut request: libc::ifreq = unsafe { core::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name[..room].iter_mut().zip(interface.bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: the SIOCGIF* calls read the name and write within the struct.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), question, &mut request) };
    (result >= 0).then_some(request)
}

/// What an interface's driver can do for XDP (`NETDEV_XDP_ACT_*` of the kernel's netdev netlink family).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Programs run in the driver, and their basic verdicts work.
    pub basic: bool,
    /// They may redirect.
    pub redirect: bool,
    /// Others may redirect to it.
    pub transmit: bool,
    /// AF_XDP without copying.
    pub zero_copy: bool,
    /// Packets of several buffers may be received.
    pub multi_buffer: bool,
}

impl Features {
    fn of(flags: u64) -> Self {
        let has = |bit: u32| flags & (1 << bit) != 0;
        Self { basic: has(0), redirect: has(1), transmit: has(2), zero_copy: has(3), multi_buffer: has(5) }
    }
}

/// What the driver of an interface of the calling thread's network namespace says that it can do; nothing at all before
/// Linux 6.3, which did not ask drivers.
///
/// # Errors
/// [`Error::NoInterface`], [`Error::Sys`].
pub fn features(ifindex: u32) -> Result<Features, Error> {
    Ok(Features::of(ask_driver(ifindex)?.feature_flags))
}
