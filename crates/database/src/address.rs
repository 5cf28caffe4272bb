//! Where the database is: `postgres://user@db1,db2/weir?target_session_attrs=read-write`.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::passfile;

/// Why an address is refused. No message has the password.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It does not begin with `postgres://`.
    #[error("the address of a database begins with `postgres://`, as in `postgres://weir@db1.example.org/weir`")]
    Scheme,
    /// The client library does not understand it.
    #[error("cannot read the address of the database: {0}")]
    Syntax(String),
    /// A parameter has a value that it cannot have.
    #[error("`{name}={value}` in the address of the database: use {expected}")]
    Parameter {
        /// The parameter.
        name: &'static str,
        /// What it was set to.
        value: String,
        /// What it can be.
        expected: &'static str,
    },
    /// A part that the address must have is missing.
    #[error("the address of the database has no {0}; write it as `postgres://weir@db1.example.org/weir`")]
    Missing(&'static str),
    /// The file with the password cannot be used.
    #[error("cannot use the password file {}: {reason}", path.display())]
    Passfile {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// How soon a silent network is noticed, unless the address says otherwise: while an answer is awaited, and while data waits to be taken.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);
const KEEPALIVE_RETRIES: u32 = 3;
const UNTAKEN: Duration = Duration::from_secs(5);

/// Whether connections are encrypted, and whether the server's certificate is checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Encryption {
    /// Never.
    Off,
    /// If the server offers it.
    IfOffered,
    /// Always.
    Required,
}

/// The address of a database, and how to reach it. Its text ([`fmt::Display`]) has no password.
#[derive(Clone)]
pub struct DatabaseAddress {
    pub(crate) config: Config,
    pub(crate) encryption: Encryption,
    /// Whom to trust instead of the system's authorities.
    pub(crate) root_certificates: Option<PathBuf>,
    shown: String,
}

impl DatabaseAddress {
    /// One configuration for each host.
    pub(crate) fn hosts(&self) -> Vec<Config> {
        let all = &self.config;
        let ports = all.get_ports();
        let one = |(place, host): (usize, &Host)| {
            let mut one = Config::new();
            match host {
                Host::Tcp(name) => one.host(name),
                Host::Unix(path) => one.host_path(path),
            };
            // `hostaddr` goes with its host.
            if let Some(address) = all.get_hostaddrs().get(place) {
                one.hostaddr(*address);
            }
            if let Some(port) = ports.get(place).or(ports.first()) {
                one.port(*port);
            }
            if let Some(user) = all.get_user() {
                one.user(user);
            }
            if let Some(password) = all.get_password() {
                one.password(password);
            }
            if let Some(name) = all.get_dbname() {
                one.dbname(name);
            }
            if let Some(options) = all.get_options() {
                one.options(options);
            }
            if let Some(name) = all.get_application_name() {
                one.application_name(name);
            }
            if let Some(timeout) = all.get_tcp_user_timeout() {
                one.tcp_user_timeout(*timeout);
            }
            if let Some(interval) = all.get_keepalives_interval() {
                one.keepalives_interval(interval);
            }
            if let Some(retries) = all.get_keepalives_retries() {
                one.keepalives_retries(retries);
            }
            one.keepalives(all.get_keepalives());
            one.keepalives_idle(all.get_keepalives_idle());
            one.ssl_mode(all.get_ssl_mode());
            one.ssl_negotiation(all.get_ssl_negotiation());
            one.channel_binding(all.get_channel_binding());
            one.target_session_attrs(all.get_target_session_attrs());
            one
        };
        all.get_hosts().iter().enumerate().map(one).collect()
    }

    /// The name of the database.
    #[must_use]
    pub fn database(&self) -> &str {
        self.config.get_dbname().unwrap_or_default()
    }

    /// Whether connections are always encrypted, and the server's certificate is checked.
    #[must_use]
    pub fn is_encrypted(&self) -> bool {
        self.encryption == Encryption::Required
    }

    /// The account.
    #[must_use]
    pub fn user(&self) -> &str {
        self.config.get_user().unwrap_or_default()
    }
}

impl FromStr for DatabaseAddress {
    type Err = AddressError;

    /// Takes the addresses that libpq takes, with `sslrootcert` and `passfile`. `sslmode` is `disable`, `prefer`, `require` or
    /// `verify-full`; the last three check the certificate and the name of the server, if there is encryption. Without it,
    /// connections that leave the machine are encrypted, and those within it are not. Of several hosts, the one that accepts
    /// changes is used.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
            return Err(AddressError::Scheme);
        }
        let (before, query) = text.split_once('?').unwrap_or((text, ""));
        let (mut kept, mut mode, mut root_certificates, mut passfile) = (Vec::new(), None, None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = Some(encryption(value)?),
                Some(("sslrootcert", value)) => root_certificates = Some(PathBuf::from(decoded(value))),
                Some(("passfile", value)) => passfile = Some(PathBuf::from(decoded(value))),
                _ => kept.push(pair),
            }
        }
        let rest = if kept.is_empty() { before.to_owned() } else { format!("{before}?{}", kept.join("&")) };
        let mut config = Config::from_str(&rest).map_err(|error| AddressError::Syntax(syntax(&error)))?;
        // A password with an `@` makes its rest a part of the host, which is shown.
        if config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(name) if name.contains('@'))) {
            return Err(AddressError::Syntax(UNESCAPED.into()));
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(AddressError::Missing("name of the database"));
        }
        if config.get_user().is_none_or(str::is_empty) {
            return Err(AddressError::Missing("user"));
        }
        if config.get_hosts().is_empty() {
            return Err(AddressError::Missing("host"));
        }
        let encryption = mode.unwrap_or(if leaves_machine(&config) { Encryption::Required } else { Encryption::Off });
        config.ssl_mode(match encryption {
            Encryption::Off => SslMode::Disable,
            Encryption::IfOffered => SslMode::Prefer,
            Encryption::Required => SslMode::Require,
        });
        if config.get_application_name().is_none() {
            config.application_name("weir");
        }
        let is_given = |name: &str| kept.iter().any(|pair| pair.starts_with(name));
        if !is_given("target_session_attrs") {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        if !is_given("keepalives") {
            config.keepalives_idle(KEEPALIVE_IDLE);
            config.keepalives_interval(KEEPALIVE_INTERVAL);
            config.keepalives_retries(KEEPALIVE_RETRIES);
        }
        if !is_given("tcp_user_timeout") {
            config.tcp_user_timeout(UNTAKEN);
        }
        let shown = shown(&config);
        if let (None, Some(path)) = (config.get_password(), passfile) {
            let found = passfile::password(&path, &config);
            let password = found.map_err(|reason| AddressError::Passfile { path, reason })?;
            config.password(password);
        }
        Ok(Self { config, encryption, root_certificates, shown })
    }
}

impl fmt::Display for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseAddress({})", self.shown)
    }
}

fn encryption(value: &str) -> Result<Encryption, AddressError> {
    match value {
        "disable" => Ok(Encryption::Off),
        "prefer" => Ok(Encryption::IfOffered),
        "require" | "verify-full" => Ok(Encryption::Required),
        _ => Err(AddressError::Parameter {
            name: "sslmode",
            value: value.to_owned(),
            expected: "disable, prefer, require or verify-full",
        }),
    }
}

const UNESCAPED: &str = "it has parts that do not belong there; write `@`, `/`, `?`, `#` and `:` in a password as `%40`, `%2F`, `%3F`, `%23` and `%3A`, or keep the password in a file (`passfile=PATH`)";

/// The reason without the address, which may have a password.
fn syntax(error: &tokio_postgres::Error) -> String {
    match std::error::Error::source(error).map(ToString::to_string) {
        // A part of a password may pass for a parameter, so it is not repeated.
        Some(reason) if reason.contains("unknown option") => format!("it has an unknown parameter, or {UNESCAPED}"),
        Some(reason) => reason,
        None => "it is not valid".into(),
    }
}

/// Whether a host is on another machine, as far as the address says.
fn leaves_machine(config: &Config) -> bool {
    config.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => name != "localhost" && !name.parse::<IpAddr>().is_ok_and(|at| at.is_loopback()),
        Host::Unix(_) => false,
    })
}

fn shown(config: &Config) -> String {
    let ports = config.get_ports();
    let port = |place: usize| ports.get(place).or(ports.first()).copied().unwrap_or(5432);
    let hosts: Vec<String> = config
        .get_hosts()
        .iter()
        .enumerate()
        .map(|(place, host)| match host {
            Host::Tcp(name) => format!("{name}:{}", port(place)),
            Host::Unix(path) => path.display().to_string(),
        })
        .collect();
    let (user, name) = (config.get_user().unwrap_or_default(), config.get_dbname().unwrap_or_default());
    format!("postgres://{user}@{}/{name}", hosts.join(","))
}

/// The text without percent signs and two digits.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (byte, digits) {
            (b'%', Some(value)) => {
                out.push(value);
                at += 3;
            }
            _ => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Result<DatabaseAddress, AddressError> {
        text.parse()
    }

    #[test]
    fn the_text_of_an_address_has_no_password() {
        let parsed = address("postgres://weir:secret@db1:5433,db2:5434/weir?target_session_attrs=read-write").unwrap();
        assert_eq!(parsed.to_string(), "postgres://weir@db1:5433,db2:5434/weir");
        assert!(!format!("{parsed:?}").contains("secret"));
        assert_eq!((parsed.user(), parsed.database()), ("weir", "weir"));
    }

    #[test]
    fn connections_that_leave_the_machine_are_encrypted_unless_the_address_says_no() {
        let encryption = |text| address(text).unwrap().encryption;
        assert_eq!(encryption("postgres://w@db1/weir"), Encryption::Required);
        assert_eq!(encryption("postgres://w@127.0.0.1,db1/weir"), Encryption::Required);
        assert_eq!(encryption("postgres://w@127.0.0.1,localhost/weir"), Encryption::Off);
        assert_eq!(encryption("postgres://w@%2Fvar%2Frun%2Fpostgresql/weir"), Encryption::Off);
        assert_eq!(encryption("postgres://w@localhost/weir?sslmode=prefer"), Encryption::IfOffered);
        assert_eq!(encryption("postgres://w@db1/weir?sslmode=disable"), Encryption::Off);
        assert_eq!(encryption("postgres://w@127.0.0.1/weir?sslmode=verify-full"), Encryption::Required);
    }

    #[test]
    fn a_wrong_address_is_refused_with_the_reason_and_without_the_password() {
        for (text, expected) in [
            ("mysql://w@db/weir", "postgres://"),
            ("postgres://w@db", "name of the database"),
            ("postgres://db/weir", "no user"),
            ("postgres://w:secret@db/weir?sslmode=maybe", "verify-full"),
            ("postgres://w:secret@db/weir?colour=blue", "unknown parameter"),
            ("postgres://w:a@secret@db/weir", "%40"),
            ("postgres://w:secret@db:port/weir", "cannot read"),
        ] {
            let said = address(text).unwrap_err().to_string();
            assert!(said.contains(expected), "{text}: {said}");
            assert!(!said.contains("secret"), "{said}");
        }
    }

    #[test]
    fn each_host_gets_its_own_port_and_everything_else() {
        let parsed = address("postgres://w:pw@db1:5433,db2:5434/weir?connect_timeout=2").unwrap();
        let hosts = parsed.hosts();
        assert_eq!(hosts.len(), 2);
        for (one, (name, port)) in hosts.iter().zip([("db1", 5433), ("db2", 5434)]) {
            assert_eq!(one.get_hosts(), [Host::Tcp(name.into())]);
            assert_eq!(one.get_ports(), [port]);
            assert_eq!(
                (one.get_user(), one.get_password(), one.get_dbname()),
                (Some("w"), Some(&b"pw"[..]), Some("weir"))
            );
            assert_eq!(one.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
            assert_eq!(one.get_ssl_mode(), SslMode::Require);
            assert_eq!(one.get_tcp_user_timeout(), Some(&UNTAKEN));
        }
        let any = address("postgres://w@db1/weir?target_session_attrs=any&keepalives_idle=60").unwrap();
        assert_eq!(any.hosts()[0].get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(any.hosts()[0].get_keepalives_idle(), Duration::from_secs(60));
    }

    #[test]
    fn a_certificate_file_may_have_any_name() {
        let parsed = address("postgres://w@db/weir?sslrootcert=%2Fetc%2Fmy%20ca.pem").unwrap();
        assert_eq!(parsed.root_certificates, Some(PathBuf::from("/etc/my ca.pem")));
        assert_eq!(decoded("100%"), "100%");
    }
}
