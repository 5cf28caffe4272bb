//! Random responses and bodies.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::response::*;
use wire::{ErrorNumber, Response, StreamId};

use super::{Check, same};

fn bytes(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..limit)
}

/// Text for people, without NULs.
fn text() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255u8, 0..100)
}

fn word() -> impl Strategy<Value = String> {
    "[a-z0-9_:.-]{1,12}"
}

fn status() -> impl Strategy<Value = Status> {
    let result = prop_oneof![Just(ResultKind::Final), Just(ResultKind::Partial), Just(ResultKind::Progress)];
    (result, any::<bool>(), 0..(1u64 << 63), 0..(1u32 << 31)).prop_map(|(result, read, offset, data_len)| Status {
        result,
        info: if read { StatusInfo::Pgread { offset } } else { StatusInfo::Pgwrite { offset } },
        data_len,
    })
}

fn plain_response() -> BoxedStrategy<Response> {
    prop_oneof![
        bytes(200).prop_map(Response::Ok),
        bytes(200).prop_map(Response::OkSoFar),
        bytes(200).prop_map(Response::AuthMore),
        (any::<u32>(), text()).prop_map(|(number, text)| Response::Error { number: ErrorNumber(number), text }),
        (any::<u16>(), text()).prop_map(|(port, host)| Response::Redirect(Redirect::Host { port, host })),
        (0..(1u32 << 31), text()).prop_map(|(flags, url)| Response::Redirect(Redirect::Url { flags, url })),
        (0..(1u32 << 31), text()).prop_map(|(seconds, text)| Response::Wait { seconds, text }),
        (0..(1u32 << 31), text()).prop_map(|(seconds, text)| Response::WaitResp { seconds, text }),
        status().prop_map(Response::Status),
    ]
    .boxed()
}

pub fn any_response() -> BoxedStrategy<Response> {
    prop_oneof![
        4 => plain_response(),
        1 => (any::<[u8; 2]>(), plain_response())
            .prop_map(|(stream, inner)| Response::Attn(Attn::Response(StreamId(stream), Box::new(inner)))),
        1 => text().prop_map(|text| Response::Attn(Attn::Message(text))),
        1 => (5009..6000u32, bytes(50)).prop_map(|(action, params)| Response::Attn(Attn::Other { action, params })),
    ]
    .boxed()
}

pub fn round_trip(response: &Response) -> Check {
    let stream = StreamId(*b"cd");
    let mut out = b"before".to_vec();
    response.encode(stream, &mut out).map_err(|error| error.to_string())?;
    let (header, body) = out["before".len()..].split_first_chunk::<8>().ok_or("no header")?;
    let header = wire::ResponseHeader::parse(header).map_err(|error| error.to_string())?;
    same("length", &(header.dlen as usize), &body.len())?;
    let decoded = Response::decode(&header, body).map_err(|error| format!("{response:?}: {error}"))?;
    // trailing NULs of texts are dropped; the texts made here have none
    same("response", &decoded, response)
}

pub fn stat() -> impl Strategy<Value = StatReply> {
    let extra = (any::<[i64; 2]>(), 0..0o10000u16, word(), word())
        .prop_map(|([ctime, atime], mode, owner, group)| StatExtra { ctime, atime, mode, owner, group });
    (any::<u64>(), 0..(1u64 << 63), any::<u32>(), any::<i64>(), proptest::option::of(extra))
        .prop_map(|(id, size, flags, mtime, extra)| StatReply { id, size, flags: StatFlags(flags), mtime, extra })
}

/// Entries of a listing: names of any bytes but line ends and NULs.
pub fn entries(with_stat: bool) -> BoxedStrategy<Vec<DirEntry>> {
    let name = vec(prop_oneof![1..=9u8, 11..=255u8], 1..40);
    let stat = if with_stat { stat().prop_map(Some).boxed() } else { Just(None).boxed() };
    let sum = proptest::option::of(word().prop_map(String::into_bytes));
    vec(
        (name, stat, sum).prop_map(move |(name, stat, checksum)| DirEntry {
            name,
            checksum: checksum.filter(|_| stat.is_some()),
            stat,
        }),
        0..20,
    )
    .boxed()
}

/// Checks that a listing is the same after writing it page by page and reading it.
pub fn listing_round_trip(with_stat: bool, entries: &[DirEntry], page_len: usize) -> Check {
    let mut body = DirlistBody::new(with_stat);
    let mut bodies = Vec::new();
    for entry in entries {
        if body.len() > page_len {
            bodies.extend_from_slice(&body.take_page());
        }
        body.push(&entry.name, entry.stat.as_ref(), entry.checksum.as_deref()).map_err(|error| error.to_string())?;
    }
    bodies.extend_from_slice(&body.finish());
    if bodies.last().is_some_and(|&last| last != 0) {
        return Err("the listing does not end with a NUL".into());
    }
    let read = Dirlisting::decode(&bodies).map_err(|error| error.to_string())?;
    same("listing", &read, &Dirlisting { with_stat, entries: entries.to_vec() })
}

pub fn fattr_results(with_values: bool) -> impl Strategy<Value = FattrReply> {
    let value = if with_values { bytes(100).prop_map(Some).boxed() } else { Just(None).boxed() };
    let result =
        (0..3u16, vec(1..=255u8, 1..50), value).prop_map(|(number, name, value)| FattrResult { number, name, value });
    vec(result, 0..=16).prop_map(|results| FattrReply { results })
}
