//! A response's header, and the bodies that do not depend on the request.

use super::Status;
use crate::reader::{Reader, text};
use crate::{ErrorNumber, StreamId, WireError};

/// The length of a response's header in bytes.
pub const RESPONSE_HEADER_LEN: usize = 8;

/// The status of a response (`XResponseType`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResponseStatus {
    /// Success. The body is the result, or the rest of it.
    Ok,
    /// A part of the result; more follows.
    OkSoFar,
    /// A message without a request, such as a late answer.
    Attn,
    /// The client must send more credentials.
    AuthMore,
    /// An error.
    Error,
    /// The client must ask another server.
    Redirect,
    /// The client must ask again after some seconds.
    Wait,
    /// The answer will come later, as [`ResponseStatus::Attn`].
    WaitResp,
    /// A result with a checksummed header: pgread and pgwrite.
    Status,
    /// A code that the protocol does not have.
    Unknown(u16),
}

impl ResponseStatus {
    /// Returns the status of a code on the wire.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            0 => Self::Ok,
            4000 => Self::OkSoFar,
            4001 => Self::Attn,
            4002 => Self::AuthMore,
            4003 => Self::Error,
            4004 => Self::Redirect,
            4005 => Self::Wait,
            4006 => Self::WaitResp,
            4007 => Self::Status,
            other => Self::Unknown(other),
        }
    }

    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Ok => 0,
            Self::OkSoFar => 4000,
            Self::Attn => 4001,
            Self::AuthMore => 4002,
            Self::Error => 4003,
            Self::Redirect => 4004,
            Self::Wait => 4005,
            Self::WaitResp => 4006,
            Self::Status => 4007,
            Self::Unknown(code) => code,
        }
    }
}

/// The 8 bytes before every response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ResponseHeader {
    /// The stream id of the request.
    pub stream: StreamId,
    /// The status.
    pub status: ResponseStatus,
    /// The length of the body in bytes. For [`ResponseStatus::Status`] it counts only the checksummed part;
    /// [`Status::data_len`] bytes of data follow.
    pub dlen: u32,
}

impl ResponseHeader {
    /// Returns the 8 bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; RESPONSE_HEADER_LEN] {
        let [s0, s1] = self.stream.0;
        let [c0, c1] = self.status.code().to_be_bytes();
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        [s0, s1, c0, c1, d0, d1, d2, d3]
    }

    /// Parses the 8 bytes. A negative length is an error. The client itself decides how long a body may be.
    pub fn parse(bytes: &[u8; RESPONSE_HEADER_LEN]) -> Result<Self, WireError> {
        let [s0, s1, c0, c1, d0, d1, d2, d3] = *bytes;
        let dlen = i32::from_be_bytes([d0, d1, d2, d3]);
        let Ok(dlen) = u32::try_from(dlen) else {
            return Err(WireError::OutOfRange { what: "response length", value: i64::from(dlen) });
        };
        Ok(Self { stream: StreamId([s0, s1]), status: ResponseStatus::from_code(u16::from_be_bytes([c0, c1])), dlen })
    }
}

/// The target of a redirect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redirect {
    /// Another server.
    Host {
        /// Its port; 0 means the default one.
        port: u16,
        /// Its name or address, then optionally `?opaque`, then optionally `?token`.
        host: Vec<u8>,
    },
    /// A URL, only for clients with [`crate::request::LoginAbility::REDIRFLAGS`].
    Url {
        /// `XProtocol`'s virtual redirect options (`kXR_recoverWrts` 0x1000, `kXR_collapseRedir` 0x2000, …).
        flags: u32,
        /// The URL.
        url: Vec<u8>,
    },
}

/// A message that does not answer a request directly.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attn {
    /// The answer announced by `waitresp`: a whole response, and its stream.
    Response(StreamId, Box<Response>),
    /// A message for people.
    Message(Vec<u8>),
    /// An action that is no longer used.
    Other {
        /// The action.
        action: u32,
        /// As received.
        params: Vec<u8>,
    },
}

/// One response on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// Success.
    Ok(Vec<u8>),
    /// A part of the result.
    OkSoFar(Vec<u8>),
    /// A message without a request.
    Attn(Attn),
    /// The client must send more credentials. The data are in the method's format.
    AuthMore(Vec<u8>),
    /// An error.
    Error {
        /// The reason, for programs.
        number: ErrorNumber,
        /// The reason, for people. At most 4095 bytes, no NUL.
        text: Vec<u8>,
    },
    /// The client must ask another server.
    Redirect(Redirect),
    /// The client must ask again later.
    Wait {
        /// The time until then.
        seconds: u32,
        /// The reason, for people.
        text: Vec<u8>,
    },
    /// The answer will come later.
    WaitResp {
        /// The server's estimate of the time until then.
        seconds: u32,
        /// The reason, for people.
        text: Vec<u8>,
    },
    /// The result of a pgread or pgwrite.
    Status(Status),
}

/// `asyncms`
const ASYNC_MESSAGE: u32 = 5002;
/// `asynresp`
const ASYNC_RESPONSE: u32 = 5008;
/// The longest text of an error or wait, including its NUL.
const TEXT_MAX: usize = 4096;

impl Response {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> ResponseStatus {
        match self {
            Response::Ok(_) => ResponseStatus::Ok,
            Response::OkSoFar(_) => ResponseStatus::OkSoFar,
            Response::Attn(_) => ResponseStatus::Attn,
            Response::AuthMore(_) => ResponseStatus::AuthMore,
            Response::Error { .. } => ResponseStatus::Error,
            Response::Redirect(_) => ResponseStatus::Redirect,
            Response::Wait { .. } => ResponseStatus::Wait,
            Response::WaitResp { .. } => ResponseStatus::WaitResp,
            Response::Status(_) => ResponseStatus::Status,
        }
    }

    /// Decodes a response from its header and the `header.dlen` bytes after it. The data of a [`Response::Status`]
    /// follow those bytes and are not part of it.
    pub fn decode(header: &ResponseHeader, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("response", body);
        let response = match header.status {
            ResponseStatus::Ok => Response::Ok(body.to_vec()),
            ResponseStatus::OkSoFar => Response::OkSoFar(body.to_vec()),
            ResponseStatus::AuthMore => Response::AuthMore(body.to_vec()),
            ResponseStatus::Attn => Response::Attn(Attn::decode(body)?),
            ResponseStatus::Error => {
                let number = ErrorNumber(reader.u32()?);
                Response::Error { number, text: text("text of a response", reader.rest())?.to_vec() }
            }
            ResponseStatus::Redirect => {
                let port = reader.i32()?;
                let rest = text("text of a response", reader.rest())?.to_vec();
                Response::Redirect(match u16::try_from(port) {
                    Ok(port) => Redirect::Host { port, host: rest },
                    Err(_) if port < 0 => Redirect::Url { flags: (!port).unsigned_abs(), url: rest },
                    Err(_) => return Err(WireError::OutOfRange { what: "redirect port", value: i64::from(port) }),
                })
            }
            ResponseStatus::Wait => {
                let seconds = reader.u31("seconds to wait")?;
                Response::Wait { seconds, text: text("text of a response", reader.rest())?.to_vec() }
            }
            ResponseStatus::WaitResp => {
                let seconds = reader.u31("seconds to wait")?;
                Response::WaitResp { seconds, text: text("text of a response", reader.rest())?.to_vec() }
            }
            ResponseStatus::Status => Response::Status(Status::decode(header.stream, body)?),
            ResponseStatus::Unknown(code) => {
                return Err(WireError::OutOfRange { what: "response status", value: i64::from(code) });
            }
        };
        Ok(response)
    }

    /// Appends the response to `out`, header and body. After an error nothing is appended.
    pub fn encode(&self, stream: StreamId, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut body = Vec::new();
        match self {
            Response::Ok(bytes) | Response::OkSoFar(bytes) | Response::AuthMore(bytes) => body.extend_from_slice(bytes),
            Response::Attn(attn) => attn.encode(&mut body)?,
            Response::Error { number, text } => {
                body.extend_from_slice(&number.0.to_be_bytes());
                put_text(text, &mut body);
                body.push(0);
            }
            Response::Redirect(Redirect::Host { port, host }) => {
                body.extend_from_slice(&u32::from(*port).to_be_bytes());
                body.extend_from_slice(host);
            }
            Response::Redirect(Redirect::Url { flags, url }) => {
                let Ok(flags) = i32::try_from(*flags) else {
                    return Err(WireError::Unsendable { what: "redirect flags", why: "they need 31 bits at most" });
                };
                body.extend_from_slice(&(!flags).to_be_bytes());
                body.extend_from_slice(url);
            }
            Response::Wait { seconds, text } | Response::WaitResp { seconds, text } => {
                body.extend_from_slice(&seconds.to_be_bytes());
                put_text(text, &mut body);
            }
            Response::Status(status) => status.encode(stream, &mut body),
        }
        let Some(dlen) = u32::try_from(body.len()).ok().filter(|&len| i32::try_from(len).is_ok()) else {
            return Err(WireError::Unsendable { what: "response", why: "its body needs more than 31 bits of length" });
        };
        out.extend_from_slice(&ResponseHeader { stream, status: self.status(), dlen }.to_bytes());
        out.append(&mut body);
        Ok(())
    }
}

impl Attn {
    fn decode(body: &[u8]) -> Result<Self, WireError> {
        let mut reader = Reader::new("attn", body);
        let action = reader.u32()?;
        if action != ASYNC_RESPONSE && action != ASYNC_MESSAGE {
            return Ok(Attn::Other { action, params: reader.rest().to_vec() });
        }
        if action == ASYNC_MESSAGE {
            return Ok(Attn::Message(text("text of a response", reader.rest())?.to_vec()));
        }
        reader.skip(4)?;
        let header = ResponseHeader::parse(reader.array()?)?;
        let inner = reader.rest();
        if inner.len() as u64 != u64::from(header.dlen) {
            return Err(WireError::Malformed { what: "attn", why: "the response inside has another length" });
        }
        if header.status == ResponseStatus::Attn {
            return Err(WireError::Malformed { what: "attn", why: "one inside another" });
        }
        Ok(Attn::Response(header.stream, Box::new(Response::decode(&header, inner)?)))
    }

    fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        match self {
            Attn::Response(stream, response) => {
                if matches!(**response, Response::Attn(_)) {
                    return Err(WireError::Unsendable { what: "attn", why: "one inside another" });
                }
                out.extend_from_slice(&ASYNC_RESPONSE.to_be_bytes());
                out.extend_from_slice(&[0; 4]);
                response.encode(*stream, out)?;
            }
            Attn::Message(text) => {
                out.extend_from_slice(&ASYNC_MESSAGE.to_be_bytes());
                out.extend_from_slice(text);
            }
            Attn::Other { action, params } => {
                out.extend_from_slice(&action.to_be_bytes());
                out.extend_from_slice(params);
            }
        }
        Ok(())
    }
}

/// Appends `text`, cut to the size of the protocol's own buffers, with NULs replaced. The stock server ends the
/// text of an error with a NUL, and no other text.
pub(crate) fn put_text(text: &[u8], out: &mut Vec<u8>) {
    let text = &text[..text.len().min(TEXT_MAX - 1)];
    out.extend(text.iter().map(|&b| if b == 0 { b'?' } else { b }));
}
