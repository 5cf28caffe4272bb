//! Details of network tests besides their rate.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::network::{Counts, Datagrams, Flow, Outcome, RateSpread};
use crate::statistics::median;

/// All repeats of flows together.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkDetails {
    /// The rates of single flows, if there are several, in bytes a second.
    pub flow_rates: Option<RateSpread>,
    /// The rate of each system, if there are several at once; the median of the repeats.
    pub systems: Vec<(String, f64)>,
    /// Retransmitted TCP segments of these connections, by the senders' kernels.
    pub retransmitted: u64,
    /// All sent TCP segments.
    pub segments: u64,
    /// UDP datagrams.
    pub datagrams: Option<Datagrams>,
    /// Datagrams that found no room in a socket, on both machines. Other traffic is included.
    pub no_room: u64,
    /// Packets that the interfaces dropped, on both machines.
    pub interface_drops: u64,
    /// The interfaces of the flows on this machine.
    pub interfaces: Vec<String>,
}

impl NetworkDetails {
    /// Combines all repeats, each with the outcomes of every client machine and system. `None`: nothing flowed.
    #[must_use]
    pub fn of(repeats: &[&[Outcome]]) -> Option<Self> {
        let outcomes: Vec<&Outcome> = repeats.iter().copied().flatten().collect();
        let first = repeats.iter().find(|outcomes| !outcomes.is_empty())?;
        let flows = || outcomes.iter().flat_map(|outcome| outcome.flows());
        let rates: Vec<f64> = flows().map(Flow::rate).collect();
        // In the campaign's order, which each repeat keeps.
        let mut names: Vec<&str> = Vec::new();
        for outcome in &outcomes {
            if !names.contains(&outcome.system.as_str()) {
                names.push(&outcome.system);
            }
        }
        let of_system = |name: &str| {
            let of_repeat = |outcomes: &&[Outcome]| {
                let rates: Vec<f64> =
                    outcomes.iter().filter(|outcome| outcome.system == name).map(Outcome::rate).collect();
                (!rates.is_empty()).then(|| rates.iter().sum())
            };
            let rates: Vec<f64> = repeats.iter().filter_map(of_repeat).collect();
            Some((name.to_owned(), median(&rates)?))
        };
        let tcp = || flows().filter_map(|flow| flow.tcp.as_ref());
        let sum = |all: Datagrams, one: Datagrams| Datagrams {
            sent: all.sent + one.sent,
            received: all.received + one.received,
            reordered: all.reordered + one.reordered,
            duplicates: all.duplicates + one.duplicates,
        };
        let drops =
            |counts: &Counts| -> u64 { counts.interfaces.values().map(|one| one.receive_lost + one.send_lost).sum() };
        let no_room = |counts: &Counts| counts.udp_receive_dropped;
        // If several machines test with one server, each of them has the server's same counters.
        let on_both = |count: &dyn Fn(&Counts) -> u64| -> u64 {
            let of_repeat = |outcomes: &&[Outcome]| {
                let mut server = BTreeMap::<&str, u64>::new();
                for outcome in *outcomes {
                    let most = server.entry(&outcome.peer).or_default();
                    *most = (*most).max(count(&outcome.server.counts));
                }
                outcomes.iter().map(|outcome| count(&outcome.client.counts)).chain(server.into_values()).sum::<u64>()
            };
            repeats.iter().map(of_repeat).sum()
        };
        let mut interfaces: Vec<String> = outcomes.iter().map(|outcome| outcome.client.interface.clone()).collect();
        let with_one = |outcome: &&Outcome| Some(&outcome.system.as_str()) == names.first();
        let flows_of_one = first.iter().filter(with_one).flat_map(Outcome::flows).count();
        interfaces.sort_unstable();
        interfaces.dedup();
        interfaces.retain(|name| !name.is_empty());
        Some(Self {
            flow_rates: (flows_of_one > 1).then(|| RateSpread::of(&rates)).flatten(),
            systems: if names.len() > 1 { names.into_iter().filter_map(of_system).collect() } else { Vec::new() },
            retransmitted: tcp().map(|tcp| u64::from(tcp.retransmitted)).sum(),
            segments: tcp().map(|tcp| u64::from(tcp.sent)).sum(),
            datagrams: flows().filter_map(|flow| flow.datagrams).reduce(sum),
            no_room: on_both(&no_room),
            interface_drops: on_both(&drops),
            interfaces,
        })
    }

    /// Returns a text to follow a rate.
    #[must_use]
    pub fn text(&self, rate: impl Fn(f64) -> String) -> String {
        let mut out = String::new();
        if let Some(RateSpread { min, median, max }) = self.flow_rates {
            let _ = write!(out, ", flows {} / {} / {}", rate(min), rate(median), rate(max));
        }
        for (name, figure) in &self.systems {
            let _ = write!(out, ", {name} {}", rate(*figure));
        }
        if self.segments > 0 {
            let _ = write!(out, ", {} of {} segments retransmitted", self.retransmitted, self.segments);
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
    use crate::network::{DirectionOutcome, MachineCounters, TcpState};

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
        let side = MachineCounters { interface: "eth0".into(), ..MachineCounters::default() };
        let flows = bytes.iter().enumerate().map(flow).collect();
        let ways = vec![DirectionOutcome { to: true, flows }];
        Outcome { system: system.into(), peer: "h:1".into(), client: side.clone(), server: side, ways }
    }

    fn text(repeats: &[&[Outcome]]) -> String {
        NetworkDetails::of(repeats).unwrap().text(|rate| format!("{rate}"))
    }

    #[test]
    fn flow_rates_and_retransmissions_are_shown() {
        let (first, second) = (outcome("a", &[1, 5, 9], None), outcome("a", &[5, 6, 7], None));
        assert_eq!(text(&[&[first], &[second]]), ", flows 1 / 5.5 / 9, 18 of 600 segments retransmitted, by eth0");
        assert_eq!(text(&[&[outcome("a", &[1], None)]]), ", 3 of 100 segments retransmitted, by eth0");
        assert_eq!(NetworkDetails::of(&[]), None);
    }

    #[test]
    fn systems_at_once_are_shown_separately() {
        let all = [outcome("b", &[4], None), outcome("a", &[8], None)];
        assert_eq!(text(&[&all, &all]), ", b 4, a 8, 12 of 400 segments retransmitted, by eth0");
    }

    #[test]
    fn rates_of_several_clients_are_added_and_the_servers_counters_are_not() {
        let counted = |client: u64, server: u64| {
            let mut outcome = outcome("a", &[4], Some(Datagrams { sent: 9, received: 9, ..Datagrams::default() }));
            (outcome.client.counts.udp_receive_dropped, outcome.server.counts.udp_receive_dropped) = (client, server);
            outcome
        };
        let other = || Outcome { system: "b".into(), peer: "i:1".into(), ..counted(0, 5) };
        let found = NetworkDetails::of(&[&[counted(1, 10), counted(2, 11), other()], &[counted(0, 7)]]).unwrap();
        assert_eq!(found.systems, [("a".to_owned(), 6.0), ("b".to_owned(), 4.0)]);
        assert_eq!(found.no_room, 1 + 2 + 11 + 5 + 7);
    }

    #[test]
    fn loss_is_a_share_of_the_sent_datagrams() {
        let datagrams = Datagrams { sent: 1000, received: 990, reordered: 2, duplicates: 0 };
        assert_eq!(text(&[&[outcome("a", &[1], Some(datagrams))]]), ", 1.000 % lost, 2 reordered, by eth0");
    }
}
