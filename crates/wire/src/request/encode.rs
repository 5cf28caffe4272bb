//! Encodes requests, for clients.

use super::{
    CLONE_RANGES_MAX, Chkpoint, ChkpointOp, FATTR_NAME_MAX, FATTR_VALUE_MAX, FATTR_VARS_MAX, Fattr, FattrOp,
    SEGMENTS_MAX, Segment, Target,
};
use crate::batch;
use crate::{FileHandle, PathArg, Request, RequestHeader, StreamId, WireError};

/// The 16 bytes of a header, filled from the front.
struct Params {
    bytes: [u8; 16],
    at: usize,
}

impl Params {
    fn new() -> Self {
        Self { bytes: [0; 16], at: 0 }
    }

    fn put(mut self, bytes: &[u8]) -> Self {
        self.bytes[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.at += count;
        self
    }

    fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    fn handle(self, handle: FileHandle) -> Self {
        self.put(&handle.0)
    }

    fn u31(self, what: &'static str, value: u32) -> Result<Self, WireError> {
        i32::try_from(value).map_err(|_| WireError::Unsendable { what, why: "it needs more than 31 bits" })?;
        Ok(self.u32(value))
    }

    fn u63(self, what: &'static str, value: u64) -> Result<Self, WireError> {
        i64::try_from(value).map_err(|_| WireError::Unsendable { what, why: "it needs more than 63 bits" })?;
        Ok(self.put(&value.to_be_bytes()))
    }
}

pub(super) fn request(request: &Request, stream: StreamId, out: &mut Vec<u8>) -> Result<(), WireError> {
    let new = Params::new;
    let mut payload = Vec::new();
    // bytes that the header's length counts in addition to `payload`
    let mut streamed = 0;
    let params = match request {
        Request::Auth(auth) => {
            payload.extend_from_slice(&auth.credentials);
            new().zeros(12).put(&auth.method)
        }
        Request::Batch(r) => {
            streamed = r.len;
            new().u8(batch::VERSION).zeros(3).u32(r.entries).u32(r.list_len)
        }
        Request::Bind(bind) => new().put(&bind.session.0),
        Request::Chkpoint(Chkpoint { handle, op }) => {
            let code = match op {
                ChkpointOp::Begin => 0,
                ChkpointOp::Commit => 1,
                ChkpointOp::Query => 2,
                ChkpointOp::Rollback => 3,
                ChkpointOp::Execute(inner) => {
                    payload.extend_from_slice(&RequestHeader { stream, ..*inner }.to_bytes());
                    4
                }
            };
            new().handle(*handle).zeros(11).u8(code)
        }
        Request::Chmod(chmod) => {
            path(&chmod.target, &mut payload)?;
            new().zeros(14).u16(chmod.mode.0)
        }
        Request::Clone(clone) => {
            if clone.ranges.is_empty() || clone.ranges.len() > CLONE_RANGES_MAX {
                return Err(WireError::Unsendable { what: "clone", why: "it has no range, or more than 1024" });
            }
            for range in &clone.ranges {
                let places = Params::new().handle(range.source).zeros(4).u63("source offset", range.source_offset)?;
                payload.extend_from_slice(&places.bytes);
                let places = Params::new().u63("length", range.len)?.u63("target offset", range.target_offset)?;
                payload.extend_from_slice(&places.bytes);
            }
            new().handle(clone.target)
        }
        Request::Close(close) => new().handle(close.handle),
        Request::Dirlist(dirlist) => {
            path(&dirlist.target, &mut payload)?;
            new().zeros(15).u8(dirlist.options.0)
        }
        Request::Endsess(endsess) => new().put(&endsess.session.0),
        Request::Fattr(request) => fattr(request, &mut payload)?,
        Request::Gpfile(gpfile) => {
            payload.extend_from_slice(&gpfile.payload);
            new().u32(gpfile.options).zeros(8).u32(gpfile.buffer_size)
        }
        Request::Locate(locate) => {
            path(&locate.target, &mut payload)?;
            new().u16(locate.options.0)
        }
        Request::Login(login) => {
            payload.extend_from_slice(&login.info);
            let params = new().u32(login.pid).put(&login.user);
            params.u8(login.ability2.0).u8(login.ability.0).u8(login.capver.0)
        }
        Request::Mkdir(mkdir) => {
            path(&mkdir.target, &mut payload)?;
            new().u8(mkdir.options.0).zeros(13).u16(mkdir.mode.0)
        }
        Request::Mv(mv) => {
            path(&mv.from, &mut payload)?;
            let first = i16::try_from(payload.len())
                .map_err(|_| WireError::Unsendable { what: "old path", why: "it is longer than 32767 bytes" })?;
            payload.push(b' ');
            path(&mv.to, &mut payload)?;
            new().zeros(14).put(&first.to_be_bytes())
        }
        Request::Open(open) => {
            path(&open.target, &mut payload)?;
            let params = new().u16(open.mode.0).u16(open.options.0).u16(open.options2.0);
            params.u8(open.beginning_kib).zeros(5).handle(open.template)
        }
        Request::Pgread(pgread) => {
            let args = [pgread.path_id, pgread.flags.0];
            payload.extend_from_slice(&args[..usize::from(pgread.given.min(2))]);
            new().handle(pgread.handle).u63("offset", pgread.offset)?.u31("length", pgread.len)?
        }
        Request::Pgwrite(pgwrite) => {
            streamed = pgwrite.wire_len;
            let params = new().handle(pgwrite.handle).u63("offset", pgwrite.offset)?;
            params.u8(pgwrite.path_id).u8(pgwrite.flags.0)
        }
        Request::Ping => new(),
        Request::Prepare(prepare) => {
            payload.extend_from_slice(&prepare.lines);
            new().u8(prepare.options.0).u8(prepare.priority).u16(prepare.port).u16(prepare.options_x.0)
        }
        Request::Protocol(protocol) => new().u32(protocol.client_version).u8(protocol.flags.0).u8(protocol.expect.0),
        Request::Query(query) => {
            payload.extend_from_slice(&query.args);
            new().u16(query.kind.code()).zeros(2).handle(query.handle)
        }
        Request::Read(read) => {
            if let Some(path_id) = read.path_id {
                payload.extend_from_slice(&[path_id, read.wait_seconds, 0, 0, 0, 0, 0, 0]);
                segments(&read.read_ahead, &mut payload)?;
            } else if read.wait_seconds > 0 || !read.read_ahead.is_empty() {
                return Err(WireError::Unsendable { what: "arguments of a read", why: "they begin with a path id" });
            }
            new().handle(read.handle).u63("offset", read.offset)?.u31("length", read.len)?
        }
        Request::Readv(readv) => {
            segments(&readv.segments, &mut payload)?;
            new().zeros(15).u8(readv.path_id)
        }
        Request::Rm(rm) => {
            path(&rm.target, &mut payload)?;
            new()
        }
        Request::Rmdir(rmdir) => {
            path(&rmdir.target, &mut payload)?;
            new()
        }
        Request::Set(set) => {
            payload.extend_from_slice(&set.args);
            new().zeros(15).u8(set.modifier)
        }
        Request::Sigver(sigver) => {
            payload.extend_from_slice(&sigver.signature);
            let params = new().u16(sigver.expect.code()).u8(sigver.version).u8(sigver.flags);
            params.put(&sigver.sequence.to_be_bytes()).u8(sigver.crypto)
        }
        Request::Stat(stat) => new().u8(stat.options.0).zeros(11).handle(target(&stat.target, &mut payload)?),
        Request::Statx(statx) => {
            payload.extend_from_slice(&statx.lines);
            new().u8(statx.options.0)
        }
        Request::Sync(sync) => new().handle(sync.handle),
        Request::Truncate(truncate) => {
            new().handle(target(&truncate.target, &mut payload)?).u63("length", truncate.len)?
        }
        Request::Write(write) => {
            streamed = write.len;
            new().handle(write.handle).u63("offset", write.offset)?.u8(write.path_id)
        }
        Request::Writev(writev) => {
            segments(&writev.segments, &mut payload)?;
            new().u8(writev.options.0)
        }
        Request::Unknown(unknown) => {
            payload.extend_from_slice(&unknown.payload);
            new().put(&unknown.params)
        }
    };
    let dlen = u32::try_from(payload.len()).ok().and_then(|len| len.checked_add(streamed));
    let Some(dlen) = dlen.and_then(|dlen| i32::try_from(dlen).ok()) else {
        return Err(WireError::Unsendable { what: "payload", why: "it needs more than 31 bits of length" });
    };
    let header = RequestHeader { stream, kind: request.kind(), params: params.bytes, dlen };
    out.extend_from_slice(&header.to_bytes());
    out.append(&mut payload);
    Ok(())
}

fn path(path: &PathArg, out: &mut Vec<u8>) -> Result<(), WireError> {
    if path.path.is_empty() || path.path.contains(&b'?') {
        return Err(WireError::Unsendable { what: "path", why: "it is empty or holds a `?`" });
    }
    let start = out.len();
    path.write(out);
    if out[start..].contains(&0) {
        return Err(WireError::Unsendable { what: "path", why: "it holds a NUL byte" });
    }
    Ok(())
}

fn target(target: &Target, out: &mut Vec<u8>) -> Result<FileHandle, WireError> {
    match target {
        Target::Handle(handle) => Ok(*handle),
        Target::Path(arg) => path(arg, out).map(|()| FileHandle::default()),
    }
}

fn segments(segments: &[Segment], out: &mut Vec<u8>) -> Result<(), WireError> {
    if segments.len() > SEGMENTS_MAX {
        return Err(WireError::Unsendable { what: "list of segments", why: "it has more than 1024" });
    }
    for segment in segments {
        let params = Params::new().handle(segment.handle);
        out.extend_from_slice(&params.u31("length", segment.len)?.u63("offset", segment.offset)?.bytes);
    }
    Ok(())
}

fn fattr(request: &Fattr, out: &mut Vec<u8>) -> Result<Params, WireError> {
    let handle = target(&request.target, out)?;
    out.push(0);
    let names: Vec<&[u8]> = match &request.op {
        FattrOp::Del(names) | FattrOp::Get(names) => names.iter().map(Vec::as_slice).collect(),
        FattrOp::List { .. } => Vec::new(),
        FattrOp::Set { pairs, .. } => pairs.iter().map(|(name, _)| name.as_slice()).collect(),
    };
    let bad = |name: &&[u8]| name.is_empty() || name.len() > FATTR_NAME_MAX || name.contains(&0);
    if names.len() > FATTR_VARS_MAX || names.iter().any(bad) {
        return Err(WireError::Unsendable { what: "fattr", why: "too many names, or a name that has no legal form" });
    }
    for name in &names {
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(name);
        out.push(0);
    }
    if let FattrOp::Set { pairs, .. } = &request.op {
        for (_, value) in pairs {
            let len = u32::try_from(value.len()).ok().filter(|_| value.len() <= FATTR_VALUE_MAX);
            let Some(len) = len else {
                return Err(WireError::Unsendable { what: "fattr", why: "a value is longer than 65536 bytes" });
            };
            out.extend_from_slice(&len.to_be_bytes());
            out.extend_from_slice(value);
        }
    }
    let (code, options) = match &request.op {
        FattrOp::Del(_) => (0, 0),
        FattrOp::Get(_) => (1, 0),
        FattrOp::List { with_values } => (2, if *with_values { 0x10 } else { 0 }),
        FattrOp::Set { only_new, .. } => (3, u8::from(*only_new)),
    };
    Ok(Params::new().handle(handle).u8(code).u8(u8::try_from(names.len()).unwrap_or(u8::MAX)).u8(options))
}
