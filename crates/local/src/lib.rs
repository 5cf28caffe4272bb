//! `weir local`: a cluster on this machine to try it out, with one process for each node. The nodes outlive the command. Later commands
//! find each by a file that identifies its process; the addresses stay the same. [`demo`] is `weir demo`.
//!
//! The nodes are processes of the same binary, whose path the system says. This crate asks them by their control sockets, as any command does.

pub mod args;
mod database;
pub mod demo;
mod error;
mod nodes;
mod plan;
mod ports;
mod postgres;
mod process;
mod settings;

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};

use config::Config;
use console::table::table_lines;
use console::{Exit, Failure};
use status_page::listen;

use crate::args::{LocalArgs, LocalCommand, LocalDetachedArgs, LocalStatusArgs, LocalUpArgs};
use crate::plan::{DatabasePlan, GivenUrl, Kind};
use crate::postgres::Postgres;

pub use error::LocalError;
pub use nodes::{Nodes, Stopped, log_end};
pub use plan::{NodePlan, Plan};
use ports::Ports;
use process::Process;
use settings::SETTINGS;

/// Default address for clients.
const LISTEN: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1094));
/// Default number of disk servers.
const DISKS: u16 = 4;
/// The lock that lets one command at a time start nodes in a folder.
const LOCK: &str = "lock";

/// Runs the command.
pub fn run(args: &LocalArgs) -> Result<Exit, Failure> {
    match &args.command {
        LocalCommand::Up(args) => up(args),
        LocalCommand::Kill(args) => {
            let nodes = open(&args.dir)?;
            for name in &args.nodes {
                let node = nodes.plan.node(name)?;
                let pid = nodes.kill(node)?.ok_or_else(|| LocalError::NotRunning { name: name.clone() })?;
                say(&format!("{name} was killed (process {pid})"))?;
            }
            Ok(Exit::Done)
        }
        LocalCommand::Stop(args) => {
            let nodes = open(&args.dir)?;
            let chosen = args.nodes.iter().map(|name| nodes.plan.node(name)).collect::<Result<Vec<_>, _>>()?;
            stop(&nodes, &chosen)
        }
        LocalCommand::Start(args) => {
            let (mut nodes, _lock) = open_locked(&args.dir)?;
            for name in &args.nodes {
                nodes.plan.node(name)?;
            }
            if args.new {
                nodes.forget_gone(&args.nodes)?;
            }
            let all = nodes.plan.clone();
            let chosen = args.nodes.iter().map(|name| all.node(name)).collect::<Result<Vec<_>, _>>()?;
            for node in &chosen {
                if let Some(process) = nodes.process(node) {
                    say(&format!("{} is running already (process {})", node.name, process.pid()))?;
                }
            }
            let started = start(&mut nodes, &chosen)?;
            for node in started {
                say(&format!("{} is ready", node.name))?;
            }
            Ok(Exit::Done)
        }
        LocalCommand::Down(args) => {
            let (nodes, _lock) = open_locked(&args.dir)?;
            stop(&nodes, &nodes.plan.all().collect::<Vec<_>>())
        }
        LocalCommand::Status(args) => status(args),
        LocalCommand::Detached(args) => detached(args),
    }
}

impl From<LocalError> for Failure {
    fn from(error: LocalError) -> Self {
        Failure::new(error.exit(), error)
    }
}

fn up(args: &LocalUpArgs) -> Result<Exit, Failure> {
    // Check these before touching anything; otherwise the error would only be in a node's log.
    let listen = args.listen.as_deref().map(|given| listen::resolve(given, false)).transpose();
    let listen = listen.map_err(|error| Failure::new(error.exit(), error))?;
    if let Some(config) = &args.config {
        let settings = Config::load(Some(config)).map_err(|error| Failure::new(Exit::Usage, error))?;
        if settings.database.is_some() {
            let why =
                "the settings of all nodes have `database.url`, which only managers may have; give it as --database";
            return Err(Failure::message(Exit::Usage, format!("cannot use {}: {why}", config.display())));
        }
    }
    if let Some(Some(url)) = &args.database {
        let with_url = settings::of_manager("", url.secret()).unwrap_or_default();
        Config::of_text(Path::new("--database"), &with_url).map_err(|error| Failure::new(Exit::Usage, error))?;
    }
    if Plan::read(&args.dir)?.is_none() {
        // A new cluster would keep its folder and an address that it cannot have.
        let listen = listen.unwrap_or(LISTEN);
        TcpListener::bind(listen).map_err(|source| LocalError::Listen { listen, source })?;
        if let Some(None) = args.database {
            Postgres::newest()?;
        }
        if args.managers.is_some_and(|managers| managers > 1) && args.database.is_none() {
            return Err(LocalError::ManagersWithoutDatabase.into());
        }
    }
    fs::create_dir_all(&args.dir).map_err(|source| io("make", &args.dir, source))?;
    check_ours(&args.dir)?;
    let _lock = lock(&args.dir)?;
    let dir = args.dir.canonicalize().map_err(|source| io("find", &args.dir, source))?;
    let mut ports = Ports::new(rand::random());
    let before = Plan::read(&dir)?;
    let is_new = before.is_none();
    let plan = match before {
        Some(plan) => resumed(plan, listen, args, &dir, &mut ports)?,
        None => {
            let mut plan = Plan::new(listen.unwrap_or(LISTEN), &mut ports)?;
            plan.database = match &args.database {
                None => None,
                Some(None) => Some(Plan::own_database(&mut ports)?),
                Some(Some(url)) => Some(DatabasePlan::Given(GivenUrl(url.secret().to_owned()))),
            };
            plan.add_managers(args.managers.unwrap_or(1), &mut ports)?;
            plan.grow(args.disks.unwrap_or(DISKS), &mut ports)?;
            plan
        }
    };
    drop(ports);
    let settings = dir.join(nodes::CONFIG);
    match &args.config {
        Some(config) => {
            let given = fs::read_to_string(config).map_err(|source| io("read", config, source))?;
            let all = settings::with_ours(config, &given);
            fs::write(&settings, all).map_err(|source| io("write", &settings, source))?;
        }
        None if is_new => fs::write(&settings, SETTINGS).map_err(|source| io("write", &settings, source))?,
        None => {}
    }
    plan.write(&dir)?;
    let mut nodes = Nodes { dir, plan: plan.clone() };
    let all: Vec<&NodePlan> = plan.all().collect();
    let begun: Vec<&NodePlan> = all.iter().copied().filter(|node| nodes.process(node).is_none()).collect();
    if let Err(error) = start(&mut nodes, &all) {
        // Do not leave half a cluster running.
        stop_in_order(&nodes, &begun)?;
        return Err(error.into());
    }
    // The manager printed this when it started, now or earlier.
    let line = || nodes.ready_line(nodes.plan.manager()).unwrap_or_default();
    say(&nodes.plan.address().map_or_else(line, |address| format!("weir: ready {address}")))?;
    Ok(Exit::Done)
}

/// The existing cluster, with the changes that the command asks for.
fn resumed(
    mut plan: Plan,
    listen: Option<SocketAddr>,
    args: &LocalUpArgs,
    dir: &Path,
    ports: &mut Ports,
) -> Result<Plan, LocalError> {
    let (is, are) = (plan.manager().listen, plan.disks());
    if let Some(asked) = listen.filter(|asked| asked.ip() != is.ip() || ![0, is.port()].contains(&asked.port())) {
        return Err(LocalError::ListensElsewhere { dir: dir.to_owned(), is, asked });
    }
    match (&args.database, &mut plan.database) {
        (None, _) | (Some(None), Some(DatabasePlan::Own(_))) => {}
        // Its address may change, and its password.
        (Some(Some(url)), Some(DatabasePlan::Given(given))) => *given = GivenUrl(url.secret().to_owned()),
        (Some(_), is) => {
            let is = match is {
                None => "the manager's data directory",
                Some(DatabasePlan::Own(_)) => "a database of its own",
                Some(DatabasePlan::Given(_)) => "a database that was given",
            };
            return Err(LocalError::NamesElsewhere { dir: dir.to_owned(), is });
        }
    }
    let managers = u16::try_from(plan.managers().len()).unwrap_or(u16::MAX);
    match args.managers {
        Some(wanted) if wanted < managers => {
            let (of, option) = ("managers", "--managers");
            return Err(LocalError::TooMany { dir: dir.to_owned(), are: managers, of, option });
        }
        Some(wanted) if wanted > 1 && plan.database.is_none() => return Err(LocalError::ManagersWithoutDatabase),
        Some(wanted) => plan.add_managers(wanted, ports)?,
        None => {}
    }
    match args.disks {
        Some(disks) if disks < are => {
            let (of, option) = ("disk servers", "--disks");
            return Err(LocalError::TooMany { dir: dir.to_owned(), are, of, option });
        }
        Some(disks) => plan.grow(disks, ports)?,
        None => {}
    }
    Ok(plan)
}

/// Refuses a folder that holds something else.
fn check_ours(dir: &Path) -> Result<(), LocalError> {
    if dir.join(plan::FILE).exists() {
        return Ok(());
    }
    let failed = |source| io("read", dir, source);
    for entry in fs::read_dir(dir).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        // Left by an interrupted first start, or present in every fresh ext4.
        let is_nothing = [LOCK, plan::FILE_NEW, nodes::CONFIG, "lost+found"].iter().any(|nothing| name == *nothing);
        if !is_nothing {
            let found = name.to_string_lossy().into_owned();
            return Err(LocalError::Foreign { dir: dir.to_owned(), found });
        }
    }
    Ok(())
}

/// Starts the nodes of `chosen` that are not running: first the database, then the managers, each after those whose token it needs. Waits
/// until they are ready.
fn start<'a>(nodes: &mut Nodes, chosen: &[&'a NodePlan]) -> Result<Vec<&'a NodePlan>, LocalError> {
    nodes.check_made(chosen)?;
    let started = start_made(nodes, chosen);
    // Also after an error: some nodes may have made their data directories.
    let recorded = nodes.record_made();
    let started = started?;
    recorded.map(|()| started)
}

fn start_made<'a>(nodes: &mut Nodes, chosen: &[&'a NodePlan]) -> Result<Vec<&'a NodePlan>, LocalError> {
    let not_running = |node: &&NodePlan| nodes.process(node).is_none() || !node.made && node.kind() == Kind::Database;
    let starting: Vec<&NodePlan> = chosen.iter().copied().filter(not_running).collect();
    let of = |kind| starting.iter().copied().filter(|node| node.kind() == kind).collect::<Vec<_>>();
    let (databases, managers, disks) = (of(Kind::Database), of(Kind::Manager), of(Kind::Disk));
    for database in &databases {
        match database.made {
            true => start_together(nodes, &[*database])?,
            false => nodes.create_database()?,
        }
    }
    let (joining, others): (Vec<_>, Vec<_>) = managers.iter().copied().partition(|node| nodes.joins(node));
    for some in [&others, &joining, &disks] {
        start_together(nodes, some)?;
        nodes.record_made()?;
    }
    // Wait also for nodes that were running already: a restarted manager does not know them yet.
    if nodes.plan.managers().iter().any(|manager| nodes.process(manager).is_some()) {
        let chosen: Vec<&NodePlan> = chosen.iter().copied().filter(|node| node.kind() == Kind::Disk).collect();
        nodes.wait_online(&chosen)?;
    }
    Ok([databases, managers, disks].concat())
}

/// Starts nodes that do not need each other, and waits until they are ready.
fn start_together(nodes: &Nodes, some: &[&NodePlan]) -> Result<(), LocalError> {
    let mut starting = Vec::new();
    // Wait for the started nodes even if the next one cannot start, because their tokens must be deleted.
    let launched = some.iter().try_for_each(|node| {
        starting.push(nodes.launch(node)?);
        Ok(())
    });
    let ready = nodes.wait_ready(starting);
    launched.and(ready)
}

/// Stops disk servers first, because they have reports for the manager, and the database last.
fn stop_in_order<'a>(nodes: &Nodes, chosen: &[&'a NodePlan]) -> Result<Vec<(&'a NodePlan, Stopped)>, LocalError> {
    let mut stopped = Vec::new();
    for kind in [Kind::Disk, Kind::Manager, Kind::Database] {
        let some: Vec<_> = chosen.iter().copied().filter(|node| node.kind() == kind).collect();
        stopped.extend(nodes.stop(&some)?);
    }
    Ok(stopped)
}

fn stop(nodes: &Nodes, chosen: &[&NodePlan]) -> Result<Exit, Failure> {
    let stopped = stop_in_order(nodes, chosen)?;
    for node in chosen {
        let how = match stopped.iter().find(|(one, _)| one.name == node.name) {
            Some((_, Stopped::Cleanly)) => "was stopped",
            Some((_, Stopped::ByForce)) => "did not stop within 15 s and was killed",
            None => "was not running",
        };
        say(&format!("{} {how}", node.name))?;
    }
    Ok(Exit::Done)
}

fn status(args: &LocalStatusArgs) -> Result<Exit, Failure> {
    let nodes = open(&args.dir)?;
    if args.json {
        let node = |node: &NodePlan| {
            serde_json::json!({
                "name": node.name,
                "pid": nodes.process(node).map(|process| process.pid()),
                "clients": node.listen,
                "nodes": node.nodes,
                "location": node.location,
                "data": nodes.data(node).to_string_lossy(),
                "log": nodes.log(node).to_string_lossy(),
            })
        };
        let all: Vec<_> = nodes.plan.nodes.iter().map(node).collect();
        let mut shown = serde_json::json!({ "dir": nodes.dir.to_string_lossy(), "nodes": all });
        match &nodes.plan.database {
            None => {}
            Some(DatabasePlan::Given(given)) => shown["database"] = serde_json::json!({ "url": given.shown() }),
            Some(DatabasePlan::Own(own)) => {
                shown["database"] = serde_json::json!({
                    "pid": nodes.process(own).map(|process| process.pid()),
                    "address": own.listen,
                    "url": nodes.database_url(),
                    "admin_url": nodes.admin_url(own),
                    "data": nodes.data(own).to_string_lossy(),
                    "log": nodes.log(own).to_string_lossy(),
                });
            }
        }
        say(&shown.to_string())?;
        return Ok(Exit::Done);
    }
    let row = |node: &NodePlan| {
        let process = nodes.process(node).map_or("not running".into(), |process| process.pid().to_string());
        vec![
            node.name.clone(),
            process,
            node.listen.to_string(),
            node.nodes.to_string(),
            node.location.clone().unwrap_or_default(),
        ]
    };
    let mut rows: Vec<_> = nodes.plan.nodes.iter().map(row).collect();
    if let Some(own) = nodes.plan.own() {
        let mut database = row(own);
        // It has no address for clients.
        database[2].clear();
        rows.push(database);
    }
    for line in table_lines(&["node", "process", "clients", "nodes", "location"], &rows) {
        say(&line)?;
    }
    match &nodes.plan.database {
        None => {}
        Some(DatabasePlan::Given(given)) => say(&format!("database: {}", given.shown()))?,
        Some(DatabasePlan::Own(_)) => say(&format!("database: {}", nodes.database_url().unwrap_or_default()))?,
    }
    say(&format!("data directories and logs: {}", nodes.dir.display()))?;
    Ok(Exit::Done)
}

/// Becomes a node in a session of its own, so that the end of a terminal, or Ctrl-C in it, does not reach it.
fn detached(args: &LocalDetachedArgs) -> Result<Exit, Failure> {
    let failed = |what: &'static str| move |error: io::Error| Failure::new(Exit::Failed, error).while_doing(what);
    rustix::process::setsid().map_err(|error| failed("cannot begin a session")(error.into()))?;
    // Write the file before the node starts, so that no node is ever forgotten.
    Process::this().and_then(|this| this.write(&args.pid_file)).map_err(failed("cannot write which process it is"))?;
    let program = match &args.program {
        Some(program) => program.clone(),
        None => std::env::current_exe().map_err(failed("cannot find this program"))?,
    };
    let mut command = std::process::Command::new(program);
    if let Some(account) = args.account {
        command.uid(account.user).gid(account.group);
    }
    let error = command.args(&args.arguments).exec();
    Err(failed("cannot start")(error))
}

fn open(dir: &Path) -> Result<Nodes, LocalError> {
    let none = || LocalError::None { dir: dir.to_owned() };
    let dir = dir.canonicalize().map_err(|_| none())?;
    let plan = Plan::read(&dir)?.ok_or_else(none)?;
    Ok(Nodes { dir, plan })
}

/// Opens the cluster with the lock held, so that no other command starts or stops its nodes.
fn open_locked(dir: &Path) -> Result<(Nodes, File), LocalError> {
    open(dir)?;
    let lock = lock(dir)?;
    // Another command may have added nodes before we held the lock.
    Ok((open(dir)?, lock))
}

fn lock(dir: &Path) -> Result<File, LocalError> {
    let path = dir.join(LOCK);
    let file = File::options().create(true).append(true).open(&path);
    file.and_then(|file| file.lock().map(|()| file)).map_err(|source| io("lock", &path, source))
}

fn io(what: &'static str, path: &Path, source: io::Error) -> LocalError {
    LocalError::Io { what, path: PathBuf::from(path), source }
}

fn say(line: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{line}").and_then(|()| stdout.flush()).map_err(|error| Failure::new(Exit::Failed, error))
}
