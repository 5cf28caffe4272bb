//! Extended attributes, under the names that a mounted file system shows as `user.NAME`. Front ends cannot access
//! weir's own attributes (`weir.…`).

use std::sync::Arc;

use disk_server::{DiskServer, MANAGER_ANSWERS_WITHIN, Unanswered};
use namespace::{Durability, NsError, Operation, RemoveXattr, SetXattr, XattrMode, XattrOf};
use node::{AttributeAction, AttributeResult, CLIENT_ATTRIBUTE, OpenedFile};
use parking_lot::Mutex;
use types::{ErrorCode, NsPath, RequestNumber};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::Error;
use crate::names::By;
use crate::open_file::{Access, OpenFile};
use crate::service::{Role, Service};

/// The prefix of each name in the namespace.
const PREFIX: &[u8] = CLIENT_ATTRIBUTE;
/// How many values a disk server asks its manager for at a time: at most 1 MiB.
const VALUES_AT_ONCE: usize = 16;
/// The operation, for errors.
const VERB: &str = "reach the attributes of";

/// An existing file or directory with attributes.
#[derive(Clone)]
pub struct Attributed {
    place: Place,
    /// The name in the request, or at the open of the file.
    path: NsPath,
    /// Whose open write it is, on a disk server.
    writer: Option<Arc<Caller>>,
}

/// Where the attributes are.
#[derive(Clone)]
enum Place {
    /// In the namespace of this node.
    Local(XattrOf),
    /// In that of the manager. The file is open at this disk server.
    AtManager(Arc<DiskServer>, OpenedFile),
}

/// One result for each of several attributes.
pub type EachAttribute<T> = Vec<(Vec<u8>, Result<T, ErrorCode>)>;

/// Names of attributes with their values.
pub type NamedValues = Vec<(Vec<u8>, Vec<u8>)>;

/// A change of attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeChange {
    /// Sets attributes.
    Set {
        /// Fails for an attribute that exists.
        only_new: bool,
        /// The names and values.
        pairs: NamedValues,
    },
    /// Removes the attributes with these names.
    Remove(Vec<Vec<u8>>),
}

fn inner_name(name: &[u8]) -> Vec<u8> {
    [PREFIX, name].concat()
}

fn code(error: &NsError) -> ErrorCode {
    match error {
        NsError::NotFound(_, "attribute") => ErrorCode::NoAttribute,
        other => other.code(),
    }
}

/// Collects the results of several changes. The last one gives the answer.
struct Gathered<A> {
    results: EachAttribute<()>,
    missing: usize,
    answer: Option<A>,
}

impl<A: Answer<EachAttribute<()>>> Gathered<A> {
    /// Adds a result. After the last one, returns the answer and all results.
    fn done(&mut self, at: usize, result: Result<(), NsError>) -> Option<(A, EachAttribute<()>)> {
        if let (Err(error), Some(slot)) = (&result, self.results.get_mut(at)) {
            slot.1 = Err(code(error));
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing > 0 {
            return None;
        }
        Some((self.answer.take()?, std::mem::take(&mut self.results)))
    }
}

impl Service {
    /// The attributes of `path`.
    ///
    /// # Errors
    /// The path does not exist.
    pub fn attributes_of(&self, caller: &Caller, path: NsPath) -> Result<Attributed, Error> {
        self.inode_at(caller, &VERB, &path)?;
        Ok(Attributed { place: Place::Local(path.clone().into()), path, writer: None })
    }

    /// The attributes of an open file, whatever its names are now. `changes` says whether the caller wants to change
    /// them, which needs a handle for writing.
    ///
    /// # Errors
    /// The handle does not allow it.
    pub fn attributes_of_file(&self, file: &OpenFile, changes: bool) -> Result<Attributed, Error> {
        let refuse = |error: NsError| Error::of_namespace(&VERB, &error);
        let mut writer = None;
        let mut of_whom = None;
        match &file.access {
            Access::Read(_) if changes => {
                let text = format!(
                    "{} is open for reading only; its attributes are changed by its path, or if it is open for update",
                    file.path
                );
                return Err(Error::new(ErrorCode::NotAllowedNow, text));
            }
            Access::Read(_) => {}
            Access::Write(access) => {
                if !changes {
                    // By path, too, only who may read the file may read its attributes.
                    access.may_read()?;
                }
                // A fenced handle may not change attributes.
                drop(access.hold()?);
                let token = access.lease.token();
                writer = Some(token);
                of_whom = (!self.has_names()).then(|| Arc::clone(&access.lease.caller));
                if self.has_names()
                    && self.names.read(|read| namespace::is_hidden_upload(read, &token)).map_err(refuse)?
                {
                    return Ok(Attributed {
                        place: Place::Local(XattrOf::Upload(token)),
                        path: file.path.clone(),
                        writer: None,
                    });
                }
            }
        }
        if let Role::Disk(disk) = &self.role {
            let place = Place::AtManager(Arc::clone(disk), OpenedFile { ino: file.ino, writer });
            return Ok(Attributed { place, path: file.path.clone(), writer: of_whom });
        }
        self.names.read(|read| namespace::stat_ino(read, file.ino)).map_err(refuse)?;
        Ok(Attributed { place: Place::Local(XattrOf::Inode(file.ino)), path: file.path.clone(), writer: None })
    }

    /// The values of the attributes called `names`. On a disk server it may wait for the manager.
    ///
    /// # Errors
    /// The disk failed, or the manager does not answer. Other errors are results of single attributes.
    pub fn get_attributes(
        &self,
        caller: &Caller,
        of: &Attributed,
        names: Vec<Vec<u8>>,
    ) -> Result<EachAttribute<Vec<u8>>, Error> {
        let found = self.found_attributes(caller, of, names);
        self.audit_read_of_attributes(caller, &of.path, &found);
        found
    }

    fn found_attributes(
        &self,
        caller: &Caller,
        of: &Attributed,
        names: Vec<Vec<u8>>,
    ) -> Result<EachAttribute<Vec<u8>>, Error> {
        let of = match &of.place {
            Place::Local(of) => of,
            Place::AtManager(disk, file) => {
                let gets = names.iter().map(|name| AttributeAction::Get(inner_name(name))).collect();
                let found = ask(disk, *file, gets, "read the attributes of an open file")?;
                return Ok(names.into_iter().zip(found.into_iter().map(value)).collect());
            }
        };
        let actor = caller.actor();
        self.names
            .read_once(|read| {
                let mut results = Vec::with_capacity(names.len());
                for name in names {
                    let value = match namespace::get_xattr(read, &actor, of, &inner_name(&name)) {
                        Ok(value) => Ok(value),
                        Err(error) if matches!(error.code(), ErrorCode::Io | ErrorCode::Damaged) => return Err(error),
                        Err(error) => Err(code(&error)),
                    };
                    results.push((name, value));
                }
                Ok(results)
            })
            .map_err(|error| Error::of_namespace(&"read the attributes of", &error))
    }

    /// All attributes with their values. On a disk server it may wait for the manager.
    ///
    /// # Errors
    /// The attributes cannot be read.
    pub fn list_attributes(&self, caller: &Caller, of: &Attributed) -> Result<NamedValues, Error> {
        let place = match &of.place {
            Place::Local(of) => of,
            Place::AtManager(disk, file) => return list_at_manager(disk, *file),
        };
        let listed = self.names.read(|read| namespace::list_xattrs(read, &caller.actor(), place));
        let listed = listed.map_err(|error| Error::of_namespace(&"list the attributes of", &error));
        self.audit_read(caller, &"list-attributes", &of.path, &listed);
        let listed = listed?;
        let own = listed.into_iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_vec(), value)));
        Ok(own.collect())
    }

    /// Changes attributes. All changes are submitted together, so that they share one sync. Each has its own result. On a
    /// disk server it may wait for the manager. `request` is the number of the request, if the client numbers its
    /// requests; it is for one attribute.
    pub fn change_attributes(
        &self,
        caller: &Caller,
        of: &Attributed,
        change: AttributeChange,
        request: Option<RequestNumber>,
        answer: impl Answer<EachAttribute<()>>,
    ) {
        let whose = of.writer.as_deref().unwrap_or(caller);
        let answer = self.audited_attributes(whose, (&of.path, &change), answer);
        if let Err(error) = caller.may_change(&"change attributes") {
            return answer.give(Err(error));
        }
        let count = match &change {
            AttributeChange::Set { pairs, .. } => pairs.len(),
            AttributeChange::Remove(names) => names.len(),
        };
        if request.is_some() && count != 1 {
            let text = "A numbered request changes one attribute; give each its own number";
            return answer.give(Err(Error::new(ErrorCode::Invalid, text)));
        }
        let of = match &of.place {
            Place::Local(of) => of,
            // The disk server's own request to the manager has no number.
            Place::AtManager(disk, file) => return answer.give(change_at_manager(disk, *file, change)),
        };
        let by = || By::caller(caller).numbered(request);
        match change {
            AttributeChange::Set { only_new, pairs } => {
                let mode = if only_new { XattrMode::Create } else { XattrMode::Set };
                let names = pairs.iter().map(|(name, _)| name.clone()).collect();
                let set =
                    |(name, value): (Vec<u8>, _)| SetXattr { of: of.clone(), name: inner_name(&name), value, mode };
                self.change_each(by, names, pairs.into_iter().map(set), answer);
            }
            AttributeChange::Remove(names) => {
                let ops = names.iter().map(|name| RemoveXattr { of: of.clone(), name: inner_name(name) });
                self.change_each(by, names.clone(), ops, answer);
            }
        }
    }

    fn change_each<O>(
        &self,
        by: impl Fn() -> By,
        names: Vec<Vec<u8>>,
        ops: impl Iterator<Item = O>,
        answer: impl Answer<EachAttribute<()>>,
    ) where
        O: Operation<Reply = ()> + Send + 'static,
    {
        let results = names.into_iter().map(|name| (name, Ok(()))).collect::<Vec<_>>();
        let gathered = Arc::new(Mutex::new(Gathered { missing: results.len(), results, answer: Some(answer) }));
        for (at, op) in ops.enumerate() {
            let gathered = Arc::clone(&gathered);
            self.names.change(by(), Durability::Synced, op, move |result| {
                let all = gathered.lock().done(at, result);
                if let Some((answer, results)) = all {
                    answer.give(Ok(results));
                }
            });
        }
    }
}

/// Asks the manager about an open file.
fn ask(
    disk: &DiskServer,
    file: OpenedFile,
    actions: Vec<AttributeAction>,
    doing: &str,
) -> Result<Vec<Result<AttributeResult, ErrorCode>>, Error> {
    disk.attributes(file, actions).map_err(|unanswered| match unanswered {
        Unanswered::TooMany => Error::busy(),
        Unanswered::TooLate => {
            let within = MANAGER_ANSWERS_WITHIN.as_secs();
            let text = format!(
                "Cannot {doing}: the manager, which keeps the attributes, has not answered this disk server within {within} s; try again"
            );
            Error::new(ErrorCode::Unavailable, text)
        }
    })
}

/// The value that the manager has answered.
fn value(result: Result<AttributeResult, ErrorCode>) -> Result<Vec<u8>, ErrorCode> {
    match result? {
        AttributeResult::Value(value) => Ok(value),
        AttributeResult::Names(_) | AttributeResult::Done => Err(ErrorCode::Internal),
    }
}

fn list_at_manager(disk: &DiskServer, file: OpenedFile) -> Result<NamedValues, Error> {
    let doing = "list the attributes of an open file";
    let listed = ask(disk, file, vec![AttributeAction::List], doing)?.pop().unwrap_or(Err(ErrorCode::Internal));
    let refused = |code| Error::new(code, format!("Cannot {doing}: the manager refuses it ({code:?})"));
    let AttributeResult::Names(names) = listed.map_err(refused)? else { return Err(refused(ErrorCode::Internal)) };
    let mut pairs = NamedValues::new();
    for names in names.chunks(VALUES_AT_ONCE) {
        let gets = names.iter().map(|name| AttributeAction::Get(name.clone())).collect();
        for (name, found) in names.iter().zip(ask(disk, file, gets, doing)?) {
            match value(found) {
                Ok(value) => pairs.push((name.strip_prefix(PREFIX).unwrap_or(name).to_vec(), value)),
                // It was removed meanwhile.
                Err(ErrorCode::NoAttribute) => {}
                Err(code) => return Err(refused(code)),
            }
        }
    }
    Ok(pairs)
}

fn change_at_manager(disk: &DiskServer, file: OpenedFile, change: AttributeChange) -> Result<EachAttribute<()>, Error> {
    let (names, actions): (Vec<_>, Vec<_>) = match change {
        AttributeChange::Set { only_new, pairs } => {
            let set = |(name, value): (Vec<u8>, Vec<u8>)| {
                let action = AttributeAction::Set { name: inner_name(&name), value, only_new };
                (name, action)
            };
            pairs.into_iter().map(set).unzip()
        }
        AttributeChange::Remove(names) => {
            let remove = |name: Vec<u8>| {
                let action = AttributeAction::Remove(inner_name(&name));
                (name, action)
            };
            names.into_iter().map(remove).unzip()
        }
    };
    let results = ask(disk, file, actions, "change the attributes of an open file")?;
    Ok(names.into_iter().zip(results.into_iter().map(|result| result.map(drop))).collect())
}
