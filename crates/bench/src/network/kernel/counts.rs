//! Counters of the whole machine (`/proc/net`). The difference of two readings includes other traffic.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The counters of one interface (`/proc/net/dev`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct InterfaceCounts {
    /// Bytes received.
    pub received: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Received packets that were dropped or damaged.
    pub receive_lost: u64,
    /// Packets to send that were dropped or failed.
    pub send_lost: u64,
}

/// The kernel's counters.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Counts {
    /// TCP segments sent.
    pub tcp_sent: u64,
    /// TCP segments retransmitted.
    pub tcp_retransmitted: u64,
    /// Retransmission timeouts without any answer.
    pub tcp_timeouts: u64,
    /// TCP segments dropped for lack of room, in a socket's backlog or its receive queue.
    pub tcp_dropped: u64,
    /// Received UDP datagrams that found no room (`RcvbufErrors`).
    pub udp_receive_dropped: u64,
    /// UDP datagrams to send that found no room (`SndbufErrors`).
    pub udp_send_dropped: u64,
    /// Interfaces by name.
    pub interfaces: BTreeMap<String, InterfaceCounts>,
}

impl Counts {
    /// Reads the counters, and those of the interfaces in `names`. A counter that the kernel does not show is 0.
    #[must_use]
    pub fn read(names: &[String]) -> Self {
        let text = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap_or_default();
        Self::of(&text("snmp"), &text("netstat"), &text("dev"), names)
    }

    fn of(snmp: &str, netstat: &str, dev: &str, names: &[String]) -> Self {
        Self {
            tcp_sent: value(snmp, "Tcp:", "OutSegs"),
            tcp_retransmitted: value(snmp, "Tcp:", "RetransSegs"),
            tcp_timeouts: value(netstat, "TcpExt:", "TCPTimeouts"),
            tcp_dropped: value(netstat, "TcpExt:", "TCPBacklogDrop") + value(netstat, "TcpExt:", "TCPRcvQDrop"),
            udp_receive_dropped: value(snmp, "Udp:", "RcvbufErrors"),
            udp_send_dropped: value(snmp, "Udp:", "SndbufErrors"),
            interfaces: interfaces(dev, names),
        }
    }

    /// Returns the difference to `before`. A counter that went back (its device was removed) counts as 0.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let interface = |(name, now): (&String, &InterfaceCounts)| {
            let then = before.interfaces.get(name)?;
            let counts = InterfaceCounts {
                received: now.received.saturating_sub(then.received),
                sent: now.sent.saturating_sub(then.sent),
                receive_lost: now.receive_lost.saturating_sub(then.receive_lost),
                send_lost: now.send_lost.saturating_sub(then.send_lost),
            };
            Some((name.clone(), counts))
        };
        Self {
            tcp_sent: self.tcp_sent.saturating_sub(before.tcp_sent),
            tcp_retransmitted: self.tcp_retransmitted.saturating_sub(before.tcp_retransmitted),
            tcp_timeouts: self.tcp_timeouts.saturating_sub(before.tcp_timeouts),
            tcp_dropped: self.tcp_dropped.saturating_sub(before.tcp_dropped),
            udp_receive_dropped: self.udp_receive_dropped.saturating_sub(before.udp_receive_dropped),
            udp_send_dropped: self.udp_send_dropped.saturating_sub(before.udp_send_dropped),
            interfaces: self.interfaces.iter().filter_map(interface).collect(),
        }
    }
}

/// Finds a value. These files have lines in pairs: names, then values.
fn value(text: &str, kind: &str, name: &str) -> u64 {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind));
    let mut found = || {
        let place = lines.next()?.split_ascii_whitespace().position(|word| word == name)?;
        lines.next()?.split_ascii_whitespace().nth(place)?.parse().ok()
    };
    found().unwrap_or(0)
}

fn interfaces(dev: &str, names: &[String]) -> BTreeMap<String, InterfaceCounts> {
    let one = |line: &str| {
        let (name, words) = line.split_once(':')?;
        let name = name.trim();
        let n: Vec<u64> = words.split_ascii_whitespace().map(|word| word.parse().unwrap_or(0)).collect();
        let at = |place: usize| n.get(place).copied().unwrap_or(0);
        let counts = InterfaceCounts {
            received: at(0),
            sent: at(8),
            receive_lost: at(2) + at(3) + at(4),
            send_lost: at(10) + at(11) + at(12),
        };
        (n.len() >= 16 && names.iter().any(|wanted| wanted == name)).then(|| (name.to_owned(), counts))
    };
    dev.lines().filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str =
        "Tcp: RtoMin OutSegs RetransSegs\nTcp: 200 77 5\nUdp: InDatagrams RcvbufErrors SndbufErrors\nUdp: 1 2 3\n";
    const NETSTAT: &str = "TcpExt: TW TCPTimeouts TCPBacklogDrop TCPRcvQDrop\nTcpExt: 9 4 6 1\n";
    const DEV: &str =
        " face |bytes\n  eth0: 1000 10 1 2 3 0 0 0 2000 20 4 5 6 0 0 0\n    lo: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1\n";

    #[test]
    fn the_kernels_files_are_read() {
        let names = ["eth0".to_owned(), "eth1".to_owned()];
        let counts = Counts::of(SNMP, NETSTAT, DEV, &names);
        assert_eq!((counts.tcp_sent, counts.tcp_retransmitted, counts.tcp_timeouts, counts.tcp_dropped), (77, 5, 4, 7));
        assert_eq!((counts.udp_receive_dropped, counts.udp_send_dropped), (2, 3));
        let eth0 = InterfaceCounts { received: 1000, sent: 2000, receive_lost: 6, send_lost: 15 };
        assert_eq!(counts.interfaces.iter().collect::<Vec<_>>(), [(&names[0], &eth0)]);
        for text in ["", "Tcp: a\n", "Tcp: OutSegs\nTcp: x\n", "eth0:\n"] {
            assert_eq!(Counts::of(text, text, text, &names), Counts::default());
        }
    }

    #[test]
    fn two_readings_give_the_difference() {
        let names = ["eth0".to_owned()];
        let before = Counts::of(SNMP, NETSTAT, DEV, &names);
        let more = Counts::of(&SNMP.replace("77 5", "100 6"), NETSTAT, &DEV.replace("2000", "5000"), &names);
        let between = more.since(&before);
        assert_eq!((between.tcp_sent, between.tcp_retransmitted, between.udp_send_dropped), (23, 1, 0));
        assert_eq!(between.interfaces["eth0"], InterfaceCounts { sent: 3000, ..InterfaceCounts::default() });
        assert_eq!(before.since(&more).tcp_sent, 0);
    }

    #[test]
    fn this_machine_counts() {
        assert!(Counts::read(&["lo".to_owned()]).interfaces.contains_key("lo"));
    }
}
