//! Groups of this host that a configuration names.

use miette::miette;

/// Where they are.
const GROUPS: &str = "/etc/group";

/// The number of a group that `field` gives by its name or its number.
///
/// # Errors
/// When there is none of that name.
pub fn number(field: &str, name: &str) -> miette::Result<u32> {
    let file = std::fs::read_to_string(GROUPS).unwrap_or_default();
    number_in(name, &file).ok_or_else(|| {
        miette!(
            help = "give the name of a group as in {GROUPS}, or its number",
            "{field}: there is no group {name:?}"
        )
    })
}

/// The same, by the text of a group file.
fn number_in(name: &str, file: &str) -> Option<u32> {
    let named = file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    });
    named.or_else(|| name.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_and_numbers() {
        let file = "root:x:0:\nndn:x:104:a,b\nbroken\nndnx:x:105:\n";
        let found = ["ndn", "104", "nd"].map(|name| number_in(name, file));
        assert_eq!(found, [Some(104), Some(104), None]);
        let refused = number("control.group", "no such group").unwrap_err();
        assert_eq!(refused.to_string(), "control.group: there is no group \"no such group\"");
    }
}
