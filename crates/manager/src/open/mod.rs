//! The open service: where a client is sent that opens a file. It keeps no state, but for an estimate of disk servers' memory.

mod open_request;
mod opening;
mod reading;
mod striping;
mod writers_room;

pub use open_request::{OpenRequest, OpeningError, Redirect};
pub(crate) use opening::Permitted;
pub(crate) use writers_room::WritersRooms;
