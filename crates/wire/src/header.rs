//! The 24 bytes before every request, and the limits of the payload that follows.

use std::fmt;

use crate::WireError;
use crate::planted::{self, Bug};

/// The length of a request's header in bytes.
pub const REQUEST_HEADER_LEN: usize = 24;

/// The client's id of a request. The answer repeats it. Two requests under way have different ids.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct StreamId(pub [u8; 2]);

/// The server's number of an open file, within a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct FileHandle(pub [u8; 4]);

/// The server's id of a session, from the login answer. `endsess` and `bind` use it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SessionId(pub [u8; 16]);

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionId(")?;
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        f.write_str(")")
    }
}

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal $name:literal,)*) => {
        /// The request codes of `XRequestTypes`.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum RequestKind {
            $($(#[$doc])* $kind,)*
            /// A code that neither protocol 5.2.0 nor weir has.
            Unknown(u16),
        }

        impl RequestKind {
            /// All known kinds.
            pub const ALL: &'static [RequestKind] = &[$(RequestKind::$kind,)*];

            /// Returns the kind of a code on the wire.
            #[must_use]
            pub const fn from_code(code: u16) -> Self {
                match code {
                    $($code => RequestKind::$kind,)*
                    other => RequestKind::Unknown(other),
                }
            }

            /// Returns the code on the wire.
            #[must_use]
            pub const fn code(self) -> u16 {
                match self {
                    $(RequestKind::$kind => $code,)*
                    RequestKind::Unknown(code) => code,
                }
            }

            /// Returns the name in the protocol's documents, without `kXR_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(RequestKind::$kind => $name,)*
                    RequestKind::Unknown(_) => "unknown",
                }
            }
        }
    };
}

kinds! {
    /// Credentials, after login.
    Auth = 3000 "auth",
    /// Queries: checksum, space, configuration, …
    Query = 3001 "query",
    /// Permission bits of a path.
    Chmod = 3002 "chmod",
    /// Closes a handle.
    Close = 3003 "close",
    /// Lists a directory.
    Dirlist = 3004 "dirlist",
    /// Get or put a whole file; not used in practice.
    Gpfile = 3005 "gpfile",
    /// Versions and capabilities.
    Protocol = 3006 "protocol",
    /// Login under a user name.
    Login = 3007 "login",
    /// Makes a directory.
    Mkdir = 3008 "mkdir",
    /// Renames.
    Mv = 3009 "mv",
    /// Opens a file.
    Open = 3010 "open",
    /// A check that the server is alive.
    Ping = 3011 "ping",
    /// Checkpoints of an open file.
    Chkpoint = 3012 "chkpoint",
    /// Reads bytes.
    Read = 3013 "read",
    /// Removes a file.
    Rm = 3014 "rm",
    /// Removes a directory.
    Rmdir = 3015 "rmdir",
    /// Makes written bytes durable.
    Sync = 3016 "sync",
    /// Attributes of a path or handle, or of the file system.
    Stat = 3017 "stat",
    /// Settings of the session.
    Set = 3018 "set",
    /// Writes bytes.
    Write = 3019 "write",
    /// Extended attributes.
    Fattr = 3020 "fattr",
    /// Staging of files.
    Prepare = 3021 "prepare",
    /// Flags of several paths.
    Statx = 3022 "statx",
    /// Ends a session, its own or an abandoned one.
    Endsess = 3023 "endsess",
    /// Ties this connection to a session as a further data stream.
    Bind = 3024 "bind",
    /// Reads several ranges.
    Readv = 3025 "readv",
    /// Writes pages with checksums.
    Pgwrite = 3026 "pgwrite",
    /// Asks where a file is.
    Locate = 3027 "locate",
    /// Sets the length of a path or handle.
    Truncate = 3028 "truncate",
    /// The signature of the next request.
    Sigver = 3029 "sigver",
    /// Reads pages with checksums.
    Pgread = 3030 "pgread",
    /// Writes several ranges.
    Writev = 3031 "writev",
    /// Copies ranges of open files into another one, on the server (protocol 5.2.0).
    Clone = 3032 "clone",
    /// Many small requests in one: weir's own ([`crate::batch`]). The code is far from those of XRootD: the bytes
    /// `we`.
    Batch = 0x7765 "batch",
}

impl RequestKind {
    /// Whether file data follow whose length is in the payload. If such a request cannot be decoded, the start of
    /// the next one is unknown. Then answer and close, whatever [`WireError::closes`] returns.
    #[must_use]
    pub const fn closes_if_malformed(self) -> bool {
        matches!(self, RequestKind::Writev | RequestKind::Chkpoint)
    }
}

/// A request's header as received. Only the request code is decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestHeader {
    /// The stream id for the answer.
    pub stream: StreamId,
    /// The kind of request.
    pub kind: RequestKind,
    /// 16 bytes whose meaning depends on `kind`.
    pub params: [u8; 16],
    /// The payload length as the client sent it, perhaps negative. [`RequestHeader::payload`] checks it.
    pub dlen: i32,
}

/// The payload that follows a request's header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Payload {
    /// This many bytes (perhaps 0). Read them and pass them to [`crate::Request::decode`].
    Buffer(u32),
    /// This many bytes of file data. The request decodes from the header alone (pass `&[]` to
    /// [`crate::Request::decode`]). The server receives the data where it wants them.
    Stream(u32),
}

impl RequestHeader {
    /// Splits the 24 bytes.
    #[must_use]
    pub fn parse(bytes: &[u8; REQUEST_HEADER_LEN]) -> Self {
        let [s0, s1, k0, k1, params @ .., d0, d1, d2, d3] = *bytes;
        Self {
            stream: StreamId([s0, s1]),
            kind: RequestKind::from_code(u16::from_be_bytes([k0, k1])),
            params,
            dlen: i32::from_be_bytes([d0, d1, d2, d3]),
        }
    }

    /// Returns the 24 bytes.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; REQUEST_HEADER_LEN] {
        let mut bytes = [0; REQUEST_HEADER_LEN];
        bytes[0..2].copy_from_slice(&self.stream.0);
        bytes[2..4].copy_from_slice(&self.kind.code().to_be_bytes());
        bytes[4..20].copy_from_slice(&self.params);
        bytes[20..24].copy_from_slice(&self.dlen.to_be_bytes());
        bytes
    }

    /// Returns the payload that follows this header, if its length is allowed. After an error the stream cannot be
    /// followed: answer and close ([`WireError::closes`]).
    pub fn payload(&self, limits: &Limits) -> Result<Payload, WireError> {
        let len =
            u32::try_from(self.dlen).map_err(|_| WireError::NegativeLength { kind: self.kind, dlen: self.dlen })?;
        if matches!(self.kind, RequestKind::Write | RequestKind::Pgwrite) {
            return Ok(Payload::Stream(len));
        }
        let limit = limits.of(self.kind);
        if len > limit && !planted::is(Bug::LengthNotBounded) {
            return Err(match list_of(self.kind) {
                Some((what, each)) => WireError::ListTooLong {
                    kind: self.kind,
                    what,
                    count: len.div_ceil(each),
                    limit: limit / each,
                    len,
                },
                None => WireError::PayloadTooLong { kind: self.kind, len, limit },
            });
        }
        if self.kind == RequestKind::Batch {
            return Ok(Payload::Stream(len));
        }
        Ok(Payload::Buffer(len))
    }
}

/// For a request whose payload is a list: what its entries are, and the bytes of one.
fn list_of(kind: RequestKind) -> Option<(&'static str, u32)> {
    match kind {
        RequestKind::Readv | RequestKind::Writev => Some(("segments", SEGMENT_LEN)),
        RequestKind::Clone => Some(("ranges", CLONE_RANGE_LEN)),
        _ => None,
    }
}

/// Bytes of a segment in the list of a readv or writev.
const SEGMENT_LEN: u32 = 16;
/// Bytes of a range in the list of a clone.
const CLONE_RANGE_LEN: u32 = 32;

/// The most payload bytes that are read into memory for a request, by kind. [`Limits::default`] has what the
/// protocol and the stock client need.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// One path with its opaque part (which may carry a token): 4096 + 16 KiB.
    pub path: u32,
    /// Credentials.
    pub auth: u32,
    /// `prepare` and `statx`: several paths.
    pub paths: u32,
    /// `fattr`: a path, 16 names and 16 values of up to 64 KiB.
    pub fattr: u32,
    /// `query` and `set`: free text.
    pub text: u32,
    /// Requests that are decoded only so that the server can refuse them.
    pub other: u32,
}

impl Default for Limits {
    fn default() -> Self {
        let path = 4096 + 16 * 1024;
        Self {
            path,
            auth: 64 * 1024,
            paths: 1024 * 1024,
            fattr: path + 16 * (248 + 3 + 65_536 + 4),
            text: 64 * 1024,
            other: 64 * 1024,
        }
    }
}

impl Limits {
    fn of(&self, kind: RequestKind) -> u32 {
        use RequestKind as K;
        match kind {
            K::Auth => self.auth,
            K::Sigver => crate::signing::SIGNATURE_BYTES_MAX,
            K::Query | K::Set => self.text,
            K::Chmod
            | K::Dirlist
            | K::Locate
            | K::Login
            | K::Mkdir
            | K::Open
            | K::Rm
            | K::Rmdir
            | K::Stat
            | K::Truncate => self.path,
            K::Mv => self.path.saturating_mul(2).saturating_add(1),
            K::Prepare | K::Statx => self.paths,
            K::Fattr => self.fattr,
            // a list of at most 1024 segments; `read` may carry its arguments and a read-ahead list
            K::Readv | K::Writev => 1024 * SEGMENT_LEN,
            // a list of at most 1024 ranges (the protocol's `maxCloneln`)
            K::Clone => 1024 * CLONE_RANGE_LEN,
            K::Read => 8 + 1024 * 16,
            K::Pgread => 2,
            // `execute` holds another request's header
            K::Chkpoint => 24,
            K::Close | K::Protocol | K::Ping | K::Sync | K::Endsess | K::Bind => 0,
            K::Write | K::Pgwrite => i32::MAX.unsigned_abs(),
            K::Batch => crate::batch::BYTES_MAX,
            K::Gpfile | K::Unknown(_) => self.other,
        }
    }
}
