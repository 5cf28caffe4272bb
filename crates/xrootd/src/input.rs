//! Receives the requests of a connection. One system call fetches several small requests into a buffer. Large
//! payloads bypass it.

use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvAncillaryBuffer, RecvFlags};

use crate::config::{INPUT_BYTES, PACE_BYTES};
use service::TransferSlot;
use tls::{Channel, ChannelError, Opened};

/// The size of the buffer for encrypted input. A record has up to 16 KiB.
const SEALED_BYTES: usize = 64 << 10;

/// Why the input has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputEnd {
    /// The connection was closed between two requests, by the client or by this server.
    #[error("the connection was closed")]
    Closed,
    /// The connection was closed within a request.
    #[error("the connection ended within a request")]
    HalfFrame,
    /// A request began to arrive but did not continue in time.
    #[error("a request stopped arriving half-way or came too slowly: it has {0:?}, and its data as long for each {pace} KiB", pace = PACE_BYTES >> 10)]
    Stuck(Duration),
    /// There was no login in time.
    #[error("no login within {0:?}")]
    NoLogin(Duration),
    /// The socket failed.
    #[error("receiving failed: {0}")]
    Io(#[from] std::io::Error),
    /// The client has sent what TLS does not allow.
    #[error(transparent)]
    Tls(#[from] ChannelError),
}

/// Encrypted input.
struct Sealed {
    channel: Arc<Channel>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Sealed {
    /// Decrypts what is here. `None`: more must be received first.
    fn open(&mut self, into: &mut [u8]) -> Result<Option<usize>, ChannelError> {
        let mut rest = &self.buffer[self.start..self.end];
        let opened = self.channel.open(&mut rest, into);
        self.start = self.end - rest.len();
        match opened? {
            Opened::Bytes(0) => Ok(None),
            Opened::Bytes(count) => Ok(Some(count)),
            Opened::Ended => Ok(Some(0)),
        }
    }

    /// Receives more, when all that is here was decrypted.
    fn receive(&mut self, socket: &TcpStream, flags: RecvFlags) -> io::Result<usize> {
        let (count, _) = rustix::net::recv(socket, &mut self.buffer[..], flags)?;
        (self.start, self.end) = (0, count);
        Ok(count)
    }
}

/// Receives into `slices`, in the clear or encrypted. 0: the end.
fn receive(
    socket: &TcpStream,
    sealed: Option<&mut Sealed>,
    slices: &mut [IoSliceMut<'_>],
    flags: RecvFlags,
) -> io::Result<usize> {
    let Some(sealed) = sealed else {
        return Ok(match slices {
            [one] => rustix::net::recv(socket, &mut **one, flags)?.0,
            several => rustix::net::recvmsg(socket, several, &mut RecvAncillaryBuffer::default(), flags)?.bytes,
        });
    };
    let Some(into) = slices.iter_mut().find(|slice| !slice.is_empty()) else { return Ok(0) };
    let mut open =
        |sealed: &mut Sealed| sealed.open(into).map_err(|error| io::Error::new(ErrorKind::InvalidData, error));
    if let Some(count) = open(sealed)? {
        return Ok(count);
    }
    if sealed.receive(socket, flags)? == 0 {
        return Ok(0);
    }
    // Records come in pieces, and may have no data. The caller looks at its clocks in between.
    open(sealed)?.ok_or_else(|| ErrorKind::WouldBlock.into())
}

/// The receiving half of a connection. The socket's receive timeout is `frame_time`.
pub(crate) struct Input {
    socket: Arc<TcpStream>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    frame_time: Duration,
    /// When the first byte of the current request arrived.
    frame_began: Option<Instant>,
    /// The deadline of the login.
    login_until: Option<(Instant, Duration)>,
    /// With TLS.
    sealed: Option<Sealed>,
}

impl Input {
    pub(crate) fn new(socket: Arc<TcpStream>, frame_time: Duration, login_time: Duration) -> std::io::Result<Self> {
        socket.set_read_timeout(Some(frame_time.min(login_time).max(Duration::from_millis(1))))?;
        Ok(Self {
            socket,
            buffer: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            frame_time,
            frame_began: None,
            login_until: Some((Instant::now() + login_time, login_time)),
            sealed: None,
        })
    }

    /// From now on all input is encrypted, with what has arrived already and was not taken.
    pub(crate) fn seal(&mut self, channel: Arc<Channel>) {
        let mut buffer = vec![0; SEALED_BYTES].into_boxed_slice();
        let here = &self.buffer[self.start..self.end];
        buffer[..here.len()].copy_from_slice(here);
        self.sealed = Some(Sealed { channel, buffer, start: 0, end: here.len() });
        (self.start, self.end) = (0, 0);
    }

    /// Receives the next part of the agreement on keys.
    pub(crate) fn shake_hands(&mut self) -> Result<(), InputEnd> {
        let Some(sealed) = &mut self.sealed else { return Ok(()) };
        if sealed.start == sealed.end {
            let received = sealed.receive(&self.socket, RecvFlags::empty());
            if self.received(received)? == 0 {
                return Ok(());
            }
        }
        match &mut self.sealed {
            Some(sealed) => Ok(sealed.open(&mut []).map(drop)?),
            None => Ok(()),
        }
    }

    /// The client has logged in: from now on it may be idle between requests.
    pub(crate) fn logged_in(&mut self) {
        self.login_until = None;
    }

    /// Whether the client is still connected, as far as the kernel knows. Never waits.
    pub(crate) fn is_open(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        // With TLS a client says that it ends, and these bytes may stay unread.
        if self.sealed.is_some() && is_half_closed(&self.socket) {
            return false;
        }
        let mut byte = [0; 1];
        match recv(&*self.socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((n, _)) => n > 0,
            Err(error) => error == rustix::io::Errno::AGAIN,
        }
    }

    /// Whether `n` bytes are in the buffer.
    pub(crate) fn has(&self, n: usize) -> bool {
        self.end - self.start >= n
    }

    /// Waits until `n` bytes (at most [`INPUT_BYTES`]) are in the buffer.
    pub(crate) fn fill(&mut self, n: usize) -> Result<(), InputEnd> {
        debug_assert!(n <= self.buffer.len());
        while !self.has(n) {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + n > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let room = &mut [IoSliceMut::new(&mut self.buffer[self.end..])];
            let result = receive(&self.socket, self.sealed.as_mut(), room, RecvFlags::empty());
            self.end += self.received(result)?;
        }
        Ok(())
    }

    /// Takes `n` bytes that [`Input::fill`] has received.
    pub(crate) fn take(&mut self, n: usize) -> &[u8] {
        let n = n.min(self.end - self.start);
        let from = self.start;
        self.start += n;
        &self.buffer[from..from + n]
    }

    /// A request has been read completely.
    pub(crate) fn frame_done(&mut self) {
        self.frame_began = if self.start == self.end { None } else { Some(Instant::now()) };
    }

    /// Restarts the time for the current request, because the server has kept the client waiting while it sent or
    /// worked.
    pub(crate) fn restart_clock(&mut self) {
        if self.frame_began.is_some() {
            self.frame_began = Some(Instant::now());
        }
    }

    /// Interprets the result of a receive: the number of bytes, 0 to try again, or the end.
    fn received(&mut self, result: std::io::Result<usize>) -> Result<usize, InputEnd> {
        let in_frame = self.frame_began.is_some();
        match result {
            Ok(0) if in_frame => Err(InputEnd::HalfFrame),
            Ok(0) => Err(InputEnd::Closed),
            Ok(n) => {
                self.check_login()?;
                match self.frame_began {
                    None => self.frame_began = Some(Instant::now()),
                    Some(began) if began.elapsed() > self.frame_time => return Err(InputEnd::Stuck(self.frame_time)),
                    Some(_) => {}
                }
                Ok(n)
            }
            Err(e) => match e.kind() {
                ErrorKind::Interrupted => Ok(0),
                ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                    self.check_login()?;
                    if self.frame_began.is_some_and(|began| began.elapsed() >= self.frame_time) {
                        return Err(InputEnd::Stuck(self.frame_time));
                    }
                    Ok(0)
                }
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if in_frame => Err(InputEnd::HalfFrame),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Err(InputEnd::Closed),
                _ => Err(e.downcast::<ChannelError>().map_or_else(InputEnd::Io, InputEnd::Tls)),
            },
        }
    }

    fn check_login(&self) -> Result<(), InputEnd> {
        match self.login_until {
            Some((until, login_time)) if Instant::now() >= until => Err(InputEnd::NoLogin(login_time)),
            _ => Ok(()),
        }
    }

    /// Fills `slices`, first from the buffer and then directly from the socket. After every [`PACE_BYTES`] the
    /// timeout starts again, so data may be slow, but not slower than that. With a `turn` it receives available data
    /// in a transfer slot, and returns the slot while it waits for more.
    pub(crate) fn fill_slices(
        &mut self,
        slices: &mut [IoSliceMut<'_>],
        mut turn: Option<&mut TransferSlot<'_>>,
    ) -> Result<(), InputEnd> {
        let mut rest = slices;
        let mut came = 0;
        self.frame_began = Some(Instant::now());
        loop {
            while rest.first().is_some_and(|slice| slice.is_empty()) {
                IoSliceMut::advance_slices(&mut rest, 0);
                if rest.first().is_some_and(|slice| slice.is_empty()) {
                    rest = &mut rest[1..];
                }
            }
            let Some(first) = rest.first_mut() else { return Ok(()) };
            let here = self.end - self.start;
            if here > 0 {
                let n = here.min(first.len());
                first[..n].copy_from_slice(&self.buffer[self.start..self.start + n]);
                self.start += n;
                IoSliceMut::advance_slices(&mut rest, n);
            } else {
                let batch = rest.len().min(1024);
                let n = match &mut turn {
                    Some(turn) => self.receive_in(turn, &mut rest[..batch])?,
                    None => {
                        let sealed = self.sealed.as_mut();
                        let result = receive(&self.socket, sealed, &mut rest[..batch], RecvFlags::empty());
                        self.received(result)?
                    }
                };
                IoSliceMut::advance_slices(&mut rest, n);
                came += n;
                if came >= PACE_BYTES {
                    came = 0;
                    self.frame_began = Some(Instant::now());
                }
            }
        }
    }

    /// Receives available data in a transfer slot, or waits for data without a slot.
    fn receive_in(&mut self, turn: &mut TransferSlot<'_>, slices: &mut [IoSliceMut<'_>]) -> Result<usize, InputEnd> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let socket = Arc::clone(&self.socket);
        if turn.take(|| {
            rustix::io::ioctl_fionread(&*socket).unwrap_or(0).clamp(INPUT_BYTES as u64, wanted.max(INPUT_BYTES) as u64)
        }) {
            // Waiting for other transfers does not count against the client.
            self.frame_began = Some(Instant::now());
        }
        let result = match receive(&socket, self.sealed.as_mut(), slices, RecvFlags::DONTWAIT) {
            Ok(count) => {
                turn.moved(count as u64);
                Ok(count)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                turn.end();
                receive(&socket, self.sealed.as_mut(), slices, RecvFlags::empty())
            }
            Err(error) => Err(error),
        };
        self.received(result)
    }

    /// Fills `into`.
    pub(crate) fn fill_slice(&mut self, into: &mut [u8], turn: Option<&mut TransferSlot<'_>>) -> Result<(), InputEnd> {
        self.fill_slices(&mut [IoSliceMut::new(into)], turn)
    }

    /// Discards `n` bytes.
    pub(crate) fn skip(&mut self, mut n: usize) -> Result<(), InputEnd> {
        let mut came = 0;
        self.frame_began = Some(Instant::now());
        while n > 0 {
            if self.start == self.end {
                if came >= PACE_BYTES {
                    came = 0;
                    self.frame_began = Some(Instant::now());
                }
                self.fill(1)?;
            }
            let step = n.min(self.end - self.start);
            came += step;
            self.start += step;
            n -= step;
        }
        Ok(())
    }

    /// Discards input until the client closes, for `time` or `bytes_max` bytes at most.
    pub(crate) fn discard(&mut self, time: Duration, bytes_max: usize) {
        let until = Instant::now() + time;
        let mut left = bytes_max;
        while left > 0 {
            let now = Instant::now();
            let wait = until.saturating_duration_since(now).max(Duration::from_millis(1));
            if now >= until || self.socket.set_read_timeout(Some(wait)).is_err() {
                return;
            }
            match (&*self.socket).read(&mut self.buffer) {
                Ok(n) if n > 0 => left = left.saturating_sub(n),
                _ => return,
            }
        }
    }
}

/// Whether the client has closed its sending side, although earlier data may be unread. Never waits.
pub(crate) fn is_half_closed(socket: &TcpStream) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && polled[0].revents().intersects(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    fn pair(frame_time: Duration) -> (Input, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        let mut input = Input::new(Arc::new(server), frame_time, Duration::from_secs(30)).unwrap();
        input.logged_in();
        (input, client)
    }

    #[test]
    fn slices_are_filled_in_order_and_large_payloads_bypass_the_buffer() {
        let (mut input, mut client) = pair(Duration::from_secs(5));
        let payload: Vec<u8> = (0..100_000u32).map(|i| (i % 251) as u8).collect();
        let sent = payload.clone();
        let writer = std::thread::spawn(move || {
            client.write_all(b"head").unwrap();
            client.write_all(&sent).unwrap();
            client.write_all(b"next").unwrap();
            client
        });
        input.fill(4).unwrap();
        assert_eq!(input.take(4), b"head");
        let mut first = vec![0u8; 7];
        let mut second = vec![0u8; 0];
        let mut third = vec![0u8; payload.len() - 7];
        input
            .fill_slices(
                &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second), IoSliceMut::new(&mut third)],
                None,
            )
            .unwrap();
        assert_eq!([first, third].concat(), payload);
        input.fill(4).unwrap();
        assert_eq!(input.take(4), b"next");
        input.frame_done();
        drop(writer.join().unwrap());
        assert!(matches!(input.fill(1), Err(InputEnd::Closed)));
    }

    #[test]
    fn a_half_sent_frame_is_cut_off_and_an_idle_client_is_not() {
        let (mut input, mut client) = pair(Duration::from_millis(60));
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            client.write_all(b"0123456789").unwrap();
            std::thread::sleep(Duration::from_millis(400));
            client
        });
        assert!(matches!(input.fill(24), Err(InputEnd::Stuck(_))));
        assert!(input.has(10) && !input.has(11));
        drop(thread.join().unwrap());
        let (mut input, mut client) = pair(Duration::from_millis(100));
        let thread = std::thread::spawn(move || {
            // Always some data, but never enough.
            for _ in 0..500 {
                if client.write_all(b"drop").is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        let began = Instant::now();
        assert!(matches!(input.fill_slice(&mut [0; 1 << 20], None), Err(InputEnd::Stuck(_))));
        assert!(began.elapsed() < Duration::from_secs(5));
        drop(input);
        thread.join().unwrap();
        let (mut input, mut client) = pair(Duration::from_millis(100));
        let thread = std::thread::spawn(move || {
            for _ in 0..500 {
                if client.write_all(b"drop").is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
        });
        assert!(matches!(input.skip(1 << 20), Err(InputEnd::Stuck(_))), "what nobody wants has to come in time too");
        drop(input);
        thread.join().unwrap();
        let (mut input, mut client) = pair(Duration::from_secs(5));
        client.write_all(b"half").unwrap();
        drop(client);
        assert!(matches!(input.fill(24), Err(InputEnd::HalfFrame)));
    }
}
