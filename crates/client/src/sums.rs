//! Checksums of whole files, as servers report them.

use std::fmt;

use types::{Adler32, Crc32c};

/// A checksum that this client can compute itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Algorithm {
    /// CRC32C, computed by hardware. The client asks for it first.
    Crc32c,
    /// adler32, which most servers of the field keep.
    Adler32,
}

impl Algorithm {
    /// All of them, the best first.
    pub const ALL: [Self; 2] = [Self::Crc32c, Self::Adler32];

    /// Returns its name in the protocol.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Crc32c => "crc32c",
            Self::Adler32 => "adler32",
        }
    }

    /// Finds an algorithm by its name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        match name {
            "crc32c" => Some(Self::Crc32c),
            "adler32" => Some(Self::Adler32),
            _ => None,
        }
    }

    /// Returns the first supported algorithm in a server's list. The list is the answer to the config query
    /// `chksum`, such as `0:adler32,1:crc32c`.
    #[must_use]
    pub fn offered(list: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.is_in(list))
    }

    /// Whether it is in a server's list.
    #[must_use]
    pub fn is_in(self, list: &str) -> bool {
        list.split([',', ' ']).any(|word| word.rsplit(':').next().is_some_and(|name| name.trim() == self.name()))
    }

    /// Returns the checksum of no bytes.
    #[must_use]
    pub fn of_nothing(self) -> Sum {
        self.of(&[])
    }

    /// Returns the checksum of `bytes`.
    #[must_use]
    pub fn of(self, bytes: &[u8]) -> Sum {
        match self {
            Self::Crc32c => Sum { algorithm: self, value: Crc32c::of(bytes).0 },
            Self::Adler32 => Sum { algorithm: self, value: Adler32::of(bytes).0 },
        }
    }
}

/// A checksum with its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sum {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Its value.
    pub value: u32,
}

impl Sum {
    /// Returns the checksum of two adjacent parts. Both must have the same algorithm.
    #[must_use]
    pub fn combine(self, second: Self, second_len: u64) -> Self {
        debug_assert_eq!(self.algorithm, second.algorithm);
        let value = match self.algorithm {
            Algorithm::Crc32c => Crc32c(self.value).combine(Crc32c(second.value), second_len).0,
            Algorithm::Adler32 => Adler32(self.value).combine(Adler32(second.value), second_len).0,
        };
        Self { algorithm: self.algorithm, value }
    }

    /// Compares the value with a server's text. Leading zeros may be missing, because some servers omit them.
    #[must_use]
    pub fn is(self, text: &str) -> bool {
        text.len() <= 8 && u32::from_str_radix(text, 16) == Ok(self.value)
    }
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{:08x}", self.algorithm.name(), self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_offered_algorithm_is_chosen() {
        assert_eq!(Algorithm::offered("0:adler32,1:crc32c"), Some(Algorithm::Crc32c));
        assert_eq!(Algorithm::offered("0:adler32"), Some(Algorithm::Adler32));
        assert_eq!(Algorithm::offered("crc32c"), Some(Algorithm::Crc32c));
        assert_eq!(Algorithm::offered("chksum"), None);
        assert_eq!(Algorithm::offered("0:md5,1:crc32"), None);
    }

    #[test]
    fn parts_combine_and_texts_compare() {
        for algorithm in [Algorithm::Crc32c, Algorithm::Adler32] {
            let whole = algorithm.of(b"123456789");
            assert_eq!(algorithm.of(b"1234").combine(algorithm.of(b"56789"), 5), whole);
            assert!(whole.is(&format!("{:08x}", whole.value)) && !whole.is("123") && !whole.is("x"));
        }
        assert_eq!(Algorithm::Crc32c.of(b"123456789").to_string(), "crc32c:e3069283");
        assert!(Sum { algorithm: Algorithm::Adler32, value: 0x0a }.is("a"));
    }
}
