//! The peers that Debian packages. Each is a [`Plan`] with the settings that an administrator of a single server would choose.

mod glusterfs;
mod moosefs;
mod nfs;
mod nginx;
mod weir;
mod xrootd;

use super::plan::{Plan, Site};
use crate::options::Peer;

/// The plan of `peer` at `site`.
pub fn plan(peer: Peer, site: &Site<'_>) -> Plan {
    match peer {
        Peer::Xrootd => xrootd::plan(site),
        Peer::Glusterfs => glusterfs::plan(site),
        Peer::Moosefs => moosefs::plan(site),
        Peer::Nfs => nfs::plan(site),
        Peer::Nginx => nginx::plan(site),
        Peer::Weir => weir::plan(site),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::plan::Step;
    use super::*;

    fn all() -> Vec<(Peer, Plan)> {
        let site = Site { folder: Path::new("/tb/peer"), address: "198.18.7.2", weir: Path::new("/usr/bin/weir") };
        Peer::ALL.iter().map(|peer| (*peer, plan(*peer, &site))).collect()
    }

    #[test]
    fn peers_stay_within_their_folder_and_address() {
        for (peer, plan) in all() {
            assert!(!plan.systems.is_empty(), "{peer:?}");
            for system in &plan.systems {
                assert!(system.place.contains("198.18.7.2") || system.place.starts_with("/tb/peer/"), "{system:?}");
            }
            for step in &plan.steps {
                if let Step::Mount { at, .. } = step {
                    assert!(at.starts_with("/tb/peer/"), "{step:?}");
                }
                if let Step::Serve { binds, .. } = step {
                    assert!(binds.iter().all(|(from, _)| from.starts_with("/tb/peer/")), "{step:?}");
                }
            }
        }
    }

    #[test]
    fn a_server_answers_before_it_is_used() {
        for (peer, plan) in all() {
            let served = plan.steps.iter().position(|step| matches!(step, Step::Serve { .. }));
            let used = plan.steps.iter().position(|step| matches!(step, Step::Mount { .. } | Step::Enter { .. }));
            let waited = plan.steps.iter().position(|step| matches!(step, Step::Port(_)));
            assert!(served < waited && used.is_none_or(|used| waited < Some(used)), "{peer:?}: {:?}", plan.steps);
        }
    }

    #[test]
    fn folders_of_written_and_bound_files_are_made() {
        for (peer, plan) in all() {
            let known =
                |path: &str| plan.folders.iter().any(|folder| path.starts_with(&format!("/tb/peer/{}", folder.name)));
            for step in &plan.steps {
                let paths = match step {
                    Step::Serve { binds, .. } => binds.iter().map(|(from, _)| from.clone()).collect(),
                    Step::Mount { at, .. } => vec![at.display().to_string()],
                    _ => Vec::new(),
                };
                assert!(paths.iter().all(|path| known(path)), "{peer:?}: {paths:?}");
            }
        }
    }
}
