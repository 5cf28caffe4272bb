//! The managers that a disk server knows: those of its settings, and those that a manager has told it. It keeps a connection with each of them. What it was
//! told is in `node/managers`, so that it finds a manager again after a restart, whichever is active then.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use disk_server::OnManagers;
use node::ManagerAddress;
use node::links::Links;
use types::NodeId;

use crate::exit::Exit;
use crate::{Failure, managers_file};

/// The addresses as [`Links::keep_managers`] takes them, each once. Those of the settings come first, and stay whatever a manager tells.
fn all(configured: &[String], told: &[ManagerAddress]) -> Vec<(String, Option<NodeId>)> {
    let node_at = |address: &str| told.iter().find(|manager| manager.nodes_at == address).map(|manager| manager.node);
    let mut all: Vec<(String, Option<NodeId>)> = Vec::new();
    let addresses = configured.iter().chain(told.iter().map(|manager| &manager.nodes_at));
    for address in addresses {
        if !all.iter().any(|(known, _)| known == address) {
            all.push((address.clone(), node_at(address)));
        }
    }
    all
}

/// Told by its node, takes over the addresses in a thread of its own, because it writes a file.
pub(crate) struct KnownManagers {
    links: Arc<Links>,
    configured: Vec<String>,
    /// What the file has.
    kept: Vec<String>,
    data: PathBuf,
}

impl KnownManagers {
    /// Connects with the managers of the settings, and with those of the file. Returns what takes the addresses that a manager tells.
    ///
    /// # Errors
    /// Without settings, the file must be there.
    pub(crate) fn start(links: &Arc<Links>, configured: &[String], data: &Path) -> Result<OnManagers, Failure> {
        let kept = match managers_file::read(data) {
            Ok(kept) => kept,
            Err(_) if !configured.is_empty() => Vec::new(),
            Err(failure) => return Err(failure),
        };
        let first: Vec<(String, Option<NodeId>)> = configured
            .iter()
            .chain(kept.iter().filter(|kept| !configured.contains(kept)))
            .map(|address| (address.clone(), None))
            .collect();
        links.keep_managers(&first);
        let (teller, told) = channel();
        let (links, configured, data) = (Arc::clone(links), configured.to_vec(), data.to_owned());
        let mut this = Self { links, configured, kept, data };
        std::thread::Builder::new()
            .name("managers".into())
            .spawn(move || this.follow(&told))
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot keep connections with managers"))?;
        Ok(on_managers(teller))
    }

    fn follow(&mut self, told: &Receiver<Vec<ManagerAddress>>) {
        while let Ok(managers) = told.recv() {
            self.take(managers);
        }
    }

    fn take(&mut self, mut told: Vec<ManagerAddress>) {
        // Each line of the file is an address, and one that is none would make it unreadable.
        told.retain(|manager| {
            let is_plain = !manager.nodes_at.contains(|c: char| c.is_control() || c.is_whitespace());
            is_plain && config::keys::address(&manager.nodes_at).is_ok()
        });
        if told.is_empty() {
            return;
        }
        let addresses: Vec<String> = all(&[], &told).into_iter().map(|(address, _)| address).collect();
        if addresses != self.kept {
            match managers_file::write(&self.data, &addresses) {
                Ok(()) => {
                    tracing::info!(managers = addresses.join(" "), "the managers of the cluster");
                    self.kept = addresses;
                }
                // It is written when a manager tells them again. They count until then, too.
                Err(error) => tracing::error!(%error, "the addresses of the managers could not be kept"),
            }
        }
        self.links.keep_managers(&all(&self.configured, &told));
    }
}

fn on_managers(teller: Sender<Vec<ManagerAddress>>) -> OnManagers {
    // The thread is gone only when the node stops.
    Box::new(move |managers| _ = teller.send(managers))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(node: u64, nodes_at: &str) -> ManagerAddress {
        ManagerAddress { node: NodeId(node), nodes_at: nodes_at.to_owned(), clients_at: None }
    }

    #[test]
    fn settings_stay_and_what_is_told_is_added() {
        let configured = ["vip:1".to_owned(), "m1:1".to_owned()];
        let all = all(&configured, &[told(1, "m1:1"), told(9, "m2:1"), told(9, "m2:1")]);
        let at = |address: &str, node: Option<u64>| (address.to_owned(), node.map(NodeId));
        assert_eq!(all, [at("vip:1", None), at("m1:1", Some(1)), at("m2:1", Some(9))]);
    }

    #[test]
    fn what_is_told_is_in_the_file_and_replaces_what_was_told_before() {
        let (temp, cluster) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let now = types::Timestamp(1_800_000_000_000_000_000);
        let authority = link::Authority::create(cluster.path(), types::ClusterId(1), now).unwrap();
        let day = std::time::Duration::from_secs(86_400);
        let identity = link::Identity::issue(&authority, NodeId(2), link::Roles::DISK, now, day).unwrap();
        let credentials = Arc::new(link::Credentials::new(&identity).unwrap());
        let links = Links::new(link::LocalNode::new(credentials, link::Settings::default()));
        managers_file::write(temp.path(), &["old:1".to_owned()]).unwrap();
        let (configured, data) = (vec!["vip:1".to_owned()], temp.path().to_owned());
        let mut known = KnownManagers { links, configured, kept: vec!["old:1".into()], data };
        let file = || managers_file::read(temp.path()).unwrap();
        known.take(vec![told(1, "m1:1"), told(9, "m2:1")]);
        assert_eq!(file(), ["m1:1", "m2:1"]);
        known.take(vec![told(9, "m2:1"), told(1, "no address"), told(1, "a:1\nb:2"), told(1, "a\nb:2")]);
        assert_eq!(file(), ["m2:1"], "whatever a manager tells, the file can be read");
        known.take(vec![told(1, "")]);
        assert_eq!(file(), ["m2:1"]);
        // The node has not started, so no address is dialed.
        known.links.stop("the test is over", std::time::Duration::from_secs(1));
    }
}
