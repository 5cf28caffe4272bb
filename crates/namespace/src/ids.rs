//! Where inode and body numbers come from: ranges of 2^20, taken durably before the first of them is handed out.

use types::{BodyId, Ino};

use crate::NsError;

/// Hands out numbers that were never handed out before, by any run.
#[derive(Debug)]
pub struct IdSource;

impl IdSource {
    /// The next inode number.
    pub fn next_ino(&self) -> Result<Ino, NsError> {
        todo!()
    }
    /// The next body number.
    pub fn next_body(&self) -> Result<BodyId, NsError> {
        todo!()
    }
}
