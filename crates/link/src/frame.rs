//! The unit of everything that follows the hello: a header of [`HEADER_BYTES`], so many bytes of message, so many of bulk.
//!
//! | bytes | what |
//! | --- | --- |
//! | 4 | `WEIR` |
//! | 1 | kind: 1 request, 2 answer, 3 one way, 4 alive, 5 goodbye, 6 unanswered |
//! | 1 | flags: 0 |
//! | 2 | 0 |
//! | 8 | number of the request (of requests and what answers them; otherwise 0) |
//! | 4 | length of the message |
//! | 4 | length of the bulk behind it |
//! | 4 | of a request: most bytes of bulk that its answer may have; otherwise 0 |
//! | 4 | CRC32C of the 28 bytes before |
//!
//! Numbers have their lowest byte first. TLS keeps what is on its way from being altered; the sum is against ourselves: a side that is out of step
//! with the stream finds out at the next header, not after some gigabytes of nonsense.

use types::Crc32c;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
/// Most bytes of a message.
pub const MESSAGE_BYTES_MAX: u32 = 1 << 20;
/// Most bytes of bulk behind it.
pub const BULK_BYTES_MAX: u32 = 16 << 20;
/// Most bytes of what a goodbye says.
pub const GOODBYE_BYTES_MAX: u32 = 1024;

const MAGIC: [u8; 4] = *b"WEIR";

/// What a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// It wants an answer.
    Request = 1,
    /// An answer.
    Answer = 2,
    /// It wants none.
    OneWay = 3,
    /// Nothing, but that the sender is there. Of no length.
    Alive = 4,
    /// The last frame of its sender. The message is text for people.
    Goodbye = 5,
    /// There will be no answer to this request: whoever should have given it has let go of it. Of no length.
    Unanswered = 6,
}

impl Kind {
    fn from_number(number: u8) -> Option<Self> {
        [Self::Request, Self::Answer, Self::OneWay, Self::Alive, Self::Goodbye, Self::Unanswered]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// A header that is in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// What it is.
    pub kind: Kind,
    /// Which request it is, or answers; otherwise 0.
    pub request: u64,
    /// Bytes of the message.
    pub message_len: u32,
    /// Bytes of the bulk.
    pub bulk_len: u32,
    /// Most bytes of bulk of the answer.
    pub answer_bulk_max: u32,
}

/// What a peer sent is no frame, or none that has its place here. The connection ends: what follows cannot be found, or believed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It does not begin like one.
    #[error("no frame begins with the bytes {0:02x?}")]
    Magic([u8; 4]),
    /// Its sum is wrong.
    #[error("the header of a frame has the CRC32C {computed:08x} and says {said:08x}")]
    Sum {
        /// What it says.
        said: u32,
        /// What it is.
        computed: u32,
    },
    /// A kind that is not known.
    #[error("there is no kind {0} of frames in the version that both sides agreed on")]
    Kind(u8),
    /// Bits that have no meaning in this version.
    #[error("a frame has flags that mean nothing in the version that both sides agreed on")]
    Flags,
    /// It is too long.
    #[error("a {what} of {bytes} bytes; the limit is {max}")]
    Length {
        /// Which part.
        what: &'static str,
        /// Its length.
        bytes: u32,
        /// What is allowed.
        max: u32,
    },
    /// A field has a value that a frame of this kind does not have.
    #[error("a frame of kind {kind:?} {why}")]
    Shape {
        /// What it is.
        kind: Kind,
        /// What is wrong.
        why: &'static str,
    },
}

impl FrameHeader {
    /// Its bytes.
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

    /// The header that `bytes` are, if everything in it is as it has to be.
    ///
    /// # Errors
    /// What is not.
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
    fn the_bytes_stay_as_they_are() {
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
    fn numbers_stand_where_they_belong() {
        for kind in [Kind::Request, Kind::Answer, Kind::OneWay, Kind::Alive, Kind::Goodbye, Kind::Unanswered] {
            let numbered = matches!(kind, Kind::Request | Kind::Answer | Kind::Unanswered);
            for request in [0, 1, u64::MAX] {
                let header = FrameHeader { kind, request, message_len: 0, bulk_len: 0, answer_bulk_max: 0 };
                assert_eq!(read(header).is_ok(), numbered == (request > 0), "{header:?}");
            }
        }
    }

    #[test]
    fn what_has_no_meaning_is_refused() {
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
