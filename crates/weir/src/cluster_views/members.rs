//! `weir store` and `weir node`: changes of the cluster's members.

use control::ControlRequest;
use manager::{StatusView, StoreView};
use types::StoreId;

use super::{asked, counted, lost, show, store_meant, stores_meant};
use crate::cli::{NodeArgs, NodeCommand, OneStoreArgs, RemoveStoreArgs, StoreArgs, StoreCommand};
use crate::exit::Exit;
use crate::{Failure, store_add};

/// Runs `weir store`.
pub(crate) fn store(args: &StoreArgs) -> Result<Exit, Failure> {
    match &args.command {
        StoreCommand::Add(args) => store_add::run(args),
        StoreCommand::ReadOnly(one) => set_read_only(one, true),
        StoreCommand::Online(one) => set_read_only(one, false),
        StoreCommand::Remove(args) if args.lost => lost::run(args),
        StoreCommand::Remove(args) => {
            let RemoveStoreArgs { stores, manager, .. } = args;
            let stores = stores_meant(&manager.data, stores.store.as_deref(), stores.node.as_deref())?;
            let Some((last, before)) = stores.split_last() else { return Ok(Exit::Done) };
            for store in before {
                let _: Vec<StoreView> = asked(&manager.data, &ControlRequest::StoreRemove { store: store.0 })?;
            }
            show(manager, &ControlRequest::StoreRemove { store: last.0 }, |left: &Vec<StoreView>| {
                let left = format!("{} left", counted(left.len() as u64, "store"));
                let removed = |store: &StoreId| format!("store {store} is removed; {left}");
                stores.iter().map(removed).collect()
            })
        }
    }
}

fn set_read_only(one: &OneStoreArgs, read_only: bool) -> Result<Exit, Failure> {
    let store = store_meant(&one.manager.data, &one.store)?;
    show(&one.manager, &ControlRequest::StoreReadOnly { store: store.0, read_only }, |stores: &Vec<StoreView>| {
        let found = stores.iter().find(|view| view.store == store);
        found.map(|view| format!("store {store} at {} is {}", view.location, view.state)).into_iter().collect()
    })
}

/// Runs `weir node`.
pub(crate) fn node(args: &NodeArgs) -> Result<Exit, Failure> {
    let NodeCommand::Remove(args) = &args.command;
    show(
        &args.manager,
        &ControlRequest::NodeRemove { name: args.name.clone(), force: args.force },
        |status: &StatusView| {
            vec![format!("node {} is removed; {} left", args.name, counted(status.nodes.len() as u64, "node"))]
        },
    )
}
