//! The scrub: a thread of a running node. It slowly reads every object from the disk, again and again, and compares it with its checksums. So damage
//! is noticed while its source, or another replica, still exists.
//!
//! It reports to [`Findings`]. A single node reports each finding once, and marks the file like `weir fsck --repair` ([`MarkedFiles`]). A disk server has
//! a scrub for each store and reports to its manager. `weir scrub` controls [`Scrub`] through the control socket. Its position survives a restart
//! ([`position`]).

mod damage;
pub mod damaged_file;
mod findings;
mod pace;
pub mod position;

use std::sync::Arc;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use disk::Disk;
use pace::Pace;
use position::{Position, Tally};
use store::{Scrubbed, Scrubber, Store, StoreError};
use types::ReplicaId;

pub use damage::MarkedFiles;
pub use findings::Findings;

/// Bytes per second at which suspects are read if no rate is configured.
const SUSPECTS_RATE: u64 = 16 << 20;
/// How often the position is saved during a pass.
const KEEP_INTERVAL: Duration = Duration::from_secs(30);
/// Objects read at a time.
const PAGE: usize = 256;
/// How long to wait after an error that does not concern a single object.
const PAUSE_AFTER_TROUBLE: Duration = Duration::from_secs(60);
/// The longest time between two looks at the clock, which may be changed.
const LOOK: Duration = Duration::from_secs(3600);

/// The configuration of the scrub.
#[derive(Clone, Copy, Debug)]
pub struct ScrubConfig {
    /// Bytes per second; 0: no pass starts by itself.
    pub rate: u64,
    /// From the start of one pass to the start of the next.
    pub period: Duration,
    /// When the data directory was created, in seconds since 1970. The first pass is due a period later.
    pub created: u64,
}

/// The state of the scrub.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
pub struct Status {
    /// A pass is under way.
    pub running: bool,
    /// Bytes per second; 0: off.
    pub rate: u64,
    /// Seconds from one pass to the next.
    pub period: u64,
    /// The number of the present pass, or of the last one; 0: there was none.
    pub pass: u64,
    /// When the next pass begins, in seconds since 1970; none: no pass begins by itself.
    pub due: Option<u64>,
    /// The present pass.
    pub current: Option<serde_json::Value>,
    /// The last pass that ended.
    pub last: Option<serde_json::Value>,
    /// Why it is paused, if it is.
    pub trouble: Option<String>,
}

/// The store, the receiver of the findings, and the configuration of the thread.
struct Work {
    store: Arc<Store>,
    findings: Arc<dyn Findings>,
    config: ScrubConfig,
}

/// Messages to the thread, and its state.
#[derive(Default)]
struct ScrubControl {
    stop: bool,
    /// The pass that the thread is at has ended: it is to leave it, also when another has begun since.
    ended_by_hand: bool,
    /// For the pass under way, instead of what is configured.
    rate: Option<u64>,
    position: Position,
    trouble: Option<String>,
    /// Suspects must be read.
    has_suspects: bool,
}

struct Shared {
    control: Mutex<ScrubControl>,
    changed: Condvar,
    config: ScrubConfig,
    disk: Arc<dyn Disk>,
    /// Held while the position is saved, so that an older one never replaces a newer one.
    keeping: Mutex<()>,
}

/// The scrub of one store of a running node.
pub struct Scrub {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// Why a pass stops before its end.
enum Stopped {
    /// The node stops.
    ByNode,
    /// An operator has ended the pass.
    ByHand,
    /// An error that does not concern a single object.
    Trouble(String),
}

impl Scrub {
    /// Starts the thread.
    pub fn start(
        disk: Arc<dyn Disk>,
        store: Arc<Store>,
        findings: Arc<dyn Findings>,
        config: ScrubConfig,
    ) -> std::io::Result<Self> {
        let position = Position::read(&*disk).unwrap_or_else(|error| {
            tracing::warn!("the position of the scrub cannot be read: {error}");
            Position::default()
        });
        let control = Mutex::new(ScrubControl { position, ..ScrubControl::default() });
        let shared = Arc::new(Shared { control, changed: Condvar::new(), config, disk, keeping: Mutex::default() });
        let inner = Arc::clone(&shared);
        let work = Work { store, findings, config };
        let thread = std::thread::Builder::new().name("scrub".into()).stack_size(512 << 10);
        let thread = thread.spawn(move || {
            // The scrub only reads. A bug in it is no reason to stop serving.
            let run = std::panic::AssertUnwindSafe(|| inner.run(&work));
            if std::panic::catch_unwind(run).is_err() {
                tracing::error!("the scrub has ended by a panic; it begins again with the next start");
                inner.control().trouble = Some("it has ended by a panic, a bug of weir".into());
            }
        })?;
        Ok(Self { shared, thread: Mutex::new(Some(thread)) })
    }

    /// Stops the thread, and saves its position.
    pub fn stop(&self) {
        self.shared.control().stop = true;
        self.shared.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // Its panic was caught.
            let _ = thread.join();
        }
    }

    /// Starts a pass, or continues the present one. `rate`: its bytes per second. The pass is under way when this returns.
    ///
    /// # Errors
    ///
    /// A message, if neither the call nor the configuration sets a rate.
    pub fn now(&self, rate: Option<u64>) -> Result<(), String> {
        let mut control = self.shared.control();
        let rate = rate.or(control.rate);
        if rate.is_none() && self.shared.config.rate == 0 {
            return Err("the scrub is off (scrub.rate is 0); say how fast this pass may read: --rate 16MiB".into());
        }
        control.rate = rate;
        let begun = control.begin(seconds_now());
        drop(control);
        self.shared.changed.notify_all();
        if let Some(pass) = begun {
            self.shared.begun(pass);
        }
        Ok(())
    }

    /// Ends the present pass as if it were finished: the next one comes when it is due. The result is saved when this returns.
    pub fn give_up(&self) {
        let mut control = self.shared.control();
        let Some((tally, _)) = control.position.current else { return };
        control.end(tally);
        control.ended_by_hand = true;
        drop(control);
        self.shared.changed.notify_all();
        self.shared.keep();
        tracing::info!("scrub: the pass was ended by hand");
    }

    /// There are suspects ([`Findings::suspects`]): the scrub reads them soon, whether or not a pass is under way.
    pub fn read_suspects_soon(&self) {
        self.shared.control().has_suspects = true;
        self.shared.changed.notify_all();
    }

    /// The state of the scrub.
    #[must_use]
    pub fn status(&self) -> Status {
        let control = self.shared.control();
        let json = |tally: Tally| serde_json::to_value(tally).unwrap_or_default();
        let Position { pass, current, last } = control.position;
        Status {
            running: current.is_some(),
            rate: control.rate.unwrap_or(self.shared.config.rate),
            period: self.shared.config.period.as_secs(),
            pass,
            due: if current.is_none() { self.shared.config.due(&control.position) } else { None },
            current: current.map(|(tally, _)| json(tally)),
            last: last.map(json),
            trouble: control.trouble.clone(),
        }
    }
}

impl ScrubConfig {
    /// When the next pass is due; `None`: no pass begins by itself.
    fn due(&self, position: &Position) -> Option<u64> {
        let last = position.last.map_or(self.created, |last| last.began);
        (self.rate > 0).then(|| last.saturating_add(self.period.as_secs()))
    }
}

impl Shared {
    fn control(&self) -> MutexGuard<'_, ScrubControl> {
        self.control.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for up to `patience`, or until the control changes.
    fn rest<'a>(&'a self, control: MutexGuard<'a, ScrubControl>, patience: Duration) -> MutexGuard<'a, ScrubControl> {
        self.changed.wait_timeout(control, patience).unwrap_or_else(PoisonError::into_inner).0
    }

    fn run(&self, work: &Work) {
        self.control().has_suspects = true;
        while self.wait_for_a_pass(work) {
            let mut trouble = None;
            // A scrubber for each pass, because it takes memory and keeps files open.
            match self.pass(work, &mut Scrubber::default()) {
                Ok(()) => {}
                Err(Stopped::ByNode) => break,
                Err(Stopped::ByHand) => {}
                Err(Stopped::Trouble(what)) => trouble = Some(what),
            }
            let mut control = self.control();
            if trouble.is_some() && trouble != control.trouble {
                tracing::error!("the scrub cannot continue for now: {}", trouble.as_deref().unwrap_or_default());
            }
            control.trouble = trouble;
            if control.trouble.is_some() && !control.stop {
                drop(self.rest(control, PAUSE_AFTER_TROUBLE));
            }
        }
        if self.control().position.current.is_some() {
            self.keep();
        }
    }

    /// Reads the suspects, if there are new ones ([`Findings::suspects`]).
    fn read_suspects(&self, work: &Work) {
        if !std::mem::take(&mut self.control().has_suspects) {
            return;
        }
        let rate = if work.config.rate == 0 { SUSPECTS_RATE } else { work.config.rate };
        let (mut scrubber, mut pace) = (Scrubber::default(), Pace::default());
        for replica in work.findings.suspects() {
            let mut began = Instant::now();
            let scrubbed = work.store.scrub(replica, &mut scrubber, &mut |bytes| {
                let goes_on = self.rest_until(Instant::now() + pace.rest(bytes, began.elapsed(), rate));
                began = Instant::now();
                goes_on
            });
            let told = match scrubbed {
                Ok(Scrubbed::Stopped) => return,
                Ok(Scrubbed::Busy) => {
                    // With an open write it stays a suspect.
                    if work.store.status(replica).is_ok_and(|status| status.is_none()) {
                        work.findings.gone(replica);
                    }
                    Ok(())
                }
                Ok(Scrubbed::Whole(_)) => work.findings.whole(replica),
                Err(error) if error.is_about_replica() => work.findings.damaged(replica, &error.to_string()).map(drop),
                Err(error) => Err(error.to_string()),
            };
            if let Err(why) = told {
                // It stays a suspect. A pass of the scrub comes to it, too.
                tracing::warn!("scrub: replica {replica}, which was damaged, cannot be examined: {why}");
            }
        }
    }

    /// Rests until then. False: the node stops.
    fn rest_until(&self, end: Instant) -> bool {
        let mut control = self.control();
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if control.stop || left.is_zero() {
                return !control.stop;
            }
            control = self.rest(control, left);
        }
    }

    fn keep(&self) {
        let _in_order = self.keeping.lock().unwrap_or_else(PoisonError::into_inner);
        let position = self.control().position;
        if let Err(error) = position.write(&*self.disk) {
            tracing::warn!(
                "the position of the scrub cannot be saved, so a restart will begin the pass further back: {error}"
            );
        }
    }

    /// Returns when a pass is due or under way. False: the node stops.
    fn wait_for_a_pass(&self, work: &Work) -> bool {
        let mut control = self.control();
        loop {
            if control.stop {
                return false;
            }
            if control.has_suspects {
                drop(control);
                self.read_suspects(work);
                control = self.control();
                continue;
            }
            let going_on = control.position.current.is_some() && (work.config.rate > 0 || control.rate.is_some());
            let now = seconds_now();
            let left = work.config.due(&control.position).map(|due| due.saturating_sub(now));
            if going_on || left == Some(0) {
                // What was said of an earlier pass is not said of this one.
                control.ended_by_hand = false;
                let begun = control.begin(now);
                drop(control);
                if let Some(pass) = begun {
                    self.begun(pass);
                }
                return true;
            }
            let patience = left.map_or(LOOK, |left| Duration::from_secs(left).min(LOOK));
            control = self.rest(control, patience);
        }
    }

    fn begun(&self, pass: u64) {
        tracing::info!("scrub: pass {pass} begins");
        self.keep();
    }

    /// Runs one pass from its present position to its end.
    fn pass(&self, work: &Work, scrubber: &mut Scrubber) -> Result<(), Stopped> {
        let mut pace = Pace::default();
        let mut kept = Instant::now();
        loop {
            self.read_suspects(work);
            let after = self.control().at()?.1;
            let replicas = work.store.replicas(after, PAGE).map_err(|error| Stopped::Trouble(error.to_string()))?;
            if replicas.is_empty() {
                break;
            }
            for (replica, _) in replicas {
                let scrubbed = self.replica(work, scrubber, replica, &mut pace)?;
                let mut control = self.control();
                let (tally, after) = control.at()?;
                *after = Some(replica);
                match scrubbed {
                    ScrubOutcome::Whole => tally.whole += 1,
                    ScrubOutcome::Busy => tally.busy += 1,
                    ScrubOutcome::Damaged => tally.damaged += 1,
                }
                drop(control);
                if kept.elapsed() >= KEEP_INTERVAL {
                    kept = Instant::now();
                    self.keep();
                }
            }
        }
        let mut control = self.control();
        let pass = control.position.pass;
        let tally = control.at()?.0;
        control.end(tally);
        drop(control);
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
    ) -> Result<ScrubOutcome, Stopped> {
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
                    work.findings.whole(replica).map_err(Stopped::Trouble)?;
                    return Ok(ScrubOutcome::Whole);
                }
                Ok(Scrubbed::Busy) => return Ok(ScrubOutcome::Busy),
                Ok(Scrubbed::Stopped) => {}
                Err(error) => return found(work, replica, &error),
            }
        }
        Err(stopped.unwrap_or(Stopped::ByNode))
    }

    /// Rests for as long as necessary after `bytes` were read. Returns a reason if the pass must stop.
    fn pause(&self, pace: &mut Pace, bytes: u64, took: Duration) -> Option<Stopped> {
        let mut control = self.control();
        match control.at() {
            Ok((tally, _)) => tally.bytes += bytes,
            Err(stopped) => return Some(stopped),
        }
        let rate = control.rate.unwrap_or(self.config.rate);
        let end = Instant::now() + pace.rest(bytes, took, rate);
        loop {
            if let Some(stopped) = control.stopped() {
                return Some(stopped);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            control = self.rest(control, left);
        }
    }

    fn go_on(&self) -> Option<Stopped> {
        self.control().stopped()
    }
}

impl ScrubControl {
    /// Starts a pass if none is under way, and returns its number.
    fn begin(&mut self, now: u64) -> Option<u64> {
        let Position { pass, current, .. } = &mut self.position;
        if current.is_some() {
            return None;
        }
        *pass += 1;
        *current = Some((Tally { began: now, ..Tally::default() }, None));
        Some(*pass)
    }

    /// Ends the present pass.
    fn end(&mut self, tally: Tally) {
        self.position.current = None;
        self.position.last = Some(Tally { ended: seconds_now(), ..tally });
        self.rate = None;
    }

    /// The position of the thread's pass.
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

enum ScrubOutcome {
    Whole,
    Busy,
    Damaged,
}

/// Handles the error of an object that is damaged or could not be read.
fn found(work: &Work, replica: ReplicaId, error: &StoreError) -> Result<ScrubOutcome, Stopped> {
    if !error.is_about_replica() {
        return Err(Stopped::Trouble(error.to_string()));
    }
    let is_damaged = work.findings.damaged(replica, &error.to_string()).map_err(Stopped::Trouble)?;
    Ok(if is_damaged { ScrubOutcome::Damaged } else { ScrubOutcome::Busy })
}

fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
