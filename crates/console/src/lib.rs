//! How a command of weir meets the person or script that runs it: exit codes, the error that ends a run, tables and times as text, and
//! signals.
//!
//! Promises: an exit code has one meaning in all commands, and [`Failure`] prints each cause once. The crate knows no command: its callers
//! say what was attempted and which code fits.

pub mod exit;
mod failure;
pub mod signals;
pub mod table;
pub mod time_text;

pub use exit::Exit;
pub use failure::Failure;
