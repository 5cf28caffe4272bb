//! The exit codes of weir. Each has one meaning; `weir help exit-codes` shows them and `docs/reference/exit-codes.md` lists them.

/// The code that a run of `weir` ends with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    /// Done as asked.
    Done = 0,
    /// The result is bad. `weir fsck`, `weir restore` or `weir export` found a problem that remains, or `weir demo` saw a broken promise.
    /// Or figures of `weir bench` must not be used, or are surely lower than those compared with.
    Wrong = 1,
    /// The command line or the configuration file is wrong. Nothing was touched.
    Usage = 2,
    /// The data directory was refused. Nothing was touched.
    DataDirectory = 3,
    /// Another process holds the data directory.
    InUse = 4,
    /// The journal, or an index's checkpoint, is damaged where data had been acknowledged.
    Damaged = 5,
    /// Something failed that has no code of its own; stderr says what.
    Failed = 6,
    /// The node cannot listen on the address, or refused it because it is not loopback.
    Listen = 7,
    /// The disk failed under a running node; it stopped rather than claim what it could not keep.
    DiskFailed = 8,
    /// Stopped at once (a second signal, or the clean stop took over 10 s). Nothing acknowledged is lost.
    Unclean = 9,
    /// An essential thread of the node died: a bug. The node stopped rather than do half of its work.
    Broken = 10,
    /// No such file or directory.
    NotFound = 11,
    /// The target is there already.
    Exists = 12,
    /// Not allowed.
    Denied = 13,
    /// No room.
    NoSpace = 14,
    /// The server cannot be reached, or went away for too long.
    Unreachable = 15,
    /// A checksum does not match.
    Checksum = 16,
}

impl Exit {
    /// The code of a run that has failed with `before`, if at all, and now with this: several kinds of failure share no specific code.
    #[must_use]
    pub fn after(self, before: Option<Exit>) -> Exit {
        if before.is_none_or(|before| before == self) { self } else { Exit::Failed }
    }

    /// All of them, in order.
    pub const ALL: [Exit; 17] = [
        Exit::Done,
        Exit::Wrong,
        Exit::Usage,
        Exit::DataDirectory,
        Exit::InUse,
        Exit::Damaged,
        Exit::Failed,
        Exit::Listen,
        Exit::DiskFailed,
        Exit::Unclean,
        Exit::Broken,
        Exit::NotFound,
        Exit::Exists,
        Exit::Denied,
        Exit::NoSpace,
        Exit::Unreachable,
        Exit::Checksum,
    ];

    /// The code as a number.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Its meaning in a few words, as the help and the documents print it.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Exit::Done => "done as asked",
            Exit::Wrong => {
                "fsck, a restore or an export found something that is still there, the demo saw a promise broken, `weir repair --wait` left replicas that cannot be made now, or a bench has figures that must not be used or are surely lower"
            }
            Exit::Usage => "wrong command line or configuration; nothing was touched",
            Exit::DataDirectory => {
                "the data directory was refused, or is not what its path names any more; weir touched nothing there"
            }
            Exit::InUse => "another process holds the data directory",
            Exit::Damaged => "the journal or an index is damaged; stderr says where and what to do",
            Exit::Failed => "failed otherwise; stderr says why",
            Exit::Listen => "cannot listen there, or the address is not loopback",
            Exit::DiskFailed => "the disk failed; the node stopped rather than promise what it could not keep",
            Exit::Unclean => "stopped at once; nothing acknowledged is lost, the next start takes a little longer",
            Exit::Broken => "a thread of the node died, a bug of weir; nothing acknowledged is lost, stderr says which",
            Exit::NotFound => "no such file or directory",
            Exit::Exists => "the target is there already; --force replaces it",
            Exit::Denied => "not allowed",
            Exit::NoSpace => "no space left",
            Exit::Unreachable => "the server cannot be reached, or went away for too long",
            Exit::Checksum => "a checksum does not match: the bytes are damaged somewhere",
        }
    }

    /// The table for `weir help exit-codes` and the man page.
    #[must_use]
    pub fn table() -> String {
        let mut table = String::from("Exit codes:\n");
        for exit in Self::ALL {
            table.push_str(&format!("  {:>2}  {}\n", exit.code(), exit.meaning()));
        }
        table
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit.code())
    }
}
