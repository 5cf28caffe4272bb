//! How far an open write may go before more must be reserved from the quotas. The bytes are acknowledged only after that. While nothing limits the open
//! write, nobody waits: it asks ahead, and goes on whatever becomes of the question.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;

use disk_server::{DiskServer, NotAgreed};
use namespace::{Durability, NsError, Reserve, WriterToken};
use parking_lot::Mutex;
use types::{ErrorCode, NsPath};

use crate::error::Error;
use crate::names::{By, Names, wall_clock};

/// How far an open write may go at first while nothing limits it. It asks again at half of that: a quota may have been set. With each answer that nothing
/// limits it, it may go twice as far.
const WINDOW_MIN: u64 = 64 << 20;
/// The farthest that it may go. A quota that is set meanwhile may be exceeded by half of that, and by what is written until the answer comes. A stream of
/// 1 GB/s asks 7 times a second, and the answer takes one read of the namespace.
const WINDOW_MAX: u64 = 256 << 20;

/// Why nothing was reserved.
#[derive(Debug)]
enum Refused {
    ByNamespace(NsError),
    ByManager(NotAgreed),
}

/// Takes the answer: how far the open write may go now. `None`: nothing limits it.
type Then = Box<dyn FnOnce(Result<Option<u64>, Refused>) + Send>;

/// Who reserves.
trait Reserves: Send + Sync {
    /// Calls `then` once, perhaps in another thread; it must not wait.
    fn reserve(&self, writer: WriterToken, len: u64, then: Then);

    /// The error for the client.
    fn error(&self, path: &NsPath, refused: &Refused) -> Error;
}

/// Reserves more: in the namespace of this node, or at the manager.
#[derive(Clone)]
pub(crate) struct Growth(Arc<dyn Reserves>);

/// How far an open write may go.
pub(crate) struct MayReach {
    reach: Arc<Reach>,
    growth: Option<Growth>,
}

struct Reach {
    /// As far as this there is nothing to do. It is [`State::free_to`].
    free_to: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Writes may end here.
    len: u64,
    unlimited: Option<Unlimited>,
}

/// Nothing limited the open write when that was last asked.
#[derive(Debug)]
struct Unlimited {
    window: u64,
    /// The end of the write at which it asked, while there is no answer.
    asked_at: Option<u64>,
    /// The farthest end of a write that has come to [`State::next`].
    reached: u64,
}

impl Unlimited {
    fn from(reached: u64) -> Self {
        Self { window: WINDOW_MIN, asked_at: None, reached }
    }
}

/// What a write has to do first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Go,
    /// Ask whether this length is still allowed, but wait for nothing.
    AskAhead(u64),
    Wait,
}

impl Growth {
    pub(crate) fn new(names: Names, disk: Option<Arc<DiskServer>>) -> Self {
        Self(disk.map_or_else(
            || Arc::new(names) as Arc<dyn Reserves>,
            |disk| Arc::new(AtManager(disk)) as Arc<dyn Reserves>,
        ))
    }

    /// For an open write that may reach `len` so far. `None`: nothing limits it yet.
    pub(crate) fn from(&self, len: Option<u64>) -> MayReach {
        MayReach { reach: Reach::new(State::new(len)), growth: Some(self.clone()) }
    }

    /// Waits for the namespace or the manager.
    fn wait(&self, writer: WriterToken, path: &NsPath, len: u64) -> Result<Option<u64>, Error> {
        let (sender, receiver) = sync_channel(1);
        let then = move |reserved| {
            // The receiver waits below; it is gone only if its thread panicked.
            let _ = sender.send(reserved);
        };
        self.0.reserve(writer, len, Box::new(then));
        let reserved = receiver.recv().unwrap_or(Err(Refused::ByManager(NotAgreed::NoAnswer)));
        reserved.map_err(|refused| self.0.error(path, &refused))
    }
}

impl Reserves for Names {
    fn reserve(&self, writer: WriterToken, len: u64, then: Then) {
        // Most open writes have no limit, and then there is nothing to change.
        match self.read(|read| namespace::is_unlimited(read, wall_clock(), &writer)) {
            Ok(true) => then(Ok(None)),
            Ok(false) => self.change(By::service(), Durability::Written, Reserve { writer, len }, |reserved| {
                then(reserved.map_err(Refused::ByNamespace));
            }),
            Err(error) => then(Err(Refused::ByNamespace(error))),
        }
    }

    fn error(&self, path: &NsPath, refused: &Refused) -> Error {
        refused.error(path)
    }
}

struct AtManager(Arc<DiskServer>);

impl Reserves for AtManager {
    fn reserve(&self, writer: WriterToken, len: u64, then: Then) {
        self.0.reserve(writer, len, move |reserved| then(reserved.map_err(Refused::ByManager)));
    }

    fn error(&self, path: &NsPath, refused: &Refused) -> Error {
        if refused.code() == ErrorCode::Stale {
            // It goes on elsewhere, or has ended, or its client has opened it again and not come here with that yet. This server may still take its
            // writes, but nothing is reserved for them: a client that opens again and never comes would write past every quota.
            return Error::of_disk_server(&format_args!("write {path}"), &self.0.moved());
        }
        refused.error(path)
    }
}

impl Refused {
    fn code(&self) -> ErrorCode {
        match self {
            Self::ByNamespace(error) => error.code(),
            Self::ByManager(error) => error.code(),
        }
    }

    fn error(&self, path: &NsPath) -> Error {
        let doing = format_args!("write {path}");
        match self {
            Self::ByNamespace(error) => Error::of_namespace(&doing, error),
            Self::ByManager(error) => Error::of_manager(&doing, error),
        }
    }
}

impl State {
    fn new(len: Option<u64>) -> Self {
        match len {
            Some(len) => Self { len, unlimited: None },
            None => Self { len: WINDOW_MIN, unlimited: Some(Unlimited::from(0)) },
        }
    }

    fn free_to(&self) -> u64 {
        match &self.unlimited {
            Some(Unlimited { window, asked_at: None, .. }) => self.len.saturating_sub(window / 2),
            // Each write comes to `next`, so that no more is allowed than is written if the answer sets a limit.
            Some(Unlimited { reached, asked_at: Some(_), .. }) => *reached,
            None => self.len,
        }
    }

    /// A write wants to end at `end`.
    fn next(&mut self, end: u64) -> Next {
        let Some(Unlimited { window, asked_at, reached }) = &mut self.unlimited else {
            return if end <= self.len { Next::Go } else { Next::Wait };
        };
        *reached = end.max(*reached);
        if end > self.len {
            self.len = end.saturating_add(*window);
        }
        match asked_at {
            Some(_) => Next::Go,
            None => {
                *asked_at = Some(end);
                // What may be written before the answer comes is asked for, too. Longer than that no file can be.
                Next::AskAhead(self.len.min(i64::MAX.unsigned_abs()))
            }
        }
    }

    /// The answer to [`Next::AskAhead`].
    fn answered_ahead(&mut self, answer: Result<Option<u64>, ErrorCode>) {
        match answer {
            Ok(Some(len)) => return self.limit(len),
            // The next write that goes further waits, and is told why it may not.
            Err(ErrorCode::Quota | ErrorCode::Stale) => return self.limit(0),
            Ok(None) | Err(_) => {}
        }
        // A later open may have said already that it is limited.
        let Some(Unlimited { window, asked_at, .. }) = &mut self.unlimited else { return };
        let Some(end) = asked_at.take() else { return };
        if answer.is_ok() {
            *window = window.saturating_mul(2).min(WINDOW_MAX);
        }
        self.len = self.len.max(end.saturating_add(*window));
    }

    /// The answer that a write has waited for.
    fn answered(&mut self, end: u64, len: Option<u64>) {
        match len {
            Some(len) => self.limit(len),
            None if self.unlimited.is_some() => {}
            None => {
                self.unlimited = Some(Unlimited::from(end));
                self.len = self.len.max(end.saturating_add(WINDOW_MIN));
            }
        }
    }

    /// Something limits it. What it may have written so far stays allowed.
    fn limit(&mut self, len: u64) {
        self.len = self.free_to().max(len);
        self.unlimited = None;
    }
}

impl Reach {
    fn new(state: State) -> Arc<Self> {
        Arc::new(Self { free_to: AtomicU64::new(state.free_to()), state: Mutex::new(state) })
    }

    fn update<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock();
        let done = change(&mut state);
        self.free_to.store(state.free_to(), Ordering::Relaxed);
        done
    }
}

impl MayReach {
    /// The server itself sets the length, and it was reserved.
    pub(crate) fn any() -> Self {
        Self { reach: Reach::new(State::new(Some(u64::MAX))), growth: None }
    }

    /// A later open of the same open write has reserved more. `None` changes nothing: some capabilities do not say how far their open write may go. If
    /// nothing limits it, [`MayReach::reserve`] learns that.
    pub(crate) fn learn(&self, len: Option<u64>) {
        if let Some(len) = len {
            self.reach.update(|state| state.limit(len));
        }
    }

    /// Whether a write up to `end` has nothing to do. Otherwise [`MayReach::reserve`] says whether it may.
    pub(crate) fn includes(&self, end: u64) -> bool {
        end <= self.reach.free_to.load(Ordering::Relaxed)
    }

    /// Reserves more, up to `end` at least. While nothing limits the open write, this waits for nobody.
    ///
    /// # Errors
    /// A quota is used up, or the open write has ended.
    pub(crate) fn reserve(&self, writer: WriterToken, path: &NsPath, end: u64) -> Result<(), Error> {
        let Some(growth) = &self.growth else { return Ok(()) };
        match self.reach.update(|state| state.next(end)) {
            Next::Go => {}
            Next::AskAhead(len) => {
                let reach = Arc::clone(&self.reach);
                growth.0.reserve(
                    writer,
                    len,
                    Box::new(move |answer| {
                        reach.update(|state| state.answered_ahead(answer.map_err(|refused| refused.code())));
                    }),
                );
            }
            Next::Wait => {
                let len = growth.wait(writer, path, end)?;
                self.reach.update(|state| state.answered(end, len));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use types::{ObjectId, WriterKey};

    use super::*;

    /// A manager that answers when the test says so.
    #[derive(Default)]
    struct Slow(Mutex<Vec<(u64, Then)>>);

    impl Slow {
        fn answer(&self, answer: Result<Option<u64>, NotAgreed>) -> u64 {
            let mut asked = std::mem::take(&mut *self.0.lock());
            let (len, then) = asked.pop().unwrap();
            assert!(asked.is_empty(), "it asks once");
            then(answer.map_err(Refused::ByManager));
            len
        }

        fn is_asked(&self) -> bool {
            !self.0.lock().is_empty()
        }
    }

    impl Reserves for Slow {
        fn reserve(&self, _: WriterToken, len: u64, then: Then) {
            self.0.lock().push((len, then));
        }

        fn error(&self, path: &NsPath, refused: &Refused) -> Error {
            refused.error(path)
        }
    }

    /// Refuses everything.
    struct Full;

    impl Reserves for Full {
        fn reserve(&self, _: WriterToken, _: u64, then: Then) {
            then(Err(Refused::ByManager(refusal(ErrorCode::Quota))));
        }

        fn error(&self, path: &NsPath, refused: &Refused) -> Error {
            refused.error(path)
        }
    }

    fn refusal(code: ErrorCode) -> NotAgreed {
        NotAgreed::Refused(node::RequestError { code, text: "no".to_owned() })
    }

    fn slow(len: Option<u64>) -> (Arc<Slow>, MayReach) {
        let manager = Arc::new(Slow::default());
        let reach = Growth(Arc::clone(&manager) as Arc<dyn Reserves>).from(len);
        (manager, reach)
    }

    impl MayReach {
        /// Whether a write up to `end` would have to wait.
        fn waits(&self, end: u64) -> bool {
            let state = self.reach.state.lock();
            state.unlimited.is_none() && end > state.len
        }
    }

    fn write(reach: &MayReach, end: u64) -> Result<(), Error> {
        let writer = WriterToken { key: WriterKey(1), object: ObjectId(2), epoch: 1 };
        if reach.includes(end) { Ok(()) } else { reach.reserve(writer, &NsPath::root(), end) }
    }

    #[test]
    fn an_open_that_does_not_say_how_far_it_may_go_lifts_no_limit() {
        let (_, reach) = slow(Some(10));
        reach.learn(None);
        assert!(reach.includes(10) && !reach.includes(11));
        reach.learn(Some(5));
        assert!(reach.includes(10));
        reach.learn(Some(20));
        assert!(reach.includes(20) && !reach.includes(21));
    }

    #[test]
    fn what_nothing_limits_never_waits_for_a_manager_that_does_not_answer() {
        let (manager, reach) = slow(None);
        write(&reach, WINDOW_MIN / 2).unwrap();
        assert!(!manager.is_asked());
        for end in (0..2000).map(|n| n * (16 << 20)) {
            write(&reach, end).unwrap();
        }
        // It gives up, and so on for ever.
        for (round, why) in [NotAgreed::NoAnswer, NotAgreed::TooMany, refusal(ErrorCode::Io)].into_iter().enumerate() {
            manager.answer(Err(why));
            for end in (2000 * (round as u64 + 1)..).take(2000).map(|n| n * (16 << 20)) {
                write(&reach, end).unwrap();
            }
            assert!(manager.is_asked());
        }
        write(&reach, u64::MAX).unwrap();
    }

    #[test]
    fn what_nothing_limits_asks_once_for_every_128_mib() {
        let (manager, reach) = slow(None);
        let mut asked = 0;
        for end in (1..=(1 << 20)).map(|n| n * (1 << 20)) {
            write(&reach, end).unwrap();
            if manager.is_asked() {
                manager.answer(Ok(None));
                asked += 1;
            }
        }
        assert!((8100..8300).contains(&asked), "{asked} times for 1 TiB");
    }

    #[test]
    fn a_quota_that_is_set_meanwhile_holds_from_the_answer_on() {
        let (manager, reach) = slow(None);
        write(&reach, WINDOW_MIN - 1).unwrap();
        assert_eq!(manager.answer(Ok(Some(WINDOW_MIN + 5))), WINDOW_MIN, "all that may be written is reserved");
        assert!(reach.includes(WINDOW_MIN + 5) && !reach.includes(WINDOW_MIN + 6));

        let (manager, reach) = slow(None);
        write(&reach, WINDOW_MIN - 1).unwrap();
        manager.answer(Err(refusal(ErrorCode::Quota)));
        assert!(reach.includes(WINDOW_MIN - 1) && !reach.includes(WINDOW_MIN), "what is written stays, and no more");

        let reach = Growth(Arc::new(Full)).from(None);
        write(&reach, WINDOW_MIN - 1).unwrap();
        assert!(matches!(write(&reach, WINDOW_MIN + 1), Err(Error::Refused { code: ErrorCode::Quota, .. })));
    }

    #[test]
    fn an_answer_that_was_overtaken_lifts_no_limit() {
        let (manager, reach) = slow(None);
        write(&reach, WINDOW_MIN - 1).unwrap();
        reach.learn(Some(7));
        manager.answer(Ok(None));
        assert!(reach.includes(WINDOW_MIN - 1) && !reach.includes(WINDOW_MIN));
    }

    #[test]
    fn a_long_write_exceeds_a_quota_that_is_set_meanwhile_by_little() {
        let (manager, reach) = slow(None);
        let (set_at, mib) = (100_u64 << 30, 1_u64 << 20);
        let mut over = 0;
        for end in (1..).map(|n| n * mib) {
            if reach.waits(end) {
                break;
            }
            write(&reach, end).unwrap();
            if manager.is_asked() {
                manager.answer(if end > set_at { Err(refusal(ErrorCode::Quota)) } else { Ok(None) });
            }
            over = end.saturating_sub(set_at);
        }
        assert!(over <= WINDOW_MAX / 2 + mib, "{over} bytes");
        assert!(over > 0);
    }

    #[test]
    fn what_is_written_while_the_answer_is_awaited_stays() {
        let (manager, reach) = slow(None);
        write(&reach, WINDOW_MIN - 1).unwrap();
        write(&reach, 5 * WINDOW_MIN).unwrap();
        write(&reach, 3 * WINDOW_MIN).unwrap();
        manager.answer(Err(refusal(ErrorCode::Quota)));
        assert!(reach.includes(5 * WINDOW_MIN) && !reach.includes(5 * WINDOW_MIN + 1));
    }
}
