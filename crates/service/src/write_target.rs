//! The destination of a client's writes: the store of this node, or all in-sync replicas of a cluster.

use std::fmt::Display;
use std::sync::Arc;

use disk_server::{DiskServerError, ReplicatedWriter};
use store::{CheckpointSize, PageSum, StoreError, Writer};
use types::ErrorCode;

use crate::error::{Error, Redirect};
use crate::striped::{StripedError, StripedFile};

/// An object that is being written.
#[derive(Clone)]
pub(crate) enum WriteTarget {
    /// In the store of this node only.
    Local(Arc<Writer>),
    /// In a cluster, with this node as the primary.
    Replicated(Arc<ReplicatedWriter>),
    /// In a cluster, in stripe units that other servers may have.
    Striped(Arc<dyn StripedFile>),
}

/// Why an operation on it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteTargetError {
    #[error(transparent)]
    Local(#[from] StoreError),
    #[error(transparent)]
    Replicated(#[from] DiskServerError),
    #[error(transparent)]
    Striped(#[from] StripedError),
    /// The store has ended the open write, and the namespace does not know it yet. What came after the first gap is gone.
    #[error(
        "its open write was ended while its client was away, and acknowledged bytes may be gone; when it is marked as interrupted, open it with ?weir.resume=1, or write it again"
    )]
    EndedInStore,
}

impl WriteTargetError {
    pub(crate) fn told(&self, doing: &dyn Display) -> Error {
        match self {
            Self::Local(error) => Error::of_store(doing, error),
            Self::Replicated(error) => Error::of_disk_server(doing, error),
            Self::Striped(StripedError { ask: Some((host, port)), .. }) => {
                Error::redirect(Redirect::to_manager(host.clone(), *port))
            }
            Self::Striped(error) => Error::new(error.code, format!("Cannot {doing}: {error}")),
            Self::EndedInStore => Error::new(ErrorCode::Interrupted, format!("Cannot {doing}: {self}")),
        }
    }
}

impl WriteTarget {
    /// Writes `data`; `sums` has the sum of each page, if they are known.
    pub(crate) fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), WriteTargetError> {
        match (self, sums) {
            (Self::Local(writer), Some(sums)) => Ok(writer.write_summed(offset, data, sums)?),
            (Self::Local(writer), None) => Ok(writer.write(offset, data)?),
            (Self::Replicated(replicated), sums) => Ok(replicated.write(offset, data, sums)?),
            (Self::Striped(striped), _) => Ok(striped.write(offset, data)?),
        }
    }

    /// Reads the written data.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.read(offset, into)?),
            Self::Replicated(replicated) => Ok(replicated.read(offset, into)?),
            Self::Striped(striped) => Ok(striped.read(offset, into)?),
        }
    }

    /// Truncates or extends the object.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.truncate(len)?),
            Self::Replicated(replicated) => Ok(replicated.truncate(len)?),
            Self::Striped(striped) => Ok(striped.truncate(len)?),
        }
    }

    /// Makes all acknowledged data durable.
    pub(crate) fn sync(&self) -> Result<(), WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.sync().map(drop)?),
            Self::Replicated(replicated) => Ok(replicated.sync()?),
            Self::Striped(striped) => Ok(striped.sync()?),
        }
    }

    /// The end of the highest written byte.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Local(writer) => writer.len(),
            Self::Replicated(replicated) => replicated.len(),
            Self::Striped(striped) => striped.len(),
        }
    }

    /// Whether there are unwritten ranges below that.
    pub(crate) fn gaps(&self) -> bool {
        match self {
            Self::Local(writer) => writer.gaps(),
            Self::Replicated(replicated) => replicated.gaps(),
            // The servers of the stripe units know, and refuse to close units with another length than announced.
            Self::Striped(_) => false,
        }
    }

    /// The length that survives a power failure.
    pub(crate) fn durable_prefix(&self) -> u64 {
        match self {
            Self::Local(writer) => writer.durable_prefix(),
            Self::Replicated(replicated) => replicated.durable_prefix(),
            // This node does not know it.
            Self::Striped(_) => 0,
        }
    }

    /// See [`Writer::begin_checkpoint`]. Objects with several replicas or stripe units do not support checkpoints.
    pub(crate) fn begin_checkpoint(&self) -> Result<(), WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.begin_checkpoint()?),
            Self::Replicated(_) | Self::Striped(_) => Err(DiskServerError::NoCheckpoints.into()),
        }
    }

    /// See [`Writer::commit_checkpoint`].
    pub(crate) fn commit_checkpoint(&self) -> Result<(), WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.commit_checkpoint()?),
            Self::Replicated(_) | Self::Striped(_) => Err(DiskServerError::NoCheckpoints.into()),
        }
    }

    /// See [`Writer::roll_back`].
    pub(crate) fn roll_back(&self) -> Result<bool, WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.roll_back()?),
            Self::Replicated(_) | Self::Striped(_) => Ok(false),
        }
    }

    /// See [`Writer::checkpoint`].
    pub(crate) fn checkpoint(&self) -> Result<Option<CheckpointSize>, WriteTargetError> {
        match self {
            Self::Local(writer) => Ok(writer.checkpoint()?),
            Self::Replicated(_) | Self::Striped(_) => Ok(None),
        }
    }
}
