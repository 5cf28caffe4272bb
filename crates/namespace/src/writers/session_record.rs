//! `R`: the record of a client's session with numbered requests, and its owner.

use kv::Read;
use types::{ClientIdentity, SessionId};

use crate::codec::{BadValue, Decoder};
use crate::{Actor, Context, NsError, keys, permit_client};

/// The number of answers that a session remembers, and its owner. `None`: the session is unknown.
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

/// How many answers `session` remembers. [`NsError::Denied`] if it belongs to another principal.
pub(crate) fn own_window(read: &dyn Read, actor: &Actor, session: SessionId) -> Result<u16, NsError> {
    let Some((window, client)) = session_record(read, session)? else {
        let what = format!("session {session}");
        return Err(NsError::Stale { what, why: "it is not known here (any more); begin a new session" });
    };
    permit_client(actor, &client, &|| format!("session {session}"))?;
    Ok(window)
}

/// Denies a request in another principal's session. An unknown session belongs to nobody.
pub(crate) fn permit_session(read: &dyn Read, ctx: &Context, session: SessionId) -> Result<(), NsError> {
    match session_record(read, session)? {
        Some((_, client)) => permit_client(&ctx.actor, &client, &|| format!("session {session}")),
        None => Ok(()),
    }
}
