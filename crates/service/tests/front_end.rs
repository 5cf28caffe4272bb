//! A front end with a line protocol, on a single node and in a cluster: what the next front ends will build on.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

mod line;
mod nodes;

use std::time::{Duration, Instant};

use line::client::Client;
use nodes::{GRACE, Nodes};
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

/// The store has lost the object of a file that is being changed in place.
#[test]
fn a_file_whose_object_is_missing_does_not_become_empty() {
    let nodes = Nodes::alone();
    let mut ana = nodes.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 whole"), "ok");
    assert_eq!(ana.ask("close f"), "ok");
    assert_eq!(ana.ask("update f /a"), "ok 5");
    let nodes = nodes.restarted(|store, replica| store.delete(replica).unwrap());
    let mut again = nodes.connect(1);
    let refused = again.ask("update f /a");
    assert!(refused.starts_with("error "), "{refused}");
    let mut other = nodes.connect(2);
    // The open write of the client that does not come back has ended.
    until(&mut other, "stat /a", "ok 5 ");
    until(&mut other, "update f /a", "error NotFound");
    assert!(other.ask("stat /a").starts_with("ok 5 "), "{}", other.ask("stat /a"));
    // That open write ends as well.
    std::thread::sleep(2 * GRACE);
    assert!(other.ask("stat /a").starts_with("ok 5 "), "{}", other.ask("stat /a"));
    let read = other.ask("open r /a");
    assert!(read.starts_with("error "), "{read}");
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

/// The server stopped between the two records of an end. What came after the first gap is gone, and the client would not send it again.
#[test]
fn a_writer_does_not_go_on_with_what_the_store_has_ended() {
    let nodes = Nodes::alone();
    let mut ana = nodes.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 half"), "ok");
    assert_eq!(ana.ask("write f 9 end"), "ok");
    let nodes = nodes.restarted(|store, replica| assert_eq!(store.interrupt(replica).unwrap().len, 4));
    let mut again = nodes.connect(1);
    let refused = again.ask("update f /a");
    assert!(refused.starts_with("error Interrupted") && refused.contains("may be gone"), "{refused}");
    let mut other = nodes.connect(2);
    until(&mut other, "open r /a", "error Interrupted");
    assert_eq!(other.ask("partial r /a"), "ok 4");
    // A server that has stopped before that has everything.
    let nodes = Nodes::alone();
    let mut ana = nodes.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 half"), "ok");
    let nodes = nodes.restarted(|_, _| {});
    let mut again = nodes.connect(1);
    assert_eq!(again.ask("update f /a"), "ok 4");
    assert_eq!(again.ask("close f"), "ok");
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

/// A principal whose clients call themselves what the administrator's do.
fn mallory() -> Principal {
    Principal { id: PrincipalId(77), groups: [PrincipalId(77)].into(), ..Principal::admin() }
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
        assert_eq!(ana.ask("write f 4 -still"), "ok", "its handle was not fenced");
        assert_eq!(ana.ask("close f"), "ok", "nobody has ended it");
        assert_eq!(ana.ask("open r /d/a"), "ok 10");
        assert_eq!(ana.ask("read r 0 100"), "ok mine-still");
    });
}

#[test]
fn another_principal_cannot_read_an_open_file_with_the_process_of_its_client() {
    let is_shown = |answer: &str| answer.starts_with("ok") && answer != "ok 0" && answer != "ok 0 666";
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        ana.is_process(9);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("chmod /a 666"), "ok");
        // The gap keeps these bytes from being durable, so only their writer may see them.
        assert_eq!(ana.ask("write f 4 mine"), "ok");
        // Clients with other names. Two of them describe their process as the writer does.
        let (mut same, mut thief, mut other) = (nodes.connect(2), nodes.connect_as(&mallory(), 2), nodes.connect(3));
        same.is_process(9);
        thief.is_process(9);
        other.is_process(10);
        for stranger in [&mut thief, &mut other] {
            let (shown, opened) = (stranger.ask("stat /a"), stranger.ask("open r /a"));
            assert!(!is_shown(&shown) && !is_shown(&opened), "{shown}, {opened}");
            if opened.starts_with("ok") {
                assert_eq!(stranger.ask("read r 0 100"), "ok ");
            }
        }
        // In a cluster, only the handle that writes shows them.
        if !nodes.is_cluster() {
            assert!(is_shown(&same.ask("stat /a")), "{}", same.ask("stat /a"));
            assert_eq!(same.ask("open r /a"), "ok 8");
            assert_eq!(same.ask("read r 4 100"), "ok mine");
        }
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
fn in_a_cluster_a_capability_says_who_its_client_is() {
    let nodes = Nodes::cluster(2);
    let mut ana = nodes.connect(1);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask("write f 0 mine"), "ok");
    assert!(ana.place_of("f").starts_with("disk"), "the manager redirected it: {}", ana.place_of("f"));
    let redirect = ana.at_home("update f /a");
    let (place, words) = redirect.strip_prefix("redirect ").unwrap().split_once(' ').unwrap();
    // A disk server knows nothing else about its clients.
    let mut unknown = nodes.connect_as(&Principal { rights: Rights::Full, ..Principal::nobody() }, 1);
    let (key, code) = words.split_once('=').unwrap();
    let forged = format!("{key}={}", code.replacen(|c: char| c.is_ascii_lowercase(), "_", 1));
    let refused = unknown.at(place, &format!("update f /a {forged}"));
    assert!(refused.starts_with("error Denied"), "{refused}");
    assert_eq!(unknown.at(place, &format!("update f /a {words}")), "ok 4");
    assert_eq!(unknown.at(place, "close f"), "ok");
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
        assert_eq!(ana.ask("write f 0 more"), "ok", "the file is still open");
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

#[test]
fn a_close_whose_number_cannot_be_used_is_refused_in_words_and_the_file_stays_open() {
    everywhere(|nodes| {
        let (mut ana, mut mallory) = (nodes.connect(1), nodes.connect_as(&mallory(), 1));
        assert_eq!(ana.ask("chmod / 777"), "ok");
        let (s, of_mallory) = (session(&mut ana), session(&mut mallory));
        assert_eq!(ana.ask(&format!("#{s}:100 mkdir /d")), "ok");
        assert_eq!(mallory.ask("create f /m"), "ok 0");
        assert_eq!(mallory.ask("write f 0 some"), "ok");
        for (number, code, why) in [
            (format!("{s}:36"), "Stale", "older than what is remembered"),
            (format!("{s}:100"), "Invalid", "was used for another request"),
            (format!("{s}:0"), "Invalid", "numbered from 1"),
            ("987654321:1".to_owned(), "Stale", "begin a new session"),
            (of_mallory.clone() + ":0", "Invalid", "numbered from 1"),
        ] {
            let answer = ana.ask("create f /a");
            assert_eq!(answer, "ok 0", "{number}");
            assert_eq!(ana.ask("write f 0 some"), "ok", "{number}");
            let answer = ana.ask(&format!("#{number} close f"));
            assert!(answer.starts_with(&format!("error {code} Cannot close")), "{number}: {answer}");
            assert!(answer.contains(why), "{number}: {answer}");
            assert_eq!(ana.ask("write f 4 -more"), "ok", "{number}: nothing has ended");
            assert_eq!(ana.ask("close f"), "ok", "{number}");
            assert_eq!(ana.ask("stat /a"), "ok 9 644", "{number}");
            assert_eq!(ana.ask("remove /a"), "ok", "{number}");
        }
        let answer = mallory.ask(&format!("#{s}:101 close f"));
        assert!(answer.starts_with("error Denied"), "another principal's session: {answer}");
        assert_eq!(mallory.ask(&format!("#{of_mallory}:1 close f")), "ok");
    });
}

#[test]
fn one_number_closes_one_file_even_if_it_is_used_for_two_at_once() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        for round in (1..40).step_by(2) {
            for name in ["f", "g"] {
                assert_eq!(ana.ask(&format!("create {name} /{name}{round}")), "ok 0");
                assert_eq!(ana.ask(&format!("write {name} 0 some")), "ok");
            }
            for name in ["f", "g"] {
                assert_eq!(ana.ask(&format!("#{s}:{round} begin {name}")), "ok");
            }
            let ended = ["f", "g"].map(|name| ana.ask(&format!("ended {name}")));
            // On two disk servers either may come first.
            let (closed, other) = if ended[0] == "ok" { ("f", "g") } else { ("g", "f") };
            let refused = ended.iter().filter(|answer| {
                *answer == "ok later" || answer.starts_with("error Invalid") && answer.contains("next number")
            });
            assert_eq!((refused.count(), ended.contains(&"ok".to_owned())), (1, true), "round {round}: {ended:?}");
            let again = ana.ask(&format!("#{s}:{round} close {other}"));
            assert!(again.starts_with("error Invalid") && again.contains("next number"), "round {round}: {again}");
            assert_eq!(ana.ask(&format!("write {other} 4 -more")), "ok", "it stays open");
            assert_eq!(ana.ask(&format!("#{s}:{} close {other}", round + 1)), "ok");
            assert_eq!(ana.ask(&format!("stat /{other}{round}")), "ok 9 644");
            assert_eq!(ana.ask(&format!("stat /{closed}{round}")), "ok 4 644");
        }
    });
}

#[test]
fn a_close_that_is_repeated_while_the_first_one_is_under_way_gets_its_outcome() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        for round in 1..=20 {
            assert_eq!(ana.ask(&format!("create f /f{round}")), "ok 0");
            assert_eq!(ana.ask(&format!("write f 0 {}", "x".repeat(200_000))), "ok");
            assert_eq!(ana.ask(&format!("#{s}:{round} begin f")), "ok");
            let answer;
            (ana, answer) = again(nodes, ana, &format!("#{s}:{round} close f"));
            assert_eq!(answer, "ok", "round {round}");
            assert_eq!(ana.ask(&format!("stat /f{round}")), "ok 200000 644");
        }
    });
}

#[test]
fn the_reason_of_a_failed_close_is_given_again() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        assert_eq!(ana.ask("create f /a size=100"), "ok 0");
        assert_eq!(ana.ask("write f 0 some"), "ok");
        let close = format!("#{s}:1 close f");
        let first = ana.ask(&close);
        assert!(first.starts_with("error Incomplete"), "{first}");
        assert_eq!(ana.ask(&close), first);
        assert_eq!(ana.ask("close f"), first);
    });
}

#[test]
fn a_repeated_truncation_that_changed_nothing_changes_nothing() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        let s = session(&mut ana);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 some-bytes"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        let truncate = format!("#{s}:1 truncate /a 10");
        assert_eq!(ana.ask(&truncate), "ok");
        assert_eq!(ana.ask("truncate /a 7"), "ok");
        let (mut ana, answer) = again(nodes, ana, &truncate);
        assert_eq!((answer, ana.ask("stat /a")), ("ok".to_owned(), "ok 7 644".to_owned()));
    });
}

#[test]
fn a_discarded_new_file_leaves_nothing_and_its_name_is_free_at_once() {
    everywhere(|nodes| {
        let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
        let before = nodes.objects();
        assert_eq!(ana.ask("create f /a size=1000000"), "ok 0");
        assert_eq!(ana.ask(&format!("write f 0 {}", "x".repeat(200_000))), "ok");
        assert_eq!(ana.ask("discard f"), "ok");
        assert!(other.ask("stat /a").starts_with("error NotFound"));
        assert_eq!(other.ask("list /"), "ok");
        assert!(ana.ask("write f 0 x").starts_with("error Stale"), "the handle is gone");
        assert!(ana.ask("close f").starts_with("error Stale"));
        assert!(ana.ask("update f /a").starts_with("error"), "nobody continues it");
        assert_eq!(other.ask("create g /a"), "ok 0", "no lease is left");
        assert_eq!(other.ask("write g 0 other"), "ok");
        assert_eq!(other.ask("close g"), "ok");
        assert_eq!(other.ask("stat /a"), "ok 5 644");
        assert_eq!(other.ask("remove /a"), "ok");
        nodes.wait_for_objects(before);
    });
}

#[test]
fn a_discarded_overwrite_leaves_the_old_file() {
    everywhere(|nodes| {
        let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 old"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        let before = nodes.objects();
        assert_eq!(ana.ask("replace f /a"), "ok 0");
        assert_eq!(ana.ask(&format!("write f 0 {}", "x".repeat(200_000))), "ok");
        assert_eq!(ana.ask("discard f"), "ok");
        assert_eq!(other.ask("stat /a"), "ok 3 644");
        assert_eq!(other.ask("open r /a"), "ok 3");
        assert_eq!(other.ask("read r 0 100"), "ok old");
        assert_eq!(other.ask("close r"), "ok");
        assert!(ana.ask("close f").starts_with("error Stale"));
        nodes.wait_for_objects(before);
        assert_eq!(ana.ask("replace f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 newer"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        assert_eq!(other.ask("stat /a"), "ok 5 644");
    });
}

#[test]
fn only_what_is_open_for_writing_can_be_discarded_and_a_change_in_place_cannot() {
    everywhere(|nodes| {
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("create f /a"), "ok 0");
        assert_eq!(ana.ask("write f 0 old"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        assert!(ana.ask("discard f").starts_with("error Stale"), "it is closed");
        assert_eq!(ana.ask("open r /a"), "ok 3");
        assert!(ana.ask("discard r").starts_with("error NotAllowedNow"));
        assert_eq!(ana.ask("read r 0 3"), "ok old");
        assert_eq!(ana.ask("update f /a"), "ok 3");
        assert_eq!(ana.ask("write f 0 new"), "ok");
        let answer = ana.ask("discard f");
        assert!(answer.starts_with("error NotAllowedNow Cannot discard /a: it is changed in place"), "{answer}");
        assert_eq!(ana.ask("write f 3 -more"), "ok", "it is still open");
        assert_eq!(ana.ask("close f"), "ok");
        assert_eq!(ana.ask("stat /a"), "ok 8 644");
        assert_eq!(ana.ask("update f /a"), "ok 8");
        assert_eq!(ana.ask("discard f"), "ok", "nothing was changed");
        assert_eq!(ana.ask("stat /a"), "ok 8 644");
    });
}

#[test]
fn a_client_is_sent_to_the_address_of_its_protocol_or_told_that_there_is_none() {
    let nodes = Nodes::cluster(2);
    let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
    assert_eq!(other.ask("create f /old"), "ok 0");
    assert_eq!(other.ask("close f"), "ok");
    ana.speaks("http");
    let redirect = ana.at_home("create f /new");
    assert!(redirect.starts_with("redirect http://disk") && redirect.contains(":1 weir.cap="), "{redirect}");
    let redirect = ana.at_home("open r /old");
    assert!(redirect.starts_with("redirect http://disk") && redirect.contains(":1 weir.cap="), "{redirect}");
    // Disk servers know the address of the manager for one protocol only.
    let answer = ana.at("disk1:1", "list /");
    assert!(answer.starts_with("error Unsupported Cannot send you on: the cluster's manager"), "{answer}");

    let before = nodes.objects();
    let mut gopher = nodes.connect(3);
    gopher.speaks("gopher");
    for line in ["create f /a", "replace f /b", "replace f /old", "open r /old", "update f /old"] {
        let answer = gopher.ask(line);
        assert!(answer.starts_with("error Unsupported"), "{line}: {answer}");
        assert!(answer.contains("no address for clients of gopher://"), "{line}: {answer}");
        assert!(answer.contains("root://disk"), "{line}: {answer}");
    }
    assert_eq!(other.ask("list /"), "ok new,old", "nothing was made");
    assert_eq!(other.ask("replace f /old"), "ok 0");
    assert_eq!(other.ask("close f"), "ok");
    nodes.wait_for_objects(before);
}

#[test]
fn a_repeated_close_of_a_striped_file_is_answered() {
    let nodes = Nodes::striped(3);
    let mut ana = nodes.connect(1);
    let s = session(&mut ana);
    assert_eq!(ana.ask("create f /a"), "ok 0");
    assert_eq!(ana.ask(&format!("write f 0 {}", "x".repeat(100_000))), "ok");
    let answer = ana.ask(&format!("#{s}:0 close f"));
    assert!(answer.starts_with("error Invalid"), "{answer}");
    let close = format!("#{s}:1 close f");
    assert_eq!(ana.ask(&close), "ok", "it stayed open");
    let (mut ana, answer) = again(&nodes, ana, &close);
    assert_eq!((answer, ana.ask("stat /a")), ("ok".to_owned(), "ok 100000 644".to_owned()));
    assert_eq!(ana.ask("create g /b"), "ok 0");
    assert!(ana.ask(&format!("#{s}:1 close g")).starts_with("error Invalid"), "the number of another file's close");
    assert_eq!(ana.ask(&format!("#{s}:2 close g")), "ok");
}

#[test]
fn a_discarded_striped_file_leaves_nothing() {
    let nodes = Nodes::striped(3);
    let (mut ana, mut other) = (nodes.connect(1), nodes.connect(2));
    for verb in ["create", "replace"] {
        let before = nodes.objects();
        assert_eq!(ana.ask(&format!("{verb} f /a")), "ok 0", "{verb}");
        assert_eq!(ana.ask(&format!("write f 0 {}", "x".repeat(200_000))), "ok", "{verb}");
        assert_eq!(ana.ask("discard f"), "ok", "{verb}");
        assert!(ana.ask("close f").starts_with("error Stale"), "{verb}");
        nodes.wait_for_objects(before);
        if verb == "create" {
            assert!(other.ask("stat /a").starts_with("error NotFound"));
            assert_eq!(other.ask("create g /a"), "ok 0");
            assert_eq!(other.ask("write g 0 old"), "ok");
            assert_eq!(other.ask("close g"), "ok");
        }
        assert_eq!(other.ask("stat /a"), "ok 3 644", "{verb}");
    }
}
