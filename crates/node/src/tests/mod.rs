//! Tests of what this crate says as a whole.

mod forms;
