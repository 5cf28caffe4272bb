//! How a command of weir meets the person or the script that runs it: the exit codes, the error that ends a run, tables and times as text,
//! and the signals that ask for an end.
//!
//! Promises: an exit code has one meaning in all commands, and [`Failure`] prints each cause once. The crate knows no command: what is
//! attempted, and which code fits, is said by its callers.

pub mod exit;
mod failure;
pub mod signals;
pub mod table;
pub mod time_text;

pub use exit::Exit;
pub use failure::Failure;
