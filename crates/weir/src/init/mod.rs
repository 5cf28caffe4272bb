//! `weir init`: makes the directories of a new node and its configuration file. A disk server joins its cluster here.
//!
//! Order: first the checks that touch nothing, then the directories, then the configuration file, then the service. A command that failed on
//! the way can be repeated: what was made before is there already, and a disk server that has joined needs no further token.

mod host;
mod make;
mod owner;
mod service;
mod settings;

use std::fs;
use std::io::{self, Write as _};
use std::net::ToSocketAddrs as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use config::Config;
use foundation::layout::OWN_STORE_DIR;
use link::JoinToken;

pub(crate) use owner::Owner;
pub(crate) use service::{CONFIG, Service};
pub(crate) use settings::store_table;

use self::host::HostFacts;
use self::make::Made;
use self::settings::NewNode;
use crate::cli::{InitArgs, InitRole, usual_data};
use crate::cluster_node::host_name;
use crate::exit::Exit;
use crate::{Failure, serve_disk};

/// Runs the command.
pub fn run(args: &InitArgs) -> Result<Exit, Failure> {
    match (args.role, &args.config) {
        (Some(role), _) => new_node(args, role),
        (None, Some(file)) => described_node(args, file),
        (None, None) => bare(args),
    }
}

/// Makes a node, and writes its configuration file.
fn new_node(args: &InitArgs, role: InitRole) -> Result<Exit, Failure> {
    only_for_its_role(args, role)?;
    let file = absolute(args.config.as_deref().unwrap_or(Path::new(CONFIG)))?;
    if !args.force && fs::symlink_metadata(&file).is_ok() {
        return Err(is_there(&file));
    }
    let usual = usual_data();
    let data = absolute(args.data.as_deref().unwrap_or(&usual))?;
    let in_data = data.join(OWN_STORE_DIR);
    let mut stores = args.stores.iter().map(|dir| absolute(dir)).collect::<Result<Vec<_>, _>>()?;
    if role == InitRole::Disk && stores.is_empty() {
        stores.push(in_data);
    }
    let token = serve_disk::token_of(args.join.as_ref(), args.join_file.as_deref(), &Config::defaults())?;
    let peers = token.as_ref().map(|token| token.addresses.as_slice()).unwrap_or_default();
    let host = match (&args.host, role) {
        (Some(host), _) => Some(host.clone()),
        (None, InitRole::Single) => None,
        (None, _) => match HostFacts::look(host_name(), peers).reachable() {
            // Both addresses are given, so the host is of little use.
            None if args.listen.is_some() && args.nodes.is_some() => None,
            None => return Err(no_host(peers)),
            host => host,
        },
    };
    let location = match (&args.location, role) {
        (Some(location), _) => Some(location.clone()),
        (None, InitRole::Disk) => Some(serve_disk::default_location(&Config::defaults())?),
        (None, _) => None,
    };
    let stores: Vec<&Path> = stores.iter().map(PathBuf::as_path).collect();
    let node = NewNode {
        role,
        data: &data,
        host: host.as_deref(),
        listen: args.listen.as_deref(),
        nodes: args.nodes.as_deref(),
        insecure: args.insecure,
        location: location.as_ref(),
        class: args.class.as_ref(),
        stores: &stores,
    };
    let text = node.text()?;
    let config = Config::of_text(&file, &text).map_err(|error| Failure::new(Exit::Usage, error))?;
    let service = service_to_start(args, &file)?;
    if args.data.is_none() && data == usual {
        make_home(&data)?;
    }
    let made = make_all(&config, token.as_ref())?;
    write_file(&file, &text, args.force)?;
    say(&format!("{}: written", file.display()))?;
    if node.is_open() {
        let url = node.url();
        say(&format!(
            "clients: {url}, without authentication: anybody who reaches this port can read, write and delete everything"
        ))?;
    }
    finish(args, service, &config, &file, &made)
}

/// Makes the node that a configuration file describes.
fn described_node(args: &InitArgs, file: &Path) -> Result<Exit, Failure> {
    let file = absolute(file)?;
    let config = Config::load(Some(&file)).map_err(|error| Failure::new(Exit::Usage, error))?;
    let config = Config { data: args.data.clone().or(config.data), ..config };
    let token = serve_disk::token_of(args.join.as_ref(), args.join_file.as_deref(), &config)?;
    let service = service_to_start(args, &file)?;
    let made = make_all(&config, token.as_ref())?;
    finish(args, service, &config, &file, &made)
}

/// Makes a single node's data directory, and nothing else.
fn bare(args: &InitArgs) -> Result<Exit, Failure> {
    if args.join.is_some() || args.join_file.is_some() || args.start {
        let what = "say --role, or name a configuration file with --config; without them, `weir init` makes a single node's data directory and nothing else";
        return Err(Failure::message(Exit::Usage, what));
    }
    let path = args.data.clone().unwrap_or_else(usual_data);
    let (data, made) = make::bare(&path)?;
    drop(data);
    say(&made_line(&made))?;
    Ok(Exit::Done)
}

fn only_for_its_role(args: &InitArgs, role: InitRole) -> Result<(), Failure> {
    let given = [
        ("--join", args.join.is_some()),
        ("--join-file", args.join_file.is_some()),
        ("--store", !args.stores.is_empty()),
        ("--location", args.location.is_some()),
        ("--class", args.class.is_some()),
    ];
    if let Some((flag, _)) = given.iter().find(|(_, given)| *given && role != InitRole::Disk) {
        let what = format!("{flag} is for a disk server of a cluster; say --role disk, or leave it out");
        return Err(Failure::message(Exit::Usage, what));
    }
    if role == InitRole::Single && (args.nodes.is_some() || args.host.is_some()) {
        let what = "--host and --nodes are for nodes of a cluster; a single node has --listen";
        return Err(Failure::message(Exit::Usage, what));
    }
    Ok(())
}

/// `peers`: the managers' addresses in the token.
fn no_host(peers: &[String]) -> Failure {
    if let Some((peer, why)) = peers.iter().find_map(|peer| Some((peer, peer.to_socket_addrs().err()?))) {
        let what = format!(
            "cannot look up the manager's address {peer} from the token: {why}. Make the name known on this machine, in DNS or in /etc/hosts"
        );
        return Failure::message(Exit::Usage, what);
    }
    Failure::message(
        Exit::Usage,
        format!(
            "cannot tell how other machines reach this one: its name, {}, does not lead here, and it has no route to others. Say --host with a name or address of this machine",
            host_name()
        ),
    )
}

fn is_there(file: &Path) -> Failure {
    Failure::message(
        Exit::Exists,
        format!(
            "{0} is there already, and nothing was changed. `weir init --config {0}` makes the node that it describes; --force replaces it",
            file.display()
        ),
    )
}

/// The service, if the command shall start it.
fn service_to_start(args: &InitArgs, file: &Path) -> Result<Option<Service>, Failure> {
    let service = Service::of(file);
    if args.start && service.is_none() {
        let what = format!(
            "--start needs the package's unit weir.service, its configuration file {CONFIG}, and root; nothing was made. Without it, run `weir serve --config {}`",
            file.display()
        );
        return Err(Failure::message(Exit::Usage, what));
    }
    Ok(service)
}

/// Makes the folder of the usual data directory, which the package makes too.
fn make_home(data: &Path) -> Result<(), Failure> {
    let Some(home) = data.parent() else { return Ok(()) };
    let failed = |error: io::Error| {
        Failure::new(Exit::DataDirectory, error).while_doing(format!("cannot make {}", home.display()))
    };
    match fs::create_dir(home) {
        Ok(()) => Owner::of_service().map_or(Ok(()), |owner| owner.take(home)).map_err(failed),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed(error)),
    }
}

/// Makes the directories, and gives them to the user that will run the node.
fn make_all(config: &Config, token: Option<&JoinToken>) -> Result<Vec<Made>, Failure> {
    let all = make::make(config, token)?;
    for made in &all {
        Owner::hand_over(Owner::of_service(), &made.path, made.fresh).map_err(|error| {
            let what = format!(
                "cannot give {} to the user that is to run the node; mend that, and give it everything in there",
                made.path.display()
            );
            Failure::new(Exit::Failed, error).while_doing(what)
        })?;
        say(&made_line(made))?;
    }
    Ok(all)
}

fn made_line(made: &Made) -> String {
    format!("{}: {}; {}", made.path.display(), if made.fresh { "made" } else { "is there already" }, made.what)
}

/// Tells systemd, and starts the service or says how the node is started.
fn finish(
    args: &InitArgs,
    service: Option<Service>,
    config: &Config,
    file: &Path,
    made: &[Made],
) -> Result<Exit, Failure> {
    debug_assert!(!made.is_empty());
    if let Some(service) = &service
        && let Some(drop_in) = service.allow(config)?
    {
        say(&format!("{}: written", drop_in.display()))?;
    }
    match &service {
        Some(service) if args.start => {
            service.start()?;
            say("weir.service is running, and starts at each boot")?;
        }
        Some(_) => say("next: systemctl enable --now weir")?,
        None => say(&format!("next: weir serve --config {}", file.display()))?,
    }
    Ok(Exit::Done)
}

/// The folder of `file`, which may be a name alone.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Writes the configuration file whole or not at all.
fn write_file(file: &Path, text: &str, replace: bool) -> Result<(), Failure> {
    let folder = folder_of(file);
    let failed = |error: io::Error| {
        let what = format!(
            "cannot write {}; the directories of the node are made, so repeat the command when that is mended",
            file.display()
        );
        Failure::new(if error.kind() == io::ErrorKind::AlreadyExists { Exit::Exists } else { Exit::Failed }, error)
            .while_doing(what)
    };
    fs::create_dir_all(folder).map_err(failed)?;
    replace_text(file, text, replace, 0o644, None).map_err(failed)
}

/// Writes `text` under another name, syncs it, and gives it the name `file`. Without `replace`, an existing file stays. The file is given to `owner`.
///
/// The folder may be another user's than the one who runs this: nothing that is there is written to, or given away.
pub(crate) fn replace_text(file: &Path, text: &str, replace: bool, mode: u32, owner: Option<Owner>) -> io::Result<()> {
    let folder = folder_of(file);
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    // A leftover of an interrupted command, or a link to another file.
    let _ = fs::remove_file(&new);
    let written = (|| {
        let mut out = fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(&new)?;
        out.write_all(text.as_bytes())?;
        if let Some(owner) = owner {
            owner.give(&out)?;
        }
        out.sync_all()?;
        match replace {
            true => fs::rename(&new, file)?,
            false => fs::hard_link(&new, file)?,
        }
        fs::File::open(folder)?.sync_all()
    })();
    // After a rename it is gone.
    let _ = fs::remove_file(&new);
    written
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path).map_err(|error| {
        Failure::new(Exit::Usage, error).while_doing(format!("cannot tell which directory {} is", path.display()))
    })
}

fn say(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}").map_err(|error| Failure::new(Exit::Failed, error))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{MetadataExt as _, symlink};

    use super::*;

    #[test]
    fn a_link_in_place_of_the_new_file_is_not_written_through() {
        let temp = tempfile::tempdir().unwrap();
        let [file, new, victim] = ["weir.toml", "weir.toml.new", "victim"].map(|name| temp.path().join(name));
        for replace in [true, false] {
            let _ = fs::remove_file(&file);
            fs::write(&victim, "kept").unwrap();
            symlink(&victim, &new).unwrap();
            replace_text(&file, "text", replace, 0o600, None).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "kept");
            assert_eq!(fs::read_to_string(&file).unwrap(), "text");
            let written = fs::symlink_metadata(&file).unwrap();
            assert!(written.is_file() && written.mode() & 0o777 == 0o600 && fs::symlink_metadata(&new).is_err());
            // A link that leads nowhere makes no file elsewhere.
            fs::remove_file(&victim).unwrap();
            fs::remove_file(&file).unwrap();
            symlink(&victim, &new).unwrap();
            replace_text(&file, "text", replace, 0o600, None).unwrap();
            assert!(!victim.exists() && fs::symlink_metadata(&file).unwrap().is_file());
        }
        let refused = replace_text(&file, "other", false, 0o600, None).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&file).unwrap(), "text");
    }

    /// As root: another user gets the new file, and not what a link at its name leads to.
    #[test]
    fn a_new_file_is_given_to_its_owner() {
        let temp = tempfile::tempdir().unwrap();
        let [file, victim] = ["weir.toml", "victim"].map(|name| temp.path().join(name));
        fs::write(&victim, "kept").unwrap();
        symlink(&victim, &file).unwrap();
        let owner = Owner::for_tests();
        let before = fs::metadata(&victim).unwrap().uid();
        replace_text(&file, "text", true, 0o640, Some(owner)).unwrap();
        let written = fs::symlink_metadata(&file).unwrap();
        assert!(written.is_file() && Owner::of_meta(&written) == owner);
        assert_eq!(fs::metadata(&victim).unwrap().uid(), before);
    }
}
