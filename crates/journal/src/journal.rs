//! The open log.

use std::ops::ControlFlow;
use std::sync::Arc;

use disk::Disk;

use crate::{
    Appended, JournalConfig, JournalError, JournalStats, Location, Opened, Repaired, SegmentInfo, Seq, StreamId,
};

/// The open log. Shared by reference (`Arc<Journal>`); all calls may come from any thread.
pub struct Journal {}

impl Journal {
    /// Opens the log in the folder `dir` of `disk`, or makes one where there is none. Everything that is there is
    /// checked, an unsynced tail that does not check is cut, and what remains is synced before this returns.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] where bytes that were durable do not check; [`JournalError::Unsupported`] where a newer
    /// weir wrote it.
    pub fn open(disk: Arc<dyn Disk>, dir: &str, config: JournalConfig) -> Result<(Journal, Opened), JournalError> {
        let _ = (disk, dir, config);
        todo!()
    }

    /// Cuts a damaged log at the place where [`Journal::open`] found the damage, after saving everything from there on
    /// aside in `dir/damaged-…`. Numbers of lost records are not used again. `None`: there is no damage.
    pub fn repair(disk: Arc<dyn Disk>, dir: &str, config: &JournalConfig) -> Result<Option<Repaired>, JournalError> {
        let _ = (disk, dir, config);
        todo!()
    }

    /// Takes a record into the log's order, in memory. `payload`'s parts are laid end to end. Neither written nor
    /// durable yet: see [`Journal::write_to`], [`Journal::sync_to`].
    ///
    /// # Errors
    /// [`JournalError::NoSpace`] (nothing appended, works again later), `TooLarge`, `Poisoned`.
    pub fn append(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        let _ = (stream, payload);
        todo!()
    }

    /// [`Journal::append`] for what gives space back (deletes): may use the last segment made ahead when ordinary
    /// appends are refused. Keep its records small.
    pub fn append_urgent(&self, stream: StreamId, payload: &[&[u8]]) -> Result<Appended, JournalError> {
        let _ = (stream, payload);
        todo!()
    }

    /// Returns when all records up to `seq` are in the kernel: SIGKILL cannot undo them, a power failure can.
    pub fn write_to(&self, seq: Seq) -> Result<(), JournalError> {
        let _ = seq;
        todo!()
    }

    /// Returns when all records up to `seq` are durable. Those who wait at the same time share one write and one sync.
    pub fn sync_to(&self, seq: Seq) -> Result<(), JournalError> {
        let _ = seq;
        todo!()
    }

    /// The last record appended.
    pub fn appended(&self) -> Seq {
        todo!()
    }

    /// The last record that is in the kernel, with all before it.
    pub fn written(&self) -> Seq {
        todo!()
    }

    /// The last record that is durable, with all before it.
    pub fn durable(&self) -> Seq {
        todo!()
    }

    /// A payload, checksum checked; also of a record that is not written yet.
    pub fn read(&self, location: Location) -> Result<Vec<u8>, JournalError> {
        let _ = location;
        todo!()
    }

    /// Fills `buf` with a payload's bytes from its byte `skip` on, unchecked: the caller has checksums of its own.
    pub fn read_into(&self, location: Location, skip: u32, buf: &mut [u8]) -> Result<(), JournalError> {
        let _ = (location, skip, buf);
        todo!()
    }

    /// Shows the records of `stream` after `after` that are in the kernel, in order, until `visit` breaks.
    ///
    /// # Errors
    /// [`JournalError::Trimmed`] if records after `after` are not there any more.
    pub fn replay(
        &self,
        stream: StreamId,
        after: Seq,
        visit: &mut dyn FnMut(Seq, Location, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        self.replay_many(&[stream], after, &mut |_, seq, location, payload| visit(seq, location, payload))
    }

    /// [`Journal::replay`] for several streams in one pass.
    pub fn replay_many(
        &self,
        streams: &[StreamId],
        after: Seq,
        visit: &mut dyn FnMut(StreamId, Seq, Location, &[u8]) -> ControlFlow<()>,
    ) -> Result<(), JournalError> {
        let _ = (streams, after, visit);
        todo!()
    }

    /// Says that `stream` needs no record below `below` any more. A segment goes when every stream of
    /// [`JournalConfig::streams`] allows it; the current one never. Marks only rise. Not remembered across openings:
    /// a stream says it again after its own recovery.
    pub fn set_trim(&self, stream: StreamId, below: Seq) -> Result<(), JournalError> {
        let _ = (stream, below);
        todo!()
    }

    /// If the last record is not yet known to be durable to a later reader of the log, syncs and writes a mark that
    /// says so. For the owner to call when nothing was appended for a while.
    pub fn mark_synced(&self) -> Result<(), JournalError> {
        todo!()
    }

    /// Tries again to make the segments that could not be made for want of space. True: ordinary appends work.
    pub fn prepare(&self) -> Result<bool, JournalError> {
        todo!()
    }

    /// Bytes in use by retained records.
    pub fn retained_bytes(&self) -> u64 {
        todo!()
    }

    /// The first retained record (`appended + 1`: none).
    pub fn oldest(&self) -> Seq {
        todo!()
    }

    /// The retained segments, oldest first.
    pub fn segments(&self) -> Vec<SegmentInfo> {
        todo!()
    }

    /// The log's incarnation: a random number from when it was made (or repaired).
    pub fn incarnation(&self) -> u64 {
        todo!()
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        todo!()
    }

    /// Why the log has stopped, if it has.
    pub fn poisoned(&self) -> Option<String> {
        todo!()
    }

    /// Syncs, writes the mark of a clean stop, syncs that. Later appends are refused.
    pub fn close(&self) -> Result<(), JournalError> {
        todo!()
    }
}
