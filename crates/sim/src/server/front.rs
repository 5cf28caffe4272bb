//! The requests of clients, as a disk server's front end handles them. Objects are written with [`ReplicatedWriter`], and readers have a permit to show what
//! they read. Each request is a job; the jobs of one client run in order.

use std::sync::Arc;
use std::time::Duration;

use cluster::Time;
use cluster::replication::Epoch;
use disk_server::{ClosedBy, DiskServerError, Permit, ReplicatedWriter, VerifiedCapability};
use store::Reader;
use types::{ErrorCode, ReplicaId};

use super::Server;
use super::outside::lock;
use crate::manager::Env;
use crate::message::{Addr, Capability, Message, Number};

/// An open write ends this long after its client vanished.
const GRACE: Duration = Duration::from_secs(2);

/// A file that a client has open for reading.
pub(super) struct Held {
    /// The capability with which it was opened.
    capability: Capability,
    reader: Arc<Reader>,
    permit: Permit,
}

impl Server {
    pub(super) fn of_client(&mut self, client: usize, message: Message) {
        let job = lock(&self.outside).due(Some(client));
        self.requests.insert(job, (client, message));
    }

    /// A thread executes a client's request.
    pub(super) fn answer(&mut self, client: usize, message: Message, env: &mut Env<'_>) {
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
