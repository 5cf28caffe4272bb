//! Issuers that answer in odd ways, or not at all.

use std::time::{Duration, Instant};

use authentication::{Authenticator, FetchTimes, Settings};

use crate::issuer_server::{Authority, DISCOVERY, KEYS, OTHER_DISCOVERY, Page};
use crate::world::{World, principal, refusal, status};

/// Why the keys cannot be fetched. The error names the issuer, and `url`.
fn failure(world: &World, url: &str) -> String {
    let error = failure_of(world, &world.authenticator());
    assert!(error.contains(&format!("at {}{url}: ", world.server.url())), "{error}");
    error
}

fn failure_of(world: &World, authenticator: &Authenticator) -> String {
    let error = refusal(authenticator, &world.token()).to_string();
    assert!(error.contains(&format!("cannot fetch the keys of {}", world.server.url())), "{error}");
    assert_eq!((status(authenticator).fetches_failed, status(authenticator).keys_age), (1, None));
    error
}

fn works(world: &World) {
    assert_eq!(principal(&world.authenticator(), &world.token()).unwrap(), "wlcg-ana");
}

fn redirect(to: &str) -> Page {
    Page::Raw(format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"))
}

#[test]
fn documents_come_in_each_form_that_http_has() {
    let world = World::new();
    let discovery = world.server.discovery().to_string();
    let (one, two) = discovery.split_at(20);
    let chunks = format!("{:x}\r\n{one}\r\n{:X};a=b\r\n{two}\r\n0\r\nA: b\r\n\r\n", one.len(), two.len());
    let head = "HTTP/1.1 200 OK\r\n";
    world.server.put(DISCOVERY, Page::Raw(format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}")));
    works(&world);
    world.server.put(DISCOVERY, Page::Raw(format!("{head}\r\n{discovery}")));
    works(&world);
    // The connection need not end properly if the length says that all is there.
    world.server.put(DISCOVERY, Page::Cut(format!("{head}Content-Length: {}\r\n\r\n{discovery}", discovery.len())));
    works(&world);
}

#[test]
fn a_cut_answer_is_not_taken_for_a_whole_one() {
    let world = World::new();
    let discovery = world.server.discovery().to_string();
    for head in
        [String::new(), format!("Content-Length: {}\r\n", discovery.len() + 1), "Transfer-Encoding: chunked\r\n".into()]
    {
        world.server.put(DISCOVERY, Page::Cut(format!("HTTP/1.1 200 OK\r\n{head}\r\n{discovery}")));
        let error = failure(&world, DISCOVERY);
        assert!(error.contains("closed the connection before") || error.contains("not proper HTTP"), "{head}: {error}");
    }
}

#[test]
fn a_slow_server_is_given_up_in_time() {
    let world = World::new();
    let times = FetchTimes {
        connect: Duration::from_millis(500),
        total: Duration::from_millis(500),
        wait: Duration::from_secs(10),
    };
    for (path, page) in [(DISCOVERY, Page::Hang), (DISCOVERY, Page::Drip), (KEYS, Page::Drip)] {
        world.server.publish(&[world.key.public("first")]);
        world.server.put(path, page);
        let begun = Instant::now();
        let error = failure_of(&world, &world.with(Settings { fetch: times, ..world.settings() }));
        assert!(error.contains(path) && error.contains("not complete in time"), "{error}");
        assert!(begun.elapsed() < Duration::from_secs(4));
    }
}

#[test]
fn an_answer_without_end_is_refused() {
    let world = World::new();
    for page in [Page::Endless, Page::Raw("HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n{".into())] {
        world.server.put(KEYS, page);
        assert!(failure(&world, KEYS).contains("more than 262144 bytes"));
    }
    world.server.put(DISCOVERY, Page::Endless);
    assert!(failure(&world, DISCOVERY).contains("more than 262144 bytes"));
}

#[test]
fn redirects_are_followed_a_little_and_only_over_tls() {
    let world = World::new();
    let discovery = world.server.discovery().to_string();
    world.server.put("/d", Page::Json(discovery));
    world.server.put("/c", redirect("/d"));
    world.server.put("/b", redirect(&format!("{}/c", world.server.url())));
    world.server.put(DISCOVERY, redirect("/b"));
    works(&world);
    world.server.put("/a", redirect("/b"));
    world.server.put(DISCOVERY, redirect("/a"));
    assert!(failure(&world, DISCOVERY).contains("redirected more than 3 times"));
    world.server.put(DISCOVERY, redirect(DISCOVERY));
    assert!(failure(&world, DISCOVERY).contains("redirected more than 3 times"));
    world.server.put(DISCOVERY, redirect("/gone"));
    let gone = format!("{DISCOVERY}: redirected to {}/gone: the server answered 404 Not Found", world.server.url());
    let error = failure(&world, DISCOVERY);
    assert!(error.contains(&gone), "{error}");
    world.server.put(DISCOVERY, redirect("http://localhost/d"));
    assert!(failure(&world, DISCOVERY).contains("it does not begin with `https://`"));
    world.server.put(DISCOVERY, Page::Raw("HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n".into()));
    assert!(failure(&world, DISCOVERY).contains("the server answered 302"));
}

#[test]
fn only_the_right_server_is_believed() {
    let world = World::new();
    world.server.set_config(world.authority.server("other.example.org"));
    assert!(failure(&world, DISCOVERY).contains("the server cannot be trusted"));
    world.server.set_config(Authority::new().server("localhost"));
    let error = failure(&world, DISCOVERY);
    assert!(error.contains("the server cannot be trusted"), "{error}");
    assert!(!error.contains(OTHER_DISCOVERY), "the same server is not asked again: {error}");
    world.server.set_config(world.authority.server("localhost"));
    works(&world);
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let world = World::new();
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port()
    };
    let fails = |url: &str| {
        let mut settings = world.settings();
        settings.issuers = vec![world.issuer(url)];
        settings.mapping.identity[0].issuer = Some(url.into());
        let mut claims = world.claims(1);
        claims["iss"] = url.into();
        refusal(&world.with(settings), &world.key.token("first", &claims)).to_string()
    };
    let error = fails(&format!("https://localhost:{port}"));
    assert!(error.contains("cannot connect to ") && error.contains(&format!(":{port}: ")), "{error}");
    let error = fails("https://no-such-host.invalid/x");
    assert!(error.contains("cannot look up the address of no-such-host.invalid"), "{error}");
}

#[test]
fn wrong_content_is_refused() {
    let world = World::new();
    let page = |text: &str| Page::Json(text.into());
    world.server.put(DISCOVERY, page("<html>"));
    let error = failure(&world, DISCOVERY);
    assert!(error.contains("not a JSON object"), "{error}");
    assert!(error.contains(&format!("{OTHER_DISCOVERY}: the server answered 404")), "{error}");
    world.server.put(DISCOVERY, page(r#"{"issuer": "https://other.example.org", "jwks_uri": "https://a.example/"}"#));
    assert!(failure(&world, DISCOVERY).contains("is about the issuer `https://other.example.org`"));
    let insecure = world.server.discovery().to_string().replace(r#""jwks_uri":"https"#, r#""jwks_uri":"http"#);
    world.server.put(DISCOVERY, page(&insecure));
    assert!(failure(&world, DISCOVERY).contains("`jwks_uri`"));
    world.server.put(DISCOVERY, Page::Raw("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx".into()));
    assert!(failure(&world, DISCOVERY).contains("encoding `gzip`"));
    world.server.put(DISCOVERY, Page::Raw("SSH-2.0\r\n".into()));
    assert!(failure(&world, DISCOVERY).contains("not proper HTTP"));
    world.server.publish(&[]);
    world.server.put(KEYS, page("[]"));
    let error = failure(&world, KEYS);
    assert!(error.contains("JWKS document") && !error.contains(OTHER_DISCOVERY), "{error}");
    world.server.put(KEYS, Page::Raw("HTTP/1.1 500 Oops\r\n\r\nit broke".into()));
    assert!(failure(&world, KEYS).contains("the server answered 500 Oops"));
}

#[test]
fn the_second_place_of_the_document_is_tried() {
    let world = World::new();
    for first in [Page::Raw("HTTP/1.1 404 Not Found\r\n\r\n".into()), Page::Json("<html>".into())] {
        world.server.put(DISCOVERY, first);
        world.server.put(OTHER_DISCOVERY, Page::Json(world.server.discovery().to_string()));
        works(&world);
    }
}
