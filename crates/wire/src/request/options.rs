//! Flags and sub-codes of requests.

use crate::RequestHeader;

/// `path_id` of a pgread that may be answered on any data stream.
pub const BIND_ANY_PATH: u8 = 0xff;

flags! {
    /// Permission bits (`XOpenRequestMode`), the same nine as in Unix.
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
    /// How a file is to be opened (`XOpenRequestOption`).
    OpenOptions(u16) {
        /// Compressed data is welcome; the answer then has compression fields.
        COMPRESS = 0x0001;
        /// What the file holds goes away (create, or replace).
        DELETE = 0x0002;
        /// Ignore usage rules.
        FORCE = 0x0004;
        /// The file must not exist.
        NEW = 0x0008;
        /// For reading.
        READ = 0x0010;
        /// For reading and writing.
        UPDATE = 0x0020;
        /// Answers may come out of order. XrdCl sets it always.
        ASYNC = 0x0040;
        /// Ask again where the file is.
        REFRESH = 0x0080;
        /// Make the directories of the path.
        MKPATH = 0x0100;
        /// For appending only.
        APPEND = 0x0200;
        /// The answer is to hold the file's attributes.
        RETSTAT = 0x0400;
        /// A new copy of a file that exists elsewhere.
        REPLICA = 0x0800;
        /// The file stays only if it is closed.
        POSC = 0x1000;
        /// Don't wait for a file to be staged.
        NOWAIT = 0x2000;
        /// It will be read from the front to the end.
        SEQIO = 0x4000;
        /// For writing only.
        WRITE_ONLY = 0x8000;
    }
}

flags! {
    /// More of how a file is to be opened (`XOpenRequestOption2`, protocol 5.2.0).
    OpenOptions2(u16) {
        /// With the content of the file that the template is (new files only).
        DUP = 0x0001;
        /// On the file system that the template is on (new files only).
        SAMEFS = 0x0002;
        /// As [`OpenOptions::RETSTAT`], with extended attributes if there are any.
        RETSTATX = 0x0004;
        /// Past the page cache.
        DIRECTIO = 0x0008;
    }
}

flags! {
    /// Options of locate.
    LocateOptions(u16) {
        /// Each host once.
        UNIQUE_HOSTS = 0x0001;
        /// Ask again.
        REFRESH = 0x0080;
        /// Names rather than addresses.
        PREFER_NAMES = 0x0100;
        /// For a listing.
        FOR_DIRLIST = 0x0400;
        /// Don't wait for answers of all servers.
        NOWAIT = 0x2000;
    }
}

flags! {
    /// Options of dirlist.
    DirlistOptions(u8) {
        /// Only what is on disk.
        ONLINE = 1;
        /// With a stat line for each entry.
        DSTAT = 2;
        /// With a stat line and checksum for each entry.
        DCKSM = 4;
        /// With extended attributes, if there are any (protocol 5.2.0). No server up to 6.1 has any to give, nor a form for them.
        DSTATX = 8;
    }
}

flags! {
    /// Options of stat.
    StatOptions(u8) {
        /// About the file system: [`crate::response::VfsReply`].
        VFS = 1;
    }
}

flags! {
    /// Options of mkdir.
    MkdirOptions(u8) {
        /// With parents; no error if it is there.
        MKPATH = 1;
    }
}

flags! {
    /// Options of writev.
    WritevOptions(u8) {
        /// Durable before the answer.
        SYNC = 1;
    }
}

flags! {
    /// Flags of pgread and pgwrite.
    PgFlags(u8) {
        /// A second try.
        RETRY = 1;
    }
}

flags! {
    /// Options of prepare.
    PrepareOptions(u8) {
        /// Cancel the request whose id is given.
        CANCEL = 1;
        /// Send news.
        NOTIFY = 2;
        /// No news of errors.
        NOERRS = 4;
        /// Bring it to disk.
        STAGE = 8;
        /// It will be written.
        WMODE = 16;
        /// Put the files together.
        COLOC = 32;
        /// Touch.
        FRESH = 64;
        /// News by TCP.
        USETCP = 128;
    }
}

flags! {
    /// More options of prepare.
    PrepareOptionsX(u16) {
        /// No longer needed on disk.
        EVICT = 1;
    }
}

flags! {
    /// Flags of the protocol request.
    ProtocolFlags(u8) {
        /// Tell how requests are to be signed.
        SECREQS = 0x01;
        /// The client can do TLS.
        ABLE_TLS = 0x02;
        /// The client wants TLS.
        WANT_TLS = 0x04;
        /// Tell what a further data stream has to do.
        BIFREQS = 0x08;
    }
}

/// What a client will do after the protocol request (the low four bits of `expect`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Expect(pub u8);

impl Expect {
    /// It does not say.
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
        /// Redirects of reads are welcome.
        READRDOK = 4;
        /// IPv6.
        HASIPV64 = 8;
        /// Private IPv4 only.
        ONLYPRV4 = 16;
        /// Private IPv6 only.
        ONLYPRV6 = 32;
        /// Redirects to local files are welcome.
        LCLFILE = 64;
        /// Redirects may carry flags in a negative port.
        REDIRFLAGS = 128;
    }
}

flags! {
    /// More abilities of a client at login.
    LoginAbility2(u8) {
        /// Redirects to erasure-coded sets.
        ECREDIR = 1;
    }
}

/// The client's version (low six bits) and whether it takes late answers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct CapVer(pub u8);

impl CapVer {
    /// What XrdCl 5 sends: version 5, late answers welcome.
    pub const XRDCL5: Self = Self(128 | 5);

    /// The version of the client's generation: 4 can sign, 5 can do TLS.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.0 & 63
    }

    /// May `waitresp` and `attn` be used?
    #[must_use]
    pub const fn takes_late_answers(self) -> bool {
        self.0 & 128 != 0
    }
}

/// What a query is about (`XQueryType`).
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
    /// Implementation's own, on an open file (protocol 5.2.0).
    FileInfo,
    /// Implementation's own, with a path (protocol 5.2.0).
    FsInfo,
    /// Implementation's own, no path.
    Opaque,
    /// Implementation's own, with a path.
    OpaqueFile,
    /// Implementation's own, on an open file.
    OpaqueHandle,
    Other(u16),
}

impl QueryKind {
    /// From the wire.
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

    /// To the wire.
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

/// What to do with a file's checkpoint.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChkpointOp {
    /// Begin.
    Begin,
    /// Keep the changes.
    Commit,
    /// How large may it get? Answered with [`crate::response::ChkpointReply`].
    Query,
    /// Undo the changes.
    Rollback,
    /// Do this request (write, pgwrite, writev, truncate) under the checkpoint. Its payload follows on the connection.
    Execute(RequestHeader),
}

/// What to do with extended attributes. Names are without the prefix `U.` that the stock server adds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FattrOp {
    /// Remove these.
    Del(Vec<Vec<u8>>),
    /// Give these.
    Get(Vec<Vec<u8>>),
    /// Give all names.
    List {
        /// And values.
        with_values: bool,
    },
    /// Set these.
    Set {
        /// Each must be new.
        only_new: bool,
        /// Names and values.
        pairs: Vec<(Vec<u8>, Vec<u8>)>,
    },
}
