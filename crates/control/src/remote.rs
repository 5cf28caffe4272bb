//! A command's side of an administrator's connection: the same request and answer as on the control socket, over TLS
//! with the administrator's certificate, or with a person's token or certificates before the request.

use std::collections::VecDeque;
use std::io::{self, BufReader, Write as _};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use link::admin::{
    AdminIdentity, AdminStream, TrustedCluster, connect_admin, connect_with_certificate, connect_with_token,
};
use link::{CloseCause, Fingerprint, LinkError, NewKey, Settings, active_manager, is_of_standby};
use types::Timestamp;

use super::client::{Answers, AskError, PATIENCE, answer_of_manager, line_of};
use super::{ControlRequest, LINE_MAX};

/// What a manager has answered.
pub struct Answered {
    /// The answer.
    pub value: serde_json::Value,
    /// The bytes that follow it.
    pub following: Answers,
    /// The authority of the manager's certificate. If it is not the one that was expected, that one vouches for it.
    pub authority: Option<Fingerprint>,
    /// The addresses of all managers, if the manager has told them: it does if there can be several.
    pub managers: Vec<String>,
}

impl std::fmt::Debug for Answered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Answered({}, ..)", self.value)
    }
}

/// Sends a request to a manager of `cluster` as `identity`.
///
/// # Errors
/// [`AskError`].
pub fn ask(cluster: &str, identity: &AdminIdentity, what: &ControlRequest) -> Result<Answered, AskError> {
    let connect = |manager: &str, settings: &Settings| connect_admin(identity, manager, settings, PATIENCE);
    ask_first(cluster, identity.managers(), "upgrade it", connect, |stream, at| {
        send(stream, at, &line_of(what).map_err(|source| AskError::Io { at: format!("manager {at}"), source })?)
    })
}

/// Sends a request to a manager of a cluster, and a bearer token with it, once the manager has shown that it is one of this cluster. `hint`: what
/// the user should know as well if the manager denies it.
///
/// # Errors
/// [`AskError`]. None contains the token.
pub fn ask_with_token(
    cluster: &str,
    trusted: &TrustedCluster,
    token: &str,
    what: &ControlRequest,
    hint: &str,
) -> Result<Answered, AskError> {
    let connect = |manager: &str, settings: &Settings| connect_with_token(trusted, manager, settings, PATIENCE);
    ask_first(cluster, &trusted.managers, "upgrade it, or use an invitation", connect, |stream, at| {
        let line = line(&TokenRequest { token: token.to_owned(), request: what.clone() });
        let line = line.map_err(|source| AskError::Io { at: format!("manager {at}"), source })?;
        send(stream, at, &line).map_err(|error| hinted(error, hint))
    })
}

/// A request with a bearer token, as it is sent.
#[derive(serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest<R = serde_json::Value> {
    /// The token.
    pub token: String,
    /// The request: a [`ControlRequest`].
    pub request: R,
}

// The token is never shown.
impl<R> std::fmt::Debug for TokenRequest<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TokenRequest(..)")
    }
}

impl TokenRequest {
    /// The token and the request in `line`; `None` if it is no such line.
    #[must_use]
    pub fn of_line(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// The line of the request, as [`crate::gate::serve`] takes it.
    #[must_use]
    pub fn request_line(&self) -> Vec<u8> {
        self.request.to_string().into_bytes()
    }
}

/// The certificates of a person, as commands show them.
pub trait Certificates {
    /// In DER form. The person has the key of the first one.
    fn chain(&self) -> &[Vec<u8>];

    /// Signs the value of a connection with that key.
    ///
    /// # Errors
    /// Why that fails, for people.
    fn sign(&self, binding: &[u8; 32]) -> Result<Vec<u8>, String>;
}

/// Sends a request to a manager of a cluster, with certificates of another authority. What it signs counts on this connection only. `hint`: what
/// the user should know as well if the manager denies it.
///
/// # Errors
/// [`AskError`].
pub fn ask_with_certificates(
    cluster: &str,
    trusted: &TrustedCluster,
    certificates: &dyn Certificates,
    what: &ControlRequest,
    hint: &str,
) -> Result<Answered, AskError> {
    let connect = |manager: &str, settings: &Settings| connect_with_certificate(trusted, manager, settings, PATIENCE);
    ask_first(cluster, &trusted.managers, "upgrade it, or use a token", connect, |stream, at| {
        send_with_certificates(stream, at, certificates, what).map_err(|error| hinted(error, hint))
    })
}

fn send_with_certificates(
    stream: AdminStream,
    at: &str,
    certificates: &dyn Certificates,
    what: &ControlRequest,
) -> Result<Answered, AskError> {
    let failed = |source: io::Error| AskError::Io { at: format!("manager {at}"), source };
    let signature = certificates.sign(&stream.binding().map_err(failed)?).map_err(AskError::Denied)?;
    let chain = certificates.chain().iter().map(|certificate| STANDARD.encode(certificate)).collect();
    let asked =
        CertificateRequest { certificates: chain, signature: STANDARD.encode(signature), request: what.clone() };
    let line = line(&asked).map_err(failed)?;
    if line.len() as u64 > LINE_MAX {
        return Err(AskError::Denied(format!(
            "the request with its certificates has {} bytes, and {LINE_MAX} is the limit: use a proxy with fewer certificates",
            line.len()
        )));
    }
    send(stream, at, &line)
}

/// A request with certificates, as it is sent: base64 of their DER form, and of a signature of the connection.
#[derive(Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CertificateRequest<R = serde_json::Value> {
    /// The certificates, the one whose key the person has first.
    certificates: Vec<String>,
    /// The signature of the connection's value with that key.
    signature: String,
    /// The request: a [`ControlRequest`].
    request: R,
}

/// What a [`CertificateRequest`] says of the person.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShownCertificates {
    /// The certificates in DER form.
    pub chain: Vec<Vec<u8>>,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Most certificates in a request.
const CERTIFICATES_MAX: usize = 16;

impl CertificateRequest {
    /// The certificates in `line`, and the line of the request, as [`crate::gate::serve`] takes it; `None` if it is no such line.
    #[must_use]
    pub fn of_line(line: &[u8]) -> Option<(ShownCertificates, Vec<u8>)> {
        let Self { certificates, signature, request } = serde_json::from_slice(line).ok()?;
        if certificates.len() > CERTIFICATES_MAX {
            return None;
        }
        let chain = certificates.iter().map(|text| STANDARD.decode(text).ok()).collect::<Option<_>>()?;
        let shown = ShownCertificates { chain, signature: STANDARD.decode(signature).ok()? };
        Some((shown, request.to_string().into_bytes()))
    }
}

fn line(asked: &impl serde::Serialize) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(asked)?;
    line.push(b'\n');
    Ok(line)
}

fn send(mut stream: AdminStream, at: &str, line: &[u8]) -> Result<Answered, AskError> {
    let authority = stream.authority();
    let failed = |source: io::Error| match source.kind() {
        // In TLS 1.3 the manager judges the certificate after this side has connected.
        io::ErrorKind::PermissionDenied => AskError::Denied(format!("{at}: {source}")),
        _ => AskError::Io { at: format!("manager {at}"), source },
    };
    stream.write_all(line).map_err(failed)?;
    let (value, managers, following) = answer_of_manager(Box::new(BufReader::new(stream)), &failed)?;
    Ok(Answered { value, following, authority, managers })
}

/// The error with the hint, if the manager denies something.
fn hinted(error: AskError, hint: &str) -> AskError {
    match error {
        AskError::Denied(why) => AskError::Denied(format!("{why}; {hint}")),
        other => other,
    }
}

/// How long the attempt to reach a manager takes before the next one is asked.
const NEXT_AFTER: Duration = Duration::from_secs(3);

/// Asks the first manager that can be reached and is no standby. A standby may know the active manager: that one is asked next, once. `send` sends the
/// request; what a standby refuses was not done. `instead`: what helps if they are of a version that does not know this kind of login.
fn ask_first<S, T>(
    cluster: &str,
    managers: &[String],
    instead: &str,
    connect: impl Fn(&str, &Settings) -> Result<S, LinkError>,
    send: impl Fn(S, &str) -> Result<T, AskError>,
) -> Result<T, AskError> {
    let mut errors: Vec<LinkError> = Vec::new();
    let (mut next, mut asked) = (managers.iter().cloned().collect::<VecDeque<String>>(), Vec::new());
    let (mut standby, mut has_followed) = (None, false);
    while let Some(manager) = next.pop_front() {
        if asked.contains(&manager) {
            continue;
        }
        let mut settings = Settings::default();
        if !next.is_empty() {
            settings.connect_time = NEXT_AFTER;
        }
        match connect(&manager, &settings) {
            Ok(stream) => match send(stream, &manager) {
                Err(AskError::Refused(why)) if is_of_standby(&why) => {
                    if let Some(active) = active_manager(&why).filter(|_| !has_followed) {
                        has_followed = true;
                        next.push_front(active.to_owned());
                    }
                    standby = Some(AskError::Refused(format!("{why} (asked at {manager})")));
                }
                done => return done,
            },
            Err(error) => errors.push(error),
        }
        asked.push(manager);
    }
    if let Some(refused) = standby {
        return Err(refused);
    }
    let why = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let is_refused = |error: &LinkError| {
        matches!(error.why, CloseCause::Certificate(_) | CloseCause::OurCertificate(_) | CloseCause::Misbehaved(_))
    };
    let knows_not = |error: &LinkError| matches!(error.why, CloseCause::UnknownKind);
    Err(if errors.iter().any(is_refused) {
        AskError::Denied(why)
    } else if errors.iter().any(knows_not) {
        AskError::Refused(format!("the manager does not know this kind of login; {instead} ({why})"))
    } else {
        AskError::Unreachable { cluster: cluster.to_owned(), why }
    })
}

/// Asks a manager for a new certificate, for a new key.
///
/// # Errors
/// Why there is none, for people.
pub fn renew(cluster: &str, identity: &AdminIdentity, now: Timestamp) -> Result<AdminIdentity, String> {
    let key = NewKey::draw().map_err(|error| error.to_string())?;
    let request = key.admin_renewal(identity.subject()).map_err(|error| error.to_string())?;
    let what = ControlRequest::AdminRenew { request };
    let answered = ask(cluster, identity, &what).map_err(|error| error.to_string())?;
    let certificate = answered.value.get("certificate").and_then(|text| text.as_str()).unwrap_or_default();
    identity.renewed(&key, certificate, now).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_with_a_token_is_read_back_and_never_shows_it() {
        let asked = TokenRequest { token: "a.b.c".into(), request: ControlRequest::PolicyGet { path: "/t".into() } };
        assert_eq!(format!("{asked:?}"), "TokenRequest(..)");
        let line = line(&asked).unwrap();
        assert!(line.ends_with(b"}\n") && line.iter().filter(|byte| **byte == b'\n').count() == 1);
        let read = TokenRequest::of_line(&line).unwrap();
        assert_eq!(read.token, "a.b.c");
        let request: ControlRequest = serde_json::from_slice(&read.request_line()).unwrap();
        assert_eq!(request, asked.request);
        for wrong in [
            &b""[..],
            b"\n",
            b"\xff\n",
            b"{\"ask\":\"stores\"}\n",
            b"{\"token\":1,\"request\":{}}",
            b"{\"token\":\"a\"}",
            b"{\"token\":\"a\",\"request\":{},\"more\":1}",
            b"{\"token\":\"a\",\"request\":{}} {}",
            &[b'['; 60_000],
        ] {
            assert!(TokenRequest::of_line(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }

    #[test]
    fn a_manager_that_does_not_know_the_login_is_not_called_unreachable() {
        let said = |causes: Vec<CloseCause>| {
            let managers: Vec<String> = (0..causes.len()).map(|number| format!("m{number}:1095")).collect();
            let causes = std::cell::RefCell::new(causes.into_iter());
            let connect = |peer: &str, _: &Settings| -> Result<(), LinkError> {
                let why = causes.borrow_mut().next().unwrap();
                Err(LinkError { peer: peer.to_owned(), why })
            };
            ask_first("lab", &managers, "use a token", connect, |(), _| Ok(())).unwrap_err()
        };
        let away = || CloseCause::Connect(io::ErrorKind::ConnectionRefused.into());
        let why = said(vec![away(), CloseCause::UnknownKind]).to_string();
        assert!(why.contains("does not know this kind of login; use a token (") && why.contains("m0:1095"), "{why}");
        assert!(matches!(said(vec![away()]), AskError::Unreachable { .. }));
        let other = CloseCause::Misbehaved("is node 2, which is no manager".into());
        assert!(matches!(said(vec![CloseCause::UnknownKind, other]), AskError::Denied(_)));
    }

    /// Asks managers, each of which is away (`None`), or answers with this refusal, or does it.
    fn asked(
        managers: &[&str],
        answers: &[(&str, Option<Result<(), &str>>)],
    ) -> (Result<String, AskError>, Vec<String>) {
        let managers: Vec<String> = managers.iter().map(|manager| (*manager).to_owned()).collect();
        let tried = std::cell::RefCell::new(Vec::new());
        let answer = |at: &str| answers.iter().find(|(manager, _)| *manager == at).and_then(|(_, answer)| *answer);
        let connect = |at: &str, settings: &Settings| {
            tried.borrow_mut().push(format!("{at} {}", settings.connect_time.as_secs()));
            let why = CloseCause::Connect(io::ErrorKind::ConnectionRefused.into());
            answer(at).map(drop).ok_or(LinkError { peer: at.to_owned(), why })
        };
        let send = |(), at: &str| match answer(at) {
            Some(Err(why)) => Err(AskError::Refused(why.to_owned())),
            _ => Ok(at.to_owned()),
        };
        let done = ask_first("lab", &managers, "", connect, send);
        (done, tried.into_inner())
    }

    #[test]
    fn the_active_manager_is_found() {
        let (of_b, of_nobody) = (link::standby_reason(Some("b:1")), link::standby_reason(None));
        let (standby, lost) = (Some(Err(of_b.as_str())), Some(Err(of_nobody.as_str())));
        let (done, tried) = asked(&["a:1", "b:1"], &[("a:1", None), ("b:1", Some(Ok(())))]);
        assert_eq!((done.unwrap().as_str(), tried), ("b:1", vec!["a:1 3".to_owned(), "b:1 10".to_owned()]));
        // It is in no list of the user's.
        let (done, tried) = asked(&["a:1"], &[("a:1", standby), ("b:1", Some(Ok(())))]);
        assert_eq!((done.unwrap().as_str(), tried.len()), ("b:1", 2));
        // The standby is wrong, and the rest of the list is asked.
        let (done, tried) = asked(&["a:1", "c:1"], &[("a:1", standby), ("b:1", None), ("c:1", Some(Ok(())))]);
        assert_eq!((done.unwrap().as_str(), tried.len()), ("c:1", 3));
        // None is active, and each is asked once.
        let (done, tried) = asked(&["a:1", "b:1"], &[("a:1", standby), ("b:1", standby)]);
        assert!(done.unwrap_err().to_string().contains("the active one is b:1 (asked at b:1)"));
        assert_eq!(tried.len(), 2);
        let (done, _) = asked(&["a:1", "b:1"], &[("a:1", lost), ("b:1", None)]);
        assert!(matches!(done.unwrap_err(), AskError::Refused(why) if why.contains("does not know the active one")));
        // Another refusal is an answer.
        let (done, tried) = asked(&["a:1", "b:1"], &[("a:1", Some(Err("no room"))), ("b:1", Some(Ok(())))]);
        assert!(matches!(done.unwrap_err(), AskError::Refused(why) if why == "no room"));
        assert_eq!(tried.len(), 1);
    }

    #[test]
    fn a_request_with_certificates_is_read_back_and_bounded() {
        let asked = |count| CertificateRequest {
            certificates: vec![STANDARD.encode([7; 100]); count],
            signature: STANDARD.encode([8; 256]),
            request: ControlRequest::PolicyGet { path: "/t".into() },
        };
        let sent = line(&asked(CERTIFICATES_MAX)).unwrap();
        assert!(sent.ends_with(b"}\n") && sent.iter().filter(|byte| **byte == b'\n').count() == 1);
        let (shown, request) = CertificateRequest::of_line(&sent).unwrap();
        assert_eq!((shown.chain, shown.signature), (vec![vec![7; 100]; CERTIFICATES_MAX], vec![8; 256]));
        assert_eq!(serde_json::from_slice::<ControlRequest>(&request).unwrap(), asked(0).request);
        assert!(CertificateRequest::of_line(&line(&asked(CERTIFICATES_MAX + 1)).unwrap()).is_none());
        for wrong in [
            &b""[..],
            b"{\"ask\":\"stores\"}\n",
            b"{\"token\":\"a\",\"request\":{}}",
            b"{\"certificates\":[\"!\"],\"signature\":\"\",\"request\":{}}",
            b"{\"certificates\":[],\"signature\":\"!\",\"request\":{}}",
            b"{\"certificates\":[],\"signature\":\"\"}",
            b"{\"certificates\":[],\"signature\":\"\",\"request\":{},\"more\":1}",
            &[b'['; 60_000],
        ] {
            assert!(CertificateRequest::of_line(wrong).is_none(), "{}", wrong.escape_ascii());
        }
    }
}
