//! A connection's requests on their way in: a modest buffer, so that one system call fetches several small requests,
//! and large payloads go past it straight to where they are wanted.

use std::io::{self, ErrorKind, IoSliceMut, Read};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags};

use crate::config::{INPUT_BYTES, PACE_BYTES};
use service::TransferSlot;

/// Why no more input comes.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputEnd {
    /// The client closed the connection between two requests, or we did.
    #[error("the connection was closed")]
    Closed,
    /// It was closed within a request.
    #[error("the connection ended within a request")]
    HalfFrame,
    /// A request began to arrive and did not go on.
    #[error("a request stopped arriving half-way or came too slowly: it has {0:?}, and its data as long for each {pace} KiB", pace = PACE_BYTES >> 10)]
    Stuck(Duration),
    /// No login in time.
    #[error("no login within {0:?}")]
    NoLogin(Duration),
    /// The socket failed.
    #[error("receiving failed: {0}")]
    Io(#[from] std::io::Error),
}

/// The receiving half of one connection. The socket's receive time-out is set to `frame_time`.
pub(crate) struct Input {
    socket: Arc<TcpStream>,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
    frame_time: Duration,
    /// When the first byte of the request that is arriving came.
    frame_began: Option<Instant>,
    /// The login must be done by then.
    login_until: Option<(Instant, Duration)>,
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
        })
    }

    /// The client has logged in: it may be idle between requests from now on.
    pub(crate) fn logged_in(&mut self) {
        self.login_until = None;
    }

    /// Whether the client is still there, as far as the kernel knows. Never waits.
    pub(crate) fn is_open(&self) -> bool {
        use rustix::net::{RecvFlags, recv};
        let mut byte = [0; 1];
        match recv(&*self.socket, &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((n, _)) => n > 0,
            Err(error) => error == rustix::io::Errno::AGAIN,
        }
    }

    /// Whether `n` bytes can be had without waiting.
    pub(crate) fn has(&self, n: usize) -> bool {
        self.end - self.start >= n
    }

    /// Waits until `n` bytes (at most [`INPUT_BYTES`]) are here.
    pub(crate) fn fill(&mut self, n: usize) -> Result<(), InputEnd> {
        debug_assert!(n <= self.buffer.len());
        while !self.has(n) {
            if self.start == self.end {
                (self.start, self.end) = (0, 0);
            } else if self.start + n > self.buffer.len() {
                self.buffer.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            let result = (&*self.socket).read(&mut self.buffer[self.end..]);
            self.end += self.received(result)?;
        }
        Ok(())
    }

    /// Takes `n` bytes that [`Input::fill`] has brought.
    pub(crate) fn take(&mut self, n: usize) -> &[u8] {
        let n = n.min(self.end - self.start);
        let from = self.start;
        self.start += n;
        &self.buffer[from..from + n]
    }

    /// One request is read whole.
    pub(crate) fn frame_done(&mut self) {
        self.frame_began = if self.start == self.end { None } else { Some(Instant::now()) };
    }

    /// The server has kept the client waiting (it was sending, or working): the time for the request that has begun to
    /// arrive runs from now on.
    pub(crate) fn restart_clock(&mut self) {
        if self.frame_began.is_some() {
            self.frame_began = Some(Instant::now());
        }
    }

    /// Judges what a receive returned: bytes that came, 0 to try again, or the end.
    fn received(&mut self, result: std::io::Result<usize>) -> Result<usize, InputEnd> {
        let in_frame = self.frame_began.is_some();
        match result {
            Ok(0) if in_frame => Err(InputEnd::HalfFrame),
            Ok(0) => Err(InputEnd::Closed),
            Ok(n) => {
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
                    if let Some((until, login_time)) = self.login_until
                        && Instant::now() >= until
                    {
                        return Err(InputEnd::NoLogin(login_time));
                    }
                    if self.frame_began.is_some_and(|began| began.elapsed() >= self.frame_time) {
                        return Err(InputEnd::Stuck(self.frame_time));
                    }
                    Ok(0)
                }
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe if in_frame => Err(InputEnd::HalfFrame),
                ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Err(InputEnd::Closed),
                _ => Err(e.into()),
            },
        }
    }

    /// Fills `slices` from the buffer first, then straight from the socket. Each [`PACE_BYTES`] that come renew the time: data may
    /// be slow, but not as slow as that. With a `turn` data is taken in one as far as it is here; waiting for more ends it.
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
                        let result = (&*self.socket).read_vectored(&mut rest[..batch]);
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

    /// Receives what is here in a turn, or waits for more without one.
    fn receive_in(&mut self, turn: &mut TransferSlot<'_>, slices: &mut [IoSliceMut<'_>]) -> Result<usize, InputEnd> {
        let wanted: usize = slices.iter().map(|slice| slice.len()).sum();
        let socket = Arc::clone(&self.socket);
        if turn.take(|| {
            rustix::io::ioctl_fionread(&*socket).unwrap_or(0).clamp(INPUT_BYTES as u64, wanted.max(INPUT_BYTES) as u64)
        }) {
            // Others were first: that is not the client's time.
            self.frame_began = Some(Instant::now());
        }
        let here = rustix::net::recvmsg(&*socket, slices, &mut RecvAncillaryBuffer::default(), RecvFlags::DONTWAIT);
        let result = match here {
            Ok(message) => {
                turn.moved(message.bytes as u64);
                Ok(message.bytes)
            }
            Err(Errno::AGAIN) => {
                turn.end();
                (&*socket).read_vectored(slices)
            }
            Err(error) => Err(io::Error::from(error)),
        };
        self.received(result)
    }

    /// Fills `into`.
    pub(crate) fn fill_slice(&mut self, into: &mut [u8], turn: Option<&mut TransferSlot<'_>>) -> Result<(), InputEnd> {
        self.fill_slices(&mut [IoSliceMut::new(into)], turn)
    }

    /// Takes `n` bytes and forgets them.
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

    /// Reads away what still comes: until the client closes, for `time`, or `bytes_max` bytes.
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

/// Whether the client will send nothing more, though some of what it has sent may not have been read yet. Never waits.
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
    fn replicas_come_together_and_large_payloads_go_past_the_buffer() {
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
            // Always something, and never enough.
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
