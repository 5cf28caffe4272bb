//! `R`: the record of a client's session with numbered requests, and its owner.

use std::ops::ControlFlow;

use kv::{Read, ScanOrder, Txn};
use types::{ClientIdentity, SessionId, Timestamp};

use crate::codec::{BadValue, Decoder, Encoder};
use crate::{Actor, Context, Limits, NsError, keys, permit_client};

/// The record of a session is written again with a new time when this part of its time to live has passed.
const FRESHNESS: u32 = 24;

/// The session of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SessionRecord {
    /// The number of answers that it remembers.
    pub(crate) window: u16,
    /// When it was last used, to the hour. See [`Limits::session_keep`].
    pub(crate) used: Timestamp,
    /// Its owner.
    pub(crate) client: ClientIdentity,
}

impl SessionRecord {
    fn decode(value: &[u8]) -> Result<Self, BadValue> {
        let mut from = Decoder::new(value, "a session")?;
        let (window, used) = (from.u16()?.max(1), Timestamp(from.i64()?));
        let client = from.client()?;
        from.end()?;
        Ok(Self { window, used, client })
    }

    /// `None`: the session is unknown.
    pub(crate) fn get(read: &dyn Read, session: SessionId) -> Result<Option<Self>, NsError> {
        let key = keys::session(session);
        read.get(&key)?.map(|value| Self::decode(&value).map_err(|bad| bad.at(&key))).transpose()
    }

    pub(crate) fn put(&self, txn: &mut dyn Txn, session: SessionId) {
        let mut out = Encoder::new(64);
        out.u16(self.window);
        out.i64(self.used.0);
        out.client(&self.client);
        txn.put(&keys::session(session), &out.0);
    }

    /// Records that the session is in use.
    pub(crate) fn touch(mut self, txn: &mut dyn Txn, ctx: &Context, session: SessionId) {
        if self.used.plus(ctx.limits.session_keep / FRESHNESS) <= ctx.now {
            self.used = ctx.now;
            self.put(txn, session);
        }
    }
}

/// A session. [`NsError::Denied`] if it belongs to another principal.
pub(crate) fn own_session(read: &dyn Read, actor: &Actor, session: SessionId) -> Result<SessionRecord, NsError> {
    let Some(record) = SessionRecord::get(read, session)? else {
        let what = format!("session {session}");
        return Err(NsError::Stale { what, why: "it is not known here (any more); begin a new session" });
    };
    permit_client(actor, &record.client, &|| format!("session {session}"))?;
    Ok(record)
}

/// Denies a request in another principal's session. An unknown session belongs to nobody.
pub(crate) fn permit_session(read: &dyn Read, ctx: &Context, session: SessionId) -> Result<(), NsError> {
    match SessionRecord::get(read, session)? {
        Some(record) => permit_client(&ctx.actor, &record.client, &|| format!("session {session}")),
        None => Ok(()),
    }
}

/// All sessions. This takes one short scan for each, whose answers it skips.
fn all_sessions(read: &dyn Read) -> Result<Vec<(SessionId, SessionRecord)>, NsError> {
    let (mut found, mut start) = (Vec::new(), b"R".to_vec());
    loop {
        let mut next = None;
        read.scan(&start, b"S", ScanOrder::Ascending, &mut |key, _| {
            next = Some(key.to_vec());
            ControlFlow::Break(())
        })?;
        let Some(key) = next else { return Ok(found) };
        let bad = || BadValue::Damaged("the key of a session has a wrong length").at(&key);
        let session = keys::number_at(&key, 1).map(SessionId).ok_or_else(bad)?;
        // Answers without a session belong to nobody.
        found.extend(SessionRecord::get(read, session)?.map(|record| (session, record)));
        start = keys::end_of(&keys::session(session));
    }
}

/// Whether `client` may begin another session. Returns the sessions that have had no request for too long and give way to it.
///
/// # Errors
/// [`NsError::TooMany`]: too many sessions are in use.
pub(crate) fn room_for_session(
    read: &dyn Read,
    (limits, now): (&Limits, Timestamp),
    client: &ClientIdentity,
) -> Result<Vec<SessionId>, NsError> {
    let (mut idle, mut own, mut all) = (Vec::new(), 0, 0);
    for (session, record) in all_sessions(read)? {
        if record.used.plus(limits.session_keep) <= now && crate::holds(read, session, None, 1)?.is_empty() {
            idle.push(session);
            continue;
        }
        all += 1;
        own += u32::from(record.client.principal == client.principal);
    }
    if own >= limits.sessions_of_principal_max {
        let what = "too many sessions of numbered requests of this principal are in use; end those that are done, or wait: a session ends by itself some time after its last request (a day, unless set otherwise)";
        return Err(NsError::TooMany { what, bound: u64::from(limits.sessions_of_principal_max) });
    }
    if all >= limits.sessions_max {
        let what = "too many sessions of numbered requests are in use; try again later: a session ends by itself some time after its last request (a day, unless set otherwise)";
        return Err(NsError::TooMany { what, bound: u64::from(limits.sessions_max) });
    }
    Ok(idle)
}
