//! `weir serve --role manager`: the namespace of a cluster, its certificate authority, and the registration of nodes.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use config::{ClusterRole, Config};
use control::validity::{Limited, ValidityError};
use control::{Answers, Caller, Control, ControlRequest, Person, Reply};
use database::{Holder, PlaceWatch, Standing, Vacancy};
use disk::{Disk, DiskError};
use foundation::startup_report::say_all;
use foundation::{
    COMMITTER, Claim, DataDir, DatabaseSettings, DirRole, IfNew, ManagerFoundation, NamesEngine, Purpose,
};
use kv::JournaledIndex;
use link::admin::{AdminService, read_records, write_records};
use link::{
    Authority, Credentials, Identity, JoinService, Listener, LocalNode, OtherServices, Roles, Settings, VALIDITY,
};
use maintenance::backup::BACKUP_OF_DATABASE;
use manager::administrators::{Administrators, Invite, RevokeAdminError};
use manager::registration::ManagerRegistration;
use manager::tokens::{RevokeTokenError, Tokens};
use manager::{Manager, StoredFiles};
use namespace::{Actor, Durability, FIRST_NODE, FoundCluster, SetAddresses};
use node::links::Links;
use node::renewal::{Move, Renewal};
use store::Space;
use types::{BootId, ClusterId, ErrorCode, NodeId, PrincipalKind};

use crate::acting::WhileActive;
use crate::admin::{Administrator, OfSettings};
use crate::administration::Administration;
use crate::authority::AuthorityKeeper;
use crate::cli::ServeArgs;
use crate::client_security::ClientSecurity;
use crate::cluster_node::{LINKS_STOP, NodesAddress, RunningRole, host_name, in_words, now, start_renewal, wait};
use crate::end::End;
use crate::exit::Exit;
use crate::health::{Judged, NodeHealth};
use crate::health_watch::HealthWatch;
use crate::logging::Logging;
use crate::manager_join::identity_file;
use crate::manager_process::{ManagerProcess, Sockets};
use crate::metrics::{ClusterSource, JournalSource, Metrics, ScrubSource, Sources};
use crate::not_active::{Cause, NotActive};
use crate::open_connections::OpenConnections;
use crate::other_managers::OtherManagersHealth;
use crate::people::People;
use crate::reload::Reload;
use crate::serve::{Clock, boot_id, open_cluster_dir, would_make};
use crate::serve_disk::no_address_for_clients;
use crate::space_watch::SpaceWatch;
use crate::standby::{Known, Looks, Waited};
use crate::{
    Failure, acting, admin_api, cluster_role, database_settings, explain, first_administrator, identities, maintain,
    manager_addresses, manager_join, metrics, signals, standby, supervisor,
};

/// The folder in the data directory that makes the node this cluster's manager.
pub(crate) const CLUSTER_DIR: &str = "cluster";
/// The identity of the manager that has made the cluster.
pub(crate) const IDENTITY_FILE: &str = "cluster/identity";
pub(crate) const ADMINISTRATORS_FILE: &str = "cluster/administrators";
/// How long the answers to administrators may take when the manager stops.
const ADMINISTRATORS_STOP: Duration = Duration::from_millis(500);
/// How long a manager that could not become active waits before it is a standby again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);
const NODES_UNREADABLE: &str = "cannot read the nodes of the cluster";

/// Why a manager cannot get a token.
const NO_SECOND_MANAGER: &str = "the namespace of this cluster is in its manager's data directory, so it has one manager, and tokens are for disk servers; several managers need a database (docs/how-to/several-managers.md)";

/// The parts that the manager's role uses.
pub(crate) struct ManagerParts<'a> {
    pub(crate) config: &'a Config,
    pub(crate) foundation: &'a ManagerFoundation,
    pub(crate) links: &'a Arc<Links>,
    /// The boot generation of the kernel. It also changes with each loss of a journal ([`journal::Journal::boot`]).
    pub(crate) boot: BootId,
    pub(crate) sockets: &'a Sockets,
    /// The address for clients, as configured.
    pub(crate) listen: std::net::SocketAddr,
    pub(crate) security: &'a ClientSecurity,
}

/// Runs a manager until a signal stops it: active, or as a standby of the active one.
pub(crate) fn run(args: &ServeArgs, config: &Config, logging: Logging) -> Result<Exit, Failure> {
    let mut security = ClientSecurity::of(config)?;
    let listen = security.address(config)?;
    let nodes = NodesAddress::of(config)?;
    let token = manager_join::token(args, config)?;
    // Refuse a bad address before opening anything; listen only when all is open.
    let metrics_at = config.metrics.as_ref().map(|given| metrics::address(given, config.insecure)).transpose()?;
    let database = database_settings::of(config)?;
    // Standbys, and through them clients, are told the address.
    if database.is_some() && listen.ip().is_unspecified() && config.advertise.is_none() {
        return Err(no_address_for_clients(&config.listen));
    }
    if args.check {
        return Ok(Exit::Done);
    }
    security.start()?;
    let boot = boot_id()?;
    let stop =
        signals::catch().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;
    let if_new = if config.existing { IfNew::Refuse } else { IfNew::Make };
    if would_make(config, config.data.as_deref()) {
        nodes.check_free(listen, metrics_at)?;
    }
    let mut data = open_cluster_dir(config.data.as_ref(), DirRole::Manager, if_new)?;
    if let (Some(token), Some(database)) = (&token, &database)
        && let Err(failure) = manager_join::join_once(&mut data, token, database)
    {
        let failure = in_words(&data, &failure);
        data.abandon();
        return Err(failure);
    }
    supervisor::say(supervisor::OPENING);
    let metrics = Metrics::start(config.metrics.as_deref(), config.insecure)?;
    let people = People::of(config, &security)?;
    let process = ManagerProcess {
        data,
        config: RefCell::new(config.clone()),
        security,
        people,
        boot,
        stop,
        metrics,
        reload: RefCell::new(Reload::new(args.clone(), config.clone(), logging)),
        listen,
        nodes,
        sockets: OnceCell::new(),
        is_ready: Cell::new(false),
    };
    match &database {
        None => match serve_active(&process, None)? {
            Served::Ended(exit) => Ok(exit),
            // Nobody else can have what is in this directory.
            Served::StandsDown(why) => Err(Failure::message(Exit::InUse, why)),
        },
        Some(database) => in_turns(process, database),
    }
}

/// Runs a manager whose namespace is in a database: active when the place there is free, and as a standby otherwise.
fn in_turns(process: ManagerProcess, database: &DatabaseSettings) -> Result<Exit, Failure> {
    let mut is_first = true;
    loop {
        let before =
            manager_join::joined(&process.data, &process.stop).map_err(|failure| in_words(&process.data, &failure));
        let turn = before.and_then(|joined| take_turn(&process, database, joined, is_first));
        match turn {
            Ok(Turn::Ended(exit)) => return Ok(exit),
            Ok(Turn::Over) => is_first = false,
            Err(failure) => {
                process.data.abandon();
                return Err(failure);
            }
        }
    }
}

/// How a turn as a standby and then as the active manager has ended.
enum Turn {
    /// The process ends.
    Ended(Exit),
    /// The manager is a standby again.
    Over,
}

fn take_turn(
    process: &ManagerProcess,
    database: &DatabaseSettings,
    joined: Option<(Arc<Authority>, Identity)>,
    is_first: bool,
) -> Result<Turn, Failure> {
    let data = &process.data;
    let own = joined.as_ref().map_or(FIRST_NODE, |(_, identity)| identity.name().node);
    let known = Known::new(own);
    let mut watch = PlaceWatch::new(&database.address, COMMITTER);
    let (mut at_start, mut looks) = (None, None);
    if is_first {
        // What is wrong now is perhaps wrong in the settings, so nobody waits for it.
        foundation::check_database(data, database).map_err(|error| cannot_open(data, error))?;
        let looked = watch.look().map_err(|error| cannot_open(data, error.into()))?;
        known.looked(&Ok(looked.clone()));
        if let Standing::Free(vacancy) = looked {
            at_start = Some(Waited::Free(vacancy));
        }
    }
    if at_start.is_none() {
        let started = Looks::start(watch, &known)?;
        if is_first {
            at_start = standby::wait_at_start(process, &known, &started)?;
        }
        looks = Some(started);
    }
    let waited = match at_start {
        Some(waited) => waited,
        None => {
            let us = match joined {
                Some(joined) => joined,
                None => founder(data)?,
            };
            let looks =
                looks.as_ref().ok_or_else(|| Failure::message(Exit::Broken, "no thread watches the database"))?;
            standby::serve_until_free(process, &known, looks, us)?
        }
    };
    let vacancy = match waited {
        Waited::Free(vacancy) => vacancy,
        Waited::Ended(end) => return end.finish(|| Ok(())).map(Turn::Ended),
    };
    drop(looks);
    Ok(match serve_active(process, Some((database, &vacancy)))? {
        Served::Ended(exit) => Turn::Ended(exit),
        Served::StandsDown(why) => {
            tracing::warn!("this manager is a standby again: {why}");
            Turn::Over
        }
    })
}

/// The authority and the identity of the manager that has made the cluster, while another one may be active.
fn founder(data: &DataDir) -> Result<(Arc<Authority>, Identity), Failure> {
    let held = data.held();
    let authority = Authority::open(&held.join(CLUSTER_DIR)).map_err(|error| {
        in_words(data, &Failure::new(Exit::DataDirectory, error).while_doing(
            "another manager works on the database, and this one has not joined its cluster (`weir token create --role manager` there)",
        ))
    })?;
    let identity = own_identity(data, &authority, FIRST_NODE).map_err(|failure| in_words(data, &failure))?;
    Ok((Arc::new(authority), identity))
}

/// How the time as the active manager ends.
enum Served {
    /// The process ends.
    Ended(Exit),
    /// Another manager may be active now, for this reason.
    StandsDown(String),
}

/// Serves as the active manager. `place`: the database with the namespace, and the free place there.
fn serve_active(process: &ManagerProcess, place: Option<(&DatabaseSettings, &Vacancy)>) -> Result<Served, Failure> {
    match become_active(process, place) {
        Ok(served) => Ok(served),
        Err(NotActive { failure, cause }) if cause.stands_down(process.is_ready.get()) => {
            // The place may be free again at once, and the next attempt may fail like this one.
            std::thread::sleep(BETWEEN_ATTEMPTS);
            Ok(Served::StandsDown(failure.to_string()))
        }
        Err(NotActive { failure, .. }) => Err(failure),
    }
}

fn become_active(process: &ManagerProcess, place: Option<(&DatabaseSettings, &Vacancy)>) -> Result<Served, NotActive> {
    let (config, data) = (process.config.borrow().clone(), &process.data);
    let config = &config;
    supervisor::say(supervisor::OPENING);
    let mut clock = Clock::default(); // dropped after the foundation, whose closing may hang too
    let foundation = open(data, config, place).map_err(|error| {
        let cause = Cause::of_opening(&error);
        NotActive::new(cannot_open(data, error), cause)
    })?;
    say_all(foundation.startup_report(config.grace.as_secs()));
    let (authority, identity) = who_we_are(data, &foundation)
        .map_err(|NotActive { failure, cause }| NotActive::new(in_words(data, &failure), cause))?;
    let own = identity.name().node;
    let sockets = process.sockets()?;
    let told = sockets.for_nodes.clone();
    tracing::info!(
        "weir {} is the manager of cluster {}, node {own}, authority {}; nodes reach it at {told}",
        env!("CARGO_PKG_VERSION"),
        authority.cluster(),
        authority.fingerprint()
    );
    if let Some(database) = foundation.names.engine.database() {
        let (for_nodes, for_clients) = (told.clone(), sockets.for_clients.clone());
        database.set_holder(&Holder { node: own.0, for_nodes, for_clients });
    }
    // Before anything is started that would have to be stopped.
    say_addresses(&foundation, own, sockets)?;
    let is_new = !is_in_use(&foundation)?;
    let mut space = space_watch(&foundation, config);
    space.look();

    let credentials = Arc::new(Credentials::new(&identity).map_err(no_identity)?);
    let links = Links::new(LocalNode::new(Arc::clone(&credentials), Settings::default()));
    let (started, manager) = cluster_role::start_manager(&ManagerParts {
        config,
        foundation: &foundation,
        links: &links,
        boot: process.boot,
        sockets,
        listen: process.listen,
        security: &process.security,
    })?;
    let stored = Arc::new(StoredFiles::default());
    let tokens = Tokens::new(Arc::clone(&foundation.names.namespace), manager.other_managers().clone());
    let administrators = administrators(data)?;
    let others = OtherManagersHealth {
        own,
        stored: Arc::clone(&stored),
        authority: Arc::clone(&authority),
        administrators: Arc::clone(&administrators),
    };
    let judged = Judged::Manager {
        manager: Arc::clone(&manager),
        credentials: Arc::clone(&credentials),
        authority: Arc::clone(&authority),
        space: own_space(&foundation, config),
        made: foundation.made,
        database: foundation.names.engine.database().cloned(),
        others: others.clone(),
    };
    let indexes: Vec<_> = foundation.names.engine.index().cloned().into_iter().collect();
    let audit = started.server.service().config().audit.clone();
    let health = Arc::new(NodeHealth::new(judged, Arc::clone(data.directory()), indexes, audit.clone()));
    let renewal = renew(identity, data, credentials, &authority, &links)?;
    let open = Arc::new(OpenConnections::default());
    let people = Arc::clone(&process.people);
    first_administrator::invite_if_none(data, &administrators, &told, &authority, (is_new, now()));
    let admin_api = Arc::new(AdminApi {
        tokens: tokens.clone(),
        administrators: Arc::clone(&administrators),
        open: Arc::clone(&open),
        address: told.clone(),
        authority: Arc::clone(&authority),
        keeper: AuthorityKeeper {
            own,
            authority: Arc::clone(&authority),
            namespace: Arc::clone(&foundation.names.namespace),
            renew: renewal.now(),
            address: told.clone(),
            others,
            links: Arc::clone(&links),
        },
        manager: Arc::clone(&manager),
        service: Arc::clone(started.server.service()),
        health: Arc::clone(&health),
        backup_from: match &foundation.names.engine {
            NamesEngine::Directory { index, .. } => Ok(Arc::clone(index)),
            NamesEngine::Database(database) => Err(database.address()),
        },
        people: Arc::clone(&people),
    });
    let (owners, users, log) = (Arc::clone(&admin_api), Arc::clone(&people), audit.clone());
    let known = Arc::clone(&admin_api);
    let answers = Answers::new(move |caller, ask| admin_api.answer(caller, &ask))
        .with_owners(move |person: &Person, ask| owners.answer_owner(person, &ask))
        .with_users(move |uid| users.user(uid))
        // The address of a single manager is known to whoever asks it, and may be another one than its own: that of a tunnel.
        .with_managers(move || Some(known.addresses()).filter(|all| all.len() > 1).unwrap_or_default());
    let administration = Administration {
        authority: Arc::clone(&authority),
        administrators: Arc::clone(&administrators),
        people: Arc::clone(&people),
        open: Arc::clone(&open),
        answers: answers.clone(),
        log: audit.clone(),
    };
    let acting = Arc::clone(&manager);
    let may_act = Box::new(move || acting.may_grant());
    let services = OtherServices {
        join: Some(Arc::new(JoinService {
            authority: Arc::clone(&authority),
            tokens: Arc::new(tokens),
            validity: VALIDITY,
            on_admission: on_admission(&log, "join"),
        })),
        admin: Some(Arc::new(AdminService {
            authority: Arc::clone(&authority),
            store: Arc::new(WhileActive { store: Arc::clone(&administrators) as Arc<_>, may_act }),
            handler: Arc::new(administration),
            on_admission: on_admission(&log, "redeem"),
        })),
    };
    let registration = registration(&foundation, &authority, &manager, own);
    let registration = match place {
        Some(_) => registration.sharing(administrators, stored),
        None => registration,
    };
    start_links(&links, &sockets.nodes()?, services, registration, &started)?;
    let mut for_users = People::listen(config, &answers, &audit)?;
    let mut control =
        Control::start(data.directory(), answers, audit).map_err(|error| Failure::new(Exit::Failed, error))?;
    process.metrics.serve(sources(&foundation, config, &started, &manager, Arc::clone(&health)));
    process.say_ready(&started.server)?;
    let url = sockets.url();
    supervisor::say(&url);
    let mut looks = HealthWatch::start(&health, supervisor::StateLine::new(url), place.is_some())
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot watch the health of the node"))?;

    let reload = || {
        if process.reload(&started.server) {
            // Their roles may be lower now.
            open.cut_people();
            for_users.iter().for_each(Control::cut);
            let config = process.config.borrow();
            manager.adjust(config.grace, config.repair_rate);
            manager.set_client_locations(config.client_locations.clone());
        }
    };
    let watch = || {
        space.look();
        looks.look();
        let broken = || End::of_names(&foundation.names.engine).or_else(|| started.broken());
        let end = End::of_directory(&foundation.watch).or_else(|| End::of_journal(&foundation)).or_else(broken);
        end.or_else(|| End::of_lease(&foundation.names.engine, manager.other_managers().exist()))
    };
    let end = wait(&process.stop, reload, || None, watch);
    clock.start(end.late());
    match end.stands_down() {
        Some(why) => {
            tracing::warn!("not active any more: {why}");
            process.metrics.starting();
            // Nothing can be committed any more, so nobody may hold up the stop by waiting for it.
            if let Some(database) = foundation.names.engine.database() {
                database.break_off(&why);
            }
        }
        None => {
            process.metrics.stopping();
            supervisor::tell("STOPPING=1");
        }
    }
    for control in for_users.iter_mut().chain([&mut control]) {
        control.stop(Duration::from_millis(500));
    }
    drop((control, for_users, looks, health));
    drop(renewal);
    links.stop("the manager stops", LINKS_STOP);
    open.end_all(ADMINISTRATORS_STOP);
    started.stop();
    let close = || foundation.close().map_err(|error| Failure::new(Exit::Unclean, error));
    match end.stands_down() {
        Some(why) => {
            if let Err(error) = close() {
                tracing::warn!("the stop was not clean, the next start recovers: {error}");
            }
            Ok(Served::StandsDown(why))
        }
        None => Ok(Served::Ended(end.finish(close)?)),
    }
}

/// Records where this manager is, so that other nodes can be told.
fn say_addresses(foundation: &ManagerFoundation, own: NodeId, sockets: &Sockets) -> Result<(), NotActive> {
    let (for_nodes, for_clients) = (vec![sockets.for_nodes.clone()], vec![sockets.for_clients.clone()]);
    let said = SetAddresses { node: own, for_nodes, for_clients };
    let ctx = foundation.names.namespace.context(now(), &Actor::admin(), None);
    foundation
        .names
        .namespace
        .change_wait(Durability::Synced, ctx, said)
        .map_err(|error| names_failed(error, "cannot record the addresses of this manager"))
}

/// Opens the names: in the database, if one is given.
fn open(
    data: &DataDir,
    config: &Config,
    place: Option<(&DatabaseSettings, &Vacancy)>,
) -> Result<ManagerFoundation, foundation::OpenError> {
    let (settings, random) = (config.foundation(), rand::random());
    match place {
        None => ManagerFoundation::open_names(data, &settings, Purpose::Serve, random, now()),
        Some((database, vacancy)) => {
            tracing::info!("the namespace is in the database {}", database.address);
            ManagerFoundation::open_names_in((database, Claim::IfFree(vacancy)), data, &settings, random, now())
        }
    }
}

fn cannot_open(data: &DataDir, error: foundation::OpenError) -> Failure {
    if error.is_about_database() {
        let refused = foundation::refused(data, error);
        return Failure::new(refused.exit(), refused);
    }
    Failure::new(error.exit(), error).while_doing(format!("cannot open {}", data.path.display()))
}

/// The failure because of the namespace.
fn names_failed(error: namespace::NsError, what: &str) -> NotActive {
    let exit = if error.code() == ErrorCode::NoSpace { Exit::NoSpace } else { Exit::Failed };
    let cause = Cause::of_names(&error);
    NotActive::new(Failure::new(exit, error).while_doing(what), cause)
}

fn no_identity(error: link::IdentityError) -> Failure {
    Failure::new(Exit::DataDirectory, error)
}

/// The authority and the manager's own identity: made with the cluster or when the manager joined, then read.
fn who_we_are(data: &DataDir, foundation: &ManagerFoundation) -> Result<(Arc<Authority>, Identity), NotActive> {
    let folder = data.held().join(CLUSTER_DIR);
    let cluster = ClusterId(data.format.cluster);
    let members = foundation.names.namespace.read(namespace::members);
    let members = members.map_err(|error| names_failed(error, NODES_UNREADABLE))?;
    let has_joined = identity_file(&data.held()) != IDENTITY_FILE;
    let unusable = |error: link::AuthorityError| Failure::new(Exit::DataDirectory, error);
    // Made before there are members: after a crash in between, the next start finds the authority.
    let authority = match Authority::open(&folder) {
        Err(link::AuthorityError::File(link::FileError::Missing { .. })) if members.is_empty() && !has_joined => {
            Authority::create(&folder, cluster, now()).map_err(unusable)?
        }
        other => other.map_err(unusable)?,
    };
    let own = match has_joined {
        true => Identity::read(&data.held().join(identity_file(&data.held()))).map_err(no_identity)?.name().node,
        false => FIRST_NODE,
    };
    let identity = own_identity(data, &authority, own)?;
    let member = members.iter().find(|member| member.node == own);
    if member.is_none() && !members.is_empty() || member.is_some_and(|member| member.roles != Roles::MANAGER.bits()) {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "this manager, node {own}, was removed from its cluster; nothing was changed. Let it join again with an empty data directory (`weir token create --role manager`)"
            ),
        )
        .into());
    }
    if !has_joined {
        // The manager did not join with a key, so it has no key to record.
        let founded = FoundCluster { roles: Roles::MANAGER.bits(), name: host_name(), key: [0; 32] };
        let ctx = foundation.names.namespace.context(now(), &Actor::admin(), None);
        let founded = foundation.names.namespace.change_wait(Durability::Synced, ctx, founded);
        founded.map_err(|error| names_failed(error, "cannot record that this node is the cluster's manager"))?;
    }
    Ok((Arc::new(authority), identity))
}

/// The identity of the manager `own`. With the authority, the manager can get a new one.
fn own_identity(data: &DataDir, authority: &Authority, own: NodeId) -> Result<Identity, Failure> {
    let (folder, file) = (data.held().join(CLUSTER_DIR), data.held().join(identity_file(&data.held())));
    let cluster = ClusterId(data.format.cluster);
    if authority.cluster() != cluster {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "{} is the authority of cluster {}, and the data directory of cluster {cluster}; nothing was changed. Put back the one that belongs to it",
                folder.display(),
                authority.cluster()
            ),
        ));
    }
    let issue = || -> Result<Identity, link::IdentityError> {
        let identity = Identity::issue(authority, own, Roles::MANAGER, now(), VALIDITY)?;
        identity.write(&file)?;
        Ok(identity)
    };
    let identity = match Identity::read(&file) {
        Err(link::IdentityError::File(link::FileError::Missing { .. })) => issue().map_err(no_identity)?,
        other => other.map_err(no_identity)?,
    };
    let (trusted, known) = (authority.set(), identity.authority());
    let is_of_it = trusted.follows(known) || known.follows(&trusted);
    if identity.name().cluster != cluster || !is_of_it {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "{} is of another cluster's authority than the one beside it; nothing was changed. Move it away: a new one is made then",
                file.display()
            ),
        ));
    }
    // The authority was replaced, or comes from a backup, and the manager stopped before it had a certificate of it.
    if *known == trusted { Ok(identity) } else { issue().map_err(no_identity) }
}

fn space_watch<'a>(foundation: &'a ManagerFoundation, config: &Config) -> SpaceWatch<'a> {
    let floor = config.floor;
    let space = move || space_of(&*foundation.disk, floor).map_err(|error| error.to_string());
    SpaceWatch::new(Box::new(space), &foundation.ballast, config.foundation().ballast_bytes())
}

fn space_of(disk: &dyn Disk, floor: Option<u64>) -> Result<Space, DiskError> {
    let space = disk.space()?;
    let floor = floor.unwrap_or((space.total / 20).min(1 << 30));
    // The namespace takes names as long as there is any room.
    Ok(Space { total: space.total, free: space.free, floor, floor_reached: false })
}

/// The file system of the data directory.
fn own_space(foundation: &ManagerFoundation, config: &Config) -> Box<dyn Fn() -> Option<Space> + Send + Sync> {
    let (disk, floor) = (Arc::clone(&foundation.disk), config.floor);
    Box::new(move || space_of(&*disk, floor).ok())
}

fn sources(
    foundation: &ManagerFoundation,
    config: &Config,
    started: &RunningRole,
    manager: &Arc<Manager>,
    health: Arc<NodeHealth>,
) -> Sources {
    let engine = &foundation.names.engine;
    let indexes = engine.index().map(|index| ("namespace", Arc::clone(index))).into_iter().collect();
    Sources {
        server: started.server.watch(),
        logs: vec![JournalSource { store: None, journal: Arc::clone(&foundation.journal), indexes }],
        embedded: engine.embedded().cloned(),
        database: engine.database().cloned(),
        store: None,
        cluster: Some(ClusterSource::Manager { manager: Arc::clone(manager), space: own_space(foundation, config) }),
        scrub: ScrubSource::None,
        health,
    }
}

/// Whether the cluster had disk servers, or is restored from a backup: then it had its administrators.
fn is_in_use(foundation: &ManagerFoundation) -> Result<bool, NotActive> {
    let found = foundation
        .names
        .namespace
        .read(|read| Ok(namespace::members(read)?.len() > 1 || namespace::restored(read)?.is_some()));
    found.map_err(|error| names_failed(error, NODES_UNREADABLE))
}

/// The administrators of this cluster, in a file beside its authority.
pub(crate) fn administrators(data: &DataDir) -> Result<Arc<Administrators>, Failure> {
    let directory = Arc::clone(data.directory());
    let path = directory.held().join(ADMINISTRATORS_FILE);
    let records = read_records(&path).map_err(|error| Failure::new(Exit::DataDirectory, error));
    let records = records.map_err(|failure| in_words(data, &failure))?;
    let keep = move |records: &[link::admin::AdminRecord]| {
        let path = directory.held().join(ADMINISTRATORS_FILE);
        write_records(&path, records).map_err(|error| directory.in_words(&error.to_string()))
    };
    Ok(Arc::new(Administrators::new(records, Box::new(keep))))
}

/// Writes the line of somebody with a token (`join`) or an invitation (`redeem`).
pub(crate) fn on_admission(log: &audit::Log, operation: &'static str) -> link::OnAdmission {
    let log = log.clone();
    Arc::new(move |admission: &link::Admission<'_>| {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned().into());
        log.write(audit::Record {
            event: audit::Event::Admin,
            operation: operation.into(),
            result: if admission.refused.is_some() { audit::Outcome::Denied } else { audit::Outcome::Ok },
            principal: text(admission.name),
            mechanism: Some(if operation == "join" { "token" } else { "invitation" }.into()),
            credential: admission.role.and_then(text),
            address: Some(admission.address.to_string().into()),
            reason: admission.refused.and_then(text),
            ..audit::Record::default()
        });
    })
}

fn registration(
    foundation: &ManagerFoundation,
    authority: &Arc<Authority>,
    manager: &Arc<Manager>,
    own: NodeId,
) -> ManagerRegistration {
    let (namespace, manager) = (Arc::clone(&foundation.names.namespace), Arc::clone(manager));
    let may_grant = Box::new(move || manager.may_grant());
    ManagerRegistration::new(namespace, Arc::clone(authority), VALIDITY, Box::new(now), may_grant).of(own)
}

fn start_links(
    links: &Arc<Links>,
    listener: &Arc<Listener>,
    others: OtherServices,
    registration: ManagerRegistration,
    started: &RunningRole,
) -> Result<(), Failure> {
    links
        .start(listener, others, Some(Arc::new(registration)), Arc::clone(&started.receiver))
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot accept connections of nodes"))
}

/// A manager signs its own certificate.
fn renew(
    identity: Identity,
    data: &DataDir,
    credentials: Arc<Credentials>,
    authority: &Arc<Authority>,
    links: &Arc<Links>,
) -> Result<Renewal, Failure> {
    let (asked, links) = (Arc::clone(authority), Arc::clone(links));
    let (authority, name) = (Arc::clone(authority), *identity.name());
    let sign =
        move |request: &[u8]| authority.renew(&name, request, now(), VALIDITY).map_err(|error| error.to_string());
    // Nodes that get a new certificate connect again by themselves.
    let moved = move |one: Move| {
        if matches!(one, Move::Alone(_)) {
            links.cut_strangers();
        }
    };
    start_renewal(
        identity,
        (data, identity_file(&data.held())),
        credentials,
        Box::new(sign),
        Box::new(move || Ok(Some(asked.set()))),
        Box::new(moved),
    )
}

/// How long an invitation and the access are valid.
fn invited_for(valid: u64, access: Option<u64>) -> Result<(Duration, Option<Duration>), ValidityError> {
    let valid = Limited::Invitation.check(Duration::from_millis(valid))?;
    let access = access.map(|access| Limited::Access.check(Duration::from_millis(access))).transpose()?;
    Ok((valid, access))
}

/// Answers the requests that arrive at the control socket, and those of administrators.
struct AdminApi {
    tokens: Tokens,
    administrators: Arc<Administrators>,
    open: Arc<OpenConnections>,
    address: String,
    authority: Arc<Authority>,
    keeper: AuthorityKeeper,
    manager: Arc<Manager>,
    service: Arc<service::Service>,
    health: Arc<NodeHealth>,
    /// The index of the namespace, or the address of the database that has the namespace.
    backup_from: Result<Arc<JournaledIndex>, String>,
    people: Arc<People>,
}

impl AdminApi {
    fn revoke_admin(&self, name: &str) -> Reply {
        let revoked = self.administrators.revoke(name, now());
        match &revoked {
            // It holds as long as this manager runs, even if it could not be kept.
            Ok(ids) | Err(RevokeAdminError::Keep { ids, .. }) => self.open.cut(ids),
            Err(RevokeAdminError::Unknown(_)) => {}
        }
        match revoked {
            Ok(_) => self.listed_administrators(),
            Err(error @ RevokeAdminError::Unknown(_)) => Reply::Absent(error.to_string()),
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    /// Those with certificates, and those of the settings.
    fn listed_administrators(&self) -> Reply {
        let with_certificates = self.administrators.list(now()).into_iter().map(Administrator::Certificate);
        let rules = self.people.rules();
        let of_settings = rules.iter().map(|rule| {
            let of = OfSettings { name: rule.name.to_string(), role: rule.role };
            match rule.kind {
                PrincipalKind::User => Administrator::User(of),
                PrincipalKind::Group => Administrator::Group(of),
            }
        });
        Reply::long(&with_certificates.chain(of_settings).collect::<Vec<_>>())
    }

    /// Answers somebody who may own the tree that the request is about.
    fn answer_owner(&self, person: &Person, ask: &ControlRequest) -> Reply {
        let Person { who, .. } = person;
        match self.service.tree_owner(&who.name, &who.groups, who.rights.clone()) {
            Ok(who) => crate::quotas::answer_owner(&self.service, &who, ask)
                .or_else(|| admin_api::answer_owner(&self.manager, &who, ask))
                .unwrap_or_else(|| Reply::Denied("owners of trees cannot do this".into())),
            Err(error) => Reply::Denied(error.to_string()),
        }
    }

    /// Answers the requests about the cluster's authority.
    fn answer_authority(&self, caller: &Caller, ask: &ControlRequest) -> Option<Reply> {
        let reply = self.keeper.answer(ask)?;
        if matches!(ask, ControlRequest::AuthorityRetire { .. }) {
            // Whoever has asked gets the answer: nothing more is read from that connection.
            let spared = match caller {
                Caller::Remote { peer, .. } => Some(*peer),
                _ => None,
            };
            self.open.cut_strangers(&self.authority.set(), spared);
        }
        Some(reply)
    }

    fn renew_admin(&self, caller: &Caller, request: &str) -> Reply {
        let Caller::Remote { id, name, .. } = caller else {
            return Reply::Refused("on the manager's machine no certificate is needed".into());
        };
        let subject = link::admin::AdminName { cluster: self.authority.cluster(), id: *id };
        let renewed = self.administrators.renew(*id, now()).map_err(|error| error.to_string()).and_then(|grant| {
            self.authority.renew_admin(&subject, request, now(), grant.validity).map_err(|error| error.to_string())
        });
        match renewed {
            Ok(certificate) => {
                tracing::info!(name, "an administrator's certificate was renewed");
                Reply::Done(serde_json::json!({ "certificate": certificate }))
            }
            Err(why) => Reply::Refused(why),
        }
    }

    /// The addresses of all managers for nodes and commands.
    fn addresses(&self) -> Vec<String> {
        let all = self.manager.managers();
        manager_addresses::all(&self.address, all.iter().map(|manager| manager.nodes_at.as_str()))
    }

    fn listed(&self) -> Reply {
        match self.tokens.list(now()) {
            Ok(tokens) => Reply::long(&tokens),
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    fn answer(&self, caller: &Caller, ask: &ControlRequest) -> Reply {
        acting::answer(|| self.manager.may_grant(), ask, || self.answer_any(caller, ask))
    }

    fn answer_any(&self, caller: &Caller, ask: &ControlRequest) -> Reply {
        match ask {
            ControlRequest::AdminInvite { name, role, valid_millis, access_millis } => {
                let (name, role, by) = (name.clone(), *role, caller.with_credential());
                let (valid, access) = match invited_for(*valid_millis, *access_millis) {
                    Ok(times) => times,
                    Err(error) => return Reply::Refused(error.to_string()),
                };
                let invite = Invite { name, role, valid, access, by };
                let authority = self.authority.fingerprint();
                match self.administrators.invite(invite, self.addresses(), authority, now()) {
                    Ok(invitation) => Reply::Done(serde_json::json!({ "invitation": invitation })),
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
            ControlRequest::Admins => self.listed_administrators(),
            ControlRequest::AdminRevoke { name } => self.revoke_admin(name),
            ControlRequest::AdminRenew { request } => self.renew_admin(caller, request),
            ControlRequest::Status => admin_api::told(self.health.status()),
            ControlRequest::MakeToken { role, valid_millis, uses } => {
                let roles = match role {
                    // Its holder could impersonate the manager at every disk server, and the token would have no other use.
                    ClusterRole::Manager if self.backup_from.is_ok() => return Reply::Refused(NO_SECOND_MANAGER.into()),
                    ClusterRole::Manager => Roles::MANAGER,
                    ClusterRole::Disk => Roles::DISK,
                };
                let valid = match Limited::Token.check(Duration::from_millis(*valid_millis)) {
                    Ok(valid) => valid,
                    Err(error) => return Reply::Refused(error.to_string()),
                };
                let fingerprint = self.authority.fingerprint();
                match self.tokens.make(self.addresses(), fingerprint, roles, *uses, valid, now()) {
                    Ok(token) => {
                        tracing::info!(role = %roles, uses, "a token to join with was made");
                        Reply::Done(serde_json::json!({ "token": token }))
                    }
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
            ControlRequest::ScrubStatus => admin_api::told(self.manager.damage_view()),
            ControlRequest::ScrubNow { .. } | ControlRequest::ScrubStop => Reply::Refused(
                "this is a cluster's manager, and its disk servers read their stores: run the command on a disk server, \
                 with its --data; without --now, --rate and --stop it lists the damage here"
                    .into(),
            ),
            ControlRequest::ForgetRecent => {
                Reply::Refused("this is a cluster's manager, which has no data: run the command on a disk server, with its --data".into())
            }
            ControlRequest::Backup { since } => match &self.backup_from {
                Ok(index) => maintain::back_up(index, *since),
                Err(address) => Reply::Refused(format!(
                    "the namespace of this manager is in the database {address}; {BACKUP_OF_DATABASE} (docs/how-to/database.md)"
                )),
            },
            ControlRequest::Tokens => self.listed(),
            ControlRequest::RevokeToken { id } => match self.tokens.revoke(id, now()) {
                Ok(()) => {
                    tracing::info!(id, "a token was revoked");
                    self.listed()
                }
                Err(error @ RevokeTokenError::Unknown(_)) => Reply::Absent(error.to_string()),
                Err(error) => Reply::Refused(error.to_string()),
            },
            ask => identities::answer(&self.service, ask)
                .or_else(|| self.answer_authority(caller, ask))
                .or_else(|| explain::answer(&self.service, ask))
                .or_else(|| crate::quotas::answer(&self.service, ask))
                .or_else(|| admin_api::answer(&self.manager, ask))
                .unwrap_or_else(|| Reply::Refused("this is a cluster's manager, which does not do that yet".into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_held_to_the_limits_that_the_command_says() {
        const DAY: u64 = 86_400_000;
        let time = Duration::from_millis;
        assert_eq!(invited_for(30 * DAY, None), Ok((time(30 * DAY), None)));
        assert_eq!(invited_for(1000, Some(3650 * DAY)), Ok((time(1000), Some(time(3650 * DAY)))));
        for (valid, access) in
            [(30 * DAY + 1, None), (999, None), (u64::MAX, None), (DAY, Some(0)), (DAY, Some(3650 * DAY + 1))]
        {
            assert!(invited_for(valid, access).is_err(), "{valid} {access:?}");
        }
    }
}
