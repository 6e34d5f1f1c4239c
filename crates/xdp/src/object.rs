//! The compiled programs: loading one of an object, and finding its maps.

use std::sync::Once;

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, PrintLevel, ProgramMut};

use crate::Error;
use crate::offload::Offload;

/// An object's octets, aligned as an ELF header asks.
#[repr(C, align(8))]
pub(crate) struct Aligned<T: ?Sized>(pub(crate) T);

/// Loads one program of an object, with an offload's maps and so many slots of counters, or without any.
pub(crate) fn open(
    bytes: &'static Aligned<[u8]>,
    program: &str,
    fast: Option<(&Offload, u32)>,
) -> Result<Object, Error> {
    route_prints();
    let mut open = ObjectBuilder::default()
        .name("kaido_steer")
        .and_then(|builder| builder.open_memory(&bytes.0))
        .map_err(Error::libbpf("opening the XDP object"))?;
    for mut found in open.progs_mut() {
        let wanted = found.name() == program;
        found.set_autoload(wanted);
    }
    for mut map in open.maps_mut() {
        match fast {
            Some((_, slots)) if map.name() == "offload_counters" => {
                map.set_max_entries(slots.max(1)).map_err(Error::libbpf("sizing a BPF map"))?;
            }
            Some((fast, _)) => fast.share(&mut map)?,
            None if map.name().to_string_lossy().starts_with("offload_") => {
                map.set_autocreate(false).map_err(Error::libbpf("leaving out a BPF map"))?;
            }
            None => {}
        }
    }
    open.load().map_err(Error::libbpf("loading the XDP program"))
}

/// A program of a loaded object.
pub(crate) fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Error> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| Error::missing("finding the XDP program"))
}

/// A map of a loaded object.
pub(crate) fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let Some(map) = object.maps().find(|map| map.name() == name) else {
        return Err(Error::missing("finding a BPF map"));
    };
    MapHandle::try_from(&map).map_err(Error::libbpf("opening a BPF map"))
}

/// libbpf writes to stderr unless told otherwise; what matters comes back as an error anyway.
pub(crate) fn route_prints() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, message| {
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}
