//! Checks a client's capability.

use std::sync::Arc;
use std::time::Duration;

use cluster::server::{Grant, GrantRights, Input, ReadView};
use store::{Reader, ReplicaState, StoreError, Verified};
use types::absent_replicas::AbsentReplica;
use types::capability::{Capability, CapabilityConditions, CapabilityError, PathHash, Rights};
use types::{ErrorCode, Ino, NsPath, ObjectId, PrincipalId, ReplicaId, StoreId, Stripe, Timestamp, WriterToken};

use super::replica::whole_of;
use super::store_shell::StoreShell;
use super::{DiskServer, DiskServerError, Permit, ReplicatedWriter};
use node::ReplicaOrigin;
use node::{Layout, StripedRights, To};

/// How long after its start a server may still wait for its session. It is longer than the manager can take the server for its predecessor.
const EARLY: Duration = Duration::from_secs(10);

/// A valid capability.
#[derive(Clone)]
pub enum VerifiedCapability {
    /// To read an object.
    Read(ReadGrant),
    /// To write an object.
    Write(WriteGrant),
    /// To read or write a striped file whose units this server combines.
    Striped(StripedGrant),
}

impl VerifiedCapability {
    /// Whether it allows writing.
    #[must_use]
    pub fn is_to_write(&self) -> bool {
        match self {
            Self::Read(_) => false,
            Self::Write(_) => true,
            Self::Striped(striped) => matches!(striped.rights, StripedRights::Write { .. }),
        }
    }

    /// Whether it allows reading. One to write may not.
    #[must_use]
    pub fn is_to_read(&self) -> bool {
        match self {
            Self::Read(_) => true,
            Self::Write(writing) => writing.reads,
            Self::Striped(striped) => striped.reads,
        }
    }

    /// The object that it is for.
    #[must_use]
    pub fn object(&self) -> ObjectId {
        match self {
            Self::Read(reading) => reading.0.replica.object,
            Self::Write(writing) => writing.good.replica.object,
            Self::Striped(striped) => striped.object,
        }
    }

    /// The length that the open write may reach before it must reserve more. `None`: any length.
    #[must_use]
    pub fn may_reach(&self) -> Option<u64> {
        match self {
            Self::Read(_) => None,
            Self::Write(writing) => writing.may_reach(),
            Self::Striped(striped) => striped.may_reach,
        }
    }

    /// The principal that the manager gave it to.
    #[must_use]
    pub fn principal(&self) -> PrincipalId {
        match self {
            Self::Read(reading) => reading.0.principal,
            Self::Write(writing) => writing.principal(),
            Self::Striped(striped) => striped.principal,
        }
    }
}

/// The rights to a striped file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripedGrant {
    /// The object.
    pub object: ObjectId,
    /// The principal that it was given to.
    pub principal: PrincipalId,
    /// The inode of the file.
    pub ino: Ino,
    /// The permission bits of the file.
    pub mode: u16,
    /// The time of its last change.
    pub mtime: Timestamp,
    /// The stripe layout.
    pub stripe: Stripe,
    /// The rights of the client.
    pub rights: StripedRights,
    /// Whether the client may read. One that may write may perhaps not.
    pub reads: bool,
    /// The length that an open write may reach before it must reserve more. `None`: any length.
    pub may_reach: Option<u64>,
}

#[derive(Clone)]
struct Good {
    server: Arc<DiskServer>,
    shell: Arc<StoreShell>,
    replica: ReplicaId,
    ino: Ino,
    mode: u16,
    mtime: Timestamp,
    /// The identity that it was given to.
    principal: PrincipalId,
    grant: Grant,
}

/// The right to read an object.
#[derive(Clone)]
pub struct ReadGrant(Good);

/// The right to write an object.
#[derive(Clone)]
pub struct WriteGrant {
    good: Good,
    writer: WriterToken,
    is_new: bool,
    /// The client may read the object, too.
    reads: bool,
    may_reach: Option<u64>,
}

impl DiskServer {
    /// Verifies the capability that comes with `path`. It says whose it is ([`VerifiedCapability::principal`]). With `shown_by`, one that was given to
    /// another principal is refused.
    ///
    /// # Errors
    /// If the capability is not valid here, or not any more. The error sends the client to the manager if that helps.
    pub fn verify(
        self: &Arc<Self>,
        capability: &[u8],
        path: &NsPath,
        shown_by: Option<PrincipalId>,
    ) -> Result<VerifiedCapability, DiskServerError> {
        let (now, session) = {
            let (member, now) = (self.member.lock(), self.world.now());
            (member.manager_time(now), member.session())
        };
        // Expiry goes by the manager's clock, whatever this machine's clock shows.
        let now = now.ok_or_else(|| self.moved_or_early())?;
        let keys = self.keys.read();
        let keys = keys.as_ref().ok_or_else(|| self.moved_or_early())?;
        let (server, path) = (self.settings.node, PathHash::of(path));
        // What it is for stands in its layout.
        let wanted = CapabilityConditions { server, principal: shown_by, path, rights: Rights::NONE, now };
        let capability = match Capability::check(capability, keys, &wanted) {
            Ok(capability) => capability,
            Err(
                CapabilityError::Expired { .. }
                | CapabilityError::UnknownKey { .. }
                | CapabilityError::OtherServer { .. },
            ) => {
                return Err(self.moved());
            }
            Err(error) => return Err(DiskServerError::Capability(error)),
        };
        match session {
            Some(session) if session == capability.session => {}
            Some(_) => return Err(self.moved()),
            None => return Err(self.moved_or_early()),
        }
        let layout = Layout::decode(&capability.layout).ok_or_else(|| self.moved())?;
        let Layout { to, shard, ino, mode, mtime, may_reach } = layout;
        let writes = match &to {
            To::Replica(grant) => matches!(grant.rights, GrantRights::Write { .. }),
            To::Striped(striped) => matches!(striped.rights, StripedRights::Write { .. }),
        };
        let (has, wanted) = (capability.rights, if writes { Rights::WRITE } else { Rights::READ });
        if !has.include(wanted) {
            return Err(DiskServerError::Capability(CapabilityError::Rights { has, wanted }));
        }
        let reads = has.include(Rights::READ);
        let grant = match to {
            To::Replica(grant) => grant,
            To::Striped(striped) => {
                let (object, rights) = (capability.object, striped.rights);
                let stripe = Stripe::new(u64::from(striped.width), striped.chunk).map_err(|_| self.moved())?;
                let principal = capability.principal;
                return Ok(VerifiedCapability::Striped(StripedGrant {
                    object,
                    principal,
                    ino,
                    mode,
                    mtime,
                    stripe,
                    rights,
                    reads,
                    may_reach,
                }));
            }
        };
        let shell = self.stores.get(&grant.store).cloned().ok_or_else(|| self.moved())?;
        let (replica, principal) = (ReplicaId { object: capability.object, index: shard }, capability.principal);
        let good = Good { server: Arc::clone(self), shell, replica, ino, mode, mtime, principal, grant };
        Ok(match good.grant.rights {
            GrantRights::Write { writer, may_make, .. } => {
                VerifiedCapability::Write(WriteGrant { writer, is_new: may_make, reads, good, may_reach })
            }
            GrantRights::Read { .. } | GrantRights::Follow | GrantRights::Kept { .. } => {
                VerifiedCapability::Read(ReadGrant(good))
            }
        })
    }
}

impl DiskServer {
    /// The error that sends the client to the manager. Just after this server's start, the client must wait instead. A manager that has not noticed
    /// the restart would send the client back at once, again and again.
    fn moved_or_early(&self) -> DiskServerError {
        if self.world.now().since(self.began) < EARLY {
            return DiskServerError::Wait {
                seconds: 1,
                why: "this server has just started, and has no session with the manager yet",
            };
        }
        self.moved()
    }
}

impl ReadGrant {
    /// The inode, its permission bits and the time of its last change, from the manager.
    #[must_use]
    pub fn attributes(&self) -> (Ino, u16, Timestamp) {
        (self.0.ino, self.0.mode, self.0.mtime)
    }

    /// Whether the object was being written when the capability was made.
    #[must_use]
    pub fn follows_writer(&self) -> bool {
        matches!(self.0.grant.rights, GrantRights::Follow)
    }

    /// Opens the object for reading.
    ///
    /// # Errors
    /// If it may not be shown here any more, or cannot be read.
    pub fn open(self) -> Result<(Arc<Reader>, Permit), DiskServerError> {
        let Good { server, shell, replica, grant, .. } = self.0;
        let absent = absent_replica(replica, &grant);
        let permit = Permit::new(Arc::clone(&server), Arc::clone(&shell), replica, grant);
        let sees = permit.shows()?;
        let is_it = || {
            Ok::<_, DiskServerError>(match sees {
                ReadView::Whole(whole) => whole_of(&shell.at, replica)? == Some(whole),
                // One that is being written here is the unfinished copy of another.
                ReadView::Kept => shell.at.store.status(replica)?.is_some_and(|status| {
                    matches!(status.state, ReplicaState::Complete { .. } | ReplicaState::Interrupted)
                }),
                ReadView::OfWriter => true,
            })
        };
        let lacks = || absent.map_or_else(|| server.moved(), |absent| server.lacks(absent));
        if !is_it()? {
            return Err(lacks());
        }
        let reader = match shell.at.store.open_read(replica) {
            Ok(reader) => reader,
            // It was deleted just before.
            Err(StoreError::NotFound { .. }) => return Err(lacks()),
            Err(error) => return Err(error.into()),
        };
        // It may have been started over just before.
        if !is_it()? {
            return Err(lacks());
        }
        let permit = permit.of(&reader);
        Ok((reader, permit))
    }

    /// Reads the object through like [`store::Store::verify`]. The object may be shown both before and after the read.
    ///
    /// # Errors
    /// Those of [`store::Store::verify`] and [`ReadGrant::open`].
    pub fn verify(self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, DiskServerError> {
        let (store, replica) = (Arc::clone(&self.0.shell.at.store), self.0.replica);
        let (_, permit) = self.open()?;
        let verified = store.verify(replica, progress)?;
        permit.check().map(|()| verified)
    }
}

/// The absent replica to report if the store does not have the object. `None` for an object that is being written: only its primary can show it.
fn absent_replica(replica: ReplicaId, grant: &Grant) -> Option<AbsentReplica> {
    match grant.rights {
        GrantRights::Read { epoch, .. } | GrantRights::Kept { epoch } => {
            Some(AbsentReplica { object: replica.object, epoch: u64::from(epoch.0), store: grant.store })
        }
        GrantRights::Follow | GrantRights::Write { .. } => None,
    }
}

impl WriteGrant {
    /// The replica to write.
    #[must_use]
    pub fn replica(&self) -> ReplicaId {
        self.good.replica
    }

    /// The open write, as the namespace names it.
    #[must_use]
    pub fn writer(&self) -> WriterToken {
        self.writer
    }

    /// The principal that the manager gave it to.
    #[must_use]
    pub fn principal(&self) -> PrincipalId {
        self.good.principal
    }

    /// Whether the object is new. False for a change in place.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The length that the open write may reach before it must reserve more. `None`: any length.
    #[must_use]
    pub fn may_reach(&self) -> Option<u64> {
        self.may_reach
    }

    /// The store of the replica.
    #[must_use]
    pub fn store(&self) -> StoreId {
        self.good.grant.store
    }

    /// Whether the store has room at this moment for a new file, of this length if it is known.
    #[must_use]
    pub fn has_room(&self, expected_len: Option<u64>) -> bool {
        // A store that cannot say it finds out when it makes the replica.
        let Ok(space) = self.good.shell.at.store.space() else { return true };
        !space.floor_reached && space.free.saturating_sub(space.floor) >= expected_len.unwrap_or(0)
    }

    /// Makes this store the object's primary, or continues as such. A new replica is made with `path` and `expected_len`. This call does the work on
    /// the disk, unless another job has the replica's turn. It calls `then` once, perhaps in another thread. It passes an error if another store is
    /// the primary by now or this store failed.
    pub fn attach_then(
        self,
        path: &[u8],
        expected_len: Option<u64>,
        then: impl FnOnce(Result<Arc<ReplicatedWriter>, DiskServerError>) + Send + 'static,
    ) {
        self.begin(path, expected_len, false, then);
    }

    fn begin(
        self,
        path: &[u8],
        expected_len: Option<u64>,
        is_ending: bool,
        then: impl FnOnce(Result<Arc<ReplicatedWriter>, DiskServerError>) + Send + 'static,
    ) {
        let Self { good: Good { server, shell, replica, ino, principal, grant, .. }, writer, is_new, .. } = self;
        let state = shell.replica(replica);
        state.set_about(ReplicaOrigin { principal, path: path.to_vec(), expected_len });
        let is_shared = matches!(&grant.rights, GrantRights::Write { in_sync, .. } if in_sync.len() > 1);
        let replicated =
            Arc::new(ReplicatedWriter::new(Arc::clone(&server), shell, state, (writer, ino), is_new, is_shared));
        let attached = Arc::clone(&replicated);
        let waiter = move |result: Result<(), ErrorCode>| {
            then(result.map(|()| attached).map_err(|code| server.refused(code)));
        };
        replicated.then(|by| Input::Attach { by, replica, grant, is_ending }, Box::new(waiter));
    }

    /// The same, to end the open write. If another object is in its place, or if the only store with a file that is changed has lost it, the manager
    /// learns that nothing of the write is kept.
    pub(super) fn attach_to_end(
        self,
        path: &[u8],
        expected_len: Option<u64>,
        then: impl FnOnce(Result<Arc<ReplicatedWriter>, DiskServerError>) + Send + 'static,
    ) {
        let (server, shell) = (Arc::clone(&self.good.server), Arc::clone(&self.good.shell));
        let (replica, grant) = (self.good.replica, self.good.grant.clone());
        let is_new = self.is_new;
        let is_only_one = matches!(&grant.rights, GrantRights::Write { in_sync, .. } if in_sync.len() == 1);
        let is_lost = move |code| code == ErrorCode::Exists || code == ErrorCode::NotFound && is_only_one && !is_new;
        self.begin(path, expected_len, true, move |attached| {
            if attached.as_ref().is_err_and(|error| is_lost(error.code())) {
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
    /// The manager's clock, years away from this machine's clock.
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

    /// A disk server and the manager that it talks to.
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

        /// The manager answers the pending request with this time.
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

        fn is_shown(&self, capability: &Capability, with: &str) -> Result<(), DiskServerError> {
            let text = capability.seal(&CapabilityKey::new(1, &SECRET)).unwrap();
            self.server.verify(text.as_bytes(), &path(with), Some(PRINCIPAL)).map(drop)
        }
    }

    fn path(text: &str) -> NsPath {
        NsPath::parse(text.as_bytes()).unwrap()
    }

    fn until(expires: Timestamp) -> Capability {
        let to = To::Striped(Striped { width: 2, chunk: 1 << 20, rights: StripedRights::Follow });
        let layout =
            Layout { to, shard: ReplicaIndex(0), ino: Ino(3), mode: 0o644, mtime: WALL, may_reach: None }.encode();
        let (object, rights, path) = (ObjectId(5), Rights::READ, PathHash::of(&path("/a/file")));
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
    fn a_capability_expires_by_the_managers_clock_whatever_the_servers_shows() {
        let story = Story::begin();
        let fresh = until(WALL.plus(seconds(60)));
        assert!(matches!(story.is_shown(&fresh, "/a/file"), Err(DiskServerError::Wait { .. })), "no session yet");
        story.in_session(SESSION, WALL);
        story.is_shown(&fresh, "/a/file").unwrap();
        *story.world.now.lock() = story.world.now() + seconds(59);
        story.is_shown(&fresh, "/a/file").unwrap();
        *story.world.now.lock() = story.world.now() + seconds(1);
        assert!(matches!(story.is_shown(&fresh, "/a/file"), Err(DiskServerError::Moved { .. })));
        // The manager's clock is corrected by ten minutes in either direction.
        for set in [WALL.plus(seconds(600)), Timestamp(WALL.0 - 600_000_000_000)] {
            story.in_session(SESSION, set);
            story.is_shown(&until(set.plus(seconds(60))), "/a/file").unwrap();
            assert!(matches!(story.is_shown(&until(set), "/a/file"), Err(DiskServerError::Moved { .. })));
        }
    }

    #[test]
    fn without_a_lease_clients_are_sent_to_another_manager() {
        let story = Story::begin();
        let sent_to = || story.server.manager_for_clients().map(|(host, _)| host);
        assert_eq!(sent_to().as_deref(), Some("manager"), "no other one is known");
        let manager = |host: &str| node::ManagerAddress {
            node: NodeId(1),
            nodes_at: format!("{host}:1095"),
            clients_at: Some((host.to_owned(), 1094)),
        };
        story.server.receive(FromManager::Managers(vec![manager("standby"), manager("manager")]));
        assert_eq!(sent_to().as_deref(), Some("standby"));
        story.in_session(SESSION, WALL);
        assert_eq!(sent_to().as_deref(), Some("manager"));
        *story.world.now.lock() = story.world.now() + seconds(6);
        assert_eq!(sent_to().as_deref(), Some("standby"));
        assert!(matches!(story.server.moved(), DiskServerError::Moved { host, .. } if host == "standby"));
    }

    #[test]
    fn a_question_for_a_proxy_is_answered_once_or_given_up() {
        use node::{FoundProxy, ProxyAnswer};

        let story = Story::begin();
        let heard: Arc<Mutex<Vec<Option<FoundProxy>>>> = Arc::default();
        let ask = || {
            let heard = Arc::clone(&heard);
            story.server.take_delegated(ObjectId(5), move |found| heard.lock().push(found));
        };
        let heard_now = || std::mem::take(&mut *heard.lock());
        ask();
        assert_eq!(heard_now(), [None], "without a manager, nobody waits");
        story.in_session(SESSION, WALL);
        ask();
        let Some(FromDisk::TakeProxy(request)) = story.world.told.lock().pop() else { panic!("nothing was asked") };
        assert_eq!((request.object, heard_now().len()), (ObjectId(5), 0));
        for _ in 0..2 {
            story.server.receive(FromManager::Proxy(ProxyAnswer { number: request.number, found: FoundProxy::Given }));
        }
        assert_eq!(heard_now(), [Some(FoundProxy::Given)]);
        (0..17).for_each(|_| ask());
        assert_eq!(heard_now(), [None], "they are bounded");
        *story.world.now.lock() = story.world.now() + seconds(9);
        story.server.tick();
        assert_eq!(heard_now(), []);
        *story.world.now.lock() = story.world.now() + seconds(1);
        story.server.tick();
        assert_eq!(heard_now(), vec![None; 16]);
        ask();
        story.server.let_go();
        assert_eq!(heard_now(), [None], "the manager is gone");
        ask();
        assert_eq!(heard_now(), [None]);
    }

    #[test]
    fn a_capability_of_an_earlier_manager_is_refused() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let before = until(WALL.plus(seconds(60)));
        story.server.receive(FromManager::Cluster(ToServer::NoSession { session: SESSION }));
        let now = SessionId(SESSION.0 + 1);
        // The new manager's clock is ten minutes behind, so by its time the earlier capabilities are still valid.
        let wall = Timestamp(WALL.0 - 600_000_000_000);
        story.in_session(now, wall);
        assert!(matches!(story.is_shown(&before, "/a/file"), Err(DiskServerError::Moved { .. })));
        story.is_shown(&Capability { session: now, ..until(wall.plus(seconds(60))) }, "/a/file").unwrap();
    }

    #[test]
    fn a_capability_shown_by_another_principal_is_refused_with_a_reason() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let text = until(WALL.plus(seconds(60))).seal(&CapabilityKey::new(1, &SECRET)).unwrap();
        let shown_by = |principal| story.server.verify(text.as_bytes(), &path("/a/file"), principal).map(drop);
        for other in [PrincipalId(0), PrincipalId(PRINCIPAL.0 + 1)] {
            let refused = shown_by(Some(other)).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Denied, "{refused}");
            assert!(refused.to_string().contains("given to principal 5"), "{refused}");
        }
        shown_by(Some(PRINCIPAL)).unwrap();
        // The manager sends it to end an open write whose client has gone.
        shown_by(None).unwrap();
    }

    #[test]
    fn a_capability_shown_with_another_path_is_refused_with_a_reason() {
        let story = Story::begin();
        story.in_session(SESSION, WALL);
        let good = until(WALL.plus(seconds(60)));
        story.is_shown(&good, "//a///file").unwrap();
        for other in ["/a/other", "/a", "/", "/a/file/"] {
            let refused = story.is_shown(&good, other).unwrap_err();
            assert_eq!(refused.code(), ErrorCode::Denied, "{refused}");
            assert!(refused.to_string().contains("for another file"), "{refused}");
        }
    }
}
