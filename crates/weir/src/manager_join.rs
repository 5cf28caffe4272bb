//! How a further manager joins a cluster whose namespace is in a database, and gets the files that all managers have.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver as Signals;
use std::time::{Duration, Instant};

use config::Config;
use console::signals::Signal;
use database::{DatabaseError, Schema};
use foundation::datadir::Format;
use foundation::layout::{DISK_IDENTITY_FILE, has_joined};
use foundation::{DataDir, DatabaseSettings, exit_of_database};
use link::admin::write_records;
use link::{
    Authority, AuthorityError, Credentials, FileError, Identity, IdentityError, IncomingHeader, JoinToken, LinkError,
    Listener, LocalNode, ManagerFiles, OtherServices, PeerIdentity, Role, Roles, Settings,
};
use node::links::{Buffer, Links, Peer, Received, Receiver};
use node::registration;
use types::{ClusterId, NodeId};

use crate::Failure;
use crate::cli::ServeArgs;
use crate::exit::Exit;
use crate::manager_identity::{ADMINISTRATORS_FILE, CLUSTER_DIR, IDENTITY_FILE};
use crate::managers_file;
use crate::serve_disk::{join_as, token_of};

/// How long the first fetch of the managers' files may take.
const FETCH_PATIENCE: Duration = Duration::from_secs(20);
const LOOK: Duration = Duration::from_millis(50);

/// The file with this manager's identity, in its data directory: the first manager made its own with the cluster, and the others got theirs when they
/// joined.
pub(crate) fn identity_file(data: &Path) -> &'static str {
    // With the folder alone, the identity of a manager that has joined is lost. It must not become the first manager's.
    match managers_file::folder_exists(data) {
        true => DISK_IDENTITY_FILE,
        false => IDENTITY_FILE,
    }
}

/// The token of a manager that has not joined yet. Refuses settings that do not go together.
pub(crate) fn token(args: &ServeArgs, config: &Config) -> Result<Option<JoinToken>, Failure> {
    let is_given = args.join.is_some() || args.join_file.is_some() || config.join_file.is_some();
    if is_given && config.database.is_none() {
        return Err(Failure::message(
            Exit::Usage,
            "without a database, a manager does not join: it creates its own cluster. Only a cluster whose namespace is in a database has several managers: say --database URL, the database of the manager that made the token",
        ));
    }
    token_of(args.join.as_ref(), args.join_file.as_deref(), config)
}

/// Lets this manager join with `token`, unless it has joined already. Its directory belongs to the cluster then.
pub(crate) fn join_once(data: &mut DataDir, token: &JoinToken, database: &DatabaseSettings) -> Result<(), Failure> {
    let held = data.held();
    if has_joined(&held) {
        tracing::info!("this manager has joined already; the token is not needed and was not used");
        return Ok(());
    }
    if !data.fresh && held.join(CLUSTER_DIR).exists() {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "{} is the directory of a manager that has a cluster; nothing was changed. Give a new data directory to join with the token, or start it without the token",
                data.path.display()
            ),
        ));
    }
    // Before the token is used up, and the cluster has another manager in its list.
    let of_database = |error: DatabaseError| Failure::new(exit_of_database(&error), error);
    let of_names = Schema::connect(&database.address).and_then(|mut schema| schema.check()).map_err(of_database)?;
    let Some(of_names) = of_names else {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "the database {} has no namespace, so it is not the one of the manager that made the token; nothing was changed",
                database.address
            ),
        ));
    };
    let identity = join_as(&held, token, Roles::MANAGER, Some(of_names))?;
    let cluster = identity.name().cluster;
    let refused = |error: foundation::DataDirError| Failure::new(error.exit(), error);
    data.replace_format(Format { cluster: cluster.0, ..data.format.clone() }).map_err(refused)?;
    // Last: with this file the node has joined.
    identity.write(&held.join(DISK_IDENTITY_FILE)).map_err(|error| Failure::new(Exit::DataDirectory, error))
}

/// The authority and the identity of a manager that has joined. Fetches the files that all managers have, if it has none yet. `None`: this manager has
/// not joined, but made the cluster, or will make one.
pub(crate) fn joined(data: &DataDir, stop: &Signals<Signal>) -> Result<Option<(Arc<Authority>, Identity)>, Failure> {
    let held = data.held();
    if identity_file(&held) != DISK_IDENTITY_FILE {
        return Ok(None);
    }
    let file = held.join(DISK_IDENTITY_FILE);
    let identity = match Identity::read(&file) {
        Err(IdentityError::File(FileError::Missing { .. })) => {
            return Err(Failure::message(
                Exit::DataDirectory,
                format!(
                    "{} is lost: this manager had joined a cluster; nothing was changed. Put the file back from a backup. If there is none, remove the manager from the cluster (`weir node remove`), and let it join again with an empty data directory",
                    file.display()
                ),
            ));
        }
        other => other.map_err(|error| Failure::new(Exit::DataDirectory, error))?,
    };
    let cluster = identity.name().cluster;
    if cluster != ClusterId(data.format.cluster) || !identity.name().roles.contain(Role::Manager) {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!("{} is of another cluster, or of no manager; nothing was changed", file.display()),
        ));
    }
    let folder = held.join(CLUSTER_DIR);
    let authority = match Authority::open(&folder) {
        Err(AuthorityError::File(FileError::Missing { .. })) => {
            let files = fetch(&identity, &managers_file::read(&held)?, stop)?;
            let administrators = held.join(ADMINISTRATORS_FILE);
            write_records(&administrators, &files.administrators)
                .map_err(|error| Failure::new(Exit::DataDirectory, error))?;
            // Last: with this file it can take over.
            Authority::receive(&folder, cluster, identity.authority(), files.authority)
        }
        other => other,
    };
    let authority = authority.map_err(|error| Failure::new(Exit::DataDirectory, error))?;
    Ok(Some((Arc::new(authority), identity)))
}

/// Nothing but the managers' files is needed of the connection.
pub(crate) struct NoMessages;

impl Receiver for NoMessages {
    fn buffer(&self, _from: NodeId, _arriving: &IncomingHeader<'_>) -> Option<Buffer> {
        None
    }

    fn connected(&self, _node: NodeId, _peer: &Peer) {}

    fn received(&self, _node: NodeId, _received: Received) {}

    fn ended(&self, _node: NodeId, _why: &LinkError) {}
}

/// Fetches the managers' files from the active manager, which is at one of these addresses.
fn fetch(identity: &Identity, managers: &[String], stop: &Signals<Signal>) -> Result<ManagerFiles, Failure> {
    let failed = |exit, why: String| {
        Failure::message(exit, format!("cannot fetch the cluster's authority from the active manager: {why}"))
    };
    let credentials = Credentials::new(identity).map_err(|error| Failure::new(Exit::DataDirectory, error))?;
    let links = Links::new(LocalNode::new(Arc::new(credentials), Settings::default()));
    let listener = Listener::bind(([127, 0, 0, 1], 0).into())
        .map_err(|error| failed(Exit::Failed, format!("cannot listen on loopback: {error}")))?;
    links
        .start(&listener, OtherServices::default(), None, Arc::new(NoMessages))
        .map_err(|error| failed(Exit::Failed, error.to_string()))?;
    managers.iter().for_each(|manager| links.keep_manager(manager));
    let until = Instant::now() + FETCH_PATIENCE;
    let mut why = format!("no manager at {} lets this one in", managers.join(", "));
    let fetched = loop {
        if let Some(manager) = links.connected().iter().find(|peer| is_manager(peer)) {
            match registration::manager_files(&links, manager.name.node, [0; 32]) {
                Ok(Some(files)) => break Ok(files),
                Ok(None) => why = "it sent nothing".into(),
                Err(error) => why = error.to_string(),
            }
        }
        if Instant::now() >= until {
            break Err(failed(Exit::Unreachable, why));
        }
        if let Ok(Signal::Stop(signal)) = stop.recv_timeout(LOOK) {
            break Err(failed(Exit::Unclean, format!("{signal} came first")));
        }
    };
    links.stop("the files are there", Duration::from_millis(500));
    fetched
}

/// Whether the peer is a manager.
pub(crate) fn is_manager(peer: &PeerIdentity) -> bool {
    peer.name.roles.contain(Role::Manager)
}
