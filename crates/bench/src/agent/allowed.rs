//! What a campaign may use of an agent's machine besides the trial's own folder. That is nothing, unless the person
//! who starts the agent allows more.

use std::path::{Path, PathBuf};

use crate::workload::{LocalFile, Workload};

/// The permissions of an agent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    /// Directories in which jobs may read ROOT files and recordings, and keep copies while they run.
    pub files: Vec<PathBuf>,
    /// Whether jobs may run fio, xrdcp, iperf3 and uproot.
    pub tools: bool,
}

impl Allowed {
    /// Checks that `phase` needs no more than this. The error says what would have to be allowed.
    pub(super) fn check(&self, phase: &dyn Workload) -> Result<(), String> {
        if phase.runs_a_tool() && !self.tools {
            return Err("the phase runs another program; start the agent with --tools to allow that".to_owned());
        }
        for file in phase.local_files() {
            let (path, also) = match &file {
                LocalFile::Read(path) => (path, None),
                LocalFile::Scratch(path) => (path, Some(std::env::temp_dir())),
                // A campaign must not choose what an agent executes.
                LocalFile::Run(path) => {
                    return Err(format!(
                        "{}: an agent runs only the `python3` of its own search path; leave `python` out of the campaign",
                        path.display()
                    ));
                }
            };
            if !self.files.iter().chain(&also).any(|allowed| is_below(path, allowed)) {
                return Err(format!(
                    "{}: the agent may not use files there; start it with --files DIRECTORY to allow that",
                    path.display()
                ));
            }
        }
        Ok(())
    }
}

/// Resolves all links, so that no link leads out of the allowed directory.
fn is_below(path: &Path, allowed: &Path) -> bool {
    match (path.canonicalize(), allowed.canonicalize()) {
        (Ok(path), Ok(allowed)) => path.starts_with(allowed),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_leads_nowhere_else() {
        let temp = tempfile::tempdir().unwrap();
        let (allowed, other) = (temp.path().join("allowed"), temp.path().join("other"));
        for folder in [&allowed, &other] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(other.join("file"), allowed.join("link")).unwrap();
        assert!(is_below(&allowed.join("file"), &allowed) && is_below(&allowed, &allowed));
        for path in ["link", "../other/file", "missing"] {
            assert!(!is_below(&allowed.join(path), &allowed), "{path}");
        }
        assert!(!is_below(&other.join("file"), &allowed) && !is_below(&allowed, &temp.path().join("missing")));
    }
}
