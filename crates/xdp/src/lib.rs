//! Programs in the driver: loading them, attaching them, and their maps.
//!
//! A function has its program in its own crate, and its loader stands on [`LoadedProgram`], [`object`] and [`maps`], with
//! [grace periods](grace) where what programs read is taken away. A function without one takes [`PortSteering`], which brings a
//! port's packets to AF_XDP sockets.
//!
//! A program is attached by a `bpf_link`, so the kernel takes it off when the process ends, however it ends; unless the link is
//! [pinned](PinFolder), or another process has it too. The next process [takes it over](LoadedProgram::take_over).

mod attach;
mod error;
pub mod grace;
pub mod maps;
mod mounted;
pub mod object;
mod pins;
mod port;
mod prefix;
mod program;
mod shared;
mod table;

pub use attach::{
    AttachMode, Features, PLAIN_MTU_MAX, attached_mode, detach_link, features, interface_mac, link_interface,
};
pub use error::Error;
pub use mounted::{Action, LoadedProgram, TestRun, test_run};
pub use pins::{PinFolder, is_on_bpf};
pub use port::{
    ADDRESSES_MAX, Address, IpMatch, PortClass, PortCounters, PortMatch, PortPass, PortSteering,
    PortSteeringConfig, QUEUES_MAX,
};
pub use program::{ExitLink, Program};
