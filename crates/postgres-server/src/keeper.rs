//! The end of a server whose program ends first. A shell waits until the program is gone, by whatever cause; then it ends the server
//! and removes its directory. Nothing in the program itself could: nobody drops what all tests share, and a killed program runs no code.
//! The signal that Linux offers for the death of a parent comes when the *thread* ends that made the child, which is one of a test.

use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};

use crate::programs::Programs;

/// `$1` is the directory. The server's working directory says whether the number in its lock file is still its own. The children notice
/// within moments that a killed postmaster is gone.
const SCRIPT: &str = r#"
trap '' INT TERM HUP
cat
if read -r pid 2>/dev/null <"$1/data/postmaster.pid" && [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
    kill -QUIT "$pid"
    tries=0
    while [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ] && [ "$tries" -lt 200 ]; do
        sleep 0.05
        tries=$((tries + 1))
    done
    [ "$tries" -lt 200 ] || kill -KILL "$pid"
fi
rm -rf "$1"
"#;

/// Owns the directory of a server.
#[derive(Debug)]
pub(crate) struct Keeper {
    home: PathBuf,
    shell: Child,
    /// The shell reads its end when this is closed, which the end of the program does, too.
    life: Option<ChildStdin>,
}

impl Keeper {
    pub(crate) fn start(programs: &Programs) -> Result<Self, String> {
        let directory = tempfile::Builder::new().prefix("weir-pg-").tempdir();
        let directory = directory.map_err(|why| format!("cannot make a directory for PostgreSQL: {why}"))?;
        programs.give(directory.path(), 0o700)?;
        // The server compares paths with the real one.
        let home = directory.path().canonicalize();
        let home = home.map_err(|why| format!("cannot find {}: {why}", directory.path().display()))?;
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "sh"]).arg(&home).current_dir("/");
        // A reader of the tests' output must not wait for the shell.
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut shell = command.spawn().map_err(|why| format!("cannot run {command:?}: {why}"))?;
        let life = shell.stdin.take();
        let _ = directory.keep(); // from now on it is the shell's
        Ok(Self { home, shell, life })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.life = None;
        let _ = self.shell.wait();
    }
}
