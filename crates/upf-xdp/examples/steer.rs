//! Attaches the steering program to an interface and prints its counters each second, until killed:
//! `cargo run -p kaido-upf-xdp --example steer -- eth0 gtpu|routed|both [address...]`
//!
//! No socket is registered, so what is the user plane's is dropped: not for an interface you work over. The
//! addresses are GTP-U addresses for the GTP-U role, local ones for the routed role.

use std::error::Error;
use std::ffi::CString;
use std::net::IpAddr;
use std::time::Duration;

use kaido_upf_xdp::{Class, Pass, Roles, Steering, SteeringConfig};
use kaido_xdp::{AttachMode, interface_mac};

fn main() -> Result<(), Box<dyn Error>> {
    let usage = "usage: steer <interface> gtpu|routed|both [address...]";
    let mut args = std::env::args().skip(1);
    let interface = args.next().ok_or(usage)?;
    let roles = match args.next().as_deref() {
        Some("gtpu") => Roles { gtpu: true, routed: false },
        Some("routed") => Roles { gtpu: false, routed: true },
        Some("both") => Roles { gtpu: true, routed: true },
        _ => return Err(usage.into()),
    };
    let addresses = args.map(|text| text.parse()).collect::<Result<Vec<IpAddr>, _>>()?;

    let name = CString::new(interface.as_str())?;
    // SAFETY: a C string.
    let ifindex = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let config = SteeringConfig { roles, mac: interface_mac(ifindex)?, multi_buffer: true, no_wire: false };
    let mut steering = Steering::load(config)?;
    steering.set_gtpu_addresses(if roles.gtpu { &addresses } else { &[] })?;
    steering.set_local_addresses(if roles.routed { &addresses } else { &[] })?;
    steering.attach_to(ifindex, AttachMode::Auto)?;
    println!("{interface}: {:?}, {roles:?}", steering.mode());

    loop {
        std::thread::sleep(Duration::from_secs(1));
        let counters = steering.counters()?;
        let mut line = format!("total {}", counters.total());
        for class in Class::ALL {
            line +=
                &format!("  {} {}/{}", class.name(), counters.redirected(class), counters.no_socket(class));
        }
        for reason in Pass::ALL.into_iter().filter(|&reason| counters.passed(reason) > 0) {
            line += &format!("  pass:{} {}", reason.name(), counters.passed(reason));
        }
        println!("{line}");
    }
}
