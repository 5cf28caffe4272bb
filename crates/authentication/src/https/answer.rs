//! The answer to a request, out of the bytes that come: a head, and a body that ends by its length, in chunks (RFC 9112,
//! section 7.1), or with the connection. It has no socket, and no length without a bound.

use identity::shown;

/// Longest head, in bytes.
const HEAD_BYTES_MAX: usize = 16 << 10;
/// Most headers.
const HEADERS_MAX: usize = 100;
/// Most interim answers (1xx).
const INTERIM_MAX: usize = 4;
/// Longest line with the length of a chunk, or of a trailer.
const LINE_MAX: usize = 4 << 10;
/// Most trailers.
const TRAILERS_MAX: usize = 32;

/// Why an answer cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// Not HTTP, or not as HTTP has it.
    #[error("the answer is not proper HTTP: {0}")]
    Malformed(&'static str),
    /// The connection ended too early.
    #[error("the server closed the connection before its answer was complete")]
    Cut,
    /// The body is too long.
    #[error("the answer has more than {0} bytes, which is the limit")]
    TooLong(usize),
    /// It is compressed, although that was not asked for.
    #[error("the answer has the encoding `{0}`, and none was asked for")]
    Encoding(String),
}

/// A complete answer. Only one with status 200 has a body here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) reason: String,
    pub(crate) location: Option<String>,
    pub(crate) body: Vec<u8>,
}

/// What comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Head,
    /// So many bytes of the body.
    Sized(usize),
    /// A line with the length of a chunk.
    ChunkLength,
    /// So many bytes of a chunk.
    Chunk(usize),
    /// The end of the line after a chunk.
    ChunkEnd,
    /// Lines after the last chunk, of which so many have come.
    Trailers(usize),
    /// A body that ends with the connection.
    UntilEnd,
    Done,
}

/// Reads one answer.
#[derive(Debug)]
pub(crate) struct AnswerReader {
    body_max: usize,
    part: Part,
    /// A head or a line that is not complete.
    pending: Vec<u8>,
    interim: usize,
    answer: Answer,
}

impl AnswerReader {
    /// For an answer whose body has at most `body_max` bytes.
    pub(crate) fn new(body_max: usize) -> Self {
        Self { body_max, part: Part::Head, pending: Vec::new(), interim: 0, answer: Answer::default() }
    }

    /// Takes bytes that have come. Returns whether the answer is complete; what comes after it is ignored.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<bool, AnswerError> {
        while !bytes.is_empty() && self.part != Part::Done {
            bytes = match self.part {
                Part::Head => self.head(bytes)?,
                Part::Sized(left) => {
                    let rest = self.body(bytes, left);
                    let left = left - (bytes.len() - rest.len());
                    self.part = if left == 0 { Part::Done } else { Part::Sized(left) };
                    rest
                }
                Part::Chunk(left) => {
                    let rest = self.body(bytes, left);
                    let left = left - (bytes.len() - rest.len());
                    self.part = if left == 0 { Part::ChunkEnd } else { Part::Chunk(left) };
                    rest
                }
                Part::UntilEnd => {
                    if bytes.len() > self.body_max - self.answer.body.len() {
                        return Err(AnswerError::TooLong(self.body_max));
                    }
                    self.body(bytes, bytes.len())
                }
                Part::ChunkLength | Part::ChunkEnd | Part::Trailers(_) => self.line(bytes)?,
                Part::Done => &[],
            };
        }
        Ok(self.part == Part::Done)
    }

    /// The answer, once it is complete or the connection has ended properly.
    pub(crate) fn finish(self) -> Result<Answer, AnswerError> {
        match self.part {
            Part::Done | Part::UntilEnd => Ok(self.answer),
            _ => Err(AnswerError::Cut),
        }
    }

    /// Appends up to `left` bytes to the body, and returns the others.
    fn body<'a>(&mut self, bytes: &'a [u8], left: usize) -> &'a [u8] {
        let (body, rest) = bytes.split_at(left.min(bytes.len()));
        self.answer.body.extend_from_slice(body);
        rest
    }

    fn head<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], AnswerError> {
        let before = self.pending.len();
        let taken = bytes.len().min(HEAD_BYTES_MAX - before);
        self.pending.extend_from_slice(&bytes[..taken]);
        let pending = std::mem::take(&mut self.pending);
        let Some(length) = self.parse_head(&pending)? else {
            if pending.len() == HEAD_BYTES_MAX {
                return Err(AnswerError::Malformed("its head does not end"));
            }
            self.pending = pending;
            return Ok(&[]);
        };
        // The head was not complete before, so it ends in `bytes`.
        Ok(&bytes[length.saturating_sub(before)..])
    }

    /// The length of the head, if it is complete.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, AnswerError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let parsed = response.parse(bytes).map_err(|_| AnswerError::Malformed("its head cannot be read"))?;
        let httparse::Status::Complete(length) = parsed else { return Ok(None) };
        let status = response.code.unwrap_or(0);
        if (100..200).contains(&status) {
            self.interim += 1;
            if status == 101 || self.interim > INTERIM_MAX {
                return Err(AnswerError::Malformed("it has interim answers that nobody asked for"));
            }
            return Ok(Some(length));
        }
        self.answer.status = status;
        self.answer.reason = shown(response.reason.unwrap_or_default());
        let mut size = None;
        let mut chunked = false;
        for header in response.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = std::str::from_utf8(header.value).unwrap_or("\u{fffd}").trim();
            if is("location") {
                self.answer.location = Some(value.to_owned());
            } else if is("content-length") {
                let number = value.bytes().all(|digit| digit.is_ascii_digit()).then(|| value.parse::<usize>().ok());
                let number = number.flatten().ok_or(AnswerError::Malformed("its Content-Length is not a number"))?;
                if size.is_some_and(|size| size != number) {
                    return Err(AnswerError::Malformed("it has two different Content-Length"));
                }
                size = Some(number);
            } else if is("transfer-encoding") {
                if chunked || !value.eq_ignore_ascii_case("chunked") {
                    return Err(AnswerError::Encoding(shown(value)));
                }
                chunked = true;
            } else if is("content-encoding") && !value.eq_ignore_ascii_case("identity") {
                return Err(AnswerError::Encoding(shown(value)));
            }
        }
        self.part = match (status, chunked, size) {
            // The body of any other answer says nothing that is needed.
            (status, _, _) if status != 200 => Part::Done,
            (_, true, Some(_)) => return Err(AnswerError::Malformed("it has a Content-Length and chunks")),
            (_, true, None) => Part::ChunkLength,
            (_, false, Some(0)) => Part::Done,
            (_, false, Some(size)) if size > self.body_max => return Err(AnswerError::TooLong(self.body_max)),
            (_, false, Some(size)) => Part::Sized(size),
            (_, false, None) => Part::UntilEnd,
        };
        Ok(Some(length))
    }

    fn line<'a>(&mut self, bytes: &'a [u8]) -> Result<&'a [u8], AnswerError> {
        let end = bytes.iter().position(|&byte| byte == b'\n');
        let length = end.map_or(bytes.len(), |end| end + 1);
        if self.pending.len() + length > LINE_MAX {
            return Err(AnswerError::Malformed("a line between its chunks does not end"));
        }
        self.pending.extend_from_slice(&bytes[..length]);
        if end.is_some() {
            let line = std::mem::take(&mut self.pending);
            self.part = self.after(line.trim_ascii())?;
        }
        Ok(&bytes[length..])
    }

    /// What comes after this line.
    fn after(&self, line: &[u8]) -> Result<Part, AnswerError> {
        Ok(match self.part {
            Part::ChunkLength => {
                let digits = line.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
                let proper = (1..=8).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
                let number = std::str::from_utf8(digits).ok().filter(|_| proper);
                let length = number.and_then(|number| usize::from_str_radix(number, 16).ok());
                match length.ok_or(AnswerError::Malformed("the length of a chunk is not a number"))? {
                    0 => Part::Trailers(0),
                    length if length > self.body_max - self.answer.body.len() => {
                        return Err(AnswerError::TooLong(self.body_max));
                    }
                    length => Part::Chunk(length),
                }
            }
            Part::ChunkEnd if line.is_empty() => Part::ChunkLength,
            Part::ChunkEnd => return Err(AnswerError::Malformed("a chunk is longer than its length")),
            Part::Trailers(_) if line.is_empty() => Part::Done,
            Part::Trailers(count) if count < TRAILERS_MAX => Part::Trailers(count + 1),
            Part::Trailers(_) => return Err(AnswerError::Malformed("its trailers do not end")),
            other => other,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What `bytes` mean, if they come in parts of `step` bytes and then the connection ends.
    fn read(bytes: &[u8], step: usize) -> Result<Answer, AnswerError> {
        let mut reader = AnswerReader::new(100);
        for part in bytes.chunks(step) {
            if reader.take(part)? {
                break;
            }
        }
        reader.finish()
    }

    /// The same, whatever the parts are.
    fn read_all_ways(text: &str) -> Result<Answer, AnswerError> {
        let whole = read(text.as_bytes(), usize::MAX);
        for step in 1..8 {
            assert_eq!(read(text.as_bytes(), step), whole, "{text:?} in parts of {step}");
        }
        whole
    }

    fn body(text: &str) -> String {
        String::from_utf8(read_all_ways(text).unwrap().body).unwrap()
    }

    #[test]
    fn a_body_ends_by_its_length_in_chunks_or_with_the_connection() {
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef"), "abc");
        assert_eq!(body("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "");
        assert_eq!(body("HTTP/1.0 200 OK\r\n\r\nabc"), "abc");
        let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\n00A\r\n0123456789\r\n0\r\nA: b\r\n\r\n";
        assert_eq!(body(chunks), "abc0123456789");
        assert_eq!(
            body(&format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 X\r\nA: b\r\n\r\n{chunks}")),
            "abc0123456789"
        );
    }

    #[test]
    fn other_answers_have_a_status_and_perhaps_a_location() {
        let answer =
            read_all_ways("HTTP/1.1 302 Found\r\nLocation: https://b/\r\nContent-Length: 999\r\n\r\n").unwrap();
        assert_eq!((answer.status, answer.location.as_deref()), (302, Some("https://b/")));
        let answer = read_all_ways("HTTP/1.1 500 No\r\nContent-Encoding: identity\r\n\r\n<html>").unwrap();
        assert_eq!((answer.status, answer.reason.as_str(), answer.body.len()), (500, "No", 0));
    }

    #[test]
    fn what_is_cut_is_no_answer() {
        for text in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n",
        ] {
            assert_eq!(read_all_ways(text), Err(AnswerError::Cut), "{text:?}");
        }
    }

    #[test]
    fn every_length_has_a_bound() {
        let ok = "HTTP/1.1 200 OK\r\n";
        let long = "x".repeat(101);
        let too_long = Err(AnswerError::TooLong(100));
        assert_eq!(read_all_ways(&format!("{ok}Content-Length: 101\r\n\r\n")), too_long);
        assert_eq!(read_all_ways(&format!("{ok}\r\n{long}")), too_long);
        assert_eq!(read_all_ways(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n65\r\n")), too_long);
        let many = "1\r\nx\r\n".repeat(101);
        assert_eq!(read_all_ways(&format!("{ok}Transfer-Encoding: chunked\r\n\r\n{many}")), too_long);
        let malformed = |text: &str| matches!(read_all_ways(text), Err(AnswerError::Malformed(_)));
        assert!(malformed(&format!("{ok}A: {}", "x".repeat(HEAD_BYTES_MAX))));
        assert!(malformed(&format!("{ok}{}\r\n", "A: b\r\n".repeat(HEADERS_MAX + 1))));
        let chunked = format!("{ok}Transfer-Encoding: chunked\r\n\r\n");
        assert!(malformed(&format!("{chunked}1;{}", "x".repeat(LINE_MAX))));
        assert!(malformed(&format!("{chunked}0\r\n{}", "A: b\r\n".repeat(TRAILERS_MAX + 1))));
        assert!(malformed(&"HTTP/1.1 102 X\r\n\r\n".repeat(INTERIM_MAX + 1)));
    }

    #[test]
    fn ambiguous_and_encoded_bodies_are_refused() {
        let why = |headers: &str| {
            read_all_ways(&format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n1\r\nx\r\n0\r\n\r\n")).unwrap_err()
        };
        for headers in [
            "Content-Length: 1\r\nContent-Length: 2",
            "Content-Length: -1",
            "Content-Length: +1",
            "Content-Length:",
            "Content-Length: 18446744073709551616",
            "Content-Length: 1\r\nTransfer-Encoding: chunked",
        ] {
            assert!(matches!(why(headers), AnswerError::Malformed(_)), "{headers}");
        }
        for headers in [
            "Content-Encoding: gzip",
            "Transfer-Encoding: gzip, chunked",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        ] {
            assert!(matches!(why(headers), AnswerError::Encoding(_)), "{headers}");
        }
        for body in ["x\r\n", "-1\r\n", "\r\n", "123456789\r\n", "1\r\nxy\r\n"] {
            let text = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}");
            assert!(matches!(read_all_ways(&text), Err(AnswerError::Malformed(_))), "{body:?}");
        }
        assert!(matches!(read_all_ways("SSH-2.0-OpenSSH_9\r\n"), Err(AnswerError::Malformed(_))));
    }

    proptest! {
        /// However the bytes come, they mean the same, and the memory is bounded.
        #[test]
        fn parts_make_no_difference(mut bytes in proptest::collection::vec(any::<u8>(), 0..300), step in 1..50_usize, kind in 0..4) {
            let head: &[u8] = match kind {
                0 => b"",
                1 => b"HTTP/1.1 200 OK\r\n\r\n",
                2 => b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n",
                _ => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
            };
            bytes.splice(..0, head.iter().copied());
            let whole = read(&bytes, usize::MAX);
            prop_assert_eq!(&read(&bytes, step), &whole);
            prop_assert!(whole.map_or(0, |answer| answer.body.len()) <= 100);
        }
    }
}
