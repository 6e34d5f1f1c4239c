//! A field in an update.

/// What an update says of an optional field: an element that is absent keeps it, one of no length takes it away
/// (TS 29.244 5.2.1, 8.1.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Change<T> {
    /// It stays as it is.
    #[default]
    Keep,
    /// It goes.
    Remove,
    /// It becomes this.
    To(T),
}

impl<T> Change<T> {
    /// Whether the field is spoken of.
    pub fn is_change(&self) -> bool {
        !matches!(self, Self::Keep)
    }

    /// Changes a field.
    pub fn apply(self, field: &mut Option<T>) {
        match self {
            Self::Keep => {}
            Self::Remove => *field = None,
            Self::To(value) => *field = Some(value),
        }
    }

    /// The value given.
    pub fn value(self) -> Option<T> {
        match self {
            Self::To(value) => Some(value),
            Self::Keep | Self::Remove => None,
        }
    }
}

impl<T> From<Option<T>> for Change<T> {
    /// What is there is given, what is not is not spoken of.
    fn from(field: Option<T>) -> Self {
        field.map_or(Self::Keep, Self::To)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_removes_and_replaces() {
        let mut field = Some(1);
        Change::Keep.apply(&mut field);
        assert_eq!(field, Some(1));
        Change::To(2).apply(&mut field);
        assert_eq!(field, Some(2));
        Change::Remove.apply(&mut field);
        assert_eq!(field, None);
        assert_eq!(Change::from(Some(3)).value(), Some(3));
        assert!(!Change::from(None::<u8>).is_change() && Change::<u8>::Remove.is_change());
    }
}
