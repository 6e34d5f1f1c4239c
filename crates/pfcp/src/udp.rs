//! Sending what an endpoint wants sent, in few system calls.

use std::io::{self, IoSlice};
use std::net::UdpSocket;

use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};

use crate::transaction::Transmit;

/// The most datagrams of one system call.
const DATAGRAMS_A_CALL: usize = 64;

/// Sends datagrams in their order. A datagram that cannot be sent is handed to `lost`, and the others go on: PFCP
/// repeats what is not answered.
pub fn send_all<'t>(
    socket: &UdpSocket,
    messages: impl IntoIterator<Item = &'t Transmit>,
    mut lost: impl FnMut(&Transmit, io::Error),
) {
    let mut messages = messages.into_iter();
    loop {
        let chunk: Vec<&Transmit> = messages.by_ref().take(DATAGRAMS_A_CALL).collect();
        match chunk[..] {
            [] => return,
            [only] => {
                if let Err(error) = socket.send_to(&only.bytes, only.to) {
                    lost(only, error);
                }
            }
            ref several => send_chunk(socket, several, &mut lost),
        }
    }
}

fn send_chunk(socket: &UdpSocket, chunk: &[&Transmit], lost: &mut impl FnMut(&Transmit, io::Error)) {
    let addresses: Vec<SocketAddrAny> = chunk.iter().map(|message| message.to.into()).collect();
    let payloads: Vec<[IoSlice<'_>; 1]> =
        chunk.iter().map(|message| [IoSlice::new(&message.bytes)]).collect();
    let mut none: Vec<SendAncillaryBuffer<'_, '_, '_>> =
        chunk.iter().map(|_| SendAncillaryBuffer::default()).collect();
    let parts = addresses.iter().zip(&payloads).zip(&mut none);
    let mut headers: Vec<MMsgHdr<'_>> = parts
        .map(|((address, payload), control)| MMsgHdr::new_with_addr(address, payload, control))
        .collect();
    let mut sent = 0;
    while sent < chunk.len() {
        match sendmmsg(socket, &mut headers[sent..], SendFlags::empty()) {
            Ok(count @ 1..) => sent += count,
            // The call fails for the first that it cannot send; what lies before has gone.
            Ok(0) => return,
            Err(error) => {
                lost(chunk[sent], error.into());
                sent += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use super::*;

    #[test]
    fn many_go_in_order_and_one_that_cannot_stops_none() {
        let receiver = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        receiver.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let sender = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let to = receiver.local_addr().unwrap();
        let mut messages: Vec<Transmit> =
            (0..100u8).map(|n| Transmit { to, bytes: vec![n; 3].into() }).collect();
        // No socket of this family can send there.
        let unreachable: SocketAddr = "[2001:db8::1]:8805".parse().unwrap();
        messages.insert(10, Transmit { to: unreachable, bytes: vec![200].into() });
        let mut lost = Vec::new();
        send_all(&sender, &messages, |message, _| lost.push(message.to));
        assert_eq!(lost, [unreachable]);
        let mut buffer = [0; 16];
        for n in 0..100u8 {
            assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
            assert_eq!(buffer[..3], [n; 3]);
        }
        send_all(&sender, &messages[..1], |_, error| panic!("{error}"));
        assert_eq!(receiver.recv(&mut buffer).unwrap(), 3);
    }
}
