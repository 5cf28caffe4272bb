//! The integration tests of the manager: one program, because each program costs a link.

mod house;
mod manager;
mod registration;
