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

fn rendered(works: usize, trials: &[TrialRecord]) -> Rendered {
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
    Page { head: &head, campaign: &campaign, trials, summary: &summary }.render()
}

fn page(works: usize, trials: &[TrialRecord]) -> String {
    rendered(works, trials).html
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
fn machines_and_overview_come_before_the_rows() {
    let trials: Vec<_> = (0..6).flat_map(|repeat| [trial(0, 0, repeat, 40), trial(1, 0, repeat, 20)]).collect();
    let page = page(1, &trials);
    let at = |part: &str| page.find(part).unwrap_or_else(|| panic!("{part}"));
    assert!(
        at("<h2 id=\"machines\">") < at("<h2 id=\"overview\">") && at("<h2 id=\"overview\">") < at("<h2 id=\"r0\">")
    );
    let kernel = format!("<tr><th>kernel</th><td>{}</td></tr>", escape(EVIL));
    assert!(page.contains(&kernel));
    // Both systems have a bar with their figure beside it.
    let overview = &page[at("<h2 id=\"overview\">")..at("<h2 id=\"r0\">")];
    assert_eq!(
        (overview.matches("<rect class=\"b s").count(), overview.matches(" MB/s</text>").count()),
        (2, 2),
        "{overview}"
    );
}

#[test]
fn each_figure_of_the_page_is_a_file_of_its_own() {
    let trials: Vec<_> =
        (0..6).flat_map(|repeat| [trial(0, 0, repeat, 40), trial(1, 0, repeat, 20), trial(0, 1, repeat, 40)]).collect();
    let made = rendered(2, &trials);
    assert_eq!(made.figures.len(), made.html.matches("<figure>").count());
    let names: Vec<&str> = made.figures.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names[0], "overview.svg");
    // Work, the parameter that varies in the unit in which it was given, phase and kind.
    assert!(names.contains(&"b-onclick-alert-1_file-1MB_write_latency.svg"), "{names:?}");
    assert!(names.contains(&"b-onclick-alert-1_file-2MB_write_repeats.svg"), "{names:?}");
    for file in &made.figures {
        assert!(made.html.contains(&format!("href=\"figures/{}\"", file.name)), "{}", file.name);
        let mut reader = quick_xml::Reader::from_str(&file.svg);
        let mut elements = 0;
        loop {
            match reader.read_event().unwrap_or_else(|error| panic!("{}: {error}", file.name)) {
                quick_xml::events::Event::Eof => break,
                quick_xml::events::Event::Start(_) | quick_xml::events::Event::Empty(_) => elements += 1,
                _ => {}
            }
        }
        assert!(elements > 5 && !file.svg.contains("<b ") && !file.svg.contains("script"), "{}", file.name);
    }
    assert_eq!(rendered(2, &trials), made, "the same records give the same files");
    // What is not done yet does not change the names.
    let fewer = rendered(2, &trials[..1]);
    assert!(fewer.figures.iter().all(|file| names.contains(&file.name.as_str())));
}

#[test]
fn the_overview_of_a_study_has_its_columns_with_the_key_figure_first() {
    let systems = vec![crate::study::system("a", "/a"), crate::study::system("b", "/b")];
    let asked = crate::study::StudyRequest { systems, scale: 1e6, repeats: Some(1), root_file: None, uproot: None };
    let prepared = crate::study::Study::E.prepare(&asked).unwrap();
    let row = |work: &str, phase: &str, figures: [f64; 2]| crate::report::Row {
        work: work.into(),
        parameters: vec![("streams".into(), "4".into())],
        phase: phase.into(),
        unit: crate::workload::Unit::Bytes,
        cells: ["a", "b"]
            .into_iter()
            .zip(figures)
            .map(|(name, of)| crate::report::Cell::for_test(name, &[of], of, &[]))
            .collect(),
    };
    let (fill, best) = (row("two million in one directory", "fill", [5e6, 1e6]), row("clients", "write", [7e6, 9e6]));
    let summary = Summary { rows: vec![fill, row("clients", "write", [8e6, 2e6]), best], ..Summary::default() };
    let head = RunHead { name: prepared.campaign.name.clone(), ..RunHead::default() };
    let page = Page { head: &head, campaign: &prepared.campaign, trials: &[], summary: &summary };
    let found = overview::overview(&page).unwrap();
    assert_eq!(
        (found.picture.caption.as_str(), found.more),
        ("E. A storage element: the best figure of each system", 0)
    );
    let svg = &found.picture.inside;
    let at = |part: &str| svg.find(part).unwrap_or_else(|| panic!("{part} in {svg}"));
    assert!(at(">write<") < at(">files made<"), "{svg}");
    // The best over all parameters of each system.
    assert!(svg.contains("8.0 MB/s") && svg.contains("9.0 MB/s") && !svg.contains("2.0 MB/s"), "{svg}");
    assert!(
        found.parameters.contains("<tr><td>write</td><td>a</td><td>8.0 MB/s</td><td>streams 4</td></tr>"),
        "{}",
        found.parameters
    );
    assert_eq!(found.scaled, [], "the head has no campaign");
    let scaled = RunHead { campaign: prepared.source.clone(), ..head.clone() };
    let html = Page { head: &scaled, ..page }.render().html;
    assert!(html.contains("streams.file: 1MB, 1.05 MB instead of 1MB, 10MB, 100MB, 1GB"), "{html}");
    // The campaign of somebody else is not a study for its name alone.
    let none = Summary { rows: vec![row("x", "write", [1e6, 2e6])], ..Summary::default() };
    let other = overview::overview(&Page { summary: &none, ..page }).unwrap();
    assert!(other.picture.inside.contains(">x: write<") && other.picture.caption.starts_with("The best"));
}

#[test]
fn a_page_without_trials_says_so() {
    assert!(page(1, &[]).contains("This run has no measurements"));
}
