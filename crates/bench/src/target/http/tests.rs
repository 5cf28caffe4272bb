//! Tests against servers with scripted answers.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use client::Settings;

use super::{Agent, HttpError, HttpUrl, Reply, Request, Upload};

/// A server that gives one of these answers to each request in turn. It closes a connection after `per_connection`
/// answers. After all answers it returns the requests.
struct Server {
    url: HttpUrl,
    thread: std::thread::JoinHandle<Vec<String>>,
}

impl Server {
    fn of(per_connection: usize, answers: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = HttpUrl::parse(&format!("http://{}/d", listener.local_addr().unwrap())).unwrap();
        let answers: Vec<String> = answers.iter().map(|text| text.replace('\n', "\r\n")).collect();
        let thread = std::thread::spawn(move || {
            let mut asked = Vec::new();
            for some in answers.chunks(per_connection) {
                let (mut socket, _) = listener.accept().unwrap();
                for answer in some {
                    let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
                    while !bytes.ends_with(b"\r\n\r\n") && !bytes.ends_with(b"</D:propfind>") {
                        match socket.read(&mut piece) {
                            Ok(0) | Err(_) => break,
                            Ok(len) => bytes.extend_from_slice(&piece[..len]),
                        }
                    }
                    asked.push(String::from_utf8_lossy(&bytes).into_owned());
                    let _ = socket.write_all(answer.as_bytes());
                }
            }
            asked
        });
        Self { url, thread }
    }

    fn asked(self) -> Vec<String> {
        self.thread.join().unwrap()
    }
}

fn agent(url: &HttpUrl) -> Agent {
    let settings = Settings { silence_max: Duration::from_secs(2), redirects_max: 3, ..Settings::default() };
    Agent::new(url, &settings).unwrap()
}

fn get(agent: &Agent, url: &HttpUrl) -> Result<Reply, HttpError> {
    agent.ask(url, &Request { method: "GET", ..Request::default() })
}

fn body(agent: &Agent, url: &HttpUrl) -> Result<String, HttpError> {
    let mut bytes = vec![0; 1000];
    let len = get(agent, url)?.read_full(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..len]).into_owned())
}

const OK: &str = "HTTP/1.1 200 OK\nContent-Length: 2\n\nok";

#[test]
fn bodies_of_all_kinds_are_read_and_connections_kept() {
    let chunked = "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n3;x=y\nabc\n0A\n0123456789\n0\nX-Trailer: 1\n\n";
    let interim = "HTTP/1.1 100 Continue\n\nHTTP/1.1 102 Processing\n\nHTTP/1.1 200 OK\nContent-Length: 4\n\nlate";
    let server = Server::of(4, &[OK, chunked, interim, OK]);
    let agent = agent(&server.url);
    let found: Vec<_> = (0..4).map(|_| body(&agent, &server.url).unwrap()).collect();
    assert_eq!(found, ["ok", "abc0123456789", "late", "ok"]);
    assert!(server.asked().iter().all(|asked| asked.starts_with("GET /d HTTP/1.1\r\nHost: 127.0.0.1:")));
}

#[test]
fn a_connection_that_the_server_has_closed_is_not_used_again() {
    let to_the_end = "HTTP/1.0 200 OK\n\nall there is";
    let server = Server::of(1, &[OK, to_the_end, OK]);
    let agent = agent(&server.url);
    let mut found = Vec::new();
    for _ in 0..3 {
        found.push(body(&agent, &server.url).unwrap());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(found, ["ok", "all there is", "ok"]);
}

#[test]
fn a_range_ends_where_the_file_does_whatever_is_announced() {
    let beyond = "HTTP/1.1 206 Partial Content\nContent-Length: 100\nContent-Range: bytes 8-107/10\n\nxy";
    let behind = "HTTP/1.1 206 Partial Content\nContent-Length: 100\nContent-Range: bytes 10-109/10\n\n";
    let server = Server::of(1, &[beyond, behind, OK]);
    let agent = agent(&server.url);
    let found: Vec<_> = (0..3).map(|_| body(&agent, &server.url).unwrap()).collect();
    assert_eq!(found, ["xy", "", "ok"]);
}

#[test]
fn invalid_answers_are_reported() {
    let endless = format!("HTTP/1.1 200 OK\nX: {}", "x".repeat(100_000));
    for (answer, part) in [
        ("SSH-2.0-x\n\n", "not an HTTP answer"),
        ("HTTP/1.1 200 OK\nContent-Length: 9\n\nfour", "before its answer was complete"),
        ("HTTP/1.1 200 OK\nContent-Length: -1\n\n", "no number"),
        ("HTTP/1.1 200 OK\nContent-Length: 1\nContent-Length: 2\n\n", "two different"),
        ("HTTP/1.1 200 OK\nContent-Length: 1\nTransfer-Encoding: chunked\n\n", "in chunks"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\nFFFFFFFFFFFFFFFFF\n", "no number"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked\n\n1\nabc\n", "exceeds its length"),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: gzip\n\n", "not asked for"),
        (endless.as_str(), "does not end"),
        ("HTTP/1.1 307 Away\nLocation: ftp://x/\nContent-Length: 0\n\n", "was redirected"),
        ("HTTP/1.1 403 No\nContent-Length: 3\n\nno!", "403 No"),
        ("", "before its answer was complete"),
    ] {
        let server = Server::of(1, &[answer]);
        let error = body(&agent(&server.url), &server.url).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn redirects_come_to_an_end() {
    let away = "HTTP/1.1 307 Away\nLocation: /d\nContent-Length: 0\n\n";
    let server = Server::of(8, &[away; 4]);
    let error = body(&agent(&server.url), &server.url).unwrap_err().to_string();
    assert!(error.contains("more than 3 redirects"), "{error}");
    assert_eq!(server.asked().len(), 4);
}

#[test]
fn silence_comes_to_an_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = HttpUrl::parse(&format!("http://{}/d", listener.local_addr().unwrap())).unwrap();
    let begun = Instant::now();
    let error = body(&agent(&url), &url).unwrap_err().to_string();
    assert!(error.contains("nothing for 2 s") && begun.elapsed() < Duration::from_secs(10), "{error}");
}

#[test]
fn an_upload_goes_where_the_server_wants_it_and_begins_with_its_consent() {
    let disk = Server::of(2, &["HTTP/1.1 100 Continue\n\n", "HTTP/1.1 201 Created\nContent-Length: 0\n\n"]);
    let away = format!("HTTP/1.1 307 Away\nLocation: {}/f?key=1\nContent-Length: 0\n\n", disk.url);
    let door = Server::of(1, &[&away]);
    let mut upload = Upload::begin(&agent(&door.url), &door.url, 12, &[]).unwrap();
    upload.send(b"12345678\r\n").unwrap();
    upload.send(b"\r\n").unwrap();
    upload.finish().unwrap();
    let asked = disk.asked();
    assert!(
        asked[0].starts_with("PUT /d/f?key=1 HTTP/1.1") && asked[0].contains("Content-Length: 12\r\n"),
        "{asked:?}"
    );
    assert_eq!(asked[1], "12345678\r\n\r\n");
}

#[test]
fn an_upload_that_is_refused_says_why() {
    let full = "HTTP/1.1 507 Insufficient Storage\nContent-Length: 0\n\n";
    let server = Server::of(1, &[full]);
    let Err(error) = Upload::begin(&agent(&server.url), &server.url, 3, &[]) else { panic!("it was taken") };
    assert!(error.to_string().contains("507 Insufficient Storage"), "{error}");
    // A refusal in the middle, too. Fewer bytes than announced make no file.
    let server =
        Server::of(1, &["HTTP/1.1 100 Continue\n\nHTTP/1.1 507 Full\nContent-Length: 0\nConnection: close\n\n"]);
    let mut upload = Upload::begin(&agent(&server.url), &server.url, 1 << 30, &[]).unwrap();
    let piece = vec![7; 1 << 20];
    let error = (0..1000).find_map(|_| upload.send(&piece).err()).unwrap().to_string();
    assert!(error.contains("507 Full"), "{error}");
}
