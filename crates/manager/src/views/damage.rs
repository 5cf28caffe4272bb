//! Lists damaged replicas, for an administrator. Nothing is decided here.

use namespace::NsError;
use serde::{Deserialize, Serialize};
use types::{ErrorCode, ObjectId, StoreId};

use super::Views;
use crate::jobs::{DamageCounts, DamageState};
use crate::known_damage::Known;

/// The most replicas in one view.
const REPLICAS_SHOWN: usize = 1000;

/// A damaged replica.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DamagedReplicaView {
    /// The path of its file; `None` for a stripe unit, or a removed file that a client still has open. Bytes that are not text are escaped.
    pub path: Option<String>,
    /// Its object.
    pub object: String,
    /// Its store, for people.
    pub store: String,
    /// What becomes of it.
    pub state: DamageState,
}

/// Damaged replicas.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DamageView {
    /// Their numbers.
    #[serde(flatten)]
    pub counts: DamageCounts,
    /// The first ones by store, at most 1000.
    pub replicas: Vec<DamagedReplicaView>,
}

impl Views {
    /// Damaged replicas, as disk servers report them now.
    pub(crate) fn damage(&self) -> Result<DamageView, NsError> {
        let known = self.damages.known(REPLICAS_SHOWN);
        let paths = self.names.read(|read| {
            let path = |(_, object, known): &(StoreId, ObjectId, Known)| -> Result<Option<String>, NsError> {
                let Some(record) = namespace::object_record(read, known.group, *object)? else { return Ok(None) };
                match namespace::path_of(read, record.ino) {
                    Ok(path) => Ok(Some(path.escape_ascii().to_string())),
                    Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
                    Err(error) => Err(error),
                }
            };
            known.iter().map(path).collect::<Result<Vec<_>, _>>()
        })?;
        let view = self.view.get();
        let replicas = known.into_iter().zip(paths).map(|((store, object, known), path)| DamagedReplicaView {
            path,
            object: format!("{:016x}", object.0),
            store: view.servers.shown(store),
            state: known.state,
        });
        Ok(DamageView { counts: self.damages.counts(), replicas: replicas.collect() })
    }
}
