//! What has to be true when all is mended and nothing is under way any more.

use std::collections::BTreeSet;

use namespace::Actor;
use types::{GroupId, NsPath, ObjectId, ReplicaId};

use super::World;
use crate::manager::{Decision, store_of};
use crate::model;
use crate::server::Server;

/// Of what is wrong so much is told.
const SHOWN_MAX: usize = 6;

impl World {
    /// When all is mended, everybody has come to an end, and everything is there.
    pub(super) fn finish(&mut self) {
        let mut wrong = Vec::new();
        for (at, machine) in self.clients.iter().enumerate() {
            if let Some(client) = machine.process.as_ref().filter(|client| !client.is_idle()) {
                wrong.push(format!("client {at} has not come to its end: {}", client.describe(&self.model)));
            }
        }
        let files: Vec<usize> = (0..self.model.files.len())
            .filter(|file| self.model.files[*file].stage == model::FileStage::Closed)
            .collect();
        for file in files {
            if let Err(why) = self.is_whole(file) {
                wrong.push(why);
            }
        }
        let looked = self.vanished().into_iter().chain(self.leftovers()).chain(self.emptied());
        wrong.extend(looked.filter_map(Result::err));
        if let Some(manager) = &self.manager.process {
            let snapshot = manager.kv.snapshot();
            let checked =
                namespace::check(&*snapshot, &mut |finding| wrong.push(format!("{}: {}", finding.key, finding.what)));
            if let Err(error) = checked {
                wrong.push(error.to_string());
            }
        }
        if !wrong.is_empty() {
            let first = wrong[..wrong.len().min(SHOWN_MAX)].join("; ");
            self.trouble = Some(format!("{} things are wrong in the end; {first}", wrong.len()));
        }
    }

    /// What is kept of files whose clients were gone, or were told that something may be lost.
    fn vanished(&self) -> Vec<Result<(), String>> {
        let is_vanished = |file: &usize| {
            matches!(self.model.files[*file].stage, model::FileStage::Vanished | model::FileStage::RemovedAsLost)
        };
        (0..self.model.files.len()).filter(is_vanished).map(|file| self.is_kept(file)).collect()
    }

    fn is_kept(&self, file: usize) -> Result<(), String> {
        let path = &self.model.files[file].path;
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let name = NsPath::parse(path.as_bytes()).map_err(|error| error.to_string())?;
        // It may never have been made.
        let Ok(inode) = manager.ns.read(|read| namespace::stat(read, &Actor::admin(), &name)) else { return Ok(()) };
        let content = *inode.content().ok_or("it is no file")?;
        if let namespace::FileState::Open(_) | namespace::FileState::Updating(_) = content.state {
            return Err(format!("{path} is {:?} still", content.state));
        }
        let holders = manager.ns.read(|read| namespace::holders(read, content.group, content.object));
        let holders = holders.map_err(|error| error.to_string())?;
        if holders.is_empty() {
            // It stays owed: there is nobody to copy it from.
            return self.model.kept(file, &[]);
        }
        self.are_copies_made(path, content.group, content.object)?;
        for (server, machine) in self.servers.iter().enumerate() {
            let Some(process) = machine.process.as_ref().filter(|_| holders.contains(&store_of(server))) else {
                continue;
            };
            let kept = process.content(ReplicaId::first(content.object)).map_err(|code| format!("{path}: {code:?}"))?;
            if kept.len() as u64 != content.len {
                return Err(format!("{path}: server {server} keeps {} bytes, of {}", kept.len(), content.len));
            }
            self.model.kept(file, &kept)?;
        }
        Ok(())
    }

    /// No group counts on a store that was given up or emptied, and nothing is left on one that was emptied.
    fn emptied(&self) -> Vec<Result<(), String>> {
        let Some(manager) = &self.manager.process else { return Vec::new() };
        let groups = match manager.ns.read(|read| namespace::groups(read, None, usize::MAX)) {
            Ok(groups) => groups,
            Err(error) => return vec![Err(error.to_string())],
        };
        let mut found = Vec::new();
        for (server, decided) in self.decided.iter().enumerate() {
            let store = store_of(server);
            if !matches!(decided, Decision::Drain | Decision::GiveUp) {
                continue;
            }
            let counts_on_it = groups.iter().filter(|group| group.members.iter().any(|member| member.store == store));
            found.extend(counts_on_it.map(|group| {
                let why = manager.what_needs(group.group);
                Err(format!("group {} counts on store {store} ({decided:?}): {why}", group.group))
            }));
            let replicas = self.servers[server].process.as_ref().map(Server::replicas);
            match replicas {
                Some(Ok(replicas)) if *decided == Decision::Drain && !replicas.is_empty() => {
                    found.push(Err(format!("store {store} was emptied, and has {} pieces", replicas.len())));
                }
                Some(Err(why)) => found.push(Err(why)),
                _ => {}
            }
        }
        found
    }

    /// What was removed is deleted everywhere, and nothing lies about that nobody knows of.
    fn leftovers(&self) -> Vec<Result<(), String>> {
        let Some(manager) = &self.manager.process else { return Vec::new() };
        let known = manager.ns.read(|read| {
            let mut known: BTreeSet<ObjectId> =
                namespace::writers(read, None, usize::MAX)?.into_iter().map(|writer| writer.object).collect();
            for group in namespace::groups(read, None, usize::MAX)? {
                known.extend(
                    namespace::objects(read, group.group, None, usize::MAX)?.into_iter().map(|record| record.object),
                );
            }
            Ok((known, namespace::due_deletions(read, None, usize::MAX)?))
        });
        let (known, due) = match known {
            Ok(known) => known,
            Err(error) => return vec![Err(error.to_string())],
        };
        let mut found: Vec<_> = due.iter().map(|due| Err(format!("{due:?} is not done"))).collect();
        for (server, process) in
            self.servers.iter().enumerate().filter_map(|(at, server)| Some((at, server.process.as_ref()?)))
        {
            // Nobody tells a store that was given up what to do. And on one that is used again before it was empty something may lie that no group
            // counts on any more.
            if self.decided[server] == Decision::GiveUp
                || self.has_drained[server] && self.decided[server] != Decision::Drain
            {
                continue;
            }
            match process.replicas() {
                Ok(replicas) => {
                    // A manager that has lost its power may know nothing of what was opened shortly before: such replicas are an audit's affair.
                    let strange = replicas
                        .into_iter()
                        .filter(|replica| self.manager.boot == 1 && !known.contains(&replica.object));
                    found.extend(
                        strange
                            .map(|replica| Err(format!("server {server} has replica {replica}, which nobody knows"))),
                    );
                }
                Err(why) => found.push(Err(why)),
            }
        }
        found
    }

    /// Whether no copy of a content is owed any more.
    fn are_copies_made(&self, path: &str, group: GroupId, object: ObjectId) -> Result<(), String> {
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let missing = manager.ns.read(|read| namespace::missing_of(read, group, object));
        let missing = missing.map_err(|error| format!("{path}: {error}"))?;
        match missing.first() {
            Some(store) => Err(format!("{path} is still owed to store {store}")),
            None => Ok(()),
        }
    }

    fn is_whole(&mut self, file: usize) -> Result<(), String> {
        let path = self.model.files[file].path.clone();
        let whole = self.model.whole(file);
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let at = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let name = NsPath::parse(path.as_bytes()).map_err(|error| at(&error))?;
        let inode =
            manager.ns.read(|read| namespace::stat(read, &Actor::admin(), &name)).map_err(|error| at(&error))?;
        let content = *inode.content().ok_or_else(|| at(&"it is no file"))?;
        let sums = content.sums.map(|sums| sums.crc32c);
        if content.state != namespace::FileState::Complete || (content.len, sums) != (whole.len, Some(whole.crc32c)) {
            let right = self.model.content(file);
            let differ = |server: &Server| {
                let read = server.content(ReplicaId::first(content.object)).ok()?;
                let first = read.iter().zip(right).position(|(one, other)| one != other)?;
                let last = read.iter().zip(right).rposition(|(one, other)| one != other)?;
                Some((first, last))
            };
            let where_: Vec<_> = self.servers.iter().map(|machine| machine.process.as_ref().and_then(differ)).collect();
            return Err(format!(
                "{path} is {content:?}, and was closed with {whole:?}; bytes that differ on each server: {where_:?}"
            ));
        }
        let (group, object) = (content.group, content.object);
        self.are_copies_made(&path, group, object)?;
        let manager = self.manager.process.as_ref().ok_or("there is no manager")?;
        let holders = manager.ns.read(|read| namespace::holders(read, group, object)).map_err(|error| at(&error))?;
        if holders.is_empty() {
            return Err(format!("nobody holds {path}"));
        }
        for (server, machine) in self.servers.iter().enumerate() {
            if !holders.contains(&store_of(server)) {
                continue;
            }
            let process = machine.process.as_ref().ok_or_else(|| format!("server {server} is not there"))?;
            process.holds(ReplicaId::first(object), whole).map_err(|why| format!("{path}: {why}"))?;
            let read = process.content(ReplicaId::first(object)).map_err(|code| format!("{path}: {code:?}"))?;
            if &*read != self.model.content(file) {
                return Err(format!("{path}: server {server} has other bytes"));
            }
        }
        Ok(())
    }
}
