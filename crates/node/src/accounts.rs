//! Users and groups of this host, by their names.

use miette::miette;

/// Where they are.
const GROUPS: &str = "/etc/group";
const USERS: &str = "/etc/passwd";

/// A user of this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) number: u32,
    /// The number of the user's own group.
    pub(crate) group: u32,
}

/// The number of a group that `field` gives by its name or its number.
///
/// # Errors
/// When there is none of that name.
pub fn group(field: &str, name: &str) -> miette::Result<u32> {
    let file = std::fs::read_to_string(GROUPS).unwrap_or_default();
    group_in(name, &file).ok_or_else(|| {
        miette!(
            help = format!("give the name of a group as in {GROUPS}, or its number"),
            "{field}: there is no group {name:?}"
        )
    })
}

/// The user that an `option` of a command line names.
///
/// # Errors
/// When there is none of that name.
pub(crate) fn user(option: &str, name: &str) -> miette::Result<User> {
    let file = std::fs::read_to_string(USERS).unwrap_or_default();
    user_in(name, &file).ok_or_else(|| {
        miette!(
            help = format!("give the name of a user as in {USERS}"),
            "{option}: there is no user {name:?}"
        )
    })
}

/// What stands behind a name in the text of such a file.
fn fields_of<'f>(name: &str, file: &'f str) -> Option<std::str::Split<'f, char>> {
    file.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(fields)
    })
}

fn group_in(name: &str, file: &str) -> Option<u32> {
    let named = fields_of(name, file).and_then(|mut fields| fields.nth(1)?.parse().ok());
    named.or_else(|| name.parse().ok())
}

fn user_in(name: &str, file: &str) -> Option<User> {
    let mut fields = fields_of(name, file)?;
    Some(User { number: fields.nth(1)?.parse().ok()?, group: fields.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_names_and_numbers() {
        let file = "root:x:0:\nndn:x:104:a,b\nbroken\nndnx:x:105:\n";
        let found = ["ndn", "104", "nd"].map(|name| group_in(name, file));
        assert_eq!(found, [Some(104), Some(104), None]);
        let refused = group("control.group", "no such group").unwrap_err();
        assert_eq!(refused.to_string(), "control.group: there is no group \"no such group\"");
    }

    #[test]
    fn users_have_names() {
        let file =
            "root:x:0:0:root:/root:/bin/sh\nbroken:x:7\nkaido:x:101:104::/var/lib/kaido:/usr/sbin/nologin\n";
        let found = ["kaido", "root", "broken", "101", "kai"].map(|name| user_in(name, file));
        let of = |number, group| Some(User { number, group });
        assert_eq!(found, [of(101, 104), of(0, 0), None, None, None]);
        let refused = user("--user", "no such user").unwrap_err();
        assert_eq!(refused.to_string(), "--user: there is no user \"no such user\"");
        assert_eq!(refused.help().unwrap().to_string(), "give the name of a user as in /etc/passwd");
    }
}
