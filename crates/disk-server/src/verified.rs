//! What a client's permission is good for here.

use std::sync::Arc;
use std::time::Duration;

use cluster::server::{Grant, GrantRights, Input, ReadView};
use store::{Reader, Verified};
use types::capability::{Capability, CapabilityError, PathMark, Rights, Wanted};
use types::stale_replicas::StaleReplica;
use types::{ErrorCode, Ino, NsPath, ObjectId, PrincipalId, ReplicaId, Stripe, Timestamp, WriterToken};

use super::replica::whole_of;
use super::store_shell::StoreShell;
use super::{DiskServer, Permit, Placed, PlacedError};
use node::ReplicaOrigin;
use node::{Layout, StripedRights, To};

/// How long after its beginning a server's session may still be on its way; longer than the manager can take it for its own predecessor.
const EARLY: Duration = Duration::from_secs(10);

/// A permission that was found good.
#[derive(Clone)]
pub enum VerifiedCapability {
    /// To read.
    Read(ReadGrant),
    /// To write.
    Write(WriteGrant),
    /// A striped file, to be put together here.
    Striped(StripedGrant),
}

impl VerifiedCapability {
    /// Whether it is to write.
    #[must_use]
    pub fn is_to_write(&self) -> bool {
        match self {
            Self::Read(_) => false,
            Self::Write(_) => true,
            Self::Striped(striped) => matches!(striped.rights, StripedRights::Write { .. }),
        }
    }
}

/// A striped file, and what may be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripedGrant {
    /// The content.
    pub object: ObjectId,
    /// The object that it is the content of, or will be.
    pub ino: Ino,
    /// Its permission bits.
    pub mode: u16,
    /// When it was changed last.
    pub mtime: Timestamp,
    /// How it is dealt out.
    pub stripe: Stripe,
    /// To do what.
    pub rights: StripedRights,
}

#[derive(Clone)]
struct Good {
    server: Arc<DiskServer>,
    shell: Arc<StoreShell>,
    replica: ReplicaId,
    ino: Ino,
    mode: u16,
    mtime: Timestamp,
    /// Whom it was given to.
    principal: PrincipalId,
    grant: Grant,
}

/// To read a content.
#[derive(Clone)]
pub struct ReadGrant(Good);

/// To write one.
#[derive(Clone)]
pub struct WriteGrant {
    good: Good,
    writer: WriterToken,
    is_new: bool,
}

impl DiskServer {
    /// Reads the permission that a client of principal `shown_by` shows with `path`. `None`: the manager sent it, for the one that it names.
    ///
    /// # Errors
    /// It is good for nothing here (any more): the client is sent to the manager where that helps.
    pub fn verified(
        self: &Arc<Self>,
        capability: &[u8],
        path: &NsPath,
        shown_by: Option<PrincipalId>,
    ) -> Result<VerifiedCapability, PlacedError> {
        let (now, session) = {
            let (member, now) = (self.member.lock(), self.world.now());
            (member.manager_time(now), member.session())
        };
        // Its end is by the manager's time of day. What this machine takes for that says nothing.
        let now = now.ok_or_else(|| self.moved_or_early())?;
        let keys = self.keys.read();
        let keys = keys.as_ref().ok_or_else(|| self.moved_or_early())?;
        let (server, path) = (self.settings.node, PathMark::of(path));
        let wanted = Wanted { server, principal: shown_by, path, rights: Rights::READ, now };
        let capability = match Capability::check(capability, keys, &wanted) {
            Ok(capability) => capability,
            Err(
                CapabilityError::Expired { .. }
                | CapabilityError::UnknownKey { .. }
                | CapabilityError::OtherServer { .. },
            ) => {
                return Err(self.moved());
            }
            Err(error) => return Err(PlacedError::Permission(error)),
        };
        match session {
            Some(session) if session == capability.session => {}
            Some(_) => return Err(self.moved()),
            None => return Err(self.moved_or_early()),
        }
        let Layout { to, shard, ino, mode, mtime } = Layout::decode(&capability.layout).ok_or_else(|| self.moved())?;
        let grant = match to {
            To::Replica(grant) => grant,
            To::Striped(striped) => {
                let (object, rights) = (capability.object, striped.rights);
                let stripe = Stripe::new(u64::from(striped.width), striped.chunk).map_err(|_| self.moved())?;
                return Ok(VerifiedCapability::Striped(StripedGrant { object, ino, mode, mtime, stripe, rights }));
            }
        };
        let shell = self.stores.get(&grant.store).cloned().ok_or_else(|| self.moved())?;
        let (replica, principal) = (ReplicaId { object: capability.object, index: shard }, capability.principal);
        let good = Good { server: Arc::clone(self), shell, replica, ino, mode, mtime, principal, grant };
        Ok(match good.grant.rights {
            GrantRights::Write { writer, may_make, .. } => {
                VerifiedCapability::Write(WriteGrant { writer, is_new: may_make, good })
            }
            GrantRights::Read { .. } | GrantRights::Follow | GrantRights::Kept { .. } => {
                VerifiedCapability::Read(ReadGrant(good))
            }
        })
    }
}

impl DiskServer {
    /// The client is to ask the manager; but not one that has not heard yet that this server has begun anew: it would send the client back at once, and
    /// again, until that has enough of it.
    fn moved_or_early(&self) -> PlacedError {
        if self.world.now().since(self.began) < EARLY {
            return PlacedError::Wait {
                seconds: 1,
                why: "this server has just started, and has no session with the manager yet",
            };
        }
        self.moved()
    }
}

impl ReadGrant {
    /// The object that is read, its permission bits, and when it was changed last, as the manager has said.
    #[must_use]
    pub fn attributes(&self) -> (Ino, u16, Timestamp) {
        (self.0.ino, self.0.mode, self.0.mtime)
    }

    /// Opens what is to be read.
    ///
    /// # Errors
    /// It may not be shown here any more, or cannot be read.
    pub fn open(self) -> Result<(Arc<Reader>, Permit), PlacedError> {
        let Good { server, shell, replica, grant, .. } = self.0;
        let stale_replicas = stale_replicas(replica, &grant);
        let permit = Permit::new(Arc::clone(&server), Arc::clone(&shell), replica, grant);
        let is_it = match permit.shows()? {
            ReadView::Whole(whole) => whole_of(&shell.at, replica)? == Some(whole),
            ReadView::Kept => shell.at.store.status(replica)?.is_some(),
            ReadView::OfWriter => true,
        };
        if !is_it {
            return Err(stale_replicas.map_or_else(|| server.moved(), |stale_replicas| server.lacks(stale_replicas)));
        }
        let reader = shell.at.store.open_read(replica)?;
        Ok((reader, permit))
    }

    /// Reads it through, as [`store::Store::verify`] does: what it finds is of what might be shown before and after.
    ///
    /// # Errors
    /// As there, and those of [`ReadGrant::open`].
    pub fn verify(self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, PlacedError> {
        let (store, replica) = (Arc::clone(&self.0.shell.at.store), self.0.replica);
        let (_, permit) = self.open()?;
        let verified = store.verify(replica, progress)?;
        permit.check().map(|()| verified)
    }
}

/// What is to be said where the store has not what is to be read. Nothing of what is being written: who has that, only its writer shows.
fn stale_replicas(replica: ReplicaId, grant: &Grant) -> Option<StaleReplica> {
    match grant.rights {
        GrantRights::Read { epoch, .. } | GrantRights::Kept { epoch } => {
            Some(StaleReplica { object: replica.object, epoch: u64::from(epoch.0), store: grant.store })
        }
        GrantRights::Follow | GrantRights::Write { .. } => None,
    }
}

impl WriteGrant {
    /// Which replica is written.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.good.replica
    }

    /// What the namespace calls the writer.
    #[must_use]
    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    /// Whether it is a new content, and no file that is changed in place.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Becomes the one who orders the changes of the content, or goes on with that. `path` and `expected_len`: what a new replica is made with. This call
    /// does the work on the disk, unless another job has its turn there. `then` is called once, perhaps in another thread; with an error if somebody
    /// else orders the changes by now, or the store cannot.
    pub fn attach_then(
        self,
        path: &[u8],
        expected_len: Option<u64>,
        then: impl FnOnce(Result<Arc<Placed>, PlacedError>) + Send + 'static,
    ) {
        let Self { good: Good { server, shell, replica, ino, principal, grant, .. }, writer, is_new } = self;
        let state = shell.replica(replica);
        state.set_about(ReplicaOrigin { principal, path: path.to_vec(), expected_len });
        let is_shared = matches!(&grant.rights, GrantRights::Write { in_sync, .. } if in_sync.len() > 1);
        let placed = Arc::new(Placed::new(Arc::clone(&server), shell, state, (writer, ino), is_new, is_shared));
        let attached = Arc::clone(&placed);
        let waiter = move |result: Result<(), ErrorCode>| {
            then(result.map(|()| attached).map_err(|code| server.refused(code)));
        };
        placed.then(|by| Input::Attach { by, replica, grant }, Box::new(waiter));
    }

    /// The same, for who ends it: where something else is in its place, the manager is told that nothing of it is kept.
    pub(super) fn attach_to_end(
        self,
        path: &[u8],
        expected_len: Option<u64>,
        then: impl FnOnce(Result<Arc<Placed>, PlacedError>) + Send + 'static,
    ) {
        let (server, shell) = (Arc::clone(&self.good.server), Arc::clone(&self.good.shell));
        let (replica, grant) = (self.good.replica, self.good.grant.clone());
        self.attach_then(path, expected_len, move |attached| {
            if attached.as_ref().is_err_and(|error| error.code() == ErrorCode::Exists) {
                server.step(&shell, Input::NothingKept { replica, grant }, None);
            }
            then(attached);
        });
    }
}

#[cfg(test)]
mod tests {
    use cluster::message::{ToManager, ToServer};
    use cluster::{LeaseTerms, ProcessEpoch, Register, Registered, Time};
    use parking_lot::Mutex;
    use types::capability::CapabilityKey;
    use types::{BootGeneration, BootId, Incarnation, NodeId, ReplicaIndex, SessionId};

    use super::*;
    use crate::{DiskSettings, DiskWorld};
    use node::BulkBytes;
    use node::Striped;
    use node::{FromDisk, FromManager, Keys, PeerMessage};

    const SERVER: NodeId = NodeId(7);
    const SESSION: SessionId = SessionId(40);
    const SECRET: [u8; 32] = [9; 32];
    const PRINCIPAL: PrincipalId = PrincipalId(5);
    /// By the manager's clock: years away from what this machine takes for the time of day.
    const WALL: Timestamp = Timestamp(2_500_000_000_000_000_000);

    #[derive(Default)]
    struct World {
        now: Mutex<Time>,
        told: Mutex<Vec<FromDisk>>,
    }

    impl DiskWorld for World {
        fn now(&self) -> Time {
            *self.now.lock()
        }

        fn to_manager(&self, message: FromDisk) {
            self.told.lock().push(message);
        }

        fn to_node(&self, _: NodeId, _: PeerMessage, _: Option<Arc<BulkBytes>>) {}
        fn keep(&self, _: NodeId, _: &str) {}
        fn forget(&self, _: NodeId) {}
        fn cut_others(&self) {}
        fn run(&self, _: Box<dyn FnOnce() + Send>) {}
    }

    /// A disk server, and the manager that it speaks with.
    struct Story {
        world: Arc<World>,
        server: Arc<DiskServer>,
    }

    impl Story {
        fn begin() -> Self {
            let world = Arc::new(World::default());
            let settings = DiskSettings { node: SERVER, process_epoch: ProcessEpoch(1), boot: BootId(1) };
            let server = DiskServer::new(settings, Vec::new(), Arc::clone(&world) as Arc<dyn DiskWorld>);
            let manager = Some(("manager".to_owned(), 1094));
            let keys = Keys { id: 1, secret: SECRET, incarnation: Incarnation::default(), manager };
            server.receive(FromManager::Keys(keys));
            Self { world, server }
        }

        /// The manager says what time it is, in its answer to what it is asked now.
        fn in_session(&self, session: SessionId, wall: Timestamp) {
            *self.world.now.lock() = self.world.now() + Duration::from_secs(1);
            self.server.tick();
            let told = self.world.told.lock().pop();
            match told {
                Some(FromDisk::Cluster(ToManager::Register(Register { number, .. }))) => {
                    let registered = Registered { session, boot_generation: BootGeneration(1), number };
                    let terms = LeaseTerms::default();
                    self.server.receive(FromManager::Cluster(ToServer::Registered { registered, terms, wall }));
                }
                Some(FromDisk::Cluster(ToManager::Renew { number, .. })) => {
                    self.server.receive(FromManager::Cluster(ToServer::Renewed { session, number, wall }));
                }
                told => panic!("{told:?}"),
            }
        }

        fn is_shown(&self, capability: &Capability, with: &str) -> Result<(), PlacedError> {
            let text = capability.seal(&CapabilityKey::new(1, &SECRET)).unwrap();
            self.server.verified(text.as_bytes(), &path(with), Some(PRINCIPAL)).map(drop)
        }
    }

    fn path(text: &str) -> NsPath {
        NsPath::parse(text.as_bytes()).unwrap()
    }

    fn until(expires: Timestamp) -> Capability {
        let to = To::Striped(Striped { width: 2, chunk: 1 << 20, rights: StripedRights::Follow });
        let layout = Layout { to, shard: ReplicaIndex(0), ino: Ino(3), mode: 0o644, mtime: WALL }.encode();
        let (object, rights, path) = (ObjectId(5), Rights::READ, PathMark::of(&path("/a/file")));
        Capability {
            server: SERVER,
            object,
            rights,
            principal: PRINCIPAL,
            path,
            epoch: 0,
            session: SESSION,
            expires,
            layout,
        }
    }

    fn seconds(count: u64) -> Duration {
        Duration::from_secs(count)
    }

    #[test]
    fn a_permission_ends_by_the_managers_clock_wherever_the_servers_own_stands() {
        let story = Story::begin();
        let fresh = until(WALL.plus(seconds(60)));
        assert!(matches!(story.is_shown(&fresh, "/a/file"), Err(PlacedError::Wait { .. })), "no session yet");
        story.in_session(SESSION, WALL);
        story.is_shown(&fresh, "/a/file").unwrap();
        *story.world.now.lock() = story.world.now() + seconds(59);
        story.is_shown(&fresh, "/a/file").unwrap();
        *story.world.now.lock() = story.world.now() + seconds(1);
        assert!(matches!(story.is_shown(&fresh, "/a/file"), Err(PlacedError::Moved { .. })));
        // The manager's clock is put right by ten minutes, in either direction.
        for set in [WALL.plus(seconds(600)), Timestamp(WALL.0 - 600_000_000_000)] {
            story.in_session(SESSION, set);
            story.is_shown(&until(set.plus(seconds(60))), "/a/file").unwrap();
            assert!(matches!(story.is_shown(&until(set), "/a/file"), Err(PlacedError::Moved { .. })));
        }
    }

    #[test]
    fn what_another_manager_gave_is_good_no_more() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let before = until(WALL.plus(seconds(60)));
        story.server.receive(FromManager::Cluster(ToServer::NoSession { session: SESSION }));
        let now = SessionId(SESSION.0 + 1);
        // Its clock is behind: by that, what was given before is good for minutes.
        let wall = Timestamp(WALL.0 - 600_000_000_000);
        story.in_session(now, wall);
        assert!(matches!(story.is_shown(&before, "/a/file"), Err(PlacedError::Moved { .. })));
        story.is_shown(&Capability { session: now, ..until(wall.plus(seconds(60))) }, "/a/file").unwrap();
    }

    #[test]
    fn a_permission_that_another_principal_shows_is_refused_in_words() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let text = until(WALL.plus(seconds(60))).seal(&CapabilityKey::new(1, &SECRET)).unwrap();
        let shown_by = |principal| story.server.verified(text.as_bytes(), &path("/a/file"), principal).map(drop);
        for other in [PrincipalId(0), PrincipalId(PRINCIPAL.0 + 1)] {
            let refused = shown_by(Some(other)).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Denied, "{refused}");
            assert!(refused.to_string().contains("given to principal 5"), "{refused}");
        }
        shown_by(Some(PRINCIPAL)).unwrap();
        // The manager sends it to end a writing whose client has gone.
        shown_by(None).unwrap();
    }

    #[test]
    fn a_permission_that_is_shown_with_another_path_is_refused_in_words() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let good = until(WALL.plus(seconds(60)));
        story.is_shown(&good, "//a/file/").unwrap();
        for other in ["/a/other", "/a", "/"] {
            let refused = story.is_shown(&good, other).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Denied, "{refused}");
            assert!(refused.to_string().contains("for another file"), "{refused}");
        }
    }
}
