//! How clients authenticate: the values of `[authentication]`, `[[issuer]]` and `[[identity]]`.

use std::path::PathBuf;

use authentication::{GsiSettings, KerberosSettings, MappingServiceSettings, Mechanisms, NETWORKS_MAX, SigningLevel};
use identity::{IssuerSettings, Issuers, MappingRules, MappingSettings, RuleSettings};
use tls::TrustSource;
use types::{IpNetwork, PrincipalKind, PrincipalName};

use crate::Config;
use crate::keys::Given;

/// The keys of an `[[issuer]]`.
pub const ISSUER_KEYS: &[&str] = &[
    "issuer.url",
    "issuer.base_paths",
    "issuer.audiences",
    "issuer.any_audience",
    "issuer.restricted_paths",
    "issuer.scopes",
    "issuer.unversioned",
    "issuer.groups",
    "issuer.without_scopes",
];

/// The keys of an `[[identity]]`.
pub const IDENTITY_KEYS: &[&str] = &[
    "identity.issuer",
    "identity.subject",
    "identity.group",
    "identity.certificate",
    "identity.voms",
    "identity.grid_map",
    "identity.kerberos",
    "identity.secret",
    "identity.user",
    "identity.local_user",
    "identity.host",
    "identity.anonymous",
    "identity.principal",
    "identity.groups",
    "identity.refuse",
];

pub(crate) fn mechanisms(given: Given<'_>) -> Result<Mechanisms, String> {
    let Given::List(names) = given else { return Err("takes a list, as in [\"ztn\", \"unix\"]".into()) };
    Mechanisms::parse(names.iter().copied()).map_err(|error| format!("cannot be used: {error}"))
}

pub(crate) fn signing(name: &str) -> Result<SigningLevel, String> {
    let levels = || SigningLevel::ALL.map(SigningLevel::name).join(", ");
    SigningLevel::parse(name).ok_or_else(|| format!("cannot be {name:?}: the levels are {}", levels()))
}

pub(crate) fn networks(given: Given<'_>) -> Result<Vec<IpNetwork>, String> {
    let Given::List(networks) = given else { return Err("takes a list of networks, as in [\"10.1.0.0/16\"]".into()) };
    if networks.len() > NETWORKS_MAX {
        return Err(format!("has {} networks; {NETWORKS_MAX} is the limit", networks.len()));
    }
    let network = |text: &&str| text.parse().map_err(|error| format!("has one that cannot be used: {error}"));
    networks.iter().map(network).collect()
}

pub(crate) fn issuers(given: Given<'_>) -> Result<Vec<IssuerSettings>, String> {
    let Given::Issuers(issuers) = given else { return Err("takes a table for each issuer: [[issuer]]".into()) };
    Issuers::new(issuers.to_vec()).map_err(|error| format!("cannot be used: {error}"))?;
    Ok(issuers.to_vec())
}

pub(crate) fn rules(given: Given<'_>) -> Result<Vec<RuleSettings>, String> {
    let Given::Rules(rules) = given else { return Err("takes a table for each rule: [[identity]]".into()) };
    let settings = MappingSettings { identity: rules.to_vec(), identity_default: None };
    MappingRules::new(&settings).map_err(|error| format!("cannot be used: {error}"))?;
    Ok(settings.identity)
}

pub(crate) fn principal(name: &str) -> Result<String, String> {
    PrincipalName::parse(PrincipalKind::User, name).map_err(|error| format!("cannot be used: {error}"))?;
    Ok(name.to_owned())
}

/// A directory of authorities, a file, or without a path those of the system.
fn trust(path: Option<&PathBuf>) -> TrustSource {
    match path {
        None => TrustSource::System,
        Some(path) if path.is_dir() => TrustSource::Directory(path.clone()),
        Some(path) => TrustSource::File(path.clone()),
    }
}

impl Config {
    /// What `gsi` needs: the certificate of its own, or the one for TLS; `None`: there is neither.
    fn gsi(&self) -> Option<GsiSettings> {
        let (certificate, key) = match &self.gsi_certificate {
            Some(certificate) => (certificate, &self.gsi_key),
            None => (self.tls_certificate.as_ref()?, &self.tls_key),
        };
        // The host under which other machines know this one.
        let host = self.advertise.as_deref().map(|address| address.rsplit_once(':').map_or(address, |(host, _)| host));
        Some(GsiSettings {
            certificate: certificate.clone(),
            // Both may be in one file.
            key: key.as_ref().unwrap_or(certificate).clone(),
            authorities: self.gsi_authorities.clone(),
            voms_servers: self.voms_servers.clone(),
            own_hosts: host.map(str::to_owned).into_iter().collect(),
            delegation: self.gsi_delegation,
        })
    }

    /// The settings for authentication. They are checked by whoever uses them, because only together they make sense.
    #[must_use]
    pub fn authentication(&self) -> authentication::Settings {
        authentication::Settings {
            mechanisms: self.mechanisms.clone(),
            signing: self.signing,
            trusted_networks: self.trusted_networks.clone(),
            issuers: self.issuers.clone(),
            mapping: self.mapping.clone(),
            grid_map: self.grid_map.clone(),
            keytab: self.keytab.clone(),
            kerberos: self
                .kerberos_keytab
                .clone()
                .map(|keytab| KerberosSettings { keytab, principal: self.kerberos_principal.clone() }),
            mapping_service: self
                .mapping_service
                .clone()
                .map(|url| MappingServiceSettings { url, keep: self.mapping_service_keep }),
            trust: trust(self.authentication_ca.as_ref()),
            key_cache: self.key_cache.clone(),
            gsi: self.gsi(),
            ..authentication::Settings::default()
        }
    }
}
