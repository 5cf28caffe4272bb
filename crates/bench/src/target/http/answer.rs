//! A server's answer: a head, and a body that ends by its length, in chunks (RFC 9112, 7.1), or with the
//! connection.

use std::io;
use std::time::Duration;

use super::connection::{BUFFER_BYTES, Connection};

/// The most headers of an answer.
const HEADERS_MAX: usize = 100;
/// The most interim answers (1xx).
const INTERIM_MAX: usize = 16;
/// The longest line between chunks.
const LINE_MAX: usize = 4 << 10;
/// The most characters that are kept of a server's refusal.
const REASON_MAX: usize = 200;

/// The head of an answer, with the headers that are used here.
#[derive(Debug, Default)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) reason: String,
    pub(super) location: Option<String>,
    /// The offset of the first byte that follows, of a partial file.
    pub(super) range_start: Option<u64>,
    /// The length of the whole file.
    pub(super) range_total: Option<u64>,
    pub(super) len: Option<u64>,
    chunked: bool,
    /// The connection ends after it.
    pub(super) closes: bool,
}

fn invalid(text: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.into())
}

fn ended() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server has closed the connection before its answer was complete")
}

impl Head {
    /// Reads the next answer that is not interim. With `or_continue` that includes `100 Continue`, for which a
    /// request with `Expect` waits.
    pub(super) fn read(connection: &mut Connection, patience: Option<Duration>, or_continue: bool) -> io::Result<Self> {
        for _ in 0..INTERIM_MAX {
            let head = Self::one(connection, patience)?;
            if head.status >= 200 || (or_continue && head.status == 100) {
                return Ok(head);
            }
        }
        Err(invalid("nothing but interim answers"))
    }

    fn one(connection: &mut Connection, patience: Option<Duration>) -> io::Result<Self> {
        loop {
            if let Some((head, len)) = Self::parse(connection.come())? {
                connection.take(len);
                return Ok(head);
            }
            if connection.come().len() >= BUFFER_BYTES {
                return Err(invalid("a head of an answer that does not end"));
            }
            if connection.wait(patience)? == 0 {
                return Err(ended());
            }
        }
    }

    /// Parses a head, and returns it with its length; `None`: it is incomplete.
    pub(super) fn parse(bytes: &[u8]) -> io::Result<Option<(Self, usize)>> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(bytes).map_err(|error| invalid(format!("not an HTTP answer: {error}")))?;
        let httparse::Status::Complete(len) = parsed else { return Ok(None) };
        let mut head = Self {
            status: response.code.unwrap_or(0),
            reason: response.reason.unwrap_or_default().chars().take(REASON_MAX).collect(),
            closes: response.version == Some(0),
            ..Self::default()
        };
        for header in response.headers.iter() {
            head.set(header.name, header.value)?;
        }
        Ok(Some((head, len)))
    }

    fn set(&mut self, name: &str, value: &[u8]) -> io::Result<()> {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        let text = || std::str::from_utf8(value).map(str::trim).map_err(|_| invalid(format!("{name} is no text")));
        if is("content-length") {
            let len = text()?.parse().map_err(|_| invalid("Content-Length is no number"))?;
            if self.len.is_some_and(|known| known != len) {
                return Err(invalid("two different Content-Length"));
            }
            self.len = Some(len);
        } else if is("transfer-encoding") {
            if !text()?.eq_ignore_ascii_case("chunked") {
                return Err(invalid(format!("the transfer encoding `{}`, which was not asked for", text()?)));
            }
            self.chunked = true;
        } else if is("location") {
            self.location = Some(text()?.to_owned());
        } else if is("content-range") {
            // bytes 0-99/1000; for an impossible range: bytes */1000
            let first = text()?.strip_prefix("bytes ").and_then(|rest| rest.split('-').next()?.parse().ok());
            self.range_start = first;
            self.range_total = text()?.rsplit_once('/').and_then(|(_, total)| total.parse().ok());
        } else if is("connection") {
            let tokens = || text().map(|text| text.split(','));
            self.closes |= tokens()?.any(|token| token.trim().eq_ignore_ascii_case("close"));
            if tokens()?.any(|token| token.trim().eq_ignore_ascii_case("keep-alive")) {
                self.closes = false;
            }
        }
        Ok(())
    }
}

/// How a body ends.
#[derive(Debug)]
enum Framing {
    /// After this number of bytes.
    Len(u64),
    /// After a last chunk. This number of bytes remain of the present chunk; `None`: a line with a length follows.
    Chunks(Option<u64>),
    /// With the connection.
    Close,
}

/// The unread part of an answer's body.
#[derive(Debug)]
pub(super) struct Body {
    framing: Framing,
    done: bool,
    /// The body contradicts its head, so the connection cannot be used any more.
    odd: bool,
}

impl Body {
    /// Starts a body after this head; `method` is that of the request.
    pub(super) fn of(head: &Head, method: &str) -> io::Result<Self> {
        let none = method == "HEAD" || matches!(head.status, 100..=199 | 204 | 304);
        let framing = match (head.chunked, head.len) {
            _ if none => Framing::Len(0),
            (true, Some(_)) => return Err(invalid("a body in chunks that also has a length")),
            (true, None) => Framing::Chunks(None),
            (false, Some(len)) => Framing::Len(len),
            (false, None) => Framing::Close,
        };
        // For a shorter file, XRootD 5 announces the requested length, sends what there is, and closes.
        let there = match (head.status, head.range_start, head.range_total) {
            (206, Some(start), Some(total)) => total.saturating_sub(start),
            _ => u64::MAX,
        };
        let (framing, odd) = match framing {
            Framing::Len(len) if len > there => (Framing::Len(there), true),
            framing => (framing, false),
        };
        let done = matches!(framing, Framing::Len(0));
        Ok(Self { framing, done, odd })
    }

    /// Whether all was read. Then the connection can be used again.
    pub(super) fn is_done(&self) -> bool {
        self.done
    }

    /// Whether the connection ends with it.
    pub(super) fn ends_connection(&self) -> bool {
        self.odd || matches!(self.framing, Framing::Close)
    }

    /// Reads the next bytes; 0: the body has ended.
    pub(super) fn read(&mut self, connection: &mut Connection, into: &mut [u8]) -> io::Result<usize> {
        if self.done || into.is_empty() {
            return Ok(0);
        }
        let left = match &mut self.framing {
            Framing::Len(left) => left,
            Framing::Chunks(chunk) => {
                let left = match chunk.take() {
                    Some(left) => left,
                    None => chunk_len(connection)?,
                };
                if left == 0 {
                    skip_trailers(connection)?;
                    self.done = true;
                    return Ok(0);
                }
                chunk.insert(left)
            }
            Framing::Close => {
                let read = connection.read(into)?;
                self.done = read == 0;
                return Ok(read);
            }
        };
        let most = usize::try_from(*left).unwrap_or(usize::MAX).min(into.len());
        let read = connection.read(&mut into[..most])?;
        if read == 0 {
            return Err(ended());
        }
        *left -= read as u64;
        if *left == 0 {
            match &mut self.framing {
                Framing::Chunks(chunk) => {
                    *chunk = None;
                    if !line(connection)?.is_empty() {
                        return Err(invalid("a chunk that exceeds its length"));
                    }
                }
                _ => self.done = true,
            }
        }
        Ok(read)
    }
}

fn chunk_len(connection: &mut Connection) -> io::Result<u64> {
    let line = line(connection)?;
    let digits = line.split(';').next().unwrap_or_default().trim();
    let valid = (1..=15).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    let len = valid.then(|| u64::from_str_radix(digits, 16).ok()).flatten();
    len.ok_or_else(|| invalid("the length of a chunk is no number"))
}

fn skip_trailers(connection: &mut Connection) -> io::Result<()> {
    for _ in 0..HEADERS_MAX {
        if line(connection)?.is_empty() {
            return Ok(());
        }
    }
    Err(invalid("trailers that do not end"))
}

/// Reads a line, without its end.
fn line(connection: &mut Connection) -> io::Result<String> {
    loop {
        let come = connection.come();
        if let Some(end) = come.iter().take(LINE_MAX).position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&come[..end]).trim_end_matches('\r').to_owned();
            connection.take(end + 1);
            return Ok(line);
        }
        if come.len() >= LINE_MAX {
            return Err(invalid("a line between chunks that does not end"));
        }
        if connection.wait(None)? == 0 {
            return Err(ended());
        }
    }
}
