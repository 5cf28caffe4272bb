//! `weir bench token`: a secret for the processes of a measurement.

use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

use bench::peer::{Secret, Token, TokenError};
use bench::run::now_secs;
use console::{Exit, Failure};

use super::failed;
use crate::options::TokenOptions;

pub(super) fn make(args: &TokenOptions) -> Result<Exit, Failure> {
    let secret = Secret::draw().map_err(failed)?;
    let lifetime = Duration::from_secs(3600 * u64::from(args.hours));
    Token::new(secret, now_secs(), lifetime).write(&args.file).map_err(|error| Failure::new(exit_of(&error), error))?;
    let mut out = std::io::stdout().lock();
    writeln!(
        out,
        "{}: valid for {} h. Copy it to all machines of the measurement, and keep it secret.",
        args.file.display(),
        args.hours
    )
    .map_err(failed)?;
    Ok(Exit::Done)
}

/// The exit code for a token that cannot be read.
pub(super) fn exit_of(error: &TokenError) -> Exit {
    use std::io::ErrorKind as Kind;
    match error {
        TokenError::Io { source, .. } => match source.kind() {
            Kind::NotFound => Exit::NotFound,
            Kind::AlreadyExists => Exit::Exists,
            Kind::PermissionDenied => Exit::Denied,
            Kind::StorageFull => Exit::NoSpace,
            _ => Exit::Failed,
        },
        TokenError::Readable { .. } | TokenError::Expired { .. } => Exit::Denied,
        TokenError::NoFile(_) | TokenError::Syntax { .. } => Exit::Usage,
    }
}

/// Reads the token in a file; without a file, it is the well-known default token.
pub(super) fn read(file: Option<&Path>) -> Result<Token, Failure> {
    let Some(file) = file else { return Ok(Token::open()) };
    Token::read(file, now_secs()).map_err(|error| Failure::new(exit_of(&error), error))
}
