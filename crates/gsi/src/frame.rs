//! Frames: `XrdSutBuffer` with its buckets (`src/XrdSut/XrdSutBuffer.cc`, `XrdSutAux.hh`). The name of the protocol and NUL, the
//! step, then for each bucket its type, its length and its bytes, and 0 at the end. Numbers are 32 bits, big-endian.

use std::fmt;

use crate::{Delegation, FrameError};

/// The longest frame.
pub const FRAME_BYTES_MAX: usize = 64 << 10;
/// Most buckets in a frame. Stock peers send up to 8.
pub const BUCKETS_MAX: usize = 16;

const NAME: &[u8] = b"gsi\0";
/// `kXRS_none`: the end.
const END: u32 = 0;
/// `kXRS_inactive`: to be ignored.
const INACTIVE: u32 = 1;

/// What a frame is for (`kgsiClientSteps`, `kgsiServerSteps` in `XrdSecProtocolgsi.hh`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step(pub u32);

impl Step {
    /// The client asks for the server's certificate.
    pub const CLIENT_ASKS: Self = Self(1000);
    /// The client shows its certificates.
    pub const CLIENT_SHOWS: Self = Self(1001);
    /// The client sends the proxy that it has signed.
    pub const CLIENT_SIGNS: Self = Self(1002);
    /// The server shows its certificate.
    pub const SERVER_SHOWS: Self = Self(2001);
    /// The server asks for a proxy.
    pub const SERVER_REQUESTS: Self = Self(2002);
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::CLIENT_ASKS => f.write_str("a request for a certificate"),
            Self::CLIENT_SHOWS => f.write_str("a client's certificates"),
            Self::CLIENT_SIGNS => f.write_str("a signed proxy"),
            Self::SERVER_SHOWS => f.write_str("a server's certificate"),
            Self::SERVER_REQUESTS => f.write_str("a request for a proxy"),
            Self(number) => write!(f, "a frame for step {number}"),
        }
    }
}

/// The type of a bucket (`kXRSBucketTypes` in `XrdSutAux.hh`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BucketType(pub u32);

impl BucketType {
    /// The names of cryptographic modules.
    pub const MODULE: Self = Self(3000);
    /// A frame in the frame.
    pub const MAIN: Self = Self(3001);
    /// A public key.
    pub const PUBLIC_KEY: Self = Self(3004);
    /// The public part of a Diffie-Hellman key, signed.
    pub const AGREEMENT: Self = Self(3005);
    /// A random tag.
    pub const TAG: Self = Self(3006);
    /// The peer's random tag, signed.
    pub const SIGNED_TAG: Self = Self(3007);
    /// The user that the client wants to be.
    pub const USER: Self = Self(3008);
    /// A message for people.
    pub const MESSAGE: Self = Self(3011);
    /// The version that the peer speaks.
    pub const VERSION: Self = Self(3014);
    /// What the client asks for concerning delegation.
    pub const OPTIONS: Self = Self(3019);
    /// Certificates in PEM form.
    pub const CERTIFICATES: Self = Self(3022);
    /// The hash of the name of the authority that the client's certificate is from.
    pub const AUTHORITY: Self = Self(3023);
    /// A request for a certificate, in PEM form.
    pub const REQUEST: Self = Self(3024);
    /// Ciphers.
    pub const CIPHERS: Self = Self(3025);
    /// Digests.
    pub const DIGESTS: Self = Self(3026);
}

/// What a client says about delegation (`kOpts…` in `XrdSecProtocolgsi.hh`), in [`BucketType::OPTIONS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DelegationOptions(pub(crate) u32);

impl DelegationOptions {
    /// `kOptsDlgPxy`: the client wants the server to ask for a proxy.
    const WANTS: u32 = 1;
    /// `kOptsFwdPxy`: the client sends its own proxy with its key.
    const FORWARDS: u32 = 2;
    /// `kOptsSigReq`: the client signs a proxy if it is asked.
    const SIGNS: u32 = 4;

    /// What a client here says.
    pub(crate) fn of(delegation: Delegation) -> Self {
        match delegation {
            Delegation::Never => Self(0),
            Delegation::Sign => Self(Self::WANTS | Self::SIGNS),
        }
    }

    /// Whether the client signs a proxy. One that would send the key of its own proxy is not asked.
    pub(crate) fn allow(self) -> bool {
        self.0 & Self::SIGNS != 0 && self.0 & Self::FORWARDS == 0
    }
}

impl fmt::Display for BucketType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::MODULE => "cryptographic module",
            Self::MAIN => "inner frame",
            Self::PUBLIC_KEY => "public key",
            Self::AGREEMENT => "part of the key",
            Self::TAG => "random tag",
            Self::SIGNED_TAG => "signed random tag",
            Self::USER => "user",
            Self::MESSAGE => "message",
            Self::VERSION => "version",
            Self::OPTIONS => "options",
            Self::CERTIFICATES => "certificates",
            Self::AUTHORITY => "hash of an authority",
            Self::REQUEST => "request for a proxy",
            Self::CIPHERS => "cipher",
            Self::DIGESTS => "digest",
            Self(number) => return write!(f, "part of type {number}"),
        })
    }
}

/// A frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame<'a> {
    /// What it is for.
    pub step: Step,
    buckets: Vec<(BucketType, &'a [u8])>,
}

impl<'a> Frame<'a> {
    /// A frame for `step` of `buckets`.
    #[must_use]
    pub fn new(step: Step, buckets: Vec<(BucketType, &'a [u8])>) -> Self {
        Self { step, buckets }
    }

    /// Reads a frame. Like the stock peers, it ignores what is behind the end.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode(bytes: &'a [u8]) -> Result<Self, FrameError> {
        if bytes.len() > FRAME_BYTES_MAX {
            return Err(FrameError::TooLong(bytes.len()));
        }
        let mut rest = bytes.strip_prefix(NAME).ok_or(FrameError::NotGsi)?;
        let step = Step(number(&mut rest)?);
        let mut buckets: Vec<(BucketType, &[u8])> = Vec::new();
        let mut count = 0;
        loop {
            let kind = number(&mut rest)?;
            if kind == END {
                return Ok(Self { step, buckets });
            }
            count += 1;
            if count > BUCKETS_MAX {
                return Err(FrameError::TooManyBuckets);
            }
            let len = usize::try_from(number(&mut rest)?).map_err(|_| FrameError::CutOff)?;
            let (content, after) = rest.split_at_checked(len).ok_or(FrameError::CutOff)?;
            rest = after;
            let kind = BucketType(kind);
            if kind.0 == INACTIVE {
                continue;
            }
            if buckets.iter().any(|(known, _)| *known == kind) {
                return Err(FrameError::Twice(kind));
            }
            buckets.push((kind, content));
        }
    }

    /// The bytes of the frame.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = NAME.to_vec();
        bytes.extend_from_slice(&self.step.0.to_be_bytes());
        for (kind, content) in &self.buckets {
            bytes.extend_from_slice(&kind.0.to_be_bytes());
            // Nothing here comes near 4 GiB.
            bytes.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend_from_slice(content);
        }
        bytes.extend_from_slice(&END.to_be_bytes());
        bytes
    }

    /// The content of the bucket of this type.
    #[must_use]
    pub fn get(&self, kind: BucketType) -> Option<&'a [u8]> {
        self.buckets.iter().find(|(known, _)| *known == kind).map(|(_, content)| *content)
    }

    /// All buckets.
    pub fn buckets(&self) -> impl Iterator<Item = (BucketType, &'a [u8])> {
        self.buckets.iter().copied()
    }
}

fn number(rest: &mut &[u8]) -> Result<u32, FrameError> {
    let (bytes, after) = rest.split_first_chunk().ok_or(FrameError::CutOff)?;
    *rest = after;
    Ok(u32::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_is_as_stock_peers_write_it() {
        let frame = Frame::new(Step::CLIENT_ASKS, vec![(BucketType::MODULE, b"ssl"), (BucketType::TAG, b"")]);
        let bytes = frame.encode();
        assert_eq!(bytes, b"gsi\0\0\0\x03\xe8\0\0\x0b\xb8\0\0\0\x03ssl\0\0\x0b\xbe\0\0\0\0\0\0\0\0");
        assert_eq!(Frame::decode(&bytes).unwrap(), frame);
        assert_eq!(frame.get(BucketType::MODULE), Some(&b"ssl"[..]));
        assert_eq!(frame.get(BucketType::MAIN), None);
        // What follows the end does not count.
        assert_eq!(Frame::decode(&[&bytes[..], b"more"].concat()).unwrap(), frame);
        for end in 0..bytes.len() {
            assert!(Frame::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn frames_are_bounded() {
        let bytes = |count: usize, kind: fn(usize) -> u32| {
            let buckets = (0..count).map(|place| (BucketType(kind(place)), &b"x"[..])).collect();
            Frame::new(Step(1), buckets).encode()
        };
        let distinct = |place: usize| 100 + u32::try_from(place).unwrap();
        assert!(Frame::decode(&bytes(BUCKETS_MAX, distinct)).is_ok());
        assert_eq!(Frame::decode(&bytes(BUCKETS_MAX + 1, distinct)), Err(FrameError::TooManyBuckets));
        // Those that are ignored count too.
        assert_eq!(Frame::decode(&bytes(BUCKETS_MAX + 1, |_| INACTIVE)), Err(FrameError::TooManyBuckets));
        assert_eq!(Frame::decode(&bytes(2, |_| INACTIVE)).unwrap().buckets().count(), 0);
        assert_eq!(Frame::decode(&bytes(2, |_| 3001)), Err(FrameError::Twice(BucketType::MAIN)));
        let long = [NAME, &vec![0; FRAME_BYTES_MAX]].concat();
        assert_eq!(Frame::decode(&long), Err(FrameError::TooLong(long.len())));
        // A length beyond the frame.
        assert_eq!(Frame::decode(b"gsi\0\0\0\0\x01\0\0\x0b\xb8\xff\xff\xff\xffssl"), Err(FrameError::CutOff));
        assert_eq!(Frame::decode(b"ztn\0\0\0\0\x01\0\0\0\0"), Err(FrameError::NotGsi));
    }
}
