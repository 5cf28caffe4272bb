//! A cluster in one thread: the real decisions, namespace and store, on simulated disks, network and clocks. One number decides everything that happens,
//! so whatever is found happens again.
//!
//! Real are the manager and the disk server, each with its machines, the namespace's operations on the real index and journal, and the store. A disk
//! server's jobs run one after another, in an order that the seed decides. Simulated are:
//!
//! - time: each node's clock runs at its own rate;
//! - messages: late, twice, lost with their connection, one way only;
//! - disks: what was not synced is lost, torn or kept;
//! - ends of processes and machines.
//!
//! It does not cover sockets, threads that run at the same time, `O_DIRECT` or the engine's own files; other tests do (`docs/explanation/tests.md`).
//!
//! # What is checked
//!
//! - After each event: who answers for what, and whether everything is there that somebody was told is there, or counts on.
//! - At each read: what the reader sees.
//! - When everything is repaired: all clients have come to their end; each closed file is whole on each store that is said to hold it; what is kept for a
//!   client that is gone is what it wrote; what was removed is deleted everywhere; the namespace finds no fault with itself.
//!
//! `weir-sim --seed N --tell` prints the story of a seed. A violation prints the command that repeats the run.

mod client;
mod events;
mod manager;
mod message;
mod model;
mod server;
mod settings;
mod stored;
mod world;

pub use model::Violation;
pub use settings::{Bug, Counts, Fault, Faults, Scenario, Settings};
pub use world::run;
