//! What disk servers ask about the open writes that they lead: whether a client's close may have its number, and to discard what was written.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use namespace::{Abandon, Actor, Durability, NoteSharer, NsError, OpTag, Read, Reserve, WriterRecord};
use node::{FromManager, OpenWriteAction, OpenWriteAnswer, OpenWriteRequest, RequestError};
use types::{NodeId, NsPath, ObjectId, RequestNumber, StoreId, WriterToken};

use super::OpenService;
use crate::tracked::Tracked;

/// The operations that close a file in a cluster.
const ENDS: [OpTag; 3] = [OpTag::CommitPlaced, OpTag::CommitStriped, OpTag::NoteSharer];

/// The numbers of closes that clients have begun. They are in memory: a manager that starts again answers a repeated close as if it had not come before.
/// An open write has at most one number, and the numbers of ended ones make room for others.
#[derive(Debug, Default)]
pub(super) struct CloseNumbers(Tracked<Numbers>);

#[derive(Debug, Default)]
struct Numbers {
    closes: HashMap<RequestNumber, WriterToken>,
    of_objects: HashMap<ObjectId, RequestNumber>,
    /// Numbers that clients have repeated before their close was announced, and when.
    asked: HashMap<RequestNumber, Time>,
    /// When there are so many, those of ended open writes are removed.
    next_look: usize,
}

/// The least number of numbers at which to look for those of ended open writes.
const LOOK_AT: usize = 1024;
/// How long a repeated close waits for the announcement of the first one, which may be on its way.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(2);
/// The most numbers that are waited for. Further ones do not wait.
const ASKED_MAX: usize = 4096;

impl CloseNumbers {
    /// The close that has this number.
    fn of(&self, number: RequestNumber) -> Option<WriterToken> {
        self.0.lock().closes.get(&number).copied()
    }

    /// Gives the number to a close, unless it is the number of another one than `before`. Returns whether it is time to look for ended open writes.
    fn begin(
        &self,
        number: RequestNumber,
        writer: WriterToken,
        before: Option<WriterToken>,
    ) -> Result<bool, WriterToken> {
        let mut numbers = self.0.lock();
        match numbers.closes.get(&number) {
            Some(other) if other.object != writer.object && Some(*other) != before => return Err(*other),
            Some(other) => {
                let object = other.object;
                numbers.of_objects.remove(&object);
            }
            None => {}
        }
        if let Some(earlier) = numbers.of_objects.insert(writer.object, number).filter(|earlier| *earlier != number) {
            numbers.closes.remove(&earlier);
        }
        numbers.closes.insert(number, writer);
        Ok(numbers.closes.len() > numbers.next_look.max(LOOK_AT))
    }

    /// Whether the announcement of a close with this number may still be on its way.
    fn may_come(&self, now: Time, number: RequestNumber) -> bool {
        let mut numbers = self.0.lock();
        if numbers.asked.len() >= ASKED_MAX {
            numbers.asked.retain(|_, since| now.since(*since) < ANNOUNCED_WITHIN);
        }
        let is_full = numbers.asked.len() >= ASKED_MAX;
        match numbers.asked.get(&number) {
            Some(since) => now.since(*since) < ANNOUNCED_WITHIN,
            None if is_full => false,
            None => {
                numbers.asked.insert(number, now);
                true
            }
        }
    }

    /// The close has ended.
    pub(super) fn end(&self, object: ObjectId) {
        let mut numbers = self.0.lock();
        if let Some(number) = numbers.of_objects.remove(&object) {
            numbers.closes.remove(&number);
        }
    }

    fn all(&self) -> Vec<WriterToken> {
        self.0.lock().closes.values().copied().collect()
    }

    fn end_all(&self, ended: &[WriterToken]) {
        let mut numbers = self.0.lock();
        for writer in ended {
            // The object may have a later open write by now, which closes with another number.
            let number = numbers.of_objects.get(&writer.object).copied();
            if let Some(number) = number.filter(|number| numbers.closes.get(number) == Some(writer)) {
                numbers.of_objects.remove(&writer.object);
                numbers.closes.remove(&number);
            }
        }
        numbers.next_look = numbers.closes.len() * 2;
    }
}

impl OpenService {
    /// Answers a disk server's request about an open write.
    pub(crate) fn answer_about(self: &Arc<Self>, node: NodeId, request: OpenWriteRequest) {
        let OpenWriteRequest { number, writer, action } = request;
        match action {
            OpenWriteAction::Close(of_client) => self.tell(node, number, self.may_close(node, writer, of_client)),
            OpenWriteAction::Discard => self.discard(node, number, writer),
            OpenWriteAction::Leave(of_client) => self.leave(node, number, writer, of_client),
            OpenWriteAction::Reserve(len) => self.reserve(node, number, writer, len),
        }
    }

    /// Whether a close with this number is under way.
    pub(crate) fn is_closing(&self, number: RequestNumber) -> Result<bool, NsError> {
        match self.closes.of(number) {
            Some(writer) => self.names.read(|read| is_current(read, &writer)),
            None => Ok(false),
        }
    }

    /// Whether a close with this number is under way, or may be: its announcement can be on its way.
    pub(crate) fn may_be_closing(&self, number: RequestNumber) -> Result<bool, NsError> {
        Ok(self.is_closing(number)? || self.closes.may_come(self.world.now(), number))
    }

    fn may_close(&self, node: NodeId, writer: WriterToken, number: RequestNumber) -> Result<(), NsError> {
        let other = self.closes.of(number).filter(|other| other.object != writer.object);
        let before = self.names.read(|read| {
            let record = match self.led_by(read, node, &writer) {
                // The close itself finds out, and sends the client on.
                Err(NsError::Stale { .. }) => return Ok(None),
                found => found?,
            };
            number_is_free(read, &record, number)?;
            match other {
                Some(other) if is_current(read, &other)? => Err(used(number)),
                other => Ok(Some(other)),
            }
        })?;
        let Some(before) = before else { return Ok(()) };
        let is_time_to_look = self.closes.begin(number, writer, before).map_err(|_| used(number))?;
        // Another close with this number may have begun and ended since the first look. Its answer is recorded before it gives the number back.
        let still_free = self.names.read(|read| match namespace::writer_of(read, writer.key, writer.object)? {
            Some(record) => number_is_free(read, &record, number),
            None => Ok(()),
        });
        if still_free.is_err() {
            self.closes.end(writer.object);
        }
        still_free?;
        if is_time_to_look { self.forget_ended_closes() } else { Ok(()) }
    }

    fn forget_ended_closes(&self) -> Result<(), NsError> {
        let all = self.closes.all();
        let ended = self.names.read_once(|read| {
            let is_current = |writer: &WriterToken| is_current(read, writer);
            let with_state = all.into_iter().map(|writer| is_current(&writer).map(|is_current| (writer, is_current)));
            with_state.collect::<Result<Vec<_>, NsError>>()
        })?;
        let ended = ended.into_iter().filter(|(_, is_current)| !is_current).map(|(writer, _)| writer);
        self.closes.end_all(&ended.collect::<Vec<_>>());
        Ok(())
    }

    /// The record of an open write whose primary is a store of this node. A striped file has no primary: any disk server may put it together.
    fn led_by(&self, read: &dyn Read, node: NodeId, writer: &WriterToken) -> Result<WriterRecord, NsError> {
        let stale = |why| NsError::Stale { what: namespace::named_open_write(writer.object), why };
        let record = namespace::writer_of(read, writer.key, writer.object)?;
        let record = record.ok_or_else(|| stale("it has ended"))?;
        if record.epoch != writer.epoch {
            return Err(stale("the same client has opened the file again since"));
        }
        let view = self.view.get();
        match record.primary() {
            Some(primary) if view.node_of(primary.store) != Some(node) => {
                Err(stale("another server orders its changes"))
            }
            _ => Ok(record),
        }
    }

    fn discard(self: &Arc<Self>, node: NodeId, number: u64, writer: WriterToken) {
        let record = match self.names.read(|read| self.led_by(read, node, &writer)) {
            Ok(record) => record,
            Err(error) => return self.tell(node, number, Err(error)),
        };
        let this = Arc::clone(self);
        let op = Abandon { writer, request: None };
        self.names.change_urgently((self.world.wall(), &Actor::admin()), Durability::Synced, op, move |result| {
            if result.is_ok() {
                this.closes.end(writer.object);
                let stores: Vec<StoreId> = record.placement.in_sync.iter().map(|one| one.store).collect();
                this.rooms.end_writing(&this.view.get(), &stores);
            }
            this.tell(node, number, result.map(drop));
        });
    }

    /// Records the number of a close that does not end the open write. A repeated close then finds its answer.
    fn leave(self: &Arc<Self>, node: NodeId, number: u64, writer: WriterToken, of_client: RequestNumber) {
        let found = self.names.read(|read| {
            let record = self.led_by(read, node, &writer)?;
            number_is_free(read, &record, of_client).map(|()| record)
        });
        let record = match found {
            Ok(record) => record,
            Err(error) => return self.tell(node, number, Err(error)),
        };
        // Its client may be another one: no tombstone in a cluster depends on it.
        let path = match NsPath::parse(&record.path) {
            Ok(path) => path,
            Err(_) => NsPath::root(),
        };
        let op = NoteSharer { client: record.client, path, object: writer.object, is_away: false, boot: record.boot };
        let this = Arc::clone(self);
        let by = (self.world.wall(), &Actor::admin(), Some(of_client));
        self.names.change(by, Durability::Synced, op, move |result| this.tell(node, number, result));
    }

    /// Lets an open write grow.
    fn reserve(self: &Arc<Self>, node: NodeId, number: u64, writer: WriterToken, len: u64) {
        let now = self.world.wall();
        match self.names.read(|read| {
            self.led_by(read, node, &writer)?;
            namespace::is_unlimited(read, now, &writer)
        }) {
            Ok(false) => {}
            // Streams without limits ask again and again. That must not make the committer work, or wait for its disk.
            Ok(true) => return self.tell_reach(node, number, Ok(None)),
            Err(error) => return self.tell(node, number, Err(error)),
        }
        let (this, by) = (Arc::clone(self), (now, &Actor::admin(), None));
        // The disk server acknowledges bytes on the strength of this answer. Its open write outlives a power failure of the manager, so what was
        // reserved must outlive it too, or the file would end above the quota.
        self.names.change(by, Durability::Synced, Reserve { writer, len }, move |result| {
            this.tell_reach(node, number, result);
        });
    }

    fn tell(&self, node: NodeId, number: u64, result: Result<(), NsError>) {
        self.tell_reach(node, number, result.map(|()| None));
    }

    fn tell_reach(&self, node: NodeId, number: u64, result: Result<Option<u64>, NsError>) {
        let result = result.map_err(|error| RequestError { code: error.code(), text: error.to_string() });
        self.world.send(node, FromManager::OpenWrite(OpenWriteAnswer { number, result }));
    }
}

/// Whether the open write goes on in this epoch.
fn is_current(read: &dyn Read, writer: &WriterToken) -> Result<bool, NsError> {
    let record = namespace::writer_of(read, writer.key, writer.object)?;
    Ok(record.is_some_and(|record| record.epoch == writer.epoch))
}

/// Fails unless the number is of a session of the writer's principal, and nothing was done for it yet.
pub(super) fn number_is_free(read: &dyn Read, record: &WriterRecord, number: RequestNumber) -> Result<(), NsError> {
    let principal = record.client.principal;
    let actor = Actor::new(principal, [principal].into());
    match namespace::outcome_of(read, &actor, number, &ENDS)? {
        None => Ok(()),
        Some(_) => Err(used(number)),
    }
}

fn used(number: RequestNumber) -> NsError {
    let what = format!("request {} of session {}", number.number, number.session);
    NsError::Invalid { what, why: "this number was used to close another file; use the next number" }
}
