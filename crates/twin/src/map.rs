//! The register map of `hdl/regs.toml`, for tests to compare the drivers with.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::CoreEvent;

/// The registers and the events of a core.
#[derive(Deserialize)]
pub(crate) struct Map {
    register: Vec<Register>,
    /// A core that only counts has none.
    #[serde(default)]
    events: BTreeMap<String, u8>,
}

#[derive(Deserialize)]
struct Register {
    name: String,
    address: u32,
    stride: Option<u32>,
}

impl Map {
    pub(crate) fn of(core: &str) -> Self {
        let mut cores: BTreeMap<String, Self> =
            toml::from_str(include_str!("../../../hdl/regs.toml")).unwrap();
        cores.remove(core).unwrap()
    }

    /// Address and stride of a register.
    pub(crate) fn at(&self, name: &str) -> (u32, u32) {
        let register = self.register.iter().find(|register| register.name == name).unwrap();
        (register.address, register.stride.unwrap_or(0))
    }
}

pub(crate) fn assert_events<E: CoreEvent>(map: &Map, all: &[E]) {
    let events: BTreeMap<_, _> = all.iter().map(|event| (event.name().to_owned(), event.code())).collect();
    assert_eq!(map.events, events);
}
