//! The integration tests of the journal: one program, because each program costs a link.

mod begin;
mod crash;
mod damage;
mod failed_sync;
mod full_disk;
mod log;
mod support;
mod threads;
