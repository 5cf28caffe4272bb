//! A server's disk: the real store and its log, and what is said when a sync has failed.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::replication::Whole;
use disk::{Access, Disk, DiskOp, OpenOptions, SimDisk};
use journal::{Journal, JournalConfig, StreamId};
use kv::{IndexConfig, LoggedIndex, MemoryEngine};
use store::{NewPiece, PieceState, Store, StoreConfig, StoreError, Writer};
use types::{ErrorCode, Incarnation, PieceId};

use crate::message::Bytes;

/// A file that says that something was lost.
const LOST: &str = "lost";

pub(crate) struct Pieces {
    disk: SimDisk,
    journal: Arc<Journal>,
    records: Arc<LoggedIndex>,
    store: Arc<Store>,
    writers: BTreeMap<PieceId, Arc<Writer>>,
    has_failed: bool,
    has_lost: bool,
}

impl Pieces {
    /// On a disk that a store may have been on before.
    pub(crate) fn open(disk: &SimDisk) -> Result<Self, String> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let streams = vec![StreamId::STORE_INDEX, StreamId::STORE_DATA];
        let config = JournalConfig { streams, ..JournalConfig::small() };
        let (journal, _) = Journal::open(Arc::clone(&shared), "journal", config).map_err(|error| text(&error))?;
        let journal = Arc::new(journal);
        let (log, engine) = (Arc::clone(&journal), Box::new(MemoryEngine::new()));
        let (stream, small) = (StreamId::STORE_INDEX, IndexConfig::small());
        let opened = LoggedIndex::open(log, stream, engine, Arc::clone(&shared), "checkpoint", small);
        let (records, _) = opened.map_err(|error| text(&error))?;
        // What fits the small log.
        let config = StoreConfig {
            small_max: 8 << 10,
            segment_bytes: 32 << 10,
            floor: Some(0),
            ranges_max: 64,
            held_pages_max: 3,
            redo_bytes_max: 40 << 10,
            snapshot_after_bytes: 128 << 10,
            settle_step_bytes: 8 << 10,
            ..StoreConfig::default()
        };
        let (store, recovery) = Store::open(shared, "store", Arc::clone(&journal), Arc::clone(&records) as _, config)
            .map_err(|error| text(&error))?;
        let is_marked = disk.len_of(LOST).map_err(|error| text(&error))?.is_some();
        Ok(Self {
            disk: disk.clone(),
            journal,
            records,
            store,
            writers: BTreeMap::new(),
            has_failed: false,
            has_lost: is_marked || recovery.bytes_dropped > 0,
        })
    }

    /// Not all is there that was written and not synced before the opening, and nobody has been told yet.
    pub(crate) fn has_lost(&self) -> bool {
        self.has_lost
    }

    /// Whoever has to know of it has it written down.
    pub(crate) fn loss_is_told(&mut self) {
        self.has_lost = false;
        let _ = self.disk.remove(LOST);
    }

    /// Whether a sync has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.has_failed
    }

    /// What was not synced when a sync failed may be gone, and nothing else on the disk would say so: a mark does.
    fn fail(&mut self) {
        if !self.has_failed {
            self.has_failed = true;
            let options = OpenOptions { access: Access::CreateNew, direct: false };
            let _ = self.disk.open(LOST, options).and_then(|_| self.disk.sync_dir(""));
        }
    }

    /// Every error of a change comes through here, wherever in it a sync was what failed.
    fn code(&mut self, error: &StoreError) -> ErrorCode {
        let is_of_a_sync = match error {
            StoreError::Failed { .. } => true,
            StoreError::Disk(error) => error.op == DiskOp::Sync,
            _ => false,
        };
        if is_of_a_sync || self.journal.poisoned().is_some() {
            self.fail();
        }
        error.code()
    }

    /// What a store does now and then.
    pub(crate) fn tick(&mut self) {
        let result = self.store.tick();
        if result.is_err_and(|error| self.code(&error) == ErrorCode::Io) {
            self.fail();
        }
    }

    /// What is done more rarely.
    pub(crate) fn sweep(&mut self) {
        let done = self.records.sweep_now().and_then(|_| self.records.checkpoint_now());
        if done.is_err() && self.journal.poisoned().is_some() {
            self.fail();
        }
    }

    /// Gets a piece ready for writing; a new one if there is none and `may_make`.
    pub(crate) fn open_piece(&mut self, piece: PieceId, may_make: bool) -> Result<(), ErrorCode> {
        let status = self.store.status(piece).map_err(|error| self.code(&error))?;
        let writer = match status {
            None if may_make => {
                let new = NewPiece { path_hint: b"/", expected_len: None, incarnation: Incarnation(1) };
                self.store.create(piece, new)
            }
            None => return Err(ErrorCode::NotFound),
            Some(_) => self.store.reopen(piece),
        };
        let writer = writer.map_err(|error| self.code(&error))?;
        self.writers.insert(piece, writer);
        Ok(())
    }

    fn write<T>(&mut self, piece: PieceId, op: impl FnOnce(&Writer) -> Result<T, StoreError>) -> Result<T, ErrorCode> {
        let writer = self.writers.get(&piece).ok_or(ErrorCode::Stale)?;
        op(writer).map_err(|error| self.code(&error))
    }

    pub(crate) fn apply(&mut self, piece: PieceId, bytes: &Bytes) -> Result<(), ErrorCode> {
        self.write(piece, |writer| writer.write(bytes.offset, &bytes.bytes))
    }

    pub(crate) fn sync(&mut self, piece: PieceId) -> Result<(), ErrorCode> {
        let result = self.write(piece, |writer| writer.sync().map(drop));
        self.fail_if_io(&result);
        result
    }

    pub(crate) fn complete(&mut self, piece: PieceId) -> Result<Whole, ErrorCode> {
        if let Some(whole) = self.whole(piece)? {
            return Ok(whole);
        }
        let completed = self.write(piece, Writer::complete);
        self.fail_if_io(&completed);
        let completed = completed?;
        self.writers.remove(&piece);
        let synced = self.journal.sync_to(completed.seq).map_err(|_| ErrorCode::Io);
        self.fail_if_io(&synced);
        synced?;
        Ok(Whole { len: completed.len, crc32c: completed.crc32c, adler32: completed.adler32 })
    }

    fn fail_if_io<T>(&mut self, result: &Result<T, ErrorCode>) {
        if matches!(result, Err(ErrorCode::Io)) {
            self.fail();
        }
    }

    /// A whole content in the place of whatever is there.
    pub(crate) fn put(&mut self, piece: PieceId, bytes: &Bytes) -> Result<Whole, ErrorCode> {
        self.open_piece(piece, true)?;
        self.write(piece, |writer| writer.truncate(0))?;
        self.apply(piece, bytes)?;
        self.complete(piece)
    }

    /// What the piece is, if it is whole.
    fn whole(&self, piece: PieceId) -> Result<Option<Whole>, ErrorCode> {
        let status = self.store.status(piece).map_err(|error| error.code())?.ok_or(ErrorCode::NotFound)?;
        Ok(match status.state {
            PieceState::Complete { adler32, crc32c } => Some(Whole { len: status.len, crc32c, adler32 }),
            _ => None,
        })
    }

    /// Whether the piece is whole, with this content; otherwise what it is.
    pub(crate) fn holds(&self, piece: PieceId, whole: Whole) -> Result<(), String> {
        if self.whole(piece) == Ok(Some(whole)) {
            return Ok(());
        }
        let status = self.store.status(piece).map_err(|error| error.to_string())?;
        let found = status.map(|status| (status.len, status.state));
        Err(format!("{found:?} of piece {piece}, and not {whole:?}"))
    }

    /// All of a piece; `by_writer`: with what is not durable.
    pub(crate) fn content(&self, piece: PieceId, by_writer: bool) -> Result<Arc<[u8]>, ErrorCode> {
        let reader = if by_writer { self.store.open_read_of_writer(piece) } else { self.store.open_read(piece) };
        let reader = reader.map_err(|error| error.code())?;
        let mut bytes = vec![0; usize::try_from(reader.len()).map_err(|_| ErrorCode::TooLarge)?];
        let read = reader.read(0, &mut bytes).map_err(|error| error.code())?;
        bytes.truncate(read);
        Ok(bytes.into())
    }
}
