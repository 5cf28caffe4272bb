//! The pages of a node for those who watch it.

use crate::http::{Reply, Request};

/// One of the pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WatchPage {
    /// `/metrics`: the page that Prometheus reads.
    Metrics,
    /// `/healthz`: whether the process works.
    Alive,
    /// `/readyz`: whether it would serve a client now.
    Ready,
}

/// What a page says: `Err` if the answer is no, or if there is none yet. Both are plain text.
pub type WatchResult = Result<String, String>;

/// Answers `request` with the page at its path, which `page` writes, and with an error elsewhere. A page that says no has the status 503.
pub fn watched(request: Request<'_>, page: &dyn Fn(WatchPage) -> WatchResult) -> Reply {
    let asked = match request.path {
        "/metrics" => Some(WatchPage::Metrics),
        "/healthz" => Some(WatchPage::Alive),
        "/readyz" => Some(WatchPage::Ready),
        _ => None,
    };
    if !matches!(request.method, "GET" | "HEAD") {
        return Reply {
            headers: "Allow: GET, HEAD\r\n",
            ..Reply::text("405 Method Not Allowed", "The pages are read with GET\n")
        };
    }
    let Some(asked) = asked else {
        return Reply::text("404 Not Found", "The pages are /metrics, /healthz and /readyz\n");
    };
    const PLAIN: &str = "Content-Type: text/plain; charset=utf-8\r\nCache-Control: no-store\r\n";
    match page(asked) {
        Ok(body) if asked == WatchPage::Metrics => {
            Reply { status: "200 OK", headers: "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n", body }
        }
        Ok(body) => Reply { status: "200 OK", headers: PLAIN, body },
        Err(body) => Reply { status: "503 Service Unavailable", headers: PLAIN, body },
    }
}
