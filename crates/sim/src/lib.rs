//! A cluster in one thread: the real decisions, namespace and store, on simulated disks, network and clocks. One number decides all that happens, so
//! that whatever is found happens again.
//!
//! What is real: the manager and the disk server, each with its machines, the namespace's operations on the real index and log, the store. What is
//! simulated: time (each node's clock runs differently fast), messages (late, twice, lost with their connection, one way alone), connections, disks (what
//! was not synced is lost, torn or kept), the ends of processes and machines. A disk server's jobs run one after another, in an order that the seed decides.
//! What it does not cover: sockets, threads that run at the same time, O_DIRECT, the engine's own files; tests of their own do.
//!
//! Checked after each event: who answers for what, and whether all is there that somebody is told is there or counts on. What readers see while they
//! read. And, when all is mended, that all clients have come to their end, that each closed file is
//! whole on each store that is said to hold it, that what is kept for a client that is gone is what it wrote, that what was removed is deleted
//! everywhere, and that the namespace finds no fault with itself.

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
