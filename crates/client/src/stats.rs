//! Attributes of many names at once: from a server that takes batches ([`wire::batch`]) hundreds in one trip, from others one by one.

use wire::batch::{List, Op, answers};
use wire::response::StatReply;
use wire::{Request, Response};

use crate::session::Answer;
use crate::{BatchLimits, Client, ClientError, Url};

/// Fewer are not worth the question whether the server takes batches.
const WORTH: usize = 4;

impl Client {
    /// Attributes of each of `urls`, in their order; up to the first that a server has not answered, and none behind that: each would be waited for
    /// as long.
    pub fn stats(&mut self, urls: &[Url]) -> Vec<Result<StatReply, ClientError>> {
        let mut found = Vec::with_capacity(urls.len());
        let is_answered = |found: &Result<_, ClientError>| match found {
            Ok(_) | Err(ClientError::Refused { .. }) => true,
            Err(_) => false,
        };
        for same in urls.chunk_by(|one, other| (&one.server, &one.user) == (&other.server, &other.user)) {
            let limits = match same.first() {
                // What is wrong with the server shows when it is asked for the first name.
                Some(first) if same.len() >= WORTH => self.batch_limits(first).ok().flatten(),
                _ => None,
            };
            let mut left = same;
            while let Some(limits) = limits.filter(|_| !left.is_empty()) {
                let (batch, count) = gather(left, limits);
                // One that is in no batch is asked for alone.
                let (now, later) = left.split_at(count.max(1));
                let answered = if count > 0 { self.ask_batch(now, &batch) } else { Vec::new() };
                let mut answered = answered.into_iter();
                for url in now {
                    found.push(answered.next().flatten().unwrap_or_else(|| self.stat(url)));
                    if !found.last().is_some_and(is_answered) {
                        return found;
                    }
                }
                left = later;
            }
            for url in left {
                found.push(self.stat(url));
                if !found.last().is_some_and(is_answered) {
                    return found;
                }
            }
        }
        found
    }

    /// Asks once. `None`: there was no last word on that name; nothing at all: nor on any.
    fn ask_batch(&mut self, urls: &[Url], batch: &List) -> Vec<Option<Result<StatReply, ClientError>>> {
        let Some(Ok(mut session)) = urls.first().map(|first| self.take_session(first)) else { return Vec::new() };
        let what = "a batch of stats";
        let Ok(Answer::Done(body)) = session.call_with(what, &Request::Batch(batch.request()), &[batch.bytes()]) else {
            return Vec::new();
        };
        let Ok(answers) = answers(&body, urls.len()) else { return Vec::new() };
        let understood = urls.iter().zip(answers).map(|(url, answer)| match answer {
            Response::Ok(body) => Some(StatReply::decode(&body).map_err(|source| session.malformed(source))),
            error @ Response::Error { .. } => Some(Err(session.refused(&format!("stat {url}"), error))),
            _ => None,
        });
        let understood = understood.collect();
        if let Some(first) = urls.first() {
            self.give_back(session, first);
        }
        understood
    }
}

/// A batch of the first of `urls`, and of how many.
fn gather(urls: &[Url], limits: BatchLimits) -> (List, usize) {
    let mut list = List::default();
    let mut count = 0;
    for url in urls.iter().take(limits.entries as usize) {
        let mut target = Vec::new();
        url.target().write(&mut target);
        let is_full = list.request().len as usize + List::cost(target.len(), 0) > limits.bytes as usize;
        if is_full || list.push(Op::Stat, &target, 0).is_err() {
            break;
        }
        count += 1;
    }
    (list, count)
}

#[cfg(test)]
mod tests {
    use wire::batch::Takes;

    use super::*;

    #[test]
    fn a_batch_has_as_many_as_the_server_takes() {
        let url = |path: &str| Url::parse(&format!("root://h:1/{path}")).unwrap();
        let urls: Vec<Url> = (0..10).map(|number| url(&format!("/name-{number}"))).collect();
        let limits = |entries, bytes| BatchLimits { entries, bytes, takes: Takes::Names };
        assert_eq!(gather(&urls, limits(512, 1 << 20)).1, 10);
        let (list, count) = gather(&urls, limits(3, 1 << 20));
        assert_eq!((count, list.request().entries), (3, 3));
        assert_eq!(gather(&urls, limits(512, 60)).1, 2);
    }
}
