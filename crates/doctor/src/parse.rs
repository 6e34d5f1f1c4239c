//! Readers of what procfs and sysfs say.

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
