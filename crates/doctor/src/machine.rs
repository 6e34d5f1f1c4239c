//! The machine: kernel, rights, memory, processors.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use kaido_engine::FrameSize;
use kaido_node::config::NodeConfig;
use kaido_node::cpus::{cpu_list, cpu_list_of};
use rustix::process::{Resource, getrlimit};

use super::parse::{capabilities, chosen, kernel_version};
use super::{Finding, Verdict};

const SUBJECT: &str = "machine";

/// The first kernel that takes an XDP program off when its process ends (`bpf_link`).
const KERNEL_MIN: (u32, u32) = (5, 9);
const HUGE_2M: u64 = 2 << 20;

/// Rights that a node needs, by their bit and name (`include/uapi/linux/capability.h`).
const NEEDED: [(u32, &str); 3] = [(12, "cap_net_admin"), (13, "cap_net_raw"), (39, "cap_bpf")];
const CAP_IPC_LOCK: u32 = 14;
/// Stands for `cap_bpf`, too.
const CAP_SYS_ADMIN: u32 = 21;

/// Reserved huge pages of a size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HugePages {
    pub(super) reserved: u64,
    pub(super) free: u64,
}

/// What the machine is.
#[derive(Clone, Debug, Default)]
pub(super) struct MachineInfo {
    pub(super) release: String,
    pub(super) kernel: Option<(u32, u32)>,
    pub(super) capabilities: u64,
    /// Bytes that may be locked; none for no limit.
    pub(super) memlock: Option<u64>,
    pub(super) huge_1g: HugePages,
    pub(super) huge_2m: HugePages,
    /// Mode of transparent huge pages; none where the kernel has none.
    pub(super) transparent: Option<String>,
    pub(super) cpus: Vec<usize>,
    /// CPUs of a core, for cores that have several.
    pub(super) siblings: BTreeSet<Vec<usize>>,
    /// Frequency governors in use; none where the machine does not let us choose.
    pub(super) governors: BTreeSet<String>,
    pub(super) isolated: Vec<usize>,
    /// CPUs of each NUMA node.
    pub(super) numa: Vec<Vec<usize>>,
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn number(path: &str) -> u64 {
    read(path).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn huge_pages(kilobytes: u32) -> HugePages {
    let of =
        |what: &str| number(&format!("/sys/kernel/mm/hugepages/hugepages-{kilobytes}kB/{what}_hugepages"));
    HugePages { reserved: of("nr"), free: of("free") }
}

impl MachineInfo {
    /// Asks the running machine.
    pub(super) fn gather() -> Self {
        let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
        let cpus = cpu_list(&read("/sys/devices/system/cpu/online").unwrap_or_default());
        let of_cpu = |cpu: usize, file: &str| read(format!("/sys/devices/system/cpu/cpu{cpu}/{file}"));
        let siblings = cpus.iter().filter_map(|&cpu| of_cpu(cpu, "topology/thread_siblings_list"));
        let siblings = siblings.map(|list| cpu_list(&list)).filter(|cpus| cpus.len() > 1).collect();
        let numa = (0..).map_while(|node| read(format!("/sys/devices/system/node/node{node}/cpulist")));
        let transparent = read("/sys/kernel/mm/transparent_hugepage/enabled");
        Self {
            kernel: kernel_version(&release),
            release,
            capabilities: read("/proc/self/status").and_then(|text| capabilities(&text)).unwrap_or(0),
            memlock: getrlimit(Resource::Memlock).current,
            huge_1g: huge_pages(1 << 20),
            huge_2m: huge_pages(2 << 10),
            transparent: transparent.and_then(|text| chosen(&text).map(str::to_owned)),
            siblings,
            governors: cpus.iter().filter_map(|&cpu| of_cpu(cpu, "cpufreq/scaling_governor")).collect(),
            cpus,
            isolated: cpu_list(&read("/sys/devices/system/cpu/isolated").unwrap_or_default()),
            numa: numa.map(|list| cpu_list(&list)).collect(),
        }
    }

    fn has(&self, capability: u32) -> bool {
        self.capabilities & (1 << capability) != 0
    }
}

/// CPUs that the node's workers are pinned to.
pub(super) fn pinned(node: Option<&NodeConfig>) -> &[usize] {
    node.map_or(&[], |node| node.cpus.get_ref())
}

/// What is to be said of the machine, for a node of that configuration or the usual one, with tables of so many octets, and frames
/// of a size.
pub(super) fn judge(
    facts: &MachineInfo,
    node: Option<&NodeConfig>,
    tables: u64,
    size: FrameSize,
) -> Vec<Finding> {
    let usual = NodeConfig::default();
    let sized = node.unwrap_or(&usual);
    let frames = u64::from(*sized.frames.get_ref()) * size.bytes() as u64;
    vec![
        kernel(facts),
        rights(facts),
        memlock(facts, frames),
        huge(facts, frames, tables),
        transparent(facts),
        threads(facts, pinned(node)),
        governor(facts),
        isolation(facts, pinned(node)),
    ]
}

fn kernel(facts: &MachineInfo) -> Finding {
    let said = format!("Linux {}", facts.release);
    match facts.kernel {
        Some(version) if version < KERNEL_MIN => {
            let (major, minor) = KERNEL_MIN;
            Finding::fault(SUBJECT, "kernel", format!("{said}: af_xdp ports need {major}.{minor} or later"))
        }
        Some(version) if version < (6, 6) => Finding::advice(
            SUBJECT,
            "kernel",
            format!(
                "{said}: 6.3 says what drivers can do, 6.6 takes packets of several buffers (MTU above {})",
                kaido_xdp::PLAIN_MTU_MAX
            ),
        ),
        Some(_) => Finding::ok(SUBJECT, "kernel", said),
        None => Finding::advice(SUBJECT, "kernel", format!("{said}: not a version that could be judged")),
    }
}

fn rights(facts: &MachineInfo) -> Finding {
    let lacks = |&(bit, _): &(u32, &str)| !(facts.has(bit) || bit == 39 && facts.has(CAP_SYS_ADMIN));
    let missing: Vec<_> = NEEDED.into_iter().filter(lacks).map(|(_, name)| name).collect();
    if missing.is_empty() {
        return Finding::ok(SUBJECT, "capabilities", "enough to open sockets and load programs");
    }
    let names: Vec<_> = NEEDED.iter().map(|(_, name)| *name).collect();
    Finding::fault(SUBJECT, "capabilities", format!("this user has no {}", missing.join(", ")))
        .run(format!("setcap {},cap_ipc_lock+ep \"$(command -v kaido)\"", names.join(",")))
}

/// `wanted`: bytes of all frames.
fn memlock(facts: &MachineInfo, wanted: u64) -> Finding {
    match facts.memlock {
        _ if facts.has(CAP_IPC_LOCK) => Finding::ok(SUBJECT, "memlock", "not limited for this user"),
        Some(limit) if limit < wanted => {
            let said = format!("{} MiB may be locked, and the frames take {} MiB", limit >> 20, wanted >> 20);
            Finding::fault(SUBJECT, "memlock", said).run("ulimit -l unlimited")
        }
        Some(limit) => Finding::ok(SUBJECT, "memlock", format!("{} MiB may be locked", limit >> 20)),
        None => Finding::ok(SUBJECT, "memlock", "not limited"),
    }
}

/// `frames`: bytes of them all.
fn huge(facts: &MachineInfo, frames: u64, tables: u64) -> Finding {
    let HugePages { reserved, free } = facts.huge_2m;
    let wanted = frames.div_ceil(HUGE_2M) + tables.div_ceil(HUGE_2M);
    let said = format!(
        "free: {} of {} pages of 1 GiB, {free} of {reserved} of 2 MiB; frames and tables take {} MiB",
        facts.huge_1g.free,
        facts.huge_1g.reserved,
        (frames + tables) >> 20
    );
    if (facts.huge_1g.free << 30) + free * HUGE_2M >= wanted * HUGE_2M {
        return Finding::ok(SUBJECT, "hugepages", said);
    }
    let pages = reserved - free.min(reserved) + wanted;
    Finding::advice(SUBJECT, "hugepages", said)
        .run(format!("echo {pages} > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"))
}

fn transparent(facts: &MachineInfo) -> Finding {
    match facts.transparent.as_deref() {
        Some(mode @ ("always" | "madvise")) => {
            Finding::ok(SUBJECT, "thp", format!("transparent huge pages: {mode}"))
        }
        Some(mode) => {
            let said =
                format!("transparent huge pages: {mode}; without reserved ones every lookup misses the TLB");
            Finding::advice(SUBJECT, "thp", said)
                .run("echo madvise > /sys/kernel/mm/transparent_hugepage/enabled")
        }
        None => Finding::advice(SUBJECT, "thp", "the kernel has no transparent huge pages; reserve some"),
    }
}

fn threads(facts: &MachineInfo, pinned: &[usize]) -> Finding {
    if facts.siblings.is_empty() {
        return Finding::ok(SUBJECT, "smt", format!("{} CPUs, each a core of its own", facts.cpus.len()));
    }
    let shared =
        facts.siblings.iter().find(|core| core.iter().filter(|cpu| pinned.contains(cpu)).count() > 1);
    if let Some(core) = shared {
        let said = format!("node.cpus has two workers on one core: CPUs {}", cpu_list_of(core));
        return Finding::advice(SUBJECT, "smt", said).run("echo off > /sys/devices/system/cpu/smt/control");
    }
    let firsts: Vec<_> = facts.siblings.iter().filter_map(|core| core.first().copied()).collect();
    let said = format!("cores have several CPUs; one of each: {}", cpu_list_of(&firsts));
    if pinned.is_empty() {
        let said = format!("{said}; pin workers to those by node.cpus");
        return Finding::advice(SUBJECT, "smt", said);
    }
    Finding::ok(SUBJECT, "smt", said)
}

fn governor(facts: &MachineInfo) -> Finding {
    let named = facts.governors.iter().cloned().collect::<Vec<_>>().join(", ");
    match facts.governors.iter().all(|governor| governor == "performance") {
        true if named.is_empty() => {
            Finding::ok(SUBJECT, "governor", "the CPU frequency is not ours to choose (a guest, or firmware)")
        }
        true => Finding::ok(SUBJECT, "governor", named),
        false => {
            let said = format!("{named}: a core that was idle answers slowly");
            Finding::advice(SUBJECT, "governor", said).run("cpupower frequency-set --governor performance")
        }
    }
}

fn isolation(facts: &MachineInfo, pinned: &[usize]) -> Finding {
    let isolated = cpu_list_of(&facts.isolated);
    let absent: Vec<_> = pinned.iter().copied().filter(|cpu| !facts.cpus.contains(cpu)).collect();
    if !absent.is_empty() {
        let said =
            format!("node.cpus names {}, and {} are online", cpu_list_of(&absent), cpu_list_of(&facts.cpus));
        return Finding::advice(SUBJECT, "isolated_cpus", said);
    }
    if pinned.is_empty() {
        let said = match isolated.as_str() {
            "" => "none, and node.cpus pins no worker".to_owned(),
            cpus => format!("{cpus}, and node.cpus pins no worker there"),
        };
        let verdict = if isolated.is_empty() { Verdict::Ok } else { Verdict::Advice };
        return Finding::new(SUBJECT, "isolated_cpus", verdict, said);
    }
    if pinned.iter().all(|cpu| facts.isolated.contains(cpu)) {
        return Finding::ok(SUBJECT, "isolated_cpus", format!("{isolated}, all workers' among them"));
    }
    if facts.cpus.iter().all(|cpu| pinned.contains(cpu)) {
        let said = "every CPU is a worker's: one left to the kernel and the control plane disturbs them less";
        return Finding::advice(SUBJECT, "isolated_cpus", said);
    }
    let mut cpus = pinned.to_vec();
    cpus.sort_unstable();
    cpus.dedup();
    let cpus = cpu_list_of(&cpus);
    let said = format!("the kernel schedules other work on the workers' CPUs {cpus}; boot it otherwise");
    let parameters = format!("isolcpus=managed_irq,domain,{cpus} nohz_full={cpus} rcu_nocbs={cpus}");
    Finding::advice(SUBJECT, "isolated_cpus", said)
        .run(format!("sed -i 's/^GRUB_CMDLINE_LINUX=\"/&{parameters} /' /etc/default/grub && update-grub"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kaido_node::config::Base;

    fn good() -> MachineInfo {
        MachineInfo {
            release: "6.12.1".to_owned(),
            kernel: Some((6, 12)),
            capabilities: u64::MAX,
            huge_2m: HugePages { reserved: 100, free: 100 },
            transparent: Some("madvise".to_owned()),
            cpus: vec![0, 1, 2, 3],
            numa: vec![vec![0, 1, 2, 3]],
            ..MachineInfo::default()
        }
    }

    fn node(more: &str) -> Base {
        let text = format!("[node]\n{more}\n");
        toml::from_str(&text).unwrap()
    }

    fn found(facts: &MachineInfo, more: &str, check: &str) -> Finding {
        let config = node(more);
        judge(facts, Some(&config.node), 32 << 20, FrameSize::FourKib)
            .into_iter()
            .find(|finding| finding.check == check)
            .unwrap()
    }

    #[test]
    fn a_good_machine_has_nothing_to_be_said_against() {
        let findings = judge(&good(), None, 32 << 20, FrameSize::FourKib);
        let other: Vec<_> = findings.iter().filter(|finding| finding.verdict != Verdict::Ok).collect();
        assert!(other.is_empty(), "{other:?}");
    }

    #[test]
    fn what_keeps_a_node_from_running_is_a_fault() {
        let old = MachineInfo { kernel: Some((5, 4)), ..good() };
        assert_eq!(found(&old, "", "kernel").verdict, Verdict::Fault);
        let user = MachineInfo { capabilities: 1 << 12, memlock: Some(8 << 20), ..good() };
        let rights = found(&user, "", "capabilities");
        assert_eq!(rights.verdict, Verdict::Fault);
        assert!(rights.said.contains("cap_net_raw, cap_bpf"), "{}", rights.said);
        assert_eq!(found(&user, "", "memlock").verdict, Verdict::Fault);
        assert_eq!(found(&user, "frames = 1024", "memlock").verdict, Verdict::Ok);
        let admin = MachineInfo { capabilities: 1 << 12 | 1 << 13 | 1 << CAP_SYS_ADMIN, ..good() };
        assert_eq!(found(&admin, "", "capabilities").verdict, Verdict::Ok);
    }

    #[test]
    fn huge_pages_are_advised_for_what_the_node_takes() {
        let none = MachineInfo { huge_2m: HugePages { reserved: 7, free: 2 }, ..good() };
        // 64 MiB of frames and 32 MiB of sessions are 48 pages, beside the five that others have.
        let advised = found(&none, "", "hugepages");
        assert_eq!(advised.commands, ["echo 53 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"]);
        let large = MachineInfo { huge_1g: HugePages { reserved: 1, free: 1 }, ..none };
        assert_eq!(found(&large, "", "hugepages").verdict, Verdict::Ok);
        let never = MachineInfo { transparent: Some("never".to_owned()), ..good() };
        assert_eq!(found(&never, "", "thp").verdict, Verdict::Advice);
    }

    #[test]
    fn workers_want_cores_of_their_own() {
        let siblings = BTreeSet::from([vec![0, 2], vec![1, 3]]);
        let threads = MachineInfo { siblings, ..good() };
        assert!(found(&threads, "", "smt").said.contains("one of each: 0-1"));
        assert_eq!(found(&threads, "cpus = [0, 1]", "smt").verdict, Verdict::Ok);
        let shared = found(&threads, "cpus = [0, 2]", "smt");
        assert_eq!((shared.verdict, shared.said.contains("CPUs 0,2")), (Verdict::Advice, true));
    }

    #[test]
    fn frequency_and_isolation_are_named() {
        let slow = MachineInfo { governors: BTreeSet::from(["powersave".to_owned()]), ..good() };
        assert!(found(&slow, "", "governor").commands[0].starts_with("cpupower"));
        let pinned = found(&good(), "cpus = [3, 2]", "isolated_cpus");
        assert!(pinned.commands[0].contains("nohz_full=2-3"), "{:?}", pinned.commands);
        let all = found(&good(), "cpus = [0, 1, 2, 3]", "isolated_cpus");
        assert_eq!((all.verdict, all.commands.len()), (Verdict::Advice, 0));
        let isolated = MachineInfo { isolated: vec![2, 3], ..good() };
        assert_eq!(found(&isolated, "cpus = [2]", "isolated_cpus").verdict, Verdict::Ok);
        assert_eq!(found(&isolated, "", "isolated_cpus").verdict, Verdict::Advice);
        assert!(found(&good(), "cpus = [9]", "isolated_cpus").said.contains("names 9"));
    }
}
