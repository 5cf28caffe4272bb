//! The acts of the demo.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::DemoError;
use super::child::Stop;
use super::clients::{self, Client};
use super::cluster::{Cluster, DISKS};
use super::copies::{self, ReplicaHolders};
use super::files::{self, LocalFile};
use super::follower::{Followed, Follower};
use super::pause::ReaderPause;
use super::recorder::{Ended, Recorder};
use super::screen::Screen;
use crate::args::DemoArgs;
use config::units::{show_duration, show_size};

/// Streams recorded at the same time.
pub(super) const STREAMS: u64 = 6;
/// Bytes of each stream: ten seconds if nothing delays it.
pub(super) const STREAM_LEN: usize = 40 << 20;
pub(super) const PER_SECOND: u32 = 4 << 20;
/// The policy of all files.
const POLICY: &str = "replica(2) sync=2 spread=site";
/// The replicas that the policy asks for.
const COPIES: usize = 2;
/// The disk server is killed when this much of the followed stream is recorded, and the manager when this much of another file is.
pub(super) const KILL_AT: u64 = STREAM_LEN as u64 / 3;
/// Longest time for the whole recording.
pub(super) const RECORDING_MAX: Duration = Duration::from_secs(120);
/// Longest wait anywhere else.
const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const STEP: Duration = Duration::from_millis(20);
/// Between two progress lines.
const NEWS: Duration = Duration::from_secs(2);

/// One stream.
struct Stream {
    name: String,
    path: String,
    bytes: Arc<Vec<u8>>,
}

/// A line of the table of rates.
struct Rate {
    what: &'static str,
    bytes: u64,
    took: Duration,
}

/// Measurements of the recording.
struct Recorded {
    streams: Vec<Ended>,
    followed: Followed,
    victim: String,
}

pub(super) struct Stage<'a> {
    pub(super) screen: &'a mut Screen,
    pub(super) cluster: &'a Cluster,
    pub(super) place: &'a Path,
    pub(super) stop: &'a Stop,
    /// The client that copies the ROOT files.
    client: Client,
    streams: Vec<Stream>,
    rates: Vec<Rate>,
}

/// Plays all acts; the first failure ends it.
pub(super) fn play(
    screen: &mut Screen,
    place: &Path,
    args: &DemoArgs,
    client: Client,
    stop: &Stop,
) -> Result<(), DemoError> {
    let local = place.join("local");
    fs::create_dir_all(&local)?;
    let root_files = files::root_files(&local, args.files.as_deref())?;
    let managers = match args.managers {
        None => "a manager".to_owned(),
        Some(1) => "PostgreSQL, a manager".to_owned(),
        Some(managers) => format!("PostgreSQL, {managers} managers"),
    };
    screen.step(&format!("A cluster on this machine: {managers} and {DISKS} disk servers, on two sites"));
    let begin = Instant::now();
    let mut cluster = Cluster::up(&place.join("cluster"), args.managers)?;
    screen.good(&format!("ready at {} after {}", cluster.base, show_duration(begin.elapsed())));
    cluster.set_policy(POLICY)?;
    screen.good(&format!("weir policy set / '{POLICY}': each file twice, on both sites, before a close returns"));
    stop.check()?;

    let stream = |number| Stream {
        name: format!("stream{number}"),
        path: format!("/demo/stream{number}"),
        bytes: Arc::new(files::stream_bytes(number, STREAM_LEN)),
    };
    let streams = (1..=STREAMS).map(stream).collect();
    let mut stage = Stage { screen, cluster: &cluster, place, stop, client, streams, rates: Vec::new() };
    stage.root_files(&root_files)?;
    let recorded = stage.record()?;
    stage.compare_streams("read back while a disk server is missing")?;
    let restored = stage.restore(&recorded.victim)?;
    if args.managers.is_some() {
        stage.lose_manager()?;
    }
    stage.lose_another(&recorded.victim)?;
    stage.table(&recorded, &restored);

    screen.step("Stop all nodes");
    let took = cluster.down()?;
    screen.good(&format!("all stopped cleanly in {}", show_duration(took)));
    Ok(())
}

impl Stage<'_> {
    /// Copies real files in and out again.
    fn root_files(&mut self, root_files: &[LocalFile]) -> Result<(), DemoError> {
        self.screen.step(&format!("Record ROOT files with {}, and read them back", self.client.name()));
        let back = self.place.join("back");
        for file in root_files {
            let path = format!("/demo/root/{}", file.name);
            let url = self.url_for(self.client, &path);
            let outcome = self.client.put(&file.path, &url, self.stop)?;
            if !outcome.status.success() {
                return Err(DemoError::Wrong(format!("{} could not be recorded: {}", file.name, outcome.last_words())));
            }
            if self.client == Client::Stock {
                match clients::stock_checksum(self.cluster.stock_base(), &path, self.stop)? {
                    Ok(sum) if sum == file.adler32 => {}
                    said => {
                        let sum = file.adler32.0;
                        return Err(DemoError::Wrong(format!("{path} has adler32 {sum:08x}, xrdfs is told {said:?}")));
                    }
                }
            }
            let sent = fs::read(&file.path)?;
            self.read_back(self.client, &path, &sent, &back)?;
            let standing = self.standing(&path)?;
            standing.must_be_whole(&path, file.len)?;
            if standing.there.len() != COPIES {
                return Err(DemoError::Wrong(format!("{path} is on {:?}, not on {COPIES} stores", standing.there)));
            }
            self.screen.good(&format!(
                "{:<40} {:>9}   adler32 {:08x}   on {}",
                file.name,
                show_size(file.len),
                file.adler32.0,
                standing.there.join(" and ")
            ));
        }
        Ok(())
    }

    /// The main act: six streams, a reader, and a disk server that is killed.
    fn record(&mut self) -> Result<Recorded, DemoError> {
        let each = show_size(u64::from(PER_SECOND));
        self.screen.step(&format!("Record {STREAMS} streams at {each}/s each, while a reader follows the first"));
        let begin = Instant::now();
        let mut recorders = Vec::new();
        for stream in &self.streams {
            let says = self.place.join(format!("{}.err", stream.name));
            let url = self.cluster.url(&stream.path);
            recorders.push(Recorder::start(&url, Arc::clone(&stream.bytes), PER_SECOND, &says)?);
        }
        let first = &self.streams[0];
        let path = first.path.clone();
        let follower = Follower::start(&self.cluster.url(&path), Arc::clone(&first.bytes))?;
        let mut victim: Option<String> = None;
        let mut pause: Option<ReaderPause> = None;
        let mut told = Instant::now();
        loop {
            self.stop.check()?;
            let mut goes_on = !follower.is_done();
            for (recorder, stream) in recorders.iter_mut().zip(&self.streams) {
                match recorder.ended()? {
                    Some(Ended { failed: Some(why), .. }) => {
                        let name = &stream.name;
                        return Err(DemoError::Wrong(format!("{name} is not whole: its weir cp ended with {why}")));
                    }
                    Some(_) => {}
                    None => goes_on = true,
                }
            }
            if !goes_on {
                break;
            }
            if victim.is_none() && recorders[0].fed() >= KILL_AT && follower.has() > 0 {
                victim = self.kill_one_of(&path, begin)?;
                pause = victim.as_ref().map(|victim| ReaderPause::new(victim, follower.has(), Instant::now()));
            }
            if let (Some(pause), Some(victim)) = (&mut pause, &victim) {
                let presence = || self.cluster.presence(victim);
                if let Some(news) = pause.look(follower.has(), Instant::now(), presence) {
                    self.screen.note(&format!("{:>5.1} s: {news}", begin.elapsed().as_secs_f64()));
                }
            }
            if told.elapsed() >= NEWS {
                let fed = recorders.iter().map(Recorder::fed).sum();
                self.news(begin, fed, recorders[0].fed(), follower.has());
                told = Instant::now();
            }
            if begin.elapsed() > RECORDING_MAX {
                let fed: Vec<String> = recorders.iter().map(|recorder| show_size(recorder.fed())).collect();
                return Err(DemoError::Wrong(format!("the recording did not end; of the streams went out {fed:?}")));
            }
            std::thread::sleep(STEP);
        }
        let took = begin.elapsed();
        let followed = follower.join().map_err(|why| DemoError::Wrong(format!("the reader of {path}: {why}")))?;
        let Some(victim) = victim else {
            return Err(DemoError::Wrong("the recording was over before a disk server could be killed".into()));
        };
        let mut streams = Vec::new();
        for recorder in &mut recorders {
            streams.extend(recorder.ended()?.cloned());
        }
        self.screen.good(&format!("all {STREAMS} streams were recorded to their end, without {victim}"));
        self.screen.good(&format!(
            "the reader got all of stream1, each byte as it was recorded; its longest wait for new ones was {}",
            show_duration(followed.longest_pause)
        ));
        let bytes = self.total();
        self.rates.push(Rate { what: "recorded, all streams together", bytes, took });
        self.rates.push(Rate { what: "followed by the reader", bytes: STREAM_LEN as u64, took: followed.took });
        Ok(Recorded { streams, followed, victim })
    }

    /// Kills the primary of `path`; `None`: it has no primary yet.
    fn kill_one_of(&mut self, path: &str, begin: Instant) -> Result<Option<String>, DemoError> {
        let Some(victim) = self.cluster.file(path).and_then(|file| copies::primary(&file)) else { return Ok(None) };
        let streams = self.streams.iter().filter_map(|stream| self.cluster.file(&stream.path));
        let hit = streams.filter(|file| copies::writes_to(file, &victim)).count();
        self.cluster.kill(&victim)?;
        self.screen.note(&format!(
            "{:>5.1} s: KILLED {victim} (SIGKILL), to which {hit} of the streams were written, stream1 among them",
            begin.elapsed().as_secs_f64()
        ));
        Ok(Some(victim))
    }

    fn news(&mut self, begin: Instant, fed: u64, first: u64, has: u64) {
        self.screen.note(&format!(
            "{:>5.1} s: {} of {} handed over; of stream1 {}, the reader has {}",
            begin.elapsed().as_secs_f64(),
            show_size(fed),
            show_size(self.total()),
            show_size(first),
            show_size(has)
        ));
    }

    fn total(&self) -> u64 {
        STREAMS * STREAM_LEN as u64
    }

    /// Reads all streams back and compares them byte for byte.
    fn compare_streams(&mut self, what: &'static str) -> Result<(), DemoError> {
        let back = self.place.join("back");
        let mut took = Duration::ZERO;
        for stream in &self.streams {
            took += self.read_back(Client::Ours, &stream.path, &stream.bytes, &back)?;
            self.standing(&stream.path)?.must_be_whole(&stream.path, stream.bytes.len() as u64)?;
        }
        self.screen.good(&format!("all {STREAMS} streams are complete; read back, every byte is as it was recorded"));
        self.rates.push(Rate { what, bytes: self.total(), took });
        Ok(())
    }

    fn url_for(&self, client: Client, path: &str) -> String {
        match client {
            Client::Stock => format!("{}/{path}", self.cluster.stock_base()),
            Client::Ours => self.cluster.url(path),
        }
    }

    pub(super) fn read_back(
        &self,
        client: Client,
        path: &str,
        sent: &[u8],
        back: &PathBuf,
    ) -> Result<Duration, DemoError> {
        let outcome = client.get(&self.url_for(client, path), back, self.stop)?;
        if !outcome.status.success() {
            let (name, why) = (client.name(), outcome.last_words());
            return Err(DemoError::Wrong(format!("{name} cannot read {path} back: {why}")));
        }
        let got = fs::read(back)?;
        fs::remove_file(back)?;
        match files::difference(sent, &got) {
            Some(difference) => Err(DemoError::Wrong(format!("{path} is not whole: {difference}"))),
            None => Ok(outcome.took),
        }
    }

    pub(super) fn standing(&self, path: &str) -> Result<ReplicaHolders, DemoError> {
        let file = self.cluster.file(path);
        let file = file.ok_or_else(|| DemoError::Wrong(format!("the manager does not say where {path} is")))?;
        ReplicaHolders::of(&file).ok_or_else(|| DemoError::Wrong(format!("the manager says that {path} has no object")))
    }

    fn standings(&self) -> Result<Vec<ReplicaHolders>, DemoError> {
        self.streams.iter().map(|stream| self.standing(&stream.path)).collect()
    }

    /// Starts the killed disk server again, and waits until each stream has its replicas.
    fn restore(&mut self, victim: &str) -> Result<Vec<ReplicaHolders>, DemoError> {
        self.screen.step(&format!("Start {victim} again, and see the replicas restored"));
        let count = |all: &[ReplicaHolders]| all.iter().map(|one| one.there.len()).sum::<usize>();
        let wanted = self.streams.len() * COPIES;
        let before = count(&self.standings()?);
        self.screen.note(&format!("before: {before} of {wanted} replicas of the streams can be read"));
        let took = self.cluster.start(victim)?;
        self.screen.good(&format!("{victim} is online after {}", show_duration(took)));
        let begin = Instant::now();
        let mut told = before;
        let after = loop {
            self.stop.check()?;
            let all = self.standings()?;
            let there = count(&all);
            if all.iter().all(|one| one.there.len() == COPIES) && self.cluster.status()?.missing.count == 0 {
                break all;
            }
            if there != told {
                self.screen.note(&format!("{:>5.1} s: {there} of {wanted} replicas", begin.elapsed().as_secs_f64()));
                told = there;
            }
            if begin.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                return Err(DemoError::Wrong(format!("{there} of {wanted} replicas are there {seconds} s later")));
            }
            std::thread::sleep(STEP * 5);
        };
        let took = show_duration(begin.elapsed());
        self.screen
            .good(&format!("{wanted} of {wanted} replicas are there {took} later; no replica is missing any more"));
        Ok(after)
    }

    /// The manager says that the replicas are complete; this act also reads them.
    fn lose_another(&mut self, victim: &str) -> Result<(), DemoError> {
        let standing = self.standing(&self.streams[0].path)?;
        let Some(other) = standing.there.iter().find(|node| *node != victim) else {
            return Err(DemoError::Wrong(format!("stream1 is on {victim} alone")));
        };
        self.screen
            .step(&format!("Kill {other}, which has the other replica of stream1: only the restored one is left"));
        self.cluster.kill(other)?;
        self.compare_streams("read back after that")
    }

    fn table(&mut self, recorded: &Recorded, standings: &[ReplicaHolders]) {
        self.screen.step("What was recorded, and how fast");
        let rows: Vec<Vec<String>> = self
            .streams
            .iter()
            .zip(&recorded.streams)
            .zip(standings)
            .map(|((stream, ended), standing)| {
                let bytes = stream.bytes.len() as u64;
                vec![
                    stream.name.clone(),
                    show_size(bytes),
                    rate(bytes, ended.took),
                    show_duration(ended.longest_pause),
                    format!("{}, {}", standing.there.len(), standing.there.join(" ")),
                ]
            })
            .collect();
        self.screen.table(&["stream", "bytes", "rate", "longest pause", "copies"], &rows);
        let rows: Vec<Vec<String>> = self
            .rates
            .iter()
            .map(|line| {
                let Rate { what, bytes, took } = line;
                vec![(*what).to_owned(), show_size(*bytes), show_duration(*took), rate(*bytes, *took)]
            })
            .collect();
        self.screen.table(&["", "bytes", "time", "rate"], &rows);
        let wait = show_duration(recorded.followed.longest_pause);
        self.screen.note(&format!(
            "A pause is the longest time in which weir cp read nothing although the stream had more; it buffers some \
             MiB. The streams are paced at {}/s, so their rates are no measure of speed. The reader's longest wait \
             was {wait}. The times of reading include the start of each weir cp.",
            show_size(u64::from(PER_SECOND))
        ));
    }
}

fn rate(bytes: u64, took: Duration) -> String {
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // only for display
    let rate = (bytes as f64 / took.as_secs_f64().max(1e-9)) as u64;
    format!("{}/s", show_size(rate))
}
