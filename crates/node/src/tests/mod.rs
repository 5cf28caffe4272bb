//! Tests of the whole crate.

mod forms;
