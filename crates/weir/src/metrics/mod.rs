//! The port for those who watch the node: `/metrics` for Prometheus and `weir top`, `/healthz` and `/readyz` for whoever starts and restarts
//! it. It answers from before the node reads its journals until the node has stopped.

mod cluster;
mod database;
mod gather;
mod scrub;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

pub use cluster::ClusterSource;
pub use gather::{JournalSource, Sources};
use parking_lot::Mutex;
pub(crate) use scrub::ScrubSource;
pub(crate) use scrub::damaged as damaged_of_scrub;
use status_page::{Request, Responder, WatchPage, WatchResult};

use crate::Failure;
use crate::exit::Exit;

/// Resolves the address `given`. It must be loopback, unless `insecure`. Does not listen.
pub fn address(given: &str, insecure: bool) -> Result<SocketAddr, Failure> {
    status_page::listen::resolve(given, insecure)
        .map_err(|error| Failure::new(error.exit(), error).while_doing(doing(given)))
}

fn doing(given: &str) -> String {
    format!("cannot serve metrics on {given}")
}

/// What the node does.
enum Stage {
    /// It opens its data directory, and reads its journals again.
    Starting,
    /// It serves clients, or tries to.
    Serving(Box<Sources>),
    /// It stops.
    Stopping,
}

/// The running port, or none. It ends when dropped.
pub struct Metrics {
    stage: Arc<Mutex<Stage>>,
    _responder: Option<Responder>,
}

impl Metrics {
    /// No port.
    #[must_use]
    pub fn nowhere() -> Self {
        Self { stage: Arc::new(Mutex::new(Stage::Starting)), _responder: None }
    }

    /// Listens at the address `given`, if there is one, and answers everybody who connects: the node is starting.
    pub fn start(given: Option<&str>, insecure: bool) -> Result<Self, Failure> {
        let Some(given) = given else { return Ok(Self::nowhere()) };
        let listener = TcpListener::bind(address(given, insecure)?).map_err(|error| {
            Failure::new(Exit::Listen, error)
                .while_doing(format!("{}; is another server there? Port 0 picks a free one", doing(given)))
        })?;
        let stage = Arc::new(Mutex::new(Stage::Starting));
        let inner = Arc::clone(&stage);
        let page =
            Arc::new(move |request: Request<'_>| status_page::watched(request, &|page| told(page, &inner.lock())));
        let responder = Responder::start("metrics", listener, page).map_err(|error| {
            Failure::new(Exit::Failed, error).while_doing("cannot start the thread that serves the metrics")
        })?;
        tracing::info!("metrics on http://{}/metrics", responder.address());
        Ok(Self { stage, _responder: Some(responder) })
    }

    /// From now on the metrics are those of `sources`.
    pub fn serve(&self, sources: Sources) {
        *self.stage.lock() = Stage::Serving(Box::new(sources));
    }

    /// From now on the node is starting again: it takes another role. The caller may close what the metrics are of.
    pub fn starting(&self) {
        let before = std::mem::replace(&mut *self.stage.lock(), Stage::Starting);
        drop(before);
    }

    /// From now on the node is not ready, and has no metrics.
    pub fn stopping(&self) {
        // What the sources hold is let go without the lock.
        let before = std::mem::replace(&mut *self.stage.lock(), Stage::Stopping);
        drop(before);
    }
}

fn told(page: WatchPage, stage: &Stage) -> WatchResult {
    let why = match stage {
        Stage::Serving(sources) => match page {
            WatchPage::Metrics => return Ok(gather::page(sources)),
            WatchPage::Alive => {
                return sources.is_working().map(|()| "alive\n".into()).map_err(|why| no("broken", &why));
            }
            WatchPage::Ready => {
                return sources.is_serving().map(|()| "ready\n".into()).map_err(|why| no("not ready", &why));
            }
        },
        Stage::Starting => "the node is starting: it opens its data directory and reads its journal again",
        Stage::Stopping => "the node is stopping",
    };
    match page {
        WatchPage::Alive => Ok(format!("alive: {why}\n")),
        WatchPage::Metrics | WatchPage::Ready => Err(no("not ready", why)),
    }
}

fn no(what: &str, why: &str) -> String {
    format!("{what}: {why}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_starts_or_stops_is_alive_and_not_ready() {
        for (stage, why) in [(Stage::Starting, "is starting"), (Stage::Stopping, "is stopping")] {
            let alive = told(WatchPage::Alive, &stage).unwrap();
            assert!(alive.starts_with("alive: ") && alive.contains(why) && alive.ends_with('\n'), "{alive}");
            for page in [WatchPage::Ready, WatchPage::Metrics] {
                let not_ready = told(page, &stage).unwrap_err();
                assert!(not_ready.starts_with("not ready: ") && not_ready.contains(why), "{not_ready}");
            }
        }
    }
}
