//! `weir stores`.

use config::units::show_size;
use control::ControlRequest;
use manager::StoreView;

use super::{counted, show};
use crate::Failure;
use crate::cli::ManagerArgs;
use crate::exit::Exit;
use crate::table::table_lines;

const HEADING: [&str; 7] = ["location", "node", "class", "state", "capacity", "free", "store"];
/// The column of the classes.
const CLASS: usize = 2;

/// Runs the command.
pub(crate) fn run(args: &ManagerArgs) -> Result<Exit, Failure> {
    show(args, &ControlRequest::Stores, |stores: &Vec<StoreView>| {
        if stores.is_empty() {
            return vec!["there are no stores yet; disk servers bring them when they join".into()];
        }
        // Most clusters have no classes, and the table has little room.
        let has_classes = stores.iter().any(|store| store.class.is_some());
        let without_class = |mut cells: Vec<String>| {
            cells.remove(CLASS);
            cells
        };
        let rows: Vec<Vec<String>> = stores.iter().map(row).collect();
        let mut lines = match has_classes {
            true => table_lines(&HEADING, &rows),
            false => {
                let heading: Vec<&str> = HEADING.iter().copied().filter(|heading| *heading != HEADING[CLASS]).collect();
                table_lines(&heading, &rows.into_iter().map(without_class).collect::<Vec<_>>())
            }
        };
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
