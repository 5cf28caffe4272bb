//! The integration tests of placement: one program, because each program costs a link.

mod placement;
mod placement_balance;
mod placement_later;
mod stores;
mod study_d;
