//! Numbers as people read them.

/// A rate with three digits and its unit: `1.25 M`.
pub(crate) fn scaled(value: f64) -> String {
    const UNITS: [&str; 5] = ["", "k", "M", "G", "T"];
    let mut value = value.max(0.0);
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    match unit {
        0 => format!("{value:.0}"),
        _ if value < 9.995 => format!("{value:.2} {}", UNITS[unit]),
        _ if value < 99.95 => format!("{value:.1} {}", UNITS[unit]),
        _ => format!("{value:.0} {}", UNITS[unit]),
    }
}

/// A time: `3 h 12 min`.
pub(crate) fn time(seconds: u64) -> String {
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, s) => format!("{s} s"),
        (0, 0, min, s) => format!("{min} min {s} s"),
        (0, h, min, _) => format!("{h} h {min} min"),
        (days, h, ..) => format!("{days} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let said = [0.0, 7.4, 999.4, 999.6, 1250.0, 12_345.0, 999_400.0, 999_600.0, 1.2e10, 5e15].map(scaled);
        assert_eq!(
            said,
            ["0", "7", "999", "1.00 k", "1.25 k", "12.3 k", "999 k", "1.00 M", "12.0 G", "5000 T"]
        );
        assert_eq!(scaled(-1.0), "0");
    }

    #[test]
    fn times_have_two_parts() {
        let said = [5, 65, 3_725, 90_061].map(time);
        assert_eq!(said, ["5 s", "1 min 5 s", "1 h 2 min", "1 d 1 h"]);
    }
}
