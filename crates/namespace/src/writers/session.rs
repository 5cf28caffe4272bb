//! Sessions of clients that number their requests, and remembered answers (`R`).

use kv::{OpOutcome, Prefetch, Read, Txn};
use types::{ClientIdentity, ErrorCode, SessionId};

use crate::ahead::{key_ahead, tell};
use crate::codec::{BadValue, Decoder, Encoder};
use crate::planted::{self, Bug};
use crate::writers::session_record::{SessionRecord, own_session, room_for_session};
use crate::{Actor, Answer, Context, Limits, NsError, OpTag, Operation, RequestNumber, keys, permit_client};

/// Starts a session that numbers its requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenSession {
    /// The client.
    pub client: ClientIdentity,
}

/// Ends a session and forgets its answers. Its holds must be released before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CloseSession {
    /// The session.
    pub session: SessionId,
}

/// See [`OpenSession`]. Sessions whose last request is too long ago give way ([`crate::Limits::session_keep`]). [`NsError::TooMany`] if too many are in
/// use.
pub fn open_session(txn: &mut dyn Txn, ctx: &Context, request: &OpenSession) -> Result<SessionId, NsError> {
    permit_client(&ctx.actor, &request.client, &|| "a session".into())?;
    for idle in room_for_session(txn, (&ctx.limits, ctx.now), &request.client)? {
        crate::scan::delete_all(txn, &keys::session(idle))?;
    }
    let session = crate::format::next_session(txn)?;
    let window = ctx.limits.request_window.max(1);
    SessionRecord { window, used: ctx.now, client: request.client.clone() }.put(txn, session);
    Ok(session)
}

/// See [`CloseSession`].
pub fn close_session(txn: &mut dyn Txn, ctx: &Context, request: &CloseSession) -> Result<(), NsError> {
    own_session(txn, &ctx.actor, request.session)?;
    if !crate::holds(txn, request.session, None, 1)?.is_empty() {
        let what = format!("session {}", request.session);
        return Err(NsError::Invalid { what, why: "it holds inodes still; release them first" });
    }
    // A session has a limited number of keys: its own record, and one for each slot of its window.
    crate::scan::delete_all(txn, &keys::session(request.session))
}

/// The numbers of error codes in remembered answers. They are part of the format: append new ones.
const CODES: [ErrorCode; 23] = [
    ErrorCode::NotFound,
    ErrorCode::Exists,
    ErrorCode::NotDirectory,
    ErrorCode::IsDirectory,
    ErrorCode::NotEmpty,
    ErrorCode::Invalid,
    ErrorCode::NameTooLong,
    ErrorCode::Loop,
    ErrorCode::TooMany,
    ErrorCode::Denied,
    ErrorCode::CrossTree,
    ErrorCode::Busy,
    ErrorCode::Interrupted,
    ErrorCode::Stale,
    ErrorCode::NoSpace,
    ErrorCode::Quota,
    ErrorCode::Checksum,
    ErrorCode::Io,
    ErrorCode::Damaged,
    ErrorCode::Unsupported,
    ErrorCode::Overloaded,
    ErrorCode::Unavailable,
    ErrorCode::TooLarge,
];

const OK: u8 = 0;
const REFUSED: u8 = 1;
const REFUSED_KEPT: u8 = 2;

fn encode_answer<T: Answer>(number: u64, tag: OpTag, result: &Result<T, NsError>) -> Vec<u8> {
    let mut out = Encoder::new(64);
    out.u64(number);
    out.u8(tag as u8);
    match result {
        Ok(reply) => {
            out.u8(OK);
            reply.encode(&mut out.0);
        }
        Err(error) => {
            out.u8(if error.keeps_changes() { REFUSED_KEPT } else { REFUSED });
            let code = CODES.iter().position(|&code| code == error.code()).unwrap_or(5);
            out.u8(u8::try_from(code).unwrap_or(5));
            out.bytes(error.to_string().as_bytes());
        }
    }
    out.0
}

struct Stored<'a> {
    number: u64,
    tag: u8,
    status: u8,
    rest: &'a [u8],
}

fn decode_stored(value: &[u8]) -> Result<Stored<'_>, BadValue> {
    let mut from = Decoder::new(value, "a remembered answer")?;
    Ok(Stored { number: from.u64()?, tag: from.u8()?, status: from.u8()?, rest: from.rest() })
}

fn decode_answer<T: Answer>(stored: &Stored<'_>) -> Result<Result<T, NsError>, BadValue> {
    if stored.status == OK {
        return T::decode(stored.rest).map(Ok).ok_or(BadValue::Damaged("the answer does not read back"));
    }
    let mut from = Decoder::part(stored.rest, "a remembered answer");
    let code = CODES.get(usize::from(from.u8()?)).copied().ok_or(BadValue::Damaged("it has an unknown code"))?;
    let text = String::from_utf8_lossy(from.bytes(usize::from(u16::MAX))?).into_owned();
    Ok(Err(NsError::Remembered { code, text, kept: stored.status == REFUSED_KEPT }))
}

/// Runs `op`. A numbered request with a remembered answer gets that answer. A failed request is rolled back unless it [keeps its
/// changes](NsError::keeps_changes). The answer of a numbered request is remembered as far as the operation says ([`Operation::is_remembered`]).
/// Returns whether the caller must commit the transaction.
pub(crate) fn perform<O: Operation>(
    txn: &mut dyn Txn,
    ctx: &Context,
    op: &O,
) -> (OpOutcome, Result<O::Reply, NsError>) {
    ctx.ids.begin_run();
    let keep = |result: &Result<O::Reply, NsError>| match result.as_ref().err().is_none_or(NsError::keeps_changes) {
        true => OpOutcome::Commit,
        false => OpOutcome::Abort,
    };
    if let Err(error) = txn.prefetch(&|| ahead(ctx, op)) {
        return (OpOutcome::Abort, Err(error.into()));
    }
    let Some(request) = ctx.request else {
        let result = op.run(txn, ctx);
        return (keep(&result), result);
    };
    let session = match own_session(txn, &ctx.actor, request.session) {
        Ok(session) => session,
        Err(error) => return (OpOutcome::Abort, Err(error)),
    };
    let key = slot_of(&session, request);
    match remembered::<O>(txn, request, &key).and_then(|answer| is_for(txn, request, op, answer)) {
        Ok(Some(answer)) => return (OpOutcome::Abort, op.permit_again(&ctx.actor).and(answer)),
        Ok(None) => {}
        Err(error) => return (OpOutcome::Abort, Err(error)),
    }
    let start = txn.savepoint();
    let result = op.run(txn, ctx);
    match &result {
        // Failures of the engine and passing shortages are not remembered: a retry runs again.
        Err(NsError::Kv(_) | NsError::OutOfNumbers | NsError::Damaged { .. }) => return (OpOutcome::Abort, result),
        Err(error) if error.keeps_changes() => {}
        _ if !O::is_remembered(&result) => return (keep(&result), result),
        Err(_) => txn.rollback_to(start),
        Ok(_) => {}
    }
    txn.put(&key, &encode_answer(request.number, O::TAG, &result));
    session.touch(txn, ctx, request.session);
    (OpOutcome::Commit, result)
}

/// What an operation and its request number read.
fn ahead<O: Operation>(ctx: &Context, op: &O) -> Vec<Prefetch> {
    let mut wanted = op.ahead(ctx);
    wanted.extend(ctx.request.into_iter().flat_map(|request| answer_ahead(request, ctx.limits.request_window)));
    wanted
}

/// What is read of the answer to a request. If its session has another window, the answer costs one more round trip.
fn answer_ahead(request: RequestNumber, window: u16) -> [Prefetch; 2] {
    let slot = u16::try_from(request.number % u64::from(window.max(1))).unwrap_or(0);
    [keys::session(request.session), keys::answer(request.session, slot)].map(|key| key_ahead(&key))
}

/// Remembers the answer to a request, for an operation that has no number of its own.
pub(crate) fn remember<O: Operation>(
    txn: &mut dyn Txn,
    ctx: &Context,
    request: RequestNumber,
    reply: O::Reply,
) -> Result<(), NsError> {
    let session = own_session(txn, &ctx.actor, request.session)?;
    let key = slot_of(&session, request);
    // The number must not be too old, or of another request.
    remembered::<O>(txn, request, &key)?;
    txn.put(&key, &encode_answer(request.number, O::TAG, &Ok(reply)));
    session.touch(txn, ctx, request.session);
    Ok(())
}

/// Refuses a remembered answer that is for another request than `op`.
fn is_for<O: Operation, T>(
    read: &dyn Read,
    request: RequestNumber,
    op: &O,
    answer: Option<T>,
) -> Result<Option<T>, NsError> {
    if answer.is_some() && op.is_undone(read)? {
        let what = format!("request {} of session {}", request.number, request.session);
        return Err(NsError::Invalid { what, why: "this number was used for another request; use the next number" });
    }
    Ok(answer)
}

/// Forgets the answer to a request, which was the operation `tag`.
pub(crate) fn forget_answer(txn: &mut dyn Txn, request: RequestNumber, tag: OpTag) -> Result<(), NsError> {
    let Some(session) = SessionRecord::get(txn, request.session)? else { return Ok(()) };
    let key = slot_of(&session, request);
    let Some(value) = txn.get(&key)? else { return Ok(()) };
    let stored = decode_stored(&value).map_err(|bad| bad.at(&key))?;
    if (stored.number, stored.tag) == (request.number, tag as u8) {
        txn.delete(&key);
    }
    Ok(())
}

/// The remembered answer to a request of `actor`; `None` if there is none.
///
/// # Errors
/// The session is unknown or belongs to another principal, or the number was used for another operation.
pub fn answer_to<O: Operation>(
    read: &dyn Read,
    actor: &Actor,
    request: RequestNumber,
) -> Result<Option<Result<O::Reply, NsError>>, NsError> {
    tell(read, &|| answer_ahead(request, Limits::default().request_window).into())?;
    let key = slot_of(&own_session(read, actor, request.session)?, request);
    remembered::<O>(read, request, &key)
}

/// The remembered outcome of a request of `actor`, which was one of the operations `tags`; `None` if there is none.
///
/// # Errors
/// The same as [`answer_to`].
pub fn outcome_of(
    read: &dyn Read,
    actor: &Actor,
    request: RequestNumber,
    tags: &[OpTag],
) -> Result<Option<Result<(), NsError>>, NsError> {
    tell(read, &|| answer_ahead(request, Limits::default().request_window).into())?;
    let key = slot_of(&own_session(read, actor, request.session)?, request);
    stored_for(read, request, &key, tags, |stored| match stored.status {
        OK => Ok(Ok(())),
        _ => decode_answer::<()>(stored),
    })
}

/// The key of the answer to `request`.
fn slot_of(session: &SessionRecord, request: RequestNumber) -> keys::Key {
    let slot = u16::try_from(request.number % u64::from(session.window)).unwrap_or(0);
    keys::answer(request.session, slot)
}

fn remembered<O: Operation>(
    read: &dyn Read,
    request: RequestNumber,
    key: &[u8],
) -> Result<Option<Result<O::Reply, NsError>>, NsError> {
    stored_for(read, request, key, &[O::TAG], decode_answer)
}

/// Decodes the remembered answer to this request number, which must be one of the operations `tags`.
fn stored_for<T>(
    read: &dyn Read,
    request: RequestNumber,
    key: &[u8],
    tags: &[OpTag],
    decode: impl FnOnce(&Stored<'_>) -> Result<T, BadValue>,
) -> Result<Option<T>, NsError> {
    let what = || format!("request {} of session {}", request.number, request.session);
    if request.number == 0 {
        return Err(NsError::Invalid { what: what(), why: "requests are numbered from 1" });
    }
    let Some(value) = read.get(key)? else {
        return Ok(None);
    };
    let stored = decode_stored(&value).map_err(|bad| bad.at(key))?;
    if planted::is(Bug::RepeatRequestTwice) || stored.number < request.number {
        return Ok(None);
    }
    if stored.number > request.number {
        return Err(NsError::Stale { what: what(), why: "it is older than what is remembered" });
    }
    if tags.iter().all(|tag| stored.tag != *tag as u8) {
        return Err(NsError::Invalid { what: what(), why: "this number was used for another request" });
    }
    decode(&stored).map(Some).map_err(|bad| bad.at(key))
}

impl Operation for OpenSession {
    const TAG: OpTag = OpTag::OpenSession;
    type Reply = SessionId;
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<SessionId, NsError> {
        open_session(txn, ctx, self)
    }
}

impl Operation for CloseSession {
    const TAG: OpTag = OpTag::CloseSession;
    type Reply = ();
    fn run(&self, txn: &mut dyn Txn, ctx: &Context) -> Result<(), NsError> {
        close_session(txn, ctx, self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_read_back_with_code_and_text() {
        let refusal: Result<(), NsError> = Err(NsError::NotEmpty("/d".into()));
        let value = encode_answer(7, OpTag::Rmdir, &refusal);
        let stored = decode_stored(&value).unwrap();
        assert_eq!((stored.number, stored.tag), (7, OpTag::Rmdir as u8));
        let back = decode_answer::<()>(&stored).unwrap().unwrap_err();
        assert_eq!(back.code(), ErrorCode::NotEmpty);
        assert_eq!(back.to_string(), "/d: the directory is not empty");
    }
}
