//! A cluster in one thread: the real decisions, namespace and store, on simulated disks, network and clocks. One number decides everything that
//! happens, so every finding can be repeated.
//!
//! The manager and the disk server are real: their state machines, the namespace's operations on the real index and journal, and the store. A disk
//! server's jobs run one after another, in an order that the seed decides. Its scrub reads one replica at each tick. These are simulated:
//!
//! - time: each node's clock runs at its own rate;
//! - messages: they come late or twice, are lost with their connection, or pass one way only;
//! - the database under the namespace, where the scenario has one (`world/managers.rs`);
//! - disks: unsynced bytes are lost, torn or kept, and bytes at rest change;
//! - the ends of processes and machines.
//!
//! The simulation does not cover sockets, threads that run at the same time, `O_DIRECT` or the engine's own files. Other tests do
//! (`docs/explanation/tests.md`).
//!
//! # What is checked
//!
//! - After each event: which stores answer for which replicas; and that all data exists that was acknowledged to a client, or that a node
//!   needs.
//! - At each read: the bytes that the reader sees.
//! - After all repairs: every client has finished. Each closed file is complete on each of its holders. The bytes kept for a vanished client are
//!   those that it wrote. Removed files are deleted everywhere. The namespace passes its own check.
//!
//! `weir-sim --seed N --tell` prints the events of a seed. A violation prints the command that repeats the run.

mod client;
mod counts;
mod events;
mod founding;
mod manager;
mod message;
mod model;
mod server;
mod settings;
mod stored;
mod world;

pub use counts::Counts;
pub use model::Violation;
pub use settings::{Bug, Fault, Faults, Scenario, Settings};
pub use world::run;
