//! `weir serve`: opens the data directory, starts the server, and waits for a signal.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant, SystemTime};

use config::{ClusterRole, Config};
use foundation::startup_report::say_all;
use foundation::{DataDir, DataDirError, DirRole, FORMAT_VERSION, Foundation, IfNew, Purpose, refused};
use types::{BootId, Timestamp};

use crate::Failure;
use crate::cli::ServeArgs;
use crate::client_security::ClientSecurity;
use crate::end::End;
use crate::exit::Exit;
use crate::metrics::{JournalSource, Metrics, ScrubSource, Sources};
use crate::node_services::NodeServices;
use crate::people::People;
use crate::reload::Reload;
use crate::signals::Signal;
use crate::space_watch::SpaceWatch;
use crate::{
    audit_log, database_settings, free_addresses, logging, metrics, serve_disk, serve_manager, signals, supervisor,
};

/// A clean stop is promised within 10 s; the rest of it is for closing the indexes and the journal.
pub(crate) const SERVER_STOP: Duration = Duration::from_secs(6);
/// If even that takes too long, the process ends anyway.
const STOP: Duration = Duration::from_millis(9_500);
/// Descriptors for the journal, the indexes and other files of ours.
const OWN_FILES: usize = 1024;
/// How often the node checks the disk.
const WATCH: Duration = Duration::from_secs(1);

/// Runs a node until it is told to stop.
pub fn run(args: &ServeArgs) -> Result<Exit, Failure> {
    let config = args.over(Config::load(args.config.as_deref()).map_err(|error| Failure::new(Exit::Usage, error))?);
    let logging = logging::start_as(&config.log, config.log_json)?;
    database_settings::refuse_elsewhere(args, &config)?;
    match config.role {
        Some(ClusterRole::Manager) => return serve_manager::run(args, &config, logging),
        Some(ClusterRole::Disk) => return serve_disk::run(args, &config, logging),
        None => of_a_cluster_alone(args, &config)?,
    }
    let mut security = ClientSecurity::of(&config)?;
    let address = security.address(&config)?;
    // Refuse a bad address before opening anything; listen only when all is open.
    let metrics_at = config.metrics.as_ref().map(|given| metrics::address(given, config.insecure)).transpose()?;
    if args.check {
        return Ok(Exit::Done);
    }
    let boot = boot_id()?;
    // Before anything opens, so that a second signal does not interrupt recovery at an arbitrary place.
    let stop =
        signals::catch().map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot catch signals"))?;

    let if_new = if config.existing { IfNew::Refuse } else { IfNew::Make };
    if would_make(&config, config.data.as_deref()) {
        free_addresses::check(&[("listen for clients", Some(address)), ("serve metrics", metrics_at)])?;
    }
    let data = open_data_dir(config.data.as_ref(), if_new)?;
    tracing::info!(
        "weir {} on {}{}: format {FORMAT_VERSION}, cluster {:032x}, store {}, incarnation {}, created {}",
        env!("CARGO_PKG_VERSION"),
        data.path.display(),
        if data.fresh { " (made just now)" } else { "" },
        data.format.cluster,
        data.format.store,
        data.format.incarnation,
        data.format.created,
    );
    supervisor::say(supervisor::OPENING);
    let mut clock = Clock::default(); // dropped after the foundation, whose closing may hang too
    let metrics = Metrics::start(config.metrics.as_deref(), config.insecure)?;
    let foundation = Foundation::open(&data, &config.foundation_to_serve(), Purpose::Serve, now())
        .map_err(|error| refused(&data, error))
        .map_err(|error| Failure::new(error.exit(), error))?;
    let mut server_config = xrootd::ServerConfig::new(address, foundation.journal.boot(boot));
    server_config.service.keep_uploads = foundation.was_repaired;
    server_config.service.pull = fetcher(&config);
    server_config.service.audit = audit_log::open(&config)?;
    security.start()?;
    security.give_to(&mut server_config, false);
    set_bounds(&config, &mut server_config);
    let people = People::of(&config, &security)?;
    let mut reload = Reload::new(args.clone(), config.clone(), logging);
    let mut reload = |server: &xrootd::Server| {
        if let Some(config) = reload.again(server, &people) {
            people.reload(config);
        }
    };
    serve_on(&foundation, &config, server_config, metrics, &stop, &mut reload, &mut clock, &people)
}

/// The fetcher for third-party copies, if they are enabled.
pub(crate) fn fetcher(config: &Config) -> Option<service::Fetcher> {
    config
        .third_party_copy
        .then(|| crate::fetch::Fetch::from_these(&config.third_party_sources, &config.gsi_authorities))
        .map(|fetch| service::Fetcher(Arc::new(fetch)))
}

/// Refuses the settings that only a node of a cluster can use, rather than ignore them.
fn of_a_cluster_alone(args: &ServeArgs, config: &Config) -> Result<(), Failure> {
    let given = [
        ("--join", args.join.is_some()),
        ("--join-file", args.join_file.is_some()),
        ("join_file", config.join_file.is_some()),
        ("[[store]]", !config.stores.is_empty()),
        ("managers", !config.managers.is_empty()),
        ("advertise", config.advertise.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(Failure::message(
            Exit::Usage,
            format!("{name} is for a disk server of a cluster; say --role disk, or leave it out"),
        )),
        None => Ok(()),
    }
}

/// Serves on the open foundation until a signal stops it or it cannot go on. `metrics` shows how it is. Calls `reload` to read the configuration
/// again.
#[allow(clippy::too_many_arguments)] // each is a part of a node that was started before
pub fn serve_on(
    foundation: &Foundation,
    config: &Config,
    server_config: xrootd::ServerConfig,
    metrics: Metrics,
    asked: &Receiver<Signal>,
    reload: &mut dyn FnMut(&xrootd::Server),
    clock: &mut Clock,
    people: &Arc<People>,
) -> Result<Exit, Failure> {
    say_all(foundation.startup_report(config.grace.as_secs()));
    foundation.names.embedded.on_batch_done(Arc::new(xrootd::batch_done));
    let store = Arc::clone(&foundation.objects.store);
    let mut space = SpaceWatch::of_store(store, &foundation.ballast, config.foundation().ballast_bytes());
    space.look();

    let role = service::Role::Alone {
        namespace: Arc::clone(&foundation.names.namespace),
        store: Arc::clone(&foundation.objects.store),
    };
    let server = xrootd::Server::start(server_config, role).map_err(not_served)?;
    let node_services = NodeServices::start(foundation, config, server.watch(), people)?;
    let health = Arc::clone(node_services.health());
    metrics.serve(sources(foundation, &server, &node_services));
    let url = format!("root://{}/", server.address());
    say_ready(&url)?;
    supervisor::ready(&url);
    let mut state = supervisor::StateLine::new(url);

    let mut look = || {
        space.look();
        health.look();
        state.look(|| health.recent());
    };
    let mut reload = |server: &xrootd::Server| {
        reload(server);
        // What the users of the machine may do is perhaps less now.
        node_services.cut_users();
    };
    let end = wait(asked, &mut reload, foundation, &server, &mut look);
    metrics.stopping();
    drop(health);
    // From here on the clock runs: whatever hangs, the process ends in time.
    clock.start(end.late());
    supervisor::tell("STOPPING=1");
    node_services.stop();
    let audit = server.service().config().audit.clone();
    let left = server.stop(Instant::now() + SERVER_STOP);
    audit.stop();
    if left.connections_cut > 0 {
        tracing::warn!("{} connections were not done in time and were cut", left.connections_cut);
    }
    if left.writers_left > 0 {
        tracing::info!("open writes: {}; their writers can come back after the next start", left.writers_left);
    }
    end.finish(|| foundation.close().map_err(|error| Failure::new(Exit::Unclean, error)))
}

fn sources(foundation: &Foundation, server: &xrootd::Server, node_services: &NodeServices) -> Sources {
    let indexes =
        vec![("namespace", Arc::clone(&foundation.names.index)), ("store", Arc::clone(&foundation.objects.index))];
    Sources {
        server: server.watch(),
        logs: vec![JournalSource { store: None, journal: Arc::clone(&foundation.journal), indexes }],
        embedded: Some(Arc::clone(&foundation.names.embedded)),
        database: None,
        store: Some(Arc::clone(&foundation.objects.store)),
        cluster: None,
        scrub: ScrubSource::Node(Arc::clone(node_services.scrub())),
        health: Arc::clone(node_services.health()),
    }
}

/// Whether a start with this configuration would make the data directory or store `path`.
pub(crate) fn would_make(config: &Config, path: Option<&Path>) -> bool {
    !config.existing && path.is_some_and(|path| matches!(foundation::datadir::format_of(path), Ok(None)))
}

/// Ends the process if a stop hangs.
#[derive(Default)]
pub struct Clock(Option<Sender<()>>);

impl Clock {
    /// Gives the stop [`STOP`] from now on. If the clock is not dropped by then, the process ends with `late`.
    pub(crate) fn start(&mut self, late: Exit) {
        let (sender, receiver) = channel();
        self.0 = Some(sender);
        std::thread::spawn(move || {
            if receiver.recv_timeout(STOP) == Err(RecvTimeoutError::Timeout) {
                tracing::error!("the stop took over 10 s: stopping at once; nothing acknowledged is lost");
                std::process::exit(i32::from(late.code()));
            }
        });
    }
}

/// Only an unavailable address gets the exit code for addresses.
pub(crate) fn not_served(error: xrootd::ServerError) -> Failure {
    match error {
        xrootd::ServerError::Listen { .. } => {
            Failure::message(Exit::Listen, format!("{error}; is another server there? Port 0 picks a free one"))
        }
        xrootd::ServerError::Service(service::StartError::Writers(_)) => Failure::new(Exit::Damaged, error),
        xrootd::ServerError::Service(service::StartError::Thread(_)) | xrootd::ServerError::Start(_) => {
            Failure::new(Exit::Failed, error)
        }
    }
}

/// Prints the ready line, the only line on stdout.
pub(crate) fn say_ready(address: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "weir: ready {address}")
        .and_then(|()| stdout.flush())
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot write the ready line to stdout"))?;
    tracing::info!("ready {address}");
    Ok(())
}

/// Opens and locks the data directory.
pub fn open_data_dir(path: Option<&PathBuf>, if_new: IfNew) -> Result<DataDir, Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let path = path.ok_or_else(|| refused(DataDirError::NotGiven))?;
    DataDir::open(path, if_new, now()).map_err(refused)
}

/// Opens and locks the directory of a node of a cluster.
pub(crate) fn open_cluster_dir(path: Option<&PathBuf>, role: DirRole, if_new: IfNew) -> Result<DataDir, Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let path = path.ok_or_else(|| refused(DataDirError::NotGiven))?;
    let data = DataDir::open_as(path, role, None, if_new, now()).map_err(refused)?;
    tracing::info!(
        "weir {} on {}{}: format {FORMAT_VERSION}, cluster {:032x}, {}, incarnation {}, created {}",
        env!("CARGO_PKG_VERSION"),
        data.path.display(),
        if data.fresh { " (made just now)" } else { "" },
        data.format.cluster,
        role,
        data.format.incarnation,
        data.format.created,
    );
    Ok(data)
}

fn wait(
    asked: &Receiver<Signal>,
    reload: &mut dyn FnMut(&xrootd::Server),
    foundation: &Foundation,
    server: &xrootd::Server,
    look: &mut dyn FnMut(),
) -> End {
    loop {
        match asked.recv_timeout(WATCH) {
            Ok(Signal::Reload) => reload(server),
            Ok(Signal::Stop(signal)) => {
                tracing::info!("{signal}: stopping; once more to stop at once");
                return End::Asked;
            }
            Err(RecvTimeoutError::Disconnected) => return End::Asked,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(end) = End::of_directory(&foundation.watch).or_else(|| End::of_journal(foundation)) {
            return end;
        }
        let died = server.broken().map(|name| format!("the {name} has died by a panic"));
        if let Some(what) = foundation.names.embedded.broken().or(died) {
            return End::Broken(what);
        }
        look();
    }
}

/// Applies the bounds and times of `config` to the server.
pub fn set_bounds(config: &Config, server: &mut xrootd::ServerConfig) {
    bound_open_files(config, server);
    let xrootd::ServerConfig { times, service, .. } = server;
    service.limits.writers_memory_max = config.writers_memory;
    service.limits.read_ahead = config.read_ahead;
    service.digests.clone_from(&config.checksums);
    service.unfinished.clone_from(&config.unfinished);
    if let Some(transfers) = config.transfers {
        service.limits.transfers_max = usize::try_from(transfers).unwrap_or(usize::MAX);
    }
    service.times.grace = config.grace;
    times.frame = config.request_time;
    times.send = config.answer_time;
    times.login = config.login_time;
}

/// Raises the limit of open files as far as the system allows. Bounds connections and files by it, so that the node never runs out.
fn bound_open_files(config: &Config, server: &mut xrootd::ServerConfig) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!("cannot raise the limit of open files: {error}");
    }
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let wanted = usize::try_from(config.connections).unwrap_or(usize::MAX);
    let (connections, files) = shared_out(most, wanted, server.service.limits.handles_max);
    (server.limits.connections_max, server.service.limits.handles_max) = (connections, files);
    if connections < wanted {
        tracing::warn!(
            "the system allows {most} open files: {connections} connections instead of {wanted}, {files} files open for clients (raise LimitNOFILE)"
        );
    } else {
        tracing::info!(
            "{connections} connections and {files} files open for clients at a time; the system allows {most} open files"
        );
    }
}

/// Divides `most` descriptors between connections and open files of clients. Some stay for the journal and the indexes. A connection takes
/// one descriptor, an open file up to three. Connections get at most a quarter.
fn shared_out(most: u64, connections: usize, files: usize) -> (usize, usize) {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let left = most - (most / 4).min(OWN_FILES);
    let connections = connections.min(left / 4).max(1);
    (connections, files.min((left - connections) / 3).max(1))
}

/// The id of the kernel's boot. It tells whether unsynced bytes can still exist.
pub(crate) fn boot_id() -> Result<BootId, Failure> {
    const FILE: &str = "/proc/sys/kernel/random/boot_id";
    let text = std::fs::read_to_string(FILE)
        .map_err(|error| Failure::new(Exit::Failed, error).while_doing(format!("cannot read {FILE}")))?;
    let digits: String = text.trim().chars().filter(|c| *c != '-').collect();
    u128::from_str_radix(&digits, 16)
        .map(BootId)
        .map_err(|_| Failure::message(Exit::Failed, format!("{FILE} does not hold a boot id, but `{}`", text.trim())))
}

/// The time of day. Only this function reads it; callers pass it on.
#[must_use]
pub fn now() -> Timestamp {
    SystemTime::now().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_enough_for_all_allowed_connections_and_files() {
        assert_eq!(shared_out(1 << 20, 4096, 65_536), (4096, 65_536));
        assert_eq!(shared_out(u64::MAX, 4096, 65_536), (4096, 65_536));
        for most in [64, 256, 1024, 4096, 65_536, 300_000] {
            let (connections, files) = shared_out(most, 4096, 65_536);
            assert!(connections + 3 * files + 16 <= usize::try_from(most).unwrap(), "{most}: {connections} {files}");
            assert!(connections >= 12, "{most}: {connections}");
        }
    }

    #[test]
    fn only_a_taken_address_is_reported_as_one() {
        let address = std::net::SocketAddr::from(([127, 0, 0, 1], 1094));
        let error = std::io::Error::from(std::io::ErrorKind::AddrInUse);
        assert_eq!(not_served(xrootd::ServerError::Listen { address, error }).exit, Exit::Listen);
        let other = not_served(xrootd::ServerError::Start(std::io::Error::other("no thread")));
        assert_eq!(other.exit, Exit::Failed);
        assert!(!other.to_string().contains("listen"), "{other}");
    }
}
