//! Pieces of bodies on one local disk: bytes, page checksums, crash rules. Knows nothing of names, users, protocols.
//!
//! Promises:
//! - A write is acknowledged when its bytes and the record of its range are in the kernel: SIGKILL cannot undo it, a
//!   power failure can, until [`Writer::sync`] or [`Writer::complete`].
//! - After [`Writer::complete`] and a sync of the log up to its `seq`, the piece comes back whole after any stop.
//! - Every byte that is handed out was compared with the CRC32C of its page.
//! - A piece that was not completed is never shown as complete; its durable prefix is kept.
//! - A number of a body is never used twice.
//!
//! Small pieces lie in the log first and are settled into segment files later; large ones are plain files with a sidecar of
//! checksums (`docs/formats.md`). The records are in a `LoggedIndex`; what is under way is in the log's stream
//! `STORE_DATA`.

mod config;
mod error;
mod reader;
mod status;
mod store;
mod writer;

pub use config::{PIECE_LEN_MAX, Planted, StoreConfig};
pub use error::StoreError;
pub use reader::Reader;
pub use status::{Completed, NewPiece, PieceState, PieceStatus, Space, StoreRecovery, Verified};
pub use store::{RecordIndex, Store};
pub use writer::Writer;
