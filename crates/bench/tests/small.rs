//! Many small files on a local path, in directories of their own and all in one.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_bench::content::Content;
use weir_bench::load::Tally;
use weir_bench::target::{Durability, Failure, IoOptions, RelName, Target, TargetDir, Window};
use weir_bench::workload::{Site, SmallError, SmallPhase, SmallSpec, Workload};

fn site(target: &Arc<dyn Target>) -> Site {
    Site::on(Arc::clone(target), Arc::new(Content::new(9)))
}

fn target(folder: &Path) -> Arc<dyn Target> {
    let place = TargetDir::parse(folder.to_str().unwrap()).unwrap();
    place.target(&RelName::new("run").unwrap(), &client::Settings::default())
}

fn spec(phase: SmallPhase, one_directory: bool) -> SmallSpec {
    let io_options = IoOptions { direct: false, durability: Durability::None, window: Window::Fixed(1) };
    SmallSpec {
        phase,
        clients: 3,
        files: 50,
        file_bytes: 5000,
        one_directory,
        io_options,
        rate: None,
        verify: true,
        batch: false,
        least_ms: 0,
    }
}

#[test]
fn phases_that_change_nothing_last_as_long_as_they_must() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&spec(SmallPhase::Create, false), &target);
    run(&spec(SmallPhase::Create, false), &target);
    for phase in [SmallPhase::Stat, SmallPhase::Read, SmallPhase::List, SmallPhase::Remove] {
        let spec = SmallSpec { least_ms: 300, ..spec(phase, false) };
        let begun = Instant::now();
        let tally = run(&spec, &target);
        assert_eq!((tally.failed(), tally.wrong, tally.left_out), (0, 0, 0), "{phase:?}: {:?}", tally.complaints);
        match phase {
            SmallPhase::Remove => assert_eq!(tally.operations, 150, "a file is removed once"),
            _ => assert!(
                tally.operations > 150 && tally.operations.is_multiple_of(50) && begun.elapsed().as_millis() >= 300
            ),
        }
    }
}

fn run(spec: &SmallSpec, target: &Arc<dyn Target>) -> Tally {
    let finished = spec.worker_pool(&site(target), 0..spec.parts()).unwrap().run(None, |_| true);
    let mut sum = Tally::default();
    finished.roles[0].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
    sum
}

fn make(spec: &SmallSpec, target: &Arc<dyn Target>) {
    let mut session = target.session().unwrap();
    session.make_home().unwrap();
    spec.directories().for_each(|directory| session.make_directory(&directory).unwrap());
}

#[test]
fn all_phases_do_their_work() {
    for one_directory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let target = target(folder.path());
        make(&spec(SmallPhase::Create, one_directory), &target);
        let of = |phase| run(&spec(phase, one_directory), &target);
        let made = of(SmallPhase::Create);
        assert_eq!((made.operations, made.bytes, made.failed()), (150, 750_000, 0));
        let listed = of(SmallPhase::List);
        let entries = if one_directory { 450 } else { 150 };
        assert_eq!((listed.operations, listed.wrong, listed.latency.count()), (entries, 0, 3));
        let seen = of(SmallPhase::Stat);
        assert_eq!((seen.operations, seen.wrong), (150, 0));
        let read = of(SmallPhase::Read);
        assert_eq!((read.verified, read.wrong, read.failed()), (750_000, 0, 0));
        let removed = of(SmallPhase::Remove);
        assert_eq!((removed.operations, removed.failed()), (150, 0));
        assert_eq!(of(SmallPhase::Read).failures.get(&Failure::NotFound), Some(&150));
    }
}

#[test]
fn changed_files_are_found() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&spec(SmallPhase::Create, false), &target);
    run(&spec(SmallPhase::Create, false), &target);
    let at = |name: &str| folder.path().join("run").join(name);
    std::fs::write(at("d000000/f000003"), vec![0; 5000]).unwrap();
    std::fs::write(at("d000001/f000060"), b"short").unwrap();
    std::fs::copy(at("d000002/f000100"), at("d000002/f000101")).unwrap();
    let read = run(&spec(SmallPhase::Read, false), &target);
    assert_eq!((read.wrong, read.failed()), (2, 1), "{:?}", read.complaints);
    assert!(read.complaints.iter().any(|one| one.text.contains("zeros")));
    assert!(
        read.complaints.iter().any(|one| one.text.contains("belongs to byte 0 of file 100")),
        "{:?}",
        read.complaints
    );
    assert_eq!(run(&spec(SmallPhase::Stat, false), &target).wrong, 1);
    assert_eq!(run(&spec(SmallPhase::List, false), &target).wrong, 1);
}

#[test]
fn a_listing_is_compared_name_by_name() {
    for one_directory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let target = target(folder.path());
        make(&spec(SmallPhase::Create, one_directory), &target);
        run(&spec(SmallPhase::Create, one_directory), &target);
        let directory = folder.path().join("run/d000000");
        for wrong in ["f000160", "f0000003", "other"] {
            std::fs::rename(directory.join("f000003"), directory.join(wrong)).unwrap();
            let listed = run(&spec(SmallPhase::List, one_directory), &target);
            assert_eq!((listed.failed(), listed.wrong), (0, if one_directory { 3 } else { 1 }), "{wrong}");
            std::fs::rename(directory.join(wrong), directory.join("f000003")).unwrap();
        }
        assert_eq!(run(&spec(SmallPhase::List, one_directory), &target).wrong, 0);
    }
}

#[test]
fn files_that_were_not_made_in_time_are_left_out() {
    for one_directory in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let target = target(folder.path());
        make(&spec(SmallPhase::Create, one_directory), &target);
        let site = site(&target);
        let mut made = 0;
        for phase in SmallPhase::ALL {
            let creates = phase == SmallPhase::Create;
            let spec = SmallSpec { rate: creates.then_some(50), ..spec(phase, one_directory) };
            let worker_pool = spec.worker_pool(&site, 0..spec.parts()).unwrap();
            let finished = worker_pool.run(creates.then_some(Duration::from_millis(500)), |_| true);
            let mut done = Tally::default();
            finished.roles[0].workers.iter().for_each(|tally| done.merge(tally.as_ref().unwrap()));
            assert_eq!((done.failed(), done.wrong), (0, 0), "{phase:?}: {:?}", done.complaints);
            if creates {
                made = done.operations;
                assert!(done.cut == 3 && (30..150).contains(&made), "{made}");
            } else {
                let times = if one_directory && phase == SmallPhase::List { 3 } else { 1 };
                assert_eq!((done.operations, done.left_out), (times * made, 150 - made), "{phase:?}");
            }
        }
    }
}

#[test]
fn more_clients_than_a_machine_can_have_are_refused() {
    let paced = SmallSpec { batch: true, rate: Some(5), ..spec(SmallPhase::Create, false) };
    assert_eq!(paced.check(), Err(SmallError::PacedBatches));
    assert!(SmallSpec { clients: 4096, ..spec(SmallPhase::Create, false) }.check().is_ok());
    assert_eq!(SmallSpec { clients: 4097, ..spec(SmallPhase::Create, false) }.check(), Err(SmallError::Many(4097)));
}
