//! A client's stream of any bytes: the same events however it is cut, no more memory than the limits allow.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Event, Limits, Request, RequestHeader, ServerDecoder, StreamId, WireError};

#[derive(PartialEq, Debug)]
enum Seen {
    Handshake,
    Request(StreamId, Request),
    Malformed(RequestHeader, WireError),
    Data(u64),
    End(WireError),
}

fn decode(stream: &[u8], mut replica_len: impl FnMut() -> usize) -> Vec<Seen> {
    let mut decoder = ServerDecoder::new(Limits::default());
    let mut seen = Vec::new();
    let mut left = stream;
    while !left.is_empty() {
        let (mut replica, rest) = left.split_at(replica_len().clamp(1, left.len()));
        left = rest;
        loop {
            match decoder.next(&mut replica) {
                Ok(None) => break,
                Ok(Some(Event::Handshake(_))) => seen.push(Seen::Handshake),
                Ok(Some(Event::Request { stream, request })) => seen.push(Seen::Request(stream, request)),
                Ok(Some(Event::Malformed { header, error })) => seen.push(Seen::Malformed(header, error)),
                Ok(Some(Event::Data { bytes, .. })) => match seen.last_mut() {
                    Some(Seen::Data(len)) => *len += bytes.len() as u64,
                    _ => seen.push(Seen::Data(bytes.len() as u64)),
                },
                Err(error) => {
                    seen.push(Seen::End(error));
                    return seen;
                }
            }
        }
        assert!(replica.is_empty());
    }
    seen
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&seed, bytes)) = bytes.split_first() else { return };
    let stream = [&wire::Handshake.to_bytes()[..], bytes].concat();
    let whole = decode(&stream, || usize::MAX);
    let mut step = usize::from(seed);
    let replicas = decode(&stream, || {
        step = (step * 5 + 3) % 61;
        step
    });
    assert_eq!(whole, replicas);
});
