//! `weir bench agent`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::agent::{AgentEnd, AgentError, Allowed, Setting, run as work};
use bench::coordinate::Kind;
use bench::peer::Token;
use bench::run::now_secs;
use console::{Exit, Failure};

use super::{failed, flows, say, settings, token};
use crate::options::AgentOptions;

pub(super) fn run(args: &AgentOptions) -> Result<Exit, Failure> {
    let token =
        Token::read(&args.token_file, now_secs()).map_err(|error| Failure::new(token::exit_of(&error), error))?;
    let kind = match &args.system {
        Some(system) => Kind::Watcher { system: system.clone(), processes: args.processes.clone() },
        None => Kind::Agent,
    };
    let name = args.name.clone().unwrap_or_else(host_name);
    let stop = Arc::new(AtomicBool::new(false));
    console::signals::set_on_end(&stop).map_err(failed)?;
    let allowed = Allowed { files: args.files.clone(), tools: args.tools };
    let setting = Setting {
        join: args.join.clone(),
        token,
        name: name.clone(),
        kind,
        settings: settings(&stop),
        allowed,
        program: flows::program(),
        stop,
    };
    let mut joined = || say(&format!("{name} has joined the run at {}", setting.join));
    match work(&setting, &mut joined) {
        Ok(AgentEnd::Told(why)) => say(&format!("{name} leaves: {why}")),
        Ok(AgentEnd::Stopped) => say(&format!("{name} leaves: stopped here")),
        Err(error) => return Err(Failure::new(exit_of(&error), error)),
    }
    Ok(Exit::Done)
}

fn exit_of(error: &AgentError) -> Exit {
    match error {
        AgentError::Call { .. } | AgentError::Lost(_) => Exit::Unreachable,
        AgentError::Hello(_) | AgentError::Refused { .. } => Exit::Denied,
        AgentError::Frame(_) => Exit::Failed,
    }
}

/// The host name of this machine.
pub(super) fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "agent".to_owned() } else { name.trim().to_owned() }
}
