//! `weir serve --role manager`: the namespace of a cluster, its certificate authority, and the registration of nodes.

use std::cell::{Cell, OnceCell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use config::Config;
use control::{Answers, Control, Person};
use database::{Holder, PlaceWatch, Standing, Vacancy};
use disk::{Disk, DiskError};
use foundation::startup_report::say_all;
use foundation::{
    COMMITTER, Claim, DataDir, DatabaseSettings, DirRole, IfNew, ManagerFoundation, NamesEngine, Purpose,
};
use link::admin::{AdminService, read_records, write_records};
use link::{Authority, Credentials, Identity, JoinService, Listener, LocalNode, OtherServices, Settings, VALIDITY};
use manager::administrators::Administrators;
use manager::registration::{ManagerRegistration, Shares};
use manager::tokens::Tokens;
use manager::{Manager, StoredFiles};
use namespace::{Actor, Durability, FIRST_NODE, SetAddresses};
use node::Committed;
use node::links::Links;
use node::renewal::{Move, Renewal};
use store::Space;
use types::{BootId, NodeId};

use crate::acting::WhileActive;
use crate::administration::Administration;
use crate::authority::AuthorityKeeper;
use crate::cli::ServeArgs;
use crate::client_security::ClientSecurity;
use crate::cluster_node::{LINKS_STOP, NodesAddress, RunningRole, in_words, now, start_renewal, wait};
use crate::database_start::check_member;
use crate::end::End;
use crate::exit::Exit;
use crate::health::{Judged, NodeHealth};
use crate::health_watch::HealthWatch;
use crate::logging::Logging;
use crate::manager_answers::ManagerAnswers;
use crate::manager_identity::{ADMINISTRATORS_FILE, NODES_UNREADABLE, founder, names_failed, no_identity, who_we_are};
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
    Failure, cluster_role, database_settings, database_start, first_administrator, manager_join, metrics,
    recent_changes, signals, standby, supervisor,
};

/// How long the answers to administrators may take when the manager stops.
const ADMINISTRATORS_STOP: Duration = Duration::from_millis(500);
/// How long a manager that could not become active waits before it is a standby again.
const BETWEEN_ATTEMPTS: Duration = Duration::from_secs(1);

/// The parts that the manager's role uses.
pub(crate) struct ManagerParts<'a> {
    /// This manager.
    pub(crate) own: NodeId,
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
    let mut vacant = None;
    if is_first {
        let Some(looked) = database_start::first_look(process, database, &mut watch)? else {
            return Ok(Turn::Ended(End::Asked.finish(|| Ok(()))?));
        };
        known.looked(&Ok(looked.clone()));
        if let Standing::Free(vacancy) = looked {
            vacant = Some(vacancy);
        }
    }
    let waited = match vacant {
        Some(vacancy) => Waited::Free(vacancy),
        None => {
            let looks = Looks::start(watch, &known)?;
            let at_start = if is_first { standby::wait_at_start(process, &known, &looks)? } else { None };
            match at_start {
                Some(waited) => waited,
                None => {
                    let us = joined.map_or_else(|| founder(data), Ok)?;
                    standby::serve_until_free(process, &known, &looks, us, database)?
                }
            }
        }
    };
    let vacancy = match waited {
        Waited::Free(vacancy) => vacancy,
        Waited::Ended(end) => return end.finish(|| Ok(())).map(Turn::Ended),
    };
    Ok(match serve_active(process, Some((database, &vacancy)))? {
        Served::Ended(exit) => Turn::Ended(exit),
        Served::StandsDown(why) => {
            tracing::warn!("this manager is a standby again: {why}");
            Turn::Over
        }
    })
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
    let (config, data) = (process.reload.borrow().in_force().clone(), &process.data);
    let config = &config;
    supervisor::say(supervisor::OPENING);
    if let Some((database, _)) = place {
        check_member(data, database)?;
    }
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
        own,
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
    let admin_api = Arc::new(ManagerAnswers {
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
    let (known, has_several) = (Arc::clone(&admin_api), place.is_some());
    let answers = Answers::new(move |caller, ask| admin_api.answer(caller, &ask))
        .with_owners(move |person: &Person, ask| owners.answer_owner(person, &ask))
        .with_users(move |uid| users.user(uid))
        // The address of a manager that is always alone is known to whoever asks it, and may be another one than its own: that of a tunnel. Where there can
        // be several, commands also learn that the others were removed.
        .with_managers(move || if has_several { known.addresses() } else { Vec::new() });
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
        Some(_) => {
            let of = Arc::clone(&manager);
            let database = foundation.names.engine.database().cloned();
            let changed = database.clone();
            let changes = Box::new(move |since, seen| recent_changes::of(changed.as_deref()?, since, seen));
            let committed = move || {
                let (fence, batch) = database.as_ref().map(|database| database.acknowledged()).unwrap_or_default();
                Committed { fence, batch }
            };
            let state = Box::new(move || of.cluster_state(committed()));
            registration.sharing(Shares { administrators, stored, state, changes })
        }
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
            let reload = process.reload.borrow();
            let config = reload.in_force();
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
                database.break_off(why);
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
            Ok(Served::StandsDown(why.to_owned()))
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

pub(crate) fn cannot_open(data: &DataDir, error: foundation::OpenError) -> Failure {
    if error.is_about_database() {
        let refused = foundation::refused(data, error);
        return Failure::new(refused.exit(), refused);
    }
    Failure::new(error.exit(), error).while_doing(format!("cannot open {}", data.path.display()))
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
