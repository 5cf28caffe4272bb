//! Views of stores, files and policies for people. They are plain data, each of one moment. Nothing is decided here.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::placement::{Load, Map, PlacementError, StoreInfo, StoreState, can_be_met};
use namespace::{Actor, Content, FileState, Inode, Kind, NsError, Read, StoreEntry, WantedState, WriterRecord};
use serde::{Deserialize, Serialize};
use types::{ClientIdentity, GroupId, Ino, NodeId, NsPath, ObjectId, Policy, StoreId};

use super::Views;
use crate::OpeningError;
use crate::coordinator::ClusterView;

/// A size for checks of policies: it does not matter whether a store is full just now.
const ROOMY: u64 = 1 << 50;

/// A store.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StoreView {
    /// Its number. Shown as text, since some programs that read JSON have no 64-bit integers.
    #[serde(with = "decimal")]
    pub store: StoreId,
    /// Its node.
    pub node: NodeId,
    /// The node's name.
    pub name: String,
    /// `site/rack/host`.
    pub location: String,
    /// Its class, as its administrator named it.
    pub class: Option<String>,
    /// Its state.
    pub state: StoreState,
    /// The state that its administrator has set: online, read-only, draining or removed.
    pub wanted: StoreState,
    /// Total bytes. This and the following are 0 until its node has reported to this manager.
    pub capacity: u64,
    /// Reserved bytes, which stay free.
    pub reserve: u64,
    /// Free bytes, including the reserve.
    pub free: u64,
    /// Its load, in thousandths.
    pub load_permille: u16,
}

/// A file and its replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FileView {
    /// Its inode.
    pub ino: Ino,
    /// Its kind: `file`, `directory` or `link`.
    pub kind: String,
    /// The policy of new files in its directory, or in the directory itself.
    pub policy: String,
    /// The object of a file.
    pub object: Option<ObjectView>,
}

/// An object and its replicas.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ObjectView {
    /// Its number. The names of its replicas on disk begin with it.
    #[serde(with = "hexadecimal")]
    pub id: ObjectId,
    /// The group of stores that has it.
    pub group: GroupId,
    /// Length in bytes, as committed.
    pub len: u64,
    /// Its state.
    pub state: ObjectState,
    /// The number of commits of the file.
    pub generation: u32,
    /// The checksum of the whole, if known, in hexadecimal digits.
    pub adler32: Option<String>,
    /// The same, as CRC32C.
    pub crc32c: Option<String>,
    /// The writer, if it is being written.
    pub writer: Option<WriterView>,
    /// Each store that has a replica or should have one. Empty for a striped file, whose units have their own.
    pub replicas: Vec<ReplicaView>,
    /// Bytes of a chunk, if it is striped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chunk: Option<u64>,
    /// The units in their order, if it is striped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<ObjectView>,
}

/// The state of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectState {
    /// Complete.
    Complete,
    /// Being written for the first time.
    Writing,
    /// Complete, and being changed in place.
    Updating,
    /// Its writer went away.
    Interrupted,
}

/// The writer of an object.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WriterView {
    /// The client.
    pub client: String,
    /// Since when, in seconds since 1970.
    pub since: i64,
    /// Rises each time the file is opened again.
    pub epoch: u32,
}

/// A replica that is on a store or should be.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ReplicaView {
    /// The store.
    #[serde(with = "decimal")]
    pub store: StoreId,
    /// The store's node. `None` if the store is no longer known.
    pub node: Option<NodeId>,
    /// The store's location.
    pub location: Option<String>,
    /// The store's state.
    pub state: Option<StoreState>,
    /// The state of the replica.
    pub replica: ReplicaState,
}

/// The state of a replica on a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReplicaState {
    /// The store has the complete replica.
    Complete,
    /// The store has the replica, and its bytes on the disk are damaged.
    Damaged,
    /// The replica is missing.
    Missing,
    /// The replica is being copied.
    Copying,
    /// The store is the primary of the open write.
    Primary,
    /// The store has an in-sync replica of the open write.
    InSync,
    /// The store gets its replica when the object is complete.
    Pending,
}

impl Views {
    /// All stores, by location.
    pub(crate) fn stores(&self) -> Result<Vec<StoreView>, NsError> {
        let (members, entries) = self.names.read(|read| Ok((namespace::members(read)?, namespace::stores(read)?)))?;
        let names: BTreeMap<_, _> = members.into_iter().map(|member| (member.node, member.name)).collect();
        let wanted: BTreeMap<_, _> = entries.into_iter().map(|entry| (entry.store, entry.state)).collect();
        let map = Arc::clone(self.view.get().servers.map());
        let view = |info: &StoreInfo| StoreView { state: self.shown_state(info), ..store_view(info, &names, &wanted) };
        Ok(map.stores().iter().map(view).collect())
    }

    /// The state of a store, for people: a removed store is replaced when no group depends on it any more.
    pub(super) fn shown_state(&self, info: &StoreInfo) -> StoreState {
        match info.state {
            StoreState::Removed | StoreState::Returned if self.coordinator.groups().count_of(info.store) == 0 => {
                StoreState::Replaced
            }
            state => state,
        }
    }

    /// A file and its replicas. Follows a symbolic link.
    pub(crate) fn file(&self, path: &NsPath) -> Result<FileView, NsError> {
        let found = self.names.read(|read| look_up(read, path))?;
        let content = found.content.map(|found| {
            let cluster = self.view.get();
            let view = |found: &FoundContent| {
                let copy = |(store, has): &(StoreId, ReplicaState)| match has {
                    ReplicaState::Missing if self.copies.is_under_way(found.content.object, *store) => {
                        replica_view(&cluster, *store, ReplicaState::Copying)
                    }
                    ReplicaState::Complete if self.damages.is_damaged(*store, found.content.object) => {
                        replica_view(&cluster, *store, ReplicaState::Damaged)
                    }
                    has => replica_view(&cluster, *store, *has),
                };
                object_view(found, found.copies.iter().map(copy).collect())
            };
            let units = found.units.iter().map(view).collect();
            ObjectView { units, ..view(&found) }
        });
        let kind = match found.inode.kind {
            Kind::File(_) => "file",
            Kind::Directory(_) => "directory",
            Kind::Symlink(_) => "link",
        };
        Ok(FileView { ino: found.inode.ino, kind: kind.into(), policy: found.policy.to_string(), object: content })
    }

    /// Checks whether the existing stores can satisfy a policy if all of them are usable. Returns sentences for people about obstacles at present.
    pub(crate) fn judge_policy(&self, policy: &Policy) -> Result<Vec<String>, OpeningError> {
        let entries = self.names.read(namespace::stores)?;
        let map = Arc::clone(self.view.get().servers.map());
        Ok(judge(entries, &map, policy)?)
    }
}

fn judge(entries: Vec<StoreEntry>, present: &Map, policy: &Policy) -> Result<Vec<String>, PlacementError> {
    let stays = |entry: &StoreEntry| !matches!(entry.state, WantedState::Draining | WantedState::Lost);
    let at_best = |entry: StoreEntry| StoreInfo {
        store: entry.store,
        node: entry.node,
        location: entry.location,
        class: entry.class,
        capacity: ROOMY,
        reserve: 0,
        free: ROOMY,
        load: Load::default(),
        state: StoreState::Online,
    };
    let mut doubts = Vec::new();
    match Map::new(entries.into_iter().filter(stays).map(at_best).collect()) {
        Ok(best) => {
            can_be_met(&best, policy)?;
            if let Some(location) = policy.prefer().filter(|location| !best.has_place(location)) {
                doubts.push(format!("there is no store at {location}, which it prefers"));
            }
        }
        Err(error) => doubts.push(format!("it is not known whether it can be met: {error}")),
    }
    if let Err(error) = can_be_met(present, policy) {
        doubts.push(format!("at present no file can be created under it: {error}"));
    }
    Ok(doubts)
}

fn store_view(
    info: &StoreInfo,
    names: &BTreeMap<NodeId, String>,
    wanted: &BTreeMap<StoreId, WantedState>,
) -> StoreView {
    let wanted = match wanted.get(&info.store) {
        None | Some(WantedState::Online) => StoreState::Online,
        Some(WantedState::ReadOnly) => StoreState::ReadOnly,
        Some(WantedState::Draining) => StoreState::Draining,
        Some(WantedState::Lost) => StoreState::Removed,
    };
    StoreView {
        store: info.store,
        node: info.node,
        name: names.get(&info.node).cloned().unwrap_or_default(),
        location: info.location.to_string(),
        class: info.class.as_ref().map(ToString::to_string),
        state: info.state,
        wanted,
        capacity: info.capacity,
        reserve: info.reserve,
        free: info.free,
        load_permille: info.load.permille(),
    }
}

fn replica_view(view: &ClusterView, store: StoreId, replica: ReplicaState) -> ReplicaView {
    let info = view.servers.map().store(store);
    ReplicaView {
        store,
        node: info.map(|info| info.node),
        location: info.map(|info| info.location.to_string()),
        state: info.map(|info| info.state),
        replica,
    }
}

/// The namespace's record of a file.
struct Found {
    inode: Inode,
    policy: Policy,
    content: Option<FoundContent>,
}

struct FoundContent {
    content: Content,
    writer: Option<WriterRecord>,
    copies: Vec<(StoreId, ReplicaState)>,
    /// The chunk size of a striped object.
    chunk: Option<u64>,
    units: Vec<FoundContent>,
}

fn look_up(read: &dyn Read, path: &NsPath) -> Result<Found, NsError> {
    let actor = Actor::admin();
    let inode = namespace::stat(read, &actor, path)?;
    let policy = if inode.is_dir() {
        namespace::policy_of(read, inode.ino)?.map(|inherited| inherited.policy)
    } else {
        namespace::policy_for(read, &actor, path)?
    };
    let policy = policy.unwrap_or_default();
    let content = inode.content().copied().map(|content| look_at_all(read, content)).transpose()?;
    Ok(Found { inode, policy, content })
}

/// Reads an object with its units, if it has some.
fn look_at_all(read: &dyn Read, content: Content) -> Result<FoundContent, NsError> {
    let found = look_at(read, content)?;
    if content.group != GroupId::STRIPED {
        return Ok(found);
    }
    let (stripe, units) = namespace::units_of(read, content.object)?;
    let units = units.iter().filter_map(Inode::content).map(|unit| look_at(read, *unit)).collect::<Result<_, _>>()?;
    Ok(FoundContent { chunk: Some(stripe.chunk()), units, ..found })
}

fn look_at(read: &dyn Read, content: Content) -> Result<FoundContent, NsError> {
    let (group, object) = (content.group, content.object);
    let writer = match content.state {
        FileState::Open(by) | FileState::Updating(by) => namespace::writer_of(read, by, object)?,
        FileState::Complete | FileState::Interrupted(_) => None,
    };
    let members = namespace::group(read, group)?.map(|group| group.members).unwrap_or_default();
    let missing = namespace::missing_of(read, group, object)?;
    let in_sync = writer.as_ref().map(|writer| writer.placement.in_sync.as_slice()).unwrap_or_default();
    let has = |at: Option<usize>, missing: bool| match (at, &writer) {
        (Some(0), _) => ReplicaState::Primary,
        (Some(_), _) => ReplicaState::InSync,
        (None, Some(_)) => ReplicaState::Pending,
        (None, None) if missing => ReplicaState::Missing,
        (None, None) => ReplicaState::Complete,
    };
    let mut copies: Vec<(StoreId, ReplicaState)> = members
        .iter()
        .map(|member| {
            let at = in_sync.iter().position(|one| one.store == member.store);
            (member.store, has(at, missing.contains(&member.store) || !member.has(object)))
        })
        .collect();
    // In-sync replicas are on members. If one is not, it is shown as well.
    for (at, one) in in_sync.iter().enumerate() {
        if copies.iter().all(|(store, _)| *store != one.store) {
            copies.push((one.store, has(Some(at), false)));
        }
    }
    copies.sort_by_key(|(_, has)| *has != ReplicaState::Primary);
    Ok(FoundContent { content, writer, copies, chunk: None, units: Vec::new() })
}

fn object_view(found: &FoundContent, copies: Vec<ReplicaView>) -> ObjectView {
    let Content { object, group, len, state, sums, generation, .. } = found.content;
    ObjectView {
        id: object,
        group,
        len,
        state: match state {
            FileState::Complete => ObjectState::Complete,
            FileState::Open(_) => ObjectState::Writing,
            FileState::Updating(_) => ObjectState::Updating,
            FileState::Interrupted(_) => ObjectState::Interrupted,
        },
        generation,
        adler32: sums.map(|sums| format!("{:08x}", sums.adler32.0)),
        crc32c: sums.map(|sums| format!("{:08x}", sums.crc32c.0)),
        writer: found.writer.as_ref().map(|writer| WriterView {
            client: shown_client(&writer.client),
            since: writer.opened.0.div_euclid(1_000_000_000),
            epoch: writer.epoch,
        }),
        replicas: copies,
        chunk: found.chunk,
        units: Vec::new(),
    }
}

/// The client as log lines show it. The client chooses its name, so it may contain any bytes.
fn shown_client(client: &ClientIdentity) -> String {
    format!("{}.{}@{}", client.user.escape_debug(), client.pid, client.host)
}

/// Store numbers as text.
mod decimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use types::StoreId;

    pub(crate) fn serialize<S: Serializer>(store: &StoreId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(store)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<StoreId, D::Error> {
        String::deserialize(from)?.parse().map(StoreId).map_err(de::Error::custom)
    }
}

/// Object numbers as text.
mod hexadecimal {
    use serde::{Deserialize as _, Deserializer, Serializer, de};
    use types::ObjectId;

    pub(crate) fn serialize<S: Serializer>(object: &ObjectId, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:016x}", object.0))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectId, D::Error> {
        u64::from_str_radix(&String::deserialize(from)?, 16).map(ObjectId).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(store: u64, location: &str, class: Option<&str>, state: WantedState) -> StoreEntry {
        let class = class.map(|class| class.parse().unwrap());
        StoreEntry { store: StoreId(store), node: NodeId(store), location: location.parse().unwrap(), class, state }
    }

    /// Two sites. The second has a draining store, or its node is away.
    fn two_sites(second: WantedState, present: StoreState) -> (Vec<StoreEntry>, Map) {
        let entries = vec![
            entry(1, "a/r/d1", Some("t1"), WantedState::Online),
            entry(2, "a/r/d2", None, WantedState::ReadOnly),
            entry(3, "b/r/d3", None, second),
        ];
        let state = |store: u64| if store == 3 { present } else { StoreState::Online };
        let info = |entry: &StoreEntry| StoreInfo {
            store: entry.store,
            node: entry.node,
            location: entry.location.clone(),
            class: entry.class.clone(),
            capacity: 1 << 40,
            reserve: 0,
            free: 1 << 40,
            load: Load::default(),
            state: state(entry.store.0),
        };
        let map = Map::new(entries.iter().map(info).collect()).unwrap();
        (entries, map)
    }

    fn judged(second: WantedState, present: StoreState, policy: &str) -> Result<Vec<String>, PlacementError> {
        let (entries, map) = two_sites(second, present);
        judge(entries, &map, &policy.parse().unwrap())
    }

    #[test]
    fn a_policy_that_can_never_be_met_is_refused() {
        let two = "replica(2) spread=site";
        assert_eq!(judged(WantedState::Online, StoreState::Online, two), Ok(Vec::new()));
        for goes in [WantedState::Draining, WantedState::Lost] {
            let error = judged(goes, StoreState::Online, two).unwrap_err();
            assert!(error.to_string().contains("on 2 different sites, and there are 1"), "{error}");
        }
        assert!(judged(WantedState::Online, StoreState::Online, "replica(3) spread=site").is_err());
        assert!(judged(WantedState::Online, StoreState::Online, "replica(2) class=t1:2").is_err());
        assert!(judge(Vec::new(), &Map::default(), &Policy::default()).is_err(), "no store at all");
    }

    #[test]
    fn a_temporary_obstacle_is_reported() {
        let doubts = judged(WantedState::Online, StoreState::Offline, "replica(2) spread=site").unwrap();
        assert_eq!(doubts.len(), 1);
        assert!(doubts[0].starts_with("at present no file can be created under it: replica(2)"), "{}", doubts[0]);
        let doubts = judged(WantedState::Online, StoreState::Online, "replica(1) prefer=c").unwrap();
        assert_eq!(doubts, ["there is no store at c, which it prefers"]);
    }
}
