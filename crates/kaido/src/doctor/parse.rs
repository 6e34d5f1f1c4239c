//! Readers of what procfs and sysfs say.

/// CPUs of a list such as `0-3,8`; what is no number is passed over.
pub(crate) fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // No machine has so many; a file that says so is not this one.
        (last < 1 << 16).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// CPUs as such a list.
pub(crate) fn cpu_list_of(cpus: &[usize]) -> String {
    let mut parts: Vec<(usize, usize)> = Vec::new();
    for &cpu in cpus {
        match parts.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => parts.push((cpu, cpu)),
        }
    }
    let part = |&(first, last): &(usize, usize)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

/// The chosen word of a list such as `always [madvise] never`.
pub(super) fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    Some(rest.split_once(']')?.0)
}

/// Names of interrupts, by number, of `/proc/interrupts`.
pub(super) fn interrupts(text: &str) -> Vec<(u32, String)> {
    let line = |line: &str| {
        let (number, rest) = line.split_once(':')?;
        let number = number.trim().parse().ok()?;
        Some((number, rest.split_whitespace().last()?.to_owned()))
    };
    text.lines().skip(1).filter_map(line).collect()
}

/// The effective capabilities of `/proc/self/status`, a bit each.
pub(super) fn capabilities(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

/// Major and minor version of a kernel release such as `6.1.0-18-amd64`.
pub(super) fn kernel_version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_lists_are_read_and_written() {
        assert_eq!(cpu_list("0-3,8,10-11\n"), [0, 1, 2, 3, 8, 10, 11]);
        assert_eq!(cpu_list("\n"), [0usize; 0]);
        assert_eq!(cpu_list("x,0-99999999999,2"), [2]);
        assert_eq!(cpu_list_of(&[0, 1, 2, 3, 8, 10, 11]), "0-3,8,10-11");
        assert_eq!(cpu_list_of(&[]), "");
    }

    #[test]
    fn the_chosen_word_is_in_brackets() {
        assert_eq!(chosen("always [madvise] never\n"), Some("madvise"));
        assert_eq!(chosen("nothing"), None);
    }

    #[test]
    fn interrupts_have_names() {
        let text = "           CPU0       CPU1       \n\
            \x20 37:          0          0 PCI-MSIX-0000:00:03.0   0-edge      virtio2-config\n\
            \x20 38:          0      19651 PCI-MSIX-0000:00:03.0   1-edge      virtio2-input.0\n\
            NMI:          0          0   Non-maskable interrupts\n";
        let named = |number: u32, name: &str| (number, name.to_owned());
        assert_eq!(interrupts(text), [named(37, "virtio2-config"), named(38, "virtio2-input.0")]);
        assert!(interrupts("").is_empty());
    }

    #[test]
    fn capabilities_are_a_mask() {
        let text = "Name:\tkaido\nCapPrm:\t000001fffeffffff\nCapEff:\t0000008000003000\nCapBnd:\t0\n";
        assert_eq!(capabilities(text), Some(1 << 39 | 1 << 12 | 1 << 13));
        assert_eq!(capabilities("Name:\tkaido\n"), None);
    }

    #[test]
    fn releases_begin_with_the_version() {
        assert_eq!(kernel_version("6.1.0-18-amd64"), Some((6, 1)));
        assert_eq!(kernel_version("6.18.44-fc-v669"), Some((6, 18)));
        assert_eq!(kernel_version("5.15"), Some((5, 15)));
        assert_eq!(kernel_version("linux"), None);
    }
}
