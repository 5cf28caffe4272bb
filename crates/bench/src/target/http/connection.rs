//! One connection to a server, with a read buffer and time limits.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Endpoint, Settings, Stop};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

/// How often a wait checks whether everything must end.
const TICK: Duration = Duration::from_millis(250);
/// The size of the read buffer. The head of an answer must fit.
pub(super) const BUFFER_BYTES: usize = 64 << 10;

/// A connection.
pub(super) struct Connection {
    transport: Transport,
    server: Endpoint,
    is_tls: bool,
    buffer: Vec<u8>,
    /// The start of the unread bytes in the buffer.
    start: usize,
    end: usize,
}

enum Transport {
    Plain(TimeoutStream),
    Tls(Box<StreamOwned<ClientConnection, TimeoutStream>>),
}

/// A socket whose waits are limited.
struct TimeoutStream {
    socket: TcpStream,
    patience: Duration,
    stop: Stop,
}

impl TimeoutStream {
    fn patiently<T>(&mut self, mut once: impl FnMut(&mut TcpStream) -> io::Result<T>) -> io::Result<T> {
        let begun = Instant::now();
        loop {
            match once(&mut self.socket) {
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if self.stop.is_asked() {
                        return Err(io::Error::other("stopped"));
                    }
                    if begun.elapsed() >= self.patience {
                        let text = format!("nothing for {} s", self.patience.as_secs());
                        return Err(io::Error::new(io::ErrorKind::TimedOut, text));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                done => return done,
            }
        }
    }
}

impl Read for TimeoutStream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.patiently(|socket| socket.read(into))
    }
}

impl Write for TimeoutStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.patiently(|socket| socket.write(from))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

impl Connection {
    /// Connects. With `tls` the server must prove its identity.
    pub(super) fn open(server: &Endpoint, tls: Option<&Arc<ClientConfig>>, settings: &Settings) -> io::Result<Self> {
        let socket = connect(server, settings.connect_timeout)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TICK))?;
        socket.set_write_timeout(Some(TICK))?;
        let patient = TimeoutStream { socket, patience: settings.silence_max, stop: settings.stop.clone() };
        let is_tls = tls.is_some();
        let transport = match tls {
            None => Transport::Plain(patient),
            Some(config) => {
                let name = server.host.clone().try_into().map_err(io::Error::other)?;
                let session = ClientConnection::new(Arc::clone(config), name).map_err(io::Error::other)?;
                let mut stream = StreamOwned::new(session, patient);
                while stream.conn.is_handshaking() {
                    stream.conn.complete_io(&mut stream.sock)?;
                }
                Transport::Tls(Box::new(stream))
            }
        };
        Ok(Self { transport, server: server.clone(), is_tls, buffer: vec![0; BUFFER_BYTES], start: 0, end: 0 })
    }

    /// Whether it leads to `server`, with or without TLS as given.
    pub(super) fn leads_to(&self, server: &Endpoint, is_tls: bool) -> bool {
        self.is_tls == is_tls && self.server == *server
    }

    /// Whether the server has closed an idle connection, or sent something without a request.
    pub(super) fn is_spent(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let socket = match &self.transport {
            Transport::Plain(patient) => &patient.socket,
            Transport::Tls(stream) => &stream.sock.socket,
        };
        let mut asked = [PollFd::new(socket, PollFlags::IN)];
        self.start != self.end || !matches!(poll(&mut asked, Some(&Timespec::default())), Ok(0))
    }

    /// Sends all bytes.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.transport {
            Transport::Plain(patient) => patient.write_all(bytes),
            Transport::Tls(stream) => {
                stream.write_all(bytes)?;
                stream.flush()
            }
        }
    }

    /// Returns the received unread bytes.
    pub(super) fn come(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Consumes the first `len` of them.
    pub(super) fn take(&mut self, len: usize) {
        self.start = self.end.min(self.start + len);
    }

    /// Waits for more, for at most `patience` if given. Returns 0 if the server has closed, or the buffer is full.
    pub(super) fn wait(&mut self, patience: Option<Duration>) -> io::Result<usize> {
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let usual = patience.map(|patience| std::mem::replace(&mut self.patient().patience, patience));
        let free = self.buffer.get_mut(self.end..).unwrap_or_default();
        let read = match &mut self.transport {
            Transport::Plain(patient) => patient.read(free),
            Transport::Tls(stream) => stream.read(free),
        };
        if let Some(usual) = usual {
            self.patient().patience = usual;
        }
        let read = read?;
        self.end += read;
        Ok(read)
    }

    /// Reads the next bytes from the buffer or the socket. Returns 0 if the server has closed.
    pub(super) fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let come = self.come();
        if !come.is_empty() {
            let len = come.len().min(into.len());
            into[..len].copy_from_slice(&come[..len]);
            self.take(len);
            return Ok(len);
        }
        match &mut self.transport {
            Transport::Plain(patient) => patient.read(into),
            Transport::Tls(stream) => stream.read(into),
        }
    }

    fn patient(&mut self) -> &mut TimeoutStream {
        match &mut self.transport {
            Transport::Plain(patient) => patient,
            Transport::Tls(stream) => &mut stream.sock,
        }
    }
}

/// Connects to the first of its addresses that answers.
fn connect(server: &Endpoint, patience: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (server.host.as_str(), server.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(last)
}
