//! The mechanism `krb5` of XRootD, on a server: a client shows a Kerberos ticket for the server, and that it has the key of the ticket.
//!
//! - [`Keytab`]: the keys of the server, as `kadmin ktadd` writes them.
//! - [`verify`]: what a server does with a message of a client (`KRB_AP_REQ`). It takes the time and the address of the client.
//! - [`Verified::admit`] asks [`Replays`] whether the message was seen before.
//!
//! A message has a ticket, which the key distribution centre (KDC) has encrypted with the server's key, and an authenticator, which the
//! client has encrypted with the key in the ticket. The authenticator has the time, so that an old message counts no more; the server
//! remembers the others. There is no challenge, and nothing binds a connection to its message: somebody on the way who keeps a
//! message from its server can use it there for some minutes. TLS prevents that.
//!
//! Only the encryption types with AES are known (RFC 3962 and RFC 8009). Those with RC4 and DES are refused: RFC 8429 and RFC 6649.
//!
//! All of it is pure: no files, no clock. Every length is bounded, and no outside input panics. No error shows a key.
//!
//! Sources: RFC 4120 (messages, and what a server checks: section 3.2.3), RFC 3961, RFC 3962, RFC 8009, and for the frame
//! `XrdSecProtocolkrb5.cc` of XRootD. The format of keytabs is described in the documentation of MIT Kerberos (`formats/keytab_file_format`).

mod der;
mod encryption;
mod fold;
mod keytab;
mod message;
mod principal;
mod refusal;
mod seen;
mod time;
mod verify;

pub use encryption::EncryptionType;
pub use keytab::{KEYS_MAX, KEYTAB_BYTES_MAX, Keytab, KeytabError};
pub use message::{CREDENTIAL_BYTES_MAX, Malformed};
pub use principal::{NAME_PARTS_MAX, Principal, TEXT_BYTES_MAX};
pub use refusal::Refusal;
pub use replays::{Before, Now};
pub use seen::{KEEP, REPLAYS_MAX, REPLAYS_OF_CLIENT_MAX, Replays};
pub use verify::{CLOCK_SKEW, Client, Verified, verify};

/// For the fuzzer: decodes any bytes as what only holders of keys can encrypt.
#[doc(hidden)]
pub fn decode_opened(bytes: &[u8]) {
    let _ = message::TicketPart::decode(bytes);
    let _ = message::Authenticator::decode(bytes);
}
