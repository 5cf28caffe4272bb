//! Writers and readers that continue in spite of failures, and a check of all files at the end, on a local path.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_bench::content::Content;
use weir_bench::load::{Finished, Reading, Tally};
use weir_bench::target::{Durability, IoOptions, RelName, TargetDir, Window};
use weir_bench::workload::{FailureSpec, Site, Workload};

fn spec() -> FailureSpec {
    FailureSpec {
        writers: 2,
        files: 100_000,
        file_bytes: 300_000,
        block_bytes: 64 << 10,
        readers: 1,
        seconds: 2,
        wait_seconds: 1,
        io_options: IoOptions { direct: false, durability: Durability::None, window: Window::Fixed(1) },
    }
}

/// Runs it. Calls `second` at the end of each second with the folder of all files.
fn run(spec: &FailureSpec, second: impl Fn(&Path)) -> Finished {
    let folder = tempfile::tempdir().unwrap();
    let place = TargetDir::Path(folder.path().to_owned());
    let target = place.target(&RelName::new("run").unwrap(), &client::Settings::default());
    let mut session = target.session().unwrap();
    session.make_home().unwrap();
    spec.directories().iter().for_each(|name| session.make_directory(name).unwrap());
    let site = Site::on(target, Arc::new(Content::new(9)));
    spec.worker_pool(&site, 0..spec.parts()).unwrap().run(None, |_: Reading| {
        second(&folder.path().join("run"));
        true
    })
}

fn tally(finished: &Finished, role: &str) -> Tally {
    let mut sum = Tally::default();
    let group = finished.roles.iter().find(|group| group.role == role).unwrap();
    group.workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
    sum
}

#[test]
fn without_a_failure_all_files_exist() {
    let finished = run(&spec(), |_| {});
    let [written, read, checked] = ["write", "read", "check"].map(|role| tally(&finished, role));
    assert!(written.bytes > 1_000_000 && read.verified > 0);
    assert_eq!((checked.verified, checked.lost, checked.wrong), (written.bytes, 0, 0), "{:?}", checked.complaints);
    // The check afterwards has its own time.
    let wall = |role| finished.roles.iter().find(|group| group.role == role).unwrap().wall;
    assert!(wall("write") >= Duration::from_secs(2) && wall("check") < finished.wall - Duration::from_secs(1));
}

#[test]
fn missing_or_changed_acknowledged_files_are_found() {
    let finished = run(&FailureSpec { readers: 0, ..spec() }, |folder| {
        let first = folder.join("s000000/f000000");
        let second = folder.join("s000001/f000000");
        // The file exists in the first second only.
        let _ = std::fs::remove_file(&first);
        if let Ok(mut bytes) = std::fs::read(&second)
            && bytes[100_000] != 7
        {
            bytes[100_000] = 7;
            std::fs::write(&second, bytes).unwrap();
        }
    });
    let checked = tally(&finished, "check");
    assert_eq!((checked.lost, checked.wrong), (1, 1), "{:?}", checked.complaints);
}

#[test]
fn writers_continue_after_a_failure() {
    // The directory is missing for a second.
    let finished = run(&FailureSpec { seconds: 4, readers: 0, ..spec() }, |folder| {
        let (away, back) = (folder.join("away"), folder.join("s000000"));
        if away.exists() {
            std::fs::rename(away, back).unwrap();
        } else if std::fs::rename(&back, &away).is_err() {
            std::fs::create_dir(&back).unwrap();
        }
    });
    let (written, checked) = (tally(&finished, "write"), tally(&finished, "check"));
    assert!(written.failed() > 0 && written.failed() < 40, "{:?}", written.failures);
    assert!(checked.verified > 0 && checked.wrong == 0);
}
