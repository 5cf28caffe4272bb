//! The message of a client, decoded. Numbers of fields are those of RFC 4120, appendix A.

use std::net::IpAddr;

use types::Timestamp;
use x509_parser::asn1_rs::Any;

use crate::der::{Fields, elements, flags, number, octets, text, time};
use crate::principal::{NAME_PARTS_MAX, Principal, TEXT_BYTES_MAX};

/// The longest credential that is read. Tickets with many groups of a Windows domain have up to 64 KiB.
pub const CREDENTIAL_BYTES_MAX: usize = 64 << 10;

/// What a credential of this mechanism begins with.
const MARK: &[u8] = b"krb5\0";
/// The version of Kerberos.
const VERSION: i64 = 5;
/// The type of a `KRB_AP_REQ`.
const AP_REQ: i64 = 14;
/// Most addresses in a ticket, and most restrictions.
const LIST_MAX: usize = 64;
/// Restrictions that may be ignored (`AD-IF-RELEVANT`).
const IF_RELEVANT: i64 = 1;
/// Types of addresses (section 7.5.3).
const IPV4: i64 = 2;
const IPV6: i64 = 24;

/// What is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Malformed {
    /// The length.
    #[error("it is longer than {} KiB", CREDENTIAL_BYTES_MAX >> 10)]
    TooLong,
    /// The beginning.
    #[error("it does not begin with `krb5`")]
    Mark,
    /// The message itself.
    #[error("it is not a KRB_AP_REQ of Kerberos 5")]
    Request,
    /// The ticket.
    #[error("its ticket is not one of Kerberos 5")]
    Ticket,
    /// The secret part of the ticket.
    #[error("the secret part of its ticket is not one of Kerberos 5")]
    TicketPart,
    /// The authenticator.
    #[error("its authenticator is not one of Kerberos 5")]
    Authenticator,
}

/// Something encrypted.
#[derive(Debug)]
pub(crate) struct Sealed<'a> {
    pub(crate) kind: i32,
    pub(crate) version: Option<u32>,
    pub(crate) bytes: &'a [u8],
}

/// `KRB_AP_REQ`, section 5.5.1.
#[derive(Debug)]
pub(crate) struct Request<'a> {
    /// The service that the ticket is for.
    pub(crate) service: Principal,
    pub(crate) ticket: Sealed<'a>,
    pub(crate) authenticator: Sealed<'a>,
}

/// `EncTicketPart`, section 5.3.
#[derive(Debug)]
pub(crate) struct TicketPart<'a> {
    pub(crate) flags: u32,
    pub(crate) key_kind: i32,
    pub(crate) key: &'a [u8],
    pub(crate) client: Principal,
    /// Whether the ticket has come through realms that it names.
    pub(crate) has_transited: bool,
    pub(crate) starts: Timestamp,
    pub(crate) ends: Timestamp,
    /// `None`: it is good from anywhere. Addresses of other kinds than IP are left out.
    pub(crate) addresses: Option<Vec<IpAddr>>,
    /// A restriction that must be known.
    pub(crate) restriction: Option<i64>,
}

/// `Authenticator`, section 5.5.1.
#[derive(Debug)]
pub(crate) struct Authenticator {
    pub(crate) client: Principal,
    /// Whether it has a checksum. Stock clients of XRootD make none; those of other programs do, of data of theirs.
    pub(crate) has_checksum: bool,
    /// When it was made.
    pub(crate) made: Timestamp,
    /// A restriction that must be known.
    pub(crate) restriction: Option<i64>,
}

impl<'a> Request<'a> {
    /// Decodes the credential of a client. Whether the client wants to use the key of another ticket (`use-session-key`) says nothing to a
    /// server that has its keys in a keytab; stock clients set it.
    pub(crate) fn decode(credential: &'a [u8]) -> Result<Self, Malformed> {
        if credential.len() > CREDENTIAL_BYTES_MAX {
            return Err(Malformed::TooLong);
        }
        let message = credential.strip_prefix(MARK).ok_or(Malformed::Mark)?;
        let what = Malformed::Request;
        let mut fields = Fields::of_message(message, 14, what)?;
        if number(&fields.required(0)?, what)? != VERSION || number(&fields.required(1)?, what)? != AP_REQ {
            return Err(what);
        }
        flags(&fields.required(2)?, what)?;
        let ticket = fields.required(3)?;
        let authenticator = sealed(&fields.required(4)?, what)?;
        fields.end()?;
        let what = Malformed::Ticket;
        // The field holds the message with its own tag.
        let mut fields = Fields::of_inner_message(&ticket, 1, what)?;
        if number(&fields.required(0)?, what)? != VERSION {
            return Err(what);
        }
        let realm = fields.required(1)?;
        let service = principal(&fields.required(2)?, &realm, what)?;
        let ticket = sealed(&fields.required(3)?, what)?;
        fields.end()?;
        Ok(Self { service, ticket, authenticator })
    }
}

impl<'a> TicketPart<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let what = Malformed::TicketPart;
        let mut fields = Fields::of_message(bytes, 3, what)?;
        let set = flags(&fields.required(0)?, what)?;
        let (key_kind, key) = {
            let mut key = Fields::of(&fields.required(1)?, what)?;
            let kind = int32(&key.required(0)?, what)?;
            let bytes = octets(&key.required(1)?, what)?;
            key.end()?;
            (kind, bytes)
        };
        let realm = fields.required(2)?;
        let client = principal(&fields.required(3)?, &realm, what)?;
        let has_transited = {
            let mut transited = Fields::of(&fields.required(4)?, what)?;
            number(&transited.required(0)?, what)?;
            let contents = octets(&transited.required(1)?, what)?;
            transited.end()?;
            !contents.is_empty()
        };
        let authenticated = timestamp(&fields.required(5)?, what)?;
        let starts = fields.optional(6)?.map_or(Ok(authenticated), |time| timestamp(&time, what))?;
        let ends = timestamp(&fields.required(7)?, what)?;
        // Until when it can be renewed.
        if let Some(until) = fields.optional(8)? {
            timestamp(&until, what)?;
        }
        let addresses = fields.optional(9)?.map(|list| addresses(&list, what)).transpose()?.flatten();
        let restriction = restriction(fields.optional(10)?, what)?;
        fields.end()?;
        Ok(Self { flags: set, key_kind, key, client, has_transited, starts, ends, addresses, restriction })
    }
}

impl Authenticator {
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let what = Malformed::Authenticator;
        let mut fields = Fields::of_message(bytes, 2, what)?;
        if number(&fields.required(0)?, what)? != VERSION {
            return Err(what);
        }
        let realm = fields.required(1)?;
        let client = principal(&fields.required(2)?, &realm, what)?;
        let has_checksum = fields.optional(3)?.is_some();
        if !(0..1_000_000).contains(&number(&fields.required(4)?, what)?) {
            return Err(what);
        }
        let made = timestamp(&fields.required(5)?, what)?;
        // A key and a number for later messages. There are none.
        let _ = (fields.optional(6)?, fields.optional(7)?);
        let restriction = restriction(fields.optional(8)?, what)?;
        fields.end()?;
        Ok(Self { client, has_checksum, made, restriction })
    }
}

fn int32(any: &Any<'_>, what: Malformed) -> Result<i32, Malformed> {
    i32::try_from(number(any, what)?).map_err(|_| what)
}

fn sealed<'a>(any: &Any<'a>, what: Malformed) -> Result<Sealed<'a>, Malformed> {
    let mut fields = Fields::of(any, what)?;
    let kind = int32(&fields.required(0)?, what)?;
    let version = fields.optional(1)?.map(|version| number(&version, what)).transpose()?;
    // Some programs write it with a sign.
    let version = version.map(|version| u32::try_from(version & 0xffff_ffff).map_err(|_| what)).transpose()?;
    let bytes = octets(&fields.required(2)?, what)?;
    fields.end()?;
    Ok(Sealed { kind, version, bytes })
}

fn principal(name: &Any<'_>, realm: &Any<'_>, what: Malformed) -> Result<Principal, Malformed> {
    let realm = text(realm, TEXT_BYTES_MAX, what)?;
    let mut fields = Fields::of(name, what)?;
    // The kind of the name is a hint.
    int32(&fields.required(0)?, what)?;
    let parts = elements(&fields.required(1)?, NAME_PARTS_MAX, what)?;
    fields.end()?;
    let parts = parts.iter().map(|part| text(part, TEXT_BYTES_MAX, what).map(str::to_owned));
    Principal::new(parts.collect::<Result<_, _>>()?, realm.to_owned()).ok_or(what)
}

fn timestamp(any: &Any<'_>, what: Malformed) -> Result<Timestamp, Malformed> {
    crate::time::parse(time(any, what)?).ok_or(what)
}

/// The addresses; `None`: the list is empty, which means anywhere.
fn addresses(list: &Any<'_>, what: Malformed) -> Result<Option<Vec<IpAddr>>, Malformed> {
    let list = elements(list, LIST_MAX, what)?;
    if list.is_empty() {
        return Ok(None);
    }
    let mut addresses = Vec::new();
    for address in list {
        let mut fields = Fields::of(&address, what)?;
        let kind = number(&fields.required(0)?, what)?;
        let bytes = octets(&fields.required(1)?, what)?;
        fields.end()?;
        match (kind, bytes) {
            (IPV4, bytes) => addresses.push(<[u8; 4]>::try_from(bytes).map_err(|_| what)?.into()),
            (IPV6, bytes) => {
                addresses.push(IpAddr::from(<[u8; 16]>::try_from(bytes).map_err(|_| what)?).to_canonical())
            }
            _ => {}
        }
    }
    Ok(Some(addresses))
}

/// The first restriction that a server must know (section 5.2.6): all but those that may be ignored.
fn restriction(list: Option<Any<'_>>, what: Malformed) -> Result<Option<i64>, Malformed> {
    let Some(list) = list else { return Ok(None) };
    let mut first = None;
    for element in elements(&list, LIST_MAX, what)? {
        let mut fields = Fields::of(&element, what)?;
        let kind = number(&fields.required(0)?, what)?;
        octets(&fields.required(1)?, what)?;
        fields.end()?;
        if kind != IF_RELEVANT {
            first = first.or(Some(kind));
        }
    }
    Ok(first)
}
