//! The contents of a connection as plain data: messages with bulk, requests, answers, and reasons for a missing answer.

use std::sync::Arc;
use std::time::Duration;

use crate::error::LinkError;
use crate::frame::{BULK_BYTES_MAX, FrameHeader, Kind, MESSAGE_BYTES_MAX};

/// Memory that receives bulk.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for T {}

/// Bulk to send: any holder of bytes, shared with its other users.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A message with the bulk that follows it.
#[derive(Clone, Default)]
pub struct Outgoing {
    message: Vec<u8>,
    bulk: Option<SharedBytes>,
}

impl Outgoing {
    /// A `message` (the bytes of [`crate::encode`]) without bulk.
    #[must_use]
    pub fn new(message: Vec<u8>) -> Self {
        Self { message, bulk: None }
    }

    /// Adds `bulk` after the message.
    #[must_use]
    pub fn with_bulk(self, bulk: SharedBytes) -> Self {
        Self { bulk: Some(bulk), ..self }
    }

    fn bulk(&self) -> &[u8] {
        self.bulk.as_deref().map_or(&[], AsRef::as_ref)
    }

    pub(crate) fn parts(&self) -> (&[u8], &[u8]) {
        (&self.message, self.bulk())
    }

    pub(crate) fn len(&self) -> u64 {
        (self.message.len() + self.bulk().len()) as u64
    }

    pub(crate) fn header(&self, kind: Kind, request: u64, answer_bulk_max: u32) -> Result<FrameHeader, SendError> {
        let part = |what, bytes: usize, max: u32| match u32::try_from(bytes) {
            Ok(length) if length <= max => Ok(length),
            _ => Err(SendError::TooLong { what, bytes: bytes as u64, max: max.into() }),
        };
        let message_len = part("message", self.message.len(), MESSAGE_BYTES_MAX)?;
        let bulk_len = part("bulk", self.bulk().len(), BULK_BYTES_MAX)?;
        let answer_bulk_max = part("bulk of an answer", answer_bulk_max as usize, BULK_BYTES_MAX)?;
        Ok(FrameHeader { kind, request, message_len, bulk_len, answer_bulk_max })
    }
}

/// A request.
pub struct Call<B> {
    pub(crate) outgoing: Outgoing,
    pub(crate) answer_bulk_max: u32,
    pub(crate) into: Option<B>,
}

impl<B> Call<B> {
    /// A request whose answer has no bulk.
    #[must_use]
    pub fn new(outgoing: Outgoing) -> Self {
        Self { outgoing, answer_bulk_max: 0, into: None }
    }

    /// Allows up to `answer_bulk_max` bytes of bulk in the answer. They are received into the memory that the handler's
    /// `buffer` returns.
    #[must_use]
    pub fn expecting(self, answer_bulk_max: u32) -> Self {
        Self { answer_bulk_max, ..self }
    }

    /// Receives the bulk of the answer into `buffer`.
    #[must_use]
    pub fn into_buffer(self, buffer: B) -> Self
    where
        B: Buffer,
    {
        let room = u32::try_from(buffer.as_ref().len()).unwrap_or(BULK_BYTES_MAX).min(BULK_BYTES_MAX);
        Self { answer_bulk_max: room, into: Some(buffer), ..self }
    }
}

/// Received bulk.
#[derive(Debug)]
pub enum Bulk<B> {
    /// The message had no bulk.
    None,
    /// The bulk is at the beginning of `buffer`.
    Here {
        /// The memory.
        buffer: B,
        /// Its length in bytes.
        length: usize,
    },
    /// The receiver had no buffer for it, and discarded it.
    Dropped {
        /// Its length in bytes.
        length: usize,
    },
}

impl<B: Buffer> Bulk<B> {
    /// The bytes; empty if they were discarded.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Here { buffer, length } => buffer.as_ref().get(..*length).unwrap_or(&[]),
            _ => &[],
        }
    }
}

/// The answer of a peer.
#[derive(Debug)]
pub struct Answer<B> {
    /// The message, for [`crate::decode`].
    pub message: Vec<u8>,
    /// The bulk after the message.
    pub bulk: Bulk<B>,
}

/// Nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// The limit of running requests is reached; nothing is wrong.
    #[error("the limit of requests under way to the peer is reached")]
    Full,
    /// Longer than the protocol or the peer allows.
    #[error("a {what} of {bytes} bytes; the most that may be is {max}")]
    TooLong {
        /// The part that is too long.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// The limit.
        max: u64,
    },
    /// The connection has ended.
    #[error(transparent)]
    Ended(Arc<LinkError>),
}

/// A request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The connection has ended. The peer may have done the requested work.
    #[error(transparent)]
    Ended(Arc<LinkError>),
    /// The peer dropped the request. It may have done part of the work.
    #[error("the peer dropped the request without an answer; its log says why")]
    Unanswered,
    /// No answer came in time. The request is still running.
    #[error("no answer within {0:?}")]
    Late(Duration),
}
