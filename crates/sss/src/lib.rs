//! The mechanism `sss` of XRootD: a client shows that it has a secret that it shares with the server.
//!
//! - [`Keytab`]: the secrets, as `xrdsssadmin` writes them. [`read_keytab`] reads one from a file that nobody else may read.
//! - [`verify`]: what a server does with a credential. It takes the time and the address of the client, and asks [`Replays`]
//!   whether it has seen the credential before.
//! - [`credential`]: what a client sends.
//!
//! A credential names a key by its ID, in the clear. The rest is encrypted with that key: random bytes, the time, and items such
//! as the user and the client's address. It is one message; there is no challenge. So whoever copies a credential could send it
//! again: the server refuses old ones, ones from other addresses, and ones that it has seen.
//!
//! What the protocol cannot do: the cipher is Blowfish, the checksum a CRC32. Somebody on the way who changes a credential has a
//! chance of 1 in 2^32 that the checksum is right, except that the last bytes before it can be changed at will; they hold nothing
//! that decides. The first block of each credential is encrypted alike, and a block depends only on the one before it. So who has
//! recorded many credentials of a key can put parts of them together, and see beforehand which time comes out. Then only the
//! checksum refuses the result. [`verify`] wants zeros where clients send zeros, which takes far more recordings, and a server
//! counts with [`Failures`] how often an address has tried. Nothing binds a connection to its credential. TLS does all of this.
//!
//! All of it is pure but [`read_keytab`]. Every length is bounded, and no outside input panics. No error shows a secret.
//!
//! Source of the formats: `XrdSecsssRR.hh`, `XrdSecProtocolsss.cc`, `XrdSecsssKT.cc`, `XrdSecsssEnt.cc` and
//! `XrdCryptoLite_bf32.cc` of XRootD.

mod cipher;
mod failures;
mod items;
mod keytab;
mod keytab_file;
mod offer;
mod packet;
mod seen;
mod verify;

pub use failures::{FAILURES_MAX, FAILURES_TIME, Failures};
pub use items::{CLAIMED_GROUPS_MAX, NAME_MAX};
pub use keytab::{KEYS_MAX, KEYTAB_BYTES_MAX, Key, KeyGroup, KeyId, KeyUser, Keytab, KeytabError, LineProblem};
pub use keytab_file::{KeytabFileError, read_keytab, read_secret_file};
pub use offer::{OFFER, OfferError, check_offer};
pub use packet::{CREDENTIAL_BYTES_MAX, Client, RANDOM_LEN, credential};
pub use replays::{Before, Now};
pub use seen::{REPLAYS_MAX, REPLAYS_OF_KEY_MAX, Replays};
pub use verify::{CLOCK_SKEW, Holder, KeyProblem, LIFETIME, Refusal, Verified, verify};
