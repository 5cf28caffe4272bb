//! A `[[store]]` of the configuration: one store of a disk server.

use std::path::PathBuf;

use types::{Location, StoreClass};

/// The settings of one store. A missing setting has the value of the whole node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreTable {
    /// Its directory.
    pub dir: PathBuf,
    /// Its location.
    pub location: Option<Location>,
    /// The class that its administrator gave it.
    pub class: Option<StoreClass>,
    /// Bytes to keep free on its disk.
    pub reserve: Option<u64>,
}
