//! The protocol's error numbers, and their mapping from weir's own codes.

use types::ErrorCode;

/// A number of `XErrorCode` on the wire. Numbers that this version does not know are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ErrorNumber(pub u32);

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal $text:literal,)*) => {
        impl ErrorNumber {
            $($(#[$doc])* pub const $name: ErrorNumber = ErrorNumber($number);)*

            /// Returns the protocol's name, without `kXR_`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self.0 {
                    $($number => $text,)*
                    _ => "unknown error",
                }
            }
        }
    };
}

numbers! {
    /// Invalid argument.
    ARG_INVALID = 3000 "ArgInvalid",
    /// Missing argument.
    ARG_MISSING = 3001 "ArgMissing",
    /// Argument too long.
    ARG_TOO_LONG = 3002 "ArgTooLong",
    /// Another client holds the file.
    FILE_LOCKED = 3003 "FileLocked",
    /// Unknown file handle.
    FILE_NOT_OPEN = 3004 "FileNotOpen",
    /// The file system refused, for a reason without its own number.
    FS_ERROR = 3005 "FSError",
    /// Unknown request, or not allowed now.
    INVALID_REQUEST = 3006 "InvalidRequest",
    /// Disk error.
    IO_ERROR = 3007 "IOError",
    /// Out of memory.
    NO_MEMORY = 3008 "NoMemory",
    /// Out of space.
    NO_SPACE = 3009 "NoSpace",
    /// Permission denied.
    NOT_AUTHORIZED = 3010 "NotAuthorized",
    /// No such file.
    NOT_FOUND = 3011 "NotFound",
    /// Server error.
    SERVER_ERROR = 3012 "ServerError",
    /// Not supported.
    UNSUPPORTED = 3013 "Unsupported",
    /// No server can do it.
    NO_SERVER = 3014 "noserver",
    /// The target is not a file (or, for the stock server, the path's parent is not a directory).
    NOT_FILE = 3015 "NotFile",
    /// The target is a directory.
    IS_DIRECTORY = 3016 "isDirectory",
    /// Cancelled on request.
    CANCELLED = 3017 "Cancelled",
    /// The name exists.
    EXISTS = 3018 "ItExists",
    /// Bytes do not match their checksum.
    CHECKSUM = 3019 "ChkSumErr",
    /// Already under way.
    IN_PROGRESS = 3020 "inProgress",
    /// Quota exceeded.
    OVER_QUOTA = 3021 "overQuota",
    /// Wrong signature of a request.
    SIGNATURE = 3022 "SigVerErr",
    /// Decryption failed.
    DECRYPT = 3023 "DecryptErr",
    /// Server overloaded.
    OVERLOADED = 3024 "Overloaded",
    /// Read-only.
    FS_READ_ONLY = 3025 "fsReadOnly",
    /// Wrong payload.
    BAD_PAYLOAD = 3026 "BadPayload",
    /// Unknown extended attribute.
    ATTR_NOT_FOUND = 3027 "AttrNotFound",
    /// TLS required.
    TLS_REQUIRED = 3028 "TLSRequired",
    /// No other replica is left to try.
    NO_REPLICAS = 3029 "noReplicas",
    /// Authentication failed.
    AUTH_FAILED = 3030 "AuthFailed",
    /// Impossible operation.
    IMPOSSIBLE = 3031 "Impossible",
    /// Conflict with another operation.
    CONFLICT = 3032 "Conflict",
    /// Too many errors.
    TOO_MANY_ERRORS = 3033 "TooManyErrs",
    /// Request timed out.
    TIMED_OUT = 3034 "ReqTimedOut",
    /// Timer expired (protocol 5.2.0; used by proxies).
    TIMER_EXPIRED = 3035 "TimerExpired",
}

/// The only mapping of weir's own codes to XRootD's numbers, with a reason where it is not obvious. XrdCl shows
/// number and text, maps the number to an errno for FUSE and Python, and retries some of them. See the note at
/// each.
impl From<ErrorCode> for ErrorNumber {
    fn from(code: ErrorCode) -> Self {
        match code {
            ErrorCode::NotFound => Self::NOT_FOUND,
            ErrorCode::Exists => Self::EXISTS,
            // the protocol has no number for it; the stock server answers FSError ("not a directory")
            ErrorCode::NotDirectory => Self::FS_ERROR,
            ErrorCode::IsDirectory => Self::IS_DIRECTORY,
            // the stock server from 5.6 on maps ENOTEMPTY here (5.5 to FSError)
            ErrorCode::NotEmpty => Self::EXISTS,
            ErrorCode::Invalid | ErrorCode::Loop | ErrorCode::TooLarge => Self::ARG_INVALID,
            ErrorCode::NameTooLong => Self::ARG_TOO_LONG,
            ErrorCode::TooMany => Self::FS_ERROR,
            ErrorCode::Denied => Self::NOT_AUTHORIZED,
            // rename between trees cannot be done by rename
            ErrorCode::CrossTree => Self::UNSUPPORTED,
            ErrorCode::Busy => Self::FILE_LOCKED,
            // a client that wants complete files must try again later
            ErrorCode::Interrupted => Self::IN_PROGRESS,
            ErrorCode::Stale => Self::FILE_NOT_OPEN,
            ErrorCode::NoSpace => Self::NO_SPACE,
            ErrorCode::Quota => Self::OVER_QUOTA,
            ErrorCode::Checksum => Self::CHECKSUM,
            ErrorCode::Io => Self::IO_ERROR,
            ErrorCode::Damaged => Self::FS_ERROR,
            ErrorCode::Unsupported => Self::UNSUPPORTED,
            ErrorCode::Overloaded => Self::OVERLOADED,
            ErrorCode::Unavailable | ErrorCode::Internal => Self::SERVER_ERROR,
            ErrorCode::Missing => Self::ARG_MISSING,
            ErrorCode::TooLong => Self::ARG_TOO_LONG,
            ErrorCode::NotAllowedNow => Self::INVALID_REQUEST,
            // the stock server's number for a full table of handles
            ErrorCode::TooManyOpen => Self::NO_MEMORY,
            ErrorCode::NotFile => Self::NOT_FILE,
            ErrorCode::Cancelled => Self::CANCELLED,
            ErrorCode::InProgress => Self::IN_PROGRESS,
            ErrorCode::Conflict => Self::CONFLICT,
            // the protocol has no number for it
            ErrorCode::Incomplete => Self::FS_ERROR,
            ErrorCode::NoAttribute => Self::ATTR_NOT_FOUND,
        }
    }
}

/// What another server's number means in weir's own words. The number that a code is told with comes back as a code
/// that is told with the same number.
impl From<ErrorNumber> for ErrorCode {
    fn from(number: ErrorNumber) -> Self {
        match number {
            ErrorNumber::ARG_INVALID => Self::Invalid,
            ErrorNumber::ARG_MISSING => Self::Missing,
            ErrorNumber::ARG_TOO_LONG => Self::TooLong,
            ErrorNumber::FILE_LOCKED => Self::Busy,
            ErrorNumber::FILE_NOT_OPEN => Self::Stale,
            ErrorNumber::FS_ERROR => Self::Incomplete,
            ErrorNumber::INVALID_REQUEST => Self::NotAllowedNow,
            ErrorNumber::NO_MEMORY => Self::TooManyOpen,
            ErrorNumber::NO_SPACE => Self::NoSpace,
            ErrorNumber::NOT_AUTHORIZED => Self::Denied,
            ErrorNumber::NOT_FOUND => Self::NotFound,
            ErrorNumber::SERVER_ERROR => Self::Unavailable,
            ErrorNumber::UNSUPPORTED => Self::Unsupported,
            ErrorNumber::NOT_FILE => Self::NotFile,
            ErrorNumber::IS_DIRECTORY => Self::IsDirectory,
            ErrorNumber::CANCELLED => Self::Cancelled,
            ErrorNumber::EXISTS => Self::Exists,
            ErrorNumber::CHECKSUM => Self::Checksum,
            ErrorNumber::IN_PROGRESS => Self::InProgress,
            ErrorNumber::OVER_QUOTA => Self::Quota,
            ErrorNumber::OVERLOADED => Self::Overloaded,
            ErrorNumber::ATTR_NOT_FOUND => Self::NoAttribute,
            ErrorNumber::CONFLICT => Self::Conflict,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_comes_back_as_what_is_told_with_it() {
        for number in 3000..3035 {
            let number = ErrorNumber(number);
            let code = ErrorCode::from(number);
            if code != ErrorCode::Io {
                assert_eq!(ErrorNumber::from(code), number, "{number:?}");
            }
        }
        assert_eq!(ErrorNumber::from(ErrorCode::from(ErrorNumber::IO_ERROR)), ErrorNumber::IO_ERROR);
    }
}
