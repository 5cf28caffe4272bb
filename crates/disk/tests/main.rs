//! The integration tests of disks: one program, because each program costs a link.

mod behaviour;
mod simulated;
