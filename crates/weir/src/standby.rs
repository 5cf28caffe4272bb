//! A manager that waits until it can take over: it answers readers, sends all other clients, nodes and commands to the active manager, and keeps the files
//! that all managers have.

use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};

use control::{Answers, Caller, Control, ControlRequest, Reply, gate};
use database::{DatabaseError, Holder, PlaceWatch, Standing, Vacancy};
use foundation::DatabaseSettings;
use link::admin::{
    AdminError, AdminGrant, AdminHandler, AdminName, AdminService, AdminStore, AdminStream, PresentedInvitation,
};
use link::{
    Authority, Credentials, Identity, LocalNode, OtherServices, PeerIdentity, Settings, UnidentifiedConnection,
};
use manager::administrators::Administrators;
use node::links::{Links, RegistrationHandler};
use parking_lot::Mutex;
use service::ActiveManager;
use types::{NodeId, Timestamp};

use crate::administration::Administration;
use crate::cluster_node::{LINKS_STOP, wait};
use crate::end::End;
use crate::exit::Exit;
use crate::health::{Judged, NodeHealth};
use crate::manager_join::{NoMessages, is_manager};
use crate::manager_process::ManagerProcess;
use crate::metrics::{ClusterSource, ScrubSource, Sources};
use crate::open_connections::OpenConnections;
use crate::serve_manager::{administrators, on_admission};
use crate::standby_follower::Follower;
use crate::standby_readers::Readers;
use crate::{Failure, admin_api, cluster_role, serve, supervisor};

/// How often it looks whether the place is free.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long clients and administrators have to take their answers when it takes over.
const FRONT_END_STOP: Duration = Duration::from_secs(1);
const CONTROL_STOP: Duration = Duration::from_millis(500);

/// What a standby manager knows of the active one and of the database.
pub(crate) struct Known {
    /// This manager.
    pub(crate) own: NodeId,
    since: Instant,
    state: Mutex<State>,
    /// For clients: the active manager, as long as there is a connection with it.
    pub(crate) active: ActiveManager,
}

#[derive(Default)]
struct State {
    holder: Option<Holder>,
    is_connected: bool,
    /// The database does not answer: since when, and why.
    outage: Option<(Instant, String)>,
    /// Why it has not got the managers' files.
    trouble: Option<String>,
}

impl Known {
    pub(crate) fn new(own: NodeId) -> Arc<Self> {
        let (state, active) = (Mutex::default(), ActiveManager::default());
        Arc::new(Self { own, since: Instant::now(), state, active })
    }

    /// The active manager, if it has said where it is, and is not this one: its row in the database stays after a crash.
    pub(crate) fn holder(&self) -> Option<Holder> {
        self.state.lock().holder.clone().filter(|holder| NodeId(holder.node) != self.own)
    }

    /// For how long it has been a standby.
    pub(crate) fn lasted(&self) -> Duration {
        self.since.elapsed()
    }

    /// Whether it has a connection with the active manager.
    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().is_connected
    }

    /// For how long the database has not answered, and why.
    pub(crate) fn outage(&self) -> Option<(Duration, String)> {
        self.state.lock().outage.as_ref().map(|(since, why)| (since.elapsed(), why.clone()))
    }

    /// Why it has not got the managers' files, if that is so.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.state.lock().trouble.clone()
    }

    pub(crate) fn set_trouble(&self, trouble: Option<String>) {
        let mut state = self.state.lock();
        if let Some(why) = trouble.as_ref().filter(|why| state.trouble.as_ref() != Some(*why)) {
            tracing::warn!("the files that all managers have cannot be fetched from the active one: {why}");
        }
        state.trouble = trouble;
    }

    pub(crate) fn looked(&self, looked: &Result<Standing, DatabaseError>) {
        let mut state = self.state.lock();
        match looked {
            Ok(Standing::Held { holder, .. }) => {
                if state.holder != *holder
                    && let Some(Holder { node, for_nodes, .. }) = holder
                {
                    tracing::info!("the active manager is node {node}, at {for_nodes}");
                }
                state.holder.clone_from(holder);
            }
            Ok(Standing::Free(_)) => state.holder = None,
            Err(error) => {
                if state.outage.is_none() {
                    tracing::warn!("{error}; this manager cannot take over until the database answers");
                }
                let since = state.outage.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                state.outage = Some((since, error.to_string()));
                return;
            }
        }
        if state.outage.take().is_some() {
            tracing::info!("the database answers again");
        }
    }

    /// Notes whether there is a connection with the active manager. Clients are sent there only then: a stock client waits for minutes at a dead one.
    fn connection(&self, links: &Links) {
        let holder = self.holder();
        let is_connected = holder.as_ref().is_some_and(|holder| links.is_up(NodeId(holder.node)));
        self.active.set(holder.as_ref().filter(|_| is_connected).map(|holder| holder.for_clients.as_str()));
        self.state.lock().is_connected = is_connected;
    }

    /// Why a request is refused.
    pub(crate) fn refusal(&self) -> String {
        link::standby_reason(self.holder().as_ref().map(|holder| holder.for_nodes.as_str()))
    }
}

/// A thread that looks whether the place is free, until it is. It ends when this is dropped, and nobody waits for it: it may just wait for a database
/// that is away.
pub(crate) struct Looks {
    ended: Channel<Result<Vacancy, DatabaseError>>,
    _stop: Sender<()>,
}

impl Looks {
    pub(crate) fn start(mut watch: PlaceWatch, known: &Arc<Known>) -> Result<Self, Failure> {
        let ((sender, ended), (stop, stopped)) = (channel(), channel::<()>());
        let known = Arc::clone(known);
        let look = move || {
            loop {
                let looked = watch.look();
                known.looked(&looked);
                let end = match looked {
                    Ok(Standing::Free(vacancy)) => Ok(vacancy),
                    Err(error @ DatabaseError::LostTransactions(_)) => Err(error),
                    _ if stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) => continue,
                    _ => return,
                };
                // Whoever waits for it may have ended.
                let _ = sender.send(end);
                return;
            }
        };
        std::thread::Builder::new()
            .name("place".into())
            .spawn(look)
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot watch the database"))?;
        Ok(Self { ended, _stop: stop })
    }

    /// The free place, or why there will be none.
    pub(crate) fn ended(&self) -> Option<Result<Vacancy, End>> {
        match self.ended.try_recv() {
            Ok(ended) => Some(ended.map_err(End::Database)),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                Some(Err(End::Broken("the thread that watches the database has died by a panic".into())))
            }
        }
    }
}

/// How the time as a standby ends.
pub(crate) enum Waited {
    /// The place is free.
    Free(Vacancy),
    /// The process ends.
    Ended(End),
}

/// Refuses all nodes but the active manager, which this one dials itself.
struct Refusing(Arc<Known>);

impl RegistrationHandler for Refusing {
    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        let is_active = self.0.holder().is_some_and(|holder| NodeId(holder.node) == peer.name.node);
        if is_active && is_manager(peer) { Ok(()) } else { Err(self.0.refusal()) }
    }

    fn answer(&self, _from: &PeerIdentity, _request: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

/// Redeems no invitation: only the active manager can record it.
struct NoInvitations(Arc<Known>);

impl AdminStore for NoInvitations {
    fn redeem(&self, _: &PresentedInvitation, _: &[u8; 32], _: Timestamp) -> Result<AdminGrant, AdminError> {
        Err(AdminError::Standby(self.0.refusal()))
    }
}

/// Refuses administrators before it looks for them in its own list, which may be older than that of the active manager.
struct RefusingAdministrators {
    known: Arc<Known>,
    /// For people, whom the settings name.
    administration: Administration,
}

impl AdminHandler for RefusingAdministrators {
    fn serve(&self, _: AdminName, mut stream: AdminStream, _stranger: UnidentifiedConnection) {
        // Whoever has gone needs no answer.
        let _ = gate::say(&mut stream, &Reply::Refused(self.known.refusal()));
        stream.end();
    }

    fn serve_with_token(&self, stream: AdminStream, stranger: UnidentifiedConnection) {
        self.administration.serve_with_token(stream, stranger);
    }

    fn serve_with_certificate(&self, stream: AdminStream, stranger: UnidentifiedConnection) {
        self.administration.serve_with_certificate(stream, stranger);
    }
}

/// Serves as a standby until the place is free or something ends the process.
pub(crate) fn serve_until_free(
    process: &ManagerProcess,
    known: &Arc<Known>,
    looks: &Looks,
    (authority, identity): (Arc<Authority>, Identity),
    database: &DatabaseSettings,
) -> Result<Waited, Failure> {
    let config = process.reload.borrow().in_force().clone();
    let sockets = process.sockets()?;
    tracing::info!("this manager is a standby, node {}; it takes over if the active one fails", known.own);
    let credentials = Arc::new(Credentials::new(&identity).map_err(|error| Failure::new(Exit::DataDirectory, error))?);
    let links = Links::new(LocalNode::new(Arc::clone(&credentials), Settings::default()));
    let mut server_config = cluster_role::server_config(&config, process.listen, process.boot)?;
    process.security.give_to(&mut server_config, false);
    let audit = server_config.service.audit.clone();
    let readers = Readers::new(known.active.clone(), database.reader());
    let role = service::Role::Standby(readers.standby.clone());
    let server = xrootd::Server::start_on(sockets.clients()?, server_config, role).map_err(serve::not_served)?;
    let judged = Judged::Standby {
        known: Arc::clone(known),
        readers: readers.standby.clone(),
        credentials: Arc::clone(&credentials),
    };
    let health = Arc::new(NodeHealth::new(judged, Arc::clone(process.data.directory()), Vec::new(), audit.clone()));
    let administrators = administrators(&process.data)?;
    let open = Arc::new(OpenConnections::default());
    let (asked, judged) = (Arc::clone(known), Arc::clone(&health));
    let users = Arc::clone(&process.people);
    let of_owner = Arc::clone(known);
    let answers = Answers::new(move |caller, ask| match (caller, ask) {
        // For this machine. Elsewhere people ask for the state of the cluster, and their commands go on to the active manager.
        (Caller::Local { .. }, ControlRequest::Status) => admin_api::told(judged.status()),
        _ => Reply::Refused(asked.refusal()),
    })
    .with_owners(move |_, _| Reply::Refused(of_owner.refusal()))
    .with_users(move |uid| users.user(uid));
    let others = OtherServices {
        join: None,
        admin: Some(Arc::new(admin_service(process, known, &authority, &administrators, &open, &answers, &audit))),
    };
    let registration = Some(Arc::new(Refusing(Arc::clone(known))) as Arc<dyn RegistrationHandler>);
    links
        .start(&sockets.nodes()?, others, registration, Arc::new(NoMessages))
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot accept connections of nodes"))?;
    let readers = Arc::new(readers);
    readers.adjust(&config, known.own);
    let follower = Follower::start(known, &links, &authority, administrators, sockets)?;
    let following = Arc::clone(&readers).start(known, &links)?;
    let renewal = follower.renew(identity, &process.data, credentials, &links, &authority)?;
    let mut for_users = crate::people::People::listen(&config, &answers, &audit)?;
    let mut control = Control::start(process.data.directory(), answers, audit.clone())
        .map_err(|error| Failure::new(Exit::Failed, error))?;
    process.metrics.serve(Sources {
        server: server.watch(),
        logs: Vec::new(),
        embedded: None,
        database: None,
        store: None,
        cluster: Some(ClusterSource::Standby(readers.standby.clone())),
        scrub: ScrubSource::None,
        health: Arc::clone(&health),
    });
    process.say_ready(&server)?;
    let mut state = supervisor::StateLine::new(format!("{} (standby)", sockets.url()));
    let mut free = None;
    let reload = || {
        if process.reload(&server) {
            open.cut_people();
            for_users.iter().for_each(Control::cut);
            readers.adjust(process.reload.borrow().in_force(), known.own);
        }
    };
    let soon = || {
        known.connection(&links);
        match looks.ended()? {
            Ok(vacancy) => free = Some(vacancy),
            Err(end) => return Some(end),
        }
        Some(End::Asked)
    };
    let own = process.data.watch();
    let watch = || {
        health.look();
        state.look(|| health.recent());
        let died = || server.broken().map(|name| End::Broken(format!("the {name} has died by a panic")));
        End::of_directory(&own).or_else(died)
    };
    let end = wait(&process.stop, reload, soon, watch);
    match free {
        Some(_) => process.metrics.starting(),
        None => {
            process.metrics.stopping();
            supervisor::tell("STOPPING=1");
        }
    }
    for control in for_users.iter_mut().chain([&mut control]) {
        control.stop(CONTROL_STOP);
    }
    drop((control, for_users, health));
    links.stop("this manager is no standby any more", if free.is_some() { CONTROL_STOP } else { LINKS_STOP });
    // It may have waited for an answer of the active manager.
    drop(renewal);
    open.end_all(CONTROL_STOP);
    drop((follower, following));
    server.stop(Instant::now() + FRONT_END_STOP);
    audit.stop();
    Ok(free.map_or(Waited::Ended(end), Waited::Free))
}

#[allow(clippy::too_many_arguments)] // each is a part of a standby that was started before
fn admin_service(
    process: &ManagerProcess,
    known: &Arc<Known>,
    authority: &Arc<Authority>,
    administrators: &Arc<Administrators>,
    open: &Arc<OpenConnections>,
    answers: &Answers,
    log: &audit::Log,
) -> AdminService {
    let administration = Administration {
        authority: Arc::clone(authority),
        administrators: Arc::clone(administrators),
        people: Arc::clone(&process.people),
        open: Arc::clone(open),
        answers: answers.clone(),
        log: log.clone(),
    };
    AdminService {
        authority: Arc::clone(authority),
        store: Arc::new(NoInvitations(Arc::clone(known))),
        handler: Arc::new(RefusingAdministrators { known: Arc::clone(known), administration }),
        on_admission: on_admission(log, "redeem"),
    }
}

/// Waits until the place is free, in a manager that has just started. While only an earlier run of this manager can have it, that ends soon, and nobody is
/// served before.
pub(crate) fn wait_at_start(process: &ManagerProcess, known: &Known, looks: &Looks) -> Result<Option<Waited>, Failure> {
    /// After this, somebody lives who has it.
    const PATIENCE: Duration = Duration::from_secs(8);
    supervisor::say("waits until the database shows that no other manager is active");
    let began = Instant::now();
    let mut has_said = false;
    loop {
        match looks.ended() {
            Some(Ok(vacancy)) => return Ok(Some(Waited::Free(vacancy))),
            Some(Err(end)) => return Ok(Some(Waited::Ended(end))),
            None => {}
        }
        if known.holder().is_some() || began.elapsed() > PATIENCE {
            return Ok(None);
        }
        if !has_said && began.elapsed() > LOOK_EVERY {
            has_said = true;
            tracing::info!("waits until the database shows that an earlier run of this manager has ended: up to 6 s");
        }
        if let Ok(console::signals::Signal::Stop(signal)) = process.stop.recv_timeout(Duration::from_millis(50)) {
            tracing::info!("{signal}: stopping; once more to stop at once");
            return Ok(Some(Waited::Ended(End::Asked)));
        }
    }
}
