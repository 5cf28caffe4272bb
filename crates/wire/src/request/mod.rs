//! The requests of clients as plain data.
//!
//! One struct per request code, in the words of `XProtocol.hh`. Numbers that the protocol sends as signed and that
//! cannot be below zero are unsigned here: decoding has refused the others, encoding refuses what does not fit.

mod decode;
mod encode;
mod options;

pub use options::{
    Access, BIND_ANY_PATH, CapVer, ChkpointOp, DirlistOptions, Expect, FattrOp, LocateOptions, LoginAbility,
    LoginAbility2, MkdirOptions, OpenOptions, OpenOptions2, PgFlags, PrepareOptions, PrepareOptionsX, ProtocolFlags,
    QueryKind, StatOptions, WritevOptions,
};

use crate::planted::{self, Bug};
use crate::{FileHandle, Opaque, PathArg, RequestHeader, RequestKind, SessionId, WireError};

/// Segments that one `readv` or `writev` may name (the protocol's `maxRvecsz`).
pub const SEGMENTS_MAX: usize = 1024;
/// Ranges that one `clone` may name (the protocol's `maxClonesz`).
pub const CLONE_RANGES_MAX: usize = 1024;
/// Attributes that one `fattr` may name.
pub const FATTR_VARS_MAX: usize = 16;
/// Longest name of an attribute in `fattr`, in bytes.
pub const FATTR_NAME_MAX: usize = 248;
/// Longest value of an attribute in `fattr`, in bytes.
pub const FATTR_VALUE_MAX: usize = 65_536;

/// What a client asks.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)] // each is described at its struct
pub enum Request {
    Auth(Auth),
    Batch(Batch),
    Bind(Bind),
    Chkpoint(Chkpoint),
    Chmod(Chmod),
    Clone(CloneRanges),
    Close(Close),
    Dirlist(Dirlist),
    Endsess(Endsess),
    Fattr(Fattr),
    Gpfile(Gpfile),
    Locate(Locate),
    Login(Login),
    Mkdir(Mkdir),
    Mv(Mv),
    Open(Open),
    Pgread(Pgread),
    Pgwrite(Pgwrite),
    /// Are you there?
    Ping,
    Prepare(Prepare),
    Protocol(Protocol),
    Query(Query),
    Read(Read),
    Readv(Readv),
    Rm(Rm),
    Rmdir(Rmdir),
    Set(Set),
    Sigver(Sigver),
    Stat(Stat),
    Statx(Statx),
    Sync(Sync),
    Truncate(Truncate),
    Write(Write),
    Writev(Writev),
    Unknown(Unknown),
}

/// A path, or a file that is open.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// By name.
    Path(PathArg),
    /// By handle: the request had no payload.
    Handle(FileHandle),
}

/// Credentials for one of the methods that the login answer offered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Auth {
    /// The method: `ztn\0`, `sss\0`, `gsi\0`, `host`, `unix`, `krb5`.
    pub method: [u8; 4],
    /// In the method's own form.
    pub credentials: Vec<u8>,
}

/// Many small requests in one frame ([`crate::batch`]). The list of entries and their contents follow on the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// Entries of the list, at least 1, at most [`crate::batch::ENTRIES_MAX`].
    pub entries: u32,
    /// Bytes of the list; at most `len`.
    pub list_len: u32,
    /// Bytes that follow: the list, then the contents.
    pub len: u32,
}

/// Makes this connection a further data stream of a session. Answered with [`crate::response::BindReply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// Of which session.
    pub session: SessionId,
}

/// Checkpoints of an open file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chkpoint {
    /// Of which file (not meaningful for [`ChkpointOp::Execute`], whose inner request names it).
    pub handle: FileHandle,
    /// What to do.
    pub op: ChkpointOp,
}

/// Sets permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chmod {
    /// Nine bits as in Unix.
    pub mode: Access,
    /// Of what.
    pub target: PathArg,
}

/// Copies ranges of open files into another one, on the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloneRanges {
    /// Into which file.
    pub target: FileHandle,
    /// From where to where; at least one, at most [`CLONE_RANGES_MAX`].
    pub ranges: Vec<CloneRange>,
}

/// One of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneRange {
    /// From which file.
    pub source: FileHandle,
    /// From where.
    pub source_offset: u64,
    /// How many bytes; 0: all up to the source's end.
    pub len: u64,
    /// To where.
    pub target_offset: u64,
}

/// Gives a handle back; for a written file: and says that it is complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Close {
    /// Which.
    pub handle: FileHandle,
}

/// Lists a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dirlist {
    /// With attributes or checksums.
    pub options: DirlistOptions,
    /// Which directory.
    pub target: PathArg,
}

/// Ends a session: its own (all zeros) or one that a lost connection left behind. XrdCl sends it after each reconnect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endsess {
    /// Which.
    pub session: SessionId,
}

/// Extended attributes. Answered with [`crate::response::FattrReply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fattr {
    /// Of what.
    pub target: Target,
    /// What to do.
    pub op: FattrOp,
}

/// Get or put a whole file. The header itself calls its definition wrong; it is here to be refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpfile {
    /// Undefined.
    pub options: u32,
    /// Undefined.
    pub buffer_size: u32,
    /// As it came.
    pub payload: Vec<u8>,
}

/// Where is it? The path `*` (or `*/path`) asks for all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locate {
    /// How hard to look.
    pub options: LocateOptions,
    /// What.
    pub target: PathArg,
}

/// Who the client says it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The client's process id.
    pub pid: u32,
    /// Its user name, padded with NULs, never proven. XrdCl writes `????` when the system does not know one.
    pub user: [u8; 8],
    /// Second set of abilities.
    pub ability2: LoginAbility2,
    /// First set of abilities.
    pub ability: LoginAbility,
    /// Version and asynchrony of the client.
    pub capver: CapVer,
    /// `?xrd.cc=…&xrd.tz=…&xrd.appname=…&xrd.info=…&xrd.hostname=…&xrd.rn=…`, or a token of old clients.
    pub info: Vec<u8>,
}

impl Login {
    /// The user name without its padding. Any bytes.
    #[must_use]
    pub fn user_name(&self) -> &[u8] {
        let end = self.user.iter().position(|&b| b == 0).unwrap_or(self.user.len());
        &self.user[..end]
    }

    /// The client's description of itself as keys and values (`xrd.appname`, `xrd.hostname`, `xrd.rn`), if it gave one.
    pub fn details(&self) -> Result<Opaque, WireError> {
        let end = self.info.iter().position(|&b| b == 0).unwrap_or(self.info.len());
        let text = &self.info[..end];
        Opaque::parse(text.strip_prefix(b"?").unwrap_or(text))
    }
}

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mkdir {
    /// With its parents?
    pub options: MkdirOptions,
    /// Its permission bits.
    pub mode: Access,
    /// Where.
    pub target: PathArg,
}

/// Renames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mv {
    /// The old name. When the client did not say how long it is (`arg1len` 0), it ends at the first space.
    pub from: PathArg,
    /// The new name.
    pub to: PathArg,
}

/// Opens a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// Permission bits of a file that is made.
    pub mode: Access,
    /// How.
    pub options: OpenOptions,
    /// More of how.
    pub options2: OpenOptions2,
    /// For [`OpenOptions2::DUP`] and [`OpenOptions2::SAMEFS`]: an open file of the session. Zeros otherwise.
    pub template: FileHandle,
    /// Which.
    pub target: PathArg,
}

impl Open {
    /// As protocol 5.1 knows it: without a template.
    #[must_use]
    pub fn plain(mode: Access, options: OpenOptions, target: PathArg) -> Self {
        Self { mode, options, options2: OpenOptions2::NONE, template: FileHandle::default(), target }
    }
}

/// Reads pages with their checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pgread {
    /// From which file.
    pub handle: FileHandle,
    /// From where.
    pub offset: u64,
    /// How many bytes of data (the checksums not counted).
    pub len: u32,
    /// On which data stream the answer goes (0: this one).
    pub path_id: u8,
    /// Is this the second try of a page whose checksum did not match?
    pub flags: PgFlags,
    /// How many of the two optional bytes were there, 0 to 2. Says nothing; kept so that the bytes can be made again.
    pub given: u8,
}

/// Writes pages with their checksums, as [`crate::page`] describes. The payload follows on the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pgwrite {
    /// Into which file.
    pub handle: FileHandle,
    /// To where.
    pub offset: u64,
    /// On which data stream the payload comes (0: this one).
    pub path_id: u8,
    /// Is this the second try of pages whose checksum did not match?
    pub flags: PgFlags,
    /// Bytes that follow, checksums counted. [`crate::page::Layout::of_wire`] tells how many are data.
    pub wire_len: u32,
}

/// Asks for files to be staged, released or kept; or cancels such a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// What to do.
    pub options: PrepareOptions,
    /// 0 (lowest) to 3.
    pub priority: u8,
    /// Where to send news, by UDP.
    pub port: u16,
    /// More of what to do.
    pub options_x: PrepareOptionsX,
    /// Paths with their opaque parts, one a line; with [`PrepareOptions::CANCEL`] a request id.
    pub lines: Vec<u8>,
}

impl Prepare {
    /// The lines, empty ones left out.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.lines)
    }
}

fn lines(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split(|&b| b == b'\n' || b == 0).filter(|line| !line.is_empty())
}

/// Versions and capabilities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// The client's version (XrdCl 5.5: `0x511`).
    pub client_version: u32,
    /// What it can and wants.
    pub flags: ProtocolFlags,
    /// What it will do next.
    pub expect: Expect,
}

/// A question.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// About what.
    pub kind: QueryKind,
    /// The file, if the question is about an open one and `args` is empty (or `kind` is one of the handle's own).
    pub handle: FileHandle,
    /// In the form that `kind` wants.
    pub args: Vec<u8>,
}

impl Query {
    /// `args` as a path (checksum, space, xattr, opaque with file).
    pub fn path(&self) -> Result<PathArg, WireError> {
        PathArg::parse(&self.args)
    }

    /// `args` as words between blanks or line ends (config).
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.args.split(|&b| matches!(b, b' ' | b'\n' | b'\r' | b'\t' | 0)).filter(|word| !word.is_empty())
    }
}

/// Reads bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// From which file.
    pub handle: FileHandle,
    /// From where.
    pub offset: u64,
    /// How many bytes.
    pub len: u32,
    /// On which data stream the answer goes; `None` if the client sent no arguments.
    pub path_id: Option<u8>,
    /// What it will read next: a hint.
    pub read_ahead: Vec<Segment>,
}

/// Reads from several places, perhaps of several files. The answer is, for each segment in order, its 16 bytes again
/// (with the length really read) followed by the data: [`crate::response::ReadvSegment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readv {
    /// On which data stream the answer goes.
    pub path_id: u8,
    /// From where; at most [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Readv {
    /// Bytes of the whole answer if every segment is read in full.
    #[must_use]
    pub fn reply_len(&self) -> u64 {
        self.segments.iter().map(|segment| 16 + u64::from(segment.len)).sum()
    }
}

/// A place in an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// Which file.
    pub handle: FileHandle,
    /// Bytes.
    pub len: u32,
    /// Where it begins.
    pub offset: u64,
}

/// Removes a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rm {
    /// Which.
    pub target: PathArg,
}

/// Removes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rmdir {
    /// Which.
    pub target: PathArg,
}

/// A setting of the session: `appid …`, `monitor …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Zero.
    pub modifier: u8,
    /// The text.
    pub args: Vec<u8>,
}

/// The signature of the request that comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sigver {
    /// The next request's code.
    pub expect: RequestKind,
    /// 0.
    pub version: u8,
    /// 1: the payload is not part of it.
    pub flags: u8,
    /// Grows with each request.
    pub sequence: u64,
    /// Hash and key.
    pub crypto: u8,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Of the file system instead?
    pub options: StatOptions,
    /// Of what.
    pub target: Target,
}

/// One byte of flags for each of several paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statx {
    /// As for [`Stat`].
    pub options: StatOptions,
    /// Paths, one a line.
    pub lines: Vec<u8>,
}

impl Statx {
    /// The lines, empty ones left out.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.lines)
    }
}

/// Makes what was written durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Of which file.
    pub handle: FileHandle,
}

/// Sets a length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// The new length.
    pub len: u64,
    /// Of what.
    pub target: Target,
}

/// Writes bytes. The payload follows on the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// Into which file.
    pub handle: FileHandle,
    /// To where.
    pub offset: u64,
    /// On which data stream the payload comes (0: this one).
    pub path_id: u8,
    /// Bytes that follow.
    pub len: u32,
}

/// Writes to several places. The data of all segments, in order, follows the list on the connection; the header's
/// payload length counts the list only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writev {
    /// Durable before the answer?
    pub options: WritevOptions,
    /// To where; at most [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Writev {
    /// Bytes of data that follow the list.
    #[must_use]
    pub fn data_len(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.len)).sum()
    }
}

/// A request that this version of the protocol does not have.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown {
    /// Its code.
    pub code: u16,
    /// The header's 16 bytes.
    pub params: [u8; 16],
    /// What followed.
    pub payload: Vec<u8>,
}

impl Request {
    /// The request's code.
    #[must_use]
    pub fn kind(&self) -> RequestKind {
        use RequestKind as K;
        match self {
            Request::Auth(_) => K::Auth,
            Request::Batch(_) => K::Batch,
            Request::Bind(_) => K::Bind,
            Request::Chkpoint(_) => K::Chkpoint,
            Request::Chmod(_) => K::Chmod,
            Request::Clone(_) => K::Clone,
            Request::Close(_) => K::Close,
            Request::Dirlist(_) => K::Dirlist,
            Request::Endsess(_) => K::Endsess,
            Request::Fattr(_) => K::Fattr,
            Request::Gpfile(_) => K::Gpfile,
            Request::Locate(_) => K::Locate,
            Request::Login(_) => K::Login,
            Request::Mkdir(_) => K::Mkdir,
            Request::Mv(_) => K::Mv,
            Request::Open(_) => K::Open,
            Request::Pgread(_) => K::Pgread,
            Request::Pgwrite(_) => K::Pgwrite,
            Request::Ping => K::Ping,
            Request::Prepare(_) => K::Prepare,
            Request::Protocol(_) => K::Protocol,
            Request::Query(_) => K::Query,
            Request::Read(_) => K::Read,
            Request::Readv(_) => K::Readv,
            Request::Rm(_) => K::Rm,
            Request::Rmdir(_) => K::Rmdir,
            Request::Set(_) => K::Set,
            Request::Sigver(_) => K::Sigver,
            Request::Stat(_) => K::Stat,
            Request::Statx(_) => K::Statx,
            Request::Sync(_) => K::Sync,
            Request::Truncate(_) => K::Truncate,
            Request::Write(_) => K::Write,
            Request::Writev(_) => K::Writev,
            Request::Unknown(unknown) => K::Unknown(unknown.code),
        }
    }

    /// Bytes of file data that follow this request on the connection and that [`Request::decode`] did not get: the
    /// payload of `write`, `pgwrite` and a batch, the data of `writev`. A server that refuses such a request still has to read
    /// them. For a checkpoint's [`ChkpointOp::Execute`] it is the inner request's payload (for an inner `writev`: its
    /// list, whose data follows that).
    #[must_use]
    pub fn following(&self) -> u64 {
        match self {
            Request::Write(write) => u64::from(write.len),
            Request::Batch(batch) => u64::from(batch.len),
            Request::Pgwrite(write) => u64::from(write.wire_len),
            Request::Writev(_) if planted::is(Bug::WritevDataForgotten) => 0,
            Request::Writev(writev) => writev.data_len(),
            Request::Chkpoint(Chkpoint { op: ChkpointOp::Execute(inner), .. }) => {
                u64::try_from(inner.dlen).unwrap_or(0)
            }
            _ => 0,
        }
    }

    /// Understands a request. `payload` is what [`RequestHeader::payload`] told to read: exactly that many bytes, and
    /// none for [`crate::Payload::Stream`].
    ///
    /// An error is the client's fault and leaves the connection usable: answer with [`WireError::number`], read away the
    /// data of a [`crate::Payload::Stream`], and go on; but close after one for which
    /// [`RequestKind::closes_if_malformed`] holds.
    pub fn decode(header: &RequestHeader, payload: &[u8]) -> Result<Self, WireError> {
        decode::request(header, payload)
    }

    /// The request as bytes at the end of `out`: header and payload (without the data that [`Request::following`]
    /// counts). Nothing is written on an error, which is the caller's fault.
    pub fn encode(&self, stream: crate::StreamId, out: &mut Vec<u8>) -> Result<(), WireError> {
        encode::request(self, stream, out)
    }
}
