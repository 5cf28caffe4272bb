//! The integration tests of the front end: one program, because each program costs a link.

mod batch;
mod bounds;
mod endings;
mod hostile;
mod pipelined;
mod planted;
mod requests;
mod world;
mod writers;
