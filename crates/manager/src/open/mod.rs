//! The open service decides where a client that opens a file is sent. Its only state is an estimate of the disk servers' memory.

mod open_request;
mod opening;
mod reading;
mod striping;
mod writers_room;

pub use open_request::{OpenRequest, OpeningError, Redirect};
pub(crate) use opening::Permitted;
pub(crate) use writers_room::WritersRooms;
