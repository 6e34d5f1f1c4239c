//! Which names turn hot, and which cool: from what all workers have sampled.

use std::time::{Duration, Instant};

use arrayvec::ArrayVec;
use kaido_ndn_tables::{component_len, is_digest};

use super::hot::{HOT_MAX, HeavyHitters, Phase};
use super::summary::Summary;

/// How often a worker says what it has sampled, and how often names are judged.
pub(crate) const REPORT_EVERY: Duration = Duration::from_millis(100);

/// How long Interests of the rule before are looked for after a name has turned: as long as an Interest of the usual lifetime
/// waits and its nonce is remembered for certain.
pub const WINDOW: Duration = Duration::from_secs(10);

/// Names that a worker tells of.
const TOLD: usize = 32;

/// Samples without which nothing is judged: with so few Interests no worker has much to do.
const SAMPLES_MIN: u32 = 128;

/// How long a worker that says nothing is counted on.
const FORGOTTEN: Duration = Duration::from_secs(1);

/// Octets of a hot name that are kept to show it.
const SHOWN_MAX: usize = 512;

/// When names are hot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BalanceSettings {
    /// Of how many Interests one is looked at.
    pub sample: u32,
    /// A name is hot whose Interests are that many percent of a worker's fair share of all, or more; 0 for none ever.
    pub hot_percent: u32,
    /// It may cool with less than that many percent.
    pub cool_percent: u32,
    /// How long it must have less.
    pub calm: Duration,
}

impl Default for BalanceSettings {
    fn default() -> Self {
        Self { sample: 32, hot_percent: 20, cool_percent: 10, calm: Duration::from_secs(10) }
    }
}

/// A name that is hot now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotName {
    /// Its hash, without an implicit digest.
    pub hash: u64,
    /// Its components, as far as whole ones come to 512 octets; `None` until one of its Interests was looked at.
    pub name: Option<Vec<u8>>,
    /// Its share of all Interests, in parts of a million.
    pub share_ppm: u32,
}

/// A name that is hot, or was.
#[derive(Clone, Debug)]
struct HeavyHitter {
    hash: u64,
    /// What it is called, once one of its Interests was looked at: counts know hashes alone.
    name: Option<ArrayVec<u8, SHOWN_MAX>>,
    phase: Phase,
    /// When it turned to this phase.
    at: Instant,
    /// Since when it has less than a hot name must have.
    calm_since: Option<Instant>,
    /// Its share of all Interests, in parts of a million.
    share_ppm: u32,
}

/// What a worker has said last.
#[derive(Clone, Debug)]
struct Report {
    at: Instant,
    total: u32,
    names: Vec<(u64, u32, u32)>,
}

/// The counts of all workers, and what follows from them.
#[derive(Debug)]
pub(super) struct HeavyHitterCounts {
    settings: BalanceSettings,
    reports: Vec<Option<Report>>,
    judged: Option<Instant>,
    turned: Vec<HeavyHitter>,
    /// Scratch memory: the names of all reports.
    merged: Vec<(u64, u32, u32)>,
}

impl HeavyHitterCounts {
    pub(super) fn new(settings: BalanceSettings, workers: u8) -> Self {
        Self {
            settings,
            reports: vec![None; usize::from(workers)],
            judged: None,
            turned: Vec::with_capacity(HOT_MAX),
            merged: Vec::with_capacity(usize::from(workers) * TOLD),
        }
    }

    /// Takes what a worker has sampled, and judges if it is time to.
    pub(super) fn report(&mut self, worker: u8, summary: &Summary, now: Instant, hot: &HeavyHitters) {
        let Some(place) = self.reports.get_mut(usize::from(worker)) else { return };
        let report = place.get_or_insert_with(|| Report {
            at: now,
            total: 0,
            names: Vec::with_capacity(2 * super::summary::NAMES),
        });
        (report.at, report.total) = (now, summary.total());
        report.names.clear();
        report.names.extend(summary.names());
        report.names.sort_unstable_by_key(|&(_, _, high)| std::cmp::Reverse(high));
        report.names.truncate(TOLD);
        let is_due = self.judged.is_none_or(|judged| now.saturating_duration_since(judged) >= REPORT_EVERY);
        if is_due {
            self.judged = Some(now);
            self.judge(now, hot);
        }
    }

    fn judge(&mut self, now: Instant, hot: &HeavyHitters) {
        let total = self.merge(now);
        // Shares are of what one worker has to do in the mean.
        let fair = (total / u64::try_from(self.reports.len()).unwrap_or(1).max(1)).max(1);
        let percent = |count: u32| u64::from(count) * 100 / fair;
        let share_ppm =
            |count: u32| u32::try_from(u64::from(count) * 1_000_000 / total.max(1)).unwrap_or(u32::MAX);
        let is_busy = total >= u64::from(SAMPLES_MIN);
        let settings = self.settings;
        for turned in &mut self.turned {
            let found = self.merged.binary_search_by_key(&turned.hash, |&(hash, _, _)| hash);
            let (low, high) = found.map_or((0, 0), |at| (self.merged[at].1, self.merged[at].2));
            turned.share_ppm = share_ppm(low);
            let is_calm = !is_busy || percent(high) < settings.cool_percent.into();
            let is_hot = is_busy && percent(low) >= settings.hot_percent.into();
            turned.turn(is_hot, is_calm, now, &settings);
            let phase = turned.is_there(now).then_some(turned.phase);
            hot.set(turned.hash, phase);
        }
        self.turned.retain(|turned| turned.is_there(now));
        if !is_busy || settings.hot_percent == 0 {
            return;
        }
        for &(hash, low, _) in &self.merged {
            if percent(low) >= settings.hot_percent.into()
                && self.turned.len() < HOT_MAX
                && !self.turned.iter().any(|turned| turned.hash == hash)
                && hot.set(hash, Some(Phase::Warming))
            {
                self.turned.push(HeavyHitter {
                    hash,
                    name: None,
                    phase: Phase::Warming,
                    at: now,
                    calm_since: None,
                    share_ppm: share_ppm(low),
                });
            }
        }
    }

    /// Adds up the reports, by name; all samples.
    fn merge(&mut self, now: Instant) -> u64 {
        self.merged.clear();
        let mut total = 0;
        let is_new = |report: &&Report| now.saturating_duration_since(report.at) < FORGOTTEN;
        for report in self.reports.iter().flatten().filter(is_new) {
            total += u64::from(report.total);
            self.merged.extend_from_slice(&report.names);
        }
        self.merged.sort_unstable_by_key(|&(hash, _, _)| hash);
        self.merged.dedup_by(|next, first| {
            let is_same = next.0 == first.0;
            if is_same {
                (first.1, first.2) = (first.1.saturating_add(next.1), first.2.saturating_add(next.2));
            }
            is_same
        });
        total
    }

    /// Whether there is a hot name of which nothing but the hash is known.
    pub(super) fn lacks_names(&self) -> bool {
        self.turned.iter().any(|turned| turned.name.is_none())
    }

    /// Learns what a hot name is called: the components of an Interest that was looked at.
    pub(super) fn learn(&mut self, hash: u64, name: &[u8]) {
        let known = self.turned.iter_mut().find(|turned| turned.hash == hash && turned.name.is_none());
        let Some(turned) = known else { return };
        let mut shown = ArrayVec::new();
        let mut rest = name;
        // The hash is without an implicit digest, and so is what is shown.
        while let Some(len) = component_len(rest).filter(|&len| !is_digest(rest, len)) {
            let (component, behind) = rest.split_at(len);
            if shown.try_extend_from_slice(component).is_err() {
                break;
            }
            rest = behind;
        }
        turned.name = Some(shown);
    }

    /// The names that are hot.
    pub(super) fn hot_names(&self) -> Vec<HotName> {
        let is_hot = |turned: &&HeavyHitter| turned.phase != Phase::Cooling;
        let shown = |turned: &HeavyHitter| HotName {
            hash: turned.hash,
            name: turned.name.as_ref().map(|name| name.to_vec()),
            share_ppm: turned.share_ppm,
        };
        self.turned.iter().filter(is_hot).map(shown).collect()
    }
}

impl HeavyHitter {
    /// Whether it has a place in the table: when it has cooled for a window, it is like all others.
    fn is_there(&self, now: Instant) -> bool {
        self.phase != Phase::Cooling || now.saturating_duration_since(self.at) < WINDOW
    }

    fn turn(&mut self, is_hot: bool, is_calm: bool, now: Instant, settings: &BalanceSettings) {
        let is_over = now.saturating_duration_since(self.at) >= WINDOW;
        self.calm_since = if is_calm { self.calm_since.or(Some(now)) } else { None };
        let has_cooled =
            self.calm_since.is_some_and(|since| now.saturating_duration_since(since) >= settings.calm);
        let next = match self.phase {
            Phase::Warming | Phase::Hot if has_cooled => Phase::Cooling,
            Phase::Warming if is_over => Phase::Hot,
            Phase::Cooling if is_hot && !is_over => Phase::Warming,
            same => same,
        };
        if next != self.phase {
            (self.phase, self.at) = (next, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use kaido_ndn_tables::text::{name, with_digest};

    use super::*;

    struct Rig {
        counts: HeavyHitterCounts,
        hot: HeavyHitters,
        start: Instant,
        summaries: Vec<Summary>,
    }

    impl Rig {
        fn new(workers: u8) -> Self {
            let settings = BalanceSettings { calm: Duration::from_secs(5), ..BalanceSettings::default() };
            let summaries = vec![Summary::default(); workers.into()];
            Self {
                counts: HeavyHitterCounts::new(settings, workers),
                hot: HeavyHitters::new(),
                start: Instant::now(),
                summaries,
            }
        }

        /// A report of each worker at a time, after samples of which so many in a thousand are of name 4.
        fn at(&mut self, millis: u64, in_a_thousand: u64) -> Option<Phase> {
            let now = self.start + Duration::from_millis(millis);
            for (worker, summary) in (0..).zip(&mut self.summaries) {
                summary.fade();
                (0..2000u64).for_each(|sample| {
                    let is_hot = sample % 1000 < in_a_thousand;
                    summary.add(if is_hot { 4 } else { (sample * 977 + millis) << 8 | 0xf0 });
                });
                self.counts.report(worker, summary, now, &self.hot);
            }
            self.hot.phase(4)
        }
    }

    #[test]
    fn a_name_turns_hot_and_cool_with_hysteresis_and_windows() {
        let mut rig = Rig::new(4);
        // A quarter of all is a fair share: a fifth of that is 50 in a thousand, a tenth 25.
        assert_eq!(rig.at(0, 40), None);
        assert_eq!(rig.at(200, 40), None);
        for millis in (400..2000).step_by(200) {
            rig.at(millis, 80);
        }
        assert_eq!((rig.at(2000, 80), rig.hot.len()), (Some(Phase::Warming), 1));
        assert!((60_000..=80_000).contains(&rig.counts.hot_names()[0].share_ppm));
        assert_eq!(rig.at(13_000, 40), Some(Phase::Hot), "less than turns hot, more than lets cool");
        for millis in (13_200..30_000).step_by(200) {
            assert_eq!(rig.at(millis, 40), Some(Phase::Hot));
        }
        for millis in (30_000..34_000).step_by(200) {
            assert_eq!(rig.at(millis, 5), Some(Phase::Hot), "not calm for long enough");
        }
        rig.at(36_500, 5);
        assert_eq!(rig.at(37_000, 5), Some(Phase::Cooling));
        for millis in (37_200..39_000).step_by(200) {
            rig.at(millis, 200);
        }
        assert_eq!(rig.at(39_000, 200), Some(Phase::Warming), "hot again within the window");
        for millis in (50_000..60_000).step_by(200) {
            rig.at(millis, 1);
        }
        assert_eq!(rig.at(60_000, 1), Some(Phase::Cooling));
        assert_eq!(rig.at(71_000, 1), None);
        assert!(rig.hot.is_empty() && rig.counts.hot_names().is_empty());
    }

    #[test]
    fn hot_names_are_shown_without_digest_and_within_a_bound() {
        let mut rig = Rig::new(2);
        rig.at(0, 200);
        assert_eq!(rig.counts.hot_names()[0].name, None);
        assert!(rig.counts.lacks_names());
        let shown = |name: &[u8]| {
            let mut counts = HeavyHitterCounts {
                turned: rig.counts.turned.clone(),
                ..HeavyHitterCounts::new(BalanceSettings::default(), 2)
            };
            counts.learn(5, b"\x08\x01x");
            assert!(counts.lacks_names(), "of another name");
            counts.learn(4, name);
            assert!(!counts.lacks_names());
            counts.learn(4, b"\x08\x01x");
            counts.hot_names()[0].name.clone().unwrap()
        };
        let (short, long) = (name("a/b"), name(&"component/".repeat(60)));
        assert_eq!(shown(&short), short);
        assert_eq!(shown(&with_digest("a/b", [7; 32])), short);
        assert_eq!(shown(&long), long[..46 * 11], "whole components");
        assert_eq!(shown(b""), b"");
    }

    #[test]
    fn few_interests_make_nothing_hot() {
        let (mut counts, hot, start) =
            (HeavyHitterCounts::new(BalanceSettings::default(), 2), HeavyHitters::new(), Instant::now());
        let mut summary = Summary::default();
        (0..60).for_each(|_| summary.add(4));
        counts.report(0, &summary, start, &hot);
        counts.report(1, &summary, start + REPORT_EVERY, &hot);
        assert!(hot.is_empty());
        (0..60).for_each(|_| summary.add(4));
        counts.report(0, &summary, start + 2 * REPORT_EVERY, &hot);
        assert_eq!(hot.phase(4), Some(Phase::Warming));
    }

    #[test]
    fn no_more_names_are_hot_than_there_is_room_for() {
        let (mut counts, hot, start) =
            (HeavyHitterCounts::new(BalanceSettings::default(), 64), HeavyHitters::new(), Instant::now());
        for worker in 0..64u8 {
            let mut summary = Summary::default();
            let name = |number: u64| (u64::from(worker) * 16 + number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            (0..1600).for_each(|number| summary.add(name(number % 16)));
            counts.report(worker, &summary, start + REPORT_EVERY * u32::from(worker), &hot);
        }
        assert!(hot.len() > 16 && hot.len() <= HOT_MAX && counts.turned.len() == hot.len());
    }
}
