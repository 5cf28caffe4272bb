//! `weir serve --role disk`: the stores of one machine, for a cluster.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Channel, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use config::Config;
use control::{Answers, Control, ControlRequest, Reply};
use disk_server::DiskServer;
use foundation::layout::{DISK_IDENTITY_FILE, has_joined};
use foundation::{DataDir, DataDirError, DirRole, IfNew};
use link::{
    Credentials, FileError, Identity, IdentityError, IncomingHeader, JoinError, JoinToken, LinkError, LocalNode,
    NewKey, PeerIdentity, Role, Roles, Settings,
};
use node::links::{Buffer, Links, Peer, Received, Receiver};
use node::registration::{self, Registration, RegistrationError, StoreClaim};
use node::renewal::{Move, Renewal};
use parking_lot::Mutex;
use types::{BootId, ClusterId, Location, NodeId};

use crate::cli::{JoinText, ServeArgs};
use crate::client_security::ClientSecurity;
use crate::cluster_node::{LINKS_STOP, NodesAddress, RunningRole, host_name, in_words, say_ready, start_renewal, wait};
use crate::end::End;
use crate::exit::Exit;
use crate::health::{Judged, NodeHealth};
use crate::known_managers::KnownManagers;
use crate::logging::Logging;
use crate::metrics::{ClusterSource, JournalSource, Metrics, ScrubSource, Sources};
use crate::people::People;
use crate::reload::Reload;
use crate::serve::{Clock, boot_id, open_cluster_dir, would_make};
use crate::served_stores::{self, ServedStore};
use crate::space_watch::SpaceWatch;
use crate::store_scrubs::StoreScrubs;
use crate::{Failure, admin_api, cluster_role, managers_file, metrics, signals, supervisor};

/// A token file is one line.
const TOKEN_FILE_MAX: u64 = 64 << 10;
/// When to ask a manager again that has not answered.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// The parts that the disk server's role uses.
pub(crate) struct DiskParts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) data: &'a DataDir,
    pub(crate) stores: &'a [ServedStore],
    pub(crate) links: &'a Arc<Links>,
    /// The boot generation of the kernel. It also changes with each loss of a journal ([`journal::Journal::boot`]).
    pub(crate) boot: BootId,
    /// The address for clients.
    pub(crate) listen: SocketAddr,
    pub(crate) security: &'a ClientSecurity,
}

/// Runs a disk server until a signal stops it.
pub(crate) fn run(args: &ServeArgs, config: &Config, logging: Logging) -> Result<Exit, Failure> {
    let security = ClientSecurity::of(config)?;
    let listen = security.address(config)?;
    if listen.ip().is_unspecified() && config.advertise.is_none() {
        return Err(no_address_for_clients(&config.listen));
    }
    let nodes = NodesAddress::of(config)?;
    let default_location = default_location(config)?;
    let token = token_of(args.join.as_ref(), args.join_file.as_deref(), config)?;
    // Refuse a bad address before opening anything; listen only when all is open.
    let metrics_at = config.metrics.as_ref().map(|given| metrics::address(given, config.insecure)).transpose()?;
    if args.check {
        return Ok(Exit::Done);
    }
    // A new directory is useless without a token.
    if let Some(path) = config.data.as_deref().filter(|path| token.is_none() && would_make(config, Some(path))) {
        return Err(not_joined(path));
    }
    let boot = boot_id()?;
    let stop =
        signals::catch().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let if_new = if config.existing { IfNew::Refuse } else { IfNew::Make };
    let dirs = config.data.iter().chain(config.stores.iter().map(|table| &table.dir));
    if dirs.into_iter().any(|dir| would_make(config, Some(dir))) {
        nodes.check_free(listen, metrics_at)?;
    }
    let mut data = open_cluster_dir(config.data.as_ref(), DirRole::Disk, if_new)?;
    let identity = match who_we_are(&mut data, token.as_ref()) {
        Ok(identity) => identity,
        Err(failure) => {
            let failure = in_words(&data, &failure);
            data.abandon();
            return Err(failure);
        }
    };
    let cluster = identity.name().cluster;
    supervisor::say(supervisor::OPENING);
    let mut clock = Clock::default(); // dropped after the stores, whose closing may hang too
    let metrics = Metrics::start(config.metrics.as_deref(), config.insecure)?;
    let stores = served_stores::open(&data, config, cluster, &default_location, if_new)?;
    let listener = nodes.listen()?;
    let told = nodes.told(&listener);
    tracing::info!(
        "weir {} is node {} of cluster {cluster}, a disk server with {}; nodes reach it at {told}",
        env!("CARGO_PKG_VERSION"),
        identity.name().node,
        match stores.len() {
            1 => "1 store".to_owned(),
            count => format!("{count} stores"),
        }
    );
    let mut spaces: Vec<SpaceWatch<'_>> = stores
        .iter()
        .map(|store| {
            let foundation = &store.foundation;
            SpaceWatch::of_store(
                Arc::clone(&foundation.objects.store),
                &foundation.ballast,
                config.foundation().ballast_bytes(),
            )
        })
        .collect();
    spaces.iter_mut().for_each(SpaceWatch::look);

    let credentials = Arc::new(Credentials::new(&identity).map_err(no_identity)?);
    let links = Links::new(LocalNode::new(Arc::clone(&credentials), Settings::default()));
    let on_managers = KnownManagers::start(&links, &config.managers, &data.held());
    let on_managers = on_managers.map_err(|failure| in_words(&data, &failure))?;
    let parts = DiskParts { config, data: &data, stores: &stores, links: &links, boot, listen, security: &security };
    let (started, disk_server) = cluster_role::start_disk(&parts, on_managers)?;
    let clients = config.advertise.clone().unwrap_or_else(|| started.server.address().to_string());
    let registrar = Registrar::start(&links, registration(&stores, &told, clients))?;
    let receiver =
        Arc::new(RegisteringReceiver { role: Arc::clone(&started.receiver), arrived: registrar.arrived.clone() });
    links
        .start(&listener, link::OtherServices::default(), None, receiver)
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot take connections of nodes"))?;
    let scrubs = StoreScrubs::start(&stores, &disk_server, config)?;
    let judged = Judged::Disk {
        server: Arc::clone(&disk_server),
        scrubs: Arc::clone(&scrubs),
        credentials: Arc::clone(&credentials),
        front: started.server.watch(),
    };
    let indexes = stores.iter().map(|store| Arc::clone(&store.foundation.objects.index)).collect();
    let audit = started.server.service().config().audit.clone();
    let health = Arc::new(NodeHealth::new(judged, Arc::clone(data.directory()), indexes, audit.clone()));
    let renewal = renew(identity, &data, credentials, &links)?;
    let (asked, asked_scrubs, judged) = (Arc::clone(&disk_server), Arc::clone(&scrubs), Arc::clone(&health));
    let first = stores.first().map(|store| Arc::clone(&store.foundation.objects.store));
    let people = People::of_disk_server(config)?;
    let users = Arc::clone(&people);
    let answers = Answers::new(move |_, ask| match ask {
        ControlRequest::ForgetRecent => admin_api::forget_recent(first.as_ref()),
        ask => asked_scrubs.answer(&ask).unwrap_or_else(|| refer(&asked, &judged, &ask)),
    });
    let answers = answers.with_users(move |uid| users.user(uid));
    let mut for_users = People::listen(config, &answers, &audit)?;
    let mut control =
        Control::start(data.directory(), answers, audit).map_err(|error| Failure::new(Exit::Failed, error))?;
    metrics.serve(sources(&stores, &started, (disk_server, Arc::clone(&scrubs)), Arc::clone(&health)));

    let is_ready = std::cell::Cell::new(false);
    let mut said = Ok(());
    supervisor::say("waits for its manager");
    let url = started.url_for_clients(config);
    let mut state = supervisor::StateLine::new(url.clone());
    let soon = || match registrar.outcome.lock().take()? {
        Outcome::Registered if !is_ready.get() => {
            is_ready.set(true);
            supervisor::ready(&url);
            said = say_ready(&started);
            said.is_err().then_some(End::Asked)
        }
        Outcome::Registered => None,
        Outcome::Refused(reason) => Some(End::Refused(Failure::message(
            Exit::DataDirectory,
            format!("the cluster does not accept this disk server as it is: {reason}"),
        ))),
    };
    let mut reload = Reload::new(args.clone(), config.clone(), logging);
    let reload = || {
        if let Some(config) = reload.again(&started.server, &people) {
            people.reload(config);
            for_users.iter().for_each(Control::cut);
        }
    };
    let own = data.watch();
    let watch = || {
        let mut watches = std::iter::once(&own).chain(stores.iter().map(|store| &store.foundation.watch));
        if let Some(end) = watches.find_map(End::of_directory) {
            return Some(end);
        }
        spaces.iter_mut().for_each(SpaceWatch::look);
        health.look();
        scrubs.look();
        // Before it has registered, it has said that it waits for the manager.
        if is_ready.get() {
            state.look(|| health.recent());
        }
        stores.iter().find_map(|store| End::of_journal(&store.foundation)).or_else(|| started.broken())
    };
    let end = wait(&stop, reload, soon, watch);
    clock.start(end.late());
    metrics.stopping();
    supervisor::tell("STOPPING=1");
    for control in for_users.iter_mut().chain([&mut control]) {
        control.stop(Duration::from_millis(500));
    }
    drop((control, for_users, health));
    drop(renewal);
    links.stop("the disk server stops", LINKS_STOP);
    drop(registrar);
    started.stop();
    scrubs.stop();
    let finished = end.finish(|| served_stores::close(&stores));
    said.and(finished)
}

/// Only the manager answers questions about the cluster, so this tells the user where it is.
fn refer(disk: &DiskServer, health: &NodeHealth, ask: &ControlRequest) -> Reply {
    if *ask == ControlRequest::Status {
        return admin_api::told(health.status());
    }
    let at = disk.manager().map(|(host, port)| format!(", which clients reach at {host}:{port}")).unwrap_or_default();
    Reply::Refused(format!(
        "this is a disk server of a cluster: run the command on its manager{at}, with the manager's --data"
    ))
}

fn sources(
    stores: &[ServedStore],
    started: &RunningRole,
    (disk_server, scrubs): (Arc<DiskServer>, Arc<StoreScrubs>),
    health: Arc<NodeHealth>,
) -> Sources {
    let log = |store: &ServedStore| JournalSource {
        store: Some(store.foundation.objects.id),
        journal: Arc::clone(&store.foundation.journal),
        indexes: vec![("store", Arc::clone(&store.foundation.objects.index))],
    };
    Sources {
        server: started.server.watch(),
        logs: stores.iter().map(log).collect(),
        embedded: None,
        database: None,
        store: stores.first().map(|store| Arc::clone(&store.foundation.objects.store)),
        cluster: Some(ClusterSource::Disk(disk_server)),
        scrub: ScrubSource::Stores(scrubs),
        health,
    }
}

fn no_identity(error: IdentityError) -> Failure {
    Failure::new(Exit::DataDirectory, error)
}

pub(crate) fn default_location(config: &Config) -> Result<Location, Failure> {
    if let Some(location) = &config.location {
        return Ok(location.clone());
    }
    // A host name normally has only characters that a location allows, but replace any others.
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '_' };
    let host: String = host_name().chars().map(fits).collect();
    Location::new("default", "default", &host).map_err(|error| {
        Failure::new(Exit::Usage, error)
            .while_doing("this host's name is not valid in a location; use --location site/rack/host")
    })
}

/// The token, if one was given: as a flag, or by the configuration of a node that has not joined yet.
pub(crate) fn token_of(
    join: Option<&JoinText>,
    join_file: Option<&Path>,
    config: &Config,
) -> Result<Option<JoinToken>, Failure> {
    use std::io::Read as _;
    // The configuration stays after the join, and the file of the token need not.
    let has_joined = config.data.as_deref().is_some_and(has_joined);
    let configured = config.join_file.as_deref().filter(|_| !has_joined);
    let text = match (join, join_file.or(configured)) {
        (Some(text), _) => text.0.clone(),
        (None, Some(file)) => {
            let read = || {
                let mut text = String::new();
                std::fs::File::open(file)?.take(TOKEN_FILE_MAX).read_to_string(&mut text)?;
                Ok::<_, std::io::Error>(text)
            };
            read().map_err(|error| {
                Failure::new(Exit::Usage, error).while_doing(format!("cannot read the token in {}", file.display()))
            })?
        }
        (None, None) => return Ok(None),
    };
    JoinToken::parse(&text).map(Some).map_err(|error| Failure::new(Exit::Usage, error))
}

/// The identity of this node: the one from its join, or a new one if it joins now.
pub(crate) fn who_we_are(data: &mut DataDir, token: Option<&JoinToken>) -> Result<Identity, Failure> {
    let file = data.held().join(DISK_IDENTITY_FILE);
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let identity = match Identity::read(&file) {
        Ok(identity) => {
            if let Some(token) = token {
                // The command line stays, and the cluster may have replaced its authority since the token was made, or while this node was away.
                match identity.authority().trusts(&token.authority) {
                    true => tracing::info!("this node has joined already; the token is not needed and was not used"),
                    false => tracing::warn!(
                        "this node belongs to cluster {} already, and the token is another cluster's, or of another authority than this node knows; it was not used. Give a new data directory to join with it",
                        identity.name().cluster
                    ),
                }
            }
            identity
        }
        Err(IdentityError::File(FileError::Missing { .. })) => {
            if data.format.cluster != 0 {
                return Err(Failure::message(
                    Exit::DataDirectory,
                    format!(
                        "{} is lost: this node had joined cluster {:032x}; nothing was changed. Put the file back \
                         from a backup. If there is none, let the node join again with an empty data directory, and \
                         name its stores as [[store]] in the configuration",
                        file.display(),
                        data.format.cluster
                    ),
                ));
            }
            let token = token.ok_or_else(|| not_joined(&data.path))?;
            let identity = join_as(&data.held(), token, Roles::DISK, None)?;
            // Last: with this file the node has joined.
            identity.write(&file).map_err(no_identity)?;
            identity
        }
        Err(error) => return Err(no_identity(error)),
    };
    let cluster = identity.name().cluster;
    if !identity.name().roles.contain(Role::Disk) {
        return Err(Failure::message(Exit::DataDirectory, format!("{} is not a disk server's", file.display())));
    }
    match data.format.cluster {
        0 => data
            .replace_format(foundation::datadir::Format { cluster: cluster.0, ..data.format.clone() })
            .map_err(refused)?,
        is if is != cluster.0 => {
            let path = data.path.clone();
            return Err(refused(DataDirError::OtherCluster { path, is: ClusterId(is), ours: cluster }));
        }
        _ => {}
    }
    Ok(identity)
}

pub(crate) fn no_address_for_clients(listen: &str) -> Failure {
    Failure::message(
        Exit::Usage,
        format!(
            "clients cannot be sent to {listen}; say --advertise HOST:PORT, an address of this machine that they reach"
        ),
    )
}

pub(crate) fn not_joined(data: &Path) -> Failure {
    Failure::message(
        Exit::Usage,
        format!(
            "this node has not joined a cluster yet: give the token that `weir token create` prints on the manager, with --join-file FILE or --join TOKEN. If it joined before, is the disk of {} mounted?",
            data.display()
        ),
    )
}

/// Joins with `token`, and notes where the managers are. The caller writes the identity.
/// Lets this node join with `token`. `cluster`: the only cluster that it may join, if it knows that already.
pub(crate) fn join_as(
    data: &Path,
    token: &JoinToken,
    roles: Roles,
    cluster: Option<ClusterId>,
) -> Result<Identity, Failure> {
    let failed = |error: JoinError| {
        let exit = match &error {
            JoinError::Refused { .. } | JoinError::Token(_) => Exit::Denied,
            JoinError::Unreachable(_) => Exit::Unreachable,
            JoinError::OtherCluster { .. } => Exit::DataDirectory,
            _ => Exit::Failed,
        };
        let hint = match exit {
            Exit::DataDirectory => "; name the database of the manager that made the token".to_owned(),
            Exit::Denied => format!("; if it joined before, is the disk of {} mounted?", data.display()),
            _ => String::new(),
        };
        Failure::new(exit, error).while_doing(format!("this node could not join the cluster{hint}"))
    };
    let key = NewKey::draw().map_err(|error| Failure::new(Exit::Failed, error))?;
    let (name, settings) = (host_name(), Settings::default());
    let joined = match cluster {
        Some(cluster) => link::join_cluster(cluster, token, &key, roles, &name, &settings),
        None => link::join(token, &key, roles, &name, &settings),
    };
    let identity = joined.map_err(failed)?;
    managers_file::write(data, &token.addresses)?;
    tracing::info!("joined cluster {} as node {}", identity.name().cluster, identity.name().node);
    Ok(identity)
}

fn registration(stores: &[ServedStore], nodes: &str, clients: String) -> Registration {
    let claim = |store: &ServedStore| StoreClaim {
        store: store.foundation.objects.id,
        location: store.location.to_string(),
        class: store.table.class.as_ref().map(ToString::to_string),
    };
    Registration {
        run: rand::random(),
        for_nodes: vec![nodes.to_owned()],
        for_clients: vec![clients],
        stores: stores.iter().map(claim).collect(),
    }
}

/// Asks the managers to renew the certificate, and which authorities to trust.
fn renew(
    identity: Identity,
    data: &DataDir,
    credentials: Arc<Credentials>,
    links: &Arc<Links>,
) -> Result<Renewal, Failure> {
    let (signing, asking, moving) = (Arc::clone(links), Arc::clone(links), Arc::clone(links));
    let sign = move |request: &[u8]| {
        let mut why = "no manager is connected".to_owned();
        for manager in managers_of(&signing) {
            match registration::renew(&signing, manager, request) {
                Ok(answer) => return Ok(answer),
                Err(error) => why = error.to_string(),
            }
        }
        Err(why)
    };
    let trusted = move || {
        let mut why = None;
        for manager in managers_of(&asking) {
            match registration::authorities(&asking, manager) {
                Ok(set) => return Ok(Some(set)),
                Err(error) => why = Some(error.to_string()),
            }
        }
        why.map_or(Ok(None), Err)
    };
    let moved = move |one: Move| match one {
        Move::Joined => moving.reopen("the cluster's authority was replaced, and this node shows its new certificate"),
        Move::Alone(_) => {
            moving.cut_strangers();
        }
    };
    start_renewal(identity, (data, DISK_IDENTITY_FILE), credentials, Box::new(sign), Box::new(trusted), Box::new(moved))
}

/// The connected managers.
fn managers_of(links: &Links) -> Vec<NodeId> {
    let is_manager = |peer: &PeerIdentity| peer.name.roles.contain(Role::Manager);
    links.connected().into_iter().filter(is_manager).map(|peer| peer.name.node).collect()
}

enum Outcome {
    Registered,
    Refused(String),
}

/// A thread that tells each connected manager what this node has.
struct Registrar {
    arrived: Sender<NodeId>,
    outcome: Arc<Mutex<Option<Outcome>>>,
}

impl Registrar {
    fn start(links: &Arc<Links>, registration: Registration) -> Result<Self, Failure> {
        let (arrived, arrivals) = channel();
        let outcome = Arc::new(Mutex::new(None));
        let (links, inner) = (Arc::clone(links), Arc::clone(&outcome));
        std::thread::Builder::new()
            .name("registrar".into())
            .spawn(move || register_all(&links, &registration, &arrivals, &inner))
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot register with managers"))?;
        Ok(Self { arrived, outcome })
    }
}

fn register_all(
    links: &Links,
    registration: &Registration,
    arrivals: &Channel<NodeId>,
    outcome: &Mutex<Option<Outcome>>,
) {
    let mut again: VecDeque<NodeId> = VecDeque::new();
    loop {
        let manager = match arrivals.recv_timeout(ASK_AGAIN) {
            Ok(manager) => manager,
            Err(RecvTimeoutError::Timeout) => match again.pop_front() {
                Some(manager) => manager,
                None => continue,
            },
            Err(RecvTimeoutError::Disconnected) => return,
        };
        again.retain(|other| *other != manager);
        match registration::register(links, manager, registration) {
            Ok(()) => *outcome.lock() = Some(Outcome::Registered),
            Err(RegistrationError::Refused { reason, .. }) => *outcome.lock() = Some(Outcome::Refused(reason)),
            Err(error) => {
                tracing::warn!("{error}; it is asked again");
                again.extend(links.peer(manager).map(|_| manager));
            }
        }
    }
}

/// The role's receiver, which also tells the registrar about managers.
struct RegisteringReceiver {
    role: Arc<dyn Receiver>,
    arrived: Sender<NodeId>,
}

impl Receiver for RegisteringReceiver {
    fn buffer(&self, from: NodeId, arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        self.role.buffer(from, arriving)
    }

    fn admit(&self, peer: &PeerIdentity) -> Result<(), String> {
        self.role.admit(peer)
    }

    fn connected(&self, node: NodeId, peer: &Peer) {
        self.role.connected(node, peer);
        if peer.identity().name.roles.contain(Role::Manager) {
            // The registrar is gone only when the node stops.
            let _ = self.arrived.send(node);
        }
    }

    fn received(&self, node: NodeId, received: Received) {
        self.role.received(node, received);
    }

    fn ended(&self, node: NodeId, why: &LinkError) {
        self.role.ended(node, why);
    }
}
