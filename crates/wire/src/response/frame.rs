//! A response's header, and the bodies that do not depend on the request.

use super::Status;
use crate::reader::{Reader, text};
use crate::{ErrorNumber, StreamId, WireError};

/// Bytes in a response's header.
pub const RESPONSE_HEADER_LEN: usize = 8;

/// How a request went (`XResponseType`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ResponseStatus {
    /// Done; the body is the (rest of the) result.
    Ok,
    /// Part of the result; more follows.
    OkSoFar,
    /// Not asked for: a late answer.
    Attn,
    /// More credentials are wanted.
    AuthMore,
    /// Refused or failed.
    Error,
    /// Ask there.
    Redirect,
    /// Ask again after some seconds.
    Wait,
    /// The answer comes later, as [`ResponseStatus::Attn`].
    WaitResp,
    /// A result with a checksummed header: pgread and pgwrite.
    Status,
    /// None of the protocol's.
    Unknown(u16),
}

impl ResponseStatus {
    /// From the wire.
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

    /// To the wire.
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
    /// Of which request.
    pub stream: StreamId,
    /// How it went.
    pub status: ResponseStatus,
    /// Bytes of the body. For [`ResponseStatus::Status`]: of the checksummed part; data follows that
    /// ([`Status::data_len`]).
    pub dlen: u32,
}

impl ResponseHeader {
    /// The 8 bytes.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; RESPONSE_HEADER_LEN] {
        let [s0, s1] = self.stream.0;
        let [c0, c1] = self.status.code().to_be_bytes();
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        [s0, s1, c0, c1, d0, d1, d2, d3]
    }

    /// Reads the 8 bytes. A length below zero is an error; how long a body may be is the client's own decision.
    pub fn parse(bytes: &[u8; RESPONSE_HEADER_LEN]) -> Result<Self, WireError> {
        let [s0, s1, c0, c1, d0, d1, d2, d3] = *bytes;
        let dlen = i32::from_be_bytes([d0, d1, d2, d3]);
        let Ok(dlen) = u32::try_from(dlen) else {
            return Err(WireError::OutOfRange { what: "response length", value: i64::from(dlen) });
        };
        Ok(Self { stream: StreamId([s0, s1]), status: ResponseStatus::from_code(u16::from_be_bytes([c0, c1])), dlen })
    }
}

/// Where to ask instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Redirect {
    /// Another server.
    Host {
        /// Its port; 0 means the default one.
        port: u16,
        /// Its name or address, then perhaps `?opaque`, then perhaps `?token`.
        host: Vec<u8>,
    },
    /// A URL, only to clients with [`crate::request::LoginAbility::REDIRFLAGS`].
    Url {
        /// `XProtocol`'s virtual redirect options (`kXR_recoverWrts` 0x1000, `kXR_collapseRedir` 0x2000, …).
        flags: u32,
        /// The URL.
        url: Vec<u8>,
    },
}

/// What a server says without being asked at this moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attn {
    /// The answer announced by `waitresp`: a whole response, to the stream in it.
    Response(StreamId, Box<Response>),
    /// A message for people.
    Message(Vec<u8>),
    /// One of the actions that are no longer used.
    Other {
        /// Which.
        action: u32,
        /// As it came.
        params: Vec<u8>,
    },
}

/// One response as it stands on the wire.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Response {
    /// Done.
    Ok(Vec<u8>),
    /// Part of the result.
    OkSoFar(Vec<u8>),
    /// Not asked for.
    Attn(Attn),
    /// More credentials are wanted; the method's own data.
    AuthMore(Vec<u8>),
    /// Refused or failed.
    Error {
        /// Why, for programs.
        number: ErrorNumber,
        /// Why, for people. At most 4095 bytes, no NUL.
        text: Vec<u8>,
    },
    /// Ask there.
    Redirect(Redirect),
    /// Ask again.
    Wait {
        /// After so long.
        seconds: u32,
        /// Why, for people.
        text: Vec<u8>,
    },
    /// The answer comes later.
    WaitResp {
        /// Within so long, the server thinks.
        seconds: u32,
        /// Why, for people.
        text: Vec<u8>,
    },
    /// pgread's and pgwrite's result.
    Status(Status),
}

/// `asyncms`
const ASYNC_MESSAGE: u32 = 5002;
/// `asynresp`
const ASYNC_RESPONSE: u32 = 5008;
/// Longest text of an error or wait, with its NUL.
const TEXT_MAX: usize = 4096;

impl Response {
    /// How it went.
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

    /// Understands a response from its header and the `header.dlen` bytes after it. The data of a
    /// [`Response::Status`] comes after those and is not part of this.
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

    /// The response as bytes at the end of `out`, header and body. Nothing is written on an error.
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

/// `text`, cut where the protocol's own buffers end, with NULs replaced. The stock server ends the text of an error with
/// a NUL, and no other.
pub(crate) fn put_text(text: &[u8], out: &mut Vec<u8>) {
    let text = &text[..text.len().min(TEXT_MAX - 1)];
    out.extend(text.iter().map(|&b| if b == 0 { b'?' } else { b }));
}
