//! The smallest XDP program there is for AF_XDP, by raw `bpf(2)`: redirect each packet to the socket of its queue.
//! Numbers are those of `include/uapi/linux/bpf.h`.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const MAP_TYPE_XSKMAP: u32 = 17;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_TYPE_XDP: u32 = 37;
const FLAGS_DRV_MODE: u32 = 4;

/// Leading fields of `union bpf_attr`; the kernel takes the rest as zero.
#[repr(C)]
#[derive(Default)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
}

#[repr(C)]
struct MapUpdate {
    map_fd: u32,
    _pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
}

#[repr(C)]
struct LinkCreate {
    prog_fd: u32,
    target_ifindex: u32,
    attach_type: u32,
    flags: u32,
}

fn bpf<T>(command: libc::c_int, attributes: &T) -> RawFd {
    // SAFETY: the kernel reads the attributes, of the size given, and what they point to; all live through the call.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(attributes), size_of::<T>()) };
    assert!(result >= 0, "bpf({command}): {}", std::io::Error::last_os_error());
    RawFd::try_from(result).unwrap()
}

fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: a fresh descriptor that no one else owns.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// Redirects all that arrives on queue 0 to `socket`, until the link is dropped.
pub fn attach(ifindex: u32, socket: RawFd) -> OwnedFd {
    let map = owned(bpf(
        MAP_CREATE,
        &MapCreate { map_type: MAP_TYPE_XSKMAP, key_size: 4, value_size: 4, max_entries: 1 },
    ));
    let map_fd = map.as_raw_fd().cast_unsigned();
    let (key, value) = (0u32, socket);
    let address = |pointer: *const u32| pointer.expose_provenance() as u64;
    bpf(
        MAP_UPDATE_ELEM,
        &MapUpdate {
            map_fd,
            _pad: 0,
            key: address(&key),
            value: address((&raw const value).cast()),
            flags: 0,
        },
    );
    // struct bpf_insn as a little-endian u64: code, dst | src << 4, 16-bit offset, 32-bit immediate.
    let insn = |code: u64, registers: u64, offset: u64, immediate: u64| {
        code | registers << 8 | offset << 16 | immediate << 32
    };
    let program = [
        insn(0x61, 0x12, 16, 0),                // r2 = ctx->rx_queue_index
        insn(0x18, 0x11, 0, u64::from(map_fd)), // r1 = map
        0,
        insn(0xb7, 0x03, 0, 2),  // r3 = XDP_PASS
        insn(0x85, 0x00, 0, 51), // r0 = bpf_redirect_map(r1, r2, r3)
        insn(0x95, 0x00, 0, 0),  // return r0
    ];
    let load = ProgLoad {
        prog_type: PROG_TYPE_XDP,
        insn_cnt: u32::try_from(program.len()).unwrap(),
        insns: program.as_ptr().expose_provenance() as u64,
        license: c"Apache-2.0".as_ptr().expose_provenance() as u64,
    };
    let program = owned(bpf(PROG_LOAD, &load));
    let prog_fd = program.as_raw_fd().cast_unsigned();
    owned(bpf(
        LINK_CREATE,
        &LinkCreate { prog_fd, target_ifindex: ifindex, attach_type: ATTACH_TYPE_XDP, flags: FLAGS_DRV_MODE },
    ))
}
