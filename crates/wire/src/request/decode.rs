use crate::{Request, RequestHeader, WireError};

#[allow(clippy::todo)]
pub(super) fn request(_header: &RequestHeader, _payload: &[u8]) -> Result<Request, WireError> {
    todo!()
}
