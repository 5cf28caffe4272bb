//! Passwords in a file, as libpq has them: lines `host:port:database:user:password`, where `*` matches everything and a backslash
//! keeps the next character.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// The largest file that is read.
const FILE_MAX: u64 = 1 << 20;

/// The password for the first host of `config` that has one in the file.
///
/// # Errors
/// A sentence: the file cannot be read, others can read it, or it has no line that matches.
pub(crate) fn password(path: &Path, config: &Config) -> Result<String, String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if about.permissions().mode() & 0o077 != 0 {
        return Err("others can read or change it; run `chmod 600` on it".into());
    }
    if about.len() > FILE_MAX {
        return Err(format!("it has {} bytes; at most {FILE_MAX} are read", about.len()));
    }
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    found(&text, config).ok_or_else(|| {
        "it has no line for this host, port, database and user (host:port:database:user:password)".into()
    })
}

fn found(text: &str, config: &Config) -> Option<String> {
    let ports = config.get_ports();
    let wanted = config.get_hosts().iter().enumerate().map(|(place, host)| {
        let name = match host {
            Host::Tcp(name) => name.clone(),
            Host::Unix(_) => "localhost".into(),
        };
        (name, ports.get(place).or(ports.first()).copied().unwrap_or(5432).to_string())
    });
    let (database, user) = (config.get_dbname().unwrap_or_default(), config.get_user().unwrap_or_default());
    for (host, port) in wanted {
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let fields = fields(line);
            let [for_host, for_port, for_database, for_user, password] = fields.as_slice() else { continue };
            let matches = |field: &str, value: &str| field == "*" || field == value;
            let is_same = matches(for_host, &host) && matches(for_port, &port);
            if is_same && matches(for_database, database) && matches(for_user, user) {
                return Some(password.clone());
            }
        }
    }
    None
}

fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        // The password is the last field and may have colons.
        if char == ':' && fields.len() < 5 {
            fields.push(String::new());
            continue;
        }
        let char = if char == '\\' { chars.next().unwrap_or('\\') } else { char };
        if let Some(last) = fields.last_mut() {
            last.push(char);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        text.parse().unwrap()
    }

    #[test]
    fn the_first_line_that_matches_has_the_password() {
        let text = "# a comment\nother:5432:weir:w:no\ndb1:*:weir:w:a\\:b\\\\c\n*:*:*:*:last:one\n";
        assert_eq!(found(text, &config("postgres://w@db1:9/weir")).unwrap(), "a:b\\c");
        assert_eq!(found(text, &config("postgres://x@db1/weir")).unwrap(), "last:one");
        assert_eq!(found("db1:5432:weir:w:a", &config("postgres://w@db2/weir")), None);
        assert_eq!(found("db2:5432:weir:w:a", &config("postgres://w@db1,db2/weir")).unwrap(), "a");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let dir = std::env::temp_dir().join(format!("weir-passfile-{}", std::process::id()));
        fs::write(&dir, "*:*:*:*:secret").unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o644)).unwrap();
        let said = password(&dir, &config("postgres://w@db1/weir")).unwrap_err();
        assert!(said.contains("chmod 600"), "{said}");
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o600)).unwrap();
        assert_eq!(password(&dir, &config("postgres://w@db1/weir")).unwrap(), "secret");
        fs::remove_file(&dir).unwrap();
    }
}
