//! The segment files: opening them for reading, and appending to the newest.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use disk::{Access, Disk, DiskFile, OpenOptions};
use parking_lot::Mutex;
use types::ErrorCode;

use crate::StoreError;
use crate::segment::{FILE_HEADER, file_header};

/// Segment files kept open for reading.
const OPEN_MAX: usize = 64;

pub(crate) struct SegmentFiles {
    disk: Arc<dyn Disk>,
    root: String,
    open: Mutex<HashMap<u64, Arc<dyn DiskFile>>>,
    /// Held while settling or compaction moves small replicas, one at a time.
    pub(crate) newest: Mutex<ActiveSegment>,
}

/// The segment that takes appends.
#[derive(Default)]
pub(crate) struct ActiveSegment {
    pub(crate) file: Option<Arc<dyn DiskFile>>,
    pub(crate) number: u64,
    /// The offset of the next record.
    pub(crate) end: u64,
    /// Half-dead segments that could not be compacted since the store was opened: others come first.
    pub(crate) refused: BTreeSet<u64>,
}

impl SegmentFiles {
    pub(crate) fn new(disk: Arc<dyn Disk>, dir: &str) -> Self {
        let root = if dir.is_empty() { "segments".to_owned() } else { format!("{dir}/segments") };
        Self { disk, root, open: Mutex::default(), newest: Mutex::default() }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn path(&self, number: u64) -> String {
        format!("{}/{number:016x}", self.root)
    }

    /// Opens a segment for reading.
    pub(crate) fn open(&self, number: u64) -> Result<Arc<dyn DiskFile>, StoreError> {
        if let Some(file) = self.open.lock().get(&number) {
            return Ok(Arc::clone(file));
        }
        let file = self.disk.open(&self.path(number), OpenOptions { access: Access::Read, direct: false })?;
        let mut open = self.open.lock();
        if open.len() >= OPEN_MAX
            && let Some(other) = open.keys().next().copied()
        {
            open.remove(&other);
        }
        open.insert(number, Arc::clone(&file));
        Ok(file)
    }

    /// Continues a segment at `end`; the bytes after it belong to nothing.
    pub(crate) fn continue_at(&self, number: u64, end: u64, full: u64) -> Result<(), StoreError> {
        let mut newest = self.newest.lock();
        newest.number = number;
        if end >= full {
            return Ok(());
        }
        let file = self.disk.open(&self.path(number), OpenOptions { access: Access::ReadWrite, direct: false })?;
        if file.len()? > end {
            file.set_len(end)?;
            file.sync_data()?;
        }
        (newest.file, newest.end) = (Some(file), end);
        Ok(())
    }

    /// Makes the next append start a new segment after all existing ones.
    pub(crate) fn start_after(&self, number: u64) {
        *self.newest.lock() = ActiveSegment { number, ..ActiveSegment::default() };
    }

    /// The newest segment's file, or a new one if there is none or it is full.
    pub(crate) fn file_to_append_to(
        &self,
        newest: &mut ActiveSegment,
        full: u64,
    ) -> Result<Arc<dyn DiskFile>, StoreError> {
        match &newest.file {
            Some(file) if newest.end < full => return Ok(Arc::clone(file)),
            _ => {}
        }
        let number = newest.number + 1;
        self.disk.create_dir_all(&self.root)?;
        let path = self.path(number);
        let file = match self.disk.open(&path, OpenOptions { access: Access::CreateNew, direct: false }) {
            Err(e) if e.code() == ErrorCode::Exists => {
                // An earlier attempt left it before anything referred to it.
                let file = self.disk.open(&path, OpenOptions { access: Access::ReadWrite, direct: false })?;
                file.set_len(0)?;
                file
            }
            other => other?,
        };
        file.write_at(&file_header(number), 0)?;
        self.disk.sync_dir(self.root.rsplit_once('/').map_or("", |(parent, _)| parent))?;
        self.disk.sync_dir(&self.root)?;
        (newest.file, newest.number, newest.end) = (Some(Arc::clone(&file)), number, FILE_HEADER);
        Ok(file)
    }

    /// Removes a segment to which nothing refers durably.
    pub(crate) fn remove(&self, number: u64) -> Result<(), StoreError> {
        self.open.lock().remove(&number);
        match self.disk.remove(&self.path(number)) {
            Err(e) if e.code() != ErrorCode::NotFound => Err(e.into()),
            _ => Ok(()),
        }
    }
}
