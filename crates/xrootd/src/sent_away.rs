//! Requests that a standby manager has sent to the active one, to notice those that come back again and again.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::{Duration, Instant};

use wire::request::Request;

/// A client that asks the same again after this time asks anew.
const FORGOTTEN: Duration = Duration::from_secs(3);
/// How often a request is sent away.
const TIMES_MAX: u8 = 2;

/// The request of a connection that was sent away last.
#[derive(Default)]
pub(crate) struct SentAway {
    last: Option<(u64, Instant, u8)>,
}

impl SentAway {
    /// Notes that this request is about to be sent away. Returns whether it was before, so often that it should get an answer.
    pub(crate) fn note(&mut self, now: Instant, request: &Request) -> bool {
        let mut hasher = DefaultHasher::new();
        // XrdCl adds to what it asks for each time.
        let shown = match request {
            Request::Dirlist(r) => ("dirlist", &*r.target.path),
            Request::Query(r) => ("query", r.args.split(|byte| *byte == b'?').next().unwrap_or_default()),
            Request::Stat(r) => ("stat", path_of(&r.target)),
            Request::Fattr(r) => ("fattr", path_of(&r.target)),
            Request::Locate(r) => ("locate", &*r.target.path),
            // The client says what the active manager has answered, or may ask for it again and again.
            _ => return false,
        };
        shown.hash(&mut hasher);
        let key = hasher.finish();
        let times = match self.last {
            Some((last, since, times)) if last == key && now.duration_since(since) < FORGOTTEN => times,
            _ => 0,
        };
        if times >= TIMES_MAX {
            self.last = None;
            return true;
        }
        self.last = Some((key, now, times + 1));
        false
    }
}

fn path_of(target: &wire::request::Target) -> &[u8] {
    match target {
        wire::request::Target::Path(target) => &target.path,
        wire::request::Target::Handle(_) => &[],
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
    fn what_comes_back_twice_gets_an_answer() {
        let (mut sent, start) = (SentAway::default(), Instant::now());
        assert!(!sent.note(start, &list("/a", "x=1")));
        assert!(!sent.note(start, &list("/a", "x=1&tried=h")));
        assert!(sent.note(start, &list("/a", "x=1&tried=h,h")));
        assert!(!sent.note(start, &list("/a", "")), "it was answered: this is another one");
        assert!(!sent.note(start, &list("/b", "")) && !sent.note(start, &list("/a", "")));
        assert!(!sent.note(start, &list("/a", "")));
        assert!(!sent.note(start + FORGOTTEN, &list("/a", "")), "somebody asks again");
    }
}
