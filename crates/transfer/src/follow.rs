//! A source that is still being written. The copy reads what is durable, waits for more, and ends when the writer has closed the file.

use std::collections::BTreeMap;
use std::sync::mpsc::SyncSender;
use std::time::{Duration, Instant};

use client::{
    Algorithm, AtEnd, Chunk, Client, ClientError, FileState, FollowError, Follower, Reader, Session, Url, Wait,
    WaitReason,
};
use disk::AlignedBuf;
use types::Timestamp;
use wire::request::OpenOptions;

use crate::context::Context;
use crate::ends::{CHUNK, PartSum, hand_on};
use crate::error::TransferError;
use crate::pool::Pool;
use crate::times;

/// How often to tell the user that the file does not grow.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// A file that is being written, open for reading.
pub struct Growing {
    follower: Follower<AlignedBuf>,
    url: Url,
}

impl Growing {
    /// Opens it. `None`: nobody writes it.
    pub fn open(context: &Context, client: &mut Client, url: &Url) -> Result<Option<Self>, TransferError> {
        if !context.is_weir(client, url)? {
            return Err(TransferError::FollowElsewhere { server: url.server.to_string() });
        }
        let state = FileState::of(client, url)?;
        if state != FileState::BeingWritten {
            return Ok(None);
        }
        let own = Client::new(context.settings.clone());
        let follower = Follower::open(own, url, state).map_err(|error| failed(error, url))?;
        Ok(Some(Self { follower, url: url.clone() }))
    }

    /// Its permission bits.
    pub fn mode(&self) -> u16 {
        self.follower.file().stat().extra.as_ref().map_or(0o644, |extra| extra.mode) & 0o777
    }

    /// When it was changed, at the open.
    pub fn mtime(&self) -> Timestamp {
        times::of_server(self.follower.file().stat())
    }

    /// The most requests under way.
    pub fn window(&self) -> usize {
        self.follower.file().window_for(CHUNK)
    }

    /// Its connection.
    pub fn into_reader(self) -> Reader<AlignedBuf> {
        self.follower.into_reader()
    }

    /// Reads it to its end. Returns the connection, unless it failed.
    pub fn read(
        mut self,
        context: &Context,
        pool: &Pool,
        algorithm: Option<Algorithm>,
        sender: &SyncSender<PartSum>,
    ) -> (Option<Session>, Result<(), TransferError>) {
        context.progress.follows();
        let read = self.follow(context, (pool, algorithm, sender));
        context.progress.follows_no_more();
        match read {
            Err(TransferError::Client(error)) if error.kind() == client::Kind::Connection => (None, Err(error.into())),
            read => (self.follower.into_reader().give_up(), read),
        }
    }

    fn follow(&mut self, context: &Context, to: Handing<'_>) -> Result<(), TransferError> {
        let settings = &context.settings;
        let mut shown = self.follower.file().stat().size;
        let mut end = End::new(Instant::now());
        let mut width = 1;
        loop {
            let looked = match self.round(&end, width, context, to) {
                Ok(got) => {
                    // At the end of the file, further requests would get nothing.
                    let was_full = got == width as u64 * CHUNK as u64;
                    width = if was_full { (width * 2).min(self.window()) } else { 1 };
                    if end.moved(got, Instant::now()) {
                        context.progress.grew(end.at.saturating_sub(shown));
                        shown = shown.max(end.at);
                        continue;
                    }
                    self.follower.at_end(end.at)
                }
                Err(TransferError::Client(error @ ClientError::Refused { .. })) => {
                    Err(self.follower.refused(error, end.at))
                }
                Err(error) => return Err(error),
            };
            match looked {
                Ok(AtEnd::Complete) => return Ok(()),
                Ok(AtEnd::NotYet) => {}
                Err(FollowError::Interrupted { .. }) => {
                    let at = self.rest(end.at, to)?;
                    return Err(TransferError::Interrupted { from: self.url.to_string(), at });
                }
                Err(error) => return Err(failed(error, &self.url)),
            }
            let (waited, left) = end.waits(Instant::now(), settings.wait_max);
            if left.is_zero() {
                let (from, after) = (self.url.to_string(), settings.wait_max);
                return Err(TransferError::NotGrowing { from, at: end.at, after });
            }
            self.tell(context, (waited, left));
            self.follower.pause()?;
        }
    }

    fn tell(&self, context: &Context, (waited, left): (Duration, Duration)) {
        let (server, what) = (&self.url.server, format!("follow {}", self.url));
        context.settings.watch.tell(&Wait { server, what: &what, why: WaitReason::Writer, waited, left });
    }

    /// Reads up to `width` parts at the end of what was read, and hands on those before the file's present end. Returns
    /// the number of their bytes.
    fn round(
        &mut self,
        end: &End,
        width: usize,
        context: &Context,
        (pool, algorithm, sender): Handing<'_>,
    ) -> Result<u64, TransferError> {
        let at = end.at;
        for number in 0..width {
            // The writer needs the others now.
            let buffer = if number == 0 { pool.take() } else { pool.try_take() };
            let Some(buffer) = buffer else { break };
            if width == 1 {
                self.follower.ask_at_end(at, CHUNK, buffer)?;
            } else {
                self.follower.reader().ask(at + (number * CHUNK) as u64, CHUNK, buffer)?;
            }
        }
        if self.follower.reader().under_way() == 0 {
            return Err(TransferError::Stopped);
        }
        let mut parts = BTreeMap::new();
        while self.follower.reader().under_way() > 0 {
            let now = Instant::now();
            match self.follower.reader().wait_until(now + TELL_EVERY)? {
                Some(part) => drop(parts.insert(part.offset, part)),
                None if width == 1 => self.tell(context, end.waits(Instant::now(), context.settings.wait_max)),
                None => {}
            }
        }
        let mut end = at;
        for (offset, part) in parts {
            // Behind a short part there may be more by now. The next round reads it, with what was missing before it.
            if offset == end && part.len > 0 {
                end += part.len as u64;
                hand_on(part, algorithm, sender)?;
            } else {
                pool.give(part.buffer);
            }
        }
        Ok(end - at)
    }

    /// Reads what an interrupted file has at `at` and behind. Returns where it ends.
    fn rest(&mut self, mut at: u64, (pool, algorithm, sender): Handing<'_>) -> Result<u64, TransferError> {
        let mut kept = self.url.clone();
        kept.add_words("weir.partial=1");
        let client = self.follower.client();
        let mut file = match client.open(&kept, OpenOptions::READ, 0) {
            Ok(file) => file,
            // For example, it was removed since. The caller reports the interruption.
            Err(ClientError::Refused { .. }) => return Ok(at),
            Err(error) => return Err(error.into()),
        };
        loop {
            let mut buffer = pool.take().ok_or(TransferError::Stopped)?;
            let len = file.read_at(at, &mut buffer)?;
            if len == 0 {
                client.give_back(file.close()?, &self.url);
                return Ok(at);
            }
            hand_on(Chunk { offset: at, len, buffer }, algorithm, sender)?;
            at += len as u64;
        }
    }
}

fn failed(error: FollowError, url: &Url) -> TransferError {
    let from = url.to_string();
    match error {
        FollowError::Client(error) => error.into(),
        FollowError::Interrupted { at, .. } => TransferError::Interrupted { from, at },
        FollowError::Changed { at, found, .. } => TransferError::Changed { from, expected: found, found: at },
    }
}

/// Where read parts go.
type Handing<'a> = (&'a Pool, Option<Algorithm>, &'a SyncSender<PartSum>);

/// How far a file was read, and since when it has not grown.
#[derive(Clone, Copy, Debug)]
struct End {
    at: u64,
    since: Instant,
}

impl End {
    fn new(now: Instant) -> Self {
        Self { at: 0, since: now }
    }

    /// `bytes` more were read. Returns whether there were any.
    fn moved(&mut self, bytes: u64, now: Instant) -> bool {
        if bytes > 0 {
            *self = Self { at: self.at + bytes, since: now };
        }
        bytes > 0
    }

    /// How long it has not grown, and how much longer that may last.
    fn waits(&self, now: Instant, most: Duration) -> (Duration, Duration) {
        let waited = now.saturating_duration_since(self.since);
        (waited, most.saturating_sub(waited))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_growth_makes_it_wait_longer() {
        let (start, most) = (Instant::now(), Duration::from_secs(10));
        let after = |seconds| start + Duration::from_secs(seconds);
        let mut end = End::new(start);
        assert_eq!(end.waits(after(3), most), (Duration::from_secs(3), Duration::from_secs(7)));
        assert!(!end.moved(0, after(9)) && end.moved(5, after(9)));
        assert_eq!(end.at, 5);
        assert_eq!(end.waits(after(18), most).1, Duration::from_secs(1));
        assert!(!end.moved(0, after(19)) && end.waits(after(19), most).1.is_zero());
    }
}
