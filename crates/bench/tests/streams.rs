//! Streams on a local path: read bytes equal the written ones, differences are found, and failures are counted.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::fake;
use weir_bench::content::Content;
use weir_bench::load::{Finished, Tally};
use weir_bench::memory::Memory;
use weir_bench::target::{AutoWindow, Durability, Failure, IoOptions, Purpose, RelName, Target, TargetDir, Window};
use weir_bench::workload::{Access, Site, StreamSpec, Workload};

fn site(target: &Arc<dyn Target>) -> Site {
    Site::on(Arc::clone(target), Arc::new(Content::new(9)))
}

fn target(folder: &Path) -> Arc<dyn Target> {
    let place = TargetDir::parse(folder.to_str().unwrap()).unwrap();
    place.target(&RelName::new("run").unwrap(), &client::Settings::default())
}

fn spec(access: Access) -> StreamSpec {
    StreamSpec {
        access,
        streams: 2,
        files: 2,
        file_bytes: 3 << 20,
        block_bytes: 64 << 10,
        chunks: 1,
        io_options: IoOptions { direct: false, durability: Durability::Close, window: Window::Fixed(4) },
        rate: None,
        write_percent: 50,
        verify: true,
        generation: 0,
        oldest_generation: 0,
        seed: 1,
    }
}

fn make(target: &Arc<dyn Target>, streams: u64) {
    let mut session = target.session().unwrap();
    session.make_home().unwrap();
    for stream in 0..streams {
        session.make_directory(&RelName::numbered('s', stream)).unwrap();
    }
}

fn run(spec: &StreamSpec, target: &Arc<dyn Target>) -> (Finished, Tally) {
    let finished = spec.worker_pool(&site(target), 0..spec.parts()).unwrap().run(None, |_| true);
    let mut sum = Tally::default();
    finished.roles[0].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
    (finished, sum)
}

#[test]
fn read_bytes_equal_written_ones_in_every_pattern() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    let all = 12 << 20;
    let (finished, written) = run(&spec(Access::Write), &target);
    assert_eq!((written.bytes, written.operations, written.failed()), (all, 192, 0));
    assert_eq!(finished.roles[0].seconds.last().unwrap().bytes, all);
    for access in [Access::Read, Access::Reread, Access::RandomRead, Access::StrideRead, Access::BackwardRead] {
        let (_, read) = run(&StreamSpec { chunks: 3, ..spec(access) }, &target);
        assert_eq!((read.bytes, read.verified, read.failed(), read.wrong), (all, all, 0, 0), "{access:?}");
    }
    let (_, mixed) = run(&spec(Access::Mixed), &target);
    assert_eq!((mixed.bytes, mixed.failed(), mixed.wrong), (all, 0, 0));
    assert!(mixed.verified > all / 4 && mixed.verified < all * 3 / 4);
    // All blocks in the next generation, then in the one after that.
    run(&StreamSpec { generation: 1, oldest_generation: 1, ..spec(Access::Rewrite) }, &target);
    let (_, read) = run(&StreamSpec { generation: 2, oldest_generation: 2, ..spec(Access::Read) }, &target);
    assert_eq!((read.verified, read.wrong), (all, 0));
    run(&StreamSpec { generation: 2, oldest_generation: 2, ..spec(Access::RandomWrite) }, &target);
    let (_, old) = run(&StreamSpec { generation: 2, oldest_generation: 2, ..spec(Access::Read) }, &target);
    assert_eq!((old.verified, old.wrong), (0, 192));
    let (_, new) = run(&StreamSpec { generation: 3, oldest_generation: 3, ..spec(Access::Read) }, &target);
    assert_eq!((new.verified, new.wrong), (all, 0));
    // With buffers, and read back in both ways.
    let odd = |access, generation| StreamSpec {
        generation,
        oldest_generation: generation,
        block_bytes: 10_000,
        ..spec(access)
    };
    run(&odd(Access::Fwrite, 3), &target);
    let (_, read) = run(&odd(Access::Fread, 4), &target);
    assert_eq!((read.verified, read.wrong, read.failed()), (all, 0, 0));
    run(&StreamSpec { generation: 4, oldest_generation: 4, ..spec(Access::Frewrite) }, &target);
    for access in [Access::Read, Access::Freread] {
        let (_, read) = run(&StreamSpec { generation: 5, oldest_generation: 5, ..spec(access) }, &target);
        assert_eq!((read.verified, read.wrong, read.failed()), (all, 0, 0));
    }
}

#[test]
fn patterns_that_write_some_blocks_leave_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    let mut generations = (0, 0);
    for access in
        [Access::Write, Access::Rewrite, Access::RecordRewrite, Access::StrideRead, Access::Mixed, Access::Read]
    {
        let (oldest_generation, generation) = generations;
        let step = StreamSpec { generation, oldest_generation, ..spec(access) };
        let (_, done) = run(&step, &target);
        assert_eq!((done.wrong, done.failed()), (0, 0), "{access:?}: {:?}", done.complaints);
        generations = step.generations_after();
    }
    assert_eq!(generations, (1, 3));
    // A reader that expects only the new generation finds old blocks.
    let (_, read) = run(&StreamSpec { generation: 3, oldest_generation: 3, ..spec(Access::Read) }, &target);
    assert!(read.wrong > 0 && read.verified > 0);
}

#[test]
fn a_driver_keeps_requests_that_were_started_before_another_was_taken() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    run(&spec(Access::Write), &target);
    let mut session = target.session().unwrap();
    for stdio in [false, true] {
        let (name, io_options) = (spec(Access::Read).name(0, 0), spec(Access::Read).io_options);
        let mut file = if stdio {
            session.open_stdio(&name, Purpose::Read, io_options).unwrap()
        } else {
            session.open(&name, Purpose::Read, io_options).unwrap()
        };
        for offset in [0, 4096, 8192] {
            file.read(offset, Memory::new(4096).unwrap()).unwrap();
        }
        let done: Vec<u64> = std::iter::from_fn(|| file.done().unwrap()).map(|done| done.offset).collect();
        assert_eq!(done, [0, 4096, 8192], "stdio: {stdio}");
    }
}

#[test]
fn direct_reads_and_writes_are_the_same_bytes() {
    // Not in memory, because tmpfs does not support direct I/O everywhere.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let target = target(folder.path());
    make(&target, 2);
    let direct = IoOptions { direct: true, durability: Durability::None, window: Window::Fixed(1) };
    let (_, written) = run(&StreamSpec { io_options: direct, block_bytes: 1 << 20, ..spec(Access::Write) }, &target);
    assert_eq!((written.bytes, written.failed()), (12 << 20, 0), "{:?}", written.complaints);
    let (_, read) = run(&StreamSpec { io_options: direct, block_bytes: 12 << 10, ..spec(Access::RandomRead) }, &target);
    assert_eq!((read.verified, read.wrong, read.failed()), (12 << 20, 0, 0), "{:?}", read.complaints);
}

#[test]
fn one_wrong_byte_is_found_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    run(&spec(Access::Write), &target);
    let file = OpenOptions::new().read(true).write(true).open(folder.path().join("run/s000001/f000000")).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 1_234_567).unwrap();
    file.write_all_at(&[!byte[0]], 1_234_567).unwrap();
    let (_, read) = run(&spec(Access::Read), &target);
    assert_eq!((read.wrong, read.verified), (1, (12 << 20) - (64 << 10)));
    let text = &read.complaints[0].text;
    assert!(text.contains("s000001/f000000") && text.contains("1234567"), "{text}");
}

#[test]
fn failures_are_counted_and_the_rest_is_done() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    run(&spec(Access::Write), &target);
    std::fs::remove_file(folder.path().join("run/s000000/f000001")).unwrap();
    std::fs::File::options()
        .write(true)
        .open(folder.path().join("run/s000001/f000001"))
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let (_, read) = run(&spec(Access::Read), &target);
    assert_eq!(read.bytes, 7 << 20);
    assert_eq!(read.failures.get(&Failure::NotFound), Some(&1));
    assert_eq!(read.failures.get(&Failure::Other), Some(&1));
    // Existing files are not overwritten.
    let (_, again) = run(&spec(Access::Write), &target);
    assert_eq!((again.bytes, again.failures.get(&Failure::Exists)), (3 << 20, Some(&3)));
}

#[test]
fn a_rate_is_kept_and_a_limit_ends_the_work() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 1);
    let spec = StreamSpec { streams: 1, files: 1, file_bytes: 64 << 20, rate: Some(2 << 20), ..spec(Access::Write) };
    let worker_pool = spec.worker_pool(&site(&target), 0..spec.parts()).unwrap();
    let finished = worker_pool.run(Some(Duration::from_millis(1500)), |_| true);
    let bytes = finished.roles[0].workers[0].as_ref().unwrap().bytes;
    assert!((3 << 20..=(3 << 20) + (256 << 10)).contains(&bytes), "{bytes}");
    assert!(
        finished.wall >= Duration::from_millis(1450) && finished.wall < Duration::from_secs(3),
        "{:?}",
        finished.wall
    );
}

#[test]
fn files_that_were_cut_short_are_read_up_to_their_written_length() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    make(&target, 2);
    let site = site(&target);
    let of = |access, files| StreamSpec { files, file_bytes: 1 << 20, generation: 1, ..spec(access) };
    let run = |spec: &StreamSpec, limit| {
        let finished = spec.worker_pool(&site, 0..spec.parts()).unwrap().run(limit, |_| true);
        let mut sum = Tally::default();
        finished.roles[0].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
        sum
    };
    // Two files and a part of the third in half a second.
    let paced = StreamSpec { rate: Some(5 << 20), generation: 0, ..of(Access::Write, 10) };
    let written = run(&paced, Some(Duration::from_millis(500)));
    assert_eq!((written.cut, written.failed()), (2, 0));
    assert!(written.bytes > 4 << 20 && written.bytes < 8 << 20, "{}", written.bytes);
    for (access, chunks) in [(Access::Read, 1), (Access::ReadOthers, 1), (Access::RandomRead, 3), (Access::Rewrite, 2)]
    {
        let done = run(&StreamSpec { chunks, ..of(access, 10) }, None);
        assert_eq!((done.bytes, done.failed(), done.wrong), (written.bytes, 0, 0), "{access:?}: {:?}", done.complaints);
        assert!((14..=16).contains(&done.left_out) && done.cut == 0, "{access:?}: {}", done.left_out);
    }
    // A missing acknowledged file is still reported.
    std::fs::remove_file(folder.path().join("run/s000000/f000001")).unwrap();
    assert_eq!(run(&of(Access::Read, 10), None).failed(), 1);
}

#[test]
fn an_automatic_window_is_that_of_each_file_and_is_recorded() {
    for (needed, had) in [(1, 1), (7, 7), (1000, 64)] {
        let system = fake::DelayedSystem::new(Duration::from_millis(20), needed);
        let most_under_way = Arc::clone(&system.most_under_way);
        let distant: Arc<dyn Target> = Arc::new(system);
        let auto = IoOptions { window: Window::Auto, ..spec(Access::Write).io_options };
        let of = |io_options| StreamSpec { io_options, streams: 2, files: 1, verify: false, ..spec(Access::Write) };
        let (finished, done) = run(&of(auto), &distant);
        assert_eq!((done.operations, done.failed(), done.auto_window), (96, 0, Some(AutoWindow::of(had))), "{needed}");
        // A file has 48 blocks.
        assert_eq!(most_under_way.swap(0, Ordering::Relaxed), had.min(48));
        // Each of the two streams waits for its 48 answers, of which so many come together.
        let trips = 48_u32.div_ceil(u32::try_from(had).unwrap());
        assert!(finished.wall >= Duration::from_millis(20) * trips, "{needed}: {:?}", finished.wall);
        let (_, fixed) = run(&of(IoOptions { window: Window::Fixed(3), ..auto }), &distant);
        assert_eq!((fixed.operations, fixed.auto_window), (96, None));
        assert_eq!(most_under_way.load(Ordering::Relaxed), 3);
    }
}

#[test]
fn answers_are_timed_when_they_come_and_not_when_the_next_request_is_due() {
    let distant: Arc<dyn Target> = Arc::new(fake::DelayedSystem::new(Duration::from_millis(5), 1));
    for (access, window) in [(Access::Write, 1), (Access::Write, 4), (Access::Read, 4)] {
        // One request each 62 ms.
        let io_options = IoOptions { window: Window::Fixed(window), ..spec(Access::Write).io_options };
        let spec = StreamSpec {
            io_options,
            streams: 1,
            files: 1,
            file_bytes: 1 << 20,
            rate: Some(1 << 20),
            verify: false,
            ..spec(access)
        };
        let (_, done) = run(&spec, &distant);
        let median = done.latency.quantile(0.5).unwrap();
        assert!(done.operations == 16 && median < Duration::from_millis(30), "{access:?} {window}: {median:?}");
    }
}

#[test]
fn the_workers_of_a_stream_keep_its_rate_together() {
    let distant: Arc<dyn Target> = Arc::new(fake::DelayedSystem::new(Duration::ZERO, 1));
    let paced = StreamSpec {
        streams: 1,
        files: 1,
        file_bytes: 4 << 20,
        rate: Some(4 << 20),
        verify: false,
        ..spec(Access::Read)
    };
    for chunks in [1, 4] {
        let (finished, done) = run(&StreamSpec { chunks, ..paced.clone() }, &distant);
        assert_eq!(done.bytes, 4 << 20);
        assert!((900..1500).contains(&finished.wall.as_millis()), "{chunks} chunks: {:?}", finished.wall);
    }
}

#[test]
fn the_unaligned_length_is_named() {
    let direct = |block_bytes, file_bytes| {
        let io_options = IoOptions { direct: true, ..spec(Access::Write).io_options };
        StreamSpec { io_options, block_bytes, file_bytes, ..spec(Access::Write) }.check().unwrap_err().to_string()
    };
    let file = direct(1 << 20, 100_000_000);
    assert!(file.contains("1048576") && file.contains("100000000") && file.contains("the file is not"), "{file}");
    assert!(direct(1000, 1 << 20).contains("the block is not"));
    assert!(direct(1000, 1000).contains("neither is"));
}

#[test]
fn invalid_parameters_are_refused_before_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let target = target(folder.path());
    let direct = IoOptions { direct: true, ..spec(Access::Write).io_options };
    for wrong in [
        StreamSpec { streams: 0, ..spec(Access::Read) },
        StreamSpec { streams: 5000, ..spec(Access::Read) },
        StreamSpec { streams: 4, chunks: 2000, ..spec(Access::Read) },
        StreamSpec { block_bytes: 0, ..spec(Access::Read) },
        StreamSpec { block_bytes: 1 << 30, ..spec(Access::Read) },
        StreamSpec { io_options: direct, block_bytes: 1000, ..spec(Access::Read) },
        StreamSpec { chunks: 2, ..spec(Access::Write) },
        StreamSpec { block_bytes: 1000, ..spec(Access::Rewrite) },
        StreamSpec { io_options: direct, ..spec(Access::Fread) },
        StreamSpec { chunks: 2, ..spec(Access::Fwrite) },
    ] {
        assert!(wrong.worker_pool(&site(&target), 0..1).is_err(), "{wrong:?}");
    }
    assert!(!folder.path().join("run").exists());
}
