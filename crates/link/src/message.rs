//! Messages as bytes: postcard (<https://postcard.jamesmunns.com/wire-format>: numbers of variable length, fields in
//! order, an enum's variant by its index). A message's format follows from its type. Changing the type therefore
//! changes the protocol: it needs a new version ([`crate::Version`]) and new pinned bytes in a test. This includes a
//! new variant at the end of an enum: a peer that does not know it ends the connection.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::frame::MESSAGE_BYTES_MAX;

/// A message cannot be encoded or decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MessageError {
    /// It is too long.
    #[error("a message of {bytes} bytes; the limit is {MESSAGE_BYTES_MAX}: long data goes behind the message")]
    TooLong {
        /// Its length in bytes.
        bytes: usize,
    },
    /// Bytes follow the message.
    #[error("{bytes} bytes stand behind the message; are both sides of the same version?")]
    Trailing {
        /// The number of extra bytes.
        bytes: usize,
    },
    /// The bytes are no message, or the value cannot be encoded.
    #[error("the message makes no sense: {0}; are both sides of the same version?")]
    Nonsense(postcard::Error),
}

/// Encodes `message`.
///
/// # Errors
/// It is too long, or a type in it cannot be encoded.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, MessageError> {
    let bytes = postcard::to_allocvec(message).map_err(MessageError::Nonsense)?;
    if bytes.len() > MESSAGE_BYTES_MAX as usize {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    Ok(bytes)
}

/// Decodes `bytes`, all of which must be one message. The memory is a small multiple of their number. This does not
/// hold for lists whose elements have no bytes (a `Vec<()>`): `T` must not contain any.
///
/// # Errors
/// The bytes are no message, or more bytes follow.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, MessageError> {
    if bytes.len() > MESSAGE_BYTES_MAX as usize {
        return Err(MessageError::TooLong { bytes: bytes.len() });
    }
    match postcard::take_from_bytes(bytes) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(MessageError::Trailing { bytes: rest.len() }),
        Err(error) => Err(MessageError::Nonsense(error)),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::*;

    #[derive(PartialEq, Debug, Serialize, Deserialize)]
    enum Sample {
        Empty,
        Record { number: u64, signed: i64, text: String, list: Vec<u16>, option: Option<bool>, key: [u8; 4] },
        Bytes(Vec<u8>),
    }

    fn samples() -> [(Sample, &'static [u8]); 3] {
        let record = Sample::Record {
            number: 300,
            signed: -3,
            text: "ä".into(),
            list: vec![1, 128],
            option: Some(true),
            key: [1, 2, 3, 4],
        };
        [
            (Sample::Empty, &[0]),
            (record, &[1, 0xac, 2, 5, 2, 0xc3, 0xa4, 2, 1, 0x80, 1, 1, 1, 1, 2, 3, 4]),
            (Sample::Bytes(vec![7, 8]), &[2, 2, 7, 8]),
        ]
    }

    #[test]
    fn the_bytes_are_pinned() {
        for (message, bytes) in samples() {
            assert_eq!(encode(&message).unwrap(), bytes);
            assert_eq!(decode::<Sample>(bytes).unwrap(), message);
        }
    }

    #[test]
    fn nothing_may_be_missing_or_left_over() {
        for (_, bytes) in samples() {
            for cut in 0..bytes.len() {
                assert!(matches!(decode::<Sample>(&bytes[..cut]), Err(MessageError::Nonsense(_))), "{cut}");
            }
            let more = [bytes, &[0]].concat();
            assert_eq!(decode::<Sample>(&more), Err(MessageError::Trailing { bytes: 1 }));
        }
        assert!(matches!(decode::<Sample>(&[3]), Err(MessageError::Nonsense(_))), "no such variant");
    }

    #[test]
    fn messages_are_bounded() {
        let long = vec![0u8; MESSAGE_BYTES_MAX as usize];
        assert!(matches!(encode(&Sample::Bytes(long)), Err(MessageError::TooLong { .. })));
        let longer = vec![0u8; MESSAGE_BYTES_MAX as usize + 1];
        assert!(matches!(decode::<Sample>(&longer), Err(MessageError::TooLong { .. })));
        // A large length brings no elements.
        assert!(decode::<Sample>(&[2, 0xff, 0xff, 0xff, 0xff, 0xf, 1]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_do_no_harm(bytes: Vec<u8>) {
            let _ = decode::<Sample>(&bytes);
        }
    }
}
