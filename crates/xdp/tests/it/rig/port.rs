//! An AF_XDP socket, as a test uses it: one chunk at a time, safe.
#![allow(clippy::expect_used)]

use std::time::{Duration, Instant};

use kaido_xsk::{Builder, Desc, Rings, Socket, Umem};

pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct Port {
    pub socket: Socket,
    pub rings: Rings,
    pub umem: Umem,
    /// Chunks of ours that nothing is in.
    pub free: Vec<u64>,
}

impl Port {
    /// Binds; chunks `first..first + count` of the memory are this port's.
    pub fn bind(builder: &Builder, umem: &Umem, first: u64, count: u64) -> Self {
        let (socket, rings) = builder.bind(umem).unwrap();
        let free = (first..first + count).map(|chunk| chunk * 4096).collect();
        Self { socket, rings, umem: umem.clone(), free }
    }

    /// Gives the kernel `count` chunks to receive into.
    pub fn supply(&mut self, count: usize) {
        let chunks = self.free.split_off(self.free.len() - count);
        // SAFETY: chunks that were on our free list, and no longer are.
        assert_eq!(unsafe { self.rings.fill.supply(&chunks) }, count);
        if self.rings.fill.needs_wakeup() {
            self.socket.wake_rx().unwrap();
        }
    }

    /// The next packet, one descriptor or a chain, or none in `patience`.
    pub fn receive(&mut self, patience: Duration) -> Option<Vec<Desc>> {
        let deadline = Instant::now() + patience;
        let mut packet = Vec::new();
        let mut one = [Desc::default()];
        loop {
            if self.rings.rx.receive(&mut one) == 1 {
                packet.push(one[0]);
                if !one[0].is_continued() {
                    return Some(packet);
                }
            } else if Instant::now() > deadline {
                assert!(packet.is_empty(), "a chain without an end");
                return None;
            } else {
                self.socket.wait_rx(Duration::from_millis(10)).unwrap();
            }
        }
    }

    /// The bytes of a received packet.
    pub fn bytes(&self, packet: &[Desc]) -> Vec<u8> {
        let parts = packet.iter().map(|desc| {
            let bytes = self.umem.bytes(desc.addr, desc.len).expect("inside the UMEM");
            // SAFETY: the kernel gave us this chunk, and we write it only by `&mut self`.
            unsafe { bytes.as_ref() }.to_vec()
        });
        parts.collect::<Vec<_>>().concat()
    }

    /// Overwrites the start of a packet that is ours.
    pub fn overwrite(&mut self, desc: Desc, bytes: &[u8]) {
        let mut room = self.umem.bytes(desc.addr, desc.len).expect("inside the UMEM");
        // SAFETY: the chunk is ours: received, or taken from the free list.
        let room = unsafe { room.as_mut() };
        room[..bytes.len()].copy_from_slice(bytes);
    }

    /// A chunk of our own with a frame in it.
    pub fn write(&mut self, frame: &[u8]) -> Desc {
        let desc = Desc::new(self.free.pop().expect("a free chunk"), u32::try_from(frame.len()).unwrap());
        self.overwrite(desc, frame);
        desc
    }

    /// Sends packets whose chunks are ours and waits until all are sent; the chunks that came back, in order.
    pub fn send(&mut self, packets: &[Desc]) -> Vec<u64> {
        // SAFETY: by this rig's convention the caller owns the chunks, and waits here until they are back.
        assert_eq!(unsafe { self.rings.tx.send(packets) }, packets.len());
        let deadline = Instant::now() + PATIENCE;
        let mut back = Vec::new();
        while back.len() < packets.len() {
            assert!(Instant::now() < deadline, "{} of {} sent", back.len(), packets.len());
            if self.rings.tx.needs_wakeup() {
                self.socket.wake_tx().unwrap();
            }
            let mut chunk = [0];
            while self.rings.completion.reap(&mut chunk) == 1 {
                back.push(chunk[0]);
            }
        }
        back
    }
}
