//! Pages of artificial runs.

use super::*;
use crate::campaign::Trial;
use crate::load::{Reading, Tally};
use crate::measure::Measured;
use crate::report::summarise;
use crate::result::{Caches, Machines, PhaseRecord, ServerRecord, VERSION};
use crate::sampling::{CpuShares, PressureShares, Sample};

const EVIL: &str = "<b onclick=alert(1)>\\\"'&";

fn campaign(works: usize) -> String {
    let mut text = String::from("name = \"pages\"\nrepeats = 6\n");
    for (name, place) in [("a", "/a"), (EVIL, "root://b//x")] {
        text += &format!("[[system]]\nname = {name:?}\nplace = \"{place}\"\n");
    }
    let files: Vec<String> = (1..=works).map(|work| format!("\"{work}MB\"")).collect();
    text + &format!(
        "[[streams]]\nname = {EVIL:?}\nphases = [\"write\"]\nblock = \"4KiB\"\nfile = [{}]\n",
        files.join(",")
    )
}

fn trial(system: usize, work: usize, repeat: u32, seconds: u32) -> TrialRecord {
    let mut tally = Tally { operations: u64::from(seconds), bytes: u64::from(seconds) << 20, ..Tally::default() };
    (0..seconds).for_each(|second| tally.add(0, std::time::Duration::from_micros(u64::from(100 + second))));
    let reading = |second: u32| Reading { operations: 1, bytes: u64::from(second + 1) << 20, failures: 0 };
    let sample = Sample {
        seconds: 1.0,
        cpu: CpuShares { user: 0.5, idle: 0.5, ..CpuShares::default() },
        pressure: Some(PressureShares::default()),
        ..Sample::default()
    };
    let measured = Measured {
        wall_s: f64::from(seconds),
        tally,
        seconds: (0..seconds).map(reading).collect(),
        second_s: 1,
        client_cpu_s: 0.1,
        client_system_s: 0.0,
        client: vec![sample; seconds as usize],
        idle_workers: vec![],
    };
    let server = ServerRecord {
        system: "a".into(),
        name: format!("{EVIL} 1"),
        processes: vec![],
        is_whole: true,
        samples: measured.client.clone(),
    };
    let servers = if system == 0 && seconds < 100 { vec![server] } else { vec![] };
    TrialRecord {
        trial: Trial { system, work, repeat },
        system: ["a", EVIL][system].into(),
        work: EVIL.into(),
        parameters: vec![("file".into(), format!("{work} {EVIL}"))],
        phases: vec![PhaseRecord {
            number: 0,
            phase: "write".into(),
            began: 0,
            caches: Caches::Kept,
            faults: vec![],
            measured,
            machines: Machines { servers, ..Machines::default() },
        }],
        ended: None,
        not_done: vec![],
        left: None,
        settings: vec![],
    }
}

fn page(works: usize, trials: &[TrialRecord]) -> String {
    let source = campaign(works);
    let campaign = Campaign::parse(&source).unwrap();
    let summary = summarise(trials, &campaign, &RunHead::default());
    let head = RunHead {
        version: VERSION,
        name: EVIL.into(),
        campaign: source,
        began: 1_700_000_000,
        program: "weir".into(),
        memory_bytes: 1 << 30,
        machine: [("kernel".to_owned(), EVIL.to_owned())].into(),
    };
    Page { head: &head, campaign: &campaign, trials, summary: &summary }.html()
}

#[test]
fn a_page_has_plots_and_figures_and_loads_nothing() {
    let trials: Vec<_> = (0..6).flat_map(|repeat| [trial(0, 0, repeat, 40), trial(1, 0, repeat, 20)]).collect();
    let page = page(1, &trials);
    for part in [
        "All repeats",
        "Rate over time",
        "Latency",
        "Processors",
        "Pressure",
        "2023-11-14 22:13 UTC",
        "is bounded by",
        "table.csv",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // The first system has a client and a server, the second a client.
    assert_eq!(page.matches("Processors</figcaption>").count(), 3);
    assert!(page.contains(&format!("server {} 1", escape(EVIL))));
    assert!(!page.contains("<b ") && !page.contains("<script"), "a text got out");
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!page.contains(outside), "{outside}");
    }
    // Each opened tag is closed.
    for tag in ["section", "table", "tr", "figure", "svg", "details", "ul", "dl", "div"] {
        let (open, closed) = (
            page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count(),
            page.matches(&format!("</{tag}>")).count(),
        );
        assert_eq!(open, closed, "{tag}");
    }
}

#[test]
fn a_page_of_a_long_run_stays_small() {
    // A day of samples, and more rows than get plots.
    let one = page(1, &[trial(0, 0, 0, 86_400)]);
    assert!(one.len() < 200_000, "{}", one.len());
    let works = ROWS_PLOTTED_MAX + 50;
    let trials: Vec<_> = (0..works).flat_map(|work| [trial(0, work, 0, 400), trial(1, work, 0, 400)]).collect();
    let many = page(works, &trials);
    assert!(many.len() < 16_000_000, "{}", many.len());
    assert!(many.contains(&format!("the first {ROWS_PLOTTED_MAX} rows only")));
}

#[test]
fn a_page_without_trials_says_so() {
    assert!(page(1, &[]).contains("This run has no measurements"));
}
