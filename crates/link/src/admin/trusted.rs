//! What a person's machine keeps of a cluster that it administers with a token or a certificate of another authority: who its managers are. There is no secret in it.

use std::path::Path;

use crate::Fingerprint;
use crate::admin::AdminIdentityError;
use crate::admin::identity::MANAGERS_MAX;
use crate::secret_file::{Existing, FileError, SecretFile};

const KIND: SecretFile =
    SecretFile { first_line: "weir cluster 1", hint: "remove the context and add it again (`weir context add`)" };

/// A cluster whose managers have a certificate of this authority.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TrustedCluster {
    /// The fingerprint of the cluster's authority.
    pub authority: Fingerprint,
    /// Addresses of managers, as `host:port`.
    pub managers: Vec<String>,
}

impl TrustedCluster {
    /// Reads the file `path`; `None` if it is a file of another kind.
    ///
    /// # Errors
    /// The file is missing or damaged.
    pub fn read(path: &Path) -> Result<Option<Self>, AdminIdentityError> {
        if !KIND.is_kind(path) {
            return Ok(None);
        }
        let [authority, managers] = KIND.read(path, ["authority", "managers"])?;
        let damaged = |why| KIND.damaged(path, why);
        let authority = authority.parse().map_err(|_| damaged("its authority is no fingerprint"))?;
        let managers: Vec<String> = managers.split(' ').filter(|one| !one.is_empty()).map(str::to_owned).collect();
        if managers.is_empty() || managers.len() > MANAGERS_MAX {
            return Err(damaged("it has no addresses, or too many").into());
        }
        Ok(Some(Self { authority, managers }))
    }

    /// Writes the file `path` durably, replacing an existing one.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write(&self, path: &Path) -> Result<(), FileError> {
        let lines = [("authority", self.authority.to_string()), ("managers", self.managers.join(" "))];
        KIND.write(path, &lines, Existing::Replace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_read_back_and_others_are_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lab");
        let cluster =
            TrustedCluster { authority: Fingerprint([7; 32]), managers: vec!["a:1".into(), "[::1]:2".into()] };
        cluster.write(&path).unwrap();
        assert_eq!(TrustedCluster::read(&path).unwrap(), Some(cluster));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replace("0707", "0708")).unwrap();
        assert!(TrustedCluster::read(&path).unwrap_err().to_string().contains("checksum"));
        std::fs::write(&path, "weir administrator 1\n").unwrap();
        assert_eq!(TrustedCluster::read(&path).unwrap(), None);
        assert_eq!(TrustedCluster::read(&folder.path().join("none")).unwrap(), None);
        TrustedCluster { authority: Fingerprint([7; 32]), managers: Vec::new() }.write(&path).unwrap();
        assert!(TrustedCluster::read(&path).is_err());
    }
}
