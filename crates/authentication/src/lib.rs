//! Who a client is: turns what it presents into a named principal. The decisions are those of `identity`; this has the
//! sockets, files, threads and clocks around them. Front ends share it.
//!
//! - [`Authenticator`]: a login by each mechanism, and what a front end offers to whom.
//! - [`Settings`]: what it is told. All of it is checked before it is used, also by [`Authenticator::reload`].
//! - [`GsiLogin`]: a login that takes several rounds.
//! - [`Report`]: the same decisions, step by step, for somebody who asks why.
//!
//! **Keys of issuers** come over HTTPS, and are refreshed before they are old. Each issuer is asked at most once at a time and
//! once in [`CacheTimes::fetch_interval`](identity::CacheTimes), whatever tokens arrive. A client that needs keys waits for
//! them up to 10 s ([`FetchTimes`]), and at most [`WAITING_MAX`] clients wait for an issuer; more are told to try again.
//! Clients with tokens whose keys are known never wait. While an issuer is away, its last keys stay in use for
//! [`CacheTimes::keep`](identity::CacheTimes), over a restart as well if they are kept on the disk.
//!
//! What an issuer sends is bounded in length and in time, and is believed only over TLS. Proxies of the environment
//! (`https_proxy`) are ignored.
//!
//! **Shared secrets** come from a keytab, which is read with the settings. Each credential counts once, also over a reload.
//! So do the keys for **Kerberos**; a KDC is never asked.
//!
//! **Delegated proxies.** If the settings say so, a client of `gsi` that allows it is asked for a proxy, with a key that a thread has made
//! before ([`Authenticated::delegated`]). It is in memory only. A client that declines is let in without; one that sends something else
//! than was asked for is refused.
//!
//! **A mapping service** is asked about clients that no rule matches. It is asked over HTTPS as well, about at most
//! [`MAPPING_QUESTIONS_MAX`] at once, for at most [`MAPPING_TIME_MAX`]. Its answers are kept for a time. Without an answer the
//! client is refused.
//!
//! No error, log line or report contains a token or a secret.

mod authenticator;
mod clock;
mod counters;
mod error;
mod fetch;
mod grid_map_file;
mod gsi_files;
mod gsi_login;
mod https;
mod issuer_keys;
mod kerberos;
mod key_files;
mod mapping_service;
mod mechanism;
mod proxy_keys;
mod report;
mod secrets;
mod seen;
mod seen_file;
mod settings;
mod signing_level;
mod turns;

pub use authenticator::{Authenticated, Authenticator, GROUPS_CLAIMED_MAX, Refresher};
pub use clock::{Clock, SystemClock};
pub use counters::{IssuerStatus, Logins, Snapshot};
pub use error::{AuthenticationError, ErrorKind};
pub use fetch::{FailedStep, FetchError, FetchProblem, FetchStep, FetchTimes};
pub use grid_map_file::GridMapFileError;
/// What a client with a certificate signs requests with.
pub use gsi::SessionKey;
pub use gsi_files::{FilesProblem, GsiError};
pub use gsi_login::{GsiLogin, HANDSHAKE_TIME_MAX, LoginStep, Requests};
pub use https::{AnswerError, ConnectionError, HttpsError, REDIRECTS_MAX, UrlError};
/// What a client has delegated.
pub use identity::DelegatedProxy;
pub use issuer_keys::{KeysError, WAITING_MAX};
pub use kerberos::{KerberosError, KerberosSettings};
pub use key_files::KeyFilesError;
pub use mapping_service::{
    MAPPING_QUESTIONS_MAX, MAPPING_QUESTIONS_OF_PEER_MAX, MAPPING_TIME_MAX, MappingServiceError,
    MappingServiceSettings, MappingServiceSettingsError, MappingServiceStatus,
};
pub use mechanism::{Mechanism, MechanismError, Mechanisms};
pub use report::{Report, ReportStep};
pub use settings::{GsiSettings, NETWORKS_MAX, Settings, SettingsError};
pub use signing_level::SigningLevel;
/// What the offer of `sss` says to clients, and the longest credential of it.
pub use sss::{CREDENTIAL_BYTES_MAX as SSS_CREDENTIAL_BYTES_MAX, OFFER as SSS_OFFER};
