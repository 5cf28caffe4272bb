//! Requests that a manager has sent to another server, to notice those that come back again and again.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use wire::request::{Fattr, FattrOp, QueryKind, Request, Target};

use crate::from_wire::capability_of;

/// A client that goes round in circles asks the same within milliseconds.
const WITHIN: Duration = Duration::from_secs(1);
/// How often a request is sent away within that time. XrdCl gives up after 16 redirects.
const TIMES_MAX: u8 = 6;

/// The request of a connection that was sent away last.
#[derive(Default)]
pub(crate) struct SentAway {
    /// What it asks for, since when, and how often it was sent away since.
    last: Option<(u64, Instant, u8)>,
}

impl SentAway {
    /// Notes that this request is about to be sent away. Returns whether it was before, so often that it should get an answer.
    pub(crate) fn note(&mut self, now: Instant, request: &Request) -> bool {
        let mut hasher = DefaultHasher::new();
        // XrdCl adds to what it asks for each time.
        let shown = match request {
            Request::Dirlist(r) => ("dirlist", 0, &*r.target.path),
            Request::Query(r) => {
                let kind = match r.kind {
                    QueryKind::Checksum => 1,
                    QueryKind::Xattr => 2,
                    QueryKind::Space => 3,
                    _ => return false,
                };
                ("query", kind, r.args.split(|byte| *byte == b'?').next().unwrap_or_default())
            }
            Request::Fattr(Fattr { target: Target::Path(target), op: FattrOp::Get(_) | FattrOp::List { .. } }) => {
                ("fattr", 0, &*target.path)
            }
            // The client says that it comes back, or still has the capability with which it was sent away. With some answers of the active manager
            // that is not enough to know.
            Request::Open(r) if r.target.get(b"tried").is_some() || capability_of(&r.target).is_some() => {
                ("open", 0, &*r.target.path)
            }
            // The client says what the active manager has answered.
            _ => return false,
        };
        shown.hash(&mut hasher);
        let key = hasher.finish();
        let (since, times) = match self.last {
            Some((last, since, times)) if last == key && now.duration_since(since) < WITHIN => (since, times),
            _ => (now, 0),
        };
        if times >= TIMES_MAX {
            self.last = None;
            return true;
        }
        self.last = Some((key, since, times + 1));
        false
    }
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
    fn what_comes_back_again_and_again_gets_an_answer() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        for turn in 0..TIMES_MAX {
            assert!(!sent.note(start, &list("/a", &format!("x=1&tried=h{turn}"))), "{turn}");
        }
        assert!(sent.note(start, &list("/a", "x=1")));
        assert!(!sent.note(start, &list("/a", "")), "it was answered: this is another one");
        assert!(!sent.note(start, &list("/b", "")) && !sent.note(start, &list("/a", "")));
    }

    #[test]
    fn somebody_who_asks_often_is_sent_away_each_time() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        for turn in 0..100 {
            assert!(!sent.note(start + WITHIN / u32::from(TIMES_MAX - 1) * turn, &list("/a", "")), "{turn}");
        }
    }
}
