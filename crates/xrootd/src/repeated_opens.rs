//! Opens that the client was told to repeat after a time.
//!
//! Stock clients, up to 6.2 at least, change such an open: `RewriteRequestWait` (`XrdClXRootDMsgHandler.cc`) clears the bit
//! `kXR_refresh` where a `locate` has its options, which is where an open has its mode. The bit is the owner's permission to
//! write there, 0200. Its file would get 0444 instead of 0644, and the owner could not change it. So a server that told the
//! client to wait gives the bit back.

use parking_lot::Mutex;
use types::NsPath;

/// The bit that stock clients clear.
const CLEARED: u16 = 0o200;
/// Opens of a session that are remembered. A client has few of them at a time; of more, the oldest are forgotten.
const REMEMBERED_MAX: usize = 64;

/// Paths and modes of opens of a session that were answered with `kXR_wait`.
#[derive(Default)]
pub(crate) struct RepeatedOpens(Mutex<Vec<(NsPath, u16)>>);

impl RepeatedOpens {
    /// The client was told to wait with this open.
    pub(crate) fn waits(&self, path: NsPath, mode: u16) {
        if mode & CLEARED == 0 {
            return;
        }
        let mut opens = self.0.lock();
        if opens.len() == REMEMBERED_MAX {
            opens.remove(0);
        }
        opens.push((path, mode));
    }

    /// The mode that the client had given first: of an open with `mode` now.
    pub(crate) fn mode(&self, path: &NsPath, mode: u16) -> u16 {
        let mut opens = self.0.lock();
        let found = opens.iter().position(|(waiting, _)| waiting == path);
        match found.map(|at| opens.remove(at)) {
            Some((_, before)) if before & !CLEARED == mode => before,
            _ => mode,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // a test may fail this way

    use super::*;

    fn path(text: &str) -> NsPath {
        NsPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn an_open_that_is_repeated_keeps_its_mode() {
        let opens = RepeatedOpens::default();
        opens.waits(path("/a"), 0o644);
        assert_eq!(opens.mode(&path("/b"), 0o444), 0o444);
        assert_eq!(opens.mode(&path("/a"), 0o444), 0o644);
        assert_eq!(opens.mode(&path("/a"), 0o444), 0o444, "only once");
        // Another open of the same name.
        opens.waits(path("/a"), 0o644);
        assert_eq!(opens.mode(&path("/a"), 0o400), 0o400);
        assert_eq!(opens.mode(&path("/a"), 0o444), 0o444);
        // A client that clears nothing.
        opens.waits(path("/a"), 0o644);
        assert_eq!(opens.mode(&path("/a"), 0o644), 0o644);
        opens.waits(path("/a"), 0o444);
        assert_eq!(opens.mode(&path("/a"), 0o444), 0o444);
    }

    #[test]
    fn few_are_remembered() {
        let opens = RepeatedOpens::default();
        for number in 0..=REMEMBERED_MAX {
            opens.waits(path(&format!("/{number}")), 0o644);
        }
        assert_eq!(opens.0.lock().len(), REMEMBERED_MAX);
        assert_eq!(opens.mode(&path("/0"), 0o444), 0o444);
        assert_eq!(opens.mode(&path("/1"), 0o444), 0o644);
    }
}
