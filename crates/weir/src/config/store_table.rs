//! A `[[store]]` of the configuration: a store of a disk server.

use std::path::PathBuf;

use types::{Location, StoreClass};

/// What is said of a store. What is not, is as for the whole node.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct StoreTable {
    /// Its directory.
    pub dir: PathBuf,
    /// Where it stands.
    pub location: Option<Location>,
    /// What its administrator calls its kind.
    pub class: Option<StoreClass>,
    /// Bytes kept free on its disk.
    pub reserve: Option<u64>,
}
