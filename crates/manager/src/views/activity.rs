//! What disk servers say of what they do: kept as it was said last, with when that was, so that it is never taken for the present of a node that is away.

use std::collections::BTreeMap;
use std::time::Duration;

use cluster::Time;
use serde::{Deserialize, Serialize};
use types::NodeId;

use crate::Manager;
use crate::tracked::Tracked;
use node::Activity;

/// What is older than this says nothing of the present. Servers say something every second.
const FRESH: Duration = Duration::from_secs(3);

/// What all nodes have said last.
#[derive(Default)]
pub(crate) struct Activities(Tracked<BTreeMap<NodeId, Heard>>);

impl Activities {
    /// A node has connected.
    pub(crate) fn connects(&self, node: NodeId) {
        self.0.lock().entry(node).or_default().connects();
    }

    /// Forgets all others.
    pub(crate) fn retain(&self, stays: impl Fn(NodeId) -> bool) {
        self.0.lock().retain(|node, _| stays(*node));
    }

    /// What a node does, as it said last.
    pub(crate) fn view(&self, now: Time, node: NodeId) -> Option<ActivityView> {
        self.0.lock().get(&node)?.view(now)
    }
}

/// What a node has said of what it does.
#[derive(Clone, Copy, Default, Debug)]
struct Heard {
    last: Option<(Time, Activity)>,
    before: Option<Activity>,
    /// It has connected since: perhaps it has begun anew, too.
    is_anew: bool,
}

/// What a disk server does, as it said last. What only grows is counted from the beginning of its run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ActivityView {
    /// How long ago it said so, in milliseconds.
    pub age_millis: u64,
    /// How long it had run then, in milliseconds.
    pub up_millis: u64,
    /// Clients that were logged in.
    pub sessions: u64,
    /// Files that they had open.
    pub open_files: u64,
    /// Files that were written there, or waited for their writer.
    pub writing: u64,
    /// Bytes that clients had read.
    pub read_bytes: u64,
    /// Bytes that clients had sent to be written.
    pub written_bytes: u64,
    /// Bytes of memory that what was written there might hold.
    pub writers_memory: u64,
    /// The most that it should: who comes with more is told to wait.
    pub writers_memory_max: u64,
    /// Between the last two times that it said so; `None`: nothing is known of the last seconds.
    pub read_bytes_per_second: Option<u64>,
    /// The same.
    pub written_bytes_per_second: Option<u64>,
}

impl Heard {
    fn hear(&mut self, now: Time, said: Activity) {
        // One that has begun anew counts anew.
        let is_anew = std::mem::take(&mut self.is_anew);
        self.before = self.last.map(|(_, last)| last).filter(|last| !is_anew && last.up_millis < said.up_millis);
        self.last = Some((now, said));
    }

    fn connects(&mut self) {
        (self.before, self.is_anew) = (None, true);
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
            up_millis: last.up_millis,
            sessions: last.sessions,
            open_files: last.open_files,
            writing: last.writing,
            read_bytes: last.read_bytes,
            written_bytes: last.written_bytes,
            writers_memory: last.writers_memory,
            writers_memory_max: last.writers_memory_max,
            read_bytes_per_second: rate(|activity| activity.read_bytes),
            written_bytes_per_second: rate(|activity| activity.written_bytes),
        })
    }
}

impl ActivityView {
    /// It says something of the present.
    #[must_use]
    pub fn is_fresh(&self) -> bool {
        u128::from(self.age_millis) <= FRESH.as_millis()
    }
}

impl Manager {
    /// A disk server says what it does.
    pub(crate) fn active(&self, node: NodeId, said: Activity) {
        let now = self.world.now();
        self.activities.0.lock().entry(node).or_default().hear(now, said);
        self.rooms.hear(node, &said);
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
    fn rates_are_by_the_clock_of_who_counts() {
        let mut heard = Heard::default();
        assert_eq!(heard.view(at(1)), None);
        heard.hear(at(10), said(1000, 500));
        assert_eq!(rates(&heard, at(10)), (None, None), "one look is no rate");
        // Late on the way: it was two seconds nevertheless.
        heard.hear(at(13), said(3000, 1500));
        assert_eq!(rates(&heard, at(13)), (Some(500), Some(1000)));
    }

    #[test]
    fn what_is_old_is_shown_with_its_age_and_without_rates() {
        let mut heard = Heard::default();
        heard.hear(at(10), said(1000, 500));
        heard.hear(at(11), said(2000, 1500));
        assert_eq!(rates(&heard, at(14)), (Some(1000), Some(2000)));
        let view = heard.view(at(50)).unwrap();
        assert_eq!((view.age_millis, view.open_files, view.read_bytes), (39_000, 3, 1500));
        assert!(!view.is_fresh());
        assert_eq!(rates(&heard, at(50)), (None, None));
    }

    #[test]
    fn who_begins_anew_is_not_compared_with_the_run_before() {
        let mut heard = Heard::default();
        heard.hear(at(10), said(5000, 500));
        heard.hear(at(12), said(1000, 700));
        assert_eq!(rates(&heard, at(12)), (None, None));
        // It had ended soon after its start, and has already run for longer than then.
        heard.connects();
        heard.hear(at(20), said(7000, 100));
        assert_eq!(rates(&heard, at(20)), (None, None));
        heard.hear(at(21), said(8000, 300));
        assert_eq!(rates(&heard, at(21)), (Some(200), Some(400)));
    }
}
