//! The command line of the real binary: ready line, signals, errors, exit codes.
#![allow(clippy::unwrap_used)] // a test may fail this way

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::node::{Node, refusal, weir_ends};
use crate::session;
use rustix::process::Signal;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn data(&self) -> PathBuf {
        self.0.path().join("data")
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.0.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn says_ready_once_and_stops_on_sigterm() {
    let place = Place::new();
    let node = Node::start(&place.data(), &[]);
    TcpStream::connect(&node.address).unwrap();
    node.signal(Signal::TERM);
    let (status, rest) = node.ended(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0));
    assert_eq!(rest, "", "one line on stdout, no more");
    assert!(Node::log_of(&place.data()).contains("stopped cleanly"));

    // Start again on the same directory, and stop by the other signal.
    let node = Node::start(&place.data(), &["--existing"]);
    node.signal(Signal::INT);
    assert_eq!(node.ended(Duration::from_secs(10)).0.code(), Some(0));
    assert!(Node::log_of(&place.data()).contains("the last stop was clean"));
}

/// One client sends and reads nothing, one is in the middle of a request, one in the middle of a file.
#[test]
fn stops_in_time_whatever_clients_do() {
    use std::io::Write as _;
    let place = Place::new();
    let node = Node::start(&place.data(), &[]);
    let _silent = TcpStream::connect(&node.address).unwrap();
    let mut half = TcpStream::connect(&node.address).unwrap();
    half.write_all(&[0, 0, 0, 0, 0, 0]).unwrap();
    let mut session = session::Session::open(node.address.parse().unwrap(), 1);
    let handle = session.create("/recording");
    session.write(handle, 0, b"never closed");
    node.signal(Signal::TERM);
    let begin = std::time::Instant::now();
    let (status, _) = node.ended(Duration::from_secs(10));
    assert_eq!(status.code(), Some(0), "{}", Node::log_of(&place.data()));
    assert!(begin.elapsed() < Duration::from_secs(10));
    let node = Node::start(&place.data(), &[]);
    assert!(
        Node::log_of(&place.data()).contains("open writes when the node stopped: 1"),
        "{}",
        Node::log_of(&place.data())
    );
    node.stop();
}

#[test]
fn a_killed_node_starts_again_and_says_so() {
    let place = Place::new();
    let node = Node::start(&place.data(), &[]);
    node.signal(Signal::KILL);
    node.ended(Duration::from_secs(10));
    Node::start(&place.data(), &[]).stop();
    assert!(Node::log_of(&place.data()).contains("the last stop was not clean"));
}

#[test]
fn a_second_node_learns_which_process_holds_the_directory() {
    let place = Place::new();
    let node = Node::start(&place.data(), &[]);
    let (code, said) = refusal(&["serve", "--listen", "127.0.0.1:0", "--data", text(&place.data())]);
    assert_eq!(code, 4, "{said}");
    assert!(said.contains("in use") && said.contains(&node.child.id().to_string()), "{said}");
    assert!(said.contains(text(&place.data())), "{said}");
    let (code, said) = refusal(&["fsck", "--data", text(&place.data())]);
    assert_eq!(code, 4, "{said}");
    node.stop();
}

#[test]
fn a_taken_port_is_an_error() {
    let place = Place::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, said) = refusal(&["serve", "--listen", &address, "--data", text(&place.data())]);
    assert_eq!(code, 7, "{said}");
    assert!(said.contains(&address), "{said}");
}

#[test]
fn other_addresses_need_insecure() {
    let place = Place::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let (code, said) = refusal(&["serve", "--listen", address, "--data", text(&place.data())]);
        assert_eq!(code, 7, "{said}");
        assert!(said.contains("--insecure") && said.contains(address), "{said}");
    }
    assert!(!place.data().exists(), "a refusal makes nothing");
    Node::start(&place.data(), &["--insecure", "--log", "warn"]).stop();
}

#[test]
fn foreign_directories_are_left_alone() {
    let place = Place::new();
    place.write("thesis.tex", "years of work");
    let (code, said) = refusal(&["serve", "--listen", "127.0.0.1:0", "--data", text(place.0.path())]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("thesis.tex"), "{said}");
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 1, "nothing was made");

    let (code, said) = refusal(&["serve", "--listen", "127.0.0.1:0", "--existing", "--data", text(&place.data())]);
    assert_eq!(code, 3, "{said}");
    assert!(said.contains("mounted"), "{said}");
    let (code, said) = refusal(&["fsck", "--data", text(&place.data())]);
    assert_eq!(code, 3, "{said}");
    assert!(!place.data().exists());
}

#[test]
fn another_format_is_refused_untouched() {
    let place = Place::new();
    Node::start(&place.data(), &[]).stop();
    let file = place.data().join("FORMAT");
    let format = fs::read_to_string(&file).unwrap();
    let all_files = |root: &Path| {
        let mut names: Vec<_> = walk(root).into_iter().map(|path| (fs::metadata(&path).unwrap().len(), path)).collect();
        names.sort();
        names
    };
    let before = all_files(&place.data());
    for (changed, expected) in [
        (format.replace("format = 2", "format = 3"), "newer"),
        (format.replace("format = 2", "format = 1"), "earlier"),
        (format.replace("store = ", "store = 1"), "checksum does not match"),
    ] {
        fs::write(&file, changed).unwrap();
        for command in ["serve", "fsck"] {
            let (code, said) = refusal(&[command, "--data", text(&place.data())]);
            assert_eq!(code, 3, "{said}");
            assert!(said.contains(expected), "{said}");
        }
    }
    fs::write(&file, format).unwrap();
    assert_eq!(all_files(&place.data()), before, "nothing was touched");
    Node::start(&place.data(), &[]).stop();
}

fn walk(root: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { files.extend(walk(&path)) } else { files.push(path) }
    }
    files
}

#[test]
fn the_configuration_is_read_and_its_errors_named() {
    let place = Place::new();
    let config = place.write(
        "weir.toml",
        &format!(
            "data = \"{}\"\nlisten = \"0.0.0.0:0\"\nlog = \"warn\"\n[index]\ncache = \"8MiB\"\n",
            text(&place.data())
        ),
    );
    // The flag overrides the file's address, which the node would refuse.
    Node::start(&place.data(), &["--config", &config]).stop();
    assert_eq!(refusal(&["serve", "--config", &config]).0, 7);

    for (line, expected) in [
        ("grace_secnds = 3", ":2:1: unknown key `grace_secnds`; did you mean `grace_seconds`?"),
        ("grace_seconds = \"3\"", "takes a whole number"),
        ("[space]\nballast = \"64\"", "is not a size"),
        ("listen = ", "not valid TOML"),
    ] {
        let config = place.write("wrong.toml", &format!("data = \"/nowhere\"\n{line}\n"));
        let (code, said) = refusal(&["serve", "--config", &config]);
        assert_eq!(code, 2, "{said}");
        assert!(said.contains(expected) && said.contains("wrong.toml"), "{said}");
    }
    let (code, said) = refusal(&["serve", "--config", "/nowhere/weir.toml"]);
    assert_eq!(code, 2, "{said}");
    let (code, said) = refusal(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--data"), "{said}");
    let (code, said) = refusal(&["serve", "--data", text(&place.data()), "--log", "lots=of=noise"]);
    assert_eq!(code, 2, "{said}");
}

#[test]
fn help_and_version() {
    let version = weir_ends(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    assert_eq!(String::from_utf8(version.stdout).unwrap(), format!("weir {}\n", env!("CARGO_PKG_VERSION")));
    let commands = ["serve", "demo", "fsck", "cp", "bench", "store"];
    for command in [&[][..]].into_iter().chain(commands.iter().map(std::slice::from_ref)) {
        let arguments = [command, &["--help"]].concat();
        let arguments = arguments.as_slice();
        let help = weir_ends(arguments);
        assert_eq!(help.status.code(), Some(0));
        let help = String::from_utf8(help.stdout).unwrap();
        assert!(help.contains("Exit codes: `weir help exit-codes`"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
    }
    let codes = weir_ends(&["help", "exit-codes"]);
    assert_eq!(codes.status.code(), Some(0));
    let codes = String::from_utf8(codes.stdout).unwrap();
    assert!(codes.starts_with("Exit codes:\n") && codes.contains("   4  another process holds"), "{codes}");
    let overview = String::from_utf8(weir_ends(&["--help"]).stdout).unwrap();
    let headings: Vec<&str> = overview.lines().filter(|line| !line.starts_with(' ') && line.ends_with(':')).collect();
    assert_eq!(headings, ["Server:", "Cluster:", "Files:", "Measure:", "Options:"], "{overview}");
    let listed = overview.lines().filter(|line| line.starts_with(' '));
    assert!(listed.clone().count() > 40 && listed.clone().all(|line| line.chars().count() <= 80), "{overview}");
    assert_eq!(refusal(&[]).0, 2);
    assert_eq!(refusal(&["serv"]).0, 2);
    assert_eq!(refusal(&["serve", "--dta", "x"]).0, 2);
}

/// Damage in the middle of the journal, before later synced records.
#[test]
fn a_damaged_journal_is_refused_with_position_and_remedy() {
    let place = Place::new();
    for _ in 0..2 {
        Node::start(&place.data(), &[]).stop();
    }
    // The other segments are preallocated and empty.
    let segment = &walk(&place.data().join("journal")).into_iter().min().unwrap();
    let mut bytes = fs::read(segment).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    let hit = used / 2;
    bytes[hit] ^= 0x40;
    fs::write(segment, &bytes).unwrap();

    let (code, said) = refusal(&["serve", "--listen", "127.0.0.1:0", "--data", text(&place.data())]);
    assert_eq!(code, 5, "{said}");
    let name = segment.file_name().unwrap().to_str().unwrap();
    assert!(said.contains(name) && said.contains("--repair-journal"), "{said}");
    assert_eq!(refusal(&["fsck", "--data", text(&place.data())]).0, 5);
    assert_eq!(fs::read(segment).unwrap(), bytes, "a refusal changes nothing");

    let repaired = weir_ends(&["fsck", "--repair-journal", "--data", text(&place.data())]);
    let said = String::from_utf8_lossy(&repaired.stderr).into_owned();
    assert!(said.contains("are lost") && said.contains("saved in"), "{said}");
    Node::start(&place.data(), &[]).stop();
}
