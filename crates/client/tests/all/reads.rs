//! Reads, mostly of many parts at once, against small test servers. One answers correctly but cuts its answers in
//! odd ways, and others answer wrongly.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use types::{ObjectId, Stripe};
use weir_client::{
    Algorithm, Client, ClientError, Endpoint, ManyReader, OpenOptions, Reader, RemoteFile, SEGMENT_MAX, Settings, Span,
    StripedAt, StripedReader, Url,
};

use crate::server::{OK, OPEN, READ, REDIRECT, answering};

const OK_SO_FAR: u16 = 4000;
const ERROR: u16 = 4003;
const WAIT: u16 = 4005;
const READV: u16 = 3025;
const LEN: usize = 8 << 20;
/// The length of the file `/small`.
const SMALL: usize = 1000;

fn content() -> Vec<u8> {
    (0..LEN).map(|n| u8::try_from(n / 3 % 251).unwrap()).collect()
}

/// A server's answers to a read: status and body of each frame. The function gets the request's number and the
/// correct answer.
type Answers = dyn Fn(usize, Vec<u8>) -> Vec<(u16, Vec<u8>)> + Send + Sync;

/// Serves one file of [`content`] under any name.
fn server(answers: impl Fn(usize, Vec<u8>) -> Vec<(u16, Vec<u8>)> + Send + Sync + 'static) -> (Url, Arc<AtomicUsize>) {
    let (count, answers): (_, Box<Answers>) = (Arc::new(AtomicUsize::new(0)), Box::new(answers));
    let (counted, content) = (Arc::clone(&count), content());
    let url = answering(move |kind, head, data| match kind {
        OPEN => {
            let len = if data.starts_with(b"/small") { SMALL } else { LEN };
            let (stat, beginning) = (format!("1 {len} 16 1000\0"), &content[..(usize::from(head[10]) << 10).min(len)]);
            vec![(OK, [&[1, 2, 3, 4][..], &[0; 8], stat.as_bytes(), beginning].concat())]
        }
        READ => answers(counted.fetch_add(1, Ordering::Relaxed), part(head, &content)),
        READV => answers(counted.fetch_add(1, Ordering::Relaxed), right(data, &content)),
        _ => vec![(OK, vec![])],
    });
    (url, count)
}

/// The opens that a redirecting server gets, and where it leads each of them.
struct Leads {
    url: Url,
    opens: Arc<Mutex<Vec<String>>>,
}

/// A server that redirects opens: to these, one after the other, with these words, and then always to the last one.
fn redirector(to: &[(&Url, &str)]) -> Leads {
    let to: Vec<Vec<u8>> = to
        .iter()
        .map(|(url, words)| [&u32::from(url.server.port).to_be_bytes()[..], b"127.0.0.1", words.as_bytes()].concat())
        .collect();
    let opens = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&opens);
    let url = answering(move |kind, _, data| {
        assert_eq!(kind, OPEN);
        let mut seen = seen.lock().unwrap();
        seen.push(String::from_utf8(data.to_vec()).unwrap());
        vec![(REDIRECT, to[(seen.len() - 1).min(to.len() - 1)].clone())]
    });
    Leads { url, opens }
}

fn part(head: &[u8; 24], content: &[u8]) -> Vec<u8> {
    let offset = usize::try_from(u64::from_be_bytes(head[8..16].try_into().unwrap())).unwrap();
    let len = u32::from_be_bytes(head[16..20].try_into().unwrap()) as usize;
    content[offset..offset + len].to_vec()
}

fn right(segments: &[u8], content: &[u8]) -> Vec<u8> {
    assert!(segments.len() <= 1024 * 16);
    let one = |segment: &[u8]| {
        let len = u32::from_be_bytes(segment[4..8].try_into().unwrap()) as usize;
        let offset = usize::try_from(u64::from_be_bytes(segment[8..16].try_into().unwrap())).unwrap();
        assert!(len <= SEGMENT_MAX);
        [segment, &content[offset..offset + len]].concat()
    };
    segments.chunks(16).flat_map(one).collect()
}

fn client() -> Client {
    Client::new(Settings {
        silence_max: Duration::from_secs(2),
        recovery_max: Duration::from_secs(3),
        wait_max: Duration::from_secs(5),
        ..Settings::default()
    })
}

fn open(url: &Url) -> RemoteFile {
    client().open(url, OpenOptions::READ, 0).unwrap()
}

/// Where the same server is found behind a proxy, which delays the first messages of a connection, so many each way, by
/// `one_way`. The proxy itself is near.
fn behind_a_proxy(server: &Url, one_way: Duration, messages: usize) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut url = server.clone();
    url.server.port = listener.local_addr().unwrap().port();
    let target = (server.server.host.clone(), server.server.port);
    let forward = move |mut from: TcpStream, mut to: TcpStream| {
        let (mut buffer, mut left) = (vec![0; 1 << 16], messages);
        while let Ok(len @ 1..) = from.read(&mut buffer) {
            if left > 0 {
                left -= 1;
                std::thread::sleep(one_way);
            }
            if to.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
    };
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let server = TcpStream::connect((target.0.as_str(), target.1)).unwrap();
            let (client_too, server_too) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || forward(client, server));
            std::thread::spawn(move || forward(server_too, client_too));
        }
    });
    url
}

#[test]
fn a_server_behind_a_proxy_is_as_far_away_as_its_answers_are() {
    let (url, _) = server(|_, whole| vec![(OK, whole)]);
    let settings = Settings { window: 64, ..Settings::default() };
    let far = behind_a_proxy(&url, Duration::from_millis(20), usize::MAX);
    let file = Client::new(settings).open(&far, OpenOptions::READ, 0).unwrap();
    assert_eq!(file.window_for(4 << 20), 64, "a round trip of 40 ms");
}

/// What a manager of weir adds to its redirects.
const CHOSEN: &str = "?weir.cap=c&weir.object=0000000000000007";

fn good_server() -> Url {
    server(|_, whole| vec![(OK, whole)]).0
}

#[test]
fn a_manager_of_weir_is_told_which_servers_are_in_use() {
    let (first, second) = (good_server(), good_server());
    let manager = redirector(&[(&first, CHOSEN), (&second, CHOSEN)]);
    let mut client = client();
    let file = client.open(&manager.url, OpenOptions::READ, 0).unwrap();
    assert!(file.may_have_replicas() && file.url().server == first.server);
    let another = client.open_at_another(&manager.url, &[first.server], Duration::MAX).unwrap();
    assert!(another.file.url().server == second.server && !another.was_rejected);
    let opens = manager.opens.lock().unwrap();
    assert_eq!(opens.len(), 2);
    assert!(!opens[0].contains("tried"), "{opens:?}");
    assert!(opens[1].contains("tried=127.0.0.1") && opens[1].contains("triedrc=resel"), "{opens:?}");
}

#[test]
fn a_stock_server_that_leads_to_a_manager_of_weir_gets_no_hints() {
    let disk = good_server();
    let manager = redirector(&[(&disk, CHOSEN)]);
    let stock = redirector(&[(&manager.url, "")]);
    let opened = |url: &Url| open(url).may_have_replicas();
    assert!(opened(&manager.url) && !opened(&stock.url) && !opened(&disk));
    let plain = redirector(&[(&disk, "")]);
    assert!(!opened(&plain.url));
    let mut words = plain.url.clone();
    words.add_words(CHOSEN);
    assert!(!opened(&words), "the redirect must say it");
}

#[test]
fn only_a_server_that_stays_far_away_is_rejected() {
    let (near, first, second) = (Duration::from_millis(10), good_server(), good_server());
    let used = [first.server.clone()];
    let far = behind_a_proxy(&second, Duration::from_millis(50), usize::MAX);
    let manager = redirector(&[(&far, CHOSEN), (&first, CHOSEN)]);
    let another = client().open_at_another(&manager.url, &used, near).unwrap();
    assert!(another.was_rejected && another.file.url().server == first.server);
    let opens = manager.opens.lock().unwrap();
    assert!(opens.len() == 2 && !opens[1].contains("tried"), "{opens:?}");
    // The login and the open take long, and nothing behind them.
    let busy = behind_a_proxy(&second, Duration::from_millis(50), 3);
    let manager = redirector(&[(&busy, CHOSEN), (&first, CHOSEN)]);
    let another = client().open_at_another(&manager.url, &used, near).unwrap();
    assert!(!another.was_rejected && another.file.url().server == busy.server);
    // The manager knows no other.
    let manager = redirector(&[(&far, CHOSEN), (&first, CHOSEN)]);
    let another = client().open_at_another(&manager.url, std::slice::from_ref(&far.server), near).unwrap();
    assert!(!another.was_rejected && another.file.url().server == far.server);
}

#[test]
fn a_server_that_refuses_a_further_connection_is_rejected() {
    let first = good_server();
    let refusing = answering(|_, _, _| vec![(ERROR, [&3005_u32.to_be_bytes()[..], b"no\0"].concat())]);
    let manager = redirector(&[(&refusing, CHOSEN), (&first, CHOSEN)]);
    let another = client().open_at_another(&manager.url, std::slice::from_ref(&first.server), Duration::MAX).unwrap();
    assert!(another.was_rejected && another.file.url().server == first.server);
}

#[test]
fn a_failed_server_is_no_server_in_use() {
    let (first, second) = (good_server(), good_server());
    // It has no listener any more.
    let gone = Url::parse(&format!(
        "root://127.0.0.1:{}//file",
        TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
    ));
    let manager = redirector(&[(&gone.unwrap(), CHOSEN), (&second, CHOSEN)]);
    let other = Endpoint { host: "elsewhere".to_owned(), ..first.server };
    let another = client().open_at_another(&manager.url, &[other], Duration::MAX).unwrap();
    assert_eq!((another.file.url().server.clone(), another.was_rejected), (second.server, false));
    let opens = manager.opens.lock().unwrap();
    assert!(opens[0].contains("tried=elsewhere&triedrc=resel"), "{opens:?}");
    assert!(opens[1].contains("tried=elsewhere,127.0.0.1") && !opens[1].contains("triedrc"), "{opens:?}");
}

#[test]
fn a_read_of_a_striped_file_ends_with_the_first_unit_that_is_silent() {
    let silent = Arc::new(AtomicBool::new(false));
    let is_silent = Arc::clone(&silent);
    let (url, count) =
        server(move |_, whole| if is_silent.load(Ordering::Relaxed) { vec![] } else { vec![(OK, whole)] });
    let (chunk, settings) = (64 << 10, client().settings().clone());
    let at = StripedAt { url, stripe: Stripe::new(4, chunk).unwrap() };
    let reader = StripedReader::open(at, ObjectId(7), &[], &settings).unwrap();
    let spans: Vec<Span> = (0..4).map(|unit| Span { offset: unit * chunk, len: 100 }).collect();
    let read_first = |units: usize| {
        let mut found = [0; 400];
        reader.read_spans(&spans[..units], &mut found).map(|trips| (trips.requests, trips.in_turn, found))
    };
    let fails = |units: usize| {
        let begun = Instant::now();
        let failed = read_first(units).unwrap_err();
        assert!(matches!(failed, ClientError::Silent { .. }), "{failed}");
        begun.elapsed()
    };
    // Each unit has the same bytes.
    let expected = (4, 1, <[u8; 400]>::try_from(content()[..100].repeat(4)).unwrap());
    assert_eq!(read_first(4).unwrap(), expected);
    silent.store(true, Ordering::Relaxed);
    let of_one = fails(1);
    let before = count.load(Ordering::Relaxed);
    let of_all = fails(4);
    assert!(of_all < 2 * of_one, "{of_all:?}, and {of_one:?} if only one is silent");
    assert!(count.load(Ordering::Relaxed) >= before + 4, "all were asked");
    silent.store(false, Ordering::Relaxed);
    assert_eq!(read_first(4).unwrap(), expected, "over new connections");
}

/// Small spans, one of several segments, and an empty one.
fn spans() -> Vec<Span> {
    let mut spans: Vec<Span> = (0..3000_usize).map(|n| Span { offset: n as u64 * 977, len: 1 + n % 50 }).collect();
    spans.insert(5, Span { offset: 100_000, len: 2 * SEGMENT_MAX + 17 });
    spans.insert(9, Span { offset: 3, len: 0 });
    spans
}

fn expected(spans: &[Span]) -> Vec<u8> {
    let content = content();
    let begin = |span: &Span| usize::try_from(span.offset).unwrap();
    spans.iter().flat_map(|span| content[begin(span)..begin(span) + span.len].to_vec()).collect()
}

fn refusal(answers: impl Fn(usize, Vec<u8>) -> Vec<(u16, Vec<u8>)> + Send + Sync + 'static) -> ClientError {
    let spans: Vec<Span> = (0..10).map(|n| Span { offset: n * 1000, len: 100 }).collect();
    open(&server(answers).0).read_spans(&spans, &mut [0; 1000]).unwrap_err()
}

#[test]
fn answers_may_be_cut_anywhere() {
    let spans = spans();
    let expected = expected(&spans);
    for piece in [usize::MAX, 100_003, 1009] {
        let (url, count) = server(move |_, whole| {
            let mut frames: Vec<_> =
                whole.chunks(piece.min(whole.len())).map(|part| (OK_SO_FAR, part.to_vec())).collect();
            frames.last_mut().unwrap().0 = OK;
            frames
        });
        let mut found = vec![0; expected.len() + 3];
        let trips = open(&url).read_spans(&spans, &mut found).unwrap();
        assert!(found[..expected.len()] == expected[..], "{piece}");
        assert_eq!((trips.requests, trips.in_turn, count.load(Ordering::Relaxed)), (3, 1, 3));
    }
}

/// Redirects the client at the request with this number, and answers all others correctly.
fn sends_away(number: usize) -> impl Fn(usize, Vec<u8>) -> Vec<(u16, Vec<u8>)> + Send + Sync + 'static {
    let elsewhere = [&1094_u32.to_be_bytes()[..], b"127.0.0.1"].concat();
    move |asked, whole| vec![if asked == number { (REDIRECT, elsewhere.clone()) } else { (OK, whole) }]
}

#[test]
fn a_redirected_request_is_sent_again() {
    let spans = spans();
    let expected = expected(&spans);
    let mut found = vec![0; expected.len()];
    open(&server(sends_away(1)).0).read_spans(&spans, &mut found).unwrap();
    assert!(found == expected);

    const PART: usize = 100_000;
    let mut reader = Reader::new(open(&server(sends_away(1)).0));
    for n in 0..3 {
        reader.ask((n * PART) as u64, PART, vec![0; PART]).unwrap();
    }
    assert!(rest_of(&mut reader, 3 * PART) == content()[..3 * PART]);
}

/// What comes in the parts that a reader still waits for, from the beginning of the file.
fn rest_of(reader: &mut Reader<Vec<u8>>, len: usize) -> Vec<u8> {
    let mut found = vec![0; len];
    while let Some(chunk) = reader.wait().unwrap() {
        let at = usize::try_from(chunk.offset).unwrap();
        found[at..at + chunk.len].copy_from_slice(&chunk.buffer[..chunk.len]);
    }
    found
}

#[test]
fn a_reader_requests_only_what_did_not_come_with_the_open() {
    const BEGINNING: usize = 64 << 10;
    for part in [1000, BEGINNING - 1, BEGINNING, BEGINNING + 1, 100_000] {
        let requested = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requested);
        let (url, _) = server(move |number, whole| {
            counted.fetch_add(whole.len(), Ordering::Relaxed);
            // The connection ends before the first answer is complete. The panic closes it.
            assert!(number > 0, "as it is meant");
            vec![(OK, whole)]
        });
        let mut reader = Reader::new(client().open_to_read(&url, 64).unwrap());
        let parts = (BEGINNING + 1).div_ceil(part);
        for n in 0..parts {
            reader.ask((n * part) as u64, part, vec![0; part]).unwrap();
        }
        assert_eq!(reader.under_way(), parts);
        assert!(reader.file_mut().is_none());
        assert!(rest_of(&mut reader, parts * part) == content()[..parts * part], "{part}");
        // The first request was in vain, and all of them were sent again.
        let rest = parts * part - BEGINNING;
        assert!((rest..=2 * rest).contains(&requested.load(Ordering::Relaxed)), "{part}");
        assert!(reader.file_mut().is_some());
        // The bytes are for one reading of the file. The next one asks the server.
        let before = requested.load(Ordering::Relaxed);
        reader.ask(0, part, vec![0; part]).unwrap();
        assert!(rest_of(&mut reader, part) == content()[..part], "{part}");
        assert_eq!(requested.load(Ordering::Relaxed) - before, part);
    }
}

#[test]
fn a_small_file_that_came_with_its_open_needs_a_checksum() {
    let (url, count) = server(|_, whole| vec![(OK, whole)]);
    // The server has no checksum. That is no fault of a file whose pages were checked.
    let read = |path: &str, expected: usize, algorithm| {
        count.store(0, Ordering::Relaxed);
        let mut many = ManyReader::new(client().take_session(&url).unwrap(), algorithm);
        many.ask(path.to_owned(), expected, ()).unwrap();
        let result = many.wait().unwrap().unwrap().result;
        many.into_session().unwrap();
        (result, count.load(Ordering::Relaxed))
    };
    let (sum, small) = (Some(Algorithm::Crc32c), content()[..SMALL].to_vec());
    let (result, requests) = read("/small", SMALL, sum);
    assert!(matches!(result, Err(ClientError::Unexpected { .. })), "{result:?}");
    assert_eq!(requests, 0);
    // Its beginning is asked for only if all of it is expected to come, and if it can be checked.
    for (expected, algorithm) in [(65_537, sum), (SMALL, None)] {
        let (result, requests) = read("/small", expected, algorithm);
        assert!(result.unwrap() == small && requests == 1, "{expected}");
    }
    // The file is longer than its beginning.
    let (result, requests) = read("/file", SMALL, sum);
    assert!(result.unwrap() == content() && requests == LEN >> 20);
}

#[test]
fn a_beginning_is_ready_at_once_except_of_a_file_that_grows() {
    let (url, count) = server(|_, whole| vec![(OK, whole)]);
    let mut reader = Reader::new(client().open_to_read(&url, 1).unwrap());
    reader.ask(24, 1000, vec![0; 1000]).unwrap();
    let chunk = reader.wait_until(std::time::Instant::now()).unwrap().unwrap();
    assert_eq!((chunk.offset, chunk.len, count.load(Ordering::Relaxed)), (24, 1000, 0));
    assert!(chunk.buffer == content()[24..1024]);
    reader.ask(0, 10, vec![0; 10]).unwrap();
    assert!(reader.give_up().is_some(), "a part that is ready keeps nobody waiting");

    let mut reader = Reader::growing(client().open_to_read(&url, 1).unwrap());
    let before = count.load(Ordering::Relaxed);
    reader.ask(0, 1000, vec![0; 1000]).unwrap();
    assert!(rest_of(&mut reader, 1000) == content()[..1000]);
    assert_eq!(count.load(Ordering::Relaxed), before + 1, "it may have more by now");
}

#[test]
fn a_growing_file_that_rests_may_move_as_often_as_it_likes() {
    let elsewhere = [&1094_u32.to_be_bytes()[..], b"127.0.0.1"].concat();
    let (url, _) = server(move |number, whole| match number {
        40 => vec![(OK, whole)],
        _ if number % 2 == 0 => vec![(REDIRECT, elsewhere.clone())],
        _ => vec![(OK, vec![])],
    });
    let mut reader = Reader::growing(open(&url));
    let mut read = || {
        reader.ask(0, 100, vec![0; 100]).unwrap();
        reader.wait().unwrap().unwrap().len
    };
    assert!((0..20).all(|_| read() == 0));
    assert_eq!(read(), 100);
}

#[test]
fn a_server_may_ask_to_wait_and_lose_the_connection() {
    let spans = spans();
    let (url, count) = server(|number, whole| match number {
        0 => vec![(WAIT, vec![0, 0, 0, 0, b'x'])],
        // Half an answer, and then nothing. The panic closes the connection.
        2 => panic!("as it is meant"),
        _ => vec![(OK, whole)],
    });
    let expected = expected(&spans);
    let mut found = vec![0; expected.len()];
    open(&url).read_spans(&spans, &mut found).unwrap();
    assert!(found == expected && count.load(Ordering::Relaxed) >= 5);
}

#[test]
fn reading_nothing_sends_no_request() {
    let (url, count) = server(|_, whole| vec![(OK, whole)]);
    let mut file = open(&url);
    assert_eq!(file.read_spans(&[], &mut []).unwrap().requests, 0);
    assert_eq!(file.read_spans(&[Span { offset: 5, len: 0 }], &mut []).unwrap().requests, 0);
    assert!(matches!(file.read_spans(&[Span { offset: 5, len: 2 }], &mut [0]), Err(ClientError::Shorter { .. })));
    assert_eq!(count.load(Ordering::Relaxed), 0);
}

#[test]
fn answers_that_do_not_match_the_request_are_refused() {
    let change = |at: usize, to: u8| {
        refusal(move |_, mut whole| {
            whole[at] = to;
            vec![(OK, whole)]
        })
    };
    let said = |error: ClientError| match error {
        ClientError::Unexpected { what, .. } => what,
        other => panic!("{other:?}"),
    };
    assert!(said(change(3, 9)).contains("were asked for"), "another file");
    assert!(said(change(7, 101)).contains("101 bytes at 0 where 100 bytes at 0"), "another length");
    assert!(said(change(116 + 15, 0)).contains("where 100 bytes at 1000"), "another place");
    let short = refusal(|_, whole| vec![(OK, whole[..whole.len() - 116].to_vec())]);
    assert!(said(short).contains("9 segments where 10"));
    let half = refusal(|_, whole| vec![(OK, whole[..whole.len() - 1].to_vec())]);
    assert!(said(half).contains("9 segments where 10"));
    let long = refusal(|_, whole| vec![(OK, [whole, vec![0]].concat())]);
    assert!(said(long).contains("1 bytes more"));
    let swapped = refusal(|_, whole| vec![(OK, [&whole[116..232], &whole[..116], &whole[232..]].concat())]);
    assert!(said(swapped).contains("at 1000 where 100 bytes at 0"));
    let number = 3005_u32.to_be_bytes().to_vec();
    let refused = refusal(move |_, _| vec![(ERROR, [&number[..], b"past the end\0"].concat())]);
    assert!(refused.to_string().contains("past the end"), "{refused}");
    assert!(matches!(refusal(|_, _| vec![]), ClientError::Silent { .. }));
}
