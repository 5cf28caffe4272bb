//! The configuration: defaults, then a TOML file, then flags. [`keys::KEYS`] is the one list of all keys. The defaults, the file's parser,
//! the errors and the test of `docs/reference/configuration.md` (`crates/weir/tests/documents.rs`) all use it.

mod administrators;
mod authentication_keys;
mod database_url;
mod file;
pub mod keys;
mod memory;
mod store_table;
mod tables;
pub use types::units;

use std::path::PathBuf;
use std::time::Duration;

pub use administrators::{ADMINISTRATOR_KEYS, AdministratorRule, AdministratorSettings};
use authentication::{Mechanisms, SigningLevel};
pub use authentication_keys::{IDENTITY_KEYS, ISSUER_KEYS};
pub use database_url::DatabaseUrl;
pub use file::ConfigError;
use identity::{IssuerSettings, MappingSettings};
use service::UnfinishedPolicy;
pub use store_table::StoreTable;
use tls::TlsRequired;
use types::{DigestKind, IpNetwork, Location, LocationRanges, StoreClass};

/// The directory of the audit log in a data directory, if the configuration names no other.
pub const AUDIT_DIR: &str = "audit";

/// What a node of a cluster is for.
#[derive(clap::ValueEnum, serde::Serialize, serde::Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterRole {
    /// It holds the namespace and decides where files go.
    Manager,
    /// It has stores, which hold the bytes of files.
    Disk,
}

/// Where the lines of the audit log go.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AuditTo {
    /// There is none.
    #[default]
    Nowhere,
    /// To files.
    Files,
    /// To systemd-journald.
    Journald,
}

/// Everything that can be set. Sizes are in bytes. `docs/reference/configuration.md` explains the keys.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub struct Config {
    pub data: Option<PathBuf>,
    pub role: Option<ClusterRole>,
    pub listen: String,
    pub nodes: String,
    pub advertise: Option<String>,
    pub managers: Vec<String>,
    pub join_file: Option<PathBuf>,
    pub location: Option<Location>,
    pub class: Option<StoreClass>,
    pub stores: Vec<StoreTable>,
    pub insecure: bool,
    pub existing: bool,
    pub log: String,
    pub log_json: bool,
    pub metrics: Option<String>,
    pub grace: Duration,
    pub uploads_kept: Duration,
    pub checksums: Vec<DigestKind>,
    pub unfinished: UnfinishedPolicy,
    pub connections: u64,
    pub writers_memory: u64,
    pub recent: Option<u64>,
    pub read_ahead: u64,
    pub transfers: Option<u64>,
    pub request_time: Duration,
    pub answer_time: Duration,
    pub login_time: Duration,
    pub ballast: u64,
    pub floor: Option<u64>,
    pub segment_size: u64,
    pub overlay: u64,
    pub cache: u64,
    pub database: Option<DatabaseUrl>,
    pub database_connections: u64,
    pub database_patience: Duration,
    pub third_party_copy: bool,
    pub third_party_sources: Vec<String>,
    pub tls_certificate: Option<PathBuf>,
    pub tls_key: Option<PathBuf>,
    pub tls_required: TlsRequired,
    pub mechanisms: Mechanisms,
    pub signing: SigningLevel,
    pub trusted_networks: Vec<IpNetwork>,
    pub grid_map: Option<PathBuf>,
    pub keytab: Option<PathBuf>,
    pub kerberos_keytab: Option<PathBuf>,
    pub kerberos_principal: Option<String>,
    pub mapping_service: Option<String>,
    pub mapping_service_keep: Duration,
    pub authentication_ca: Option<PathBuf>,
    pub key_cache: Option<PathBuf>,
    pub gsi_certificate: Option<PathBuf>,
    pub gsi_key: Option<PathBuf>,
    pub gsi_authorities: PathBuf,
    pub gsi_delegation: bool,
    pub voms_servers: PathBuf,
    pub issuers: Vec<IssuerSettings>,
    pub mapping: MappingSettings,
    pub administrators: Vec<AdministratorRule>,
    pub administration_socket: Option<PathBuf>,
    pub administration_certificates: bool,
    pub audit_to: AuditTo,
    pub audit_directory: Option<PathBuf>,
    pub audit_file_size: u64,
    pub audit_files: u32,
    pub audit_reads: bool,
    pub scrub_rate: u64,
    pub scrub_period: Duration,
    pub repair_rate: u64,
    pub client_locations: LocationRanges,
}

impl Config {
    /// The settings for the parts of a data directory.
    #[must_use]
    pub fn foundation(&self) -> foundation::Settings {
        foundation::Settings {
            segment_bytes: self.segment_size,
            ballast: self.ballast,
            overlay: self.overlay,
            cache: self.cache,
            floor: self.floor,
            uploads_kept: self.uploads_kept,
            recent: None,
        }
    }

    /// The same for a node that serves. All stores that are opened with the result share memory for recently written pages; each call makes another
    /// such memory.
    #[must_use]
    pub fn foundation_to_serve(&self) -> foundation::Settings {
        self.foundation().with_recent(self.recent.unwrap_or_else(|| memory::usable() / 8))
    }

    /// The directory of the audit log, if it has files.
    #[must_use]
    pub fn audit_files_at(&self) -> Option<PathBuf> {
        self.audit_directory.clone().or_else(|| self.data.as_ref().map(|data| data.join(AUDIT_DIR)))
    }

    /// The settings of the audit log; `None`: there is none.
    #[must_use]
    pub fn audit(&self) -> Option<audit::Settings> {
        let to = match self.audit_to {
            AuditTo::Nowhere => return None,
            AuditTo::Journald => audit::Destination::Journald(audit::JOURNALD_SOCKET.into()),
            AuditTo::Files => audit::Destination::Files(audit::FileSettings {
                directory: self.audit_files_at()?,
                file_bytes: self.audit_file_size,
                files_max: self.audit_files,
            }),
        };
        Some(audit::Settings { to, reads: self.audit_reads })
    }

    /// The default configuration: each key's default, read by the same code that reads the file.
    #[must_use]
    pub fn defaults() -> Self {
        let mut config = Self {
            data: None,
            role: None,
            listen: String::new(),
            nodes: String::new(),
            advertise: None,
            managers: Vec::new(),
            join_file: None,
            location: None,
            class: None,
            stores: Vec::new(),
            insecure: false,
            existing: false,
            log: String::new(),
            log_json: false,
            metrics: None,
            grace: Duration::ZERO,
            uploads_kept: Duration::ZERO,
            checksums: Vec::new(),
            unfinished: UnfinishedPolicy::default(),
            connections: 0,
            writers_memory: 0,
            recent: None,
            read_ahead: 0,
            transfers: None,
            request_time: Duration::ZERO,
            answer_time: Duration::ZERO,
            login_time: Duration::ZERO,
            ballast: 0,
            floor: None,
            segment_size: 0,
            overlay: 0,
            cache: 0,
            database: None,
            database_connections: 0,
            database_patience: Duration::ZERO,
            third_party_copy: false,
            third_party_sources: Vec::new(),
            tls_certificate: None,
            tls_key: None,
            tls_required: TlsRequired::default(),
            mechanisms: Mechanisms::default(),
            signing: SigningLevel::default(),
            trusted_networks: Vec::new(),
            grid_map: None,
            keytab: None,
            kerberos_keytab: None,
            kerberos_principal: None,
            mapping_service: None,
            mapping_service_keep: Duration::ZERO,
            authentication_ca: None,
            key_cache: None,
            gsi_certificate: None,
            gsi_key: None,
            gsi_authorities: PathBuf::new(),
            gsi_delegation: false,
            voms_servers: PathBuf::new(),
            issuers: Vec::new(),
            mapping: MappingSettings::default(),
            administrators: Vec::new(),
            administration_socket: None,
            administration_certificates: false,
            audit_to: AuditTo::Nowhere,
            audit_directory: None,
            audit_file_size: 0,
            audit_files: 0,
            audit_reads: false,
            scrub_rate: 0,
            scrub_period: Duration::ZERO,
            repair_rate: 0,
            client_locations: LocationRanges::default(),
        };
        for key in keys::KEYS {
            if let Some(default) = key.default {
                let taken = (key.set)(&mut config, default);
                debug_assert_eq!(taken, Ok(()), "the default of `{}`", key.name);
            }
        }
        config
    }

    /// The configuration of a running node after a reload with `new`: new values of the live keys, old values of all others.
    #[must_use]
    pub fn taking_over(&self, new: &Self) -> Self {
        Self {
            log: new.log.clone(),
            grace: new.grace,
            connections: new.connections,
            writers_memory: new.writers_memory,
            read_ahead: new.read_ahead,
            transfers: new.transfers,
            request_time: new.request_time,
            answer_time: new.answer_time,
            login_time: new.login_time,
            mechanisms: new.mechanisms.clone(),
            signing: new.signing,
            trusted_networks: new.trusted_networks.clone(),
            grid_map: new.grid_map.clone(),
            keytab: new.keytab.clone(),
            kerberos_keytab: new.kerberos_keytab.clone(),
            kerberos_principal: new.kerberos_principal.clone(),
            mapping_service: new.mapping_service.clone(),
            mapping_service_keep: new.mapping_service_keep,
            authentication_ca: new.authentication_ca.clone(),
            gsi_certificate: new.gsi_certificate.clone(),
            gsi_key: new.gsi_key.clone(),
            gsi_authorities: new.gsi_authorities.clone(),
            gsi_delegation: new.gsi_delegation,
            voms_servers: new.voms_servers.clone(),
            issuers: new.issuers.clone(),
            mapping: new.mapping.clone(),
            administrators: new.administrators.clone(),
            administration_certificates: new.administration_certificates,
            repair_rate: new.repair_rate,
            client_locations: new.client_locations.clone(),
            ..self.clone()
        }
    }

    /// Loads the defaults, then the file at `path` if one is given.
    pub fn load(path: Option<&std::path::Path>) -> Result<Self, ConfigError> {
        let mut config = Self::defaults();
        if let Some(path) = path {
            file::read_into(&mut config, path)?;
        }
        Ok(config)
    }

    /// Loads the defaults, then `text`, which errors call the file `path`.
    pub fn of_text(path: &std::path::Path, text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::defaults();
        file::parse_into(&mut config, path, text)?;
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration in which no key has its default value.
    fn other() -> Config {
        let text = "data = \"/d\"\nrole = \"disk\"\nlisten = \"x\"\nnodes = \"x\"\nadvertise = \"x:1\"\nmanagers = [\"x:1\"]\njoin_file = \"/t\"\nlocation = \"a/b/c\"\n\
            class = \"t1\"\nidentity_default = \"x\"\ninsecure = true\nexisting = true\nlog = \"debug\"\nlog_format = \"json\"\n\
            grace_seconds = 1\nfiles.uploads_kept = \"1s\"\nfiles.checksums = [\"md5\"]\nfiles.unfinished = \"wait\"\nfiles.followed = [\"/daq\"]\nlimits.connections = 1\nlimits.writers_memory = \"1MiB\"\nlimits.recent = \"1MiB\"\nlimits.read_ahead = \"1MiB\"\n\
            limits.transfers = 1\ntimes.request = \"1s\"\ntimes.answer = \"1s\"\ntimes.login = \"1s\"\nmetrics.listen = \"x\"\n\
            space.ballast = \"1MiB\"\nspace.floor = \"1MiB\"\njournal.segment_size = \"1MiB\"\nindex.overlay = \"1MiB\"\n\
            index.cache = \"1MiB\"\n\
            database.url = \"postgres://a@b/c\"\ndatabase.connections = 1\ndatabase.patience = \"1s\"\n\
            audit.to = \"files\"\naudit.directory = \"/a\"\naudit.file_size = \"1MiB\"\naudit.files = 2\naudit.reads = true\nthird_party_copy = false\nthird_party_sources = [\"a\"]\ntls.certificate = \"/c\"\ntls.key = \"/k\"\ntls.required = [\"data\"]\nscrub.rate = \"1MiB\"\nscrub.period = \"1d\"\nrepair.rate = \"1MiB\"\nclients.locations = [\"10.0.0.0/8 a\"]\n[[store]]\ndir = \"/s\"\n\
            [authentication]\nmechanisms = [\"unix\"]\nsigning = \"intense\"\ntrusted_networks = [\"10.0.0.0/8\"]\ngrid_map = \"/g\"\nkeytab = \"/k\"\nkerberos_keytab = \"/h\"\nkerberos_principal = \"a@B\"\nmapping_service = \"https://m\"\nmapping_service_keep = \"1s\"\nca = \"/ca\"\nkey_cache = \"/keys\"\n\
            gsi_certificate = \"/g\"\ngsi_key = \"/k\"\ngsi_authorities = \"/a\"\ngsi_delegation = true\nvoms_servers = \"/v\"\n\
            [[issuer]]\nurl = \"https://a\"\naudiences = [\"a\"]\nbase_paths = [\"/\"]\n[[identity]]\nhost = \"*\"\nprincipal = \"x\"\n\
            [[administrator]]\nprincipal = \"x\"\nrole = \"viewer\"\n[administration]\nsocket = \"/run/s\"\ncertificates = true\n";
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        Config::load(Some(file.path())).unwrap()
    }

    #[test]
    fn a_running_node_adopts_live_keys_and_no_others() {
        let (running, new) = (Config::defaults(), other());
        let after = running.taking_over(&new);
        for key in keys::KEYS {
            assert!(!(key.same)(&running, &new), "{} is not in the test", key.name);
            assert_eq!((key.same)(&after, &new), key.live, "{}", key.name);
            assert_eq!((key.same)(&after, &running), !key.live, "{}", key.name);
        }
    }
}
