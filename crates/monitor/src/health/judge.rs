//! The judgement: which states of a node or a cluster deserve attention, and how much.

use std::collections::BTreeMap;

use types::units::show_size;

use super::{
    AuthorityChange, Backup, ClusterSnapshot, Count, DatabaseOutage, DiskSnapshot, DiskState, Finding, Health,
    ManagersSnapshot, Reason, Snapshot, SpaceEnd, SpaceSnapshot, Verdict,
};

const DAY: u64 = 86_400;
/// Space that ends within this time is a warning.
const SPACE_WARNING: u64 = 7 * DAY;
/// Space of a vital disk, or of all stores, that ends within this time is critical.
const SPACE_CRITICAL: u64 = DAY;
/// While no server is away, files may be under-replicated for this time: their replicas are being made.
const SHORT_USUAL: u64 = 600;
/// A tenth of the space, or less, is little.
const LITTLE: u64 = 10;
/// Nodes renew their certificates 30 days before the end. Half of that later something must be wrong.
const CERTIFICATE_WARNING: u64 = 15 * DAY;
/// A certificate that ends within this time is critical: without it, the node is alone.
const CERTIFICATE_CRITICAL: u64 = 2 * DAY;
/// An older backup is not recent: a daily one was missed.
const BACKUP_OLD: u64 = 2 * DAY;
/// The most names in one sentence.
const NAMES_MAX: usize = 3;

/// Judges a snapshot.
#[must_use]
pub fn judge(snapshot: &Snapshot) -> Health {
    let mut findings = Findings::default();
    if let Some(cluster) = &snapshot.cluster {
        let has_offline_store = snapshot.disks.iter().any(|disk| disk.state == DiskState::Offline);
        files(cluster, has_offline_store, &mut findings);
        of_cluster(cluster, &mut findings);
    }
    stores(&snapshot.disks, &mut findings);
    space(snapshot, &mut findings);
    of_node(snapshot, &mut findings);
    let mut reasons = findings.0;
    reasons.sort_by_key(|finding| (std::cmp::Reverse(finding.severity), finding.reason));
    Health {
        verdict: reasons.iter().map(|finding| finding.severity).max().unwrap_or_default(),
        reasons,
        space_ends: whole(snapshot).ends,
        figures: figures(snapshot),
    }
}

#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn warn(&mut self, reason: Reason, text: impl Into<String>) {
        self.add(reason, Verdict::Warning, text);
    }

    fn alarm(&mut self, reason: Reason, text: impl Into<String>) {
        self.add(reason, Verdict::Critical, text);
    }

    fn add(&mut self, reason: Reason, severity: Verdict, text: impl Into<String>) {
        self.0.push(Finding { reason, severity, text: text.into() });
    }
}

fn files(cluster: &ClusterSnapshot, has_offline_store: bool, out: &mut Findings) {
    let ClusterSnapshot { under_replicated, single_copy, unreadable, .. } = cluster;
    if cluster.is_starting {
        return;
    }
    let files = |count: Count, one: &str, several: &str| match count {
        Count { count: 1, and_more: false } => format!("1 file {one}"),
        Count { count, and_more } => format!("{}{count} files {several}", if and_more { "more than " } else { "" }),
    };
    if is_some(*unreadable) {
        let what = files(*unreadable, "cannot be read now", "cannot be read now");
        out.alarm(Reason::UnreadableFiles, format!("{what}; `weir missing --unreadable` lists them"));
    }
    // Some policies make the further replicas after the close. Files that wait for these for a short time are no reason to worry.
    let is_usual = cluster.away.is_empty() && cluster.failed_repairs == 0 && cluster.short_seconds < SHORT_USUAL;
    if is_usual && !has_offline_store {
        return;
    }
    if is_some(*single_copy) {
        let what = files(*single_copy, "has one replica left", "have one replica left");
        out.warn(Reason::SingleCopyFiles, format!("{what}, and should have more"));
    }
    if is_some(*under_replicated) {
        let what = files(*under_replicated, "is under-replicated", "are under-replicated");
        out.warn(Reason::UnderReplicatedFiles, format!("{what}; `weir missing` lists them"));
    }
}

fn is_some(count: Count) -> bool {
    count.count > 0 || count.and_more
}

fn of_cluster(cluster: &ClusterSnapshot, out: &mut Findings) {
    if !cluster.away.is_empty() {
        let names: Vec<&str> = cluster.away.iter().map(String::as_str).collect();
        out.warn(Reason::NodeAway, format!("{} away: {}", are(names.len(), "disk server"), some_of(&names)));
    }
    match cluster.failed_repairs {
        0 => {}
        failed => {
            let replicas = if failed == 1 { "replica" } else { "replicas" };
            let text = format!("{failed} {replicas} could not be made yet; `weir repair` says why");
            out.warn(Reason::RepairsFail, text);
        }
    }
    if cluster.is_held {
        let text = "the namespace was restored from a backup; nothing is repaired or removed on the stores until you have \
                    looked at `weir restored` and run `weir restored --accept`";
        out.warn(Reason::OldNamespace, text);
    } else if cluster.is_older_than_stores {
        let text = "the namespace is older than the objects on the stores: files created since have no names";
        out.warn(Reason::OldNamespace, text);
    }
}

fn stores(disks: &[DiskSnapshot], out: &mut Findings) {
    let in_state = |state: DiskState| -> Vec<&str> {
        disks.iter().filter(|disk| disk.state == state).map(|disk| disk.name.as_str()).collect()
    };
    let offline = in_state(DiskState::Offline);
    if !offline.is_empty() {
        out.warn(Reason::StoreOffline, format!("{} offline: {}", are(offline.len(), "store"), some_of(&offline)));
    }
    let returned = in_state(DiskState::Returned);
    if !returned.is_empty() {
        let which = format!("{} back: {}", are(returned.len(), "store"), some_of(&returned));
        out.warn(Reason::StoreReturned, format!("{which}; removed as lost before, it gets nothing new"));
    }
}

fn space(snapshot: &Snapshot, out: &mut Findings) {
    let used = || snapshot.disks.iter().filter(|disk| disk.state == DiskState::Used);
    let mut all: Vec<(&str, SpaceSnapshot, bool)> =
        used().filter_map(|disk| Some((disk.name.as_str(), disk.space?, disk.is_vital))).collect();
    // All stores together are vital. A single store is not: others take what it cannot.
    if snapshot.cluster.is_some() || (all.len() > 1 && all.iter().all(|(_, _, is_vital)| !is_vital)) {
        all.insert(0, ("all stores together", whole(snapshot), true));
    }
    if let Some(cluster) = &snapshot.cluster
        && cluster.space.capacity == 0
    {
        match cluster {
            ClusterSnapshot { has_stores: false, .. } => {
                out.warn(Reason::SpaceFull, "no store has joined yet, so there is no room for files");
            }
            ClusterSnapshot { is_starting: true, .. } => {}
            _ => out.alarm(Reason::SpaceFull, "no store takes new files; `weir stores` shows their states"),
        }
        all.remove(0);
    }
    let (full, all): (Vec<_>, Vec<_>) = all.into_iter().partition(|(_, space, _)| space.available == 0);
    told(Reason::SpaceFull, full, out, |_, is_vital| {
        let severity = if is_vital { Verdict::Critical } else { Verdict::Warning };
        Some((severity, "full, new data is refused".into()))
    });
    told(Reason::SpaceEnds, all.clone(), out, |space, is_vital| match space.ends {
        SpaceEnd::InSeconds(seconds) if seconds <= SPACE_WARNING => {
            let severity = if is_vital && seconds <= SPACE_CRITICAL { Verdict::Critical } else { Verdict::Warning };
            Some((severity, format!("full in {} at the present rate", in_days(seconds))))
        }
        _ => None,
    });
    told(Reason::SpaceLow, all, out, |space, _| {
        let percent = u128::from(space.available) * 100 / u128::from(space.capacity.max(1));
        (space.available <= space.capacity / LITTLE)
            .then(|| (Verdict::Warning, format!("{} left, {percent} %", show_size(space.available))))
    });
}

/// One finding for all disks that `judged` finds wanting: the worst of them first.
fn told(
    reason: Reason,
    disks: Vec<(&str, SpaceSnapshot, bool)>,
    out: &mut Findings,
    judged: impl Fn(SpaceSnapshot, bool) -> Option<(Verdict, String)>,
) {
    let mut found: Vec<(Verdict, String)> = Vec::new();
    for (name, space, is_vital) in disks {
        found.extend(judged(space, is_vital).map(|(severity, what)| (severity, format!("{name}: {what}"))));
    }
    found.sort_by_key(|(severity, _)| std::cmp::Reverse(*severity));
    let Some((severity, _)) = found.first() else { return };
    let texts: Vec<&str> = found.iter().map(|(_, text)| text.as_str()).collect();
    out.add(reason, *severity, some_of(&texts));
}

/// Why not every manager could take over.
fn managers(managers: &ManagersSnapshot) -> Option<String> {
    let ManagersSnapshot { offline, behind, trouble } = managers;
    let is = |names: &[String]| if names.len() == 1 { "is" } else { "are" };
    let has = |names: &[String]| if names.len() == 1 { "has" } else { "have" };
    let offline =
        (!offline.is_empty()).then(|| format!("{} {} offline and cannot take over", offline.join(", "), is(offline)));
    let behind = (!behind.is_empty()).then(|| {
        format!("{} {} not fetched the present authority and administrators yet", behind.join(", "), has(behind))
    });
    let said: Vec<String> = [trouble.clone(), offline, behind].into_iter().flatten().collect();
    (!said.is_empty()).then(|| format!("managers: {}", said.join("; ")))
}

fn of_node(snapshot: &Snapshot, out: &mut Findings) {
    let Snapshot { now, damaged, interrupted, backup, .. } = snapshot;
    if *damaged > 0 {
        let plural = if *damaged == 1 { "" } else { "s" };
        let text = match (&snapshot.cluster, snapshot.has_lease) {
            (Some(_), _) => {
                format!("{damaged} damaged replica{plural} without an intact one online; `weir scrub` lists the files")
            }
            (None, Some(_)) => format!(
                "{damaged} damaged replica{plural}; the manager has them replaced if other stores have the files"
            ),
            (None, None) => format!("{damaged} damaged object{plural}; the log names the files, write them again"),
        };
        out.alarm(Reason::DamagedObjects, text);
    }
    if snapshot.has_lease == Some(false) {
        out.alarm(Reason::NoLease, "no lease from the manager: this disk server answers nobody");
    }
    if let Some(DatabaseOutage { seconds, reason }) = &snapshot.database_outage {
        let lasted = if *seconds < 120 { format!("{seconds} s") } else { in_days(*seconds) };
        out.alarm(Reason::Database, format!("{reason}; opens and changes have waited for {lasted}"));
    }
    if let Some(text) = managers(&snapshot.managers) {
        out.warn(Reason::Managers, text);
    }
    if let Some(why) = &snapshot.scrub_trouble {
        out.warn(Reason::ScrubFails, format!("the scrub cannot continue: {why}"));
    }
    if is_some(*interrupted) {
        let more = if interrupted.and_more { "more than " } else { "" };
        let files = if interrupted.count == 1 && !interrupted.and_more { "file was" } else { "files were" };
        let text = format!("{more}{} {files} interrupted in the last hour: the writer went away", interrupted.count);
        out.warn(Reason::InterruptedFiles, text);
    }
    if let Some(ends) = snapshot.certificate_ends {
        let left = ends.saturating_sub(*now);
        let text = match left {
            0 => "this node's certificate has ended; the log says why it was not renewed".into(),
            left => format!("this node's certificate ends in {}; the log says why it is not renewed", in_days(left)),
        };
        match left {
            0..=CERTIFICATE_CRITICAL => out.alarm(Reason::CertificateEnds, text),
            _ if left <= CERTIFICATE_WARNING => out.warn(Reason::CertificateEnds, text),
            _ => {}
        }
    }
    if let Some(AuthorityChange { since, waiting_for }) = &snapshot.authority_change {
        let age = in_days(now.saturating_sub(*since));
        let next = match waiting_for.as_slice() {
            [] => {
                "all nodes have certificates of the new one: `weir admin authority retire` ends the old one".to_owned()
            }
            [one] => format!("{one} has no certificate of the new one yet"),
            [first, others @ ..] => format!("{first} and {} more have no certificate of the new one yet", others.len()),
        };
        out.warn(Reason::AuthorityReplaced, format!("both authorities of the cluster are trusted, for {age}: {next}"));
    }
    match backup {
        Backup::At(at) if now.saturating_sub(*at) > BACKUP_OLD => {
            let age = in_days(now.saturating_sub(*at));
            out.warn(Reason::NoBackup, format!("the last backup of the namespace is {age} old"));
        }
        Backup::NeverSince(made) if now.saturating_sub(*made) > BACKUP_OLD => {
            out.warn(Reason::NoBackup, "no backup of the namespace was ever made");
        }
        _ => {}
    }
    if snapshot.has_index_trouble {
        let text = "changes cannot be moved to the index on disk, or checkpoints fail; the log says why";
        out.warn(Reason::IndexTrouble, text);
    }
    if snapshot.loses_audit_lines {
        let text = "lines of the audit log were lost within the last hour; the log of the node says why";
        out.warn(Reason::AuditLost, text);
    }
}

/// The space that matters for the node or cluster as a whole.
fn whole(snapshot: &Snapshot) -> SpaceSnapshot {
    if let Some(cluster) = &snapshot.cluster {
        return cluster.space;
    }
    let spaces: Vec<SpaceSnapshot> =
        snapshot.disks.iter().filter(|disk| disk.state == DiskState::Used).filter_map(|disk| disk.space).collect();
    let sum = |of: fn(&SpaceSnapshot) -> u64| spaces.iter().map(of).fold(0, u64::saturating_add);
    // Several stores of a disk server share what the manager sends there, so the last one to end is the end.
    let mut ends = SpaceEnd::NotKnownYet;
    for space in &spaces {
        ends = match (ends, space.ends) {
            (SpaceEnd::InSeconds(a), SpaceEnd::InSeconds(b)) => SpaceEnd::InSeconds(a.max(b)),
            (SpaceEnd::NotSoon, _) | (_, SpaceEnd::NotSoon) => SpaceEnd::NotSoon,
            (SpaceEnd::NotKnownYet, end) | (end, SpaceEnd::NotKnownYet) => end,
        };
    }
    SpaceSnapshot { capacity: sum(|space| space.capacity), available: sum(|space| space.available), ends }
}

fn figures(snapshot: &Snapshot) -> BTreeMap<String, u64> {
    let whole = whole(snapshot);
    let offline = snapshot.disks.iter().filter(|disk| disk.state == DiskState::Offline).count() as u64;
    let mut all = vec![
        ("capacity_bytes", Some(whole.capacity)),
        ("available_bytes", Some(whole.available)),
        ("damaged_objects", Some(snapshot.damaged)),
        ("interrupted_files", Some(snapshot.interrupted.count)),
        ("certificate_seconds", snapshot.certificate_ends.map(|ends| ends.saturating_sub(snapshot.now))),
        (
            "space_ends_seconds",
            match whole.ends {
                SpaceEnd::InSeconds(seconds) => Some(seconds),
                _ => None,
            },
        ),
        (
            "backup_age_seconds",
            match snapshot.backup {
                Backup::At(at) => Some(snapshot.now.saturating_sub(at)),
                _ => None,
            },
        ),
    ];
    if let Some(cluster) = &snapshot.cluster {
        all.extend([
            ("stores_offline", Some(offline)),
            ("nodes_away", Some(cluster.away.len() as u64)),
            ("under_replicated_files", Some(cluster.under_replicated.count)),
            ("single_copy_files", Some(cluster.single_copy.count)),
            ("unreadable_files", Some(cluster.unreadable.count)),
            ("failed_repairs", Some(cluster.failed_repairs)),
        ]);
    }
    all.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// `1 store is`, `2 stores are`.
fn are(count: usize, what: &str) -> String {
    if count == 1 { format!("1 {what} is") } else { format!("{count} {what}s are") }
}

/// The first names, and how many more there are.
fn some_of(names: &[&str]) -> String {
    let mut text = names[..names.len().min(NAMES_MAX)].join(", ");
    if names.len() > NAMES_MAX {
        text += &format!(" and {} more", names.len() - NAMES_MAX);
    }
    text
}

/// A time in the unit that people plan in.
pub(super) fn in_days(seconds: u64) -> String {
    let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    match seconds {
        0..3_600 => counted(seconds / 60, "minute"),
        3_600..172_800 => counted(seconds / 3_600, "hour"),
        _ => counted(seconds / DAY, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_800_000_000;
    const GIB: u64 = 1 << 30;

    fn roomy() -> SpaceSnapshot {
        SpaceSnapshot { capacity: 100 * GIB, available: 50 * GIB, ends: SpaceEnd::NotKnownYet }
    }

    fn store(name: &str) -> DiskSnapshot {
        DiskSnapshot { name: name.into(), space: Some(roomy()), ..DiskSnapshot::default() }
    }

    /// A manager with two stores that nothing is wrong with.
    fn cluster() -> Snapshot {
        Snapshot {
            now: NOW,
            disks: vec![
                DiskSnapshot { is_vital: true, ..store("the manager's data directory") },
                store("s/r/h1"),
                store("s/r/h2"),
            ],
            cluster: Some(ClusterSnapshot {
                space: SpaceSnapshot { capacity: 200 * GIB, available: 100 * GIB, ends: SpaceEnd::NotSoon },
                has_stores: true,
                short_seconds: SHORT_USUAL,
                ..ClusterSnapshot::default()
            }),
            certificate_ends: Some(NOW + 80 * DAY),
            backup: Backup::At(NOW - DAY / 2),
            ..Snapshot::default()
        }
    }

    fn single() -> Snapshot {
        Snapshot {
            now: NOW,
            disks: vec![DiskSnapshot { is_vital: true, ..store("the disk of the data directory") }],
            ..Snapshot::default()
        }
    }

    fn disk_server() -> Snapshot {
        Snapshot {
            now: NOW,
            disks: vec![store("1"), store("2")],
            has_lease: Some(true),
            certificate_ends: Some(NOW + 80 * DAY),
            ..Snapshot::default()
        }
    }

    /// The reasons of a snapshot after a change, with severities.
    fn found(mut snapshot: Snapshot, change: impl FnOnce(&mut Snapshot)) -> Vec<(Reason, Verdict)> {
        change(&mut snapshot);
        let health = judge(&snapshot);
        assert_eq!(
            health.verdict,
            health.reasons.iter().map(|finding| finding.severity).max().unwrap_or(Verdict::Healthy)
        );
        health.reasons.iter().map(|finding| (finding.reason, finding.severity)).collect()
    }

    fn in_cluster(change: impl FnOnce(&mut ClusterSnapshot)) -> Vec<(Reason, Verdict)> {
        found(cluster(), |snapshot| change(snapshot.cluster.as_mut().unwrap()))
    }

    fn count(count: u64) -> Count {
        Count { count, and_more: false }
    }

    #[test]
    fn nothing_wrong_is_healthy() {
        for snapshot in [cluster(), single(), disk_server()] {
            let health = judge(&snapshot);
            assert_eq!((health.verdict, health.reasons.len()), (Verdict::Healthy, 0), "{health:?}");
        }
    }

    #[test]
    fn files_without_replicas_are_reasons() {
        use Reason::{SingleCopyFiles, UnderReplicatedFiles, UnreadableFiles};
        assert_eq!(
            in_cluster(|cluster| cluster.under_replicated = count(3)),
            [(UnderReplicatedFiles, Verdict::Warning)]
        );
        let all = in_cluster(|cluster| {
            cluster.under_replicated = count(3);
            cluster.single_copy = count(2);
            cluster.unreadable = count(1);
        });
        assert_eq!(
            all,
            [
                (UnreadableFiles, Verdict::Critical),
                (SingleCopyFiles, Verdict::Warning),
                (UnderReplicatedFiles, Verdict::Warning)
            ]
        );
        // The search ended before it had found one.
        let unsure = in_cluster(|cluster| cluster.under_replicated = Count { count: 0, and_more: true });
        assert_eq!(unsure, [(UnderReplicatedFiles, Verdict::Warning)]);
    }

    #[test]
    fn files_that_are_under_replicated_for_a_short_time_are_no_reason_while_all_servers_are_there() {
        let short = |change: fn(&mut Snapshot)| {
            found(cluster(), |snapshot| {
                let cluster = snapshot.cluster.as_mut().unwrap();
                (cluster.under_replicated, cluster.short_seconds) = (count(3), SHORT_USUAL - 1);
                change(snapshot);
            })
        };
        let warns =
            |found: &[(Reason, Verdict)]| found.iter().any(|(reason, _)| *reason == Reason::UnderReplicatedFiles);
        assert_eq!(short(|_| ()), []);
        assert!(warns(&short(|snapshot| snapshot.disks[1].state = DiskState::Offline)));
        assert!(warns(&short(|snapshot| snapshot.cluster.as_mut().unwrap().away = vec!["ds1".into()])));
        assert!(warns(&short(|snapshot| snapshot.cluster.as_mut().unwrap().failed_repairs = 1)));
        assert!(warns(&short(|snapshot| snapshot.cluster.as_mut().unwrap().short_seconds = SHORT_USUAL)));
    }

    #[test]
    fn a_manager_that_starts_does_not_judge_what_it_has_not_heard_of() {
        let nothing = SpaceSnapshot::default();
        let starting = |cluster: &mut ClusterSnapshot| {
            (cluster.space, cluster.is_starting, cluster.unreadable) = (nothing, true, count(5));
        };
        assert_eq!(in_cluster(starting), []);
        let heard = in_cluster(|cluster| (cluster.space, cluster.unreadable) = (nothing, count(5)));
        assert_eq!(heard, [(Reason::UnreadableFiles, Verdict::Critical), (Reason::SpaceFull, Verdict::Critical)]);
        let empty = in_cluster(|cluster| (cluster.space, cluster.has_stores) = (nothing, false));
        assert_eq!(empty, [(Reason::SpaceFull, Verdict::Warning)], "nobody has lost anything");
    }

    #[test]
    fn an_offline_or_returned_store_is_a_warning() {
        let state = |state| found(cluster(), |snapshot| snapshot.disks[1].state = state);
        assert_eq!(state(DiskState::Offline), [(Reason::StoreOffline, Verdict::Warning)]);
        assert_eq!(state(DiskState::Returned), [(Reason::StoreReturned, Verdict::Warning)]);
        assert_eq!(state(DiskState::SetAside), []);
        assert_eq!(in_cluster(|cluster| cluster.away = vec!["ds1".into()]), [(Reason::NodeAway, Verdict::Warning)]);
    }

    #[test]
    fn space_that_ends_is_told_by_its_days() {
        let ends = |ends| in_cluster(|cluster| cluster.space.ends = ends);
        assert_eq!(ends(SpaceEnd::NotKnownYet), []);
        assert_eq!(ends(SpaceEnd::InSeconds(8 * DAY)), []);
        assert_eq!(ends(SpaceEnd::InSeconds(7 * DAY)), [(Reason::SpaceEnds, Verdict::Warning)]);
        assert_eq!(ends(SpaceEnd::InSeconds(DAY)), [(Reason::SpaceEnds, Verdict::Critical)]);
        // A single store is never critical, while others have room.
        let of_store = found(cluster(), |snapshot| {
            snapshot.disks[1].space = Some(SpaceSnapshot { ends: SpaceEnd::InSeconds(60), ..roomy() });
        });
        assert_eq!(of_store, [(Reason::SpaceEnds, Verdict::Warning)]);
        let of_node = found(single(), |snapshot| {
            snapshot.disks[0].space = Some(SpaceSnapshot { ends: SpaceEnd::InSeconds(60), ..roomy() });
        });
        assert_eq!(of_node, [(Reason::SpaceEnds, Verdict::Critical)]);
        let mut snapshot = cluster();
        snapshot.cluster.as_mut().unwrap().space.ends = SpaceEnd::InSeconds(3 * DAY + 5);
        let text = &judge(&snapshot).reasons[0].text;
        assert_eq!(text, "all stores together: full in 3 days at the present rate");
    }

    #[test]
    fn little_space_and_none_are_different() {
        let with = |disk: usize, available| {
            move |snapshot: &mut Snapshot| {
                snapshot.disks[disk].space = Some(SpaceSnapshot { available, ..roomy() });
            }
        };
        assert_eq!(found(single(), with(0, 11 * GIB)), []);
        assert_eq!(found(single(), with(0, 10 * GIB)), [(Reason::SpaceLow, Verdict::Warning)]);
        assert_eq!(found(single(), with(0, 0)), [(Reason::SpaceFull, Verdict::Critical)]);
        assert_eq!(found(cluster(), with(0, 0)), [(Reason::SpaceFull, Verdict::Critical)], "the manager's own");
        assert_eq!(found(cluster(), with(1, 0)), [(Reason::SpaceFull, Verdict::Warning)], "one store of two");
        assert_eq!(found(disk_server(), with(1, 0)), [(Reason::SpaceFull, Verdict::Warning)], "one store of two");
        let both = found(disk_server(), |snapshot| {
            with(0, 0)(snapshot);
            with(1, 0)(snapshot);
        });
        assert_eq!(both, [(Reason::SpaceFull, Verdict::Critical)]);
        assert_eq!(in_cluster(|cluster| cluster.space.available = 0), [(Reason::SpaceFull, Verdict::Critical)]);
        assert_eq!(
            in_cluster(|cluster| cluster.space = SpaceSnapshot::default()),
            [(Reason::SpaceFull, Verdict::Critical)],
            "no store takes files"
        );
    }

    #[test]
    fn a_certificate_that_is_not_renewed_is_noticed() {
        let left = |left: u64| found(disk_server(), |snapshot| snapshot.certificate_ends = Some(NOW + left));
        assert_eq!(left(29 * DAY), [], "it is renewed from now on");
        assert_eq!(left(15 * DAY), [(Reason::CertificateEnds, Verdict::Warning)]);
        assert_eq!(left(2 * DAY), [(Reason::CertificateEnds, Verdict::Critical)]);
        let ended = found(disk_server(), |snapshot| snapshot.certificate_ends = Some(NOW - 1));
        assert_eq!(ended, [(Reason::CertificateEnds, Verdict::Critical)]);
    }

    #[test]
    fn a_replacement_of_the_authority_is_shown_until_it_ends() {
        let with = |waiting_for: Vec<String>| {
            let authority_change = Some(AuthorityChange { since: NOW - 3 * DAY, waiting_for });
            judge(&Snapshot { authority_change, ..cluster() })
        };
        let health = with(vec!["disk2 (node 2)".into(), "disk3 (node 3)".into()]);
        assert_eq!(health.verdict, Verdict::Warning);
        assert!(health.reasons[0].text.contains("disk2 (node 2) and 1 more have no certificate"), "{health:?}");
        assert!(with(Vec::new()).reasons[0].text.contains("weir admin authority retire"));
    }

    #[test]
    fn managers_that_could_not_take_over_are_named() {
        let with = |managers| judge(&Snapshot { managers, ..cluster() });
        assert_eq!(with(ManagersSnapshot::default()).verdict, Verdict::Healthy);
        let offline = vec!["mgr2".to_owned(), "mgr3".to_owned()];
        let behind = vec!["mgr4 (node 9)".to_owned()];
        let health = with(ManagersSnapshot { offline, behind, trouble: None });
        assert_eq!((health.verdict, health.reasons[0].reason), (Verdict::Warning, Reason::Managers));
        assert_eq!(
            health.reasons[0].text,
            "managers: mgr2, mgr3 are offline and cannot take over; mgr4 (node 9) has not fetched the present authority and administrators yet"
        );
        let trouble = Some("no connection with the active one".to_owned());
        assert!(with(ManagersSnapshot { trouble, ..ManagersSnapshot::default() }).has(Reason::Managers));
    }

    #[test]
    fn a_backup_is_missed_after_two_days() {
        let with = |backup| found(cluster(), |snapshot| snapshot.backup = backup);
        assert_eq!(with(Backup::NotExpected), []);
        assert_eq!(with(Backup::At(NOW - 2 * DAY)), []);
        assert_eq!(with(Backup::At(NOW - 2 * DAY - 1)), [(Reason::NoBackup, Verdict::Warning)]);
        assert_eq!(with(Backup::NeverSince(NOW - DAY)), [], "the cluster is new");
        assert_eq!(with(Backup::NeverSince(NOW - 3 * DAY)), [(Reason::NoBackup, Verdict::Warning)]);
        assert_eq!(with(Backup::At(NOW + DAY)), [], "a clock that was set back");
    }

    #[test]
    fn the_other_states_of_a_node_are_reasons() {
        assert_eq!(
            found(disk_server(), |snapshot| snapshot.has_lease = Some(false)),
            [(Reason::NoLease, Verdict::Critical)]
        );
        assert_eq!(found(single(), |snapshot| snapshot.damaged = 1), [(Reason::DamagedObjects, Verdict::Critical)]);
        assert_eq!(
            found(single(), |snapshot| snapshot.scrub_trouble = Some("no".into())),
            [(Reason::ScrubFails, Verdict::Warning)]
        );
        assert_eq!(
            found(single(), |snapshot| snapshot.interrupted = count(1)),
            [(Reason::InterruptedFiles, Verdict::Warning)]
        );
        assert_eq!(
            found(single(), |snapshot| snapshot.has_index_trouble = true),
            [(Reason::IndexTrouble, Verdict::Warning)]
        );
        assert_eq!(
            found(single(), |snapshot| snapshot.loses_audit_lines = true),
            [(Reason::AuditLost, Verdict::Warning)]
        );
        let reason = "cannot reach the database postgres://w@db:5432/weir: refused".to_owned();
        let outage = |seconds| {
            judge(&Snapshot { database_outage: Some(DatabaseOutage { seconds, reason: reason.clone() }), ..single() })
        };
        assert_eq!(outage(5).verdict, Verdict::Critical);
        assert!(outage(5).reasons[0].text.ends_with("refused; opens and changes have waited for 5 s"));
        assert!(outage(600).reasons[0].text.ends_with("for 10 minutes"));
        assert_eq!(in_cluster(|cluster| cluster.failed_repairs = 2), [(Reason::RepairsFail, Verdict::Warning)]);
        assert_eq!(
            in_cluster(|cluster| cluster.is_older_than_stores = true),
            [(Reason::OldNamespace, Verdict::Warning)]
        );
        let both = in_cluster(|cluster| (cluster.is_older_than_stores, cluster.is_held) = (true, true));
        assert_eq!(both, [(Reason::OldNamespace, Verdict::Warning)], "said once");
    }

    #[test]
    fn many_stores_make_one_sentence() {
        let mut snapshot = cluster();
        snapshot.disks =
            (1..=5).map(|number| DiskSnapshot { state: DiskState::Offline, ..store(&format!("h{number}")) }).collect();
        let health = judge(&snapshot);
        assert_eq!(health.reasons.len(), 1);
        assert_eq!(health.reasons[0].text, "5 stores are offline: h1, h2, h3 and 2 more");
        assert_eq!(health.figures["stores_offline"], 5);
    }

    #[test]
    fn figures_leave_out_what_is_not_known() {
        let health = judge(&cluster());
        assert_eq!(health.figures["available_bytes"], 100 * GIB);
        assert_eq!(health.figures["certificate_seconds"], 80 * DAY);
        assert_eq!(health.figures["backup_age_seconds"], DAY / 2);
        assert!(!health.figures.contains_key("space_ends_seconds"));
        assert!(!judge(&single()).figures.contains_key("stores_offline"));
    }
}
