//! Times of day as `DateTime` of TS 29.571 has them: `date-time` of RFC 3339.

use std::time::{Duration, SystemTime};

const DAY_S: i64 = 86_400;

/// Writes a time in UTC, to the millisecond.
pub(crate) fn format(at: SystemTime) -> String {
    let since = at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let (year, month, day) = date(seconds.div_euclid(DAY_S));
    let of_day = seconds.rem_euclid(DAY_S);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    let milliseconds = since.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

/// Reads a time with any offset; `None` of what is none, or before 1970.
pub(crate) fn parse(text: &str) -> Option<SystemTime> {
    let octets = text.as_bytes();
    if octets.len() > 64 || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, len: usize| -> Option<i64> {
        let digits = octets.get(from..from + len)?;
        digits.iter().all(u8::is_ascii_digit).then(|| std::str::from_utf8(digits).ok()?.parse().ok())?
    };
    let is = |at: usize, wanted: &[u8]| octets.get(at).is_some_and(|octet| wanted.contains(octet));
    let (year, month, day) = (number(0, 4)?, number(5, 2)?, number(8, 2)?);
    let (hour, minute, second) = (number(11, 2)?, number(14, 2)?, number(17, 2)?);
    let is_written = is(4, b"-") && is(7, b"-") && is(10, b"Tt ") && is(13, b":") && is(16, b":");
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = match month {
        2 if is_leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => return None,
    };
    // A leap second counts as the one before.
    if !is_written || !(1..=days).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let rest = text.get(19..)?;
    let fraction = rest.strip_prefix('.').map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        rest.split_at(end)
    });
    let (fraction, zone) = match fraction {
        Some(("", _)) => return None,
        Some((digits, zone)) => (digits, zone),
        None => ("", rest),
    };
    let nanoseconds: u32 = format!("{fraction:0<9}").get(..9)?.parse().ok()?;
    let offset = match zone.as_bytes() {
        b"Z" | b"z" => 0,
        [sign @ (b'+' | b'-'), h1, h2, b':', m1, m2] => {
            let digits = [h1, h2, m1, m2];
            if !digits.iter().all(|digit| digit.is_ascii_digit()) {
                return None;
            }
            let [h1, h2, m1, m2] = digits.map(|digit| i64::from(digit - b'0'));
            let minutes = (h1 * 10 + h2) * 60 + m1 * 10 + m2;
            if *sign == b'+' { minutes * 60 } else { -minutes * 60 }
        }
        _ => return None,
    };
    let seconds = days_since_1970(year, month, day) * DAY_S + hour * 3600 + minute * 60 + second.min(59);
    let seconds = u64::try_from(seconds - offset).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::new(seconds, nanoseconds))
}

/// Year, month and day of a day since 1970, in the Gregorian calendar: years are taken to begin in March, so that a leap day is the last.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
    era * 146_097 + of_era - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64, milliseconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(seconds * 1000 + milliseconds)
    }

    #[test]
    fn times_are_written_and_read() {
        assert_eq!(format(at(0, 0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(format(at(1_709_210_096, 789)), "2024-02-29T12:34:56.789Z");
        assert_eq!(parse("2024-02-29T12:34:56.789Z"), Some(at(1_709_210_096, 789)));
        assert_eq!(parse("2024-02-29T14:04:56+01:30"), Some(at(1_709_210_096, 0)));
        assert_eq!(parse("2024-02-29t11:34:56-01:00"), Some(at(1_709_210_096, 0)));
        for wrong in [
            "",
            "2024-02-30T00:00:00Z",
            "2023-02-29T00:00:00Z",
            "2024-13-01T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01T00:00:00.Z",
            "2024-01-01T00:00:00+1:00",
            "1969-12-31T23:59:59Z",
            "2024-01-01",
            "2024-01-01T00:00:00Z ",
        ] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(milliseconds in 0..253_402_300_799_999u64) {
            let at = SystemTime::UNIX_EPOCH + Duration::from_millis(milliseconds);
            prop_assert_eq!(parse(&format(at)), Some(at));
        }

        #[test]
        fn any_text_is_read(text in "\\PC{0,40}") {
            let _ = parse(&text);
        }
    }
}
