//! The shared secret. Its keytab is looked for at each login, where the stock client looks (`Load_Client` in
//! `XrdSecProtocolsss.cc`): `XrdSecSSSKT`, `XrdSecsssKT`, `~/.xrd/sss.keytab`. Unlike there, a keytab that a variable names and that
//! does not exist is an error, and a server cannot name one.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sss::{Client, RANDOM_LEN, check_offer, credential, read_keytab};

/// What the stock client says about its user if the program has not said it. Only keys for any user let a client choose.
const USER: &str = "nobody";
const GROUPS: &str = "nogroup";

/// Returns the bytes that are shown to a server.
///
/// # Errors
/// Why there are none.
pub(super) fn bytes(parameters: &[u8], address: Option<SocketAddr>) -> Result<Vec<u8>, String> {
    let is_second = check_offer(parameters).map_err(|error| error.to_string())?;
    let path = keytab_path(&|name| std::env::var_os(name))?;
    let keytab = read_keytab(&path).map_err(|error| error.to_string())?;
    let now = SystemTime::now().into();
    let key = keytab.of_client(now).ok_or_else(|| format!("all keys in the keytab {} have expired", path.display()))?;
    let address = address.ok_or("the address of this machine is not known")?;
    let client = Client { user: USER, groups: GROUPS, address };
    Ok(credential(key, &client, is_second, now, &rand::random::<[u8; RANDOM_LEN]>()))
}

fn keytab_path(variable: &dyn Fn(&str) -> Option<OsString>) -> Result<PathBuf, String> {
    let given = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(path) = given("XrdSecSSSKT").or_else(|| given("XrdSecsssKT")) {
        return Ok(path.into());
    }
    let usual = given("HOME").map(|home| Path::new(&home).join(".xrd/sss.keytab")).filter(|path| path.exists());
    usual.ok_or_else(|| "no keytab was found: set XrdSecSSSKT, or put it to ~/.xrd/sss.keytab".to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn the_keytab_is_where_the_stock_client_looks() {
        let home = tempfile::tempdir().unwrap();
        let found = |variables: &[(&str, &Path)]| {
            let of = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
            keytab_path(&of).map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
        };
        let (a, b, at_home) = (Path::new("/x/a"), Path::new("/x/b"), ("HOME", home.path()));
        assert_eq!(found(&[("XrdSecsssKT", b), ("XrdSecSSSKT", a), at_home]).unwrap(), "a");
        assert_eq!(found(&[("XrdSecsssKT", b), ("XrdSecSSSKT", Path::new("")), at_home]).unwrap(), "b");
        assert!(found(&[at_home]).unwrap_err().contains("XrdSecSSSKT"));
        std::fs::create_dir(home.path().join(".xrd")).unwrap();
        std::fs::write(home.path().join(".xrd/sss.keytab"), "").unwrap();
        assert_eq!(found(&[at_home]).unwrap(), "sss.keytab");
        assert!(found(&[]).is_err());
    }
}
