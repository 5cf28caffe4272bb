//! Metrics of running nodes: writes ([`exposition`]) and reads ([`Node`]) the text format. Also `weir top`, which shows the changes between
//! looks ([`show()`]). And the judgement of how a node or a cluster is ([`health`]).
//!
//! The crate knows no server: each part of a node writes its own metrics into the text, and a whole cluster is just another [`Source`].

pub mod exposition;
pub mod health;
mod node;
mod page;
mod process;
mod rates;
mod screen;
mod show;

pub use node::Node;
pub use page::{PageError, Target};
pub use process::Process;
pub use screen::fitted;
pub use show::{Seen, ShowOptions, Size, Source, show};
