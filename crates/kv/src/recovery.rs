//! Bringing an engine up to the end of the journal, or rebuilding it.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use disk::Disk;
use journal::{Journal, Seq, StreamId};

use crate::checkpoint::CheckpointSet;
use crate::engine::{Applied, Engine, Entry, EntrySource};
use crate::index::{IndexConfig, JournalOwner, Shared, from_journal};
use crate::{KvError, batch};

/// Why an engine was rebuilt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rebuilt {
    /// It was empty (lost, set aside because it did not open, or a new server).
    Empty,
    /// Its position is ahead of the journal. Only if [`IndexConfig::follow_shorter_journal`] allows it.
    AheadOfJournal,
    /// It was filled from this journal before a repair cut it, or from another one and
    /// [`IndexConfig::follow_shorter_journal`] allows it.
    OtherJournal,
    /// It was filled from another journal, and the one that is here is this directory's own: a run on another directory
    /// wrote the index.
    OtherRun,
    /// Only the checkpoint has the records between the engine and the first retained record.
    BehindJournal,
    /// It could not be read or written while it was brought up.
    Broken,
    /// It starts with the records that the journal still has, because [`IndexConfig::begin_empty`] is set.
    BegunEmpty,
}

/// What opening an index found and did.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Recovery {
    /// The journal's last record; the index has everything up to it.
    pub last: Seq,
    /// The engine's position when it was opened.
    pub applied: Seq,
    /// The checkpoint's position; 0 if there is none.
    pub checkpoint: Seq,
    /// Number of replayed records of this stream.
    pub replayed: u64,
    /// Why the engine was rebuilt from checkpoint and journal; `None` if it was not.
    pub rebuilt: Option<Rebuilt>,
    /// Invalid checkpoint files, which were renamed.
    pub damaged_checkpoints: Vec<String>,
    /// Checkpoint files that are useless because their predecessors are missing.
    pub stranded_checkpoints: Vec<String>,
    /// Whether a new checkpoint was made from the engine because the old one was lost.
    pub checkpoint_renewed: bool,
}

pub(crate) fn recover(
    journal: &Journal,
    stream: StreamId,
    engine: &dyn Engine,
    disk: Arc<dyn Disk>,
    dir: &str,
    config: &IndexConfig,
) -> Result<(CheckpointSet, Recovery), KvError> {
    let last = journal.appended();
    // Nothing may become visible or reach the engine that could still be lost.
    journal.sync_to(last).map_err(from_journal)?;
    let incarnation = journal.incarnation();
    let mut set = CheckpointSet::open(disk, dir, stream, incarnation, config)?;
    let ended = config.journal_ended_at.unwrap_or(last);
    let log = JournalView { journal, stream, first: journal.oldest(), last, ended, config };
    let found = engine.applied();
    let mut recovery = Recovery::new(last, found.seq);
    recovery.damaged_checkpoints.clone_from(&set.damaged);
    recovery.stranded_checkpoints.clone_from(&set.stranded);
    if set.upto() > ended {
        return Err(KvError::Damaged(format!(
            "the checkpoint in {dir} goes up to record {}, but the journal ends with {ended}: records that were \
             durable are missing from the journal; put the journal's segments back, or restore from a backup",
            set.upto()
        )));
    }
    if config.begin_empty {
        begin_empty(engine, &mut set, &log, &mut recovery)?;
        recovery.checkpoint = set.upto();
        return Ok((set, recovery));
    }
    let mut why = distrust(engine, &log)?;
    if why == Some(Rebuilt::AheadOfJournal) && !config.follow_shorter_journal {
        return Err(ahead(found.seq, ended, journal));
    }
    if why == Some(Rebuilt::OtherJournal) && !config.follow_shorter_journal && !log.continues(found.incarnation) {
        if let Err(finding) = misplaced(&log, &set, dir) {
            return Err(belongs_to_another_journal(found, journal, &finding));
        }
        why = Some(Rebuilt::OtherRun);
    }
    if why.is_none() {
        match bring_up(engine, &mut set, &log, &mut recovery) {
            Ok(()) => {}
            // An error of the disk is not the engine's fault, and would hit the next engine as well.
            Err(RecoveryFailure::Engine(KvError::NoSpace)) => return Err(KvError::NoSpace),
            Err(RecoveryFailure::Engine(KvError::Io(what))) => {
                return Err(KvError::Io(format!(
                    "{what}; if this stays so, move the folder of that index away: it is built again from checkpoint \
                     and journal"
                )));
            }
            // The journal and its checkpoints are authoritative; a failing engine is set aside.
            Err(RecoveryFailure::Engine(_)) => why = Some(Rebuilt::Broken),
            Err(RecoveryFailure::Rest(error)) => return Err(error),
        }
    }
    if let Some(why) = why {
        recovery.rebuilt = Some(why);
        rebuild(engine, &mut set, &log, &mut recovery, why)?;
    }
    recovery.checkpoint = set.upto();
    Ok((set, recovery))
}

impl Shared {
    /// Rebuilds a damaged engine during operation: readers and appends use the overlay and, while it lasts, the old
    /// engine. Returns whether it did.
    pub(crate) fn heal(&self) -> Result<bool, KvError> {
        let missing = self.sweeping.lock().missing;
        let why = match (missing, self.engine.damaged()) {
            (None, None) => return Ok(false),
            (_, why) => why.unwrap_or_else(|| "it could not be built at the first try".into()),
        };
        let mut set = self.checkpoints.lock();
        let mut alone = self.sweeping.lock();
        tracing::warn!(stream = self.stream.0, "building the index again from checkpoint and journal: {why}");
        // Everything up to the last step; later changes are in the overlay.
        let last = alone.missing.unwrap_or_else(|| self.engine.applied().seq);
        let first = self.journal.oldest();
        let log =
            JournalView { journal: &self.journal, stream: self.stream, first, last, ended: last, config: &self.config };
        let mut recovery = Recovery::new(last, last);
        alone.missing = Some(last);
        rebuild(&*self.engine, &mut set, &log, &mut recovery, Rebuilt::Broken)?;
        alone.missing = None;
        // The cache may hold answers of the damaged engine.
        self.cache.forget();
        self.renew_view(&mut alone, 0);
        self.stats.lock().healed += 1;
        Ok(true)
    }
}

impl Recovery {
    fn new(last: Seq, applied: Seq) -> Self {
        Self {
            last,
            applied,
            checkpoint: Seq::ZERO,
            replayed: 0,
            rebuilt: None,
            damaged_checkpoints: Vec::new(),
            stranded_checkpoints: Vec::new(),
            checkpoint_renewed: false,
        }
    }
}

struct JournalView<'a> {
    journal: &'a Journal,
    stream: StreamId,
    first: Seq,
    last: Seq,
    /// The last record that existed before this opening of the journal.
    ended: Seq,
    config: &'a IndexConfig,
}

impl JournalView<'_> {
    /// Whether a repair cut the journal with that incarnation and continued it as this one.
    fn continues(&self, incarnation: u64) -> bool {
        self.journal.segments().iter().any(|segment| segment.incarnation == incarnation)
    }

    /// Whether the journal has all records after `seq`.
    fn follows(&self, seq: Seq) -> bool {
        seq.next() >= self.first
    }
}

fn ahead(applied: Seq, ended: Seq, journal: &Journal) -> KvError {
    let place = journal.segments().last().map_or_else(String::new, |segment| format!(" (segment {})", segment.segment));
    KvError::Damaged(format!(
        "the journal ends with record {ended}{place}, but record {applied} was durable once, because the index has \
         it: records are missing at the end of the journal; put the journal's segments back as they were; if they \
         are lost for good, docs/how-to/recover.md has the last resort"
    ))
}

/// Decides whether an index that was made from another journal is what does not belong here, and can be built again.
/// Otherwise returns what is wrong and what would help: the index may be the last that knows what a lost journal held.
fn misplaced(log: &JournalView<'_>, set: &CheckpointSet, dir: &str) -> Result<(), String> {
    let folder = dir.rsplit_once('/').map_or("", |(folder, _)| folder);
    let has_checkpoint = set.upto() > Seq::ZERO;
    let is_ours = |incarnation| incarnation == log.journal.incarnation() || log.continues(incarnation);
    match log.config.journal_owner {
        JournalOwner::ThisDirectory if has_checkpoint && !is_ours(set.incarnation()) => Err(format!(
            "the journal is this directory's, and the checkpoint in {dir} is of another one as well: put back the \
             {folder} that belongs to the journal"
        )),
        JournalOwner::ThisDirectory => Ok(()),
        JournalOwner::AnotherDirectory => Err("the journal is not the one that this directory had: it was lost, or \
                                               its folder is not mounted; put the journal back, or restore journal \
                                               and index together from a backup"
            .to_owned()),
        JournalOwner::Unknown if has_checkpoint && is_ours(set.incarnation()) => Ok(()),
        JournalOwner::Unknown => Err(format!(
            "either the journal was lost, or its folder is not mounted: put it back, or restore journal and index \
             together from a backup; or another node wrote its index here: if the journal is certainly this \
             directory's, move {folder}/index away, and it is built again"
        )),
    }
}

fn belongs_to_another_journal(applied: Applied, journal: &Journal, finding: &str) -> KvError {
    KvError::Damaged(format!(
        "the index was made from another journal (incarnation {:016x}, up to its record {}) than the one that is \
         here (incarnation {:016x}, up to record {}); nothing was changed; {finding}",
        applied.incarnation,
        applied.seq,
        journal.incarnation(),
        journal.appended()
    ))
}

/// The failing part: the engine, which can be replaced, or its replacement.
enum RecoveryFailure {
    Engine(KvError),
    Rest(KvError),
}

fn distrust(engine: &dyn Engine, log: &JournalView<'_>) -> Result<Option<Rebuilt>, KvError> {
    let applied = engine.applied();
    Ok(if applied.seq == Seq::ZERO && log.last == Seq::ZERO && engine.is_empty()? {
        // A new server.
        None
    } else if applied.seq == Seq::ZERO {
        // Perhaps entries without a position: an interrupted rebuild.
        Some(Rebuilt::Empty)
    } else if applied.incarnation != log.journal.incarnation() {
        Some(Rebuilt::OtherJournal)
    } else if applied.seq > log.ended {
        Some(Rebuilt::AheadOfJournal)
    } else if !log.follows(applied.seq) {
        Some(Rebuilt::BehindJournal)
    } else {
        None
    })
}

fn bring_up(
    engine: &dyn Engine,
    set: &mut CheckpointSet,
    log: &JournalView<'_>,
    recovery: &mut Recovery,
) -> Result<(), RecoveryFailure> {
    if !log.follows(set.upto()) {
        // The engine alone still has the records that the checkpoint lost. Make a second copy before anything else.
        if set.upto() == Seq::ZERO && set.damaged.is_empty() {
            tracing::warn!(
                stream = log.stream.0,
                "there is no checkpoint, as after a restore; making one from the index, which is whole"
            );
        } else {
            tracing::error!(
                stream = log.stream.0,
                "checkpoint files are missing or damaged; making a new one from the index, which is whole"
            );
        }
        let applied = engine.applied().seq;
        set.renew_from(&*engine.snapshot(), applied).map_err(RecoveryFailure::Rest)?;
        recovery.checkpoint_renewed = true;
    }
    replay(engine, engine.applied().seq, log, recovery)
}

fn rebuild(
    engine: &dyn Engine,
    set: &mut CheckpointSet,
    log: &JournalView<'_>,
    recovery: &mut Recovery,
    why: Rebuilt,
) -> Result<(), KvError> {
    if why != Rebuilt::Empty {
        tracing::warn!(stream = log.stream.0, "building the index again from checkpoint and journal: {why:?}");
    }
    if !log.follows(set.upto()) {
        return Err(KvError::Lost(format!(
            "the index cannot be built again: its checkpoint goes up to record {}, and the journal begins with {}; \
             {}restore the missing checkpoint files or a backup",
            set.upto(),
            log.first,
            if set.damaged.is_empty() {
                String::new()
            } else {
                format!("these files did not check: {}; ", set.damaged.join(", "))
            }
        )));
    }
    // Verify the sources of the rebuild before dropping the old engine.
    match set.verify_all() {
        Err(KvError::Damaged(what)) if log.follows(Seq::ZERO) => {
            tracing::error!(stream = log.stream.0, "{what}; the journal still has everything");
            set.set_all_aside()?;
            recovery.damaged_checkpoints.clone_from(&set.damaged);
        }
        Err(KvError::Damaged(what)) => return Err(KvError::Lost(what)),
        verified => drop(verified?),
    }
    engine.reset(&format!("{why:?}"))?;
    recovery.replayed = 0;
    if set.upto() > Seq::ZERO {
        let applied = Applied { seq: set.upto(), incarnation: log.journal.incarnation() };
        set.content().and_then(|mut content| engine.load(&mut content, applied))?;
    }
    replay(engine, set.upto(), log, recovery).map_err(|trouble| match trouble {
        RecoveryFailure::Engine(error) | RecoveryFailure::Rest(error) => error,
    })?;
    match engine.flush() {
        Ok(()) => engine.rebuilt(),
        Err(error) => tracing::warn!(stream = log.stream.0, "what the index was before stays for now: {error}"),
    }
    Ok(())
}

/// Starts the index with the records that the journal still has. Makes a base of it at once: without one, the next
/// opening would look for the checkpoint of the earlier records.
fn begin_empty(
    engine: &dyn Engine,
    set: &mut CheckpointSet,
    log: &JournalView<'_>,
    recovery: &mut Recovery,
) -> Result<(), KvError> {
    tracing::warn!(stream = log.stream.0, "the index begins with what the journal has from record {} on", log.first);
    recovery.rebuilt = Some(Rebuilt::BegunEmpty);
    set.set_all_aside()?;
    recovery.damaged_checkpoints.clone_from(&set.damaged);
    engine.reset("it begins empty")?;
    let before = Seq(log.first.0.saturating_sub(1));
    replay(engine, before, log, recovery).map_err(|trouble| match trouble {
        RecoveryFailure::Engine(error) | RecoveryFailure::Rest(error) => error,
    })?;
    engine.flush()?;
    let applied = engine.applied().seq;
    if applied == Seq::ZERO { Ok(()) } else { set.renew_from(&*engine.snapshot(), applied) }
}

/// Passes the records after `after` to the engine in steps of bounded size. A step has the newest value of each key.
fn replay(
    engine: &dyn Engine,
    after: Seq,
    log: &JournalView<'_>,
    recovery: &mut Recovery,
) -> Result<(), RecoveryFailure> {
    let incarnation = log.journal.incarnation();
    let mut step = Step::default();
    let mut trouble = None;
    let replayed = log.journal.replay(log.stream, after, &mut |seq, _, payload| {
        if seq > log.last {
            return ControlFlow::Break(());
        }
        recovery.replayed += 1;
        let taken = step.take(payload).map_err(RecoveryFailure::Rest).and_then(|()| {
            if step.weight < log.config.generation_bytes {
                return Ok(());
            }
            step.apply(engine, Applied { seq, incarnation })
        });
        match taken {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                trouble = Some(error);
                ControlFlow::Break(())
            }
        }
    });
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    replayed.map_err(|error| RecoveryFailure::Rest(from_journal(error)))?;
    if engine.applied().seq < log.last {
        // Even if there was nothing to replay: the next records of this stream follow the journal's last record.
        step.apply(engine, Applied { seq: log.last, incarnation })?;
    }
    Ok(())
}

#[derive(Default)]
struct Step {
    changes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    weight: usize,
}

impl Step {
    fn take(&mut self, payload: &[u8]) -> Result<(), KvError> {
        for entry in batch::decode(payload)? {
            let (key, value) = entry?;
            self.weight += key.len() + value.map_or(0, <[u8]>::len) + 96;
            self.changes.insert(key.to_vec(), value.map(<[u8]>::to_vec));
        }
        Ok(())
    }

    fn apply(&mut self, engine: &dyn Engine, applied: Applied) -> Result<(), RecoveryFailure> {
        let changes = std::mem::take(self).changes;
        let mut source = MapSource { changes: changes.into_iter(), entry: None };
        engine.apply(&mut source, applied).map_err(RecoveryFailure::Engine)
    }
}

struct MapSource {
    changes: std::collections::btree_map::IntoIter<Vec<u8>, Option<Vec<u8>>>,
    entry: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

impl EntrySource for MapSource {
    fn next(&mut self) -> Result<Option<Entry<'_>>, KvError> {
        self.entry = self.changes.next();
        Ok(self.entry.as_ref().map(|(key, value)| (key.as_slice(), value.as_deref())))
    }
}
