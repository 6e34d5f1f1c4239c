use super::*;

fn pool() -> &'static FramePool {
    FramePool::leak(16).unwrap()
}

/// A pool of each size.
fn pools() -> [&'static FramePool; 2] {
    FrameSize::ALL.map(|size| FramePool::leak_of(size, 16).unwrap())
}

#[test]
fn headers_come_off_and_go_on() {
    for pool in pools() {
        let mut frame = pool.allocate().unwrap();
        assert_eq!(frame.tailroom(), pool.frame_size().room());
        assert!(frame.set(b"outer-inner"));
        assert!(frame.strip(6));
        assert_eq!(frame.data(), b"inner");
        frame.prepend(2).unwrap()[..2].copy_from_slice(b"x:");
        assert_eq!(frame.data(), b"x:inner");
        assert!(!frame.strip(8));
        assert!(frame.prepend(HEADROOM + 5).is_none());
        let room = frame.tailroom();
        assert!(frame.append(room + 1).is_none());
        assert_eq!(frame.data(), b"x:inner");
        assert!(frame.append(room).is_some());
    }
}

#[test]
fn both_ends_come_off_in_one_step() {
    let pool = FramePool::leak(2).unwrap();
    let mut frame = pool.allocate().unwrap();
    assert!(frame.set(b"outer-inner-padding"));
    frame.prefetch_first();
    frame.prefetch_end();
    assert!(frame.trim(6, 5));
    assert_eq!(frame.data(), b"inner");
    assert!(!frame.trim(1, 5) && frame.trim(0, 5));
    frame.push_segment(pool.allocate().unwrap());
    assert!(!frame.trim(1, 1));
    assert_eq!(frame.packet_len(), 5);
}

#[test]
fn a_frame_is_occupied_where_it_is_asked_to_be() {
    for pool in pools() {
        let mut frame = pool.allocate().unwrap();
        assert!(frame.set(b"left by somebody"));
        let segment = pool.allocate().unwrap();
        let addresses = [frame.address(), segment.address()];
        frame.push_segment(segment);
        assert!(frame.addresses().eq(addresses));
        assert!(frame.occupy(HEADROOM + 8, 8));
        assert_eq!((frame.data(), frame.is_chained()), (&b"somebody"[..], false));
        assert_eq!(pool.free_frames(), 15);
        frame.prefetch_write(4);
        frame.prefetch_write_head(8);
        let end = pool.frame_size().bytes();
        assert!(!frame.occupy(end - 7, 8));
        assert!(frame.occupy(end - 8, 8));
        assert_eq!(frame.packet_len(), 8);
    }
}

#[test]
fn an_address_is_in_one_frame() {
    for pool in pools() {
        let bytes = pool.frame_size().bytes() as u64;
        let frame = pool.allocate().unwrap();
        let begin = pool.frame_begin(frame.address());
        assert_eq!(frame.address() - begin, HEADROOM as u64);
        assert_eq!(pool.frame_of(begin) * bytes, begin);
        assert_eq!(pool.frame_of(begin + bytes - 1), pool.frame_of(begin));
        assert_eq!(pool.frame_begin(begin + bytes), begin + bytes);
        assert_eq!(pool.memory().1 as u64, 16 * bytes);
    }
}

#[test]
fn frames_are_as_small_as_a_link_allows() {
    assert_eq!(
        [1500, 1770, 1771, 3818, 3819, 9000].map(FrameSize::for_mtu).map(FrameSize::bytes),
        [2048, 2048, 4096, 4096, 4096, 4096]
    );
    assert!(FrameSize::FourKib.holds_mtu(3818) && !FrameSize::FourKib.holds_mtu(3819));
    assert!(!FrameSize::FourKib.holds_mtu(usize::MAX));
}

#[test]
fn what_stands_before_a_packet_is_exchanged_in_one_step() {
    let pool = pool();
    let mut frame = pool.allocate().unwrap();
    assert!(frame.set(b"outer-inner, padding"));
    assert!(frame.rewrite_head::<0>(6, 15).is_none(), "longer than the packet");
    assert!(frame.rewrite_head::<{ HEADROOM + 7 }>(6, 5).is_none(), "more than the headroom");
    assert_eq!(frame.data(), b"outer-inner, padding");
    let (room, packet) = frame.rewrite_head::<2>(6, 5).unwrap();
    assert_eq!(packet, b"inner");
    *room = *b"x:";
    assert_eq!(frame.data(), b"x:inner");
    frame.rewrite_head::<{ HEADROOM + 6 }>(2, 5).unwrap();
    assert_eq!((frame.headroom(), frame.packet_len()), (0, HEADROOM + 11));

    let mut chain = Frame::from_slice(&[7; 9000], || pool.allocate()).unwrap();
    assert!(chain.rewrite_head::<0>(0, 10).is_none(), "a chain stays as it is");
    assert_eq!(chain.packet_len(), 9000);
    *chain.rewrite_head::<3>(1000, 8000).unwrap().0 = [1; 3];
    assert_eq!(chain.to_vec(), [&[1; 3][..], &[7; 8000]].concat());
}

#[test]
fn a_window_lies_within_the_first_segment() {
    let pool = FramePool::leak(2).unwrap();
    let mut frame = pool.allocate().unwrap();
    assert!(frame.set(b"packet"));
    frame.push_segment(pool.allocate().unwrap());
    assert_eq!(frame.window::<4>(2), Some(b"cket"));
    assert_eq!(frame.window::<4>(3), None);
    assert_eq!(frame.window::<0>(6), Some(b""));
    assert_eq!(frame.window::<0>(u16::MAX), None);
}

#[test]
fn what_lies_behind_is_read_within_the_frame() {
    let pool = FramePool::leak(1).unwrap();
    let mut frame = pool.allocate().unwrap();
    assert!(frame.set(b"packet-behind"));
    frame.truncate(6);
    assert_eq!(frame.data_and_behind(7), Some(&b"packet-behind"[..]));
    let room = frame.tailroom();
    assert_eq!(frame.data_and_behind(room).map(<[u8]>::len), Some(6 + room));
    assert_eq!(frame.data_and_behind(room + 1), None);
}

#[test]
fn a_jumbo_packet_is_a_chain_that_can_be_cut_anywhere() {
    let bytes: Vec<u8> = (0..9000u32).map(|n| (n % 251) as u8).collect();
    for pool in pools() {
        let room = pool.frame_size().room();
        for cut in [0, 1, room - 1, room, room + 1, 2 * room, 2 * room + 1, 8999, 9000, 10_000] {
            let mut frame = Frame::from_slice(&bytes, || pool.allocate()).unwrap();
            assert_eq!(frame.packet_len(), 9000);
            assert_eq!(frame.segments().count(), 9000_usize.div_ceil(room));
            frame.truncate(cut);
            assert_eq!(frame.to_vec(), bytes[..cut.min(9000)]);
            drop(frame);
            assert_eq!(pool.free_frames(), 16, "cut at {cut}");
        }
    }
}

#[test]
fn a_device_gets_and_returns_every_segment() {
    for pool in pools() {
        let bytes = vec![7u8; 5000];
        let frame = Frame::from_slice(&bytes, || pool.allocate()).unwrap();
        let mut extents = Vec::new();
        frame.into_device(|addr, len| extents.push((addr, len)));
        assert_eq!(extents.len(), 5000_usize.div_ceil(pool.frame_size().room()));
        assert_eq!(pool.free_frames(), 16 - extents.len());
        // SAFETY: handed over just above, and there is no device.
        let mut back =
            extents.iter().map(|&(addr, len)| unsafe { Frame::from_device(pool, addr, len) }.unwrap());
        let mut frame = back.next().unwrap();
        back.for_each(|segment| frame.push_segment(segment));
        assert_eq!(frame.to_vec(), bytes);
        // A length that no device could mean is cut at the end of the frame.
        let mut at = 0;
        pool.allocate().unwrap().into_device(|addr, _| at = addr);
        // SAFETY: as above.
        let cut = unsafe { Frame::from_device(pool, at, u32::MAX) }.unwrap();
        assert_eq!(cut.packet_len(), pool.frame_size().room());
    }
}

#[test]
fn chains_that_run_out_of_frames_leave_none_behind() {
    let pool = FramePool::leak(2).unwrap();
    assert!(Frame::from_slice(&[0; 9000], || pool.allocate()).is_none());
    assert_eq!(pool.free_frames(), 2);
}
