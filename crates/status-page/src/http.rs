//! The small part of HTTP/1.1 that a few pages need. One thread serves a few visitors at a time, and none waits for another. The size and
//! the duration of a request are bounded.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec};

/// Simultaneous visitors; a further one replaces the one that came first.
const VISITORS_MAX: usize = 16;
/// Longest request, in bytes.
const REQUEST_MAX: usize = 8 << 10;
/// Longest time from the connection to the last byte of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a failed accept (probably out of descriptors).
const PAUSE: Duration = Duration::from_millis(50);

/// A visitor's request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Request<'a> {
    /// The method, such as GET.
    pub method: &'a str,
    /// The path, without what is behind a `?`.
    pub path: &'a str,
    /// All lines of the request.
    head: &'a str,
}

impl<'a> Request<'a> {
    /// The value of a header; `name` is in lower case.
    pub fn header(&self, name: &str) -> Option<&'a str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.trim().eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }
}

/// The answer to a visitor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The status line's text, as in `200 OK`.
    pub status: &'static str,
    /// Header lines, each with its end.
    pub headers: &'static str,
    /// The body.
    pub body: String,
}

impl Reply {
    /// An answer of plain text.
    pub fn text(status: &'static str, body: &str) -> Self {
        Self { status, headers: "", body: body.to_owned() }
    }
}

/// Answers requests.
pub type Page = dyn Fn(Request<'_>) -> Reply + Send + Sync;

/// The running thread; dropping this ends it.
pub struct Responder {
    address: SocketAddr,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Answers those who connect to `listener` with `page`. `name` is the thread's name.
    pub fn start(name: &str, listener: TcpListener, page: Arc<Page>) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let wake = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let inner = Arc::clone(&wake);
        let thread =
            std::thread::Builder::new().name(name.into()).spawn(move || answer_all(&listener, &inner, &*page))?;
        Ok(Self { address, wake, thread: Some(thread) })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // If the counter is full, the thread is woken already.
        let _ = rustix::io::write(&*self.wake, &1u64.to_ne_bytes());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that answers visitors had panicked");
        }
    }
}

/// A connected visitor.
struct Visitor {
    socket: TcpStream,
    request: Vec<u8>,
    /// Empty until the request is complete.
    answer: Vec<u8>,
    sent: usize,
    until: Instant,
}

fn answer_all(listener: &TcpListener, wake: &OwnedFd, page: &Page) {
    let mut visitors: Vec<Visitor> = Vec::new();
    loop {
        let mut fds = vec![PollFd::new(wake, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        fds.extend(visitors.iter().map(|visitor| {
            PollFd::new(&visitor.socket, if visitor.answer.is_empty() { PollFlags::IN } else { PollFlags::OUT })
        }));
        let now = Instant::now();
        let nearest = visitors.iter().map(|visitor| visitor.until.saturating_duration_since(now)).min();
        let timeout = nearest.map(|left| Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 }));
        if rustix::event::poll(&mut fds, timeout.as_ref()).is_err() {
            std::thread::sleep(PAUSE); // interrupted, or out of memory for a moment
            continue;
        }
        if !fds[0].revents().is_empty() {
            return;
        }
        let somebody_came = !fds[1].revents().is_empty();
        let ready: Vec<bool> = fds[2..].iter().map(|fd| !fd.revents().is_empty()).collect();
        drop(fds);
        let now = Instant::now();
        let mut ready = ready.into_iter();
        visitors.retain_mut(|visitor| {
            let moved = !ready.next().unwrap_or(false) || visitor.go_on(page).unwrap_or(false);
            moved && now < visitor.until
        });
        if somebody_came {
            take_in(listener, &mut visitors);
        }
    }
}

fn take_in(listener: &TcpListener, visitors: &mut Vec<Visitor>) {
    match listener.accept().and_then(|(socket, _)| socket.set_nonblocking(true).map(|()| socket)) {
        Ok(socket) => {
            if visitors.len() >= VISITORS_MAX {
                visitors.remove(0);
            }
            let until = Instant::now() + PATIENCE;
            visitors.push(Visitor { socket, request: Vec::new(), answer: Vec::new(), sent: 0, until });
        }
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        Err(error) => {
            tracing::debug!("cannot take in a visitor: {error}");
            std::thread::sleep(PAUSE);
        }
    }
}

impl Visitor {
    /// Reads or sends as much as possible without waiting. Returns whether there is more to do.
    fn go_on(&mut self, page: &Page) -> io::Result<bool> {
        if self.answer.is_empty() {
            let mut bytes = [0; 2048];
            let n = match self.socket.read(&mut bytes) {
                Ok(0) => return Ok(false),
                Ok(n) => n,
                Err(error) => return wait_or(error),
            };
            self.request.extend_from_slice(&bytes[..n]);
            let Some(answer) = answer(&self.request, page) else { return Ok(true) };
            self.answer = answer;
        }
        while self.sent < self.answer.len() {
            match self.socket.write(&self.answer[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(error) => return wait_or(error),
            }
        }
        let _ = self.socket.shutdown(Shutdown::Write);
        Ok(false)
    }
}

fn wait_or(error: io::Error) -> io::Result<bool> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(true),
        _ => Err(error),
    }
}

/// The whole answer to `request`; `None` while the request is incomplete.
fn answer(request: &[u8], page: &Page) -> Option<Vec<u8>> {
    let whole =
        request.windows(4).any(|window| window == b"\r\n\r\n") || request.windows(2).any(|window| window == b"\n\n");
    if !whole && request.len() <= REQUEST_MAX {
        return None;
    }
    if request.len() > REQUEST_MAX {
        let reply = Reply::text("431 Request Header Fields Too Large", "The request is too long\n");
        return Some(response(&reply, true));
    }
    let head = String::from_utf8_lossy(request);
    let mut words = head.lines().next().unwrap_or_default().split_ascii_whitespace();
    let (method, target, version) =
        (words.next().unwrap_or(""), words.next().unwrap_or(""), words.next().unwrap_or(""));
    if !version.starts_with("HTTP/1.") {
        return Some(response(&Reply::text("400 Bad Request", "This is no HTTP/1.1 request\n"), true));
    }
    let path = target.split('?').next().unwrap_or("");
    Some(response(&page(Request { method, path, head: &head }), method != "HEAD"))
}

fn response(reply: &Reply, with_body: bool) -> Vec<u8> {
    let Reply { status, headers, body } = reply;
    let head = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let mut bytes = head.into_bytes();
    if with_body {
        bytes.extend_from_slice(body.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WatchPage;

    fn told(request: &str) -> Option<String> {
        let page = |request: Request<'_>| {
            crate::metrics::watched(request, &|page| match page {
                WatchPage::Metrics => Ok("a 1\n".to_owned()),
                WatchPage::Alive => Ok("alive\n".to_owned()),
                WatchPage::Ready => Err("not ready: why\n".to_owned()),
            })
        };
        answer(request.as_bytes(), &page).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn headers_are_found_by_their_names() {
        let key = |request: Request<'_>| Reply::text("200 OK", request.header("authorization").unwrap_or("none"));
        let told = |request: &str| String::from_utf8(answer(request.as_bytes(), &key).unwrap()).unwrap();
        assert!(told("GET / HTTP/1.1\r\nHost: x\r\nAuthorization:  Bearer y \r\n\r\n").ends_with("\r\n\r\nBearer y"));
        assert!(told("GET /authorization: HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("none"));
    }

    #[test]
    fn the_page_is_served_and_other_paths_are_not() {
        let page = told("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("Content-Length: 4\r\n"), "{page}");
        assert!(page.ends_with("\r\n\r\na 1\n"), "{page}");
        let head = told("HEAD /metrics?x=1 HTTP/1.0\r\n\r\n").unwrap();
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /readyz HTTP/1.1\r\n\r\n", "405"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\0\0\0\0\n\n", "400"),
        ] {
            assert!(told(request).unwrap().starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}");
        }
        assert!(told(&"x".repeat(REQUEST_MAX + 1)).unwrap().starts_with("HTTP/1.1 431 "));
        assert_eq!(told("GET /metrics HTTP/1.1\r\nHost: x\r\n"), None);
    }

    #[test]
    fn a_page_that_says_no_has_an_error_status() {
        let alive = told("GET /healthz HTTP/1.1\r\n\r\n").unwrap();
        assert!(alive.starts_with("HTTP/1.1 200 OK\r\n") && alive.ends_with("\r\n\r\nalive\n"), "{alive}");
        let ready = told("GET /readyz HTTP/1.1\r\n\r\n").unwrap();
        assert!(ready.starts_with("HTTP/1.1 503 ") && ready.ends_with("\r\n\r\nnot ready: why\n"), "{ready}");
    }

    #[test]
    fn silent_visitors_delay_nobody() {
        let page = Arc::new(|_: Request<'_>| Reply::text("200 OK", &"a 1\n".repeat(100_000)));
        let responder = Responder::start("test", TcpListener::bind("127.0.0.1:0").unwrap(), page).unwrap();
        let silent: Vec<_> = (0..VISITORS_MAX + 4).map(|_| TcpStream::connect(responder.address()).unwrap()).collect();
        let mut stuck = TcpStream::connect(responder.address()).unwrap();
        stuck.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap(); // and reads nothing
        let began = Instant::now();
        for _ in 0..3 {
            let mut visitor = TcpStream::connect(responder.address()).unwrap();
            visitor.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            visitor.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
            let mut page = String::new();
            visitor.read_to_string(&mut page).unwrap();
            assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.len() > 400_000);
        }
        assert!(began.elapsed() < PATIENCE, "they waited for others");
        drop(silent);
        drop(responder);
        assert!(stuck.read_to_end(&mut Vec::new()).is_ok() || began.elapsed() < PATIENCE * 2);
    }
}
