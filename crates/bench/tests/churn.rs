//! Files that come, change and go on a local path: what is there afterwards is what has to be there, and what is not is found.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_bench::content::Content;
use weir_bench::load::Tally;
use weir_bench::target::{Durability, Manner, Place, RelName};
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
        mixed: matches!(phase, ChurnPhase::ReadBack | ChurnPhase::Remove),
        one_directory,
        manner: Manner { direct: false, durability: Durability::None, window: 1 },
        rate: None,
        seed: 11,
    }
}

fn site(folder: &Path) -> Site {
    let place = Place::Path(folder.to_owned());
    let target = place.target(&RelName::new("run").unwrap(), &client::Settings::default());
    Site { target: Some(target), copies: None, peers: Vec::new(), content: Arc::new(Content::new(9)) }
}

fn run(spec: &ChurnSpec, site: &Site) -> Tally {
    let finished = spec.crew(site, 0..spec.parts()).unwrap().run(None, |_| true);
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
fn all_is_there_that_has_to_be_and_nothing_else() {
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
fn what_is_lost_left_over_or_changed_is_found() {
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
fn nonsense_is_refused() {
    let good = spec(ChurnPhase::Mixed, false);
    let mix = Mix { create: 0, rewrite: 0, read: 0, stat: 0, list: 0, remove: 0 };
    assert_eq!(ChurnSpec { mix, ..good.clone() }.check(), Err(ChurnError::NoMix));
    let sizes = Sizes { least: 5, most: 4 };
    assert_eq!(ChurnSpec { sizes, ..good.clone() }.check(), Err(ChurnError::Sizes { least: 5, most: 4 }));
    assert!(matches!(ChurnSpec { clients: 0, ..good }.check(), Err(ChurnError::Bounds { what: "clients", .. })));
}
