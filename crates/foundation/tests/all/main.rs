//! Directories of nodes.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs)] // a test may fail this way

mod cluster_directories;
mod harness;
mod several_managers;
