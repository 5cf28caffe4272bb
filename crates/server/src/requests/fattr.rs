//! fattr: extended attributes, under the names that a mounted file system shows as `user.NAME`. What weir itself notes
//! (`weir.…`) has no name here: nobody reads or changes it through this door.

use std::sync::Arc;

use namespace::{Durability, NsError, RemoveXattr, SetXattr, XattrMode, XattrOf};
use parking_lot::Mutex;
use types::ErrorCode;
use wire::request::{Fattr, FattrOp, Target};
use wire::response::{FattrList, FattrReply, FattrResult};
use wire::{ErrorNumber, ResponseStatus, StreamId};

use crate::answer::Reply;
use crate::connection::{Connection, Stop};
use crate::open_file::Access;
use crate::refusal::Refusal;
use crate::requests::parse_path;

/// Before each name, in the namespace.
const PREFIX: &[u8] = b"user.";
/// What is refused, in errors.
const VERB: &str = "reach the attributes of";
/// A list of attributes longer than this comes in several frames.
const FRAME_BYTES: usize = 1 << 20;

fn inner_name(name: &[u8]) -> Vec<u8> {
    [PREFIX, name].concat()
}

/// 0, or why not.
fn number(error: &NsError) -> u16 {
    let number = match error {
        NsError::NotFound(_, "attribute") => ErrorNumber::ATTR_NOT_FOUND,
        other => ErrorNumber::from(other.code()),
    };
    u16::try_from(number.0).unwrap_or(u16::MAX)
}

/// Collects the results of several changes, and answers with the last of them.
struct Gathered {
    results: Vec<FattrResult>,
    missing: usize,
    reply: Option<Reply>,
}

impl Gathered {
    fn done(&mut self, at: usize, result: Result<(), NsError>) {
        if let (Err(error), Some(slot)) = (&result, self.results.get_mut(at)) {
            slot.number = number(error);
        }
        self.missing = self.missing.saturating_sub(1);
        if self.missing == 0
            && let Some(reply) = self.reply.take()
        {
            let results = std::mem::take(&mut self.results);
            match encoded(results) {
                Ok(body) => reply.ok(|out| out.extend_from_slice(&body)),
                Err(refusal) => reply.refuse(&refusal),
            }
        }
    }
}

fn encoded(results: Vec<FattrResult>) -> Result<Vec<u8>, Refusal> {
    let mut body = Vec::new();
    FattrReply { results }.encode(&mut body).map_err(|error| Refusal::of_wire(&error))?;
    Ok(body)
}

impl Connection {
    /// kXR_fattr. As with the stock server, each attribute has its own result, also where there is no such file.
    #[inline(never)] // see `dispatch`
    pub(crate) fn fattr(&mut self, stream: StreamId, r: Fattr) -> Result<Result<(), Refusal>, Stop> {
        let changes = matches!(r.op, FattrOp::Set { .. } | FattrOp::Del(_));
        let of = match self.fattr_of(&r.target, changes) {
            Ok(of) => of,
            Err(refusal) => return Ok(self.fattr_of_nothing(stream, r.op, refusal)),
        };
        match r.op {
            FattrOp::Get(names) => Ok(self.fattr_get(stream, &of, names)),
            FattrOp::List { with_values } => self.fattr_list(stream, &of, with_values),
            FattrOp::Set { only_new, pairs } => {
                let mode = if only_new { XattrMode::Create } else { XattrMode::Set };
                let names = pairs.iter().map(|(name, _)| name.clone()).collect();
                let set =
                    |(name, value): (Vec<u8>, _)| SetXattr { of: of.clone(), name: inner_name(&name), value, mode };
                self.fattr_change(stream, names, pairs.into_iter().map(set))
            }
            FattrOp::Del(names) => {
                let ops = names.iter().map(|name| RemoveXattr { of: of.clone(), name: inner_name(name) });
                self.fattr_change(stream, names.clone(), ops)
            }
        }
    }

    /// What is meant, after a look whether anything is there: a file that is not refuses the whole request. An open file is meant whatever
    /// names it has now; and only a handle for writing changes anything.
    fn fattr_of(&self, target: &Target, changes: bool) -> Result<XattrOf, Refusal> {
        let file = match target {
            Target::Path(target) => {
                let path = parse_path(&target.path)?;
                self.node.stat(&VERB, &path)?;
                return Ok(path.into());
            }
            Target::Handle(handle) => self.file(*handle)?,
        };
        let refuse = |error: NsError| Refusal::of_namespace(&VERB, &error);
        match &file.access {
            Access::Read(_) if changes => {
                let text = format!(
                    "{} is open for reading only; its attributes are changed by its path, or if it is open for update",
                    file.path
                );
                return Err(Refusal::new(ErrorNumber::INVALID_REQUEST, text));
            }
            Access::Read(_) => {}
            Access::Write(access) => {
                // A handle that another has taken the place of has no say any more.
                drop(access.hold()?);
                let writer = access.lease.token();
                if self.node.read_names(|read| namespace::is_hidden_upload(read, &writer)).map_err(refuse)? {
                    return Ok(XattrOf::Upload(writer));
                }
            }
        }
        self.node.read_names(|read| namespace::stat_ino(read, file.ino)).map_err(refuse)?;
        Ok(XattrOf::Inode(file.ino))
    }

    /// As the stock server tells it: each attribute that was named has the reason for its result.
    fn fattr_of_nothing(&self, stream: StreamId, op: FattrOp, why: Refusal) -> Result<(), Refusal> {
        let (names, gets) = match op {
            FattrOp::Get(names) => (names, true),
            FattrOp::Del(names) => (names, false),
            FattrOp::Set { pairs, .. } => (pairs.into_iter().map(|(name, _)| name).collect(), false),
            FattrOp::List { .. } => return Err(why),
        };
        let number = match why.number() {
            // Nothing was looked at.
            ErrorNumber::FILE_NOT_OPEN
            | ErrorNumber::ARG_INVALID
            | ErrorNumber::INVALID_REQUEST
            | ErrorNumber::NOT_AUTHORIZED => return Err(why),
            number => u16::try_from(number.0).unwrap_or(u16::MAX),
        };
        let result = |name| FattrResult { number, name, value: gets.then(Vec::new) };
        let body = encoded(names.into_iter().map(result).collect())?;
        self.ok(stream, |out| out.extend_from_slice(&body))
    }

    fn fattr_get(&self, stream: StreamId, of: &XattrOf, names: Vec<Vec<u8>>) -> Result<(), Refusal> {
        let actor = &self.node.config.actor;
        let results = self
            .node
            .read_names(|read| {
                let mut results = Vec::with_capacity(names.len());
                for name in names {
                    let (number, value) = match namespace::get_xattr(read, actor, of, &inner_name(&name)) {
                        Ok(value) => (0, value),
                        // a sick disk is no property of one attribute
                        Err(error) if matches!(error.code(), ErrorCode::Io | ErrorCode::Damaged) => return Err(error),
                        Err(error) => (number(&error), Vec::new()),
                    };
                    results.push(FattrResult { number, name, value: Some(value) });
                }
                Ok(results)
            })
            .map_err(|error| Refusal::of_namespace(&"read the attributes of", &error))?;
        let body = encoded(results)?;
        self.ok(stream, |out| out.extend_from_slice(&body))
    }

    fn fattr_list(&mut self, stream: StreamId, of: &XattrOf, with_values: bool) -> Result<Result<(), Refusal>, Stop> {
        let listed = self.node.read_names(|read| namespace::list_xattrs(read, &self.node.config.actor, of));
        let listed = match listed {
            Ok(listed) => listed,
            Err(error) => return Ok(Err(Refusal::of_namespace(&"list the attributes of", &error))),
        };
        let (mut body, mut one) = (Vec::new(), FattrList::default());
        for (name, value) in listed {
            let Some(name) = name.strip_prefix(PREFIX) else { continue };
            one.attributes = vec![(name.to_vec(), with_values.then_some(value))];
            one.encode(&mut body);
            if body.len() >= FRAME_BYTES {
                let part = std::mem::take(&mut body);
                self.send_frame(stream, ResponseStatus::OkSoFar, &part, None)?;
            }
        }
        Ok(self.ok(stream, |out| out.extend_from_slice(&body)))
    }

    /// All are handed to the committer together, so that they share one sync.
    fn fattr_change<O>(
        &mut self,
        stream: StreamId,
        names: Vec<Vec<u8>>,
        ops: impl Iterator<Item = O>,
    ) -> Result<Result<(), Refusal>, Stop>
    where
        O: namespace::Operation<Reply = ()> + Send + 'static,
    {
        let reply = self.hand_on(stream)?;
        let results = names.into_iter().map(|name| FattrResult { number: 0, name, value: None }).collect::<Vec<_>>();
        let gathered = Arc::new(Mutex::new(Gathered { missing: results.len(), results, reply: Some(reply) }));
        for (at, op) in ops.enumerate() {
            let gathered = Arc::clone(&gathered);
            self.node.change(Durability::Synced, op, move |result| {
                gathered.lock().done(at, result);
            });
        }
        Ok(Ok(()))
    }
}
