//! A client that behaves like weir's own. It keeps a window of writes and repeats all of them until they are acknowledged. If a server does not
//! answer or refuses, it returns to the manager.

use std::collections::VecDeque;
use std::time::Duration;

use cluster::Time;
use cluster::replication::Epoch;
use cluster::server::GrantRights;
use rand::Rng;
use types::{ErrorCode, ReplicaId, StoreId};

use crate::founding::TREES;
use crate::manager::{Env, server_of};
use crate::message::{Addr, Bytes, Capability, Message, Number, Want};
use crate::model::{FileStage, Glimpse, Model, bytes};

/// A request without an answer counts as lost after this time.
const PATIENCE: Duration = Duration::from_secs(3);
/// The same for a manager that is there, and may wait for its database.
const PATIENCE_WITH_DATABASE: Duration = Duration::from_secs(25);
const WINDOW: usize = 3;

enum State {
    Idle { until: Time },
    Write(Writing),
    Read(Reading),
    Remove { file: usize, number: Number, since: Time },
}

struct Writing {
    file: usize,
    step: Step,
    /// The replica that it writes to, once it is attached.
    at: Option<(StoreId, ReplicaId, Epoch)>,
    /// The replica that it wrote to last. The server of this replica notices the end of the client's process.
    was_at: Option<(StoreId, ReplicaId, Epoch)>,
    /// The remaining writes. Each has its number in the model once it was sent.
    left: VecDeque<(Bytes, Option<usize>)>,
    /// The request numbers of the first of these writes, which are in progress.
    sent: VecDeque<Number>,
    sync: bool,
    tried: Vec<StoreId>,
    /// The file was opened once: from now on the client opens it for update.
    is_there: bool,
    is_first_try: bool,
    /// It lost its connection, so its open write may have ended.
    was_absent: bool,
    /// How often it has asked the manager for this open write.
    opens: u32,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Step {
    Open { number: Number, since: Time },
    Wait { until: Time },
    Attach { number: Number, since: Time },
    Work { since: Time },
    Sync { number: Number, since: Time },
    Close { number: Number, since: Time },
}

struct Reading {
    path: String,
    glimpse: Glimpse,
    number: Number,
    since: Time,
    server: Option<StoreId>,
    tried: Vec<StoreId>,
    attempts: u32,
    /// The capability of a client that has opened a file and reads it again and again.
    held: Option<Capability>,
    /// The time of its next read.
    next: Option<Time>,
}

/// What an answer confirms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Promise {
    /// A write, by its number in the model.
    Written {
        file: usize,
        number: usize,
        replica: ReplicaId,
        epoch: Epoch,
    },
    Closed {
        file: usize,
    },
    Removed {
        file: usize,
    },
}

pub(crate) struct Client {
    index: usize,
    state: State,
    numbers: Number,
    made: u64,
    /// Whether it writes in trees with quotas.
    is_sharing: bool,
    /// The manager that it asks, of so many.
    manager: usize,
    managers: usize,
    /// How long it waits for this manager.
    patience: Duration,
}

impl Client {
    pub(crate) fn new(index: usize, is_sharing: bool, managers: usize) -> Self {
        let manager = index % managers;
        Self {
            index,
            state: State::Idle { until: Time::default() },
            numbers: 0,
            made: 0,
            is_sharing,
            manager,
            managers,
            patience: PATIENCE,
        }
    }

    /// The manager that it asks, and whether the connection with it is as it should be. A client waits for long on a good connection: what it asks
    /// twice may be done twice.
    pub(crate) fn asks(&mut self, is_connected: impl Fn(usize) -> bool) {
        self.patience = if is_connected(self.manager) { PATIENCE_WITH_DATABASE } else { PATIENCE };
    }

    /// The manager does not answer, or is not the active one: the next request goes to another one.
    fn ask_another(&mut self) {
        self.manager = (self.manager + 1) % self.managers;
    }

    pub(crate) fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle { .. } | State::Read(_))
    }

    /// What the client waits for, to explain a run that does not end.
    pub(crate) fn describe(&self, model: &Model) -> String {
        match &self.state {
            State::Idle { .. } => "nothing".to_owned(),
            State::Write(w) => {
                format!("{}: {:?} at {:?}, {} writes left", model.files[w.file].path, w.step, w.at, w.left.len())
            }
            State::Read(reading) => format!("a read of {}", reading.path),
            State::Remove { file, .. } => format!("the removal of {}", model.files[*file].path),
        }
    }

    /// What the success of the request with this number confirms. `None` if the client no longer waits for it, or the success confirms
    /// nothing lasting.
    pub(crate) fn promised(&self, answered: Number) -> Option<Promise> {
        match &self.state {
            State::Remove { file, number, .. } if *number == answered => Some(Promise::Removed { file: *file }),
            State::Write(Writing { file, step: Step::Close { number, .. }, .. }) if *number == answered => {
                Some(Promise::Closed { file: *file })
            }
            State::Write(writing) => {
                let at = writing.sent.iter().position(|sent| *sent == answered)?;
                let number = writing.left.get(at)?.1?;
                let (_, replica, epoch) = writing.at?;
                Some(Promise::Written { file: writing.file, number, replica, epoch })
            }
            _ => None,
        }
    }

    fn number(&mut self) -> Number {
        self.numbers += 1;
        self.numbers
    }

    pub(crate) fn tick(&mut self, model: &mut Model, is_calm: bool, env: &mut Env<'_>) {
        let (now, patience) = (env.now, self.patience);
        match &mut self.state {
            State::Idle { until } => {
                if now >= *until && !is_calm {
                    self.begin(model, env);
                }
            }
            State::Read(Reading { next: Some(next), .. }) => {
                if now >= *next {
                    self.read_on(model, is_calm, env);
                }
            }
            State::Read(reading) => {
                if now.since(reading.since) >= if reading.server.is_some() { PATIENCE } else { patience } {
                    match reading.server.take() {
                        Some(server) => reading.tried.push(server),
                        None => self.ask_another(),
                    }
                    self.read_again(env);
                }
            }
            State::Remove { file, since, .. } => {
                if now.since(*since) >= patience {
                    let file = *file;
                    self.ask_another();
                    self.remove(file, model, env);
                }
            }
            // Sometimes the client's process ends, and the next process knows nothing of its work.
            State::Write(_) if !is_calm && env.rng.random_ratio(1, 3000) => self.vanish(model, env),
            State::Write(writing) => match writing.step {
                Step::Wait { until } if now >= until => self.open(model, env),
                Step::Open { since, .. } if now.since(since) >= PATIENCE => {
                    self.ask_another();
                    self.open(model, env);
                }
                Step::Attach { since, .. }
                | Step::Sync { since, .. }
                | Step::Close { since, .. }
                | Step::Work { since }
                    if now.since(since) >= PATIENCE =>
                {
                    if let Some((store, _, _)) = writing.at {
                        writing.tried.push(store);
                    }
                    self.open(model, env);
                }
                _ => {}
            },
        }
    }

    fn begin(&mut self, model: &mut Model, env: &mut Env<'_>) {
        let choice = env.rng.random_range(0..10);
        let own = |file: &usize| model.files[*file].path.contains(&format!("/c{}-", self.index));
        let closed: Vec<usize> =
            (0..model.files.len()).filter(|file| model.files[*file].stage == FileStage::Closed).collect();
        let own: Vec<usize> = closed.iter().copied().filter(own).collect();
        if choice < 4 && !model.files.is_empty() {
            let file = lately(model.files.len(), env);
            let path = model.files[file].path.clone();
            let (number, since) = (self.number(), env.now);
            let glimpse = model.glimpse(file);
            self.state = State::Read(Reading {
                path,
                glimpse,
                number,
                since,
                server: None,
                tried: Vec::new(),
                attempts: 0,
                held: None,
                next: None,
            });
            self.read_again(env);
            return;
        }
        if choice == 9 && !own.is_empty() && env.rng.random_ratio(1, 2) {
            let file = own[env.rng.random_range(0..own.len())];
            model.remove(file);
            self.remove(file, model, env);
            return;
        }
        let is_update = choice < 6 && !own.is_empty();
        let file = if is_update {
            let file = own[lately(own.len(), env)];
            model.begin_update(file);
            file
        } else {
            self.made += 1;
            let tree = if self.is_sharing { TREES[usize::from(self.made % 2 == 1)] } else { "" };
            model.begin(format!("{tree}/c{}-{}", self.index, self.made))
        };
        let count = env.rng.random_range(0..12);
        let mut left = VecDeque::new();
        let mut end = if is_update { 0 } else { u64::MAX };
        for _ in 0..count {
            let len = [1, 700, 4096, 9000][env.rng.random_range(0..4)];
            // Mostly writes the next bytes, sometimes overwrites existing bytes, and sometimes leaves a gap.
            let offset = match (end, env.rng.random_range(0..6)) {
                (u64::MAX, _) => 0,
                (end, 0) => env.rng.random_range(0..=end),
                (end, 1) => end + env.rng.random_range(0..5000),
                (end, _) => end,
            };
            end = offset + len as u64;
            left.push_back((bytes(env.rng.random(), offset, len), None));
        }
        let sync = env.rng.random_ratio(1, 3);
        self.state = State::Write(Writing {
            file,
            step: Step::Wait { until: env.now },
            at: None,
            was_at: None,
            left,
            sent: VecDeque::new(),
            sync,
            tried: Vec::new(),
            is_there: is_update,
            is_first_try: true,
            was_absent: false,
            opens: 0,
        });
        self.open(model, env);
    }

    fn open(&mut self, model: &Model, env: &mut Env<'_>) {
        let (number, manager) = (self.number(), Addr::Manager(self.manager));
        let State::Write(writing) = &mut self.state else { return };
        let path = model.files[writing.file].path.clone();
        // The client does not know whether the open succeeded, so it may start its own unfinished file again.
        let want = if writing.is_there { Want::Update } else { Want::New { restarted: !writing.is_first_try } };
        writing.is_first_try = false;
        writing.opens += 1;
        (writing.at, writing.step) = (None, Step::Open { number, since: env.now });
        writing.sent.clear();
        let tried = writing.tried.clone();
        env.send(manager, Message::Open { number, path, want, tried });
    }

    /// Its server notices that its connection has ended. It returns after a while, perhaps too late. Returns `false` if it writes nothing.
    pub(crate) fn lose_connection(&mut self, env: &mut Env<'_>) -> bool {
        let State::Write(writing) = &mut self.state else { return false };
        let Some((store, replica, epoch)) = writing.was_at else { return false };
        env.send(server_of(store), Message::Gone { replica, epoch });
        (writing.at, writing.was_absent) = (None, true);
        writing.sent.clear();
        writing.step = Step::Wait { until: env.now + Duration::from_millis(env.rng.random_range(200..5000)) };
        env.counts.absent += 1;
        true
    }

    fn vanish(&mut self, model: &mut Model, env: &mut Env<'_>) {
        let State::Write(writing) = &self.state else { return };
        if let Some((store, replica, epoch)) = writing.was_at {
            env.send(server_of(store), Message::Gone { replica, epoch });
        }
        if !model.files[writing.file].is_hopeless {
            model.vanish(writing.file);
        }
        env.counts.vanished += 1;
        self.rest(env);
    }

    fn remove(&mut self, file: usize, model: &Model, env: &mut Env<'_>) {
        let (number, manager) = (self.number(), Addr::Manager(self.manager));
        self.state = State::Remove { file, number, since: env.now };
        env.send(manager, Message::Remove { number, path: model.files[file].path.clone() });
    }

    fn read_again(&mut self, env: &mut Env<'_>) {
        let (number, manager) = (self.number(), Addr::Manager(self.manager));
        let State::Read(reading) = &mut self.state else { return };
        reading.attempts += 1;
        if reading.attempts > 4 {
            self.rest(env);
            return;
        }
        (reading.number, reading.since, reading.server) = (number, env.now, None);
        let (path, tried) = (reading.path.clone(), reading.tried.clone());
        env.send(manager, Message::Open { number, path, want: Want::Read, tried });
    }

    /// Reads again with the capability that it already has.
    fn read_on(&mut self, model: &Model, is_calm: bool, env: &mut Env<'_>) {
        let number = self.number();
        let State::Read(reading) = &mut self.state else { return };
        let file = model.by_path.get(&reading.path);
        match (&reading.held, file) {
            (Some(held), Some(file)) if !is_calm => {
                reading.glimpse = model.glimpse(*file);
                (reading.number, reading.since, reading.next) = (number, env.now, None);
                env.send(server_of(held.grant.store), Message::Get { number, capability: held.clone() });
            }
            _ => self.rest(env),
        }
    }

    fn rest(&mut self, env: &mut Env<'_>) {
        let until = env.now + Duration::from_millis(env.rng.random_range(0..400));
        self.state = State::Idle { until };
    }

    pub(crate) fn receive(&mut self, message: Message, model: &mut Model, env: &mut Env<'_>) {
        match (message, &mut self.state) {
            (Message::Opened { number, result }, State::Write(writing)) => match writing.step {
                Step::Open { number: of, .. } if of == number => self.opened(result, model, env),
                _ => {}
            },
            (Message::Opened { number, result }, State::Read(reading)) if reading.number == number => match result {
                Ok(capability) => {
                    reading.server = Some(capability.grant.store);
                    let server = server_of(capability.grant.store);
                    let number = self.number();
                    if let State::Read(reading) = &mut self.state {
                        (reading.number, reading.held) = (number, Some(capability.clone()));
                    }
                    env.send(server, Message::Get { number, capability });
                }
                Err(code) => {
                    if code == ErrorCode::Overloaded {
                        self.ask_another();
                    }
                    self.rest(env);
                }
            },
            (Message::Got { number, result }, State::Read(reading)) if reading.number == number => match result {
                Ok(bytes) => {
                    let glimpse = reading.glimpse.clone();
                    if model.compare(&glimpse, &bytes) {
                        env.counts.reads += 1;
                    }
                    if env.rng.random_ratio(3, 4) {
                        let wait = Duration::from_millis(env.rng.random_range(50..4000));
                        reading.next = Some(env.now + wait);
                    } else {
                        self.rest(env);
                    }
                }
                Err(_) => {
                    if let Some(server) = reading.server.take() {
                        reading.tried.push(server);
                    }
                    self.read_again(env);
                }
            },
            (Message::Removed { number, result }, State::Remove { number: of, file, .. }) if number == *of => {
                match result {
                    // The answer to the first request may have been lost.
                    Ok(()) | Err(ErrorCode::NotFound) => {
                        env.counts.removed += 1;
                        self.rest(env);
                    }
                    // The client asks again when it has waited long enough.
                    Err(ErrorCode::Overloaded) => {}
                    Err(why) => {
                        let path = &model.files[*file].path;
                        let what = format!("{path} could not be removed: {why:?}");
                        model.complain(&what);
                    }
                }
            }
            (Message::Done { number, result }, State::Write(_)) => self.done(number, result, model, env),
            _ => {}
        }
    }

    fn opened(&mut self, result: Result<Capability, ErrorCode>, model: &mut Model, env: &mut Env<'_>) {
        let number = self.number();
        let State::Write(writing) = &mut self.state else { return };
        match result {
            Ok(capability) => {
                let GrantRights::Write { writer, .. } = &capability.grant.rights else { return };
                writing.is_there = true;
                writing.at = Some((capability.grant.store, capability.replica, Epoch(writer.epoch)));
                writing.was_at = writing.at;
                writing.step = Step::Attach { number, since: env.now };
                env.send(server_of(capability.grant.store), Message::Attach { number, capability });
            }
            // No server can continue the file, or accept a new one.
            Err(ErrorCode::Overloaded | ErrorCode::Unavailable) => {
                let until = env.now + Duration::from_millis(300 + env.rng.random_range(0..300));
                writing.step = Step::Wait { until };
                self.ask_another();
            }
            // Nothing was acknowledged, so the client starts the file again, as a copy does.
            Err(ErrorCode::Interrupted) if model.is_untouched(writing.file) => {
                writing.is_there = false;
                writing.step = Step::Wait { until: env.now + Duration::from_millis(300) };
            }
            // Its open write has ended as that of a client that vanished.
            Err(ErrorCode::Interrupted | ErrorCode::Stale) if writing.was_absent => {
                if !model.files[writing.file].is_hopeless {
                    model.vanish(writing.file);
                }
                env.counts.late += 1;
                self.rest(env);
            }
            // Nothing has changed if this was the first request. An earlier one may have begun the open write, which ends without its client.
            Err(ErrorCode::Quota) => {
                let (file, is_first) = (writing.file, writing.opens == 1);
                env.counts.over_quota += 1;
                model.refuse(file, is_first);
                self.rest(env);
            }
            Err(code) => {
                let file = writing.file;
                env.counts.abandoned += 1;
                model.give_up(file, &format!("{code:?}"));
                self.rest(env);
            }
        }
    }

    fn done(&mut self, number: Number, result: Result<(), ErrorCode>, model: &mut Model, env: &mut Env<'_>) {
        let State::Write(writing) = &mut self.state else { return };
        let is_write = writing.sent.iter().position(|sent| *sent == number);
        let is_step = match writing.step {
            Step::Attach { number: of, .. } | Step::Sync { number: of, .. } | Step::Close { number: of, .. } => {
                of == number
            }
            _ => false,
        };
        if is_write.is_none() && !is_step {
            return;
        }
        if result == Err(ErrorCode::Checksum) && model.files[writing.file].is_hopeless {
            model.end_hopeless(writing.file);
            return self.vanish(model, env);
        }
        if result == Err(ErrorCode::Quota) {
            env.counts.over_quota += 1;
            return self.vanish(model, env);
        }
        if result.is_err() {
            // The manager knows the present primary. A refusal is no reason to avoid a server.
            let until = env.now + Duration::from_millis(100);
            let store = writing.at.take().map(|(store, _, _)| store);
            writing.step = Step::Wait { until };
            if matches!(result, Err(ErrorCode::Io | ErrorCode::NotFound | ErrorCode::Checksum))
                && let Some(store) = store
            {
                writing.tried.push(store);
            }
            writing.sent.clear();
            return;
        }
        // It is back. If its open write ends now, that is a fault.
        writing.was_absent = false;
        writing.tried.clear();
        if let Some(at) = is_write {
            writing.sent.remove(at);
            if let Some((_, Some(sent))) = writing.left.remove(at) {
                model.ack(writing.file, sent);
                env.counts.writes += 1;
            }
            writing.step = Step::Work { since: env.now };
        } else if let Step::Close { .. } = writing.step {
            let file = writing.file;
            model.close(file);
            env.counts.closed += 1;
            self.rest(env);
            return;
        } else {
            if let Step::Sync { .. } = writing.step {
                writing.sync = false;
                model.sync(writing.file);
            }
            writing.step = Step::Work { since: env.now };
        }
        if env.rng.random_ratio(1, 300) {
            return self.vanish(model, env);
        }
        self.go_on(model, env);
    }

    fn go_on(&mut self, model: &mut Model, env: &mut Env<'_>) {
        let mut numbers = self.numbers;
        let State::Write(writing) = &mut self.state else { return };
        let Some((store, replica, epoch)) = writing.at else { return };
        let server = server_of(store);
        while writing.sent.len() < WINDOW.min(writing.left.len()) {
            let (bytes, sent) = &mut writing.left[writing.sent.len()];
            sent.get_or_insert_with(|| model.send(writing.file, bytes));
            numbers += 1;
            env.send(server, Message::Write { number: numbers, replica, epoch, bytes: bytes.clone() });
            writing.sent.push_back(numbers);
        }
        if writing.left.is_empty() {
            numbers += 1;
            let number = numbers;
            if writing.sync {
                writing.step = Step::Sync { number, since: env.now };
                env.send(server, Message::Sync { number, replica, epoch });
            } else {
                writing.step = Step::Close { number, since: env.now };
                env.send(server, Message::Close { number, replica, epoch });
            }
        }
        self.numbers = numbers;
    }
}

/// Picks one of `count`, mostly one of the last.
fn lately(count: usize, env: &mut Env<'_>) -> usize {
    if env.rng.random_ratio(1, 4) {
        return env.rng.random_range(0..count);
    }
    count - 1 - env.rng.random_range(0..count.min(4))
}
