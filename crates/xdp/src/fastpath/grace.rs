//! Grace periods: waiting until no program reads what was taken away.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};

use super::shared::options;
use crate::Error;

/// Waits for running programs to end. Updating an array of maps returns only after a grace period of RCU, so that the
/// inner map that was taken out is no longer used: the kernel promises this to user space for this one kind of map.
#[derive(Debug)]
pub(super) struct Grace {
    outer: MapHandle,
    inner: MapHandle,
}

impl Grace {
    pub(super) fn create() -> Result<Self, Error> {
        let failed = "creating a BPF map";
        let inner = MapHandle::create(MapType::Array, Some("fast_inner"), 4, 4, 1, &options())
            .map_err(Error::libbpf(failed))?;
        let mut options = options();
        options.inner_map_fd = inner.as_fd().as_raw_fd().cast_unsigned();
        let outer = MapHandle::create(MapType::ArrayOfMaps, Some("fast_grace"), 4, 4, 1, &options)
            .map_err(Error::libbpf(failed))?;
        Ok(Self { outer, inner })
    }

    /// Returns when every program that ran at the call has ended.
    pub(super) fn wait(&mut self) -> Result<(), Error> {
        let inner = self.inner.as_fd().as_raw_fd().to_ne_bytes();
        self.outer
            .update(&0u32.to_ne_bytes(), &inner, MapFlags::ANY)
            .map_err(Error::libbpf("waiting for running programs"))
    }
}
