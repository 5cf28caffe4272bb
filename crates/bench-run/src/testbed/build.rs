//! Starts a peer according to its plan, and takes it down according to the record.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use super::network::{self, Network};
use super::plan::{Plan, Step};
use super::process::{self, PATH, Recorded};
use super::state::{Made, State};

/// How long a server may take to answer, and a command to succeed.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(100);
/// Characters of a log that an error repeats.
const LOG_TAIL: usize = 1500;

/// Missing requirements: packages, and file systems of the kernel.
pub fn missing(plan: &Plan) -> (Vec<&'static str>, Vec<&'static str>) {
    let is_there = |file: &str| {
        if file.starts_with('/') {
            return Path::new(file).exists();
        }
        PATH.split(':').any(|folder| Path::new(folder).join(file).exists())
    };
    let mut packages: Vec<_> = plan.needs.iter().filter(|need| !is_there(need.file)).map(|need| need.package).collect();
    packages.dedup();
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let has_module = |module: &str| {
        let list = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
        std::fs::read_to_string(list).is_ok_and(|list| list.contains(&format!("/{module}.ko")))
    };
    let is_known = |name: &str| known.lines().any(|line| line.split_ascii_whitespace().last() == Some(name));
    let kernel =
        plan.kernel.iter().filter(|(name, module)| !is_known(name) && !has_module(module)).map(|(name, _)| *name);
    (packages, kernel.collect())
}

/// Starts a peer. Records each step before doing it, so that a half-made peer can be taken down.
///
/// # Errors
/// From the failed step.
pub fn up(state: &mut State, made: &mut Made, network: &Network, plan: &Plan, link: Option<u64>) -> io::Result<()> {
    std::fs::create_dir(&made.folder)?;
    network.make(link)?;
    for folder in &plan.folders {
        let path = made.folder.join(folder.name);
        std::fs::create_dir(&path)?;
        if let Some(owner) = folder.owner {
            process::run(&super::plan::command(&["chown", owner, &path.display().to_string()]))?;
        }
    }
    for (name, text) in &plan.files {
        std::fs::write(made.folder.join(name), text)?;
    }
    let mut servers = Vec::new();
    for step in &plan.steps {
        take(step, state, made, &mut servers)?;
    }
    made.systems.clone_from(&plan.systems);
    find_children(state, made)
}

/// Starts the ended processes of a peer again.
///
/// # Errors
/// From the failed step.
pub fn start_again(state: &mut State, made: &mut Made, plan: &Plan) -> io::Result<()> {
    made.processes.retain(Recorded::is_alive);
    let mut servers = Vec::new();
    for step in &plan.steps {
        match step {
            Step::Serve { name, .. } if made.processes.iter().any(|process| process.name == *name) => {}
            Step::Serve { .. } | Step::Port(_) => take(step, state, made, &mut servers)?,
            _ => {}
        }
    }
    for step in &plan.after_restart {
        take(step, state, made, &mut servers)?;
    }
    find_children(state, made)
}

/// Servers and clients that this process has started, and their logs.
type Servers = Vec<(Child, PathBuf)>;

fn take(step: &Step, state: &mut State, made: &mut Made, servers: &mut Servers) -> io::Result<()> {
    match step {
        Step::Serve { name, binds, command } => {
            let log = made.folder.join(format!("{name}.log"));
            let child = process::start(&within(&made.namespace, binds, command), &log)?;
            record(state, made, name, &child)?;
            servers.push((child, log));
        }
        Step::Port(port) => answers(&made.address, *port, servers)?,
        Step::Room(at) => {
            let has_room = || rustix::fs::statvfs(at).is_ok_and(|found| found.f_bavail > 0);
            patiently(&format!("wait for room at {}", at.display()), servers, has_room)?;
        }
        Step::Enter { server, command } => {
            let inside = made.processes.iter().find(|process| process.name == *server);
            let pid = inside.ok_or_else(|| io::Error::other(format!("no server `{server}`")))?.pid.to_string();
            let enter = ["nsenter", "--target", &pid, "--net", "--mount"].map(str::to_owned);
            until_done(&[&enter[..], command].concat(), servers)?;
        }
        Step::Run(command) => until_done(command, servers)?,
        Step::Mount { at, client, command } => {
            made.mounts.push(at.clone());
            state.put(made)?;
            match client {
                Some(name) => {
                    let log = made.folder.join(format!("{}.log", name.replace(' ', "-")));
                    let child = process::start(command, &log)?;
                    record(state, made, name, &child)?;
                    servers.push((child, log));
                }
                None => process::run(command)?,
            }
            patiently(&format!("mount {}", at.display()), servers, || is_mounted(at))?;
        }
    }
    Ok(())
}

/// Records the processes that the servers started themselves.
fn find_children(state: &mut State, made: &mut Made) -> io::Result<()> {
    for process in process::of_namespace(&network::file_of(&made.namespace)) {
        if !made.processes.iter().any(|known| known.pid == process.pid) {
            made.processes.push(process);
        }
    }
    state.put(made)
}

fn record(state: &mut State, made: &mut Made, name: &str, child: &Child) -> io::Result<()> {
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    if let Some(process) = Recorded::of(name, pid) {
        made.processes.push(process);
    }
    state.put(made)
}

/// The command in the peer's network. With `binds`, it gets a mount namespace of its own, in which these replace files of this machine.
fn within(namespace: &str, binds: &[(String, &str)], command: &[String]) -> Vec<String> {
    let mut words: Vec<String> = ["ip", "netns", "exec", namespace].map(str::to_owned).to_vec();
    if !binds.is_empty() {
        let script = r#"set -e; while [ "$1" != -- ]; do mkdir -p "$2"; mount --bind "$1" "$2"; shift 2; done; shift; exec "$@""#;
        words.extend(["sh", "-c", script, "sh"].map(str::to_owned));
        words.extend(binds.iter().flat_map(|(from, to)| [from.clone(), (*to).to_owned()]));
        words.push("--".to_owned());
    }
    words.extend(command.iter().cloned());
    words
}

/// Waits until `ready`. Fails at once when one of the servers ends.
fn patiently(what: &str, servers: &mut [(Child, PathBuf)], mut ready: impl FnMut() -> bool) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        if ready() {
            return Ok(());
        }
        for (child, log) in servers.iter_mut() {
            if let Some(status) = child.try_wait()? {
                return Err(io::Error::other(format!("{what}: a server has ended ({status}){}", tail(log))));
            }
        }
        if begun.elapsed() > PATIENCE {
            let tail = servers.last().map_or_else(String::new, |(_, log)| tail(log));
            return Err(io::Error::other(format!("{what}: not within {} s{tail}", PATIENCE.as_secs())));
        }
        std::thread::sleep(POLL);
    }
}

fn tail(log: &Path) -> String {
    let text = std::fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let letters: Vec<char> = text.trim().chars().collect();
    let last: String = letters.iter().skip(letters.len().saturating_sub(LOG_TAIL)).collect();
    if last.is_empty() { String::new() } else { format!("; {} ends with:\n{last}", log.display()) }
}

fn answers(address: &str, port: u16, servers: &mut [(Child, PathBuf)]) -> io::Result<()> {
    let at: SocketAddr = format!("{address}:{port}").parse().map_err(io::Error::other)?;
    let answered = || TcpStream::connect_timeout(&at, Duration::from_secs(1)).is_ok();
    patiently(&format!("wait for {at} to answer"), servers, answered)
}

fn until_done(command: &[String], servers: &mut [(Child, PathBuf)]) -> io::Result<()> {
    let mut last = None;
    let done = patiently(&format!("run `{}`", command.join(" ")), servers, || match process::run(command) {
        Ok(()) => true,
        Err(error) => {
            last = Some(error);
            false
        }
    });
    done.map_err(|error| last.unwrap_or(error))
}

/// Mount points at or below a folder, the innermost first.
fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // The fifth field. A space in it would be written \040, but none of our paths has a space.
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut found: Vec<PathBuf> = points.filter(|point| point.starts_with(folder)).collect();
    found.reverse();
    found
}

fn is_mounted(at: &Path) -> bool {
    mounts_below(at).iter().any(|point| point == at)
}

fn unmount(made: &Made, patience: Duration) -> io::Result<()> {
    let begun = Instant::now();
    for mount in made.mounts.iter().rev() {
        while is_mounted(mount) {
            match process::run(&super::plan::command(&["umount", &mount.display().to_string()])) {
                Err(error) if begun.elapsed() > patience && is_mounted(mount) => return Err(error),
                Err(_) => std::thread::sleep(POLL),
                Ok(()) => {}
            }
        }
    }
    Ok(())
}

/// Takes the peer down, however much of it exists; `patience` is how long servers may take to end.
///
/// # Errors
/// What still exists, and why.
pub fn down(state: &mut State, made: &Made, patience: Duration) -> io::Result<()> {
    // A process may still use the mount, such as the client of an interrupted start.
    let mut busy = unmount(made, patience).err();
    let mut all = made.processes.clone();
    // Also processes that were started but not recorded yet, and their children.
    all.extend(process::of_namespace(&network::file_of(&made.namespace)));
    let left = process::end(&all, patience);
    if let Some(process) = left.first() {
        return Err(io::Error::other(format!("process {} ({}) does not end", process.pid, process.name)));
    }
    if busy.is_some() {
        // Without the client that served the mount, work in it fails and ends.
        busy = unmount(made, patience).err();
    }
    if let Some(error) = busy {
        return Err(error);
    }
    network::remove(&made.namespace, &made.link)?;
    // Never delete files in what is mounted there.
    if let Some(mount) = mounts_below(&made.folder).first() {
        return Err(io::Error::other(format!("{} is still mounted", mount.display())));
    }
    match std::fs::remove_dir_all(&made.folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    state.forget(&made.peer)
}

#[cfg(test)]
mod tests {
    use super::super::plan::{NeededPart, command};
    use super::*;

    #[test]
    fn a_missing_program_is_named_by_its_package() {
        let need = |file, package| NeededPart { file, package };
        let plan = Plan {
            needs: vec![
                need("sh", "dash"),
                need("no-such-server", "no-such-package"),
                need("/no/such.so", "such-module"),
            ],
            kernel: vec![("proc", "proc"), ("no-such-fs", "no-such-module")],
            ..Plan::default()
        };
        assert_eq!(missing(&plan), (vec!["no-such-package", "such-module"], vec!["no-such-fs"]));
    }

    #[test]
    fn a_command_within_keeps_its_words() {
        let words = within("ns", &[("/a".to_owned(), "/b")], &command(&["x", "y z"]));
        assert_eq!(words[..4], ["ip", "netns", "exec", "ns"]);
        assert_eq!(words[words.len() - 5..], ["/a", "/b", "--", "x", "y z"]);
        assert_eq!(within("ns", &[], &command(&["x"])), ["ip", "netns", "exec", "ns", "x"]);
    }
}
