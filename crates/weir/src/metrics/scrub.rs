//! The metrics of the scrub: of a single node, or of each store of a disk server.

use std::sync::Arc;

use maintenance::scrub::position::Tally;
use maintenance::scrub::{Scrub, Status};
use monitor::exposition::{Exposition, Kind};

use crate::store_scrubs::{StoreScrubView, StoreScrubs};

/// The scrubs of a node.
pub(crate) enum ScrubSource {
    /// A manager has no objects.
    None,
    /// The scrub of a single node.
    Node(Arc<Scrub>),
    /// The scrubs of a disk server's stores.
    Stores(Arc<StoreScrubs>),
}

/// One scrub: its store on a disk server, its state, and the number of damaged objects.
struct OneScrub {
    store: Option<String>,
    status: Status,
    damaged: u64,
}

/// The counts of a pass in a status.
pub(crate) fn tally(value: Option<&serde_json::Value>) -> Option<Tally> {
    value.and_then(|value| serde_json::from_value(value.clone()).ok())
}

/// The damaged objects that the scrub of a single node knows of. A pass under way has not seen everything yet.
pub(crate) fn damaged(status: &Status) -> u64 {
    let of = |value| tally(value).map_or(0, |tally| tally.damaged);
    of(status.current.as_ref()).max(of(status.last.as_ref()))
}

impl ScrubSource {
    fn all(&self) -> Vec<OneScrub> {
        match self {
            Self::None => Vec::new(),
            Self::Node(scrub) => {
                let status = scrub.status();
                vec![OneScrub { store: None, damaged: damaged(&status), status }]
            }
            Self::Stores(scrubs) => {
                let one = |view: StoreScrubView| OneScrub {
                    store: Some(view.store.to_string()),
                    status: view.status,
                    damaged: view.damaged_now,
                };
                scrubs.views().into_iter().map(one).collect()
            }
        }
    }

    pub(super) fn tell(&self, out: &mut Exposition) {
        let all = self.all();
        if all.is_empty() {
            return;
        }
        let mut each = |name, help, value: &dyn Fn(&OneScrub) -> Option<u64>| {
            out.family(name, Kind::Gauge, help);
            for one in &all {
                let labels: Vec<_> = one.store.as_deref().map(|store| ("store", store)).into_iter().collect();
                if let Some(value) = value(one) {
                    out.labelled(&labels, value);
                }
            }
        };
        let present = |one: &OneScrub| tally(one.status.current.as_ref().or(one.status.last.as_ref()));
        each("weir_scrub_running", "1 while a pass of the scrub is under way", &|one| {
            Some(u64::from(one.status.running))
        });
        each("weir_scrub_pass", "Number of the present pass of the scrub, or of the last one", &|one| {
            Some(one.status.pass)
        });
        each("weir_scrub_read_bytes", "Bytes that the present pass of the scrub has read, or the last one", &|one| {
            Some(present(one).map_or(0, |tally| tally.bytes))
        });
        each("weir_scrub_damaged_objects", "Objects that are known to be damaged on the disk", &|one| {
            Some(one.damaged)
        });
        each(
            "weir_scrub_last_pass_time_seconds",
            "When the last pass of the scrub ended, in seconds since 1970; no value before the first end",
            &|one| tally(one.status.last.as_ref()).map(|tally| tally.ended),
        );
    }
}
