//! Recorders, and readers of their files, on a local disk.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake;
use weir_bench::content::Content;
use weir_bench::load::{Finished, Tally};
use weir_bench::target::{AutoWindow, Durability, IoOptions, RelName, Target, TargetDir, Window};
use weir_bench::workload::{DaqError, DaqSpec, Site, Workload};

const MIB: u64 = 1 << 20;

fn spec() -> DaqSpec {
    DaqSpec {
        recorders: 2,
        files: 3,
        file_bytes: 5 * MIB + 77,
        block_bytes: 256 << 10,
        rate: None,
        buffer_bytes: MIB,
        followers: 2,
        copiers: 1,
        io_options: IoOptions { direct: false, durability: Durability::None, window: Window::Fixed(1) },
        verify: true,
    }
}

fn target(folder: &Path) -> Arc<dyn Target> {
    let place = TargetDir::Path(folder.to_owned());
    let target = place.target(&RelName::new("run").unwrap(), &client::Settings::default());
    target.session().unwrap().make_home().unwrap();
    target
}

fn run(spec: &DaqSpec, watch: impl FnMut(weir_bench::load::Reading) -> bool) -> (tempfile::TempDir, Finished) {
    let folder = tempfile::tempdir().unwrap();
    let (main, copies) = (folder.path().join("main"), folder.path().join("copies"));
    std::fs::create_dir(&main).unwrap();
    std::fs::create_dir(&copies).unwrap();
    let (main, copies) = (target(&main), target(&copies));
    let mut session = main.session().unwrap();
    spec.directories().iter().for_each(|name| session.make_directory(name).unwrap());
    let copies = (spec.copiers > 0).then_some(copies);
    let site = Site { copies, ..Site::on(main, Arc::new(Content::new(5))) };
    let finished = spec.worker_pool(&site, 0..spec.parts()).unwrap().run(None, watch);
    (folder, finished)
}

fn tally(finished: &Finished, role: usize) -> Tally {
    let mut sum = Tally::default();
    finished.roles[role].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
    sum
}

#[test]
fn all_recorded_files_are_followed_and_copied() {
    let spec = spec();
    let (folder, finished) = run(&spec, |_| true);
    let names: Vec<_> = finished.roles.iter().map(|group| group.role).collect();
    assert_eq!(names, ["record", "follow", "copy-out"]);
    let all = spec.bytes();
    for (role, bytes) in [(0, all), (1, 2 * all), (2, all)] {
        let tally = tally(&finished, role);
        assert_eq!(
            (tally.bytes, tally.failed(), tally.wrong, tally.missed),
            (bytes, 0, 0, 0),
            "{:?}",
            tally.complaints
        );
        assert_eq!(finished.roles[role].seconds.last().unwrap().bytes, bytes);
        assert_eq!(tally.verified, if role == 0 { 0 } else { bytes });
    }
    for (name, copy) in spec.names().zip(spec.copy_names()) {
        let read =
            |top: &str, name: &RelName| std::fs::read(folder.path().join(top).join("run").join(name.as_str())).unwrap();
        assert!(read("main", &name) == read("copies", &copy), "{name}");
    }
}

#[test]
fn machines_share_the_recorders() {
    let spec = DaqSpec { recorders: 4, files: 1, copiers: 1, ..spec() };
    let folder = tempfile::tempdir().unwrap();
    let (main, copies) = (folder.path().join("main"), folder.path().join("copies"));
    std::fs::create_dir(&main).unwrap();
    std::fs::create_dir(&copies).unwrap();
    let (main, copies) = (target(&main), target(&copies));
    let mut session = main.session().unwrap();
    spec.directories().iter().for_each(|name| session.make_directory(name).unwrap());
    let site = Site { copies: Some(copies), ..Site::on(main, Arc::new(Content::new(5))) };
    for parts in [0..1, 1..4] {
        let finished = spec.worker_pool(&site, parts.clone()).unwrap().run(None, |_| true);
        let bytes = u64::from(parts.end - parts.start) * spec.file_bytes;
        for (role, times) in [(0, 1), (1, 2), (2, 1)] {
            let tally = tally(&finished, role);
            assert_eq!((tally.bytes, tally.failed(), tally.wrong), (times * bytes, 0, 0), "{:?}", tally.complaints);
        }
    }
    for (name, copy) in spec.names().zip(spec.copy_names()) {
        let read =
            |top: &str, name: &RelName| std::fs::read(folder.path().join(top).join("run").join(name.as_str())).unwrap();
        assert!(read("main", &name) == read("copies", &copy), "{name}");
    }
}

#[test]
fn a_rate_is_kept_and_a_detector_that_is_too_fast_loses_data() {
    // 2 files of 5 MiB at 10 MiB/s.
    let paced = DaqSpec { recorders: 1, files: 2, file_bytes: 5 * MIB, rate: Some(10 * MIB), copiers: 0, ..spec() };
    let (_, finished) = run(&paced, |_| true);
    let recorded = tally(&finished, 0);
    assert_eq!((recorded.missed, recorded.bytes), (0, 10 * MIB));
    assert!(
        finished.wall > Duration::from_millis(900) && finished.wall < Duration::from_millis(2500),
        "{:?}",
        finished.wall
    );
    let fast = DaqSpec { rate: Some(1 << 50), buffer_bytes: 1, ..paced };
    let (_, finished) = run(&fast, |_| true);
    assert!(tally(&finished, 0).missed > 10);
}

#[test]
fn a_recorder_takes_answers_when_they_come() {
    let distant = fake::DelayedSystem::new(Duration::from_millis(5), 9);
    let most_under_way = Arc::clone(&distant.most_under_way);
    let site = Site::on(Arc::new(distant), Arc::new(Content::new(5)));
    let io_options = IoOptions { window: Window::Fixed(4), ..spec().io_options };
    // One block each 62 ms.
    let paced = DaqSpec { recorders: 1, files: 1, file_bytes: 4 * MIB, rate: Some(4 * MIB), ..spec() };
    let paced = DaqSpec { followers: 0, copiers: 0, io_options, ..paced };
    let finished = paced.worker_pool(&site, 0..1).unwrap().run(None, |_| true);
    let median = tally(&finished, 0).latency.quantile(0.5).unwrap();
    assert!(median < Duration::from_millis(30), "{median:?}");

    let auto = IoOptions { window: Window::Auto, ..io_options };
    let fast = DaqSpec { io_options: auto, rate: None, ..paced };
    let finished = fast.worker_pool(&site, 0..1).unwrap().run(None, |_| true);
    let done = tally(&finished, 0);
    assert_eq!((done.auto_window, done.failed(), done.bytes), (Some(AutoWindow::of(9)), 0, 4 * MIB));
    assert_eq!(most_under_way.load(Ordering::Relaxed), 9);
}

#[test]
fn after_a_stop_no_worker_waits_for_ever() {
    let slow = DaqSpec { rate: Some(MIB), file_bytes: 500 * MIB, ..spec() };
    let (_, finished) = run(&slow, |_| false);
    assert!(finished.wall < Duration::from_secs(5), "{:?}", finished.wall);
    assert!(tally(&finished, 0).bytes > 0 && tally(&finished, 2).bytes == 0);
}

#[test]
fn invalid_parameters_are_refused() {
    assert_eq!(DaqSpec { recorders: 0, ..spec() }.check(), Err(DaqError::Zero("recorders")));
    assert_eq!(DaqSpec { recorders: 3000, ..spec() }.check(), Err(DaqError::Many { workers: 9001 }));
    let direct = IoOptions { direct: true, ..spec().io_options };
    assert!(matches!(DaqSpec { io_options: direct, ..spec() }.check(), Err(DaqError::Unaligned { .. })));
    let folder = tempfile::tempdir().unwrap();
    let site = Site::on(target(folder.path()), Arc::new(Content::new(1)));
    assert_eq!(spec().worker_pool(&site, 0..2).err(), Some(DaqError::CopiesWhere.into()));
}
