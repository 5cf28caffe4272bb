//! Figures of running nodes: the text format of metrics, written ([`exposition`]) and read ([`Node`]), and `weir top`, which shows what changes
//! from look to look ([`show()`]).
//!
//! The crate knows no server: what a node counts is put into the text by whoever has it, and a whole cluster is one more [`Source`].

pub mod exposition;
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
