//! A pending Interest table of one's own: two consumers and one Data, then an Interest that waits in vain.

use std::{error::Error, time::Duration};

use kaido_ndn_tables::*;

const WAITS: Duration = Duration::from_secs(4);

/// Notes that an Interest has come from a face.
fn wait(pit: &mut Pit, hash: &NameHash, name: &[u8], face: u32) -> Result<Slot, Box<dyn Error>> {
    let mut prefixes = Prefixes::default();
    prefixes.fill(hash, name)?;
    let slot = match pit.entry(name, &prefixes, Selectors::default()) {
        PitEntry::Occupied(slot) => slot, // It was sent already.
        PitEntry::Vacant(vacant) => vacant.insert()?,
    };
    let (face, expires) = (FaceId(face), NodeInstant::default() + WAITS);
    pit.insert_in_record(slot, &InRecord { expires, face, nonce: 1, ..InRecord::default() })?;
    Ok(slot)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (hash, now) = (NameHash::random(), NodeInstant::default());
    let mut pit = Pit::new(&PitSettings::for_entries(1000, 0), now)?;
    let slot = wait(&mut pit, &hash, &text::name("video/7"), 256)?;
    assert_eq!(wait(&mut pit, &hash, &text::name("video/7"), 257)?, slot, "one entry for both");
    let lost = wait(&mut pit, &hash, &text::name("video/8"), 256)?;

    // Data brings back the token of its Interest; the name is compared all the same.
    assert_eq!(pit.by_token(&pit.token(slot)), TokenFound::Entry(slot));
    assert!(pit.accepts(slot, &text::name("video/7"), || unreachable!("no Interest names a digest")));
    pit.downstreams(slot).for_each(|record| println!("Data goes to face {}", record.face.0));
    assert_eq!(pit.downstreams(slot).count(), 2);
    pit.erase(slot);
    assert_eq!(pit.downstreams(slot).count(), 0, "a handle of an erased entry finds nothing");

    assert_eq!((pit.expired(now), pit.expired(now + 2 * WAITS)), (None, Some(lost)));
    pit.erase(lost);
    Ok(())
}
