//! Inspects what an attempt left under its target's name at a server: whether it is the whole copy, and whether this copy may remove it.
//!
//! A copy removes only a file that it began and nobody completed. An id alone does not tell that: in weir a file keeps its id when somebody
//! replaces it meanwhile, and a stock server's file system may give the id to the next file. So:
//!
//! - weir knows whether a file is complete. If it is complete and not the whole copy, it now belongs to somebody else. If not, the copy
//!   begins it again by an open with `tried=`, as stock clients do. The server grants that only for this client's own unfinished file, so
//!   nobody can come between the question and the answer.
//! - Another server does not know it. While the file is open for us, nobody else can open it for writing and nobody gets its inode. After
//!   that it is ours if it is a beginning of the source, or if it is empty and unchanged since it was made.

use client::{Algorithm, Client, ClientError, Url};
use wire::ErrorNumber;
use wire::request::OpenOptions;
use wire::response::{StatFlags, StatReply};

use crate::bulk::{Bulk, Copied, told};
use crate::context::Context;
use crate::ends::Opened;
use crate::error::TransferError;
use crate::place::CopyPath;
use crate::plan::CopyAction;
use crate::units::StridedRead;

/// What exists at the target after something blocked an attempt.
pub enum TargetState {
    /// The copy itself, whole.
    Whole(Copied),
    /// Nothing that matters: the next attempt may replace it.
    Free,
    /// Something that nobody can attribute to this copy.
    Unclear,
}

/// What remains of the file that this copy made.
enum Leftover {
    /// It is complete, or is another file.
    NotOurs,
    /// It is ours, and its server knows that nobody has completed it.
    Unfinished,
    /// It has the same id and is not complete: either ours, or a complete file that another client is changing. Its server knows which.
    Unsure,
    /// It has the same id and this length, and its server knows no more.
    Alike(StatReply),
}

/// Whether the server reports the file as incomplete: interrupted or still being written.
pub fn is_in_progress(error: &TransferError) -> bool {
    matches!(error, TransferError::Client(ClientError::Refused { number: ErrorNumber::IN_PROGRESS, .. }))
}

/// When its data and its attributes last changed, in the server's seconds.
fn changed(stat: &StatReply) -> (i64, Option<i64>) {
    (stat.mtime, stat.extra.as_ref().map(|extra| extra.ctime))
}

fn rest(context: &Context, client: &mut Client, url: &Url, made: &StatReply) -> Result<Leftover, TransferError> {
    let Some(found) = client.look(url)? else { return Ok(Leftover::NotOurs) };
    if found.identity().is_none() || found.identity() != made.identity() {
        return Ok(Leftover::NotOurs);
    }
    if !context.is_weir(client, url)? {
        return Ok(Leftover::Alike(found));
    }
    match told(client, url, Algorithm::Crc32c) {
        Ok(_) => Ok(Leftover::NotOurs),
        // The server also says this while somebody changes a complete file. But a new file is unchanged since its open, and an interrupted
        // one cannot be read. A changed time proves little: a cluster's disk server, which reports the times of new files, has another
        // clock than the manager.
        Err(error) if is_in_progress(&error) => {
            let interrupted = !found.flags.has(StatFlags::READABLE);
            Ok(if interrupted || changed(&found) <= changed(made) { Leftover::Unfinished } else { Leftover::Unsure })
        }
        Err(error) => Err(error),
    }
}

impl Bulk<'_> {
    /// Removes the file that this copy made at its target and gave up. `held`: its server has it open for us, so nobody else could replace
    /// it. `client`: one that was not told to stop.
    pub fn remove_rest(&self, client: &mut Client, made: &StatReply, held: bool) {
        let CopyPath::Remote(url) = self.to else { return };
        let ours = rest(self.context, client, url, made).and_then(|rest| match rest {
            Leftover::Unfinished => Ok(true),
            Leftover::Unsure => {
                self.take_back(client);
                Ok(false)
            }
            Leftover::Alike(found) => Ok(held || self.is_beginning_at(client, made, &found)?),
            Leftover::NotOurs => Ok(false),
        });
        if let Err(error) = ours.and_then(|ours| if ours { Ok(client.rm(url)?) } else { Ok(()) }) {
            tracing::warn!(%error, "{url} was not copied, and an incomplete file may be left there");
        }
    }

    /// Removes the target that a batch opened for this copy. A batch does not report which files it creates. So this begins the file again,
    /// which only its creator may do, and removes it while nobody else can have it. A complete file stays. `client`: one that was not told
    /// to stop.
    pub fn take_back(&self, client: &mut Client) {
        // A replacement is invisible until it is complete.
        let (CopyPath::Remote(url), CopyAction::New, false) = (self.to, self.how, self.context.options.force) else {
            return;
        };
        let mut again = url.clone();
        again.add_words(&format!("tried={}", url.server.host));
        // Do not create the directory: if it is missing, nothing was begun.
        let opened = client.open(&again, OpenOptions::NEW | OpenOptions::UPDATE, 0o600);
        let Ok(file) = opened else { return };
        if let Err(error) = client.rm(url) {
            tracing::warn!(%error, "{url} was not copied, and an incomplete file may be left there");
        }
        // Cuts the connection, so that the server does not take the file for complete.
        drop(file);
    }

    /// Finds out what exists at the target after an attempt with unknown outcome.
    pub fn settle(&mut self, client: &mut Client) -> Result<TargetState, TransferError> {
        if let Some(copied) = self.is_whole(client)? {
            return Ok(TargetState::Whole(copied));
        }
        let CopyPath::Remote(url) = self.to else { return Ok(TargetState::Unclear) };
        let Some(made) = self.made.as_ref() else {
            // No answer told what was made, if anything. The server knows who began the existing file, and lets nobody else begin it again.
            if self.again || !self.context.is_weir(client, url)? {
                return Ok(TargetState::Unclear);
            }
            self.again = true;
            return Ok(TargetState::Free);
        };
        match rest(self.context, client, url, made)? {
            Leftover::Unfinished | Leftover::Unsure => self.again = true,
            Leftover::Alike(found) if self.is_beginning_at(client, made, &found)? => client.rm(url)?,
            Leftover::Alike(_) | Leftover::NotOurs => return Ok(TargetState::Unclear),
        }
        Ok(TargetState::Free)
    }

    /// After a stop: whether the target is the whole source, although the answer that said so has not arrived.
    ///
    /// # Errors
    /// [`TransferError::Stopped`]: it is not, or nobody knows.
    pub fn is_done(&self, client: &mut Client) -> Result<Copied, TransferError> {
        let whole = self.is_whole(client).ok().flatten().ok_or(TransferError::Stopped)?;
        Ok(Copied { skipped: false, ..whole })
    }

    /// Whether the target is already the whole source.
    fn is_whole(&self, client: &mut Client) -> Result<Option<Copied>, TransferError> {
        let algorithm = self.algorithm(client)?;
        let Opened { source, len, .. } = self.open_source(client)?;
        source.end(client, self.from);
        len.map_or(Ok(None), |len| self.is_there(client, len, algorithm))
    }

    /// Whether the file `found` at the target is a beginning of the source, so that removing it loses nothing.
    fn is_beginning_at(&self, client: &mut Client, made: &StatReply, found: &StatReply) -> Result<bool, TransferError> {
        let CopyPath::Remote(url) = self.to else { return Ok(false) };
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
        let mut reader = StridedRead::open(client, url)?;
        let there = self.sum_read(&mut reader, 0..found.size, kind)?;
        reader.close(client, url)?;
        Ok(there == beginning)
    }
}
