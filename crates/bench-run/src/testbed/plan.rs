//! The plan of a peer, as plain data. It depends on the peer's folder and address; [`super::build`] carries it out.

use std::path::{Path, PathBuf};

/// Where a peer runs.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its folder. The path has only letters, digits and `/._-`, because it is written into configuration files.
    pub folder: &'a Path,
    /// The address of its servers.
    pub address: &'a str,
    /// This program.
    pub weir: &'a Path,
}

impl Site<'_> {
    /// A path in its folder, as text.
    pub fn at(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }
}

/// A program or file from a package.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeededPart {
    /// A program's name, or the path of a file.
    pub file: &'static str,
    /// The Debian package.
    pub package: &'static str,
}

/// A folder inside the peer's folder.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Its name.
    pub name: &'static str,
    /// Its owner; `None`: the user who runs this.
    pub owner: Option<&'static str>,
}

/// One step of a start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Starts a server in the peer's namespaces; it keeps running.
    Serve {
        /// The server's name.
        name: &'static str,
        /// Paths of the peer, and the paths of this machine that they replace for the server.
        binds: Vec<(String, &'static str)>,
        /// The command; it must not go into the background.
        command: Vec<String>,
    },
    /// Waits until a port answers.
    Port(u16),
    /// Waits until a mount reports free space: servers report theirs to their master a little later.
    Room(PathBuf),
    /// Runs a command in the namespaces of a server, again and again until it succeeds.
    Enter {
        /// The server.
        server: &'static str,
        /// The command.
        command: Vec<String>,
    },
    /// Runs a command on this machine, again and again until it succeeds.
    Run(Vec<String>),
    /// Mounts a file system on this machine.
    Mount {
        /// The mount point.
        at: PathBuf,
        /// The name of the client process that serves the mount; `None`: the kernel serves it.
        client: Option<&'static str>,
        /// The command.
        command: Vec<String>,
    },
}

/// A system of a campaign.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct System {
    /// Its name.
    pub name: String,
    /// Its directory or URL.
    pub place: String,
}

/// The plan of a peer.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// Files that must be installed.
    pub needs: Vec<NeededPart>,
    /// File systems that the kernel must know: the name, and the module that provides it.
    pub kernel: Vec<(&'static str, &'static str)>,
    /// Folders to make.
    pub folders: Vec<Folder>,
    /// Files to write: name and text. The testbed prints them as the peer's settings.
    pub files: Vec<(&'static str, String)>,
    /// Further remarks on its settings.
    pub remarks: Vec<&'static str>,
    /// The steps after that.
    pub steps: Vec<Step>,
    /// The systems for a campaign.
    pub systems: Vec<System>,
    /// Names of its servers' processes, as the kernel has them. Their CPU time counts for the system.
    pub processes: Vec<&'static str>,
    /// Names of processes that do a part of the work on clients. Their CPU time counts for the client.
    pub client_processes: Vec<&'static str>,
    /// The process to kill in a failure test, if one is enough.
    pub victim: Option<&'static str>,
    /// Steps that make the peer whole after ended servers were started again.
    pub after_restart: Vec<Step>,
}

/// Makes a command from words.
pub fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
