//! A proxy on this machine that makes a server seem further away. Bytes leave it a fixed time after they arrived, in
//! both directions, and as many bytes as fit on such a path are under way at a time. So it delays like a long path,
//! and unlike a pause before each answer it works for any client.

use std::collections::{HashMap, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The most connections at a time. Further ones are closed.
const CONNECTIONS_MAX: usize = 1024;
/// The bytes of a path are those of this rate. A connection is no faster, unless the path is short.
const RATE: f64 = 1e9;
/// The bytes under way in one direction of a connection, at least and at most.
const UNDER_WAY: (f64, f64) = ((4 << 20) as f64, (64 << 20) as f64);
/// The smallest count for bytes that arrived together, which includes the memory around them.
const CHUNK_MIN: usize = 512;
const READ_BYTES: usize = 128 << 10;
const CONNECT_MAX: Duration = Duration::from_secs(10);
const STACK_BYTES: usize = 128 << 10;

/// A proxy in front of one server. It listens on a loopback address, and ends with its connections when it is
/// dropped.
#[derive(Debug)]
pub struct DelayProxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    host: String,
    port: u16,
    one_way: Duration,
    stop: AtomicBool,
    open: Mutex<OpenConnections>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    next: u64,
    ends: HashMap<u64, Vec<Arc<TcpStream>>>,
    threads: Vec<JoinHandle<()>>,
}

impl DelayProxy {
    /// Starts a proxy in front of `host` and `port`, which adds `round_trip` to each exchange: half of it in each
    /// direction.
    ///
    /// # Errors
    /// This machine has no free port, or no more threads.
    pub fn start(host: &str, port: u16, round_trip: Duration) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            host: host.to_owned(),
            port,
            one_way: round_trip / 2,
            stop: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let accepting = {
            let shared = Arc::clone(&shared);
            small_thread().spawn(move || accept(&listener, &shared))?
        };
        Ok(Self { address, shared, accepting: Some(accepting) })
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for DelayProxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        // These give their descriptors back, if all are in use.
        lock(&self.shared.open).shut_down();
        // The thread that accepts sees the end at its next connection.
        if let Some(thread) = self.accepting.take() {
            while !thread.is_finished() {
                let _ = TcpStream::connect_timeout(&self.address, CONNECT_MAX);
                thread::sleep(Duration::from_millis(1));
            }
            let _ = thread.join();
        }
        let threads = {
            let mut open = lock(&self.shared.open);
            open.shut_down();
            std::mem::take(&mut open.threads)
        };
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

impl OpenConnections {
    fn shut_down(&self) {
        self.ends.values().flatten().for_each(|end| drop(end.shutdown(Shutdown::Both)));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn small_thread() -> thread::Builder {
    thread::Builder::new().stack_size(STACK_BYTES)
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming() {
        if shared.stop.load(Ordering::SeqCst) {
            return;
        }
        let Ok(client) = client else {
            // Probably too many open files. Connections that end make room.
            thread::sleep(Duration::from_millis(10));
            continue;
        };
        let accepted = Instant::now();
        let mut open = lock(&shared.open);
        open.threads.retain(|thread| !thread.is_finished());
        if open.ends.len() >= CONNECTIONS_MAX {
            continue;
        }
        let number = open.next;
        let client = Arc::new(client);
        let (its, of_thread) = (Arc::clone(&client), Arc::clone(shared));
        let started = small_thread().spawn(move || {
            serve(&its, accepted, number, &of_thread);
            lock(&of_thread.open).ends.remove(&number);
        });
        if let Ok(thread) = started {
            open.next += 1;
            open.ends.insert(number, vec![client]);
            open.threads.push(thread);
        }
    }
}

/// Forwards one connection until both directions have ended.
fn serve(client: &TcpStream, accepted: Instant, number: u64, shared: &Shared) {
    let Ok(server) = connect(&shared.host, shared.port) else {
        let _ = client.shutdown(Shutdown::Both);
        return;
    };
    let server = Arc::new(server);
    if let Some(ends) = lock(&shared.open).ends.get_mut(&number) {
        ends.push(Arc::clone(&server));
    }
    // Whoever stops the proxy has either seen both ends, or is seen here.
    let is_ready = client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_ok();
    if !is_ready || shared.stop.load(Ordering::SeqCst) {
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
        return;
    }
    let one_way = shared.one_way;
    // On a long path, the client learns one round trip later that it is connected, and sends nothing before that.
    let up = Line::new(one_way, accepted + one_way * 3);
    let down = Line::new(one_way, accepted);
    thread::scope(|scope| {
        let parts: [Box<dyn FnOnce() + Send>; 4] = [
            Box::new(|| up.take_from(client)),
            Box::new(|| up.give_to(&server, client)),
            Box::new(|| down.take_from(&server)),
            Box::new(|| down.give_to(client, &server)),
        ];
        for part in parts {
            if small_thread().spawn_scoped(scope, part).is_err() {
                // Without all four threads nothing moves. The started ones end with the connection.
                let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
                up.close();
                down.close();
            }
        }
    });
}

fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_MAX) {
            Ok(server) => return Ok(server),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// One direction of a connection.
struct Line {
    one_way: Duration,
    /// Nothing leaves before this.
    not_before: Instant,
    room: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    chunks: VecDeque<(Instant, Item)>,
    counted: usize,
    is_closed: bool,
}

/// What arrives: bytes, the end of the stream, or the end of the connection by an error.
enum Item {
    Bytes(Vec<u8>),
    End,
    Broken,
}

impl Item {
    fn count(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len().max(CHUNK_MIN),
            Self::End | Self::Broken => 0,
        }
    }
}

impl Line {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between the bounds
    fn new(one_way: Duration, not_before: Instant) -> Self {
        let room = (one_way.as_secs_f64() * RATE).clamp(UNDER_WAY.0, UNDER_WAY.1) as usize;
        Self { one_way, not_before, room, queue: Mutex::default(), changed: Condvar::new() }
    }

    fn close(&self) {
        lock(&self.queue).is_closed = true;
        self.changed.notify_all();
    }

    /// Waits for room, and puts `item` at the end. Returns `false` if nobody takes anything any more.
    fn put(&self, item: Item) -> bool {
        let due = (Instant::now() + self.one_way).max(self.not_before);
        let mut queue = lock(&self.queue);
        while queue.counted >= self.room && !queue.is_closed {
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
        if queue.is_closed {
            return false;
        }
        queue.counted += item.count();
        queue.chunks.push_back((due, item));
        self.changed.notify_all();
        true
    }

    /// Returns the next item when it is due; `None` after the line was closed.
    fn next(&self) -> Option<Item> {
        let mut queue = lock(&self.queue);
        let (due, item) = loop {
            if let Some(found) = queue.chunks.pop_front() {
                break found;
            }
            if queue.is_closed {
                return None;
            }
            queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
        };
        drop(queue);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        // It was under way until now.
        lock(&self.queue).counted -= item.count();
        self.changed.notify_all();
        Some(item)
    }

    fn take_from(&self, mut from: &TcpStream) {
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let item = match from.read(&mut buffer) {
                Ok(0) => Item::End,
                Ok(len) => Item::Bytes(buffer.get(..len).unwrap_or_default().to_vec()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => Item::Broken,
            };
            let is_last = !matches!(item, Item::Bytes(_));
            if !self.put(item) || is_last {
                return;
            }
        }
    }

    fn give_to(&self, mut to: &TcpStream, from: &TcpStream) {
        while let Some(item) = self.next() {
            let is_broken = match item {
                Item::Bytes(bytes) => to.write_all(&bytes).is_err(),
                Item::End => {
                    let _ = to.shutdown(Shutdown::Write);
                    break;
                }
                Item::Broken => true,
            };
            if is_broken {
                let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
                break;
            }
        }
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(12);

    /// A server that does `work` with each connection, and a proxy in front of it.
    fn behind(work: impl Fn(TcpStream) + Send + Sync + 'static) -> DelayProxy {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let work = Arc::new(work);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, work) = (stream.unwrap(), Arc::clone(&work));
                thread::spawn(move || work(stream));
            }
        });
        DelayProxy::start("127.0.0.1", port, ROUND_TRIP).unwrap()
    }

    fn echo(mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut buffer = [0; 4096];
        while let Ok(len) = stream.read(&mut buffer) {
            if len == 0 || stream.write_all(&buffer[..len]).is_err() {
                return;
            }
        }
    }

    fn client(proxy: &DelayProxy) -> TcpStream {
        let stream = TcpStream::connect(proxy.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream
    }

    fn exchange(stream: &mut TcpStream) -> Duration {
        let begun = Instant::now();
        stream.write_all(b"x").unwrap();
        stream.read_exact(&mut [0]).unwrap();
        begun.elapsed()
    }

    #[test]
    fn a_round_trip_takes_as_long_as_was_asked() {
        let proxy = behind(echo);
        // The handshake of a long path takes one round trip more. A busy machine may stop this thread between its
        // connection and its first byte, so the clock starts before both.
        let begun = Instant::now();
        let mut stream = client(&proxy);
        exchange(&mut stream);
        assert!(begun.elapsed() >= ROUND_TRIP * 2);
        let all: Vec<Duration> = (0..20).map(|_| exchange(&mut stream)).collect();
        assert!(all.iter().all(|took| *took >= ROUND_TRIP), "{all:?}");
        // Other programs may delay single ones.
        assert!(all.iter().min().unwrap() < &Duration::from_millis(16), "{all:?}");
    }

    #[test]
    fn requests_under_way_at_the_same_time_are_delayed_at_the_same_time() {
        let proxy = behind(echo);
        let mut stream = client(&proxy);
        exchange(&mut stream);
        let begun = Instant::now();
        for _ in 0..50 {
            stream.write_all(&[7; 100]).unwrap();
            thread::sleep(Duration::from_micros(100));
        }
        stream.read_exact(&mut [0; 5000]).unwrap();
        let took = begun.elapsed();
        assert!(took >= ROUND_TRIP && took < ROUND_TRIP * 25, "{took:?}");
    }

    #[test]
    fn the_delay_does_not_limit_the_rate() {
        const BYTES: usize = 256 << 20;
        let proxy = behind(|mut stream| {
            let block = vec![1; 1 << 20];
            let _ = stream.read_exact(&mut [0]);
            for _ in 0..BYTES / block.len() {
                stream.write_all(&block).unwrap();
            }
        });
        let rate = || {
            let mut stream = client(&proxy);
            stream.write_all(b"x").unwrap();
            stream.read_exact(&mut [0]).unwrap();
            let begun = Instant::now();
            let (mut left, mut buffer) = (BYTES - 1, vec![0; 1 << 20]);
            while left > 0 {
                let len = stream.read(&mut buffer).unwrap();
                assert!(len > 0);
                left -= len;
            }
            BYTES as f64 / begun.elapsed().as_secs_f64()
        };
        // Other programs may slow single ones.
        let best = (0..3).map(|_| rate()).fold(0.0, f64::max);
        assert!(best > 200e6, "{best}");
    }

    #[test]
    fn ends_of_streams_are_forwarded_after_their_bytes() {
        let proxy = behind(|mut stream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        });
        let mut stream = client(&proxy);
        let sent: Vec<u8> = (0..=u8::MAX).cycle().take(100_000).collect();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut got = Vec::new();
        stream.read_to_end(&mut got).unwrap();
        assert!(got == sent);
    }

    #[test]
    fn a_server_that_is_away_ends_the_connection_and_so_does_the_end_of_the_proxy() {
        let unused = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let proxy = DelayProxy::start("127.0.0.1", unused, ROUND_TRIP).unwrap();
        assert!(matches!(client(&proxy).read(&mut [0]), Ok(0) | Err(_)));
        let proxy = behind(echo);
        let mut stream = client(&proxy);
        exchange(&mut stream);
        drop(proxy);
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}
