//! What goes through a connection, as plain data: messages with their bulk, requests, answers, and why there is none.

use std::sync::Arc;
use std::time::Duration;

use crate::error::LinkError;
use crate::frame::{BULK_BYTES_MAX, FrameHeader, Kind, MESSAGE_BYTES_MAX};

/// Memory that bulk is received into.
pub trait Buffer: AsRef<[u8]> + AsMut<[u8]> + Send + 'static {}

impl<T: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Buffer for T {}

/// Bulk to be sent: whatever holds bytes, shared with who still uses them.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// A message with what goes behind it.
#[derive(Clone, Default)]
pub struct Outgoing {
    message: Vec<u8>,
    bulk: Option<SharedBytes>,
}

impl Outgoing {
    /// `message` alone (the bytes of [`crate::encode`]).
    #[must_use]
    pub fn new(message: Vec<u8>) -> Self {
        Self { message, bulk: None }
    }

    /// With `bulk` behind it.
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
    /// One whose answer has no bulk.
    #[must_use]
    pub fn new(outgoing: Outgoing) -> Self {
        Self { outgoing, answer_bulk_max: 0, into: None }
    }

    /// The answer may have so many bytes of bulk, which are received into what the handler's `buffer` gives.
    #[must_use]
    pub fn expecting(self, answer_bulk_max: u32) -> Self {
        Self { answer_bulk_max, ..self }
    }

    /// The bulk of the answer is received into `buffer`.
    #[must_use]
    pub fn into_buffer(self, buffer: B) -> Self
    where
        B: Buffer,
    {
        let room = u32::try_from(buffer.as_ref().len()).unwrap_or(BULK_BYTES_MAX).min(BULK_BYTES_MAX);
        Self { answer_bulk_max: room, into: Some(buffer), ..self }
    }
}

/// Bulk that came.
#[derive(Debug)]
pub enum Bulk<B> {
    /// There was none.
    None,
    /// It stands at the beginning of `buffer`.
    Here {
        /// Where it is.
        buffer: B,
        /// How many bytes it has.
        length: usize,
    },
    /// There was no buffer for it, and it has been read away.
    Dropped {
        /// How many bytes it had.
        length: usize,
    },
}

impl<B: Buffer> Bulk<B> {
    /// The bytes; none if it was dropped.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Here { buffer, length } => buffer.as_ref().get(..*length).unwrap_or(&[]),
            _ => &[],
        }
    }
}

/// What a peer answered.
#[derive(Debug)]
pub struct Answer<B> {
    /// The message, for [`crate::decode`].
    pub message: Vec<u8>,
    /// What stood behind it.
    pub bulk: Bulk<B>,
}

/// Nothing was sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SendError {
    /// As much is under way as may be; nothing is wrong.
    #[error("the limit of requests under way to the peer is reached")]
    Full,
    /// Longer than the protocol or the peer allows.
    #[error("a {what} of {bytes} bytes; the most that may be is {max}")]
    TooLong {
        /// What.
        what: &'static str,
        /// Its length.
        bytes: u64,
        /// What is allowed.
        max: u64,
    },
    /// The connection has ended.
    #[error(transparent)]
    Ended(Arc<LinkError>),
}

/// A request has no answer.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CallError {
    /// The connection has ended. The peer may have done what was asked for.
    #[error(transparent)]
    Ended(Arc<LinkError>),
    /// The peer has let go of the request. It may have done part of what was asked for.
    #[error("the peer dropped the request without an answer; its log says why")]
    Unanswered,
    /// It took too long for who waited. The request is still under way.
    #[error("no answer within {0:?}")]
    Late(Duration),
}
