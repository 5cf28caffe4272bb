//! Who a caller is, and what a token lets it do: credentials become a principal's name, group names and rights.
//!
//! - **Tokens** ([`UnverifiedToken`]): bearer tokens by the WLCG profile 1.3 and by SciTokens 2.0. A token's text is
//!   parsed, its issuer and its key are looked up, and its signature, times and audience are checked.
//! - **Issuers** ([`Issuers`]): which issuers a site trusts, for which part of the namespace. Their keys are in
//!   [`KeyCache`], a machine that says when keys must be fetched; [`Discovery`] says from where.
//! - **Rights** ([`TokenRights`]): what the scopes of a token allow, on which paths.
//! - **Mapping** ([`MappingRules`]): the first rule that matches a [`Credential`] gives the principal. [`GridMap`] is
//!   the traditional list of certificate subjects. [`MappingQuestion`] and [`MappingReply`] are for an external service that
//!   knows who a credential is, and [`MappingMemory`] keeps what it has said.
//! - **Delegation** ([`DelegatedProxy`]): what a user has given this node to act as the user elsewhere.
//!
//! Whoever reads the settings calls [`MappingRules::check_issuers`]. With a token, a front end takes these steps:
//!
//! 1. [`UnverifiedToken::parse`] and [`UnverifiedToken::issuer`].
//! 2. [`KeyCache::answer`] with the issuer and the key's ID. It may have to fetch keys, and ask again. It limits how many
//!    tokens wait for that at once.
//! 3. [`UnverifiedToken::verify`]. Up to here a refusal means that the client is not authenticated (401 in HTTP).
//! 4. [`MappingRules::map`], once a session.
//! 5. [`TokenRights::allows`] for each request. From step 4 on, a refusal means that the client may not (403 in HTTP).
//!
//! What this crate promises: it does no I/O and reads no clock, so every decision can be replayed. It does not panic on
//! outside input, and every length is bounded. A refusal says which rule refused, and what was expected. Tokens are never
//! part of a message.
//!
//! What it leaves to others: fetching keys over HTTPS, verifying certificates and proxies, Kerberos and shared secrets,
//! numbers for names, and the permissions of files.
//!
//! Sections of the profile are those of "WLCG Common JWT Profiles" 1.3.

mod algorithm;
mod claims;
mod credential;
mod delegated_proxy;
mod discovery;
mod distinguished_name;
mod fqan;
mod grid_map;
mod issuer;
mod jws;
mod key_cache;
mod key_set;
mod mapping;
mod mapping_memory;
mod mapping_service;
mod member;
mod public_key;
mod rights;
mod rule;
mod scope;
mod shown;
mod template;
mod token;
mod token_error;
mod wlcg_group;

pub use algorithm::Algorithm;
pub use claims::Audience;
pub use credential::{Credential, CredentialError, HostName, KerberosPrincipal, LoginName, SecretCredential};
pub use delegated_proxy::DelegatedProxy;
pub use discovery::{DISCOVERY_BYTES_MAX, Discovery, DiscoveryError};
pub use distinguished_name::{DISTINGUISHED_NAME_MAX, DistinguishedName, DistinguishedNameError};
pub use fqan::{FQAN_MAX, Fqan, FqanError, FqanPattern};
pub use grid_map::{GRID_MAP_BYTES_MAX, GRID_MAP_ENTRIES_MAX, GridMap, GridMapEntry, GridMapError, LineProblem};
pub use issuer::{
    GroupUse, ISSUERS_MAX, Issuer, IssuerError, IssuerSettings, IssuerUrl, Issuers, UrlProblem, WithoutScopes,
};
pub use key_cache::{
    CacheTimes, CacheTimesError, FETCH_TIME_MAX, FetchNumber, KeyAnswer, KeyCache, KeyRefusal, WAIT_TIME_MAX,
};
pub use key_set::{JWKS_BYTES_MAX, KEY_ID_MAX, KEYS_MAX, KeySet, KeySetError, SkippedKey, VerificationKey};
pub use mapping::{
    IDENTITY_RULES_MAX, Mapped, MappingError, MappingRules, MappingSettings, MatchedBy, Refusal, VOMS_ATTRIBUTES_MAX,
};
pub use mapping_memory::{MAPPING_MEMORY_ENTRIES_MAX, MAPPING_REFUSAL_KEEP_MAX, MappingMemory};
pub use mapping_service::{MAPPING_REPLY_BYTES_MAX, MappingQuestion, MappingReply, MappingReplyError};
pub use public_key::{PublicKey, RsaKey};
pub use rights::{AreaRights, Denial, ScopedRights, TokenRights};
pub use rule::{RuleError, RuleSettings};
pub use scope::{SCOPES_MAX, ScopeError, StorageAction, StorageScope};
pub use shown::shown;
pub use template::{FillError, TemplateError};
pub use token::{CLOCK_SKEW, Profile, TOKEN_BYTES_MAX, TokenCredential, UnverifiedToken};
pub use token_error::TokenError;
pub use wlcg_group::WlcgGroup;
