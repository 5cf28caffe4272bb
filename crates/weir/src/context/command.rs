//! `weir context`.

use std::io::{self, Read as _, Write as _};
use std::path::Path;

use link::Settings;
use link::admin::{AdminIdentity, Invitation, RedeemError, TrustedCluster, redeem};
use serde_json::json;

use super::{Context, ContextError, Contexts};
use crate::Failure;
use crate::cli::{ContextAddArgs, ContextArgs, ContextCommand, ContextListArgs};
use crate::exit::Exit;
use crate::serve::now;
use crate::table::table_lines;
use crate::time_text::show_time;

/// A longer file holds no invitation.
const INVITATION_MAX: u64 = 8 << 10;

/// Runs the command.
pub(crate) fn run(args: &ContextArgs) -> Result<Exit, Failure> {
    let contexts = Contexts::of_user().map_err(failed)?;
    match &args.command {
        ContextCommand::Add(args) => add(&contexts, args),
        ContextCommand::List(args) => list(&contexts, args),
        ContextCommand::Use(args) => {
            contexts.set_current(&args.name).map_err(failed)?;
            say(&[format!("{} is the current context", args.name)])
        }
        ContextCommand::Remove(args) => {
            contexts.remove(&args.name).map_err(failed)?;
            say(&[format!("context {} is removed", args.name)])
        }
    }
}

fn failed(error: ContextError) -> Failure {
    let exit = match &error {
        ContextError::NoHome | ContextError::Name(_) => Exit::Usage,
        ContextError::Unknown { .. } => Exit::NotFound,
        ContextError::Exists(_) => Exit::Exists,
        ContextError::Identity { .. } | ContextError::Io { .. } => Exit::Failed,
    };
    Failure::new(exit, error)
}

fn add(contexts: &Contexts, args: &ContextAddArgs) -> Result<Exit, Failure> {
    // The invitation works once: whatever would prevent keeping its context comes first, and so does the key.
    contexts.check_new(&args.name).map_err(failed)?;
    if let Some(authority) = args.authority {
        let cluster = TrustedCluster { authority, managers: args.manager.clone() };
        contexts.write_cluster(&args.name, &cluster).map_err(failed)?;
        let current = become_current(contexts, &args.name)?;
        return say(&[format!(
            "{} is a context{current}: commands show your bearer token there (BEARER_TOKEN, BEARER_TOKEN_FILE, $XDG_RUNTIME_DIR/bt_u$UID, /tmp/bt_u$UID) or your certificate (X509_USER_PROXY, X509_USER_CERT, /tmp/x509up_u$UID, ~/.globus)",
            args.name
        )]);
    }
    let text = match (&args.invite, &args.invite_file) {
        (Some(text), _) => text.0.clone(),
        (None, Some(file)) => read(file)?,
        (None, None) => return Err(Failure::message(Exit::Usage, "give the invitation: --invite or --invite-file")),
    };
    let invitation = Invitation::parse(&text).map_err(|error| Failure::new(Exit::Usage, error))?;
    let managers = if args.manager.is_empty() { invitation.addresses.clone() } else { args.manager.clone() };
    let key = contexts.key_for(&args.name, invitation.id).map_err(failed)?;
    let identity = redeem(&invitation, &key, &managers, &Settings::default()).map_err(|error| {
        let exit = match &error {
            RedeemError::Refused { .. } => Exit::Denied,
            RedeemError::Unreachable(_) => Exit::Unreachable,
            RedeemError::Identity(_) => Exit::Failed,
        };
        // Until it has expired, the manager may have recorded the key although it refuses or does not answer.
        if matches!(error, RedeemError::Refused { .. }) && invitation.expires <= now() {
            contexts.forget_key(invitation.id);
        }
        Failure::new(exit, error).while_doing("the invitation could not be redeemed")
    })?;
    contexts.write(&args.name, &identity).map_err(failed)?;
    contexts.forget_key(invitation.id);
    let current = become_current(contexts, &args.name)?;
    say(&[
        format!("{} is a context{current}: you are {} there, {}", args.name, identity.name(), identity.role()),
        format!("certificate until {}; commands renew it", time(&identity)),
    ])
}

/// Makes the first context the current one, and says so.
fn become_current(contexts: &Contexts, name: &str) -> Result<&'static str, Failure> {
    if contexts.current().map_err(failed)?.is_some() {
        return Ok("");
    }
    contexts.set_current(name).map_err(failed)?;
    Ok(", and the current one")
}

fn read(file: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read = match file.as_os_str().as_encoded_bytes() {
        b"-" => io::stdin().take(INVITATION_MAX).read_to_string(&mut text),
        _ => std::fs::File::open(file).and_then(|file| file.take(INVITATION_MAX).read_to_string(&mut text)),
    };
    read.map(|_| text).map_err(|error| {
        Failure::new(Exit::Usage, error).while_doing(format!("cannot read the invitation in {}", file.display()))
    })
}

fn list(contexts: &Contexts, args: &ContextListArgs) -> Result<Exit, Failure> {
    let current = contexts.current().map_err(failed)?;
    let (mut rows, mut all) = (Vec::new(), Vec::new());
    for name in contexts.names().map_err(failed)? {
        let is_current = current.as_deref() == Some(&name);
        // One file that cannot be read does not hide the others.
        match contexts.find_to_ask(&name) {
            Ok(None) => {}
            Ok(Some(Context::Person(TrustedCluster { authority, managers }))) => {
                let authority = authority.to_string();
                all.push(json!({ "name": name, "current": is_current, "authority": authority, "managers": managers }));
                let mark = if is_current { "*" } else { "" };
                let who = "by token or certificate".to_owned();
                rows.push(vec![mark.into(), name, who, "-".into(), "-".into(), managers.join(" ")]);
            }
            Ok(Some(Context::Certificate(identity))) => {
                let managers = identity.managers().join(" ");
                let role = identity.role().to_string();
                all.push(json!({
                    "name": name, "current": is_current, "administrator": identity.name(), "role": role,
                    "cluster": identity.subject().cluster.to_string(), "managers": identity.managers(),
                    "certificate_ends": identity.expires().secs(),
                }));
                let mark = if is_current { "*" } else { "" };
                rows.push(vec![mark.into(), name, identity.name().into(), role, time(&identity), managers]);
            }
            Err(error) => {
                all.push(json!({ "name": name, "current": is_current, "error": error.to_string() }));
                rows.push(vec![String::new(), name, error.to_string()]);
            }
        }
    }
    match (args.json, rows.is_empty()) {
        (true, _) => say(&[json!(all).to_string()]),
        (false, true) => say(&["there are no contexts; `weir context add NAME --invite-file FILE` makes one".into()]),
        (false, false) => {
            say(&table_lines(&["", "context", "you are", "role", "certificate until", "managers"], &rows))
        }
    }
}

fn time(identity: &AdminIdentity) -> String {
    show_time(u64::try_from(identity.expires().secs()).unwrap_or(0))
}

fn say(lines: &[String]) -> Result<Exit, Failure> {
    let mut out = io::stdout().lock();
    let said = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match said {
        // A closed reader (`| head`) is no error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Failed, error)),
        _ => Ok(Exit::Done),
    }
}
