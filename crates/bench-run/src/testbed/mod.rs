//! `weir bench testbed`: the peers that Debian packages, each in a network namespace of its own on this machine. The testbed takes them
//! down again without a trace.

mod build;
mod network;
mod peers;
mod plan;
mod process;
mod state;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use console::{Exit, Failure};
use network::Network;
use plan::{Plan, Site};
use state::{Made, State};

use super::failed;
use crate::options::{Peer, TestbedCommand, TestbedOptions};

pub use network::parse_link;

/// How long servers may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);

pub(super) fn run(args: &TestbedOptions) -> Result<Exit, Failure> {
    let folder = folder(&args.dir)?;
    match &args.command {
        TestbedCommand::Up { peers, link } => up(&folder, peers, *link),
        TestbedCommand::Down { peers } => down(&folder, peers),
        TestbedCommand::Kill { peer } => kill(&folder, *peer),
        TestbedCommand::Start { peer } => start(&folder, *peer),
        TestbedCommand::List => list(&folder),
    }
}

/// The folder, if its path can be written into configuration files of all kinds.
fn folder(text: &Path) -> Result<PathBuf, Failure> {
    let path = std::path::absolute(text).map_err(failed)?;
    let simple = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
    let has_dots = path.components().any(|part| part == std::path::Component::ParentDir);
    if has_dots || !path.as_os_str().as_encoded_bytes().iter().all(|byte| simple(*byte)) {
        let text = format!("{}: the path goes into configuration files; letters, digits and ._- only", path.display());
        return Err(Failure::message(Exit::Usage, text));
    }
    Ok(path)
}

fn name_of(peer: Peer) -> String {
    peer.name().to_owned()
}

fn open(folder: &Path, make: bool) -> Result<Option<State>, Failure> {
    let opened = State::open(folder, make);
    opened.map_err(|error| failed(error).while_doing(format!("open the testbed {}", folder.display())))
}

fn up(folder: &Path, peers: &[Peer], link: Option<u64>) -> Result<Exit, Failure> {
    let weir = std::env::current_exe().map_err(failed)?;
    check(peers, folder, &weir)?;
    let Some(mut state) = open(folder, true)? else { return Ok(Exit::Done) };
    for peer in peers {
        let name = name_of(*peer);
        if state.peers.iter().any(|made| made.peer == name) {
            let text = format!(
                "{name} is up already in {}, or was left there; `weir bench testbed down` ends it",
                folder.display()
            );
            return Err(Failure::message(Exit::Exists, text));
        }
    }
    for peer in peers {
        let network = Network::free().map_err(failed)?;
        let mut made = Made {
            peer: name_of(*peer),
            folder: folder.join(name_of(*peer)),
            namespace: network.namespace.clone(),
            link: network.link.clone(),
            address: network.theirs.clone(),
            ..Made::default()
        };
        if made.folder.exists() {
            let text = format!(
                "{} is there already, and no testbed knows of it; remove it, or take another --dir",
                made.folder.display()
            );
            return Err(Failure::message(Exit::Exists, text));
        }
        state.put(&made).map_err(failed)?;
        let plan = peers::plan(*peer, &Site { folder: &made.folder, address: &network.theirs, weir: &weir });
        if let Err(error) = build::up(&mut state, &mut made, &network, &plan, link) {
            let mut failure = failed(error).while_doing(format!("start {}", made.peer));
            if let Err(error) = build::down(&mut state, &made, END_PATIENCE) {
                failure = failure.while_doing(format!("and not all of it could be taken down again ({error})"));
            }
            return Err(failure);
        }
        tell(&made, &plan, link, &weir, folder).map_err(failed)?;
    }
    Ok(Exit::Done)
}

/// A running peer with its record and plan.
fn known(folder: &Path, peer: Peer) -> Result<(State, Made, Plan), Failure> {
    let name = name_of(peer);
    let state = open(folder, false)?;
    let made = state.as_ref().and_then(|state| state.peers.iter().find(|made| made.peer == name).cloned());
    let absent = || Failure::message(Exit::NotFound, format!("{name} is not up in {}", folder.display()));
    let (state, made) = state.zip(made).ok_or_else(absent)?;
    let weir = std::env::current_exe().map_err(failed)?;
    let plan = peers::plan(peer, &Site { folder: &made.folder, address: &made.address, weir: &weir });
    Ok((state, made, plan))
}

/// Kills a peer's server, as a campaign's `fail` does.
fn kill(folder: &Path, peer: Peer) -> Result<Exit, Failure> {
    let (_state, made, plan) = known(folder, peer)?;
    let victim = made.processes.iter().find(|process| plan.victim == Some(process.name.as_str()) && process.is_alive());
    let absent = || Failure::message(Exit::NotFound, format!("no server of {} runs that could be killed", made.peer));
    let victim = victim.ok_or_else(absent)?;
    if !victim.kill(END_PATIENCE) {
        let text =
            format!("process {} of {} was killed and is still there: it hangs in the kernel", victim.pid, made.peer);
        return Err(Failure::message(Exit::Failed, text));
    }
    Ok(Exit::Done)
}

/// Starts the ended servers of a peer again, as a campaign's `restore` does.
fn start(folder: &Path, peer: Peer) -> Result<Exit, Failure> {
    let (mut state, mut made, plan) = known(folder, peer)?;
    let started = build::start_again(&mut state, &mut made, &plan);
    started.map_err(|error| failed(error).while_doing(format!("start {} again", made.peer)))?;
    Ok(Exit::Done)
}

/// Checks all requirements before anything is made.
fn check(peers: &[Peer], folder: &Path, weir: &Path) -> Result<(), Failure> {
    if !rustix::process::geteuid().is_root() {
        let text = "a testbed makes network namespaces and mounts: only root may";
        return Err(Failure::message(Exit::Denied, text));
    }
    let mut packages = Vec::new();
    for peer in peers {
        let plan = peers::plan(*peer, &Site { folder, address: "198.18.0.2", weir });
        let (some, kernel) = build::missing(&plan);
        if let Some(name) = kernel.first() {
            let text = format!("{}: this machine's kernel does not know the file system `{name}`", name_of(*peer));
            return Err(Failure::message(Exit::Failed, text));
        }
        packages.extend(some);
    }
    for (file, package) in [("ip", "iproute2"), ("tc", "iproute2"), ("nsenter", "util-linux")] {
        if !process::PATH.split(':').any(|folder| Path::new(folder).join(file).exists()) {
            packages.push(package);
        }
    }
    packages.sort_unstable();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let text = format!(
        "not installed: {0}. On Debian and Ubuntu: apt-get install --no-install-recommends {0} (and stop what starts by itself, if it is not wanted)",
        packages.join(" ")
    );
    Err(Failure::message(Exit::NotFound, text))
}

/// Prints the lines of a campaign, after the peer's settings as comments.
fn tell(made: &Made, plan: &Plan, link: Option<u64>, weir: &Path, folder: &Path) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let numbers: Vec<String> =
        made.processes.iter().map(|process| format!("{} {}", process.name, process.pid)).collect();
    writeln!(out, "# {}: {} in the namespace {}", made.peer, made.folder.display(), made.namespace)?;
    writeln!(out, "# processes: {}", numbers.join(", "))?;
    if let Some(bits) = link {
        writeln!(out, "# the link: {bits} bits a second each way")?;
    }
    for remark in &plan.remarks {
        writeln!(out, "# {remark}")?;
    }
    for (name, text) in &plan.files {
        writeln!(out, "# {name}:")?;
        for line in text.lines() {
            writeln!(out, "#   {line}")?;
        }
    }
    for system in &made.systems {
        writeln!(out, "[[system]]\nname = \"{}\"\nplace = \"{}\"", system.name, system.place)?;
        writeln!(out, "processes = {:?}", plan.processes)?;
        if !plan.client_processes.is_empty() {
            writeln!(out, "client_processes = {:?}", plan.client_processes)?;
        }
        if plan.victim.is_some() {
            let (weir, folder) = (weir.display().to_string(), folder.display().to_string());
            for (key, verb) in [("fail", "kill"), ("restore", "start")] {
                writeln!(out, "{key} = {:?}", [&weir, "bench", "testbed", verb, &made.peer, "--dir", &folder])?;
            }
        }
        writeln!(out)?;
    }
    out.flush()
}

fn down(folder: &Path, peers: &[Peer]) -> Result<Exit, Failure> {
    let Some(mut state) = open(folder, false)? else {
        let text = format!("no testbed in {}", folder.display());
        return if peers.is_empty() { Ok(Exit::Done) } else { Err(Failure::message(Exit::NotFound, text)) };
    };
    let wanted: Vec<String> = peers.iter().map(|peer| name_of(*peer)).collect();
    for name in &wanted {
        if !state.peers.iter().any(|made| made.peer == *name) {
            return Err(Failure::message(Exit::NotFound, format!("{name} is not up in {}", folder.display())));
        }
    }
    let mut first = None;
    for made in state.peers.clone() {
        if !wanted.is_empty() && !wanted.contains(&made.peer) {
            continue;
        }
        // If one cannot be taken down, go on with the others.
        if let Err(error) = build::down(&mut state, &made, END_PATIENCE) {
            first.get_or_insert(failed(error).while_doing(format!("take down {}", made.peer)));
        }
    }
    if state.peers.is_empty() {
        // A start was interrupted before anything was made, so there is only the lock.
        state.forget("").map_err(failed)?;
    }
    first.map_or(Ok(Exit::Done), Err)
}

fn list(folder: &Path) -> Result<Exit, Failure> {
    let Some(state) = open(folder, false)? else { return Ok(Exit::Done) };
    let mut out = std::io::stdout().lock();
    let mut say = || -> std::io::Result<bool> {
        let mut whole = true;
        for made in &state.peers {
            let ended: Vec<&str> = made
                .processes
                .iter()
                .filter(|process| !process.is_alive())
                .map(|process| process.name.as_str())
                .collect();
            let how = match (made.systems.is_empty(), ended.is_empty()) {
                (true, _) => "was left half made; take it down".to_owned(),
                (false, true) => "up".to_owned(),
                (false, false) => format!("ended: {}", ended.join(", ")),
            };
            whole &= how == "up";
            let places: Vec<&str> = made.systems.iter().map(|system| system.place.as_str()).collect();
            writeln!(out, "{:<10} {how:<6} {}", made.peer, places.join(" "))?;
        }
        out.flush()?;
        Ok(whole)
    };
    Ok(if say().map_err(failed)? { Exit::Done } else { Exit::Wrong })
}
