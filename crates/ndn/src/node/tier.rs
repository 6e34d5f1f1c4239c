//! The Content Store's tier on disk.

use std::time::Duration;

use kaido_ndn_tables::NameHash;
use miette::miette;

use crate::node::config::NdnConfig;
use crate::tier::{Tier, TierSettings};

/// Opens the tier that the file asks for, and starts its threads.
///
/// # Errors
/// What is wrong with its folder.
pub(super) fn open(config: &NdnConfig) -> miette::Result<Option<Tier>> {
    let Some(disk) = &config.ndn.cs.disk else { return Ok(None) };
    let disk = disk.get_ref();
    let mut settings = TierSettings::new(disk.path.clone(), u64::from(*disk.size_mib.get_ref()) << 20);
    if let Some(packets) = &disk.packets {
        settings.packets = *packets.get_ref();
    }
    settings.reads_max = *disk.reads_max.get_ref();
    settings.gather = Duration::from_micros((*disk.gather_us.get_ref()).into());
    let opened = Tier::open(&settings, NameHash::random()).and_then(|mut tier| {
        tier.start(*disk.readers.get_ref())?;
        Ok(tier)
    });
    let tier = opened.map_err(|error| {
        miette!(
            help = "ndn.cs.disk.path is a folder that this router alone writes to, on a disk with room for size_mib",
            "ndn.cs.disk: {error}"
        )
    })?;
    let report = tier.control().report();
    tracing::info!(
        path = %disk.path.display(),
        packets = report.packets,
        octets = report.octets,
        damaged = report.counters.damaged,
        index_octets = report.index_octets,
        "the content store goes on on disk"
    );
    Ok(Some(tier))
}
