//! Shared by the tests: random requests and responses, and the checks. A check returns what is wrong instead of
//! panicking, so that the test of the deliberate bugs can tell whether it noticed one.

#![allow(dead_code)] // each test file uses its part
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::cast_possible_truncation)] // helpers of tests

pub mod captures;
pub mod requests;
pub mod responses;

use wire::request::{ChkpointOp, FattrOp};
use wire::{Event, Limits, Payload, Request, RequestHeader, ServerDecoder, StreamId, WireError};

pub type Check = Result<(), String>;

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Check {
    if found == expected { Ok(()) } else { Err(format!("{what}: found {found:?}, expected {expected:?}")) }
}

pub fn encoded(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    request.encode(StreamId(*b"ab"), &mut bytes).expect("requests made by the tests can be encoded");
    bytes
}

pub fn split(bytes: &[u8]) -> (RequestHeader, &[u8]) {
    let (header, payload) = bytes.split_first_chunk::<24>().expect("24 bytes at least");
    (RequestHeader::parse(header), payload)
}

/// Checks that a request is the same after encoding and decoding.
pub fn round_trip(request: &Request) -> Check {
    let bytes = encoded(request);
    let (header, payload) = split(&bytes);
    same("stream", &header.stream, &StreamId(*b"ab"))?;
    let follows = header.payload(&Limits::default()).map_err(|error| error.to_string())?;
    let expected = match follows {
        Payload::Stream(_) => Payload::Stream(u32::try_from(request.following()).unwrap()),
        Payload::Buffer(_) => Payload::Buffer(u32::try_from(payload.len()).unwrap()),
    };
    same("payload", &follows, &expected)?;
    let decoded = Request::decode(&header, payload).map_err(|error| format!("{request:?}: {error}"))?;
    // a checkpoint's inner request is sent on the stream of the outer one
    same("request", &normal(decoded), &normal(request.clone()))
}

pub fn normal(mut request: Request) -> Request {
    if let Request::Chkpoint(chkpoint) = &mut request
        && let ChkpointOp::Execute(inner) = &mut chkpoint.op
    {
        inner.stream = StreamId(*b"ab");
    }
    request
}

/// Checks that a request of fixed form is refused with extra or missing bytes.
pub fn refuses_other_lengths(request: &Request) -> Check {
    let bytes = encoded(request);
    let (header, payload) = split(&bytes);
    if free_form(request) {
        return Ok(());
    }
    let longer = [payload, &[b'x'; 1]].concat();
    if Request::decode(&header, &longer).is_ok() {
        return Err(format!("{request:?} is taken with a byte behind it"));
    }
    // each of pgread's arguments is optional
    let optional = matches!(request, Request::Pgread(_)) || (matches!(request, Request::Read(_)) && payload.len() == 8);
    if let Some((_, shorter)) = payload.split_last().filter(|_| !optional) {
        let shorter = &payload[..shorter.len()];
        if Request::decode(&header, shorter).is_ok() {
            return Err(format!("{request:?} is taken with a byte missing"));
        }
    }
    Ok(())
}

/// Requests whose payload is text of any length.
fn free_form(request: &Request) -> bool {
    match request {
        // with a payload, a request about a handle becomes one about a path
        Request::Stat(_) | Request::Truncate(_) => true,
        Request::Fattr(fattr) => matches!(fattr.op, FattrOp::List { .. }),
        Request::Pgread(pgread) => pgread.given < 2,
        Request::Read(read) => read.path_id.is_none(),
        Request::Batch(_)
        | Request::Bind(_)
        | Request::Chkpoint(_)
        | Request::Clone(_)
        | Request::Close(_)
        | Request::Endsess(_)
        | Request::Pgwrite(_)
        | Request::Ping
        | Request::Protocol(_)
        | Request::Readv(_)
        | Request::Sync(_)
        | Request::Write(_)
        | Request::Writev(_) => false,
        _ => true,
    }
}

/// An event that owns its bytes. The data of adjacent events are joined.
#[derive(Clone, PartialEq, Debug)]
pub enum OwnedEvent {
    Handshake,
    Request(StreamId, Request),
    Malformed(RequestHeader, WireError),
    Data(Vec<u8>),
    End(WireError),
}

/// Decodes `bytes` that arrive in parts of the given lengths. The last part is the rest.
pub fn decode_in_parts(bytes: &[u8], lengths: &[usize]) -> Vec<OwnedEvent> {
    let mut decoder = ServerDecoder::new(Limits::default());
    let mut seen = Vec::new();
    let mut left = bytes;
    let mut lengths = lengths.iter();
    while !left.is_empty() {
        let len = lengths.next().map_or(left.len(), |&len| len.clamp(1, left.len()));
        let (mut part, rest) = left.split_at(len);
        left = rest;
        loop {
            match decoder.next(&mut part) {
                Ok(None) => break,
                Ok(Some(Event::Handshake(_))) => seen.push(OwnedEvent::Handshake),
                Ok(Some(Event::Request { stream, request })) => seen.push(OwnedEvent::Request(stream, request)),
                Ok(Some(Event::Malformed { header, error })) => seen.push(OwnedEvent::Malformed(header, error)),
                Ok(Some(Event::Data { bytes, left })) => {
                    assert_eq!(decoder.data_left(), left);
                    match seen.last_mut() {
                        Some(OwnedEvent::Data(data)) => data.extend_from_slice(bytes),
                        _ => seen.push(OwnedEvent::Data(bytes.to_vec())),
                    }
                }
                Err(error) => {
                    assert_eq!(decoder.next(&mut part).unwrap_err(), error, "an error stays");
                    seen.push(OwnedEvent::End(error));
                    return seen;
                }
            }
        }
        assert!(part.is_empty(), "`None` means that the input is used up");
    }
    seen
}

/// The number of data bytes that a client sends behind a request, independent of the code under test.
fn data_of(request: &Request) -> u64 {
    match request {
        Request::Batch(batch) => batch.len.into(),
        Request::Write(write) => write.len.into(),
        Request::Pgwrite(pgwrite) => pgwrite.wire_len.into(),
        Request::Writev(writev) => writev.segments.iter().map(|segment| u64::from(segment.len)).sum(),
        Request::Chkpoint(chkpoint) => match &chkpoint.op {
            ChkpointOp::Execute(inner) => u64::try_from(inner.dlen).unwrap(),
            _ => 0,
        },
        _ => 0,
    }
}

/// Makes a connection's bytes: the handshake, the requests and their data. Also returns the expected events.
pub fn connection(requests: &[Request]) -> (Vec<u8>, Vec<OwnedEvent>) {
    let mut bytes = wire::Handshake.to_bytes().to_vec();
    let mut expected = vec![OwnedEvent::Handshake];
    for request in requests {
        bytes.extend_from_slice(&encoded(request));
        expected.push(OwnedEvent::Request(StreamId(*b"ab"), normal(request.clone())));
        if data_of(request) > 0 {
            let data: Vec<u8> = (0..data_of(request)).map(|i| (i % 251) as u8).collect();
            bytes.extend_from_slice(&data);
            expected.push(OwnedEvent::Data(data));
        }
    }
    (bytes, expected)
}

/// Checks that the events are the same however the stream is divided.
pub fn split_anywhere(requests: &[Request], lengths: &[usize]) -> Check {
    let (bytes, expected) = connection(requests);
    same("in one part", &decode_in_parts(&bytes, &[]), &expected)?;
    same("in parts", &decode_in_parts(&bytes, lengths), &expected)
}
