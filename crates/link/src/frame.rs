//! The unit of all communication after the hello: a header of [`HEADER_BYTES`], then a message, then bulk.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `WEIR` |
//! | 1 | kind: 1 request, 2 answer, 3 one way, 4 alive, 5 goodbye, 6 unanswered |
//! | 1 | flags: 0 |
//! | 2 | 0 |
//! | 8 | number of the request (in requests and their answers; otherwise 0) |
//! | 4 | length of the message |
//! | 4 | length of the bulk after it |
//! | 4 | in requests: maximum length of the answer's bulk; otherwise 0 |
//! | 4 | CRC32C of the 28 bytes before |
//!
//! Numbers are little-endian. TLS protects the bytes in transit. The checksum protects against weir's own bugs: a side
//! that has lost its position in the stream notices it at the next header, not after gigabytes of nonsense.

use types::Crc32c;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// Longest message in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Longest bulk in bytes.
pub const BULK_BYTES_MAX: u32 = 16 << 20;
/// Longest text of a goodbye in bytes.
pub const GOODBYE_BYTES_MAX: u32 = 1024;

const MAGIC: [u8; 4] = *b"WEIR";

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A message that expects an answer.
    Request = 1,
    /// An answer.
    Answer = 2,
    /// A message that expects no answer.
    OneWay = 3,
    /// A sign of life; empty.
    Alive = 4,
    /// The last frame of its sender. The message is text for people.
    Goodbye = 5,
    /// The request gets no answer, because its receiver dropped it; empty.
    Unanswered = 6,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Request, Self::Answer, Self::OneWay, Self::Alive, Self::Goodbye, Self::Unanswered]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// A valid header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// The kind.
    pub kind: Kind,
    /// The number of the request or answer; otherwise 0.
    pub request: u64,
    /// Length of the message in bytes.
    pub message_len: u32,
    /// Length of the bulk in bytes.
    pub bulk_len: u32,
    /// Maximum length of the answer's bulk in bytes.
    pub answer_bulk_max: u32,
}

/// The peer sent an invalid frame. The connection ends, because the following frames can be neither found nor trusted.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It does not start with the magic bytes.
    #[error("no frame begins with the bytes {0:02x?}")]
    Magic([u8; 4]),
    /// Its checksum is wrong.
    #[error("the header of a frame has the CRC32C {computed:08x} and says {said:08x}")]
    Sum {
        /// The checksum in the header.
        said: u32,
        /// The computed checksum.
        computed: u32,
    },
    /// An unknown kind.
    #[error("there is no kind {0} of frames in the version that both sides agreed on")]
    Kind(u8),
    /// Flags that are undefined in this version.
    #[error("a frame has flags that mean nothing in the version that both sides agreed on")]
    Flags,
    /// A part is too long.
    #[error("a {what} of {bytes} bytes; the limit is {max}")]
    Length {
        /// The part.
        what: &'static str,
        /// Its length.
        bytes: u32,
        /// The limit.
        max: u32,
    },
    /// A field has a value that is invalid for this kind.
    #[error("a frame of kind {kind:?} {why}")]
    Shape {
        /// The kind of the frame.
        kind: Kind,
        /// What is wrong.
        why: &'static str,
    },
}

impl FrameHeader {
    /// The bytes of the header.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.request.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.message_len.to_le_bytes());
        bytes[20..24].copy_from_slice(&self.bulk_len.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.answer_bulk_max.to_le_bytes());
        let sum = Crc32c::of(&bytes[..28]).0;
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Parses and checks a header.
    ///
    /// # Errors
    /// [`FrameError`] names the first invalid field.
    pub fn from_bytes(bytes: &[u8; HEADER_BYTES]) -> Result<Self, FrameError> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let magic = [bytes[0], bytes[1], bytes[2], bytes[3]];
        if magic != MAGIC {
            return Err(FrameError::Magic(magic));
        }
        let (said, computed) = (number(28), Crc32c::of(&bytes[..28]).0);
        if said != computed {
            return Err(FrameError::Sum { said, computed });
        }
        let kind = Kind::from_number(bytes[4]).ok_or(FrameError::Kind(bytes[4]))?;
        if bytes[5..8] != [0; 3] {
            return Err(FrameError::Flags);
        }
        let header = Self {
            kind,
            request: u64::from(number(8)) | u64::from(number(12)) << 32,
            message_len: number(16),
            bulk_len: number(20),
            answer_bulk_max: number(24),
        };
        header.check()?;
        Ok(header)
    }

    fn check(&self) -> Result<(), FrameError> {
        let kind = self.kind;
        let message_max = match kind {
            Kind::Request | Kind::Answer | Kind::OneWay => MESSAGE_BYTES_MAX,
            Kind::Goodbye => GOODBYE_BYTES_MAX,
            Kind::Alive | Kind::Unanswered => 0,
        };
        let bulk_max = if matches!(kind, Kind::Request | Kind::Answer | Kind::OneWay) { BULK_BYTES_MAX } else { 0 };
        let answer_max = if kind == Kind::Request { BULK_BYTES_MAX } else { 0 };
        for (what, bytes, max) in [
            ("message", self.message_len, message_max),
            ("bulk", self.bulk_len, bulk_max),
            ("bulk of an answer", self.answer_bulk_max, answer_max),
        ] {
            if bytes > max {
                return Err(FrameError::Length { what, bytes, max });
            }
        }
        let is_numbered = matches!(kind, Kind::Request | Kind::Answer | Kind::Unanswered);
        match (is_numbered, self.request) {
            (true, 0) => Err(FrameError::Shape { kind, why: "has no number" }),
            (false, 1..) => Err(FrameError::Shape { kind, why: "has a number" }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn request() -> FrameHeader {
        FrameHeader {
            kind: Kind::Request,
            request: 0x0102_0304_0506_0708,
            message_len: 5,
            bulk_len: 4096,
            answer_bulk_max: 77,
        }
    }

    fn read(header: FrameHeader) -> Result<FrameHeader, FrameError> {
        FrameHeader::from_bytes(&header.to_bytes())
    }

    #[test]
    fn the_bytes_are_pinned() {
        let bytes = request().to_bytes();
        assert_eq!(bytes[..28], *b"WEIR\x01\0\0\0\x08\x07\x06\x05\x04\x03\x02\x01\x05\0\0\0\0\x10\0\0\x4d\0\0\0");
        assert_eq!(bytes[28..], Crc32c::of(&bytes[..28]).0.to_le_bytes());
        assert_eq!(FrameHeader::from_bytes(&bytes), Ok(request()));
    }

    #[test]
    fn lengths_are_bounded_by_the_kind() {
        let longest = FrameHeader {
            message_len: MESSAGE_BYTES_MAX,
            bulk_len: BULK_BYTES_MAX,
            answer_bulk_max: BULK_BYTES_MAX,
            ..request()
        };
        assert_eq!(read(longest), Ok(longest));
        for longer in [
            FrameHeader { message_len: MESSAGE_BYTES_MAX + 1, ..request() },
            FrameHeader { bulk_len: BULK_BYTES_MAX + 1, ..request() },
            FrameHeader { answer_bulk_max: u32::MAX, ..request() },
            FrameHeader { kind: Kind::Answer, ..request() },
            FrameHeader { kind: Kind::Goodbye, request: 0, message_len: 1025, bulk_len: 0, answer_bulk_max: 0 },
            FrameHeader { kind: Kind::Alive, request: 0, message_len: 1, bulk_len: 0, answer_bulk_max: 0 },
            FrameHeader { kind: Kind::Unanswered, message_len: 0, bulk_len: 1, answer_bulk_max: 0, ..request() },
        ] {
            assert!(matches!(read(longer), Err(FrameError::Length { .. })), "{longer:?}");
        }
    }

    #[test]
    fn only_requests_and_answers_have_numbers() {
        for kind in [Kind::Request, Kind::Answer, Kind::OneWay, Kind::Alive, Kind::Goodbye, Kind::Unanswered] {
            let numbered = matches!(kind, Kind::Request | Kind::Answer | Kind::Unanswered);
            for request in [0, 1, u64::MAX] {
                let header = FrameHeader { kind, request, message_len: 0, bulk_len: 0, answer_bulk_max: 0 };
                assert_eq!(read(header).is_ok(), numbered == (request > 0), "{header:?}");
            }
        }
    }

    #[test]
    fn undefined_fields_are_refused() {
        let altered = |at: usize, to: u8| {
            let mut bytes = request().to_bytes();
            bytes[at] = to;
            let sum = Crc32c::of(&bytes[..28]).0;
            bytes[28..].copy_from_slice(&sum.to_le_bytes());
            FrameHeader::from_bytes(&bytes).unwrap_err()
        };
        assert_eq!(altered(0, b'w'), FrameError::Magic(*b"wEIR"));
        assert_eq!((altered(4, 0), altered(4, 7)), (FrameError::Kind(0), FrameError::Kind(7)));
        for at in 5..8 {
            assert_eq!(altered(at, 1), FrameError::Flags);
        }
    }

    proptest! {
        #[test]
        fn any_flipped_bit_is_refused(bit in 0usize..HEADER_BYTES * 8) {
            let mut bytes = request().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FrameHeader::from_bytes(&bytes).is_err());
        }

        #[test]
        fn any_bytes_do_no_harm(bytes: [u8; HEADER_BYTES]) {
            prop_assert!(FrameHeader::from_bytes(&bytes).is_err());
        }
    }
}
