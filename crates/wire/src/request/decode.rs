//! Decodes requests.

use super::{
    Access, Auth, Batch, Bind, CLONE_RANGES_MAX, CapVer, Chkpoint, ChkpointOp, Chmod, CloneRange, CloneRanges, Close,
    Dirlist, DirlistOptions, Endsess, Expect, FATTR_NAME_MAX, FATTR_VALUE_MAX, FATTR_VARS_MAX, Fattr, FattrOp, Gpfile,
    Locate, LocateOptions, Login, LoginAbility, LoginAbility2, Mkdir, MkdirOptions, Mv, Open, OpenOptions,
    OpenOptions2, PgFlags, Pgread, Pgwrite, Prepare, PrepareOptions, PrepareOptionsX, Protocol, ProtocolFlags, Query,
    QueryKind, Read, Readv, Rm, Rmdir, SEGMENTS_MAX, Segment, Set, Sigver, Stat, StatOptions, Statx, Sync, Target,
    Truncate, Unknown, Write, Writev, WritevOptions,
};
use crate::batch;
use crate::planted::{self, Bug};
use crate::reader::Reader;
use crate::{PathArg, Request, RequestHeader, RequestKind, SessionId, WireError};

pub(super) fn request(header: &RequestHeader, payload: &[u8]) -> Result<Request, WireError> {
    let name = header.kind.name();
    let mut params = Reader::new(name, &header.params);
    let path = || PathArg::parse(payload);
    let target = |handle| if payload.is_empty() { Ok(Target::Handle(handle)) } else { path().map(Target::Path) };
    // for the kinds without a payload
    let nothing = || Reader::new(name, payload).end();
    Ok(match header.kind {
        RequestKind::Auth => {
            params.skip(12)?;
            Request::Auth(Auth { method: *params.array()?, credentials: payload.to_vec() })
        }
        RequestKind::Batch => {
            nothing()?;
            Request::Batch(batch(&mut params, header)?)
        }
        RequestKind::Bind => {
            nothing()?;
            Request::Bind(Bind { session: SessionId(header.params) })
        }
        RequestKind::Chkpoint => {
            let handle = params.handle()?;
            params.skip(11)?;
            Request::Chkpoint(Chkpoint { handle, op: chkpoint(params.u8()?, header, payload)? })
        }
        RequestKind::Chmod => {
            params.skip(14)?;
            Request::Chmod(Chmod { mode: Access(params.u16()?), target: path()? })
        }
        RequestKind::Clone => {
            Request::Clone(CloneRanges { target: params.handle()?, ranges: clone_ranges(Reader::new(name, payload))? })
        }
        RequestKind::Close => {
            nothing()?;
            Request::Close(Close { handle: params.handle()? })
        }
        RequestKind::Dirlist => {
            params.skip(15)?;
            Request::Dirlist(Dirlist { options: DirlistOptions(params.u8()?), target: path()? })
        }
        RequestKind::Endsess => {
            nothing()?;
            Request::Endsess(Endsess { session: SessionId(header.params) })
        }
        RequestKind::Fattr => Request::Fattr(fattr(&mut params, payload)?),
        RequestKind::Gpfile => {
            let options = params.u32()?;
            params.skip(8)?;
            Request::Gpfile(Gpfile { options, buffer_size: params.u32()?, payload: payload.to_vec() })
        }
        RequestKind::Locate => Request::Locate(Locate { options: LocateOptions(params.u16()?), target: path()? }),
        RequestKind::Login => Request::Login(Login {
            pid: params.u32()?,
            user: *params.array()?,
            ability2: LoginAbility2(params.u8()?),
            ability: LoginAbility(params.u8()?),
            capver: CapVer(params.u8()?),
            info: payload.to_vec(),
        }),
        RequestKind::Mkdir => {
            let options = MkdirOptions(params.u8()?);
            params.skip(13)?;
            Request::Mkdir(Mkdir { options, mode: Access(params.u16()?), target: path()? })
        }
        RequestKind::Mv => {
            params.skip(14)?;
            let (from, to) = two_paths(params.u16()?, payload)?;
            Request::Mv(Mv { from, to })
        }
        RequestKind::Open => {
            let (mode, options) = (Access(params.u16()?), OpenOptions(params.u16()?));
            let options2 = OpenOptions2(params.u16()?);
            let beginning_kib = params.u8()?;
            params.skip(5)?;
            let template = params.handle()?;
            Request::Open(Open { mode, options, options2, beginning_kib, template, target: path()? })
        }
        RequestKind::Pgread => Request::Pgread(pgread(&mut params, payload)?),
        RequestKind::Pgwrite => {
            nothing()?;
            let (handle, offset) = (params.handle()?, params.u63("offset")?);
            let (path_id, flags) = (params.u8()?, PgFlags(params.u8()?));
            Request::Pgwrite(Pgwrite { handle, offset, path_id, flags, wire_len: data_len(header, offset)? })
        }
        RequestKind::Ping => {
            nothing()?;
            Request::Ping
        }
        RequestKind::Prepare => Request::Prepare(Prepare {
            options: PrepareOptions(params.u8()?),
            priority: params.u8()?,
            port: params.u16()?,
            options_x: PrepareOptionsX(params.u16()?),
            lines: payload.to_vec(),
        }),
        RequestKind::Protocol => {
            nothing()?;
            Request::Protocol(Protocol {
                client_version: params.u32()?,
                flags: ProtocolFlags(params.u8()?),
                expect: Expect::of_byte(params.u8()?),
            })
        }
        RequestKind::Query => {
            let kind = QueryKind::from_code(params.u16()?);
            params.skip(2)?;
            Request::Query(Query { kind, handle: params.handle()?, args: payload.to_vec() })
        }
        RequestKind::Read => Request::Read(read(&mut params, payload)?),
        RequestKind::Readv => {
            params.skip(15)?;
            Request::Readv(Readv { path_id: params.u8()?, segments: segments(Reader::new(name, payload), 1)? })
        }
        RequestKind::Rm => Request::Rm(Rm { target: path()? }),
        RequestKind::Rmdir => Request::Rmdir(Rmdir { target: path()? }),
        RequestKind::Set => {
            params.skip(15)?;
            Request::Set(Set { modifier: params.u8()?, args: payload.to_vec() })
        }
        RequestKind::Sigver => Request::Sigver(Sigver {
            expect: RequestKind::from_code(params.u16()?),
            version: params.u8()?,
            flags: params.u8()?,
            sequence: params.u64()?,
            crypto: params.u8()?,
            signature: payload.to_vec(),
        }),
        RequestKind::Stat => {
            let options = StatOptions(params.u8()?);
            params.skip(11)?;
            Request::Stat(Stat { options, target: target(params.handle()?)? })
        }
        RequestKind::Statx => Request::Statx(Statx { options: StatOptions(params.u8()?), lines: payload.to_vec() }),
        RequestKind::Sync => {
            nothing()?;
            Request::Sync(Sync { handle: params.handle()? })
        }
        RequestKind::Truncate => {
            let handle = params.handle()?;
            Request::Truncate(Truncate { len: params.u63("length")?, target: target(handle)? })
        }
        RequestKind::Write => {
            nothing()?;
            let (handle, offset) = (params.handle()?, params.u63("offset")?);
            Request::Write(Write { handle, offset, path_id: params.u8()?, len: data_len(header, offset)? })
        }
        RequestKind::Writev => {
            let options = WritevOptions(params.u8()?);
            Request::Writev(Writev { options, segments: segments(Reader::new(name, payload), 1)? })
        }
        RequestKind::Unknown(code) => {
            Request::Unknown(Unknown { code, params: header.params, payload: payload.to_vec() })
        }
    })
}

/// The fields of a batch, checked against its limits.
fn batch(params: &mut Reader<'_>, header: &RequestHeader) -> Result<Batch, WireError> {
    let version = params.u8()?;
    if version != batch::VERSION {
        let what = "version of a batch (1 is spoken here, not version)";
        return Err(WireError::OutOfRange { what, value: i64::from(version) });
    }
    params.skip(3)?;
    let (entries, list_len) = (params.u32()?, params.u32()?);
    let len = data_len(header, 0)?;
    if entries > batch::ENTRIES_MAX {
        let (count, limit) = (entries as usize, batch::ENTRIES_MAX as usize);
        return Err(WireError::TooMany { what: "entries of a batch", count, limit });
    }
    if entries == 0 {
        return Err(WireError::Missing { what: "list of a batch" });
    }
    if list_len > len {
        return Err(WireError::TooShort { what: "list of a batch", missing: (list_len - len) as usize });
    }
    Ok(Batch { entries, list_len, len })
}

/// The length of a payload that is not read into memory. The end of the data must be below 2^63.
fn data_len(header: &RequestHeader, offset: u64) -> Result<u32, WireError> {
    let len =
        u32::try_from(header.dlen).map_err(|_| WireError::NegativeLength { kind: header.kind, dlen: header.dlen })?;
    ends_in_range(offset, len)?;
    Ok(len)
}

/// No file has a range that ends past 2^63 - 1.
fn ends_in_range(offset: u64, len: u32) -> Result<(), WireError> {
    match offset.checked_add(u64::from(len)).map(i64::try_from) {
        Some(Ok(_)) => Ok(()),
        _ => Err(WireError::OutOfRange { what: "end of the data, at", value: i64::MAX }),
    }
}

fn segments(mut reader: Reader<'_>, at_least: usize) -> Result<Vec<Segment>, WireError> {
    let count = reader.left() / 16;
    if count > SEGMENTS_MAX {
        return Err(WireError::TooMany { what: "segments", count, limit: SEGMENTS_MAX });
    }
    if count < at_least && reader.left() == 0 {
        return Err(WireError::Missing { what: "list of segments" });
    }
    let mut segments = Vec::with_capacity(count);
    for _ in 0..count {
        let (handle, len) = (reader.handle()?, reader.u31("segment length")?);
        let offset = reader.u63("segment offset")?;
        ends_in_range(offset, len)?;
        segments.push(Segment { handle, len, offset });
    }
    reader.end()?;
    Ok(segments)
}

/// The list of a clone: 32 bytes for each range.
fn clone_ranges(mut reader: Reader<'_>) -> Result<Vec<CloneRange>, WireError> {
    let count = reader.left() / 32;
    if count > CLONE_RANGES_MAX {
        return Err(WireError::TooMany { what: "ranges", count, limit: CLONE_RANGES_MAX });
    }
    if reader.left() == 0 {
        return Err(WireError::Malformed { what: "clone", why: "it names no range" });
    }
    let mut ranges = Vec::with_capacity(count);
    for _ in 0..count {
        let source = reader.handle()?;
        reader.skip(4)?;
        let (source_offset, len) = (reader.u63("source offset")?, reader.u63("length")?);
        let target_offset = reader.u63("target offset")?;
        for start in [source_offset, target_offset] {
            // both are below 2^63, so that their sum does not overflow
            if i64::try_from(start + len).is_err() {
                return Err(WireError::OutOfRange { what: "end of the range, at", value: i64::MAX });
            }
        }
        ranges.push(CloneRange { source, source_offset, len, target_offset });
    }
    reader.end()?;
    Ok(ranges)
}

fn read(params: &mut Reader<'_>, payload: &[u8]) -> Result<Read, WireError> {
    let (handle, offset) = (params.handle()?, params.u63("offset")?);
    let len = params.u31("length")?;
    ends_in_range(offset, len)?;
    if payload.is_empty() {
        return Ok(Read::new(handle, offset, len));
    }
    let mut args = Reader::new("arguments of read", payload);
    let path_id = args.u8()?;
    let wait_seconds = args.u8()?;
    args.skip(6)?;
    Ok(Read { handle, offset, len, path_id: Some(path_id), wait_seconds, read_ahead: segments(args, 0)? })
}

fn pgread(params: &mut Reader<'_>, payload: &[u8]) -> Result<Pgread, WireError> {
    let (handle, offset) = (params.handle()?, params.u63("offset")?);
    let len = params.u31("length")?;
    ends_in_range(offset, len)?;
    let mut args = Reader::new("arguments of pgread", payload);
    let given = u8::try_from(args.left().min(2)).unwrap_or(2);
    let path_id = if given > 0 { args.u8()? } else { 0 };
    let flags = PgFlags(if given > 1 { args.u8()? } else { 0 });
    args.end()?;
    Ok(Pgread { handle, offset, len, path_id, flags, given })
}

/// `old new` with a blank between them. The old name is `arg1len` bytes long; 0 means up to the first blank.
fn two_paths(arg1len: u16, payload: &[u8]) -> Result<(PathArg, PathArg), WireError> {
    let arg1len = if planted::is(Bug::MvCutsAtBlank) { 0 } else { arg1len };
    let at = match usize::from(arg1len) {
        0 => payload.iter().position(|&b| b == b' ').ok_or(WireError::Missing { what: "new path" })?,
        // the field is signed
        len if len > 0x7fff => {
            let value = i64::from(arg1len.cast_signed());
            return Err(WireError::OutOfRange { what: "length of the old path", value });
        }
        len => len,
    };
    if at >= payload.len() {
        return Err(WireError::Missing { what: "new path" });
    }
    if payload[at] != b' ' {
        return Err(WireError::Malformed { what: "mv", why: "no blank stands between the two paths" });
    }
    Ok((PathArg::parse(&payload[..at])?, PathArg::parse(&payload[at + 1..])?))
}

fn chkpoint(code: u8, header: &RequestHeader, payload: &[u8]) -> Result<ChkpointOp, WireError> {
    const WHAT: &str = "chkpoint";
    let op = match code {
        0 => ChkpointOp::Begin,
        1 => ChkpointOp::Commit,
        2 => ChkpointOp::Query,
        3 => ChkpointOp::Rollback,
        4 => {
            let mut reader = Reader::new(WHAT, payload);
            let inner = RequestHeader::parse(reader.array()?);
            reader.end()?;
            let allowed = matches!(
                (inner.kind, inner.dlen),
                (RequestKind::Truncate, 0)
                    | (RequestKind::Write | RequestKind::Pgwrite, 0..)
                    | (RequestKind::Writev, 0..=0x4000)
            );
            if !allowed || inner.stream != header.stream {
                return Err(WireError::Malformed { what: WHAT, why: "the request inside cannot be done under it" });
            }
            return Ok(ChkpointOp::Execute(inner));
        }
        other => return Err(WireError::OutOfRange { what: "operation of chkpoint", value: i64::from(other) }),
    };
    Reader::new(WHAT, payload).end()?;
    Ok(op)
}

fn fattr(params: &mut Reader<'_>, payload: &[u8]) -> Result<Fattr, WireError> {
    const WHAT: &str = "fattr";
    let handle = params.handle()?;
    let (code, count, options) = (params.u8()?, usize::from(params.u8()?), params.u8()?);
    // an empty path means the handle; `list` on a handle may have no payload at all
    let mut reader = Reader::new(WHAT, payload);
    let path = match payload.iter().position(|&b| b == 0) {
        // `list` may omit the path's NUL
        None => reader.rest(),
        Some(_) => reader.until_nul()?,
    };
    let target = if path.is_empty() { Target::Handle(handle) } else { Target::Path(PathArg::parse(path)?) };
    if count > FATTR_VARS_MAX {
        return Err(WireError::TooMany { what: "attributes", count, limit: FATTR_VARS_MAX });
    }
    let is_list = code == 2;
    if is_list != (count == 0) {
        return Err(WireError::Malformed { what: WHAT, why: "the number of attributes does not fit what is asked" });
    }
    let mut names = Vec::with_capacity(count);
    for _ in 0..count {
        reader.skip(2)?;
        let name = reader.until_nul()?;
        if name.is_empty() {
            return Err(WireError::Missing { what: "name of an attribute" });
        }
        if name.len() > FATTR_NAME_MAX {
            return Err(WireError::TooMany {
                what: "bytes of an attribute's name",
                count: name.len(),
                limit: FATTR_NAME_MAX,
            });
        }
        names.push(name.to_vec());
    }
    let op = match code {
        0 => FattrOp::Del(names),
        1 => FattrOp::Get(names),
        2 => FattrOp::List { with_values: options & 0x10 != 0 },
        3 => {
            let mut pairs = Vec::with_capacity(count);
            for name in names {
                let len = usize::try_from(reader.u31("length of an attribute")?).unwrap_or(usize::MAX);
                if len > FATTR_VALUE_MAX {
                    return Err(WireError::TooMany {
                        what: "bytes of an attribute",
                        count: len,
                        limit: FATTR_VALUE_MAX,
                    });
                }
                pairs.push((name, reader.take(len)?.to_vec()));
            }
            FattrOp::Set { only_new: options & 0x01 != 0, pairs }
        }
        other => return Err(WireError::OutOfRange { what: "operation of fattr", value: i64::from(other) }),
    };
    reader.end()?;
    Ok(Fattr { target, op })
}
