//! Takes connections of nodes in, and of those that want to become some.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::channel::{self, Deadline};
use crate::connection::{Handler, Ready, Us, greet};
use crate::credentials::JOIN_PROTOCOL;
use crate::error::{LinkError, Why};
use crate::hello::Expect;
use crate::join::{self, Door};

/// Connections that have not shown yet whose they are, in all and of one address. Further ones are closed at once: strangers can keep new nodes
/// waiting, but neither take memory nor harm those that are connected.
const STRANGERS_MAX: usize = 64;
const STRANGERS_OF_ADDRESS_MAX: usize = 16;
/// Address space of a connection's stack. What it does not touch costs nothing.
const STACK_BYTES: usize = 512 << 10;
/// Lines about failed connections in [`WINDOW`].
const LINES_MAX: u32 = 20;
const WINDOW: Duration = Duration::from_secs(10);

/// Where a node can be reached by its peers.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    stopping: AtomicBool,
    strangers: Mutex<HashMap<IpAddr, usize>>,
    lines: Mutex<Lines>,
}

/// Counts lines about strangers, so that they cannot fill the log.
#[derive(Debug)]
struct Lines {
    began: Instant,
    lines: u32,
    held_back: u64,
}

impl Lines {
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.saturating_duration_since(self.began) >= WINDOW {
            (self.began, self.lines) = (now, 0);
        }
        if self.lines >= LINES_MAX {
            self.held_back += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

impl Listener {
    /// Listens on `address`.
    ///
    /// # Errors
    /// Of the kernel.
    pub fn bind(address: SocketAddr) -> io::Result<Arc<Self>> {
        let socket = TcpListener::bind(address)?;
        Ok(Arc::new(Self {
            address: socket.local_addr()?,
            socket,
            stopping: AtomicBool::new(false),
            strangers: Mutex::new(HashMap::new()),
            lines: Mutex::new(Lines { began: Instant::now(), lines: 0, held_back: 0 }),
        }))
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Takes connections in, in the caller's thread, until [`Listener::stop`]; each is served by `handler` in a thread of its own. With a `door`,
    /// nodes can join here.
    pub fn serve<H: Handler + 'static>(self: &Arc<Self>, us: &Us, handler: &Arc<H>, door: Option<&Arc<Door>>) {
        loop {
            let accepted = self.socket.accept();
            if self.stopping.load(Ordering::Acquire) {
                return;
            }
            let (socket, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Out of file descriptors, most likely: others have to close some first.
                    if let Some(held_back) = self.lines.lock().admit(Instant::now()) {
                        tracing::error!(%error, held_back, "cannot accept connections of nodes");
                    }
                    std::thread::sleep(Duration::from_millis(50));
                    continue;
                }
            };
            let Some(stranger) = Stranger::new(self, address.ip()) else {
                self.complain(
                    &Why::ClosedHere("too many connections have not shown whose they are".into()).with(address),
                );
                continue;
            };
            let (us, handler, door) = (us.clone(), Arc::clone(handler), door.cloned());
            let serve = move || {
                let listener = Arc::clone(&stranger.listener);
                match begin(&us, &*handler, door.as_deref(), socket, address) {
                    Ok(Some(ready)) => {
                        drop(stranger);
                        // Whatever there is to tell of the end has been told.
                        let _ = ready.run(&*handler);
                    }
                    Ok(None) => {}
                    Err(why) => listener.complain(&why.with(address)),
                }
            };
            let thread = std::thread::Builder::new().name("node".into()).stack_size(STACK_BYTES);
            if let Err(error) = thread.spawn(serve) {
                tracing::error!(%address, %error, "cannot serve a connection of a node");
            }
        }
    }

    /// Takes nobody in any more. Connections that are up go on until their handles are closed.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() {
                IpAddr::from([127, 0, 0, 1])
            } else {
                IpAddr::from([0u16, 0, 0, 0, 0, 0, 0, 1])
            });
        }
        // Wakes the accepting thread, which looks at the mark.
        let _ = TcpStream::connect_timeout(&own, Duration::from_secs(1));
    }

    fn complain(&self, error: &LinkError) {
        if let Some(held_back) = self.lines.lock().admit(Instant::now()) {
            tracing::warn!(peer = error.peer, reason = %error.why, held_back, "a connection to this node did not come about");
        }
    }
}

/// TLS, and then the hello or the joining. `None`: it is done.
fn begin<H: Handler>(
    us: &Us,
    handler: &H,
    door: Option<&Door>,
    socket: TcpStream,
    address: SocketAddr,
) -> Result<Option<Ready<H::Buffer>>, Why> {
    let deadline = Deadline::new("connecting", us.settings.connect_time);
    let current = us.credentials.current();
    let (halves, shown) = channel::accept(socket, Arc::clone(&current.server), deadline, us.settings.send_time)?;
    if shown.protocol.as_deref() == Some(JOIN_PROTOCOL) {
        let Some(door) = door else {
            return Err(Why::ClosedHere("it wants to join, and only managers let nodes join".into()));
        };
        join::serve(door, halves, address, deadline)?;
        return Ok(None);
    }
    let admit = |peer: &_| handler.admit(peer);
    greet(us, current.name, halves, &shown, address, Expect::default(), deadline, &admit).map(Some)
}

/// Counts a connection until it has shown whose it is.
struct Stranger {
    listener: Arc<Listener>,
    address: IpAddr,
}

impl Stranger {
    fn new(listener: &Arc<Listener>, address: IpAddr) -> Option<Self> {
        let mut strangers = listener.strangers.lock();
        let all: usize = strangers.values().sum();
        let of_address = strangers.get(&address).copied().unwrap_or(0);
        if all >= STRANGERS_MAX || of_address >= STRANGERS_OF_ADDRESS_MAX {
            return None;
        }
        strangers.insert(address, of_address + 1);
        drop(strangers);
        Some(Self { listener: Arc::clone(listener), address })
    }
}

impl Drop for Stranger {
    fn drop(&mut self) {
        let mut strangers = self.listener.strangers.lock();
        if let Some(count) = strangers.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                strangers.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_are_few_and_fewer_of_one_address() {
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let of = |last: u8| Stranger::new(&listener, IpAddr::from([10, 0, 0, last]));
        let first: Vec<_> = (0..100).filter_map(|_| of(1)).collect();
        assert_eq!(first.len(), STRANGERS_OF_ADDRESS_MAX);
        let others: Vec<_> = (2..200).filter_map(of).collect();
        assert_eq!(first.len() + others.len(), STRANGERS_MAX);
        drop(first);
        assert!(of(1).is_some());
        drop(others);
        assert!(listener.strangers.lock().is_empty());
    }

    #[test]
    fn a_flood_of_failures_is_held_back_and_counted() {
        let start = Instant::now();
        let mut lines = Lines { began: start, lines: 0, held_back: 0 };
        let admitted = (0..1000).filter(|_| lines.admit(start).is_some()).count();
        assert_eq!(admitted, LINES_MAX as usize);
        assert_eq!(lines.admit(start + WINDOW), Some(980));
    }
}
