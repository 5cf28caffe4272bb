//! prepare, and the query for the state of such a request. Every file is on disk from its first byte, so there is
//! nothing to stage or evict. A request is complete at once, and the answers say so. The server does not remember
//! requests; their ids must only be distinct.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::json;
use service::FileKind;
use wire::request::{Prepare, PrepareOptions, Query};
use wire::{ErrorNumber, StreamId};

use crate::connection::Connection;
use crate::from_wire::parse_line;
use crate::to_wire::RequestError;

/// The prefix of a request's id.
const ID_PREFIX: &str = "weir-";
/// Maximum length of an id in a request, in bytes.
const ID_LEN_MAX: usize = 256;

fn fresh_id() -> String {
    // The standard library's hasher has a new key for each process, and counts up with each use.
    format!("{ID_PREFIX}{:016x}", RandomState::new().hash_one(0_u8))
}

fn no_id() -> RequestError {
    RequestError::new(ErrorNumber::ARG_MISSING, "The request names no id; give the one that prepare answered")
}

impl Connection {
    /// kXR_prepare. Staging is answered with the id of the request, and cancelling with the given id. Other requests
    /// (eviction, hints) are also answered with an id, because XrdCl's Python bindings cannot handle an empty answer.
    #[inline(never)] // see `dispatch`
    pub(crate) fn prepare(&self, stream: StreamId, r: &Prepare) -> Result<(), RequestError> {
        let mut lines = r.lines();
        let id = if r.options.has(PrepareOptions::CANCEL) {
            let id = lines.next().ok_or_else(no_id)?;
            id[..id.len().min(ID_LEN_MAX)].to_vec()
        } else {
            let mut any = false;
            for line in lines {
                parse_line(line)?;
                any = true;
            }
            if !any {
                return Err(RequestError::new(ErrorNumber::ARG_MISSING, "The request names no files"));
            }
            fresh_id().into_bytes()
        };
        self.ok(stream, |out| {
            out.extend_from_slice(&id);
            out.push(0);
        })
    }

    /// Query of prepare: an id and paths, one per line. The answer has the form that gfal2 and FTS read.
    pub(crate) fn query_prepare(&self, stream: StreamId, r: &Query) -> Result<(), RequestError> {
        let mut lines = r.args.split(|&b| b == b'\n' || b == 0).filter(|line| !line.is_empty());
        let id = lines.next().ok_or_else(no_id)?;
        let ours = id.starts_with(ID_PREFIX.as_bytes());
        let caller = self.session.open.caller();
        let mut responses = Vec::new();
        for line in lines {
            let found = parse_line(line).and_then(|path| Ok(self.front.service.kind(&caller, &"find", &path)?));
            let error_text = match &found {
                Ok(_) => String::new(),
                Err(request_error) => request_error.text().to_owned(),
            };
            responses.push(json!({
                "path": String::from_utf8_lossy(line),
                "path_exists": found.is_ok(),
                "on_tape": false,
                "online": found.is_ok_and(|kind| kind == FileKind::File),
                "requested": ours,
                "has_reqid": ours,
                "req_time": "",
                "error_text": error_text,
            }));
        }
        let id = String::from_utf8_lossy(&id[..id.len().min(ID_LEN_MAX)]);
        let text = json!({ "request_id": id, "responses": responses }).to_string();
        self.ok(stream, |out| {
            out.extend_from_slice(text.as_bytes());
            out.push(0);
        })
    }
}
