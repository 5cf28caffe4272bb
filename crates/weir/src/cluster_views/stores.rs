//! `weir stores`.

use manager::StoreView;

use super::{counted, show};
use crate::Failure;
use crate::cli::ManagerArgs;
use crate::config::units::show_size;
use crate::control::ControlRequest;
use crate::exit::Exit;
use crate::table::table_lines;

/// Runs the command.
pub(crate) fn run(args: &ManagerArgs) -> Result<Exit, Failure> {
    show(args, &ControlRequest::Stores, |stores: &Vec<StoreView>| {
        if stores.is_empty() {
            return vec!["there are no stores yet; disk servers bring them when they join".into()];
        }
        let rows: Vec<Vec<String>> = stores.iter().map(row).collect();
        let heading = ["location", "node", "class", "state", "capacity", "free", "store"];
        let mut lines = table_lines(&heading, &rows);
        lines.push(counted(stores.len() as u64, "store"));
        lines
    })
}

fn row(store: &StoreView) -> Vec<String> {
    // The size of a disk is unknown until its node has registered.
    let size = |bytes: u64| if store.capacity == 0 { "?".into() } else { show_size(bytes) };
    vec![
        store.location.clone(),
        store.node.to_string(),
        store.class.clone().unwrap_or_default(),
        store.state.to_string(),
        size(store.capacity),
        size(store.free.saturating_sub(store.reserve)),
        store.store.to_string(),
    ]
}
