//! Lines to systemd-journald, by its native protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): a datagram for each entry, with a line
//! `FIELD=value` for each field. No value here has a line end, so the simple form is enough.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use crate::AuditError;
use crate::sink::{Stopped, lines_in};

/// Before each line. Priority 5 is `notice`.
const FIELDS: &[u8] = b"SYSLOG_IDENTIFIER=weir-audit\nPRIORITY=5\nMESSAGE=";

/// The connection.
pub(crate) struct Journald {
    socket: UnixDatagram,
    path: PathBuf,
    entry: Vec<u8>,
}

impl Journald {
    pub(crate) fn connect(path: &Path) -> Result<Self, AuditError> {
        let failed = |source| AuditError::Journald { path: path.to_owned(), source };
        let socket = UnixDatagram::unbound().map_err(failed)?;
        socket.connect(path).map_err(failed)?;
        // The thread that writes may wait for journald a moment, and not for ever.
        socket.set_write_timeout(Some(std::time::Duration::from_secs(1))).map_err(failed)?;
        Ok(Self { socket, path: path.to_owned(), entry: Vec::new() })
    }

    /// Sends each line.
    pub(crate) fn send(&mut self, lines: &[u8]) -> Result<(), Stopped> {
        let mut lines_written = 0;
        for line in lines.split_inclusive(|byte| *byte == b'\n') {
            self.entry.clear();
            self.entry.extend_from_slice(FIELDS);
            self.entry.extend_from_slice(line);
            if let Err(source) = self.send_entry() {
                return Err(Stopped { lines_written, why: AuditError::Journald { path: self.path.clone(), source } });
            }
            lines_written += lines_in(line);
        }
        Ok(())
    }

    /// Sends an entry. A journald that was restarted has another socket at the same path.
    fn send_entry(&self) -> io::Result<()> {
        match self.socket.send(&self.entry) {
            Ok(_) => Ok(()),
            Err(error) if matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotConnected) => {
                self.socket.connect(&self.path)?;
                self.socket.send(&self.entry).map(drop)
            }
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_an_entry_and_a_restart_of_journald_is_survived() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("socket");
        assert!(Journald::connect(&path).err().unwrap().to_string().contains("is it running?"));
        let receiver = UnixDatagram::bind(&path).unwrap();
        let mut journald = Journald::connect(&path).unwrap();
        journald.send(b"{\"a\":1}\n{\"b\":2}\n").unwrap();
        let received = |receiver: &UnixDatagram| {
            let mut buffer = [0; 200];
            let len = receiver.recv(&mut buffer).unwrap();
            String::from_utf8(buffer[..len].to_vec()).unwrap()
        };
        assert_eq!(received(&receiver), "SYSLOG_IDENTIFIER=weir-audit\nPRIORITY=5\nMESSAGE={\"a\":1}\n");
        assert_eq!(received(&receiver), "SYSLOG_IDENTIFIER=weir-audit\nPRIORITY=5\nMESSAGE={\"b\":2}\n");
        drop(receiver);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(journald.send(b"{}\n").unwrap_err().lines_written, 0);
        let receiver = UnixDatagram::bind(&path).unwrap();
        journald.send(b"{\"c\":3}\n").unwrap();
        assert!(received(&receiver).ends_with("MESSAGE={\"c\":3}\n"));
    }
}
