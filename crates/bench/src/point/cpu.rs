//! What each CPU did meanwhile, by the kernel's own account.

use std::fs;

use serde::Serialize;

/// Shares of one CPU's time, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CpuUse {
    /// Its number.
    pub cpu: usize,
    /// Not idle and not waiting for a disk, soft and hard interrupts included; what a hypervisor took away is not.
    pub busy_percent: f64,
    /// Of all time: in the kernel for processes.
    pub system_percent: f64,
    /// Of all time: in soft interrupts, where the kernel receives and sends packets.
    pub softirq_percent: f64,
    /// Of all time: taken away by the hypervisor.
    pub steal_percent: f64,
}

/// Ticks since boot, by CPU: user, nice, system, idle, iowait, irq, softirq, steal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CpuTicks(Vec<(usize, [u64; 8])>);

impl CpuTicks {
    pub(crate) fn now() -> Self {
        Self::parse(&fs::read_to_string("/proc/stat").unwrap_or_default())
    }

    fn parse(stat: &str) -> Self {
        let rows = stat.lines().filter_map(|line| {
            let mut words = line.strip_prefix("cpu")?.split_ascii_whitespace();
            let cpu = words.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
            let mut ticks = [0; 8];
            for tick in &mut ticks {
                *tick = words.next()?.parse().ok()?;
            }
            Some((cpu, ticks))
        });
        Self(rows.collect())
    }

    /// The use of every CPU since `before`; nothing of one that no tick passed on.
    pub(crate) fn since(&self, before: &Self) -> Vec<CpuUse> {
        let pairs = self.0.iter().filter_map(|(cpu, after)| {
            let (_, before) = before.0.iter().find(|(other, _)| other == cpu)?;
            Some((*cpu, std::array::from_fn::<u64, 8, _>(|at| after[at].saturating_sub(before[at]))))
        });
        let uses = pairs.filter_map(|(cpu, ticks)| {
            let total: u64 = ticks.iter().sum();
            let percent = |ticks: u64| ticks as f64 * 100.0 / total as f64;
            let idle = ticks[3] + ticks[4] + ticks[7];
            (total > 0).then(|| CpuUse {
                cpu,
                busy_percent: percent(total - idle),
                system_percent: percent(ticks[2]),
                softirq_percent: percent(ticks[6]),
                steal_percent: percent(ticks[7]),
            })
        });
        uses.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_between_two_looks() {
        let before = CpuTicks::parse(
            "cpu  1 1 1 1 1 1 1 1\ncpu0 10 0 10 100 0 0 0 0 0 0\ncpu1 0 0 0 5 0 0 0 0\nintr 5\n",
        );
        let after =
            CpuTicks::parse("cpu  9 9 9 9 9 9 9 9\ncpu0 30 0 20 140 0 0 20 10 0 0\ncpu1 0 0 0 5 0 0 0 0\n");
        let uses = after.since(&before);
        assert_eq!(uses.len(), 1, "no time passed on the second: {uses:?}");
        let expected = CpuUse {
            cpu: 0,
            busy_percent: 50.0,
            system_percent: 10.0,
            softirq_percent: 20.0,
            steal_percent: 10.0,
        };
        assert_eq!(uses[0], expected);
        assert!(!CpuTicks::now().0.is_empty());
    }
}
