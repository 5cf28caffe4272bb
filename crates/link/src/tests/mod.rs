//! Nodes on real sockets with real TLS, and what strangers, liars and other clusters get of them.

mod certificates;
mod hostile;
mod joining;
mod renewal;
mod requests;
mod world;
