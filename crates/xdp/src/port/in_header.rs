//! Numbers of a C header, for the tests that compare them with Rust's.

/// The value behind a name in a header: `#define NAME 1u`, `#define NAME 0x1u` or `NAME = 1,`.
pub(crate) fn in_header(header: &str, name: &str) -> u64 {
    let line = header
        .lines()
        .map(|line| line.trim_start().trim_start_matches("#define "))
        .find(|line| {
            line.starts_with(name)
                && !line[name.len()..].starts_with(|c: char| c == '_' || c.is_alphanumeric())
        })
        .unwrap_or_else(|| panic!("{name} is not in the header"));
    let value = line[name.len()..].trim_start_matches([' ', '=']);
    let (digits, radix) = value.strip_prefix("0x").map_or((value, 10), |hex| (hex, 16));
    let digits: String = digits.chars().take_while(|c| c.is_digit(radix)).collect();
    u64::from_str_radix(&digits, radix).unwrap_or_else(|_| panic!("{name} has no number"))
}
