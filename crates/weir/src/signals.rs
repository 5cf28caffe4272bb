//! SIGTERM and SIGINT: the first asks for a clean stop, the second ends the process at once.

use std::sync::mpsc::{Receiver, channel};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::exit::Exit;

/// A stop that was asked for: the signal's name.
pub type Stop = &'static str;

/// From now on the first SIGTERM or SIGINT arrives at the receiver; each further one ends the process with
/// [`Exit::Unclean`].
pub fn catch() -> std::io::Result<Receiver<Stop>> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let (sender, receiver) = channel();
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        let mut first = true;
        for signal in signals.forever() {
            let name = if signal == SIGTERM { "SIGTERM" } else { "SIGINT" };
            if !first {
                tracing::warn!("{name} again: stopping at once; nothing acknowledged is lost");
                std::process::exit(i32::from(Exit::Unclean.code()));
            }
            first = false;
            if sender.send(name).is_err() {
                return;
            }
        }
    })?;
    Ok(receiver)
}
