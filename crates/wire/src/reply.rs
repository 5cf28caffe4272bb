//! A server's answers as bytes at the end of a buffer, ready for sending.
//!
//! These are functions, not a type: a server makes millions of answers, most of them 8 to 200 bytes long, and
//! appends them to a connection's outgoing buffer. If bulk data are sent from elsewhere, `*_header` returns the
//! bytes before them.
//!
//! Lengths here come from our own code. A body of 2 GiB or more cannot be sent; the functions assert that.

use crate::response::{BadPages, PgreadHeader, Redirect, ResultKind, Status, StatusInfo};
use crate::{ErrorNumber, RESPONSE_HEADER_LEN, Response, ResponseHeader, ResponseStatus, StreamId, WireError};

fn len(bytes: usize) -> u32 {
    let len = u32::try_from(bytes).unwrap_or(u32::MAX);
    assert!(i32::try_from(len).is_ok(), "a response body of {bytes} bytes does not fit the protocol's 31 bits");
    len
}

fn frame(out: &mut Vec<u8>, stream: StreamId, status: ResponseStatus, body: &[u8]) {
    out.reserve(RESPONSE_HEADER_LEN + body.len());
    out.extend_from_slice(&ResponseHeader { stream, status, dlen: len(body.len()) }.to_bytes());
    out.extend_from_slice(body);
}

/// Success, with a result.
pub fn ok(out: &mut Vec<u8>, stream: StreamId, body: &[u8]) {
    frame(out, stream, ResponseStatus::Ok, body);
}

/// Success, with a result that `write` appends, which saves a copy. `write` gets the buffer with the header in it
/// and must only append.
pub fn ok_with(out: &mut Vec<u8>, stream: StreamId, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    frame(out, stream, ResponseStatus::Ok, &[]);
    write(out);
    let body_len = len(out.len() - start - RESPONSE_HEADER_LEN);
    out[start + 4..start + 8].copy_from_slice(&body_len.to_be_bytes());
}

/// Returns the header of a result whose `body_len` bytes are sent from elsewhere.
#[must_use]
pub fn ok_header(stream: StreamId, body_len: u32) -> [u8; RESPONSE_HEADER_LEN] {
    ResponseHeader { stream, status: ResponseStatus::Ok, dlen: body_len }.to_bytes()
}

/// A part of a result; more follows.
pub fn oksofar(out: &mut Vec<u8>, stream: StreamId, body: &[u8]) {
    frame(out, stream, ResponseStatus::OkSoFar, body);
}

/// Returns the header of a part of a result.
#[must_use]
pub fn oksofar_header(stream: StreamId, body_len: u32) -> [u8; RESPONSE_HEADER_LEN] {
    ResponseHeader { stream, status: ResponseStatus::OkSoFar, dlen: body_len }.to_bytes()
}

/// An error. The text is for people: it is cut at 4095 bytes, and NULs are replaced.
pub fn error(out: &mut Vec<u8>, stream: StreamId, number: ErrorNumber, text: &str) {
    let start = out.len();
    frame(out, stream, ResponseStatus::Error, &number.0.to_be_bytes());
    crate::response::put_text(text.as_bytes(), out);
    out.push(0);
    let body_len = len(out.len() - start - RESPONSE_HEADER_LEN);
    out[start + 4..start + 8].copy_from_slice(&body_len.to_be_bytes());
}

/// A redirect to another server.
pub fn redirect(out: &mut Vec<u8>, stream: StreamId, to: Redirect) -> Result<(), WireError> {
    Response::Redirect(to).encode(stream, out)
}

/// The client must repeat the request after `seconds`. XrdCl waits for exactly that time.
pub fn wait(out: &mut Vec<u8>, stream: StreamId, seconds: u32, text: &str) {
    let start = out.len();
    frame(out, stream, ResponseStatus::Wait, &seconds.to_be_bytes());
    crate::response::put_text(text.as_bytes(), out);
    let body_len = len(out.len() - start - RESPONSE_HEADER_LEN);
    out[start + 4..start + 8].copy_from_slice(&body_len.to_be_bytes());
}

/// The answer will come later, through [`late`], within about `seconds`.
pub fn waitresp(out: &mut Vec<u8>, stream: StreamId, seconds: u32) {
    frame(out, stream, ResponseStatus::WaitResp, &seconds.to_be_bytes());
}

/// The answer that [`waitresp`] announced. `write` appends one whole response for `stream`, with any function of
/// this module.
pub fn late(out: &mut Vec<u8>, stream: StreamId, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    // 5008: a complete response inside; the outer stream is 0 because no request waits for it
    frame(out, StreamId([0, 0]), ResponseStatus::Attn, &[0, 0, 0x13, 0x90, 0, 0, 0, 0]);
    write(out);
    let inner = &out[start + RESPONSE_HEADER_LEN + 8..];
    assert!(inner.starts_with(&stream.0), "a late answer has to be one to the stream that waits for it");
    let body_len = len(out.len() - start - RESPONSE_HEADER_LEN);
    out[start + 4..start + 8].copy_from_slice(&body_len.to_be_bytes());
}

/// The client must send more credentials.
pub fn authmore(out: &mut Vec<u8>, stream: StreamId, data: &[u8]) {
    frame(out, stream, ResponseStatus::AuthMore, data);
}

/// Appends the 32 bytes before the pages of a pgread's answer to `out`. `wire_len` counts checksums and data, like
/// [`crate::page::Layout::wire_len`]. Past the end of the file it is 0 and `offset` is the request's.
pub fn pgread_header(out: &mut Vec<u8>, stream: StreamId, offset: u64, wire_len: u32, result: ResultKind) {
    PgreadHeader { result, offset, wire_len }.encode(stream, out);
}

/// The answer to a pgwrite at `offset`. If `bad` is empty, everything is written. Otherwise the client must send
/// those pages again.
pub fn pgwrite(out: &mut Vec<u8>, stream: StreamId, offset: u64, bad: &BadPages) {
    let mut data = Vec::new();
    bad.encode(&mut data);
    let status = Status { result: ResultKind::Final, info: StatusInfo::Pgwrite { offset }, data_len: len(data.len()) };
    // fails only for bodies past 31 bits, and this one is 24 bytes
    let encoded = Response::Status(status).encode(stream, out);
    debug_assert!(encoded.is_ok());
    out.extend_from_slice(&data);
}
