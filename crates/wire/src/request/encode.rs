use crate::{Request, StreamId, WireError};

#[allow(clippy::todo)]
pub(super) fn request(_request: &Request, _stream: StreamId, _out: &mut Vec<u8>) -> Result<(), WireError> {
    todo!()
}
