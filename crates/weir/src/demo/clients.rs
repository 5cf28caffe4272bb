//! The stock XRootD clients, `xrdcp` and `xrdfs`, as they are installed.

use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use types::Adler32;

use super::child::{self, Outcome, Owned};

/// No single client call of the demo may take longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls clients on the node at `base` (`root://HOST:PORT/`).
#[derive(Clone, Debug)]
pub struct Clients {
    base: String,
}

impl Clients {
    /// For the node that said `ready` with this address.
    #[must_use]
    pub fn new(base: &str) -> Self {
        Self { base: base.to_owned() }
    }

    /// What the installed client calls itself, or why there is none.
    pub fn version() -> io::Result<String> {
        let outcome = child::run(Command::new("xrdcp").arg("--version"), PATIENCE)?;
        let text = format!("{}{}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
        Ok(text.trim().to_owned())
    }

    /// The address of `path` on the node.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}/{}", self.base.trim_end_matches('/'), path)
    }

    /// Copies a local file in; with `force` over what is there.
    pub fn put(&self, local: &Path, path: &str, force: bool) -> io::Result<Outcome> {
        let mut command = client("xrdcp");
        command.args(["--nopbar", "--silent", "--path"]);
        if force {
            command.arg("--force");
        }
        child::run(command.arg(local).arg(self.url(path)), PATIENCE)
    }

    /// Copies a file out; `query` (as in `weir.partial=1`) goes to the node with the path.
    pub fn get(&self, path: &str, query: &str, local: &Path) -> io::Result<Outcome> {
        let url = if query.is_empty() { self.url(path) } else { format!("{}?{query}", self.url(path)) };
        child::run(client("xrdcp").args(["--nopbar", "--silent", "--force"]).arg(url).arg(local), PATIENCE)
    }

    /// The adler32 that the node keeps for a file, or what it says instead.
    pub fn checksum(&self, path: &str) -> io::Result<Result<Adler32, String>> {
        let outcome = self.fs(&["query", "checksum", path])?;
        let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
        let mut words = text.split_whitespace();
        let sum = match (words.next(), words.next()) {
            (Some("adler32"), Some(digits)) => u32::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        Ok(sum.map(Adler32).ok_or_else(|| outcome.last_words()))
    }

    /// `xrdfs` with `arguments`.
    pub fn fs(&self, arguments: &[&str]) -> io::Result<Outcome> {
        let host = self.base.trim_end_matches('/');
        child::run(client("xrdfs").arg(host).args(arguments), PATIENCE)
    }

    /// Starts an `xrdcp` that records what comes on its standard input, in chunks of 256 KiB so that it sends what it
    /// has instead of collecting 8 MiB first.
    pub fn record(&self, path: &str, force: bool) -> io::Result<Owned> {
        let mut command = client("xrdcp");
        command.env("XRD_CPCHUNKSIZE", "262144").args(["--nopbar", "--silent", "--path"]);
        if force {
            command.arg("--force");
        }
        command.arg("-").arg(self.url(path));
        Owned::start(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()))
    }
}

/// A client without the settings of whoever runs the demo.
fn client(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XRD_") {
            command.env_remove(name);
        }
    }
    command
}
