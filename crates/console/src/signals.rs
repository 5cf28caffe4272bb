//! Signals. For `weir serve`, the first SIGTERM or SIGINT asks for a clean stop and the second ends the process at once; SIGHUP reloads the
//! configuration. For long work, the first signal asks for its end and the second does not wait for it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// The meaning of a signal.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// Stop; with the signal's name.
    Stop(&'static str),
    /// Reload the configuration.
    Reload,
}

/// From now on each SIGHUP and the first SIGTERM or SIGINT arrive at the receiver. A further SIGTERM or SIGINT ends the process with
/// [`Exit::Unclean`].
pub fn catch() -> std::io::Result<Receiver<Signal>> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = true;
        for signal in signals.forever() {
            let asked = match signal {
                SIGHUP => Signal::Reload,
                SIGTERM => Signal::Stop("SIGTERM"),
                _ => Signal::Stop("SIGINT"),
            };
            if let Signal::Stop(name) = asked {
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

/// From now on the first SIGTERM or SIGINT sets `flag`, and the work must end itself. The second ends the process at once, with the code
/// that shells report for a signal.
pub fn set_on_end(flag: &Arc<AtomicBool>) -> std::io::Result<()> {
    for signal in [SIGTERM, SIGINT] {
        // In this order: the first signal finds the flag unset.
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(flag))?;
        flag::register(signal, Arc::clone(flag))?;
    }
    Ok(())
}
