//! Frames that a device did not take which the offload redirected to it: the kernel frees them and counts them nowhere, so two
//! programs at its tracepoints do (`bpf/lost.bpf.c`).

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;

use kaido_xdp::Error;
use kaido_xdp::object::{ObjectBytes, map, route_prints};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, ObjectBuilder};

static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/lost.bpf.o")));

/// Frames that a device did not take, since it is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostFrames {
    /// It takes no redirected frames: a veth device whose far end does not poll, or a driver that cannot.
    pub refused: u64,
    /// Its ring was full.
    pub full: u64,
}

impl LostFrames {
    fn of(value: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_ne_bytes(value.get(at..at + 8)?.try_into().ok()?));
        Some(Self { refused: word(0)?, full: word(8)? })
    }
}

/// Counts them, as long as it lives.
#[derive(Debug)]
pub struct FrameLosses {
    frames: MapHandle,
    counted: BTreeSet<u32>,
    _links: Vec<Link>,
}

impl FrameLosses {
    /// Attaches the programs for the network namespace of the calling thread and an offload's map of devices.
    pub(super) fn attach(devices: &MapHandle) -> Result<Self, Error> {
        const ACTION: &str = "counting the frames that a device does not take";
        route_prints();
        let object = ObjectBuilder::default()
            .name("kaido_lost")
            .and_then(|builder| builder.open_memory(&OBJECT.0))
            .and_then(libbpf_rs::OpenObject::load)
            .map_err(Error::libbpf(ACTION))?;
        let netns = std::fs::metadata("/proc/thread-self/ns/net")
            .and_then(|space| u32::try_from(space.ino()).map_err(io::Error::other))
            .map_err(|source| Error::Sys { action: ACTION, source })?;
        let id = devices.info().map_err(Error::libbpf(ACTION))?.info.id;
        let config = [netns.to_ne_bytes(), id.to_ne_bytes()].concat();
        map(&object, "lost_config")?
            .update(&0_u32.to_ne_bytes(), &config, MapFlags::ANY)
            .map_err(Error::libbpf(ACTION))?;
        let links = object.progs_mut().map(|program| program.attach());
        let links = links.collect::<Result<Vec<_>, _>>().map_err(Error::libbpf(ACTION))?;
        Ok(Self { frames: map(&object, "lost_frames")?, counted: BTreeSet::new(), _links: links })
    }

    /// What the interface of that index has not taken. It is counted from the first time that it is asked for.
    ///
    /// # Errors
    /// [`Error::Libbpf`]: more than 256 interfaces are counted.
    pub fn of(&mut self, ifindex: u32) -> Result<LostFrames, Error> {
        let action = "reading the frames that a device does not take";
        let key = ifindex.to_ne_bytes();
        if self.counted.insert(ifindex) {
            self.frames.update(&key, &[0; 16], MapFlags::NO_EXIST).map_err(Error::libbpf(action))?;
        }
        let value = self.frames.lookup(&key, MapFlags::ANY).map_err(Error::libbpf(action))?;
        Ok(value.as_deref().and_then(LostFrames::of).unwrap_or_default())
    }
}
