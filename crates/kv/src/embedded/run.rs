//! Runs one operation of a batch.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::queue::Request;
use crate::batch::BATCH_MAX;
use crate::write_set::{Transaction, WriteSet};
use crate::{KvError, OpOutcome, Read};

/// The result of an operation in its batch.
#[derive(Clone, Debug)]
pub enum OpResult {
    /// Its changes are in the write set.
    Committed,
    /// It decided to change nothing.
    Aborted,
    /// It failed, and its changes are undone.
    Refused(KvError),
}

/// Runs an operation over the changes of earlier ones in the batch. Undoes it unless it commits.
pub fn run_one(request: &mut Request, base: &dyn Read, writes: &mut WriteSet) -> OpResult {
    let before = writes.savepoint();
    let weight = writes.weight();
    let op = &mut request.op;
    let ran = match catch_unwind(AssertUnwindSafe(|| op(&mut Transaction { base, writes: &mut *writes }))) {
        Ok(OpOutcome::Commit) => match writes.refused_since(before) {
            Some(error) => OpResult::Refused(error),
            None if writes.weight() - weight > BATCH_MAX / 2 => OpResult::Refused(KvError::TooLarge {
                what: "the changes of one operation",
                len: writes.weight() - weight,
                limit: BATCH_MAX / 2,
            }),
            None => OpResult::Committed,
        },
        Ok(OpOutcome::Abort) => OpResult::Aborted,
        Err(panic) => OpResult::Refused(KvError::Panicked(panic_text(&*panic))),
    };
    if !matches!(ran, OpResult::Committed) {
        writes.rollback_to(before);
    }
    writes.forget_savepoints();
    ran
}

pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}
