//! The requests of clients as plain data.
//!
//! Each request code has a struct, with the names of `XProtocol.hh`. The protocol sends some numbers as signed that
//! cannot be negative. They are unsigned here: decoding refuses negative ones, and encoding refuses numbers that do
//! not fit.

mod decode;
mod encode;
mod options;

pub use options::{
    Access, BIND_ANY_PATH, CapVer, ChkpointOp, DirlistOptions, Expect, FattrOp, LocateOptions, LoginAbility,
    LoginAbility2, MkdirOptions, OpenOptions, OpenOptions2, PgFlags, PrepareOptions, PrepareOptionsX, ProtocolFlags,
    QueryKind, StatOptions, WritevOptions,
};

use std::fmt;

use crate::planted::{self, Bug};
use crate::{FileHandle, Opaque, PathArg, RequestHeader, RequestKind, SessionId, WireError};

/// The most segments of one `readv` or `writev` (the protocol's `maxRvecsz`).
pub const SEGMENTS_MAX: usize = 1024;
/// The most ranges of one `clone` (the protocol's `maxClonesz`).
pub const CLONE_RANGES_MAX: usize = 1024;
/// The most attributes of one `fattr`.
pub const FATTR_VARS_MAX: usize = 16;
/// The longest name of an attribute in `fattr`, in bytes.
pub const FATTR_NAME_MAX: usize = 248;
/// The longest value of an attribute in `fattr`, in bytes.
pub const FATTR_VALUE_MAX: usize = 65_536;

/// A client's request.
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
    /// A check that the server is alive.
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

/// A path or an open file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// By name.
    Path(PathArg),
    /// By handle. The request has no payload.
    Handle(FileHandle),
}

/// Credentials for one of the methods that the login answer offered.
#[derive(Clone, PartialEq, Eq)]
pub struct Auth {
    /// The method: `ztn\0`, `sss\0`, `gsi\0`, `host`, `unix`, `krb5`.
    pub method: [u8; 4],
    /// The credentials in the method's own format. They may be a secret, so `Debug` does not show them.
    pub credentials: Vec<u8>,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, credentials } = self;
        write!(f, "Auth {{ method: {}, credentials: {} bytes }}", method.escape_ascii(), credentials.len())
    }
}

/// Many small requests in one frame ([`crate::batch`]). The list of entries and their data follow on the
/// connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Batch {
    /// The number of entries, from 1 to [`crate::batch::ENTRIES_MAX`].
    pub entries: u32,
    /// The length of the list in bytes, at most `len`.
    pub list_len: u32,
    /// The bytes that follow: the list, then the data.
    pub len: u32,
}

/// Makes this connection a further data stream of a session. Answered with [`crate::response::BindReply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bind {
    /// The session.
    pub session: SessionId,
}

/// Checkpoints of an open file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chkpoint {
    /// The file (ignored for [`ChkpointOp::Execute`], whose inner request names it).
    pub handle: FileHandle,
    /// The operation.
    pub op: ChkpointOp,
}

/// Sets permission bits.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chmod {
    /// Nine bits as in Unix.
    pub mode: Access,
    /// The path.
    pub target: PathArg,
}

/// Copies ranges of open files into another one, on the server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloneRanges {
    /// The target file.
    pub target: FileHandle,
    /// The ranges: at least one, at most [`CLONE_RANGES_MAX`].
    pub ranges: Vec<CloneRange>,
}

/// One range of a [`CloneRanges`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CloneRange {
    /// The source file.
    pub source: FileHandle,
    /// The offset in the source.
    pub source_offset: u64,
    /// The length in bytes; 0: up to the source's end.
    pub len: u64,
    /// The offset in the target.
    pub target_offset: u64,
}

/// Closes a handle. A written file is complete then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Close {
    /// The file.
    pub handle: FileHandle,
}

/// Lists a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Dirlist {
    /// With attributes or checksums.
    pub options: DirlistOptions,
    /// The directory.
    pub target: PathArg,
}

/// Ends a session: its own (all zeros), or one that a lost connection left behind. XrdCl sends it after each
/// reconnect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Endsess {
    /// The session.
    pub session: SessionId,
}

/// Extended attributes. Answered with [`crate::response::FattrReply`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fattr {
    /// The target.
    pub target: Target,
    /// The operation.
    pub op: FattrOp,
}

/// Get or put a whole file. The protocol's header file itself calls its definition wrong. Servers refuse it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Gpfile {
    /// Undefined.
    pub options: u32,
    /// Undefined.
    pub buffer_size: u32,
    /// As received.
    pub payload: Vec<u8>,
}

/// Asks where a file is. The path `*` (or `*/path`) asks for all servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Locate {
    /// The thoroughness of the search.
    pub options: LocateOptions,
    /// The path.
    pub target: PathArg,
}

/// Login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Login {
    /// The client's process id.
    pub pid: u32,
    /// Its user name, padded with NULs, without any proof. XrdCl sends `????` when the system does not know a name.
    pub user: [u8; 8],
    /// The second set of abilities.
    pub ability2: LoginAbility2,
    /// The first set of abilities.
    pub ability: LoginAbility,
    /// The client's version, and whether it takes late answers.
    pub capver: CapVer,
    /// `?xrd.cc=…&xrd.tz=…&xrd.appname=…&xrd.info=…&xrd.hostname=…&xrd.rn=…`, or a token of old clients.
    pub info: Vec<u8>,
}

impl Login {
    /// Returns the user name without its padding. It may contain any bytes.
    #[must_use]
    pub fn user_name(&self) -> &[u8] {
        let end = self.user.iter().position(|&b| b == 0).unwrap_or(self.user.len());
        &self.user[..end]
    }

    /// Returns the client's description of itself as keys and values (`xrd.appname`, `xrd.hostname`, `xrd.rn`), if
    /// it sent one.
    pub fn details(&self) -> Result<Opaque, WireError> {
        let end = self.info.iter().position(|&b| b == 0).unwrap_or(self.info.len());
        let text = &self.info[..end];
        Opaque::parse(text.strip_prefix(b"?").unwrap_or(text))
    }
}

/// Makes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mkdir {
    /// Whether its parents are created too.
    pub options: MkdirOptions,
    /// Its permission bits.
    pub mode: Access,
    /// The path.
    pub target: PathArg,
}

/// Renames.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mv {
    /// The old name. If the client did not send its length (`arg1len` 0), it ends at the first space.
    pub from: PathArg,
    /// The new name.
    pub to: PathArg,
}

/// Opens a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Open {
    /// The permission bits of a new file.
    pub mode: Access,
    /// The options.
    pub options: OpenOptions,
    /// More options.
    pub options2: OpenOptions2,
    /// An extension of weir, in the first reserved byte: the answer should also have so many KiB of the file's
    /// beginning ([`crate::response::OpenReply::beginning`]). Other servers ignore it.
    pub beginning_kib: u8,
    /// For [`OpenOptions2::DUP`] and [`OpenOptions2::SAMEFS`]: an open file of the session. Zeros otherwise.
    pub template: FileHandle,
    /// The path.
    pub target: PathArg,
}

impl Open {
    /// Makes an open as in protocol 5.1, without a template.
    #[must_use]
    pub fn plain(mode: Access, options: OpenOptions, target: PathArg) -> Self {
        let (options2, template) = (OpenOptions2::NONE, FileHandle::default());
        Self { mode, options, options2, beginning_kib: 0, template, target }
    }
}

/// Reads pages with their checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pgread {
    /// The file.
    pub handle: FileHandle,
    /// The offset in bytes.
    pub offset: u64,
    /// The number of data bytes, without checksums.
    pub len: u32,
    /// The data stream for the answer (0: this one).
    pub path_id: u8,
    /// Whether this repeats a page whose checksum did not match.
    pub flags: PgFlags,
    /// How many of the two optional bytes were present, 0 to 2. It has no meaning, and is kept so that encoding
    /// gives the same bytes.
    pub given: u8,
}

/// Writes pages with their checksums, in the format of [`crate::page`]. The payload follows on the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pgwrite {
    /// The file.
    pub handle: FileHandle,
    /// The offset in bytes.
    pub offset: u64,
    /// The data stream that carries the payload (0: this one).
    pub path_id: u8,
    /// Whether this repeats pages whose checksum did not match.
    pub flags: PgFlags,
    /// The bytes that follow, including checksums. [`crate::page::Layout::of_wire`] tells how many are data.
    pub wire_len: u32,
}

/// Asks the server to stage, release or keep files, or cancels such a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prepare {
    /// The options.
    pub options: PrepareOptions,
    /// 0 (lowest) to 3.
    pub priority: u8,
    /// The UDP port for notifications.
    pub port: u16,
    /// More options.
    pub options_x: PrepareOptionsX,
    /// Paths with their opaque parts, one on each line; with [`PrepareOptions::CANCEL`] a request id.
    pub lines: Vec<u8>,
}

impl Prepare {
    /// Returns the lines that are not empty.
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
    /// The client's abilities and wishes.
    pub flags: ProtocolFlags,
    /// The client's next step.
    pub expect: Expect,
}

/// A query.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Query {
    /// Its subject.
    pub kind: QueryKind,
    /// The file, if the query is about an open one and `args` is empty (or `kind` always uses a handle).
    pub handle: FileHandle,
    /// The arguments, in the format of `kind`.
    pub args: Vec<u8>,
}

impl Query {
    /// Returns `args` as a path (checksum, space, xattr, opaque with file).
    pub fn path(&self) -> Result<PathArg, WireError> {
        PathArg::parse(&self.args)
    }

    /// Returns `args` as words between blanks or line ends (config).
    pub fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.args.split(|&b| matches!(b, b' ' | b'\n' | b'\r' | b'\t' | 0)).filter(|word| !word.is_empty())
    }
}

/// Reads bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Read {
    /// The file.
    pub handle: FileHandle,
    /// The offset in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u32,
    /// The data stream for the answer; `None` if the client sent no arguments.
    pub path_id: Option<u8>,
    /// An extension of weir, in the first reserved byte of the arguments: if the file is being written and has nothing at
    /// `offset` yet, the server answers when it has, or after so many seconds. Other servers ignore it.
    pub wait_seconds: u8,
    /// The ranges that it will read next, as a hint.
    pub read_ahead: Vec<Segment>,
}

impl Read {
    /// A request without arguments.
    #[must_use]
    pub fn new(handle: FileHandle, offset: u64, len: u32) -> Self {
        Self { handle, offset, len, path_id: None, wait_seconds: 0, read_ahead: Vec::new() }
    }

    /// The same request, which may wait for `seconds` until there is something to read.
    #[must_use]
    pub fn waiting(self, seconds: u8) -> Self {
        Self { path_id: Some(self.path_id.unwrap_or(0)), wait_seconds: seconds, ..self }
    }
}

/// Reads several ranges, perhaps of several files. For each segment in order, the answer repeats its 16 bytes, with
/// the length really read, and then the data: [`crate::response::ReadvSegment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Readv {
    /// The data stream for the answer.
    pub path_id: u8,
    /// The ranges; at most [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Readv {
    /// Returns the length of the whole answer if every segment is read in full.
    #[must_use]
    pub fn reply_len(&self) -> u64 {
        self.segments.iter().map(|segment| 16 + u64::from(segment.len)).sum()
    }
}

/// A range of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The file.
    pub handle: FileHandle,
    /// The length in bytes.
    pub len: u32,
    /// The offset in bytes.
    pub offset: u64,
}

/// Removes a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rm {
    /// The path.
    pub target: PathArg,
}

/// Removes a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rmdir {
    /// The path.
    pub target: PathArg,
}

/// A setting of the session: `appid …`, `monitor …`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Set {
    /// Always zero.
    pub modifier: u8,
    /// The text.
    pub args: Vec<u8>,
}

/// The signature of the next request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sigver {
    /// The next request's code.
    pub expect: RequestKind,
    /// Always 0.
    pub version: u8,
    /// 1: the signature does not cover the payload.
    pub flags: u8,
    /// Rises with each request.
    pub sequence: u64,
    /// Hash and key.
    pub crypto: u8,
    /// The signature.
    pub signature: Vec<u8>,
}

/// Attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Whether the question is about the file system instead.
    pub options: StatOptions,
    /// The target.
    pub target: Target,
}

/// Asks for one byte of flags for each of several paths.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statx {
    /// The same as in [`Stat`].
    pub options: StatOptions,
    /// Paths, one on each line.
    pub lines: Vec<u8>,
}

impl Statx {
    /// Returns the lines that are not empty.
    pub fn lines(&self) -> impl Iterator<Item = &[u8]> {
        lines(&self.lines)
    }
}

/// Makes written bytes durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// The file.
    pub handle: FileHandle,
}

/// Sets a length.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Truncate {
    /// The new length in bytes.
    pub len: u64,
    /// The target.
    pub target: Target,
}

/// Writes bytes. The payload follows on the connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The file.
    pub handle: FileHandle,
    /// The offset in bytes.
    pub offset: u64,
    /// The data stream that carries the payload (0: this one).
    pub path_id: u8,
    /// The number of bytes that follow.
    pub len: u32,
}

/// Writes several ranges. The data of all segments, in order, follow the list on the connection. The header's
/// payload length counts only the list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Writev {
    /// Whether the data must be durable before the answer.
    pub options: WritevOptions,
    /// The ranges; at most [`SEGMENTS_MAX`].
    pub segments: Vec<Segment>,
}

impl Writev {
    /// Returns the number of data bytes that follow the list.
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
    /// Its payload.
    pub payload: Vec<u8>,
}

impl Request {
    /// Returns the request's kind.
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

    /// Returns how many bytes of file data follow this request on the connection, beyond those that
    /// [`Request::decode`] got. These are the payload of `write`, `pgwrite` and a batch, and the data of `writev`.
    /// A server that refuses such a request must still read them. For [`ChkpointOp::Execute`] the number is the
    /// length of the inner request's payload. For an inner `writev` that is its list, and its data follow the list.
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

    /// Decodes a request. `payload` must be exactly the bytes that [`RequestHeader::payload`] announced; for
    /// [`crate::Payload::Stream`] it is empty.
    ///
    /// # Errors
    /// The client's error, after which the connection can continue. Answer with [`WireError::number`], read and
    /// drop the data of a [`crate::Payload::Stream`], and continue. But close the connection if
    /// [`RequestKind::closes_if_malformed`] holds.
    pub fn decode(header: &RequestHeader, payload: &[u8]) -> Result<Self, WireError> {
        decode::request(header, payload)
    }

    /// Appends the request to `out`: header and payload, without the data that [`Request::following`] counts.
    ///
    /// # Errors
    /// The caller's error. Nothing is appended then.
    pub fn encode(&self, stream: crate::StreamId, out: &mut Vec<u8>) -> Result<(), WireError> {
        encode::request(self, stream, out)
    }
}
