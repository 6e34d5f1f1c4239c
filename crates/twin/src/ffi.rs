//! The verilated cores, a clock at a time. All unsafe code of this crate is here.

use std::ffi::c_void;
use std::ptr::NonNull;

/// Octets of the widest data bus.
pub(crate) const BUS_MAX: usize = 64;

/// Ports of the core that has most; `glue.cpp` has the same.
const PORTS: usize = 2;

/// What a port of a core is given in a clock; `glue.cpp` has the same.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Inputs {
    pub(crate) data: [u8; BUS_MAX],
    pub(crate) keep: u64,
    pub(crate) awaddr: u32,
    pub(crate) wdata: u32,
    pub(crate) wstrb: u32,
    pub(crate) araddr: u32,
    pub(crate) reset: bool,
    pub(crate) valid: bool,
    pub(crate) last: bool,
    pub(crate) user: bool,
    pub(crate) out_ready: bool,
    pub(crate) host_ready: bool,
    pub(crate) awvalid: bool,
    pub(crate) wvalid: bool,
    pub(crate) bready: bool,
    pub(crate) arvalid: bool,
    pub(crate) rready: bool,
}

/// What it shows before the clock's edge; `glue.cpp` has the same.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Outputs {
    pub(crate) out_data: [u8; BUS_MAX],
    pub(crate) host_data: [u8; BUS_MAX],
    pub(crate) out_keep: u64,
    pub(crate) host_keep: u64,
    pub(crate) rdata: u32,
    pub(crate) ready: u8,
    pub(crate) out_valid: u8,
    pub(crate) out_last: u8,
    pub(crate) out_user: u8,
    pub(crate) host_valid: u8,
    pub(crate) host_last: u8,
    pub(crate) host_user: u8,
    pub(crate) awready: u8,
    pub(crate) wready: u8,
    pub(crate) bresp: u8,
    pub(crate) bvalid: u8,
    pub(crate) arready: u8,
    pub(crate) rresp: u8,
    pub(crate) rvalid: u8,
    pub(crate) event_valid: u8,
    pub(crate) event_code: u8,
}

impl Inputs {
    pub(crate) const IDLE: Self = Self {
        data: [0; BUS_MAX],
        keep: 0,
        awaddr: 0,
        wdata: 0,
        wstrb: 0xf,
        araddr: 0,
        reset: false,
        valid: false,
        last: false,
        user: false,
        out_ready: true,
        host_ready: true,
        awvalid: false,
        wvalid: false,
        bready: true,
        arvalid: false,
        rready: true,
    };
}

impl Outputs {
    const NONE: Self = Self {
        out_data: [0; BUS_MAX],
        host_data: [0; BUS_MAX],
        out_keep: 0,
        host_keep: 0,
        rdata: 0,
        ready: 0,
        out_valid: 0,
        out_last: 0,
        out_user: 0,
        host_valid: 0,
        host_last: 0,
        host_user: 0,
        awready: 0,
        wready: 0,
        bresp: 0,
        bvalid: 0,
        arready: 0,
        rresp: 0,
        rvalid: 0,
        event_valid: 0,
        event_code: 0,
    };
}

unsafe extern "C" {
    fn kaido_twin_new(which: u32) -> *mut c_void;
    fn kaido_twin_free(core: *mut c_void);
    fn kaido_twin_clock(core: *mut c_void, inputs: *const Inputs, outputs: *mut Outputs);
}

/// A verilated core.
#[derive(Debug)]
pub(crate) struct Model(NonNull<c_void>);

impl Model {
    /// The core of this number in `glue.cpp`; `None` if there is none.
    pub(crate) fn new(which: u32) -> Option<Self> {
        // SAFETY: The function takes any number. What it returns is null, or a core that nobody else has.
        NonNull::new(unsafe { kaido_twin_new(which) }).map(Self)
    }

    /// One clock of a core with one port: what it shows with these inputs, before the edge.
    pub(crate) fn clock(&mut self, inputs: &Inputs) -> Outputs {
        let [outputs, _] = self.clock_ports(&[*inputs, Inputs::IDLE]);
        outputs
    }

    /// The same of a core with two. Reset, registers and the host are with the first.
    pub(crate) fn clock_ports(&mut self, inputs: &[Inputs; PORTS]) -> [Outputs; PORTS] {
        let mut outputs = [Outputs::NONE; PORTS];
        // SAFETY: The core lives as long as `self` and is used by one thread, for `&mut self` is unique. Both structs have the
        // layout that glue.cpp declares, which uses `PORTS` of each at most, and the function keeps no pointer. A bool is an octet
        // of 0 or 1 there.
        unsafe { kaido_twin_clock(self.0.as_ptr(), inputs.as_ptr(), outputs.as_mut_ptr()) };
        outputs
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        // SAFETY: The core is of `kaido_twin_new`, and it is freed once.
        unsafe { kaido_twin_free(self.0.as_ptr()) };
    }
}
