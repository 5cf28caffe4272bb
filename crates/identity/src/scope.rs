//! Scopes: what a token says that its bearer may do, and where (section 2.2.1).

use types::{NameError, NsPath};

use crate::Profile;
use crate::shown::shown;

/// Most storage scopes in a token.
pub const SCOPES_MAX: usize = 256;

/// Why a scope is malformed. A token with such a scope is refused as a whole.
///
/// In the WLCG profile, a token with a scope without path must be refused, and one with a path that is not in normal form may
/// be. SciTokens demand a path after `read` and `write`, and let services take its absence for `/`. This one does not: a
/// forgotten path must not open everything.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScopeError {
    /// There is no path.
    #[error("the scope `{0}` of the token has no path; `{0}:/` would mean everything that its issuer may allow")]
    NoPath(String),
    /// The path is malformed.
    #[error("the path in the scope `{scope}` of the token cannot be used: {why}")]
    Path {
        /// The scope.
        scope: String,
        /// What is wrong.
        why: NameError,
    },
    /// A percent sign without two hexadecimal digits.
    #[error("the path in the scope `{0}` of the token has a `%` without two hexadecimal digits after it")]
    Escape(String),
    /// `%2F`.
    #[error("the path in the scope `{0}` of the token has an escaped slash, and no name can contain one")]
    EscapedSlash(String),
    /// More than [`SCOPES_MAX`].
    #[error("the token has more than {SCOPES_MAX} storage scopes: ask for fewer, each covers what is below its path")]
    TooMany,
}

/// What a storage scope allows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StorageAction {
    /// `storage.read`, or `read` of SciTokens.
    Read,
    /// `storage.create`: new files and directories, nothing overwritten.
    Create,
    /// `storage.modify`: everything that changes. It includes `storage.create`.
    Modify,
    /// `storage.stage`: bring files back from tape.
    Stage,
    /// `storage.poll`: ask whether files are on tape or on disk.
    Poll,
    /// `write` of SciTokens: the same as `storage.modify`.
    Write,
}

impl StorageAction {
    /// The name in a scope, before the colon.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "storage.read",
            Self::Create => "storage.create",
            Self::Modify => "storage.modify",
            Self::Stage => "storage.stage",
            Self::Poll => "storage.poll",
            Self::Write => "write",
        }
    }

    fn parse(profile: Profile, name: &str) -> Option<Self> {
        match (profile, name) {
            (Profile::Wlcg, "storage.read") | (Profile::SciTokens, "read") => Some(Self::Read),
            (Profile::Wlcg, "storage.create") => Some(Self::Create),
            (Profile::Wlcg, "storage.modify") => Some(Self::Modify),
            (Profile::Wlcg, "storage.stage") => Some(Self::Stage),
            (Profile::Wlcg, "storage.poll") => Some(Self::Poll),
            (Profile::SciTokens, "write") => Some(Self::Write),
            _ => None,
        }
    }
}

/// A storage scope.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StorageScope {
    /// What it allows.
    pub action: StorageAction,
    /// Where, in the issuer's part of the namespace. If the path ends in a slash, it names a directory and no file.
    pub path: NsPath,
}

/// The capabilities of a token.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scopes {
    pub(crate) storage: Vec<StorageScope>,
    /// Whether there is any statement of capability, also one about computing. Groups are then ignored (section 2.2.3).
    pub(crate) has_capability: bool,
}

impl Scopes {
    /// Reads the value of the claim `scope`. Scopes that neither profile defines (`openid`, `offline_access`) are ignored.
    pub(crate) fn parse(profile: Profile, claim: &str) -> Result<Self, ScopeError> {
        let mut scopes = Self::default();
        for scope in claim.split(' ').filter(|scope| !scope.is_empty()) {
            let (name, path) = scope.split_once(':').map_or((scope, None), |(name, path)| (name, Some(path)));
            let Some(action) = StorageAction::parse(profile, name) else {
                // An unknown storage scope of a later minor version allows nothing here, and still limits the token.
                scopes.has_capability |= name.starts_with("storage.") || name.starts_with("compute.");
                continue;
            };
            scopes.has_capability = true;
            if scopes.storage.len() == SCOPES_MAX {
                return Err(ScopeError::TooMany);
            }
            let path = path.filter(|path| !path.is_empty()).ok_or_else(|| ScopeError::NoPath(shown(name)))?;
            scopes.storage.push(StorageScope { action, path: scope_path(scope, path)? });
        }
        Ok(scopes)
    }
}

/// Decodes the path of a scope. Issuers must write absolute, normalised paths with URL-escaped names. Empty parts and `.`
/// are removed; `..` is refused, also where SciTokens would resolve it, because nobody means it. Names are decoded once.
fn scope_path(scope: &str, path: &str) -> Result<NsPath, ScopeError> {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((&byte, after)) = rest.split_first() {
        if byte != b'%' {
            decoded.push(byte);
            rest = after;
            continue;
        }
        let escaped = match after {
            [high, low, ..] => hex(*high).zip(hex(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        let Some(escaped) = escaped else { return Err(ScopeError::Escape(shown(scope))) };
        if escaped == b'/' {
            return Err(ScopeError::EscapedSlash(shown(scope)));
        }
        decoded.push(escaped);
        rest = &after[2..];
    }
    NsPath::parse(&decoded).map_err(|why| ScopeError::Path { scope: shown(scope), why })
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}
