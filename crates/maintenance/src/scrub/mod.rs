//! The scrub: a thread of a running node that reads every content from the disk, slowly, again and again, and compares it with its
//! checksums, so that what rots is known while its source, or another copy, is still there.
//!
//! What it finds is said once, and the file marked as `weir fsck --repair` marks it. [`Scrub`] is asked and told by `weir scrub`
//! through the control socket; how far it is survives a restart ([`position`]).

mod damage;
mod pace;
pub mod position;

use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use disk::Disk;
use namespace::Namespace;
use pace::Pace;
use position::{Position, Tally};
use store::{Scrubbed, Scrubber, Store, StoreError};
use types::{ErrorCode, ReplicaId};

/// How often the position is written while a pass is under way.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Contents asked for at a time.
const PAGE: usize = 256;
/// How long to wait after a failure that concerns no content in particular.
const PAUSE_AFTER_TROUBLE: Duration = Duration::from_secs(60);
/// No longer than this between two looks at the time of day, which may be set.
const LOOK: Duration = Duration::from_secs(3600);

/// How the scrub is to be done.
#[derive(Clone, Copy, Debug)]
pub struct ScrubConfig {
    /// Bytes a second; 0: none is begun by itself.
    pub rate: u64,
    /// From the beginning of one pass to that of the next.
    pub period: Duration,
    /// When the data directory was made, in seconds since 1970: the first pass is due a period later.
    pub created: u64,
}

/// What the scrub is at.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// A pass is under way.
    pub running: bool,
    /// Bytes a second; 0: off.
    pub rate: u64,
    /// Seconds from one pass to the next.
    pub period: u64,
    /// The number of the pass under way, or of the last one; 0: there was none.
    pub pass: u64,
    /// When the next one begins, in seconds since 1970; none: not by itself.
    pub due: Option<u64>,
    /// The pass under way.
    pub current: Option<serde_json::Value>,
    /// The last one that came to its end.
    pub last: Option<serde_json::Value>,
    /// Why it does not go on, if so.
    pub trouble: Option<String>,
}

/// What the thread works on.
struct Work {
    store: Arc<Store>,
    namespace: Arc<Namespace>,
    config: ScrubConfig,
}

/// What is told to the thread, and what it tells.
#[derive(Default)]
struct ScrubControl {
    stop: bool,
    /// The pass that the thread is at has ended: it is to leave it, also when another has begun since.
    ended_by_hand: bool,
    /// For the pass under way, instead of what is configured.
    rate: Option<u64>,
    position: Position,
    trouble: Option<String>,
}

struct Shared {
    desk: Mutex<ScrubControl>,
    changed: Condvar,
    config: ScrubConfig,
    disk: Arc<dyn Disk>,
    /// Held while the position is kept, so that no older one comes after a newer one.
    keeping: Mutex<()>,
}

/// The scrub of a running node.
pub struct Scrub {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a pass stops before its end.
enum Stopped {
    /// The node stops.
    ByNode,
    /// Somebody asked for it.
    ByHand,
    /// Something failed that no single content is to blame for.
    Trouble(String),
}

impl Scrub {
    /// Starts the thread.
    pub fn start(
        disk: Arc<dyn Disk>,
        store: Arc<Store>,
        namespace: Arc<Namespace>,
        config: ScrubConfig,
    ) -> std::io::Result<Self> {
        let position = Position::read(&*disk).unwrap_or_else(|error| {
            tracing::warn!("the position of the scrub cannot be read: {error}");
            Position::default()
        });
        let desk = Mutex::new(ScrubControl { position, ..ScrubControl::default() });
        let shared = Arc::new(Shared { desk, changed: Condvar::new(), config, disk, keeping: Mutex::default() });
        let inner = Arc::clone(&shared);
        let work = Work { store, namespace, config };
        let thread = std::thread::Builder::new().name("scrub".into()).stack_size(512 << 10);
        let thread = thread.spawn(move || {
            // It only looks: a bug in it is no reason to stop serving.
            let run = std::panic::AssertUnwindSafe(|| inner.run(&work));
            if std::panic::catch_unwind(run).is_err() {
                tracing::error!("the scrub has ended by a panic; it begins again with the next start");
                inner.desk().trouble = Some("it has ended by a panic, a bug of weir".into());
            }
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Ends it; how far it was is kept.
    pub fn stop(&self) {
        self.shared.desk().stop = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic was caught.
            let _ = thread.join();
        }
    }

    /// Begins a pass, or goes on with the one under way; `rate`: at so many bytes a second. It is under way when this returns.
    ///
    /// # Errors
    /// In words, if it is not said how fast, neither here nor in the configuration.
    pub fn now(&self, rate: Option<u64>) -> Result<(), String> {
        let mut desk = self.shared.desk();
        let rate = rate.or(desk.rate);
        if rate.is_none() && self.shared.config.rate == 0 {
            return Err("the scrub is off (scrub.rate is 0); say how fast this pass may read: --rate 16MiB".into());
        }
        desk.rate = rate;
        let begun = desk.begin(seconds_now());
        drop(desk);
        self.shared.changed.notify_all();
        if let Some(pass) = begun {
            self.shared.begun(pass);
        }
        Ok(())
    }

    /// Ends the pass under way, as if it had come to its end: the next one comes when it is due. That is kept when this returns.
    pub fn give_up(&self) {
        let mut desk = self.shared.desk();
        let Some((tally, _)) = desk.position.current else { return };
        desk.end(tally);
        desk.ended_by_hand = true;
        drop(desk);
        self.shared.changed.notify_all();
        self.shared.keep();
        tracing::info!("scrub: the pass was ended by hand");
    }

    /// What it is at.
    #[must_use]
    pub fn status(&self) -> Status {
        let desk = self.shared.desk();
        let json = |tally: Tally| serde_json::to_value(tally).unwrap_or_default();
        let Position { pass, current, last } = desk.position;
        Status {
            running: current.is_some(),
            rate: desk.rate.unwrap_or(self.shared.config.rate),
            period: self.shared.config.period.as_secs(),
            pass,
            due: if current.is_none() { self.shared.config.due(&desk.position) } else { None },
            current: current.map(|(tally, _)| json(tally)),
            last: last.map(json),
            trouble: desk.trouble.clone(),
        }
    }
}

impl ScrubConfig {
    /// When the next pass is due; `None`: not by itself.
    fn due(&self, position: &Position) -> Option<u64> {
        let last = position.last.map_or(self.created, |last| last.began);
        (self.rate > 0).then(|| last.saturating_add(self.period.as_secs()))
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, ScrubControl> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for up to `patience`, or until somebody says something. True: go on.
    fn rest<'a>(&'a self, desk: MutexGuard<'a, ScrubControl>, patience: Duration) -> MutexGuard<'a, ScrubControl> {
        self.changed.wait_timeout(desk, patience).unwrap_or_else(PoisonError::into_inner).0
    }

    fn run(&self, work: &Work) {
        while self.wait_for_a_pass(work) {
            let mut trouble = None;
            // Of one pass: it takes memory, and has files open.
            match self.pass(work, &mut Scrubber::default()) {
                Ok(()) => {}
                Err(Stopped::ByNode) => break,
                Err(Stopped::ByHand) => {}
                Err(Stopped::Trouble(what)) => trouble = Some(what),
            }
            let mut desk = self.desk();
            if trouble.is_some() && trouble != desk.trouble {
                tracing::error!("the scrub cannot continue for now: {}", trouble.as_deref().unwrap_or_default());
            }
            desk.trouble = trouble;
            if desk.trouble.is_some() && !desk.stop {
                drop(self.rest(desk, PAUSE_AFTER_TROUBLE));
            }
        }
        if self.desk().position.current.is_some() {
            self.keep();
        }
    }

    fn keep(&self) {
        let _in_order = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let position = self.desk().position;
        if let Err(error) = position.write(&*self.disk) {
            tracing::warn!(
                "the position of the scrub cannot be saved, so a restart will begin the pass further back: {error}"
            );
        }
    }

    /// Returns when a pass is due or under way. False: the node stops.
    fn wait_for_a_pass(&self, work: &Work) -> bool {
        let mut desk = self.desk();
        loop {
            if desk.stop {
                return false;
            }
            let going_on = desk.position.current.is_some() && (work.config.rate > 0 || desk.rate.is_some());
            let now = seconds_now();
            let left = work.config.due(&desk.position).map(|due| due.saturating_sub(now));
            if going_on || left == Some(0) {
                // What was said of an earlier pass is not said of this one.
                desk.ended_by_hand = false;
                let begun = desk.begin(now);
                drop(desk);
                if let Some(pass) = begun {
                    self.begun(pass);
                }
                return true;
            }
            let patience = left.map_or(LOOK, |left| Duration::from_secs(left).min(LOOK));
            desk = self.rest(desk, patience);
        }
    }

    fn begun(&self, pass: u64) {
        tracing::info!("scrub: pass {pass} begins");
        self.keep();
    }

    /// One pass, from where it stands to its end.
    fn pass(&self, work: &Work, scrubber: &mut Scrubber) -> Result<(), Stopped> {
        let mut pace = Pace::default();
        let mut kept = Instant::now();
        loop {
            let after = self.desk().at()?.1;
            let replicas = work.store.replicas(after, PAGE).map_err(|error| Stopped::Trouble(error.to_string()))?;
            if replicas.is_empty() {
                break;
            }
            for (replica, _) in replicas {
                let scrubbed = self.replica(work, scrubber, replica, &mut pace)?;
                let mut desk = self.desk();
                let (tally, after) = desk.at()?;
                *after = Some(replica);
                match scrubbed {
                    Looked::Whole => tally.whole += 1,
                    Looked::Busy => tally.busy += 1,
                    Looked::Damaged => tally.damaged += 1,
                }
                drop(desk);
                if kept.elapsed() >= KEEP_INTERVAL {
                    kept = Instant::now();
                    self.keep();
                }
            }
        }
        let mut desk = self.desk();
        let pass = desk.position.pass;
        let tally = desk.at()?.0;
        desk.end(tally);
        drop(desk);
        self.keep();
        let Tally { whole, busy, damaged, bytes, .. } = tally;
        tracing::info!(
            "scrub: pass {pass} has ended: {whole} objects of {bytes} bytes are whole, {damaged} damaged, {busy} were being written"
        );
        Ok(())
    }

    fn replica(
        &self,
        work: &Work,
        scrubber: &mut Scrubber,
        replica: ReplicaId,
        pace: &mut Pace,
    ) -> Result<Looked, Stopped> {
        let mut began = Instant::now();
        let mut stopped = self.go_on();
        if stopped.is_none() {
            let scrubbed = work.store.scrub(replica, scrubber, &mut |bytes| {
                stopped = self.pause(pace, bytes, began.elapsed());
                began = Instant::now();
                stopped.is_none()
            });
            match scrubbed {
                Ok(Scrubbed::Whole(_)) => {
                    damage::whole_again(&work.namespace, replica)
                        .map_err(|error| Stopped::Trouble(error.to_string()))?;
                    return Ok(Looked::Whole);
                }
                Ok(Scrubbed::Busy) => return Ok(Looked::Busy),
                Ok(Scrubbed::Stopped) => {}
                Err(error) => return found(work, replica, &error),
            }
        }
        Err(stopped.unwrap_or(Stopped::ByNode))
    }

    /// After `bytes` were read: rests as long as is due. Says if the pass is not to go on.
    fn pause(&self, pace: &mut Pace, bytes: u64, took: Duration) -> Option<Stopped> {
        let mut desk = self.desk();
        match desk.at() {
            Ok((tally, _)) => tally.bytes += bytes,
            Err(stopped) => return Some(stopped),
        }
        let rate = desk.rate.unwrap_or(self.config.rate);
        let end = Instant::now() + pace.rest(bytes, took, rate);
        loop {
            if let Some(stopped) = desk.stopped() {
                return Some(stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            desk = self.rest(desk, left);
        }
    }

    fn go_on(&self) -> Option<Stopped> {
        self.desk().stopped()
    }
}

impl ScrubControl {
    /// Begins a pass if none is under way, and gives its number.
    fn begin(&mut self, now: u64) -> Option<u64> {
        let Position { pass, current, .. } = &mut self.position;
        if current.is_some() {
            return None;
        }
        *pass += 1;
        *current = Some((Tally { began: now, ..Tally::default() }, None));
        Some(*pass)
    }

    /// The pass under way is over.
    fn end(&mut self, tally: Tally) {
        self.position.current = None;
        self.position.last = Some(Tally { ended: seconds_now(), ..tally });
        self.rate = None;
    }

    /// How far the thread's pass is.
    fn at(&mut self) -> Result<&mut (Tally, Option<ReplicaId>), Stopped> {
        match self.stopped() {
            Some(stopped) => Err(stopped),
            None => self.position.current.as_mut().ok_or(Stopped::ByHand),
        }
    }

    fn stopped(&mut self) -> Option<Stopped> {
        if self.stop {
            return Some(Stopped::ByNode);
        }
        std::mem::take(&mut self.ended_by_hand).then_some(Stopped::ByHand)
    }
}

enum Looked {
    Whole,
    Busy,
    Damaged,
}

/// A content is not as it was written, or could not be looked at.
fn found(work: &Work, replica: ReplicaId, error: &StoreError) -> Result<Looked, Stopped> {
    let concerns_it = !matches!(error, StoreError::Index(_))
        && matches!(error.code(), ErrorCode::Checksum | ErrorCode::Damaged | ErrorCode::Io | ErrorCode::NotFound);
    if !concerns_it {
        return Err(Stopped::Trouble(error.to_string()));
    }
    let said = damage::tell(&work.namespace, &work.store, replica, &error.to_string());
    let is_damaged = said.map_err(|error| Stopped::Trouble(error.to_string()))?;
    Ok(if is_damaged { Looked::Damaged } else { Looked::Busy })
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
