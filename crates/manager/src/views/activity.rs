//! The activity reports of disk servers. Each keeps its time, so that an old report is never shown as the present state of a node that is away.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Time;
use serde::{Deserialize, Serialize};
use types::NodeId;

use crate::tracked::Tracked;
use node::Activity;

/// An older report says nothing about the present. Servers report every second.
const FRESH: Duration = Duration::from_secs(3);

/// The last report of each node.
#[derive(Default)]
pub(crate) struct Activities(Tracked<BTreeMap<NodeId, Heard>>);

impl Activities {
    /// A node has connected.
    pub(crate) fn connects(&self, node: NodeId) {
        self.0.lock().entry(node).or_default().connects();
    }

    /// Forgets all other nodes.
    pub(crate) fn retain(&self, stays: impl Fn(NodeId) -> bool) {
        self.0.lock().retain(|node, _| stays(*node));
    }

    /// A node's activity, as last reported.
    pub(crate) fn view(&self, now: Time, node: NodeId) -> Option<ActivityView> {
        self.0.lock().get(&node)?.view(now)
    }

    /// A disk server reports its activity.
    pub(crate) fn hear(&self, now: Time, node: NodeId, said: Activity) {
        self.0.lock().entry(node).or_default().hear(now, said);
    }
}

/// The reports of one node.
#[derive(Clone, Copy, Default, Debug)]
struct Heard {
    last: Option<(Time, Activity)>,
    before: Option<Activity>,
    /// The node has connected since, and may have restarted.
    has_reconnected: bool,
}

/// What a disk server was doing at its last report. Counters start at zero when the server starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActivityView {
    /// The age of the report, in milliseconds.
    pub age_millis: u64,
    /// The report.
    #[serde(flatten)]
    pub activity: Activity,
    /// Between the last two reports. `None` if the last seconds are unknown.
    pub read_bytes_per_second: Option<u64>,
    /// The same, for writes.
    pub written_bytes_per_second: Option<u64>,
}

impl Heard {
    fn hear(&mut self, now: Time, said: Activity) {
        // A restarted server counts from zero.
        let has_reconnected = std::mem::take(&mut self.has_reconnected);
        self.before =
            self.last.map(|(_, last)| last).filter(|last| !has_reconnected && last.up_millis < said.up_millis);
        self.last = Some((now, said));
    }

    fn connects(&mut self) {
        (self.before, self.has_reconnected) = (None, true);
    }

    fn view(&self, now: Time) -> Option<ActivityView> {
        let (at, last) = self.last?;
        let age = now.since(at);
        let before = self.before.filter(|_| age <= FRESH);
        let rate = |of: fn(&Activity) -> u64| {
            let before = before.as_ref()?;
            let millis = u128::from(last.up_millis.checked_sub(before.up_millis).filter(|millis| *millis > 0)?);
            let grown = u128::from(of(&last).saturating_sub(of(before)));
            Some(u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX))
        };
        Some(ActivityView {
            age_millis: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            activity: last,
            read_bytes_per_second: rate(|activity| activity.read_bytes),
            written_bytes_per_second: rate(|activity| activity.written_bytes),
        })
    }
}

impl ActivityView {
    /// Whether the report describes the present.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        u128::from(self.age_millis) <= FRESH.as_millis()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Time {
        Time(Duration::from_secs(seconds))
    }

    fn said(up_millis: u64, read_bytes: u64) -> Activity {
        Activity { up_millis, read_bytes, written_bytes: 2 * read_bytes, open_files: 3, ..Activity::default() }
    }

    fn rates(heard: &Heard, now: Time) -> (Option<u64>, Option<u64>) {
        let view = heard.view(now).unwrap();
        (view.read_bytes_per_second, view.written_bytes_per_second)
    }

    #[test]
    fn rates_use_the_reporting_servers_clock() {
        let mut heard = Heard::default();
        assert_eq!(heard.view(at(1)), None);
        heard.hear(at(10), said(1000, 500));
        assert_eq!(rates(&heard, at(10)), (None, None), "one look is no rate");
        // This report was late, but it still covers two seconds.
        heard.hear(at(13), said(3000, 1500));
        assert_eq!(rates(&heard, at(13)), (Some(500), Some(1000)));
    }

    #[test]
    fn an_old_report_is_shown_with_its_age_and_without_rates() {
        let mut heard = Heard::default();
        heard.hear(at(10), said(1000, 500));
        heard.hear(at(11), said(2000, 1500));
        assert_eq!(rates(&heard, at(14)), (Some(1000), Some(2000)));
        let view = heard.view(at(50)).unwrap();
        assert_eq!((view.age_millis, view.activity.open_files, view.activity.read_bytes), (39_000, 3, 1500));
        assert!(!view.is_fresh());
        assert_eq!(rates(&heard, at(50)), (None, None));
    }

    #[test]
    fn a_restarted_server_is_not_compared_with_its_previous_run() {
        let mut heard = Heard::default();
        heard.hear(at(10), said(5000, 500));
        heard.hear(at(12), said(1000, 700));
        assert_eq!(rates(&heard, at(12)), (None, None));
        // The first run ended soon after its start. The second has already run for longer than that.
        heard.connects();
        heard.hear(at(20), said(7000, 100));
        assert_eq!(rates(&heard, at(20)), (None, None));
        heard.hear(at(21), said(8000, 300));
        assert_eq!(rates(&heard, at(21)), (Some(200), Some(400)));
    }
}
