//! `weir reload`: checks the settings of a running node as the node would read them, with the flags of its start, then tells it to read them
//! again. It needs no other program, so the package's unit uses it.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::os::unix::ffi::OsStringExt as _;

use control::client::node_of;
use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::cli::{self, Cli, Command, ReloadArgs, ServeArgs};
use crate::exit::Exit;
use crate::serve;

/// Runs the command.
pub(crate) fn run(args: &ReloadArgs) -> Result<Exit, Failure> {
    let node = match args.pid {
        Some(pid) => {
            Pid::from_raw(pid).filter(|pid| !pid.is_init()).ok_or_else(|| no_node(pid, "it is no number of a node"))?
        }
        None => node_of(&args.data).map_err(|error| Failure::new(Exit::Failed, error))?,
    };
    let pid = node.as_raw_pid();
    let words = fs::read(format!("/proc/{pid}/cmdline")).map_err(|error| no_node(pid, &error.to_string()))?;
    let serve_args = serve_args(&words).ok_or_else(|| no_node(pid, "it does not run `weir serve`"))?;
    let config = match &serve_args.config {
        // Relative to the folder in which the node runs.
        Some(config) if config.is_relative() => {
            let folder = fs::read_link(format!("/proc/{pid}/cwd")).map_err(|error| no_node(pid, &error.to_string()))?;
            Some(folder.join(config))
        }
        other => other.clone(),
    };
    check(ServeArgs { config, check: true, ..serve_args })?;
    kill_process(node, Signal::HUP).map_err(|error| no_node(pid, &io::Error::from(error).to_string()))?;
    writeln!(io::stdout(), "node {pid} reads its settings again; its log says what it takes over")
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    Ok(Exit::Done)
}

fn check(args: ServeArgs) -> Result<(), Failure> {
    serve::run(&args).map(drop).map_err(|failure| {
        failure.while_doing("the node goes on with the settings that it has, because the new ones are wrong")
    })
}

fn no_node(pid: i32, why: &str) -> Failure {
    Failure::message(Exit::Failed, format!("cannot reload the node with the process id {pid}: {why}"))
}

/// The arguments of a running `weir serve`, from its `/proc/PID/cmdline`.
fn serve_args(cmdline: &[u8]) -> Option<ServeArgs> {
    let words = cmdline.strip_suffix(&[0])?.split(|byte| *byte == 0).map(|word| OsString::from_vec(word.to_vec()));
    let words: Vec<OsString> = words.collect();
    // Asked first, so that the command line of another program is not called wrong.
    if words.get(1).is_none_or(|command| command != "serve") {
        return None;
    }
    match cli::parse(words) {
        Ok(Cli { command: Command::Serve(args), .. }) => Some(args),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_the_command_line_of_a_node_is_one() {
        let args = serve_args(b"/usr/bin/weir\0serve\0--config\0/etc/weir/a b.toml\0--existing\0").unwrap();
        assert_eq!(args.config, Some(PathBuf::from("/etc/weir/a b.toml")));
        assert!(args.existing && !args.check);
        for other in [&b""[..], b"\0", b"bash\0", b"weir\0status\0", b"weir\0serve", b"weir\0serve\0--no-such-flag\0"] {
            assert!(serve_args(other).is_none(), "{}", String::from_utf8_lossy(other));
        }
    }
}
