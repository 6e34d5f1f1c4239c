//! How many sessions have their rules in which form: what an operator asks who wants to know what takes the fast path.

use crate::ids::SessionIndex;
use crate::record::RecordForm;

/// No session.
const NONE: u8 = u8::MAX;

/// The form of each session, and how many there are of each.
#[derive(Debug)]
pub(super) struct Forms {
    /// By the number of a session: the place of its form, or [`NONE`].
    of: Vec<u8>,
    counts: [u32; RecordForm::COUNT],
}

const _: () = assert!(RecordForm::COUNT < NONE as usize);

impl Default for Forms {
    fn default() -> Self {
        Self { of: Vec::new(), counts: [0; RecordForm::COUNT] }
    }
}

impl Forms {
    /// Takes down the greatest form of a session's records, in the place of that of before.
    pub(super) fn set(&mut self, session: SessionIndex, form: Option<RecordForm>) {
        self.forget(session);
        // A session without keys has no packets, which wait for nothing.
        let form = form.unwrap_or(RecordForm::Folded);
        let place = session.0 as usize;
        if place >= self.of.len() {
            self.of.resize(place + 1, NONE);
        }
        self.counts[form.index()] += 1;
        // There are fewer than 255, as asserted.
        self.of[place] = u8::try_from(form.index()).unwrap_or(NONE);
    }

    /// The session is gone.
    pub(super) fn forget(&mut self, session: SessionIndex) {
        let Some(place) = self.of.get_mut(session.0 as usize) else { return };
        if let Some(count) = self.counts.get_mut(usize::from(std::mem::replace(place, NONE))) {
            *count -= 1;
        }
    }

    /// Sessions of each form that any has.
    pub(super) fn counts(&self) -> impl Iterator<Item = (RecordForm, u32)> + '_ {
        RecordForm::all().zip(self.counts).filter(|(_, count)| *count > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_counted_once_until_it_is_gone() {
        let mut forms = Forms::default();
        for session in [SessionIndex(3), SessionIndex(0), SessionIndex(3)] {
            forms.set(session, None);
        }
        assert_eq!(forms.counts().collect::<Vec<_>>(), [(RecordForm::Folded, 2)]);
        [3, 3, 9].map(SessionIndex).into_iter().for_each(|session| forms.forget(session));
        assert_eq!(forms.counts().collect::<Vec<_>>(), [(RecordForm::Folded, 1)]);
        forms.forget(SessionIndex(0));
        assert_eq!(forms.counts().count(), 0);
    }
}
