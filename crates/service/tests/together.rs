//! Several clients of one principal change a complete file at the same time, in place, on a single node and in a cluster.

#![allow(clippy::unwrap_used, clippy::panic)] // a test may fail this way

// Each test file uses a part of them.
#[allow(dead_code)]
mod line;
#[allow(dead_code)]
mod nodes;

use std::time::{Duration, Instant};

use line::client::Client;
use nodes::Nodes;
use service::Principal;
use types::{Crc32c, PrincipalId};

/// Runs a test on a single node and in a cluster of three disk servers.
fn everywhere(test: impl Fn(&Nodes)) {
    test(&Nodes::alone());
    test(&Nodes::cluster(3));
}

/// Makes a complete file of 12 bytes.
fn make(nodes: &Nodes, path: &str) {
    let mut maker = nodes.connect(9);
    assert_eq!(maker.ask(&format!("create f {path}")), "ok 0");
    assert_eq!(maker.ask("write f 0 aaaabbbbcccc"), "ok");
    assert_eq!(maker.ask("close f"), "ok");
}

/// Opens the file for update as this client.
fn open(nodes: &Nodes, client: u32, path: &str) -> Client {
    let mut client = nodes.connect(client);
    assert_eq!(client.ask(&format!("update f {path}")), "ok 12");
    client
}

/// The bytes of a complete file, which agree with its checksum.
fn content(nodes: &Nodes, path: &str) -> String {
    let mut reader = nodes.connect(8);
    assert!(reader.ask(&format!("open r {path}")).starts_with("ok"));
    let read = reader.ask("read r 0 100");
    let text = read.strip_prefix("ok ").unwrap().to_owned();
    assert_eq!(reader.ask(&format!("checksum {path}")), format!("ok {:08x}", Crc32c::of(text.as_bytes()).0));
    assert_eq!(reader.ask("close r"), "ok");
    text
}

/// A session of numbered requests of this client.
fn session(client: &mut Client) -> String {
    client.ask("session").strip_prefix("ok ").unwrap().to_owned()
}

#[test]
fn several_handles_of_one_principal_change_a_complete_file_at_the_same_time() {
    everywhere(|nodes| {
        make(nodes, "/a");
        // Two connections of one client, and another client.
        let mut handles = [open(nodes, 1, "/a"), open(nodes, 1, "/a"), open(nodes, 2, "/a")];
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
fn a_client_that_is_lost_does_not_end_the_others_and_may_come_back() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("write f 0 1111"), "ok");
        first.hang_up();
        assert_eq!(second.ask("write f 4 2222"), "ok");
        let mut first = open(nodes, 1, "/a");
        assert_eq!(first.ask("write f 8 3333"), "ok");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("write f 0 4"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "411122223333");
    });
}

#[test]
fn the_file_is_complete_at_once_when_those_who_are_left_have_closed_it() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("write f 0 1111"), "ok");
        assert_eq!(second.ask("write f 4 2222"), "ok");
        first.hang_up();
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "11112222cccc", "with what was acknowledged to the lost client");
    });
}

#[test]
fn a_request_of_a_lost_client_that_comes_late_changes_nothing() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        let at = first.place_of("f").to_owned();
        assert_eq!(first.at(&at, "hold f"), "ok");
        assert_eq!(first.at(&at, "write-held f 0 1111"), "ok");
        assert_eq!(first.at(&at, "end-session"), "ok");
        let mut again = open(nodes, 1, "/a");
        assert_eq!(again.ask("write f 0 2222"), "ok");
        let late = first.at(&at, "write-held f 0 1111");
        assert!(late.starts_with("error Stale"), "{late}");
        assert_eq!(second.ask("write f 4 3333"), "ok", "the other one is not fenced");
        assert_eq!(again.ask("close f"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "22223333cccc");
    });
}

#[test]
fn when_all_are_lost_the_file_stands_with_everything_that_was_acknowledged() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("write f 0 1111"), "ok");
        assert_eq!(second.ask("write f 4 2222"), "ok");
        first.hang_up();
        second.hang_up();
        // One of them comes back, and ends the write for both.
        let mut second = open(nodes, 2, "/a");
        assert_eq!(second.ask("write f 8 3333"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "111122223333");
        // Nobody comes back.
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("write f 0 4444"), "ok");
        assert_eq!(second.ask("write f 4 5555"), "ok");
        first.hang_up();
        second.hang_up();
        let end = Instant::now() + Duration::from_secs(20);
        let mut other = nodes.connect(3);
        while !other.ask("checksum /a").starts_with("ok") {
            assert!(Instant::now() < end);
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(content(nodes, "/a"), "444455553333");
    });
}

#[test]
fn a_client_that_comes_back_closes_each_of_its_files_once() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("update g /a"), "ok 12");
        first.hang_up();
        // As XrdCl does: more handles than files.
        let mut first = open(nodes, 1, "/a");
        for name in ["g", "h", "i"] {
            assert_eq!(first.ask(&format!("update {name} /a")), "ok 12");
        }
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(first.ask("write i 0 1111"), "ok");
        assert_eq!(first.ask("close i"), "ok");
        assert_eq!(first.ask("write g 4 2222"), "ok", "its other file is open");
        assert_eq!(first.ask("close g"), "ok");
        assert_eq!(content(nodes, "/a"), "11112222cccc", "complete, although two handles are left");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(first.ask("close h"), "ok");
    });
}

#[test]
fn another_principal_does_not_join_those_who_change_a_file() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let mut ana = nodes.connect(1);
        assert_eq!(ana.ask("chmod /a 666"), "ok");
        assert_eq!(ana.ask("update f /a"), "ok 12");
        let mallory = Principal { id: PrincipalId(77), groups: [PrincipalId(77)].into(), ..Principal::admin() };
        for name in [1, 5] {
            let mut other = nodes.connect_as(&mallory, name);
            let refused = other.ask("update f /a");
            assert!(refused.starts_with("error Busy"), "{refused}");
        }
        assert_eq!(ana.ask("write f 0 A"), "ok");
        assert_eq!(ana.ask("close f"), "ok");
        let mut other = nodes.connect_as(&mallory, 5);
        assert_eq!(other.ask("update f /a"), "ok 12");
    });
}

#[test]
fn a_file_that_is_appended_to_has_one_writer_and_so_has_a_new_one() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let mut appending = nodes.connect(1);
        assert_eq!(appending.ask("append f /a"), "ok 12");
        let mut other = nodes.connect(2);
        let refused = other.ask("update f /a");
        assert!(refused.starts_with("error Busy") && refused.contains("is appending to it"), "{refused}");
        assert_eq!(appending.ask("write f 12 dd"), "ok");
        assert_eq!(appending.ask("close f"), "ok");
        assert_eq!(other.ask("update f /a"), "ok 14");
        let refused = appending.ask("append f /a");
        assert!(refused.starts_with("error Busy") && refused.contains("others have it open"), "{refused}");
        assert_eq!(other.ask("write f 0 AA"), "ok", "the refused append has fenced nobody");
        assert_eq!(other.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "AAaabbbbccccdd");
        assert_eq!(appending.ask("create n /new"), "ok 0");
        assert!(other.ask("update n /new").starts_with("error Busy"));
        assert_eq!(appending.ask("close n"), "ok");
    });
}

#[test]
fn nobody_opens_a_file_while_its_session_has_a_checkpoint_on_it() {
    let nodes = &Nodes::alone();
    make(nodes, "/a");
    let (mut first, mut second) = (open(nodes, 1, "/a"), nodes.connect(2));
    assert_eq!(first.ask("begin-checkpoint f"), "ok");
    assert_eq!(first.ask("write f 0 1111"), "ok");
    for line in ["update g /a", "append g /a"] {
        for client in [&mut first, &mut second] {
            let refused = client.ask(line);
            assert!(refused.starts_with("error Busy") && refused.contains("has an open checkpoint"), "{refused}");
        }
    }
    assert_eq!(first.ask("roll-back f"), "ok");
    assert_eq!(first.ask("update g /a"), "ok 12");
    assert_eq!(second.ask("update f /a"), "ok 12");
    assert_eq!(second.ask("write f 4 2222"), "ok");
    assert_eq!(first.ask("close f"), "ok");
    assert_eq!(first.ask("write g 8 3333"), "ok");
    assert_eq!(first.ask("close g"), "ok");
    assert_eq!(second.ask("close f"), "ok");
    assert_eq!(content(nodes, "/a"), "aaaa22223333");
}

#[test]
fn a_checkpoint_of_an_appending_client_keeps_out_its_second_open_too() {
    let nodes = &Nodes::alone();
    make(nodes, "/a");
    let mut first = nodes.connect(1);
    assert_eq!(first.ask("append f /a"), "ok 12");
    assert_eq!(first.ask("begin-checkpoint f"), "ok");
    assert!(first.ask("update g /a").starts_with("error Busy"));
    assert_eq!(first.ask("roll-back f"), "ok");
    assert_eq!(first.ask("update g /a"), "ok 12");
    assert!(first.ask("begin-checkpoint f").starts_with("error Busy"), "it has two handles");
    assert!(nodes.connect(2).ask("update f /a").contains("is appending to it"));
    assert_eq!(first.ask("close f"), "ok");
    assert_eq!(first.ask("write g 12 dd"), "ok");
    assert_eq!(first.ask("close g"), "ok");
    assert_eq!(content(nodes, "/a"), "aaaabbbbccccdd");
}

#[test]
fn a_client_that_returns_in_a_new_session_ends_its_checkpoint() {
    let nodes = &Nodes::alone();
    make(nodes, "/a");
    let mut first = open(nodes, 1, "/a");
    assert_eq!(first.ask("begin-checkpoint f"), "ok");
    assert_eq!(first.ask("write f 0 1111"), "ok");
    // The server has not heard yet that its connection is lost.
    let mut back = open(nodes, 1, "/a");
    let mut second = open(nodes, 2, "/a");
    assert_eq!(second.ask("write f 4 2222"), "ok");
    assert!(back.ask("roll-back f").starts_with("error NotFound"), "its checkpoint is gone");
    first.hang_up();
    assert_eq!(back.ask("close f"), "ok");
    assert_eq!(second.ask("close f"), "ok");
    assert_eq!(content(nodes, "/a"), "aaaa2222cccc");
}

#[test]
fn a_client_that_has_joined_may_append_with_another_handle() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("append g /a"), "ok 12");
        assert_eq!(second.ask("write f 0 2222"), "ok", "its first handle is not fenced");
        assert_eq!(second.ask("write g 12 dd"), "ok");
        assert!(first.ask("update f /a").contains("is appending to it"));
        assert_eq!(second.ask("close g"), "ok");
        assert_eq!(second.ask("write f 4 3333"), "ok", "its other file is open");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "22223333ccccdd");
    });
}

#[test]
fn a_client_that_appends_takes_the_file_from_its_other_connection_alone() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 1, "/a"));
        assert_eq!(second.ask("append g /a"), "ok 12");
        assert!(first.ask("write f 0 1111").starts_with("error"));
        assert_eq!(second.ask("write f 0 2222"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(second.ask("write g 12 dd"), "ok");
        assert_eq!(second.ask("close g"), "ok");
        assert_eq!(content(nodes, "/a"), "2222bbbbccccdd");
    });
}

#[test]
fn a_truncation_by_name_does_not_join_and_one_by_handle_takes_its_turn() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        let mut third = nodes.connect(3);
        for client in [&mut first, &mut third] {
            let refused = client.ask("truncate /a 4");
            assert!(refused.starts_with("error Busy"), "{refused}");
        }
        assert_eq!(second.ask("cut f 6"), "ok");
        assert_eq!(first.ask("write f 4 xxxx"), "ok");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "aaaaxxxx", "nothing keeps it open");
        assert_eq!(third.ask("truncate /a 4"), "ok");
        assert_eq!(content(nodes, "/a"), "aaaa");
    });
}

#[test]
fn a_repeated_open_adds_no_share_and_a_repeated_close_is_answered() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let mut first = open(nodes, 1, "/a");
        let mut second = nodes.connect(2);
        let s = session(&mut second);
        for name in ["f", "g"] {
            // The answer to the first one was lost, but its session lives.
            assert_eq!(second.ask(&format!("#{s}:1 update {name} /a")), "ok 12");
        }
        assert_eq!(second.ask("write g 0 2222"), "ok");
        let close = format!("#{s}:2 close g");
        assert_eq!(second.ask(&close), "ok");
        assert_eq!(first.ask("write f 4 1111"), "ok");
        // The first one goes on, and the answer to the close is known all the same.
        second.hang_up();
        let mut second = nodes.connect(2);
        assert_eq!(second.ask(&close), "ok");
        assert_eq!(first.ask("write f 8 3333"), "ok");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "222211113333");
        // The number of a close that only leaves is used up.
        assert_eq!(second.ask("create n /n"), "ok 0");
        assert!(second.ask(&format!("#{s}:2 close n")).starts_with("error Invalid"));
    });
}

#[test]
fn a_repeated_open_of_a_client_that_has_joined_joins_again() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let mut first = open(nodes, 1, "/a");
        let mut second = nodes.connect(2);
        let s = session(&mut second);
        assert_eq!(second.ask(&format!("#{s}:1 update f /a")), "ok 12");
        second.hang_up();
        let mut second = nodes.connect(2);
        assert_eq!(second.ask(&format!("#{s}:1 update f /a")), "ok 12");
        assert_eq!(second.ask("write f 0 2222"), "ok");
        assert_eq!(first.ask("write f 4 1111"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(content(nodes, "/a"), "22221111cccc");
        assert!(second.ask(&format!("#{s}:1 update f /a")).starts_with("error Stale"));
    });
}

#[test]
fn a_lost_client_does_not_write_into_a_later_file_of_the_name() {
    everywhere(|nodes| {
        for (lost, goes_on) in [(1, false), (2, false), (1, true), (2, true)] {
            let path = format!("/{lost}{goes_on}");
            make(nodes, &path);
            let mut clients = [open(nodes, 1, &path), open(nodes, 2, &path)];
            // What a stock client in a cluster brings back: the capability that it had.
            let redirected = clients[lost as usize - 1].at_home(&format!("update g {path}"));
            let words = redirected.strip_prefix("redirect ").and_then(|to| to.split_once(' ')).map_or("", |(_, w)| w);
            let [first, second] = clients;
            let (gone, mut other) = if lost == 1 { (first, second) } else { (second, first) };
            gone.hang_up();
            assert_eq!(other.ask("write f 0 1111"), "ok");
            assert_eq!(other.ask("close f"), "ok");
            if goes_on {
                // It may do so with the same file.
                let mut back = nodes.connect(lost);
                assert_eq!(back.ask(&format!("update f {path} {words}")), "ok 12");
                back.hang_up();
            }
            let mut third = nodes.connect(3);
            assert_eq!(third.ask(&format!("replace f {path}")), "ok 0");
            assert_eq!(third.ask("write f 0 another-file"), "ok");
            assert_eq!(third.ask("close f"), "ok");
            let mut back = nodes.connect(lost);
            let refused = back.ask(&format!("update f {path} {words}"));
            assert!(refused.starts_with("error Stale"), "client {lost}: {refused}");
            assert_eq!(content(nodes, &path), "another-file");
        }
    });
}

#[test]
fn clients_that_have_closed_the_file_may_open_a_later_one_of_the_name() {
    everywhere(|nodes| {
        make(nodes, "/a");
        let (mut first, mut second) = (open(nodes, 1, "/a"), open(nodes, 2, "/a"));
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("close f"), "ok");
        let mut third = nodes.connect(3);
        assert_eq!(third.ask("replace f /a"), "ok 0");
        assert_eq!(third.ask("write f 0 another-file"), "ok");
        assert_eq!(third.ask("close f"), "ok");
        for client in [&mut first, &mut second] {
            assert_eq!(client.ask("update f /a"), "ok 12");
        }
        assert_eq!(first.ask("close f"), "ok");
        assert_eq!(second.ask("close f"), "ok");
    });
}

#[test]
fn closes_at_the_same_time_complete_the_file_once() {
    everywhere(|nodes| {
        make(nodes, "/a");
        for round in 0..20 {
            let mut clients: Vec<Client> = (1..=4).map(|client| open(nodes, client, "/a")).collect();
            std::thread::scope(|scope| {
                for (number, client) in clients.iter_mut().enumerate() {
                    scope.spawn(move || {
                        assert_eq!(client.ask(&format!("write f {} {:03}", number * 3, round * 10 + number)), "ok");
                        assert_eq!(client.ask("close f"), "ok", "round {round}");
                    });
                }
            });
            let expected: String = (0..4).map(|number| format!("{:03}", round * 10 + number)).collect();
            assert_eq!(content(nodes, "/a"), expected);
        }
    });
}
