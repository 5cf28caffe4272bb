//! Messages between peers: the length in four bytes, the lowest first, and then so many bytes of JSON.

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Most bytes of a message.
pub const FRAME_BYTES_MAX: u32 = 16 << 20;

/// A message did not come or go; each says with whom.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The connection broke, or its time was over.
    #[error("{what} {peer}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// The peer.
        peer: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The peer has closed the connection, between two messages.
    #[error("{peer} has closed the connection")]
    Closed {
        /// The peer.
        peer: String,
    },
    /// The peer has gone within a message.
    #[error("{peer} has gone within a message: {received} of {length} bytes had come")]
    CutOff {
        /// The peer.
        peer: String,
        /// Bytes that came.
        received: usize,
        /// Bytes that were to come.
        length: u32,
    },
    /// A length that no message has.
    #[error("a message of {length} bytes {direction} {peer}; the limit is {FRAME_BYTES_MAX}, and 0 is not allowed")]
    Length {
        /// The peer.
        peer: String,
        /// From or to it.
        direction: &'static str,
        /// The length.
        length: u64,
    },
    /// Something else than the message that has its place here.
    #[error("a message from {peer} that makes no sense here: {source}; are both sides of the same version?")]
    Nonsense {
        /// The peer.
        peer: String,
        /// Why.
        source: serde_json::Error,
    },
    /// A message that cannot be written as JSON.
    #[error("a message to {peer} cannot be written: {source}")]
    Unwritable {
        /// The peer.
        peer: String,
        /// Why.
        source: serde_json::Error,
    },
}

impl FrameError {
    /// Whether nothing came in the time that there was, so that the peer may still be there.
    #[must_use]
    pub fn is_silence(&self) -> bool {
        let silent = |kind| matches!(kind, io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut);
        matches!(self, Self::Io { source, .. } if silent(source.kind()))
    }
}

/// Somebody to exchange messages with.
#[derive(Debug)]
pub struct Peer<S> {
    /// What carries them.
    pub stream: S,
    /// What errors call it.
    pub name: String,
}

impl<S> Peer<S> {
    /// Sends a message.
    ///
    /// # Errors
    /// [`FrameError`]; nothing more can be sent then.
    pub fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError>
    where
        S: Write,
    {
        send(&mut self.stream, &self.name, message)
    }

    /// Waits for a message.
    ///
    /// # Errors
    /// [`FrameError`]; nothing more can be received then, except after silence before a message's first byte.
    pub fn receive<T: DeserializeOwned>(&mut self) -> Result<T, FrameError>
    where
        S: Read,
    {
        receive(&mut self.stream, &self.name)
    }
}

/// Sends a message to `peer`.
///
/// # Errors
/// [`FrameError`].
pub fn send<T: Serialize>(stream: &mut impl Write, peer: &str, message: &T) -> Result<(), FrameError> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)
        .map_err(|source| FrameError::Unwritable { peer: peer.to_owned(), source })?;
    let length = (bytes.len() - 4) as u64;
    let Some(short) = u32::try_from(length).ok().filter(|length| *length <= FRAME_BYTES_MAX) else {
        return Err(FrameError::Length { peer: peer.to_owned(), direction: "to", length });
    };
    bytes[..4].copy_from_slice(&short.to_le_bytes());
    stream.write_all(&bytes).and_then(|()| stream.flush()).map_err(|source| FrameError::Io {
        what: "cannot send to",
        peer: peer.to_owned(),
        source,
    })
}

/// Waits for a message of `peer`. Memory is taken as bytes come, not as a length promises them.
///
/// # Errors
/// [`FrameError`].
pub fn receive<T: DeserializeOwned>(stream: &mut impl Read, peer: &str) -> Result<T, FrameError> {
    let failed = |source| FrameError::Io { what: "nothing from", peer: peer.to_owned(), source };
    let mut length = [0; 4];
    let mut received = 0;
    while received < length.len() {
        match stream.read(&mut length[received..]) {
            Ok(0) if received == 0 => return Err(FrameError::Closed { peer: peer.to_owned() }),
            Ok(0) => return Err(FrameError::CutOff { peer: peer.to_owned(), received, length: 4 }),
            Ok(read) => received += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    let length = u32::from_le_bytes(length);
    if length == 0 || length > FRAME_BYTES_MAX {
        return Err(FrameError::Length { peer: peer.to_owned(), direction: "from", length: length.into() });
    }
    let mut bytes = Vec::new();
    stream.take(length.into()).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() < length as usize {
        return Err(FrameError::CutOff { peer: peer.to_owned(), received: bytes.len(), length });
    }
    serde_json::from_slice(&bytes).map_err(|source| FrameError::Nonsense { peer: peer.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Message {
        text: String,
        numbers: Vec<u64>,
    }

    fn message() -> Message {
        Message { text: "ä\n\0".into(), numbers: vec![0, u64::MAX] }
    }

    fn bytes() -> Vec<u8> {
        let mut bytes = Vec::new();
        send(&mut bytes, "b", &message()).unwrap();
        bytes
    }

    fn received(bytes: &[u8]) -> Result<Message, FrameError> {
        receive(&mut &*bytes, "host-7")
    }

    #[test]
    fn messages_arrive_as_they_were() {
        let two = [bytes(), bytes()].concat();
        let mut peer = Peer { stream: &two[..], name: "a".into() };
        assert_eq!(peer.receive::<Message>().unwrap(), message());
        assert_eq!(peer.receive::<Message>().unwrap(), message());
        assert!(matches!(peer.receive::<Message>(), Err(FrameError::Closed { .. })));
    }

    #[test]
    fn whatever_is_wrong_is_told_with_the_peers_name() {
        let whole = bytes();
        for cut in 1..whole.len() {
            let error = received(&whole[..cut]).unwrap_err();
            assert!(matches!(error, FrameError::CutOff { .. }) && error.to_string().contains("host-7"), "{cut}");
        }
        for length in [0, FRAME_BYTES_MAX + 1, u32::MAX] {
            let error = received(&length.to_le_bytes()).unwrap_err();
            assert!(matches!(error, FrameError::Length { .. }) && error.to_string().contains("host-7"), "{error}");
        }
        let error = received(b"\x02\0\0\0{}").unwrap_err();
        assert!(matches!(error, FrameError::Nonsense { .. }) && error.to_string().contains("host-7"), "{error}");
        let long = "x".repeat(FRAME_BYTES_MAX as usize);
        let error = send(&mut Vec::new(), "host-7", &long).unwrap_err();
        assert!(matches!(error, FrameError::Length { direction: "to", .. }), "{error}");
    }

    #[test]
    fn a_long_length_takes_no_memory_before_bytes_come() {
        let mut bytes = FRAME_BYTES_MAX.to_le_bytes().to_vec();
        bytes.push(b'{');
        assert!(matches!(received(&bytes), Err(FrameError::CutOff { received: 1, .. })));
    }

    #[test]
    fn json_that_nests_deeply_is_refused() {
        let nested = "[".repeat(1_000_000);
        let mut bytes = u32::try_from(nested.len()).unwrap().to_le_bytes().to_vec();
        bytes.extend(nested.into_bytes());
        let deep: Result<serde_json::Value, _> = receive(&mut &bytes[..], "p");
        assert!(matches!(deep, Err(FrameError::Nonsense { .. })));
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = received(&bytes);
        }
    }
}
