//! The nodes of a cluster on this machine, and its database, as processes: starts them in sessions of their own, finds them again, kills and
//! stops them.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use cluster::Presence;
use foundation::datadir::format_of;
use foundation::layout::{OWN_STORE_DIR, has_joined};
use manager::{StatusView, StoreView};
use rustix::process::Signal;

use super::LocalError;
use super::database::{Passwords, write_secret};
use super::plan::{Kind, NodePlan, Plan};
use super::process::Process;
use super::settings;
use config::ClusterRole;
use control::ControlRequest;
use control::client::{AskError, ask, ask_long};

/// The folder for files that matter only while nodes run.
const RUN_DIR: &str = "run";
/// The copy of the given settings.
pub const CONFIG: &str = "weir.toml";
/// How long a node may take to start. After SIGKILL with many files, it needs some seconds.
const START: Duration = Duration::from_secs(60);
/// How long the stores may take from then until all are online: a new manager waits for the leases of its predecessor.
const ONLINE: Duration = Duration::from_secs(30);
/// How long a clean stop may take; a node ends itself after 10 s.
const STOP: Duration = Duration::from_secs(15);
/// How long a killed process may take to end: as long as a write to the disk in progress.
const KILL: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(10);
/// How long a token is valid; the node uses it at once.
const TOKEN_MILLIS: u64 = 300_000;
/// Lines of a log that an error shows.
const LOG_LINES: usize = 8;
const LOG_TAIL: u64 = 8 << 10;
const READY_MAX: u64 = 4096;

/// The nodes in a folder.
#[derive(Debug)]
pub struct Nodes {
    /// The folder's canonical path.
    pub dir: PathBuf,
    /// The nodes and their addresses.
    pub plan: Plan,
}

/// A node that has been started and is not ready yet.
#[derive(Debug)]
pub struct Starting<'a> {
    node: &'a NodePlan,
    child: Child,
    begin: Instant,
}

impl Nodes {
    /// Its data directory.
    pub fn data(&self, node: &NodePlan) -> PathBuf {
        self.dir.join(&node.name)
    }

    /// Its log.
    pub fn log(&self, node: &NodePlan) -> PathBuf {
        self.dir.join(format!("{}.log", node.name))
    }

    /// Whether its data directory was made: the directory itself, and of a disk server the identity and the store. Of a manager that joins
    /// others, the directory counts once the manager has been ready.
    fn is_made(&self, node: &NodePlan) -> bool {
        let is_there = self.is_there(node);
        match node.kind() {
            // `make_database` records it.
            Kind::Database => node.made && is_there,
            Kind::Manager if self.founds(node) => is_there,
            Kind::Manager => is_there && (node.made || self.ready_line(node).is_some()),
            Kind::Disk => is_there,
        }
    }

    /// Whether its data directory is there.
    fn is_there(&self, node: &NodePlan) -> bool {
        let (data, has_format) = (self.data(node), |dir: &Path| matches!(format_of(dir), Ok(Some(_))));
        match node.kind() {
            Kind::Database => data.join("PG_VERSION").exists(),
            Kind::Manager => has_format(&data),
            Kind::Disk => has_format(&data) && has_joined(&data) && has_format(&data.join(OWN_STORE_DIR)),
        }
    }

    /// Whether a manager founds the cluster: the first one, as long as no other has joined it.
    fn founds(&self, node: &NodePlan) -> bool {
        let first = self.plan.manager();
        node.name == first.name && !self.plan.managers().iter().any(|other| other.name != first.name && other.made)
    }

    /// Whether it needs a token to start: it joins the cluster.
    pub fn joins(&self, node: &NodePlan) -> bool {
        match node.kind() {
            Kind::Database => false,
            Kind::Manager => !node.made && !self.founds(node),
            Kind::Disk => !node.made && !has_joined(&self.data(node)),
        }
    }

    /// Records which data directories were made, so that a later start knows one that is gone.
    pub fn record_made(&mut self) -> Result<(), LocalError> {
        let made: Vec<bool> = self.plan.all().map(|node| node.made || self.is_made(node)).collect();
        if made.iter().zip(self.plan.all()).all(|(made, node)| *made == node.made) {
            return Ok(());
        }
        self.plan.all_mut().zip(made).for_each(|(node, made)| node.made = made);
        self.plan.write(&self.dir)
    }

    /// Lets the disk servers and the managers with others among `names` whose data directories are gone start as new ones.
    pub fn forget_gone(&mut self, names: &[String]) -> Result<(), LocalError> {
        let is_gone = |node: &NodePlan| names.contains(&node.name) && self.can_join(node) && !self.is_there(node);
        let gone: Vec<bool> = self.plan.nodes.iter().map(is_gone).collect();
        self.plan.nodes.iter_mut().zip(gone).for_each(|(node, gone)| node.made &= !gone);
        self.plan.write(&self.dir)
    }

    /// Whether it can join the cluster as a new node.
    fn can_join(&self, node: &NodePlan) -> bool {
        node.kind() == Kind::Disk || node.is_manager() && !self.founds(node)
    }

    /// Refuses to start a node whose data directory was made and is gone. It would join as a new node, or found a new cluster.
    pub fn check_made(&self, nodes: &[&NodePlan]) -> Result<(), LocalError> {
        let is_gone = |node: &&&NodePlan| node.made && self.process(node).is_none() && !self.is_there(node);
        let Some(gone) = nodes.iter().find(is_gone) else { return Ok(()) };
        let hint = match gone.kind() {
            Kind::Database => {
                "Without it the names of all files are lost; put it back from a backup, or make another cluster in a new folder"
            }
            _ if self.can_join(gone) => "If it is lost, `weir local start --new` lets the node join as a new one",
            _ => "Without it there is no cluster; put it back, or make another one in a new folder",
        };
        Err(LocalError::DataGone { name: gone.name.clone(), data: self.data(gone), hint })
    }

    pub(crate) fn in_run(&self, node: &NodePlan, what: &str) -> PathBuf {
        self.dir.join(RUN_DIR).join(format!("{}.{what}", node.name))
    }

    /// Its process, if it is running.
    pub fn process(&self, node: &NodePlan) -> Option<Process> {
        Process::read(&self.in_run(node, "pid")).filter(Process::is_running)
    }

    /// Its ready line; `None`: it is not ready yet.
    pub fn ready_line(&self, node: &NodePlan) -> Option<String> {
        let mut text = String::new();
        File::open(self.in_run(node, "ready")).ok()?.take(READY_MAX).read_to_string(&mut text).ok()?;
        text.strip_suffix('\n').filter(|line| line.starts_with("weir: ready ")).map(ToOwned::to_owned)
    }

    /// Starts a node that is not running, without waiting for it.
    pub fn launch<'a>(&self, node: &'a NodePlan) -> Result<Starting<'a>, LocalError> {
        let io = |what, path: &Path| {
            let path = path.to_owned();
            move |source| LocalError::Io { what, path, source }
        };
        let is_down = self.plan.own().is_some_and(|own| self.process(own).is_none());
        if node.kind() == Kind::Manager && is_down {
            return Err(LocalError::DatabaseDown { name: node.name.clone() });
        }
        self.make_run_dir()?;
        let (ready, log) = (self.in_run(node, "ready"), self.log(node));
        let out = File::create(&ready).map_err(io("write", &ready))?;
        let log = OpenOptions::new().create(true).append(true).open(&log).map_err(io("write", &log))?;
        let process = |source| LocalError::Process { what: "start", name: node.name.clone(), source };
        let mut child = match node.kind() {
            Kind::Database => self.spawn_database(node, out, log)?,
            Kind::Manager | Kind::Disk => {
                let mut command = self.serve(node)?;
                command.current_dir(&self.dir).stdin(Stdio::null()).stdout(out).stderr(log);
                command.spawn().map_err(process)?
            }
        };
        // From here on its file identifies it.
        let is_known =
            |child: &Child| self.process(node).is_some_and(|process| process.pid().cast_unsigned() == child.id());
        while !is_known(&child) && child.try_wait().map_err(process)?.is_none() {
            std::thread::sleep(STEP);
        }
        Ok(Starting { node, child, begin: Instant::now() })
    }

    fn make_run_dir(&self) -> Result<(), LocalError> {
        let run = self.dir.join(RUN_DIR);
        fs::create_dir_all(&run).map_err(|source| LocalError::Io { what: "make", path: run, source })
    }

    /// The command that starts a process of the cluster, without what it becomes.
    pub(crate) fn detached(&self, node: &NodePlan) -> Result<Command, LocalError> {
        let own = std::env::current_exe();
        let own = own.map_err(|source| LocalError::Process { what: "start", name: node.name.clone(), source })?;
        let mut command = Command::new(own);
        command.args(["local", "detached", "--pid-file"]).arg(self.in_run(node, "pid"));
        Ok(command)
    }

    /// The command that starts a node.
    fn serve(&self, node: &NodePlan) -> Result<Command, LocalError> {
        let mut command = self.detached(node)?;
        command.args(["--", "serve", "--role", if node.is_manager() { "manager" } else { "disk" }, "--data"]);
        command.arg(self.data(node)).arg("--listen").arg(node.listen.to_string());
        command.arg("--nodes").arg(node.nodes.to_string());
        if let Some(location) = &node.location {
            command.arg("--location").arg(location);
        }
        if let Some(config) = self.config(node)? {
            command.arg("--config").arg(config);
        }
        if node.made {
            command.arg("--existing");
        } else if self.joins(node) {
            command.arg("--join-file").arg(self.token(node)?);
        }
        Ok(command)
    }

    /// The file with its settings: that of all nodes, or its own one if it has further settings.
    fn config(&self, node: &NodePlan) -> Result<Option<PathBuf>, LocalError> {
        let path = self.dir.join(CONFIG);
        let text = match fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(LocalError::Io { what: "read", path, source }),
        };
        let all = text.as_deref().unwrap_or_default();
        let managers = self.plan.managers();
        let own = match (node.kind(), self.database_url()) {
            (Kind::Manager, Some(url)) => settings::of_manager(all, &url),
            (Kind::Disk, _) if managers.len() > 1 => {
                let managers: Vec<String> = managers.iter().map(|manager| manager.nodes.to_string()).collect();
                settings::of_disk(all, &managers)
            }
            _ => return Ok(text.map(|_| path)),
        };
        let own = own.map_err(|error| LocalError::Plan { path, why: error.message().to_owned() })?;
        let path = self.in_run(node, "toml");
        // The address of a given database may hold a password.
        write_secret(&path, &own)?;
        Ok(Some(path))
    }

    /// A new token, in a file that only the owner can read.
    fn token(&self, node: &NodePlan) -> Result<PathBuf, LocalError> {
        let role = if node.is_manager() { ClusterRole::Manager } else { ClusterRole::Disk };
        let wanted = ControlRequest::MakeToken { role, valid_millis: TOKEN_MILLIS, uses: 1 };
        let asked = self.ask_active(|data| ask(data, &wanted));
        let (answer, _) = asked.map_err(|source| LocalError::Token { name: node.name.clone(), source })?;
        let text = answer.get("token").and_then(|text| text.as_str()).unwrap_or_default();
        let path = self.in_run(node, "token");
        write_secret(&path, text)?;
        Ok(path)
    }

    /// Makes the cluster's own database and starts it.
    pub fn create_database(&mut self) -> Result<(), LocalError> {
        let Some(node) = self.plan.own().cloned() else { return Ok(()) };
        // One that an interrupted attempt left.
        self.kill(&node)?;
        self.make_run_dir()?;
        let passwords = Passwords::new();
        self.make_database(&node, &passwords)?;
        let starting = self.launch(&node)?;
        self.wait_ready(vec![starting])?;
        if let Err(error) = self.fill_database(&node, &passwords) {
            self.kill(&node)?;
            return Err(error);
        }
        self.plan.all_mut().filter(|one| one.name == node.name).for_each(|one| one.made = true);
        self.plan.write(&self.dir)
    }

    /// Waits until all are ready. Fails with the reason of the first that is not.
    pub fn wait_ready(&self, mut starting: Vec<Starting<'_>>) -> Result<(), LocalError> {
        let ready: Vec<_> = starting.iter_mut().map(|one| self.wait_for(one)).collect();
        for one in &starting {
            // Most nodes have none, and a used token is worthless.
            let _ = fs::remove_file(self.in_run(one.node, "token"));
        }
        ready.into_iter().collect()
    }

    fn wait_for(&self, starting: &mut Starting<'_>) -> Result<(), LocalError> {
        let node = starting.node;
        let (name, log) = (node.name.clone(), self.log(node));
        loop {
            if self.is_ready(node) {
                return Ok(());
            }
            let ended = starting.child.try_wait();
            let ended = ended.map_err(|source| LocalError::Process { what: "wait for", name: name.clone(), source })?;
            if let Some(status) = ended {
                let end = log_end(&log);
                return Err(LocalError::Ended { name, how: status.to_string(), code: status.code(), log, end });
            }
            if starting.begin.elapsed() > START {
                self.stop(&[node])?;
                let end = log_end(&log);
                return Err(LocalError::Late { name, seconds: START.as_secs(), log, end });
            }
            std::thread::sleep(STEP);
        }
    }

    fn is_ready(&self, node: &NodePlan) -> bool {
        match node.kind() {
            Kind::Database => self.process(node).is_some_and(|process| self.database_is_ready(node, &process)),
            Kind::Manager | Kind::Disk => self.ready_line(node).is_some(),
        }
    }

    /// Asks the manager, or the one of several that is active: the others refuse. One with a database may have to wait until it is active.
    fn ask_active<T>(&self, ask: impl Fn(&Path) -> Result<T, AskError>) -> Result<T, AskError> {
        let end = Instant::now() + if self.plan.database.is_some() { ONLINE } else { Duration::ZERO };
        loop {
            match self.ask_once(&ask) {
                Err(_) if Instant::now() < end => std::thread::sleep(STEP),
                answer => return answer,
            }
        }
    }

    /// The first answer of a running manager, or else why the last one has none.
    fn ask_once<T>(&self, ask: impl Fn(&Path) -> Result<T, AskError>) -> Result<T, AskError> {
        let managers = self.plan.managers();
        let running = managers.iter().filter(|manager| self.process(manager).is_some());
        let mut refused = None;
        for manager in running {
            match ask(&self.data(manager)) {
                Ok(answer) => return Ok(answer),
                Err(error) => refused = Some(error),
            }
        }
        Err(refused.unwrap_or_else(|| AskError::NotRunning { data: self.data(self.plan.manager()) }))
    }

    /// Waits until the manager sees the ready disk servers and their stores as online. From then on clients can create files.
    pub fn wait_online(&self, disks: &[&NodePlan]) -> Result<(), LocalError> {
        let end = Instant::now() + ONLINE;
        loop {
            let asked = self.ask_once(|data| {
                let status = ask_long::<StatusView>(data, &ControlRequest::ClusterStatus)?;
                Ok((status, ask_long::<Vec<StoreView>>(data, &ControlRequest::Stores)?))
            });
            let missing = match asked {
                Ok((status, stores)) => {
                    let is_online = |disk: &&&NodePlan| online(disk, &status, &stores);
                    let missing: Vec<&str> =
                        disks.iter().filter(|disk| !is_online(disk)).map(|disk| disk.name.as_str()).collect();
                    if missing.is_empty() {
                        return Ok(());
                    }
                    format!("the manager does not know {} as online", missing.join(", "))
                }
                Err(error) => error.to_string(),
            };
            if Instant::now() >= end {
                let (seconds, dir) = (ONLINE.as_secs(), self.dir.clone());
                return Err(LocalError::Stores { seconds, why: missing, dir });
            }
            std::thread::sleep(STEP);
        }
    }

    /// Kills a node and waits until it is gone. Returns its process id; `None`: it was not running.
    pub fn kill(&self, node: &NodePlan) -> Result<Option<i32>, LocalError> {
        let Some(process) = self.process(node) else { return Ok(None) };
        let name = &node.name;
        let failed = |source| LocalError::Process { what: "kill", name: name.clone(), source };
        let mut children = Vec::new();
        if node.kind() == Kind::Database {
            // It starts no further child, and reports none as lost.
            process.signal(Signal::STOP).map_err(failed)?;
            children = process.children();
        }
        for child in &children {
            child.signal(Signal::KILL).map_err(failed)?;
        }
        let was_running = process.signal(Signal::KILL).map_err(failed)?;
        // A child that holds the shared memory for another moment would keep a new server from starting.
        if let Some(stuck) = children.iter().chain([&process]).find(|one| !one.wait(KILL)) {
            return Err(LocalError::Stuck { name: name.clone(), pid: stuck.pid() });
        }
        if node.kind() == Kind::Database {
            self.forget_killed(node, &process)?;
        }
        Ok(was_running.then(|| process.pid()))
    }

    /// Stops nodes at the same time: cleanly, or by force where that takes too long. Returns those that were running, and how each ended.
    pub fn stop<'a>(&self, nodes: &[&'a NodePlan]) -> Result<Vec<(&'a NodePlan, Stopped)>, LocalError> {
        let mut asked = Vec::new();
        for node in nodes {
            let Some(process) = self.process(node) else { continue };
            let failed = |source| LocalError::Process { what: "stop", name: node.name.clone(), source };
            // The database would wait until its last client has left.
            let clean = if node.kind() == Kind::Database { Signal::INT } else { Signal::TERM };
            if process.signal(clean).map_err(failed)? {
                asked.push((*node, process));
            }
        }
        let end = Instant::now() + STOP;
        let mut stopped = Vec::new();
        for (node, process) in asked {
            if process.wait(end.saturating_duration_since(Instant::now())) {
                stopped.push((node, Stopped::Cleanly));
            } else {
                self.kill(node)?;
                stopped.push((node, Stopped::ByForce));
            }
        }
        Ok(stopped)
    }
}

fn online(disk: &NodePlan, status: &StatusView, stores: &[StoreView]) -> bool {
    let address = disk.listen.to_string();
    // A node that it replaced had the same address.
    let mut found = status.nodes.iter().filter(|node| node.clients.contains(&address));
    found.any(|node| {
        let is_well =
            |store: &StoreView| store.capacity > 0 && (store.wanted.is_gone() || !store.state.is_out_of_reach());
        let mut own = stores.iter().filter(|store| store.node == node.node);
        node.presence == Some(Presence::Online) && node.stores > 0 && own.all(is_well)
    })
}

/// How a node was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stopped {
    /// It ended itself, as asked.
    Cleanly,
    /// It did not end and was killed.
    ByForce,
}

/// The last lines of a log.
pub fn log_end(path: &Path) -> String {
    use std::io::Seek as _;
    let read = || {
        let mut file = File::open(path)?;
        let len = file.metadata()?.len();
        file.seek(io::SeekFrom::Start(len.saturating_sub(LOG_TAIL)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).into_owned())
    };
    let text = read().unwrap_or_else(|error| format!("(it cannot be read: {error})"));
    let lines: Vec<&str> = text.lines().collect();
    let lines: Vec<String> =
        lines[lines.len().saturating_sub(LOG_LINES)..].iter().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        let temp = tempfile::tempdir().unwrap();
        let log = temp.path().join("log");
        assert!(log_end(&log).contains("cannot be read"));
        let lines: Vec<String> = (0..2000).map(|line| format!("line {line}")).collect();
        fs::write(&log, lines.join("\n")).unwrap();
        let end = log_end(&log);
        assert_eq!((end.lines().next(), end.lines().last()), (Some("  line 1992"), Some("  line 1999")));
    }
}
