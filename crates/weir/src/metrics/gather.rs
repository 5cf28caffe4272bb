//! Gathers the metrics of the node's parts into families. docs/reference/metrics.md lists them all, and tests compare.

use std::sync::Arc;

use authentication::MappingServiceStatus;
use database::Postgres;
use journal::{Journal, JournalStats, SegmentInfo};
use kv::{Embedded, JournaledIndex};
use monitor::Process;
use monitor::exposition::{Exposition, Kind, Scale};
use namespace::QuotaRecord;
use service::{LimitedOwner, ListedTree, ReadAheadFigures};
use store::{RecentStats, Store};
use types::{Histogram, PrincipalKind, StoreId};

use super::cluster::ClusterSource;
use super::scrub::ScrubSource;
use crate::health::NodeHealth;

/// The most trees with metrics of their own.
const TREES_MAX: usize = 100;
/// The most users and groups with metrics of their own.
const OWNERS_MAX: usize = 200;
/// How many records are looked at to find them.
const OWNERS_LOOKED_AT: usize = 20_000;

/// The parts that have metrics.
pub struct Sources {
    /// The front end.
    pub server: xrootd::Watch,
    /// The journals.
    pub logs: Vec<JournalSource>,
    /// The committer, on a node with a namespace.
    pub embedded: Option<Arc<Embedded>>,
    /// The database, on a manager whose namespace is in one.
    pub database: Option<Arc<Postgres>>,
    /// One of the node's stores. All share the memory for recently written pages.
    pub store: Option<Arc<Store>>,
    /// Further metrics of a cluster's node.
    pub cluster: Option<ClusterSource>,
    /// The scrubs.
    pub(crate) scrub: ScrubSource,
    /// The judgement.
    pub(crate) health: Arc<NodeHealth>,
}

impl Sources {
    /// Whether all threads of the node work; otherwise which does not. The node then stops within a second.
    pub(super) fn is_working(&self) -> Result<(), String> {
        let broken = self.embedded.as_ref().and_then(|embedded| embedded.broken());
        let broken = broken.or_else(|| self.database.as_ref().and_then(|database| database.broken()));
        let stopped = || self.logs.iter().find_map(|log| log.journal.poisoned());
        broken.or_else(stopped).map_or(Ok(()), Err)
    }

    /// Whether the node serves clients; otherwise why not.
    pub(super) fn is_serving(&self) -> Result<(), String> {
        self.is_working()?;
        self.health.is_serving().map_err(str::to_owned)
    }
}

/// A journal and its indexes.
pub struct JournalSource {
    /// On a disk server: the store that it belongs to.
    pub store: Option<StoreId>,
    /// The journal.
    pub journal: Arc<Journal>,
    /// The indexes, by name.
    pub indexes: Vec<(&'static str, Arc<JournaledIndex>)>,
}

/// The whole page at this moment.
pub fn page(sources: &Sources) -> String {
    let mut out = Exposition::default();
    let version = env!("CARGO_PKG_VERSION");
    out.family("weir_build_info", Kind::Gauge, "1; the label says which version of weir runs")
        .labelled(&[("version", version)], 1);
    if let Some(health) = sources.health.recent() {
        health.tell(&mut out);
    }
    // Whoever reads the names of a database that is away would wait.
    let is_away = sources.database.as_ref().is_some_and(|database| database.outage().is_some());
    let mut figures = if is_away { sources.server.figures_without_names() } else { sources.server.figures() };
    if let Some(cluster) = &sources.cluster {
        figures.space = cluster.own_space(figures.space);
    }
    of_server(&mut out, &figures);
    of_audit(&mut out, sources.server.service().config().audit.counts());
    if sources.store.is_some() {
        of_read_ahead(&mut out, figures.read_ahead);
    }
    if let Some(recent) = sources.store.as_ref().and_then(|store| store.recent()) {
        of_recent(&mut out, &recent);
    }
    of_journals(&mut out, &sources.logs);
    if let Some(embedded) = &sources.embedded {
        of_committer(&mut out, embedded);
    }
    if let Some(database) = &sources.database {
        super::database::tell(&mut out, database);
    }
    let has_names = sources.embedded.is_some() || sources.database.is_some();
    if has_names && !is_away {
        of_trees(&mut out, &sources.server.trees(TREES_MAX));
        let (owners, and_more) = sources.server.limited_owners(OWNERS_LOOKED_AT, OWNERS_MAX);
        of_limited_owners(&mut out, &owners, and_more);
    }
    of_indexes(&mut out, &sources.logs);
    sources.scrub.tell(&mut out);
    if let Some(cluster) = sources.cluster.as_ref().filter(|_| !is_away) {
        cluster.tell(&mut out);
    }
    match Process::look() {
        Ok(process) => of_process(&mut out, &process),
        Err(error) => tracing::debug!("cannot tell how much the process uses: {error}"),
    }
    out.into_text()
}

/// The certificate that clients are shown, and who is let in.
fn security(out: &mut Exposition, figures: &xrootd::Figures) {
    use Kind::{Counter, Gauge};
    out.family(
        "weir_client_certificate_end_seconds",
        Gauge,
        "When the certificate for clients ends, in seconds since 1970",
    );
    if let Some(ends) = figures.certificate_ends {
        out.labelled(&[], ends.secs());
    }
    out.family("weir_logins_total", Counter, "Clients that have shown who they are, by mechanism and by result");
    let authentication = figures.authentication.iter();
    for logins in authentication.clone().flat_map(|snapshot| &snapshot.logins) {
        let mechanism = logins.mechanism.name();
        out.labelled(&[("mechanism", mechanism), ("result", "accepted")], logins.accepted);
        out.labelled(&[("mechanism", mechanism), ("result", "refused")], logins.refused);
    }
    out.family("weir_signatures_total", Counter, "Signatures of requests, by result");
    for (result, count) in &figures.signatures {
        out.labelled(&[("result", *result)], *count);
    }
    out.family("weir_issuer_keys_age_seconds", Gauge, "How long ago the keys of an issuer of tokens were fetched");
    for issuer in authentication.clone().flat_map(|snapshot| &snapshot.issuers) {
        if let Some(age) = issuer.keys_age {
            out.labelled(&[("issuer", issuer.issuer.as_str())], age.as_secs());
        }
    }
    out.family("weir_issuer_fetches_total", Counter, "Fetches of the keys of an issuer of tokens, by result");
    for issuer in authentication.clone().flat_map(|snapshot| &snapshot.issuers) {
        let url = issuer.issuer.as_str();
        out.labelled(&[("issuer", url), ("result", "succeeded")], issuer.fetches_succeeded);
        out.labelled(&[("issuer", url), ("result", "failed")], issuer.fetches_failed);
    }
    out.family(
        "weir_shared_secret_failures_limited_total",
        Counter,
        "Clients with shared secrets that were refused because too many at their address had failed",
    );
    for refused in authentication.clone().filter_map(|snapshot| snapshot.too_many_failures) {
        out.labelled(&[], refused);
    }
    out.family(
        "weir_gsi_unusable_authorities",
        Gauge,
        "Authorities whose users are refused, because their revocation list or signing policy cannot be used",
    );
    for unusable in authentication.clone().filter_map(|snapshot| snapshot.unusable_authorities) {
        out.labelled(&[], unusable);
    }
    out.family(
        "weir_tls_unusable_authorities",
        Gauge,
        "Authorities of issuers and mapping services whose revocation list cannot be used",
    );
    for snapshot in authentication.clone() {
        out.labelled(&[], snapshot.unusable_tls_authorities);
    }
    out.family(
        "weir_mapping_service_logins_total",
        Counter,
        "Logins that the mapping service decided about, or should have, by result; kept: an earlier answer was used",
    );
    for service in authentication.filter_map(|snapshot| snapshot.mapping_service) {
        let MappingServiceStatus { mapped, refused, failed, kept } = service;
        for (result, count) in [("mapped", mapped), ("refused", refused), ("failed", failed), ("kept", kept)] {
            out.labelled(&[("result", result)], count);
        }
    }
}

fn of_server(out: &mut Exposition, figures: &xrootd::Figures) {
    use Kind::{Counter, Gauge};
    #[allow(clippy::cast_precision_loss)] // a time of day
    let started = figures.started.0 as f64 / 1e9;
    out.family("weir_start_time_seconds", Gauge, "When the node was started, in seconds since 1970").sample(started);
    out.family(
        "weir_request_seconds",
        Kind::Histogram,
        "Time from a request's header to its answer, by kind of request",
    );
    for (kind, took) in &figures.requests {
        out.histogram(&[("request", kind)], took, Scale::TIMES);
    }
    out.family("weir_errors_total", Counter, "Answers with an error, by the protocol's error");
    for (number, count) in &figures.errors {
        out.labelled(&[("error", number.name()), ("number", &number.0.to_string())], count);
    }
    out.family("weir_waits_total", Counter, "Answers that told the client to try again later").sample(figures.waits);
    out.family("weir_redirects_total", Counter, "Answers that sent the client to another server")
        .sample(figures.redirects);
    out.family("weir_read_bytes_total", Counter, "File bytes sent to clients").sample(figures.bytes_read);
    out.family("weir_written_bytes_total", Counter, "File bytes received from clients").sample(figures.bytes_written);
    out.family("weir_connections", Gauge, "Open connections").sample(figures.connections.now);
    out.family("weir_connections_limit", Gauge, "Maximum number of connections").sample(figures.connections.most);
    out.family("weir_connections_accepted_total", Counter, "Accepted connections").sample(figures.connections_accepted);
    out.family("weir_connections_ended_total", Counter, "Connections that the server has ended, by reason");
    for (reason, count) in &figures.connections_ended {
        out.labelled(&[("reason", reason)], count);
    }
    security(out, figures);
    out.family("weir_sessions", Gauge, "Logged-in clients").sample(figures.sessions);
    out.family("weir_open_files", Gauge, "Files that clients have open").sample(figures.open_files.now);
    out.family("weir_open_files_limit", Gauge, "Maximum number of open files").sample(figures.open_files.most);
    out.family(
        "weir_writers",
        Gauge,
        "Open writes: files that are being written, or that wait for their writer to return",
    )
    .sample(figures.writers);
    out.family("weir_writers_memory_bytes", Gauge, "Memory reserved for open writes")
        .sample(figures.writers_memory.now);
    out.family("weir_writers_memory_limit_bytes", Gauge, "Memory available for open writes")
        .sample(figures.writers_memory.most);
    out.family("weir_transfer_buffers", Gauge, "Transfer buffers in use").sample(figures.transfer_buffers.now);
    out.family("weir_transfer_buffers_limit", Gauge, "Maximum number of transfer buffers")
        .sample(figures.transfer_buffers.most);
    out.family(
        "weir_transfers_running",
        Gauge,
        "Transfer slots in use, each moving one block between a client and the disk",
    )
    .sample(figures.transfers.now);
    out.family("weir_transfers_waiting", Gauge, "Connections that wait for a transfer slot")
        .sample(figures.transfers_waiting);
    out.family("weir_transfers_limit", Gauge, "Transfer slots").sample(figures.transfers.most);
    if let Some(deletions) = figures.deletions_waiting {
        let help =
            format!("Removed objects whose space is not free yet, counted up to {}", service::DELETIONS_COUNTED_MAX);
        out.family("weir_deletions_waiting", Gauge, &help).sample(deletions);
    }
    if let Some(space) = figures.space {
        out.family("weir_space_total_bytes", Gauge, "Size of the file system").sample(space.total);
        out.family("weir_space_free_bytes", Gauge, "Free bytes of the file system").sample(space.free);
        out.family("weir_space_floor_bytes", Gauge, "Free bytes below which new data is refused").sample(space.floor);
        out.family("weir_space_refusing", Gauge, "1 while new data is refused for want of space")
            .sample(u8::from(space.floor_reached));
    }
}

fn of_audit(out: &mut Exposition, counts: Option<audit::Counts>) {
    out.family("weir_audit_lines_total", Kind::Counter, "Lines written to the audit log");
    if let Some(counts) = counts {
        out.labelled(&[], counts.written);
    }
    out.family("weir_audit_lines_lost_total", Kind::Counter, "Lines of the audit log that could not be written");
    if let Some(counts) = counts {
        out.labelled(&[], counts.lost);
    }
}

fn of_recent(out: &mut Exposition, recent: &RecentStats) {
    use Kind::{Counter, Gauge};
    out.family("weir_recent_memory_bytes", Gauge, "Memory taken for recently written data").sample(recent.bytes);
    out.family("weir_recent_memory_limit_bytes", Gauge, "Memory available for recently written data")
        .sample(recent.bytes_max);
    out.family(
        "weir_recent_read_bytes_total",
        Counter,
        "Bytes of whole pages of large files, by where reads found them",
    )
    .labelled(&[("from", "memory")], recent.served_bytes)
    .labelled(&[("from", "disk")], recent.missed_bytes);
    out.family(
        "weir_recent_lent_bytes_total",
        Counter,
        "Of the bytes from memory, those that reads took without a copy",
    )
    .sample(recent.lent_bytes);
    out.family("weir_first_read_bytes_total", Counter, "Bytes that first reads fetched past the page cache")
        .sample(recent.fetched_bytes);
}

fn of_read_ahead(out: &mut Exposition, read_ahead: ReadAheadFigures) {
    out.family("weir_read_ahead_bytes_total", Kind::Counter, "Bytes read ahead of readers that follow a pattern")
        .sample(read_ahead.bytes);
    out.family(
        "weir_read_ahead_used_bytes_total",
        Kind::Counter,
        "Of the bytes read ahead, those requested afterwards",
    )
    .sample(read_ahead.used_bytes);
}

fn of_store(store: &Option<String>) -> Option<(&str, &str)> {
    store.as_deref().map(|store| ("store", store))
}

fn of_journals(out: &mut Exposition, logs: &[JournalSource]) {
    use Kind::{Counter, Gauge};
    let all: Vec<_> = logs
        .iter()
        .map(|log| (log.store.map(|store| store.to_string()), log.journal.stats(), log.journal.segments()))
        .collect();
    let mut each = |name, kind, help, value: &dyn Fn(&JournalStats, &[SegmentInfo]) -> u64| {
        out.family(name, kind, help);
        for (store, stats, segments) in &all {
            out.labelled(of_store(store).as_slice(), value(stats, segments));
        }
    };
    each("weir_journal_records_total", Counter, "Records appended to the journal", &|stats, _| stats.records);
    each("weir_journal_payload_bytes_total", Counter, "Bytes in the records appended to the journal", &|stats, _| {
        stats.payload_bytes
    });
    each("weir_journal_writes_total", Counter, "Writes to the journal's files", &|stats, _| stats.writes);
    each("weir_journal_written_bytes_total", Counter, "Bytes written to the journal's files", &|stats, _| {
        stats.bytes_written
    });
    each("weir_journal_segments", Gauge, "Segments (files) of the journal", &|_, segments| segments.len() as u64);
    each("weir_journal_bytes", Gauge, "Bytes of the journal", &|_, segments| segments.iter().map(|s| s.bytes).sum());
    each("weir_journal_panics_total", Counter, "Panics while creating a journal segment", &|stats, _| stats.panics);
    let mut each = |name, help, scale, of: fn(&JournalStats) -> &Histogram| {
        out.family(name, Kind::Histogram, help);
        for (store, stats, _) in &all {
            out.histogram(of_store(store).as_slice(), of(stats), scale);
        }
    };
    each("weir_journal_sync_seconds", "Duration of the journal's syncs", Scale::TIMES, |stats| &stats.sync_micros);
    each("weir_journal_sync_records", "Records made durable by one sync", Scale::COUNTS, |stats| &stats.sync_records);
}

fn of_committer(out: &mut Exposition, embedded: &Embedded) {
    let stats = embedded.stats();
    out.family("weir_commit_operations", Kind::Histogram, "Changes of the namespace committed together").histogram(
        &[],
        &stats.batch_ops,
        Scale::COUNTS,
    );
    out.family("weir_operations_total", Kind::Counter, "Changes of the namespace, by outcome");
    let outcomes = [
        ("committed", stats.committed),
        ("aborted", stats.aborted),
        ("no_space", stats.no_space),
        ("panicked", stats.panicked),
    ];
    for (outcome, count) in outcomes {
        out.labelled(&[("outcome", outcome)], count);
    }
}

fn of_trees(out: &mut Exposition, trees: &[ListedTree]) {
    let mut each = |name, help, value: &dyn Fn(&QuotaRecord) -> Option<u64>| {
        out.family(name, Kind::Gauge, help);
        for tree in trees {
            if let Some(value) = value(&tree.quota) {
                out.labelled(&[("tree", tree.path.as_str())], value);
            }
        }
    };
    each("weir_tree_bytes", "Bytes of the files in a tree", &|quota| Some(quota.used.bytes));
    each("weir_tree_files", "Files, links and directories in a tree", &|quota| Some(quota.used.files));
    let reserved = "Bytes that open writes have reserved in a tree";
    each("weir_tree_reserved_bytes", reserved, &|quota| Some(quota.reserved.bytes));
    each("weir_tree_limit_bytes", "Hard limit of bytes of a tree that has one", &|quota| quota.bytes.hard);
    each("weir_tree_limit_files", "Hard limit of files of a tree that has one", &|quota| quota.files.hard);
}

fn of_limited_owners(out: &mut Exposition, owners: &[LimitedOwner], and_more: bool) {
    let help = "1 if further users or groups may have a quota that the metrics of quotas do not show";
    out.family("weir_quotas_incomplete", Kind::Gauge, help).sample(u8::from(and_more));
    let mut each = |name, help, value: &dyn Fn(&QuotaRecord) -> Option<u64>| {
        out.family(name, Kind::Gauge, help);
        for owner in owners {
            if let Some(value) = value(&owner.quota) {
                let kind = if owner.kind == PrincipalKind::User { "user" } else { "group" };
                out.labelled(
                    &[("tree", owner.path.as_str()), ("kind", kind), ("principal", owner.name.as_str())],
                    value,
                );
            }
        }
    };
    each("weir_quota_bytes", "Bytes of the files of a user or group with a quota", &|quota| Some(quota.used.bytes));
    let files = "Files, links and directories of a user or group with a quota";
    each("weir_quota_files", files, &|quota| Some(quota.used.files));
    let reserved = "Bytes that open writes have reserved for a user or group with a quota";
    each("weir_quota_reserved_bytes", reserved, &|quota| Some(quota.reserved.bytes));
    each("weir_quota_limit_bytes", "Hard limit of bytes of a user or group that has one", &|quota| quota.bytes.hard);
    each("weir_quota_limit_files", "Hard limit of files of a user or group that has one", &|quota| quota.files.hard);
}

fn of_indexes(out: &mut Exposition, logs: &[JournalSource]) {
    use Kind::{Counter, Gauge};
    let mut all = Vec::new();
    for log in logs {
        let store = log.store.map(|store| store.to_string());
        all.extend(log.indexes.iter().map(|(name, index)| (*name, store.clone(), index.stats())));
    }
    let mut each = |name, kind, help, value: &dyn Fn(&kv::IndexStats) -> u64| {
        out.family(name, kind, help);
        for (index, store, stats) in &all {
            let labels: Vec<_> =
                [("index", *index)].into_iter().chain(store.as_deref().map(|store| ("store", store))).collect();
            out.labelled(&labels, value(stats));
        }
    };
    each("weir_index_overlay_bytes", Gauge, "Bytes of changes in memory that are not in the index on disk yet", &|s| {
        s.overlay_bytes as u64
    });
    each("weir_index_batches_total", Counter, "Batches of changes applied to the index", &|s| s.batches);
    each("weir_index_sweeps_total", Counter, "Times that changes were moved from memory to the index on disk", &|s| {
        s.sweeps
    });
    each("weir_index_memory_waits_total", Counter, "Times that a change waited for memory", &|s| s.waits_for_room);
    each("weir_index_checkpoints_total", Counter, "Checkpoint files made", &|s| s.checkpoints);
    each(
        "weir_index_checkpoints_refused_total",
        Counter,
        "Checkpoint files that failed verification after they were written",
        &|s| s.checkpoints_refused,
    );
    each(
        "weir_index_checkpoints_renewed_total",
        Counter,
        "Checkpoints made again because a file was damaged on disk",
        &|s| s.checkpoints_renewed,
    );
    each("weir_index_healed_total", Counter, "Times that a damaged index was rebuilt while the node served", &|s| {
        s.healed
    });
    each("weir_index_panics_total", Counter, "Panics of the index's background threads, which continue", &|s| s.panics);
    each("weir_index_trouble", Gauge, "1 while moving changes to disk or making checkpoints fails", &|s| {
        u64::from(s.trouble.is_some() || s.checkpoint_trouble.is_some())
    });
}

fn of_process(out: &mut Exposition, process: &Process) {
    use Kind::{Counter, Gauge};
    out.family("process_cpu_seconds_total", Counter, "User and system time of all threads").sample(process.cpu_seconds);
    out.family("process_resident_memory_bytes", Gauge, "Memory in use").sample(process.resident_bytes);
    out.family("process_virtual_memory_bytes", Gauge, "Address space").sample(process.virtual_bytes);
    out.family("process_threads", Gauge, "Threads").sample(process.threads);
    out.family("process_open_fds", Gauge, "Open descriptors").sample(process.open_fds);
    if let Some(max) = process.max_fds {
        out.family("process_max_fds", Gauge, "Maximum number of open descriptors").sample(max);
    }
}
