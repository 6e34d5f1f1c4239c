//! Which fields a running node can change when it reads its file again. The reference and the answer to `kaido reload` both read it
//! from here and from the schemas of the functions.

use super::schema::FunctionSchema;

/// Whether fields can change in a running node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reload {
    /// They can. The words say from when on they hold, after "holds": `from the next datagram on`.
    Changes(&'static str),
    /// They cannot, and why.
    Restart(&'static str),
}

/// What holds for the field of that path, or for all fields of the section of that path. The longest path counts.
#[derive(Clone, Copy, Debug)]
pub struct ReloadRule {
    path: &'static str,
    reload: Reload,
}

impl ReloadRule {
    /// Fields that can change; `when` they hold.
    pub const fn changes(path: &'static str, when: &'static str) -> Self {
        Self { path, reload: Reload::Changes(when) }
    }

    /// Fields that cannot, and `why`.
    pub const fn restart(path: &'static str, why: &'static str) -> Self {
        Self { path, reload: Reload::Restart(why) }
    }

    fn is_of(&self, pattern: &str) -> bool {
        is_within(pattern, self.path)
    }
}

/// Whether a field, without what stands for the tables of a list, is that of a path, or in its section.
pub(crate) fn is_within(pattern: &str, path: &str) -> bool {
    pattern.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

/// Of every node.
const OF_EVERY_NODE: &[ReloadRule] = &[
    ReloadRule::restart("function", "the threads of the functions are started with the process"),
    ReloadRule::restart("node", "frames, tables and workers are made of it"),
    ReloadRule::restart("port", "sockets, programs and workers are made for the ports that there are"),
    ReloadRule::restart("dpdk", "DPDK's environment is set up once in a process"),
    ReloadRule::restart("reassembly", "the tables of fragments are made of it"),
    ReloadRule::restart("control", "the control socket is opened with the process"),
    ReloadRule::restart("metrics", "the socket is opened, and the workers' timers are set, with the process"),
    ReloadRule::restart(
        "api",
        "the socket is opened with the process; what its files say is read again when they change",
    ),
    ReloadRule::changes("log.level", "from the next line on"),
    ReloadRule::restart("log.format", "the log is laid out when the process starts"),
];

/// Whether a field can change in a node of these functions, by its path without what stands for the tables of a list; `None` for
/// a path that no rule is for.
pub fn reload_of<'s>(
    functions: impl IntoIterator<Item = &'s FunctionSchema>,
    pattern: &str,
) -> Option<Reload> {
    let own = functions.into_iter().flat_map(|function| function.reload);
    let found = own.chain(OF_EVERY_NODE).filter(|rule| rule.is_of(pattern));
    // Of two functions that both have the field, the one that cannot change it decides.
    found
        .max_by_key(|rule| (rule.path.len(), matches!(rule.reload, Reload::Restart(_))))
        .map(|rule| rule.reload)
}

#[cfg(test)]
mod tests {
    use super::super::schema::testing::FUNCTIONS;
    use super::*;

    fn of(pattern: &str) -> Option<Reload> {
        reload_of(&FUNCTIONS, pattern)
    }

    #[test]
    fn the_longest_path_counts() {
        assert_eq!(of("log.level"), Some(Reload::Changes("from the next line on")));
        assert!(matches!(of("log.format"), Some(Reload::Restart(_))));
        assert_eq!(of("lamp.hours"), Some(Reload::Restart("the lamp is lit")));
        assert_eq!(of("lamp.bulb.watts"), Some(Reload::Changes("at dusk")));
        assert_eq!(of("lamp.bulbs"), Some(Reload::Restart("the lamp is lit")));
        assert_eq!(of("lamps"), None);
        assert_eq!(of("port.colour"), of("port.name"));
    }

    #[test]
    fn of_two_functions_the_one_that_cannot_decides() {
        assert_eq!(of("node.strokes"), Some(Reload::Restart("the horn has its reeds")));
    }
}
