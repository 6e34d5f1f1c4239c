//! A round: sessions are looked at, one after the other, and what they have carried is sent.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kaido_n4::Volume;

use super::{Active, Baseline, Phase, SESSIONS_OF_UE_MAX, Told, since_it_began};
use crate::item::{Carried, Item, NotificationData, item};
use crate::request::{Threshold, Trigger, Ue};
use crate::subscriptions::{Budget, Notification, Now};
use crate::usage::{SessionId, SessionVolumes, UsageSource};

/// Sessions in a notification.
const SESSIONS_A_NOTIFICATION: usize = 64;

/// Which sessions are looked at.
#[derive(Debug)]
enum Cursor {
    Places(u32),
    Sessions(VecDeque<SessionId>),
}

/// A round under way.
#[derive(Debug)]
pub(super) struct Round {
    cursor: Cursor,
    items: Vec<Item>,
    told: Vec<Told>,
}

impl Round {
    /// What the next notification has.
    pub(super) fn told(&self) -> &[Told] {
        &self.told
    }
}

impl Active {
    pub(super) fn round(&self, source: &mut impl UsageSource) -> Round {
        let cursor = match &self.wanted.ue {
            Ue::Any => Cursor::Places(0),
            Ue::Supi(_) => Cursor::Sessions(self.baselines.keys().copied().collect()),
            Ue::Address(address) => {
                let mut sessions = source.of_address(*address, SESSIONS_OF_UE_MAX);
                sessions.extend(
                    self.baselines
                        .keys()
                        .filter(|known| !sessions.contains(known))
                        .copied()
                        .collect::<Vec<_>>(),
                );
                Cursor::Sessions(sessions.into())
            }
        };
        Round { cursor, items: Vec::new(), told: Vec::new() }
    }

    /// Looks at one more session of a round, and has what was found sent where that is enough, or all.
    pub(super) fn look(
        &mut self,
        source: &mut impl UsageSource,
        now: Now,
        budget: &mut Budget,
        sequence: &mut u64,
        out: &mut Vec<Notification>,
    ) {
        if let Some(last) = self.ended.pop_front() {
            budget.reads -= 1;
            self.look_at_ended(&last, now);
        } else {
            let Phase::Round(round) = &mut self.phase else { return };
            let session = match &mut round.cursor {
                Cursor::Sessions(sessions) => match sessions.pop_front() {
                    Some(session) => Some(session),
                    None => return self.finish(sequence, out),
                },
                Cursor::Places(next) if *next >= source.places() => return self.finish(sequence, out),
                Cursor::Places(next) => {
                    budget.places -= 1;
                    let counted = source.counted(*next);
                    *next += 1;
                    counted.and_then(|(session, counted)| {
                        let known = self.baselines.get(&session).and_then(|known| known.counted);
                        (counted.is_none() || counted != known).then_some(session)
                    })
                }
            };
            let Some(session) = session else { return };
            budget.reads -= 1;
            if let Some(volumes) = source.read(session) {
                self.look_at(volumes, now);
            }
        }
        let Phase::Round(round) = &mut self.phase else { return };
        if round.told.len() >= SESSIONS_A_NOTIFICATION {
            self.send(sequence, out);
        }
    }

    /// All was looked at.
    fn finish(&mut self, sequence: &mut u64, out: &mut Vec<Notification>) {
        self.send(sequence, out);
        self.phase = Phase::Waits;
    }

    fn send(&mut self, sequence: &mut u64, out: &mut Vec<Notification>) {
        let Phase::Round(round) = &mut self.phase else { return };
        let (items, told) = (std::mem::take(&mut round.items), std::mem::take(&mut round.told));
        if items.is_empty() {
            return;
        }
        let data = NotificationData { notification_items: &items, correlation_id: &self.wanted.correlation };
        let Ok(body) = serde_json::to_vec(&data) else { return };
        *sequence += 1;
        let consumer = self.wanted.consumer.clone();
        out.push(Notification { sequence: *sequence, consumer, body, subscription: self.number });
        self.on_way.insert(*sequence, told);
    }

    fn look_at(&mut self, volumes: SessionVolumes, now: Now) {
        let has_parts = !self.is_any();
        let session = volumes.session;
        if !self.is_about(&volumes) || !volumes.ue.is_known() {
            // It is not looked at again before it has carried something.
            self.baselines.insert(session, Baseline::of(volumes, now.wall, has_parts));
            return;
        }
        let found = self.carried(&volumes, now, false);
        match found {
            Some(items) => {
                let Phase::Round(round) = &mut self.phase else { return };
                round.items.extend(items);
                round.told.push(Told::Until(session, Baseline::of(volumes, now.wall, has_parts)));
            }
            // What differs is where it is counted alone.
            None if self.has_told_all(&volumes) => {
                let at = self.baselines.get(&session).and_then(|known| known.at);
                let baseline = Baseline::of(volumes, now.wall, has_parts);
                self.baselines.insert(session, Baseline { at, ..baseline });
            }
            None => {}
        }
    }

    fn has_told_all(&self, volumes: &SessionVolumes) -> bool {
        let known = self.baselines.get(&volumes.session);
        self.is_any() && known.is_some_and(|known| known.whole == volumes.whole)
    }

    fn look_at_ended(&mut self, last: &Arc<SessionVolumes>, now: Now) {
        let items = self.carried(last, now, true);
        let Phase::Round(round) = &mut self.phase else { return };
        match items {
            Some(items) => {
                round.items.extend(items);
                round.told.push(Told::Last(last.clone()));
            }
            None => {
                self.baselines.remove(&last.session);
            }
        }
    }

    /// The items of what a session has carried since its baseline, if that is to be told.
    fn carried(&mut self, volumes: &SessionVolumes, now: Now, has_ended: bool) -> Option<Vec<Item>> {
        if self.wanted.trigger == Trigger::OneTime(Duration::ZERO) {
            let carried = since_it_began(volumes, now);
            let items =
                self.wanted.events.iter().filter_map(|event| item(event, &carried)).collect::<Vec<_>>();
            return (!items.is_empty()).then_some(items);
        }
        let known = self.baselines.get(&volumes.session).cloned().unwrap_or_default();
        let whole = volumes.whole.since(&known.whole);
        let is_told = match self.wanted.trigger {
            _ if has_ended || self.is_any() => whole != Volume::default(),
            _ => true,
        };
        let is_reached = match self.wanted.trigger {
            Trigger::Threshold(threshold) if !has_ended => is_reached(&threshold, &whole),
            _ => true,
        };
        if !is_told || !is_reached {
            return None;
        }
        let from = known.at.unwrap_or(self.since);
        let time = now.wall.duration_since(from).unwrap_or_default();
        let parts =
            volumes.parts.iter().map(|(scope, volume)| (scope, volume.since(&known.part(scope)))).collect();
        let trend = self.trends.get_mut(&volumes.session);
        let peaks = trend.map(|trend| trend.carry(&whole, time));
        let carried = Carried { of: volumes, whole, parts, from: Some(from), to: now.wall, time, peaks };
        let items: Vec<_> = self.wanted.events.iter().filter_map(|event| item(event, &carried)).collect();
        (!items.is_empty()).then_some(items)
    }
}

fn is_reached(threshold: &Threshold, volume: &Volume) -> bool {
    let Threshold { total, uplink, downlink } = *threshold;
    let pairs =
        [(total, volume.total_bytes()), (uplink, volume.uplink_bytes), (downlink, volume.downlink_bytes)];
    pairs.iter().any(|(most, carried)| most.is_some_and(|most| *carried >= most))
}
