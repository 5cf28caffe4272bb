//! Extended attributes, under the names that a mounted file system shows as `user.NAME`. What weir itself notes
//! (`weir.…`) has no name here: no front end reads or changes it.

use std::sync::Arc;

use namespace::{Durability, NsError, Operation, RemoveXattr, SetXattr, XattrMode, XattrOf};
use parking_lot::Mutex;
use types::{ErrorCode, NsPath};

use crate::answer::Answer;
use crate::caller::Caller;
use crate::error::Error;
use crate::open_file::{Access, OpenFile};
use crate::service::Service;

/// Before each name, in the namespace.
const PREFIX: &[u8] = b"user.";
/// What is refused, in errors.
const VERB: &str = "reach the attributes of";

/// What has attributes, after a look whether it is there.
#[derive(Clone)]
pub struct Attributed(XattrOf);

/// What came of one attribute of several: `Err` with why not.
pub type EachAttribute<T> = Vec<(Vec<u8>, Result<T, ErrorCode>)>;

/// Names of attributes with their values.
pub type NamedValues = Vec<(Vec<u8>, Vec<u8>)>;

/// A change of attributes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AttributeChange {
    /// Names and values.
    Set {
        /// An attribute that is there already is refused.
        only_new: bool,
        /// Names and their values.
        pairs: NamedValues,
    },
    /// Names.
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

/// Collects the results of several changes, and answers with the last of them.
struct Gathered<A> {
    results: EachAttribute<()>,
    missing: usize,
    answer: Option<A>,
}

impl<A: Answer<EachAttribute<()>>> Gathered<A> {
    /// Gives the answer with all results, if this is the last.
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
    /// Nothing is there.
    pub fn attributes_of(&self, caller: &Caller, path: NsPath) -> Result<Attributed, Error> {
        self.inode_at(caller, &VERB, &path)?;
        Ok(Attributed(path.into()))
    }

    /// Those of an open file, whatever names it has now. Only a handle for writing `changes` anything.
    ///
    /// # Errors
    /// The handle does not allow it.
    pub fn attributes_of_file(&self, file: &OpenFile, changes: bool) -> Result<Attributed, Error> {
        let refuse = |error: NsError| Error::of_namespace(&VERB, &error);
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
                // A handle that another has taken the place of has no say any more.
                drop(access.hold()?);
                let writer = access.lease.token();
                if self.names.read(|read| namespace::is_hidden_upload(read, &writer)).map_err(refuse)? {
                    return Ok(Attributed(XattrOf::Upload(writer)));
                }
            }
        }
        self.names.read(|read| namespace::stat_ino(read, file.ino)).map_err(refuse)?;
        Ok(Attributed(XattrOf::Inode(file.ino)))
    }

    /// The values of the attributes called `names`.
    ///
    /// # Errors
    /// A sick disk is no property of one attribute.
    pub fn get_attributes(
        &self,
        caller: &Caller,
        of: &Attributed,
        names: Vec<Vec<u8>>,
    ) -> Result<EachAttribute<Vec<u8>>, Error> {
        let actor = caller.actor();
        self.names
            .read(|read| {
                let mut results = Vec::with_capacity(names.len());
                for name in names {
                    let value = match namespace::get_xattr(read, &actor, &of.0, &inner_name(&name)) {
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

    /// All attributes, with their values.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn list_attributes(&self, caller: &Caller, of: &Attributed) -> Result<NamedValues, Error> {
        let listed = self.names.read(|read| namespace::list_xattrs(read, &caller.actor(), &of.0));
        let listed = listed.map_err(|error| Error::of_namespace(&"list the attributes of", &error))?;
        let own = listed.into_iter().filter_map(|(name, value)| Some((name.strip_prefix(PREFIX)?.to_vec(), value)));
        Ok(own.collect())
    }

    /// Changes attributes. All are handed to the committer together, so that they share one sync; each has its own result.
    pub fn change_attributes(
        &self,
        caller: &Caller,
        of: &Attributed,
        change: AttributeChange,
        answer: impl Answer<EachAttribute<()>>,
    ) {
        if let Err(error) = caller.may_change(&"change attributes") {
            return answer.give(Err(error));
        }
        match change {
            AttributeChange::Set { only_new, pairs } => {
                let mode = if only_new { XattrMode::Create } else { XattrMode::Set };
                let names = pairs.iter().map(|(name, _)| name.clone()).collect();
                let set =
                    |(name, value): (Vec<u8>, _)| SetXattr { of: of.0.clone(), name: inner_name(&name), value, mode };
                self.change_each(caller, names, pairs.into_iter().map(set), answer);
            }
            AttributeChange::Remove(names) => {
                let ops = names.iter().map(|name| RemoveXattr { of: of.0.clone(), name: inner_name(name) });
                self.change_each(caller, names.clone(), ops, answer);
            }
        }
    }

    fn change_each<O>(
        &self,
        caller: &Caller,
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
            self.names.change(caller, Durability::Synced, op, move |result| {
                let all = gathered.lock().done(at, result);
                if let Some((answer, results)) = all {
                    answer.give(Ok(results));
                }
            });
        }
    }
}
