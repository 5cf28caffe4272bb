//! Nodes on real sockets with real TLS, and how they treat strangers, liars and other clusters.

mod administrators;
mod certificates;
mod hostile;
mod joining;
mod renewal;
mod requests;
mod rotation;
mod world;
