//! The live page: one page without outside resources, which asks for news once a second.
//!
//! Each run has a random key. It stands in the fragment of the page's URL, which browsers send to nobody; the page sends it with each
//! request. So no other user of this machine, and no foreign page, can see or stop the run.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use console::{Exit, Failure};
use serde::Serialize;
use status_page::listen::{is_loopback, resolve};
use status_page::{Reply, Request, Responder};

use super::DisplayState;

const PAGE: &str = include_str!("page.html");
const HTML: &str = "Content-Type: text/html; charset=utf-8\r\nCache-Control: no-store\r\nContent-Security-Policy: default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'\r\n";
const JSON: &str = "Content-Type: application/json\r\nCache-Control: no-store\r\n";

/// The answer to the page's request.
#[derive(Serialize)]
struct Live {
    trial: String,
    phase: String,
    stopping: bool,
    #[serde(flatten)]
    view: bench::coordinate::View,
}

/// The page; it ends when this is dropped.
pub(crate) struct Web {
    responder: Responder,
    key: String,
}

impl Web {
    /// Serves `sight` at `given`. The page can set `stop`. Only on loopback, unless `has_token`.
    pub(crate) fn start(
        given: &str,
        has_token: bool,
        sight: DisplayState,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, Failure> {
        let doing = || format!("cannot show the run on {given}");
        let address: SocketAddr =
            resolve(given, true).map_err(|error| Failure::new(Exit::Usage, error).while_doing(doing()))?;
        if !has_token && !is_loopback(address) {
            return Err(Failure::message(
                Exit::Listen,
                format!(
                    "{}: it can be reached from other machines; give --token-file, or show it on 127.0.0.1",
                    doing()
                ),
            ));
        }
        let listening = |error| Failure::new(Exit::Listen, error).while_doing(doing());
        let listener = TcpListener::bind(address).map_err(listening)?;
        let key: String = rand::random::<[u8; 16]>().iter().map(|byte| format!("{byte:02x}")).collect();
        let (stop, wanted) = (Arc::clone(stop), key.clone());
        let page = Arc::new(move |request: Request<'_>| reply(request, &wanted, &sight, &stop));
        let responder = Responder::start("web", listener, page).map_err(listening)?;
        Ok(Self { responder, key })
    }

    /// The URL for a browser.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/#{}", self.responder.address(), self.key)
    }
}

fn reply(request: Request<'_>, key: &str, sight: &DisplayState, stop: &AtomicBool) -> Reply {
    let has_key = request.header("authorization").and_then(|value| value.strip_prefix("Bearer ")) == Some(key);
    match (request.method, request.path) {
        ("GET" | "HEAD", "/") => Reply { status: "200 OK", headers: HTML, body: PAGE.to_owned() },
        ("GET", "/live.json") | ("POST", "/stop") if !has_key => {
            Reply::text("401 Unauthorized", "The key is missing: use the address that `weir bench` has printed\n")
        }
        ("GET", "/live.json") => {
            let doing = sight.doing();
            let view = sight.view().unwrap_or_default();
            let live = Live { trial: doing.trial, phase: doing.phase, stopping: stop.load(Ordering::Relaxed), view };
            match serde_json::to_string(&live) {
                Ok(body) => Reply { status: "200 OK", headers: JSON, body },
                Err(error) => Reply::text("500 Internal Server Error", &format!("{error}\n")),
            }
        }
        ("POST", "/stop") => {
            stop.store(true, Ordering::Relaxed);
            Reply { status: "200 OK", headers: JSON, body: "{}".to_owned() }
        }
        (_, "/" | "/live.json" | "/stop") => Reply::text("405 Method Not Allowed", "Not in this way\n"),
        _ => Reply::text("404 Not Found", "The page is at /\n"),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn only_the_key_lets_a_browser_see_and_stop_the_run() {
        let stop = Arc::new(AtomicBool::new(false));
        let web = Web::start("127.0.0.1:0", false, DisplayState::default(), &stop).unwrap();
        let ask = |line: &str, key: &str| {
            let mut socket = TcpStream::connect(web.responder.address()).unwrap();
            write!(socket, "{line} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {key}\r\n\r\n").unwrap();
            let mut text = String::new();
            socket.read_to_string(&mut text).unwrap();
            text
        };
        let key = web.url().split_once('#').unwrap().1.to_owned();
        assert_eq!(key.len(), 32);
        let page = ask("GET /", "");
        assert!(page.contains("<!doctype html>") && page.contains("Content-Security-Policy") && !page.contains(&key));
        assert!(ask("GET /live.json", "x").starts_with("HTTP/1.1 401"));
        assert!(ask("POST /stop", "").starts_with("HTTP/1.1 401") && !stop.load(Ordering::Relaxed));
        let live = ask("GET /live.json", &key);
        assert!(live.starts_with("HTTP/1.1 200") && live.contains("\"agents\":[]"), "{live}");
        assert!(ask("GET /stop", &key).starts_with("HTTP/1.1 405") && !stop.load(Ordering::Relaxed));
        assert!(ask("POST /stop", &key).starts_with("HTTP/1.1 200") && stop.load(Ordering::Relaxed));
        assert!(ask("GET /other", &key).starts_with("HTTP/1.1 404"));
    }

    #[test]
    fn the_page_is_on_the_network_only_with_a_token() {
        let stop = Arc::new(AtomicBool::new(false));
        let refused = Web::start("0.0.0.0:0", false, DisplayState::default(), &stop).err().unwrap();
        assert_eq!(refused.exit, Exit::Listen);
        assert!(refused.to_string().contains("--token-file"), "{refused}");
        assert!(Web::start("0.0.0.0:0", true, DisplayState::default(), &stop).is_ok());
        assert_eq!(Web::start("nowhere", true, DisplayState::default(), &stop).err().unwrap().exit, Exit::Usage);
    }
}
