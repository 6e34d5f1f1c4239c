//! Figures of a node: what happened between two looks, a second.

use std::collections::HashMap;

use kaido_node::api::{Drop, Port, Worker};
use kaido_node::listing::ListingRow;
use serde_json::{Value, json};

use crate::sampler::{Look, Sample};

/// What is known of a node.
pub(crate) struct Figures {
    pub(crate) now: Look,
    before: Option<Look>,
    /// Octets of rows when they were looked at last.
    rows_before: HashMap<String, (std::time::Instant, Vec<u64>)>,
    pub(crate) rows: Vec<RowRates>,
    /// Why the node does not answer.
    pub(crate) silent: Option<String>,
}

/// A row with the bits a second of each direction.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RowRates {
    pub(crate) row: ListingRow,
    pub(crate) bits: Vec<f64>,
}

/// A port, a second.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct PortRates {
    pub(crate) rx_packets: f64,
    pub(crate) rx_bits: f64,
    pub(crate) tx_packets: f64,
    pub(crate) tx_bits: f64,
    pub(crate) dropped: f64,
    pub(crate) to_kernel: f64,
    /// The part of what was received that the kernel's datapath forwarded, from 0 to 1.
    pub(crate) in_kernel: f64,
}

/// A reason for drops on a port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct DropRate<'f> {
    pub(crate) drop: &'f Drop,
    pub(crate) packets: f64,
}

impl Figures {
    pub(crate) fn new(first: Look) -> Self {
        let (rows_before, rows) = (HashMap::new(), Vec::new());
        Self { now: first, before: None, rows_before, rows, silent: None }
    }

    /// Takes in what has come.
    pub(crate) fn take(&mut self, sample: Sample) {
        let look = match sample {
            Ok(look) => look,
            Err(why) => {
                self.silent = Some(why);
                return;
            }
        };
        self.silent = None;
        // A node that has started anew counts from zero.
        let is_same = look.status.uptime_s >= self.now.status.uptime_s;
        let before = std::mem::replace(&mut self.now, look);
        self.before = is_same.then_some(before);
        if !is_same {
            self.rows_before.clear();
        }
        self.take_rows();
    }

    fn take_rows(&mut self) {
        let Some(Ok(page)) = &self.now.list else { return };
        let at = self.now.at;
        let rates = |row: &ListingRow| {
            let before = self.rows_before.get(&row.key);
            let seconds = before.map_or(0.0, |(then, _)| at.duration_since(*then).as_secs_f64());
            let since = |(direction, octets): (usize, &u64)| {
                let then = before.and_then(|(_, before)| before.get(direction)).unwrap_or(octets);
                a_second(octets.saturating_sub(*then), seconds) * 8.0
            };
            RowRates { row: row.clone(), bits: row.octets.iter().enumerate().map(since).collect() }
        };
        self.rows = page.rows.iter().map(rates).collect();
        self.rows_before = page.rows.iter().map(|row| (row.key.clone(), (at, row.octets.clone()))).collect();
    }

    /// Seconds between the two looks; zero where there is one.
    fn seconds(&self) -> f64 {
        let before = self.before.as_ref().map(|before| before.at);
        before.map_or(0.0, |before| self.now.at.saturating_duration_since(before).as_secs_f64())
    }

    /// The ports with their rates.
    pub(crate) fn ports(&self) -> Vec<(&Port, PortRates)> {
        let seconds = self.seconds();
        let rates = |port: &Port| {
            let before = self.before.iter().flat_map(|before| &before.status.ports);
            let Some(before) = before.into_iter().find(|before| before.name == port.name) else {
                return PortRates::default();
            };
            let since = |of: fn(&Port) -> u64| a_second(of(port).saturating_sub(of(before)), seconds);
            let rx_packets = since(|port| port.rx_packets);
            let in_kernel = since(|port| port.kernel_packets);
            PortRates {
                rx_packets,
                rx_bits: since(|port| port.rx_bytes) * 8.0,
                tx_packets: since(|port| port.tx_packets),
                tx_bits: since(|port| port.tx_bytes) * 8.0,
                dropped: since(|port| port.dropped),
                to_kernel: since(|port| port.to_kernel),
                in_kernel: if rx_packets > 0.0 { (in_kernel / rx_packets).min(1.0) } else { 0.0 },
            }
        };
        self.now.status.ports.iter().map(|port| (port, rates(port))).collect()
    }

    /// The part of its time that each worker turned without a pause, from 0 to 1.
    pub(crate) fn workers(&self) -> Vec<f64> {
        let times =
            |worker: &Worker| (worker.busy_ns, worker.busy_ns + worker.adaptive_ns + worker.interrupt_ns);
        let busy = |(number, worker): (usize, &Worker)| {
            let before = self.before.as_ref().and_then(|before| before.status.per_worker.get(number));
            let ((busy, all), (busy_before, all_before)) = (times(worker), before.map_or((0, 0), times));
            a_second(busy.saturating_sub(busy_before), all.saturating_sub(all_before) as f64).min(1.0)
        };
        self.now.status.per_worker.iter().enumerate().map(busy).collect()
    }

    /// What was dropped, that of this interval first.
    pub(crate) fn drops(&self) -> Vec<DropRate<'_>> {
        let seconds = self.seconds();
        let is_same = |one: &Drop, other: &Drop| one.port == other.port && one.reason == other.reason;
        let rate = |drop| {
            let before = self.before.iter().flat_map(|before| &before.drops);
            let before = before.into_iter().find(|before| is_same(before, drop));
            let packets = match &self.before {
                Some(_) => drop.packets.saturating_sub(before.map_or(0, |before| before.packets)),
                None => 0,
            };
            DropRate { drop, packets: a_second(packets, seconds) }
        };
        let mut drops: Vec<_> = self.now.drops.iter().map(rate).collect();
        drops.sort_by(|one, other| {
            other.packets.total_cmp(&one.packets).then(other.drop.packets.cmp(&one.drop.packets))
        });
        drops
    }

    /// What somebody should look at, in sentences.
    pub(crate) fn alarms(&self) -> Vec<String> {
        let status = &self.now.status;
        let mut alarms = Vec::new();
        alarms.extend(self.silent.clone());
        for (port, rates) in self.ports() {
            match &port.trouble {
                Some(trouble) => alarms.push(format!("port {}: {trouble}", port.name)),
                None if port.state != "up" => alarms.push(format!("port {} is {}", port.name, port.state)),
                None => {}
            }
            if rates.dropped * 100.0 > rates.rx_packets && rates.dropped >= 1.0 {
                alarms.push(format!("port {}: more than 1 % of the packets are dropped", port.name));
            }
        }
        if status.frames_free * 10 < status.frames {
            alarms.push(format!("{} of {} frames are free", status.frames_free, status.frames));
        }
        let refused = status.reload.as_ref().and_then(|reload| reload.refused.as_ref());
        if refused.is_some() {
            alarms
                .push("the configuration that was read last was refused: `kaido reload` says why".to_owned());
        }
        alarms
    }

    /// All of it, for programs.
    pub(crate) fn as_json(&self) -> Value {
        let port = |(port, rates): (&Port, PortRates)| {
            json!({
                "name": port.name,
                "state": port.state,
                "rx_packets_per_second": rates.rx_packets,
                "rx_bits_per_second": rates.rx_bits,
                "tx_packets_per_second": rates.tx_packets,
                "tx_bits_per_second": rates.tx_bits,
                "dropped_per_second": rates.dropped,
                "to_kernel_per_second": rates.to_kernel,
                "in_kernel": rates.in_kernel,
            })
        };
        let drop = |rate: &DropRate<'_>| {
            let Drop { port, reason, packets, .. } = rate.drop;
            json!({ "port": port, "reason": reason, "packets": packets, "packets_per_second": rate.packets })
        };
        json!({
            "node_id": self.now.status.node_id,
            "uptime_s": self.now.status.uptime_s,
            "seconds": self.seconds(),
            "ports": self.ports().into_iter().map(port).collect::<Vec<_>>(),
            "workers_busy": self.workers(),
            "drops": self.drops().iter().map(drop).collect::<Vec<_>>(),
            "alarms": self.alarms(),
        })
    }
}

/// A count of a time, a second.
#[allow(clippy::cast_precision_loss)] // Three digits are shown.
fn a_second(count: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
}
