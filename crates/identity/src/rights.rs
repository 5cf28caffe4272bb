//! What the bearer of a token may do (sections 2.2.1 and 2.2.3).

use std::sync::Arc;

use types::{NsPath, PathOperation};

use crate::claims::{self, Audience};
use crate::issuer::{Area, IssuerUrl};
use crate::jws::Object;
use crate::scope::Scopes;
use crate::shown::{shown, shown_list};
use crate::{GroupUse, Issuer, Profile, StorageAction, StorageScope, TokenError, WithoutScopes, WlcgGroup};

/// What a token must allow for `operation`, each on the same path.
fn needs(operation: PathOperation) -> impl Iterator<Item = PathOperation> {
    let (first, second) = match operation {
        PathOperation::Link => (PathOperation::Read, Some(PathOperation::ModifyFile)),
        other => (other, None),
    };
    std::iter::once(first).chain(second)
}

/// Whether a scope with `action` alone allows `operation` on its path. None alone allows [`PathOperation::Link`].
///
/// All but `storage.poll` include the metadata. `storage.modify` includes all of `storage.create`, and neither includes
/// reading. `storage.create` lets files be renamed where nothing is overwritten, so that an upload can have a
/// temporary name. `storage.stage` no longer includes reading, whatever version the token has.
///
/// The profile has postponed a scope for listing. As in XRootD, `storage.read` includes it.
fn is_allowed_by(operation: PathOperation, action: StorageAction) -> bool {
    use StorageAction::{Create, Modify, Poll, Read, Stage, Write};
    match operation {
        PathOperation::Read | PathOperation::List => action == Read,
        PathOperation::Stat => matches!(action, Read | Create | Modify | Stage | Write),
        // The locality is a part of the metadata.
        PathOperation::Poll => matches!(action, Read | Create | Modify | Stage | Poll | Write),
        PathOperation::Stage => action == Stage,
        PathOperation::CreateFile | PathOperation::CreateDirectory | PathOperation::RenameFile => {
            matches!(action, Create | Modify | Write)
        }
        PathOperation::ModifyFile | PathOperation::ModifyDirectory => matches!(action, Modify | Write),
        PathOperation::Link => false,
    }
}

/// The scopes that would allow `operation`.
fn wanted(operation: PathOperation, profile: Profile) -> &'static str {
    match (operation, profile) {
        (PathOperation::Read | PathOperation::List, Profile::Wlcg) => "storage.read",
        (PathOperation::Stat, Profile::Wlcg) => "storage.read, storage.create, storage.modify or storage.stage",
        (PathOperation::Poll, Profile::Wlcg) => "storage.poll or another storage scope",
        (PathOperation::Stage, Profile::Wlcg) => "storage.stage",
        (PathOperation::CreateFile | PathOperation::CreateDirectory | PathOperation::RenameFile, Profile::Wlcg) => {
            "storage.create or storage.modify"
        }
        (PathOperation::ModifyFile | PathOperation::ModifyDirectory, Profile::Wlcg) => "storage.modify",
        (PathOperation::Link, Profile::Wlcg) => "storage.read and the scope storage.modify",
        (PathOperation::Read | PathOperation::List, Profile::SciTokens) => "read",
        (PathOperation::Stat | PathOperation::Poll, Profile::SciTokens) => "read or write",
        (PathOperation::Link, Profile::SciTokens) => "read and the scope write",
        (PathOperation::Stage, Profile::SciTokens) => "storage.stage, which only tokens by the WLCG profile can have",
        (_, Profile::SciTokens) => "write",
    }
}

/// Whether `operation` can only be done to a file.
fn is_of_file(operation: PathOperation) -> bool {
    matches!(
        operation,
        PathOperation::Read
            | PathOperation::Stage
            | PathOperation::Poll
            | PathOperation::CreateFile
            | PathOperation::RenameFile
            | PathOperation::Link
            | PathOperation::ModifyFile
    )
}

/// Whether `operation` leaves everything as it is.
fn only_looks(operation: PathOperation) -> bool {
    matches!(
        operation,
        PathOperation::Read | PathOperation::List | PathOperation::Stat | PathOperation::Poll | PathOperation::Stage
    )
}

/// Whether a scope for a path also allows `operation` on the directories above it. `storage.create:/foo/bar` must allow to make
/// `/foo` (section 2.2.1); and clients ask whether a directory exists before they make it, or anything in it.
fn reaches_up(operation: PathOperation) -> bool {
    matches!(operation, PathOperation::Stat | PathOperation::CreateDirectory)
}

/// Why a token does not allow an operation.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Denial {
    /// The path is in no part of the namespace that the issuer may decide about.
    #[error("the token cannot be used to {operation} {path}: its issuer {issuer} decides only about {areas}")]
    OutsideArea {
        /// What was attempted.
        operation: PathOperation,
        /// On which path.
        path: String,
        /// The issuer.
        issuer: String,
        /// Its base paths.
        areas: String,
    },
    /// The path is where the issuer's part of the namespace begins. The site makes it, and tokens do not change it.
    #[error(
        "the token cannot be used to {operation} {path}: it is a base path of its issuer {issuer}, which no token can change"
    )]
    BasePath {
        /// What was attempted.
        operation: PathOperation,
        /// On which path.
        path: String,
        /// The issuer.
        issuer: String,
    },
    /// The settings of the issuer keep the path from all of its tokens.
    #[error(
        "the token cannot be used to {operation} {path}: `restricted_paths` of its issuer {issuer} limits it to {areas}, below \
         its base path"
    )]
    Restricted {
        /// What was attempted.
        operation: PathOperation,
        /// On which path.
        path: String,
        /// The issuer.
        issuer: String,
        /// The restricted paths.
        areas: String,
    },
    /// No scope of the token allows it.
    #[error(
        "the token cannot be used to {operation} {path}: that needs the scope {wanted} on it or on a directory above it \
         (paths in scopes begin at {areas}), and the token has {found}"
    )]
    NoScope {
        /// What was attempted.
        operation: PathOperation,
        /// On which path.
        path: String,
        /// The scopes that would allow it.
        wanted: &'static str,
        /// The issuer's base paths.
        areas: String,
        /// The storage scopes of the token.
        found: String,
    },
    /// The token allows nothing.
    #[error(
        "the token cannot be used to {operation} {path}: it has no storage scope and no group that counts; ask for a scope such \
         as storage.read:/, or set `without_scopes` of its issuer {issuer}"
    )]
    Nothing {
        /// What was attempted.
        operation: PathOperation,
        /// On which path.
        path: String,
        /// The issuer.
        issuer: String,
    },
}

/// What the bearer of a token may do. The permissions of the identity that the token is mapped to apply as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TokenRights {
    /// The token has no scopes: its groups or its subject give an identity, and the permissions of that identity decide. But an
    /// issuer decides only about its part of the namespace, so elsewhere nothing is allowed.
    Identity(AreaRights),
    /// Only what the scopes allow.
    Scoped(ScopedRights),
    /// Nothing: the bearer is known, and has no right.
    Nothing {
        /// The issuer, for the message.
        issuer: String,
    },
}

/// Everything in the part of the namespace that an issuer decides about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AreaRights {
    area: Arc<Area>,
    audience: Audience,
}

impl AreaRights {
    /// Whether the issuer decides about the whole namespace.
    #[must_use]
    pub fn is_of_everything(&self) -> bool {
        let Area { bases, restricted, .. } = &*self.area;
        bases.iter().any(NsPath::is_root) && (restricted.is_empty() || restricted.iter().any(NsPath::is_root))
    }

    /// Whether the token is for every service that trusts its issuer, and not for this one by name. Whichever of them the bearer
    /// shows it to can show it here.
    #[must_use]
    pub fn is_for_every_service(&self) -> bool {
        self.audience == Audience::EveryService
    }
}

/// What the scopes of a token allow.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScopedRights {
    profile: Profile,
    area: Arc<Area>,
    scopes: Arc<[StorageScope]>,
}

impl TokenRights {
    /// What the scopes of a token in `claim` would allow, of an issuer whose base path is `/`. To explain decisions without a
    /// token: whoever has none gets no rights from this.
    ///
    /// # Errors
    ///
    /// [`TokenError`]: a scope is malformed.
    pub fn of_scopes(claim: &str) -> Result<Self, TokenError> {
        let Scopes { storage, .. } = Scopes::parse(Profile::Wlcg, claim)?;
        let area = Arc::new(Area { issuer: IssuerUrl::unnamed(), bases: vec![NsPath::root()], restricted: Vec::new() });
        Ok(Self::Scoped(ScopedRights { profile: Profile::Wlcg, area, scopes: storage.into() }))
    }

    /// What a token without scopes would allow, of an issuer with this base path. Like [`Self::of_scopes`], this gives nobody rights.
    #[must_use]
    pub fn of_identity(base: NsPath, audience: Audience) -> Self {
        let area = Arc::new(Area { issuer: IssuerUrl::unnamed(), bases: vec![base], restricted: Vec::new() });
        Self::Identity(AreaRights { area, audience })
    }

    /// Whether the token allows `operation` on `path`, a path in weir's namespace. Check the path as the client gave it, and
    /// again after symbolic links.
    ///
    /// # Errors
    ///
    /// [`Denial`], which says by what rule.
    pub fn allows(&self, operation: PathOperation, path: &NsPath) -> Result<(), Denial> {
        match self {
            Self::Identity(AreaRights { area, .. }) => {
                area.allows(operation, path, |_| true).map_err(|missing| area.denial(missing, operation, path))
            }
            Self::Scoped(rights) => rights.allows(operation, path),
            Self::Nothing { issuer } => {
                Err(Denial::Nothing { operation, path: shown(&path.to_string()), issuer: issuer.clone() })
            }
        }
    }
}

impl ScopedRights {
    /// The storage scopes, with paths in the issuer's part of the namespace.
    #[must_use]
    pub fn scopes(&self) -> &[StorageScope] {
        &self.scopes
    }

    fn allows(&self, operation: PathOperation, path: &NsPath) -> Result<(), Denial> {
        for part in needs(operation) {
            let granted = |inner: Option<&NsPath>| {
                self.scopes.iter().any(|scope| match inner {
                    Some(inner) => covers(scope, part, inner),
                    None => is_allowed_by(part, scope.action),
                })
            };
            self.area.allows(part, path, granted).map_err(|missing| match missing {
                Missing::Grant => Denial::NoScope {
                    operation,
                    path: shown(&path.to_string()),
                    wanted: wanted(operation, self.profile),
                    areas: shown_paths(&self.area.bases),
                    found: self.list(),
                },
                missing => self.area.denial(missing, operation, path),
            })?;
        }
        Ok(())
    }

    /// The scopes, for a message.
    fn list(&self) -> String {
        let name = |action: StorageAction| match (self.profile, action) {
            (Profile::SciTokens, StorageAction::Read) => "read",
            _ => action.name(),
        };
        let texts: Vec<String> =
            self.scopes.iter().map(|scope| format!("{}:{}", name(scope.action), scope.path)).collect();
        if texts.is_empty() { "no storage scope".into() } else { shown_list(texts.iter().map(String::as_str)) }
    }
}

fn shown_paths(paths: &[NsPath]) -> String {
    let texts: Vec<String> = paths.iter().map(ToString::to_string).collect();
    shown_list(texts.iter().map(String::as_str))
}

/// `path` as the issuer sees it, whose root is `base`; `None` if it is elsewhere.
fn below(base: &NsPath, path: &NsPath) -> Option<NsPath> {
    if !path.is_at_or_below(base) {
        return None;
    }
    let skipped = if base.is_root() { 0 } else { base.as_bytes().len() };
    let inner = &path.as_bytes()[skipped..];
    if inner.is_empty() { Some(NsPath::root()) } else { NsPath::parse(inner).ok() }
}

/// Whether `scope` allows `operation` on `path`. Whole names are compared: `/foo` does not cover `/foobar`.
fn covers(scope: &StorageScope, operation: PathOperation, path: &NsPath) -> bool {
    if !is_allowed_by(operation, scope.action) {
        return false;
    }
    if path.as_bytes() == scope.path.as_bytes() {
        // A path with a slash at its end names a directory, and so does the root.
        return !(scope.path.must_be_directory() && is_of_file(operation));
    }
    path.is_at_or_below(&scope.path) || reaches(operation, path, &scope.path)
}

/// Whether `path` is a directory above `target` that `operation` is allowed on for the sake of `target`. An issuer
/// does not get the root of its part made.
fn reaches(operation: PathOperation, path: &NsPath, target: &NsPath) -> bool {
    reaches_up(operation) && target.is_at_or_below(path) && (operation == PathOperation::Stat || !path.is_root())
}

/// Why an area does not allow an operation. Of several base paths, the reason counts that came nearest to allowing it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Missing {
    /// The path is outside.
    Area,
    /// The path is a base path.
    Base,
    /// The token grants nothing of that kind there.
    Grant,
    /// `restricted_paths` does not contain the path.
    Restriction,
}

impl Area {
    /// Whether an issuer of this area can let a token do `operation` on `path`. `granted` says whether the token grants it on
    /// a path below a base path, or on the directories above (`None`).
    fn allows(
        &self,
        operation: PathOperation,
        path: &NsPath,
        granted: impl Fn(Option<&NsPath>) -> bool,
    ) -> Result<(), Missing> {
        let mut missing = Missing::Area;
        for base in &self.bases {
            let found = match below(base, path) {
                // A directory on the way to the issuer's part can be looked at.
                None if operation == PathOperation::Stat && base.is_at_or_below(path) && granted(None) => return Ok(()),
                None => Missing::Area,
                Some(inner) if inner.is_root() && !only_looks(operation) => Missing::Base,
                Some(inner) if !granted(Some(&inner)) => Missing::Grant,
                Some(inner) if !self.restriction_allows(operation, &inner) => Missing::Restriction,
                Some(_) => return Ok(()),
            };
            missing = missing.max(found);
        }
        Err(missing)
    }

    fn denial(&self, missing: Missing, operation: PathOperation, path: &NsPath) -> Denial {
        let (path, issuer) = (shown(&path.to_string()), shown(self.issuer.as_str()));
        match missing {
            Missing::Area => Denial::OutsideArea { operation, path, issuer, areas: shown_paths(&self.bases) },
            Missing::Base => Denial::BasePath { operation, path, issuer },
            Missing::Grant => Denial::Nothing { operation, path, issuer },
            Missing::Restriction => {
                Denial::Restricted { operation, path, issuer, areas: shown_paths(&self.restricted) }
            }
        }
    }

    /// Whether `restricted_paths` lets any token do `operation` on `path`.
    fn restriction_allows(&self, operation: PathOperation, path: &NsPath) -> bool {
        self.restricted.is_empty()
            || self.restricted.iter().any(|part| path.is_at_or_below(part) || reaches(operation, path, part))
    }
}

/// The rights by the scopes of a token, and the groups that count beside them.
///
/// A token with any statement of capability is limited by it, also if that is about computing only. Its groups are then
/// ignored (section 2.2.3), unless the issuer's settings say otherwise. Groups that are ignored may be malformed.
pub(crate) fn rights_of(
    profile: Profile,
    claims: &Object,
    (issuer, audience): (&Issuer, Audience),
) -> Result<(TokenRights, Vec<WlcgGroup>), TokenError> {
    let scope = claims::text(claims, "scope")?;
    if profile == Profile::SciTokens && scope.is_none() {
        return Err(TokenError::MissingClaim { claim: "scope", profile: profile.name() });
    }
    let Scopes { storage, has_capability } = Scopes::parse(profile, scope.unwrap_or(""))?;
    // In SciTokens, scopes are the only kind of authorization.
    let scoped = issuer.honours_scopes() && (has_capability || profile == Profile::SciTokens);
    let groups = match (profile, issuer.group_use()) {
        // SciTokens have no groups: the claim is unknown there, and must not authorize anything.
        (Profile::SciTokens, _) | (Profile::Wlcg, GroupUse::Never) => Vec::new(),
        (Profile::Wlcg, GroupUse::WithoutScopes) if scoped => Vec::new(),
        (Profile::Wlcg, GroupUse::WithoutScopes | GroupUse::Always) => claims::groups(claims)?,
    };
    let area = || Arc::clone(issuer.area());
    let rights = if scoped {
        TokenRights::Scoped(ScopedRights { profile, area: area(), scopes: storage.into() })
    } else if !groups.is_empty() || issuer.without_scopes() == WithoutScopes::Identity {
        TokenRights::Identity(AreaRights { area: area(), audience })
    } else {
        TokenRights::Nothing { issuer: shown(issuer.url().as_str()) }
    };
    Ok((rights, groups))
}
