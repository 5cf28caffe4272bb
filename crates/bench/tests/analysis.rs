//! Analysis jobs on a local disk: synthetic files, recordings, and a ROOT file of a few records that is made here.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;
use std::sync::Arc;

use weir_bench::content::Content;
use weir_bench::load::Tally;
use weir_bench::target::{RelName, Target, TargetDir};
use weir_bench::workload::{
    AnalysisError, AnalysisPhase, AnalysisSource, AnalysisSpec, Gaps, Mode, Order, Shared, Site, SyntheticSpec,
    Workload,
};

const MODES: [Mode; 4] = [Mode::Direct, Mode::Vector, Mode::ReadAhead, Mode::CopyIn];

fn spec(source: AnalysisSource) -> AnalysisSpec {
    AnalysisSpec {
        phase: AnalysisPhase::Put,
        source,
        copies: 2,
        order: Order::Ordered,
        jobs: 3,
        events_millionths: 1_000_000,
        mode: Mode::Direct,
        cache_bytes: 100_000,
        added_round_trip_us: 0,
        round_trip_us: 0,
        decompress: false,
        compute_us_per_mb: 0,
        gaps: Gaps::Skip,
        scratch: std::env::temp_dir(),
        seed: 7,
        shared: Shared::default(),
    }
}

fn synthetic() -> SyntheticSpec {
    SyntheticSpec { file_bytes: 4 << 20, events: 10_000, branches: 40, read: 10, basket_bytes: 5000 }
}

struct World {
    folder: tempfile::TempDir,
    target: Arc<dyn Target>,
    site: Site,
}

fn world() -> World {
    let folder = tempfile::tempdir().unwrap();
    let place = TargetDir::Path(folder.path().to_owned());
    let target = place.target(&RelName::new("run").unwrap(), &client::Settings::default());
    target.session().unwrap().make_home().unwrap();
    let site = Site::on(Arc::clone(&target), Arc::new(Content::new(5)));
    World { folder, target, site }
}

impl World {
    fn run(&self, spec: &AnalysisSpec) -> Tally {
        let finished = spec.worker_pool(&self.site, 0..spec.parts()).unwrap().run(None, |_| true);
        let mut sum = Tally::default();
        finished.roles[0].workers.iter().for_each(|tally| sum.merge(tally.as_ref().unwrap()));
        sum
    }

    /// Puts the files there, and runs the jobs.
    fn both(&self, spec: &AnalysisSpec) -> Tally {
        let put = self.run(spec);
        assert_eq!((put.failed(), put.bytes), (0, spec.room()), "{:?}", put.complaints);
        let tally = self.run(&AnalysisSpec { phase: AnalysisPhase::Analyse, ..spec.clone() });
        self.clean(spec);
        tally
    }

    fn clean(&self, spec: &AnalysisSpec) {
        let mut session = self.target.session().unwrap();
        spec.files().for_each(|name| session.remove(&name).unwrap());
        assert_eq!(std::fs::read_dir(self.folder.path().join("run")).unwrap().count(), 0);
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }
}

fn is_good(tally: &Tally) {
    assert_eq!((tally.failed(), tally.wrong), (0, 0), "{:?}", tally.complaints);
}

#[test]
fn each_mode_reads_the_same_and_moves_the_expected_bytes() {
    let world = world();
    for order in [Order::Ordered, Order::Unordered] {
        for mode in MODES {
            let spec = AnalysisSpec { mode, order, ..spec(AnalysisSource::Synthetic(synthetic())) };
            let tally = world.both(&spec);
            is_good(&tally);
            let file = spec.room() / 2;
            assert_eq!(tally.jobs.len(), 3);
            for job in &tally.jobs {
                assert_eq!((job.events, job.asked, job.unpacked), (10_000, file / 4, file / 4), "{mode:?} {order:?}");
                assert!(job.synthetic && job.cpu_s > 0.0 && job.cpu_s <= 1.1 * job.wall_s, "{job:?}");
                assert!(job.io_cpu_s <= job.cpu_s * 1.01, "{job:?}");
                match mode {
                    Mode::Direct | Mode::Vector => assert_eq!(job.moved, job.asked),
                    // Some baskets of the last branches are in blocks that were read before.
                    Mode::ReadAhead if order == Order::Ordered => {
                        assert!((file * 9 / 10..=file + 200_000).contains(&job.moved), "{} of {file}", job.moved);
                    }
                    Mode::ReadAhead => assert!(job.moved > file, "{} of {file}", job.moved),
                    Mode::CopyIn => assert_eq!(job.moved, file),
                }
            }
            assert_eq!(tally.verified, 3 * file / 4);
            assert_eq!(tally.bytes, tally.jobs.iter().map(|job| job.moved).sum::<u64>());
        }
    }
}

#[test]
fn few_events_take_few_bytes_and_each_job_has_its_own() {
    let world = world();
    let spec =
        AnalysisSpec { events_millionths: 1000, mode: Mode::Vector, ..spec(AnalysisSource::Synthetic(synthetic())) };
    let tally = world.both(&spec);
    is_good(&tally);
    let all = spec.room() / 2 / 4;
    assert!(
        tally.jobs.iter().all(|job| job.asked < all && job.asked > 0 && (1..40).contains(&job.events)),
        "{:?}",
        tally.jobs
    );
    assert!(tally.jobs.windows(2).any(|pair| pair[0].asked != pair[1].asked || pair[0].events != pair[1].events));
}

#[test]
fn computing_makes_jobs_efficient_and_distance_makes_them_wait() {
    let world = world();
    let made = SyntheticSpec { file_bytes: 400_000, branches: 4, read: 4, ..synthetic() };
    let near = AnalysisSpec { jobs: 1, compute_us_per_mb: 500_000, ..spec(AnalysisSource::Synthetic(made)) };
    let here = world.both(&near);
    let far = world.both(&AnalysisSpec { added_round_trip_us: 10_000, ..near.clone() });
    let vector = world.both(&AnalysisSpec { added_round_trip_us: 10_000, mode: Mode::Vector, ..near });
    [&here, &far, &vector].into_iter().for_each(is_good);
    let (here, far, vector) = (here.jobs[0], far.jobs[0], vector.jobs[0]);
    assert!(here.cpu_s >= 0.2 && here.efficiency() > 0.3, "{here:?}");
    // 80 baskets, an open and a close, each with a delay of 10 ms.
    assert!(far.waited_s >= 0.8 && far.wall_s >= 1.0 && far.efficiency() < here.efficiency(), "{far:?}");
    assert!(vector.waited_s < 0.5 * far.waited_s, "{vector:?}");
    assert_eq!(far.requests, 82);
}

#[test]
fn a_recording_is_replayed() {
    let world = world();
    let text = "\
7,Open,1000.0,root://h//data/a.root;16;0;0,1000.1,[SUCCESS],
7,Stat,1000.1,false;0,1000.1,[SUCCESS],300000;0;0;0;0;0;;;
7,Read,1000.2,0;300;0,1000.25,[SUCCESS],300
7,VectorRead,1000.35,1000;500;200000;70000;5;10;0,1000.4,[SUCCESS],70510
8,Open,1000.4,root://h//data/b.root?x;16;0;0,1000.4,[SUCCESS],
8,Read,1000.4,4000;1000;0,1000.4,[SUCCESS],1000
8,Close,1000.4,0,1000.4,[SUCCESS],
7,Close,1000.5,0,1000.5,[SUCCESS],
";
    let path = world.path("x.csv");
    std::fs::write(&path, text).unwrap();
    let spec = spec(AnalysisSource::Recording { path });
    assert_eq!((spec.room(), spec.files().count()), (2 * 305_000, 4));
    for mode in [Mode::Direct, Mode::ReadAhead, Mode::CopyIn] {
        for gaps in [Gaps::Skip, Gaps::Compute] {
            let tally = world.both(&AnalysisSpec { mode, gaps, ..spec.clone() });
            is_good(&tally);
            for job in &tally.jobs {
                assert_eq!(job.asked, 300 + 70_510 + 1000);
                assert!(gaps == Gaps::Skip || job.cpu_s >= 0.3, "{job:?}");
                assert!(mode != Mode::Direct || job.requests == 2 + 1 + 3 + 1 + 2, "{job:?}");
            }
        }
    }
}

/// A tree `t` of two branches, each with ten baskets of a hundred entries, compressed.
fn root_file(path: &Path) {
    use std::io::Write as _;
    let mut bytes = b"root".to_vec();
    bytes.extend(63_400_u32.to_be_bytes());
    bytes.extend(100_u32.to_be_bytes());
    bytes.resize(100, 0);
    for round in 0..10_u32 {
        for branch in ["x", "y.z"] {
            let plain: Vec<u8> = (0..2000_u32).map(|n| (n / 9 * (round + 1) % 251) as u8).collect();
            let mut packer = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::new(1));
            packer.write_all(&plain).unwrap();
            let packed = packer.finish().unwrap();
            let data = [b"ZL\x08", &packed.len().to_le_bytes()[..3], &plain.len().to_le_bytes()[..3], &packed].concat();
            let key_len = u16::try_from(26 + 8 + 1 + branch.len() + 2 + 19).unwrap();
            let begin = bytes.len();
            bytes.extend((u32::from(key_len) + u32::try_from(data.len()).unwrap()).to_be_bytes());
            bytes.extend(4_u16.to_be_bytes());
            bytes.extend(2000_u32.to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(key_len.to_be_bytes());
            bytes.extend([0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
            for text in ["TBasket", branch, "t"] {
                bytes.push(u8::try_from(text.len()).unwrap());
                bytes.extend(text.as_bytes());
            }
            bytes.extend(
                [&3_u16.to_be_bytes()[..], &[0; 4], &1000_u32.to_be_bytes(), &100_u32.to_be_bytes(), &[0; 5]].concat(),
            );
            assert_eq!(bytes.len() - begin, usize::from(key_len));
            bytes.extend(data);
        }
    }
    let end = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    bytes[12..16].copy_from_slice(&end);
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn baskets_of_a_real_file_are_decompressed_and_compared() {
    let world = world();
    let path = world.path("x.root");
    root_file(&path);
    let source = |branches: &str| AnalysisSource::RootFile {
        path: path.clone(),
        tree: None,
        branches: vec![branches.to_owned()],
    };
    for order in [Order::Ordered, Order::Unordered] {
        for mode in MODES {
            for decompress in [false, true] {
                let spec = AnalysisSpec { mode, order, decompress, cache_bytes: 2000, ..spec(source("y*")) };
                let tally = world.both(&spec);
                is_good(&tally);
                for job in &tally.jobs {
                    assert_eq!((job.events, job.unpacked), (1000, if decompress { 20_000 } else { job.asked }));
                    assert!(!job.synthetic && job.asked < 20_000);
                }
                assert_eq!(tally.verified, tally.jobs.iter().map(|job| job.asked).sum::<u64>());
            }
        }
    }
    let none = spec(source("q*")).prepare().unwrap_err().to_string();
    assert!(none.contains("t has no branch that `q*` matches") && none.contains("y.z"), "{none}");
    assert!(none.contains("weir bench root-file"), "{none}");
    // A name that matches nothing is an error even beside one that does: the job would read less than was meant.
    let AnalysisSource::RootFile { path, tree, .. } = source("") else { panic!() };
    let branches = ["y*", "q*", "r"].map(str::to_owned).to_vec();
    let one = spec(AnalysisSource::RootFile { path, tree, branches }).prepare().unwrap_err().to_string();
    assert!(one.contains("`q*` or `r` match;"), "{one}");
}

#[test]
fn data_that_differ_from_the_original_are_found() {
    let world = world();
    let path = world.path("x.root");
    root_file(&path);
    for decompress in [false, true] {
        let source = AnalysisSource::RootFile { path: path.clone(), tree: None, branches: vec!["*".to_owned()] };
        let put = AnalysisSpec { copies: 1, decompress, ..spec(source) };
        world.run(&put);
        let there = world.path("run/f000000");
        let mut bytes = std::fs::read(&there).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&there, &bytes).unwrap();
        let tally = world.run(&AnalysisSpec { phase: AnalysisPhase::Analyse, ..put.clone() });
        assert_eq!((tally.wrong, tally.failed()), (3, 0), "once for each job: {:?}", tally.complaints);
        std::fs::write(&there, &bytes[..middle]).unwrap();
        let tally = world.run(&AnalysisSpec { phase: AnalysisPhase::Analyse, ..put.clone() });
        assert_eq!(tally.failed(), 3, "{:?}", tally.complaints);
        world.clean(&put);
    }
}

#[test]
fn invalid_parameters_are_refused() {
    let good = spec(AnalysisSource::Synthetic(synthetic()));
    good.check().unwrap();
    let wrong = |change: fn(&mut AnalysisSpec)| {
        let mut spec = good.clone();
        change(&mut spec);
        spec.check().unwrap_err()
    };
    assert!(matches!(wrong(|spec| spec.jobs = 0), AnalysisError::Bounds { what: "jobs", .. }));
    assert!(matches!(wrong(|spec| spec.decompress = true), AnalysisError::NotOfThis("decompress")));
    assert!(matches!(
        wrong(|spec| (spec.mode, spec.jobs, spec.cache_bytes) = (Mode::Vector, 100, 1 << 30)),
        AnalysisError::Memory { .. }
    ));
    let recorded = AnalysisSpec { mode: Mode::Vector, ..spec(AnalysisSource::Recording { path: "/x".into() }) };
    assert!(matches!(recorded.check(), Err(AnalysisError::NotOfThis(_))));
    let missing = spec(AnalysisSource::Recording { path: "/nowhere/x.csv".into() });
    assert!(missing.prepare().unwrap_err().to_string().contains("/nowhere/x.csv"));
    let many = SyntheticSpec { basket_bytes: 1, ..synthetic() };
    assert!(matches!(spec(AnalysisSource::Synthetic(many)).check(), Err(AnalysisError::Bounds { .. })));
}
