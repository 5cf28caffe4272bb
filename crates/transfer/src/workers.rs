//! The workers of one copy. Each takes files from the list: small ones many at a time, large ones one at a time.

use std::time::{Duration, Instant};

use client::{
    BatchWriter, Client, ClientError, Endpoint, ManyReader, ManyWriter, Session, SmallFile, SmallFileResult, Url,
};
use disk::ALIGNMENT;
use parking_lot::Mutex;
use types::Timestamp;
use wire::ErrorNumber;
use wire::response::{ServerFlags, StatReply};

use crate::bulk::{Bulk, Copied};
use crate::context::Context;
use crate::error::TransferError;
use crate::local::{KeptAttributes, read_small, write_small};
use crate::own_target::TargetState;
use crate::place::CopyPath;
use crate::plan::{CopyAction, Item, Queue};
use crate::{third_party, times};

/// Files up to this length are copied many at a time.
const SMALL_MAX: u64 = 64 * ALIGNMENT as u64;
/// Small files of one worker in progress at a time.
const WINDOW: usize = 64;
/// After a lost connection a file is tried at least this often, however long each attempt takes.
const ATTEMPTS_MIN: u32 = 3;
/// The pause between attempts: servers return, and notice lost connections.
const PAUSE: Duration = Duration::from_secs(1);
/// How many stores of a cluster may fill up under one file before the copy fails.
const FULL_STORES_MAX: u32 = 3;

/// Receives each finished file.
pub trait Reports: Send {
    /// The file was copied, existed already, or failed.
    fn done(&mut self, item: &Item, result: Result<Copied, TransferError>);
    /// A stop came before the copy of a file had begun.
    fn not_begun(&mut self);
}

/// What an earlier attempt did for a file that is now copied by itself.
enum EarlierAttempt {
    /// No request was sent, or it was refused.
    Nothing,
    /// Its connection broke during a request, so we may have made the file: this one, with its attributes at that time. `None`: the server
    /// reported no file, so nobody knows.
    Begun(Option<StatReply>),
    /// It was in progress in a batch, which does not report what it makes. In a cluster an empty file that was opened for us may exist.
    Opened,
}

impl EarlierAttempt {
    /// The state of a file that was in progress in `many`.
    fn of(is_in_batches: bool, file: &SmallFile<Item>) -> Self {
        if is_in_batches { Self::Opened } else { Self::Begun(file.made.clone()) }
    }
}

/// The route of small files: to or from which server, as which user, and whether encrypted.
#[derive(Clone, PartialEq, Eq, Debug)]
enum SmallFileRoute {
    Up(Endpoint, Option<String>, bool),
    Down(Endpoint, Option<String>, bool),
}

/// The route of a small file; `None`: it is copied by itself.
fn way(item: &Item, context: &Context) -> Option<SmallFileRoute> {
    let options = &context.options;
    let small = item.size.is_some_and(|size| size <= SMALL_MAX);
    if !small || item.how == CopyAction::Compare || options.resume || options.tpc || options.follow || !options.verify {
        return None;
    }
    match (&item.from, &item.to) {
        // Words behind a `?` belong to one request and cannot be sent along here.
        (CopyPath::Local(_), CopyPath::Remote(url)) if url.opaque.is_none() => {
            Some(SmallFileRoute::Up(url.server.clone(), url.user.clone(), url.tls))
        }
        (CopyPath::Remote(url), CopyPath::Local(_)) if url.opaque.is_none() && !item.to.is_stream() => {
            Some(SmallFileRoute::Down(url.server.clone(), url.user.clone(), url.tls))
        }
        _ => None,
    }
}

/// Copies the files of the list until its end.
pub fn work(context: &Context, queue: &Queue, reports: &Mutex<&mut dyn Reports>) {
    let mut client = Client::new(context.settings.clone());
    while let Some(item) = queue.take(|_| true) {
        if context.stopping() {
            reports.lock().not_begun();
            continue;
        }
        let undone = match (way(&item, context), &item.from, &item.to) {
            (Some(SmallFileRoute::Up(..)), _, CopyPath::Remote(url)) => {
                up(context, &mut client, url, &item, queue, reports)
            }
            (Some(SmallFileRoute::Down(..)), CopyPath::Remote(url), _) => {
                down(context, &mut client, url, &item, queue, reports)
            }
            _ => vec![(item.clone(), EarlierAttempt::Nothing)],
        };
        let mut cleaner = context.cleaner();
        for (item, before) in undone {
            let result = match &before {
                // After a stop no further attempt examines the target, so remove it now.
                EarlierAttempt::Begun(Some(made)) if context.stopping() => {
                    let bulk = bulk(context, &item, None);
                    bulk.remove_rest(&mut cleaner, made, false);
                    bulk.is_done(&mut cleaner)
                }
                EarlierAttempt::Opened if context.stopping() => {
                    let bulk = bulk(context, &item, None);
                    bulk.take_back(&mut cleaner);
                    bulk.is_done(&mut cleaner)
                }
                EarlierAttempt::Nothing if context.stopping() => {
                    reports.lock().not_begun();
                    continue;
                }
                _ => alone(context, &mut client, &item, before),
            };
            report(context, reports, &item, result);
        }
    }
}

fn bulk<'a>(context: &'a Context, item: &'a Item, made: Option<StatReply>) -> Bulk<'a> {
    let follows = context.options.follow;
    Bulk { context, from: &item.from, to: &item.to, how: item.how, made, again: false, follows }
}

/// How often and how long to retry a file.
struct RetryPolicy {
    attempts: u32,
    /// When an attempt failed first, if one has.
    since: Option<Instant>,
}

impl RetryPolicy {
    fn new() -> Self {
        Self { attempts: 1, since: None }
    }

    /// After a failed attempt: whether another one is due at once.
    fn has_more(&mut self, context: &Context, item: &Item) -> bool {
        let since = *self.since.get_or_insert_with(Instant::now);
        // Do not wait for a server that was never reachable.
        let is_known = [&item.from, &item.to].iter().all(|place| match place {
            CopyPath::Remote(url) => context.settings.met.has_one_of(url),
            CopyPath::Local(_) | CopyPath::Standard => true,
        });
        let has_time = is_known && since.elapsed() < context.settings.recovery_max;
        self.attempts += 1;
        has_time || self.attempts <= ATTEMPTS_MIN
    }

    /// The same, after a pause. The first retry has no pause, because most lost connections can be replaced at once.
    fn has_more_later(&mut self, context: &Context, item: &Item) -> bool {
        let has_more = self.has_more(context, item);
        if has_more && self.attempts > 2 {
            // The caller checks for a stop.
            let _ = context.settings.stop.sleep(PAUSE);
        }
        has_more
    }
}

fn alone(context: &Context, client: &mut Client, item: &Item, before: EarlierAttempt) -> Result<Copied, TransferError> {
    let (mut unsure, made, was_opened) = match before {
        EarlierAttempt::Nothing => (false, None, false),
        EarlierAttempt::Begun(made) => (true, made, false),
        EarlierAttempt::Opened => (true, None, true),
    };
    // Bytes that went through a pipe cannot be had again.
    let once = item.from.is_stream() || item.to.is_stream();
    let mut bulk = bulk(context, item, made);
    let mut patience = RetryPolicy::new();
    let mut full_stores = 0;
    loop {
        if context.stopping() {
            return Err(TransferError::Stopped);
        }
        let result = if context.options.tpc { third_party::copy(&bulk, client) } else { bulk.copy(client) };
        // An attempt whose answer was lost may have made the file, in whole or in part. Or somebody else made it.
        let result = match result {
            Err(TransferError::Exists { path }) if unsure => match settle(&mut bulk, client, was_opened) {
                Ok(TargetState::Whole(copied)) => Ok(Copied { bytes: copied.len, skipped: false, ..copied }),
                Ok(TargetState::Free) if patience.has_more(context, item) => continue,
                Ok(TargetState::Free | TargetState::Unclear) => Err(TransferError::PerhapsOurs { path }),
                Err(TransferError::Client(error)) if error.is_connection() => Err(error.into()),
                Err(TransferError::Stopped) => Err(TransferError::Stopped),
                Err(error) => {
                    tracing::warn!(%error, "{path} cannot be compared with {}", item.from);
                    Err(TransferError::PerhapsOurs { path })
                }
            },
            result => result,
        };
        match result {
            // The client has already retried a silent server, and waited each time.
            Err(TransferError::Client(error))
                if error.may_help_to_retry()
                    && !matches!(error, client::ClientError::Silent { .. })
                    && !once
                    && patience.has_more_later(context, item) =>
            {
                tracing::info!(%error, "copying {} again", item.from);
                unsure = true;
            }
            // The server may not have noticed yet that the connection which had the file open is gone. Or an earlier attempt of ours began
            // the file; the server knows who began it.
            Err(TransferError::Client(error)) if unsure && is_locked(&error) && patience.has_more(context, item) => {
                tracing::info!(%error, "copying {} again", item.from);
                let _ = context.settings.stop.sleep(PAUSE);
                if let CopyPath::Remote(url) = &item.to {
                    bulk.again |= context.is_weir(client, url).unwrap_or(false);
                }
            }
            // The store that the manager chose has filled up since. By now the manager knows that, and chooses another one.
            Err(TransferError::Client(error))
                if is_full_store(&error, item) && !once && full_stores < FULL_STORES_MAX =>
            {
                tracing::info!(%error, "copying {} again", item.from);
                full_stores += 1;
                unsure = true;
                let _ = context.settings.stop.sleep(PAUSE);
            }
            result => return result,
        }
    }
}

/// Whether one server of a cluster has no space for the file. Its manager may know another server that has.
fn is_full_store(error: &ClientError, item: &Item) -> bool {
    match (error, &item.to) {
        (ClientError::Refused { server, number: ErrorNumber::NO_SPACE, .. }, CopyPath::Remote(url)) => {
            !url.is_at(server)
        }
        _ => false,
    }
}

/// Finds out what blocks another attempt. `was_opened`: a batch, which does not report what it makes, may have begun the file. The server
/// lets only its creator begin it again.
fn settle(bulk: &mut Bulk<'_>, client: &mut Client, was_opened: bool) -> Result<TargetState, TransferError> {
    if let (true, None, CopyPath::Remote(url)) = (was_opened, &bulk.made, bulk.to) {
        bulk.made = client.look(url)?;
    }
    bulk.settle(client)
}

fn is_locked(error: &client::ClientError) -> bool {
    matches!(error, client::ClientError::Refused { number: ErrorNumber::FILE_LOCKED, .. })
}

fn report(context: &Context, reports: &Mutex<&mut dyn Reports>, item: &Item, result: Result<Copied, TransferError>) {
    context.progress.file_done();
    // The other files do not wait for a server that could not be reached in all this time.
    if let Err(TransferError::Client(ClientError::GaveUp { last, .. })) = &result
        && let ClientError::Connect { server, .. } = &**last
    {
        let urls = [&item.from, &item.to].into_iter().filter_map(|place| match place {
            CopyPath::Remote(url) if url.is_at(server) => Some(url),
            _ => None,
        });
        // None of its list could be reached.
        urls.flat_map(Url::servers).chain([server]).for_each(|server| context.settings.met.forget(server));
    }
    reports.lock().done(item, result);
}

fn small(len: u64) -> Copied {
    Copied { bytes: len, len, sum: None, verified: true, skipped: false }
}

/// A connection for many small files, to a server that supports pages with checksums. `None`: the files are copied one by one, and the
/// first one reports any error. A manager, which redirects each open, has made the file by then.
fn session_with_pages(client: &mut Client, url: &Url) -> Option<Session> {
    let session = client.take_session(url).ok()?;
    if session.has_pages() && !session.flags().has(ServerFlags::IS_MANAGER) {
        return Some(session);
    }
    client.give_back(session, url);
    None
}

/// Reports that `count` small files are copied again after a lost connection. (After a stop, the user knows.)
fn copied_again(context: &Context, error: &client::ClientError, count: usize) {
    if !context.stopping() {
        tracing::info!(%error, "{count} small files were under way: copying them again, one by one");
    }
}

/// How small files are sent.
enum SmallFileMethod {
    InBatches(Box<BatchWriter<Item>>),
    OneByOne(Box<ManyWriter<Item>>),
}

impl SmallFileMethod {
    fn has_room(&self) -> bool {
        match self {
            SmallFileMethod::InBatches(many) => many.has_room(),
            SmallFileMethod::OneByOne(many) => many.under_way() < WINDOW,
        }
    }

    fn is_in_batches(&self) -> bool {
        matches!(self, SmallFileMethod::InBatches(_))
    }

    fn put(&mut self, file: SmallFile<Item>) -> Result<(), ClientError> {
        match self {
            SmallFileMethod::InBatches(many) => many.put(file),
            SmallFileMethod::OneByOne(many) => many.put(file),
        }
    }

    fn wait(&mut self) -> Result<Option<SmallFileResult<Item>>, ClientError> {
        match self {
            SmallFileMethod::InBatches(many) => many.wait(),
            SmallFileMethod::OneByOne(many) => many.wait(),
        }
    }

    fn unfinished(self) -> Vec<SmallFile<Item>> {
        match self {
            SmallFileMethod::InBatches(many) => many.unfinished(),
            SmallFileMethod::OneByOne(many) => many.unfinished(),
        }
    }

    fn into_session(self) -> Session {
        match self {
            SmallFileMethod::InBatches(many) => many.into_session(),
            SmallFileMethod::OneByOne(many) => many.into_session(),
        }
    }
}

fn is_for_the_careful_way(error: &ClientError) -> bool {
    matches!(error, ClientError::Unexpected { .. }) || error.kind() == client::Kind::Unsupported
}

/// Copies `first` and the small files after it to a server. Returns the files that must be copied one by one, and what is known of their
/// targets.
fn up(
    context: &Context,
    client: &mut Client,
    url: &Url,
    first: &Item,
    queue: &Queue,
    reports: &Mutex<&mut dyn Reports>,
) -> Vec<(Item, EarlierAttempt)> {
    let wanted = way(first, context);
    let keeps_times = if context.options.preserve { context.keeps_times(client, url) } else { Ok(false) };
    // If the question fails, copy each file by itself, with patience.
    let Ok(keeps_times) = keeps_times else { return vec![(first.clone(), EarlierAttempt::Nothing)] };
    let batches = context.batches(client, url);
    let session = match batches {
        Some(_) => client.take_session(url).ok(),
        None => session_with_pages(client, url),
    };
    let Some(session) = session else { return vec![(first.clone(), EarlierAttempt::Nothing)] };
    let mut many = match batches {
        Some(limits) => SmallFileMethod::InBatches(Box::new(BatchWriter::new(session, limits, &context.settings, url))),
        None => SmallFileMethod::OneByOne(Box::new(ManyWriter::new(session))),
    };
    let mut undone = Vec::new();
    let mut next = Some(first.clone());
    loop {
        let mut broken = None;
        while many.has_room() && !context.stopping() {
            // Do not wait for the list while answers are due anyway.
            let fits = |item: &Item| way(item, context) == wanted;
            let Some(item) = next.take().or_else(|| queue.try_take(fits)) else { break };
            let (CopyPath::Local(path), CopyPath::Remote(to)) = (&item.from, &item.to) else { continue };
            // Leave the error for an invalid path to the single copy.
            if to.path.contains(['?', '\0']) {
                undone.push((item, EarlierAttempt::Nothing));
                continue;
            }
            match read_small(path, item.size.unwrap_or(0)) {
                Ok((data, mode)) => {
                    let (path, replace) = (to.path.clone(), context.options.force || item.how == CopyAction::Replace);
                    let words = item.mtime.filter(|_| keeps_times).map(times::words);
                    let file = SmallFile { replace, words, ..SmallFile::new(path, mode, data, item) };
                    broken = many.put(file).err();
                }
                Err(error) => report(context, reports, &item, Err(error)),
            }
            if broken.is_some() {
                break;
            }
        }
        match broken.map_or_else(|| many.wait(), Err) {
            Ok(None) => {
                client.give_back(many.into_session(), url);
                // A stop came before the first of them was sent.
                undone.extend(next.map(|item| (item, EarlierAttempt::Nothing)));
                return undone;
            }
            Ok(Some(written)) => {
                let SmallFile { data, tag: item, opened, made, .. } = written.file;
                match written.result {
                    Ok(()) => {
                        let len = data.len() as u64;
                        context.progress.moved(len);
                        report(context, reports, &item, Ok(small(len)));
                    }
                    Err(error) if error.kind() == client::Kind::Exists => {
                        let path = item.to.to_string();
                        report(context, reports, &item, Err(TransferError::Exists { path }));
                    }
                    // For example a redirect, or a restarted server that takes no batches any more. The single copy handles it. It also
                    // removes files that a cluster's manager opened in vain.
                    Err(error) if is_for_the_careful_way(&error) || opened && many.is_in_batches() => {
                        if opened {
                            copied_again(context, &error, 1);
                        }
                        let before = match (opened, many.is_in_batches()) {
                            (false, _) => EarlierAttempt::Nothing,
                            (true, false) => EarlierAttempt::Begun(made),
                            (true, true) => EarlierAttempt::Opened,
                        };
                        undone.push((item, before));
                    }
                    Err(error) => {
                        let error = TransferError::from(error);
                        // The target differs from what was sent: it must not stay.
                        if let Some(made) = made {
                            bulk(context, &item, None).clean_up(client, &made, (false, &error));
                        }
                        report(context, reports, &item, Err(error));
                    }
                }
            }
            Err(error) => {
                let is_in_batches = many.is_in_batches();
                let unfinished = many.unfinished();
                copied_again(context, &error, unfinished.len());
                undone.extend(unfinished.into_iter().map(|file| {
                    let before = EarlierAttempt::of(is_in_batches, &file);
                    (file.tag, before)
                }));
                return undone;
            }
        }
    }
}

/// The same from a server.
fn down(
    context: &Context,
    client: &mut Client,
    url: &Url,
    first: &Item,
    queue: &Queue,
    reports: &Mutex<&mut dyn Reports>,
) -> Vec<(Item, EarlierAttempt)> {
    let wanted = way(first, context);
    let Ok(algorithm) = context.offered(client, url) else { return vec![(first.clone(), EarlierAttempt::Nothing)] };
    let Some(session) = session_with_pages(client, url) else { return vec![(first.clone(), EarlierAttempt::Nothing)] };
    let mut many = ManyReader::new(session, algorithm);
    let mut undone = Vec::new();
    let mut next = Some(first.clone());
    loop {
        let mut broken = None;
        while many.under_way() < WINDOW && !context.stopping() && broken.is_none() {
            let fits = |item: &Item| way(item, context) == wanted;
            let Some(item) = next.take().or_else(|| queue.try_take(fits)) else { break };
            let CopyPath::Remote(from) = &item.from else { continue };
            let len = usize::try_from(item.size.unwrap_or(0)).unwrap_or(0);
            broken = many.ask(from.path.clone(), len, item).err();
        }
        match broken.map_or_else(|| many.wait(), Err) {
            Ok(None) => {
                if let Ok(session) = many.into_session() {
                    client.give_back(session, url);
                }
                undone.extend(next.map(|item| (item, EarlierAttempt::Nothing)));
                return undone;
            }
            Ok(Some(read)) => {
                let item = read.tag;
                match read.result {
                    Ok(data) => {
                        let len = data.len() as u64;
                        let CopyPath::Local(path) = &item.to else { continue };
                        let options = &context.options;
                        let force = options.force || item.how == CopyAction::Replace;
                        let mode = read.mode.unwrap_or(0o644);
                        let mtime = read.mtime.map(Timestamp::from_secs).filter(|_| options.preserve);
                        let kept = mtime.map(|mtime| KeptAttributes { mtime, mode });
                        let written = write_small(path, &data, mode, kept, force, options.sync);
                        context.progress.moved(len);
                        report(context, reports, &item, written.map(|()| small(len)));
                    }
                    // A standby manager redirects every open, and the single copy follows.
                    Err(ClientError::Unexpected { .. } | ClientError::Moved { .. }) => {
                        undone.push((item, EarlierAttempt::Nothing));
                    }
                    Err(error) => report(context, reports, &item, Err(error.into())),
                }
            }
            Err(error) => {
                let unfinished = many.unfinished();
                copied_again(context, &error, unfinished.len());
                undone.extend(unfinished.into_iter().map(|(item, _)| (item, EarlierAttempt::Nothing)));
                return undone;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use client::Settings;

    use super::*;
    use crate::waits::{Shown, WaitNotices};

    #[test]
    fn small_files_share_a_connection_with_those_of_the_same_user_at_the_same_server() {
        let options = crate::options::tests::plain().of_each_file();
        let context = Context::new(options, Settings::default(), WaitNotices::new(Shown::Off));
        let item = |from: &str, to: &str| {
            let (from, to) = (CopyPath::parse(from).unwrap(), CopyPath::parse(to).unwrap());
            way(&Item { from, to, size: Some(10), mtime: None, how: CopyAction::New }, &context)
        };
        let ana = item("root://ana@host//a", "/x");
        assert!(ana.is_some());
        assert_eq!(ana, item("root://ana@host//b", "/y"));
        assert_ne!(ana, item("root://eve@host//b", "/y"));
        assert_ne!(ana, item("root://host//b", "/y"));
        assert_ne!(ana, item("root://ana@host:99//b", "/y"));
        assert_ne!(ana, item("roots://ana@host//b", "/y"));
        assert_ne!(item("/x", "root://ana@host//a"), item("/x", "root://eve@host//a"));
        assert_ne!(item("/x", "root://ana@host//a"), ana);
    }
}
