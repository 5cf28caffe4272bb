//! Random steps on the real namespace and the model side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kv::{Durability, Kv, KvError};
use namespace::PathOperation as Op;
use namespace::{self as ns, Actor, Context, Namespace, NamespaceConfig, NsError, Operation, RequestNumber};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use types::{
    Adler32, BootId, ClientIdentity, Crc32c, ErrorCode, Ino, NsPath, ObjectId, PrincipalId, SessionId, Timestamp,
    UploadId,
};

use super::acl::{Edit, For};
use super::life::{Handle, Open, OpenReply, Opened};
use super::limits::Rules;
use super::names::put_xattr;
use super::view::{View, compare, real};
use super::{Kind, Model, Pairs, UpState, Who};

const OBJECT: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq)]
enum About {
    Free,
    Dir,
    File,
}

/// A handle as a server holds it, and the model's handle.
#[derive(Clone, Debug)]
pub struct Both {
    pub token: ns::WriterToken,
    pub handle: Handle,
}

pub struct World {
    pub kv: Arc<dyn Kv>,
    pub ns: Arc<Namespace>,
    pub model: Model,
    pub pairs: Pairs,
    pub rng: SmallRng,
    pub handles: Vec<Both>,
    pub boot: u128,
    pub durability: Durability,
    /// Requests are numbered, in a session for each principal. Some are repeated.
    pub numbered: Option<std::collections::BTreeMap<u32, (SessionId, u64)>>,
    pub steps: u64,
    pub oks: u64,
    pub refusals: u64,
    pub repeats: u64,
    pub lost_answers: u64,
    /// Policies set and removed.
    pub policies: u64,
    /// ACLs changed.
    pub acls: u64,
    /// Quotas set.
    pub quotas: u64,
    /// Users and groups renamed.
    pub renamed_principals: u64,
    /// What actors with limits did, and what was refused to them.
    pub limited: (u64, u64),
    pub log: Vec<String>,
    pub config: NamespaceConfig,
}

pub fn test_config() -> NamespaceConfig {
    let mut config = NamespaceConfig { id_range: 64, ..NamespaceConfig::default() };
    config.limits.links_max = 4;
    config.limits.xattrs_max = 3;
    config.limits.total_shards = 3;
    config.limits.request_window = 4;
    config.limits.reserve_step = super::quota::STEP;
    config
}

/// Opens the namespace, and retries while the engine says that it may have committed.
pub fn open_namespace(kv: &Arc<dyn Kv>, now: i64, config: NamespaceConfig) -> Arc<Namespace> {
    loop {
        match Namespace::open(Arc::clone(kv), Timestamp(now), config) {
            Ok(ns) => return ns,
            Err(NsError::Kv(KvError::MaybeCommitted)) => {}
            Err(error) => panic!("the namespace does not open: {error}"),
        }
    }
}

pub type Checked = Result<(), String>;

impl World {
    pub fn new(kv: Arc<dyn Kv>, seed: u64, numbered: bool) -> Self {
        let config = test_config();
        let now = 1_000_000_000;
        let ns = open_namespace(&kv, now, config);
        let model = Model::new(now);
        let mut world = Self {
            kv,
            ns,
            model,
            pairs: Pairs::default(),
            rng: SmallRng::seed_from_u64(seed),
            handles: Vec::new(),
            boot: 1,
            durability: Durability::Synced,
            numbered: None,
            steps: 0,
            oks: 0,
            refusals: 0,
            repeats: 0,
            lost_answers: 0,
            policies: 0,
            acls: 0,
            quotas: 0,
            renamed_principals: 0,
            limited: (0, 0),
            log: Vec::new(),
            config,
        };
        // An open whose answer was lost may have made the root already, with the same times.
        world.model.now = now;
        // Everybody may write in the root. Otherwise most operations would be denied.
        let open_root = ns::Chmod { path: NsPath::root(), mode: 0o777 };
        while world.ns.change_wait(Durability::Synced, world.ctx(&admin()), open_root.clone()).is_err() {}
        world.model.chmod(&admin(), b"/", 0o777).unwrap();
        if numbered {
            let sessions = [0, 5, 6].map(|id| (id, (world.begin_session(id), 1)));
            world.numbered = Some(sessions.into());
        }
        world
    }

    fn begin_session(&mut self, id: u32) -> SessionId {
        loop {
            let client = ClientIdentity { principal: PrincipalId(id), ..ClientIdentity::default() };
            let open = ns::OpenSession { client };
            match self.ns.change_wait(Durability::Synced, self.ctx(&admin()), open) {
                Ok(session) => return session,
                Err(NsError::Kv(KvError::MaybeCommitted)) => {}
                Err(error) => panic!("no session: {error}"),
            }
        }
    }

    fn ctx(&self, who: &Who) -> Context {
        let groups: Vec<PrincipalId> = who.groups.iter().map(|g| PrincipalId(*g)).collect();
        let mut actor = Actor::new(PrincipalId(who.id), Arc::from(groups));
        if let Some(limits) = &who.limits {
            actor = actor.with_limits(Arc::new(limits.clone()));
        }
        self.ns.context(Timestamp(self.model.now), &actor, None)
    }

    /// Makes a change. Repeats it with the same number if the answer was lost, and sometimes without need.
    pub(super) fn change<O>(&mut self, who: &Who, op: O) -> Result<Result<O::Reply, ErrorCode>, String>
    where
        O: Operation + Clone + Send + 'static,
        O::Reply: std::fmt::Debug,
    {
        let mut ctx = self.ctx(who);
        if let Some((session, number)) = self.numbered.as_mut().and_then(|sessions| sessions.get_mut(&who.id)) {
            ctx.request = Some(RequestNumber { session: *session, number: *number });
            *number += 1;
        }
        let mut answer;
        loop {
            answer = self.ns.change_wait(self.durability, ctx.clone(), op.clone());
            match &answer {
                Err(NsError::Kv(KvError::MaybeCommitted)) if self.numbered.is_some() => self.lost_answers += 1,
                Err(NsError::OutOfNumbers) => std::thread::yield_now(),
                Err(NsError::Damaged { .. } | NsError::Kv(_)) => {
                    return Err(format!("{:?}", answer.err().map(|e| e.to_string())));
                }
                _ => break,
            }
        }
        if self.numbered.is_some() && self.rng.random_ratio(1, 8) {
            self.repeats += 1;
            let again = loop {
                match self.ns.change_wait(self.durability, ctx.clone(), op.clone()) {
                    Err(NsError::Kv(KvError::MaybeCommitted)) => {}
                    other => break other,
                }
            };
            // Who repeats an open returns to what it has opened.
            let shown = |reply: &O::Reply| {
                let text = format!("{reply:?}").replace("returns: false", "returns: true");
                text.split("may_reach").next().unwrap_or_default().to_owned()
            };
            let first = answer.as_ref().map(shown).map_err(NsError::code);
            let second = again.as_ref().map(shown).map_err(NsError::code);
            if first != second {
                return Err(format!("a repeated request got {second:?}, the first one {first:?}"));
            }
        }
        Ok(answer.map_err(|error| error.code()))
    }

    pub(super) fn agree<A: std::fmt::Debug, B: std::fmt::Debug>(
        &mut self,
        real: Result<A, ErrorCode>,
        model: Result<B, ErrorCode>,
    ) -> Result<Option<(A, B)>, String> {
        match (real, model) {
            (Ok(a), Ok(b)) => {
                self.oks += 1;
                Ok(Some((a, b)))
            }
            (Err(a), Err(b)) if a == b => {
                self.refusals += 1;
                Ok(None)
            }
            (a, b) => Err(format!("answers differ: real {a:?}, model {b:?}")),
        }
    }

    /// Compares all visible state, and runs the namespace's own check.
    pub fn compare(&mut self) -> Checked {
        let snapshot = self.kv.snapshot();
        let page = self.rng.random_range(1..6);
        let seen = real(&*snapshot, page, &[71, 72]);
        compare(&seen, &self.model.view(), &mut self.pairs)?;
        let mut findings = Vec::new();
        ns::check(&*snapshot, &mut |finding| findings.push(format!("{}: {}", finding.key, finding.what)))
            .map_err(|error| error.to_string())?;
        if findings.is_empty() { Ok(()) } else { Err(format!("the check finds: {findings:#?}")) }
    }

    pub fn view(&self) -> View {
        let snapshot = self.kv.snapshot();
        real(&*snapshot, 3, &[71, 72])
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.rng.random_range(0..from.len())]
    }

    pub(super) fn user(&mut self) -> Who {
        let who = match self.rng.random_range(0..10) {
            0..=6 => admin(),
            7 | 8 => Who { id: 5, groups: vec![5, 8, 9], limits: None },
            _ => Who { id: 6, groups: vec![6, 9, 8], limits: None },
        };
        if self.rng.random_ratio(1, 6) { Who { limits: Some(self.limits()), ..who } } else { who }
    }

    /// Limits of a credential: some operations on some paths.
    fn limits(&mut self) -> Rules {
        let mut rules = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let kinds: [&[Op]; 5] = [
                &Op::ALL,
                &[Op::Read, Op::Stat, Op::List],
                &[Op::CreateFile, Op::CreateDirectory, Op::RenameFile, Op::Stat],
                &[Op::ModifyFile, Op::RenameFile],
                &[],
            ];
            let mut operations = kinds[[0, 0, 0, 1, 2, 2, 3, 4][self.rng.random_range(0..8)]].to_vec();
            if operations.is_empty() {
                operations = Op::ALL.into_iter().filter(|_| self.rng.random()).collect();
            }
            let path = match self.rng.random_range(0..6) {
                0..3 => b"/".to_vec(),
                3 => self.path(About::Dir),
                4 => self.path(About::File),
                _ => self.pick(&[&b"/a"[..], b"/b", b"/c", b"/a/b"]).to_vec(),
            };
            rules.push((operations, path));
        }
        Rules(rules)
    }

    /// A client of `user`, or of anybody if `user` is the administrator.
    fn client(&mut self, user: &Who) -> ClientIdentity {
        let n = self.rng.random_range(0..3);
        let id = if user.id == 0 { [0, 0, 5, 6][self.rng.random_range(0..4)] } else { user.id };
        ClientIdentity { principal: PrincipalId(id), user: "u".into(), pid: n, host: "[::1]".into() }
    }

    /// A path that usually leads to the right kind of file for the operation.
    fn path(&mut self, about: About) -> Vec<u8> {
        if self.rng.random_ratio(1, 100) {
            return b"/".to_vec();
        }
        let names: [&[u8]; 10] = [b"a", b"b", b"c", b"d", b"e", b"f", b"ab", b"a", b"\xff\n \x01", &[b'x'; 255]];
        let wanted: Vec<Vec<u8>> = match about {
            About::Free => self.model.paths(|model, ino| model.is_dir(ino)),
            About::Dir => self.model.paths(|model, ino| model.is_dir(ino)),
            About::File => self.model.paths(|model, ino| !model.is_dir(ino)),
        };
        let mut path = Vec::new();
        if !wanted.is_empty() && self.rng.random_ratio(4, 5) {
            path = wanted[self.rng.random_range(0..wanted.len())].clone();
            if about != About::Free {
                return path;
            }
        }
        for _ in 0..if path.is_empty() { self.rng.random_range(1..4) } else { 1 } {
            let most = if self.rng.random_ratio(1, 6) { 10 } else { 8 };
            path.push(b'/');
            path.extend_from_slice(self.pick(&names[..most]));
        }
        path
    }

    pub fn step(&mut self) -> Checked {
        self.steps += 1;
        self.model.now += self.rng.random_range(1..1_000);
        if self.rng.random_ratio(1, 200) {
            self.model.now += super::TOMB + 1;
        }
        if self.rng.random_ratio(1, 150) {
            let boots = self.rng.random();
            self.restart(boots);
        }
        if self.rng.random_ratio(1, 16) {
            return self.change_principals();
        }
        if self.rng.random_ratio(1, 16) {
            return self.change_quotas();
        }
        let kind = self.rng.random_range(0..100);
        let before = self.log.len();
        let user = self.user();
        let (oks, refusals) = (self.oks, self.refusals);
        let result = self.one(kind, user.clone());
        if user.limits.is_some() {
            self.limited.0 += self.oks - oks;
            self.limited.1 += self.refusals - refusals;
        }
        if self.log.len() == before {
            self.log.push(format!("step kind {kind}"));
        }
        result
    }

    /// Restarts the server: new numbers and a new session. Handles and request numbers of clients stay.
    pub fn restart(&mut self, boots: bool) {
        self.log.push(format!("{}: restart, boots {boots}", self.steps));
        self.ns = open_namespace(&self.kv, self.model.now, self.config);
        self.boot += u128::from(boots);
    }

    pub(super) fn say(&mut self, what: String) {
        self.log.push(format!("{}: {what}", self.steps));
    }

    #[allow(clippy::too_many_lines)]
    fn one(&mut self, kind: u32, mut user: Who) -> Checked {
        let about = match kind {
            0..10 | 34..38 => About::Free,
            14..17 | 88 | 96 | 98 => About::Dir,
            38..45 if self.rng.random() => About::Dir,
            17..26 if self.rng.random_ratio(1, 3) => About::Dir,
            50..70 if self.rng.random() => About::Free,
            _ => About::File,
        };
        let path = self.path(about);
        let p = NsPath::parse(&path).unwrap();
        // Often the limits permit something just there.
        if let Some(limits) = user.limits.as_mut().filter(|_| self.rng.random_ratio(1, 3)) {
            limits.0.push((Op::ALL.to_vec(), path.clone()));
        }
        self.say(format!("kind {kind} user {} {:?} {p}", user.id, user.limits));
        match kind {
            0..10 => {
                let parents = self.rng.random();
                let mode = [0o777, 0o777, 0o1777, 0o2775, 0o755, 0o700][self.rng.random_range(0..6)];
                let real = self.change(&user, ns::Mkdir { path: p, mode, parents })?;
                let model = self.model.mkdir(&user, &path, mode, parents);
                if let Some((real, (ino, made))) = self.agree(real, model)? {
                    self.pairs.pair(real.ino.0, ino)?;
                    same("made", real.made, made)?;
                }
            }
            10..14 => {
                let real = self.change(&user, ns::Remove { path: p })?;
                let model = self.model.remove(&user, &path);
                if let Some((real, (ino, object))) = self.agree(real, model)? {
                    self.pairs.pair(real.ino.0, ino)?;
                    self.pair_objects(real.object, object)?;
                }
            }
            14..17 => {
                let real = self.change(&user, ns::Rmdir { path: p })?;
                let model = self.model.rmdir(&user, &path);
                if let Some((real, ino)) = self.agree(real, model)? {
                    self.pairs.pair(real.0, ino)?;
                }
            }
            17..26 => {
                let to = [About::Free, About::Free, About::File, About::Dir][self.rng.random_range(0..4)];
                let to = self.path(to);
                let replace = self.rng.random_ratio(3, 4);
                self.say(format!("  to {} replace {replace}", to.escape_ascii()));
                let op = ns::Rename { from: p, to: NsPath::parse(&to).unwrap(), replace };
                let real = self.change(&user, op)?;
                let model = self.model.rename(&user, &path, &to, replace);
                if let Some((real, (ino, replaced))) = self.agree(real, model)? {
                    self.pairs.pair(real.ino.0, ino)?;
                    same("replaced", real.replaced.is_some(), replaced.is_some())?;
                }
            }
            26..34 => {
                let to = self.path(About::Free);
                self.say(format!("  link {}", to.escape_ascii()));
                let op = ns::Link { existing: p, new: NsPath::parse(&to).unwrap() };
                let real = self.change(&user, op)?;
                let model = self.model.link(&user, &path, &to, 4);
                self.agree(real, model)?;
            }
            34..38 => {
                let targets: [&[u8]; 11] =
                    [b"/a", b"b", b"../a", b"c/b", b"/", b"..", b"./a/./c", b"", b"/ab", b"a/../b", b"/b/../../c/a"];
                let target = self.pick(&targets).to_vec();
                self.say(format!("  target {}", target.escape_ascii()));
                let real = self.change(&user, ns::Symlink { path: p, target: target.clone() })?;
                let model = self.model.symlink(&user, &path, &target);
                self.agree(real, model)?;
            }
            40 | 43 => self.acls(&user, &path, p)?,
            38..41 => {
                let modes = [0o755, 0o777, 0o1777, 0o700, 0o644, 0o666, 0o600, 0o6755, 0o2770];
                let mode = modes[self.rng.random_range(0..modes.len())];
                let real = self.change(&user, ns::Chmod { path: p, mode })?;
                let model = self.model.chmod(&user, &path, mode);
                self.agree(real, model)?;
            }
            41..43 => {
                let owner = self.rng.random_ratio(1, 2).then_some([0, 5, 6][self.rng.random_range(0..3)]);
                let group = self.rng.random_ratio(1, 2).then_some([0, 5, 9][self.rng.random_range(0..3)]);
                let op = ns::Chown { path: p, owner: owner.map(PrincipalId), group: group.map(PrincipalId) };
                let real = self.change(&user, op)?;
                let model = self.model.chown(&user, &path, owner, group);
                self.agree(real, model)?;
            }
            44 => {
                let mtime = self.rng.random_ratio(2, 3).then(|| self.rng.random_range(-5..2_000_000_000_000));
                let atime = self.rng.random_ratio(1, 3).then(|| self.rng.random_range(0..9));
                let op = ns::Utimes { path: p, mtime: mtime.map(Timestamp), atime: atime.map(Timestamp) };
                let real = self.change(&user, op)?;
                let model = self.model.utimes(&user, &path, mtime, atime);
                self.agree(real, model)?;
            }
            45..50 => {
                let names: [&[u8]; 5] = [b"k", b"user.l", b"m\xfe", b"n", b"o"];
                let name = self.pick(&names).to_vec();
                if self.rng.random_ratio(1, 3) {
                    self.hidden_attributes(&user, name)?;
                } else if self.rng.random_ratio(1, 4) {
                    let op = ns::RemoveXattr { of: p.into(), name: name.clone() };
                    let real = self.change(&user, op)?;
                    let model = self.model.remove_xattr(&user, &path, &name);
                    self.agree(real, model)?;
                } else {
                    let mode = self.rng.random_range(0..3u8);
                    let how = [ns::XattrMode::Set, ns::XattrMode::Create, ns::XattrMode::Replace][mode as usize];
                    let value = vec![self.rng.random(); self.rng.random_range(0..5)];
                    let op = ns::SetXattr { of: p.into(), name: name.clone(), value: value.clone(), mode: how };
                    let real = self.change(&user, op)?;
                    let model = self.model.set_xattr(&user, &path, &name, &value, mode, 3);
                    self.agree(real, model)?;
                }
            }
            50..70 => self.open(&user, path, p)?,
            70..82 => self.commit(&user)?,
            82..84 => self.interrupt()?,
            84..86 => self.end_unchanged()?,
            86..88 => self.forget(&user)?,
            88 | 98 if self.rng.random_ratio(4, 5) => self.policies(&user, path)?,
            88..91 => self.reads(&user, &path, &p)?,
            91 => self.delete_queued()?,
            92 => self.recount(&user)?,
            93..96 => self.holds()?,
            96 => {
                let real = self.change(&user, ns::MakeTree { path: p })?;
                let model = self.model.make_tree(&user, &path);
                self.agree(real, model)?;
            }
            97 => {
                let mut after = None;
                loop {
                    match self
                        .change(&admin(), ns::DropTombstones { after, limit: 2 })?
                        .map_err(|e| format!("{e:?}"))?
                    {
                        None => break,
                        next => after = next,
                    }
                }
                let now = self.model.now;
                self.model.ended.retain(|_, ended| ended.until > now);
            }
            _ => {
                let (client, len) = (self.client(&user), self.rng.random_range(0..4) * 100);
                let op = ns::Truncate { path: p, len, client: client.clone(), boot: BootId(self.boot), request: None };
                let real = self.change(&user, op)?;
                let boot = self.boot;
                let model = self.model.truncate(&user, &path, len, &client, boot);
                if let Some((real, model)) = self.agree(real, model)? {
                    same("truncate begins an update", real.is_some(), model.is_some())?;
                    if let (Some(real), Some(model)) = (real, model) {
                        self.opened(&real, model)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn pair_objects(&mut self, real: Option<ObjectId>, model: Option<u64>) -> Checked {
        match (real, model) {
            (None, None) => Ok(()),
            (Some(real), Some(model)) => self.pairs.pair(real.0 | OBJECT, model | OBJECT),
            other => Err(format!("bodies that go differ: {other:?}")),
        }
    }

    fn opened(&mut self, real: &ns::OpenedWrite, model: OpenReply) -> Checked {
        self.pairs.pair(real.object.0 | OBJECT, model.handle.object | OBJECT)?;
        if let Some(ino) = model.ino {
            self.pairs.pair(real.ino.0, ino)?;
        }
        let kind = match real.kind {
            ns::OpenKind::New => Opened::New,
            ns::OpenKind::Upload(_) => Opened::Upload,
            ns::OpenKind::Update => Opened::Update,
            ns::OpenKind::Resumed(_) => Opened::Resumed,
        };
        same("kind", kind, model.kind)?;
        same("len", real.len, model.len)?;
        // The answer to a repeated request does not say how far it may go.
        if real.may_reach != Some(0) {
            same("may reach", real.may_reach, self.model.may_reach(model.handle.object))?;
        }
        same("epoch", real.writer.epoch, model.handle.epoch)?;
        let real_dropped: BTreeSet<u64> = real.dropped.iter().map(|object| object.0 | OBJECT).collect();
        let known = |object: &u64| self.pairs.real(*object | OBJECT);
        let model_dropped: BTreeSet<u64> = model.dropped.iter().filter_map(known).collect();
        same("dropped", (real.dropped.len(), real_dropped), (model.dropped.len(), model_dropped))?;
        self.handles.push(Both { token: real.writer, handle: model.handle });
        Ok(())
    }

    fn open(&mut self, user: &Who, mut path: Vec<u8>, mut p: NsPath) -> Checked {
        let how = [0, 0, 1, 1, 2, 2, 2][self.rng.random_range(0..7)];
        let mut client = self.client(user);
        if how == 2 && !self.model.writers.is_empty() && self.rng.random_ratio(2, 3) {
            // A client comes back.
            let at = self.rng.random_range(0..self.model.writers.len());
            let who = self.model.writers.values().nth(at).unwrap().who;
            (client, path) = self.model.who[who].clone();
            p = NsPath::parse(&path).unwrap();
            if user.id != 0 {
                // Or a client of another principal claims the same identity.
                client.principal = PrincipalId(user.id);
            }
        }
        let mut resume_upload = None;
        if how == 2 && self.rng.random_ratio(1, 6) && !self.model.uploads.is_empty() {
            let at = self.rng.random_range(0..self.model.uploads.len());
            let upload = self.model.uploads.values().nth(at).unwrap();
            resume_upload = Some(upload.object);
            if self.rng.random_ratio(5, 6) {
                path = self.model.who[upload.who].1.clone();
                p = NsPath::parse(&path).unwrap();
            }
        }
        let vouched_object = self.model.writers.keys().next().copied();
        let recovered = match self.rng.random_range(0..3) {
            0 => None,
            n => vouched_object.map(|object| (object, n == 1, 7)),
        };
        let open = Open {
            path,
            how,
            mkpath: self.rng.random_ratio(1, 3),
            mode: [0o644, 0o600, 0o666][self.rng.random_range(0..3)],
            posc: self.rng.random_ratio(1, 4),
            client: client.clone(),
            boot: self.boot,
            restarted: self.rng.random_ratio(1, 3),
            recovered,
            resume_visible: resume_upload.is_none() && self.rng.random_ratio(1, 4) && how == 2,
            resume_upload,
            expected: self.rng.random_ratio(1, 2).then_some(100),
        };
        self.say(format!("  open {open:?}"));
        let real_object = |pairs: &Pairs, object: u64| pairs.real(object | OBJECT).map_or(u64::MAX, |n| n & !OBJECT);
        let request = ns::OpenWrite {
            path: p,
            how: [ns::WriteMode::NewOnly, ns::WriteMode::Replace, ns::WriteMode::Update][how as usize],
            mkpath: open.mkpath,
            mode: open.mode,
            posc: open.posc,
            client,
            boot: BootId(open.boot),
            expected_len: open.expected,
            restarted: open.restarted,
            received_before: None,
            recovered: open.recovered.map(|(object, all_there, kept_len)| ns::RecoveredWrite {
                object: ObjectId(real_object(&self.pairs, object)),
                all_there,
                kept_len,
            }),
            resume: match open.resume_upload {
                Some(object) => Some(ns::Resume::Upload(UploadId(real_object(&self.pairs, object)))),
                None => open.resume_visible.then_some(ns::Resume::Visible),
            },
            placement: types::Placement::single_node(),
            stripe: None,
            empty: None,
            unit_of: None,
            only: None,
            ends: false,
            sharing: None,
        };
        let real = self.change(user, request)?;
        let model = self.model.open(user, &open);
        if let Some((real, model)) = self.agree(real, model)? {
            self.opened(&real, model)?;
        }
        Ok(())
    }

    pub(super) fn any_handle(&mut self) -> Option<Both> {
        if self.handles.is_empty() {
            return None;
        }
        let at = self.rng.random_range(0..self.handles.len());
        // Old handles are kept for a while and tried again: they must be stale.
        if self.rng.random_ratio(2, 3) { Some(self.handles.remove(at)) } else { Some(self.handles[at].clone()) }
    }

    /// Attributes of a writer's upload, hidden or not.
    fn hidden_attributes(&mut self, user: &Who, name: Vec<u8>) -> Checked {
        if self.handles.is_empty() {
            return Ok(());
        }
        let both = self.handles[self.rng.random_range(0..self.handles.len())].clone();
        let of = ns::XattrOf::Upload(both.token);
        self.say(format!("  attribute {} of {both:?}", name.escape_ascii()));
        if self.rng.random_ratio(1, 4) {
            let real = self.change(user, ns::RemoveXattr { of, name: name.clone() })?;
            let model = self
                .model
                .clone()
                .hidden_xattrs(&both.handle)
                .and_then(|all| all.remove(&name).ok_or(ErrorCode::NotFound));
            if self.agree(real, model)?.is_some() {
                let _ = self.model.hidden_xattrs(&both.handle).map(|all| all.remove(&name));
            }
            return Ok(());
        }
        let mode = self.rng.random_range(0..3u8);
        let how = [ns::XattrMode::Set, ns::XattrMode::Create, ns::XattrMode::Replace][mode as usize];
        let value = vec![self.rng.random(); self.rng.random_range(0..5)];
        let op = ns::SetXattr { of, name: name.clone(), value: value.clone(), mode: how };
        let real = self.change(user, op)?;
        // The change is tried on a copy: a refused one changes nothing, and takes no number.
        let put = |all: &mut BTreeMap<_, _>| put_xattr(all, &name, &value, mode, 3);
        let model = self.model.clone().hidden_xattrs(&both.handle).and_then(put);
        if self.agree(real, model)?.is_some() {
            let _ = self.model.hidden_xattrs(&both.handle).and_then(put);
        }
        Ok(())
    }

    fn commit(&mut self, user: &Who) -> Checked {
        let Some(both) = self.any_handle() else { return Ok(()) };
        let len = self.rng.random_range(0..5) * 100;
        let sums = self.rng.random_ratio(4, 5).then(|| (self.rng.random(), self.rng.random()));
        let mtime = self.rng.random_ratio(1, 5).then(|| self.rng.random_range(0..1_000));
        let at_grace_end = self.rng.random_ratio(1, 5);
        self.say(format!("  commit {both:?} {len}"));
        let op = ns::Commit {
            writer: both.token,
            content: ns::Committed {
                len,
                sums: sums.map(|(a, c)| ns::Sums { adler32: Adler32(a), crc32c: Crc32c(c) }),
                mtime: mtime.map(Timestamp),
            },
            completion: if at_grace_end { ns::Completion::AtGraceEnd } else { ns::Completion::ByClient },
        };
        let real = self.change(user, op)?;
        let model = self.model.commit(user, &both.handle, len, sums, mtime, at_grace_end);
        if let Some((real, model)) = self.agree(real, model)? {
            match (real, model) {
                (ns::CommitReply::Unlinked, None) => {}
                (ns::CommitReply::Complete { ino, replaced, .. }, Some((model_ino, gone))) => {
                    self.pairs.pair(ino.0, model_ino)?;
                    self.pair_objects(replaced, gone)?;
                }
                other => return Err(format!("commits differ: {other:?}")),
            }
        }
        Ok(())
    }

    fn interrupt(&mut self) -> Checked {
        let Some(both) = self.any_handle() else { return Ok(()) };
        let kept_len = if self.rng.random_bool(0.3) { 0 } else { self.rng.random_range(0..300) };
        self.say(format!("  interrupt {both:?}"));
        let real = self.change(&admin(), ns::Interrupt { writer: both.token, kept_len })?;
        let model = self.model.interrupt(&both.handle, kept_len);
        self.agree(real, model)?;
        Ok(())
    }

    fn end_unchanged(&mut self) -> Checked {
        let Some(both) = self.any_handle() else { return Ok(()) };
        let writer = self.model.writers.get(&both.handle.object).cloned();
        let file = writer.as_ref().and_then(|writer| self.model.file(writer.ino));
        let len = file.map_or(0, |file| file.len) + u64::from(self.rng.random_ratio(1, 5));
        let before = writer.and_then(|writer| writer.sums_before).filter(|_| self.rng.random_ratio(4, 5));
        let sums = before.unwrap_or_else(|| (self.rng.random(), self.rng.random()));
        let (certain, at_grace_end) = (self.rng.random(), self.rng.random());
        self.say(format!("  end unchanged {both:?} {len} {sums:?} {certain}"));
        let op = ns::EndUnchanged {
            writer: both.token,
            len,
            sums: ns::Sums { adler32: Adler32(sums.0), crc32c: Crc32c(sums.1) },
            certain,
            completion: if at_grace_end { ns::Completion::AtGraceEnd } else { ns::Completion::ByClient },
        };
        let real = self.change(&admin(), op)?;
        let model = self.model.end_unchanged(&both.handle, len, sums, certain, at_grace_end);
        if let Some((real, model)) = self.agree(real, model)? {
            same("ended", real, model)?;
        }
        Ok(())
    }

    fn forget(&mut self, user: &Who) -> Checked {
        let ended = self.model.uploads.values().filter(|up| up.state != UpState::Making || up.object % 5 == 0);
        let Some(object) = ended.map(|up| up.object).next() else { return Ok(()) };
        let real_object = self.pairs.real(object | OBJECT).unwrap() & !OBJECT;
        let real = self.change(user, ns::ForgetUpload { upload: UploadId(real_object), expired_by: None })?;
        let model = self.model.forget(user, object);
        self.agree(real, model)?;
        Ok(())
    }

    /// Reads by an actor to whom permissions apply.
    fn reads(&mut self, user: &Who, path: &[u8], p: &NsPath) -> Checked {
        let ctx = self.ctx(user);
        let kv = Arc::clone(&self.kv);
        let snapshot = kv.snapshot();
        let partial = self.rng.random();
        let code = |error: NsError| error.code();
        let real = ns::stat(&*snapshot, &ctx.actor, p).map(|inode| inode.ino.0).map_err(code);
        let model = self.model.existing(user, path, true, Op::Stat).map(|(_, ino)| ino);
        if let Some((real, model)) = self.agree(real, model)? {
            self.pairs.pair(real, model)?;
        }
        let real = ns::stat_no_follow(&*snapshot, &ctx.actor, p).map(|inode| inode.ino.0).map_err(code);
        let model = self.model.existing(user, path, false, Op::Stat).map(|(_, ino)| ino);
        self.agree(real, model)?;
        let real = ns::open_read(&*snapshot, &ctx.actor, p, partial).map(|inode| inode.len()).map_err(code);
        let model = self.model.existing(user, path, true, Op::Read).and_then(|(_, ino)| {
            if self.model.is_dir(ino) {
                return Err(ErrorCode::IsDirectory);
            }
            self.model.may(user, ino, 4)?;
            let file = self.model.file(ino).unwrap();
            match file.state {
                super::State::Interrupted(_) if !partial => Err(ErrorCode::Interrupted),
                _ => Ok(file.len),
            }
        });
        if let Some((real, model)) = self.agree(real, model)? {
            same("length", real, model)?;
        }
        let real = ns::get_xattr(&*snapshot, &ctx.actor, &p.clone().into(), b"k").map_err(code);
        let model = self.model.existing(user, path, true, Op::Stat).and_then(|(_, ino)| {
            self.model.may(user, ino, 4)?;
            self.model.node(ino).xattrs.get(b"k".as_slice()).cloned().ok_or(ErrorCode::NotFound)
        });
        if let Some((real, model)) = self.agree(real, model)? {
            same("attribute", real, model)?;
        }
        Ok(())
    }

    fn delete_queued(&mut self) -> Checked {
        let snapshot_due = {
            let snapshot = self.kv.snapshot();
            ns::due_deletions(&*snapshot, None, 3).map_err(|error| error.to_string())?
        };
        for due in &snapshot_due {
            let model = self
                .model
                .queue
                .iter()
                .find(|object| self.pairs.real(**object | OBJECT) == Some(due.object.0 | OBJECT));
            let Some(model) = model.copied() else {
                return Err(format!(
                    "body {} is queued for deletion; the model needs it or knows nothing of it",
                    due.object
                ));
            };
            self.model.queue.remove(&model);
        }
        self.change(&admin(), ns::DeletionDone { done: snapshot_due })?.map_err(|e| format!("{e:?}"))
    }

    /// Recounting correct totals changes nothing, also not the time of the latest change.
    fn recount(&mut self, user: &Who) -> Checked {
        let inos: Vec<u64> = self.model.nodes.keys().copied().collect();
        let ino = inos[self.rng.random_range(0..inos.len())];
        let Some(real_ino) = self.pairs.real(ino) else { return Ok(()) };
        let real = self.change(user, ns::RecountTotals { dir: Ino(real_ino) })?;
        let model = match (user.id, self.model.is_dir(ino)) {
            // It is about no path.
            _ if user.limits.is_some() => Err(ErrorCode::Denied),
            (0, true) => Ok(()),
            (0, false) => Err(ErrorCode::NotFound),
            _ => Err(ErrorCode::Denied),
        };
        self.agree(real, model)?;
        Ok(())
    }

    /// One entry of an ACL, of those about whom the model's users care.
    fn acl_entry(&mut self) -> (For, u16) {
        let of = match self.rng.random_range(0..12) {
            0 => For::Owner,
            1 => For::OwningGroup,
            2 => For::Mask,
            3 => For::Other,
            4..7 => For::User([5, 6, 7][self.rng.random_range(0..3)]),
            _ => For::Group([5, 8, 8, 9, 9][self.rng.random_range(0..5)]),
        };
        (of, self.rng.random_range(0..8))
    }

    /// A change of an ACL, for both sides.
    fn acl_edit(&mut self) -> (ns::AclEdit, Edit) {
        let mut entries: BTreeMap<For, u16> = BTreeMap::new();
        for _ in 0..self.rng.random_range(0..6) {
            let (of, bits) = self.acl_entry();
            entries.insert(of, bits);
        }
        let mut given: Vec<(For, u16)> = entries.into_iter().collect();
        let by = usize::from(given.len() > 1);
        given.rotate_left(by);
        let tag = |of: For| match of {
            For::Owner => ns::AclTag::Owner,
            For::User(id) => ns::AclTag::User(PrincipalId(id)),
            For::OwningGroup => ns::AclTag::OwningGroup,
            For::Group(id) => ns::AclTag::Group(PrincipalId(id)),
            For::Mask => ns::AclTag::Mask,
            For::Other => ns::AclTag::Other,
        };
        let permissions = |bits: u16| ns::Permissions::from_bits(bits as u8);
        let real: Vec<ns::AclEntry> =
            given.iter().map(|(of, bits)| ns::AclEntry { tag: tag(*of), permissions: permissions(*bits) }).collect();
        match self.rng.random_range(0..8) {
            0 => (ns::AclEdit::Clear, Edit::Clear),
            1 | 2 => {
                let names: Vec<For> = given.iter().map(|(of, _)| *of).collect();
                let named = |of: &For| match of {
                    For::User(id) => Some(ns::Named::User(PrincipalId(*id))),
                    For::Group(id) => Some(ns::Named::Group(PrincipalId(*id))),
                    _ => None,
                };
                let names: Vec<For> = names.into_iter().filter(|of| named(of).is_some()).collect();
                (ns::AclEdit::Remove(names.iter().filter_map(named).collect()), Edit::Remove(names))
            }
            3 | 4 => (ns::AclEdit::Replace(real), Edit::Replace(given)),
            _ => (ns::AclEdit::Modify(real), Edit::Modify(given)),
        }
    }

    fn acls(&mut self, user: &Who, path: &[u8], p: NsPath) -> Checked {
        let access = self.rng.random_ratio(3, 4).then(|| self.acl_edit());
        let is_dir = self.model.existing(&admin(), path, true, Op::Stat).is_ok_and(|(_, ino)| self.model.is_dir(ino));
        let default = self.rng.random_ratio(if is_dir { 3 } else { 1 }, 6).then(|| self.acl_edit());
        self.say(format!("  acl {access:?} {default:?}"));
        let (access, of_access) = access.unzip();
        let (default, of_default) = default.unzip();
        let real = self.change(user, ns::SetAcl { path: p, access, default })?;
        let model = self.model.set_acl(user, path, of_access.as_ref(), of_default.as_ref());
        if self.agree(real, model)?.is_some() {
            self.acls += 1;
        }
        Ok(())
    }

    fn policies(&mut self, user: &Who, mut path: Vec<u8>) -> Checked {
        // Chooses an existing policy, or a symbolic link, more often than chance would.
        let better = match self.rng.random_range(0..4) {
            0 => self.model.paths(|model, ino| model.node(ino).policy.is_some()),
            1 => self.model.paths(|model, ino| matches!(model.node(ino).kind, Kind::Link(_))),
            _ => Vec::new(),
        };
        if !better.is_empty() {
            path = better[self.rng.random_range(0..better.len())].clone();
        }
        let p = NsPath::parse(&path).unwrap();
        // In canonical form, as the namespace shows them.
        let texts = [
            "replica(1) spread=host near=client prefer=cern",
            "replica(2) sync=1 spread=site",
            "stripe(4, 1MiB) replica(3) sync=2 spread=rack class=ssd:1,t1:2",
        ];
        let text = self.rng.random_ratio(2, 3).then(|| texts[self.rng.random_range(0..3)]);
        self.say(format!("  policy {p} {text:?}"));
        let real = match text {
            Some(text) => self.change(user, ns::SetPolicy { path: p, policy: text.parse().unwrap() })?,
            None => self.change(user, ns::RemovePolicy { path: p })?,
        };
        let model = self.model.set_policy(user, &path, text);
        if self.agree(real, model)?.is_some() {
            self.policies += 1;
        }
        Ok(())
    }

    fn holds(&mut self) -> Checked {
        let session = 71 + self.rng.random_range(0..2u64);
        let inos: Vec<u64> = self.model.nodes.keys().copied().collect();
        let ino = inos[self.rng.random_range(0..inos.len())];
        let Some(real_ino) = self.pairs.real(ino) else { return Ok(()) };
        let (session_id, real_ino) = (SessionId(session), Ino(real_ino));
        if self.rng.random() {
            let real = self.change(&admin(), ns::Hold { session: session_id, ino: real_ino })?;
            let model = self.model.hold(session, ino);
            self.agree(real, model)?;
        } else {
            let real = self.change(&admin(), ns::ReleaseHold { session: session_id, ino: real_ino })?;
            let model = self.model.release_hold(session, ino);
            if let Some((real, model)) = self.agree(real, model)? {
                self.pair_objects(real, model)?;
            }
        }
        Ok(())
    }
}

pub fn admin() -> Who {
    Who { id: 0, groups: vec![0], limits: None }
}

pub fn same<T: PartialEq + std::fmt::Debug>(what: &str, real: T, model: T) -> Checked {
    if real == model { Ok(()) } else { Err(format!("{what}: real {real:?}, model {model:?}")) }
}

/// Runs `steps`, comparing after each. A difference names the seed and the last steps.
pub fn run(world: &mut World, seed: u64, steps: u64) -> Checked {
    for _ in 0..steps {
        world.step().and_then(|()| world.compare()).map_err(|error| {
            let from = world.log.len().saturating_sub(12);
            format!("seed {seed}, step {}: {error}\n{}", world.steps, world.log[from..].join("\n"))
        })?;
    }
    Ok(())
}

/// The number of seeds: `WEIR_SEEDS=n` for more.
pub fn seeds(usual: u64) -> u64 {
    std::env::var("WEIR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
