//! One thread that sends what sockets did not take at once, so that neither the responder nor a connection's thread
//! has to wait for a slow client. It also cuts off clients that take nothing at all.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::outgoing::Outgoing;

/// The hand-over to the drainer's thread.
pub(crate) struct Drainer {
    arrived: Mutex<Arrived>,
    wake: OwnedFd,
    patience: Mutex<Duration>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct Arrived {
    connections: Vec<Arc<Outgoing>>,
    stopping: bool,
}

impl Drainer {
    /// Starts the thread; a client that takes nothing for `patience` is cut off.
    pub(crate) fn start(patience: Duration) -> std::io::Result<Arc<Self>> {
        let drainer = Arc::new(Self {
            arrived: Mutex::new(Arrived { connections: Vec::new(), stopping: false }),
            wake: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            patience: Mutex::new(patience),
            thread: Mutex::new(None),
        });
        let inner = Arc::clone(&drainer);
        let thread =
            std::thread::Builder::new().name("drainer".into()).stack_size(256 << 10).spawn(move || inner.run())?;
        *drainer.thread.lock() = Some(thread);
        Ok(drainer)
    }

    /// A client that takes too little for `patience` is cut off from now on.
    pub(crate) fn set_patience(&self, patience: Duration) {
        *self.patience.lock() = patience;
    }

    /// Takes over what `connection` has pending.
    pub(crate) fn watch(&self, connection: Arc<Outgoing>) {
        self.arrived.lock().connections.push(connection);
        self.ring();
    }

    fn ring(&self) {
        // Full means that it is rung already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether the thread has ended, which it does not by itself.
    pub(crate) fn ended(&self) -> bool {
        self.thread.lock().as_ref().is_some_and(JoinHandle::is_finished)
    }

    pub(crate) fn stop(&self) {
        self.arrived.lock().stopping = true;
        self.ring();
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the drainer had panicked");
        }
    }

    fn run(&self) {
        let mut watched: Vec<Arc<Outgoing>> = Vec::new();
        let tick = Timespec { tv_sec: 1, tv_nsec: 0 };
        loop {
            {
                let mut arrived = self.arrived.lock();
                if arrived.stopping {
                    return;
                }
                watched.append(&mut arrived.connections);
            }
            let sockets: Vec<&TcpStream> = watched.iter().map(|c| c.socket()).collect();
            let mut fds: Vec<PollFd<'_>> = vec![PollFd::new(&self.wake, PollFlags::IN)];
            fds.extend(sockets.iter().map(|socket| PollFd::new(*socket, PollFlags::OUT)));
            let timeout = if watched.is_empty() { None } else { Some(&tick) };
            if rustix::event::poll(&mut fds, timeout).is_err() {
                // Interrupted, or out of memory for a moment: the next round looks again.
                std::thread::sleep(Duration::from_millis(1));
            }
            drop(fds);
            drop(sockets);
            let mut rung = [0u8; 8];
            let _ = rustix::io::read(&self.wake, &mut rung);
            let now = Instant::now();
            let patience = *self.patience.lock();
            watched.retain(|connection| {
                let work = std::panic::AssertUnwindSafe(|| connection.drain(now, patience));
                std::panic::catch_unwind(work).unwrap_or_else(|_| {
                    tracing::error!("sending to a client panicked; its connection is cut");
                    connection.cut();
                    false
                })
            });
        }
    }
}
