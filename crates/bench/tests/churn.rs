//! Files that are created, changed and removed on a local path. Afterwards the expected files exist, and
//! differences are found.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::fake;
use weir_bench::content::Content;
use weir_bench::load::Tally;
use weir_bench::target::{Durability, IoOptions, RelName, TargetDir, Window};
use weir_bench::workload::{ChurnError, ChurnPhase, ChurnSpec, Mix, Site, Sizes, Workload};

fn spec(phase: ChurnPhase, one_directory: bool) -> ChurnSpec {
    ChurnSpec {
        phase,
        clients: 3,
        files: 40,
        sizes: Sizes { least: 10, most: 300_000 },
        operations: 400,
        mix: Mix::default(),
        filled: phase != ChurnPhase::Fill,
        one_directory,
        io_options: IoOptions { direct: false, durability: Durability::None, window: Window::Fixed(1) },
        rate: None,
        seed: 11,
    }
}

fn site(folder: &Path) -> Site {
    let place = TargetDir::Path(folder.to_owned());
    let target = place.target(&RelName::new("run").unwrap(), &client::Settings::default());
    Site::on(target, Arc::new(Content::new(9)))
}

fn run(spec: &ChurnSpec, site: &Site) -> Tally {
    run_for(spec, site, None)
}

fn run_for(spec: &ChurnSpec, site: &Site, limit: Option<Duration>) -> Tally {
    let finished = spec.worker_pool(site, 0..spec.parts()).unwrap().run(limit, |_| true);
    let mut sum = Tally::default();
    finished.roles[0].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
    sum
}

fn make(site: &Site, spec: &ChurnSpec) {
    let mut session = site.target.as_ref().unwrap().session().unwrap();
    session.make_home().unwrap();
    spec.directories().iter().for_each(|name| session.make_directory(name).unwrap());
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let directories = std::fs::read_dir(folder.join("run")).unwrap();
    let mut all: Vec<PathBuf> = directories
        .flat_map(|directory| std::fs::read_dir(directory.unwrap().path()).unwrap().map(|entry| entry.unwrap().path()))
        .collect();
    all.sort();
    all
}

#[test]
fn exactly_the_expected_files_exist() {
    for one_directory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let site = site(folder.path());
        make(&site, &spec(ChurnPhase::Fill, one_directory));
        let filled = run(&spec(ChurnPhase::Fill, one_directory), &site);
        assert_eq!((filled.operations, filled.failed(), files(folder.path()).len()), (120, 0, 120));
        for phase in [ChurnPhase::Mixed, ChurnPhase::ReadBack, ChurnPhase::Remove] {
            let done = run(&spec(phase, one_directory), &site);
            assert_eq!((done.failed(), done.wrong, done.lost), (0, 0, 0), "{phase:?}: {:?}", done.complaints);
            match phase {
                ChurnPhase::Mixed => assert!(done.operations == 1200 && done.verified > 0),
                ChurnPhase::ReadBack => assert!(done.verified == done.bytes && done.bytes > 0),
                _ => assert!(files(folder.path()).is_empty()),
            }
        }
    }
}

#[test]
fn lost_leftover_and_changed_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let site = site(folder.path());
    make(&site, &spec(ChurnPhase::Fill, true));
    run(&spec(ChurnPhase::Fill, true), &site);
    let once: Vec<PathBuf> = files(folder.path());
    run(&spec(ChurnPhase::Mixed, true), &site);
    let there = files(folder.path());
    let gone = once.iter().find(|path| !there.contains(path)).unwrap();
    std::fs::remove_file(&there[0]).unwrap();
    std::fs::write(gone, b"back").unwrap();
    let longer = std::fs::read(&there[1]).unwrap();
    std::fs::write(&there[1], [&longer[..], b"x"].concat()).unwrap();
    let mut changed = std::fs::read(&there[2]).unwrap();
    changed[5] ^= 1;
    std::fs::write(&there[2], changed).unwrap();
    let found = run(&spec(ChurnPhase::ReadBack, true), &site);
    assert_eq!((found.lost, found.wrong), (1, 3), "{:?}", found.complaints);
}

#[test]
fn work_that_was_cut_short_is_not_reported_as_lost() {
    for (cut, one_directory) in [(ChurnPhase::Fill, true), (ChurnPhase::Mixed, false), (ChurnPhase::Mixed, true)] {
        let folder = tempfile::tempdir().unwrap();
        let site = site(folder.path());
        let long = |phase| ChurnSpec { files: 1000, operations: 3000, ..spec(phase, one_directory) };
        make(&site, &long(ChurnPhase::Fill));
        for phase in [ChurnPhase::Fill, ChurnPhase::Mixed, ChurnPhase::ReadBack] {
            let limit = (phase == cut).then_some(Duration::from_millis(300));
            let paced = ChurnSpec { rate: (phase == cut).then_some(500), ..long(phase) };
            let done = run_for(&paced, &site, limit);
            assert_eq!((done.failed(), done.wrong, done.lost), (0, 0, 0), "{cut:?} {phase:?}: {:?}", done.complaints);
            assert_eq!(done.cut, if phase == cut { 3 } else { 0 });
            let leaves_out = cut == ChurnPhase::Fill && phase == ChurnPhase::Mixed;
            assert_eq!(done.left_out > 0, leaves_out, "{cut:?} {phase:?}");
            assert!(done.operations > 0);
        }
    }
}

#[test]
fn failed_changes_are_not_reported_as_lost() {
    let folder = tempfile::tempdir().unwrap();
    let good = site(folder.path());
    make(&good, &spec(ChurnPhase::Fill, false));
    let inner = good.target.clone().unwrap();
    let flaky = Site { target: Some(Arc::new(fake::Flaky { inner, every: 7, changes: Arc::default() })), ..good };
    for phase in [ChurnPhase::Fill, ChurnPhase::Mixed] {
        let done = run(&spec(phase, false), &flaky);
        assert_eq!((done.wrong, done.lost), (0, 0), "{phase:?}: {:?}", done.complaints);
        assert!(done.failed() > 10);
        assert_eq!(done.left_out > 0, phase == ChurnPhase::Mixed);
    }
    let read = run(&spec(ChurnPhase::ReadBack, false), &flaky);
    assert_eq!((read.failed(), read.wrong, read.lost), (0, 0, 0), "{:?}", read.complaints);
    assert!(read.left_out > 0 && read.operations > 0);
}

#[test]
fn a_listing_has_exactly_the_existing_files() {
    for one_directory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let site = site(folder.path());
        make(&site, &spec(ChurnPhase::Fill, one_directory));
        run(&spec(ChurnPhase::Fill, one_directory), &site);
        let mix = Mix { create: 0, rewrite: 0, read: 0, stat: 0, list: 1, remove: 0 };
        let listing = ChurnSpec { mix, operations: 1, ..spec(ChurnPhase::Mixed, one_directory) };
        let done = run(&listing, &site);
        assert_eq!((done.operations, done.failed(), done.wrong), (3, 0, 0), "{:?}", done.complaints);
        let there = files(folder.path());
        std::fs::rename(&there[3], there[3].with_file_name("f999999")).unwrap();
        let done = run(&listing, &site);
        // In the shared directory another name may belong to another client.
        let text = format!("{:?}", done.complaints);
        assert_eq!(done.wrong, if one_directory { 1 } else { 2 }, "{text}");
        assert!(text.contains("f000003 is not listed"), "{text}");
        assert!(one_directory || text.contains("f999999 is listed, and this run has not created it"), "{text}");
    }
}

#[test]
fn invalid_parameters_are_refused() {
    let good = spec(ChurnPhase::Mixed, false);
    let mix = Mix { create: 0, rewrite: 0, read: 0, stat: 0, list: 0, remove: 0 };
    assert_eq!(ChurnSpec { mix, ..good.clone() }.check(), Err(ChurnError::NoMix));
    let sizes = Sizes { least: 5, most: 4 };
    assert_eq!(ChurnSpec { sizes, ..good.clone() }.check(), Err(ChurnError::Sizes { least: 5, most: 4 }));
    let many = ChurnSpec { clients: 5000, ..good.clone() }.check();
    assert!(matches!(many, Err(ChurnError::Bounds { what: "clients", value: 5000, most: 4096 })));
    assert!(matches!(ChurnSpec { clients: 0, ..good }.check(), Err(ChurnError::Bounds { what: "clients", .. })));
}
