//! Signals. `weir serve`: the first SIGTERM or SIGINT asks for a clean stop, the second ends the process at once; SIGHUP has the
//! configuration read again. Work that takes long: the first asks for its end, the second does not wait for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// What a signal asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A stop; the signal's name.
    Stop(&'static str),
    /// The configuration is to be read again.
    Reload,
}

/// From now on each SIGHUP and the first SIGTERM or SIGINT arrive at the receiver; each further one of the latter ends the process with
/// [`Exit::Unclean`].
pub fn catch() -> std::io::Result<Receiver<Asked>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = true;
        for signal in signals.forever() {
            let asked = match signal {
                SIGHUP => Asked::Reload,
                SIGTERM => Asked::Stop("SIGTERM"),
                _ => Asked::Stop("SIGINT"),
            };
            if let Asked::Stop(name) = asked {
                if !first {
                    tracing::warn!("{name} again: stopping at once; nothing acknowledged is lost");
                    std::process::exit(i32::from(Exit::Unclean.code()));
                }
                first = false;
            }
            if sender.send(asked).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}

/// From now on the first SIGTERM or SIGINT sets `flag`, for work that then ends by itself; the second ends the process at once, with the
/// code that shells give to a process that a signal has ended.
pub fn set_on_end(flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(flag))?;
        flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}
