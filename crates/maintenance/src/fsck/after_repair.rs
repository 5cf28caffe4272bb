//! After a damaged journal was cut, the namespace and the store may have forgotten numbers that they handed out. The store may also have forgotten
//! objects. So the namespace starts a new incarnation above all numbers that may have been used. The check lists the files in the store's folders
//! directly, and removes none of them.

use disk::{Disk, DiskError};
use foundation::Foundation;
use foundation::layout::OBJECTS_DIR;
use namespace::{Actor, RaiseIncarnation};
use types::{Incarnation, Ino, ObjectId, ReplicaId, ReplicaIndex};

use super::finding::{Finding, Problem};
use super::report::Report;
use crate::Error;
use crate::now;

/// Numbers left free above the highest known one. The namespace takes numbers in ranges of 2^20, and the lost part of the journal may have recorded
/// many ranges.
const LEFT_FREE: u64 = 1 << 32;

/// Starts the namespace's new incarnation. Returns a message about it.
pub fn start_new_incarnation(foundation: &Foundation) -> Result<String, Error> {
    let namespace = &foundation.names.namespace;
    let ino = namespace.ids().next_ino().map_err(Error::RaiseNumbers)?;
    let mut object = namespace.ids().next_object().map_err(Error::RaiseNumbers)?;
    let mut incarnation = namespace.incarnation();
    let mut after = None;
    loop {
        let page = foundation.objects.store.replicas(after, 1024).map_err(Error::ListObjects)?;
        let Some((last, _)) = page.last() else { break };
        after = Some(*last);
        for (replica, status) in page {
            object = object.max(replica.object);
            incarnation = incarnation.max(status.incarnation);
        }
    }
    visit_objects(&*foundation.disk, &mut |_, replica| object = object.max(replica.object))
        .map_err(Error::ListFolders)?;
    let request = RaiseIncarnation {
        at_least: incarnation,
        above_ino: Ino(ino.0.saturating_add(LEFT_FREE)),
        above_object: ObjectId(object.0.saturating_add(LEFT_FREE)),
    };
    let context = namespace.context(now(), &Actor::admin(), None);
    let Incarnation(life) =
        namespace.change_wait(kv::Durability::Synced, context, request).map_err(Error::RaiseNumbers)?;
    Ok(format!("the namespace begins incarnation {life}, so that no number is used twice"))
}

/// Lists the files of objects that the store does not know.
pub fn unknown_objects(foundation: &Foundation, report: &mut Report) -> Result<(), Error> {
    let mut unknown = Vec::new();
    let mut trouble = None;
    visit_objects(&*foundation.disk, &mut |file, replica| match foundation.objects.store.status(replica) {
        Ok(Some(_)) => {}
        Ok(None) => unknown.push(file.to_owned()),
        Err(error) => trouble = Some(error),
    })
    .map_err(Error::ListFolders)?;
    if let Some(error) = trouble {
        return Err(Error::AskStore(error));
    }
    for file in unknown {
        report.add(Finding::general(Problem::UnexplainedFile { file }));
    }
    Ok(())
}

/// Visits the files of all large objects (not their checksum files), in order of their names.
fn visit_objects(disk: &dyn Disk, visit: &mut dyn FnMut(&str, ReplicaId)) -> Result<(), DiskError> {
    for above in disk.list(OBJECTS_DIR)?.into_iter().filter(|entry| entry.is_dir) {
        let above = format!("{OBJECTS_DIR}/{}", above.name);
        for folder in disk.list(&above)?.into_iter().filter(|entry| entry.is_dir) {
            let folder = format!("{above}/{}", folder.name);
            for file in disk.list(&folder)? {
                if let Some(replica) = replica_of(&file.name) {
                    visit(&format!("{folder}/{}", file.name), replica);
                }
            }
        }
    }
    Ok(())
}

/// The replica after which a file is named.
fn replica_of(name: &str) -> Option<ReplicaId> {
    let (object, index) = name.split_once('.')?;
    let replica =
        ReplicaId { object: ObjectId(u64::from_str_radix(object, 16).ok()?), index: ReplicaIndex(index.parse().ok()?) };
    (replica.to_string() == name).then_some(replica)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_are_recognised() {
        let replica = ReplicaId { object: ObjectId(0xabc), index: ReplicaIndex(2) };
        assert_eq!(replica_of("0000000000000abc.2"), Some(replica));
        for name in ["0000000000000abc.2.crc", "abc.2", "notes.txt", "0000000000000abc", ""] {
            assert_eq!(replica_of(name), None, "{name}");
        }
    }
}
