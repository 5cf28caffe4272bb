//! Keys on the terminal: `q` stops the run.

use std::io::{self, IsTerminal as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::termios::{LocalModes, OptionalActions, Termios};

/// How often the thread checks whether it must end.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

/// Makes the terminal deliver keys as they are pressed, without echo, until this is dropped.
pub(super) struct Keys {
    before: Termios,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keys {
    /// `None` if there is no terminal, or another program has it in the foreground.
    pub(super) fn listen(stop: &Arc<AtomicBool>) -> Option<Self> {
        let stdin = io::stdin();
        let is_ours = rustix::termios::tcgetpgrp(&stdin).is_ok_and(|group| group == rustix::process::getpgrp());
        if !stdin.is_terminal() || !is_ours {
            return None;
        }
        let before = rustix::termios::tcgetattr(&stdin).ok()?;
        let mut raw = before.clone();
        raw.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        rustix::termios::tcsetattr(&stdin, OptionalActions::Now, &raw).ok()?;
        let ends = Arc::new(AtomicBool::new(false));
        let (stop, ended) = (Arc::clone(stop), Arc::clone(&ends));
        let thread = std::thread::Builder::new().name("keys".into()).spawn(move || hear(&stop, &ended));
        Some(Self { before, ends, thread: thread.ok() })
    }
}

fn hear(stop: &AtomicBool, ends: &AtomicBool) {
    let stdin = io::stdin();
    while !ends.load(Ordering::Relaxed) {
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        let mut key = [0; 1];
        match rustix::event::poll(&mut fds, Some(&LOOK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => match rustix::io::read(&stdin, &mut key) {
                Ok(1) if key == *b"q" || key == *b"Q" => stop.store(true, Ordering::Relaxed),
                Ok(1) | Err(rustix::io::Errno::INTR) => {}
                Ok(_) | Err(_) => return,
            },
            Err(_) => return,
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // A closed terminal needs no reset.
        let _ = rustix::termios::tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
    }
}
