//! The demo's play, act by act.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use types::Adler32;

use super::Trouble;
use super::clients::Clients;
use super::files::{self, LocalFile};
use super::node::{Home, Node};
use super::recorder::Recorder;
use super::screen::Screen;
use crate::config::units::{show_duration, show_size};

/// Bytes of the stream that shows the rate.
const STREAM_LEN: usize = 256 << 20;
/// Bytes of a slow recording: about six seconds of it.
const SLOW_LEN: usize = 12 << 20;
const SLOW_PAUSE: Duration = Duration::from_millis(60);
/// What may be waited for in any one place.
const PATIENCE: Duration = Duration::from_secs(30);

/// One row of the table at the end.
struct Row {
    what: String,
    files: usize,
    bytes: u64,
    took: Duration,
}

struct Stage<'a> {
    screen: &'a mut Screen,
    home: &'a Home,
    place: &'a Path,
    rows: Vec<Row>,
    checks: usize,
    /// Everything that was acknowledged: path on the node, and what it must be.
    acknowledged: Vec<(String, LocalFile)>,
}

/// Plays all acts; the first thing that is not as it should be ends it.
pub(super) fn play(screen: &mut Screen, home: &Home, place: &Path, more: Option<&Path>) -> Result<(), Trouble> {
    let local = place.join("local");
    fs::create_dir_all(&local)?;
    let root_files = files::root_files(&local, more)?;
    let mut stage = Stage { screen, home, place, rows: Vec::new(), checks: 0, acknowledged: Vec::new() };

    stage.screen.step("A node on an empty directory");
    let node = home.start()?;
    stage.good(&format!("ready at {} after {}", node.base, show_duration(node.took)));
    let clients = Clients::new(&node.base);

    stage.record(&clients, &root_files)?;
    stage.read_back(&clients)?;
    stage.follow(&clients)?;
    let cut = stage.kill_in_the_middle(node, &clients)?;
    let node = stage.start_again()?;
    let clients = Clients::new(&node.base);
    stage.nothing_is_lost(&clients, &cut)?;
    stage.look_at_the_cut_recording(&clients, &cut)?;
    stage.check_the_disk(node)?;
    stage.table();
    Ok(())
}

/// What was going on when the node was killed.
struct Cut {
    /// The recording's path and all its bytes, had it come to its end.
    path: String,
    bytes: Arc<Vec<u8>>,
    /// What readers had been shown of it.
    shown: u64,
    /// What xrdcp had been given.
    fed: u64,
    /// The file that was being overwritten.
    overwritten: String,
}

impl Stage<'_> {
    fn good(&mut self, what: &str) {
        self.checks += 1;
        self.screen.good(what);
    }

    /// Acts 2: real files in, each compared by the checksum that the node keeps.
    fn record(&mut self, clients: &Clients, root_files: &[LocalFile]) -> Result<(), Trouble> {
        self.screen.step("Record ROOT files and a stream with xrdcp");
        let stream = self.place.join("local/stream.raw");
        fs::write(&stream, files::stream_bytes(1, STREAM_LEN))?;
        let stream = LocalFile::at(&stream)?;
        let mut took_all = Duration::ZERO;
        for file in root_files {
            took_all += self.record_one(clients, file, "/demo/root")?;
        }
        let bytes = root_files.iter().map(|file| file.len).sum();
        self.row("record ROOT files", root_files.len(), bytes, took_all);
        let took = self.record_one(clients, &stream, "/demo/stream")?;
        self.row("record a stream", 1, stream.len, took);
        Ok(())
    }

    fn record_one(&mut self, clients: &Clients, file: &LocalFile, folder: &str) -> Result<Duration, Trouble> {
        let path = format!("{folder}/{}", file.name);
        let outcome = clients.put(&file.path, &path, false)?;
        if !outcome.status.success() {
            return Err(Trouble::Wrong(format!("xrdcp could not record {}: {}", file.name, outcome.last_words())));
        }
        match clients.checksum(&path)? {
            Ok(sum) if sum == file.adler32 => {}
            other => return Err(wrong_sum(&path, file.adler32, &other)),
        }
        self.good(&format!("{:<40} {:>9}   adler32 {:08x}", file.name, show_size(file.len), file.adler32.0));
        self.acknowledged.push((path, file.clone()));
        Ok(outcome.took)
    }

    /// Act 3: everything out again, compared byte for byte.
    fn read_back(&mut self, clients: &Clients) -> Result<(), Trouble> {
        self.screen.step("Read everything back");
        let (small, large): (Vec<_>, Vec<_>) =
            self.acknowledged.clone().into_iter().partition(|(_, file)| file.len < STREAM_LEN as u64);
        for (what, files) in [("read ROOT files back", small), ("read the stream back", large)] {
            let mut took = Duration::ZERO;
            for (path, file) in &files {
                took += self.compare(clients, path, file)?;
            }
            self.row(what, files.len(), files.iter().map(|(_, file)| file.len).sum(), took);
        }
        self.good(&format!("{} files, every byte as it was sent", self.acknowledged.len()));
        Ok(())
    }

    fn compare(&mut self, clients: &Clients, path: &str, file: &LocalFile) -> Result<Duration, Trouble> {
        let back = self.place.join("back");
        let outcome = clients.get(path, "", &back)?;
        if !outcome.status.success() {
            return Err(Trouble::Wrong(format!("{path} cannot be read back: {}", outcome.last_words())));
        }
        let (back_bytes, sent) = (fs::read(&back)?, fs::read(&file.path)?);
        if back_bytes != sent {
            return Err(Trouble::Wrong(format!("{path} came back different from what was sent")));
        }
        fs::remove_file(&back)?;
        Ok(outcome.took)
    }

    /// Act 4: a reader follows a recording while it grows.
    fn follow(&mut self, clients: &Clients) -> Result<(), Trouble> {
        self.screen.step("Follow a recording while it grows");
        let path = "/demo/live/run1.raw";
        let bytes = Arc::new(files::stream_bytes(2, SLOW_LEN));
        let local = self.place.join("local/run1.raw");
        fs::write(&local, bytes.as_slice())?;
        let begin = Instant::now();
        let recorder = Recorder::start(clients, path, false, Arc::clone(&bytes), SLOW_PAUSE)?;
        let mut seen: Vec<u64> = Vec::new();
        while recorder.is_feeding() {
            std::thread::sleep(Duration::from_millis(400));
            let Some(prefix) = self.published(clients, path, &bytes)? else { continue };
            if seen.last().is_none_or(|last| prefix > *last) && recorder.is_feeding() {
                self.screen.note(&format!(
                    "{:>4.1} s: {} recorded, a reader has {}",
                    begin.elapsed().as_secs_f64(),
                    show_size(recorder.fed()),
                    show_size(prefix)
                ));
                seen.push(prefix);
            }
        }
        let status = recorder.finish(PATIENCE)?;
        if !status.is_some_and(|status| status.success()) {
            return Err(Trouble::Wrong("the recorder did not come to its end".into()));
        }
        if seen.iter().filter(|prefix| **prefix > 0).count() < 2 {
            return Err(Trouble::Wrong(format!("a reader did not see the recording grow (it saw {seen:?} bytes)")));
        }
        self.good("each time the reader had exactly the first bytes of the recording, never anything else");
        let file = LocalFile::at(&local)?;
        match clients.checksum(path)? {
            Ok(sum) if sum == file.adler32 => {}
            other => return Err(wrong_sum(path, file.adler32, &other)),
        }
        self.good(&format!("closed and complete  {}  adler32 {:08x}", show_size(file.len), file.adler32.0));
        self.row("follow a slow recording", 1, file.len, begin.elapsed());
        self.acknowledged.push((path.into(), file));
        Ok(())
    }

    /// What a reader gets of a recording under way, compared with what was sent; `None`: nothing yet.
    fn published(&mut self, clients: &Clients, path: &str, sent: &[u8]) -> Result<Option<u64>, Trouble> {
        let back = self.place.join("followed");
        let outcome = clients.get(path, "", &back)?;
        if !outcome.status.success() {
            return Ok(None);
        }
        let got = fs::read(&back)?;
        if !sent.starts_with(&got) {
            return Err(Trouble::Wrong(format!("a reader of {path} was given bytes that were never recorded")));
        }
        Ok(Some(got.len() as u64))
    }

    /// Act 5: SIGKILL for the node and its writers.
    fn kill_in_the_middle(&mut self, node: Node, clients: &Clients) -> Result<Cut, Trouble> {
        self.screen.step("Kill the node and the recorders in the middle (SIGKILL)");
        let path = "/demo/live/run2.raw";
        let overwritten = self.acknowledged.first().map(|(path, _)| path.clone()).unwrap_or_default();
        let bytes = Arc::new(files::stream_bytes(3, SLOW_LEN));
        let recorder = Recorder::start(clients, path, false, Arc::clone(&bytes), SLOW_PAUSE)?;
        let over =
            Recorder::start(clients, &overwritten, true, Arc::new(files::stream_bytes(4, SLOW_LEN)), SLOW_PAUSE)?;
        let begin = Instant::now();
        let mut shown = 0;
        while shown < 1 << 20 {
            if begin.elapsed() > PATIENCE || !recorder.is_feeding() {
                return Err(Trouble::Wrong(format!("readers were not shown 1 MiB of {path} in time")));
            }
            std::thread::sleep(Duration::from_millis(100));
            shown = self.published(clients, path, &bytes)?.unwrap_or(0);
        }
        let fed = recorder.fed();
        let overwriting = over.is_feeding();
        node.kill()?;
        recorder.kill()?;
        over.kill()?;
        if !overwriting {
            return Err(Trouble::Wrong(format!("the overwriting of {overwritten} ended before it could be killed")));
        }
        self.screen.note(&format!(
            "run2.raw: {} handed to xrdcp, {} of them shown to readers; {overwritten}: being overwritten",
            show_size(fed),
            show_size(shown),
        ));
        self.good("killed: no process is left, nothing was flushed or closed");
        Ok(Cut { path: path.into(), bytes, shown, fed, overwritten })
    }

    fn start_again(&mut self) -> Result<Node, Trouble> {
        self.screen.step("Start again on what is left");
        let node = self.home.start()?;
        self.good(&format!("ready after {}, recovery included", show_duration(node.took)));
        self.row("start after SIGKILL", self.acknowledged.len() + 2, 0, node.took);
        Ok(node)
    }

    /// Act 6: all that was acknowledged.
    fn nothing_is_lost(&mut self, clients: &Clients, cut: &Cut) -> Result<(), Trouble> {
        for (path, file) in self.acknowledged.clone() {
            match clients.checksum(&path)? {
                Ok(sum) if sum == file.adler32 => {}
                other => return Err(wrong_sum(&path, file.adler32, &other)),
            }
            self.compare(clients, &path, &file)?;
        }
        self.good(&format!("all {} acknowledged files are there, byte for byte", self.acknowledged.len()));
        self.good(&format!("{} is still the old file: the overwriting never showed", cut.overwritten));
        Ok(())
    }

    /// Act 7: the recording that was cut off.
    fn look_at_the_cut_recording(&mut self, clients: &Clients, cut: &Cut) -> Result<(), Trouble> {
        self.screen.step("The recording that was cut off");
        self.screen.note(&format!("its writer has {} to come back (--grace-seconds)", show_duration(self.home.grace)));
        std::thread::sleep(self.home.grace);
        let back: PathBuf = self.place.join("cut");
        let begin = Instant::now();
        let refused = loop {
            let outcome = clients.get(&cut.path, "", &back)?;
            if !outcome.status.success() {
                break outcome.last_words();
            }
            if begin.elapsed() > PATIENCE {
                return Err(Trouble::Wrong(format!("{} was never marked interrupted", cut.path)));
            }
            std::thread::sleep(Duration::from_millis(200));
        };
        if !refused.contains("interrupted") && !refused.contains("writer went away") {
            return Err(Trouble::Wrong(format!("reading {} was refused for another reason: {refused}", cut.path)));
        }
        self.good("marked interrupted; an ordinary read is refused, so that nobody takes it for whole:");
        // The stock client puts its own words before the node's.
        let words = refused.rsplit_once("] ").map_or(refused.as_str(), |(_, words)| words);
        let words = words.trim_end_matches(" (source)");
        self.screen.note(words.trim_matches(|c: char| c.is_whitespace() || c == '\0'));
        let outcome = clients.get(&cut.path, "weir.partial=1", &back)?;
        if !outcome.status.success() {
            return Err(Trouble::Wrong(format!("what was kept cannot be read: {}", outcome.last_words())));
        }
        let kept = fs::read(&back)?;
        if !cut.bytes.starts_with(&kept) {
            return Err(Trouble::Wrong(format!("what was kept of {} is not what was recorded", cut.path)));
        }
        let kept = kept.len() as u64;
        if kept < cut.shown {
            return Err(Trouble::Wrong(format!(
                "{} bytes had been shown to readers, only {kept} were kept",
                cut.shown
            )));
        }
        self.good(&format!(
            "kept: {} (readers had been shown {}, xrdcp had been given {}); read with ?weir.partial=1",
            show_size(kept),
            show_size(cut.shown),
            show_size(cut.fed)
        ));
        Ok(())
    }

    /// Act 8: a clean stop, and fsck.
    fn check_the_disk(&mut self, node: Node) -> Result<(), Trouble> {
        self.screen.step("Stop (SIGTERM) and check everything on the disk");
        let (status, took) = node.stop()?;
        if !status.success() {
            return Err(Trouble::Wrong(format!("the node did not stop cleanly: {status}")));
        }
        self.good(&format!("stopped cleanly in {}", show_duration(took)));
        let outcome = self.home.fsck()?;
        let report: serde_json::Value = serde_json::from_slice(&outcome.stdout).unwrap_or_default();
        let findings = report.get("findings").and_then(serde_json::Value::as_u64);
        let bytes = report.get("bytes_read").and_then(serde_json::Value::as_u64).unwrap_or(0);
        let pieces = report.get("pieces").and_then(serde_json::Value::as_u64).unwrap_or(0);
        if !outcome.status.success() || findings != Some(0) {
            let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
            return Err(Trouble::Wrong(format!("weir fsck found something: {text}{}", outcome.stderr.trim())));
        }
        self.good(&format!("fsck read {pieces} contents, {}, and found nothing wrong", show_size(bytes)));
        self.row("fsck, all pages read", usize::try_from(pieces).unwrap_or(0), bytes, outcome.took);
        Ok(())
    }

    fn row(&mut self, what: &str, files: usize, bytes: u64, took: Duration) {
        self.rows.push(Row { what: what.into(), files, bytes, took });
    }

    fn table(&mut self) {
        let rows: Vec<Vec<String>> = self
            .rows
            .iter()
            .map(|row| {
                #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // shown only
                let rate = (row.bytes as f64 / row.took.as_secs_f64().max(1e-9)) as u64;
                // A start moves no bytes.
                let (size, rate) = match row.bytes {
                    0 => (String::new(), String::new()),
                    bytes => (show_size(bytes), format!("{}/s", show_size(rate))),
                };
                vec![row.what.clone(), row.files.to_string(), size, show_duration(row.took), rate]
            })
            .collect();
        self.screen.step("What was done, and how fast");
        self.screen.table(&["", "files", "bytes", "time", "rate"], &rows);
        self.screen
            .note(&format!("{} checks; times of xrdcp and fsck include the start of their processes", self.checks));
    }
}

fn wrong_sum(path: &str, sent: Adler32, said: &Result<Adler32, String>) -> Trouble {
    Trouble::Wrong(match said {
        Ok(sum) => format!("{path} was sent with adler32 {:08x}, the node says {:08x}", sent.0, sum.0),
        Err(reason) => format!("the node gives no checksum for {path}: {reason}"),
    })
}
