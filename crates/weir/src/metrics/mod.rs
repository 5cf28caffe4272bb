//! `/metrics`: the node's activity, for Prometheus and for `weir top`, on a port of its own.

mod cluster;
mod gather;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

pub use cluster::ClusterSource;
pub use gather::{JournalSource, Sources};

use crate::Failure;
use crate::exit::Exit;
use status_page::{Request, Responder};

/// Resolves the address `given`. It must be loopback, unless `insecure`. Does not listen.
pub fn address(given: &str, insecure: bool) -> Result<SocketAddr, Failure> {
    status_page::listen::resolve(given, insecure)
        .map_err(|error| Failure::new(error.exit(), error).while_doing(doing(given)))
}

/// Listens for metrics at the address `given`.
pub fn listen(given: &str, insecure: bool) -> Result<TcpListener, Failure> {
    TcpListener::bind(address(given, insecure)?).map_err(|error| {
        Failure::new(Exit::Listen, error)
            .while_doing(format!("{}; is another server there? Port 0 picks a free one", doing(given)))
    })
}

fn doing(given: &str) -> String {
    format!("cannot serve metrics on {given}")
}

/// The running endpoint. It ends when dropped.
pub struct Metrics {
    _responder: Responder,
}

impl Metrics {
    /// Serves the metrics of `sources` to everybody who connects to `listener`.
    pub fn start(listener: TcpListener, sources: Sources) -> Result<Self, Failure> {
        let page = Arc::new(move |request: Request<'_>| status_page::metrics(request, &|| gather::page(&sources)));
        let responder = Responder::start("metrics", listener, page).map_err(|error| {
            Failure::new(Exit::Failed, error).while_doing("cannot start the thread that serves the metrics")
        })?;
        tracing::info!("metrics on http://{}/metrics", responder.address());
        Ok(Self { _responder: responder })
    }
}
