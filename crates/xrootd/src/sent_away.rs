//! Requests that a manager has sent to another server, to notice those that come back again and again.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use wire::request::{Fattr, FattrOp, QueryKind, Request, Target};

use crate::from_wire::{capability_of, intent_of};

/// A client that goes round in circles asks the same within milliseconds.
const WITHIN: Duration = Duration::from_secs(1);
/// How often a request is sent away within that time. XrdCl gives up after 16 redirects.
const TIMES_MAX: u8 = 6;
/// A client that had to wait for a second asks again within this time.
const PAUSE: Duration = Duration::from_secs(2);
/// The requests of a connection that are remembered. XrdCl has one connection for all files of a process.
const REMEMBERED: usize = 8;

/// The requests of a connection that were sent away last.
#[derive(Default)]
pub(crate) struct SentAway([Option<Sent>; REMEMBERED]);

#[derive(Clone, Copy)]
struct Sent {
    /// What it asks for.
    key: u64,
    /// The beginning of the time within which it counts as the same.
    since: Instant,
    /// How often it was sent away since.
    times: u8,
}

impl SentAway {
    /// Notes that this request is about to be sent away. Returns whether it was before, so often that it should get an answer.
    pub(crate) fn goes_in_circles(&mut self, now: Instant, request: &Request) -> bool {
        let Some(sent) = self.sent(now, request, WITHIN) else { return false };
        let is_again = sent.times >= TIMES_MAX;
        *sent = if is_again { Sent { since: now, times: 0, ..*sent } } else { Sent { times: sent.times + 1, ..*sent } };
        is_again
    }

    /// Notes an open that comes back from a disk server. Returns whether its client has to wait; it comes once more after that. XrdCl counts two
    /// redirects for each turn, three if a standby manager is on the way, and forgets none of them while it waits.
    pub(crate) fn has_to_wait(&mut self, now: Instant, request: &Request) -> bool {
        let Some(sent) = self.sent(now, request, PAUSE) else { return false };
        let has_to_wait = sent.times >= 2 && sent.times.is_multiple_of(2);
        *sent = Sent { since: now, times: sent.times.saturating_add(1), ..*sent };
        has_to_wait
    }

    /// What is known of this request, if it came within this time. Otherwise nothing, in place of the oldest. `None`: it cannot be one that comes back.
    fn sent(&mut self, now: Instant, request: &Request, within: Duration) -> Option<&mut Sent> {
        let key = key_of(request)?;
        let is_it = |sent: &Sent| sent.key == key;
        let place =
            self.0.iter_mut().min_by_key(|sent| (!sent.as_ref().is_some_and(is_it), sent.map(|sent| sent.since)))?;
        let known = place.filter(|sent| is_it(sent) && now.duration_since(sent.since) < within);
        Some(place.insert(known.unwrap_or(Sent { key, since: now, times: 0 })))
    }
}

/// What a request asks for, if it may be one that comes back.
fn key_of(request: &Request) -> Option<u64> {
    // XrdCl adds to what it asks for each time.
    let shown = match request {
        Request::Dirlist(r) => ("dirlist", 0, &*r.target.path),
        Request::Query(r) => {
            let kind = match r.kind {
                QueryKind::Checksum => 1,
                QueryKind::Xattr => 2,
                QueryKind::Space => 3,
                _ => return None,
            };
            ("query", kind, r.args.split(|byte| *byte == b'?').next().unwrap_or_default())
        }
        Request::Fattr(Fattr { target: Target::Path(target), op: FattrOp::Get(_) | FattrOp::List { .. } }) => {
            ("fattr", 0, &*target.path)
        }
        // The client says that it comes back, or still has the capability with which it was sent away. With some answers of the active manager that is
        // not enough to know.
        Request::Open(r) if r.target.get(b"tried").is_some() || capability_of(&r.target).is_some() => {
            ("open", u8::from(intent_of(r.options) == service::Intent::Read), &*r.target.path)
        }
        // The client says what the active manager has answered.
        _ => return None,
    };
    let mut hasher = DefaultHasher::new();
    shown.hash(&mut hasher);
    Some(hasher.finish())
}

#[cfg(test)]
mod tests {
    use wire::PathArg;
    use wire::request::{Access, Dirlist, DirlistOptions, Open, OpenOptions};

    use super::*;

    fn list(path: &str, opaque: &str) -> Request {
        let opaque = wire::Opaque::parse(opaque.as_bytes()).ok();
        let target = PathArg { path: path.as_bytes().to_vec(), opaque };
        Request::Dirlist(Dirlist { options: DirlistOptions::default(), target })
    }

    fn open(path: &str, opaque: &str) -> Request {
        let opaque = wire::Opaque::parse(opaque.as_bytes()).ok();
        let target = PathArg { path: path.as_bytes().to_vec(), opaque };
        Request::Open(Open::plain(Access::NONE, OpenOptions::READ, target))
    }

    #[test]
    fn what_comes_back_again_and_again_gets_an_answer() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        for turn in 0..TIMES_MAX {
            assert!(!sent.goes_in_circles(start, &list("/a", &format!("x=1&tried=h{turn}"))), "{turn}");
        }
        assert!(sent.goes_in_circles(start, &list("/a", "x=1")));
        assert!(!sent.goes_in_circles(start, &list("/a", "")), "it was answered: this is another one");
        assert!(!sent.goes_in_circles(start, &list("/b", "")) && !sent.goes_in_circles(start, &list("/a", "")));
    }

    #[test]
    fn somebody_who_asks_often_is_sent_away_each_time() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        for turn in 0..100 {
            let now = start + WITHIN / u32::from(TIMES_MAX - 1) * turn;
            assert!(!sent.goes_in_circles(now, &list("/a", "")), "{turn}");
        }
    }

    #[test]
    fn an_open_that_comes_back_waits_until_there_is_a_pause() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        let waits: Vec<bool> = (0..7).map(|_| sent.has_to_wait(start, &open("/a", "tried=h"))).collect();
        assert_eq!(waits, [false, false, true, false, true, false, true]);
        let later = start + PAUSE - Duration::from_millis(1);
        assert!(!sent.has_to_wait(later, &open("/a", "tried=h")) && sent.has_to_wait(later, &open("/a", "tried=h")));
        let after = later + PAUSE;
        assert!(!sent.has_to_wait(after, &open("/a", "tried=h")) && !sent.has_to_wait(after, &open("/a", "tried=h")));
        assert!((0..9).all(|_| !sent.has_to_wait(after, &open("/b", ""))), "it does not come back");
    }

    #[test]
    fn as_many_as_are_remembered_do_not_disturb_each_other() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        let file = |number| open(&format!("/{number}"), "tried=h");
        for turn in 0..3 {
            for number in 0..REMEMBERED as u64 {
                assert_eq!(sent.has_to_wait(after(turn * 20 + number), &file(number)), turn == 2, "{number}");
            }
        }
        assert!(!sent.has_to_wait(after(100), &open("/more", "tried=h")), "it takes the place of the oldest");
        assert!((101..103).all(|at| !sent.has_to_wait(after(at), &file(0))), "that one was forgotten");
        assert!(!sent.has_to_wait(after(103), &file(7)) && sent.has_to_wait(after(104), &file(7)));
    }
}
