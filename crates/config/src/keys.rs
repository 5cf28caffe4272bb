//! The list of keys.

use std::path::PathBuf;
use std::time::Duration;

use identity::{IssuerSettings, RuleSettings};
use service::Unfinished;
use tls::TlsRequired;
use types::{DigestKind, Location, LocationRanges, NsPath, StoreClass};

use super::units::{parse_duration, parse_size};
use super::{
    AdministratorSettings, AuditTo, ClusterRole, Config, DatabaseUrl, StoreTable, administrators, authentication_keys,
};

/// A value as the file gives it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Given<'a> {
    /// A string.
    Text(&'a str),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Switch(bool),
    /// A list of strings.
    List(&'a [&'a str]),
    /// A table for each `[[store]]`.
    Stores(&'a [StoreTable]),
    /// A table for each `[[issuer]]`.
    Issuers(&'a [IssuerSettings]),
    /// A table for each `[[identity]]`.
    Rules(&'a [RuleSettings]),
    /// A table for each `[[administrator]]`.
    Administrators(&'a [AdministratorSettings]),
}

/// One key.
pub struct Key {
    /// Its name; `section.name` for a key in a section.
    pub name: &'static str,
    /// The value without a setting; `None`: none.
    pub default: Option<Given<'static>>,
    /// Stores a value in the configuration, or says what a right value looks like.
    pub set: fn(&mut Config, Given<'_>) -> Result<(), String>,
    /// Whether two configurations have the same value of this key.
    pub same: fn(&Config, &Config) -> bool,
    /// Whether a running node adopts a new value (SIGHUP).
    pub live: bool,
}

/// All keys that a configuration file may hold, in the order of `docs/reference/configuration.md`.
pub const KEYS: &[Key] = &[
    Key {
        name: "data",
        default: None,
        set: |c, v| text(v).map(|v| c.data = Some(PathBuf::from(v))),
        same: |a, b| a.data == b.data,
        live: false,
    },
    Key {
        name: "role",
        default: None,
        set: |c, v| {
            c.role = match text(v)? {
                "manager" => Some(ClusterRole::Manager),
                "disk" => Some(ClusterRole::Disk),
                other => return Err(format!("is `{other}`; it is \"manager\" or \"disk\"")),
            };
            Ok(())
        },
        same: |a, b| a.role == b.role,
        live: false,
    },
    Key {
        name: "listen",
        default: Some(Given::Text("127.0.0.1:1094")),
        set: |c, v| text(v).map(|v| c.listen = v.to_owned()),
        same: |a, b| a.listen == b.listen,
        live: false,
    },
    Key {
        name: "nodes",
        default: Some(Given::Text("127.0.0.1:1095")),
        set: |c, v| text(v).map(|v| c.nodes = v.to_owned()),
        same: |a, b| a.nodes == b.nodes,
        live: false,
    },
    Key {
        name: "advertise",
        default: None,
        set: |c, v| address(text(v)?).map(|v| c.advertise = Some(v)),
        same: |a, b| a.advertise == b.advertise,
        live: false,
    },
    Key {
        name: "managers",
        default: Some(Given::List(&[])),
        set: |c, v| {
            let Given::List(managers) = v else { return Err("takes a list, as in [\"mgr1:1095\"]".into()) };
            c.managers = managers.iter().map(|manager| address(manager)).collect::<Result<_, _>>()?;
            Ok(())
        },
        same: |a, b| a.managers == b.managers,
        live: false,
    },
    Key {
        name: "join_file",
        default: None,
        set: |c, v| text(v).map(|v| c.join_file = Some(PathBuf::from(v))),
        same: |a, b| a.join_file == b.join_file,
        live: false,
    },
    Key {
        name: "location",
        default: None,
        set: |c, v| location(v).map(|v| c.location = Some(v)),
        same: |a, b| a.location == b.location,
        live: false,
    },
    Key {
        name: "class",
        default: None,
        set: |c, v| class(v).map(|v| c.class = Some(v)),
        same: |a, b| a.class == b.class,
        live: false,
    },
    Key {
        name: "store",
        default: None,
        set: |c, v| {
            let Given::Stores(stores) = v else { return Err("takes a table for each store: [[store]]".into()) };
            c.stores = stores.to_vec();
            Ok(())
        },
        same: |a, b| a.stores == b.stores,
        live: false,
    },
    Key {
        name: "insecure",
        default: Some(Given::Switch(false)),
        set: |c, v| switch(v).map(|v| c.insecure = v),
        same: |a, b| a.insecure == b.insecure,
        live: false,
    },
    Key {
        name: "existing",
        default: Some(Given::Switch(false)),
        set: |c, v| switch(v).map(|v| c.existing = v),
        same: |a, b| a.existing == b.existing,
        live: false,
    },
    Key {
        name: "log",
        default: Some(Given::Text("info")),
        set: |c, v| text(v).map(|v| c.log = v.to_owned()),
        same: |a, b| a.log == b.log,
        live: true,
    },
    Key {
        name: "log_format",
        default: Some(Given::Text("text")),
        set: |c, v| {
            c.log_json = match text(v)? {
                "text" => false,
                "json" => true,
                other => return Err(format!("is `{other}`; it is \"text\" or \"json\"")),
            };
            Ok(())
        },
        same: |a, b| a.log_json == b.log_json,
        live: false,
    },
    Key {
        name: "grace_seconds",
        default: Some(Given::Number(60)),
        set: |c, v| number(v, 0, 86_400).map(|v| c.grace = Duration::from_secs(v)),
        same: |a, b| a.grace == b.grace,
        live: true,
    },
    Key {
        name: "files.uploads_kept",
        default: Some(Given::Text("1d")),
        set: |c, v| duration(v).map(|v| c.uploads_kept = v),
        same: |a, b| a.uploads_kept == b.uploads_kept,
        live: false,
    },
    Key {
        name: "files.checksums",
        default: Some(Given::List(&[])),
        set: |c, v| checksums(v).map(|v| c.checksums = v),
        same: |a, b| a.checksums == b.checksums,
        live: false,
    },
    Key {
        name: "files.unfinished",
        default: Some(Given::Text("refuse")),
        set: |c, v| {
            c.unfinished.usual = match text(v)? {
                "refuse" => Unfinished::Refuse,
                "wait" => Unfinished::Wait,
                "follow" => Unfinished::Follow,
                other => return Err(format!("is `{other}`; it is \"refuse\", \"wait\" or \"follow\"")),
            };
            Ok(())
        },
        same: |a, b| a.unfinished.usual == b.unfinished.usual,
        live: false,
    },
    Key {
        name: "files.followed",
        default: Some(Given::List(&[])),
        set: |c, v| {
            let Given::List(directories) = v else { return Err("takes a list, as in [\"/daq\"]".into()) };
            let directory = |path: &&str| NsPath::parse(path.as_bytes()).map_err(|why| format!("has `{path}`: {why}"));
            c.unfinished.followed = directories.iter().map(directory).collect::<Result<_, _>>()?;
            Ok(())
        },
        same: |a, b| a.unfinished.followed == b.unfinished.followed,
        live: false,
    },
    Key {
        name: "limits.connections",
        default: Some(Given::Number(4096)),
        set: |c, v| number(v, 1, 100_000).map(|v| c.connections = v),
        same: |a, b| a.connections == b.connections,
        live: true,
    },
    Key {
        name: "limits.writers_memory",
        default: Some(Given::Text("512MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.writers_memory = v),
        same: |a, b| a.writers_memory == b.writers_memory,
        live: true,
    },
    Key {
        name: "limits.recent",
        default: Some(Given::Text("auto")),
        set: |c, v| auto_or(v, |v| size(v, 0, 1 << 44)).map(|v| c.recent = v),
        same: |a, b| a.recent == b.recent,
        live: false,
    },
    Key {
        name: "limits.read_ahead",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 0, 1 << 40).map(|v| c.read_ahead = v),
        same: |a, b| a.read_ahead == b.read_ahead,
        live: true,
    },
    Key {
        name: "limits.transfers",
        default: Some(Given::Text("auto")),
        set: |c, v| auto_or(v, |v| number(v, 1, 4096)).map(|v| c.transfers = v),
        same: |a, b| a.transfers == b.transfers,
        live: true,
    },
    Key {
        name: "times.request",
        default: Some(Given::Text("30s")),
        set: |c, v| time(v).map(|v| c.request_time = v),
        same: |a, b| a.request_time == b.request_time,
        live: true,
    },
    Key {
        name: "times.answer",
        default: Some(Given::Text("60s")),
        set: |c, v| time(v).map(|v| c.answer_time = v),
        same: |a, b| a.answer_time == b.answer_time,
        live: true,
    },
    Key {
        name: "times.login",
        default: Some(Given::Text("30s")),
        set: |c, v| time(v).map(|v| c.login_time = v),
        same: |a, b| a.login_time == b.login_time,
        live: true,
    },
    Key {
        name: "metrics.listen",
        default: None,
        set: |c, v| text(v).map(|v| c.metrics = Some(v.to_owned())),
        same: |a, b| a.metrics == b.metrics,
        live: false,
    },
    Key {
        name: "third_party_copy",
        default: Some(Given::Switch(true)),
        set: |c, v| switch(v).map(|v| c.third_party_copy = v),
        same: |a, b| a.third_party_copy == b.third_party_copy,
        live: false,
    },
    Key {
        name: "third_party_sources",
        default: Some(Given::List(&["*"])),
        set: |c, v| hosts(v).map(|v| c.third_party_sources = v),
        same: |a, b| a.third_party_sources == b.third_party_sources,
        live: false,
    },
    Key {
        name: "tls.certificate",
        default: None,
        set: |c, v| text(v).map(|v| c.tls_certificate = Some(PathBuf::from(v))),
        same: |a, b| a.tls_certificate == b.tls_certificate,
        live: false,
    },
    Key {
        name: "tls.key",
        default: None,
        set: |c, v| text(v).map(|v| c.tls_key = Some(PathBuf::from(v))),
        same: |a, b| a.tls_key == b.tls_key,
        live: false,
    },
    Key {
        name: "tls.required",
        default: Some(Given::List(&[])),
        set: |c, v| required(v).map(|v| c.tls_required = v),
        same: |a, b| a.tls_required == b.tls_required,
        live: false,
    },
    Key {
        name: "authentication.mechanisms",
        default: Some(Given::List(&[])),
        set: |c, v| authentication_keys::mechanisms(v).map(|v| c.mechanisms = v),
        same: |a, b| a.mechanisms == b.mechanisms,
        live: true,
    },
    Key {
        name: "authentication.signing",
        default: Some(Given::Text("none")),
        set: |c, v| authentication_keys::signing(text(v)?).map(|v| c.signing = v),
        same: |a, b| a.signing == b.signing,
        live: true,
    },
    Key {
        name: "authentication.trusted_networks",
        default: Some(Given::List(&[])),
        set: |c, v| authentication_keys::networks(v).map(|v| c.trusted_networks = v),
        same: |a, b| a.trusted_networks == b.trusted_networks,
        live: true,
    },
    Key {
        name: "authentication.grid_map",
        default: None,
        set: |c, v| text(v).map(|v| c.grid_map = Some(PathBuf::from(v))),
        same: |a, b| a.grid_map == b.grid_map,
        live: true,
    },
    Key {
        name: "authentication.keytab",
        default: None,
        set: |c, v| text(v).map(|v| c.keytab = Some(PathBuf::from(v))),
        same: |a, b| a.keytab == b.keytab,
        live: true,
    },
    Key {
        name: "authentication.kerberos_keytab",
        default: None,
        set: |c, v| text(v).map(|v| c.kerberos_keytab = Some(PathBuf::from(v))),
        same: |a, b| a.kerberos_keytab == b.kerberos_keytab,
        live: true,
    },
    Key {
        name: "authentication.kerberos_principal",
        default: None,
        set: |c, v| text(v).map(|v| c.kerberos_principal = Some(v.to_owned())),
        same: |a, b| a.kerberos_principal == b.kerberos_principal,
        live: true,
    },
    Key {
        name: "authentication.mapping_service",
        default: None,
        set: |c, v| text(v).map(|v| c.mapping_service = Some(v.to_owned())),
        same: |a, b| a.mapping_service == b.mapping_service,
        live: true,
    },
    Key {
        name: "authentication.mapping_service_keep",
        default: Some(Given::Text("300s")),
        set: |c, v| time(v).map(|v| c.mapping_service_keep = v),
        same: |a, b| a.mapping_service_keep == b.mapping_service_keep,
        live: true,
    },
    Key {
        name: "authentication.ca",
        default: None,
        set: |c, v| text(v).map(|v| c.authentication_ca = Some(PathBuf::from(v))),
        same: |a, b| a.authentication_ca == b.authentication_ca,
        live: true,
    },
    Key {
        name: "authentication.key_cache",
        default: None,
        set: |c, v| text(v).map(|v| c.key_cache = Some(PathBuf::from(v))),
        same: |a, b| a.key_cache == b.key_cache,
        live: false,
    },
    Key {
        name: "authentication.gsi_certificate",
        default: None,
        set: |c, v| text(v).map(|v| c.gsi_certificate = Some(PathBuf::from(v))),
        same: |a, b| a.gsi_certificate == b.gsi_certificate,
        live: true,
    },
    Key {
        name: "authentication.gsi_key",
        default: None,
        set: |c, v| text(v).map(|v| c.gsi_key = Some(PathBuf::from(v))),
        same: |a, b| a.gsi_key == b.gsi_key,
        live: true,
    },
    Key {
        name: "authentication.gsi_authorities",
        default: Some(Given::Text("/etc/grid-security/certificates")),
        set: |c, v| text(v).map(|v| c.gsi_authorities = PathBuf::from(v)),
        same: |a, b| a.gsi_authorities == b.gsi_authorities,
        live: true,
    },
    Key {
        name: "authentication.gsi_delegation",
        default: Some(Given::Switch(false)),
        set: |c, v| switch(v).map(|v| c.gsi_delegation = v),
        same: |a, b| a.gsi_delegation == b.gsi_delegation,
        live: true,
    },
    Key {
        name: "authentication.voms_servers",
        default: Some(Given::Text("/etc/grid-security/vomsdir")),
        set: |c, v| text(v).map(|v| c.voms_servers = PathBuf::from(v)),
        same: |a, b| a.voms_servers == b.voms_servers,
        live: true,
    },
    Key {
        name: "issuer",
        default: None,
        set: |c, v| authentication_keys::issuers(v).map(|v| c.issuers = v),
        same: |a, b| a.issuers == b.issuers,
        live: true,
    },
    Key {
        name: "identity",
        default: None,
        set: |c, v| authentication_keys::rules(v).map(|v| c.mapping.identity = v),
        same: |a, b| a.mapping.identity == b.mapping.identity,
        live: true,
    },
    Key {
        name: "identity_default",
        default: None,
        set: |c, v| authentication_keys::principal(text(v)?).map(|v| c.mapping.identity_default = Some(v)),
        same: |a, b| a.mapping.identity_default == b.mapping.identity_default,
        live: true,
    },
    Key {
        name: "administrator",
        default: None,
        set: |c, v| administrators::administrators(v).map(|v| c.administrators = v),
        same: |a, b| a.administrators == b.administrators,
        live: true,
    },
    Key {
        name: "administration.socket",
        default: None,
        set: |c, v| absolute(v).map(|v| c.administration_socket = Some(v)),
        same: |a, b| a.administration_socket == b.administration_socket,
        live: false,
    },
    Key {
        name: "administration.certificates",
        default: Some(Given::Switch(false)),
        set: |c, v| switch(v).map(|v| c.administration_certificates = v),
        same: |a, b| a.administration_certificates == b.administration_certificates,
        live: true,
    },
    Key {
        name: "audit.to",
        default: Some(Given::Text("nowhere")),
        set: |c, v| {
            c.audit_to = match text(v)? {
                "nowhere" => AuditTo::Nowhere,
                "files" => AuditTo::Files,
                "journald" => AuditTo::Journald,
                other => return Err(format!("is `{other}`; it is \"nowhere\", \"files\" or \"journald\"")),
            };
            Ok(())
        },
        same: |a, b| a.audit_to == b.audit_to,
        live: false,
    },
    Key {
        name: "audit.directory",
        default: None,
        set: |c, v| text(v).map(|v| c.audit_directory = Some(PathBuf::from(v))),
        same: |a, b| a.audit_directory == b.audit_directory,
        live: false,
    },
    Key {
        name: "audit.file_size",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 34).map(|v| c.audit_file_size = v),
        same: |a, b| a.audit_file_size == b.audit_file_size,
        live: false,
    },
    Key {
        name: "audit.files",
        default: Some(Given::Number(16)),
        set: |c, v| number(v, 2, 10_000).map(|v| c.audit_files = u32::try_from(v).unwrap_or(u32::MAX)),
        same: |a, b| a.audit_files == b.audit_files,
        live: false,
    },
    Key {
        name: "audit.reads",
        default: Some(Given::Switch(false)),
        set: |c, v| switch(v).map(|v| c.audit_reads = v),
        same: |a, b| a.audit_reads == b.audit_reads,
        live: false,
    },
    Key {
        name: "space.ballast",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.ballast = v),
        same: |a, b| a.ballast == b.ballast,
        live: false,
    },
    Key {
        name: "space.floor",
        default: Some(Given::Text("auto")),
        set: |c, v| auto_or(v, |v| size(v, 0, 1 << 50)).map(|v| c.floor = v),
        same: |a, b| a.floor == b.floor,
        live: false,
    },
    Key {
        name: "journal.segment_size",
        default: Some(Given::Text("64MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 30).map(|v| c.segment_size = v),
        same: |a, b| a.segment_size == b.segment_size,
        live: false,
    },
    Key {
        name: "index.overlay",
        default: Some(Given::Text("32MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 36).map(|v| c.overlay = v),
        same: |a, b| a.overlay == b.overlay,
        live: false,
    },
    Key {
        name: "index.cache",
        default: Some(Given::Text("32MiB")),
        set: |c, v| size(v, 1 << 20, 1 << 40).map(|v| c.cache = v),
        same: |a, b| a.cache == b.cache,
        live: false,
    },
    Key {
        name: "database.url",
        default: None,
        set: |c, v| DatabaseUrl::checked(text(v)?).map(|v| c.database = Some(v)),
        same: |a, b| a.database == b.database,
        live: false,
    },
    Key {
        name: "database.connections",
        default: Some(Given::Number(16)),
        set: |c, v| number(v, 1, 1000).map(|v| c.database_connections = v),
        same: |a, b| a.database_connections == b.database_connections,
        live: false,
    },
    Key {
        name: "database.patience",
        default: Some(Given::Text("30s")),
        set: |c, v| time(v).map(|v| c.database_patience = v),
        same: |a, b| a.database_patience == b.database_patience,
        live: false,
    },
    Key {
        name: "scrub.rate",
        default: Some(Given::Text("16MiB")),
        set: |c, v| size(v, 0, 1 << 40).map(|v| c.scrub_rate = v),
        same: |a, b| a.scrub_rate == b.scrub_rate,
        live: false,
    },
    Key {
        name: "scrub.period",
        default: Some(Given::Text("30d")),
        set: |c, v| duration(v).map(|v| c.scrub_period = v),
        same: |a, b| a.scrub_period == b.scrub_period,
        live: false,
    },
    Key {
        name: "repair.rate",
        default: Some(Given::Text("100MiB")),
        set: |c, v| size(v, 1 << 10, 1 << 40).map(|v| c.repair_rate = v),
        same: |a, b| a.repair_rate == b.repair_rate,
        live: true,
    },
    Key {
        name: "clients.locations",
        default: Some(Given::List(&[])),
        set: |c, v| client_locations(v).map(|v| c.client_locations = v),
        same: |a, b| a.client_locations == b.client_locations,
        live: true,
    },
];

/// The keys of a `[[store]]`.
pub const STORE_KEYS: &[StoreKey] = &[
    StoreKey { name: "store.dir", set: |s, v| text(v).map(|v| s.dir = PathBuf::from(v)) },
    StoreKey { name: "store.location", set: |s, v| location(v).map(|v| s.location = Some(v)) },
    StoreKey { name: "store.class", set: |s, v| class(v).map(|v| s.class = Some(v)) },
    StoreKey { name: "store.reserve", set: |s, v| size(v, 0, 1 << 50).map(|v| s.reserve = Some(v)) },
];

/// Keys of earlier versions, with their present names.
pub const RENAMED_KEYS: &[(&str, &str)] = &[
    ("place", "location"),
    ("clients.places", "clients.locations"),
    ("store.place", "store.location"),
    ("copies.rate", "repair.rate"),
];

/// One key of a `[[store]]`.
pub struct StoreKey {
    /// Its name, with `store.` before it.
    pub name: &'static str,
    /// Stores a value in the table, or says what a right value looks like.
    pub set: fn(&mut StoreTable, Given<'_>) -> Result<(), String>,
}

fn location(given: Given<'_>) -> Result<Location, String> {
    text(given)?.parse().map_err(|error: types::LocationError| format!("is wrong: {error}"))
}

fn class(given: Given<'_>) -> Result<StoreClass, String> {
    text(given)?.parse().map_err(|_| "is no name of a class: 1 to 32 letters, digits, `.`, `_` and `-`".to_owned())
}

/// Checks the form `host:port`. The host is looked up only when it is needed.
pub fn address(text: &str) -> Result<String, String> {
    let wrong = || format!("has `{text}`, which is no address; write HOST:PORT, as in mgr1.example.org:1095");
    let (host, port) = text.rsplit_once(':').ok_or_else(wrong)?;
    let is_host = host.starts_with('[') && host.ends_with(']') || !host.contains([':', '/', ' ', '@']);
    let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
    if !host.is_empty() && is_host && is_port && text.len() <= 255 { Ok(text.to_owned()) } else { Err(wrong()) }
}

fn checksums(given: Given<'_>) -> Result<Vec<DigestKind>, String> {
    let Given::List(names) = given else { return Err("takes a list, as in [\"md5\"]".into()) };
    let mut kinds = Vec::new();
    for name in names {
        let Some(kind) = DigestKind::named(name) else {
            let known = DigestKind::ALL.map(DigestKind::name).join(", ");
            let kept = if matches!(*name, "adler32" | "crc32c") { "; adler32 and crc32c are always kept" } else { "" };
            return Err(format!("has no checksum `{name}`; it may have {known}{kept}"));
        };
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    Ok(kinds)
}

fn text(given: Given<'_>) -> Result<&str, String> {
    match given {
        Given::Text(text) => Ok(text),
        _ => Err("takes a string in quotes".into()),
    }
}

/// A path from the root on: commands and the node must mean the same one, wherever they run.
fn absolute(given: Given<'_>) -> Result<PathBuf, String> {
    let path = PathBuf::from(text(given)?);
    if path.is_absolute() { Ok(path) } else { Err("takes a path that begins with /".into()) }
}

fn switch(given: Given<'_>) -> Result<bool, String> {
    match given {
        Given::Switch(switch) => Ok(switch),
        _ => Err("takes true or false".into()),
    }
}

fn required(value: Given<'_>) -> Result<TlsRequired, String> {
    let wrong = "takes a list of what needs TLS, as in [\"login\", \"data\"]; there are login, session and data";
    let Given::List(list) = value else { return Err(wrong.into()) };
    let mut required = TlsRequired::default();
    for one in list {
        match *one {
            "login" => required.login = true,
            "session" => required.session = true,
            "data" => required.data = true,
            _ => return Err(wrong.into()),
        }
    }
    Ok(required)
}

fn hosts(given: Given<'_>) -> Result<Vec<String>, String> {
    let wrong =
        || "takes a list of hosts, in which * stands for anything, as in [\"*.example.org\", \"10.1.*\"]".to_owned();
    let Given::List(hosts) = given else { return Err(wrong()) };
    let host = |host: &&str| {
        let good = !host.is_empty() && !host.contains([':', '/', '@', ' ']) && glob::Pattern::new(host).is_ok();
        if good { Ok((*host).to_owned()) } else { Err(format!("has `{host}` in it, which is no host; it {}", wrong())) }
    };
    hosts.iter().map(host).collect()
}

fn client_locations(given: Given<'_>) -> Result<LocationRanges, String> {
    let Given::List(ranges) = given else {
        return Err("takes a list of ranges with their locations, as in [\"10.1.0.0/16 cern/r12\"]".into());
    };
    LocationRanges::parse(ranges.iter().copied()).map_err(|error| format!("has one in it that cannot be: {error}"))
}

fn number(given: Given<'_>, min: u64, max: u64) -> Result<u64, String> {
    match given {
        Given::Number(number) => u64::try_from(number)
            .ok()
            .filter(|number| (min..=max).contains(number))
            .ok_or_else(|| format!("is {number}; it must be from {min} to {max}")),
        _ => Err(format!("takes a whole number from {min} to {max}, without quotes")),
    }
}

fn duration(given: Given<'_>) -> Result<Duration, String> {
    match given {
        Given::Text(text) => parse_duration(text),
        _ => Err("takes a duration with its unit, in quotes, as in \"60s\"".into()),
    }
}

/// A duration to wait: more than zero, and bounded.
fn time(given: Given<'_>) -> Result<Duration, String> {
    let time = duration(given)?;
    let fits = (Duration::from_millis(100)..=Duration::from_secs(86_400)).contains(&time);
    if fits { Ok(time) } else { Err("must be from 100 ms to 1 d".into()) }
}

/// `None` for `"auto"`, otherwise what `read` makes of it.
fn auto_or<'a, T>(given: Given<'a>, read: impl FnOnce(Given<'a>) -> Result<T, String>) -> Result<Option<T>, String> {
    if given == Given::Text("auto") { Ok(None) } else { read(given).map(Some) }
}

fn size(given: Given<'_>, min: u64, max: u64) -> Result<u64, String> {
    match given {
        Given::Text(text) => {
            let size = parse_size(text)?;
            if (min..=max).contains(&size) {
                Ok(size)
            } else {
                let show = super::units::show_size;
                Err(format!("is {text}; it must be from {} to {}", show(min), show(max)))
            }
        }
        _ => Err("takes a size with its unit, in quotes, as in \"64MiB\"".into()),
    }
}
