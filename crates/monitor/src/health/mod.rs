//! How a node or a cluster is: a verdict and its reasons.
//!
//! [`judge`] is a pure function of a [`Snapshot`], which is plain data. The text and the JSON of `weir status`, `weir status --check` and the metric
//! `weir_health` all show its result. [`SpaceTrend`] keeps the history that tells when space ends.

mod check;
mod judge;
mod trend;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use check::{UNKNOWN, check_line, unknown_line};
pub use judge::judge;
pub use trend::SpaceTrend;

use crate::exposition::{Exposition, Kind};

/// How serious a finding is, and how a node or a cluster is as a whole. The worst is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing needs attention.
    #[default]
    Healthy,
    /// Everything is served, but somebody should look at it soon.
    Warning,
    /// Something cannot be served, is damaged, or soon will be.
    Critical,
}

impl Verdict {
    /// The word that people see.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Healthy => "healthy",
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }

    /// 0, 1 or 2: the exit code of `weir status --check`, and the value of the metric.
    #[must_use]
    pub fn code(self) -> u8 {
        self as u8
    }
}

/// Why a verdict is not [`Verdict::Healthy`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Files that nobody can read now.
    UnreadableFiles,
    /// Objects that the scrub has found damaged.
    DamagedObjects,
    /// A disk server without a lease answers nobody.
    NoLease,
    /// The database under the namespace is away.
    Database,
    /// If the active manager fails, not all of the others could take over.
    Managers,
    /// A disk takes no new data, or no store does.
    SpaceFull,
    /// Little space is left.
    SpaceLow,
    /// Space ends soon at the present rate.
    SpaceEnds,
    /// Stores whose node is away, or runs without them.
    StoreOffline,
    /// Stores that were removed as lost and are served again.
    StoreReturned,
    /// Disk servers that are away.
    NodeAway,
    /// Files with one replica left, whose policy wants more.
    SingleCopyFiles,
    /// Files with fewer replicas than they should have.
    UnderReplicatedFiles,
    /// Repairs whose last try failed.
    RepairsFail,
    /// Files whose writer went away not long ago.
    InterruptedFiles,
    /// The node's certificate ends soon.
    CertificateEnds,
    /// The key of the cluster's authority is being replaced.
    AuthorityReplaced,
    /// No recent backup of the namespace.
    NoBackup,
    /// The scrub cannot continue.
    ScrubFails,
    /// Moving changes to the index on disk, or making checkpoints, fails.
    IndexTrouble,
    /// Lines of the audit log were lost.
    AuditLost,
    /// The namespace is older than the objects on the stores.
    OldNamespace,
}

impl Reason {
    /// All of them, the most serious first.
    pub const ALL: [Reason; 22] = [
        Self::UnreadableFiles,
        Self::DamagedObjects,
        Self::NoLease,
        Self::Database,
        Self::Managers,
        Self::SpaceFull,
        Self::SpaceLow,
        Self::SpaceEnds,
        Self::StoreOffline,
        Self::StoreReturned,
        Self::NodeAway,
        Self::SingleCopyFiles,
        Self::UnderReplicatedFiles,
        Self::RepairsFail,
        Self::InterruptedFiles,
        Self::CertificateEnds,
        Self::AuthorityReplaced,
        Self::NoBackup,
        Self::ScrubFails,
        Self::IndexTrouble,
        Self::AuditLost,
        Self::OldNamespace,
    ];

    /// Its name, as JSON and the metric's label have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::UnreadableFiles => "unreadable-files",
            Self::DamagedObjects => "damaged-objects",
            Self::NoLease => "no-lease",
            Self::Database => "database",
            Self::Managers => "managers",
            Self::SpaceFull => "space-full",
            Self::SpaceLow => "space-low",
            Self::SpaceEnds => "space-ends",
            Self::StoreOffline => "store-offline",
            Self::StoreReturned => "store-returned",
            Self::NodeAway => "node-away",
            Self::SingleCopyFiles => "single-copy-files",
            Self::UnderReplicatedFiles => "under-replicated-files",
            Self::RepairsFail => "repairs-fail",
            Self::InterruptedFiles => "interrupted-files",
            Self::CertificateEnds => "certificate-ends",
            Self::AuthorityReplaced => "authority-replaced",
            Self::NoBackup => "no-backup",
            Self::ScrubFails => "scrub-fails",
            Self::IndexTrouble => "index-trouble",
            Self::AuditLost => "audit-lost",
            Self::OldNamespace => "old-namespace",
        }
    }
}

/// One reason, with its words.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Finding {
    /// What it is.
    pub reason: Reason,
    /// How serious it is; never [`Verdict::Healthy`].
    pub severity: Verdict,
    /// A sentence for people: what is wrong, and what shows more or helps.
    pub text: String,
}

/// The judgement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Health {
    /// The worst severity of the reasons.
    pub verdict: Verdict,
    /// The reasons, the most serious first. Each reason comes once.
    pub reasons: Vec<Finding>,
    /// When the space of the whole ends at the present rate.
    pub space_ends: SpaceEnd,
    /// The numbers that were judged, by name. Names end in `_bytes` or `_seconds` where they count these.
    pub figures: BTreeMap<String, u64>,
}

impl Health {
    /// Whether this is one of the reasons.
    #[must_use]
    pub fn has(&self, reason: Reason) -> bool {
        self.reasons.iter().any(|finding| finding.reason == reason)
    }

    /// The verdict, then a line for each reason.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let word = self.verdict.word().to_owned();
        let reason = |finding: &Finding| format!("- {}: {}", finding.severity.word(), finding.text);
        std::iter::once(word).chain(self.reasons.iter().map(reason)).collect()
    }

    /// Writes the metric: a series for every reason, so that none disappears when it ends.
    pub fn tell(&self, out: &mut Exposition) {
        out.family(
            "weir_health",
            Kind::Gauge,
            "For each reason to worry: 0 if it does not apply, 1 for a warning, 2 if it is critical",
        );
        for reason in Reason::ALL {
            let found = self.reasons.iter().find(|finding| finding.reason == reason);
            let code = found.map_or(0, |finding| finding.severity.code());
            out.labelled(&[("reason", reason.name())], code);
        }
    }
}

/// When space ends at the present rate.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SpaceEnd {
    /// The history is too short.
    #[default]
    NotKnownYet,
    /// The space does not become less, or not within ten years.
    NotSoon,
    /// After so many seconds.
    InSeconds(u64),
}

impl SpaceEnd {
    /// For people, behind "at the present rate".
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::NotKnownYet => "not known yet".into(),
            Self::NotSoon => "not soon".into(),
            Self::InSeconds(seconds) => format!("in {}", judge::in_days(seconds)),
        }
    }
}

/// A number that may be a lower bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// The number.
    pub count: u64,
    /// Whether there may be more.
    pub and_more: bool,
}

/// The space of a disk, or of all stores together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpaceSnapshot {
    /// Size in bytes.
    pub capacity: u64,
    /// Bytes that files can still use, above the reserve.
    pub available: u64,
    /// When they end.
    pub ends: SpaceEnd,
}

/// The state of a disk or a store, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskState {
    /// It is used, and its space is judged.
    #[default]
    Used,
    /// A store whose node is away, or runs without it.
    Offline,
    /// A store that was removed as lost and is served again.
    Returned,
    /// It takes no new data by an administrator's decision: its space does not matter.
    SetAside,
}

/// A disk: a store's, or that of a data directory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DiskSnapshot {
    /// Its name for people.
    pub name: String,
    /// Its state.
    pub state: DiskState,
    /// Its space, if known.
    pub space: Option<SpaceSnapshot>,
    /// No other disk can take new data in its place.
    pub is_vital: bool,
}

/// What is known of the backups of a namespace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Backup {
    /// This node needs none: it has no namespace, or nobody ever made a backup of a single node.
    #[default]
    NotExpected,
    /// There is none, and the namespace was made at this time, in seconds since 1970.
    NeverSince(u64),
    /// The last one was made at this time, in seconds since 1970.
    At(u64),
}

/// What only a manager knows.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterSnapshot {
    /// The space of all stores that take new files.
    pub space: SpaceSnapshot,
    /// Whether any store has ever joined.
    pub has_stores: bool,
    /// No disk server has reported since the manager started.
    pub is_starting: bool,
    /// Files with fewer readable replicas than they should have, also those of the next two.
    pub under_replicated: Count,
    /// Files of these with exactly one replica left.
    pub single_copy: Count,
    /// Files of these that nobody can read now.
    pub unreadable: Count,
    /// How long there have been under-replicated files without a break, in seconds.
    pub short_seconds: u64,
    /// The names of disk servers that are away.
    pub away: Vec<String>,
    /// Missing replicas whose last copy has failed.
    pub failed_repairs: u64,
    /// A disk server has objects that are newer than the namespace.
    pub is_older_than_stores: bool,
    /// The namespace was restored from a backup, and nobody has accepted its state yet.
    pub is_held: bool,
}

/// A replacement of the authority's key that is under way.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuthorityChange {
    /// Since when both authorities are trusted, in seconds since 1970.
    pub since: u64,
    /// The names of nodes that have no certificate of the new authority yet.
    pub waiting_for: Vec<String>,
}

/// The managers of a cluster that has several.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ManagersSnapshot {
    /// On the active one: the names of those that are not connected.
    pub offline: Vec<String>,
    /// On the active one: those that are connected, and have not stored the present authority and administrators.
    pub behind: Vec<String>,
    /// On a standby: why it could not take over now.
    pub trouble: Option<String>,
}

/// The database under a namespace is away.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DatabaseOutage {
    /// For how long, in seconds.
    pub seconds: u64,
    /// Why it cannot be used.
    pub reason: String,
}

/// Everything that is judged, as of one moment.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    /// The time of day, in seconds since 1970.
    pub now: u64,
    /// The disks: of a manager its own and all stores, of other nodes their own.
    pub disks: Vec<DiskSnapshot>,
    /// On a manager: the cluster.
    pub cluster: Option<ClusterSnapshot>,
    /// On a disk server: whether it holds a lease.
    pub has_lease: Option<bool>,
    /// When the node's certificate ends, in seconds since 1970. `None`: it has none.
    pub certificate_ends: Option<u64>,
    /// On a manager: the replacement of the authority's key that is under way.
    pub authority_change: Option<AuthorityChange>,
    /// Its backups.
    pub backup: Backup,
    /// Objects that the scrub has found damaged.
    pub damaged: u64,
    /// Why the scrub cannot continue, if so.
    pub scrub_trouble: Option<String>,
    /// Files that were interrupted in the last hour and still are.
    pub interrupted: Count,
    /// Moving changes to disk or making checkpoints fails.
    pub has_index_trouble: bool,
    /// Lines of the audit log were lost within the last hour.
    pub loses_audit_lines: bool,
    /// On a manager: the database under the namespace is away.
    pub database_outage: Option<DatabaseOutage>,
    /// On a manager: the others.
    pub managers: ManagersSnapshot,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_listed_once_under_its_name() {
        for (number, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.name());
            assert_eq!(reason as usize, number, "in the order of the enum, so that none is left out");
        }
        assert_eq!(Reason::ALL.last().map(|last| *last as usize + 1), Some(Reason::ALL.len()));
    }

    #[test]
    fn the_metric_has_every_reason_always() {
        let finding = Finding { reason: Reason::SpaceFull, severity: Verdict::Critical, text: "full".into() };
        let health = Health { verdict: Verdict::Critical, reasons: vec![finding], ..Health::default() };
        let mut out = Exposition::default();
        health.tell(&mut out);
        let text = out.into_text();
        let series: Vec<&str> = text.lines().filter(|line| line.starts_with("weir_health{")).collect();
        assert_eq!(series.len(), Reason::ALL.len());
        assert!(series.contains(&"weir_health{reason=\"space-full\"} 2"), "{text}");
        assert_eq!(series.iter().filter(|line| line.ends_with(" 0")).count(), Reason::ALL.len() - 1);
    }

    #[test]
    fn the_verdict_comes_first() {
        assert_eq!(Health::default().lines(), ["healthy"]);
        let finding = Finding { reason: Reason::NodeAway, severity: Verdict::Warning, text: "ds1 is away".into() };
        let health = Health { verdict: Verdict::Warning, reasons: vec![finding], ..Health::default() };
        assert_eq!(health.lines(), ["warning", "- warning: ds1 is away"]);
    }
}
