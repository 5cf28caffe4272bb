//! What becomes a line of the audit log: each change that a caller requests, each denial, and each login. All front ends pass
//! here, so none of them can forget a line. No line has a secret: a caller's credential is shown as
//! [`Caller::with_login`] has got it, and of an open only the path.
//!
//! The line of a change is written when its outcome is known, before the caller learns it.

use std::borrow::Cow;
use std::sync::Arc;

use audit::{Event, Log, Outcome, Record};
use namespace::{AclEdit, SetAcl};
use types::{ErrorCode, NsPath};

use crate::answer::Answer;
use crate::caller::{Caller, Principal};
use crate::changes::Change;
use crate::error::Error;
use crate::handles::Handle;
use crate::lease::Lease;
use crate::open_file::Access;
use crate::opening::{Open, WriteMode};
use crate::service::Service;
use crate::session::Session;
use crate::xattrs::{AttributeChange, EachAttribute};

/// Entries of an ACL, or attributes, that a line names.
const NAMED_MAX: usize = 8;

/// What a request does.
pub(crate) struct About<'a> {
    /// A change, or a read.
    pub(crate) event: Event,
    /// The request, as in `mkdir`.
    pub(crate) operation: Cow<'static, str>,
    /// The name that it is about.
    pub(crate) path: Option<&'a NsPath>,
    /// The new name, if there are two.
    pub(crate) to: Option<&'a NsPath>,
    /// What is to be set.
    pub(crate) detail: Option<String>,
}

impl<'a> About<'a> {
    /// A change of one name.
    pub(crate) fn change(operation: &'static str, path: &'a NsPath) -> Self {
        Self { event: Event::Change, operation: operation.into(), path: Some(path), to: None, detail: None }
    }

    /// A read.
    pub(crate) fn read(operation: impl Into<Cow<'static, str>>, path: &'a NsPath) -> Self {
        Self { event: Event::Read, operation: operation.into(), path: Some(path), to: None, detail: None }
    }

    /// A new file of a batch.
    pub(crate) fn creation(path: &'a NsPath, replace: bool, len: u64) -> Self {
        Self::change(if replace { "replace" } else { "create" }, path).detail(format!("{len} bytes"))
    }

    /// A truncation by name.
    pub(crate) fn truncation(path: &'a NsPath, len: u64) -> Self {
        Self::change("truncate", path).detail(format!("to {len} bytes"))
    }

    /// With what is to be set.
    pub(crate) fn detail(self, detail: impl Into<String>) -> Self {
        Self { detail: Some(detail.into()), ..self }
    }

    /// The line about a request of `caller`, without its outcome.
    fn record(self, caller: &Caller) -> Record {
        Record {
            event: self.event,
            operation: self.operation,
            path: self.path.map(|path| path.to_string().into()),
            to: self.to.map(|to| to.to_string().into()),
            detail: self.detail.map(Cow::Owned),
            ..of_caller(caller)
        }
    }
}

/// What a line says about a caller.
fn of_caller(caller: &Caller) -> Record {
    let text = |text: &str| Some(Cow::Owned(text.to_owned()));
    let (client, is_here) = (&caller.client, !caller.protocol.is_empty());
    Record {
        principal: caller.name.as_deref().and_then(text),
        number: Some(caller.principal.0),
        mechanism: caller.login.as_ref().map(|login| login.mechanism.into()),
        credential: caller.login.as_deref().and_then(|login| text(&login.credential)),
        // A client that has left an open write behind before a restart has no connection any more.
        address: is_here.then(|| caller.peer.to_string().into()),
        client: (!client.user.is_empty()).then(|| format!("{}.{}", client.user, client.pid).into()),
        protocol: is_here.then(|| caller.protocol.into()),
        session: caller.session,
        ..Record::default()
    }
}

/// Completes a line with the outcome of the request; `None`: there is none yet, or another node writes it.
fn with_outcome(record: Record, error: Option<&Error>) -> Option<Record> {
    Some(match error {
        None => Record { result: Outcome::Ok, ..record },
        Some(Error::Refused { code, text }) => {
            Record { result: Outcome::from(*code), code: Some(*code), reason: Some(text.clone().into()), ..record }
        }
        // The client repeats the request, here or at the manager.
        Some(Error::Wait { .. }) => return None,
        Some(Error::Redirect(to)) => {
            Record { result: Outcome::Redirected, reason: Some(format!("node {} does it", to.node?).into()), ..record }
        }
    })
}

/// Whether a line with its outcome is written. Reads are only if they are denied, or asked for.
fn is_wanted(record: &Record, reads: bool) -> bool {
    record.event != Event::Read || reads || record.result == Outcome::Denied
}

/// Why a request has failed, in its outcome.
type Judge<T> = fn(&Result<T, Error>) -> Option<Error>;

/// The line of a request, without its outcome.
enum Line {
    Made(Box<Record>),
    /// An open for reading, which has a line only if it is denied. It is made then.
    OfDenial(Arc<Caller>, NsPath),
}

impl Line {
    fn with_outcome(self, error: Option<&Error>) -> Option<Record> {
        match (self, error) {
            (Self::Made(record), error) => with_outcome(*record, error),
            (Self::OfDenial(caller, path), Some(Error::Refused { code: ErrorCode::Denied, .. })) => {
                with_outcome(About::read("open", &path).record(&caller), error)
            }
            (Self::OfDenial(..), _) => None,
        }
    }
}

/// An answer that writes its line first.
pub(crate) struct Audited<A, T> {
    answer: A,
    line: Option<(Log, Line)>,
    judge: Judge<T>,
}

impl<A, T> Audited<A, T> {
    /// An answer that writes none: somebody else does.
    pub(crate) fn without_line(answer: A) -> Self {
        Self { answer, line: None, judge: failure }
    }
}

impl<T: 'static, A: Answer<T>> Answer<T> for Audited<A, T> {
    fn give(self, outcome: Result<T, Error>) {
        if let Some((log, line)) = self.line
            && let Some(record) = line.with_outcome((self.judge)(&outcome).as_ref())
            && is_wanted(&record, log.wants_reads())
        {
            log.write(record);
        }
        self.answer.give(outcome);
    }

    fn is_unwanted(&self) -> bool {
        self.answer.is_unwanted()
    }

    fn put_off(&mut self, seconds: u32) {
        self.answer.put_off(seconds);
    }
}

/// Writes the line of an open write that the service has ended, and not its client: it went away, opened the name again,
/// or asked for the file to be discarded.
pub(crate) fn ended_without_client(log: &Log, lease: &Lease, operation: &'static str) {
    if log.is_on() {
        let why = if lease.is_discarded() { "its client had asked for that" } else { "its client did not close it" };
        let about = About::change(operation, &lease.path).detail(why);
        log.write(about.record(&lease.caller));
    }
}

/// The failure of a request with one outcome.
fn failure<T>(outcome: &Result<T, Error>) -> Option<Error> {
    outcome.as_ref().err().cloned()
}

/// The failure of a request with an outcome for each attribute: the first one, or a denial.
fn failure_of_attributes<T>(outcome: &Result<EachAttribute<T>, Error>) -> Option<Error> {
    let results = match outcome {
        Ok(results) => results,
        Err(error) => return Some(error.clone()),
    };
    let failed = || results.iter().filter_map(|(name, result)| Some((name, *result.as_ref().err()?)));
    let denied = failed().find(|(_, code)| *code == ErrorCode::Denied);
    denied.or_else(|| failed().next()).map(|(name, code)| {
        let text = format!("the attribute {} is refused ({code:?})", name.escape_ascii());
        Error::new(code, text)
    })
}

impl Service {
    /// The audit log of this node.
    pub(crate) fn audit(&self) -> &Log {
        &self.settings.config.audit
    }

    /// The answer to a request of `caller`. `about` is asked only if there is a log.
    pub(crate) fn audited<'a, T, A: Answer<T>>(
        &self,
        caller: &Caller,
        about: impl FnOnce() -> About<'a>,
        answer: A,
    ) -> Audited<A, T> {
        let log = self.audit();
        let line = log.is_on().then(|| (log.clone(), Line::Made(Box::new(about().record(caller)))));
        Audited { answer, line, judge: failure }
    }

    /// The answer to an open. `how`: it is for writing.
    pub(crate) fn audited_open<T, A: Answer<T>>(
        &self,
        caller: &Arc<Caller>,
        open: &Open,
        how: Option<WriteMode>,
        answer: A,
    ) -> Audited<A, T> {
        let log = self.audit();
        if how.is_none() && log.is_on() && !log.wants_reads() {
            let line = Line::OfDenial(Arc::clone(caller), open.path.clone());
            return Audited { answer, line: Some((log.clone(), line)), judge: failure };
        }
        let about = || match how {
            None => About::read("open", &open.path),
            Some(WriteMode::NewOnly) => About::change("create", &open.path),
            Some(WriteMode::Replace) => About::change("replace", &open.path),
            Some(WriteMode::Update) => About::change("update", &open.path),
        };
        self.audited(caller, about, answer)
    }

    /// The answer to the end of an open write. What ends no write gets no line.
    pub(crate) fn audited_close<A: Answer<()>>(
        &self,
        session: &Session,
        operation: &'static str,
        handle: Handle,
        answer: A,
    ) -> Audited<A, ()> {
        if !self.audit().is_on() {
            return Audited::without_line(answer);
        }
        let Ok(file) = self.file(session, handle) else { return Audited::without_line(answer) };
        let Access::Write(access) = &file.access else { return Audited::without_line(answer) };
        // On a disk server the session does not know who its client is, and the open write does.
        let caller = if self.has_names() { session.caller() } else { Arc::clone(&access.lease.caller) };
        let about = || About::change(operation, &file.path).detail(format!("{} bytes", file.len()));
        self.audited(&caller, about, answer)
    }

    /// The answer to a change of attributes.
    pub(crate) fn audited_attributes<A: Answer<EachAttribute<()>>>(
        &self,
        caller: &Caller,
        (path, change): (&NsPath, &AttributeChange),
        answer: A,
    ) -> Audited<A, EachAttribute<()>> {
        let about = || {
            // Never the values.
            let (operation, names): (_, Vec<&[u8]>) = match change {
                AttributeChange::Set { pairs, .. } => {
                    ("set-attributes", pairs.iter().map(|(name, _)| name.as_slice()).collect())
                }
                AttributeChange::Remove(names) => ("remove-attributes", names.iter().map(Vec::as_slice).collect()),
            };
            let names = listed(names.iter().map(|name| name.escape_ascii()), names.len());
            About::change(operation, path).detail(names)
        };
        Audited { judge: failure_of_attributes, ..self.audited(caller, about, answer) }
    }

    /// Writes the line of a change that was refused before it began.
    pub(crate) fn audit_refused(&self, caller: &Caller, about: About<'_>, error: &Error) {
        if self.audit().is_on()
            && let Some(record) = with_outcome(about.record(caller), Some(error))
        {
            self.audit().write(record);
        }
    }

    /// Writes the line of a read that was denied, or of any if reads are asked for.
    pub(crate) fn audit_read<T>(
        &self,
        caller: &Caller,
        operation: &dyn std::fmt::Display,
        path: &NsPath,
        outcome: &Result<T, Error>,
    ) {
        let Err(error @ Error::Refused { code: ErrorCode::Denied, .. }) = outcome else { return };
        if self.audit().is_on()
            && let Some(record) = with_outcome(About::read(operation.to_string(), path).record(caller), Some(error))
        {
            self.audit().write(record);
        }
    }

    /// The same, for a read of attributes.
    pub(crate) fn audit_read_of_attributes<T>(
        &self,
        caller: &Caller,
        path: &NsPath,
        outcome: &Result<EachAttribute<T>, Error>,
    ) {
        let failure = failure_of_attributes(outcome);
        self.audit_read(caller, &"read-attributes", path, &failure.map_or(Ok(()), Err));
    }

    /// Writes the line of a client that has logged in. Its session has its caller by now. Front ends call this once for each
    /// session.
    pub fn logged_in(&self, session: &Session) {
        if self.audit().is_on() {
            self.audit().write(of_login(&session.caller()));
        }
    }

    /// Writes the line of a client that was not let in. `mechanism`: how it wanted to show who it is. `code` is
    /// [`ErrorCode::Denied`] unless the node itself cannot tell. Neither text may have a secret.
    pub fn login_refused(&self, caller: &Caller, mechanism: Option<String>, (code, reason): (ErrorCode, String)) {
        if self.audit().is_on() {
            // It has not shown that it is anybody.
            let record = Record {
                principal: None,
                number: None,
                result: Outcome::from(code),
                code: Some(code),
                reason: Some(reason.into()),
                mechanism: mechanism.map(Cow::Owned),
                ..of_login(caller)
            };
            self.audit().write(record);
        }
    }

    /// Writes the line of something that a front end denies to a client before it learns what the request is about.
    /// `operation`: what the client wanted. `reason` may have no secret.
    pub fn denied_at_front(&self, caller: &Caller, operation: &'static str, reason: String) {
        if self.audit().is_on() {
            let login = of_login(caller);
            let is_known = caller.principal != Principal::nobody().id;
            let record = Record {
                principal: login.principal.filter(|_| is_known),
                number: login.number.filter(|_| is_known),
                operation: operation.into(),
                result: Outcome::Denied,
                code: Some(ErrorCode::Denied),
                reason: Some(reason.into()),
                ..login
            };
            self.audit().write(record);
        }
    }

    /// The line about a change of names.
    pub(crate) fn about_change<'a>(&self, change: &'a Change) -> About<'a> {
        match change {
            Change::Mkdir { path, mode, parents } => {
                let parents = if *parents { ", with its parents" } else { "" };
                About::change("mkdir", path).detail(format!("mode {:04o}{parents}", mode & 0o7777))
            }
            Change::Remove(path) => About::change("remove", path),
            Change::Rmdir(path) => About::change("rmdir", path),
            Change::Rename { from, to } => About { to: Some(to), ..About::change("rename", from) },
            Change::Chmod { path, mode } => About::change("chmod", path).detail(format!("mode {:04o}", mode & 0o7777)),
            Change::Link { existing, new } => About { to: Some(new), ..About::change("link", existing) },
            Change::Symlink { path, target } => {
                About::change("symlink", path).detail(format!("target {}", target.escape_ascii()))
            }
            Change::Chown { path, owner, group } => {
                let named = |what: &str, id: &Option<types::PrincipalId>| {
                    id.map(|id| format!("{what} {}", self.shown_principal(id)))
                };
                let both: Vec<String> = [named("owner", owner), named("group", group)].into_iter().flatten().collect();
                About::change("chown", path).detail(both.join(", "))
            }
            Change::SetAcl(edit) => About::change("set-acl", &edit.path).detail(of_acl(edit)),
            Change::Touch { path, mtime } => About::change("touch", path).detail(format!("time {mtime}")),
            // Its names are in the line of its open. The rest of what is given here is a secret.
            Change::CloseStriped { writing, .. } => About {
                event: Event::Change,
                operation: "close".into(),
                path: None,
                to: None,
                detail: Some(format!("striped object {}", writing.writer.object)),
            },
        }
    }
}

fn of_login(caller: &Caller) -> Record {
    Record { event: Event::Login, operation: "login".into(), ..of_caller(caller) }
}

/// A change of ACLs in words. Users and groups are numbers, as in the namespace.
fn of_acl(edit: &SetAcl) -> String {
    let one = |what: &str, edit: &Option<AclEdit>| {
        let words = match edit.as_ref()? {
            AclEdit::Replace(entries) => format!("replace by {}", listed(entries.iter(), entries.len())),
            AclEdit::Modify(entries) => format!("set {}", listed(entries.iter(), entries.len())),
            AclEdit::Remove(names) => {
                let shown = names.iter().map(|named| match named {
                    namespace::Named::User(id) => format!("user:{id}"),
                    namespace::Named::Group(id) => format!("group:{id}"),
                });
                format!("remove {}", listed(shown, names.len()))
            }
            AclEdit::Clear => "clear".into(),
        };
        Some(format!("{what}: {words}"))
    };
    let both: Vec<String> =
        [one("access", &edit.access), one("default", &edit.default)].into_iter().flatten().collect();
    both.join("; ")
}

/// The first of several things.
fn listed(shown: impl Iterator<Item = impl std::fmt::Display>, count: usize) -> String {
    let first: Vec<String> = shown.take(NAMED_MAX).map(|one| one.to_string()).collect();
    let rest = if count > NAMED_MAX { format!(" and {} more", count - NAMED_MAX) } else { String::new() };
    format!("{}{rest}", first.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: ErrorCode) -> Error {
        Error::new(code, "no")
    }

    #[test]
    fn outcomes_become_lines_and_what_is_not_final_does_not() {
        let record = || Record { operation: "mkdir".into(), ..Record::default() };
        let result = |error: Option<&Error>| with_outcome(record(), error).map(|record| record.result);
        assert_eq!(result(None), Some(Outcome::Ok));
        assert_eq!(result(Some(&refused(ErrorCode::Denied))), Some(Outcome::Denied));
        assert_eq!(result(Some(&refused(ErrorCode::Exists))), Some(Outcome::Failed));
        assert_eq!(result(Some(&Error::busy())), None);
        let to_manager = crate::error::Redirect::to_manager("m".into(), 1);
        assert_eq!(result(Some(&Error::redirect(to_manager.clone()))), None, "it is a disk server that has no names");
        let to_disk = crate::error::Redirect {
            node: Some(types::NodeId(7)),
            capability: Some(("secret".into(), types::ObjectId(1))),
            ..to_manager
        };
        let line = with_outcome(record(), Some(&Error::redirect(to_disk))).unwrap();
        assert_eq!(line.result, Outcome::Redirected);
        assert!(!format!("{line:?}").contains("secret"));
    }

    #[test]
    fn reads_are_written_if_they_are_denied_or_asked_for() {
        let read = |result| Record { event: Event::Read, result, ..Record::default() };
        assert!(!is_wanted(&read(Outcome::Ok), false) && !is_wanted(&read(Outcome::Failed), false));
        assert!(is_wanted(&read(Outcome::Denied), false) && is_wanted(&read(Outcome::Ok), true));
        assert!(is_wanted(&Record::default(), false));
    }

    #[test]
    fn a_denied_attribute_counts_more_than_a_missing_one() {
        let results = |codes: &[Option<ErrorCode>]| {
            let one = |code: &Option<ErrorCode>| (b"n".to_vec(), code.map_or(Ok(()), Err));
            Ok(codes.iter().map(one).collect::<EachAttribute<()>>())
        };
        let code = |codes: &[Option<ErrorCode>]| failure_of_attributes(&results(codes)).map(|error| error.code());
        assert_eq!(code(&[None, None]), None);
        assert_eq!(code(&[None, Some(ErrorCode::NoAttribute)]), Some(ErrorCode::NoAttribute));
        let both = [Some(ErrorCode::NoAttribute), Some(ErrorCode::Denied)];
        assert_eq!(code(&both), Some(ErrorCode::Denied));
        let whole: Result<EachAttribute<()>, Error> = Err(refused(ErrorCode::Denied));
        assert_eq!(failure_of_attributes(&whole).map(|error| error.code()), Some(ErrorCode::Denied));
    }
}
