//! Trials on directories that do not exist, and on systems that cannot do the work.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;
use std::sync::Arc;

use weir_bench::campaign::{Campaign, Trial};
use weir_bench::content::Content;
use weir_bench::report::{Flag, summarise, text};
use weir_bench::result::{RunHead, TrialRecord};
use weir_bench::run::{Context, RunError, run_trial};

fn campaign(place: &Path, section: &str) -> Campaign {
    let system = format!("[[system]]\nname = \"disk\"\nplace = \"{}\"\n", place.display());
    Campaign::parse(&format!("name = \"c\"\nrepeats = 1\n{system}{section}")).unwrap()
}

fn first_trial(campaign: &Campaign) -> Result<TrialRecord, RunError> {
    let places = campaign.systems[0].places().unwrap();
    let context = Context {
        system: "disk",
        places: &places,
        client_processes: &[],
        faults: &[],
        empty_caches: &[],
        copies: None,
        peers: Vec::new(),
        settings: &client::Settings::default(),
        content: &Arc::new(Content::new(1)),
        seed: 1,
        phase_limit: None,
        coordinator: None,
    };
    run_trial(&context, &Trial::default(), &campaign.works()[0], &mut |_, _| true)
}

#[test]
fn a_directory_that_is_missing_is_named_with_the_command_that_makes_it() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("none");
    let streams = "[[streams]]\nname = \"s\"\nphases = [\"write\"]\nfile = \"64KiB\"\nblock = \"64KiB\"\n";
    let error = first_trial(&campaign(&place, streams)).unwrap_err();
    assert!(matches!(error, RunError::NoPlace { .. }), "{error:?}");
    let said = error.to_string();
    assert!(said.contains(&format!("make it first: mkdir -p {}", place.display())), "{said}");
    assert!(!place.exists());
}

#[test]
fn a_path_that_cannot_be_delayed_has_a_row_without_a_figure_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let jobs = "[[analysis]]\nname = \"far\"\nround_trip = \"12ms\"\n\
                synthetic = { file = \"1MB\", events = 100, branches = 10, basket = \"4KiB\" }\n";
    let campaign = campaign(&folder.path().join("none"), jobs);
    // The directory does not exist, and nobody looks for it.
    let record = first_trial(&campaign).unwrap();
    assert!(record.ended.is_none());
    assert_eq!(record.phases.iter().map(|phase| phase.phase.as_str()).collect::<Vec<_>>(), ["analyse"]);
    let summary = summarise(&[record], &campaign, &RunHead::default());
    let [row] = &summary.rows[..] else { panic!("{summary:?}") };
    assert!(row.cells[0].flags.contains(&Flag::Unsupported) && row.cells[0].usable().is_none());
    let told = text(&summary);
    assert!(told.contains("`round_trip`, which needs a single place by root://") && told.contains("[Un]"), "{told}");
}
