//! Crashes at any disk operation, over many seeds: acknowledged data survives, nothing false is reported, and planted
//! bugs are found.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::Arc;

use disk::{CrashFaults, CrashReport, DiskOp, SimDisk};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::model::{Change, Content, Kind, Model, Stop};
use super::world::{World, bytes, new_replica, replica, with};
use crate::{PlantedBug, ReplicaState, StoreError};

/// How often a run reached each case, to show that it tested anything.
#[derive(Default, Debug)]
struct Counts {
    stops: u64,
    in_recovery: u64,
    under_way: u64,
    faults: CrashReport,
    errors: BTreeMap<String, u64>,
    settled: u64,
    compacted: u64,
    trimmed: u64,
    completed: u64,
    bytes_dropped: u64,
    losses_told: u64,
}

/// The options of a run.
#[derive(Clone, Copy)]
struct Plan {
    planted: Option<PlantedBug>,
    errors: bool,
}

struct Run {
    world: World,
    models: BTreeMap<u64, Model>,
    next_object: u64,
    rng: SmallRng,
    plan: Plan,
    counts: Counts,
    /// A copy of the disk is requested or taken.
    armed: bool,
    /// The models when the copy was taken.
    at_freeze: Option<(SimDisk, BTreeMap<u64, Model>)>,
    /// A sync has failed or will fail.
    sync_fails: bool,
    /// A sync had failed before this step.
    had_failed: bool,
    /// The copy was taken in the step of a failed sync: the stop may have come before the failure was recorded.
    stopped_before_the_mark: bool,
    /// The journal's number of losses at the last opening.
    losses: u64,
    /// The journal has stopped: only a restart helps.
    stopped: bool,
}

fn kind_of(world: &World, object: u64) -> Result<(Kind, Content), String> {
    let status = world.store.status(replica(object)).map_err(|e| e.to_string())?;
    let Some(status) = status else { return Ok((Kind::Nothing, Vec::new())) };
    let len = usize::try_from(status.len).map_err(|e| e.to_string())?;
    let (kind, written) = match &status.state {
        ReplicaState::BeingWritten { written, .. } => (Kind::Making, written.clone()),
        ReplicaState::Complete { .. } => (Kind::Complete, vec![(0, status.len)]),
        ReplicaState::Interrupted => (Kind::Interrupted, vec![(0, status.len)]),
        ReplicaState::Dirty => (Kind::Dirty, vec![(0, status.len)]),
    };
    let mut buf = vec![0; len];
    if kind == Kind::Making {
        let writer = world.store.reopen(replica(object)).map_err(|e| e.to_string())?;
        writer.read(0, &mut buf).map_err(|e| e.to_string())?;
    } else {
        let reader = world.store.open_read(replica(object)).map_err(|e| e.to_string())?;
        let got = reader.read(0, &mut buf).map_err(|e| e.to_string())?;
        if got != len {
            return Err(format!("{got} bytes of {len}"));
        }
        world.store.verify(replica(object), &mut |_| true).map_err(|e| e.to_string())?;
    }
    let mut content = vec![None; len];
    for (start, end) in written {
        for at in start as usize..end as usize {
            content[at] = Some(buf[at]);
        }
    }
    Ok((kind, content))
}

/// Writes appended records to the kernel, as a caller must.
fn written<T>(world: &World, result: Result<T, StoreError>) -> Result<T, StoreError> {
    let value = result?;
    world.journal.write_to(world.journal.appended())?;
    Ok(value)
}

impl Run {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = SmallRng::seed_from_u64(seed);
        let disk = SimDisk::new(rng.random());
        if seed.is_multiple_of(3) {
            disk.refuse_direct();
        }
        let world = World::open(disk, config(plan.planted)).unwrap();
        Self {
            world,
            models: BTreeMap::new(),
            next_object: 1,
            rng,
            plan,
            counts: Counts::default(),
            armed: false,
            at_freeze: None,
            sync_fails: false,
            had_failed: false,
            stopped_before_the_mark: false,
            losses: 0,
            stopped: false,
        }
    }

    /// Runs a step that may change one replica. `during` is the model while it runs.
    fn step<T>(
        &mut self,
        object: u64,
        doubtful: Vec<Change>,
        kinds: &[Kind],
        act: impl FnOnce(&World, &Model) -> Result<T, StoreError>,
        done: impl FnOnce(&mut Model, T),
    ) {
        let model = self.models.entry(object).or_insert_with(Model::new);
        let mut during = model.clone();
        during.doubtful.extend(doubtful.clone());
        during.doubtful_kinds.extend(kinds);
        let result = act(&self.world, model);
        if std::env::var("WEIR_TRACE").is_ok() {
            let change = doubtful.iter().map(|change| match change {
                Change::Write(at, data) => format!("write {at}+{} {}", data.len(), data.first().unwrap_or(&0)),
                Change::Truncate(len) => format!("truncate {len}"),
            });
            let ok = result.as_ref().map(|_| ()).map_err(ToString::to_string);
            println!("{object}: {:?} {kinds:?} {ok:?}", change.collect::<Vec<_>>());
        }
        match result {
            Ok(value) => done(model, value),
            Err(e) => {
                let name = format!("{:?}", e.code());
                self.stopped |= self.world.journal.poisoned().is_some();
                *self.counts.errors.entry(name).or_default() += 1;
                if !matches!(e, StoreError::Closed { .. } | StoreError::TooManyRanges { .. }) {
                    // It may have happened in part.
                    model.doubtful.extend(doubtful);
                    model.doubtful_kinds.extend(kinds);
                }
            }
        }
        self.look_for_freeze(Some((object, during)));
    }

    fn look_for_freeze(&mut self, during: Option<(u64, Model)>) {
        if !self.armed || self.at_freeze.is_some() {
            return;
        }
        if let Some(disk) = self.world.disk.frozen() {
            let mut models = self.models.clone();
            if let Some((object, during)) = during {
                models.insert(object, during);
                self.counts.under_way += 1;
            }
            self.at_freeze = Some((disk, models));
            self.stopped_before_the_mark = self.world.journal.has_failed() && !self.had_failed;
        }
    }

    fn some_object(&mut self, wanted: impl Fn(&Model) -> bool) -> Option<u64> {
        let objects: Vec<u64> = self.models.iter().filter(|(_, m)| wanted(m)).map(|(object, _)| *object).collect();
        if objects.is_empty() { None } else { Some(objects[self.rng.random_range(0..objects.len())]) }
    }

    fn sync_journal(&mut self, object: u64) {
        self.step(object, vec![], &[], |world, _| Ok(world.journal.sync_to(world.journal.appended())?), |_, ()| {});
        if !self.stopped {
            // Everything that has ended is durable now.
            for model in self.models.values_mut() {
                // A replica that the store does not know may still exist.
                let known = model.kind != Kind::Nothing || model.possible.len() > 1;
                let ended = model.kind != Kind::Making && model.kind != Kind::Dirty;
                if ended && (model.doubtful.is_empty() || model.kind == Kind::Nothing) {
                    model.is_durable();
                } else if model.kind != Kind::Nothing {
                    model.possible.remove(&Kind::Nothing);
                }
                model.number_durable |= known;
                model.unwritten = false;
            }
        }
    }

    fn act(&mut self) {
        let choice = self.rng.random_range(0..100);
        let write_work = |model: &Model| model.writer.is_some();
        match choice {
            0..12 => {
                let object = self.next_object;
                self.next_object += self.rng.random_range(1..3);
                let expected = [None, None, Some(5_000u64), Some(30_000)][self.rng.random_range(0..4)];
                self.step(
                    object,
                    vec![],
                    &[Kind::Making],
                    |world, _| world.store.create(replica(object), new_replica(expected)),
                    |model, writer| {
                        model.becomes(Kind::Making);
                        model.writer = Some(writer);
                        model.unwritten = true;
                    },
                );
            }
            12..52 => {
                let Some(object) = self.some_object(write_work) else { return };
                let len = self.models[&object].content().len();
                let at = match self.rng.random_range(0..10) {
                    0..6 => len,
                    6..8 => self.rng.random_range(0..len + 1),
                    8 => len / 4096 * 4096,
                    _ => len + self.rng.random_range(0..9000),
                };
                let size = match self.rng.random_range(0..8) {
                    0 => 4096,
                    1 => 8192,
                    2 => self.rng.random_range(1..20_000),
                    3 => 12_288,
                    _ => self.rng.random_range(1..5_000),
                };
                if at + size > 60_000 {
                    return;
                }
                let data = bytes(self.rng.random(), size);
                let change = Change::Write(at, data.clone());
                self.step(
                    object,
                    vec![change.clone()],
                    &[],
                    |_, model| model.writer.as_ref().unwrap().write(at as u64, &data),
                    |model, ()| {
                        model.later.push(change);
                        model.unwritten = false;
                    },
                );
            }
            52..60 => {
                let Some(object) = self.some_object(write_work) else { return };
                self.step(
                    object,
                    vec![],
                    &[],
                    |_, model| model.writer.as_ref().unwrap().sync(),
                    |model, _| {
                        model.is_durable();
                        model.unwritten = false;
                    },
                );
            }
            60..70 => {
                let Some(object) = self.some_object(write_work) else { return };
                self.step(
                    object,
                    vec![],
                    &[Kind::Complete],
                    |world, model| written(world, model.writer.as_ref().unwrap().complete()),
                    |model, completed| {
                        // Gaps have become zeros, which the candidates allowed already.
                        let zeros: Content = model.content().iter().map(|byte| Some(byte.unwrap_or(0))).collect();
                        let filled = zeros.iter().map(|byte| byte.unwrap_or(0)).collect();
                        if model.doubtful.is_empty() {
                            assert_eq!(completed.len, zeros.len() as u64);
                        }
                        model.later.push(Change::Write(0, filled));
                        model.becomes(Kind::Complete);
                        model.writer = None;
                        model.unwritten = false;
                    },
                );
                self.counts.completed += 1;
                if self.rng.random_bool(0.7) {
                    self.sync_journal(object);
                }
            }
            70..74 => {
                let Some(object) = self.some_object(|m| m.kind == Kind::Complete || m.kind == Kind::Interrupted) else {
                    return;
                };
                let before = self.models[&object].kind;
                let kind = if before == Kind::Complete { Kind::Dirty } else { Kind::Making };
                self.step(
                    object,
                    vec![],
                    &[kind],
                    |world, _| world.store.reopen(replica(object)),
                    |model, writer| {
                        model.becomes(kind);
                        if model.doubtful.is_empty() {
                            model.is_durable();
                        }
                        model.writer = Some(writer);
                    },
                );
            }
            74..78 => {
                let Some(object) = self.some_object(write_work) else { return };
                let len = self.models[&object].content().len();
                let to = if self.rng.random_bool(0.7) { self.rng.random_range(0..len + 1) } else { len + 3000 };
                let change = Change::Truncate(to);
                self.step(
                    object,
                    vec![change.clone()],
                    &[],
                    |_, model| model.writer.as_ref().unwrap().truncate(to as u64),
                    |model, ()| model.later.push(change),
                );
            }
            78..81 => {
                let Some(object) = self.some_object(write_work) else { return };
                let update = self.models[&object].kind == Kind::Dirty;
                // After a failed sync, only data that was durable before is surely kept.
                let exact = !self.sync_fails;
                let content = self.models[&object].content();
                let kept = content.iter().position(Option::is_none).unwrap_or(content.len());
                let change = if update {
                    Change::Write(0, content.iter().map(|byte| byte.unwrap_or(0)).collect())
                } else {
                    Change::Truncate(kept)
                };
                let kind = if update { Kind::Complete } else { Kind::Interrupted };
                self.step(
                    object,
                    vec![change.clone()],
                    &[kind],
                    |world, _| written(world, world.store.interrupt(replica(object)).map(|kept| kept.len)),
                    |model, len| {
                        if model.doubtful.is_empty() && exact {
                            assert_eq!(len as usize, if update { content.len() } else { kept });
                        }
                        model.later.push(change);
                        model.becomes(kind);
                        model.writer = None;
                        model.unwritten = false;
                    },
                );
            }
            81..84 => {
                let Some(object) = self.some_object(|m| m.kind != Kind::Nothing) else { return };
                self.step(
                    object,
                    vec![],
                    &[Kind::Nothing],
                    |world, _| written(world, world.store.delete(replica(object))),
                    |model, ()| {
                        model.becomes(Kind::Nothing);
                        model.writer = None;
                    },
                );
                if self.rng.random_bool(0.5) {
                    self.sync_journal(object);
                }
            }
            84..94 => {
                let before = self.world.store.inner.records.lock().clone();
                let unsettled = self.world.store.inner.holds.lock().unsettled();
                let oldest = self.world.journal.oldest();
                if let Err(e) = self.world.store.tick() {
                    *self.counts.errors.entry(format!("tick: {:?}", e.code())).or_default() += 1;
                    self.stopped |= self.world.journal.poisoned().is_some();
                }
                let after = self.world.store.inner.records.lock().clone();
                self.counts.settled += u64::from(self.world.store.inner.holds.lock().unsettled() < unsettled);
                self.counts.compacted += before.keys().filter(|number| !after.contains_key(number)).count() as u64;
                self.counts.trimmed += u64::from(self.world.journal.oldest() > oldest);
                self.look_for_freeze(None);
            }
            94..98 => {
                let result = self.world.index.sweep_now().and_then(|_| self.world.index.checkpoint_now());
                if result.is_err() {
                    self.stopped |= self.world.journal.poisoned().is_some();
                }
                self.look_for_freeze(None);
            }
            _ if self.plan.errors => {
                let op = [DiskOp::Write, DiskOp::Sync, DiskOp::Write, DiskOp::SetLen][self.rng.random_range(0..4)];
                let kind = [ErrorKind::Other, ErrorKind::StorageFull][self.rng.random_range(0..2)];
                let kind = if op == DiskOp::Sync { ErrorKind::Other } else { kind };
                if std::env::var("WEIR_TRACE").is_ok() {
                    println!("next {op:?} fails: {kind:?}");
                }
                self.sync_fails |= op == DiskOp::Sync;
                self.world.disk.fail_next(op, self.rng.random_range(1..12), kind);
            }
            _ => {
                let Some(object) = self.some_object(|m| m.number_durable) else { return };
                let again = self.world.store.create(replica(object), new_replica(None));
                assert!(again.is_err(), "body {object} was taken a second time");
                self.look_for_freeze(None);
            }
        }
    }

    /// Checks that everything found is allowed. Returns what was found.
    fn check(world: &World, models: &BTreeMap<u64, Model>, stop: Stop) -> BTreeMap<u64, (Kind, Content)> {
        let mut found = BTreeMap::new();
        for (object, model) in models {
            let (kind, content) = kind_of(world, *object).unwrap_or_else(|e| panic!("{stop:?}: body {object}: {e}"));
            model.check(stop, kind, &content).unwrap_or_else(|e| panic!("{stop:?}: body {object}: {e}"));
            found.insert(*object, (kind, content));
        }
        let listed = world.store.replicas(None, 10_000).unwrap();
        let there = found.iter().filter(|(_, (kind, _))| *kind != Kind::Nothing).count();
        assert_eq!(listed.len(), there, "pieces that nobody made: {listed:?}");
        found
    }

    fn stop_and_recover(&mut self) {
        let (disk, models) = match self.at_freeze.take() {
            Some(at_freeze) => at_freeze,
            None => (self.world.disk.kill(), self.models.clone()),
        };
        self.counts.stops += 1;
        let mut stop = if self.rng.random_bool(0.4) { Stop::Kill } else { Stop::Power };
        let faults = if self.rng.random_bool(0.2) { CrashFaults::all_lost() } else { CrashFaults::mixed() };
        let mut disk = match stop {
            Stop::Kill => disk,
            Stop::Power => {
                let (disk, report) = disk.crash(&mut self.rng, faults);
                self.counts.faults.add(&report);
                disk
            }
        };
        let had_failed = self.world.journal.has_failed();
        // Sometimes the recovery itself is stopped somewhere.
        while self.rng.random_bool(0.3) {
            disk.freeze_after(self.rng.random_range(0..30));
            let _ = World::open(disk.clone(), config(self.plan.planted));
            let Some(frozen) = disk.frozen() else { break };
            self.counts.in_recovery += 1;
            disk = if self.rng.random_bool(0.5) {
                frozen
            } else {
                let (disk, report) = frozen.crash(&mut self.rng, faults);
                self.counts.faults.add(&report);
                stop = Stop::Power;
                disk
            };
        }
        self.world =
            World::open(disk, config(self.plan.planted)).unwrap_or_else(|e| panic!("{stop:?}: does not open: {e}"));
        self.counts.bytes_dropped += self.world.recovery.bytes_dropped;
        let losses = self.world.journal.losses();
        if stop == Stop::Kill && losses > self.losses {
            assert!(had_failed, "nothing had failed, and a kill was taken for a loss");
            self.counts.losses_told += 1;
        }
        // After a failed sync, data that only the kernel had may be lost, but its writer can then be told.
        if losses > self.losses || self.stopped_before_the_mark {
            stop = Stop::Power;
        }
        self.losses = losses;
        let found = Self::check(&self.world, &models, stop);
        // Unexplained files never disappear. Only one reason is allowed: the file was finished and synced, and the
        // power failed before the journal was synced, so that not even its number is known.
        for path in &self.world.recovery.unexplained {
            let name = path.rsplit('/').next().unwrap();
            let object = crate::orphans::replica_of_name(name).map(|(replica, _)| replica.object.0);
            let unknown = object.is_some_and(|object| models.get(&object).is_some_and(|model| !model.number_durable));
            assert!(unknown, "{stop:?}: {path} is unexplained");
        }
        self.models = found
            .into_iter()
            .map(|(object, (kind, content))| {
                let number_durable = models[&object].number_durable || kind != Kind::Nothing;
                let writer = matches!(kind, Kind::Making | Kind::Dirty)
                    .then(|| self.world.store.reopen(replica(object)).unwrap());
                let model = Model {
                    kind,
                    possible: BTreeSet::from([kind]),
                    durable: content,
                    writer,
                    number_durable,
                    ..Model::new()
                };
                (object, model)
            })
            .collect();
        (self.armed, self.stopped, self.sync_fails) = (false, false, false);
        (self.had_failed, self.stopped_before_the_mark) = (false, false);
    }

    fn go(mut self, steps: usize) -> Counts {
        for _ in 0..steps {
            if !self.armed && self.rng.random_bool(0.04) {
                self.world.disk.freeze_after(self.rng.random_range(0..40));
                self.armed = true;
            }
            self.act();
            self.had_failed = self.world.journal.has_failed();
            if self.at_freeze.is_some() || self.stopped {
                self.stop_and_recover();
            }
        }
        self.stop_and_recover();
        self.counts
    }
}

/// Segments so small that they are often compacted, and memory for recently written pages.
fn config(planted: Option<PlantedBug>) -> crate::StoreConfig {
    let recent = Some(Arc::new(crate::RecentPages::new(6 << 20, crate::FreshMemory::AtOnce)));
    crate::StoreConfig { segment_bytes: 12 << 10, recent, ..with(planted) }
}

fn seeds(default: u64) -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

impl Counts {
    fn add(&mut self, other: &Counts) {
        self.stops += other.stops;
        self.in_recovery += other.in_recovery;
        self.under_way += other.under_way;
        self.faults.add(&other.faults);
        for (name, count) in &other.errors {
            *self.errors.entry(name.clone()).or_default() += count;
        }
        self.settled += other.settled;
        self.compacted += other.compacted;
        self.trimmed += other.trimmed;
        self.completed += other.completed;
        self.bytes_dropped += other.bytes_dropped;
        self.losses_told += other.losses_told;
    }
}

fn runs(plan: Plan, from: u64, count: u64) -> Counts {
    let mut counts = Counts::default();
    for seed in from..from + count {
        let run = std::panic::catch_unwind(|| Run::new(seed, plan).go(150));
        match run {
            Ok(found) => counts.add(&found),
            Err(panic) => {
                println!("seed {seed}");
                std::panic::resume_unwind(panic);
            }
        }
    }
    counts
}

#[test]
fn acknowledged_data_survives_a_stop_anywhere() {
    let counts = runs(Plan { planted: None, errors: false }, seeds_from(), seeds(250));
    println!("{counts:?}");
    assert_eq!(counts.errors, BTreeMap::new(), "nothing was made to fail");
    let faults = counts.faults;
    for (what, count) in [
        ("stops", counts.stops),
        ("stops in recovery", counts.in_recovery),
        ("stops in the middle of a step", counts.under_way),
        ("writes lost", faults.lost),
        ("writes torn", faults.torn),
        ("writes zeroed", faults.zeroed),
        ("writes reordered", faults.reordered),
        ("lengths lost", faults.lengths_lost),
        ("names lost", faults.names_lost),
        ("settled", counts.settled),
        ("compacted", counts.compacted),
        ("trimmed", counts.trimmed),
        ("completed", counts.completed),
        ("bytes dropped", counts.bytes_dropped),
    ] {
        assert!(count > 0, "{what}: never");
    }
}

fn seeds_from() -> u64 {
    std::env::var("WEIR_SEED").ok().and_then(|n| n.parse().ok()).unwrap_or(0)
}

#[test]
fn failing_disks_lose_no_acknowledged_data() {
    let counts = runs(Plan { planted: None, errors: true }, 1_000_000 + seeds_from(), seeds(120));
    println!("{counts:?}");
    assert!(counts.errors.get("Io").is_some_and(|n| *n > 0), "{counts:?}");
    assert!(counts.errors.get("NoSpace").is_some_and(|n| *n > 0), "{counts:?}");
    assert!(counts.losses_told > 0, "{counts:?}");
}

/// Tries seeds until the bug is found, or the bound.
fn found_by(planted: PlantedBug, errors: bool, bound: u64) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let plan = Plan { planted: Some(planted), errors };
    let found = (0..bound).find(|seed| std::panic::catch_unwind(|| Run::new(*seed, plan).go(150)).is_err());
    std::panic::set_hook(hook);
    assert!(found.is_some(), "{planted:?} was not found with {bound} seeds");
}

#[test]
fn planted_bugs_are_found() {
    for planted in [
        PlantedBug::AcknowledgeBeforeSync,
        PlantedBug::ForgetRange,
        PlantedBug::ReuseObject,
        PlantedBug::TrimTooEarly,
        PlantedBug::SettleBeforeSegmentSync,
        PlantedBug::UnlinkBeforeRecord,
        PlantedBug::OverwriteBeforeJournal,
        PlantedBug::BelieveRanges,
    ] {
        found_by(planted, false, 300);
    }
    for planted in [PlantedBug::ForgetFailure, PlantedBug::BelieveCache] {
        found_by(planted, true, 3000);
    }
}
