//! `weir store` and `weir node`: changes of the cluster's members.

use manager::{StatusView, StoreView};

use super::{counted, show, store_meant};
use crate::cli::{NodeArgs, NodeCommand, StoreArgs, StoreCommand};
use crate::control::ControlRequest;
use crate::exit::Exit;
use crate::{Failure, store_add};

/// Runs `weir store`.
pub(crate) fn store(args: &StoreArgs) -> Result<Exit, Failure> {
    let (one, ask): (_, fn(u64) -> ControlRequest) = match &args.command {
        StoreCommand::Add(args) => return store_add::run(args),
        StoreCommand::ReadOnly(one) => (one, |store| ControlRequest::StoreReadOnly { store, read_only: true }),
        StoreCommand::Online(one) => (one, |store| ControlRequest::StoreReadOnly { store, read_only: false }),
        StoreCommand::Remove(one) => (one, |store| ControlRequest::StoreRemove { store }),
    };
    let store = store_meant(&one.manager.data, &one.store)?;
    let ask = ask(store.0);
    show(&one.manager, &ask, |stores: &Vec<StoreView>| {
        let found = stores.iter().find(|view| view.store == store);
        vec![match found {
            Some(view) => format!("store {store} at {} is {}", view.location, view.state),
            None => format!("store {store} is removed; {} left", counted(stores.len() as u64, "store")),
        }]
    })
}

/// Runs `weir node`.
pub(crate) fn node(args: &NodeArgs) -> Result<Exit, Failure> {
    let NodeCommand::Remove(args) = &args.command;
    show(&args.manager, &ControlRequest::NodeRemove { name: args.name.clone() }, |status: &StatusView| {
        vec![format!("node {} is removed; {} left", args.name, counted(status.nodes.len() as u64, "node"))]
    })
}
