//! `weir stores`, `weir status`, `weir file`, `weir policy`, `weir fsck --cluster`: the running manager's view of its cluster, as tables or as JSON.

mod drain;
mod file;
mod fsck;
mod lost;
mod members;
mod missing;
mod policy;
mod progress;
mod repair;
mod restored;
mod status;
mod stores;

use std::io::Write as _;

use control::ControlRequest;
use manager::{NodeView, StatusView, StoreView};
use serde::Serialize;
use serde::de::DeserializeOwned;
use types::{NodeId, StoreId};

use crate::Failure;
use crate::cli::{ManagerArgs, TargetArgs};
use crate::context::Target;
use crate::exit::Exit;

pub(crate) use drain::run as drain;
pub(crate) use file::run as file;
pub(crate) use fsck::run as fsck;
pub(crate) use members::{node, store};
pub(crate) use missing::run as missing;
pub(crate) use policy::run as policy;
pub(crate) use repair::run as repair;
pub(crate) use restored::run as restored;
pub(crate) use status::{check, run as status};
pub(crate) use stores::run as stores;

/// Asks the manager and prints its answer: as JSON, or as `shown` formats it.
pub(crate) fn show<T: Serialize + DeserializeOwned>(
    args: &ManagerArgs,
    what: &ControlRequest,
    shown: impl FnOnce(&T) -> Vec<String>,
) -> Result<Exit, Failure> {
    let answer: T = asked(&args.data, what)?;
    print(args, &answer, shown)
}

/// Prints an answer: as JSON, or as `shown` formats it.
pub(crate) fn print<T: Serialize>(
    args: &ManagerArgs,
    answer: &T,
    shown: impl FnOnce(&T) -> Vec<String>,
) -> Result<Exit, Failure> {
    let lines = if args.json {
        vec![serde_json::to_string(answer).map_err(|error| Failure::new(Exit::Failed, error))?]
    } else {
        shown(answer)
    };
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let printed = lines.iter().try_for_each(|line| writeln!(out, "{line}")).and_then(|()| out.flush());
    match printed {
        // A closed reader (`| head`) is no error.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(Failure::new(Exit::Failed, error)),
        _ => Ok(Exit::Done),
    }
}

/// The answer of the manager that `target` names.
pub(crate) fn asked<T: DeserializeOwned>(target: &TargetArgs, what: &ControlRequest) -> Result<T, Failure> {
    let target = Target::of(target)?;
    target.ask_long(what).map_err(|error| target.failure(error, "this is answered by a running manager"))
}

/// Finds the store that an administrator names: by number, or by the end of its location.
fn store_meant(data: &TargetArgs, said: &str) -> Result<StoreId, Failure> {
    if let Ok(number) = said.parse() {
        return Ok(StoreId(number));
    }
    let stores: Vec<StoreView> = asked(data, &ControlRequest::Stores)?;
    the_store(&stores, said).map_err(|why| Failure::message(Exit::NotFound, why))
}

/// The stores that an administrator names: one, or those of a node.
fn stores_meant(data: &TargetArgs, store: Option<&str>, node: Option<&str>) -> Result<Vec<StoreId>, Failure> {
    let Some(node) = node else { return store.map(|said| store_meant(data, said)).into_iter().collect() };
    let status: StatusView = asked(data, &ControlRequest::ClusterStatus)?;
    let node = the_node(&status.nodes, node).map_err(|why| Failure::message(Exit::NotFound, why))?;
    let stores: Vec<StoreView> = asked(data, &ControlRequest::Stores)?;
    let found: Vec<StoreId> = stores.iter().filter(|store| store.node == node).map(|store| store.store).collect();
    match found.is_empty() {
        true => Err(Failure::message(Exit::NotFound, format!("node {node} has no stores; `weir stores` lists them"))),
        false => Ok(found),
    }
}

/// The node with this number, this name, or stores at locations that end like this: several nodes of a machine have its name.
fn the_node(nodes: &[NodeView], said: &str) -> Result<NodeId, String> {
    // A number is unique, whatever the names are.
    if let Some(node) = nodes.iter().find(|node| node.node.to_string() == said) {
        return Ok(node.node);
    }
    let mut found: Vec<&NodeView> = nodes.iter().filter(|node| node.name == said).collect();
    if found.is_empty() {
        found = nodes.iter().filter(|node| node.locations.iter().any(|location| is_at(location, said))).collect();
    }
    match found.as_slice() {
        [one] => Ok(one.node),
        [] => Err(format!("there is no node {said}; `weir status` has the names and numbers")),
        _ => {
            let numbers: Vec<String> = found.iter().map(|node| node.node.to_string()).collect();
            let text = "say which by its number, or by the end of its location";
            Err(format!("there are several nodes {said}: {}; {text}", numbers.join(", ")))
        }
    }
}

/// Whether a location ends like this, from the beginning of one of its names on.
fn is_at(location: &str, said: &str) -> bool {
    location == said || location.strip_suffix(said).is_some_and(|before| before.ends_with('/'))
}

fn the_store(stores: &[StoreView], said: &str) -> Result<StoreId, String> {
    let found: Vec<&StoreView> = stores.iter().filter(|store| is_at(&store.location, said)).collect();
    let shown =
        || found.iter().map(|view| format!("{} at {}", view.store, view.location)).collect::<Vec<_>>().join(", ");
    match found.as_slice() {
        [one] => Ok(one.store),
        [] => Err(format!("there is no store {said}, nor one at such a location; `weir stores` lists them")),
        _ => Err(format!(
            "there are several stores at {said}: {}; say which by its number, or all of a node with --node",
            shown()
        )),
    }
}

/// `1 store`, `2 stores`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use cluster::placement::StoreState;
    use types::NodeId;

    use super::*;

    #[test]
    fn a_store_is_found_by_its_location_too() {
        let store = |number: u64, location: &str| StoreView {
            store: StoreId(number),
            node: NodeId(2),
            name: String::new(),
            location: location.into(),
            class: None,
            state: StoreState::Online,
            wanted: StoreState::Online,
            capacity: 0,
            reserve: 0,
            free: 0,
            load_permille: 0,
        };
        let stores = [store(1, "a/r1/disk1"), store(2, "a/r1/disk2"), store(3, "b/r1/disk1"), store(4, "b/r1/mydisk2")];
        assert_eq!(the_store(&stores, "a/r1/disk1"), Ok(StoreId(1)));
        assert_eq!(the_store(&stores, "disk2"), Ok(StoreId(2)), "not that of mydisk2");
        assert_eq!(the_store(&stores, "b/r1/disk1"), Ok(StoreId(3)));
        let several = the_store(&stores, "disk1").unwrap_err();
        assert!(several.contains("1 at a/r1/disk1, 3 at b/r1/disk1"), "{several}");
        for nothing in ["a/r1", "isk1", "disk9", ""] {
            assert!(the_store(&stores, nothing).unwrap_err().contains("no store"), "{nothing}");
        }
    }
}
