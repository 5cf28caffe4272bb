//! The coordinator's machine in a simulated world.

mod world;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use self::world::{Agent, RATE, START, World, job, sample};
use super::message::{AgentMessage, CoordinatorMessage};
use super::{Event, Input, Kind, Machine, Output};
use crate::load::Reading;

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn all_start_at_the_same_moment_whatever_their_clocks_show() {
    let mut world = World::new(5);
    for peer in 1..=5_u64 {
        let ahead_us = 3_600_000_000 * (i64::try_from(peer).unwrap() - 3);
        world.join(peer, Agent { ahead_us, delay: Duration::from_millis(peer), ..Agent::default() });
    }
    world.steps(3);
    world.input(Input::Muster);
    let outcome = world.phase(job(10));
    let (first, last) = (world.starts.iter().min().unwrap(), world.starts.iter().max().unwrap());
    assert_eq!(world.starts.len(), 5);
    assert!(*last - *first <= Duration::from_millis(1), "{:?}", *last - *first);
    let [(role, measured)] = &outcome.roles[..] else { panic!("{:?}", outcome.roles) };
    assert_eq!((role.as_str(), measured.tally.bytes, measured.wall_s), ("", 10 * RATE * 3, 3.0));
    assert_eq!((measured.tally.latency.count(), measured.client_cpu_s), (5, 2.5));
    let seconds: Vec<u64> = measured.seconds.iter().map(|reading| reading.bytes / RATE).collect();
    assert_eq!(seconds, [10, 20, 30, 30]);
    let names: Vec<&str> = outcome.agents.iter().map(|agent| agent.name.as_str()).collect();
    assert_eq!(names, ["n1", "n2", "n3", "n4", "n5"]);
    assert!(outcome.agents.iter().all(|agent| agent.roles[0].bytes == 2 * RATE * 3 && agent.samples.len() == 4));
    assert!((outcome.agents[0].ahead_us + 7_200_000_000).abs() < 2000 && outcome.missing.is_empty());
}

#[test]
fn the_reports_of_a_lost_agent_do_not_count() {
    let mut world = World::new(5);
    (1..=5).for_each(|peer| world.join(peer, Agent { seconds: 20, ..Agent::default() }));
    world.input(Input::Muster);
    world.input(Input::Begin(Box::new(job(10))));
    world.steps(10);
    world.input(Input::Gone { peer: 3, why: "gone".to_owned() });
    world.steps(15);
    let outcome = world.outcomes.remove(0);
    let (_, measured) = &outcome.roles[0];
    assert_eq!(measured.tally.bytes, 8 * RATE * 20);
    // Each second counts only the four that finished, like the tally. So the part that a warm-up would leave out is
    // right, too.
    let seconds: Vec<u64> = measured.seconds.iter().map(|reading| reading.bytes / RATE).collect();
    assert_eq!(seconds, (1..=20).map(|second| 8 * second).chain([160]).collect::<Vec<_>>());
    assert_eq!(outcome.missing.len(), 1);
}

#[test]
fn more_agents_than_parts_leave_some_without_work() {
    let mut world = World::new(4);
    (1..=4).for_each(|peer| world.join(peer, Agent::default()));
    world.input(Input::Muster);
    let outcome = world.phase(job(3));
    assert_eq!((outcome.agents.len(), outcome.roles[0].1.tally.bytes), (3, 3 * RATE * 3));
    assert!(outcome.missing.is_empty());
}

#[test]
fn new_settings_are_reported_and_their_total_is_bounded() {
    let mut world = World::new(2);
    (1..=2).for_each(|peer| world.join(peer, Agent::default()));
    let watches = Agent { watches: true, ..Agent::default() };
    world.join(3, watches);
    let tell = |world: &mut World, peer, name: &str, value: &str| {
        let settings = [(name.to_owned(), value.to_owned())].into();
        world.input(Input::Told { peer, tell: Box::new(AgentMessage::Settings { settings }) });
        let told = std::mem::take(&mut world.events).into_iter().filter_map(|event| match event {
            Event::Settings(machine) => Some((machine.name, machine.system, machine.settings.len())),
            _ => None,
        });
        told.collect::<Vec<_>>()
    };
    assert_eq!(tell(&mut world, 1, "kernel", "6.1"), [("n1".to_owned(), None, 1)]);
    assert_eq!(tell(&mut world, 1, "kernel", "6.1"), []);
    assert_eq!(tell(&mut world, 1, "mount of /x", "nfs4"), [("n1".to_owned(), None, 2)]);
    assert_eq!(tell(&mut world, 1, "mount of /x", "ext4"), [("n1".to_owned(), None, 2)]);
    assert_eq!(tell(&mut world, 3, "kernel", "6.1"), [("n3".to_owned(), Some("s".to_owned()), 1)]);
    // One after the other, because the stored total has a limit, not only each message.
    let mut told = 0;
    while world.machine.agents() == 2 {
        told += 1;
        assert!(told < 10_000);
        tell(&mut world, 2, &told.to_string(), "x");
    }
    assert!(told > 1000, "{told}");
}

#[test]
fn a_thousand_agents_are_followed_by_one_core() {
    const SECONDS: u32 = 60;
    let mut machine = Machine::new(1000, 1);
    let mut out = Vec::new();
    for peer in 1..=1000 {
        machine.handle(START, Input::Joined { peer, name: format!("n{peer}"), kind: Kind::Agent }, &mut out);
    }
    machine.handle(START, Input::Muster, &mut out);
    machine.handle(START, Input::Begin(Box::new(job(1000))), &mut out);
    for peer in 1..=1000 {
        let told = |tell| Input::Told { peer, tell: Box::new(tell) };
        machine.handle(START, told(AgentMessage::Clock { number: 1, at_us: 1_700_000_000_000_000 }), &mut out);
        machine.handle(START, told(AgentMessage::Prepared { run: 1, caches: crate::result::Caches::Kept }), &mut out);
    }
    assert_eq!(out.iter().filter(|one| matches!(one, Output::Send(_, CoordinatorMessage::Start { .. }))).count(), 1000);
    // As decoded from the wire.
    let roles = vec![("record".to_owned(), Reading { operations: 250, bytes: 1 << 30, failures: 0 })];
    let second = |number| {
        serde_json::to_vec(&AgentMessage::Second { run: 1, number, roles: roles.clone(), sample: sample() }).unwrap()
    };
    let begun = Instant::now();
    let mut bytes = 0;
    for number in 0..SECONDS {
        let (now, text) = (START + secs(u64::from(number) + 2), second(number));
        for peer in 1..=1000 {
            let tell: AgentMessage = serde_json::from_slice(&text).unwrap();
            bytes += text.len();
            machine.handle(now, Input::Told { peer, tell: Box::new(tell) }, &mut out);
        }
        (0..10).for_each(|tenth| machine.handle(now + Duration::from_millis(100 * tenth), Input::Tick, &mut out));
        assert_eq!(machine.view(now).total().bytes, 1000 << 30);
        out.clear();
    }
    let took = begun.elapsed();
    println!("{SECONDS} s of 1,000 agents ({bytes} bytes) took {took:?}");
    assert_eq!(machine.agents(), 1000);
    assert!(took < secs(20), "{took:?}");
}

#[test]
fn a_loss_at_any_step_is_reported_and_nothing_hangs() {
    for seed in 0..300 {
        let mut random = StdRng::seed_from_u64(seed);
        let planned = random.random_range(1..8);
        let mut world = World::new(planned);
        for peer in 1..=planned as u64 {
            let dies = random.random_bool(0.4).then(|| {
                let at = START + Duration::from_millis(random.random_range(0..12_000));
                (at, random.random_bool(0.5))
            });
            let delay = Duration::from_millis(random.random_range(0..300));
            let seconds = random.random_range(0..6);
            let ahead_us = random.random_range(-1_000_000..1_000_000);
            world.join(peer, Agent { dies, delay, seconds, ahead_us, ..Agent::default() });
        }
        world.steps(1);
        let parts = random.random_range(1..12);
        for trial in 0..3 {
            world.input(Input::Muster);
            let there = world.machine.agents();
            for _ in 0..2 {
                let outcome = world.phase(job(parts));
                let done: BTreeSet<&str> = outcome.agents.iter().map(|agent| agent.name.as_str()).collect();
                let bytes: u64 = outcome.agents.iter().flat_map(|agent| &agent.roles).map(|role| role.bytes).sum();
                let of_roles: u64 = outcome.roles.iter().map(|(_, measured)| measured.tally.bytes).sum();
                assert_eq!(bytes, of_roles, "{seed}");
                // Only agents whose share is missing are reported.
                let wanted = planned.min(parts as usize);
                assert_eq!(
                    done.len() < wanted,
                    !outcome.missing.is_empty(),
                    "{seed} {trial} {there}: {:?}",
                    outcome.missing
                );
                assert!(outcome.missing.iter().all(|who| !done.contains(who.split(' ').next().unwrap())), "{seed}");
            }
        }
        // A lost agent dies within 12 s, and its silence is noticed after 10.
        world.steps(24);
        assert_eq!(
            world.machine.agents(),
            world.agents.values().filter(|agent| agent.dies.is_none_or(|(at, _)| at > world.now)).count()
        );
    }
}

#[test]
fn an_agent_that_comes_back_takes_part_in_the_next_trial() {
    let mut world = World::new(2);
    world.join(1, Agent::default());
    world.join(2, Agent { dies: Some((START + secs(3), true)), ..Agent::default() });
    world.input(Input::Muster);
    world.steps(1);
    let first = world.phase(job(2));
    assert_eq!((first.agents.len(), first.missing), (1, vec!["n2 (connection lost)".to_owned()]));
    // The files of the others exist, those of the lost agent do not. So its share stays out until the trial ends.
    world.input(Input::Joined { peer: 3, name: "n2".into(), kind: Kind::Agent });
    world.agents.insert(3, Agent::default());
    let second = world.phase(job(2));
    assert_eq!((second.agents.len(), second.roles[0].1.tally.bytes), (1, 3 * RATE));
    world.input(Input::Muster);
    let third = world.phase(job(2));
    assert_eq!((third.agents.len(), third.missing.len()), (2, 0));
}

#[test]
fn one_refusal_calls_the_phase_off_for_all() {
    let mut world = World::new(3);
    world.join(1, Agent::default());
    world.join(2, Agent { refuses: true, ..Agent::default() });
    world.join(3, Agent { delay: Duration::from_millis(900), ..Agent::default() });
    world.input(Input::Muster);
    let outcome = world.phase(job(3));
    assert_eq!(outcome.refused.as_deref(), Some("n2: no such place"));
    assert!(world.starts.is_empty());
    // A late message of the slow agent belongs to no phase, and the next phase is done.
    world.agents.get_mut(&2).unwrap().refuses = false;
    let next = world.phase(job(3));
    assert_eq!((next.refused, next.agents.len(), next.missing.len()), (None, 3, 0));
}

#[test]
fn a_phase_can_be_stopped_at_any_time() {
    for after in [0, 1, 2, 5, 20] {
        let mut world = World::new(2);
        world.join(1, Agent { seconds: 1000, ..Agent::default() });
        world.join(2, Agent { seconds: 1000, ..Agent::default() });
        world.steps(2);
        world.input(Input::Muster);
        world.input(Input::Begin(Box::new(job(2))));
        (0..after).for_each(|_| world.step());
        world.input(Input::Stop);
        world.steps(2);
        assert_eq!(world.outcomes.len(), 1, "{after}");
        let outcome = world.outcomes.remove(0);
        assert_eq!(outcome.refused.is_some(), world.starts.is_empty(), "{after}");
        assert_eq!(world.machine.agents(), 2);
    }
}

#[test]
fn an_agent_that_does_not_stop_is_lost() {
    let mut world = World::new(2);
    (1..=2).for_each(|peer| world.join(peer, Agent { seconds: 1000, ..Agent::default() }));
    world.input(Input::Muster);
    world.input(Input::Begin(Box::new(job(2))));
    world.steps(3);
    // It answers clock requests, and does nothing else.
    world.agents.get_mut(&2).unwrap().hang();
    world.input(Input::Stop);
    world.steps(70);
    let outcome = world.outcomes.remove(0);
    assert_eq!(
        (outcome.agents.len(), &outcome.missing[..]),
        (1, &["n2 (did not stop within a minute)".to_owned()][..])
    );
}

#[test]
fn only_an_agent_that_sends_nonsense_is_dropped() {
    let second = |run, number| AgentMessage::Second { run, number, roles: Vec::new(), sample: sample() };
    let prepared = |run| AgentMessage::Prepared { run, caches: crate::result::Caches::Kept };
    let wrong = [
        second(1, 50),
        second(1, 0),
        second(7, 0),
        prepared(1),
        prepared(9),
        AgentMessage::Watched { number: None, sample: sample() },
        AgentMessage::Second {
            run: 1,
            number: 2,
            roles: vec![("x".repeat(500), Reading::default())],
            sample: sample(),
        },
        AgentMessage::Done { run: 1, roles: Vec::new(), cpu_s: -1.0, system_s: 0.0, sample: sample() },
    ];
    for tell in wrong {
        let mut world = World::new(3);
        (1..=3).for_each(|peer| world.join(peer, Agent::default()));
        world.input(Input::Muster);
        world.input(Input::Begin(Box::new(job(3))));
        world.steps(2);
        assert_eq!(world.starts.len(), 3);
        world.input(Input::Told { peer: 2, tell: Box::new(tell.clone()) });
        assert!(!world.agents.contains_key(&2), "{tell:?}");
        world.steps(5);
        let outcome = world.outcomes.remove(0);
        assert_eq!((outcome.agents.len(), outcome.missing.len()), (2, 1), "{tell:?}");
        assert!(matches!(world.events.last(), Some(Event::Lost { name, .. }) if name == "n2"), "{tell:?}");
        // Its later messages are ignored.
        world.input(Input::Told { peer: 2, tell: Box::new(tell) });
    }
    // A late message of an earlier phase does no harm.
    let mut world = World::new(1);
    world.join(1, Agent::default());
    world.input(Input::Muster);
    world.phase(job(1));
    world.input(Input::Begin(Box::new(job(1))));
    world.input(Input::Told { peer: 1, tell: Box::new(second(1, 1)) });
    assert_eq!(world.machine.agents(), 1);
}

#[test]
fn servers_are_watched_from_the_start_to_the_end() {
    let mut world = World::new(1);
    world.join(1, Agent::default());
    world.join(2, Agent { watches: true, ..Agent::default() });
    world.join(3, Agent { watches: true, dies: Some((START + secs(9), true)), ..Agent::default() });
    world.steps(6);
    world.input(Input::Muster);
    let outcome = world.phase(job(1));
    let [whole, partly] = &outcome.servers[..] else { panic!("{:?}", outcome.servers) };
    let seconds = |samples: &[crate::sampling::Sample]| samples.iter().map(|sample| sample.seconds).sum::<f64>();
    // Three seconds of work, and the time of messages and ticks.
    assert!((2.9..3.5).contains(&seconds(&whole.samples)), "{}", seconds(&whole.samples));
    assert!(whole.is_whole && whole.system == "s");
    // A quarter and an eighth of four processors.
    let cpu_s = whole.cpu_s().unwrap();
    assert!((cpu_s - 1.5 * seconds(&whole.samples)).abs() < 1e-6, "{cpu_s}");
    assert!(!partly.is_whole && partly.cpu_s().is_none());
    // This machine works itself.
    world.input(Input::Gather);
    world.steps(2);
    world.input(Input::Gathered);
    world.steps(1);
    let [alone] = &world.servers[..] else { panic!("{:?}", world.servers) };
    assert!(alone.is_whole && (1.9..2.3).contains(&seconds(&alone.samples)));
}

#[test]
fn too_many_agents_and_equal_names() {
    let mut machine = Machine::new(2, 1);
    let mut out = Vec::new();
    for peer in 1..=3 {
        machine.handle(START, Input::Joined { peer, name: "node".into(), kind: Kind::Agent }, &mut out);
    }
    let names: Vec<String> = machine.view(START).agents.into_iter().map(|line| line.name).collect();
    assert_eq!(names, ["node", "node (2)"]);
    let leaves = |output: &Output| matches!(output, Output::Send(3, CoordinatorMessage::Leave { why }) if why.contains("--agents"));
    assert!(out.iter().any(leaves));
}
