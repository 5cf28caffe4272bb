//! What an attempt has left under its target's name at a server: whether it is the whole copy, and whether it may be taken away.
//!
//! Only what this copy has begun and nobody has completed is taken away. An id alone does not tell that: at weir a file that somebody
//! replaces meanwhile keeps its id, and a stock server's file system may give it to the next file. So:
//!
//! - weir knows whether a file is complete. One that is, and is not the whole copy, is somebody else's by now. One that is not begins
//!   again by an open that says so (`tried=`, as stock clients say it), which the server grants for this client's own unfinished file
//!   only: nobody comes between the question and its answer.
//! - Another server does not know it. While the file is open for us, nobody else gets it to write and nobody gets its inode. After that,
//!   it is ours if it is a beginning of what was to be copied; an empty one, if it has not been touched since it was made.

use client::{Algorithm, Client, ClientError, Url};
use wire::ErrorNumber;
use wire::request::OpenOptions;
use wire::response::{StatFlags, StatReply};

use crate::bulk::{Bulk, Copied, told};
use crate::context::Context;
use crate::ends::Opened;
use crate::error::TransferError;
use crate::place::Place;
use crate::plan::How;
use crate::units::Sought;

/// What stands at the target where something was in the way of another attempt.
pub enum Standing {
    /// The copy itself, whole.
    Whole(Copied),
    /// Nothing that matters: the next attempt takes its place.
    Free,
    /// Something else, and nobody can say that it is ours.
    Unclear,
}

/// What there is of the file that this copy has made.
enum Rest {
    /// It is complete, or is another one.
    NotOurs,
    /// It is, and its server knows that nobody has completed it.
    Unfinished,
    /// The same id, and not complete: ours, or a complete file that somebody else changes. Its server knows which.
    Unsure,
    /// The same id, so many bytes, and its server knows no more.
    Alike(StatReply),
}

/// Does the server know that the file is not complete? (Interrupted, or still being written.)
pub fn is_in_progress(error: &TransferError) -> bool {
    matches!(error, TransferError::Client(ClientError::Refused { number: ErrorNumber::IN_PROGRESS, .. }))
}

/// When it was last changed, in the server's seconds: its content, and anything of it.
fn changed(stat: &StatReply) -> (i64, Option<i64>) {
    (stat.mtime, stat.extra.as_ref().map(|extra| extra.ctime))
}

fn rest(context: &Context, client: &mut Client, url: &Url, made: &StatReply) -> Result<Rest, TransferError> {
    let Some(found) = client.look(url)? else { return Ok(Rest::NotOurs) };
    if found.identity().is_none() || found.identity() != made.identity() {
        return Ok(Rest::NotOurs);
    }
    if !context.is_weir(client, url)? {
        return Ok(Rest::Alike(found));
    }
    match told(client, url, Algorithm::Crc32c) {
        Ok(_) => Ok(Rest::NotOurs),
        // So it is also while somebody changes a complete file. One that is new has not been changed since it was opened, and of one that
        // was interrupted it is known that it cannot be read. That it looks changed says little: a cluster's disk server, which says of what was
        // made when that was, has another clock than the manager.
        Err(error) if is_in_progress(&error) => {
            let interrupted = !found.flags.has(StatFlags::READABLE);
            Ok(if interrupted || changed(&found) <= changed(made) { Rest::Unfinished } else { Rest::Unsure })
        }
        Err(error) => Err(error),
    }
}

impl Bulk<'_> {
    /// Removes what this copy has made at its target and has given up. `held`: its server has it open for us, so that nobody else could
    /// take its place. `client`: one that was not told to stop.
    pub fn remove_rest(&self, client: &mut Client, made: &StatReply, held: bool) {
        let Place::Remote(url) = self.to else { return };
        let ours = rest(self.context, client, url, made).and_then(|rest| match rest {
            Rest::Unfinished => Ok(true),
            Rest::Unsure => {
                self.take_back(client);
                Ok(false)
            }
            Rest::Alike(found) => Ok(held || self.is_beginning_at(client, made, &found)?),
            Rest::NotOurs => Ok(false),
        });
        if let Err(error) = ours.and_then(|ours| if ours { Ok(client.rm(url)?) } else { Ok(()) }) {
            tracing::warn!(%error, "{url} was not copied, and an incomplete file may be left there");
        }
    }

    /// Removes what was opened at the target for this copy in a batch, which tells nothing of what it makes: it is begun again, as only who has begun it
    /// may, and removed while nobody else can have it. What is complete stays. `client`: one that was not told to stop.
    pub fn take_back(&self, client: &mut Client) {
        // What replaces something is seen by nobody before it is complete.
        let (Place::Remote(url), How::New, false) = (self.to, self.how, self.context.options.force) else { return };
        let mut again = url.clone();
        again.add_words(&format!("tried={}", url.server.host));
        // Without its directory: if that is not there, nothing was begun.
        let opened = client.open(&again, OpenOptions::NEW | OpenOptions::UPDATE, 0o600);
        let Ok(file) = opened else { return };
        if let Err(error) = client.rm(url) {
            tracing::warn!(%error, "{url} was not copied, and an incomplete file may be left there");
        }
        // Its connection is cut, so that the server does not take it for complete.
        drop(file);
    }

    /// The server says that something is there, after an attempt whose outcome nobody knows.
    pub fn settle(&mut self, client: &mut Client) -> Result<Standing, TransferError> {
        if let Some(copied) = self.is_whole(client)? {
            return Ok(Standing::Whole(copied));
        }
        let Place::Remote(url) = self.to else { return Ok(Standing::Unclear) };
        let Some(made) = self.made.as_ref() else {
            // Nobody has said what was made, if anything was. Its server knows who has begun what is there, and lets nobody else begin it again.
            if self.again || !self.context.is_weir(client, url)? {
                return Ok(Standing::Unclear);
            }
            self.again = true;
            return Ok(Standing::Free);
        };
        match rest(self.context, client, url, made)? {
            Rest::Unfinished | Rest::Unsure => self.again = true,
            Rest::Alike(found) if self.is_beginning_at(client, made, &found)? => client.rm(url)?,
            Rest::Alike(_) | Rest::NotOurs => return Ok(Standing::Unclear),
        }
        Ok(Standing::Free)
    }

    /// Is the target what the source is, whole?
    fn is_whole(&self, client: &mut Client) -> Result<Option<Copied>, TransferError> {
        let algorithm = self.algorithm(client)?;
        let Opened { source, len, .. } = self.open_source(client)?;
        source.end(client, self.from);
        len.map_or(Ok(None), |len| self.is_there(client, len, algorithm))
    }

    /// Is what was `found` at the target a beginning of the source? Then nothing is lost with it.
    fn is_beginning_at(&self, client: &mut Client, made: &StatReply, found: &StatReply) -> Result<bool, TransferError> {
        let Place::Remote(url) = self.to else { return Ok(false) };
        if found.size == 0 {
            return Ok(changed(found) == changed(made));
        }
        let Opened { source, len, .. } = self.open_source(client)?;
        source.end(client, self.from);
        if len.is_none_or(|len| found.size > len) {
            return Ok(false);
        }
        let kind = self.context.offered(client, url)?.unwrap_or(Algorithm::Crc32c);
        let beginning = self.sum_source(client, 0..found.size, kind)?;
        if let Some(text) = told(client, url, kind)? {
            return Ok(beginning.is(&text));
        }
        let mut reader = Sought::open(client, url)?;
        let there = self.sum_read(&mut reader, 0..found.size, kind)?;
        reader.close(client, url)?;
        Ok(there == beginning)
    }
}
