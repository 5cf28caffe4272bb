//! The open log.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;

use disk::{Access, Disk, DiskOp, OpenOptions};
use parking_lot::{Condvar, Mutex};
use types::BootId;

use crate::batch::Batch;
use crate::commit::Record;
use crate::losses;
use crate::recover::{Recovered, complete_len, recover};
use crate::scan::{ScannedSegment, scan};
use crate::segment::PAGE_U64;
use crate::spares::SPARES;
use crate::state::{Segment, Shared, State};
use crate::{
    Appended, Ballast, Beginning, Cut, JournalConfig, JournalError, JournalStats, Location, Opened, Prepare, Repaired,
    SegmentInfo, Seq, StreamId, Visit, VisitMany, begin, repair,
};

/// The smallest segment that makes sense.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// The open log. Shared by reference (`Arc<Journal>`); all calls may come from any thread.
pub struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the log in the folder `dir` of `disk`, or makes one where there is none. Everything that is there is
    /// checked, an unsynced tail that does not check is saved aside and cut, and what remains is synced before this
    /// returns. Nobody else may have it open: the owner of the data directory holds a lock for that.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] where bytes that were durable do not check; [`JournalError::Unsupported`] where a newer
    /// weir wrote it; [`JournalError::Missing`] where there is none and [`JournalConfig::must_exist`] is set.
    pub fn open(disk: Arc<dyn Disk>, dir: &str, config: JournalConfig) -> Result<(Journal, Opened), JournalError> {
        check_config(&config)?;
        let found = recover(&*disk, dir, &config).inspect_err(|error| {
            if matches!(error, JournalError::Disk(error) if error.op == DiskOp::Sync) {
                losses::opening_failed(&*disk, dir);
            }
        })?;
        let opened = describe(&found);
        let (marked, created) = (found.marked, found.created);
        let prepare = config.prepare;
        let shared = Arc::new(start(disk, dir, config, found)?);
        let thread = match prepare {
            Prepare::Inline => None,
            Prepare::Background => {
                let shared = Arc::clone(&shared);
                let builder = std::thread::Builder::new().name("journal-spares".to_owned());
                let spawned = builder.spawn(move || shared.keep_spares());
                Some(spawned.map_err(|_| JournalError::Config("no thread could be started"))?)
            }
        };
        let journal = Journal { shared, thread };
        if !marked && !created {
            // From here on, rot in what was recovered is told apart from an unsynced tail.
            journal.shared.mark(false)?;
        }
        Ok((journal, opened))
    }

    /// Reads and checks a log that nobody has open, and changes nothing. What [`Journal::open`] would cut is in
    /// [`Opened::cut`].
    ///
    /// # Errors
    /// As [`Journal::open`]; `Missing` where there is no log.
    pub fn check(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Opened, JournalError> {
        let scan = scan(disk, dir, config)?;
        if let Some(damage) = scan.damage() {
            return Err(JournalError::Damaged(Box::new(damage)));
        }
        let Some(first) = scan.segments.first() else { return Err(JournalError::Missing { dir: dir.to_owned() }) };
        let bytes = scan.rest.iter().filter_map(|r| r.survey.nonzero).map(|(from, to)| to - from).sum();
        Ok(Opened {
            last: Seq(scan.last),
            oldest: Seq(first.header.first),
            records: scan.records,
            clean: scan.clean && bytes == 0,
            created: false,
            cut: scan.rest.first().filter(|_| bytes > 0).map(|rest| Cut {
                segment: rest.path.clone(),
                offset: rest.from,
                bytes,
                saved: None,
            }),
            lost: losses::look(disk, dir, &scan)?,
        })
    }

    /// Cuts a damaged log at the place where [`Journal::open`] found the damage, after saving everything from there on
    /// aside in `dir/damaged-…`. Numbers of lost records are not used again. `None`: there is no damage.
    /// An interrupted repair goes on when it is called again.
    pub fn repair(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Option<Repaired>, JournalError> {
        repair::repair(disk, dir, config)
    }

    /// Makes a log in the folder `dir` that begins with the numbers of `beginning`, in the place of one that is lost. Durable
    /// when it returns, without records, to be opened by [`Journal::open`]. Done again with the same numbers it finishes what
    /// was interrupted, and leaves a log that is there already as it is.
    ///
    /// # Errors
    /// [`JournalError::Config`] where segments of another log are in the folder, or for numbers that no log has.
    pub fn begin(
        disk: &dyn Disk,
        dir: &str,
        config: &JournalConfig,
        beginning: &Beginning,
    ) -> Result<(), JournalError> {
        check_config(config)?;
        begin::begin(disk, dir, config, beginning)
    }

    /// Takes a record into the log's order, in memory. `payload`'s parts are laid end to end. Neither written nor
    /// durable yet: see [`Journal::write_to`], [`Journal::sync_to`].
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] (nothing appended, works again later), `TooLarge`, `Poisoned`.
    pub fn append(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        self.shared.append(&Record { stream, flags: 0, payload, urgent: false })
    }

    /// [`Journal::append`] for what gives space back (deletes): may use the last segment made ahead, and the ballast,
    /// when ordinary appends are refused. Keep its records small.
    pub fn append_urgent(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        self.shared.append(&Record { stream, flags: 0, payload, urgent: true })
    }

    /// Returns when all records up to `seq` are in the kernel: SIGKILL cannot undo them, a power failure can.
    pub fn write_to(&self, seq: Seq) -> Result<(), JournalError> {
        self.shared.write_to(seq.0)
    }

    /// Returns when all records up to `seq` are durable. Those who wait at the same time share one write and one sync.
    pub fn sync_to(&self, seq: Seq) -> Result<(), JournalError> {
        self.shared.sync_to(seq.0)
    }

    /// The last record appended.
    pub fn appended(&self) -> Seq {
        Seq(self.shared.state.lock().appended)
    }

    /// The last record that is in the kernel, with all before it.
    pub fn written(&self) -> Seq {
        Seq(self.shared.state.lock().written)
    }

    /// The last record that is durable, with all before it.
    pub fn durable(&self) -> Seq {
        Seq(self.shared.durable.load(Ordering::Acquire))
    }

    /// A payload, checksum checked; also of a record that is not written yet.
    pub fn read(&self, location: Location) -> Result<Vec<u8>, JournalError> {
        self.shared.read(location)
    }

    /// Fills `buf` with a payload's bytes from its byte `skip` on, unchecked: the caller has checksums of its own.
    pub fn read_into(&self, location: Location, skip: u32, buf: &mut [u8]) -> Result<(), JournalError> {
        self.shared.read_into(location, skip, buf)
    }

    /// Shows the records of `stream` after `after` that are in the kernel, in order, until `visit` breaks.
    /// What was only appended is not shown.
    ///
    /// # Errors
    /// [`JournalError::Trimmed`] if records after `after` are not there any more.
    pub fn replay(&self, stream: StreamId, after: Seq, visit: &mut Visit<'_>) -> Result<(), JournalError> {
        self.replay_many(&[stream], after, &mut |_, seq, location, payload| visit(seq, location, payload))
    }

    /// [`Journal::replay`] for several streams in one pass.
    pub fn replay_many(&self, streams: &[StreamId], after: Seq, visit: &mut VisitMany<'_>) -> Result<(), JournalError> {
        self.shared.replay(streams, after, visit)
    }

    /// Says that `stream` needs no record below `below` any more. A segment goes when every stream of
    /// [`JournalConfig::streams`] allows it and a record behind it is durable; the current one never. After an error the
    /// next call goes on where this one stopped. Marks only rise. Not remembered across openings:
    /// a stream says it again after its own recovery.
    pub fn set_trim(&self, stream: StreamId, below: Seq) -> Result<(), JournalError> {
        self.shared.set_trim(stream, below)
    }

    /// Syncs, and writes a mark that says so if the last record is not one: rot in what came before is then known for
    /// damage when the log is opened, and not taken for an unsynced tail. For the owner to call when nothing was
    /// appended for a while.
    pub fn mark_synced(&self) -> Result<(), JournalError> {
        self.shared.mark(false)
    }

    /// Tries to make the segments that are to be ahead. After it has worked, ordinary appends work.
    ///
    /// # Errors
    /// `NoSpace`: ordinary appends work as long as there is room in the current segment, urgent ones longer.
    pub fn prepare(&self) -> Result<(), JournalError> {
        self.shared.ensure_spares(SPARES, true)
    }

    /// Makes the ballast of [`JournalConfig::ballast`] whole, if there is twice its size free. True: it is whole (or
    /// none is wanted).
    pub fn ensure_ballast(&self) -> Result<bool, JournalError> {
        let Some(wanted) = &self.shared.config.ballast else { return Ok(true) };
        let ballast = Ballast::new(Arc::clone(&self.shared.disk), &wanted.path);
        if ballast.held()? == wanted.bytes {
            return Ok(true);
        }
        if self.shared.disk.space()?.free < 2 * wanted.bytes {
            return Ok(false);
        }
        match ballast.ensure(wanted.bytes) {
            Ok(()) => Ok(true),
            Err(JournalError::NoSpace { .. }) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Gives the ballast back now. True: there was some.
    pub fn release_ballast(&self) -> Result<bool, JournalError> {
        let Some(wanted) = &self.shared.config.ballast else { return Ok(false) };
        Ballast::new(Arc::clone(&self.shared.disk), &wanted.path).release()
    }

    /// Whether ordinary appends are refused, because only the reserve for urgent ones is left.
    pub fn reserve_only(&self) -> bool {
        self.shared.state.lock().reserve_only
    }

    /// Bytes in use by retained segments, their headers included.
    pub fn retained_bytes(&self) -> u64 {
        self.shared.state.lock().segments.iter().map(|s| s.end).sum()
    }

    /// The first retained record (`appended + 1`: none).
    pub fn oldest(&self) -> Seq {
        Seq(self.shared.state.lock().segments.front().map_or(1, |s| s.first))
    }

    /// The retained segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        let state = self.shared.state.lock();
        let current = state.segments.back().map(|s| s.number);
        let info = |s: &Segment| SegmentInfo {
            segment: s.number,
            first: Seq(s.first),
            last: Seq(s.last),
            incarnation: s.incarnation,
            bytes: s.end,
            sealed: Some(s.number) != current,
        };
        state.segments.iter().map(info).collect()
    }

    /// The log's incarnation: a random number from when it was made (or repaired).
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.shared.state.lock().stats
    }

    /// Why the log has stopped, if it has.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.state.lock().poisoned.clone()
    }

    /// Says that a sync of bytes that the log speaks of has failed: what was written of them and not synced may be gone. The next opening
    /// counts that as a loss. Written down as well as a failing disk allows.
    pub fn note_failed_sync(&self) {
        self.shared.note_failure();
    }

    /// Whether bytes that were written and not synced may be others on the device than they read: a write or a sync has failed since this
    /// opening, or the opening found that something may be lost.
    pub fn is_in_doubt(&self) -> bool {
        let losses = self.shared.losses.lock();
        losses.has_failed || losses.found.is_some()
    }

    /// Whether a write or a sync has failed since this opening, of the log or of what it speaks of.
    pub fn has_failed(&self) -> bool {
        self.shared.losses.lock().has_failed
    }

    /// Counts that something which was written and not synced is gone; durable when it returns. To be called before what is left is written
    /// down as all there was.
    pub fn count_loss(&self) -> Result<(), JournalError> {
        Ok(self.shared.losses.lock().add(&*self.shared.disk, &self.shared.dir)?)
    }

    /// How often something that was written and not synced may have been lost.
    pub fn losses(&self) -> u64 {
        self.shared.losses.lock().count()
    }

    /// What stands for the kernel's boot where bytes that were written and not synced are trusted: another value as soon as the machine has booted,
    /// something has been lost, or the log is another one (a repaired or a new one). Does not change while the log is open, but by
    /// [`Journal::count_loss`].
    pub fn boot(&self, kernel: BootId) -> BootId {
        kernel.of_log(self.shared.incarnation, self.losses())
    }

    /// Syncs, writes the mark of a clean stop, syncs that. Later appends are refused. Once is enough.
    pub fn close(&self) -> Result<(), JournalError> {
        if self.shared.state.lock().stop {
            return Ok(());
        }
        self.shared.mark(true)?;
        let mut state = self.shared.state.lock();
        state.stop = true;
        state.poison("it was closed".to_owned());
        drop(state);
        self.shared.wake_all();
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.shared.state.lock().stop = true;
        self.shared.wake_all();
        let mut losses = self.shared.losses.lock();
        if losses.has_failed {
            // Where that could not be written down, this is the last time to try.
            losses.fail(&*self.shared.disk, &self.shared.dir);
        }
        drop(losses);
        if let Some(thread) = self.thread.take() {
            // It cannot have panicked in a way that matters to anyone now.
            let _ = thread.join();
        }
    }
}

fn check_config(config: &JournalConfig) -> Result<(), JournalError> {
    if config.segment_bytes < SEGMENT_BYTES_MIN || !config.segment_bytes.is_multiple_of(PAGE_U64) {
        return Err(JournalError::Config("segment_bytes must be a multiple of 4096 and at least 16 KiB"));
    }
    if config.ballast.as_ref().is_some_and(|b| b.bytes < config.segment_bytes) {
        return Err(JournalError::Config("the ballast must be at least as large as a segment"));
    }
    if config.streams.contains(&StreamId::MARKS) {
        return Err(JournalError::Config("stream 0 is the journal's own"));
    }
    Ok(())
}

fn describe(found: &Recovered) -> Opened {
    Opened {
        last: Seq(found.last),
        oldest: Seq(found.segments.first().map_or(1, |s| s.header.first)),
        records: found.records,
        clean: found.clean,
        created: found.created,
        cut: found.cut.clone(),
        lost: found.losses.found,
    }
}

fn start(disk: Arc<dyn Disk>, dir: &str, config: JournalConfig, found: Recovered) -> Result<Shared, JournalError> {
    let Some(current) = found.segments.last() else {
        return Err(JournalError::Config("a journal without segments cannot be opened"));
    };
    complete_len(&*disk, current)?;
    let batch = go_on(&*disk, current, config.direct)?;
    let incarnation = current.header.incarnation;
    let segments = found.segments.iter().map(retained).collect();
    let shared = Shared {
        disk,
        dir: dir.to_owned(),
        config,
        incarnation,
        state: Mutex::new(State {
            segments,
            spares: VecDeque::new(),
            reserve_only: false,
            making: false,
            tries: 0,
            last_try: None,
            pending: VecDeque::from([batch]),
            in_flight: Vec::new(),
            recycled: None,
            dirty: BTreeMap::new(),
            writing: false,
            syncing: false,
            round: 0,
            syncing_to: None,
            appended: found.last,
            written: found.last,
            durable: found.last,
            marked: found.marked.then_some(found.last),
            poisoned: None,
            stop: false,
            trim: BTreeMap::new(),
            trimmed: VecDeque::new(),
            replays: 0,
            stats: JournalStats::default(),
        }),
        wrote: Condvar::new(),
        durable: AtomicU64::new(found.last),
        rounds: Default::default(),
        losses: Mutex::new(found.losses),
        awaited: AtomicU32::new(0),
        stopping: AtomicBool::new(false),
        tried: Condvar::new(),
        wanted: Condvar::new(),
        trimming: Mutex::new(()),
    };
    let spares = shared.spares_of(&found.spares)?;
    shared.state.lock().spares = spares;
    Ok(shared)
}

fn retained(scanned: &ScannedSegment) -> Segment {
    Segment {
        number: scanned.header.segment,
        path: scanned.path.clone(),
        incarnation: scanned.header.incarnation,
        bytes: scanned.header.segment_bytes,
        first: scanned.header.first,
        last: scanned.last,
        end: scanned.end,
        reader: None,
    }
}

/// An empty batch behind the last record, with what its page already holds.
fn go_on(disk: &dyn Disk, current: &ScannedSegment, direct: bool) -> Result<Batch, JournalError> {
    let page = current.end - current.end % PAGE_U64;
    let mut head = vec![0; usize::try_from(current.end - page).unwrap_or(0)];
    let reader = disk.open(&current.path, OpenOptions { access: Access::Read, direct: false })?;
    let n = reader.read_at(&mut head, page)?;
    head[n..].fill(0);
    let file = disk.open(&current.path, OpenOptions { access: Access::ReadWrite, direct })?;
    Ok(Batch::new(current.header.segment, file, current.end, &head, None))
}
