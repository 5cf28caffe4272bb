//! What a peer takes, as plain data: made from where it shall live, and done by [`super::build`].

use std::path::{Path, PathBuf};

/// Where a peer lives.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Its folder. The path has letters, digits and `/._-` only: it is written into configuration files.
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

/// A program or file that a package brings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// A program's name, or the path of a file.
    pub file: &'static str,
    /// Debian's package.
    pub package: &'static str,
}

/// A folder in the peer's own.
#[derive(Clone, Debug)]
pub struct Folder {
    /// Its name.
    pub name: &'static str,
    /// Whose it is; otherwise that of who runs this.
    pub owner: Option<&'static str>,
}

/// One thing after the other.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Starts a server in the peer's namespaces. It stays.
    Serve {
        /// What it is called.
        name: &'static str,
        /// What it finds in the place of what is on this machine: from, and to.
        binds: Vec<(String, &'static str)>,
        /// The command; it must not go into the background.
        command: Vec<String>,
    },
    /// Waits until a port answers.
    Port(u16),
    /// Waits until a mount says that something can be written: servers tell their masters of their room a little later.
    Room(PathBuf),
    /// Runs a command to its end as a server sees the world, again and again until it succeeds.
    Enter {
        /// Which server.
        server: &'static str,
        /// The command.
        command: Vec<String>,
    },
    /// Runs a command to its end on this machine, again and again until it succeeds.
    Run(Vec<String>),
    /// Mounts, on this machine.
    Mount {
        /// Where.
        at: PathBuf,
        /// What the client is called that stays, and serves the mount; `None`: the kernel does.
        client: Option<&'static str>,
        /// The command.
        command: Vec<String>,
    },
}

/// A line of a campaign.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
pub struct System {
    /// What it is called.
    pub name: String,
    /// Where it is.
    pub place: String,
}

/// All that a peer takes.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// What has to be installed.
    pub needs: Vec<Need>,
    /// File systems that the kernel has to know: the name, and the module that would bring it.
    pub kernel: Vec<(&'static str, &'static str)>,
    /// Folders that are made.
    pub folders: Vec<Folder>,
    /// Files that are written: name and text. They are what is printed of its settings.
    pub files: Vec<(&'static str, String)>,
    /// More to be known of its settings.
    pub remarks: Vec<&'static str>,
    /// What is done then.
    pub steps: Vec<Step>,
    /// What a campaign writes.
    pub systems: Vec<System>,
    /// Names of its servers' processes, as the kernel has them: their CPU time is the system's.
    pub processes: Vec<&'static str>,
    /// Names of those that do a part of the work on clients: theirs is the client's.
    pub client_processes: Vec<&'static str>,
    /// The process that is killed to see what happens then, if one is enough.
    pub victim: Option<&'static str>,
    /// What is done after servers that had ended were started again, for it to be whole.
    pub after_restart: Vec<Step>,
}

/// A command from words.
pub fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}
