//! The log of a running node: a queue, and the thread that empties it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::{Condvar, Mutex};

use crate::limit::{self, Limits, TELLS};
use crate::queue::{Added, Batch, Queue};
use crate::sink::{Settings, Sink, Stopped, lines_in};
use crate::{AuditError, Event, Outcome, Record};

/// How long the thread lets lines gather before it writes them. A process that is killed loses the lines of this time.
const GATHERS: Duration = Duration::from_millis(50);
/// How often the files are synced while lines come. A power failure loses the lines of this time, and of [`GATHERS`].
const SYNCS: Duration = Duration::from_secs(1);
/// How long a loss counts as recent.
const RECENT: Duration = Duration::from_secs(3600);

/// What has happened to a log since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Lines that were written.
    pub written: u64,
    /// Lines that were lost.
    pub lost: u64,
    /// Whether lines were lost within the last hour.
    pub has_lost_lately: bool,
}

/// A log that takes lines, or none. Clones are the same log.
#[derive(Clone, Default)]
pub struct Log(Option<Arc<Shared>>);

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.is_on() { "Log(on)" } else { "Log(off)" })
    }
}

struct Shared {
    reads: bool,
    queue: Mutex<Queue>,
    limits: Mutex<Limits>,
    wake: Condvar,
    stopping: AtomicBool,
    written: AtomicU64,
    lost: AtomicU64,
    last_loss: Mutex<Option<Instant>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Log {
    /// No log.
    #[must_use]
    pub fn off() -> Self {
        Self(None)
    }

    /// Opens the log and starts its thread, which ends with [`Log::stop`].
    ///
    /// # Errors
    /// The log cannot be opened, or the system gives no thread.
    pub fn start(settings: &Settings) -> Result<Self, AuditError> {
        let sink = Sink::open(&settings.to)?;
        let shared = Arc::new(Shared {
            reads: settings.reads,
            queue: Mutex::default(),
            limits: Mutex::default(),
            wake: Condvar::new(),
            stopping: AtomicBool::new(false),
            written: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            last_loss: Mutex::default(),
            thread: Mutex::default(),
        });
        let inner = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("audit".into()).stack_size(256 << 10);
        let thread = thread.spawn(move || run(&inner, sink)).map_err(AuditError::Thread)?;
        *shared.thread.lock() = Some(thread);
        Ok(Self(Some(shared)))
    }

    /// Whether there is a log.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Whether opens for reading get lines, too.
    #[must_use]
    pub fn wants_reads(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.reads)
    }

    /// Adds a line, now. It waits for no disk: without room in the queue, the line is lost and counted. A client gets only so
    /// many lines about what it was not let do; one line then says how many more there were.
    pub fn write(&self, mut record: Record) {
        let Some(shared) = &self.0 else { return };
        if limit::is_limited(&record) {
            if !shared.limits.lock().lets_through(&record, Instant::now()) {
                return;
            }
            limit::shorten(&mut record);
        }
        let now = SystemTime::now().into();
        let added = if limit::leaves_room(&record) {
            let line = record.clone().line(now);
            shared.queue.lock().add_below_half(&line)
        } else {
            return shared.add(&record.line(now));
        };
        if added == Added::Reserved {
            shared.limits.lock().hold_back(&record, Instant::now());
        }
        shared.after(added);
    }

    /// What has happened so far; `None`: there is no log.
    #[must_use]
    pub fn counts(&self) -> Option<Counts> {
        let shared = self.0.as_ref()?;
        let has_lost_lately = shared.last_loss.lock().is_some_and(|last| last.elapsed() < RECENT);
        Some(Counts {
            written: shared.written.load(Ordering::Relaxed),
            lost: shared.lost.load(Ordering::Relaxed),
            has_lost_lately,
        })
    }

    /// Writes what waits, and ends the thread. Later lines are lost.
    pub fn stop(&self) {
        let Some(shared) = &self.0 else { return };
        let Some(thread) = shared.thread.lock().take() else { return };
        shared.stopping.store(true, Ordering::Release);
        // The thread looks under the lock, so it cannot miss this.
        drop(shared.queue.lock());
        shared.wake.notify_one();
        if thread.join().is_err() {
            tracing::error!("the thread that writes the audit log had panicked");
        }
    }
}

impl Shared {
    fn add(&self, line: &[u8]) {
        let added = self.queue.lock().add(line);
        self.after(added);
    }

    /// Wakes the thread if it should not sleep on, and counts a line that was lost.
    fn after(&self, added: Added) {
        match added {
            Added::First | Added::Enough => _ = self.wake.notify_one(),
            Added::Further | Added::Reserved => {}
            Added::Lost => self.count_lost(1, &"too many lines wait to be written"),
        }
    }

    /// Adds the lines that say how many others were left out.
    fn tell_of_more(&self, at_once: bool) {
        let lines = self.limits.lock().tell(Instant::now(), at_once);
        for line in lines {
            self.add(&line.line(SystemTime::now().into()));
        }
    }

    /// Counts lost lines. The first ones after an hour without any are worth a warning.
    fn count_lost(&self, lines: u64, why: &dyn std::fmt::Display) {
        self.lost.fetch_add(lines, Ordering::Relaxed);
        let before = self.last_loss.lock().replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() >= RECENT) {
            tracing::error!("the audit log loses lines: {why}; weir_audit_lines_lost_total counts them");
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Waits for lines, and lets more of them gather. Returns after `patience` at the latest.
    fn wait(&self, batch: &mut Batch, patience: Option<Duration>) {
        let mut queue = self.queue.lock();
        let until = patience.map(|patience| Instant::now() + patience);
        while queue.is_empty() && !self.is_stopping() {
            match until {
                None => self.wake.wait(&mut queue),
                Some(until) if self.wake.wait_until(&mut queue, until).timed_out() => break,
                Some(_) => {}
            }
        }
        let gathered = Instant::now() + GATHERS;
        while !queue.is_empty() && !queue.is_enough() && !self.is_stopping() {
            if self.wake.wait_until(&mut queue, gathered).timed_out() {
                break;
            }
        }
        queue.take(batch);
    }

    /// Writes a batch, after the line that says what is missing before it.
    fn write(&self, sink: &mut Sink, batch: &Batch) {
        if batch.lost_before > 0 {
            let line = lost(batch.lost_before).line(SystemTime::now().into());
            if let Err(stopped) = sink.write(&line) {
                self.queue.lock().lost_of_batch(batch.lost_before + lines_in(&batch.bytes));
                return self.count_lost(lines_in(&batch.bytes), &stopped.why);
            }
        }
        let all = lines_in(&batch.bytes);
        let written = match sink.write(&batch.bytes) {
            Ok(()) => all,
            Err(Stopped { lines_written, why }) => {
                let lost = all - lines_written;
                self.queue.lock().lost_of_batch(lost);
                self.count_lost(lost, &why);
                lines_written
            }
        };
        self.written.fetch_add(written, Ordering::Relaxed);
    }
}

/// The line that stands for lost ones.
fn lost(lines: u64) -> Record {
    Record {
        event: Event::Lost,
        operation: "audit".into(),
        result: Outcome::Failed,
        lines: Some(lines),
        reason: Some("lines are missing here: they could not be written".into()),
        ..Record::default()
    }
}

fn run(shared: &Shared, mut sink: Sink) {
    let (mut batch, mut last_sync, mut is_dirty, mut sync_failed) = (Batch::default(), Instant::now(), false, false);
    loop {
        let is_stopping = shared.is_stopping();
        shared.tell_of_more(is_stopping);
        // After a failure, do not try again at once for ever.
        let had_trouble = batch.lost_before > 0 && batch.bytes.is_empty() && !is_stopping;
        if had_trouble {
            std::thread::sleep(GATHERS);
        }
        let tells = shared.limits.lock().has_held().then_some(TELLS);
        shared.wait(&mut batch, if is_dirty { Some(SYNCS) } else { tells });
        let is_idle = batch.bytes.is_empty() && batch.lost_before == 0;
        if !is_idle {
            shared.write(&mut sink, &batch);
            is_dirty = true;
        }
        if is_dirty && (is_stopping || last_sync.elapsed() >= SYNCS) {
            (last_sync, is_dirty) = (Instant::now(), false);
            let failed = sink
                .sync()
                .inspect_err(|error| {
                    if !sync_failed {
                        tracing::error!("{error}")
                    }
                })
                .is_err();
            sync_failed = failed;
        }
        // Only what waited before the stop was seen is certainly written. The next round finds the rest.
        if is_stopping && (is_idle || batch.lost_before > 0) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::{Destination, FileSettings, Filter, Reader};

    fn start(directory: &Path) -> Log {
        let files = FileSettings { directory: directory.to_owned(), file_bytes: 1 << 20, files_max: 4 };
        Log::start(&Settings { to: Destination::Files(files), reads: false }).unwrap()
    }

    fn record(number: usize) -> Record {
        Record { operation: "mkdir".into(), path: Some(format!("/{number}").into()), ..Record::default() }
    }

    fn read(directory: &Path) -> Vec<Record> {
        let mut all = Vec::new();
        Reader::open(directory)
            .unwrap()
            .read(&Filter::default(), &mut |record, _| {
                all.push(record);
                true
            })
            .unwrap();
        all
    }

    #[test]
    fn what_many_threads_write_is_all_there_in_their_order() {
        let temp = tempfile::tempdir().unwrap();
        let log = start(temp.path());
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let log = log.clone();
                scope.spawn(move || (0..500).for_each(|number| log.write(record(thread * 1000 + number))));
            }
        });
        log.stop();
        let counts = Counts { written: 2000, lost: 0, has_lost_lately: false };
        assert_eq!(log.counts(), Some(counts));
        let all = read(temp.path());
        assert_eq!(all.len(), 2000);
        for thread in 0..4 {
            let numbers = all.iter().map(|r| r.path.as_ref().unwrap()[1..].parse::<usize>().unwrap());
            let own: Vec<usize> = numbers.filter(|number| number / 1000 == thread).collect();
            assert!(own.is_sorted() && own.len() == 500);
        }
        // Later lines go nowhere, and nothing hangs.
        log.write(record(1));
        log.stop();
        assert_eq!(Log::off().counts(), None);
        Log::off().write(record(1));
    }

    #[test]
    fn who_is_denied_everything_drives_no_changes_out() {
        let temp = tempfile::tempdir().unwrap();
        let log = start(temp.path());
        log.write(record(0));
        for number in 0..50_000 {
            let (address, path) = (Some("192.0.2.7:1".into()), Some(format!("/{}", "x".repeat(5000)).into()));
            let event = [Event::Read, Event::Login, Event::Change][number % 3];
            log.write(Record { event, result: Outcome::Denied, address, path, ..Record::default() });
        }
        log.write(record(1));
        log.stop();
        let all = read(temp.path());
        let changes = all.iter().filter(|record| record.result == Outcome::Ok).count();
        assert_eq!((changes, log.counts().unwrap().lost), (2, 0));
        let more: u64 = all.iter().filter(|record| record.operation == "more").filter_map(|record| record.lines).sum();
        let denied = all.iter().filter(|record| record.path.as_ref().is_some_and(|path| path.len() > 1000)).count();
        assert!((300..=310).contains(&denied), "{denied}");
        assert_eq!(more + denied as u64, 50_000);
    }

    #[test]
    fn a_line_is_in_the_file_soon_without_a_stop() {
        let temp = tempfile::tempdir().unwrap();
        let log = start(temp.path());
        log.write(record(1));
        let begun = Instant::now();
        while read(temp.path()).is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(5));
        }
        log.stop();
    }

    #[test]
    fn lost_lines_are_counted_and_the_log_tells_where_they_are_missing() {
        let temp = tempfile::tempdir().unwrap();
        let directory = temp.path().join("audit");
        let files = FileSettings { directory: directory.clone(), file_bytes: 200, files_max: 100 };
        let log = Log::start(&Settings { to: Destination::Files(files), reads: false }).unwrap();
        let settled = |written: u64, lost: u64| {
            let begun = Instant::now();
            loop {
                let counts = log.counts().unwrap();
                if (counts.written, counts.lost) == (written, lost) {
                    return counts;
                }
                assert!(begun.elapsed() < Duration::from_secs(20), "{counts:?}");
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        (0..2).for_each(|number| log.write(record(number)));
        settled(2, 0);
        // No file can follow: a name that is taken by a directory, as nothing else fails for every user alike.
        let next = directory.join(crate::files::name_of(2));
        fs::create_dir(&next).unwrap();
        (2..5).for_each(|number| log.write(record(number)));
        assert!(settled(2, 3).has_lost_lately);
        fs::remove_dir(&next).unwrap();
        log.write(record(5));
        settled(3, 3);
        log.stop();
        let all = read(&directory);
        let lost: u64 = all.iter().filter(|record| record.event == Event::Lost).filter_map(|record| record.lines).sum();
        assert_eq!(lost, 3);
        let paths: Vec<&str> = all.iter().filter_map(|record| record.path.as_deref()).collect();
        assert_eq!(paths, ["/0", "/1", "/5"]);
        let gap = all.iter().position(|record| record.event == Event::Lost).unwrap();
        assert_eq!(gap, 2, "between the lines that are there");
    }
}
