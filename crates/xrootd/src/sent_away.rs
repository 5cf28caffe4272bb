//! Requests that a manager has sent to another server, to notice those that come back again and again.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use wire::request::{Fattr, FattrOp, QueryKind, Request, Target};

use crate::from_wire::{capability_of, intent_of};

/// A client that goes round in circles asks the same within milliseconds, or after a wait of a second.
const WITHIN: Duration = Duration::from_secs(2);
/// The requests of a connection that are remembered. XrdCl has one connection for all files of a process.
const REMEMBERED: usize = 8;

/// The requests of a connection that were sent away last.
#[derive(Default)]
pub(crate) struct SentAway([Option<Sent>; REMEMBERED]);

#[derive(Clone, Copy)]
struct Sent {
    /// What it asks for.
    key: u64,
    /// When it came last.
    at: Instant,
    /// How often it came before that.
    times: u8,
}

impl SentAway {
    /// Notes that this request is about to be sent away. Returns how often it has come before without a pause.
    pub(crate) fn note(&mut self, now: Instant, request: &Request) -> u8 {
        let Some(key) = key_of(request) else { return 0 };
        let is_it = |sent: &&mut Option<Sent>| sent.is_some_and(|sent| sent.key == key);
        if let Some(sent) = self.0.iter_mut().find(is_it).and_then(Option::as_mut) {
            let comes_again = now.duration_since(sent.at) < WITHIN;
            sent.times = if comes_again { sent.times.saturating_add(1) } else { 0 };
            sent.at = now;
            return sent.times;
        }
        if let Some(oldest) = self.0.iter_mut().min_by_key(|sent| sent.map(|sent| sent.at)) {
            *oldest = Some(Sent { key, at: now, times: 0 });
        }
        0
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
    use wire::request::{Dirlist, DirlistOptions};

    use super::*;

    fn list(path: &str, opaque: &str) -> Request {
        let opaque = wire::Opaque::parse(opaque.as_bytes()).ok();
        let target = PathArg { path: path.as_bytes().to_vec(), opaque };
        Request::Dirlist(Dirlist { options: DirlistOptions::default(), target })
    }

    #[test]
    fn what_comes_back_is_counted_until_there_is_a_pause() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        for turn in 0..20 {
            assert_eq!(sent.note(start, &list("/a", &format!("x=1&tried=h{turn}"))), turn);
            assert_eq!(sent.note(start, &list("/b", "")), turn, "each request for itself");
        }
        let later = start + WITHIN - Duration::from_millis(1);
        assert_eq!(sent.note(later, &list("/a", "x=1")), 20);
        assert_eq!(sent.note(later + WITHIN, &list("/a", "")), 0);
    }

    #[test]
    fn as_many_as_are_remembered_do_not_disturb_each_other() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        let after = |millis| start + Duration::from_millis(millis);
        for turn in 0..3 {
            for file in 0..REMEMBERED as u64 {
                let request = list(&format!("/{file}"), "");
                assert_eq!(u64::from(sent.note(after(turn * 20 + file), &request)), turn, "{file}");
            }
        }
        assert_eq!(sent.note(after(100), &list("/more", "")), 0, "it takes the place of the oldest");
        assert_eq!(sent.note(after(101), &list("/0", "")), 0);
        assert_eq!(sent.note(after(102), &list("/7", "")), 3);
    }
}
