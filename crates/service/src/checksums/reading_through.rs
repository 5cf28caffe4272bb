//! Reads a whole file for its checksums.

use crc_fast::CrcAlgorithm;
use node::{ObjectDigest, Summed};
use sha2::Digest as _;
use types::{Adler32, Crc32c, DigestKind};

/// Bytes that are read in one step.
const STEP: usize = 4 << 20;

/// A checksum in progress.
enum Hasher {
    Md5(md5::Md5),
    Sha256(sha2::Sha256),
    Crc64(crc_fast::Digest),
}

impl Hasher {
    fn new(kind: DigestKind) -> Self {
        match kind {
            DigestKind::Md5 => Self::Md5(md5::Md5::new()),
            DigestKind::Sha256 => Self::Sha256(sha2::Sha256::new()),
            DigestKind::Crc64 => Self::Crc64(crc_fast::Digest::new(CrcAlgorithm::Crc64Xz)),
        }
    }

    fn update(&mut self, data: &[u8]) {
        match self {
            Self::Md5(hasher) => hasher.update(data),
            Self::Sha256(hasher) => hasher.update(data),
            Self::Crc64(hasher) => hasher.update(data),
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Md5(hasher) => hasher.finalize().to_vec(),
            Self::Sha256(hasher) => hasher.finalize().to_vec(),
            Self::Crc64(hasher) => hasher.finalize().to_be_bytes().to_vec(),
        }
    }
}

/// Reads a file from its beginning to its end with `read`, which takes an offset and a buffer and returns how many bytes it has put there. `None`:
/// nobody wants the result any more.
///
/// # Errors
/// Those of `read`.
pub(super) fn read_through<E>(
    kind: Option<DigestKind>,
    is_wanted: &dyn Fn() -> bool,
    mut read: impl FnMut(u64, &mut [u8]) -> Result<usize, E>,
) -> Result<Option<Summed>, E> {
    let mut hasher = kind.map(Hasher::new);
    let mut whole = ObjectDigest { len: 0, crc32c: Crc32c::EMPTY, adler32: Adler32::EMPTY };
    let mut buffer = vec![0; STEP];
    while is_wanted() {
        let got = read(whole.len, &mut buffer)?;
        if got == 0 {
            return Ok(Some(Summed { whole, digest: hasher.map(Hasher::finish) }));
        }
        let (part, len) = (buffer.get(..got).unwrap_or(&buffer), got as u64);
        if let Some(hasher) = &mut hasher {
            hasher.update(part);
        }
        whole = ObjectDigest {
            len: whole.len + len,
            crc32c: whole.crc32c.combine(Crc32c::of(part), len),
            adler32: whole.adler32.combine(Adler32::of(part), len),
        };
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: DigestKind, data: &[u8]) -> String {
        let read = |offset: u64, into: &mut [u8]| {
            let rest = &data[usize::try_from(offset).unwrap()..];
            let got = rest.len().min(into.len()).min(5);
            into[..got].copy_from_slice(&rest[..got]);
            Ok::<_, ()>(got)
        };
        let summed = read_through(Some(kind), &|| true, read).unwrap().unwrap();
        assert_eq!(summed.whole.len, data.len() as u64);
        assert_eq!(summed.whole.crc32c, Crc32c::of(data));
        summed.digest.unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The check values of RFC 1321, FIPS 180 and the catalogue of CRC algorithms.
    #[test]
    fn known_values() {
        assert_eq!(of(DigestKind::Md5, b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(of(DigestKind::Md5, b"message digest"), "f96b697d7cb7938d525a2f31aaf161d0");
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(of(DigestKind::Sha256, b"abc"), abc);
        assert_eq!(of(DigestKind::Crc64, b"123456789"), "995dc9bbdf1939fa");
    }

    #[test]
    fn a_read_that_nobody_wants_ends() {
        assert_eq!(read_through(None, &|| false, |_, _| Ok::<_, ()>(1)), Ok(None));
    }
}
