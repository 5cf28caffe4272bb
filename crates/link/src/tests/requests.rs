//! Requests, answers and one-way messages between well-behaved nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::world::*;
use crate::*;

fn pair() -> (Cluster, Node, Link) {
    let cluster = Cluster::new(1);
    let node = cluster.node(1, Roles::MANAGER);
    let link = Link::up(&cluster.us(2, Roles::DISK), &node);
    (cluster, node, link)
}

#[test]
fn bulk_arrives_as_it_was_sent() {
    let (_cluster, _node, link) = pair();
    for length in [0, 1, 100, (16 << 10) - 1, 1 << 20, (1 << 20) + 1, 16 << 20] {
        let bytes: Vec<u8> = (0..length).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        let bytes = Arc::new(bytes);
        let outgoing = Outgoing::new(b"echo".to_vec()).with_bulk(Arc::clone(&bytes) as _);
        let answer = link.peer.request(Call::new(outgoing).expecting(length)).unwrap().wait(SOON).unwrap();
        assert_eq!(answer.message, b"echo");
        assert!(answer.bulk.bytes() == &bytes[..], "{length} bytes came back altered");
    }
    let long = vec![b'm'; MESSAGE_BYTES_MAX as usize];
    let answer = link.peer.request(Call::new(Outgoing::new(long.clone()))).unwrap().wait(SOON).unwrap();
    assert!(answer.message == long);
}

#[test]
fn many_concurrent_requests_get_their_own_answers() {
    let (_cluster, _node, link) = pair();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let link = &link;
            scope.spawn(move || {
                for number in 0..200 {
                    let text = format!("{thread} {number}");
                    assert_eq!(link.ask(&text).unwrap().message, text.as_bytes());
                }
            });
        }
    });
}

#[test]
fn both_sides_send_requests_and_answers_at_once() {
    let (_cluster, _node, link) = pair();
    // Each question with bulk is answered after a question back with the same bulk.
    let (sender, receiver) = std::sync::mpsc::channel();
    let bulk: SharedBytes = Arc::new(vec![7u8; 8 << 20]);
    for _ in 0..20 {
        let sender = sender.clone();
        let call = Call::new(Outgoing::new(b"back".to_vec()).with_bulk(Arc::clone(&bulk))).expecting(8 << 20);
        let on_answer = move |answer: Result<Answer<_>, _>| sender.send(answer.unwrap().bulk.bytes().len()).unwrap();
        link.peer.request_then(call, Room::Wait, on_answer).unwrap();
    }
    for _ in 0..20 {
        assert_eq!(receiver.recv_timeout(SOON), Ok(8 << 20));
    }
}

#[test]
fn answers_are_received_into_the_callers_memory() {
    let (_cluster, _node, link) = pair();
    let buffer = vec![0u8; 5000];
    let place = buffer.as_ptr();
    let answer = link.peer.request(call("bulk 4096").into_buffer(buffer)).unwrap().wait(SOON).unwrap();
    let Bulk::Here { buffer, length } = answer.bulk else { panic!() };
    assert_eq!((buffer.as_ptr(), length, buffer.len()), (place, 4096, 5000));
    assert!(buffer[..4096].iter().all(|byte| *byte == b'b') && buffer[4096..].iter().all(|byte| *byte == 0));
}

#[test]
fn bulk_without_a_buffer_is_discarded_and_reported() {
    let (_cluster, _node, link) = pair();
    let outgoing = Outgoing::new(b"no room".to_vec()).with_bulk(Arc::new(vec![1u8; 3 << 20]));
    let answer = link.peer.request(Call::new(outgoing)).unwrap().wait(SOON).unwrap();
    assert_eq!(answer.message, format!("dropped {}", 3 << 20).as_bytes());
    assert!(link.ask("and on").is_ok());
}

#[test]
fn the_number_of_running_requests_is_limited() {
    let (_cluster, node, link) = pair();
    let pending: Vec<_> = (0..4).map(|_| link.peer.try_request(call("later")).unwrap()).collect();
    assert!(matches!(link.peer.try_request(call("one more")), Err(SendError::Full)));
    // A waiting request is sent as soon as there is room.
    let began = Instant::now();
    let waiting = {
        let peer = link.peer.clone();
        std::thread::spawn(move || peer.request(call("patient")).unwrap().wait(SOON).unwrap())
    };
    std::thread::sleep(Duration::from_millis(200));
    assert!(!waiting.is_finished() && !node.seen().lines().iter().any(|line| line.contains("patient")));
    link.peer.tell(Outgoing::new(b"now".to_vec()), Room::Wait).unwrap();
    assert_eq!(waiting.join().unwrap().message, b"patient");
    assert!(began.elapsed() >= Duration::from_millis(200));
    for answer in pending {
        assert_eq!(answer.wait(SOON).unwrap().message, b"at last");
    }
}

#[test]
fn the_bytes_of_running_requests_are_limited() {
    let (_cluster, _node, link) = pair();
    let large = |answer| {
        let outgoing = Outgoing::new(b"later".to_vec()).with_bulk(Arc::new(vec![0u8; 15 << 20]));
        Call::new(outgoing).expecting(answer)
    };
    let first = link.peer.try_request(large(0)).unwrap();
    let second = link.peer.try_request(large(0)).unwrap();
    assert!(matches!(link.peer.try_request(large(0)), Err(SendError::Full)), "45 MiB of 40");
    assert!(matches!(link.peer.try_request(call("later").expecting(11 << 20)), Err(SendError::Full)), "41 of 40");
    let third = link.peer.try_request(call("later").expecting(9 << 20)).unwrap();
    link.peer.tell(Outgoing::new(b"now".to_vec()), Room::Wait).unwrap();
    for answer in [first, second, third] {
        assert!(answer.wait(SOON).is_ok());
    }
    assert!(link.peer.try_request(large(0)).is_ok());
}

#[test]
fn too_long_messages_are_not_sent() {
    let (_cluster, node, link) = pair();
    let message = vec![0; MESSAGE_BYTES_MAX as usize + 1];
    let bulk: SharedBytes = Arc::new(vec![0u8; BULK_BYTES_MAX as usize + 1]);
    for outgoing in [Outgoing::new(message), Outgoing::new(vec![]).with_bulk(bulk)] {
        assert!(matches!(link.peer.request(Call::new(outgoing.clone())), Err(SendError::TooLong { .. })));
        assert!(matches!(link.peer.tell(outgoing, Room::Wait), Err(SendError::TooLong { .. })));
    }
    assert!(matches!(link.peer.request(call("x").expecting(BULK_BYTES_MAX + 1)), Err(SendError::TooLong { .. })));
    // An answer with too much bulk is not sent either, and no thread waits for it.
    assert!(matches!(
        link.peer.request(call("bulk 101").expecting(100)).unwrap().wait(SOON),
        Err(CallError::Unanswered)
    ));
    node.seen().wait_for("the most that may be is 100");
    assert_eq!(link.peer.request(call("bulk 100").expecting(100)).unwrap().wait(SOON).unwrap().bulk.bytes().len(), 100);
}

#[test]
fn the_sender_of_a_dropped_request_is_informed() {
    let (_cluster, _node, link) = pair();
    assert!(matches!(link.ask("never"), Err(CallError::Unanswered)));
    assert!(matches!(
        link.peer.request(call("later")).unwrap().wait(Duration::from_millis(10)),
        Err(CallError::Late(_))
    ));
    // No request waits for this late answer.
    link.peer.tell(Outgoing::new(b"now".to_vec()), Room::Wait).unwrap();
    assert!(link.ask("and on").is_ok());
}

#[test]
fn one_way_messages_arrive_in_order_and_wait_for_room() {
    let (_cluster, node, link) = pair();
    let bulk: SharedBytes = Arc::new(vec![0u8; 600 << 10]);
    for number in 0..50 {
        link.peer
            .tell(Outgoing::new(number.to_string().into_bytes()).with_bulk(Arc::clone(&bulk)), Room::Wait)
            .unwrap();
    }
    node.seen().wait_for("one way 49 614400");
    let lines = node.seen().lines();
    let told: Vec<_> = lines.iter().filter(|line| line.starts_with("one way")).cloned().collect();
    assert_eq!(told, (0..50).map(|number| format!("one way {number} 614400")).collect::<Vec<_>>());
    // Messages beyond the limit are not queued.
    let slow = Rogue::greet(&_cluster.us(3, Roles::DISK), &node);
    drop(slow);
    let fails = (0..100_000).any(|_| {
        matches!(
            link.peer.tell(Outgoing::new(b"much".to_vec()).with_bulk(Arc::clone(&bulk)), Room::Try),
            Err(SendError::Full)
        )
    });
    assert!(fails);
}

#[test]
fn idle_nodes_stay_connected() {
    let (_cluster, node, link) = pair();
    std::thread::sleep(quick().silence_max * 2);
    assert!(link.ask("still there").is_ok());
    assert_eq!(node.seen().lines().iter().filter(|line| line.starts_with("ended")).count(), 0);
}

#[test]
fn a_busy_node_does_not_count_as_gone() {
    let (_cluster, node, link) = pair();
    // Longer than the silence limit: the sending thread sends signs of life.
    assert_eq!(link.ask("slow").unwrap().message, b"slow");
    assert!(!node.seen().lines().iter().any(|line| line.starts_with("ended")));
}

#[test]
fn a_closing_peer_sends_its_queue_and_a_goodbye() {
    let (_cluster, node, link) = pair();
    let unanswered = link.peer.request(call("later")).unwrap();
    for number in 0..10 {
        link.peer.tell(Outgoing::new(format!("last {number}").into_bytes()), Room::Wait).unwrap();
    }
    let began = Instant::now();
    link.peer.close("maintenance");
    node.seen().wait_for("one way last 9");
    let told = node.seen().wait_for("ended");
    assert!(told.contains("the peer has closed it: maintenance"), "{told}");
    assert!(matches!(unanswered.wait(SOON), Err(CallError::Ended(_))));
    let Err(SendError::Ended(error)) = link.peer.request(call("too late")) else { panic!() };
    assert!(error.to_string().contains("closed on this side: maintenance"), "{error}");
    let end = link.end();
    assert!(matches!(&end.why, CloseCause::ClosedHere(reason) if reason == "maintenance"), "{end}");
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
}

#[test]
fn all_waiting_requests_fail_when_the_peer_dies() {
    let (_cluster, node, link) = pair();
    let calls = Arc::new(AtomicUsize::new(0));
    let pending = link.peer.request(call("later")).unwrap();
    let counted = Arc::clone(&calls);
    let count = move |answer: Result<_, CallError>| {
        assert!(matches!(answer, Err(CallError::Ended(_))));
        counted.fetch_add(1, Ordering::SeqCst);
    };
    link.peer.request_then(call("later"), Room::Try, count).unwrap();
    let until = Instant::now() + SOON;
    while node.answers.kept.lock().len() < 2 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    for responder in node.answers.kept.lock().iter() {
        responder.peer().cut("killed");
    }
    let Err(CallError::Ended(error)) = pending.wait(SOON) else { panic!() };
    assert!(matches!(error.why, CloseCause::BrokenOff), "{error}");
    assert!(error.to_string().contains("node 1 (manager, 127.0.0.1:"), "{error}");
    assert!(matches!(link.end().why, CloseCause::BrokenOff));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}
