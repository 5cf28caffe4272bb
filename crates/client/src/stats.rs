//! Attributes of many names at once. A server that takes batches ([`wire::batch`]) returns hundreds in one round
//! trip; others are asked for one name at a time.

use wire::batch::{List, Op, answers};
use wire::response::StatReply;
use wire::{Request, Response};

use crate::session::Answer;
use crate::{BatchLimits, Client, ClientError, Url};

/// For fewer names the client does not ask whether the server takes batches.
const WORTH: usize = 4;

impl Client {
    /// Returns the attributes of `urls`, in order. It ends after the first one that a server did not answer,
    /// because each further one would wait equally long.
    pub fn stats(&mut self, urls: &[Url]) -> Vec<Result<StatReply, ClientError>> {
        let mut found = Vec::with_capacity(urls.len());
        let is_answered = |found: &Result<_, ClientError>| match found {
            Ok(_) | Err(ClientError::Refused { .. }) => true,
            Err(_) => false,
        };
        for same in urls.chunk_by(|one, other| (&one.server, &one.user) == (&other.server, &other.user)) {
            let limits = match same.first() {
                // Errors of the server appear when it is asked for the first name.
                Some(first) if same.len() >= WORTH => self.batch_limits(first).ok().flatten(),
                _ => None,
            };
            let mut left = same;
            while let Some(limits) = limits.filter(|_| !left.is_empty()) {
                let (batch, count) = gather(left, limits);
                // A name that fits into no batch is requested alone.
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

    /// Asks once. An entry is `None` if that name has no final answer. The list is empty if no name has one.
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

/// Makes a batch of the first of `urls`. Also returns their number.
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
