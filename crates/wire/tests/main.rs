//! The integration tests of XRootD's frames: one program, because each program costs a link.

mod behaviour;
mod captures;
mod common;
mod planted;
mod properties;
