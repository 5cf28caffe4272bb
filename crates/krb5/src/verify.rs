//! Which messages count (RFC 4120, section 3.2.3).

use std::net::IpAddr;
use std::time::Duration;

use ring::digest::{SHA256, digest};
use types::Timestamp;

use crate::encryption::{Key, Usage};
use crate::message::{Authenticator, Request, Sealed, TicketPart};
use crate::{EncryptionType, Keytab, Now, Principal, Refusal, Replays};

/// How far a client's clock may differ from the server's: what all programs allow.
pub const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// Most keys that are tried for a ticket. Only one that does not say which version of the key it needs has several.
const KEYS_TRIED_MAX: usize = 16;

/// The flag of a ticket: it was postdated, and not validated since.
const INVALID: u32 = 1 << (31 - 7);
/// The flag of a ticket: the KDC has checked the realms through which it has come.
const TRANSITED_CHECKED: u32 = 1 << (31 - 12);

/// A client that has shown who it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Client {
    /// The client.
    pub principal: Principal,
    /// When its ticket ends.
    pub expires: Timestamp,
}

/// A message that is good, if it was not seen before: see [`Self::admit`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verified {
    client: Client,
    made: Timestamp,
    /// Tells this message from all others.
    mark: [u8; 16],
}

/// Verifies the credential of a client at `peer`, for the server's own principal `service`. `wall`: the time of day.
///
/// # Errors
/// [`Refusal`].
pub fn verify(
    keytab: &Keytab,
    service: &Principal,
    credential: &[u8],
    peer: IpAddr,
    wall: Timestamp,
) -> Result<Verified, Refusal> {
    let request = Request::decode(credential)?;
    if request.service != *service {
        return Err(Refusal::Service { given: Box::new(request.service), own: Box::new(service.clone()) });
    }
    let opened = open_ticket(keytab, service, &request.ticket)?;
    let ticket = TicketPart::decode(&opened)?;
    let session_key = known_type("session key", ticket.key_kind).map(|kind| Key::new(kind, ticket.key))?;
    let session_key = session_key.ok_or(crate::Malformed::TicketPart)?;
    if known_type("authenticator", request.authenticator.kind)? != session_key.kind {
        return Err(Refusal::Authenticator);
    }
    let opened = session_key.open(Usage::Authenticator, request.authenticator.bytes).ok_or(Refusal::Authenticator)?;
    let authenticator = Authenticator::decode(&opened)?;
    if authenticator.client != ticket.client {
        let (ticket, authenticator) = (Box::new(ticket.client), Box::new(authenticator.client));
        return Err(Refusal::OtherClient { ticket, authenticator });
    }
    // What a client of another program has made for a server with the same principal must not count here. Those of GSSAPI have a
    // checksum (RFC 4121, section 4.1.1).
    if authenticator.has_checksum {
        return Err(Refusal::OtherProgram);
    }
    check_times(&ticket, authenticator.made, wall)?;
    if ticket.addresses.as_ref().is_some_and(|addresses| !addresses.contains(&peer.to_canonical())) {
        return Err(Refusal::Address);
    }
    // Whatever realm the client is said to be of: one of those on the way can have said so.
    if ticket.has_transited && ticket.flags & TRANSITED_CHECKED == 0 {
        return Err(Refusal::Transited(Box::new(ticket.client)));
    }
    if let Some(kind) = ticket.restriction.or(authenticator.restriction) {
        return Err(Refusal::Restricted(kind));
    }
    // Nobody can change the encrypted part so that it still decrypts, and the rest of the message is the same for all messages with
    // this ticket.
    let mut mark = [0; 16];
    mark.copy_from_slice(&digest(&SHA256, request.authenticator.bytes).as_ref()[..16]);
    let client = Client { principal: ticket.client, expires: ticket.ends };
    Ok(Verified { client, made: authenticator.made, mark })
}

fn known_type(part: &'static str, number: i32) -> Result<EncryptionType, Refusal> {
    EncryptionType::of_number(number).ok_or(Refusal::EncryptionType { part, number })
}

/// Decrypts the secret part of a ticket.
fn open_ticket(keytab: &Keytab, service: &Principal, ticket: &Sealed<'_>) -> Result<Vec<u8>, Refusal> {
    let kind = known_type("ticket", ticket.kind)?;
    let mut keys = keytab.keys(service, kind, ticket.version).peekable();
    if keys.peek().is_none() {
        let version = ticket.version.map_or_else(|| "unknown".to_owned(), |version| version.to_string());
        return Err(Refusal::NoKey { kind: kind.name(), version });
    }
    keys.take(KEYS_TRIED_MAX).find_map(|key| key.open(Usage::Ticket, ticket.bytes)).ok_or(Refusal::Ticket)
}

fn check_times(ticket: &TicketPart<'_>, made: Timestamp, wall: Timestamp) -> Result<(), Refusal> {
    let skew = wall.secs().saturating_sub(made.secs()).saturating_abs();
    if skew.unsigned_abs() > CLOCK_SKEW.as_secs() {
        return Err(Refusal::Skew(skew));
    }
    if ticket.flags & INVALID != 0 {
        return Err(Refusal::Invalid);
    }
    if ticket.starts > wall.plus(CLOCK_SKEW) {
        return Err(Refusal::NotYet(ticket.starts.secs() - wall.secs()));
    }
    // No skew here: the session of an ended ticket would end at once.
    if ticket.ends <= wall {
        return Err(Refusal::Expired(wall.secs() - ticket.ends.secs()));
    }
    Ok(())
}

impl Verified {
    /// Who shows it. It does not count before [`Self::admit`].
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Lets the client in, unless this message was seen before.
    ///
    /// # Errors
    /// [`Refusal::Replayed`], [`Refusal::Forgotten`] and [`Refusal::Busy`].
    pub fn admit(self, replays: &mut Replays, now: Now) -> Result<Client, Refusal> {
        replays.note(&self.client.principal, self.mark, self.made, now)?;
        Ok(self.client)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keytab::tests::{entry, keytab};
    use crate::refusal::Short;
    use crate::{Before, Malformed};

    const SERVICE: &str = "xrootd/se.example.org@EXAMPLE.ORG";
    /// 2026-11-29 23:30:00
    const NOW: i64 = 1_795_995_000;
    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 1, 2, 3));

    fn der(tag: u8, content: &[u8]) -> Vec<u8> {
        let [high, low] = u16::try_from(content.len()).unwrap().to_be_bytes();
        let head = match (high, low) {
            (0, 0..0x80) => vec![tag, low],
            (0, _) => vec![tag, 0x81, low],
            _ => vec![tag, 0x82, high, low],
        };
        [head, content.to_vec()].concat()
    }

    fn field(number: u8, content: &[u8]) -> Vec<u8> {
        der(0xa0 | number, content)
    }

    fn sequence(fields: &[Vec<u8>]) -> Vec<u8> {
        der(0x30, &fields.concat())
    }

    fn integer(number: i32) -> Vec<u8> {
        let bytes = number.to_be_bytes();
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count().min(3);
        let start = if zeros > 0 && bytes[zeros] >= 0x80 { zeros - 1 } else { zeros };
        der(2, &bytes[start..])
    }

    fn name(text: &str) -> (Vec<u8>, Vec<u8>) {
        let (name, realm) = text.split_once('@').unwrap();
        let parts: Vec<Vec<u8>> = name.split('/').map(|part| der(27, part.as_bytes())).collect();
        (sequence(&[field(0, &integer(1)), field(1, &sequence(&parts))]), der(27, realm.as_bytes()))
    }

    fn time(secs: i64) -> Vec<u8> {
        // All on this day.
        let of_day = (secs - (NOW - 84_600)).rem_euclid(86_400);
        let day = 29 + (secs - (NOW - 84_600)).div_euclid(86_400);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        der(24, format!("202611{day:02}{hour:02}{minute:02}{second:02}Z").as_bytes())
    }

    fn sealed(kind: i32, version: Option<i32>, bytes: &[u8]) -> Vec<u8> {
        let version = version.map(|version| field(1, &integer(version))).unwrap_or_default();
        sequence(&[field(0, &integer(kind)), version, field(2, &der(4, bytes))])
    }

    /// A message, and what can be wrong with it.
    #[derive(Clone)]
    struct Message {
        kind: EncryptionType,
        service: &'static str,
        version: Option<i32>,
        service_key: Vec<u8>,
        flags: u32,
        client: &'static str,
        said: &'static str,
        transited: &'static [u8],
        starts: Option<i64>,
        ends: i64,
        addresses: Option<Vec<(i32, Vec<u8>)>>,
        restrictions: Vec<i32>,
        made: i64,
        authenticator_key: u8,
        checksum: Option<i32>,
        authenticator_restrictions: Vec<i32>,
    }

    impl Message {
        fn good() -> Self {
            Self {
                kind: EncryptionType::Aes256Sha1,
                service: SERVICE,
                version: Some(3),
                service_key: vec![3; 32],
                flags: 0,
                client: "ana@EXAMPLE.ORG",
                said: "ana@EXAMPLE.ORG",
                transited: b"",
                starts: Some(NOW - 60),
                ends: NOW + 60,
                addresses: None,
                restrictions: vec![1],
                made: NOW,
                authenticator_key: 9,
                checksum: None,
                authenticator_restrictions: vec![1],
            }
        }

        fn restrictions(number: u8, kinds: &[i32]) -> Vec<u8> {
            if kinds.is_empty() {
                return Vec::new();
            }
            let all: Vec<_> =
                kinds.iter().map(|kind| sequence(&[field(0, &integer(*kind)), field(1, &der(4, b"x"))])).collect();
            field(number, &sequence(&all))
        }

        fn bytes(&self) -> Vec<u8> {
            let (client, realm) = name(self.client);
            let len = self.service_key.len();
            let addresses = self.addresses.as_ref().map(|addresses| {
                let of =
                    |(kind, bytes): &(i32, Vec<u8>)| sequence(&[field(0, &integer(*kind)), field(1, &der(4, bytes))]);
                field(9, &sequence(&addresses.iter().map(of).collect::<Vec<_>>()))
            });
            let session_key = sequence(&[field(0, &integer(self.kind.number())), field(1, &der(4, &vec![9; len]))]);
            let part = sequence(&[
                field(0, &der(3, &[&[0][..], &self.flags.to_be_bytes()].concat())),
                field(1, &session_key),
                field(2, &realm),
                field(3, &client),
                field(4, &sequence(&[field(0, &integer(1)), field(1, &der(4, self.transited))])),
                field(5, &time(NOW - 100)),
                self.starts.map(|starts| field(6, &time(starts))).unwrap_or_default(),
                field(7, &time(self.ends)),
                addresses.unwrap_or_default(),
                Self::restrictions(10, &self.restrictions),
            ]);
            let key = Key::new(self.kind, &self.service_key).unwrap();
            let part = key.seal(Usage::Ticket, &der(0x63, &part));
            let (service, service_realm) = name(self.service);
            let ticket = der(
                0x61,
                &sequence(&[
                    field(0, &integer(5)),
                    field(1, &service_realm),
                    field(2, &service),
                    field(3, &sealed(self.kind.number(), self.version, &part)),
                ]),
            );
            let (client, realm) = name(self.said);
            let checksum = self
                .checksum
                .map(|kind| field(3, &sequence(&[field(0, &integer(kind)), field(1, &der(4, &[16, 0, 0, 0]))])));
            let authenticator = sequence(&[
                field(0, &integer(5)),
                field(1, &realm),
                field(2, &client),
                checksum.unwrap_or_default(),
                field(4, &integer(123_456)),
                field(5, &time(self.made)),
                field(7, &integer(77)),
                Self::restrictions(8, &self.authenticator_restrictions),
            ]);
            let session = Key::new(self.kind, &vec![self.authenticator_key; len]).unwrap();
            let authenticator = session.seal(Usage::Authenticator, &der(0x62, &authenticator));
            let request = sequence(&[
                field(0, &integer(5)),
                field(1, &integer(14)),
                field(2, &der(3, &[0, 0x40, 0, 0, 0])),
                field(3, &ticket),
                field(4, &sealed(self.kind.number(), None, &authenticator)),
            ]);
            [b"krb5\0".to_vec(), der(0x6e, &request)].concat()
        }
    }

    fn keys() -> Keytab {
        Keytab::parse(&keytab(&[
            entry(SERVICE, 3, 17, &[3; 16]),
            entry(SERVICE, 3, 18, &[3; 32]),
            entry(SERVICE, 3, 19, &[3; 16]),
            entry(SERVICE, 3, 20, &[3; 32]),
            entry("host/se.example.org@EXAMPLE.ORG", 3, 18, &[3; 32]),
        ]))
        .unwrap()
    }

    fn checked(message: &Message) -> Result<Verified, Refusal> {
        of_bytes(&message.bytes())
    }

    fn of_bytes(bytes: &[u8]) -> Result<Verified, Refusal> {
        verify(&keys(), &Principal::parse(SERVICE).unwrap(), bytes, HERE, Timestamp::from_secs(NOW))
    }

    fn at(wall: i64, steady: u64) -> Now {
        Now { wall: Timestamp::from_secs(wall), steady: Duration::from_secs(steady) }
    }

    #[test]
    fn a_good_message_of_each_type_counts_once() {
        let mut replays = Replays::new(Duration::ZERO, Before::None);
        for kind in EncryptionType::ALL {
            let len = if matches!(kind.number(), 17 | 19) { 16 } else { 32 };
            let message = Message { kind, service_key: vec![3; len], ..Message::good() };
            let verified = checked(&message).unwrap();
            let client = verified.clone().admit(&mut replays, at(NOW, 1)).unwrap();
            assert_eq!(client.principal.to_string(), "ana@EXAMPLE.ORG");
            assert_eq!(client.expires, Timestamp::from_secs(NOW + 60));
            assert_eq!(verified.admit(&mut replays, at(NOW, 1)), Err(Refusal::Replayed));
        }
        // Without a version of the key, all are tried; without a start, that of the login counts.
        assert!(checked(&Message { version: None, starts: None, ..Message::good() }).is_ok());
        assert!(
            checked(&Message { restrictions: vec![], authenticator_restrictions: vec![], ..Message::good() }).is_ok()
        );
    }

    #[test]
    fn tickets_for_others_and_with_other_keys_are_refused() {
        let why = |message: Message| checked(&message).unwrap_err();
        let service = why(Message { service: "host/se.example.org@EXAMPLE.ORG", ..Message::good() });
        assert!(
            matches!(&service, Refusal::Service { given, .. } if given.to_string().starts_with("host/")),
            "{service}"
        );
        let no_key = why(Message { version: Some(4), ..Message::good() });
        assert_eq!(no_key, Refusal::NoKey { kind: "aes256-cts-hmac-sha1-96", version: "4".into() });
        assert_eq!(why(Message { service_key: vec![4; 32], ..Message::good() }), Refusal::Ticket);
        assert_eq!(why(Message { authenticator_key: 8, ..Message::good() }), Refusal::Authenticator);
        let other = why(Message { said: "ben@EXAMPLE.ORG", ..Message::good() });
        assert!(matches!(&other, Refusal::OtherClient { .. }), "{other}");
        let realm = why(Message { said: "ana@OTHER.ORG", ..Message::good() });
        assert!(matches!(&realm, Refusal::OtherClient { .. }), "{realm}");
    }

    #[test]
    fn what_a_client_of_another_program_has_made_is_refused() {
        for kind in [0x8003, 16, 20] {
            assert_eq!(checked(&Message { checksum: Some(kind), ..Message::good() }), Err(Refusal::OtherProgram));
        }
    }

    #[test]
    fn texts_of_clients_are_cut_and_escaped() {
        let part = "x\n".repeat(128);
        let long = Principal::new(vec![part.clone(); 8], part).unwrap();
        let (one, other) = (Box::new(long.clone()), Box::new(long.clone()));
        for refusal in [
            Refusal::Service { given: one.clone(), own: other.clone() },
            Refusal::OtherClient { ticket: one.clone(), authenticator: other },
            Refusal::Transited(one),
        ] {
            let text = refusal.to_string();
            assert!(text.len() < 600 && !text.contains('\n') && text.contains('…'), "{text}");
        }
        assert_eq!(Short(&Principal::parse(SERVICE).unwrap()).to_string(), SERVICE);
    }

    #[test]
    fn times_are_checked() {
        let why = |message: Message| checked(&message).map(|_| ());
        let skew = 300;
        assert_eq!(why(Message { made: NOW - skew, ..Message::good() }), Ok(()));
        assert_eq!(why(Message { made: NOW + skew, ..Message::good() }), Ok(()));
        assert_eq!(why(Message { made: NOW - skew - 1, ..Message::good() }), Err(Refusal::Skew(301)));
        assert_eq!(why(Message { made: NOW + skew + 1, ..Message::good() }), Err(Refusal::Skew(301)));
        assert_eq!(why(Message { starts: Some(NOW + skew), ends: NOW + 600, ..Message::good() }), Ok(()));
        let later = Message { starts: Some(NOW + skew + 1), ends: NOW + 600, ..Message::good() };
        assert_eq!(why(later), Err(Refusal::NotYet(301)));
        assert_eq!(why(Message { ends: NOW + 1, ..Message::good() }), Ok(()));
        assert_eq!(why(Message { ends: NOW, ..Message::good() }), Err(Refusal::Expired(0)));
        assert_eq!(why(Message { ends: NOW - 50, ..Message::good() }), Err(Refusal::Expired(50)));
        assert_eq!(why(Message { flags: INVALID, ..Message::good() }), Err(Refusal::Invalid));
    }

    #[test]
    fn addresses_realms_and_restrictions_are_checked() {
        let why = |message: Message| checked(&message).map(|_| ());
        let addresses = |list: &[(i32, &[u8])]| {
            let addresses = list.iter().map(|(kind, bytes)| (*kind, bytes.to_vec())).collect();
            why(Message { addresses: Some(addresses), ..Message::good() })
        };
        assert_eq!(addresses(&[]), Ok(()));
        assert_eq!(addresses(&[(2, &[10, 1, 2, 4]), (2, &[10, 1, 2, 3])]), Ok(()));
        let mapped = [&[0; 10][..], &[255, 255, 10, 1, 2, 3]].concat();
        assert_eq!(addresses(&[(24, &mapped)]), Ok(()));
        assert_eq!(addresses(&[(2, &[10, 1, 2, 4])]), Err(Refusal::Address));
        // One of another kind is the client's nowhere.
        assert_eq!(addresses(&[(20, b"NETBIOS")]), Err(Refusal::Address));
        assert_eq!(addresses(&[(2, &[10, 1, 2])]), Err(Malformed::TicketPart.into()));
        let foreign = Message { client: "ana@OTHER.ORG", said: "ana@OTHER.ORG", ..Message::good() };
        assert_eq!(why(foreign.clone()), Ok(()));
        // Another realm can say that its client is of the own one.
        for through in [foreign, Message::good()] {
            let through = Message { transited: b"MIDDLE.ORG", ..through };
            let client = Principal::parse(through.client).unwrap();
            assert_eq!(why(through.clone()), Err(Refusal::Transited(Box::new(client))));
            assert_eq!(why(Message { flags: TRANSITED_CHECKED, ..through }), Ok(()));
        }
        assert_eq!(why(Message { restrictions: vec![1, 8], ..Message::good() }), Err(Refusal::Restricted(8)));
        let restricted = Message { authenticator_restrictions: vec![5], ..Message::good() };
        assert_eq!(why(restricted), Err(Refusal::Restricted(5)));
    }

    #[test]
    fn garbage_is_refused() {
        let good = Message::good().bytes();
        for end in 0..good.len() {
            assert!(matches!(of_bytes(&good[..end]), Err(Refusal::Malformed(_))), "{end}");
        }
        assert_eq!(of_bytes(&[&good[..], &[0]].concat()), Err(Malformed::Request.into()));
        assert_eq!(of_bytes(b"sss\0x"), Err(Malformed::Mark.into()));
        assert_eq!(of_bytes(&[b"krb5\0", &[b'x'; 70_000][..]].concat()), Err(Malformed::TooLong.into()));
        // Every byte counts, but for those that a server ignores: options, the number of the key of the authenticator, kinds of names.
        let mut ignored = 0;
        for at in 0..good.len() {
            let mut changed = good.clone();
            changed[at] ^= 1;
            ignored += usize::from(of_bytes(&changed).is_ok());
        }
        assert!(ignored <= 8, "{ignored} bytes do not count");
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..400)) {
            let _ = of_bytes(&[b"krb5\0".to_vec(), bytes.clone()].concat());
            let _ = TicketPart::decode(&bytes);
            let _ = Authenticator::decode(&bytes);
            let _ = TicketPart::decode(&der(0x63, &der(0x30, &bytes)));
        }
    }
}
