//! Clients that copy whole files: the stock XRootD client if it is installed, and weir's own.

use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use types::Adler32;

use super::child::{self, Outcome, Stop};

/// Longest time of a single copy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A client that copies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// The installed `xrdcp`.
    Stock,
    /// `weir cp`.
    Ours,
}

impl Client {
    /// Its name for display.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Stock => "xrdcp",
            Self::Ours => "weir cp",
        }
    }

    /// Copies a local file in.
    pub fn put(self, local: &Path, url: &str, stop: &Stop) -> io::Result<Outcome> {
        child::run(self.command()?.arg(local).arg(url), PATIENCE, stop)
    }

    /// Copies a file out.
    pub fn get(self, url: &str, local: &Path, stop: &Stop) -> io::Result<Outcome> {
        child::run(self.command()?.arg("--force").arg(url).arg(local), PATIENCE, stop)
    }

    fn command(self) -> io::Result<Command> {
        let mut command = match self {
            Self::Stock => stock("xrdcp"),
            Self::Ours => Command::new(std::env::current_exe()?),
        };
        match self {
            Self::Stock => command.args(["--nopbar", "--silent", "--path"]),
            Self::Ours => command.arg("cp"),
        };
        Ok(command)
    }
}

/// The version of the stock client; `None`: it is not installed, or does not work.
pub fn stock_version(stop: &Stop) -> Option<String> {
    let outcome = child::run(stock("xrdcp").arg("--version"), PATIENCE, stop).ok()?;
    let text = format!("{}{}", String::from_utf8_lossy(&outcome.stdout), outcome.stderr);
    outcome.status.success().then(|| text.trim().to_owned())
}

/// The adler32 that a stock client gets for a file, or the error.
pub fn stock_checksum(base: &str, path: &str, stop: &Stop) -> io::Result<Result<Adler32, String>> {
    let outcome = child::run(stock("xrdfs").arg(base).args(["query", "checksum", path]), PATIENCE, stop)?;
    let text = String::from_utf8_lossy(&outcome.stdout).into_owned();
    let mut words = text.split_whitespace();
    let sum = match (words.next(), words.next()) {
        (Some("adler32"), Some(digits)) => u32::from_str_radix(digits, 16).ok(),
        _ => None,
    };
    Ok(sum.map(Adler32).ok_or_else(|| outcome.last_words()))
}

/// A stock client without the settings of the demo's user.
fn stock(program: &str) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("XRD_") {
            command.env_remove(name);
        }
    }
    command
}
