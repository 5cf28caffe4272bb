//! The handshake of `gsi`: how a client with a certificate or a proxy shows who it is on `root://`. It follows
//! `XrdSecProtocolgsi` of XRootD (`src/XrdSecgsi/XrdSecProtocolgsi.cc`), and does no I/O: frames, time and randomness are
//! handed in.
//!
//! - [`ServerHandshake`]: the server's side. It ends with [`Presented`], the certificates of a client that holds the key of the
//!   first one. Whether anybody trusts them is for the caller to find out.
//! - [`ClientHandshake`]: the client's side. It asks the caller whether the server's certificate is the right one.
//! - [`ClientSecret::show_possession`] and [`check_possession`]: the same proof in one signature, on a connection of TLS.
//! - [`Frame`]: the buffers of `XrdSutBuffer`, in which both speak.
//!
//! **The rounds.** The client asks for the server's certificate (`certreq`). The server sends it with the public part of a fresh
//! Diffie-Hellman key, which it has signed. The client answers with its own signed public part (`cert`); its certificates are
//! encrypted with the key that both can now compute. Each side signs a random tag of the other, which shows that it is here now.
//!
//! **The version** is [`VERSION`], as in XRootD 6.2: certificates without a proxy are accepted too. A peer older than
//! [`VERSION_SIGNED`] does not sign its public part and is refused, because somebody between the two could replace it. With a peer
//! older than [`VERSION_TAG_DIGEST`], both sides sign bare random tags.
//!
//! **Lowered versions.** Nothing that XRootD signs has the versions in it. So somebody on the way can have two peers sign bare tags although both
//! know better, and stock peers cannot notice. Peers here do if both are: the server's tag, which the client signs, says that the server
//! was told an older version. Nobody can get more than that, because nothing else depends on versions from [`VERSION_SIGNED`] on.
//!
//! **Ciphers** are AES-256 and AES-128 in CBC mode, with a random first block ([`Cipher`]). The digest on which both agree is
//! SHA-256 (at a server that lacks it, another); nothing in the handshake is ever digested with it. The ciphertext has no authentication of its own: a change to
//! it shows in the certificates, whose signatures the caller verifies, and in the signed tag.
//!
//! **What is signed.** XRootD signs bytes as they are, without a digest (`EncryptPrivate`). Whoever could choose a tag freely could
//! have a message of its choice signed. Since version [`VERSION_TAG_DIGEST`], what is signed of a tag is a digest, which nobody can choose. For
//! older peers the bare tag is. So only tags of [`TAG_LEN`] bytes of ASCII are signed, as by XRootD 6.2: no digest is so short.
//! A server signs a tag for anybody, before it knows who that is. None of this must help to log in as that server somewhere else:
//!
//! - a signed text counts only if all of its blocks but the last are full, so that it cannot be put together from signed tags,
//! - a client's public part must have the server's group and a number about as long as the modulus, and nothing else,
//! - tags of servers here begin with a byte that servers here do not sign,
//! - the server's own key is not one of a client.
//!
//! Stock servers sign tags of any length. So whoever decides about a client's certificate must refuse those of hosts.
//!
//! **Delegation.** A client that allows it can be asked for a proxy (`pxyreq`): the server makes a key ([`ProxyKey`]), the client signs
//! a certificate for it (`sigpxy`), and with both the server can act as the client. The private key stays at the server. A client here
//! decides itself what it signs: not more than its own proxy allows, limited if that is limited, and for a day at most. The other
//! way, in which a client sends the key of its own proxy (`kOptsFwdPxy`), is spoken by neither side.

mod agreement;
mod cipher;
mod client;
mod der;
mod error;
mod frame;
mod name_hash;
mod pem;
mod possession;
mod proxy_info;
mod proxy_key;
mod proxy_sign;
mod random;
mod rsa_blocks;
mod secret;
mod server;
mod session_key;
mod tag;
#[cfg(any(test, feature = "test-random"))]
pub mod test_random;

pub use cipher::Cipher;
pub use client::{ClientHandshake, ClientSecret, Delegation};
pub use error::{AgreementError, FrameError, HandshakeError, SecretError};
pub use frame::{BUCKETS_MAX, BucketType, FRAME_BYTES_MAX, Frame, Step};
pub use name_hash::issuer_hash;
pub use possession::{BINDING_LEN, check_possession};
pub use proxy_key::ProxyKey;
pub use random::{NoRandom, Random};
pub use secret::ServerSecret;
pub use server::{Presented, ProxyAnswer, ServerHandshake, ServerStep};
pub use session_key::{HASH_LEN, SessionKey, hash};

use frame::DelegationOptions;

/// The version that both sides announce (`XrdSecgsiVERSION`).
pub const VERSION: u32 = 10_700;
/// The first version whose public parts are signed (`XrdSecgsiVersDHsigned`).
pub const VERSION_SIGNED: u32 = 10_400;
/// The first version that signs a digest of a random tag in place of the tag (`XrdSecgsiVersRtagHash`).
pub const VERSION_TAG_DIGEST: u32 = 10_700;
/// Most certificates that a client can present.
pub const CERTIFICATES_MAX: usize = 16;
/// The length of a random tag. From 6.2.1 on, XRootD signs no others, and none with bytes above 0x7f (`XrdSecgsiRtag.hh`).
pub const TAG_LEN: usize = 8;
