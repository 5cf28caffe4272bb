//! Whose VOMS attributes count: `.lsc` files, `vomsdir/VO/HOST.lsc`.

use std::collections::HashMap;

/// Most names in one file.
const NAMES_MAX: usize = 256;

/// A file of `vomsdir`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct VomsServer {
    /// The virtual organization: the name of the file's directory.
    pub vo: String,
    /// The server's host: the name of the file.
    pub host: String,
    /// The content.
    pub text: String,
}

/// The servers of all organizations. A file may have several chains of names, one of which must be that of the signer: its
/// subject, then its issuer, and so on.
#[derive(Debug, Default)]
pub(crate) struct VomsServers(HashMap<(String, String), Vec<Vec<String>>>);

impl VomsServers {
    pub fn new(files: &[VomsServer]) -> Self {
        let mut servers: HashMap<_, Vec<_>> = HashMap::new();
        for file in files {
            servers.entry((file.vo.clone(), file.host.to_ascii_lowercase())).or_default().extend(chains(&file.text));
        }
        Self(servers)
    }

    /// The chains of a server; `None` if it has no file.
    pub fn chains(&self, vo: &str, host: &str) -> Option<&[Vec<String>]> {
        self.0.get(&(vo.to_owned(), host.to_ascii_lowercase())).map(Vec::as_slice)
    }
}

fn chains(text: &str) -> Vec<Vec<String>> {
    let mut chains = vec![Vec::new()];
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).take(NAMES_MAX) {
        if line.starts_with('-') {
            chains.push(Vec::new());
        } else if let Some(chain) = chains.last_mut() {
            chain.push(line.trim_matches('"').to_owned());
        }
    }
    chains.retain(|chain| !chain.is_empty());
    chains
}
