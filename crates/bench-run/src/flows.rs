//! `weir bench flows`: the server of a network test, and the processes of single flows.

use std::io::Write as _;
use std::net::ToSocketAddrs as _;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bench::network::{Listener, NetworkError, Program, ServerSettings, serve_flow};
use bench::peer::HelloError;
use console::{Exit, Failure};

use super::{failed, token, usage};
use crate::options::FlowsOptions;

/// The program that does one flow: this one, with a hidden command.
pub(super) fn program() -> Program {
    Program::this(&["bench", "flow-process"])
}

pub(super) fn serve(args: &FlowsOptions) -> Result<Exit, Failure> {
    let mut found = args.listen.to_socket_addrs().map_err(|error| {
        Failure::message(Exit::Usage, format!("`{}` is no address to listen on: {error}; give HOST:PORT", args.listen))
    })?;
    let listen =
        found.next().ok_or_else(|| Failure::message(Exit::Usage, format!("`{}` has no address", args.listen)))?;
    let token = token::read(args.token_file.as_deref())?;
    let settings = ServerSettings { listen, token, program: program() };
    let listener = Listener::bind(settings).map_err(|error| Failure::new(exit_of(&error), error))?;
    let stop = Arc::new(AtomicBool::new(false));
    console::signals::set_on_end(&stop).map_err(failed)?;
    let mut out = std::io::stdout();
    writeln!(out, "listening on {}", listener.local_addr().map_err(failed)?).map_err(failed)?;
    out.flush().map_err(failed)?;
    // Stderr may be closed.
    let tell = |text: String| drop(writeln!(std::io::stderr(), "{text}"));
    listener.serve(&stop, &tell).map_err(failed)?;
    Ok(Exit::Done)
}

/// The main function of a process for one flow. It receives its task over standard input, which is a socket.
pub(super) fn process() -> Result<Exit, Failure> {
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(failed)?;
    serve_flow(UnixStream::from(input)).map_err(usage)?;
    Ok(Exit::Done)
}

/// The exit code for flows that failed.
pub(super) fn exit_of(error: &NetworkError) -> Exit {
    match error {
        NetworkError::Listen { .. } | NetworkError::Open { .. } => Exit::Listen,
        NetworkError::Address { .. } | NetworkError::Spec(_) => Exit::Usage,
        NetworkError::Hello(
            HelloError::WrongToken { .. }
            | HelloError::NoToken { .. }
            | HelloError::Expired { .. }
            | HelloError::Refused { .. },
        ) => Exit::Denied,
        NetworkError::Connect { .. }
        | NetworkError::Hello(_)
        | NetworkError::Frame(_)
        | NetworkError::NoDatagrams { .. }
        | NetworkError::Silent { .. } => Exit::Unreachable,
        _ => Exit::Failed,
    }
}
