//! Why a message does not count.

use std::fmt;

use crate::{CLOCK_SKEW, KEEP, Malformed, Principal};

/// Most characters of a principal in a message. A client can make up long ones.
const SHOWN_MAX: usize = 160;

/// A principal in a message. Its control characters are escaped.
pub(crate) struct Short<'a>(pub(crate) &'a Principal);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0.to_string();
        match text.char_indices().nth(SHOWN_MAX) {
            Some((end, _)) => write!(f, "{}…", &text[..end]),
            None => f.write_str(&text),
        }
    }
}

/// When a message that may have been used before can be made anew.
struct Again(i64);

impl fmt::Display for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // While the clock runs right, nothing is refused for longer.
        if self.0.unsigned_abs() > KEEP.as_secs() {
            write!(f, "the server's clock was ahead by about {} s, and was set back: ask its administrator", self.0)
        } else {
            write!(f, "try again in {} s", self.0)
        }
    }
}

/// Why a message of a client does not count. No text shows a key.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    /// It is not a message of this mechanism.
    #[error("the Kerberos credential is malformed: {0}")]
    Malformed(#[from] Malformed),
    /// The ticket is for another service.
    #[error("the Kerberos ticket is for {}, and this server is {}", Short(given), Short(own))]
    Service {
        /// The service of the ticket.
        given: Box<Principal>,
        /// The own one.
        own: Box<Principal>,
    },
    /// The encryption type is not known here.
    #[error(
        "the Kerberos {part} is encrypted with the type number {number}; this server knows those with AES (17 to 20)"
    )]
    EncryptionType {
        /// What is encrypted.
        part: &'static str,
        /// The number of the type.
        number: i32,
    },
    /// There is no such key.
    #[error(
        "the Kerberos ticket is encrypted with version {version} of the server's key ({kind}), and the keytab does not have that: \
         write it anew, or get a new ticket"
    )]
    NoKey {
        /// The encryption type.
        kind: &'static str,
        /// The version of the key.
        version: String,
    },
    /// The ticket cannot be decrypted.
    #[error(
        "the Kerberos ticket cannot be decrypted with the keytab: the KDC has another key for this service, or the ticket is forged"
    )]
    Ticket,
    /// The authenticator cannot be decrypted.
    #[error("the client does not have the key of its Kerberos ticket")]
    Authenticator,
    /// The authenticator is of another client.
    #[error(
        "the Kerberos ticket is that of {}, and the client says that it is {}",
        Short(ticket),
        Short(authenticator)
    )]
    OtherClient {
        /// Whose ticket it is.
        ticket: Box<Principal>,
        /// Who the client says it is.
        authenticator: Box<Principal>,
    },
    /// A client of another program has made the message.
    #[error(
        "the Kerberos credential is one for another program (it has a checksum): the principal of this server must be used by nothing else"
    )]
    OtherProgram,
    /// The clocks differ.
    #[error(
        "the client's clock and this server's differ by {} s, and Kerberos allows {} s",
        .0,
        CLOCK_SKEW.as_secs()
    )]
    Skew(i64),
    /// The ticket is not valid yet.
    #[error("the Kerberos ticket is not valid yet; it will be in {0} s")]
    NotYet(i64),
    /// The ticket has ended.
    #[error("the Kerberos ticket has ended {0} s ago: run kinit")]
    Expired(i64),
    /// The KDC must still validate the ticket.
    #[error("the Kerberos ticket is postdated, and was not validated")]
    Invalid,
    /// The ticket is for other addresses.
    #[error("the Kerberos ticket is for other addresses than the client's")]
    Address,
    /// The way through other realms was not checked.
    #[error(
        "the Kerberos ticket of {} has come through other realms, and the KDC of this realm has not checked them", Short(.0)
    )]
    Transited(Box<Principal>),
    /// The ticket or the authenticator says what it is good for, in a way that is not known here.
    #[error("the Kerberos ticket has restrictions of the type {0}, which this server does not know")]
    Restricted(i64),
    /// It was seen before.
    #[error("the Kerberos credential was used before")]
    Replayed,
    /// It may have been seen before.
    #[error("the Kerberos credential may have been used before the server's start, or before its clock was set; {}", Again(*.0))]
    Forgotten(i64),
    /// The memory for what was seen is full.
    #[error("too many clients log in by Kerberos at this time; try again later")]
    Busy,
    /// What was seen cannot be noted for the next start.
    #[error("the server cannot note which Kerberos credentials were used; its log says why")]
    NotNoted,
}
