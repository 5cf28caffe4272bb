//! What every request passes, from the socket and from other machines alike: the role is checked, the request is
//! answered, and a change is written to the audit log.

use std::io::{self, BufRead as _, BufReader, Read, Write};
use std::time::Instant;

use audit::{Event, Log, Outcome, Record};
use link::admin::AdminRole;

use super::denials::Denials;
use super::person::Person;
use super::rules::{Rule, rule};
use super::{Answers, Caller, ControlRequest, LINE_MAX, Reply};

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
    caller: impl FnOnce() -> Result<Caller, Reply>,
    answers: &Answers,
    log: &Log,
) -> io::Result<()> {
    // Whoever may make no request learns nothing about requests.
    let caller = match caller() {
        Ok(caller) => caller,
        Err(reply) => return say(&mut to, &reply),
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
    let Rule { least, or_owner, change } = rule(&ask);
    let is_change = change.is_some();
    let line = Change::of(&ask, change);
    let decision = decide(&caller, &ask, least, or_owner);
    let audit = |outcome: Outcome, why: &str| {
        // Whoever was not let do it, or could not, is perhaps no owner.
        let by = match (&decision, outcome) {
            (Ok(Right::MayOwn(_)), Outcome::Ok) => "owner".to_owned(),
            _ => caller.role().map_or_else(|| "none".to_owned(), |role| role.to_string()),
        };
        // Also what only reads, if somebody wanted to see more than they may.
        if is_change || outcome == Outcome::Denied {
            line.write((log, &answers.denials), &caller, &by, outcome, why);
        }
    };
    let reply = match decision.as_ref().map_err(String::clone) {
        Err(why) => Reply::Denied(why),
        Ok(Right::Role(_)) => (answers.by_role)(&caller, ask),
        Ok(Right::MayOwn(person)) => match (answers.by_owner)(person, ask) {
            Reply::Denied(why) => Reply::Denied(format!("{why}; {}", lacks(person, least))),
            reply => reply,
        },
    };
    match reply {
        Reply::Late(value, work) => {
            let began = say_done(&mut to, &value, &(answers.managers)());
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
            say_done(&mut to, &value, &(answers.managers)())?;
            let mut out = io::BufWriter::with_capacity(BUFFER, &mut to);
            following(&mut out)?;
            out.flush()
        }
        Reply::Done(value) => {
            audit(Outcome::Ok, "");
            say_done(&mut to, &value, &(answers.managers)())
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

/// By what right a request is carried out.
#[derive(Debug, PartialEq, Eq)]
enum Right<'a> {
    /// The caller has this role.
    Role(AdminRole),
    /// The caller has not the role, and may own the tree that the request is about.
    MayOwn(&'a Person),
}

/// Decides whether the caller may make the request, which needs the role `least`. The error says why not, and what would help.
fn decide<'a>(caller: &'a Caller, ask: &ControlRequest, least: AdminRole, or_owner: bool) -> Result<Right<'a>, String> {
    match (ask, caller) {
        (ControlRequest::Backup { .. }, Caller::Remote { .. } | Caller::Person(_)) => {
            return Err("backups are made on the manager's machine, by root or the user that weir runs as: they contain the key of the cluster".into());
        }
        // A longer life of a certificate is for its holder.
        (ControlRequest::AdminRenew { .. }, Caller::Person(_)) => {
            return Err("this renews an administrator's certificate, and you have shown none".into());
        }
        _ => {}
    }
    if let Some(role) = caller.role().filter(|role| *role >= least) {
        return Ok(Right::Role(role));
    }
    match caller {
        Caller::Person(person) if or_owner && person.may_own() => Ok(Right::MayOwn(person)),
        Caller::Person(person) => Err(lacks(person, least)),
        Caller::Local { .. } | Caller::Remote { .. } => {
            let role = caller.role().map_or_else(|| "nobody".to_owned(), |role| role.to_string());
            Err(format!("{} is {role}, and this needs the role {least}", caller.name()))
        }
    }
}

/// Why the role of a person is not enough, and what would help.
fn lacks(person: &Person, least: AdminRole) -> String {
    match person.role {
        Ok(role) => format!("{} is {role}, and this needs the role {least}", person.who.name),
        Err(why) => format!("{} has no role, and this needs the role {least}: {why}", person.who.name),
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

    /// Writes the line, and one to the log of the node. `role`: by which the caller acts.
    fn write(&self, (log, denials): (&Log, &Denials), caller: &Caller, role: &str, result: Outcome, why: &str) {
        let outcome = match result {
            Outcome::Ok => "done".to_owned(),
            other => format!("{}: {why}", other.name()),
        };
        // Values of other people stand in quotes: they cannot look like another line.
        let (by, peer, what, outcome) = (caller.name(), caller.peer(), cut(&self.words), cut(&outcome));
        let (mechanism, shown) = caller.shown_by();
        let may_be_logged = match result {
            Outcome::Denied | Outcome::Failed => denials
                .may_be_logged(&format!("{mechanism} {by}"), Instant::now())
                .map(|held| Some(held).filter(|held| *held > 0)),
            _ => Some(None),
        };
        match (may_be_logged, shown) {
            (Some(held_back), Some(shown)) => {
                let credential = cut(shown);
                tracing::info!(target: "audit", by, %role, peer, credential, what, outcome, held_back, "change");
            }
            (Some(held_back), None) => {
                tracing::info!(target: "audit", by, %role, peer, what, outcome, held_back, "change");
            }
            (None, _) => {}
        }
        if !log.is_on() {
            return;
        }
        log.write(Record {
            event: Event::Admin,
            operation: self.operation.clone().into(),
            path: self.path.clone().map(Into::into),
            detail: Some(self.words.clone().into()),
            result,
            reason: (!why.is_empty()).then(|| why.to_owned().into()),
            principal: Some(by.into()),
            mechanism: Some(mechanism.into()),
            credential: Some(shown.map_or_else(|| role.to_owned(), |shown| format!("{role}, {shown}")).into()),
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
        Reply::Done(value) | Reply::Stream(value, _) | Reply::Late(value, _) => return say_done(to, value, &[]),
        Reply::Refused(why) => serde_json::json!({ "error": why }),
        Reply::Absent(what) => serde_json::json!({ "error": what, "absent": true }),
        Reply::Denied(why) => serde_json::json!({ "error": why, "denied": true }),
    };
    to.write_all(format!("{line}\n").as_bytes())
}

/// The same for an answer of a cluster with these managers.
fn say_done(to: &mut impl Write, value: &serde_json::Value, managers: &[String]) -> io::Result<()> {
    let mut line = serde_json::json!({ "ok": value });
    if !managers.is_empty() {
        line["managers"] = serde_json::json!(managers);
    }
    to.write_all(format!("{line}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use audit::{Destination, FileSettings, Filter, Reader, Settings};
    use link::admin::AdminId;
    use tracing_subscriber::fmt;
    use tracing_subscriber::prelude::*;

    use super::*;
    use crate::Answerer;
    use crate::person::tests::client;
    use crate::person::{NoRole, PersonAt};

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
    fn served(ask: &str, caller: Result<Caller, String>, answer: &'static Answerer) -> (String, String) {
        served_by(ask, caller, &Answers::new(answer))
    }

    fn served_by(ask: &str, caller: Result<Caller, String>, answer: &Answers) -> (String, String) {
        let mut out = Vec::new();
        let (_, log) =
            logged(|| serve(ask.as_bytes(), &mut out, || caller.map_err(Reply::Denied), answer, &Log::off()));
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
        let late: &'static Answerer = &|_, _| {
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
        let late = Answers::new(|_, _| {
            Reply::Late(serde_json::Value::Null, Box::new(|out| out.write_all(b"2").map(|()| Ok(()))))
        });
        let (ended, log) =
            logged(|| serve(DRAIN.as_bytes(), Ends(false), || Ok(caller(AdminRole::Admin)), &late, &Log::off()));
        assert_eq!(ended.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(log.contains("what=\"drain store 7\" outcome=\"done\""), "{log}");
    }

    #[test]
    fn without_the_role_nothing_happens() {
        let nobody: &'static Answerer = &|_, _| panic!("it was answered");
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
            let answers = Answers::new(|_, _| Reply::long(&1));
            serve(ask.as_bytes(), &mut Vec::new(), || Ok(caller(role)), &answers, &log).unwrap();
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

    /// `yes`: it is carried out. `if`: the namespace decides whether the caller owns the tree. `no`: denied.
    /// The people: with each role; with none; with none and a token for jobs. `root` is on the machine, the others come over the network.
    const TABLE: &str = r#"
viewer operator admin root none jobs request
yes    yes      yes   yes  no   no   {"ask":"status"}
yes    yes      yes   yes  no   no   {"ask":"stores"}
yes    yes      yes   yes  no   no   {"ask":"trees","after":null}
yes    yes      yes   yes  no   no   {"ask":"quotas","path":null,"after":null}
yes    yes      yes   yes  if   no   {"ask":"quotas","path":"/t","after":null}
yes    yes      yes   yes  if   no   {"ask":"policy-get","path":"/t"}
yes    yes      yes   yes  no   no   {"ask":"policy-list"}
yes    yes      yes   yes  no   no   {"ask":"admins"}
yes    yes      yes   yes  no   no   {"ask":"authority"}
yes    yes      yes   yes  no   no   {"ask":"tokens"}
no     yes      yes   yes  no   no   {"ask":"drain","store":7,"stop":false}
no     yes      yes   yes  no   no   {"ask":"scrub-now","rate":null}
no     yes      yes   yes  no   no   {"ask":"policy-apply","path":"/t","dry_run":true,"files_per_second":1}
no     no       yes   yes  no   no   {"ask":"policy-apply","path":"/t","dry_run":false,"files_per_second":1}
if     if       yes   yes  if   no   {"ask":"policy-set","path":"/t","words":"replica(2)"}
if     if       yes   yes  if   no   {"ask":"policy-remove","path":"/t"}
if     if       yes   yes  if   no   {"ask":"quota-set","path":"/t","user":"a"}
no     no       yes   yes  no   no   {"ask":"tree-create","path":"/t"}
no     no       yes   yes  no   no   {"ask":"tree-owner","path":"/t","user":"ana"}
no     no       yes   yes  no   no   {"ask":"principal-add","group":false,"name":"x"}
no     no       yes   yes  no   no   {"ask":"admin-revoke","name":"x"}
no     no       yes   yes  no   no   {"ask":"explain","path":"/t","to":null,"operation":"read","who":"a","groups":[],"scopes":null}
no     no       no    yes  no   no   {"ask":"backup"}
no     no       no    yes  no   no   {"ask":"admin-renew","request":""}
"#;

    fn person(role: Result<AdminRole, NoRole>) -> Caller {
        let at = PersonAt::Network("127.0.0.1:9".parse().unwrap());
        Caller::Person(Box::new(Person { who: client("ana", &[]), role, at }))
    }

    #[test]
    fn each_person_makes_the_requests_of_the_role_and_an_owner_those_about_trees() {
        let root = || Caller::owner_of_node(0).unwrap();
        let who: [(&str, Caller); 6] = [
            ("viewer", person(Ok(AdminRole::Viewer))),
            ("operator", person(Ok(AdminRole::Operator))),
            ("admin", person(Ok(AdminRole::Admin))),
            ("root", root()),
            ("none", person(Err(NoRole::NoRule))),
            ("jobs", person(Err(NoRole::LimitedToken))),
        ];
        let mut lines = TABLE.trim().lines();
        let head: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(head[..6], who.each_ref().map(|(name, _)| *name));
        let mut rows = 0;
        for line in lines {
            let (expected, ask) = line.split_at(line.find('{').unwrap());
            let answers =
                Answers::new(|_, _| Reply::Done("by role".into())).with_owners(|_, _| Reply::Done("by owner".into()));
            let found = who.each_ref().map(|(_, caller)| {
                let (said, _) = served_by(ask, Ok(caller.clone()), &answers);
                match &*said {
                    "{\"ok\":\"by role\"}\n" => "yes",
                    "{\"ok\":\"by owner\"}\n" => "if",
                    said if said.contains("\"denied\":true") => "no",
                    other => panic!("{ask}: {other}"),
                }
            });
            assert_eq!(expected.split_whitespace().collect::<Vec<_>>(), found, "{ask}");
            rows += 1;
        }
        assert_eq!(rows, 24);
    }

    #[test]
    fn a_refused_person_learns_what_would_help_and_the_log_says_by_what_credential() {
        let nobody: &'static Answerer = &|_, _| panic!("it was answered");
        for (role, words) in [
            (Ok(AdminRole::Viewer), "ana is viewer, and this needs the role operator"),
            (Err(NoRole::NoRule), "ana has no role, and this needs the role operator: no [[administrator]]"),
            (Err(NoRole::LimitedToken), "get a token without storage scopes"),
            (Err(NoRole::ByMappingService), "write an [[identity]] for this person"),
        ] {
            let (said, log) = served(DRAIN, Ok(person(role)), nobody);
            assert!(said.contains(words), "{said}");
            let credential = "credential=\"subject ana of https://a.example\"";
            assert!(
                log.contains("by=\"ana\"") && log.contains(credential) && log.contains("outcome=\"denied: "),
                "{log}"
            );
        }
        // Whoever only owns trees acts as that, whatever the namespace decides.
        let set = r#"{"ask":"policy-set","path":"/t","words":"replica(2)"}"#;
        let outside = Answers::new(nobody).with_owners(|_, _| Reply::Denied("not yours".into()));
        let (said, log) = served_by(set, Ok(person(Ok(AdminRole::Viewer))), &outside);
        assert!(said.contains("not yours") && said.contains("\"denied\":true"), "{said}");
        assert!(
            log.contains("role=viewer")
                && log.contains("outcome=\"denied: not yours; ana is viewer, and this needs the role admin\""),
            "{log}"
        );
        let own = Answers::new(nobody).with_owners(|_, _| Reply::Done("set".into()));
        let (_, log) = served_by(set, Ok(person(Ok(AdminRole::Viewer))), &own);
        assert!(log.contains("role=owner") && log.contains("outcome=\"done\""), "{log}");
        // A node without trees has no owners.
        let (said, _) = served_by(set, Ok(person(Err(NoRole::NoRule))), &Answers::new(nobody));
        assert!(said.contains("\"denied\":true") && said.contains("has no trees"), "{said}");
    }

    #[test]
    fn who_may_do_nothing_cannot_fill_the_log_of_the_node_or_the_audit_log() {
        let temp = tempfile::tempdir().unwrap();
        let files = FileSettings { directory: temp.path().to_owned(), file_bytes: 1 << 20, files_max: 2 };
        let audit = Log::start(&Settings { to: Destination::Files(files), reads: false }).unwrap();
        // Nobody knows yet whether they own the tree: the path is none.
        let answers = Answers::new(|_, _| Reply::Done("done".into()))
            .with_owners(|_, _| Reply::Refused("the path is empty".into()));
        let set = r#"{"ask":"policy-set","path":"","words":"replica(2)"}"#;
        let (_, log) = logged(|| {
            for (ask, role) in [(DRAIN, NoRole::LimitedToken), (set, NoRole::NoRule)] {
                for _ in 0..300 {
                    serve(ask.as_bytes(), Vec::new(), || Ok(person(Err(role))), &answers, &audit).unwrap();
                }
            }
            // What others do, and what is done, is logged.
            for _ in 0..60 {
                serve(DRAIN.as_bytes(), Vec::new(), || Ok(person(Ok(AdminRole::Admin))), &answers, &audit).unwrap();
            }
            serve(DRAIN.as_bytes(), Vec::new(), || Ok(caller(AdminRole::Viewer)), &answers, &audit).unwrap();
        });
        audit.stop();
        let lines = |part: &str| log.lines().filter(|line| line.contains(part)).count();
        assert_eq!((lines("outcome=\"done\""), lines("by=\"alice\"")), (60, 1));
        assert!((20..=25).contains(&lines("role=none")), "{}", lines("role=none"));
        let mut found = [0; 3];
        let mut each = |record: Record, _: &[u8]| {
            let kind = [Outcome::Ok, Outcome::Denied, Outcome::Failed].iter().position(|one| *one == record.result);
            found[kind.unwrap()] += usize::from(record.operation != "more");
            true
        };
        Reader::open(temp.path()).unwrap().read(&Filter::default(), &mut each).unwrap();
        assert_eq!(found[0], 60);
        assert!(found[1..].iter().all(|of_kind| (100..=110).contains(of_kind)), "{found:?}");
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
