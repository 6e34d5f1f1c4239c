//! The compiled programs of any crate: loading one of an object, and finding its maps.

use std::sync::Once;

use libbpf_rs::{MapCore, MapHandle, Object, ObjectBuilder, OpenMapMut, PrintLevel, ProgramMut};

use crate::Error;

/// An object's octets, aligned as an ELF header asks:
/// `static OBJECT: &ObjectBytes<[u8]> = &ObjectBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/NAME.bpf.o")));`
#[derive(Debug)]
#[repr(C, align(8))]
pub struct ObjectBytes<T: ?Sized>(pub T);

/// Loads one program of an object. `prepare` has each of its maps before it is made: to size it, share it, or leave it out.
///
/// # Errors
/// [`Error::Permission`], or [`Error::Libbpf`] when the kernel refuses the program; those of `prepare`.
pub fn open(
    bytes: &'static ObjectBytes<[u8]>,
    program: &str,
    mut prepare: impl FnMut(&mut OpenMapMut<'_>) -> Result<(), Error>,
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
        prepare(&mut map)?;
    }
    open.load().map_err(Error::libbpf("loading the XDP program"))
}

/// A program of a loaded object.
///
/// # Errors
/// [`Error::Libbpf`] when it has none of that name.
pub fn program<'o>(object: &'o Object, name: &str) -> Result<ProgramMut<'o>, Error> {
    let found = object.progs_mut().find(|program| program.name() == name);
    found.ok_or_else(|| Error::missing("finding the XDP program"))
}

/// A map of a loaded object.
///
/// # Errors
/// [`Error::Libbpf`] when it has none of that name.
pub fn map(object: &Object, name: &str) -> Result<MapHandle, Error> {
    let Some(map) = object.maps().find(|map| map.name() == name) else {
        return Err(Error::missing("finding a BPF map"));
    };
    MapHandle::try_from(&map).map_err(Error::libbpf("opening a BPF map"))
}

/// Has libbpf write to the log: it writes to stderr unless told otherwise, and what matters comes back as an error anyway. [`open`]
/// does so too.
pub fn route_prints() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Debug, |_, message| {
            tracing::debug!(target: "libbpf", "{}", message.trim_end());
        })));
    });
}
