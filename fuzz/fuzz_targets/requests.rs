//! One request from any bytes: taken or refused; what is taken can be encoded, and decodes to the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Limits, Payload, Request, RequestHeader};

fuzz_target!(|bytes: &[u8]| {
    let Some((head, rest)) = bytes.split_first_chunk::<24>() else { return };
    // the length is the payload's unless the input says something longer
    let mut header = RequestHeader::parse(head);
    let payload = match header.payload(&Limits::default()) {
        Ok(Payload::Stream(_)) => &[][..],
        _ => {
            header.dlen = i32::try_from(rest.len()).unwrap();
            match header.payload(&Limits::default()) {
                Ok(Payload::Buffer(_)) => rest,
                _ => return,
            }
        }
    };
    let Ok(request) = Request::decode(&header, payload) else { return };
    assert_eq!(request.kind(), header.kind);
    if let Request::Writev(writev) = &request {
        assert_eq!(request.following(), writev.segments.iter().map(|segment| u64::from(segment.len)).sum::<u64>());
    }
    let mut again = Vec::new();
    request.encode(header.stream, &mut again).expect("what was decoded can be encoded");
    let (head, payload) = again.split_first_chunk::<24>().unwrap();
    let header = RequestHeader::parse(head);
    header.payload(&Limits::default()).expect("what was decoded stays in the limits");
    assert_eq!(Request::decode(&header, payload).as_ref(), Ok(&request));
});
