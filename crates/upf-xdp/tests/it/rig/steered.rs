//! An AF_XDP socket with the user plane's steering in front.

use std::os::fd::AsFd;

use kaido_upf_xdp::{Roles, Steering, SteeringConfig};
use kaido_xdp::AttachMode;

use super::port::Port;

/// Steering for GTP-U to `address` on an interface of the thread's namespace.
pub fn gtpu(interface: &str, address: &str, multi_buffer: bool) -> Steering {
    let roles = Roles { gtpu: true, routed: false };
    let config = SteeringConfig { roles, mac: [0; 6], multi_buffer, no_wire: false };
    let mut steering = Steering::load(config).unwrap();
    steering.set_gtpu_addresses(&[address.parse().unwrap()]).unwrap();
    steering.attach_to(super::index(interface), AttachMode::Auto).unwrap();
    assert_eq!(steering.mode(), Some(AttachMode::Native));
    steering
}

pub fn register(steering: &mut Steering, port: &Port) {
    steering.register_socket(port.socket.queue(), port.socket.as_fd()).unwrap();
}
