//! Striped files whose client may be gone. A striped file has no primary: its client is connected to a server that combines the units, or to the primary
//! of each unit. The manager asks all of them. It lets a client of the same principal end the open write only if none of them sees the client.
//!
//! Then each unit ends at its primary, as at the end of its grace period: the primary fences the old writer, and the manager records the end. The file
//! itself ends when all its units have. Until then the namespace refuses to open it again.
//!
//! The client may come back meanwhile. That costs it its open write, and nobody a byte: the namespace lets no client open a unit again that was
//! interrupted under its open write, so a file never becomes complete without what it acknowledged. A client that has closed all units, and is not
//! connected to any server when it is looked for, finds its file complete: its close compares what it sent in any case.

use std::sync::Arc;
use std::time::Duration;

use namespace::{FileState, Inode, NsError, Read, WriterRecord};
use node::{Claim, ClientPresence, FromManager, GO_ON_HINT};
use types::{GroupId, NodeId, PrincipalId, WriterToken};

use super::OpenService;
use super::client_polls::ClientReport;
use super::open_request::OpeningError;
use super::opening::Answer;

/// An open write of a unit, and the server of its primary.
struct OpenUnit {
    writer: WriterRecord,
    node: NodeId,
}

impl OpenService {
    /// An open was refused with `busy`, because a client writes the striped file of `record` and its `units`. See [`OpenService::claim`].
    pub(super) fn claim_striped(
        self: &Arc<Self>,
        (record, units): (WriterRecord, Vec<WriterRecord>),
        busy: NsError,
        (principal, takes_over): (PrincipalId, bool),
        answer: Answer,
    ) {
        // Without the primary of a unit nobody knows. Its grace period goes on.
        let Some(units) = self.with_nodes(units) else { return answer(Err(busy.into())) };
        let mut asked = asked_of(&units);
        asked.extend(self.asked_of_all(record.token()));
        let this = Arc::clone(self);
        let is_own = record.client.principal == principal;
        let then = move |reports: Option<Vec<ClientReport>>| {
            let Some(reports) = reports else { return answer(Err(busy.into())) };
            let presence = presence_of(record.token(), &reports);
            let text = || this.describe(&record, presence);
            answer(Err(match presence {
                ClientPresence::There => OpeningError::BeingWritten(text()),
                ClientPresence::Ending => is_ending(),
                ClientPresence::Gone { .. } | ClientPresence::Unknown if is_own && takes_over => {
                    // Otherwise the client has opened the file again while the servers were asked.
                    if this.is_as_before(&record) {
                        this.end_without_client(&record, &units, &reports);
                    }
                    is_ending()
                }
                ClientPresence::Gone { .. } | ClientPresence::Unknown => {
                    OpeningError::BeingWritten(text() + if is_own { GO_ON_HINT } else { "" })
                }
            }));
        };
        self.ask_clients(asked, Box::new(then));
    }

    /// Says who writes a striped file, and whether that client is connected. Calls `then` once, perhaps in another thread; it must not wait. `None`: the
    /// open write has ended, or not all servers answer. Asks the servers of the units. If they see a client, it may be a server whose own client is gone:
    /// then, if `combined`, it asks all servers.
    pub(crate) fn who_writes_striped(
        self: &Arc<Self>,
        (writer, combined): (WriterToken, bool),
        then: impl FnOnce(Option<(String, ClientPresence)>) + Send + 'static,
    ) {
        let (record, units) = match self.names.read(|read| find_open_write(read, writer)) {
            Ok(Some(found)) => found,
            Ok(None) => return then(None),
            Err(error) => {
                tracing::error!(%error, "cannot read the open writes");
                return then(None);
            }
        };
        let Some(units) = self.with_nodes(units) else { return then(None) };
        let this = Arc::clone(self);
        let told = move |reports: Option<Vec<ClientReport>>| {
            let Some(of_units) = reports else { return then(None) };
            let file = record.token();
            let say = move |this: &Self, presence: ClientPresence| (this.describe(&record, presence), presence);
            let presence = presence_of(file, &of_units);
            if presence != ClientPresence::There || !combined {
                return then(Some(say(&this, presence)));
            }
            let that = Arc::clone(&this);
            let told = move |reports: Option<Vec<ClientReport>>| {
                let of_file = reports.unwrap_or_default();
                then(Some(say(&that, presence_of(file, &[of_file, of_units].concat()))));
            };
            this.ask_clients(this.asked_of_all(file), Box::new(told));
        };
        self.ask_clients(asked_of(&units), Box::new(told));
    }

    /// Whether this open write goes on in the same epoch.
    fn is_as_before(&self, record: &WriterRecord) -> bool {
        let WriterToken { key, object, epoch } = record.token();
        let now = self.names.read(|read| namespace::writer_of(read, key, object));
        now.is_ok_and(|now| now.is_some_and(|now| now.epoch == epoch))
    }

    /// The question about a striped file for all servers: any of them may combine its units.
    fn asked_of_all(&self, file: WriterToken) -> Vec<(NodeId, WriterToken)> {
        self.nodes_that_are_up().into_iter().map(|node| (node, file)).collect()
    }

    /// The open writes of units with the servers of their primaries. `None` if the primary of one is not there.
    fn with_nodes(&self, units: Vec<WriterRecord>) -> Option<Vec<OpenUnit>> {
        let with_node = |writer: WriterRecord| {
            let node = writer.primary().and_then(|primary| self.node_that_serves(primary.store))?;
            Some(OpenUnit { writer, node })
        };
        units.into_iter().map(with_node).collect()
    }

    /// The disk servers that this manager can ask.
    fn nodes_that_are_up(&self) -> Vec<NodeId> {
        let view = self.view.get();
        let mut nodes: Vec<NodeId> =
            view.servers.map().stores().iter().filter_map(|info| view.node_of(info.store)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes.retain(|node| self.world.is_up(*node));
        nodes
    }

    /// Ends the open write of a client that no server sees, for another client. The servers decide again: the client may have just come back.
    fn end_without_client(&self, record: &WriterRecord, units: &[OpenUnit], reports: &[ClientReport]) {
        let now = self.world.now();
        let principal = record.client.principal;
        let of = |writer: WriterToken| reports.iter().filter(move |report| report.writer == writer);
        let is_gone = |report: &&ClientReport| matches!(report.presence, ClientPresence::Gone { .. });
        let end = |report: &ClientReport| {
            // Nobody waits for the answer: the other client repeats its open.
            let number = self.world.random();
            let claim = Claim { number, writer: report.writer, principal, takes_over: true };
            self.world.send(report.node, FromManager::Claim(claim));
        };
        // A server that combines the units completes the file if it can, and releases them if it cannot.
        let mut combines = false;
        for report in of(record.token()).filter(is_gone) {
            combines = true;
            end(report);
        }
        let path = record.path.escape_ascii().to_string();
        tracing::info!(path, client = %record.client, "its stripe units are ended at once: its writer is gone, and another client of its principal takes the file over");
        for unit in units {
            match of(unit.writer.token()).find(is_gone) {
                Some(report) => end(report),
                None if combines => {}
                // Its client may be on its way there.
                None => self.without_primary.end_soon(now, &unit.writer.token()),
            }
        }
        // Its client has closed all units, or was interrupted in all of them.
        if units.is_empty() && !combines {
            self.without_primary.end_soon(now, &record.token());
        }
    }

    fn describe(&self, record: &WriterRecord, presence: ClientPresence) -> String {
        let opened = self.world.wall().0.saturating_sub(record.opened.0);
        let text = presence.describe(&record.client, Duration::from_nanos(opened.try_into().unwrap_or(0)));
        link::printable(text.as_bytes())
    }
}

/// An open write, and those of the units if its file is striped. Both come from one view: if the open write ended in between, the units could be gone.
/// `None`: it has ended.
pub(super) fn find_open_write(
    read: &dyn Read,
    writer: WriterToken,
) -> Result<Option<(WriterRecord, Vec<WriterRecord>)>, NsError> {
    let Some(record) = namespace::writer_of(read, writer.key, writer.object)? else { return Ok(None) };
    let mut of_units = Vec::new();
    if record.placement.group == GroupId::STRIPED {
        let (_, units) = namespace::units_of(read, record.object)?;
        for content in units.iter().filter_map(Inode::content) {
            if let FileState::Open(by) | FileState::Updating(by) = content.state {
                of_units.extend(namespace::writer_of(read, by, content.object)?);
            }
        }
    }
    Ok(Some((record, of_units)))
}

fn is_ending() -> OpeningError {
    OpeningError::wait("an earlier write of it is being ended at this moment")
}

fn asked_of(units: &[OpenUnit]) -> Vec<(NodeId, WriterToken)> {
    units.iter().map(|unit| (unit.node, unit.writer.token())).collect()
}

/// Whether the client of a striped file is there. A server that combines the units knows better than the servers of the units: it is their client.
fn presence_of(file: WriterToken, reports: &[ClientReport]) -> ClientPresence {
    let (of_file, of_units): (Vec<_>, Vec<_>) = reports.iter().partition(|report| report.writer == file);
    let best = |reports: &[&ClientReport]| {
        let rank = |presence: ClientPresence| match presence {
            ClientPresence::There => (3, 0),
            ClientPresence::Ending => (2, 0),
            ClientPresence::Gone { left_ms, .. } => (1, left_ms),
            ClientPresence::Unknown => (0, 0),
        };
        reports.iter().map(|report| report.presence).max_by_key(|presence| rank(*presence))
    };
    best(&of_file)
        .filter(|presence| *presence != ClientPresence::Unknown)
        .or_else(|| best(&of_units))
        .unwrap_or(ClientPresence::Unknown)
}

#[cfg(test)]
mod tests {
    use types::{ObjectId, WriterKey};

    use super::*;

    const GONE: ClientPresence = ClientPresence::Gone { ago_ms: 5000, left_ms: 55_000 };

    fn presence(of_file: &[ClientPresence], of_units: &[ClientPresence]) -> ClientPresence {
        let token = |object| WriterToken { key: WriterKey(1), object: ObjectId(object), epoch: 1 };
        let report = |object, presence| ClientReport { node: NodeId(1), writer: token(object), presence };
        let of_file = of_file.iter().map(|presence| report(1, *presence));
        let of_units = (2..).zip(of_units).map(|(object, presence)| report(object, *presence));
        presence_of(token(1), &of_file.chain(of_units).collect::<Vec<_>>())
    }

    #[test]
    fn a_client_is_gone_only_if_no_server_sees_it() {
        use ClientPresence::{Ending, There, Unknown};
        assert_eq!(presence(&[Unknown, Unknown], &[GONE, GONE, Unknown]), GONE);
        assert_eq!(presence(&[Unknown], &[GONE, There, Unknown]), There);
        assert_eq!(presence(&[Unknown, There], &[GONE, GONE]), There, "its server is just connecting to the units");
        assert_eq!(presence(&[GONE, Unknown], &[There, There]), GONE, "its server has the units open");
        assert_eq!(presence(&[Unknown], &[GONE, Ending]), Ending);
        assert_eq!(presence(&[Ending], &[There, There]), Ending);
        assert_eq!(presence(&[Unknown], &[Unknown]), Unknown);
        assert_eq!(presence(&[], &[]), Unknown);
    }

    #[test]
    fn the_server_that_waits_longest_counts() {
        let sooner = ClientPresence::Gone { ago_ms: 9000, left_ms: 51_000 };
        assert_eq!(presence(&[], &[sooner, GONE, sooner]), GONE);
    }
}
