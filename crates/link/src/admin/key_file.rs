//! The key with which an invitation is redeemed. It is in a file of its own before a manager sees it, and until the
//! identity is in its file: an invitation is good for one key, so a lost key would be a lost invitation.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::admin::AdminIdentityError;
use crate::secret_file::{Existing, FileError, SecretFile};
use crate::{AuthorityError, NewKey};

const KIND: SecretFile = SecretFile {
    first_line: "weir invitation's key 1",
    hint: "remove it and ask an administrator for a new invitation (`weir admin invite`)",
};

/// The key in the file `path`. Without one, a new key, which is in the file durably on return. Only its owner may read
/// the file and its folder, which is made if needed.
///
/// # Errors
/// The file cannot be written, or it is damaged or readable by others.
pub fn key_to_redeem(path: &Path) -> Result<NewKey, AdminIdentityError> {
    match read(path) {
        Err(FileError::Missing { .. }) => {}
        other => return Ok(other?),
    }
    let key = NewKey::draw().map_err(AuthorityError::from)?;
    match KIND.write(path, &[("key", STANDARD.encode(&key.pkcs8))], Existing::Keep) {
        // Another process has made one meanwhile, and may have shown it to a manager.
        Err(FileError::Exists(_)) => Ok(read(path)?),
        other => Ok(other.map(|()| key)?),
    }
}

fn read(path: &Path) -> Result<NewKey, FileError> {
    let [key] = KIND.read(path, ["key"])?;
    let pkcs8 = STANDARD.decode(key).map_err(|_| KIND.damaged(path, "its key is not base64"))?;
    NewKey::from_pkcs8(&pkcs8).ok_or_else(|| KIND.damaged(path, "its key is none"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_stays_the_same_until_its_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("contexts/.key");
        let key = key_to_redeem(&path).unwrap().public();
        assert_eq!(key_to_redeem(&path).unwrap().public(), key);
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        std::fs::remove_file(&path).unwrap();
        assert!(key_to_redeem(&path).unwrap().public() != key);
        std::fs::write(&path, "weir invitation's key 1\nkey AAAA\n").unwrap();
        assert!(key_to_redeem(&path).unwrap_err().to_string().contains("ask an administrator for a new invitation"));
    }
}
