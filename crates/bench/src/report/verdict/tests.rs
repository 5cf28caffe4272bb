//! Each row of the table with artificial evidence, and the table in the documentation.

use std::collections::BTreeSet;

use super::*;
use crate::report::{Ceiling, Stage};
use crate::sampling::PressureShares;

/// An almost idle machine.
fn idle(name: &str) -> Machine {
    Machine {
        name: name.into(),
        seconds: 10.0,
        cpu: 0.2,
        core: 0.4,
        link: Some(Link { name: "eth0".into(), rate: 300e6, speed: Some(1250e6) }),
        segments: 50_000.0,
        retransmitted: 0.001,
        disk: Some(DiskUse { name: "sda".into(), busy: 0.3, queue: 4.0, rate: 200e6 }),
        pressure: Some(PressureShares { cpu: 0.1, memory: 0.0, io: 0.2, io_full: 0.1 }),
    }
}

/// Eight workers read large blocks over a network, and nothing is busy.
fn nothing() -> Evidence {
    Evidence {
        way: DataRoute::Network,
        is_networked: true,
        is_foreign: false,
        seconds: 10.0,
        figure: 300e6,
        asked: None,
        at_once: 0.0,
        ceilings: vec![ceiling(Stage::Client, 0.3), ceiling(Stage::Disk, 0.5)],
        clients: vec![idle("this client")],
        servers: Vec::new(),
        workers: 8,
        bench_cores: 1.0,
        under_way: 8.0,
        latency_us: Some(4000),
        operation_bytes: 1e6,
        growth: Some(Growth { fewer: 4, ratio: 1.6 }),
        own_directories: None,
    }
}

fn ceiling(stage: Stage, share: f64) -> Ceiling {
    Ceiling { stage, rate: 300e6 / share, share }
}

fn with_client(change: impl Fn(&mut Machine)) -> Evidence {
    let mut machine = idle("this client");
    change(&mut machine);
    Evidence { way: DataRoute::Path, clients: vec![machine], ..nothing() }
}

fn with_server(change: impl Fn(&mut Machine)) -> Evidence {
    let mut machine = idle("server a");
    change(&mut machine);
    Evidence { servers: vec![idle("server b"), machine], ..nothing() }
}

fn disk(busy: f64, queue: f64) -> Option<DiskUse> {
    Some(DiskUse { name: "sdb".into(), busy, queue, rate: 400e6 })
}

fn link(rate: f64) -> Option<Link> {
    Some(Link { name: "eth1".into(), rate, speed: Some(125e6) })
}

fn pressure(memory: f64, io: f64) -> Option<PressureShares> {
    Some(PressureShares { cpu: 0.0, memory, io, io_full: 0.0 })
}

fn small(found: Evidence) -> Evidence {
    Evidence { operation_bytes: 4096.0, ..found }
}

/// The expected verdicts, with a word of their evidence.
fn cases() -> Vec<(Bound, &'static str, Evidence)> {
    let grown = |ratio| Evidence { growth: Some(Growth { fewer: 2, ratio }), ..nothing() };
    vec![
        (Bound::AskedRate, "98 %", Evidence { asked: Some(305e6), ..nothing() }),
        (Bound::NotKnown, "no server was watched", Evidence { asked: Some(400e6), ..nothing() }),
        (Bound::AskedRate, "107 %", Evidence { asked: Some(280e6), at_once: 15e6, ..nothing() }),
        // More than the requested rate: that rate is not the bottleneck.
        (Bound::NotKnown, "no server was watched", Evidence { asked: Some(200e6), ..nothing() }),
        (Bound::Generator, "90 %", Evidence { ceilings: vec![ceiling(Stage::Client, 0.9)], ..nothing() }),
        (Bound::Generator, "alone", Evidence { way: DataRoute::None, ..nothing() }),
        (Bound::NetworkStage, "95 %", Evidence { ceilings: vec![ceiling(Stage::Network, 0.95)], ..nothing() }),
        (
            Bound::NotKnown,
            "50 % of the rate of the network",
            Evidence { ceilings: vec![ceiling(Stage::Network, 0.5)], ..nothing() },
        ),
        (Bound::DiskStage, "93 %", Evidence { ceilings: vec![ceiling(Stage::Disk, 0.93)], ..nothing() }),
        (
            Bound::NotKnown,
            "80 % of the rate of the disk",
            Evidence { ceilings: vec![ceiling(Stage::Disk, 0.8)], ..nothing() },
        ),
        // A rate above the ceiling comes from a cache, so that ceiling does not count.
        (
            Bound::NotKnown,
            "170 % of the rate of the disk",
            Evidence { ceilings: vec![ceiling(Stage::Disk, 1.7)], ..nothing() },
        ),
        (Bound::ClientCpu, "95 % of the time; the bench itself used 1.0 processors", with_client(|m| m.cpu = 0.95)),
        (
            Bound::ClientCpu,
            "the server also runs on it",
            Evidence { way: DataRoute::SameMachine, ..with_client(|m| m.cpu = 0.95) },
        ),
        (Bound::ServerCpu, "server a", with_server(|m| m.cpu = 0.95)),
        (Bound::ClientCore, "one processor of this client", with_client(|m| m.core = 1.0)),
        (Bound::NotKnown, "one of them 90 %", with_client(|m| m.core = 0.9)),
        (Bound::ClientCore, "7.60 processors", Evidence { bench_cores: 7.6, ..nothing() }),
        (Bound::NotKnown, "", Evidence { bench_cores: 7.6, is_foreign: true, ..nothing() }),
        (Bound::ServerCore, "server a", with_server(|m| m.core = 0.99)),
        (Bound::Link, "eth1 of this client moved 120 of at most 125 MB/s", with_client(|m| m.link = link(120e6))),
        // A local disk does not use the network.
        (Bound::NotKnown, "eth1", Evidence { is_networked: false, ..with_client(|m| m.link = link(120e6)) }),
        (Bound::NotKnown, "", Evidence { is_networked: false, ..with_client(|m| m.retransmitted = 0.03) }),
        // A share of few segments means nothing.
        (Bound::NotKnown, "", with_client(|m| (m.segments, m.retransmitted) = (40.0, 0.03))),
        (Bound::Link, "server a", with_server(|m| m.link = link(124e6))),
        (Bound::NotKnown, "eth1 100 MB/s of 125 MB/s", with_client(|m| m.link = link(100e6))),
        (Bound::Retransmits, "3.0 %", with_client(|m| m.retransmitted = 0.03)),
        (Bound::Disk, "sdb of this client was busy 97 %", with_client(|m| m.disk = disk(0.97, 8.0))),
        (Bound::Disk, "latency", with_client(|m| m.disk = disk(0.97, 1.0))),
        (Bound::Disk, "server a", with_server(|m| m.disk = disk(1.0, 8.0))),
        // The client's own disk holds none of a remote server's data.
        (
            Bound::NotKnown,
            "sdb 100 % busy",
            Evidence { way: DataRoute::Network, ..with_client(|m| m.disk = disk(1.0, 8.0)) },
        ),
        (Bound::Io, "waited for I/O 80 %", with_client(|m| m.pressure = pressure(0.0, 0.8))),
        (Bound::Memory, "for memory 20 %", with_client(|m| m.pressure = pressure(0.2, 0.5))),
        (Bound::OneDirectory, "3.00 times", Evidence { own_directories: Some(3.0), ..small(nothing()) }),
        (Bound::Answers, "8 workers", Evidence { own_directories: Some(1.1), ..small(nothing()) }),
        (
            Bound::Locks,
            "8 workers did 1.02 times the work of 2",
            Evidence { servers: vec![idle("server a")], ..grown(1.02) },
        ),
        (Bound::Locks, "0.70", Evidence { way: DataRoute::Path, is_networked: false, ..small(grown(0.7)) }),
        // The server was not watched.
        (Bound::NotKnown, "no server was watched", grown(1.02)),
        (Bound::NotKnown, "", Evidence { way: DataRoute::Path, ..grown(1.02) }),
        // Only twice the workers are meaningful.
        (Bound::NotKnown, "", Evidence { growth: Some(Growth { fewer: 6, ratio: 1.0 }), ..nothing() }),
        (Bound::Answers, "4 ms", small(nothing())),
        (Bound::NotKnown, "", Evidence { under_way: 4.0, ..small(nothing()) }),
        // Half of the time was computing, within the system calls.
        (Bound::NotKnown, "", Evidence { bench_cores: 4.0, ..small(nothing()) }),
        (Bound::Between, "8.0 requests", with_server(|_| ())),
        (Bound::NotKnown, "", Evidence { under_way: 4.0, ..with_server(|_| ()) }),
        (Bound::NotKnown, "too short", Evidence { clients: vec![], ..nothing() }),
        (Bound::NotKnown, "too short", Evidence { seconds: 0.4, bench_cores: 8.0, ..with_client(|m| m.cpu = 1.0) }),
        (Bound::NotKnown, "busy, one of them 40 %", Evidence { seconds: 0.4, ..small(nothing()) }),
        (Bound::NotKnown, "too short for a verdict from these figures", Evidence { seconds: 0.4, ..small(nothing()) }),
        (Bound::AskedRate, "100 %", Evidence { seconds: 0.4, asked: Some(300e6), ..nothing() }),
        (Bound::DiskStage, "93 %", Evidence { seconds: 0.4, ceilings: vec![ceiling(Stage::Disk, 0.93)], ..nothing() }),
    ]
}

#[test]
fn each_row_is_decided_by_its_evidence() {
    for (bound, word, found) in cases() {
        let verdict = decide(&found);
        assert_eq!(verdict.bound, bound, "{} of {found:#?}", verdict.evidence);
        assert!(verdict.evidence.contains(word), "`{word}` is not in `{}`", verdict.evidence);
    }
}

#[test]
fn each_row_has_a_case() {
    let tried: BTreeSet<Bound> = cases().into_iter().map(|case| case.0).collect();
    assert_eq!(tried, RULES.iter().map(|rule| rule.bound).collect());
}

#[test]
fn a_row_goes_before_those_below_it() {
    // Everything that can be busy is busy.
    let busy = |m: &mut Machine| {
        (m.cpu, m.core, m.retransmitted) = (1.0, 1.0, 0.5);
        (m.link, m.disk, m.pressure) = (link(125e6), disk(1.0, 9.0), pressure(0.9, 0.9));
    };
    let mut all = Evidence { servers: with_server(busy).servers, ..with_client(busy) };
    assert_eq!(decide(&all).bound, Bound::ClientCpu);
    all.clients.clear();
    assert_eq!(decide(&all).bound, Bound::ServerCpu);
    all.asked = Some(300e6);
    assert_eq!(decide(&all).bound, Bound::AskedRate);
}

#[test]
fn the_documentation_has_the_same_rows() {
    let docs = include_str!("../../../../../docs/how-to/bench.md");
    let shown = |rule: &Rule| format!("| `{}` | {} | {} |", rule.bound.name(), (rule.when)(), rule.says);
    let rows: Vec<String> = RULES.iter().map(shown).collect();
    let title = "| verdict | condition | what bounds the figure |\n| --- | --- | --- |\n";
    let found: Vec<&str> = docs
        .split_once(title)
        .map(|(_, rest)| rest.lines().take_while(|line| line.starts_with('|')).collect())
        .unwrap_or_default();
    assert_eq!(found, rows, "the table in docs/how-to/bench.md has to be\n{title}{}", rows.join("\n"));
}
