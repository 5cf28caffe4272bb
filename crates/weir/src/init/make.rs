//! Makes the directories of a new node. A disk server joins its cluster here, so that a refused token is seen at once.

use std::path::{Path, PathBuf};

use config::{ClusterRole, Config};
use foundation::datadir::format_of;
use foundation::layout::{OWN_STORE_DIR, has_joined};
use foundation::{DataDir, DataDirError, DirRole, IfNew};
use link::JoinToken;

use crate::cluster_node::{NodesAddress, in_words};
use crate::exit::Exit;
use crate::serve::{now, open_cluster_dir, open_data_dir, would_make};
use crate::served_stores;
use crate::{Failure, free_addresses, listen, metrics, serve_disk};

/// A directory of the node, and what happened to it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Made {
    pub(super) path: PathBuf,
    /// What it is.
    pub(super) what: String,
    /// Whether it was made now.
    pub(super) fresh: bool,
}

/// Makes the directories of the node that `config` describes, as far as they are missing. With a `token`, or with the identity of an earlier
/// join, a disk server gets its stores too.
///
/// # Errors
/// A directory was refused, an address is not free, or the cluster does not let the node join. If a new data directory cannot be used, it is
/// removed again.
pub(super) fn make(config: &Config, token: Option<&JoinToken>) -> Result<Vec<Made>, Failure> {
    // The file is for later starts, and forbids them what is done here.
    let config = Config { existing: false, ..config.clone() };
    let listen = listen::resolve(&config.listen, config.insecure).map_err(|error| Failure::new(error.exit(), error))?;
    let metrics = config.metrics.as_ref().map(|given| metrics::address(given, config.insecure)).transpose()?;
    let is_new = would_make(&config, config.data.as_deref());
    match config.role {
        None => {
            if is_new {
                free_addresses::check(&[("listen for clients", Some(listen)), ("serve metrics", metrics)])?;
            }
            let data = open_data_dir(config.data.as_ref(), IfNew::Make)?;
            Ok(vec![made(&data, format!("a single node's data directory, store {}", data.format.store))])
        }
        Some(ClusterRole::Manager) => {
            let nodes = NodesAddress::of(&config)?;
            if is_new {
                nodes.check_free(listen, metrics)?;
            }
            let data = open_cluster_dir(config.data.as_ref(), DirRole::Manager, IfNew::Make)?;
            Ok(vec![made(&data, "a manager's data directory".into())])
        }
        Some(ClusterRole::Disk) => {
            let nodes = NodesAddress::of(&config)?;
            if listen.ip().is_unspecified() && config.advertise.is_none() {
                return Err(serve_disk::no_address_for_clients(&config.listen));
            }
            let data = config.data.as_deref();
            if let Some(data) = data.filter(|data| token.is_none() && !has_joined(data)) {
                return Err(serve_disk::not_joined(data));
            }
            check_stores(&config)?;
            if is_new {
                nodes.check_free(listen, metrics)?;
            }
            disk_server(&config, token)
        }
    }
}

fn made(data: &DataDir, what: String) -> Made {
    Made { path: data.path.clone(), what, fresh: data.fresh }
}

/// Refuses what cannot become a store, before the token is used.
fn check_stores(config: &Config) -> Result<(), Failure> {
    let refused = |error: DataDirError| Failure::new(error.exit(), error);
    let in_data = config.data.as_ref().map(|data| data.join(OWN_STORE_DIR));
    for table in config.stores.iter().filter(|table| Some(&table.dir) != in_data.as_ref()) {
        let dir = &table.dir;
        match format_of(dir).map_err(refused)? {
            Some(format) if format.role != DirRole::Store => {
                let what = format!("{} is {}, and cannot be a store; nothing was touched", dir.display(), format.role);
                return Err(Failure::message(Exit::DataDirectory, what));
            }
            None if !dir.parent().is_some_and(Path::is_dir) => {
                return Err(refused(DataDirError::NoParent { path: dir.clone() }));
            }
            _ => {}
        }
    }
    Ok(())
}

fn disk_server(config: &Config, token: Option<&JoinToken>) -> Result<Vec<Made>, Failure> {
    // The service would refuse to start without one.
    serve_disk::default_location(config)?;
    let mut data = open_cluster_dir(config.data.as_ref(), DirRole::Disk, IfNew::Make)?;
    let identity = match serve_disk::who_we_are(&mut data, token) {
        Ok(identity) => identity,
        Err(failure) => {
            let failure = in_words(&data, &failure);
            data.abandon();
            return Err(failure);
        }
    };
    let (cluster, node) = (identity.name().cluster, identity.name().node);
    let mut all = vec![made(&data, format!("the data directory of node {node} of cluster {cluster}, a disk server"))];
    let stores = served_stores::make(&data, config, cluster)?;
    all.extend(stores.into_iter().map(|made| Made {
        path: made.dir,
        what: format!("store {}", made.store),
        fresh: made.fresh,
    }));
    Ok(all)
}

/// A new data directory of a single node, without more.
pub(super) fn bare(path: &Path) -> Result<(DataDir, Made), Failure> {
    let data = DataDir::open(path, IfNew::Make, now()).map_err(|error| Failure::new(error.exit(), error))?;
    let what = format!("store {}", data.format.store);
    let made = made(&data, what);
    Ok((data, made))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use link::{Authority, Identity, Roles};
    use types::{ClusterId, NodeId};

    use super::*;
    use crate::stores_file;

    /// A disk server that has joined, with two stores in its configuration.
    fn joined(folder: &Path) -> (Config, [PathBuf; 3]) {
        let dirs @ [data, one, two] = &["data", "s1", "s2"].map(|name| folder.join(name));
        let cluster = ClusterId(5);
        let made = DataDir::open_as(data, DirRole::Disk, None, IfNew::Make, now()).unwrap();
        let authority = Authority::create(&folder.join("authority"), cluster, now()).unwrap();
        let day = std::time::Duration::from_secs(86_400);
        let identity = Identity::issue(&authority, NodeId(2), Roles::DISK, now(), day).unwrap();
        identity.write(&data.join("node/identity")).unwrap();
        drop(made);
        let text = format!(
            "role = \"disk\"\ndata = {data:?}\nlisten = \"127.0.0.1:1094\"\nnodes = \"127.0.0.1:1095\"\n\
             [[store]]\ndir = {one:?}\n[[store]]\ndir = {two:?}\n"
        );
        (Config::of_text(&folder.join("weir.toml"), &text).unwrap(), dirs.clone())
    }

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Another user serves them, who could not use what this command made in directories of that user.
    #[test]
    fn stores_are_made_and_left_for_the_service_to_open() {
        let temp = tempfile::tempdir().unwrap();
        let (config, [data, one, two]) = joined(temp.path());
        let made = make(&config, None).unwrap();
        let seen: Vec<_> = made.iter().map(|made| (made.path.clone(), made.fresh)).collect();
        assert_eq!(seen, [(data.clone(), false), (one.clone(), true), (two.clone(), true)]);
        for dir in [&one, &two] {
            assert_eq!(names(dir), ["FORMAT", "lock"]);
            assert_eq!(format_of(dir).unwrap().unwrap().cluster, 5);
        }
        assert_eq!(names(&data.join("node")), ["identity"]);
        let again = make(&config, None).unwrap();
        assert!(again.iter().all(|made| !made.fresh) && again[1].what == made[1].what);
    }

    #[test]
    fn no_store_is_made_where_the_node_had_one() {
        let temp = tempfile::tempdir().unwrap();
        let (config, [data, one, two]) = joined(temp.path());
        let known = [(one.clone(), types::StoreId(7))].into();
        stores_file::write(&disk::RealDisk::open(&data).unwrap(), &known).unwrap();
        let refused = make(&config, None).unwrap_err().to_string();
        assert!(refused.contains("store 7 was in") && refused.contains("is its disk mounted?"), "{refused}");
        assert!(!one.exists() && !two.exists());
    }
}
