//! The requests of clients, as a disk server's front end handles them. Objects are written with [`ReplicatedWriter`], and readers have a permit to show what
//! they read. Each request is a job; the jobs of one client run in order.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::replication::Epoch;
use disk_server::{ClosedBy, DiskServerError, NotAgreed, Permit, ReplicatedWriter, VerifiedCapability};
use store::Reader;
use types::{ErrorCode, ReplicaId};

use super::Server;
use super::outside::lock;
use crate::manager::Env;
use crate::message::{Addr, Capability, Message, Number};
use crate::settings::Bug;

/// An open write ends this long after its client vanished.
const GRACE: Duration = Duration::from_secs(2);

/// A file that a client has open for reading.
pub(super) struct Held {
    /// The capability with which it was opened.
    capability: Capability,
    reader: Arc<Reader>,
    permit: Permit,
}

/// How far open writes may go before more must be reserved, and the requests of clients whose write waits for that.
#[derive(Default)]
pub(super) struct Growth {
    reach: BTreeMap<ReplicaId, (Epoch, u64)>,
    waiting: BTreeMap<usize, VecDeque<Message>>,
}

impl Growth {
    /// An open has told how far the open write may go.
    fn opened(&mut self, replica: ReplicaId, epoch: Epoch, may_reach: Option<u64>) {
        let known = self.reach.entry(replica).or_insert((epoch, may_reach.unwrap_or(u64::MAX)));
        if known.0 == epoch {
            known.1 = known.1.max(may_reach.unwrap_or(0));
        } else {
            *known = (epoch, may_reach.unwrap_or(u64::MAX));
        }
    }

    fn learn(&mut self, replica: ReplicaId, epoch: Epoch, reached: u64) {
        if let Some(known) = self.reach.get_mut(&replica).filter(|known| known.0 == epoch) {
            known.1 = known.1.max(reached);
        }
    }

    fn includes(&self, replica: ReplicaId, epoch: Epoch, end: u64) -> bool {
        self.reach.get(&replica).is_none_or(|(of, reach)| *of != epoch || end <= *reach)
    }

    pub(super) fn forget(&mut self, replicas: impl Fn(&ReplicaId) -> bool) {
        self.reach.retain(|replica, _| replicas(replica));
    }
}

/// The manager's answer to the wish of a client's write.
pub(super) struct Reserved {
    client: usize,
    write: Message,
    result: Result<Option<u64>, NotAgreed>,
}

impl Server {
    pub(super) fn of_client(&mut self, client: usize, message: Message) {
        let job = lock(&self.outside).due(Some(client));
        self.requests.insert(job, (client, message));
    }

    /// A thread executes a client's request.
    pub(super) fn answer(&mut self, client: usize, message: Message, env: &mut Env<'_>) {
        // The requests of a connection are done in order.
        if let Some(waiting) = self.growth.waiting.get_mut(&client).filter(|_| !matches!(message, Message::Gone { .. }))
        {
            return waiting.push_back(message);
        }
        if let Message::Write { replica, epoch, bytes, .. } = &message {
            let end = bytes.offset + bytes.bytes.len() as u64;
            let token = self.replicated(*replica, *epoch).map(|replicated| replicated.writer());
            if let Some(token) = token.filter(|_| !self.growth.includes(*replica, *epoch, end)) {
                self.growth.waiting.insert(client, VecDeque::new());
                let outside = Arc::clone(&self.outside);
                self.shell.reserve(token, end, move |result| {
                    lock(&outside).reserved.push(Reserved { client, write: message, result });
                });
                return;
            }
        }
        self.answer_now(client, message, env);
    }

    /// Goes on with the requests of clients whose reservations the manager has answered.
    pub(super) fn go_on_reserved(&mut self, env: &mut Env<'_>) {
        let reserved = std::mem::take(&mut lock(&self.outside).reserved);
        for Reserved { client, write, result } in reserved {
            let waiting = self.growth.waiting.remove(&client).unwrap_or_default();
            let Message::Write { number, replica, epoch, .. } = &write else { continue };
            match result {
                Ok(reached) => {
                    self.growth.learn(*replica, *epoch, reached.unwrap_or(u64::MAX));
                    self.answer_now(client, write, env);
                }
                Err(NotAgreed::Refused(refusal)) => {
                    self.done(client, *number)(Err(DiskServerError::Refused(refusal.code)));
                }
                Err(_) => self.done(client, *number)(Err(DiskServerError::Refused(ErrorCode::Unavailable))),
            }
            for message in waiting {
                self.answer(client, message, env);
            }
        }
    }

    fn answer_now(&mut self, client: usize, message: Message, env: &mut Env<'_>) {
        match message {
            Message::Attach { number, capability } => self.attach(client, number, &capability, env),
            Message::Write { number, replica, epoch, bytes } => {
                let done = self.done(client, number);
                match self.replicated(replica, epoch) {
                    Some(replicated) => replicated.write_then(bytes.offset, &bytes.bytes, None, done),
                    None => done(Err(DiskServerError::Refused(ErrorCode::Stale))),
                }
            }
            Message::Sync { number, replica, epoch } => {
                let done = self.done(client, number);
                match self.replicated(replica, epoch) {
                    Some(replicated) => replicated.sync_then(done),
                    None => done(Err(DiskServerError::Refused(ErrorCode::Stale))),
                }
            }
            Message::Close { number, replica, epoch } => {
                let done = self.done(client, number);
                match self.replicated(replica, epoch) {
                    Some(replicated) => replicated.close(None, ClosedBy::Client { request: None }, done),
                    None => done(Err(DiskServerError::Refused(ErrorCode::Stale))),
                }
            }
            Message::Get { number, capability } => {
                let result = self.read(client, &capability).map_err(|error| error.code());
                env.send(Addr::Client(client), Message::Got { number, result });
            }
            Message::Gone { replica, epoch } => {
                self.gone.insert(replica, (epoch, env.now + GRACE));
            }
            _ => {}
        }
    }

    /// Tells a client the outcome of its request.
    fn done(&self, client: usize, number: Number) -> impl FnOnce(Result<(), DiskServerError>) + Send + use<> {
        let outside = Arc::clone(&self.outside);
        move |result| {
            let result = result.map_err(|error| error.code());
            lock(&outside).out.push((Addr::Client(client), Message::Done { number, result }));
        }
    }

    /// The open write that is attached with this epoch.
    fn replicated(&self, replica: ReplicaId, epoch: Epoch) -> Option<&Arc<ReplicatedWriter>> {
        self.open.get(&replica).filter(|replicated| replicated.writer().epoch == epoch.0)
    }

    fn attach(&mut self, client: usize, number: Number, capability: &Capability, env: &Env<'_>) {
        let done = self.done(client, number);
        let grant = match self.shell.verify(capability.sealed.as_bytes(), &capability.path, None) {
            Ok(VerifiedCapability::Write(grant)) => grant,
            Ok(_) => return done(Err(DiskServerError::Refused(ErrorCode::Stale))),
            Err(error) => return done(Err(error)),
        };
        self.writers.insert(grant.replica(), (grant.writer(), env.now));
        if self.planted != Some(Bug::ReservationNotAwaited) {
            self.growth.opened(grant.replica(), Epoch(grant.writer().epoch), grant.may_reach());
        }
        let outside = Arc::clone(&self.outside);
        grant.attach_then(capability.path.to_string().as_bytes(), None, move |attached| {
            done(attached.map(|replicated| lock(&outside).attached.push(replicated)));
        });
    }

    /// Reads a whole file that a client has open, or opens it first.
    fn read(&mut self, client: usize, capability: &Capability) -> Result<Arc<[u8]>, DiskServerError> {
        let held = self.readers.remove(&client).filter(|held| held.capability == *capability);
        let held = match held {
            Some(held) => held,
            None => {
                let grant = match self.shell.verify(capability.sealed.as_bytes(), &capability.path, None)? {
                    VerifiedCapability::Read(grant) => grant,
                    _ => return Err(DiskServerError::Refused(ErrorCode::Stale)),
                };
                let (reader, permit) = grant.open()?;
                Held { capability: capability.clone(), reader, permit }
            }
        };
        let mut bytes = vec![0; usize::try_from(held.reader.len()).unwrap_or(0)];
        let read = held.reader.read(0, &mut bytes).inspect_err(|error| {
            if error.is_about_replica() {
                held.permit.suspect_damage();
            }
        })?;
        bytes.truncate(read);
        held.permit.check()?;
        self.readers.insert(client, held);
        Ok(bytes.into())
    }

    /// Ends open writes whose clients have been gone for too long.
    pub(super) fn end_gone(&mut self, now: Time) {
        let due: Vec<(ReplicaId, Epoch)> = self
            .gone
            .iter()
            .filter(|(_, (_, until))| now >= *until)
            .map(|(replica, (epoch, _))| (*replica, *epoch))
            .collect();
        for (replica, epoch) in due {
            // The open write's attach may still be in progress.
            if self.writers.contains_key(&replica) {
                self.gone.insert(replica, (epoch, now + GRACE));
            } else {
                self.gone.remove(&replica);
            }
            let Some(replicated) = self.replicated(replica, epoch).cloned() else { continue };
            let outside = Arc::clone(&self.outside);
            replicated.interrupt(move |result| {
                let result = result.map(drop).map_err(|error| error.code());
                lock(&outside).graces.push((replica, result));
            });
        }
    }
}
