//! auth: the client shows who it is, by one of the mechanisms that the answer to its login has offered.
//!
//! The formats are those of the stock plug-ins: `TokenHdr` and `TokenResp` in `XrdSecProtocolztn.cc`, and
//! `getCredentials` in `XrdSecProtocolunix.cc` and `XrdSecProtocolhost.cc`. Those of `gsi` and `sss` are in the crates of these
//! names.

use std::net::IpAddr;
use std::time::SystemTime;

use authentication::{
    Authenticated, AuthenticationError, Authenticator, ErrorKind, LoginStep, Mechanism, Requests, SSS_OFFER,
    SigningLevel,
};
use service::{Caller, Login};
use types::{ClientIdentity, ErrorCode, Timestamp};
use wire::request::{Auth, Request};
use wire::{ErrorNumber, ResponseStatus, StreamId};

use crate::connection::{Connection, Stop};
use crate::requests::session::tls_required;
use crate::signatures::Signatures;
use crate::to_wire::RequestError;

/// A connection that has shown so many bad credentials ends.
const REFUSALS_MAX: u32 = 6;
/// The longest token, as the server offers it. A stock client shows no longer one.
const TOKEN_BYTES_MAX: usize = 4096;

/// Why a client is not who it says.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the mechanism `{0}` is not offered here")]
    NotOffered(String),
    #[error("the credential is not one for `{0}`")]
    Malformed(&'static str),
    #[error(
        "the client asks for the issuers that are trusted here, instead of showing a token; get one first, and see BEARER_TOKEN"
    )]
    AsksForIssuers,
    #[error(transparent)]
    Authentication(#[from] AuthenticationError),
}

/// The mechanisms that a client at `peer` may use, where requests must be signed at this level.
fn usable(authenticator: &Authenticator, peer: IpAddr, is_encrypted: bool, signing: SigningLevel) -> Vec<Mechanism> {
    let may = |mechanism: &Mechanism| {
        is_protected(*mechanism, peer, is_encrypted, signing) && authenticator.check_mechanism(*mechanism, peer).is_ok()
    };
    authenticator.mechanisms().iter().filter(may).collect()
}

/// Whether what somebody on the way could do after a login by this mechanism is prevented as well as the configuration wants.
fn is_protected(mechanism: Mechanism, peer: IpAddr, is_encrypted: bool, signing: SigningLevel) -> bool {
    match mechanism {
        _ if is_encrypted => true,
        // Nobody shows a token in the clear.
        Mechanism::Ztn => false,
        // Somebody on the way could take the mechanisms with a key out of the offer, so that the client signs nothing. Nobody is on
        // the way to a client on this machine.
        mechanism => signing == SigningLevel::None || mechanism.gives_key() || peer.to_canonical().is_loopback(),
    }
}

/// The offer of `mechanisms` in the answer to a login.
fn offer(mechanisms: &[Mechanism], gsi_parameters: Option<&str>, kerberos_service: Option<&str>) -> Vec<u8> {
    let mut text = Vec::new();
    for &mechanism in mechanisms {
        text.extend_from_slice(b"&P=");
        text.extend_from_slice(mechanism.name().as_bytes());
        if mechanism == Mechanism::Ztn {
            // The version and the options, and the longest token.
            text.extend_from_slice(format!(",0:{TOKEN_BYTES_MAX}:").as_bytes());
        }
        if mechanism == Mechanism::Sss {
            text.push(b',');
            text.extend_from_slice(SSS_OFFER.as_bytes());
        }
        if let Some(service) = kerberos_service.filter(|_| mechanism == Mechanism::Krb5) {
            text.extend_from_slice(format!(",{service}").as_bytes());
        }
        if let Some(parameters) = gsi_parameters.filter(|_| mechanism == Mechanism::Gsi) {
            text.extend_from_slice(format!(",{parameters}").as_bytes());
        }
    }
    text
}

impl Connection {
    /// What the answer to login offers the client to show who it is. Nothing: it need not.
    pub(crate) fn offered(&self) -> Result<Vec<u8>, RequestError> {
        let Some(authenticator) = self.front.config.authenticator.as_ref().filter(|_| !self.logged_in) else {
            return Ok(Vec::new());
        };
        let peer = self.session.peer.ip();
        let mechanisms = usable(authenticator, peer, self.out.is_encrypted(), self.signing);
        if !mechanisms.is_empty() {
            let (gsi, kerberos) = (authenticator.gsi_parameters(), authenticator.kerberos_service());
            return Ok(offer(&mechanisms, gsi.as_deref(), kerberos.as_deref()));
        }
        if !usable(authenticator, peer, true, self.signing).is_empty() {
            return Err(tls_required("This server takes credentials"));
        }
        let text = format!(
            "Clients at {} cannot show here who they are: the server offers them no mechanism",
            peer.to_canonical()
        );
        Err(RequestError::new(ErrorNumber::NOT_AUTHORIZED, text))
    }

    /// kXR_auth.
    #[inline(never)] // see `dispatch`
    pub(crate) fn auth(&mut self, stream: StreamId, r: &Auth) -> Result<Result<(), RequestError>, Stop> {
        let Some(client) = &self.pending else {
            let text = match (&self.front.config.authenticator, self.logged_in) {
                (None, _) => "This server asks nobody for credentials",
                (Some(_), false) => "Log in first",
                (Some(_), true) => "This session has shown already who it is",
            };
            return Ok(Err(RequestError::new(ErrorNumber::INVALID_REQUEST, text)));
        };
        let client = client.clone();
        // Keys of an issuer may have to be fetched.
        self.out.leave()?;
        let authenticated = self.authenticate(r);
        self.out.back();
        match authenticated {
            Ok(LoginStep::More(reply)) => {
                self.send_frame(stream, ResponseStatus::AuthMore, &reply, None)?;
                Ok(Ok(()))
            }
            Ok(LoginStep::Done(authenticated)) => {
                // If the namespace cannot be changed at present, the client may try again.
                if let Err(request_error) = self.admit(authenticated, client) {
                    return Ok(Err(request_error));
                }
                let _ = self.ok(stream, |_| ());
                self.seal_session()?;
                Ok(Ok(()))
            }
            Err(why) => self.refuse_credential(stream, r, &why),
        }
    }

    fn authenticate(&mut self, r: &Auth) -> Result<LoginStep, Refused> {
        // Another mechanism, or an error, ends a login that has begun.
        let begun = self.login.take();
        let name = r.method.split(|&byte| byte == 0).next().unwrap_or_default();
        let not_offered = || Refused::NotOffered(name.escape_ascii().to_string());
        let authenticator = self.front.config.authenticator.clone().ok_or_else(not_offered)?;
        let peer = self.session.peer.ip();
        let mut mechanisms = usable(&authenticator, peer, self.out.is_encrypted(), self.signing).into_iter();
        let mechanism = mechanisms.find(|mechanism| mechanism.name().as_bytes() == name).ok_or_else(not_offered)?;
        Ok(LoginStep::Done(match mechanism {
            Mechanism::Gsi => {
                let mut login = match begun {
                    Some(login) => login,
                    None => {
                        let is_protected = self.out.is_encrypted() || self.signing != SigningLevel::None;
                        let requests = if is_protected { Requests::Protected } else { Requests::Plain };
                        Box::new(authenticator.gsi(peer, requests)?)
                    }
                };
                let step = login.step(&r.credentials)?;
                if matches!(step, LoginStep::More(_)) {
                    self.login = Some(login);
                }
                return Ok(step);
            }
            Mechanism::Ztn => authenticator.token(token_of(&r.credentials)?, peer)?,
            Mechanism::Unix => {
                let (user, group) = local_user_of(&r.credentials)?;
                authenticator.unix(user, &group.into_iter().collect::<Vec<_>>(), peer)?
            }
            Mechanism::Host => authenticator.host(None, peer)?,
            Mechanism::Sss => authenticator.secret(&r.credentials, peer)?,
            Mechanism::Krb5 => authenticator.ticket(&r.credentials, peer)?,
        }))
    }

    /// From now on the session acts as its principal.
    fn admit(&mut self, authenticated: Authenticated, client: ClientIdentity) -> Result<(), RequestError> {
        let Authenticated { name, groups, rights, credential, mechanism, by, expires, session_key, delegated, .. } =
            authenticated;
        let caller = self.session.open.caller();
        let principal = self.front.service.principal(&name, &groups, rights).inspect_err(|error| {
            let caller = caller.with_client(client.clone());
            let why = (error.code(), error.text().to_owned());
            self.front.service.login_refused(&caller, Some(mechanism.name().into()), why);
        })?;
        tracing::debug!(client = %self.session, principal = %name, credential, %by, "authenticated");
        let login = Login { mechanism: mechanism.name(), credential, delegated };
        let caller = caller.with_principal(&principal).with_login(login);
        self.pending = None;
        self.expires = expires;
        self.signatures = session_key.and_then(|key| Signatures::new(self.signing, key)).map(Box::new);
        self.enter(caller, client);
        Ok(())
    }

    fn refuse_credential(
        &mut self,
        stream: StreamId,
        r: &Auth,
        why: &Refused,
    ) -> Result<Result<(), RequestError>, Stop> {
        let number = match why {
            Refused::Authentication(error) if error.kind() == ErrorKind::Unavailable => ErrorNumber::SERVER_ERROR,
            _ => ErrorNumber::AUTH_FAILED,
        };
        // It is filled up with NULs.
        let name = r.method.split(|&byte| byte == 0).next().unwrap_or_default().escape_ascii().to_string();
        let reason = match &why {
            Refused::Authentication(error) => error.for_log(),
            why => why.to_string(),
        };
        self.complain(wire::RequestKind::Auth, &format_args!("the client is not let in: {reason}"));
        tracing::debug!(client = %self.session, mechanism = %name, reason, "credential refused");
        let caller = self.session.open.caller();
        let caller = self.pending.clone().map_or_else(|| Caller::clone(&caller), |client| caller.with_client(client));
        let code = if number == ErrorNumber::AUTH_FAILED { ErrorCode::Denied } else { ErrorCode::Unavailable };
        self.front.service.login_refused(&caller, Some(name), (code, reason));
        self.refuse(stream, &RequestError::new(number, format!("Not let in: {why}")));
        self.refused += 1;
        if self.refused >= REFUSALS_MAX { Err(Stop::BadCredentials(self.refused)) } else { Ok(Ok(())) }
    }

    /// The refusal of a request that begins something, after the credential of the session has ended. Open files stay open.
    pub(crate) fn after_its_credential(&self, request: &Request) -> Option<RequestError> {
        let expires = self.expires?;
        let begins = !matches!(
            request,
            Request::Read(_)
                | Request::Pgread(_)
                | Request::Readv(_)
                | Request::Write(_)
                | Request::Pgwrite(_)
                | Request::Writev(_)
                | Request::Sync(_)
                | Request::Close(_)
                | Request::Chkpoint(_)
                | Request::Endsess(_)
                | Request::Ping
                | Request::Sigver(_)
        );
        (begins && Timestamp::from(SystemTime::now()) >= expires).then(|| {
            let text = format!("Your credential ended at {expires}: get a new one, and connect again");
            RequestError::new(ErrorNumber::NOT_AUTHORIZED, text)
        })
    }
}

/// The token in a credential of `ztn`: `ztn`, NUL, version 0, `T`, two bytes, the length with the NUL at its end, the
/// token, NUL.
fn token_of(credential: &[u8]) -> Result<&[u8], Refused> {
    let malformed = || Refused::Malformed("ztn");
    let rest = credential.strip_prefix(b"ztn\0\0").ok_or_else(malformed)?;
    let (operation, rest) = rest.split_first().ok_or_else(malformed)?;
    match operation {
        b'T' => {}
        b'S' => return Err(Refused::AsksForIssuers),
        _ => return Err(malformed()),
    }
    let [_, _, high, low, rest @ ..] = rest else { return Err(malformed()) };
    let len = usize::from(u16::from_be_bytes([*high, *low]));
    let (token, nul) =
        rest.get(..len).and_then(|text| text.split_at_checked(len.checked_sub(1)?)).ok_or_else(malformed)?;
    if nul != [0] || token.is_empty() || token.len() > TOKEN_BYTES_MAX || token.contains(&0) {
        return Err(malformed());
    }
    Ok(token)
}

/// The user and the group in a credential of `unix`: `unix`, NUL, the user, and a blank and the group if it has one, NUL.
fn local_user_of(credential: &[u8]) -> Result<(&str, Option<&str>), Refused> {
    let malformed = || Refused::Malformed("unix");
    let rest = credential.strip_prefix(b"unix\0").ok_or_else(malformed)?;
    let text = rest.split(|&byte| byte == 0).next().unwrap_or_default();
    let text = std::str::from_utf8(text).map_err(|_| malformed())?.trim_matches(' ');
    let (user, group) = text.split_once(' ').map_or((text, None), |(user, group)| (user, Some(group.trim())));
    if user.is_empty() { Err(malformed()) } else { Ok((user, group.filter(|group| !group.is_empty()))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_requests_must_be_signed_nobody_logs_in_without_a_key_in_the_clear() {
        let far: IpAddr = "192.0.2.7".parse().unwrap();
        let names = |peer: IpAddr, is_encrypted, signing| {
            let usable = Mechanism::ALL.into_iter().filter(|one| is_protected(*one, peer, is_encrypted, signing));
            usable.map(Mechanism::name).collect::<Vec<_>>().join(" ")
        };
        for signing in &SigningLevel::ALL[1..] {
            assert_eq!(names(far, false, *signing), "gsi");
            assert_eq!(names(far, true, *signing), "ztn gsi sss krb5 unix host");
            for near in ["127.0.0.1", "::1", "::ffff:127.0.0.1"] {
                assert_eq!(names(near.parse().unwrap(), false, *signing), "gsi sss krb5 unix host");
            }
        }
        assert_eq!(names(far, false, SigningLevel::None), "gsi sss krb5 unix host");
    }

    #[test]
    fn the_offer_is_as_stock_clients_expect_it() {
        let all = [Mechanism::Ztn, Mechanism::Sss, Mechanism::Unix];
        assert_eq!(offer(&all, None, None), b"&P=ztn,0:4096:&P=sss,0.+13:&P=unix");
        let gsi = offer(&[Mechanism::Gsi, Mechanism::Host], Some("v:10600,c:ssl,ca:5168735f.0"), None);
        assert_eq!(gsi, b"&P=gsi,v:10600,c:ssl,ca:5168735f.0&P=host");
        let krb5 = offer(&[Mechanism::Krb5, Mechanism::Unix], None, Some("xrootd/a.org@A.ORG"));
        assert_eq!(krb5, b"&P=krb5,xrootd/a.org@A.ORG&P=unix");
        assert!(offer(&[], None, None).is_empty());
    }

    #[test]
    fn tokens_are_taken_out_of_their_frame() {
        let framed = |token: &[u8]| {
            let len = u16::try_from(token.len() + 1).unwrap().to_be_bytes();
            [b"ztn\0\0T\0\0", &len[..], token, b"\0"].concat()
        };
        assert_eq!(token_of(&framed(b"a.b.c")).unwrap(), b"a.b.c");
        // Stock clients add a byte.
        assert_eq!(token_of(&[framed(b"a.b.c"), vec![0; 2]].concat()).unwrap(), b"a.b.c");
        assert!(token_of(&framed(&[b'x'; TOKEN_BYTES_MAX])).is_ok());
        let good = framed(b"a.b.c");
        for wrong in [
            framed(b""),
            framed(b"a\0b"),
            framed(&[b'x'; TOKEN_BYTES_MAX + 1]),
            b"ztn\0\x01T\0\0\0\x02a\0".to_vec(),
            b"ztn\0\0T\0\0\0\0".to_vec(),
            b"ztn\0\0T\0\0\0\x02ab".to_vec(),
            b"unix\0ana\0".to_vec(),
        ] {
            assert!(token_of(&wrong).is_err(), "{}", wrong.escape_ascii());
        }
        for end in 0..good.len() {
            assert!(token_of(&good[..end]).is_err(), "{end}");
        }
        assert!(matches!(token_of(b"ztn\0\0S\0\0"), Err(Refused::AsksForIssuers)));
    }

    #[test]
    fn local_users_are_as_stock_clients_send_them() {
        assert_eq!(local_user_of(b"unix\0ana atlas\0").unwrap(), ("ana", Some("atlas")));
        assert_eq!(local_user_of(b"unix\0ana").unwrap(), ("ana", None));
        assert_eq!(local_user_of(b"unix\0 ana \0").unwrap(), ("ana", None));
        for wrong in [&b"unix"[..], b"unix\0", b"unix\0 \0", b"unix\0\xff\0", b"host\0"] {
            assert!(local_user_of(wrong).is_err(), "{}", wrong.escape_ascii());
        }
    }
}
