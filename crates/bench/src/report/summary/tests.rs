use super::*;
use crate::campaign::Trial;
use crate::load::{Reading, Tally};
use crate::report::Stage;
use crate::result::Machines;
use crate::target::TargetError;

fn campaign() -> Campaign {
    let text = r#"
        name = "c"
        repeats = 8
        [[system]]
        name = "a"
        place = "root://a//"
        disk = "b"
        peer = "h:1"
        [[system]]
        name = "b"
        place = "/b"
        [[streams]]
        name = "w"
        phases = ["write"]
        file = "200MB"
        block = "1MiB"
        [[client]]
        name = "client"
        block = "1MiB"
        work = ["make", "make-and-sum"]
        [[network]]
        name = "net"
        directions = ["to", "from"]
        flows = [2, 1]
    "#;
    Campaign::parse(text).unwrap()
}

/// Makes a trial of the streams. They are work 3: the flows with two streams and with one come first, and then the
/// client alone.
fn trial(system: usize, repeat: u32, megabytes: u64) -> TrialRecord {
    let mut tally = Tally { operations: 10, bytes: megabytes * 1_000_000, ..Tally::default() };
    tally.latency.add(std::time::Duration::from_millis(5));
    let reading = Reading { operations: 10, bytes: tally.bytes, failures: 0 };
    let measured = Measured {
        wall_s: 2.0,
        tally,
        seconds: vec![reading],
        second_s: 1,
        client_cpu_s: 0.1,
        client_system_s: 0.0,
        client: vec![],
        idle_workers: vec![],
    };
    let machines = Machines::default();
    let (phase, faults) = ("write".to_owned(), Vec::new());
    let phase = PhaseRecord { number: 0, phase, began: 0, caches: Caches::Kept, faults, measured, machines };
    TrialRecord {
        trial: Trial { system, work: 3, repeat },
        system: ["a", "b"][system].into(),
        work: "w".into(),
        parameters: vec![],
        phases: vec![phase],
        ended: None,
        not_done: vec![],
        left: None,
        settings: vec![],
    }
}

#[test]
fn systems_stand_side_by_side() {
    let trials: Vec<_> =
        (0..8).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
    let summary = summarise(&trials, &campaign(), &RunHead::default());
    let [row] = &summary.rows[..] else { panic!("{summary:?}") };
    let [a, b] = &row.cells[..] else { panic!("{row:?}") };
    assert_eq!((row.unit, a.median, b.median), (Unit::Bytes, 101.75e6, 201.75e6));
    assert!(a.interval.is_some() && a.flags.is_empty(), "{:?}", a.flags);
    let against = b.against_first.unwrap();
    assert!((1.9..2.1).contains(&against.ratio) && against.differs() == Some(true));
    assert!(b.latency_us.is_some_and(|[p50, ..]| (4990..5020).contains(&p50)));
}

#[test]
fn new_files_have_one_writer_whatever_their_chunks_are_later() {
    let text = r#"
        name = "c"
        repeats = 2
        [[system]]
        name = "a"
        place = "/a"
        [[streams]]
        name = "w"
        phases = ["write", "rewrite"]
        file = "200MB"
        block = "1MiB"
        streams = [1, 6]
        chunks = [2, 4]
    "#;
    let campaign = Campaign::parse(text).unwrap();
    let works = campaign.works();
    let mut trials = Vec::new();
    for (work, repeat) in (0..works.len()).flat_map(|work| [(work, 0), (work, 1)]) {
        let mut trial = trial(0, repeat, 200);
        (trial.trial.work, trial.parameters) = (work, works[work].parameters.clone());
        let mut rewrite = trial.phases[0].clone();
        (rewrite.number, rewrite.phase) = (1, "rewrite".to_owned());
        trial.phases.push(rewrite);
        trials.push(trial);
    }
    let summary = summarise(&trials, &campaign, &RunHead::default());
    let row = |row: &Row| {
        let of = |name: &str| row.parameters.iter().find(|(key, _)| key == name).unwrap().1.clone();
        (row.phase.clone(), of("streams"), of("chunks"), row.cells[0].values.len())
    };
    let mut rows: Vec<_> = summary.rows.iter().map(row).collect();
    rows.sort();
    let right = [
        ("rewrite", "1", "2", 2),
        ("rewrite", "1", "4", 2),
        ("rewrite", "6", "2", 2),
        ("rewrite", "6", "4", 2),
        ("write", "1", "1", 4),
        ("write", "6", "1", 4),
    ];
    assert_eq!(rows, right.map(|(phase, streams, chunks, n)| (phase.into(), streams.into(), chunks.into(), n)));
}

#[test]
fn doubts_about_a_figure_become_flags() {
    let mut trials: Vec<_> = (0..3).map(|n| trial(0, n, 200)).collect();
    trials[1].phases[0].measured.tally.wrong = 1;
    trials[2].phases[0].caches = Caches::Unknown;
    let flags = &summarise(&trials, &campaign(), &RunHead::default()).rows[0].cells[0].flags;
    assert_eq!(flags.iter().copied().collect::<Vec<_>>(), vec![Flag::WrongData, Flag::MaybeCached, Flag::FewRepeats]);
    let scattered: Vec<_> = (0..8).map(|n| trial(0, n, 100 + 50 * u64::from(n))).collect();
    assert!(summarise(&scattered, &campaign(), &RunHead::default()).rows[0].cells[0].flags.contains(&Flag::Scattered));
}

fn ended(mut trial: TrialRecord, at: usize) -> TrialRecord {
    (trial.ended, trial.not_done) = (Some("no agent is left".into()), (at..2).collect());
    trial.phases.truncate(at + 1);
    trial
}

/// A trial with a second phase.
fn two_phases(repeat: u32) -> TrialRecord {
    let mut trial = trial(0, repeat, 200);
    let read = PhaseRecord { number: 1, phase: "read".into(), ..trial.phases[0].clone() };
    trial.phases.push(read);
    trial
}

fn reading_campaign() -> Campaign {
    let mut campaign = campaign();
    campaign.streams[0].phases.push(crate::workload::Access::Read);
    campaign
}

#[test]
fn a_repeat_that_ended_early_is_left_out_from_there_on() {
    let mut trials: Vec<_> = (0..7).map(two_phases).collect();
    // Its second phase was cut short, with an invalid figure.
    trials[3] = ended(two_phases(3), 1);
    trials[3].phases[1].measured.tally.bytes = 1;
    let summary = summarise(&trials, &reading_campaign(), &RunHead::default());
    let [write, read] = &summary.rows[..] else { panic!("{summary:?}") };
    let (write, read) = (&write.cells[0], &read.cells[0]);
    assert_eq!((write.values.len(), write.left_out, write.usable()), (7, 0, Some(100e6)));
    assert_eq!((read.values.len(), read.left_out, read.usable()), (6, 1, Some(100e6)));
    assert!(!summary.is_whole());
    let text = crate::report::text(&summary);
    assert!(text.contains("without 1 repeat that ended early"), "{text}");
    assert!(text.contains("repeat 4 of w: ") && text.contains(" on a: ended early: no agent is left"), "{text}");
    // Wrong data before its end still count.
    trials[3].phases[1].measured.tally.wrong = 1;
    assert!(
        summarise(&trials, &reading_campaign(), &RunHead::default()).rows[1].cells[0].flags.contains(&Flag::WrongData)
    );
    // The trial is repeated without errors.
    trials.push(two_phases(3));
    let again = summarise(&trials, &reading_campaign(), &RunHead::default());
    assert_eq!((again.rows[1].cells[0].values.len(), again.is_whole()), (7, true), "{again:?}");
    assert_eq!(again.rows[1].cells[0].sources.last(), Some(&Source { trial: 7, phase: 1 }));
}

#[test]
fn a_phase_that_was_not_done_has_a_row_that_says_so() {
    // All agents were lost in the first phase, so neither phase is recorded.
    let mut trial = ended(two_phases(0), 0);
    trial.phases.clear();
    let summary = summarise(&[trial], &reading_campaign(), &RunHead::default());
    let phases: Vec<_> = summary.rows.iter().map(|row| row.phase.as_str()).collect();
    assert_eq!(phases, ["write", "read"]);
    for row in &summary.rows {
        let cell = &row.cells[0];
        assert_eq!((cell.usable(), cell.left_out, &cell.system[..]), (None, 1, "a"));
        assert!(cell.flags.contains(&Flag::EndedEarly) && row.work == "w", "{cell:?}");
    }
    assert!(crate::report::text(&summary).contains("no figure: ended before all work was done [E]"));
}

#[test]
fn leftover_files_are_a_remark() {
    let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, 200)).collect();
    trials[2].left = Some("not all of its files could be removed: .nfs0001\u{1b}[2J".into());
    let summary = summarise(&trials, &campaign(), &RunHead::default());
    assert!(summary.is_whole() && summary.rows[0].cells[0].usable().is_some());
    let text = crate::report::text(&summary);
    assert!(text.contains(" on a: not all of its files could be removed: .nfs0001 [2J"), "{text}");
}

#[test]
fn the_first_failure_is_named() {
    let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, 200)).collect();
    let error = TargetError::Short { what: "read x".into(), moved: 1, asked: 2 };
    trials[1].phases[0].measured.tally.add_failure(std::time::Duration::ZERO, &error);
    let text = crate::report::text(&summarise(&trials, &campaign(), &RunHead::default()));
    assert!(text.contains(&format!("no figure: operations failed: {error}")), "{text}");
}

/// If a driver skips a middle phase, its later phases keep their own rows.
#[test]
fn skipped_phases_do_not_shift_later_ones() {
    let mut other = two_phases(0);
    (other.trial.system, other.system) = (1, "b".into());
    other.phases.remove(0);
    let summary = summarise(&[two_phases(0), other], &reading_campaign(), &RunHead::default());
    let systems = |row: &Row| row.cells.iter().map(|cell| cell.system.clone()).collect::<Vec<_>>();
    assert_eq!(summary.rows.iter().map(systems).collect::<Vec<_>>(), [vec!["a"], vec!["a", "b"]]);
}

#[test]
fn the_warm_up_of_a_long_phase_is_left_out() {
    let long = |repeat: u32, of: fn(u32) -> u64| {
        let mut trial = trial(0, repeat, 0);
        let measured = &mut trial.phases[0].measured;
        let mut done = 0;
        measured.seconds = (0..60)
            .map(|second| {
                done += of(second) + u64::from((second + repeat) % 3);
                Reading { operations: 1, bytes: done, failures: 0 }
            })
            .collect();
        (measured.tally.bytes, measured.wall_s) = (done, 60.0);
        trial
    };
    let starting: Vec<_> = (0..6).map(|n| long(n, |second| if second < 15 { 300_000 } else { 1_000_000 })).collect();
    let cell = summarise(&starting, &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0);
    assert_eq!(cell.warm_up_s, 15);
    assert!((cell.median - 1e6).abs() < 1e3 && !cell.flags.contains(&Flag::NotSteady), "{cell:?}");
    let falling: Vec<_> = (0..6).map(|n| long(n, |second| 1_000_000 - 10_000 * u64::from(second))).collect();
    let cell = summarise(&falling, &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0);
    assert!(cell.flags.contains(&Flag::NotSteady));
}

#[test]
fn combined_seconds_keep_their_length() {
    let long = |second_s: u32| {
        let mut trial = trial(0, 0, 0);
        let measured = &mut trial.phases[0].measured;
        let rate = |second: u32| if second < 16 * second_s { 100_000 } else { 1_000_000 };
        let mut done = 0;
        let all: Vec<Reading> = (0..100 * second_s)
            .map(|second| {
                done += rate(second);
                Reading { operations: 1, bytes: done, failures: 0 }
            })
            .collect();
        measured.seconds = all.into_iter().skip(second_s as usize - 1).step_by(second_s as usize).collect();
        measured.seconds.push(Reading { operations: 1, bytes: done, failures: 0 });
        (measured.second_s, measured.tally.bytes, measured.wall_s) = (second_s, done, f64::from(100 * second_s));
        summarise(&[trial], &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0)
    };
    for second_s in [1, 8] {
        let cell = long(second_s);
        assert!((cell.median - 1e6).abs() < 1e3, "{second_s}: {}", cell.median);
        assert_eq!(cell.warm_up_s, 20 * second_s, "{second_s}");
    }
}

#[test]
fn time_after_the_end_of_a_phase_does_not_count_as_a_standstill() {
    let mut trial = trial(0, 0, 0);
    let measured = &mut trial.phases[0].measured;
    // Twenty seconds at 100, of which five stood still. Then other roles continued for ten.
    let rates = (0..30).map(|second| if second >= 20 || (10..15).contains(&second) { 0 } else { 100 });
    let mut done = 0;
    let sums = rates.map(|rate| {
        done += rate;
        Reading { operations: 1, bytes: done, failures: 0 }
    });
    measured.seconds = sums.collect();
    measured.wall_s = 20.4;
    let found = recovered(measured, 10).unwrap();
    assert_eq!((found.still_s, found.back_after_s), (5, Some(5)));
    // The same in entries of two seconds.
    measured.seconds = measured.seconds.iter().skip(1).step_by(2).copied().collect();
    measured.second_s = 2;
    let found = recovered(measured, 10).unwrap();
    assert_eq!((found.still_s, found.back_after_s), (4, Some(4)));
}

#[test]
fn cached_data_and_unequal_durability_are_flagged() {
    let trials: Vec<_> =
        (0..6).flat_map(|n| [trial(0, n, 200 + u64::from(n)), trial(1, n, 400 + u64::from(n))]).collect();
    let mut campaign = campaign();
    let flags = |campaign: &Campaign, memory: u64| -> Vec<Vec<Flag>> {
        let row = summarise(&trials, campaign, &RunHead { memory_bytes: memory, ..RunHead::default() }).rows.remove(0);
        row.cells.iter().map(|cell| cell.flags.iter().copied().collect()).collect()
    };
    // The data were made durable inside the timing, so a cache has no effect.
    assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
    campaign.streams[0].durability = crate::target::Durability::None;
    let (equal, memory) = (Flag::UnequalDurability, Flag::FitsMemory);
    // The server's cache is unknown.
    assert_eq!(flags(&campaign, 1 << 40), [vec![equal], vec![memory, equal]]);
    assert_eq!(flags(&campaign, 100 << 20), [vec![equal], vec![equal]]);
    campaign.systems[0].place = crate::campaign::OneOrMany::One("/a".to_owned());
    assert_eq!(flags(&campaign, 100 << 20), [vec![], vec![]]);
    campaign.streams[0].direct = true;
    assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
    // HTTP promises nothing at a close, whatever the others do.
    campaign.streams[0].durability = crate::target::Durability::Close;
    assert_eq!(flags(&campaign, 1 << 40), [vec![], vec![]]);
    campaign.systems[0].place = crate::campaign::OneOrMany::One("http://a/".to_owned());
    assert_eq!(flags(&campaign, 1 << 40), [vec![equal], vec![equal]]);
}

#[test]
fn reads_from_a_servers_cache_are_flagged() {
    let trials: Vec<_> = (0..6)
        .flat_map(|n| {
            let mut other = trial(1, n, 400);
            (other.phases[0].number, other.phases[0].phase) = (1, "random-read".into());
            let mut one = two_phases(n);
            one.phases[1].phase = "random-read".into();
            [one, other]
        })
        .collect();
    let mut campaign = campaign();
    campaign.streams[0].phases.push(crate::workload::Access::RandomRead);
    let flags = |campaign: &Campaign, memory_bytes: u64| -> Vec<Vec<Flag>> {
        let row = summarise(&trials, campaign, &RunHead { memory_bytes, ..RunHead::default() }).rows.remove(1);
        row.cells.iter().map(|cell| cell.flags.iter().copied().collect()).collect()
    };
    // The cache of a server elsewhere is unknown; by path, this machine's memory counts.
    assert_eq!(flags(&campaign, 1), [vec![Flag::MaybeCached], vec![]]);
    assert_eq!(flags(&campaign, 1 << 40), [vec![Flag::MaybeCached], vec![Flag::FitsMemory]]);
    campaign.systems[0].place = crate::campaign::OneOrMany::One("root://localhost//".to_owned());
    assert_eq!(flags(&campaign, 1), [vec![], vec![]]);
    assert_eq!(flags(&campaign, 1 << 40), [vec![Flag::MaybeCached], vec![Flag::FitsMemory]]);
}

#[test]
fn each_stage_limits_the_work_that_goes_through_it() {
    let mut trials: Vec<_> = (0..8).flat_map(|n| [trial(0, n, 200), trial(1, n, 400)]).collect();
    for repeat in 0..8 {
        let mut alone = trial(0, repeat, 2000);
        alone.trial.work = 2;
        let mut summed = alone.phases[0].clone();
        summed.number = 1;
        summed.measured.tally.bytes = 600_000_000;
        alone.phases.push(summed);
        trials.push(alone);
        // Flows to the system, and from it. One stream writes, so only one flow to the system limits it.
        for (work, megabytes) in [(0, [7000, 7000]), (1, [500, 10])] {
            let mut flows = trial(0, repeat, megabytes[0]);
            flows.trial.work = work;
            let mut back = flows.phases[0].clone();
            (back.number, back.measured.tally.bytes) = (1, megabytes[1] * 1_000_000);
            flows.phases.push(back);
            trials.push(flows);
        }
    }
    let summary = summarise(&trials, &campaign(), &RunHead::default());
    let row = summary.rows.iter().find(|row| row.work == "w" && row.cells.len() == 2).unwrap();
    let ceilings = |cell: &Cell| -> Vec<_> { cell.ceilings.iter().map(|c| (c.stage, c.rate, c.share)).collect() };
    // root:// computes checksums of what it sends.
    let right = [(Stage::Disk, 200e6, 0.5), (Stage::Network, 250e6, 0.4), (Stage::Client, 300e6, 1.0 / 3.0)];
    assert_eq!(ceilings(&row.cells[0]), right);
    assert_eq!(ceilings(&row.cells[1]), [(Stage::Client, 1000e6, 0.2)]);
}

#[test]
fn missing_cpu_time_of_a_mount_process_is_flagged() {
    let trials: Vec<_> = (0..6).flat_map(|n| [trial(0, n, 200), trial(1, n, 400)]).collect();
    let flags = |mount: &str| {
        let head = RunHead { machine: [("mount of b".to_owned(), mount.to_owned())].into(), ..RunHead::default() };
        let summary = summarise(&trials, &campaign(), &head);
        summary.rows[0].cells.iter().map(|cell| cell.flags.contains(&Flag::PartialClientCpu)).collect::<Vec<_>>()
    };
    assert_eq!(flags("fuse.glusterfs rw"), [false, true]);
    assert_eq!(flags("ext4 rw"), [false, false]);
}

#[test]
fn cpu_time_of_a_mount_process_counts_as_the_clients() {
    let sample = |cores| crate::sampling::Sample {
        seconds: 2.0,
        processes: [(7, cores)].into(),
        ..crate::sampling::Sample::default()
    };
    let agent = |samples| crate::result::AgentRecord {
        name: "one".into(),
        parts: 1,
        roles: Vec::new(),
        samples,
        ahead_us: 0,
        round_trip_us: 0,
    };
    let head = RunHead { machine: [("mount of a".to_owned(), "fuse x".to_owned())].into(), ..RunHead::default() };
    let cell = |change: &dyn Fn(&mut PhaseRecord)| {
        let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, 200)).collect();
        trials.iter_mut().for_each(|trial| change(&mut trial.phases[0]));
        let cell = summarise(&trials, &campaign(), &head).rows.remove(0).cells.remove(0);
        (cell.client_cpu.unwrap(), cell.flags.contains(&Flag::PartialClientCpu))
    };
    let (alone, is_partial) = cell(&|_| {});
    assert!(is_partial);
    let per_gb = |seconds: f64| alone * (seconds / 0.1);
    let here = cell(&|phase| phase.measured.client = vec![sample(0.25), sample(0.0)]);
    assert!((here.0 - per_gb(0.6)).abs() < 1e-9 && !here.1, "{here:?}");
    let by_agents = cell(&|phase| phase.machines.agents = vec![agent(vec![sample(0.25)]), agent(vec![sample(0.5)])]);
    assert!((by_agents.0 - per_gb(1.6)).abs() < 1e-9 && !by_agents.1, "{by_agents:?}");
    let but_one = cell(&|phase| phase.machines.agents = vec![agent(vec![sample(0.25)]), agent(Vec::new())]);
    assert_eq!(but_one, (alone, true));
}

#[test]
fn short_rows_are_marked_and_little_data_has_no_cpu_time_for_each_gb() {
    let cell = |megabytes: u64, wall_s: f64| {
        let mut trials: Vec<_> = (0..6).map(|n| trial(0, n, megabytes)).collect();
        trials.iter_mut().for_each(|trial| trial.phases[0].measured.wall_s = wall_s);
        let cell = summarise(&trials, &campaign(), &RunHead::default()).rows.remove(0).cells.remove(0);
        (cell.flags.contains(&Flag::Brief), cell.client_cpu.is_some())
    };
    assert_eq!(cell(200, 2.0), (false, true));
    assert_eq!(cell(200, 0.2), (true, true));
    // All repeats together have 96 MB.
    assert_eq!(cell(16, 2.0), (false, false));
}

#[test]
fn uproot_is_compared_by_events_and_not_by_efficiency_alone() {
    let text = r#"
        name = "c"
        repeats = 6
        [[system]]
        name = "a"
        place = "root://a//"
        [[analysis]]
        name = "j"
        root_file = "/x.root"
        mode = "vector"
        beside = ["uproot"]
    "#;
    let campaign = Campaign::parse(text).unwrap();
    let job = |cpu_s: f64, opened_with| crate::load::JobTally {
        wall_s: 10.0,
        cpu_s,
        events: 1000,
        asked: 1000,
        moved: 1000,
        requests: 1,
        cores: 4,
        opened_with,
        ..crate::load::JobTally::default()
    };
    let trials: Vec<_> = (0..6)
        .map(|n| {
            let mut one = TrialRecord { trial: Trial { system: 0, work: 0, repeat: n }, ..trial(0, n, 200) };
            let of = |number, phase: &str, wall_s, job| {
                let mut phase = PhaseRecord { number, phase: phase.into(), ..one.phases[0].clone() };
                phase.measured.wall_s = wall_s;
                phase.measured.tally.jobs = vec![job];
                phase
            };
            // uproot takes twice the time, and ten times the CPU.
            let ours = of(1, "analyse", 10.0, job(0.5, None));
            let tools = of(2, "analyse by uproot", 20.0, job(5.0, Some(crate::load::OpenedWith::Weir)));
            one.phases = vec![ours, tools];
            one
        })
        .collect();
    let summary = summarise(&trials, &campaign, &RunHead::default());
    let tools = &summary.rows[1].cells[0];
    let close = |found: Option<Comparison>, ratio: f64| (found.unwrap().ratio - ratio).abs() < 1e-9;
    assert!(close(tools.ours, 0.1) && close(tools.ours_event_rate, 2.0), "{tools:?}");
    let told = crate::report::text(&summary);
    assert!(told.contains("the bench's own jobs do x 2.00 (2.00 to 2.00) of its events/s, at x 0.10"), "{told}");
    assert!(
        told.contains("5.0 % CPU efficiency") && told.contains("100 events/s, single jobs of all repeats"),
        "{told}"
    );
}

#[test]
fn beside_another_tool_both_figures_keep_their_start() {
    let text = r#"
        name = "c"
        repeats = 8
        [[system]]
        name = "a"
        place = "/a"
        [[streams]]
        name = "w"
        phases = ["write"]
        file = "200MB"
        block = "1MiB"
        beside = ["fio"]
    "#;
    let campaign = Campaign::parse(text).unwrap();
    let ours = |repeat: u32| {
        let mut ours = TrialRecord { trial: Trial { system: 0, work: 0, repeat }, ..trial(0, repeat, 0) };
        // Slow at first, like a warm-up.
        let rates = (0..60_u64).map(|second| if second < 12 { 10 } else { 100 + u64::from(repeat) + second % 3 });
        let mut done = 0;
        let seconds = rates.map(|rate| {
            done += rate * 1_000_000;
            Reading { operations: done / 1000, bytes: done, failures: 0 }
        });
        let measured = &mut ours.phases[0].measured;
        measured.seconds = seconds.collect();
        (measured.wall_s, measured.tally.bytes) = (60.0, done);
        let mut theirs = ours.phases[0].clone();
        (theirs.number, theirs.phase) = (1, "write by fio".to_owned());
        theirs.measured.seconds = vec![Reading::default(); 60];
        theirs.measured.tally.bytes = done / 2;
        ours.phases.push(theirs);
        ours
    };
    let trials: Vec<_> = (0..8).map(ours).collect();
    let summary = summarise(&trials, &campaign, &RunHead::default());
    let [own, tools] = [&summary.rows[0].cells[0], &summary.rows[1].cells[0]];
    assert_eq!((own.warm_up_s, tools.warm_up_s, own.ours), (0, 0, None));
    assert!(!tools.flags.contains(&Flag::NotSteady), "{:?}", tools.flags);
    let ratio = tools.ours.unwrap();
    assert!((1.95..2.05).contains(&ratio.ratio) && ratio.differs() == Some(true), "{ratio:?}");
    // Alone, the bench's figure would leave out its start.
    let alone = Campaign::parse(&text.replace("beside = [\"fio\"]", "")).unwrap();
    assert!(summarise(&trials, &alone, &RunHead::default()).rows[0].cells[0].warm_up_s >= 10);
}
