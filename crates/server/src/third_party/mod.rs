//! Third-party copies: one server fetches a file from another because a client asks both.
//!
//! As the stock client does it: it opens the target with `tpc.key`, `tpc.src` and `tpc.lfn`; the first sync there starts the copy;
//! it opens the source with the same key and `tpc.dst`, which lets that host in; the target opens the source with the key and
//! `tpc.org`, who the client is; the second sync on the target is answered when the copy is done. The client's own stat of the
//! target shows how far it is; `ofs.tpc cancel` by a query, a close before the end, or a lost connection stop it.
//!
//! The target is an upload like any other: nothing is visible before the client has closed it.

mod pull;
mod rendezvous;

pub(crate) use pull::{PullJob, Pulls, Synced};
pub(crate) use rendezvous::{Grant, OpenRequest, Registration, Rendezvous, addresses_of};

use std::net::IpAddr;
use std::sync::Arc;

use wire::{ErrorNumber, PathArg};

use crate::refusal::Refusal;

/// Longest key, host or name in the words behind a path.
const WORD_MAX: usize = 1024;

/// What fetches from other servers.
pub trait Pull: Send + Sync {
    /// Fetches a whole file into `into`, compares its checksum with the source's, and says how it went; the text of an
    /// error is for the client. Gives up within seconds once it is `cancelled`, whatever the source does or does not do.
    ///
    /// # Errors
    /// What went wrong, in words.
    fn pull(&self, source: &PullSource, cancelled: Cancelled, into: &mut dyn PullSink) -> Result<(), String>;

    /// May files be fetched from this server (`host`, `host:port` or `user@host:port`)?
    ///
    /// # Errors
    /// Why not, in words for the client.
    fn may_fetch_from(&self, server: &str) -> Result<(), String>;
}

/// Tells whether a copy has been stopped: by its client, by the client's going away, or because the server stops.
pub type Cancelled = Arc<dyn Fn() -> bool + Send + Sync>;

/// Where to fetch from.
#[derive(Clone, PartialEq, Eq)]
pub struct PullSource {
    /// `host`, `host:port` or `user@host:port`.
    pub server: String,
    /// The path there.
    pub path: String,
    /// The key that the client has agreed on with both. A secret.
    pub key: String,
    /// The client, as `user.pid`.
    pub origin: String,
    /// The client's address.
    pub client: IpAddr,
    /// The length that the client has announced, in bytes.
    pub expected_len: Option<u64>,
}

/// Where fetched bytes go.
pub trait PullSink {
    /// Takes bytes at an offset, in any order.
    ///
    /// # Errors
    /// Why not; there is no use in going on.
    fn put(&mut self, offset: u64, data: &[u8]) -> Result<(), String>;
}

/// What the words behind a path say of a third-party copy.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Nothing.
    None,
    /// The client lets `dst` in as a reader of this file.
    Source { key: Vec<u8>, dst: String },
    /// Another server asks for this file on behalf of `origin`.
    Fetch { key: Vec<u8>, origin: Vec<u8> },
    /// This file is to be fetched from there.
    Target { key: String, server: String, path: Option<String> },
}

impl Part {
    /// Reads the words of an open.
    pub(crate) fn of(target: &PathArg) -> Result<Self, Refusal> {
        // An open that only looks whether the source is there.
        if target.get(b"tpc.stage") == Some(b"placement") {
            return Ok(Self::None);
        }
        let Some(key) = target.get(b"tpc.key").filter(|key| !key.is_empty()) else { return Ok(Self::None) };
        let word = |name: &[u8]| match target.get(name) {
            Some(word) if word.len() > WORD_MAX => Err(wrong("a word of it is too long")),
            word => Ok(word.filter(|word| !word.is_empty())),
        };
        let text = |word: &[u8]| std::str::from_utf8(word).map(str::to_owned).map_err(|_| wrong("it is no UTF-8"));
        if key.len() > WORD_MAX {
            return Err(wrong("its key is too long"));
        }
        match (word(b"tpc.src")?, word(b"tpc.dst")?, word(b"tpc.org")?) {
            (Some(source), None, None) => {
                if word(b"tpc.spr")?.is_some_and(|scheme| !matches!(scheme, b"root" | b"xroot")) {
                    return Err(Refusal::unsupported("A third-party copy from anything but a root:// server"));
                }
                let path = word(b"tpc.lfn")?.map(text).transpose()?;
                Ok(Self::Target { key: text(key)?, server: text(source)?, path })
            }
            (None, Some(dst), None) => Ok(Self::Source { key: key.to_vec(), dst: text(dst)? }),
            (None, None, Some(origin)) => Ok(Self::Fetch { key: key.to_vec(), origin: origin.to_vec() }),
            _ => Err(wrong("it has to name exactly one of tpc.src, tpc.dst and tpc.org")),
        }
    }
}

fn wrong(why: &str) -> Refusal {
    Refusal::new(ErrorNumber::ARG_INVALID, format!("Cannot take part in the third-party copy: {why}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    #[test]
    fn the_parts_are_told_apart() {
        let of = |text: &str| Part::of(&PathArg::parse(text.as_bytes()).unwrap()).map_err(drop);
        assert!(of("/a") == Ok(Part::None));
        assert!(of("/a?tpc.key=k&tpc.dst=h&tpc.stage=placement") == Ok(Part::None));
        assert!(of("/a?tpc.key=k&tpc.dst=h") == Ok(Part::Source { key: b"k".to_vec(), dst: "h".into() }));
        assert!(of("/a?tpc.key=k&tpc.org=u.1@h") == Ok(Part::Fetch { key: b"k".to_vec(), origin: b"u.1@h".to_vec() }));
        let target = Part::Target { key: "k".into(), server: "h:1".into(), path: Some("/b".into()) };
        assert!(of("/a?tpc.key=k&tpc.src=h:1&tpc.lfn=/b&tpc.spr=root") == Ok(target));
        for bad in ["/a?tpc.key=k", "/a?tpc.key=k&tpc.src=h&tpc.dst=h", "/a?tpc.key=k&tpc.src=h&tpc.spr=http"] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("/a?tpc.key={}&tpc.dst=h", "k".repeat(2000))).is_err());
    }
}
