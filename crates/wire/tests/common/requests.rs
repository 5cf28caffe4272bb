//! Random requests of all kinds, including the odd cases that the protocol allows.

use proptest::collection::vec;
use proptest::prelude::*;
use wire::request::*;
use wire::{FileHandle, Opaque, PathArg, Request, RequestHeader, RequestKind, SessionId, StreamId};

fn handle() -> impl Strategy<Value = FileHandle> {
    any::<[u8; 4]>().prop_map(FileHandle)
}

fn session() -> impl Strategy<Value = SessionId> {
    any::<[u8; 16]>().prop_map(SessionId)
}

fn len() -> impl Strategy<Value = u32> {
    prop_oneof![0..20_000u32, Just(0x7fff_ffffu32)]
}

fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..100_000u64, Just(1 << 40), Just((1 << 63) - 1 - 0x7fff_ffff)]
}

/// Lengths of data that the tests create in memory.
fn short_len() -> impl Strategy<Value = u32> {
    0..5000u32
}

fn text(limit: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..limit)
}

/// Any bytes but NUL and `?`, including blanks and line ends.
pub fn path_bytes() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![Just(b'/'), Just(b' '), Just(b'\n'), Just(b'&'), 1..=62u8, 64..=255u8];
    vec(byte, 1..60).prop_map(|mut bytes| {
        bytes[0] = b'/';
        bytes
    })
}

pub fn path() -> impl Strategy<Value = PathArg> {
    let opaque = vec(prop_oneof![Just(b'&'), Just(b'='), Just(b'?'), 1..=255u8], 0..60);
    (path_bytes(), proptest::option::of(opaque))
        .prop_map(|(path, opaque)| PathArg { path, opaque: opaque.map(|raw| Opaque::parse(&raw).unwrap()) })
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![path().prop_map(Target::Path), handle().prop_map(Target::Handle)]
}

fn segments(least: usize, len: impl Strategy<Value = u32>) -> impl Strategy<Value = Vec<Segment>> {
    vec((handle(), len, offset()).prop_map(|(handle, len, offset)| Segment { handle, len, offset }), least..8)
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    vec(1..=255u8, 1..=FATTR_NAME_MAX)
}

fn fattr_op() -> impl Strategy<Value = FattrOp> {
    prop_oneof![
        vec(name(), 1..=FATTR_VARS_MAX).prop_map(FattrOp::Del),
        vec(name(), 1..=FATTR_VARS_MAX).prop_map(FattrOp::Get),
        any::<bool>().prop_map(|with_values| FattrOp::List { with_values }),
        (any::<bool>(), vec((name(), text(200)), 1..=FATTR_VARS_MAX))
            .prop_map(|(only_new, pairs)| FattrOp::Set { only_new, pairs }),
    ]
}

fn chkpoint_op() -> impl Strategy<Value = ChkpointOp> {
    let inner = (any::<[u8; 16]>(), short_len(), prop_oneof![Just(RequestKind::Write), Just(RequestKind::Pgwrite)])
        .prop_map(|(params, len, kind)| RequestHeader {
            stream: StreamId(*b"ab"),
            kind,
            params,
            dlen: i32::try_from(len).unwrap(),
        });
    prop_oneof![
        Just(ChkpointOp::Begin),
        Just(ChkpointOp::Commit),
        Just(ChkpointOp::Query),
        Just(ChkpointOp::Rollback),
        inner.prop_map(ChkpointOp::Execute),
    ]
}

fn session_requests() -> BoxedStrategy<Request> {
    prop_oneof![
        (any::<[u8; 4]>(), text(300)).prop_map(|(method, credentials)| Request::Auth(Auth { method, credentials })),
        session().prop_map(|session| Request::Bind(Bind { session })),
        session().prop_map(|session| Request::Endsess(Endsess { session })),
        (any::<u32>(), any::<[u8; 8]>(), any::<[u8; 3]>(), text(100)).prop_map(|(pid, user, bits, info)| {
            Request::Login(Login {
                pid,
                user,
                ability2: LoginAbility2(bits[0]),
                ability: LoginAbility(bits[1]),
                capver: CapVer(bits[2]),
                info,
            })
        }),
        Just(Request::Ping),
        (any::<u32>(), any::<u8>(), any::<u8>()).prop_map(|(client_version, flags, expect)| Request::Protocol(
            Protocol { client_version, flags: ProtocolFlags(flags), expect: Expect::of_byte(expect) }
        )),
        (any::<u8>(), text(100)).prop_map(|(modifier, args)| Request::Set(Set { modifier, args })),
        (any::<u16>(), any::<[u8; 3]>(), any::<u64>(), text(64)).prop_map(|(expect, bits, sequence, signature)| {
            Request::Sigver(Sigver {
                expect: RequestKind::from_code(expect),
                version: bits[0],
                flags: bits[1],
                sequence,
                crypto: bits[2],
                signature,
            })
        }),
        (3100..4000u16, any::<[u8; 16]>(), text(100)).prop_map(|(code, params, payload)| Request::Unknown(Unknown {
            code,
            params,
            payload
        })),
        (any::<u32>(), any::<u32>(), text(50)).prop_map(|(options, buffer_size, payload)| Request::Gpfile(Gpfile {
            options,
            buffer_size,
            payload
        })),
    ]
    .boxed()
}

fn name_requests() -> BoxedStrategy<Request> {
    prop_oneof![
        (any::<u16>(), path()).prop_map(|(mode, target)| Request::Chmod(Chmod { mode: Access(mode), target })),
        (any::<u8>(), path())
            .prop_map(|(bits, target)| Request::Dirlist(Dirlist { options: DirlistOptions(bits), target })),
        (target(), fattr_op()).prop_map(|(target, op)| Request::Fattr(Fattr { target, op })),
        (any::<u16>(), path())
            .prop_map(|(bits, target)| Request::Locate(Locate { options: LocateOptions(bits), target })),
        (any::<u8>(), any::<u16>(), path()).prop_map(|(bits, mode, target)| Request::Mkdir(Mkdir {
            options: MkdirOptions(bits),
            mode: Access(mode),
            target
        })),
        (path(), path()).prop_map(|(from, to)| Request::Mv(Mv { from, to })),
        (any::<[u8; 2]>(), any::<[u16; 2]>(), text(200)).prop_map(|(bytes, words, lines)| Request::Prepare(Prepare {
            options: PrepareOptions(bytes[0]),
            priority: bytes[1],
            port: words[0],
            options_x: PrepareOptionsX(words[1]),
            lines,
        })),
        (any::<u16>(), handle(), text(200)).prop_map(|(kind, handle, args)| Request::Query(Query {
            kind: QueryKind::from_code(kind % 70),
            handle,
            args
        })),
        path().prop_map(|target| Request::Rm(Rm { target })),
        path().prop_map(|target| Request::Rmdir(Rmdir { target })),
        (any::<u8>(), target()).prop_map(|(bits, target)| Request::Stat(Stat { options: StatOptions(bits), target })),
        (any::<u8>(), text(200)).prop_map(|(bits, lines)| Request::Statx(Statx { options: StatOptions(bits), lines })),
    ]
    .boxed()
}

fn clone_range() -> impl Strategy<Value = CloneRange> {
    let below = 0..i64::MAX.unsigned_abs() / 2;
    (handle(), below.clone(), below.clone(), below).prop_map(|(source, source_offset, len, target_offset)| CloneRange {
        source,
        source_offset,
        len,
        target_offset,
    })
}

fn file_requests(data: BoxedStrategy<u32>) -> BoxedStrategy<Request> {
    prop_oneof![
        (handle(), chkpoint_op()).prop_map(|(handle, op)| Request::Chkpoint(Chkpoint { handle, op })),
        handle().prop_map(|handle| Request::Close(Close { handle })),
        (handle(), vec(clone_range(), 1..20))
            .prop_map(|(target, ranges)| Request::Clone(CloneRanges { target, ranges })),
        (any::<[u16; 3]>(), any::<u8>(), handle(), path()).prop_map(|(words, kib, template, target)| Request::Open(
            Open {
                mode: Access(words[0]),
                options: OpenOptions(words[1]),
                options2: OpenOptions2(words[2]),
                beginning_kib: kib,
                template,
                target
            }
        )),
        (handle(), offset(), len(), any::<[u8; 2]>(), 0..3u8).prop_map(|(handle, offset, len, bits, given)| {
            Request::Pgread(Pgread {
                handle,
                offset,
                len,
                path_id: if given > 0 { bits[0] } else { 0 },
                flags: PgFlags(if given > 1 { bits[1] } else { 0 }),
                given,
            })
        }),
        (handle(), offset(), any::<[u8; 2]>(), data.clone()).prop_map(|(handle, offset, bits, wire_len)| {
            Request::Pgwrite(Pgwrite { handle, offset, path_id: bits[0], flags: PgFlags(bits[1]), wire_len })
        }),
        (handle(), offset(), len(), proptest::option::of((any::<u8>(), any::<u8>(), segments(0, len())))).prop_map(
            |(handle, offset, len, args)| {
                let read = Read::new(handle, offset, len);
                Request::Read(match args {
                    Some((path_id, wait_seconds, read_ahead)) => {
                        Read { path_id: Some(path_id), wait_seconds, read_ahead, ..read }
                    }
                    None => read,
                })
            }
        ),
        (any::<u8>(), segments(1, len())).prop_map(|(path_id, segments)| Request::Readv(Readv { path_id, segments })),
        handle().prop_map(|handle| Request::Sync(Sync { handle })),
        (offset(), target()).prop_map(|(len, target)| {
            // a path leaves the handle's bytes zero
            Request::Truncate(Truncate { len, target })
        }),
        (1..=512u32, 0..500u32, 0..4000u32).prop_map(|(entries, list_len, more)| Request::Batch(Batch {
            entries,
            list_len,
            len: list_len + more
        })),
        (handle(), offset(), any::<u8>(), data.clone())
            .prop_map(|(handle, offset, path_id, len)| Request::Write(Write { handle, offset, path_id, len })),
        (any::<u8>(), segments(1, data))
            .prop_map(|(bits, segments)| Request::Writev(Writev { options: WritevOptions(bits), segments })),
    ]
    .boxed()
}

/// Any request.
pub fn any_request() -> BoxedStrategy<Request> {
    prop_oneof![session_requests(), name_requests(), file_requests(len().boxed())].boxed()
}

/// Any request whose data are short enough for memory.
pub fn short_request() -> BoxedStrategy<Request> {
    prop_oneof![session_requests(), name_requests(), file_requests(short_len().boxed())].boxed()
}
