//! Single rules, with explicit bytes.

#![allow(clippy::unwrap_used)] // in the tests' helpers

use wire::request::{CloneRange, CloneRanges, FattrOp, Open, OpenOptions, QueryKind, SEGMENTS_MAX, Target};
use wire::response::*;
use wire::{
    ErrorNumber, Event, Fault, FileHandle, Handshake, Limits, PathArg, Payload, Request, RequestHeader, RequestKind,
    Response, ResponseHeader, ServerDecoder, StreamId, WireError, reply,
};

const STREAM: StreamId = StreamId([1, 0]);

fn header(kind: RequestKind, params: &[u8], dlen: usize) -> RequestHeader {
    let mut all = [0; 16];
    all[..params.len()].copy_from_slice(params);
    RequestHeader { stream: STREAM, kind, params: all, dlen: i32::try_from(dlen).unwrap() }
}

fn decode(kind: RequestKind, params: &[u8], payload: &[u8]) -> Result<Request, WireError> {
    Request::decode(&header(kind, params, payload.len()), payload)
}

#[test]
fn the_longest_payload_depends_on_the_request() {
    let limits = Limits::default();
    for &kind in RequestKind::ALL {
        for dlen in [-1, i32::MIN] {
            let error = RequestHeader { dlen, ..header(kind, &[], 0) }.payload(&limits).unwrap_err();
            assert!(matches!(error, WireError::NegativeLength { .. }) && error.closes(), "{kind:?}: {error}");
        }
        let most = RequestHeader { dlen: i32::MAX, ..header(kind, &[], 0) }.payload(&limits);
        match kind {
            RequestKind::Write | RequestKind::Pgwrite => assert_eq!(most, Ok(Payload::Stream(0x7fff_ffff))),
            _ => {
                let error = most.unwrap_err();
                assert_eq!(
                    (error.closes(), error.number(), error.fault()),
                    (true, ErrorNumber::ARG_TOO_LONG, Fault::Peer)
                );
            }
        }
    }
    let path = 4096 + 16 * 1024;
    assert_eq!(header(RequestKind::Open, &[], path).payload(&limits), Ok(Payload::Buffer(20_480)));
    assert!(header(RequestKind::Open, &[], path + 1).payload(&limits).is_err());
    assert!(header(RequestKind::Readv, &[], 1024 * 16 + 1).payload(&limits).is_err());
    assert!(header(RequestKind::Close, &[], 1).payload(&limits).is_err());
}

#[test]
fn mv_splits_at_the_given_length_or_at_the_first_blank() {
    let mv = |len: i16, payload: &[u8]| -> Result<(PathArg, PathArg), WireError> {
        let mut params = [0; 16];
        params[14..].copy_from_slice(&len.to_be_bytes());
        match decode(RequestKind::Mv, &params, payload)? {
            Request::Mv(mv) => Ok((mv.from, mv.to)),
            other => panic!("{other:?}"),
        }
    };
    let paths = |from: &[u8], to: &[u8]| Ok((PathArg::plain(from), PathArg::plain(to)));
    assert_eq!(mv(4, b"/a b /c d"), paths(b"/a b", b"/c d"));
    assert_eq!(mv(0, b"/a /c d"), paths(b"/a", b"/c d"));
    for (len, payload) in [
        (3, &b"/a b /c"[..]),
        (9, b"/a b /c"),
        (7, b"/a b /c"),
        (-1, b"/a /b"),
        (0, b"/a"),
        (0, b""),
        (2, b"/a "),
        (0, b" /b"),
    ] {
        let error = mv(len, payload).unwrap_err();
        assert!(!error.closes() && error.fault() == Fault::Peer, "{len} {payload:?}: {error}");
    }
}

#[test]
fn paths_are_split_at_the_first_question_mark() {
    let path = PathArg::parse(b"/d/f?oss.asize=5000&x&authz=Bearer%20a?b==&\0").unwrap();
    assert_eq!(path.path, b"/d/f");
    assert_eq!(path.get(b"oss.asize"), Some(&b"5000"[..]));
    assert_eq!(path.get(b"x"), Some(&b""[..]));
    assert_eq!(path.get(b"authz"), Some(&b"Bearer%20a?b=="[..]), "as it came, nothing unescaped");
    assert_eq!(path.get(b"y"), None);
    assert_eq!(PathArg::parse(b"/d/f?").unwrap().opaque.unwrap().pairs().count(), 0);
    assert_eq!(PathArg::parse(b""), Err(WireError::Missing { what: "path" }));
    assert_eq!(PathArg::parse(b"?a=b"), Err(WireError::Missing { what: "path" }));
    assert!(PathArg::parse(b"/a\0b").is_err());
    let many = [b"/f?".to_vec(), b"a=b&".repeat(257)].concat();
    assert!(matches!(PathArg::parse(&many), Err(WireError::TooMany { count: 257, .. })));
    assert!(PathArg::parse(&many[..many.len() - 4]).is_ok());
}

#[test]
fn a_request_without_a_path_is_about_the_handle() {
    let mut params = [0; 16];
    params[12..].copy_from_slice(b"hand");
    let Ok(Request::Stat(stat)) = decode(RequestKind::Stat, &params, b"") else { panic!() };
    assert_eq!(stat.target, Target::Handle(FileHandle(*b"hand")));
    let Ok(Request::Truncate(truncate)) = decode(RequestKind::Truncate, b"hand\0\0\0\0\0\0\0\x07", b"/p") else {
        panic!()
    };
    assert_eq!((truncate.len, truncate.target), (7, Target::Path(PathArg::plain(b"/p"))));
    // an empty path in fattr, too
    let Ok(Request::Fattr(fattr)) = decode(RequestKind::Fattr, b"hand\x01\x01", b"\0\0\0k\0") else { panic!() };
    assert_eq!((fattr.target, fattr.op), (Target::Handle(FileHandle(*b"hand")), FattrOp::Get(vec![b"k".to_vec()])));
    let Ok(Request::Fattr(fattr)) = decode(RequestKind::Fattr, b"hand\x02", b"") else { panic!() };
    assert_eq!(fattr.target, Target::Handle(FileHandle(*b"hand")));
}

#[test]
fn ranges_past_the_largest_file_are_refused() {
    let read = |offset: i64, len: i32| {
        let params = [&b"hand"[..], &offset.to_be_bytes(), &len.to_be_bytes()].concat();
        (decode(RequestKind::Read, &params, b"").is_ok(), decode(RequestKind::Pgread, &params, b"").is_ok())
    };
    assert_eq!(read(0, i32::MAX), (true, true));
    assert_eq!(read(i64::MAX - 10, 10), (true, true));
    for (offset, len) in [(i64::MAX - 10, 11), (-1, 10), (i64::MIN, 0), (0, -1)] {
        assert_eq!(read(offset, len), (false, false), "{offset} {len}");
    }
    let write = |offset: i64, dlen| {
        let params = [&b"hand"[..], &offset.to_be_bytes()].concat();
        Request::decode(&header(RequestKind::Write, &params, dlen), b"").is_ok()
    };
    assert!(write(i64::MAX - 10, 10) && !write(i64::MAX - 10, 11) && !write(-5, 1));
}

#[test]
fn lists_of_segments_have_whole_segments_and_at_most_1024() {
    let list = |bytes: usize| decode(RequestKind::Readv, &[], &vec![0; bytes]);
    assert!(matches!(list(16 * SEGMENTS_MAX), Ok(Request::Readv(readv)) if readv.segments.len() == 1024));
    assert!(matches!(list(16 * (SEGMENTS_MAX + 1)), Err(WireError::TooMany { .. })));
    assert!(matches!(list(0), Err(WireError::Missing { .. })));
    for bytes in [1, 15, 17, 33] {
        assert!(matches!(list(bytes), Err(WireError::Trailing { .. })), "{bytes}");
    }
}

#[test]
fn query_words_are_found_between_blanks_and_line_ends() {
    for args in
        [&b"readv_iov_max readv_ior_max\0"[..], b"readv_iov_max\nreadv_ior_max", b" readv_iov_max  readv_ior_max\n"]
    {
        let Ok(Request::Query(query)) = decode(RequestKind::Query, &[0, 7], args) else { panic!() };
        assert_eq!(query.kind, QueryKind::Config);
        assert_eq!(query.words().collect::<Vec<_>>(), [&b"readv_iov_max"[..], b"readv_ior_max"]);
    }
}

#[test]
fn after_a_malformed_request_the_next_one_is_read() {
    let mut bytes = Handshake.to_bytes().to_vec();
    bytes.extend_from_slice(&header(RequestKind::Rm, &[], 3).to_bytes());
    bytes.extend_from_slice(b"/\0x");
    // a write at an impossible offset: its data are skipped
    bytes.extend_from_slice(&header(RequestKind::Write, b"hand\xff\0\0\0\0\0\0\0", 5).to_bytes());
    bytes.extend_from_slice(b"12345");
    bytes.extend_from_slice(&header(RequestKind::Ping, &[], 0).to_bytes());
    let mut decoder = ServerDecoder::new(Limits::default());
    let mut input = &bytes[..];
    let mut next = || decoder.next(&mut input).unwrap();
    assert!(matches!(next(), Some(Event::Handshake(_))));
    assert!(matches!(next(), Some(Event::Malformed { header, .. }) if header.kind == RequestKind::Rm));
    assert!(matches!(next(), Some(Event::Malformed { header, .. }) if header.kind == RequestKind::Write));
    assert_eq!(next(), Some(Event::Data { bytes: b"12345", left: 0 }));
    assert_eq!(next(), Some(Event::Request { stream: STREAM, request: Request::Ping }));
    assert_eq!(next(), None);
}

#[test]
fn a_caller_may_take_file_data_itself() {
    let mut bytes = Handshake.to_bytes().to_vec();
    bytes.extend_from_slice(&header(RequestKind::Write, b"hand", 1000).to_bytes());
    bytes.extend_from_slice(b"abc");
    let mut decoder = ServerDecoder::new(Limits::default());
    let mut input = &bytes[..];
    while let Some(event) = decoder.next(&mut input).unwrap() {
        if let Event::Request { request, .. } = event {
            assert_eq!(request.following(), 1000);
        }
    }
    assert_eq!(decoder.data_left(), 997, "three came with the header");
    decoder.took(997);
    let ping = header(RequestKind::Ping, &[], 0).to_bytes();
    assert!(matches!(decoder.next(&mut &ping[..]), Ok(Some(Event::Request { request: Request::Ping, .. }))));
}

#[test]
fn an_error_in_the_framing_ends_the_stream() {
    for (first, stays) in [
        (header(RequestKind::Stat, &[], 1 << 30), false),
        (RequestHeader { dlen: -5, ..header(RequestKind::Ping, &[], 0) }, false),
        (header(RequestKind::Writev, &[], 15), true),
    ] {
        let mut bytes = Handshake.to_bytes().to_vec();
        bytes.extend_from_slice(&first.to_bytes());
        if stays {
            bytes.extend_from_slice(&[0; 15]);
        }
        let mut decoder = ServerDecoder::new(Limits::default());
        let mut input = &bytes[..];
        decoder.next(&mut input).unwrap();
        let error = decoder.next(&mut input).unwrap_err();
        assert_eq!(decoder.next(&mut &b"more"[..]).unwrap_err(), error);
        assert_eq!(decoder.last_header(), Some(&first), "whom to answer");
    }
    let mut decoder = ServerDecoder::new(Limits::default());
    let error = decoder.next(&mut &b"GET / HTTP/1.1\r\n"[..]).unwrap_err();
    assert!(error.to_string().contains("GET / HTTP/1.1"), "{error}");
}

#[test]
fn replies_are_whole_frames() {
    let mut out = Vec::new();
    reply::error(&mut out, STREAM, ErrorNumber::NOT_FOUND, "no");
    assert_eq!(out, b"\x01\0\x0f\xa3\0\0\0\x07\0\0\x0b\xc3no\0");
    out.clear();
    reply::ok_with(&mut out, STREAM, |out| out.extend_from_slice(b"body"));
    reply::ok(&mut out, STREAM, b"body");
    assert_eq!(out, [&reply::ok_header(STREAM, 4)[..], b"body", b"\x01\0\0\0\0\0\0\x04body"].concat());
    out.clear();
    reply::waitresp(&mut out, STREAM, 600);
    reply::late(&mut out, STREAM, |out| reply::ok(out, STREAM, b"adler32 a8597dc4\0"));
    // as the stock server sends it
    let late = b"\0\0\x0f\xa1\0\0\0\x21\0\0\x13\x90\0\0\0\0\x01\0\0\0\0\0\0\x11adler32 a8597dc4\0";
    assert_eq!(out, [&b"\x01\0\x0f\xa6\0\0\0\x04\0\0\x02\x58"[..], late].concat());
    out.clear();
    reply::wait(&mut out, STREAM, 5, "later");
    assert_eq!(out, b"\x01\0\x0f\xa5\0\0\0\x09\0\0\0\x05later");
    out.clear();
    reply::redirect(&mut out, STREAM, Redirect::Host { port: 1094, host: b"h?a=b".to_vec() }).unwrap();
    assert_eq!(out, b"\x01\0\x0f\xa4\0\0\0\x09\0\0\x04\x46h?a=b");
    out.clear();
    // a text with a NUL, and one of 10,000 bytes
    reply::error(&mut out, STREAM, ErrorNumber::NOT_FOUND, &"a\0".repeat(5000));
    let (head, body) = out.split_first_chunk().unwrap();
    let Ok(Response::Error { text, .. }) = Response::decode(&ResponseHeader::parse(head).unwrap(), body) else {
        panic!()
    };
    assert_eq!((text.len(), &text[..4]), (4095, &b"a?a?"[..]));
}

#[test]
fn page_answers_are_those_of_the_stock_server() {
    // recorded: tests/frames/raw.frames
    let mut out = Vec::new();
    reply::pgread_header(&mut out, STREAM, 20_000, 0, ResultKind::Final);
    assert_eq!(out, b"\x01\0\x0f\xa7\0\0\0\x18\x0eYD\xc1\x01\0\x1e\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x4e\x20");
    out.clear();
    let mut bad = BadPages::default();
    bad.add(100, 3996).unwrap();
    bad.add(8192, 2148).unwrap();
    reply::pgwrite(&mut out, STREAM, 100, &bad);
    let status = b"\x01\0\x0f\xa7\0\0\0\x18s\xa8\xf3\x08\x01\0\x1a\0\0\0\0\0\0\0\0\x18\0\0\0\0\0\0\0d";
    let list = b"|\xf1\xa1J\x0f\x9c\x08d\0\0\0\0\0\0\0d\0\0\0\0\0\0\x20\0";
    assert_eq!(out, [&status[..], list].concat());
    assert_eq!(BadPages::decode(list), Ok(bad));
}

#[test]
fn more_than_128_bad_pages_are_too_many() {
    let mut bad = BadPages::default();
    for page in 0..128 {
        bad.add(page * 4096, 4096).unwrap();
    }
    assert_eq!(bad.add(128 * 4096, 4096).unwrap_err().number(), ErrorNumber::TOO_MANY_ERRORS);
    let mut wire = Vec::new();
    wire::page::encode(0, &vec![1; 129 * 4096], &mut wire).unwrap();
    for page in 0..129 {
        wire[page * 4100] ^= 1;
    }
    assert!(wire::page::verify(0, &wire).is_err());
    wire[0] ^= 1;
    assert_eq!(wire::page::verify(0, &wire).unwrap().offsets.len(), 128);
}

#[test]
fn a_listing_omits_names_with_line_ends() {
    let mut body = DirlistBody::new(false);
    body.push(b"a b", None, None).unwrap();
    for name in [&b"a\nb"[..], b"", b"a\0b"] {
        assert_eq!(body.push(name, None, None), Err(NotListable));
    }
    body.push(b"c", None, None).unwrap();
    assert_eq!(body.finish(), b"a b\nc\0");
    assert_eq!(DirlistBody::new(false).finish(), b"");
    assert_eq!(DirlistBody::new(true).finish(), b".\n0 0 0 0\0");
}

#[test]
fn unsendable_requests_are_the_callers_fault() {
    let open = |path: &[u8]| {
        let target = PathArg { path: path.to_vec(), opaque: None };
        let mut out = Vec::new();
        let done = Request::Open(Open::plain(Default::default(), OpenOptions::READ, target)).encode(STREAM, &mut out);
        assert!(done.is_ok() || out.is_empty(), "nothing is written on an error");
        done
    };
    assert!(open(b"/a").is_ok());
    for path in [&b""[..], b"/a?b", b"/a\0"] {
        assert_eq!(open(path).unwrap_err().fault(), Fault::Caller);
    }
}

#[test]
fn every_weir_code_has_an_xrootd_number() {
    use types::ErrorCode as C;
    for (code, number) in [
        (C::NotFound, 3011),
        (C::Exists, 3018),
        (C::IsDirectory, 3016),
        (C::Denied, 3010),
        (C::NoSpace, 3009),
        (C::Checksum, 3019),
        (C::Invalid, 3000),
        (C::NameTooLong, 3002),
        (C::Unsupported, 3013),
        (C::Io, 3007),
    ] {
        assert_eq!(ErrorNumber::from(code), ErrorNumber(number), "{code:?}");
        assert_ne!(ErrorNumber(number).name(), "unknown error");
    }
}

#[test]
fn texts_with_an_inner_nul_are_refused() {
    assert_eq!(
        ChecksumReply::decode(b"adler32 0a1b2c3d\0"),
        Ok(ChecksumReply { algorithm: b"adler32".into(), value: b"0a1b2c3d".into() })
    );
    assert!(ChecksumReply::decode(b"adler32 0a\x001b\0").is_err());
    assert!(LocateReply::decode(b"Sr[::1]:1094\0Sw[::1]:1095\0").is_err());
    assert!(ConfigReply::decode(b"1\n\x002\n").is_err());
    assert!(StatReply::decode(b"1 2 3 4\x00 5\0").is_err());
}

#[test]
fn a_clone_has_complete_and_possible_ranges() {
    let range = |offset: u64, len: u64, to: u64| {
        [&[0, 0, 0, 7, 0, 0, 0, 0][..], &offset.to_be_bytes(), &len.to_be_bytes(), &to.to_be_bytes()].concat()
    };
    let Request::Clone(clone) = decode(RequestKind::Clone, &[0, 0, 0, 9], &range(1, 2, 3)).unwrap() else { panic!() };
    let read = CloneRange { source: FileHandle([0, 0, 0, 7]), source_offset: 1, len: 2, target_offset: 3 };
    assert_eq!(clone, CloneRanges { target: FileHandle([0, 0, 0, 9]), ranges: vec![read] });
    let most = i64::MAX.unsigned_abs();
    for wrong in [vec![], range(1, 2, 3)[..31].to_vec(), range(1 << 63, 0, 0), range(1, most, 0), range(0, most, 1)] {
        let error = decode(RequestKind::Clone, &[], &wrong).unwrap_err();
        assert_eq!((error.number(), error.closes()), (ErrorNumber::ARG_INVALID, false), "{wrong:?}");
    }
    assert!(decode(RequestKind::Clone, &[], &range(0, 0, 0).repeat(1024)).is_ok());
    assert_eq!(
        header(RequestKind::Clone, &[], 1024 * 32 + 1).payload(&Limits::default()).unwrap_err().number(),
        ErrorNumber::ARG_TOO_LONG
    );
}
