//! The life of a file in the model.

use std::collections::BTreeMap;

use namespace::PathOperation as Op;
use types::{ClientIdentity, ErrorCode};

use super::limits::{MAKES, split_path};
use super::quota::{Charge, Wants};
use super::{Doing, Ended, File, KEEP, Kind, Model, Res, State, TOMB, UpState, Upload, Way, Who, Writer};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opened {
    New,
    Upload,
    Update,
    Resumed,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handle {
    pub object: u64,
    pub epoch: u32,
    pub who: usize,
}

#[derive(Clone, Debug)]
pub struct Open {
    pub path: Vec<u8>,
    pub how: u8, // 0 new, 1 replace, 2 update
    pub mkpath: bool,
    pub mode: u16,
    pub posc: bool,
    pub client: ClientIdentity,
    pub boot: u128,
    pub restarted: bool,
    pub recovered: Option<(u64, bool, u64)>,
    pub resume_visible: bool,
    pub resume_upload: Option<u64>,
    pub expected: Option<u64>,
}

impl Open {
    /// The open is one of these.
    pub fn operations(&self) -> &'static [Op] {
        match self.how {
            0 => &[Op::CreateFile],
            1 => &MAKES,
            _ => &[Op::ModifyFile, Op::CreateFile],
        }
    }
}

impl Upload {
    /// Its end makes a file, or replaces one.
    pub fn makes(&self) -> &'static [Op] {
        if self.replaces.is_none() { &MAKES } else { &[Op::ModifyFile] }
    }
}

#[derive(Clone, Debug)]
pub struct OpenReply {
    pub handle: Handle,
    pub ino: Option<u64>, // an upload's future inode has no comparable number
    pub kind: Opened,
    pub len: u64,
    pub dropped: Vec<u64>,
}

/// Owner, group, mode and further ACL entries.
type NewAccess = (u32, u32, u16, Option<super::acl::Entries>);

impl Model {
    pub fn open(&mut self, user: &Who, open: &Open) -> Res<OpenReply> {
        let before = self.clone();
        let names = split_path(&open.path);
        let names_another = user.id == 0 && user.limits.is_some() && open.client.principal.0 != 0;
        let reply = if self.allowed(user, open.operations(), &names).is_err() || names_another {
            Err(no(ErrorCode::Denied))
        } else if open.path == b"/" {
            Err(no(ErrorCode::IsDirectory))
        } else if open.how == 2 {
            self.open_update(user, open)
        } else if open.resume_visible || open.resume_upload.is_some() {
            Err(no(ErrorCode::Invalid))
        } else {
            self.open_new(user, open)
        };
        match reply {
            // A lost-bytes error keeps its mark; every other error changes nothing.
            Err((code, true)) => Err(code),
            Err((code, false)) => {
                let next = self.next;
                *self = before;
                self.next = next;
                Err(code)
            }
            Ok(reply) => Ok(reply),
        }
    }

    fn open_new(&mut self, user: &Who, open: &Open) -> Result<OpenReply, (ErrorCode, bool)> {
        let who = self.who(&open.client, &open.path);
        let mut dropped = Vec::new();
        if open.restarted {
            let mine: Vec<u64> =
                self.writers.values().filter(|w| w.who == who && w.doing == Doing::Upload).map(|w| w.object).collect();
            for object in mine {
                if user.id != 0 && user.id != self.uploads[&object].owner {
                    return Err(no(ErrorCode::Denied));
                }
                self.writers.remove(&object);
                self.uploads.remove(&object);
                self.queue.insert(object);
                dropped.push(object);
            }
        }
        self.ended.remove(&who);
        let follow = open.how == 1;
        let at = match self.way(user, &open.path, follow, open.operations()).map_err(no)? {
            Way::At(at) => at,
            Way::Missing(mut dir, mut names, asked) => {
                let name = names.pop_back().unwrap();
                if !open.mkpath || name == b".." {
                    return Err(no(ErrorCode::NotFound));
                }
                // No client has asked for this mode, so it does not limit a default ACL.
                let mode = if self.node(dir).default.is_some() { 0o777 } else { 0o755 };
                let count = names.len();
                for (number, made) in names.into_iter().enumerate() {
                    self.may_make_missing(user, &open.path, (dir, &made), (count - number, asked)).map_err(no)?;
                    dir = self.make_dir(user, dir, made, mode).map_err(no)?;
                }
                super::At { dir, name, there: None }
            }
        };
        let Some(ino) = at.there else {
            self.permits_at(user, &[Op::CreateFile], &open.path, &at).map_err(no)?;
            self.may(user, at.dir, 2).map_err(no)?;
            self.may(user, at.dir, 1).map_err(no)?;
            if open.posc {
                let access = self.access_of_new(user, at.dir, open.mode);
                let charge = (self.tree(at.dir), access.0, access.1);
                return self.start_upload(user, who, open, at.dir, at.name, None, access, dropped, charge).map_err(no);
            }
            let object = self.fresh();
            let wants = Wants { announced: open.expected, files_now: 1, is_new: true, ..Wants::default() };
            self.reserve(object, self.charge_of_new(user, at.dir), wants).map_err(no)?;
            let file = File { object, len: 0, state: State::Open(who), sums: None, generation: 0, last_epoch: 0 };
            let ino = self.new_node(user, at.dir, open.mode, Kind::File(file));
            self.entries_mut(at.dir).insert(at.name, ino);
            let handle = self.start(who, object, 1, Doing::New, ino, open);
            return Ok(OpenReply { handle, ino: Some(ino), kind: Opened::New, len: 0, dropped });
        };
        if self.is_dir(ino) {
            return Err(no(if open.how == 1 { ErrorCode::IsDirectory } else { ErrorCode::Exists }));
        }
        let Some(file) = self.file(ino).cloned() else {
            return Err(no(ErrorCode::Exists));
        };
        let own = open.restarted && matches!(file.state, State::Open(w) | State::Interrupted(w) if w == who);
        if open.how == 0 && (open.posc || !own) {
            return Err(no(ErrorCode::Exists));
        }
        let restarts = own && !open.posc;
        let wanted = if restarts { open.operations() } else { &[Op::ModifyFile] };
        self.permits_at(user, wanted, &open.path, &at).map_err(no)?;
        self.may(user, ino, 2).map_err(no)?;
        if restarts {
            self.writers.remove(&file.object);
            self.queue.insert(file.object);
            let object = self.fresh();
            if let Some((dir, _)) = self.names_of(ino).first() {
                let charge = (self.tree(*dir), self.node(ino).owner, self.node(ino).group);
                let wants = Wants { announced: open.expected, ..Wants::default() };
                // Its old bytes make room.
                self.file_mut(ino).unwrap().len = 0;
                self.reserve(object, charge, wants).map_err(no)?;
            }
            let now = self.now;
            let node = self.node_mut(ino);
            (node.mtime, node.ctime) = (now, now);
            *self.file_mut(ino).unwrap() = File {
                object,
                len: 0,
                state: State::Open(who),
                sums: None,
                last_epoch: 0,
                generation: file.generation,
            };
            let handle = self.start(who, object, 1, Doing::New, ino, open);
            dropped.push(file.object);
            return Ok(OpenReply { handle, ino: Some(ino), kind: Opened::New, len: 0, dropped });
        }
        if matches!(file.state, State::Open(_)) {
            return Err(no(ErrorCode::Busy));
        }
        let node = self.node(ino);
        // If the file is gone at the close, the new one is the writer's.
        let mode = if node.owner == user.id { node.mode } else { node.mode & !0o6000 };
        let access = (user.id, node.group, mode, node.further.clone());
        let charge = (self.tree(at.dir), node.owner, node.group);
        self.start_upload(user, who, open, at.dir, at.name, Some(ino), access, dropped, charge).map_err(no)
    }

    fn access_of_new(&self, user: &Who, dir: u64, mode: u16) -> NewAccess {
        // As a file made now would get it.
        let file = File { object: 0, len: 0, state: State::Complete, sums: None, generation: 0, last_epoch: 0 };
        let mut then = self.clone();
        let ino = then.new_node(user, dir, mode, Kind::File(file));
        let node = then.node(ino);
        (user.id, node.group, node.mode, node.further.clone())
    }

    fn start(&mut self, who: usize, object: u64, epoch: u32, doing: Doing, ino: u64, open: &Open) -> Handle {
        let (boot, expected) = (open.boot, open.expected);
        let writer = Writer { who, object, epoch, doing, ino, boot, expected, sums_before: None };
        self.writers.insert(object, writer);
        Handle { object, epoch, who }
    }

    #[allow(clippy::too_many_arguments)]
    fn start_upload(
        &mut self,
        user: &Who,
        who: usize,
        open: &Open,
        parent: u64,
        name: Vec<u8>,
        replaces: Option<u64>,
        (owner, group, mode, further): NewAccess,
        dropped: Vec<u64>,
        charge: Charge,
    ) -> Res<OpenReply> {
        let object = self.fresh();
        let files_later = u64::from(replaces.is_none());
        let wants = Wants { announced: open.expected, files_later, is_new: true, ..Wants::default() };
        self.reserve(object, charge, wants)?;
        let ino = replaces.unwrap_or_else(|| self.fresh());
        let handle = self.start(who, object, 1, Doing::Upload, ino, open);
        let replaces_content = replaces.and_then(|ino| self.file(ino)).map(|file| (file.object, file.generation));
        let permits = self.permits(user, &[Op::CreateFile], &self.who[who].1, &self.path_in(parent, &name)).is_ok();
        let upload = Upload {
            who,
            object,
            state: UpState::Making,
            parent,
            name,
            replaces,
            replaces_content,
            may_create: self.may_create(user, parent) && permits,
            owner,
            group,
            mode,
            further,
            deadline: None,
            kept: 0,
            epoch: 0,
            xattrs: BTreeMap::new(),
            attributes_at: None,
        };
        self.uploads.insert(object, upload);
        Ok(OpenReply { handle, ino: Some(ino), kind: Opened::Upload, len: 0, dropped })
    }

    fn open_update(&mut self, user: &Who, open: &Open) -> Result<OpenReply, (ErrorCode, bool)> {
        let who = self.who(&open.client, &open.path);
        if let Some(object) = open.resume_upload {
            return self.resume_upload(user, open, who, object).map_err(no);
        }
        let mine: Vec<u64> = self.writers.values().filter(|w| w.who == who).map(|w| w.object).collect();
        if mine.len() > 1 {
            return Err(no(ErrorCode::Busy));
        }
        if let [object] = mine[..] {
            return self.reopen(user, open, object);
        }
        let ended = self.ended.get(&who).filter(|ended| ended.until > self.now).copied();
        let missing = if ended.is_some() { ErrorCode::Stale } else { ErrorCode::NotFound };
        let at = match self.way(user, &open.path, true, open.operations()).map_err(no)? {
            Way::At(at) => at,
            Way::Missing(..) => return Err(no(missing)),
        };
        let ino = at.there.ok_or(no(missing))?;
        if self.is_dir(ino) {
            return Err(no(ErrorCode::IsDirectory));
        }
        let file = self.file(ino);
        let is_own = file.is_some_and(|file| file.state == State::Interrupted(who));
        let wanted = if is_own { open.operations() } else { &[Op::ModifyFile] };
        self.permits_at(user, wanted, &open.path, &at).map_err(no)?;
        let is_interrupted = file.is_some_and(|file| matches!(file.state, State::Interrupted(_)));
        let is_whole = file.is_some_and(|file| matches!(file.state, State::Complete | State::Updating(_)));
        if let Some(ended) = ended {
            let is_other = file.map(|file| file.object) != Some(ended.object);
            let goes_on_twice = open.restarted && open.resume_visible && is_interrupted && ended.interrupted;
            let in_earlier_boot = ended.boot != open.boot && !open.resume_visible && is_whole;
            if ended.dropped || is_other || goes_on_twice || in_earlier_boot {
                return Err(no(ErrorCode::Stale));
            }
        }
        self.begin_update(user, open, who, ino, open.resume_visible).map_err(no)
    }

    fn begin_update(&mut self, user: &Who, open: &Open, who: usize, ino: u64, resume: bool) -> Res<OpenReply> {
        let Some(file) = self.file(ino).cloned() else {
            return Err(ErrorCode::Invalid);
        };
        self.may(user, ino, 2)?;
        let (doing, kind, state) = match file.state {
            State::Open(_) | State::Updating(_) => return Err(ErrorCode::Busy),
            State::Interrupted(_) if !resume => return Err(ErrorCode::Interrupted),
            State::Interrupted(_) => (Doing::New, Opened::Resumed, State::Open(who)),
            State::Complete => (Doing::Update, Opened::Update, State::Updating(who)),
        };
        if let Some((dir, _)) = self.names_of(ino).first() {
            let charge = (self.tree(*dir), self.node(ino).owner, self.node(ino).group);
            self.quotas.held.remove(&file.object);
            let wants = Wants { base: file.len, announced: open.expected, ..Wants::default() };
            self.reserve(file.object, charge, wants)?;
        }
        if resume {
            self.ended.remove(&who);
        }
        if let State::Interrupted(by) = file.state
            && by != who
        {
            self.fence_ended(by, file.object);
        }
        let now = self.now;
        self.node_mut(ino).ctime = now;
        let changed = self.file_mut(ino).unwrap();
        changed.state = state;
        changed.sums = None;
        let sums_before = file.sums.filter(|_| doing == Doing::Update);
        let handle = self.start(who, file.object, file.last_epoch + 1, doing, ino, open);
        self.writers.get_mut(&file.object).unwrap().sums_before = sums_before;
        Ok(OpenReply { handle, ino: Some(ino), kind, len: file.len, dropped: Vec::new() })
    }

    /// Another client goes on with the object.
    fn fence_ended(&mut self, by: usize, object: u64) {
        if let Some(ended) = self.ended.get_mut(&by).filter(|ended| ended.object == object) {
            ended.dropped = true;
        }
    }

    /// Remembers a writer that its client may think is still there.
    fn entomb(&mut self, writer: &Writer) -> &mut Ended {
        let ended = Ended {
            object: writer.object,
            until: self.now + TOMB,
            boot: writer.boot,
            interrupted: false,
            dropped: false,
        };
        self.ended.insert(writer.who, ended);
        self.ended.get_mut(&writer.who).unwrap()
    }

    fn reopen(&mut self, user: &Who, open: &Open, object: u64) -> Result<OpenReply, (ErrorCode, bool)> {
        let way = self.way(user, &open.path, true, open.operations());
        if way.as_ref().is_err_and(|code| *code == ErrorCode::Denied) {
            return Err(no(ErrorCode::Denied));
        }
        let writer = self.writers[&object].clone();
        let mut len = 0;
        if writer.doing == Doing::Upload {
            if user.id != 0 && user.id != self.uploads[&object].owner {
                return Err(no(ErrorCode::Denied));
            }
        } else {
            match self.file(writer.ino).filter(|file| file.object == object) {
                Some(file) => len = file.len,
                None => return Err(no(ErrorCode::Stale)),
            }
            // Who creates a file may write it, whatever its mode is.
            if writer.doing != Doing::New || user.id != self.node(writer.ino).owner {
                self.may(user, writer.ino, 2).map_err(no)?;
            }
        }
        self.permits_return(user, &open.path, way, &writer).map_err(no)?;
        if writer.boot != open.boot {
            match open.recovered {
                Some((recovered, true, _)) if recovered == object => {}
                Some((recovered, false, kept)) if recovered == object => {
                    self.end_interrupted(object, kept);
                    return Err((ErrorCode::Interrupted, true));
                }
                _ => return Err(no(ErrorCode::Interrupted)),
            }
        }
        let writer = self.writers.get_mut(&object).unwrap();
        writer.epoch += 1;
        writer.boot = open.boot;
        let handle = Handle { object, epoch: writer.epoch, who: writer.who };
        let ino = Some(writer.ino);
        Ok(OpenReply { handle, ino, kind: Opened::Resumed, len, dropped: Vec::new() })
    }

    /// The file of an open write may have moved since its path was checked, and the credential may be another one.
    fn permits_return(&self, user: &Who, path: &[u8], way: Res<Way>, writer: &Writer) -> Res<()> {
        if user.limits.is_none() {
            return Ok(());
        }
        let wanted: &[Op] = match writer.doing {
            Doing::New => &MAKES,
            Doing::Update => &[Op::ModifyFile],
            Doing::Upload => {
                return self.permits_upload(user, self.uploads[&writer.object].makes(), writer.object);
            }
        };
        match way {
            Ok(Way::At(at)) if at.there == Some(writer.ino) => self.permits_at(user, wanted, path, &at),
            _ => {
                let (dir, name) = self.names_of(writer.ino).into_iter().next().ok_or(ErrorCode::Stale)?;
                self.permits(user, wanted, path, &self.path_in(dir, &name))
            }
        }
    }

    fn resume_upload(&mut self, user: &Who, open: &Open, who: usize, object: u64) -> Res<OpenReply> {
        if self.way(user, &open.path, true, open.operations()).is_err_and(|code| code == ErrorCode::Denied) {
            return Err(ErrorCode::Denied);
        }
        let is_own = |upload: &Upload| user.id == 0 || user.id == upload.owner;
        let found = self.uploads.get(&object).filter(|up| self.who[up.who].1 == open.path && is_own(up));
        let Some(upload) = found.cloned() else {
            return Err(ErrorCode::NotFound);
        };
        self.permits_upload(user, upload.makes(), object)?;
        if upload.state == UpState::Making {
            return Err(ErrorCode::Busy);
        }
        if upload.who != who {
            self.fence_ended(upload.who, object);
        }
        let ino = upload.replaces.or(upload.attributes_at).unwrap_or_else(|| self.fresh());
        let has_held = self.quotas.held.contains_key(&object);
        if self.nodes.contains_key(&upload.parent) || has_held {
            let tree = if self.nodes.contains_key(&upload.parent) { self.tree(upload.parent) } else { 0 };
            let files_later = u64::from(upload.replaces.is_none());
            let wants = Wants { announced: open.expected, kept: upload.kept, files_later, ..Wants::default() };
            self.reserve(object, (tree, upload.owner, upload.group), wants)?;
        }
        let handle = self.start(who, object, upload.epoch + 1, Doing::Upload, ino, open);
        let may_create = self.nodes.contains_key(&upload.parent)
            && self.may_create(user, upload.parent)
            && self.permits_upload(user, &[Op::CreateFile], object).is_ok();
        let changed = self.uploads.get_mut(&object).unwrap();
        changed.state = UpState::Making;
        changed.deadline = None;
        changed.who = who;
        changed.may_create = may_create;
        Ok(OpenReply { handle, ino: Some(ino), kind: Opened::Resumed, len: upload.kept, dropped: Vec::new() })
    }

    pub fn truncate(
        &mut self,
        user: &Who,
        path: &[u8],
        len: u64,
        client: &ClientIdentity,
        boot: u128,
    ) -> Res<Option<OpenReply>> {
        if user.id == 0 && user.limits.is_some() && client.principal.0 != 0 {
            return Err(ErrorCode::Denied);
        }
        let (_, ino) = self.existing(user, path, true, Op::ModifyFile)?;
        if self.is_dir(ino) {
            return Err(ErrorCode::IsDirectory);
        }
        self.may(user, ino, 2)?;
        if self.file(ino).is_some_and(|file| file.state == State::Complete && file.len == len) {
            return Ok(None);
        }
        let open = Open {
            path: path.to_vec(),
            how: 2,
            mkpath: false,
            mode: 0,
            posc: false,
            client: client.clone(),
            boot,
            restarted: false,
            recovered: None,
            resume_visible: false,
            resume_upload: None,
            expected: Some(len),
        };
        let who = self.who(client, path);
        self.begin_update(user, &open, who, ino, false).map(Some)
    }

    pub(super) fn current(&self, handle: &Handle) -> Res<Writer> {
        let found = self.writers.get(&handle.object).filter(|w| w.who == handle.who && w.epoch == handle.epoch);
        found.cloned().ok_or(ErrorCode::Stale)
    }

    /// The attributes of an invisible file, for a change of `name`.
    pub fn hidden_xattrs(&mut self, handle: &Handle) -> Res<&mut BTreeMap<Vec<u8>, Vec<u8>>> {
        let writer = self.current(handle)?;
        match self.uploads.get_mut(&writer.object).filter(|upload| upload.replaces.is_none()) {
            Some(upload) if writer.doing == Doing::Upload => {
                upload.attributes_at.get_or_insert(writer.ino);
                Ok(&mut upload.xattrs)
            }
            _ => Err(ErrorCode::Invalid),
        }
    }

    /// Returns the inode, the dropped object, and whether the file was still linked.
    pub fn commit(
        &mut self,
        user: &Who,
        handle: &Handle,
        len: u64,
        sums: Option<(u32, u32)>,
        mtime: Option<i64>,
        at_grace_end: bool,
    ) -> Res<Option<(u64, Option<u64>)>> {
        let writer = self.current(handle)?;
        self.writers.remove(&handle.object);
        let now = self.now;
        let reply = if writer.doing == Doing::Upload {
            match self.commit_upload(user, &writer, len, sums, mtime, at_grace_end) {
                Ok(reply) => Some(reply),
                Err(code) => {
                    let upload = self.uploads.get_mut(&handle.object).unwrap();
                    upload.state = UpState::Refused(code);
                    upload.deadline = Some(now + KEEP);
                    upload.kept = len;
                    upload.epoch = writer.epoch;
                    self.keeps(handle.object, len);
                    self.entomb(&writer);
                    return Err(code);
                }
            }
        } else if self.file(writer.ino).is_some_and(|file| file.object == writer.object) {
            self.become_complete(writer.ino, &writer, len, sums, mtime);
            Some((writer.ino, None))
        } else {
            self.queue.insert(writer.object);
            None
        };
        if at_grace_end {
            self.entomb(&writer);
        }
        Ok(reply)
    }

    /// Other bytes by anybody but the administrator cost a file its set-ID bits.
    fn is_written(&mut self, ino: u64, writer: &Writer) {
        if self.who[writer.who].0.principal.0 != 0 {
            self.node_mut(ino).drop_set_id();
        }
    }

    fn become_complete(&mut self, ino: u64, writer: &Writer, len: u64, sums: Option<(u32, u32)>, mtime: Option<i64>) {
        let (now, object, epoch) = (self.now, writer.object, writer.epoch);
        self.is_written(ino, writer);
        let node = self.node_mut(ino);
        node.mtime = mtime.unwrap_or(now);
        node.ctime = now;
        let file = self.file_mut(ino).unwrap();
        *file = File { object, len, sums, state: State::Complete, generation: file.generation + 1, last_epoch: epoch };
    }

    #[allow(clippy::too_many_arguments)]
    fn commit_upload(
        &mut self,
        user: &Who,
        writer: &Writer,
        len: u64,
        sums: Option<(u32, u32)>,
        mtime: Option<i64>,
        at_grace_end: bool,
    ) -> Res<(u64, Option<u64>)> {
        let (object, reserved, epoch) = (writer.object, writer.ino, writer.epoch);
        let upload = self.uploads[&object].clone();
        if !self.nodes.contains_key(&upload.parent) {
            return Err(ErrorCode::NotFound);
        }
        let there = self.entries(upload.parent).get(&upload.name).copied();
        let Some(ino) = there else {
            if upload.replaces.is_some() && at_grace_end {
                return Err(ErrorCode::NotFound);
            }
            if upload.replaces.is_some() {
                let may = upload.may_create && self.may_create(user, upload.parent);
                if !may || self.permits_upload(user, &[Op::CreateFile], object).is_err() {
                    return Err(ErrorCode::Denied);
                }
                self.room_for_replacement(object, None, len)?;
            }
            let file = File { object, len, state: State::Complete, sums, generation: 0, last_epoch: epoch };
            let mut ino = self.new_node(user, upload.parent, upload.mode, Kind::File(file));
            if upload.replaces.is_none() {
                // The open has numbered its future inode already.
                let node = self.nodes.remove(&ino).unwrap();
                ino = reserved;
                self.nodes.insert(ino, node);
            }
            let node = self.node_mut(ino);
            (node.owner, node.group, node.mode) = (upload.owner, upload.group, upload.mode);
            node.further = upload.further;
            node.xattrs = upload.xattrs;
            self.entries_mut(upload.parent).insert(upload.name, ino);
            self.become_complete(ino, writer, len, sums, mtime);
            self.uploads.remove(&object);
            return Ok((ino, None));
        };
        if self.is_dir(ino) {
            return Err(ErrorCode::IsDirectory);
        }
        if upload.replaces != Some(ino) {
            return Err(ErrorCode::Exists);
        }
        let old = self.file(ino).unwrap().clone();
        if matches!(old.state, State::Open(_)) {
            return Err(ErrorCode::Busy);
        }
        if at_grace_end && matches!(old.state, State::Updating(_)) {
            return Err(ErrorCode::Busy);
        }
        if at_grace_end && upload.replaces_content != Some((old.object, old.generation)) {
            return Err(ErrorCode::Exists);
        }
        self.room_for_replacement(object, Some((ino, old.len)), len)?;
        self.become_complete(ino, writer, len, sums, mtime);
        self.uploads.remove(&object);
        let gone = self.release(old.object);
        Ok((ino, gone))
    }

    /// Returns whether the update ended unchanged.
    pub fn end_unchanged(
        &mut self,
        handle: &Handle,
        len: u64,
        sums: (u32, u32),
        certain: bool,
        at_grace_end: bool,
    ) -> Res<bool> {
        let writer = self.current(handle)?;
        if writer.doing != Doing::Update {
            return Ok(false);
        }
        match self.file_mut(writer.ino).filter(|file| file.object == writer.object) {
            Some(file) => {
                let same_sums = if writer.sums_before.is_some() { writer.sums_before == Some(sums) } else { certain };
                if file.len != len || !same_sums {
                    return Ok(false);
                }
                file.state = State::Complete;
                file.sums = Some(sums);
                file.last_epoch = writer.epoch;
            }
            None => {
                self.queue.insert(writer.object);
            }
        }
        self.writers.remove(&handle.object);
        if at_grace_end {
            self.entomb(&writer);
        }
        Ok(true)
    }

    pub fn interrupt(&mut self, handle: &Handle, kept: u64) -> Res<()> {
        self.current(handle)?;
        self.end_interrupted(handle.object, kept);
        Ok(())
    }

    fn end_interrupted(&mut self, object: u64, kept: u64) {
        let writer = self.writers.remove(&object).unwrap();
        let now = self.now;
        self.entomb(&writer).interrupted = true;
        if writer.doing == Doing::Upload {
            if kept == 0 {
                self.uploads.remove(&object);
                self.queue.insert(object);
                return;
            }
            let upload = self.uploads.get_mut(&object).unwrap();
            upload.state = UpState::Interrupted;
            upload.deadline = Some(now + KEEP);
            upload.kept = kept;
            upload.epoch = writer.epoch;
            self.keeps(object, kept);
            return;
        }
        if self.file(writer.ino).is_none_or(|file| file.object != object) {
            self.queue.insert(object);
            return;
        }
        self.is_written(writer.ino, &writer);
        self.node_mut(writer.ino).ctime = now;
        let file = self.file_mut(writer.ino).unwrap();
        file.state = if writer.doing == Doing::New { State::Interrupted(writer.who) } else { State::Complete };
        file.generation += 1;
        file.len = kept;
        file.sums = None;
        file.last_epoch = writer.epoch;
    }

    pub fn forget(&mut self, user: &Who, object: u64) -> Res<()> {
        let upload = self.uploads.get(&object).ok_or(ErrorCode::NotFound)?;
        if user.id != 0 && user.id != upload.owner {
            return Err(ErrorCode::Denied);
        }
        self.permits_upload(user, &MAKES, object)?;
        if let Some(writer) = self.writers.remove(&object) {
            self.entomb(&writer).dropped = true;
        }
        self.uploads.remove(&object);
        self.queue.insert(object);
        Ok(())
    }
}

fn no(code: ErrorCode) -> (ErrorCode, bool) {
    (code, false)
}
