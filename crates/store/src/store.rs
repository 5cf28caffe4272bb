//! The store: its table of open pieces, and what is asked of it.

use std::sync::Arc;

use disk::Disk;
use journal::{Journal, Seq};
use kv::KvError;
use types::PieceId;

use crate::{NewPiece, PieceStatus, Reader, Space, StoreConfig, StoreError, StoreRecovery, Verified, Writer};

/// The map of records that the store keeps: `kv::LoggedIndex` on the stream `STORE_INDEX`.
pub trait RecordIndex: Send + Sync {
    /// Puts (`Some`) and deletes (`None`) in the log's order, visible to snapshots at once; not yet durable.
    fn append(&self, changes: &[(Vec<u8>, Option<Vec<u8>>)]) -> Result<Seq, KvError>;
    /// A consistent view of everything appended.
    fn snapshot(&self) -> Box<dyn kv::Read + Send + '_>;
}

/// Pieces of bodies on one disk. All calls may come from any thread.
pub struct Store {}

#[allow(clippy::todo, missing_docs, unused_variables)]
impl Store {
    /// Opens the store in the folder `dir` of `disk`, or makes one. `journal` and `index` are open (recovered) already.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: &str,
        journal: Arc<Journal>,
        index: Arc<dyn RecordIndex>,
        config: StoreConfig,
    ) -> Result<(Arc<Store>, StoreRecovery), StoreError> {
        todo!()
    }

    /// Begins a piece. Its body's number must never have been used on this store. In the kernel when this returns.
    pub fn create(&self, piece: PieceId, new: NewPiece<'_>) -> Result<Arc<Writer>, StoreError> {
        todo!()
    }

    /// Goes on with a piece in the making (the writer that is there is shared), resumes an interrupted one, or begins an update
    /// in place of a complete one.
    pub fn reopen(&self, piece: PieceId) -> Result<Arc<Writer>, StoreError> {
        todo!()
    }

    /// Opens for reading: a complete piece, an interrupted one (what was kept), or one in the making (its durable prefix, as it
    /// grows).
    pub fn open_read(&self, piece: PieceId) -> Result<Arc<Reader>, StoreError> {
        todo!()
    }

    /// What is known of a piece; `None`: nothing.
    pub fn status(&self, piece: PieceId) -> Result<Option<PieceStatus>, StoreError> {
        todo!()
    }

    /// Ends a piece in the making without completing it. Returns the length of the durable prefix that is kept. Appended, not
    /// synced. An update in place is ended as complete with what was written.
    pub fn interrupt(&self, piece: PieceId) -> Result<u64, StoreError> {
        todo!()
    }

    /// Removes a piece in any state. Open readers go on; writers are refused. Appended, not synced; the bytes go when the record is
    /// durable. No error where there is none.
    pub fn delete(&self, piece: PieceId) -> Result<(), StoreError> {
        todo!()
    }

    /// Reads everything and compares; `progress` gets the bytes read so far and may say stop by returning false.
    pub fn verify(&self, piece: PieceId, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, StoreError> {
        todo!()
    }

    /// Pieces in order after `after`, at most `limit`.
    pub fn pieces(&self, after: Option<PieceId>, limit: usize) -> Result<Vec<(PieceId, PieceStatus)>, StoreError> {
        todo!()
    }

    /// The once-a-second work: syncs open writers, settles small pieces out of the log, compacts segments, removes files of deleted
    /// pieces, moves the trim mark, looks at the free space.
    pub fn tick(&self) -> Result<(), StoreError> {
        todo!()
    }

    /// Sizes of the file system and whether new data is refused.
    pub fn space(&self) -> Result<Space, StoreError> {
        todo!()
    }
}
