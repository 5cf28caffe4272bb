//! Flags and sub-codes of requests.

use crate::RequestHeader;

/// The `path_id` of a pgread that may be answered on any data stream.
pub const BIND_ANY_PATH: u8 = 0xff;

flags! {
    /// Permission bits (`XOpenRequestMode`), the nine bits of Unix.
    Access(u16) {
        /// Owner reads.
        OWNER_READ = 0o400;
        /// Owner writes.
        OWNER_WRITE = 0o200;
        /// Owner executes.
        OWNER_EXECUTE = 0o100;
        /// Group reads.
        GROUP_READ = 0o040;
        /// Group writes.
        GROUP_WRITE = 0o020;
        /// Group executes.
        GROUP_EXECUTE = 0o010;
        /// Others read.
        OTHER_READ = 0o004;
        /// Others write.
        OTHER_WRITE = 0o002;
        /// Others execute.
        OTHER_EXECUTE = 0o001;
    }
}

flags! {
    /// Options of open (`XOpenRequestOption`).
    OpenOptions(u16) {
        /// The client accepts compressed data. The answer then has compression fields.
        COMPRESS = 0x0001;
        /// Create the file, or replace its data.
        DELETE = 0x0002;
        /// Ignore usage rules.
        FORCE = 0x0004;
        /// The file must not exist.
        NEW = 0x0008;
        /// Open for reading.
        READ = 0x0010;
        /// Open for reading and writing.
        UPDATE = 0x0020;
        /// Answers may come out of order. XrdCl always sets this.
        ASYNC = 0x0040;
        /// Search again for the file.
        REFRESH = 0x0080;
        /// Create the path's directories.
        MKPATH = 0x0100;
        /// Open for appending.
        APPEND = 0x0200;
        /// The answer must contain the file's attributes.
        RETSTAT = 0x0400;
        /// Create a copy of a file that exists elsewhere.
        REPLICA = 0x0800;
        /// Keep the file only if it is closed.
        POSC = 0x1000;
        /// Do not wait for a file to be staged.
        NOWAIT = 0x2000;
        /// The client will read from the start to the end.
        SEQIO = 0x4000;
        /// Open for writing only.
        WRITE_ONLY = 0x8000;
    }
}

flags! {
    /// More options of open (`XOpenRequestOption2`, protocol 5.2.0).
    OpenOptions2(u16) {
        /// Start with the data of the template file (new files only).
        DUP = 0x0001;
        /// Use the file system of the template file (new files only).
        SAMEFS = 0x0002;
        /// Like [`OpenOptions::RETSTAT`], with extended attributes if there are any.
        RETSTATX = 0x0004;
        /// Bypass the page cache.
        DIRECTIO = 0x0008;
    }
}

flags! {
    /// Options of locate.
    LocateOptions(u16) {
        /// Name each host once.
        UNIQUE_HOSTS = 0x0001;
        /// Search again.
        REFRESH = 0x0080;
        /// Return names instead of addresses.
        PREFER_NAMES = 0x0100;
        /// The answer is for a listing.
        FOR_DIRLIST = 0x0400;
        /// Do not wait for the answers of all servers.
        NOWAIT = 0x2000;
    }
}

flags! {
    /// Options of dirlist.
    DirlistOptions(u8) {
        /// List only files that are on disk.
        ONLINE = 1;
        /// Add a stat line to each entry.
        DSTAT = 2;
        /// Add a stat line and a checksum to each entry.
        DCKSM = 4;
        /// Add extended attributes, if there are any (protocol 5.2.0). No server up to 6.1 has any, and no format
        /// for them exists.
        DSTATX = 8;
    }
}

flags! {
    /// Options of stat.
    StatOptions(u8) {
        /// The question is about the file system: [`crate::response::VfsReply`].
        VFS = 1;
    }
}

flags! {
    /// Options of mkdir.
    MkdirOptions(u8) {
        /// Create parents too; no error if the directory exists.
        MKPATH = 1;
    }
}

flags! {
    /// Options of writev.
    WritevOptions(u8) {
        /// Make the data durable before the answer.
        SYNC = 1;
    }
}

flags! {
    /// Flags of pgread and pgwrite.
    PgFlags(u8) {
        /// The request is repeated.
        RETRY = 1;
    }
}

flags! {
    /// Options of prepare.
    PrepareOptions(u8) {
        /// Cancel the request whose id is given.
        CANCEL = 1;
        /// Send notifications.
        NOTIFY = 2;
        /// Send no notifications of errors.
        NOERRS = 4;
        /// Bring the file to disk.
        STAGE = 8;
        /// The file will be written.
        WMODE = 16;
        /// Keep the files together.
        COLOC = 32;
        /// Update the access time.
        FRESH = 64;
        /// Send notifications by TCP.
        USETCP = 128;
    }
}

flags! {
    /// More options of prepare.
    PrepareOptionsX(u16) {
        /// The file is no longer needed on disk.
        EVICT = 1;
    }
}

flags! {
    /// Flags of the protocol request.
    ProtocolFlags(u8) {
        /// Ask which requests must be signed.
        SECREQS = 0x01;
        /// The client supports TLS.
        ABLE_TLS = 0x02;
        /// The client wants TLS.
        WANT_TLS = 0x04;
        /// Ask for the requirements of further data streams.
        BIFREQS = 0x08;
    }
}

/// The client's step after the protocol request (the low four bits of `expect`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Expect(pub u8);

impl Expect {
    /// Takes the low four bits (`kXR_ExpMask` in XProtocol.hh).
    #[must_use]
    pub fn of_byte(byte: u8) -> Self {
        Self(byte & 0x0f)
    }

    /// Not stated.
    pub const NONE: Self = Self(0);
    /// Bind.
    pub const BIND: Self = Self(1);
    /// Get or put a file.
    pub const GPF: Self = Self(2);
    /// Login.
    pub const LOGIN: Self = Self(3);
    /// Login for a third-party copy.
    pub const TPC: Self = Self(4);
    /// Get or put a file without login.
    pub const GPFA: Self = Self(8);
}

flags! {
    /// Abilities of a client at login.
    LoginAbility(u8) {
        /// Redirects may be URLs.
        FULLURL = 1;
        /// Redirects may name other protocols (and be URLs: 3).
        MULTIPR = 3;
        /// Reads may be redirected.
        READRDOK = 4;
        /// IPv6.
        HASIPV64 = 8;
        /// Private IPv4 only.
        ONLYPRV4 = 16;
        /// Private IPv6 only.
        ONLYPRV6 = 32;
        /// Redirects may lead to local files.
        LCLFILE = 64;
        /// Redirects may carry flags in a negative port.
        REDIRFLAGS = 128;
    }
}

flags! {
    /// More abilities of a client at login.
    LoginAbility2(u8) {
        /// Redirects may lead to erasure-coded sets.
        ECREDIR = 1;
    }
}

/// The client's version (low six bits), and whether it takes late answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CapVer(pub u8);

impl CapVer {
    /// The value that XrdCl 5 sends: version 5, with late answers.
    pub const XRDCL5: Self = Self(128 | 5);

    /// Returns the version of the client's generation: 4 can sign, 5 supports TLS.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0 & 63
    }

    /// Whether the server may use `waitresp` and `attn`.
    #[must_use]
    pub const fn takes_late_answers(self) -> bool {
        self.0 & 128 != 0
    }
}

/// The subject of a query (`XQueryType`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs)] // the names are the protocol's
pub enum QueryKind {
    Stats,
    Prepare,
    Checksum,
    Xattr,
    Space,
    ChecksumScan,
    Config,
    Visa,
    /// Specific to the implementation, for an open file (protocol 5.2.0).
    FileInfo,
    /// Specific to the implementation, with a path (protocol 5.2.0).
    FsInfo,
    /// Specific to the implementation, without a path.
    Opaque,
    /// Specific to the implementation, with a path.
    OpaqueFile,
    /// Specific to the implementation, for an open file.
    OpaqueHandle,
    Other(u16),
}

impl QueryKind {
    /// Returns the kind of a code on the wire.
    #[must_use]
    pub const fn from_code(code: u16) -> Self {
        match code {
            1 => Self::Stats,
            2 => Self::Prepare,
            3 => Self::Checksum,
            4 => Self::Xattr,
            5 => Self::Space,
            6 => Self::ChecksumScan,
            7 => Self::Config,
            8 => Self::Visa,
            9 => Self::FileInfo,
            10 => Self::FsInfo,
            16 => Self::Opaque,
            32 => Self::OpaqueFile,
            64 => Self::OpaqueHandle,
            other => Self::Other(other),
        }
    }

    /// Returns the code on the wire.
    #[must_use]
    pub const fn code(self) -> u16 {
        match self {
            Self::Stats => 1,
            Self::Prepare => 2,
            Self::Checksum => 3,
            Self::Xattr => 4,
            Self::Space => 5,
            Self::ChecksumScan => 6,
            Self::Config => 7,
            Self::Visa => 8,
            Self::FileInfo => 9,
            Self::FsInfo => 10,
            Self::Opaque => 16,
            Self::OpaqueFile => 32,
            Self::OpaqueHandle => 64,
            Self::Other(code) => code,
        }
    }
}

/// An operation on a file's checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChkpointOp {
    /// Begin.
    Begin,
    /// Keep the changes.
    Commit,
    /// Return how large the checkpoint may get, as [`crate::response::ChkpointReply`].
    Query,
    /// Undo the changes.
    Rollback,
    /// Execute this request (write, pgwrite, writev, truncate) under the checkpoint. Its payload follows on the
    /// connection.
    Execute(RequestHeader),
}

/// An operation on extended attributes. Names are without the prefix `U.` that the stock server adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FattrOp {
    /// Remove these attributes.
    Del(Vec<Vec<u8>>),
    /// Return the values of these attributes.
    Get(Vec<Vec<u8>>),
    /// List all names.
    List {
        /// Also return the values.
        with_values: bool,
    },
    /// Set these attributes.
    Set {
        /// Fail if an attribute exists.
        only_new: bool,
        /// Names and values.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
    },
}
