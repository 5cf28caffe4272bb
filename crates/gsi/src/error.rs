//! Why a handshake fails.

use crate::{BUCKETS_MAX, BucketType, CERTIFICATES_MAX, FRAME_BYTES_MAX, NoRandom, Step, TAG_LEN};

/// Why bytes are no frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It begins with something else.
    #[error("a frame that does not begin with `gsi`")]
    NotGsi,
    /// It ends too early.
    #[error("a frame of `gsi` that is cut off")]
    CutOff,
    /// It is too long.
    #[error("a frame of `gsi` with {0} bytes; {FRAME_BYTES_MAX} is the limit")]
    TooLong(usize),
    /// Too many parts.
    #[error("a frame of `gsi` with more than {BUCKETS_MAX} parts")]
    TooManyBuckets,
    /// A part is there twice.
    #[error("a frame of `gsi` with two parts of type {0}")]
    Twice(BucketType),
}

/// Why there is no key that both sides know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AgreementError {
    /// Not in the form of `XrdCryptosslCipher::Public`.
    #[error("the public part of the key agreement is malformed")]
    Malformed,
    /// A group that nobody should use.
    #[error(
        "the group of the key agreement is not safe: its modulus must have 512 to 4096 bits, and not be one less than a power of two"
    )]
    Group,
    /// Not the group of the server.
    #[error("the client has used another group for the key agreement than the server's")]
    OtherGroup,
    /// A number that gives the key away.
    #[error("the public part of the key agreement is not a number that keeps the key secret")]
    Public,
}

/// Why a handshake fails.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum HandshakeError {
    /// A malformed frame.
    #[error("the peer sent {0}")]
    Frame(#[from] FrameError),
    /// A frame out of turn.
    #[error("the peer sent {0}, which is not its turn")]
    OutOfTurn(Step),
    /// A part of a frame is missing.
    #[error("the peer's frame has no {0}")]
    Missing(BucketType),
    /// A part of a frame is malformed.
    #[error("the peer's {0} is malformed")]
    Malformed(BucketType),
    /// A peer that is too old.
    #[error(
        "the peer speaks version {0} of `gsi`, which does not sign its part of the key; it needs XRootD 4.9 or later"
    )]
    TooOld(u32),
    /// The peer wants another cryptographic library.
    #[error("the peer offers no cryptographic module that is known here (`ssl`)")]
    NoModule,
    /// No common cipher.
    #[error("the peer has chosen a cipher that is not offered: aes-256-cbc and aes-128-cbc are")]
    Cipher,
    /// No common digest.
    #[error("there is no digest that both sides know: sha256 is offered here")]
    Digest,
    /// A signature that does not fit the key.
    #[error("the peer's signature of its {0} is wrong")]
    Signature(BucketType),
    /// The peer has signed another random tag than the one of this handshake.
    #[error("the peer has signed the random tag of another handshake")]
    OtherTag,
    /// Somebody on the way has changed the client's version.
    #[error(
        "the server was told that this client speaks an older version of `gsi` than it does; somebody between them has changed that"
    )]
    Lowered,
    /// A tag that might be something else.
    #[error("the peer wants {0} bytes to be signed; a random tag is {TAG_LEN} bytes of ASCII")]
    NoTag(usize),
    /// A tag that a server has made, and that only a client signs.
    #[error("the peer wants the random tag of a server to be signed by another server")]
    MarkedTag,
    /// The client shows the key of this server.
    #[error("the client shows the server's own key")]
    OwnKey,
    /// The key agreement fails.
    #[error(transparent)]
    Agreement(#[from] AgreementError),
    /// What was encrypted cannot be read.
    #[error("the peer has encrypted with another key")]
    Decrypt,
    /// No certificates, or too many.
    #[error("the peer shows {0} certificates; it must be 1 to {CERTIFICATES_MAX}")]
    Certificates(usize),
    /// The certificate's key is of another kind.
    #[error("the peer's certificate has no RSA key of 1024 to 8192 bits, which `gsi` needs")]
    Key,
    /// The key that signs is not that of the certificate.
    #[error("the peer signs with another key than that of its certificate")]
    OtherKey,
    /// The peer does not show that it has the key of its certificate.
    #[error("the peer has not signed this connection with the key of its first certificate")]
    Possession,
    /// The certificate that the client has signed is for another key.
    #[error("the client has signed a proxy for another key than the one that it was asked for")]
    OtherProxyKey,
    /// A server asks for a proxy, and the client has not offered one.
    #[error("the server asks for a delegated proxy, and none was offered")]
    NoDelegation,
    /// The client cannot sign a proxy.
    #[error("cannot delegate a proxy: {0}")]
    CannotDelegate(&'static str),
    /// The caller does not take the server's certificate.
    #[error("the server's certificate is not good: {0}")]
    Server(String),
    /// The handshake has ended.
    #[error("the handshake has ended; begin again")]
    Over,
    /// The secret cannot sign.
    #[error("cannot sign with the key of the certificate: {0}")]
    Sign(String),
    /// No randomness.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
}

/// Why a certificate and its key cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecretError {
    /// No certificate.
    #[error("there is no certificate in PEM form")]
    NoCertificate,
    /// Not a certificate.
    #[error("the certificate is malformed")]
    Certificate,
    /// No key.
    #[error("there is no key in PEM form that is not encrypted")]
    NoKey,
    /// Not an RSA key.
    #[error("`gsi` needs an RSA key of 1024 to 8192 bits: {0}")]
    NotRsa(String),
    /// They do not belong together.
    #[error("the key does not belong to the certificate")]
    Mismatch,
    /// It cannot sign.
    #[error("cannot sign with the key: {0}")]
    Sign(String),
    /// No randomness.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
}
