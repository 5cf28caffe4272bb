//! TLS and credentials, mostly against servers that do not do what they should. Good servers are in the tests of the whole
//! program.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)] // a test may fail this way

mod server;

use std::io::{self, Read as _, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use server::*;
use weir_client::{
    Chunk, Client, ClientError, Credentials, Method, OpenOptions, Reader, Session, Settings, Token, TokenSource, Url,
};

fn content() -> Vec<u8> {
    (0..8 << 20).map(|n: usize| u8::try_from(n / 3 % 251).unwrap()).collect()
}

fn whole(client: &mut Client, url: &Url) -> Vec<u8> {
    let file = client.open(url, OpenOptions::READ, 0).unwrap();
    let len = usize::try_from(file.stat().size).unwrap();
    let (mut reader, mut found) = (Reader::new(file), vec![0; len]);
    // Odd sizes: the ends of answers, records and packets differ.
    let (mut asked, size) = (0, 1_000_003);
    while asked < len {
        let part = size.min(len - asked);
        reader.ask(asked as u64, part, vec![0; part]).unwrap();
        asked += part;
    }
    while let Some(Chunk { offset, len, buffer }) = reader.wait().unwrap() {
        let offset = usize::try_from(offset).unwrap();
        found[offset..offset + len].copy_from_slice(&buffer[..len]);
    }
    reader.close().unwrap();
    found
}

fn refused(url: &Url, settings: &Settings) -> (ClientError, Duration) {
    let began = Instant::now();
    let error = Session::connect(url, settings).expect_err("it is not a good server");
    (error, began.elapsed())
}

fn with_scheme(url: &Url, tls: bool) -> Url {
    Url { tls, ..url.clone() }
}

#[test]
fn bytes_arrive_whole_over_one_connection() {
    let site = Arc::new(Site::new(&["localhost", "127.0.0.1"]));
    let (served, all) = (Arc::clone(&site), content());
    let (url, connections) = serve("localhost", move |peer| good(peer, &served, &all));
    let mut client = Client::new(site.settings());
    assert!(whole(&mut client, &url) == content());
    let session = client.take_session(&url).unwrap();
    assert!(session.is_encrypted());
    client.give_back(session, &url);
    for _ in 0..3 {
        assert_eq!(client.stat(&url).unwrap().size, 8 << 20);
    }
    let used = connections.load(Ordering::Relaxed);
    assert!(used <= 2, "{used} connections: what TLS sends by itself ends none");
    // The same by its address.
    let by_address = Url::parse(&url.to_string().replace("localhost", "127.0.0.1")).unwrap();
    assert!(Session::connect(&by_address, &site.settings()).unwrap().is_encrypted());
}

#[test]
fn a_limited_rate_loses_nothing() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (served, all) = (Arc::clone(&site), content());
    let (url, _) = serve("localhost", move |peer| good(peer, &served, &all[..700_000]));
    let settings = Settings { rate: weir_client::RateLimit::of(4 << 20), ..site.settings() };
    assert!(whole(&mut Client::new(settings), &url) == content()[..700_000]);
}

#[test]
fn a_server_must_have_the_name_and_a_trusted_authority() {
    let site = Arc::new(Site::new(&["localhost"]));
    let served = Arc::clone(&site);
    let logins = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&logins);
    let (url, _) = serve("localhost", move |peer| {
        peer.greet(HAVE_TLS | GOTO_TLS)?;
        peer.start_tls(&served)?;
        peer.next().map(|_| counted.fetch_add(1, Ordering::Relaxed)).map(drop)
    });
    let other_name = Url::parse(&url.to_string().replace("localhost", "127.0.0.1")).unwrap();
    let (error, _) = refused(&other_name, &site.settings());
    let text = error.to_string();
    assert!(matches!(error, ClientError::Tls { .. }) && text.contains("a name that is in the certificate"), "{text}");
    let (error, _) = refused(&url, &Site::new(&["localhost"]).settings());
    assert!(error.to_string().contains("X509_CERT_DIR"), "{error}");
    let nowhere = weir_client::Authorities::of(vec![tls::TrustSource::File("/nowhere/at/all".into())]);
    let (error, _) = refused(&url, &Settings { authorities: nowhere, ..site.settings() });
    let text = error.to_string();
    assert!(matches!(error, ClientError::Authorities { .. }) && text.contains("/nowhere/at/all"), "{text}");
    assert_eq!(logins.load(Ordering::Relaxed), 0, "nothing may be sent to it");
}

#[test]
fn whoever_wants_tls_gets_it_or_nothing() {
    let site = Site::new(&["localhost"]);
    for flags in [0, HAVE_TLS, HAVE_TLS | TLS_SESSION] {
        let (sender, seen) = std::sync::mpsc::channel();
        let (url, _) = serve("localhost", move |peer| {
            let wish = peer.greet(flags)?;
            let mut more = Vec::new();
            peer.socket.read_to_end(&mut more)?;
            sender.send((wish, more)).map_err(io::Error::other)
        });
        let (error, _) = refused(&url, &site.settings());
        assert!(matches!(error, ClientError::NoTls { .. }), "{flags:x}: {error}");
        assert!(error.to_string().contains("roots://"), "{error}");
        assert_eq!(seen.recv().unwrap(), (0x07, vec![]), "{flags:x}");
    }
}

#[test]
fn without_roots_the_server_decides() {
    let site = Arc::new(Site::new(&["localhost"]));
    for (flags, is_encrypted) in
        [(0, false), (HAVE_TLS, false), (HAVE_TLS | GOTO_TLS, true), (HAVE_TLS | TLS_SESSION, true)]
    {
        let (served, seen) = (Arc::clone(&site), Arc::new(Mutex::new(Vec::new())));
        let wishes = Arc::clone(&seen);
        let (url, connections) = serve("localhost", move |peer| {
            let wish = peer.greet(flags)?;
            wishes.lock().unwrap().push(wish);
            if flags & GOTO_TLS != 0 {
                peer.start_tls(&served)?;
            }
            peer.login(b"")?;
            if flags & TLS_SESSION != 0 {
                peer.start_tls(&served)?;
            }
            serve_file(peer, b"content")
        });
        let url = with_scheme(&url, false);
        let mut client = Client::new(site.settings());
        assert!(whole(&mut client, &url) == b"content");
        let session = client.take_session(&url).unwrap();
        assert_eq!(session.is_encrypted(), is_encrypted, "{flags:x}");
        client.give_back(session, &url);
        client.stat(&url).unwrap();
        assert!(connections.load(Ordering::Relaxed) <= 2, "{flags:x}");
        assert!(seen.lock().unwrap().iter().all(|wish| *wish == 0x03), "it can, and does not ask for it");
        // A connection in the clear does not serve an address that asks for TLS.
        let wants = with_scheme(&url, true);
        if flags & TLS_SESSION == 0 && !is_encrypted {
            let before = connections.load(Ordering::Relaxed);
            assert!(client.stat(&wants).is_err());
            assert!(connections.load(Ordering::Relaxed) > before, "{flags:x}");
        }
    }
}

#[test]
fn a_handshake_that_goes_wrong_ends_in_time() {
    let site = Arc::new(Site::new(&["localhost"]));
    type Wrong = fn(&mut Peer) -> io::Result<()>;
    let wrongs: [(&str, Wrong); 6] = [
        ("closes", |peer| peer.socket.shutdown(std::net::Shutdown::Both)),
        ("garbage", |peer| {
            peer.hear()?;
            peer.socket.write_all(&[0x55; 5000])
        }),
        ("silence", |_| {
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        }),
        ("half a record and silence", |peer| {
            peer.hear()?;
            peer.socket.write_all(&[0x16, 3, 3, 0x10, 0, 2, 0, 0])?;
            std::thread::sleep(Duration::from_secs(20));
            Ok(())
        }),
        ("a byte at a time", |peer| {
            peer.hear()?;
            for byte in [0x16, 3, 3, 0x40, 0, 2, 0, 0x3f, 0xfc].into_iter().chain(std::iter::repeat_n(0, 200)) {
                peer.socket.write_all(&[byte])?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        }),
        ("an endless handshake", |peer| {
            peer.hear()?;
            loop {
                // Records of a change of ciphers, which mean nothing.
                peer.socket.write_all(&[0x14, 3, 3, 0, 1, 1].repeat(1000))?;
            }
        }),
    ];
    for (name, wrong) in wrongs {
        let (url, _) = serve("localhost", move |peer| {
            peer.greet(HAVE_TLS | GOTO_TLS)?;
            wrong(peer)
        });
        for tls in [true, false] {
            let (error, took) = refused(&with_scheme(&url, tls), &site.settings());
            assert!(took < Duration::from_secs(4), "{name}: {took:?}: {error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn nobody_can_slip_in_bytes_before_tls_begins() {
    let site = Arc::new(Site::new(&["localhost"]));
    let served = Arc::clone(&site);
    let (url, _) = serve("localhost", move |peer| {
        // In one packet with the answer that begins TLS: an answer to the login.
        let mut hello = [0; 20];
        peer.socket.read_exact(&mut hello)?;
        let asked = peer.next()?;
        let slipped = [&asked.head[..1], &[2, 0, 0, 0, 0, 0, 16], &[9; 16]].concat();
        let flags = (HAVE_TLS | GOTO_TLS | IS_SERVER).to_be_bytes();
        let answer = [&asked.head[..2], &[0, 0, 0, 0, 0, 8], &0x511_u32.to_be_bytes(), &flags].concat();
        let hello = [&[0, 0, 0, 0, 0, 0, 0, 8][..], &0x511_u32.to_be_bytes(), &1_u32.to_be_bytes()].concat();
        peer.put(&[hello, answer, slipped].concat())?;
        peer.start_tls(&served)?;
        serve_file(peer, b"")
    });
    let (error, _) = refused(&url, &site.settings());
    assert!(error.to_string().contains("in the clear"), "{error}");
}

#[test]
fn a_redirect_keeps_tls() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (served, all) = (Arc::clone(&site), content());
    let (target, _) = serve("localhost", move |peer| good(peer, &served, &all));
    let (clear, _) = serve("localhost", |peer| {
        peer.greet(0)?;
        peer.login(b"")?;
        panic!("nobody may log in here");
    });
    let to = |target: &Url, scheme: Option<&str>| {
        let (host, port) = match scheme {
            None => (target.server.host.clone(), i32::from(target.server.port)),
            // A whole address: the port has flags.
            Some(scheme) => (format!("{scheme}://{}//file", target.server), -1),
        };
        [&port.to_be_bytes()[..], host.as_bytes()].concat()
    };
    for scheme in [None, Some("root"), Some("roots")] {
        let (body, to_clear) = (to(&target, scheme), to(&clear, scheme));
        let served = Arc::clone(&site);
        let (url, _) = serve("localhost", move |peer| {
            assert_eq!(peer.greet(HAVE_TLS | GOTO_TLS)?, 0x07);
            peer.start_tls(&served)?;
            peer.login(b"")?;
            loop {
                let asked = peer.next()?;
                let body = if asked.data.starts_with(b"/clear") { &to_clear } else { &body };
                peer.answer(&asked, REDIRECT, body)?;
            }
        });
        let mut client = Client::new(site.settings());
        assert!(whole(&mut client, &url) == content(), "{scheme:?}");
        let error = client.stat(&Url { path: "/clear".to_owned(), ..url.clone() });
        if scheme.is_none() {
            assert!(matches!(error, Err(ClientError::NoTls { .. })), "{scheme:?}: {error:?}");
        } else {
            assert!(error.is_err(), "{scheme:?}");
        }
    }
}

#[test]
fn a_lost_connection_comes_back_encrypted() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (served, all, lost) = (Arc::clone(&site), content(), AtomicUsize::new(0));
    let (url, connections) = serve("localhost", move |peer| {
        assert_eq!(peer.greet(HAVE_TLS | GOTO_TLS)?, 0x07);
        peer.start_tls(&served)?;
        peer.login(b"")?;
        if lost.fetch_add(1, Ordering::Relaxed) < 2 {
            // It opens the file, sends half an answer, and goes.
            let stat = format!("7 {} 48 1000\0", all.len());
            loop {
                let asked = peer.next()?;
                match asked.kind {
                    OPEN => peer.answer(&asked, OK, &[&[1, 2, 3, 4][..], &[0; 8], stat.as_bytes()].concat())?,
                    READ => {
                        peer.put(&[&asked.head[..2], &[0, 0], &1_000_003_u32.to_be_bytes(), &all[..500_000]].concat())?;
                        return peer.socket.shutdown(std::net::Shutdown::Both);
                    }
                    _ => peer.answer(&asked, OK, &[])?,
                }
            }
        }
        serve_file(peer, &all)
    });
    assert!(whole(&mut Client::new(site.settings()), &url) == content());
    assert_eq!(connections.load(Ordering::Relaxed), 3);
}

/// What a server has been shown.
type Shown = Arc<Mutex<Vec<Vec<u8>>>>;

/// A server that offers `methods`, and treats the credentials so.
fn asking(
    site: &Arc<Site>,
    tls: bool,
    methods: &'static [u8],
    verdict: impl Fn(&mut Peer, &Asked) -> io::Result<()> + Send + Sync + 'static,
) -> (Url, Shown) {
    let (site, shown) = (Arc::clone(site), Shown::default());
    let all = Arc::clone(&shown);
    let (url, _) = serve("localhost", move |peer| {
        let flags = if tls { HAVE_TLS | GOTO_TLS } else { 0 };
        peer.greet(flags)?;
        if tls {
            peer.start_tls(&site)?;
        }
        peer.login(methods)?;
        loop {
            let asked = peer.next()?;
            if asked.kind != AUTH {
                peer.answer(&asked, OK, &[])?;
                continue;
            }
            all.lock().unwrap().push([&asked.head[16..20], &asked.data].concat());
            verdict(peer, &asked)?;
        }
    });
    (with_scheme(&url, tls), shown)
}

fn accepts(peer: &mut Peer, asked: &Asked) -> io::Result<()> {
    peer.answer(asked, OK, &[])
}

/// A client with a token, and all methods.
fn with_token(site: &Site, token: &'static str) -> Settings {
    let source = TokenSource::from(move || Token::new(token).map_err(str::to_owned));
    Settings { credentials: Credentials { token: source, ..Credentials::only(&Method::ALL) }, ..site.settings() }
}

#[test]
fn the_first_method_that_works_is_used() {
    let site = Arc::new(Site::new(&["localhost"]));
    let token = b"ztn\0ztn\0\0T\0\0\0\x0dsecret.token\0".to_vec();
    let (url, shown) = asking(&site, true, b"&P=gsi,v:10600&P=ztn,0:4096:&P=unix\0", accepts);
    Session::connect(&url, &with_token(&site, "secret.token")).unwrap();
    assert_eq!(*shown.lock().unwrap(), std::slice::from_ref(&token));
    // A refusal leads to the next.
    let (url, shown) = asking(&site, true, b"&P=ztn,0:4096:&P=unix&P=host", |peer, asked| {
        if asked.data.starts_with(b"host") { accepts(peer, asked) } else { peer.refuse(asked, "not you") }
    });
    Session::connect(&url, &with_token(&site, "secret.token")).unwrap();
    let shown = shown.lock().unwrap().clone();
    assert_eq!((shown.len(), &shown[0], shown[2].as_slice()), (3, &token, &b"hosthost\0"[..]));
    assert!(shown[1].starts_with(b"unixunix\0") && shown[1].ends_with(b"\0"));
}

#[test]
fn a_token_never_travels_in_the_clear() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (url, shown) = asking(&site, false, b"&P=ztn,0:4096:", accepts);
    let (error, _) = refused(&url, &with_token(&site, "secret.token"));
    let text = error.to_string();
    assert!(text.contains("ztn") && text.contains("roots://") && !text.contains("secret"), "{text}");
    assert!(shown.lock().unwrap().is_empty());
    // Not even if the server would go on to TLS after the login.
    let served = Arc::clone(&site);
    let sent = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&sent);
    let (url, _) = serve("localhost", move |peer| {
        peer.greet(HAVE_TLS | TLS_SESSION)?;
        peer.login(b"&P=ztn,0:4096:")?;
        peer.next().map(|_| counted.fetch_add(1, Ordering::Relaxed))?;
        peer.start_tls(&served)
    });
    let (error, _) = refused(&with_scheme(&url, false), &with_token(&site, "secret.token"));
    assert!(matches!(error, ClientError::Authentication { .. }), "{error}");
    assert_eq!(sent.load(Ordering::Relaxed), 0);
}

#[test]
fn an_error_says_what_the_server_offers_and_why_nothing_fits() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (url, _) = asking(&site, true, b"&P=krb5,x@Y&P=ztn,0:10:&P=unix&P=host", |peer, asked| {
        peer.refuse(asked, "go away")?;
        peer.socket.shutdown(std::net::Shutdown::Both)
    });
    let settings = with_token(&site, "secret.token");
    let credentials = Credentials { methods: vec![Method::Ztn, Method::Host], ..settings.credentials.clone() };
    let (error, _) = refused(&url, &Settings { credentials, ..settings });
    let text = error.to_string();
    for part in
        ["krb5 (", "does not speak", "ztn (the token is longer", "unix (", "XrdSecPROTOCOL", "host (", "go away"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("secret") && error.kind() == weir_client::Kind::Denied, "{text}");
}

#[test]
fn hostile_lists_and_questions_end() {
    let site = Arc::new(Site::new(&["localhost"]));
    let (url, shown) = asking(&site, true, b"&P=host", |peer, asked| peer.answer(asked, AUTH_MORE, &[0; 1000]));
    let (error, _) = refused(&url, &with_token(&site, "x.y"));
    assert!(error.to_string().contains("asks for more"), "{error}");
    assert_eq!(shown.lock().unwrap().len(), 1);
    let huge: &'static [u8] = Box::leak(b"&P=ztn,0:4096:".repeat(100_000).into_boxed_slice());
    for list in [huge, b"no list at all", b"\xff\0\0\xff", b"&P=&P=&P="] {
        let (url, shown) = asking(&site, true, list, accepts);
        let (error, took) = refused(&url, &with_token(&site, "x.y"));
        assert!(error.to_string().len() < 2000 && took < Duration::from_secs(3), "{error}");
        assert!(shown.lock().unwrap().is_empty());
    }
    // An answer that is none.
    let (url, _) = asking(&site, true, b"&P=host", |peer, asked| peer.answer(asked, REDIRECT, &[0, 0, 4, 70, b'h']));
    assert!(Session::connect(&url, &with_token(&site, "x.y")).is_err());
}
