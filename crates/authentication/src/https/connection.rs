//! One request on one connection.

use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use tls::{Channel, Opened, Trust};

use super::HttpsError;
use super::answer::{Answer, AnswerError, AnswerReader};
use super::url::HttpsUrl;

/// Most addresses of a host that are tried.
const ADDRESSES_MAX: usize = 8;
/// What is received at once.
const RECEIVED_MAX: usize = 16 << 10;

/// Why there is no connection.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The host has no address.
    #[error("cannot look up the address of {host}: {why}")]
    Lookup {
        /// The host.
        host: String,
        /// What the system says.
        why: String,
    },
    /// Nobody answers there.
    #[error("cannot connect to {0}: {1}")]
    Connect(String, String),
    /// The server, or its certificate, is not what it should be.
    #[error(
        "the server cannot be trusted, or does not speak TLS ({0}); `authentication.ca` names the authorities that count"
    )]
    Tls(String),
    /// The connection broke.
    #[error("the connection broke: {0}")]
    Broken(String),
    /// It took too long.
    #[error("the answer was not complete in time")]
    Slow,
}

/// How long it may still take.
fn left(deadline: Instant) -> Result<Duration, ConnectionError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ConnectionError::Slow) } else { Ok(left) }
}

fn broken(error: &std::io::Error) -> ConnectionError {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => ConnectionError::Slow,
        _ => ConnectionError::Broken(error.to_string()),
    }
}

fn connect(url: &HttpsUrl, time: Duration, deadline: Instant) -> Result<TcpStream, ConnectionError> {
    let found = (url.host.as_str(), url.port).to_socket_addrs();
    // The system gives no other way to bound a lookup than its own settings. The time it took counts, though.
    left(deadline)?;
    let lookup = |why: String| ConnectionError::Lookup { host: url.host.clone(), why };
    let mut last = lookup("it has none".into());
    for address in found.map_err(|error| lookup(error.to_string()))?.take(ADDRESSES_MAX) {
        match TcpStream::connect_timeout(&address, time.min(left(deadline)?)) {
            Ok(stream) => {
                // Otherwise the request may wait until the server has acknowledged the handshake.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) => last = ConnectionError::Connect(address.to_string(), error.to_string()),
        }
    }
    Err(last)
}

/// What is asked.
#[derive(Clone, Copy)]
pub(super) enum Ask<'a> {
    /// A document.
    Get,
    /// The answer to this JSON.
    Post(&'a [u8]),
}

/// How the answer is bounded.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Longest body, in bytes.
    pub(super) body_max: usize,
    /// One attempt to connect.
    pub(super) connect: Duration,
    /// The end of all of it.
    pub(super) deadline: Instant,
}

/// A socket that gives up at a time.
struct Socket {
    stream: TcpStream,
    deadline: Instant,
}

impl Socket {
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), ConnectionError> {
        while !bytes.is_empty() {
            let time = Some(left(self.deadline)?);
            let sent = self.stream.set_write_timeout(time).and_then(|()| self.stream.write(bytes));
            match sent {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
        Ok(())
    }

    /// Waits for bytes. None come any more if the other side has ended the connection.
    fn receive<'a>(&mut self, buffer: &'a mut [u8]) -> Result<&'a [u8], ConnectionError> {
        loop {
            let time = Some(left(self.deadline)?);
            let received = self.stream.set_read_timeout(time).and_then(|()| self.stream.read(buffer));
            match received {
                Ok(count) => return Ok(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(broken(&error)),
            }
        }
    }
}

struct Connection {
    socket: Socket,
    channel: Channel,
}

impl Connection {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> Result<(), ConnectionError> {
        let mut sealed = Vec::new();
        self.channel.seal(parts, &mut sealed).map_err(|error| ConnectionError::Tls(error.to_string()))?;
        self.socket.send(&sealed)
    }

    /// Decrypts what came. If that fails, tells the other side why.
    fn open(&mut self, received: &mut &[u8], into: &mut [u8]) -> Result<Opened, ConnectionError> {
        self.channel.open(received, into).map_err(|error| {
            let _ = self.send(&[]);
            ConnectionError::Tls(error.to_string())
        })
    }
}

/// Why an answer did not come.
pub(super) struct AskFailure {
    pub(super) why: HttpsError,
    /// Whether any of the request may have been sent.
    pub(super) was_sent: bool,
}

/// Asks for `url`, over TLS if there is something to `trust`.
pub(super) fn ask(trust: Option<&Trust>, url: &HttpsUrl, ask: Ask<'_>, bounds: Bounds) -> Result<Answer, AskFailure> {
    let mut was_sent = false;
    let answer = match trust {
        Some(trust) => ask_by_tls(trust, url, ask, bounds, &mut was_sent),
        None => ask_here(url, ask, bounds, &mut was_sent),
    };
    answer.map_err(|why| AskFailure { why, was_sent })
}

/// Asks for `url` and reads the answer. An answer that ends with the connection is complete only if the server has said by
/// TLS that it ends: otherwise somebody else may have cut it.
fn ask_by_tls(
    trust: &Trust,
    url: &HttpsUrl,
    ask: Ask<'_>,
    bounds: Bounds,
    was_sent: &mut bool,
) -> Result<Answer, HttpsError> {
    let stream = connect(url, bounds.connect, bounds.deadline)?;
    let channel =
        Channel::client(trust.config(), &url.host).map_err(|error| ConnectionError::Tls(error.to_string()))?;
    let mut connection = Connection { socket: Socket { stream, deadline: bounds.deadline }, channel };
    let (mut buffer, mut opened) = (vec![0; RECEIVED_MAX], vec![0; RECEIVED_MAX]);
    connection.send(&[])?;
    // Bytes that belong to what follows the handshake are decrypted with the answer.
    let mut reader = AnswerReader::new(bounds.body_max);
    loop {
        if !*was_sent && !connection.channel.is_handshaking() {
            *was_sent = true;
            connection.send(&[IoSlice::new(&request(url, ask))])?;
        }
        let mut received = connection.socket.receive(&mut buffer)?;
        let ended = received.is_empty();
        loop {
            match connection.open(&mut received, &mut opened)? {
                Opened::Bytes(0) => break,
                Opened::Bytes(count) => {
                    if reader.take(&opened[..count])? {
                        return Ok(reader.finish()?);
                    }
                }
                Opened::Ended => return Ok(reader.finish()?),
            }
        }
        if ended {
            return Err(AnswerError::Cut.into());
        }
        if connection.channel.has_to_send() {
            connection.send(&[])?;
        }
    }
}

/// The same without TLS, of a service on this machine.
fn ask_here(url: &HttpsUrl, ask: Ask<'_>, bounds: Bounds, was_sent: &mut bool) -> Result<Answer, HttpsError> {
    let stream = connect(url, bounds.connect, bounds.deadline)?;
    // A name could lead elsewhere.
    if !stream.peer_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback()) {
        let why = "it has an address of another machine".to_owned();
        return Err(ConnectionError::Lookup { host: url.host.clone(), why }.into());
    }
    let mut socket = Socket { stream, deadline: bounds.deadline };
    *was_sent = true;
    socket.send(&request(url, ask))?;
    let mut reader = AnswerReader::new(bounds.body_max);
    let mut buffer = vec![0; RECEIVED_MAX];
    loop {
        let received = socket.receive(&mut buffer)?;
        if received.is_empty() || reader.take(received)? {
            return Ok(reader.finish()?);
        }
    }
}

fn request(url: &HttpsUrl, ask: Ask<'_>) -> Vec<u8> {
    let (method, about, body) = match ask {
        Ask::Get => ("GET", String::new(), &[][..]),
        Ask::Post(body) => {
            ("POST", format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len()), body)
        }
    };
    let head = format!(
        "{method} {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: weir/{}\r\nAccept: application/json\r\nAccept-Encoding: identity\r\n{about}Connection: close\r\n\r\n",
        url.target,
        url.authority(),
        env!("CARGO_PKG_VERSION")
    );
    [head.as_bytes(), body].concat()
}
