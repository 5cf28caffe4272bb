//! Tests of the whole index, on simulated disks with crashes and on real ones.

mod backup;
mod committer;
mod faults;
mod foreign;
mod fragile;
mod lsm;
mod model;
mod real;
mod verify;
mod without_journal;
mod world;

use std::sync::Arc;

/// How many seeds to try: `usual`, unless `WEIR_SEEDS` is set.
pub(crate) fn seeds(usual: u64) -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The seeds to try: from 0 on, or from `WEIR_SEED` on.
pub(crate) fn range_of_seeds(usual: u64) -> std::ops::Range<u64> {
    let first = std::env::var("WEIR_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    first..first + seeds(usual)
}

/// Child processes: this binary again, running one test until it is killed.
pub(crate) mod child {
    use std::path::{Path, PathBuf};
    use std::process::{Child, ChildStderr, Command, Stdio};

    const ROLE: &str = "WEIR_KV_CHILD";
    const DIR: &str = "WEIR_KV_DIR";

    /// The working directory, if this process is a child with that role.
    pub(crate) fn dir(role: &str) -> Option<PathBuf> {
        (std::env::var(ROLE).ok()? == role).then(|| PathBuf::from(std::env::var_os(DIR).unwrap_or_default()))
    }

    pub(crate) struct Running(Child);

    pub(crate) fn start(test: &str, role: &str, dir: &Path) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role).env(DIR, dir);
        Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Like [`start`], with the child's standard error in a pipe.
    pub(crate) fn start_listening(test: &str, role: &str, dir: &Path) -> Running {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, role).env(DIR, dir);
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    impl Running {
        pub(crate) fn stderr(&mut self) -> ChildStderr {
            self.0.stderr.take().unwrap()
        }

        /// Sends SIGKILL. Panics if the child ended by itself, because then it has failed.
        pub(crate) fn kill(mut self) {
            assert!(self.0.try_wait().unwrap().is_none(), "the child ended by itself");
            self.0.kill().unwrap();
            self.0.wait().unwrap();
        }
    }

    impl Drop for Running {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

/// Bugs that the tests must find.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlantedBug {
    /// The committer answers when the record is appended.
    AcknowledgeBeforeSync,
    /// The journal is trimmed by the engine's position alone, without a checkpoint.
    TrimTooEarly,
    /// The sweeper moves changes that the journal might lose.
    ApplyBeforeDurable,
    /// Deletions are dropped when deltas are merged among themselves.
    LoseTombstoneInMerge,
    /// A checkpoint file counts without having been read back.
    SkipCheckpointVerify,
    /// The cache does not learn of changes.
    CacheNotInvalidated,
}

type PathHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Called with the path of a checkpoint file after its write and before its verification.
#[derive(Clone, Default)]
pub(crate) struct BeforeVerify(pub(crate) Option<PathHook>);

impl std::fmt::Debug for BeforeVerify {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.0.is_some() { "BeforeVerify(set)" } else { "BeforeVerify(none)" })
    }
}
