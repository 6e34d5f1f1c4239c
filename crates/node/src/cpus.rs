//! Lists of CPUs, as procfs and sysfs write them.

/// CPUs of a list such as `0-3,8`; what is no number is passed over.
pub fn cpu_list(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        // No machine has so many; a file that says so is not this one.
        (last < 1 << 16).then_some(first..=last)
    };
    text.trim().split(',').filter_map(range).flatten().collect()
}

/// CPUs as such a list.
pub fn cpu_list_of(cpus: &[usize]) -> String {
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
}
