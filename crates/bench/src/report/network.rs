//! What is said of flows besides their rate.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::network::{Datagrams, Flow, Outcome, Spread};
use crate::statistics::median;

/// All repeats of flows together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkDetails {
    /// Rates of single flows, where there are several: bytes a second.
    pub flow_rates: Option<Spread>,
    /// Rates with each system, where there are several at once: the median over the repeats.
    pub systems: Vec<(String, f64)>,
    /// TCP segments sent more than once, as the senders' kernels count them for these connections.
    pub retransmitted: u64,
    /// TCP segments sent.
    pub segments: u64,
    /// Datagrams of UDP.
    pub datagrams: Option<Datagrams>,
    /// Datagrams that came and found no room in a socket, on both machines; others' are among them.
    pub no_room: u64,
    /// Packets that interfaces on the way dropped, on both machines.
    pub interface_drops: u64,
    /// The interfaces that flows took on this machine.
    pub interfaces: Vec<String>,
}

impl NetworkDetails {
    /// Of all repeats; `None` where nothing flowed.
    #[must_use]
    pub fn of(outcomes: &[&Outcome]) -> Option<Self> {
        let first = outcomes.first()?;
        let flows = || outcomes.iter().flat_map(|outcome| outcome.flows());
        let rates: Vec<f64> = flows().map(Flow::rate).collect();
        // In the campaign's order, as each repeat has them.
        let mut names: Vec<&str> = Vec::new();
        for outcome in outcomes {
            if !names.contains(&outcome.system.as_str()) {
                names.push(&outcome.system);
            }
        }
        let of_system = |name: &str| {
            let rates: Vec<f64> =
                outcomes.iter().filter(|outcome| outcome.system == name).map(|outcome| outcome.rate()).collect();
            Some((name.to_owned(), median(&rates)?))
        };
        let tcp = || flows().filter_map(|flow| flow.tcp.as_ref());
        let sum = |all: Datagrams, one: Datagrams| Datagrams {
            sent: all.sent + one.sent,
            received: all.received + one.received,
            reordered: all.reordered + one.reordered,
            duplicates: all.duplicates + one.duplicates,
        };
        let counts = || outcomes.iter().flat_map(|outcome| [&outcome.near.counts, &outcome.far.counts]);
        let drops = |counts: &crate::network::Counts| -> u64 {
            counts.interfaces.values().map(|one| one.receive_lost + one.send_lost).sum()
        };
        let mut interfaces: Vec<String> = outcomes.iter().map(|outcome| outcome.near.interface.clone()).collect();
        interfaces.sort_unstable();
        interfaces.dedup();
        interfaces.retain(|name| !name.is_empty());
        Some(Self {
            flow_rates: (first.flows().count() > 1).then(|| Spread::of(&rates)).flatten(),
            systems: if names.len() > 1 { names.into_iter().filter_map(of_system).collect() } else { Vec::new() },
            retransmitted: tcp().map(|tcp| u64::from(tcp.retransmitted)).sum(),
            segments: tcp().map(|tcp| u64::from(tcp.sent)).sum(),
            datagrams: flows().filter_map(|flow| flow.datagrams).reduce(sum),
            no_room: counts().map(|counts| counts.udp_receive_dropped).sum(),
            interface_drops: counts().map(drops).sum(),
            interfaces,
        })
    }

    /// As people read it, to stand behind a rate.
    #[must_use]
    pub fn text(&self, rate: impl Fn(f64) -> String) -> String {
        let mut out = String::new();
        if let Some(Spread { min, median, max }) = self.flow_rates {
            let _ = write!(out, ", flows {} / {} / {}", rate(min), rate(median), rate(max));
        }
        for (name, figure) in &self.systems {
            let _ = write!(out, ", {name} {}", rate(*figure));
        }
        if self.segments > 0 {
            let _ = write!(out, ", {} of {} segments sent again", self.retransmitted, self.segments);
        }
        if let Some(datagrams) = self.datagrams {
            let _ = write!(out, ", {:.3} % lost", 100.0 * share(datagrams.lost(), datagrams.sent));
            for (count, what) in [(datagrams.reordered, "reordered"), (datagrams.duplicates, "came twice")] {
                if count > 0 {
                    let _ = write!(out, ", {count} {what}");
                }
            }
            if self.no_room > 0 {
                let _ = write!(out, ", {} found no room in a socket", self.no_room);
            }
        }
        if self.interface_drops > 0 {
            let _ = write!(out, ", {} dropped by interfaces", self.interface_drops);
        }
        if !self.interfaces.is_empty() {
            let _ = write!(out, ", by {}", self.interfaces.join(" and "));
        }
        out
    }
}

#[allow(clippy::cast_precision_loss)] // a share
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Side, TcpState, Way};

    fn outcome(system: &str, bytes: &[u64], datagrams: Option<Datagrams>) -> Outcome {
        let tcp = TcpState {
            retransmitted: 3,
            sent: 100,
            segment_bytes: 1448,
            round_trip_us: 100,
            window_segments: 10,
            congestion: "cubic".into(),
        };
        let flow = |(number, bytes): (usize, &u64)| Flow {
            number: u32::try_from(number).unwrap(),
            bytes: *bytes,
            arrived: *bytes,
            operations: 1,
            seconds: 1.0,
            sent: *bytes,
            tcp: datagrams.is_none().then(|| tcp.clone()),
            datagrams,
            failures: vec![],
        };
        let side = Side { interface: "eth0".into(), ..Side::default() };
        let flows = bytes.iter().enumerate().map(flow).collect();
        let ways = vec![Way { to: true, flows }];
        Outcome { system: system.into(), peer: "h:1".into(), near: side.clone(), far: side, ways }
    }

    fn text(outcomes: &[&Outcome]) -> String {
        NetworkDetails::of(outcomes).unwrap().text(|rate| format!("{rate}"))
    }

    #[test]
    fn flows_are_told_apart_and_what_was_sent_again_is_told() {
        let (first, second) = (outcome("a", &[1, 5, 9], None), outcome("a", &[5, 6, 7], None));
        assert_eq!(text(&[&first, &second]), ", flows 1 / 5.5 / 9, 18 of 600 segments sent again, by eth0");
        assert_eq!(text(&[&outcome("a", &[1], None)]), ", 3 of 100 segments sent again, by eth0");
        assert_eq!(NetworkDetails::of(&[]), None);
    }

    #[test]
    fn systems_at_once_are_told_apart() {
        let (a, b) = (outcome("b", &[4], None), outcome("a", &[8], None));
        assert_eq!(text(&[&a, &b, &a, &b]), ", b 4, a 8, 12 of 400 segments sent again, by eth0");
    }

    #[test]
    fn loss_is_a_share_of_what_was_sent() {
        let datagrams = Datagrams { sent: 1000, received: 990, reordered: 2, duplicates: 0 };
        assert_eq!(text(&[&outcome("a", &[1], Some(datagrams))]), ", 1.000 % lost, 2 reordered, by eth0");
    }
}
