//! What every request passes, from the socket and from other machines alike: the role is checked, the request is
//! answered, and a change is written to the audit log.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use audit::{Event, Log, Outcome, Record};

use super::rules::{Rule, rule};
use super::{Answerer, Caller, ControlRequest, LINE_MAX, Reply};

/// Reads the line of a request.
pub fn read(from: impl Read) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    BufReader::new(from.take(LINE_MAX)).read_until(b'\n', &mut line)?;
    Ok(line)
}

/// Answers the request in `line`, and writes the answer to `to`. `caller` is asked once the request is here.
pub fn serve(
    line: &[u8],
    mut to: impl Write,
    caller: impl FnOnce() -> Result<Caller, String>,
    answer: &Answerer,
    log: &Log,
) -> io::Result<()> {
    // Whoever may make no request learns nothing about requests.
    let caller = match caller() {
        Ok(caller) => caller,
        Err(why) => return say(&mut to, &Reply::Denied(why)),
    };
    let ask = match serde_json::from_slice::<ControlRequest>(line) {
        Ok(ask) => ask,
        Err(error) => {
            let version = env!("CARGO_PKG_VERSION");
            return say(
                &mut to,
                &Reply::Refused(format!(
                    "this node, weir {version}, does not understand the command: {error}; is the command of the same version?"
                )),
            );
        }
    };
    let Rule { least, change } = rule(&ask);
    let is_change = change.is_some();
    let line = Change::of(&ask, change);
    let audit = |outcome: Outcome, why: &str| {
        // Also what only reads, if somebody wanted to see more than they may.
        if is_change || outcome == Outcome::Denied {
            line.write(log, &caller, outcome, why);
        }
    };
    if let (Caller::Remote { .. }, ControlRequest::Backup { .. }) = (&caller, &ask) {
        let why = "backups are made on the manager's machine: they contain the key of the cluster";
        audit(Outcome::Denied, why);
        return say(&mut to, &Reply::Denied(why.into()));
    }
    if caller.role() < least {
        let why = format!("{} is {}, and this needs the role {least}", caller.name(), caller.role());
        audit(Outcome::Denied, &why);
        return say(&mut to, &Reply::Denied(why));
    }
    let reply = answer(&caller, ask);
    match reply {
        Reply::Late(value, work) => {
            let began = say(&mut to, &Reply::Done(value));
            let mut out = io::BufWriter::with_capacity(BUFFER, &mut to);
            // The work notices that nobody reads its answer any more. What it did is logged before its answer is sent: that may fail.
            let worked = began.and_then(|()| work(&mut out));
            match &worked {
                Ok(Ok(())) => audit(Outcome::Ok, ""),
                Ok(Err(why)) => audit(Outcome::Failed, why),
                Err(error) => {
                    audit(Outcome::Failed, &format!("the command's connection ended before the answer: {error}"));
                }
            }
            worked.map(drop).and_then(|()| out.flush())
        }
        Reply::Stream(value, following) => {
            audit(Outcome::Ok, "");
            say(&mut to, &Reply::Done(value))?;
            let mut out = io::BufWriter::with_capacity(BUFFER, &mut to);
            following(&mut out)?;
            out.flush()
        }
        reply => {
            match &reply {
                Reply::Refused(why) | Reply::Absent(why) => audit(Outcome::Failed, why),
                Reply::Denied(why) => audit(Outcome::Denied, why),
                _ => audit(Outcome::Ok, ""),
            }
            say(&mut to, &reply)
        }
    }
}

/// The answer to a command for which there is no room.
pub const TOO_MANY: &str = "too many commands at a time; try again in a moment";
/// Bytes of an answer that are sent together.
const BUFFER: usize = 256 << 10;

/// Bytes of a change's words and of its outcome in an audit line. What is longer is cut.
const AUDITED_MAX: usize = 2048;

/// A request, for the audit log.
struct Change {
    /// The request, as in `policy-set`.
    operation: String,
    /// The path that it is about.
    path: Option<String>,
    /// What it does, in words.
    words: String,
}

impl Change {
    fn of(ask: &ControlRequest, words: Option<String>) -> Self {
        let fields = serde_json::to_value(ask).unwrap_or_default();
        let field = |name: &str| fields.get(name).and_then(|value| value.as_str()).map(str::to_owned);
        let operation = field("ask").unwrap_or_default();
        // As the lines of clients have names, and filters look for them.
        let path = field("path").map(|path| path.as_bytes().escape_ascii().to_string());
        Self { words: words.unwrap_or_else(|| operation.clone()), operation, path }
    }

    /// Writes the line, and one to the log of the node.
    fn write(&self, log: &Log, caller: &Caller, result: Outcome, why: &str) {
        let outcome = match result {
            Outcome::Ok => "done".to_owned(),
            other => format!("{}: {why}", other.name()),
        };
        // Values of other people stand in quotes: they cannot look like another line.
        let (by, role, peer, what, outcome) =
            (caller.name(), caller.role(), caller.peer(), cut(&self.words), cut(&outcome));
        tracing::info!(target: "audit", by, %role, peer, what, outcome, "change");
        if !log.is_on() {
            return;
        }
        let mechanism = match caller {
            Caller::Local { .. } => "control socket",
            Caller::Remote { .. } => "administrator's certificate",
        };
        log.write(Record {
            event: Event::Admin,
            operation: self.operation.clone().into(),
            path: self.path.clone().map(Into::into),
            detail: Some(self.words.clone().into()),
            result,
            reason: (!why.is_empty()).then(|| why.to_owned().into()),
            principal: Some(by.into()),
            mechanism: Some(mechanism.into()),
            credential: Some(role.to_string().into()),
            address: Some(peer.into()),
            ..Record::default()
        });
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=AUDITED_MAX.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or(0)).unwrap_or_default()
}

/// Writes an answer without bytes that follow it.
pub fn say(to: &mut impl Write, reply: &Reply) -> io::Result<()> {
    let line = match reply {
        Reply::Done(value) | Reply::Stream(value, _) | Reply::Late(value, _) => serde_json::json!({ "ok": value }),
        Reply::Refused(why) => serde_json::json!({ "error": why }),
        Reply::Absent(what) => serde_json::json!({ "error": what, "absent": true }),
        Reply::Denied(why) => serde_json::json!({ "error": why, "denied": true }),
    };
    to.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use audit::{Destination, FileSettings, Filter, Reader, Settings};
    use link::admin::{AdminId, AdminRole};
    use tracing_subscriber::fmt;
    use tracing_subscriber::prelude::*;

    use super::*;

    fn caller(role: AdminRole) -> Caller {
        let peer = "127.0.0.1:9".parse().unwrap();
        Caller::Remote { id: AdminId([0; 16]), name: "alice".into(), role, peer }
    }

    /// What `work` returns, and the log.
    fn logged<T>(work: impl FnOnce() -> T) -> (T, String) {
        let temp = tempfile::NamedTempFile::new().unwrap();
        let layer = fmt::layer().with_ansi(false).with_writer(Arc::new(temp.reopen().unwrap()));
        let done = tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        (done, std::fs::read_to_string(temp.path()).unwrap())
    }

    /// The answer to `ask`, and the log.
    fn served(ask: &str, caller: Result<Caller, String>, answer: &Answerer) -> (String, String) {
        let mut out = Vec::new();
        let (_, log) = logged(|| serve(ask.as_bytes(), &mut out, || caller, answer, &Log::off()));
        (String::from_utf8(out).unwrap(), log)
    }

    const DRAIN: &str = "{\"ask\":\"drain\",\"store\":7,\"stop\":false}\n";

    #[test]
    fn a_change_is_logged_with_who_made_it_and_the_outcome() {
        let done = served(DRAIN, Ok(caller(AdminRole::Operator)), &|_, _| Reply::long(&1));
        assert_eq!(done.0, "{\"ok\":null}\n1");
        for part in [
            "audit: change",
            "by=\"alice\"",
            "role=operator",
            "peer=\"127.0.0.1:9\"",
            "what=\"drain store 7\"",
            "outcome=\"done\"",
        ] {
            assert!(done.1.contains(part), "{part} in {}", done.1);
        }
        let failed = served(DRAIN, Ok(caller(AdminRole::Admin)), &|_, _| Reply::Refused("no room".into()));
        assert!(failed.1.contains("outcome=\"failed: no room\""), "{}", failed.1);
        let late: &Answerer = &|_, _| {
            Reply::Late(serde_json::Value::Null, Box::new(|out| out.write_all(b"2").map(|()| Err("late".into()))))
        };
        let late = served(DRAIN, Ok(caller(AdminRole::Admin)), late);
        assert_eq!(late.0, "{\"ok\":null}\n2");
        assert!(late.1.contains("outcome=\"failed: late\""), "{}", late.1);
        let read = served("{\"ask\":\"stores\"}\n", Ok(caller(AdminRole::Viewer)), &|_, _| Reply::long(&1));
        assert_eq!(read.1, "", "what only reads is not logged");
    }

    #[test]
    fn a_change_is_logged_as_done_though_nobody_takes_the_answer() {
        /// Takes the first line alone.
        struct Ends(bool);
        impl Write for Ends {
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match std::mem::replace(&mut self.0, true) {
                    false => Ok(bytes.len()),
                    true => Err(io::ErrorKind::BrokenPipe.into()),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let late: &Answerer =
            &|_, _| Reply::Late(serde_json::Value::Null, Box::new(|out| out.write_all(b"2").map(|()| Ok(()))));
        let (ended, log) =
            logged(|| serve(DRAIN.as_bytes(), Ends(false), || Ok(caller(AdminRole::Admin)), late, &Log::off()));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(log.contains("what=\"drain store 7\" outcome=\"done\""), "{log}");
    }

    #[test]
    fn without_the_role_nothing_happens() {
        let nobody: &Answerer = &|_, _| panic!("it was answered");
        let denied = served(DRAIN, Ok(caller(AdminRole::Viewer)), nobody);
        assert!(denied.0.contains("\"denied\":true") && denied.0.contains("needs the role operator"), "{}", denied.0);
        assert!(denied.1.contains("outcome=\"denied: "), "{}", denied.1);
        let revoked = served(DRAIN, Err("it was revoked".into()), nobody);
        assert!(revoked.0.contains("it was revoked") && revoked.0.contains("\"denied\":true"), "{}", revoked.0);
        let nonsense = served("{\"ask\":\"dance\"}\n", Ok(caller(AdminRole::Admin)), nobody);
        assert!(nonsense.0.contains("does not understand"), "{}", nonsense.0);
        let revoked = served("{\"ask\":\"dance\"}\n", Err("it was revoked".into()), nobody);
        assert!(revoked.0.contains("it was revoked"), "{}", revoked.0);
    }

    #[test]
    fn a_change_and_a_denial_are_lines_of_the_audit_log() {
        let temp = tempfile::tempdir().unwrap();
        let files = FileSettings { directory: temp.path().to_owned(), file_bytes: 1 << 20, files_max: 2 };
        let log = Log::start(&Settings { to: Destination::Files(files), reads: false }).unwrap();
        let set = r#"{"ask":"policy-set","path":"/d","words":"two"}"#;
        let backup = r#"{"ask":"backup"}"#;
        for (ask, role) in [
            (set, AdminRole::Admin),
            (DRAIN, AdminRole::Viewer),
            (r#"{"ask":"stores"}"#, AdminRole::Admin),
            (backup, AdminRole::Admin),
            (r#"{"ask":"restored","list":1,"accept":false,"force":false}"#, AdminRole::Viewer),
        ] {
            serve(ask.as_bytes(), &mut Vec::new(), || Ok(caller(role)), &|_, _| Reply::long(&1), &log).unwrap();
        }
        log.stop();
        let mut lines = Vec::new();
        let mut each = |record: Record, _: &[u8]| {
            lines.push(record);
            true
        };
        Reader::open(temp.path()).unwrap().read(&Filter::default(), &mut each).unwrap();
        let [set, drain, backup, restored] = lines.try_into().unwrap();
        assert_eq!((set.event, &*set.operation, set.path.as_deref()), (Event::Admin, "policy-set", Some("/d")));
        assert_eq!((set.result, set.principal.as_deref(), set.reason), (Outcome::Ok, Some("alice"), None));
        assert_eq!((set.address.as_deref(), set.credential.as_deref()), (Some("127.0.0.1:9"), Some("admin")));
        assert_eq!((&*drain.operation, drain.result), ("drain", Outcome::Denied));
        assert!(drain.reason.unwrap().contains("needs the role operator"));
        assert_eq!((&*backup.operation, backup.result), ("backup", Outcome::Denied));
        assert_eq!((&*restored.operation, restored.result), ("restored", Outcome::Denied), "it only reads");
    }

    #[test]
    fn a_hostile_name_makes_no_line_of_its_own() {
        let ask = "{\"ask\":\"node-remove\",\"name\":\"a\\nINFO audit: change by=\\\"root\\\"\"}\n";
        let (_, log) = served(ask, Ok(caller(AdminRole::Admin)), &|_, _| Reply::Absent("no such node".into()));
        assert_eq!(log.lines().count(), 1, "{log}");
    }

    #[test]
    fn a_backup_is_made_on_the_machine_itself() {
        let (said, log) = served(r#"{"ask":"backup"}"#, Ok(caller(AdminRole::Admin)), &|_, _| unreachable!());
        assert!(said.contains("denied") && said.contains("on the manager's machine"), "{said}");
        assert!(log.contains("outcome=\"denied: "), "{log}");
    }
}
