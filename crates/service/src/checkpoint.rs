//! Checkpoints: changes of an open file that are kept or undone together, even after a crash. A file has at most one
//! checkpoint. A close or a lost connection rolls it back. Every write belongs to the open checkpoint, so a rollback
//! restores exactly the file as it was.

use store::StoreError;
use types::ErrorCode;

use crate::error::Error;
use crate::open_file::{Access, OpenFile};
use crate::sharers::ExclusiveUse;
use crate::write_target::WriteTargetError;

/// The size of the changes under a checkpoint, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CheckpointSizes {
    /// The maximum.
    pub limit: u64,
    /// The present size.
    pub used: u64,
}

/// Operations on checkpoints. All of them may wait for the disk.
impl OpenFile {
    /// Begins a checkpoint.
    ///
    /// # Errors
    /// The file is open for reading only, or already has a checkpoint.
    pub fn begin_checkpoint(&self) -> Result<(), Error> {
        let Access::Write(access) = &self.access else {
            let text =
                format!("{} is open for reading only and has nothing to checkpoint; open it for update", self.path);
            // as the stock server: kXR_Conflict
            return Err(Error::new(ErrorCode::Conflict, text));
        };
        let hold = access.hold()?;
        if !access.lease.sharers.lock().be_alone(access.share, ExclusiveUse::HasCheckpoint) {
            let text = format!(
                "Cannot begin a checkpoint of {}: it is open for writing elsewhere, too; wait until those handles are closed",
                self.path
            );
            return Err(Error::new(ErrorCode::Busy, text));
        }
        hold.begin_checkpoint().map_err(|error| self.no_checkpoint_or("begin a checkpoint of", &error))
    }

    /// Keeps the changes under the checkpoint.
    ///
    /// # Errors
    /// There is no checkpoint, or the store failed. In that case the outcome is unknown.
    pub fn commit_checkpoint(&self) -> Result<(), Error> {
        let Access::Write(access) = &self.access else { return Err(self.no_checkpoint()) };
        access.hold()?.commit_checkpoint().map_err(|error| self.no_checkpoint_or("commit the checkpoint of", &error))
    }

    /// Undoes the changes under the checkpoint.
    ///
    /// # Errors
    /// There is no checkpoint, or the store failed.
    pub fn roll_back(&self) -> Result<(), Error> {
        let Access::Write(access) = &self.access else { return Err(self.no_checkpoint()) };
        match access.hold()?.undo_checkpoint() {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.no_checkpoint()),
            Err(error) => Err(self.no_checkpoint_or("roll back", &error)),
        }
    }

    /// The sizes of the open checkpoint.
    ///
    /// # Errors
    /// There is no checkpoint.
    pub fn checkpoint_sizes(&self) -> Result<CheckpointSizes, Error> {
        let Access::Write(access) = &self.access else { return Err(self.no_checkpoint()) };
        let size = access.hold()?.writer().checkpoint();
        let size = size.map_err(|error| error.told(&format_args!("query the checkpoint of {}", self.path)))?;
        let size = size.ok_or_else(|| self.no_checkpoint())?;
        Ok(CheckpointSizes { limit: size.max, used: size.used })
    }

    /// Checks that a checkpoint is open.
    ///
    /// # Errors
    /// There is no checkpoint.
    pub fn must_have_checkpoint(&self) -> Result<(), Error> {
        let Access::Write(access) = &self.access else { return Err(Error::read_only(&self.path)) };
        match access.hold()?.writer().checkpoint() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err(self.no_checkpoint()),
            Err(error) => Err(error.told(&format_args!("change {} under a checkpoint", self.path))),
        }
    }

    fn no_checkpoint(&self) -> Error {
        let text = format!("{} has no open checkpoint; a close or a lost connection rolls it back", self.path);
        Error::new(ErrorCode::NotFound, text)
    }

    fn no_checkpoint_or(&self, verb: &str, error: &WriteTargetError) -> Error {
        match error {
            WriteTargetError::Local(StoreError::NoCheckpoint { .. }) => self.no_checkpoint(),
            error => error.told(&format_args!("{verb} {}", self.path)),
        }
    }
}
