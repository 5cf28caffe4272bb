//! Properties of all requests, responses and pages: nothing is lost, nothing panics, nothing is left over.

use crate::common::{self, requests, responses};
use proptest::collection::vec;
use proptest::prelude::*;
use wire::response::*;
use wire::{
    Opaque, PathArg, Request, RequestHeader, RequestKind, Response, ResponseHeader, ResponseStatus, StreamId, page,
};

/// `WEIR_SEEDS=n` runs n cases of each property.
fn cases() -> ProptestConfig {
    let cases = std::env::var("WEIR_SEEDS").ok().and_then(|seeds| seeds.parse().ok()).unwrap_or(512);
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn requests_survive_encoding_and_decoding(request in requests::any_request()) {
        common::round_trip(&request).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn leftover_and_missing_bytes_are_refused(request in requests::any_request()) {
        common::refuses_other_lengths(&request).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_stream_may_be_cut_anywhere(
        requests in vec(requests::short_request(), 1..6),
        lengths in vec(prop_oneof![1..40usize, 1..4000usize], 0..400),
    ) {
        common::split_anywhere(&requests, &lengths).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_request_bytes_are_taken_or_refused(
        kind in prop_oneof![2998..3040u16, Just(RequestKind::Batch.code()), any::<u16>()],
        params in any::<[u8; 16]>(),
        payload in vec(prop_oneof![Just(0u8), Just(b' '), Just(b'?'), any::<u8>()], 0..600),
    ) {
        let header = RequestHeader {
            stream: StreamId([1, 2]),
            kind: RequestKind::from_code(kind),
            params,
            dlen: i32::try_from(payload.len()).unwrap(),
        };
        let payload = if matches!(header.kind, RequestKind::Write | RequestKind::Pgwrite | RequestKind::Batch) { &[][..] } else { &payload };
        if let Ok(request) = Request::decode(&header, payload) {
            // a decoded request can be encoded again, with the same meaning
            let mut bytes = Vec::new();
            if request.encode(header.stream, &mut bytes).is_ok() {
                let (header, payload) = common::split(&bytes);
                prop_assert_eq!(Request::decode(&header, payload), Ok(request));
            }
        }
    }

    #[test]
    fn any_batch_is_taken_apart_or_refused(
        entries in 1..20u32,
        list_len in 0..200u32,
        behind in vec(prop_oneof![4 => Just(0u8), 1 => 1..4u8, 1 => any::<u8>()], 0..300),
    ) {
        let len = u32::try_from(behind.len()).unwrap();
        let batch = wire::request::Batch { entries, list_len, len };
        if let Ok(found) = wire::batch::entries(&batch, &behind) {
            // each byte belongs to exactly one entry
            let data: usize = found.iter().map(|entry| behind[entry.data.clone()].len()).sum();
            let list: usize = found.iter().map(|entry| 16 + behind[entry.path.clone()].len()).sum();
            prop_assert_eq!((list, list + data), (list_len as usize, behind.len()));
        }
        let _ = wire::batch::answers(&behind, entries as usize);
    }

    #[test]
    fn any_stream_ends_without_a_panic(bytes in vec(any::<u8>(), 0..300), lengths in vec(1..30usize, 0..20), skip in any::<bool>()) {
        let mut stream = if skip { Vec::new() } else { wire::Handshake.to_bytes().to_vec() };
        stream.extend_from_slice(&bytes);
        let whole = common::decode_in_parts(&stream, &[]);
        let parts = common::decode_in_parts(&stream, &lengths);
        // the error of a wrong handshake shows the bytes received so far, so it may differ; nothing else may
        if !skip {
            prop_assert_eq!(whole, parts);
        }
    }

    #[test]
    fn responses_survive_encoding_and_decoding(response in responses::any_response()) {
        responses::round_trip(&response).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_response_bytes_are_taken_or_refused(status in prop_oneof![Just(0u16), 4000..4010u16], body in vec(any::<u8>(), 0..200)) {
        let header = ResponseHeader { stream: StreamId([1, 2]), status: ResponseStatus::from_code(status), dlen: u32::try_from(body.len()).unwrap() };
        let _ = Response::decode(&header, &body);
        let _ = (ProtocolReply::decode(&body), LoginReply::decode(&body), BindReply::decode(&body), OpenReply::decode(&body));
        let _ = (StatReply::decode(&body), VfsReply::decode(&body), Dirlisting::decode(&body), LocateReply::decode(&body));
        let _ = (ChecksumReply::decode(&body), SpaceReply::decode(&body), ConfigReply::decode(&body), ReadvSegment::decode_all(&body));
        let _ = (FattrReply::decode(&body, true), FattrReply::decode(&body, false), FattrList::decode(&body, true));
        let _ = (FattrList::decode(&body, false), ChkpointReply::decode(&body), BadPages::decode(&body));
    }

    #[test]
    fn texts_that_look_right_are_taken_or_refused(body in "[-0-9 .\\[\\]\n\0a-c:]{0,60}") {
        let body = body.into_bytes();
        let lead = [b".\n0 0 0 0\n", &body[..]].concat();
        let _ = (StatReply::decode(&body), VfsReply::decode(&body), Dirlisting::decode(&body), Dirlisting::decode(&lead));
    }

    #[test]
    fn stat_lines_survive_encoding_and_decoding(stat in responses::stat()) {
        let mut body = Vec::new();
        stat.encode(&mut body);
        prop_assert_eq!(StatReply::decode(&body), Ok(stat));
    }

    #[test]
    fn listings_survive_encoding_and_decoding(plain in responses::entries(false), full in responses::entries(true), page_len in 0..500usize) {
        responses::listing_round_trip(false, &plain, page_len).map_err(TestCaseError::fail)?;
        responses::listing_round_trip(true, &full, page_len).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn attribute_answers_survive_encoding_and_decoding(got in responses::fattr_results(true), set in responses::fattr_results(false)) {
        for (reply, with_values) in [(got, true), (set, false)] {
            let mut body = Vec::new();
            reply.encode(&mut body).unwrap();
            prop_assert_eq!(FattrReply::decode(&body, with_values), Ok(reply));
        }
    }

    #[test]
    fn paths_keep_their_bytes(path in requests::path()) {
        let mut bytes = Vec::new();
        path.write(&mut bytes);
        prop_assert_eq!(&PathArg::parse(&bytes).unwrap(), &path);
        if let Some(opaque) = &path.opaque {
            let again: Vec<u8> = opaque.pairs().flat_map(|(key, value)| [key, value].concat()).collect();
            let bare = |bytes: &[u8]| bytes.iter().copied().filter(|b| !b"&=".contains(b)).collect::<Vec<_>>();
            prop_assert_eq!(bare(&again), bare(opaque.as_bytes()));
        }
    }

    #[test]
    fn opaque_pairs_are_those_of_a_plain_map(pairs in vec(("[a-z.]{1,6}", "[a-z0-9=/]{0,6}"), 0..20)) {
        let text = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join("&");
        let opaque = Opaque::parse(text.as_bytes()).unwrap();
        for (key, _) in &pairs {
            let first = pairs.iter().find(|(other, _)| other == key).map(|(_, value)| value.as_bytes());
            prop_assert_eq!(opaque.get(key.as_bytes()), first);
        }
        prop_assert_eq!(opaque.get(b"missing"), None);
    }

    #[test]
    fn pages_are_those_of_a_plain_loop(offset in prop_oneof![0..20_000u64, Just((1 << 63) - 30_000)], len in 0..20_000usize) {
        common::captures::pages_as_a_plain_loop(offset, len).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn a_changed_bit_in_a_page_is_found(offset in 0..9000u64, len in 1..15_000usize, place in any::<u64>()) {
        common::captures::changed_bit_is_found(offset, len, place).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn any_wire_length_is_a_layout_or_refused(offset in any::<u64>(), wire_len in prop_oneof![0..20_000u64, any::<u64>()]) {
        if let Ok(layout) = page::Layout::of_wire(offset, wire_len) {
            prop_assert_eq!(layout.wire_len(), wire_len);
            prop_assert_eq!(page::Layout::of_data(offset, layout.data_len()), Ok(layout));
        }
    }
}
