//! A command's side of an administrator's connection: the same request and answer as on the control socket, over TLS
//! with the administrator's certificate.

use std::io::{self, BufReader, Write as _};

use link::admin::{AdminIdentity, AdminStream, connect_admin};
use link::{CloseCause, LinkError, NewKey, Settings};
use types::Timestamp;

use super::ControlRequest;
use super::client::{Answers, AskError, PATIENCE, answer, line_of};

/// Sends a request to a manager of `cluster` as `identity`. Returns the answer and a reader of the bytes that follow
/// it.
///
/// # Errors
/// [`AskError`].
pub fn ask(
    cluster: &str,
    identity: &AdminIdentity,
    what: &ControlRequest,
) -> Result<(serde_json::Value, Answers), AskError> {
    let (mut stream, at) = connect(cluster, identity)?;
    let failed = |source: io::Error| match source.kind() {
        // In TLS 1.3 the manager judges the certificate after this side has connected.
        io::ErrorKind::PermissionDenied => AskError::Denied(format!("{at}: {source}")),
        _ => AskError::Io { at: format!("manager {at}"), source },
    };
    stream.write_all(&line_of(what).map_err(failed)?).map_err(failed)?;
    answer(Box::new(BufReader::new(stream)), &failed)
}

fn connect<'a>(cluster: &str, identity: &'a AdminIdentity) -> Result<(AdminStream, &'a str), AskError> {
    let mut errors: Vec<LinkError> = Vec::new();
    for manager in identity.managers() {
        match connect_admin(identity, manager, &Settings::default(), PATIENCE) {
            Ok(stream) => return Ok((stream, manager)),
            Err(error) => errors.push(error),
        }
    }
    let why = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let is_refused = |error: &LinkError| {
        matches!(error.why, CloseCause::Certificate(_) | CloseCause::OurCertificate(_) | CloseCause::Misbehaved(_))
    };
    match errors.iter().any(is_refused) {
        true => Err(AskError::Denied(why)),
        false => Err(AskError::Unreachable { cluster: cluster.to_owned(), why }),
    }
}

/// Asks a manager for a new certificate, for a new key.
///
/// # Errors
/// Why there is none, for people.
pub fn renew(cluster: &str, identity: &AdminIdentity, now: Timestamp) -> Result<AdminIdentity, String> {
    let key = NewKey::draw().map_err(|error| error.to_string())?;
    let request = key.admin_renewal(identity.subject()).map_err(|error| error.to_string())?;
    let what = ControlRequest::AdminRenew { request };
    let (answer, _) = ask(cluster, identity, &what).map_err(|error| error.to_string())?;
    let certificate = answer.get("certificate").and_then(|text| text.as_str()).unwrap_or_default();
    identity.renewed(&key, certificate, now).map_err(|error| error.to_string())
}
