//! A command's side of the control socket.

use std::io::{self, BufRead, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use link::token::ADDRESSES_MAX;
use rustix::process::Pid;

use super::{ControlRequest, LINE_MAX, SOCKET, server};

/// How long the node may be silent; some answers need the disk first.
pub const PATIENCE: Duration = Duration::from_secs(120);
/// Longest answer behind the first line.
const LONG_MAX: u64 = 1 << 30;

/// The bytes that follow an answer.
pub type Answers = Box<dyn BufRead + Send>;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// No node is running.
    #[error("no node is running on {data}")]
    NotRunning {
        /// The data directory.
        data: PathBuf,
    },
    /// The node refused the request.
    #[error("the node refused: {0}")]
    Refused(String),
    /// The object of the request does not exist.
    #[error("{0}")]
    Absent(String),
    /// The caller may not do this.
    #[error("not allowed: {0}")]
    Denied(String),
    /// No manager could be reached.
    #[error("no manager of {cluster} can be asked: {why}")]
    Unreachable {
        /// The cluster, as the user named it.
        cluster: String,
        /// What happened at each address.
        why: String,
    },
    /// The connection failed.
    #[error("{at}: {source}")]
    Io {
        /// The socket or the manager.
        at: String,
        /// The error of the system.
        source: io::Error,
    },
}

/// The process of the node that serves `data`.
pub fn node_of(data: &Path) -> Result<Pid, AskError> {
    drop(connect(data)?);
    let pid = foundation::datadir::holder_of(data).and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    pid.ok_or_else(|| AskError::NotRunning { data: data.to_owned() })
}

fn connect(data: &Path) -> Result<UnixStream, AskError> {
    server::connect(data).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => AskError::NotRunning { data: data.to_owned() },
        _ => AskError::Io { at: socket_of(data), source: error },
    })
}

/// Sends a request to the node that serves `data`. Returns the answer and a reader of the bytes that follow it.
pub fn ask(data: &Path, ask: &ControlRequest) -> Result<(serde_json::Value, Answers), AskError> {
    exchange(connect(data)?, ask, &|source| AskError::Io { at: socket_of(data), source })
}

/// Sends a request to the node that listens at `socket` for all users of this machine. Returns the answer and a reader of the bytes that follow it.
///
/// # Errors
/// [`AskError`].
pub fn ask_at(socket: &Path, ask: &ControlRequest) -> Result<(serde_json::Value, Answers), AskError> {
    let failed = |source| AskError::Io { at: format!("the control socket {}", socket.display()), source };
    exchange(server::connect_at(socket).map_err(failed)?, ask, &failed)
}

fn exchange(
    mut stream: UnixStream,
    ask: &ControlRequest,
    failed: &dyn Fn(io::Error) -> AskError,
) -> Result<(serde_json::Value, Answers), AskError> {
    stream.set_read_timeout(Some(PATIENCE)).map_err(failed)?;
    let written = stream.write_all(&line_of(ask).map_err(failed)?);
    match written {
        // A node that has no place for one more connection says so at once, and reads nothing: what it said is still here.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            answer(Box::new(BufReader::new(stream)), &|_| failed(io::ErrorKind::BrokenPipe.into()))
        }
        written => {
            written.map_err(failed)?;
            answer(Box::new(BufReader::new(stream)), failed)
        }
    }
}

/// Like [`ask`], for answers that may be longer than a line ([`super::Reply::long`]).
pub fn ask_long<T: serde::de::DeserializeOwned>(data: &Path, what: &ControlRequest) -> Result<T, AskError> {
    let (_, following) = ask(data, what)?;
    read_long(following).map_err(|source| AskError::Io { at: socket_of(data), source })
}

fn socket_of(data: &Path) -> String {
    format!("the node's control socket {}", data.join(SOCKET).display())
}

/// A request as it is sent.
pub(super) fn line_of(ask: &ControlRequest) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(ask)?;
    line.push(b'\n');
    Ok(line)
}

/// Reads the answer's line. `failed` says where a failure was.
fn answer(answers: Answers, failed: &dyn Fn(io::Error) -> AskError) -> Result<(serde_json::Value, Answers), AskError> {
    answer_of_manager(answers, failed).map(|(value, _, following)| (value, following))
}

/// The same with the addresses of all managers, if the answer has them.
pub(super) fn answer_of_manager(
    mut answers: Answers,
    failed: &dyn Fn(io::Error) -> AskError,
) -> Result<(serde_json::Value, Vec<String>, Answers), AskError> {
    let mut line = Vec::new();
    (&mut answers).take(LINE_MAX).read_until(b'\n', &mut line).map_err(failed)?;
    let broken = || failed(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed before the answer"));
    let mut answer: serde_json::Value = serde_json::from_slice(&line).map_err(|_| broken())?;
    let is = |what: &str| answer.get(what).is_some();
    match answer.get("error").and_then(|error| error.as_str()) {
        Some(what) if is("absent") => Err(AskError::Absent(what.to_owned())),
        Some(why) if is("denied") => Err(AskError::Denied(why.to_owned())),
        Some(error) => Err(AskError::Refused(error.to_owned())),
        None => {
            let managers = answer.get("managers").map(addresses).unwrap_or_default();
            Ok((answer.get_mut("ok").map(serde_json::Value::take).ok_or_else(broken)?, managers, answers))
        }
    }
}

/// The addresses in a list of JSON. Anything else in it is passed over.
fn addresses(list: &serde_json::Value) -> Vec<String> {
    let all = list.as_array().into_iter().flatten().filter_map(|one| one.as_str());
    let is_plain = |text: &&str| !text.contains(|c: char| c.is_control() || c.is_whitespace());
    all.filter(is_plain).filter_map(|text| config::keys::address(text).ok()).take(ADDRESSES_MAX).collect()
}

/// The JSON that follows an answer.
pub fn read_long<T: serde::de::DeserializeOwned>(following: Answers) -> io::Result<T> {
    Ok(serde_json::from_reader(following.take(LONG_MAX))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Asks a node that has said `said` and closed the connection before it read anything.
    fn asked(said: &[u8]) -> AskError {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        theirs.write_all(said).unwrap();
        drop(theirs);
        let failed = |source| AskError::Io { at: "the socket".into(), source };
        exchange(ours, &ControlRequest::Status, &failed).err().unwrap()
    }

    #[test]
    fn an_answer_may_have_the_addresses_of_managers() {
        let managers = |line: &str| {
            let line = std::io::Cursor::new(format!("{line}\nmore").into_bytes());
            let failed = |source| AskError::Io { at: "the manager".into(), source };
            let (value, managers, mut following) = answer_of_manager(Box::new(line), &failed).unwrap();
            let mut more = String::new();
            following.read_to_string(&mut more).unwrap();
            assert_eq!((value, more.as_str()), (serde_json::json!(1), "more"));
            managers.join(" ")
        };
        assert_eq!(managers(r#"{"ok":1}"#), "");
        assert_eq!(managers(r#"{"ok":1,"managers":["m1:1","[::1]:2"]}"#), "m1:1 [::1]:2");
        assert_eq!(managers(r#"{"ok":1,"managers":["m1","m1:0",3,"a b:1","a\nb:1","m2:1"]}"#), "m2:1");
        assert_eq!(managers(r#"{"ok":1,"managers":"m1:1"}"#), "");
        let many = serde_json::json!({ "ok": 1, "managers": vec!["m:1"; 40] });
        assert_eq!(managers(&many.to_string()).split(' ').count(), ADDRESSES_MAX);
    }

    #[test]
    fn a_node_that_refuses_before_it_has_read_the_request_is_heard() {
        let refused = asked(b"{\"error\":\"come again\"}\n");
        assert!(matches!(&refused, AskError::Refused(why) if why == "come again"), "{refused}");
        let closed = asked(b"");
        assert!(
            matches!(&closed, AskError::Io { source, .. } if source.kind() == io::ErrorKind::BrokenPipe),
            "{closed}"
        );
    }
}
