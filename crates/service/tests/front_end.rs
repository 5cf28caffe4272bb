//! A front end with a line protocol, on a single node and in a cluster: what the next front ends will build on.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod line;
mod nodes;

use std::time::{Duration, Instant};

use line::client::Client;
use nodes::Nodes;
use service::{Principal, Rights};
use types::{Crc32c, PrincipalId};

/// Runs a test on a single node and in a cluster of three disk servers.
fn everywhere(test: impl Fn(&Nodes)) {
    test(&Nodes::alone());
    test(&Nodes::cluster(3));
}

/// Asks until the answer begins with `wanted`.
fn until(client: &mut Client, line: &str, wanted: &str) {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        let answer = client.ask(line);
        if answer.starts_with(wanted) {
            return;
        }
        assert!(Instant::now() < end, "{line}: {answer}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn files_are_made_read_listed_renamed_and_removed() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("mkdir /d"), "ok");
        for name in ["a", "b", "c"] {
            assert_eq!(ana.ask(&format!("create f /d/{name}")), "ok 0");
            assert_eq!(ana.ask("write f 0 hello"), "ok");
            assert_eq!(ana.ask("write f 5 -world"), "ok");
            assert_eq!(ana.ask("close f"), "ok");
        }
        assert_eq!(ana.ask("list /d"), "ok a,b,c");
        assert_eq!(ana.ask("stat /d/b"), "ok 11 644");
        assert_eq!(ana.ask("open r /d/b"), "ok 11");
        assert_eq!(ana.ask("read r 6 100"), "ok world");
        assert!(ana.ask("write r 0 x").starts_with("error Denied /d/b is open for reading only"));
        assert_eq!(ana.ask("checksum /d/b"), format!("ok {:08x}", Crc32c::of(b"hello-world").0));
        assert_eq!(ana.ask("rename /d/b /d/e"), "ok");
        assert_eq!(ana.ask("read r 0 5"), "ok hello", "the handle stays on its content");
        assert_eq!(ana.ask("close r"), "ok");
        assert_eq!(ana.ask("remove /d/a"), "ok");
        assert_eq!(ana.ask("list /d"), "ok c,e");
        assert!(ana.ask("open r /d/a").starts_with("error NotFound"));
        assert!(ana.ask("create f /d/c").starts_with("error Exists"));
        assert!(ana.ask("close f").starts_with("error Stale"), "{}", ana.ask("close f"));
    });
}

#[test]
fn a_writer_that_returns_within_the_grace_period_continues() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 half"), "ok");
        ana.hang_up();
        let mut again = nodes.connect(1);
        assert_eq!(again.ask("update f /a"), "ok 4");
        assert_eq!(again.ask("write f 4 -whole"), "ok");
        assert_eq!(again.ask("close f"), "ok");
        assert_eq!(again.ask("open r /a"), "ok 10");
        assert_eq!(again.ask("read r 0 10"), "ok half-whole");
    });
}

#[test]
fn a_writer_that_does_not_return_leaves_an_interrupted_file_whose_bytes_can_be_read() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 half"), "ok");
        ana.hang_up();
        let mut other = nodes.connect(2);
        until(&mut other, "open r /a", "error Interrupted");
        assert_eq!(other.ask("partial r /a"), "ok 4", "whoever asks for the part gets it");
        assert_eq!(other.ask("read r 0 100"), "ok half");
        assert_eq!(other.ask("close r"), "ok");
        assert!(other.ask("checksum /a").starts_with("error InProgress"));
        assert_eq!(other.ask("remove /a"), "ok");
        assert!(other.ask("partial r /a").starts_with("error NotFound"));
    });
}

/// Makes a complete file of 12 bytes.
fn make(nodes: &Nodes, path: &str) {
    let mut maker = nodes.connect(9);
    assert_eq!(maker.ask(&format!("create f {path}")), "ok 0");
    assert_eq!(maker.ask("write f 0 aaaabbbbcccc"), "ok");
    assert_eq!(maker.ask("close f"), "ok");
}

fn content(nodes: &Nodes, path: &str) -> String {
    let mut reader = nodes.connect(8);
    assert!(reader.ask(&format!("open r {path}")).starts_with("ok"));
    let read = reader.ask("read r 0 100");
    let text = read.strip_prefix("ok ").unwrap().to_owned();
    assert_eq!(reader.ask(&format!("checksum {path}")), format!("ok {:08x}", Crc32c::of(text.as_bytes()).0));
    text
}

#[test]
fn several_handles_of_one_principal_change_a_complete_file_at_the_same_time() {
    everywhere(|nodes| {
        make(nodes, "/a");
        // Two connections of one client, and another client.
        let mut handles = [nodes.connect(1), nodes.connect(1), nodes.connect(2)];
        for handle in &mut handles {
            assert_eq!(handle.ask("update f /a"), "ok 12");
        }
        // And one more handle of the first connection.
        assert_eq!(handles[0].ask("update g /a"), "ok 12");
        for (number, text) in [(0, "x0"), (1, "x1"), (2, "x2"), (1, "y1"), (0, "y0"), (2, "y2")] {
            let at = number * 4 + if text.starts_with('x') { 0 } else { 2 };
            assert_eq!(handles[number].ask(&format!("write f {at} {text}")), "ok");
        }
        // The later write to the same bytes wins, whichever handle it comes through.
        assert_eq!(handles[2].ask("write f 0 zz"), "ok");
        assert_eq!(handles[0].ask("write f 0 ZZ"), "ok");
        for number in [0, 1] {
            assert_eq!(handles[number].ask("close f"), "ok");
        }
        assert!(handles[0].ask("write f 0 ..").starts_with("error"), "it is closed");
        assert_eq!(handles[2].ask("write f 6 Y1"), "ok", "the others go on");
        assert_eq!(handles[2].ask("close f"), "ok");
        assert_eq!(handles[0].ask("write g 10 Y2"), "ok");
        assert_eq!(handles[0].ask("close g"), "ok");
        assert_eq!(content(nodes, "/a"), "ZZy0x1Y1x2Y2");
    });
}

#[test]
fn a_handle_that_is_lost_does_not_end_the_others() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (nodes.connect(1), nodes.connect(2));
        for handle in [&mut first, &mut second] {
            assert_eq!(handle.ask("update f /a"), "ok 12");
        }
        assert_eq!(first.ask("write f 0 1111"), "ok");
        first.hang_up();
        assert_eq!(second.ask("write f 4 2222"), "ok");
        // It comes back, and fences nobody.
        let mut first = nodes.connect(1);
        assert_eq!(first.ask("update f /a"), "ok 12");
        assert_eq!(first.ask("write f 8 3333"), "ok");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("write f 0 4"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "411122223333");
    });
}

#[test]
fn another_principal_does_not_join_those_who_change_a_file() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("chmod /a 666"), "ok");
        assert_eq!(ana.ask("update f /a"), "ok 12");
        for name in [1, 5] {
            let mut other = nodes.connect_as(&mallory(), name);
            let refused = other.ask("update f /a");
            assert!(refused.starts_with("error Busy"), "{refused}");
        }
        assert_eq!(ana.ask("write f 0 A"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        let mut other = nodes.connect_as(&mallory(), 5);
        assert_eq!(other.ask("update f /a"), "ok 12");
    });
}

/// A principal whose clients call themselves what the administrator's do.
fn mallory() -> Principal {
    Principal { id: PrincipalId(77), groups: [PrincipalId(77)].into(), rights: Rights::Full }
}

#[test]
fn another_principal_cannot_take_over_end_or_read_an_open_file_with_the_name_of_its_client() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("mkdir /d"), "ok");
        assert_eq!(ana.ask("create f /d/a"), "ok 0");
        assert_eq!(ana.ask("write f 0 mine"), "ok");
        // The permission bits alone would let the other principal in.
        assert_eq!(ana.ask("chmod /d/a 666"), "ok");
        assert_eq!(ana.ask("chmod /d 777"), "ok");
        // The same user, process and host.
        let mut thief = nodes.connect_as(&mallory(), 1);
        let taken = thief.ask("update f /d/a");
        assert!(taken.starts_with("error Busy"), "{taken}");
        let replaced = thief.ask("replace f /d/a");
        assert!(replaced.starts_with("error Busy"), "{replaced}");
        let made = thief.ask("create f /d/a");
        assert!(made.starts_with("error"), "{made}");
        // The writer itself sees what it wrote, others see what is durable.
        let shown = thief.ask("stat /d/a");
        assert!(shown == "ok 0 666" || shown == "ok 4 666", "{shown}");
        assert_eq!(ana.ask("write f 4 -still"), "ok", "its handle was not fenced");
        assert_eq!(ana.ask("close f"), "ok", "nobody has ended it");
        assert_eq!(ana.ask("open r /d/a"), "ok 10");
        assert_eq!(ana.ask("read r 0 100"), "ok mine-still");
    });
}

#[test]
fn another_principal_cannot_continue_a_writer_that_has_gone() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 mine"), "ok");
        assert_eq!(ana.ask("chmod /a 666"), "ok");
        ana.hang_up();
        let mut thief = nodes.connect_as(&mallory(), 1);
        let taken = thief.ask("update f /a");
        assert!(taken.starts_with("error Busy"), "{taken}");
        let mut again = nodes.connect(1);
        assert_eq!(again.ask("update f /a"), "ok 4");
        assert_eq!(again.ask("close f"), "ok");
        assert_eq!(again.ask("stat /a"), "ok 4 666");
    });
}

#[test]
fn credentials_that_allow_reading_only_change_nothing() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("mkdir /d"), "ok");
        assert_eq!(ana.ask("create f /d/a"), "ok 0");
        let reads = Principal { rights: Rights::ReadOnly, ..Principal::admin() };
        let mut reader = nodes.connect_as(&reads, 3);
        assert!(reader.ask("update f /d/a").starts_with("error Denied"));
        assert!(reader.ask("remove /d/a").starts_with("error Denied"));
        assert_eq!(reader.ask("list /d"), "ok a");
        assert_eq!(ana.ask("close f"), "ok");
    });
}

#[test]
fn in_a_cluster_a_capability_is_for_its_principal_alone() {
    let nodes = Nodes::cluster(2);
    let mut ana = nodes.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 mine"), "ok");
    assert!(ana.place_of("f").starts_with("disk"), "the manager redirected it: {}", ana.place_of("f"));
    let redirect = ana.at_home("update f /a");
    let (place, words) = redirect.strip_prefix("redirect ").unwrap().split_once(' ').unwrap();
    let mut thief = nodes.connect_as(&mallory(), 1);
    let stolen = thief.at(place, &format!("update f /a {words}"));
    assert!(stolen.starts_with("error Denied"), "{stolen}");
    assert_eq!(ana.at(place, &format!("update f /a {words}")), "ok 4");
    assert_eq!(ana.at(place, "close f"), "ok");
    assert_eq!(ana.ask("stat /a"), "ok 4 644");
}

/// A session of numbered requests of this client.
fn session(client: &mut Client) -> String {
    client.ask("session").strip_prefix("ok ").unwrap().to_owned()
}

/// Repeats a request on a new connection: its answer was lost with the old one. Returns the new connection and answer.
fn again(nodes: &Nodes, client: Client, line: &str) -> (Client, String) {
    client.hang_up();
    let mut client = nodes.connect(1);
    let answer = client.ask(line);
    (client, answer)
}

#[test]
fn a_change_by_name_whose_answer_was_lost_is_answered_and_not_made_twice() {
    everywhere(|nodes| {
        let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
        let s = session(&mut ana);
        let mkdir = format!("#{s}:1 mkdir /d");
        assert_eq!(ana.ask(&mkdir), "ok");
        let (mut ana, answer) = again(nodes, ana, &mkdir);
        assert_eq!(answer, "ok");
        assert!(ana.ask("mkdir /d").starts_with("error Exists"), "without a number it is another request");

        assert_eq!(other.ask("mkdir /d/x"), "ok");
        let rename = format!("#{s}:2 rename /d/x /d/y");
        assert_eq!(ana.ask(&rename), "ok");
        assert_eq!(other.ask("mkdir /d/x"), "ok");
        let (mut ana, answer) = again(nodes, ana, &rename);
        assert_eq!((answer, ana.ask("list /d")), ("ok".to_owned(), "ok x,y".to_owned()));

        let remove = format!("#{s}:3 remove /d/y");
        assert_eq!(ana.ask(&remove), "ok");
        assert_eq!(other.ask("mkdir /d/y"), "ok");
        let (mut ana, answer) = again(nodes, ana, &remove);
        assert_eq!((answer, ana.ask("list /d")), ("ok".to_owned(), "ok x,y".to_owned()), "the later one stays");

        let chmod = format!("#{s}:4 chmod /d 700");
        assert_eq!(ana.ask(&chmod), "ok");
        assert_eq!(other.ask("chmod /d 750"), "ok");
        let (mut ana, answer) = again(nodes, ana, &chmod);
        assert_eq!(answer, "ok");
        assert!(other.ask("stat /d").ends_with(" 750"));

        let set = format!("#{s}:5 set /d run 1");
        assert_eq!(ana.ask(&set), "ok");
        assert_eq!(other.ask("set /d run 2"), "ok");
        let (mut ana, answer) = again(nodes, ana, &set);
        assert_eq!((answer, ana.ask("get /d run")), ("ok".to_owned(), "ok 2".to_owned()));

        // A refusal is an answer, too.
        let refused = format!("#{s}:6 mkdir /d/x");
        assert!(ana.ask(&refused).starts_with("error Exists"));
        assert_eq!(other.ask("remove /d/x"), "ok");
        let (mut ana, answer) = again(nodes, ana, &refused);
        assert!(answer.starts_with("error Exists"), "{answer}");
        assert_eq!(ana.ask("list /d"), "ok y");
    });
}

#[test]
fn a_repeated_open_continues_the_open_write_and_a_repeated_close_is_answered() {
    everywhere(|nodes| {
        let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
        let s = session(&mut ana);
        for (number, verb) in [(10, "create"), (20, "replace"), (30, "update")] {
            let open = format!("#{s}:{number} {verb} f /a");
            let len = if verb == "update" { 10 } else { 0 };
            assert_eq!(ana.ask(&open), format!("ok {len}"), "{verb}");
            let answer;
            (ana, answer) = again(nodes, ana, &open);
            assert_eq!(answer, format!("ok {len}"), "{verb}: it finds its own open write");
            assert_eq!(ana.ask("write f 0 some-bytes"), "ok", "{verb}");
            let close = format!("#{s}:{} close f", number + 1);
            let answer;
            assert_eq!(ana.ask(&close), "ok", "{verb}");
            (ana, answer) = again(nodes, ana, &close);
            assert_eq!(answer, "ok", "{verb}: it is closed already");
            // The number of the open is used up.
            assert!(ana.ask(&open).starts_with("error Stale"), "{verb}");
        }
        assert_eq!(other.ask("open r /a"), "ok 10");
        // A close that was not made is not answered as made.
        assert!(ana.ask(&format!("#{s}:40 close f")).starts_with("error Stale"));
    });
}

#[test]
fn a_repeated_truncation_is_not_made_twice() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 some-bytes"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        let truncate = format!("#{s}:1 truncate /a 4");
        assert_eq!(ana.ask(&truncate), "ok");
        assert_eq!(ana.ask("truncate /a 7"), "ok");
        let (mut ana, answer) = again(nodes, ana, &truncate);
        assert_eq!((answer, ana.ask("stat /a")), ("ok".to_owned(), "ok 7 644".to_owned()));
        assert_eq!(ana.ask(&format!("#{s}:2 truncate /a 3")), "ok");
        assert_eq!(ana.ask("stat /a"), "ok 3 644");
    });
}

#[test]
fn a_number_is_good_for_one_request_of_a_known_session_of_the_same_principal() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        for line in ["mkdir /d", "create f /a", "remove /a", "truncate /a 1"] {
            let answer = ana.ask(&format!("#987654321:1 {line}"));
            assert!(answer.starts_with("error Stale") && answer.contains("begin a new session"), "{line}: {answer}");
        }
        assert_eq!(ana.ask("list /"), "ok");
        assert_eq!(ana.ask(&format!("#{s}:1 mkdir /d")), "ok");
        assert!(ana.ask(&format!("#{s}:1 remove /d")).starts_with("error Invalid"));
        assert!(ana.ask(&format!("#{s}:1 create f /d/a")).starts_with("error Invalid"));
        assert_eq!(ana.ask(&format!("#{s}:2 create f /d/a")), "ok 0");
        assert!(ana.ask(&format!("#{s}:1 close f")).starts_with("error"), "a close has its own number");
        // On a disk server the handle is gone by then. The client continues as after any failed close.
        assert_eq!(ana.ask("update f /d/a"), "ok 0");
        assert_eq!(ana.ask(&format!("#{s}:3 close f")), "ok");
        assert_eq!(ana.ask("create g /d/b"), "ok 0");
        let answer = ana.ask(&format!("#{s}:3 close g"));
        assert!(answer.starts_with("error"), "the number of another file's close: {answer}");
        assert_eq!(ana.ask("chmod / 777"), "ok");
        let mut mallory = nodes.connect_as(&mallory(), 1);
        assert!(mallory.ask(&format!("#{s}:4 mkdir /m")).starts_with("error Denied"));
        assert_eq!(mallory.ask("create h /m"), "ok 0");
        assert!(!mallory.ask(&format!("#{s}:5 close h")).starts_with("ok"));
    });
}
