//! Signed requests (`kXR_sigver`): which requests of a connection must be signed, and whether they are. The client has the key from its
//! login ([`authentication::SessionKey`]); the rules are in [`wire::signing`].
//!
//! A connection whose request is not signed as it must be ends, as at the stock server: either the client cannot sign, or somebody between
//! the two has changed, dropped or repeated something.

use authentication::{SessionKey, SigningLevel};
use service::Error;
use wire::request::Sigver;
use wire::response::SecurityRequirements;
use wire::signing::{self, SignatureError, SigningRules};
use wire::{ErrorNumber, RequestHeader, RequestKind, StreamId};

use crate::connection::{Connection, Stop};
use crate::meter::SignatureResult;
use crate::to_wire::RequestError;

/// What the answer to `protocol` says about signatures; `None`: no request needs one.
pub(crate) fn announcement(level: SigningLevel) -> Option<SecurityRequirements> {
    let requirements = SecurityRequirements { level: level.number(), ..SecurityRequirements::default() };
    (level != SigningLevel::None).then_some(requirements)
}

/// The signatures of a connection.
pub(crate) struct Signatures {
    rules: SigningRules,
    key: SessionKey,
    /// The number of the last good signature. Those of clients begin with 1.
    last: u64,
    /// The signature of the next request.
    next: Option<(StreamId, Sigver)>,
}

impl Signatures {
    /// For a client with this key. `None`: no request needs a signature.
    pub(crate) fn new(level: SigningLevel, key: SessionKey) -> Option<Self> {
        let rules = SigningRules::new(&announcement(level)?)?;
        Some(Self { rules, key, last: 0, next: None })
    }

    /// Takes the signature of the request that follows.
    fn hold(&mut self, stream: StreamId, sigver: Sigver) {
        self.next = Some((stream, sigver));
    }

    /// Checks the signature of this request, if it needs one. `payload` is empty for a request whose payload is a stream.
    fn check(&mut self, header: &RequestHeader, payload: &[u8]) -> Result<SignatureResult, SignatureError> {
        let signature = self.next.take();
        if !self.rules.apply_to(header) {
            return Ok(if signature.is_some() { SignatureResult::Unneeded } else { SignatureResult::NotNeeded });
        }
        signing::check(signature.as_ref(), header, self.last)?;
        let Some((_, sigver)) = signature else { return Err(SignatureError::Missing) };
        // The payload of a write is a stream: `check` has seen that the signature does not cover it.
        let parts: [&[u8]; 3] = [&signing::sequence_bytes(sigver.sequence), &header.to_bytes(), payload];
        if !self.key.has_signed(&parts, &sigver.signature) {
            return Err(SignatureError::Wrong);
        }
        self.last = sigver.sequence;
        Ok(SignatureResult::Verified)
    }
}

impl Connection {
    /// kXR_sigver: it has no answer. The request that it signs follows.
    #[inline(never)] // see `dispatch`
    pub(crate) fn sigver(&mut self, stream: StreamId, r: Sigver) -> Result<(), RequestError> {
        if r.signature.is_empty() {
            return Err(RequestError::new(ErrorNumber::ARG_INVALID, "The signature is empty"));
        }
        if let Some(signatures) = &mut self.signatures {
            signatures.hold(stream, r);
        }
        Ok(())
    }

    /// Whether this connection takes some requests only if they are signed.
    pub(crate) fn takes_signed(&self) -> bool {
        self.signatures.is_some()
    }

    /// Refuses a request whose payload says what is written where, and which nobody signs, if writes must be signed here.
    pub(crate) fn must_take_unsigned(&self, what: &str) -> Result<(), Error> {
        match &self.signatures {
            Some(signatures) if signatures.rules.cover_writes() => {
                let level = self.signing;
                Err(Error::unsupported(&format!("A {what} where writes must be signed (`signing` is `{level}`)")))
            }
            _ => Ok(()),
        }
    }

    /// Ends the connection after a request without the signature that it needs.
    #[inline(never)] // see `dispatch`
    pub(crate) fn refuse_signature(&mut self, header: &RequestHeader, why: SignatureError) -> Stop {
        self.front.meter.signature(SignatureResult::Refused);
        let kind = header.kind.name();
        let text = format!("The signature of the {kind} request does not count: {why}");
        self.audit_denial("signature", text.clone());
        self.refuse(header.stream, &RequestError::new(ErrorNumber::SIGNATURE, text));
        Stop::Signature(kind, why)
    }
}

/// Checks the signature of a request. On a connection without signatures all requests pass.
pub(crate) fn check(
    signatures: &mut Option<Box<Signatures>>,
    header: &RequestHeader,
    payload: &[u8],
) -> Result<SignatureResult, SignatureError> {
    match signatures {
        Some(signatures) if header.kind != RequestKind::Sigver => signatures.check(header, payload),
        _ => Ok(SignatureResult::NotNeeded),
    }
}

#[cfg(test)]
mod tests {
    use gsi::test_random::Numbers;
    use gsi::{ClientHandshake, ClientSecret, Delegation, ServerHandshake, ServerSecret, ServerStep};
    use wire::signing::{NO_DATA, SHA256, sequence_bytes};

    use super::*;

    const CERTIFICATE: &[u8] = include_bytes!("../../gsi/tests/data/server.pem");
    const KEY: &[u8] = include_bytes!("../../gsi/tests/data/server.key");
    const USER: &[u8] = include_bytes!("../../gsi/tests/data/user.pem");
    const USER_KEY: &[u8] = include_bytes!("../../gsi/tests/data/user.key");

    /// The keys of both sides after a login.
    fn keys(seed: u64) -> (SessionKey, SessionKey) {
        let random = &mut Numbers(seed);
        let server = ServerSecret::new(CERTIFICATE, KEY, random).unwrap();
        let client = ClientSecret::new(USER, USER_KEY).unwrap();
        let (mut at_client, first) =
            ClientHandshake::begin(&client, b"v:10700,c:ssl", Delegation::Never, random).unwrap();
        let mut at_server = ServerHandshake::new();
        let Ok(ServerStep::Reply(reply)) = at_server.step(&server, &first, random) else { panic!("no reply") };
        let second = at_client.show(&client, &reply, &|_| Ok(()), random).unwrap();
        let Ok(ServerStep::Presented(presented)) = at_server.step(&server, &second, random) else { panic!("no login") };
        (at_client.session_key().unwrap().clone(), presented.session_key)
    }

    fn header(kind: RequestKind, stream: u8, dlen: i32) -> RequestHeader {
        RequestHeader { stream: StreamId([0, stream]), kind, params: [0; 16], dlen }
    }

    /// Signs as a client does.
    fn signed(key: &SessionKey, header: &RequestHeader, payload: &[u8], sequence: u64) -> Sigver {
        let parts: [&[u8]; 3] = [&sequence_bytes(sequence), &header.to_bytes(), payload];
        let signature = key.sign(&parts, &mut Numbers(sequence)).unwrap();
        let flags = if payload.is_empty() { NO_DATA } else { 0 };
        Sigver { expect: header.kind, version: 0, flags, sequence, crypto: SHA256, signature }
    }

    #[test]
    fn a_signature_counts_once_for_what_it_was_made_for() {
        let (client, server) = keys(3);
        let mut signatures = Signatures::new(SigningLevel::Standard, server).unwrap();
        let rm = header(RequestKind::Rm, 1, 5);
        let mut check = |signature: Option<Sigver>, header: &RequestHeader, payload: &[u8]| {
            if let Some(signature) = signature {
                signatures.hold(header.stream, signature);
            }
            signatures.check(header, payload)
        };
        assert_eq!(check(None, &rm, b"/mine"), Err(SignatureError::Missing));
        let good = |sequence| Some(signed(&client, &rm, b"/mine", sequence));
        assert_eq!(check(good(1), &rm, b"/mine"), Ok(SignatureResult::Verified));
        assert_eq!(check(None, &rm, b"/mine"), Err(SignatureError::Missing), "it does not count for the next one");
        assert_eq!(check(good(1), &rm, b"/mine"), Err(SignatureError::Sequence { last: 1, given: 1 }));
        assert_eq!(check(good(5), &rm, b"/mine"), Ok(SignatureResult::Verified));
        assert_eq!(check(good(4), &rm, b"/mine"), Err(SignatureError::Sequence { last: 5, given: 4 }));
        // Another path, another header, another number, another key.
        assert_eq!(check(good(6), &rm, b"/keep"), Err(SignatureError::Wrong));
        let other = RequestHeader { params: [1; 16], ..rm };
        assert_eq!(check(good(6), &other, b"/mine"), Err(SignatureError::Wrong));
        let renumbered = good(6).map(|sigver| Sigver { sequence: 7, ..sigver });
        assert_eq!(check(renumbered, &rm, b"/mine"), Err(SignatureError::Wrong));
        let (stranger, _) = keys(4);
        assert_eq!(check(Some(signed(&stranger, &rm, b"/mine", 6)), &rm, b"/mine"), Err(SignatureError::Wrong));
        // The flag does not make a path free.
        let uncovered = signed(&client, &rm, b"", 6);
        assert_eq!(check(Some(uncovered), &rm, b"/mine"), Err(SignatureError::Uncovered));
        // What was refused has used up no number.
        assert_eq!(check(good(6), &rm, b"/mine"), Ok(SignatureResult::Verified));
    }

    #[test]
    fn requests_of_a_higher_level_pass() {
        let (client, server) = keys(3);
        let mut signatures = Signatures::new(SigningLevel::Standard, server.clone()).unwrap();
        let stat = header(RequestKind::Stat, 1, 2);
        assert_eq!(signatures.check(&stat, b"/a"), Ok(SignatureResult::NotNeeded));
        signatures.hold(stat.stream, signed(&client, &stat, b"/b", 1));
        assert_eq!(signatures.check(&stat, b"/a"), Ok(SignatureResult::Unneeded));
        assert!(Signatures::new(SigningLevel::None, server.clone()).is_none());
        assert_eq!(announcement(SigningLevel::Pedantic).unwrap().level, 4);
        // The data of a write are not covered.
        let mut signatures = Signatures::new(SigningLevel::Intense, server).unwrap();
        let write = header(RequestKind::Write, 1, 1 << 20);
        signatures.hold(write.stream, signed(&client, &write, b"", 1));
        assert_eq!(signatures.check(&write, b""), Ok(SignatureResult::Verified));
    }
}
