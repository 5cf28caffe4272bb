//! What an authenticator is told, and the checks of it.

use std::path::PathBuf;
use std::time::Duration;

use identity::{
    CacheTimes, CacheTimesError, IssuerError, IssuerSettings, Issuers, MappingError, MappingRules, MappingSettings,
    RuleSettings, shown,
};
use tls::{TrustError, TrustSource};
use types::IpNetwork;

use crate::fetch::FetchTimes;
use crate::grid_map_file::GridMapFileError;
use crate::gsi_files::GsiError;
use crate::kerberos::{KerberosError, KerberosSettings};
use crate::key_files::KeyFilesError;
use crate::mapping_service::{MappingServiceSettings, MappingServiceSettingsError};
use crate::{Mechanism, Mechanisms, SigningLevel};

/// Most trusted networks.
pub const NETWORKS_MAX: usize = 256;

/// How clients authenticate, and who they are then.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Settings {
    /// What is offered to clients.
    pub mechanisms: Mechanisms,
    /// Where clients may connect from that authenticate by `unix` or `host`, beside this machine.
    pub trusted_networks: Vec<IpNetwork>,
    /// Which requests clients must sign.
    pub signing: SigningLevel,
    /// The trusted issuers of tokens.
    pub issuers: Vec<IssuerSettings>,
    /// The rules that give credentials their principals.
    pub mapping: MappingSettings,
    /// The grid-mapfile, for rules with `grid_map = true`.
    pub grid_map: Option<PathBuf>,
    /// The keytab with the shared secrets, for `sss`.
    pub keytab: Option<PathBuf>,
    /// The keys of this node, for `krb5`.
    pub kerberos: Option<KerberosSettings>,
    /// The service that says who clients are that no rule matches.
    pub mapping_service: Option<MappingServiceSettings>,
    /// What clients of `gsi` are shown, and whose certificates count.
    pub gsi: Option<GsiSettings>,
    /// The authorities that the certificates of issuers and of the mapping service must be signed by.
    pub trust: TrustSource,
    /// A directory in which the keys of issuers are kept over a restart.
    pub key_cache: Option<PathBuf>,
    /// A file that says after a restart which credentials of `sss` were seen before. Without one, such credentials count only
    /// some seconds after the start. A reload does not change this.
    pub seen_secrets: Option<PathBuf>,
    /// The same for `krb5`; without one, tickets count some minutes after the start.
    pub seen_tickets: Option<PathBuf>,
    /// When keys are fetched. A reload does not change this.
    pub times: CacheTimes,
    /// How long a fetch may take. A reload does not change this.
    pub fetch: FetchTimes,
}

/// What `gsi` needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GsiSettings {
    /// The node's certificate in PEM form.
    pub certificate: PathBuf,
    /// Its key. Only its owner may have access to it.
    pub key: PathBuf,
    /// The directory of authorities, with revocation lists and signing policies.
    pub authorities: PathBuf,
    /// The directory that names the VOMS servers of each virtual organization (`.lsc` files). It may be missing.
    pub voms_servers: PathBuf,
    /// The names of this node, for VOMS attributes that are meant for some services only.
    pub own_hosts: Vec<String>,
    /// Ask clients that allow it for a delegated proxy.
    pub delegation: bool,
}

/// Why settings are refused.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An issuer is wrong.
    #[error("cannot use an [[issuer]]: {0}")]
    Issuer(#[from] IssuerError),
    /// A rule is wrong.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// A rule is about tokens of an issuer that is not trusted.
    #[error(
        "[[identity]] number {number} is about the issuer `{issuer}`, and no [[issuer]] has exactly this `url`{hint}"
    )]
    UnknownIssuer {
        /// The position of the rule, from 1.
        number: usize,
        /// The issuer.
        issuer: String,
        /// The issuer that was probably meant.
        hint: String,
    },
    /// A rule needs the grid-mapfile.
    #[error("[[identity]] number {number} has `grid_map = true`: `grid_map` must say where the grid-mapfile is")]
    NoGridMap {
        /// The position of the rule, from 1.
        number: usize,
    },
    /// The grid-mapfile cannot be used.
    #[error(transparent)]
    GridMap(#[from] GridMapFileError),
    /// Tokens are offered, and nobody may issue them.
    #[error("`mechanisms` has `ztn`, and no token would be accepted: add an [[issuer]]")]
    NoIssuer,
    /// Secrets are offered, and there are none.
    #[error("`mechanisms` has `sss`: `keytab` must say where the shared secrets are")]
    NoKeytab,
    /// The keytab cannot be used.
    #[error(transparent)]
    Keytab(#[from] sss::KeytabFileError),
    /// Tickets are offered, and there is no key.
    #[error("`mechanisms` has `krb5`: `kerberos_keytab` must say where the node's keytab is")]
    NoKerberos,
    /// What `krb5` needs cannot be used.
    #[error(transparent)]
    Kerberos(#[from] KerberosError),
    /// The mapping service cannot be asked.
    #[error(transparent)]
    MappingService(#[from] MappingServiceSettingsError),
    /// Two answers for the same clients.
    #[error(
        "`identity_default` and `mapping_service` are both for clients that no [[identity]] matches: use one of them"
    )]
    DefaultAndService,
    /// Certificates are offered, and there is none to show.
    #[error(
        "`mechanisms` has `gsi`, and the node has no certificate for it: set `tls.certificate` and `tls.key`, or `gsi_certificate` \
         and `gsi_key`"
    )]
    NoGsi,
    /// What `gsi` needs cannot be used.
    #[error(transparent)]
    Gsi(#[from] GsiError),
    /// There are no rules.
    #[error(
        "clients can authenticate, and nobody would be let in: add an [[identity]], or set `identity_default` or `mapping_service`"
    )]
    NoRule,
    /// Too many networks.
    #[error("there are {0} trusted networks; {NETWORKS_MAX} is the limit")]
    TooManyNetworks(usize),
    /// The authorities cannot be read.
    #[error("cannot ask issuers for their keys: {0}")]
    Authorities(#[from] TrustError),
    /// The directory for keys cannot be used.
    #[error(transparent)]
    KeyCache(#[from] KeyFilesError),
    /// Times that do not fit.
    #[error(transparent)]
    CacheTimes(#[from] CacheTimesError),
    /// Times that do not fit.
    #[error("the times for keys of issuers cannot be used: {0}")]
    Times(&'static str),
}

/// Checked issuers and rules.
pub(crate) struct Checked {
    pub(crate) issuers: Issuers,
    pub(crate) rules: MappingRules,
}

impl Settings {
    /// Checks what can be checked without looking at files.
    pub(crate) fn check(&self) -> Result<Checked, SettingsError> {
        let issuers = Issuers::new(self.issuers.clone())?;
        let rules = MappingRules::new(&self.mapping)?;
        for (index, rule) in self.mapping.identity.iter().enumerate() {
            let number = index + 1;
            check_issuer(rule, number, &issuers)?;
            if rule.grid_map && self.grid_map.is_none() {
                return Err(SettingsError::NoGridMap { number });
            }
        }
        if self.mechanisms.contains(Mechanism::Ztn) && self.issuers.is_empty() {
            return Err(SettingsError::NoIssuer);
        }
        if self.mechanisms.contains(Mechanism::Gsi) && self.gsi.is_none() {
            return Err(SettingsError::NoGsi);
        }
        let MappingSettings { identity, identity_default } = &self.mapping;
        if self.mechanisms.contains(Mechanism::Sss) && self.keytab.is_none() {
            return Err(SettingsError::NoKeytab);
        }
        if self.mechanisms.contains(Mechanism::Krb5) && self.kerberos.is_none() {
            return Err(SettingsError::NoKerberos);
        }
        if identity_default.is_some() && self.mapping_service.is_some() {
            return Err(SettingsError::DefaultAndService);
        }
        let is_for_nobody = identity.is_empty() && identity_default.is_none() && self.mapping_service.is_none();
        if !self.mechanisms.is_empty() && is_for_nobody {
            return Err(SettingsError::NoRule);
        }
        if self.trusted_networks.len() > NETWORKS_MAX {
            return Err(SettingsError::TooManyNetworks(self.trusted_networks.len()));
        }
        check_times(&self.times, &self.fetch)?;
        Ok(Checked { issuers, rules })
    }
}

fn check_issuer(rule: &RuleSettings, number: usize, issuers: &Issuers) -> Result<(), SettingsError> {
    let Some(issuer) = rule.issuer.as_deref().filter(|issuer| issuers.get(issuer).is_none()) else { return Ok(()) };
    let bare = |url: &str| url.trim_end_matches('/').to_ascii_lowercase();
    let meant = issuers.iter().find(|known| bare(known.url().as_str()) == bare(issuer));
    let hint = meant.map(|known| format!("; one has `{}`", known.url())).unwrap_or_default();
    Err(SettingsError::UnknownIssuer { number, issuer: shown(issuer), hint })
}

fn check_times(times: &CacheTimes, fetch: &FetchTimes) -> Result<(), SettingsError> {
    let wrong = if times.fetch_interval < Duration::from_secs(1) {
        "fetches must be at least 1 s apart"
    } else if times.refresh < times.fetch_interval || times.keep < times.refresh {
        "keys must be kept for longer than until their refresh, and that be later than another fetch may begin"
    } else if fetch.connect.is_zero() || fetch.total.is_zero() || fetch.wait.is_zero() {
        "a fetch must have time"
    } else if fetch.total > identity::FETCH_TIME_MAX {
        "a fetch must end within 60 s"
    } else {
        return Ok(());
    };
    Err(SettingsError::Times(wrong))
}
