//! The open journal.

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
use crate::segment_file::SegmentFile;
use crate::spare_segments::SPARES;
use crate::state::{Segment, Shared, State};
use crate::{
    Appended, Ballast, Beginning, Cut, JournalConfig, JournalError, JournalStats, Location, Opened, Prepare, Repaired,
    SegmentInfo, Seq, StreamId, Visit, VisitMany, begin, repair,
};

/// The smallest segment that makes sense.
const SEGMENT_BYTES_MIN: u64 = 16 << 10;

/// The open journal. Share it as `Arc<Journal>`; any thread may make any call.
pub struct Journal {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Journal {
    /// Opens the journal in the directory `dir` of `disk`, or makes one if there is none. Checks everything, saves and
    /// cuts an unsynced tail that fails its check, and syncs the rest before it returns. No other process may have the
    /// journal open: the owner of the data directory holds a lock for that.
    ///
    /// # Errors
    /// [`JournalError::Damaged`]: bytes that were durable fail their check. [`JournalError::Unsupported`]: a newer weir
    /// wrote the journal. [`JournalError::Missing`]: there is none and [`JournalConfig::must_exist`] is set.
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
            // From here on, rot in the recovered records can be told from an unsynced tail.
            journal.shared.mark(false)?;
        }
        Ok((journal, opened))
    }

    /// Reads and checks a journal that nobody has open, and changes nothing. [`Opened::cut`] describes the tail that
    /// [`Journal::open`] would cut.
    ///
    /// # Errors
    /// Those of [`Journal::open`]; `Missing` if there is no journal.
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

    /// Cuts a damaged journal at the offset where [`Journal::open`] found the damage. First it saves everything from
    /// there on in `dir/damaged-…`. The numbers of lost records are not used again. Call it again to finish an
    /// interrupted repair. Returns `None` if there is no damage.
    pub fn repair(disk: &dyn Disk, dir: &str, config: &JournalConfig) -> Result<Option<Repaired>, JournalError> {
        repair::repair(disk, dir, config)
    }

    /// Makes an empty journal in the directory `dir` that starts with the numbers of `beginning`, to replace a lost
    /// one. It is durable on return; open it with [`Journal::open`]. A second call with the same numbers finishes an
    /// interrupted one, and leaves an existing journal unchanged.
    ///
    /// # Errors
    /// [`JournalError::Config`]: the directory holds segments of another journal, or no journal can have these numbers.
    pub fn begin(
        disk: &dyn Disk,
        dir: &str,
        config: &JournalConfig,
        beginning: &Beginning,
    ) -> Result<(), JournalError> {
        check_config(config)?;
        begin::begin(disk, dir, config, beginning)
    }

    /// Appends a record in memory. The parts of `payload` are concatenated. The record is neither written nor durable:
    /// see [`Journal::write_to`] and [`Journal::sync_to`].
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] (nothing appended, works again later), `TooLarge`, `Poisoned`.
    pub fn append(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        self.shared.append(&Record { stream, flags: 0, payload, urgent: false })
    }

    /// [`Journal::append`] for records that free space, such as deletions. When ordinary appends fail, it may use the
    /// last prepared segment and the ballast. Keep these records small.
    pub fn append_urgent(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        self.shared.append(&Record { stream, flags: 0, payload, urgent: true })
    }

    /// Returns when the kernel has all records up to `seq`: they survive SIGKILL, but not a power failure.
    pub fn write_to(&self, seq: Seq) -> Result<(), JournalError> {
        self.shared.write_to(seq.0)
    }

    /// Returns when all records up to `seq` are durable. Threads that wait at the same time share one write and one
    /// sync.
    pub fn sync_to(&self, seq: Seq) -> Result<(), JournalError> {
        self.shared.sync_to(seq.0)
    }

    /// The last record appended.
    pub fn appended(&self) -> Seq {
        Seq(self.shared.state.lock().appended)
    }

    /// The last record that the kernel has, with all earlier ones.
    pub fn written(&self) -> Seq {
        Seq(self.shared.state.lock().written)
    }

    /// The last durable record; all earlier ones are durable too.
    pub fn durable(&self) -> Seq {
        Seq(self.shared.durable.load(Ordering::Acquire))
    }

    /// Returns a payload after checking its checksum, even if the record is not written yet.
    pub fn read(&self, location: Location) -> Result<Vec<u8>, JournalError> {
        self.shared.read(location)
    }

    /// Fills `buf` with bytes of a payload, starting at its byte `skip`. Checks nothing: the caller has its own
    /// checksums.
    pub fn read_into(&self, location: Location, skip: u32, buf: &mut [u8]) -> Result<(), JournalError> {
        self.shared.read_into(location, skip, buf)
    }

    /// Passes the written records of `stream` after `after` to `visit`, in order, until `visit` breaks. Omits records
    /// that are appended but not written.
    ///
    /// # Errors
    /// [`JournalError::Trimmed`]: some records after `after` have been removed.
    pub fn replay(&self, stream: StreamId, after: Seq, visit: &mut Visit<'_>) -> Result<(), JournalError> {
        self.replay_many(&[stream], after, &mut |_, seq, location, payload| visit(seq, location, payload))
    }

    /// [`Journal::replay`] for several streams in one pass.
    pub fn replay_many(&self, streams: &[StreamId], after: Seq, visit: &mut VisitMany<'_>) -> Result<(), JournalError> {
        self.shared.replay(streams, after, visit)
    }

    /// Declares that `stream` no longer needs any record below `below`. A segment is removed when every stream of
    /// [`JournalConfig::streams`] allows it and a later record is durable; the current segment stays. After an error
    /// the next call continues. Trim marks only rise. They do not survive a restart: each stream declares its mark
    /// after its own recovery.
    pub fn set_trim(&self, stream: StreamId, below: Seq) -> Result<(), JournalError> {
        self.shared.set_trim(stream, below)
    }

    /// Syncs, and appends a mark that says so unless the last record is one. Opening then treats rot in earlier records
    /// as damage, and not as an unsynced tail. The owner calls this when nothing was appended for a while.
    pub fn mark_synced(&self) -> Result<(), JournalError> {
        self.shared.mark(false)
    }

    /// Tries to make the prepared segments. Ordinary appends work after it succeeds.
    ///
    /// # Errors
    /// `NoSpace`: ordinary appends work until the current segment is full; urgent ones continue longer.
    pub fn prepare(&self) -> Result<(), JournalError> {
        self.shared.ensure_spares(SPARES, true)
    }

    /// Makes the ballast of [`JournalConfig::ballast`] complete, if twice its size is free. Returns true if it is
    /// complete or none is configured.
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

    /// Removes the ballast now. Returns whether it existed.
    pub fn release_ballast(&self) -> Result<bool, JournalError> {
        let Some(wanted) = &self.shared.config.ballast else { return Ok(false) };
        Ballast::new(Arc::clone(&self.shared.disk), &wanted.path).release()
    }

    /// Whether ordinary appends fail because only the reserve for urgent ones is left.
    pub fn reserve_only(&self) -> bool {
        self.shared.state.lock().reserve_only
    }

    /// Bytes of the retained segments, with their headers.
    pub fn retained_bytes(&self) -> u64 {
        self.shared.state.lock().segments.iter().map(|s| s.end).sum()
    }

    /// The first retained record; `appended + 1` if there is none.
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

    /// The journal's incarnation: a random number, drawn when it was made or repaired.
    pub fn incarnation(&self) -> u64 {
        self.shared.incarnation
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.shared.state.lock().stats
    }

    /// Why the journal has stopped; `None` while it works.
    pub fn poisoned(&self) -> Option<String> {
        self.shared.state.lock().poisoned.clone()
    }

    /// Reports a failed sync of bytes that the journal refers to: unsynced writes to them may be lost. The next opening
    /// counts this as a loss. It is recorded as well as a failing disk allows.
    pub fn note_failed_sync(&self) {
        self.shared.note_failure();
    }

    /// Whether unsynced bytes may differ between the cache and the device: a write or sync has failed since this
    /// opening, or the opening found a possible loss.
    pub fn is_in_doubt(&self) -> bool {
        let losses = self.shared.losses.lock();
        losses.has_failed || losses.found.is_some()
    }

    /// Whether a write or a sync has failed since this opening, in the journal or in files that it refers to.
    pub fn has_failed(&self) -> bool {
        self.shared.losses.lock().has_failed
    }

    /// Counts a loss of bytes that were written but not synced. The count is durable on return. Call this before you
    /// record the remaining bytes as complete.
    pub fn count_loss(&self) -> Result<(), JournalError> {
        Ok(self.shared.losses.lock().add(&*self.shared.disk, &self.shared.dir)?)
    }

    /// How often bytes that were written but not synced may have been lost.
    pub fn losses(&self) -> u64 {
        self.shared.losses.lock().count()
    }

    /// The boot generation: compare it before you trust unsynced bytes. It changes when the machine has booted, when
    /// something has been lost, and when the journal is repaired or replaced. While the journal is open, only
    /// [`Journal::count_loss`] changes it.
    pub fn boot(&self, kernel: BootId) -> BootId {
        kernel.of_log(self.shared.incarnation, self.losses())
    }

    /// Syncs, appends the mark of a clean stop, and syncs again. Later appends fail. A second call does nothing.
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
            // The last chance to record a failure that could not be recorded earlier.
            losses.fail(&*self.shared.disk, &self.shared.dir);
        }
        drop(losses);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread no longer matters.
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
    let batch = continue_after(&*disk, current, config.direct)?;
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

/// An empty batch after the last record, with the bytes that its page already holds.
fn continue_after(disk: &dyn Disk, current: &ScannedSegment, direct: bool) -> Result<Batch, JournalError> {
    let page = current.end - current.end % PAGE_U64;
    let mut head = vec![0; usize::try_from(current.end - page).unwrap_or(0)];
    let reader = disk.open(&current.path, OpenOptions { access: Access::Read, direct: false })?;
    let n = reader.read_at(&mut head, page)?;
    head[n..].fill(0);
    let file = SegmentFile::open(disk, &current.path, direct)?;
    Ok(Batch::new(current.header.segment, file, current.end, &head, None))
}
