//! The page that Prometheus reads.

use crate::http::{Reply, Request};

/// Answers `request` with the metrics at `/metrics` and with an error elsewhere; `page` writes the metrics.
pub fn metrics(request: Request<'_>, page: &dyn Fn() -> String) -> Reply {
    match (request.method, request.path) {
        ("GET" | "HEAD", "/metrics") => Reply {
            status: "200 OK",
            headers: "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n",
            body: page(),
        },
        ("GET" | "HEAD", _) => Reply::text("404 Not Found", "The metrics are at /metrics\n"),
        _ => Reply {
            headers: "Allow: GET, HEAD\r\n",
            ..Reply::text("405 Method Not Allowed", "The metrics are read with GET\n")
        },
    }
}
