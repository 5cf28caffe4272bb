//! A thread that sends the data that sockets did not take at once. So neither the responder nor a connection's thread
//! waits for a slow client. It also disconnects clients that take too little.

use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

use crate::outgoing::Outgoing;

/// The queue of the drainer's thread.
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
    /// Starts the thread. A client that takes too little for `patience` is disconnected.
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

    /// Sets the time after which a client that takes too little is disconnected.
    pub(crate) fn set_patience(&self, patience: Duration) {
        *self.patience.lock() = patience;
    }

    /// Sends the pending answers of `connection`.
    pub(crate) fn watch(&self, connection: Arc<Outgoing>) {
        self.arrived.lock().connections.push(connection);
        self.ring();
    }

    fn ring(&self) {
        // A full counter has already woken the thread.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Whether the thread has ended without a stop.
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
                // Interrupted, or temporarily out of memory: try again in the next round.
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
