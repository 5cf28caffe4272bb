//! `R`: what is kept of a session of a client that numbers its requests, and whose it is.

use kv::Read;
use types::{ClientIdentity, SessionId};

use crate::codec::{BadValue, Decoder};
use crate::{Context, NsError, keys, permit_client};

/// How many answers a session is remembered with, and whose it is; `None`: it is not known (any more).
pub(crate) fn session_record(read: &dyn Read, session: SessionId) -> Result<Option<(u16, ClientIdentity)>, NsError> {
    let key = keys::session(session);
    let decode = |value: &[u8]| -> Result<(u16, ClientIdentity), BadValue> {
        let mut from = Decoder::new(value, "a session")?;
        let window = from.u16()?;
        from.i64()?;
        let client = from.client()?;
        from.end()?;
        Ok((window.max(1), client))
    };
    read.get(&key)?.map(|value| decode(&value).map_err(|bad| bad.at(&key))).transpose()
}

/// How many answers `session` is remembered with. [`NsError::Denied`] if it is another principal's.
pub(crate) fn own_window(read: &dyn Read, ctx: &Context, session: SessionId) -> Result<u16, NsError> {
    let Some((window, client)) = session_record(read, session)? else {
        let what = format!("session {session}");
        return Err(NsError::Stale { what, why: "it is not known here (any more); begin a new session" });
    };
    permit_client(&ctx.actor, &client, &|| format!("session {session}"))?;
    Ok(window)
}

/// Refuses what is asked in the name of another principal's session. One that is not known is nobody's.
pub(crate) fn permit_session(read: &dyn Read, ctx: &Context, session: SessionId) -> Result<(), NsError> {
    match session_record(read, session)? {
        Some((_, client)) => permit_client(&ctx.actor, &client, &|| format!("session {session}")),
        None => Ok(()),
    }
}
