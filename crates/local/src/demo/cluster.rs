//! The demo's cluster. The demo drives it with the commands that a person would use (`weir local`, `weir policy set`). Each node is a
//! process of its own; all end when this is dropped.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use cluster::Presence;
use manager::{FileView, StatusView};

use super::DemoError;
use super::child::{self, Outcome, Stop};
use crate::plan::MANAGER;
use control::ControlRequest;
use control::client::ask_long;

/// Number of disk servers.
pub const DISKS: usize = 4;
/// `weir local` bounds its own waits; this is longer than any of them.
const PATIENCE: Duration = Duration::from_secs(150);

/// A cluster in a folder.
#[derive(Debug)]
pub struct Cluster {
    dir: PathBuf,
    /// Where clients reach it: `root://HOST:PORT/`, or `root://HOST:PORT,HOST:PORT//` with several managers.
    pub base: String,
    managers: u16,
    is_up: bool,
}

impl Cluster {
    /// Starts the nodes, with a database if the number of managers is given, and waits until they are ready.
    pub fn up(dir: &Path, managers: Option<u16>) -> Result<Self, DemoError> {
        // From here on the nodes are stopped also after an error.
        let mut cluster =
            Self { dir: dir.to_owned(), base: String::new(), managers: managers.unwrap_or(1), is_up: true };
        let (disks, count) = (DISKS.to_string(), cluster.managers.to_string());
        let mut command = vec!["up", "--disks", &disks, "--listen", "127.0.0.1:0"];
        if managers.is_some() {
            command.extend(["--managers", &count, "--database"]);
        }
        let said = cluster.local(&command)?;
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let base = said.trim_end().strip_prefix("weir: ready ");
        cluster.base = base.ok_or_else(|| DemoError::Wrong(format!("`weir local up` says `{said}`")))?.to_owned();
        Ok(cluster)
    }

    /// The URL of `path`.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base.trim_end_matches('/'))
    }

    /// Where stock clients reach it, which know no lists of managers: `root://HOST:PORT`.
    #[must_use]
    pub fn stock_base(&self) -> &str {
        self.base.split(',').next().unwrap_or_default().trim_end_matches('/')
    }

    /// The number of managers.
    #[must_use]
    pub fn managers(&self) -> u16 {
        self.managers
    }

    /// The name of the manager that is active; `None`: none is at the moment.
    #[must_use]
    pub fn active(&self) -> Option<String> {
        let is_active =
            |name: &String| ask_long::<StatusView>(&self.dir.join(name), &ControlRequest::ClusterStatus).is_ok();
        self.manager_names().find(is_active)
    }

    fn manager_names(&self) -> impl Iterator<Item = String> {
        (1..=self.managers).map(|number| if number == 1 { MANAGER.to_owned() } else { format!("{MANAGER}{number}") })
    }

    /// Sets the policy of the root.
    pub fn set_policy(&self, policy: &str) -> Result<(), DemoError> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["policy", "set", "/", policy, "--data"])
            .arg(self.dir.join(self.active().unwrap_or_else(|| MANAGER.to_owned())));
        let outcome = child::run(&mut command, PATIENCE, &Stop::never())?;
        succeeded(&outcome, "weir policy set")
    }

    /// Kills a node with SIGKILL.
    pub fn kill(&self, node: &str) -> Result<(), DemoError> {
        self.local(&["kill", node]).map(drop)
    }

    /// Starts a node again, and waits until its stores are online. Returns how long that took.
    pub fn start(&self, node: &str) -> Result<Duration, DemoError> {
        let begin = Instant::now();
        self.local(&["start", node])?;
        Ok(begin.elapsed())
    }

    /// Stops all nodes. Fails if one had to be killed.
    pub fn down(&mut self) -> Result<Duration, DemoError> {
        let begin = Instant::now();
        let outcome = self.local(&["down"])?;
        self.is_up = false;
        let said = String::from_utf8_lossy(&outcome.stdout).into_owned();
        match said.lines().find(|line| line.contains("killed")) {
            Some(line) => Err(DemoError::Wrong(line.to_owned())),
            None => Ok(begin.elapsed()),
        }
    }

    /// The manager's view of a file; `None`: the manager has no such file yet.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<FileView> {
        self.ask(&ControlRequest::File { path: path.to_owned() }).ok()
    }

    /// The manager's view of the cluster.
    pub fn status(&self) -> Result<StatusView, DemoError> {
        self.ask(&ControlRequest::ClusterStatus)
    }

    /// The state of a node, as the manager sees it; `None`: the manager does not say.
    #[must_use]
    pub fn presence(&self, name: &str) -> Option<Presence> {
        let is_it = |location: &String| location.rsplit('/').next() == Some(name);
        self.status().ok()?.nodes.into_iter().find(|node| node.locations.iter().any(is_it))?.presence
    }

    /// The last lines of the manager's log.
    #[must_use]
    pub fn log_end(dir: &Path) -> String {
        crate::log_end(&dir.join("manager.log"))
    }

    /// Asks the active manager: the others refuse.
    fn ask<T: serde::de::DeserializeOwned>(&self, what: &ControlRequest) -> Result<T, DemoError> {
        let mut refused = String::new();
        for name in self.manager_names() {
            match ask_long(&self.dir.join(name), what) {
                Ok(answer) => return Ok(answer),
                Err(error) => refused = error.to_string(),
            }
        }
        Err(DemoError::Wrong(refused))
    }

    /// Runs to its end even when the demo must stop, because a half-done start could not be undone.
    fn local(&self, arguments: &[&str]) -> Result<Outcome, DemoError> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("local").args(arguments).arg("--dir").arg(&self.dir);
        let outcome = child::run(&mut command, PATIENCE, &Stop::never())?;
        succeeded(&outcome, &format!("weir local {}", arguments.join(" "))).map(|()| outcome)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if self.is_up && self.dir.join("local.json").exists() && self.local(&["down"]).is_err() {
            let dir = self.dir.display();
            let _ =
                writeln!(io::stderr(), "weir: not all nodes of the demo could be stopped; `ps` shows them by {dir}");
        }
    }
}

fn succeeded(outcome: &Outcome, what: &str) -> Result<(), DemoError> {
    if outcome.status.success() {
        return Ok(());
    }
    Err(DemoError::Wrong(format!("`{what}` failed ({}): {}", outcome.status, outcome.stderr.trim())))
}

/// Whether the file system of `path` is in memory, which makes all rates meaningless.
#[must_use]
pub fn in_memory(path: &Path) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let Ok(mounts) = File::open("/proc/mounts") else { return false };
    let mut best = (0, false);
    for line in BufReader::new(mounts).lines().map_while(io::Result::ok) {
        let mut words = line.split_whitespace().skip(1);
        let (Some(place), Some(kind)) = (words.next(), words.next()) else { continue };
        if path.starts_with(place) && place.len() >= best.0 {
            best = (place.len(), kind == "tmpfs");
        }
    }
    best.1
}
