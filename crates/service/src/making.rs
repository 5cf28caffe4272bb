//! The destination of a client's writes: the store of this node, or all in-sync replicas of a cluster.

use std::fmt::Display;
use std::sync::Arc;

use disk_server::{Placed, PlacedError};
use store::{CheckpointSize, PageSum, StoreError, Writer};

use crate::error::Error;
use crate::striped::{StripedError, StripedFile};

/// An object that is being written.
#[derive(Clone)]
pub(crate) enum Making {
    /// In the store of this node only.
    Here(Arc<Writer>),
    /// In a cluster, with this node as the primary.
    Placed(Arc<Placed>),
    /// In a cluster, in stripe units that other servers may have.
    Striped(Arc<dyn StripedFile>),
}

/// Why an operation on it failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MakingError {
    #[error(transparent)]
    Here(#[from] StoreError),
    #[error(transparent)]
    Placed(#[from] PlacedError),
    #[error(transparent)]
    Striped(#[from] StripedError),
}

impl MakingError {
    pub(crate) fn told(&self, doing: &dyn Display) -> Error {
        match self {
            Self::Here(error) => Error::of_store(doing, error),
            Self::Placed(error) => Error::of_placed(doing, error),
            Self::Striped(error) => Error::new(error.code, format!("Cannot {doing}: {error}")),
        }
    }
}

impl Making {
    /// Writes `data`; `sums` has the sum of each page, if they are known.
    pub(crate) fn write(&self, offset: u64, data: &[u8], sums: Option<&[PageSum]>) -> Result<(), MakingError> {
        match (self, sums) {
            (Self::Here(writer), Some(sums)) => Ok(writer.write_summed(offset, data, sums)?),
            (Self::Here(writer), None) => Ok(writer.write(offset, data)?),
            (Self::Placed(placed), sums) => Ok(placed.write(offset, data, sums)?),
            (Self::Striped(striped), _) => Ok(striped.write(offset, data)?),
        }
    }

    /// Reads the written data.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.read(offset, into)?),
            Self::Placed(placed) => Ok(placed.read(offset, into)?),
            Self::Striped(striped) => Ok(striped.read(offset, into)?),
        }
    }

    /// Truncates or extends the object.
    pub(crate) fn truncate(&self, len: u64) -> Result<(), MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.truncate(len)?),
            Self::Placed(placed) => Ok(placed.truncate(len)?),
            Self::Striped(striped) => Ok(striped.truncate(len)?),
        }
    }

    /// Makes all acknowledged data durable.
    pub(crate) fn sync(&self) -> Result<(), MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.sync().map(drop)?),
            Self::Placed(placed) => Ok(placed.sync()?),
            Self::Striped(striped) => Ok(striped.sync()?),
        }
    }

    /// The end of the highest written byte.
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Here(writer) => writer.len(),
            Self::Placed(placed) => placed.len(),
            Self::Striped(striped) => striped.len(),
        }
    }

    /// Whether there are unwritten ranges below that.
    pub(crate) fn gaps(&self) -> bool {
        match self {
            Self::Here(writer) => writer.gaps(),
            Self::Placed(placed) => placed.gaps(),
            // The servers of the stripe units know, and refuse to close units with another length than announced.
            Self::Striped(_) => false,
        }
    }

    /// The length that survives a power failure.
    pub(crate) fn durable_prefix(&self) -> u64 {
        match self {
            Self::Here(writer) => writer.durable_prefix(),
            Self::Placed(placed) => placed.durable_prefix(),
            // This node does not know it.
            Self::Striped(_) => 0,
        }
    }

    /// See [`Writer::begin_checkpoint`]. Objects with several replicas or stripe units do not support checkpoints.
    pub(crate) fn begin_checkpoint(&self) -> Result<(), MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.begin_checkpoint()?),
            Self::Placed(_) | Self::Striped(_) => Err(PlacedError::NoCheckpoints.into()),
        }
    }

    /// See [`Writer::commit_checkpoint`].
    pub(crate) fn commit_checkpoint(&self) -> Result<(), MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.commit_checkpoint()?),
            Self::Placed(_) | Self::Striped(_) => Err(PlacedError::NoCheckpoints.into()),
        }
    }

    /// See [`Writer::roll_back`].
    pub(crate) fn roll_back(&self) -> Result<bool, MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.roll_back()?),
            Self::Placed(_) | Self::Striped(_) => Ok(false),
        }
    }

    /// See [`Writer::checkpoint`].
    pub(crate) fn checkpoint(&self) -> Result<Option<CheckpointSize>, MakingError> {
        match self {
            Self::Here(writer) => Ok(writer.checkpoint()?),
            Self::Placed(_) | Self::Striped(_) => Ok(None),
        }
    }
}
