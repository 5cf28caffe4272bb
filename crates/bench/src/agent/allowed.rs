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
    use crate::workload::{DEFAULT_PYTHON, UprootSpec};

    #[test]
    fn a_campaign_does_not_choose_what_an_agent_runs() {
        let spec = |python: &str| -> UprootSpec {
            serde_json::from_value(serde_json::json!({
                "work": {
                    "phase": "analyse", "source": {"root-file": {"path": "/", "tree": null, "branches": ["*"]}},
                    "copies": 1, "order": "ordered", "jobs": 1, "events_millionths": 1_000_000, "mode": "vector",
                    "cache_bytes": 1000, "added_round_trip_us": 0, "round_trip_us": 0, "decompress": true,
                    "compute_us_per_mb": 0, "gaps": "skip", "scratch": "/", "seed": 1
                },
                "with": "auto", "python": python
            }))
            .unwrap()
        };
        let allowed = Allowed { files: vec!["/".into()], tools: true };
        assert_eq!(allowed.check(&spec(DEFAULT_PYTHON)), Ok(()));
        let said = allowed.check(&spec("/tmp/anything")).unwrap_err();
        assert!(said.contains("/tmp/anything") && said.contains("python3"), "{said}");
        assert!(Allowed { tools: false, ..allowed }.check(&spec(DEFAULT_PYTHON)).is_err());
    }

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
