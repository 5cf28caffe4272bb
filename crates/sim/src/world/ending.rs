//! Rules that hold at the end, when all faults are repaired and nothing is in progress.

use std::collections::BTreeSet;

use namespace::Actor;
use types::{GroupId, NsPath, ObjectId, ReplicaId};

use super::World;
use super::access::is_access_kept;
use crate::manager::{Decision, store_of};
use crate::model;
use crate::server::Server;

/// The most violations that are printed.
const SHOWN_MAX: usize = 6;

impl World {
    /// Checks that after all repairs all clients have finished, and all data exists.
    pub(super) fn finish(&mut self) {
        if self.turns.has_lost() {
            return self.finish_after_loss();
        }
        let mut wrong = Vec::new();
        for (at, machine) in self.clients.iter().enumerate() {
            if let Some(client) = machine.process.as_ref().filter(|client| !client.is_idle()) {
                wrong.push(format!("client {at} has not come to its end: {}", client.describe(&self.model)));
            }
        }
        let files: Vec<usize> = (0..self.model.files.len())
            .filter(|file| self.model.files[*file].stage == model::FileStage::Closed)
            .filter(|file| !self.model.files[*file].is_hopeless)
            .collect();
        for file in files {
            if let Err(why) = self.is_whole(file) {
                wrong.push(why);
            }
        }
        let looked = self.vanished().into_iter().chain(self.leftovers()).chain(self.drained());
        wrong.extend(looked.filter_map(Result::err));
        wrong.extend(self.are_shares_kept().err());
        if let Some(Err(error)) = self.check_names(&mut |finding| wrong.push(finding)) {
            wrong.push(error.to_string());
        }
        if !wrong.is_empty() {
            let first = wrong[..wrong.len().min(SHOWN_MAX)].join("; ");
            self.trouble = Some(format!("{} things are wrong in the end; {first}", wrong.len()));
        }
    }

    /// Checks the bytes kept of files whose clients vanished, or were told that bytes may be lost.
    fn vanished(&self) -> Vec<Result<(), String>> {
        let is_vanished = |file: &usize| {
            matches!(self.model.files[*file].stage, model::FileStage::Vanished | model::FileStage::Abandoned)
        };
        let is_kept = |file: &usize| is_vanished(file) && !self.model.files[*file].is_hopeless;
        (0..self.model.files.len()).filter(is_kept).map(|file| self.is_kept(file)).collect()
    }

    fn is_kept(&self, file: usize) -> Result<(), String> {
        let path = &self.model.files[file].path;
        let name = NsPath::parse(path.as_bytes()).map_err(|error| error.to_string())?;
        let inode = self.names(|read| namespace::stat(read, &Actor::admin(), &name)).ok_or("there is no manager")?;
        // The file may never have been made.
        let Ok(inode) = inode else { return Ok(()) };
        let content = *inode.content().ok_or("it is no file")?;
        if let namespace::FileState::Open(_) | namespace::FileState::Updating(_) = content.state {
            return Err(format!("{path} is {:?} still", content.state));
        }
        let holders = self.names(|read| namespace::holders(read, content.group, content.object));
        let holders = holders.ok_or("there is no manager")?.map_err(|error| error.to_string())?;
        if holders.is_empty() {
            // The replica stays missing: no store has a copy.
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

    /// Checks that no group has a member that is drained or removed as lost. Also checks that drained stores are empty.
    fn drained(&self) -> Vec<Result<(), String>> {
        let Some(manager) = self.active().and_then(|at| self.managers[at].process.as_ref()) else { return Vec::new() };
        let groups = match self.names(|read| namespace::groups(read, None, usize::MAX)) {
            Some(Ok(groups)) => groups,
            Some(Err(error)) => return vec![Err(error.to_string())],
            None => return Vec::new(),
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
                    found.push(Err(format!("store {store} is drained, but has {} replicas", replicas.len())));
                }
                Some(Err(why)) => found.push(Err(why)),
                _ => {}
            }
        }
        found
    }

    /// Checks that removed files are deleted everywhere, and that every replica on a disk is known.
    fn leftovers(&self) -> Vec<Result<(), String>> {
        let known = self.names(|read| {
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
            Some(Ok(known)) => known,
            Some(Err(error)) => return vec![Err(error.to_string())],
            None => return Vec::new(),
        };
        let mut found: Vec<_> = due.iter().map(|due| Err(format!("{due:?} is not done"))).collect();
        for (server, process) in
            self.servers.iter().enumerate().filter_map(|(at, server)| Some((at, server.process.as_ref()?)))
        {
            // A store that is removed as lost gets no orders. A store that is used again before its drain ended may have replicas of groups
            // to which it no longer belongs.
            if self.decided[server] == Decision::GiveUp
                || self.has_drained[server] && self.decided[server] != Decision::Drain
            {
                continue;
            }
            match process.replicas() {
                Ok(replicas) => {
                    // A manager that has lost power may not know files that were opened shortly before. An audit finds such replicas later.
                    let strange = replicas
                        .into_iter()
                        .filter(|replica| !self.has_forgotten() && !known.contains(&replica.object));
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

    /// Checks that an object has no missing replicas.
    fn are_copies_made(&self, path: &str, group: GroupId, object: ObjectId) -> Result<(), String> {
        let missing = self.names(|read| namespace::missing_of(read, group, object));
        let missing = missing.ok_or("there is no manager")?.map_err(|error| format!("{path}: {error}"))?;
        match missing.first() {
            Some(store) => Err(format!("the replica of {path} on store {store} is still missing")),
            None => Ok(()),
        }
    }

    fn is_whole(&mut self, file: usize) -> Result<(), String> {
        let path = self.model.files[file].path.clone();
        let whole = self.model.whole(file);
        let at = |error: &dyn std::fmt::Display| format!("{path}: {error}");
        let name = NsPath::parse(path.as_bytes()).map_err(|error| at(&error))?;
        let inode = self.names(|read| namespace::stat(read, &Actor::admin(), &name)).ok_or("there is no manager")?;
        let inode = inode.map_err(|error| at(&error))?;
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
        is_access_kept(&path, self.model.files[file].access.as_ref(), &inode.access)?;
        let (group, object) = (content.group, content.object);
        self.are_copies_made(&path, group, object)?;
        let holders = self.names(|read| namespace::holders(read, group, object)).ok_or("there is no manager")?;
        let holders = holders.map_err(|error| at(&error))?;
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
