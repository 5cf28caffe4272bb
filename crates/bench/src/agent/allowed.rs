//! What a campaign may use of an agent's machine besides the trial's own folder: nothing, unless whoever starts the agent says so.

use std::path::{Path, PathBuf};

use crate::workload::{LocalFile, Workload};

/// What is allowed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Allowed {
    /// Directories in which ROOT files and recordings may be read, and copies be kept for as long as a job takes.
    pub files: Vec<PathBuf>,
    /// Whether fio, xrdcp and iperf3 may be run.
    pub tools: bool,
}

impl Allowed {
    /// Whether `phase` keeps within it; says what would have to be allowed otherwise.
    pub(super) fn check(&self, phase: &dyn Workload) -> Result<(), String> {
        if phase.runs_a_tool() && !self.tools {
            return Err("it would run another program; the agent allows that with --tools".to_owned());
        }
        for file in phase.local_files() {
            let (path, also) = match &file {
                LocalFile::Read(path) => (path, None),
                LocalFile::Scratch(path) => (path, Some(std::env::temp_dir())),
            };
            if !self.files.iter().chain(&also).any(|allowed| is_below(path, allowed)) {
                return Err(format!(
                    "{}: no file there may be used; the agent allows that with --files DIRECTORY",
                    path.display()
                ));
            }
        }
        Ok(())
    }
}

/// With all links followed, so that none leads out of it.
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
