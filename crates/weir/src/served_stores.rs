//! The stores of a disk server: which ones its configuration names, where they were before, and how they are opened and closed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use config::{Config, StoreTable};
use foundation::datadir::format_of;
use foundation::layout::OWN_STORE_DIR;
use foundation::startup_report::say_all;
use foundation::{DataDir, DataDirError, DirRole, IfNew, StoreFoundation, StoreOpenError, disk_of};
use types::{ClusterId, Location, StoreId};

use crate::Failure;
use crate::cluster_node::now;
use crate::exit::Exit;
use crate::stores_file::{self, Stores};

/// A store and its settings.
pub(crate) struct ServedStore {
    pub(crate) foundation: StoreFoundation,
    /// Held for its lock.
    _directory: DataDir,
    pub(crate) table: StoreTable,
    pub(crate) location: Location,
}

/// The stores that a configuration names, and those that the node in its data directory has served.
struct NamedStores {
    tables: Vec<StoreTable>,
    known: Stores,
}

impl NamedStores {
    /// Refuses a configuration that leaves out a store of this node.
    fn of(data: &DataDir, config: &Config) -> Result<Self, Failure> {
        let in_data = data.path.join(OWN_STORE_DIR);
        let tables = match config.stores.is_empty() {
            true => vec![StoreTable { dir: in_data.clone(), ..StoreTable::default() }],
            false => config.stores.clone(),
        };
        let key = |dir: &Path| stores_file::key(&data.path, dir);
        let known = stores_file::read(&*disk_of(data)).map_err(|error| Failure::new(Exit::DiskFailed, error))?;
        if config.stores.is_empty() && !known.is_empty() && !known.contains_key(&key(&in_data)) {
            return Err(none_named(&known));
        }
        if matches!(format_of(&in_data), Ok(Some(_))) && !tables.iter().any(|table| key(&table.dir) == key(&in_data)) {
            return Err(left_out(&in_data));
        }
        Ok(Self { tables, known })
    }
}

/// A directory that is a store, and whether it was made just now.
pub(crate) struct MadeStore {
    pub(crate) dir: PathBuf,
    pub(crate) store: StoreId,
    pub(crate) fresh: bool,
}

/// Makes the stores that `config` names and the disk server in `data` does not have yet. It opens none and records none: whoever serves them
/// does that, and may be another user than the one who makes them.
pub(crate) fn make(data: &DataDir, config: &Config, cluster: ClusterId) -> Result<Vec<MadeStore>, Failure> {
    let NamedStores { tables, known } = NamedStores::of(data, config)?;
    let make = |StoreTable { dir, .. }: StoreTable| {
        let was = known.get(&stores_file::key(&data.path, &dir));
        let if_new = if was.is_some() { IfNew::Refuse } else { IfNew::Make };
        match (DataDir::open_as(&dir, DirRole::Store, Some(cluster), if_new, now()), was) {
            (Ok(made), _) => Ok(MadeStore { store: made.format.store, fresh: made.fresh, dir }),
            (Err(DataDirError::Missing { path }), Some(was)) => Err(missing(&path, *was, data)),
            (Err(error), _) => Err(Failure::new(error.exit(), error)),
        }
    };
    tables.into_iter().map(make).collect()
}

/// Opens the stores of the disk server in `data`, and makes new ones as far as `if_new` allows. It never makes a store where this node had one
/// before: then its disk is not mounted, or lost.
pub(crate) fn open(
    data: &DataDir,
    config: &Config,
    cluster: ClusterId,
    default_location: &Location,
    if_new: IfNew,
) -> Result<Vec<ServedStore>, Failure> {
    let NamedStores { tables, known } = NamedStores::of(data, config)?;
    let mut seen: BTreeMap<_, PathBuf> = BTreeMap::new();
    let mut stores = Vec::with_capacity(tables.len());
    let key = |dir: &Path| stores_file::key(&data.path, dir);
    let mut found = Stores::new();
    let settings = config.foundation_to_serve();
    for table in tables {
        let was = known.get(&key(&table.dir));
        let if_new = if was.is_some() { IfNew::Refuse } else { if_new };
        let (lock, foundation) =
            StoreFoundation::open_store(&table.dir, cluster, table.reserve, &settings, if_new, now()).map_err(
                |error| match (error, was) {
                    (StoreOpenError::Directory(DataDirError::Missing { path }), Some(was)) => {
                        missing(&path, *was, data)
                    }
                    (error @ StoreOpenError::Directory(DataDirError::Missing { .. }), None) => {
                        let (dir, data) = (table.dir.display(), data.path.display());
                        let what = format!("{error} `weir store add {dir} --data {data}` makes a new store");
                        Failure::message(error.exit(), what)
                    }
                    (error, _) => Failure::new(error.exit(), error),
                },
            )?;
        found.insert(key(&table.dir), foundation.objects.id);
        let (id, dir) = (foundation.objects.id, table.dir.clone());
        if let Some(other) = seen.insert(id, dir) {
            return Err(Failure::message(
                Exit::DataDirectory,
                format!(
                    "{} and {} are both store {id}: one is a copy of the other. Take one of them away",
                    other.display(),
                    table.dir.display()
                ),
            ));
        }
        tracing::info!("store {id} in {}", table.dir.display());
        say_all(foundation.startup_report(config.grace.as_secs()));
        let location = table.location.clone().unwrap_or_else(|| default_location.clone());
        let class = table.class.clone().or_else(|| config.class.clone());
        stores.push(ServedStore { foundation, _directory: lock, location, table: StoreTable { class, ..table } });
    }
    // A store that is not configured any more stays known at its place: it may be configured again.
    let elsewhere = |id: &StoreId| found.values().any(|store| store == id);
    let left: Vec<_> = known.iter().filter(|(dir, id)| !found.contains_key(*dir) && !elsewhere(id)).collect();
    for (dir, id) in &left {
        // A directory inside the data directory has a relative path.
        let dir = data.path.join(dir);
        if matches!(format_of(&dir), Ok(Some(format)) if format.store == **id) {
            tracing::warn!(
                "store {id} is in {} and is not served: this node served it before, and the configuration has no [[store]] with this directory any more. Its files wait for it",
                dir.display()
            );
        }
    }
    let now_known: Stores = left.into_iter().chain(&found).map(|(dir, id)| (dir.clone(), *id)).collect();
    if now_known != known
        && let Err(error) = stores_file::write(&*disk_of(data), &now_known)
    {
        // Like a full disk, this is no reason not to serve.
        tracing::warn!("cannot record where the stores of this node are: {error}");
    }
    Ok(stores)
}

/// The configuration names no store, and this node's stores were in other places than its data directory.
fn none_named(known: &Stores) -> Failure {
    let dirs: Vec<String> = known.keys().map(|dir| dir.display().to_string()).collect();
    Failure::message(
        Exit::DataDirectory,
        format!(
            "the configuration names no [[store]], and this node served {} before: no new store is made in its data directory. \
             Name the directories as [[store]]; to replace a lost one, make a store with `weir store add DIR`",
            dirs.join(", ")
        ),
    )
}

/// The configuration names stores, and not the one in the data directory.
fn left_out(in_data: &Path) -> Failure {
    Failure::message(
        Exit::DataDirectory,
        format!(
            "the configuration does not name the store in {0}, which this node has served: its files could not be \
             read. Add a [[store]] with dir = \"{0}\". If the store is drained, or shall not be served, move its \
             directory away",
            in_data.display()
        ),
    )
}

/// A directory that had a store is empty or gone.
fn missing(dir: &Path, store: StoreId, data: &DataDir) -> Failure {
    let (dir, data) = (dir.display(), data.path.display());
    Failure::message(
        Exit::DataDirectory,
        format!(
            "store {store} was in {dir}, and there is no store now: is its disk mounted? Nothing was made or changed. If \
             the disk is lost, take its [[store]] out of the configuration, or make a new store in its place with `weir \
             store add {dir} --data {data}`; then remove the lost one on the manager: `weir store remove {store} --lost`"
        ),
    )
}

/// Closes all stores. Returns the first error.
pub(crate) fn close(stores: &[ServedStore]) -> Result<(), Failure> {
    let mut closed = Ok(());
    for store in stores {
        let this = store.foundation.close().map_err(|error| {
            Failure::new(Exit::Unclean, error).while_doing(format!("the store in {}", store.table.dir.display()))
        });
        closed = closed.and(this);
    }
    closed
}
