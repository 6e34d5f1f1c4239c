//! Shares in percent, as load metrics give them.

/// A part of a whole in percent, rounded down; all of nothing.
pub(crate) fn percent(part: u64, whole: u64) -> u8 {
    (part * 100).checked_div(whole).map_or(100, |percent| u8::try_from(percent).unwrap_or(100).min(100))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(
            [percent(0, 3), percent(1, 3), percent(3, 3), percent(9, 3), percent(0, 0)],
            [0, 33, 100, 100, 100]
        );
    }
}
