//! How a disk server combines striped files: weir's own client asks the manager for each stripe unit, and reads and writes it at its store.

use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{ClientError, Credentials, Endpoint, Method, Settings, StripedAt, StripedReader, StripedWriter, Url};
use node::StripedRights;
use parking_lot::Mutex;
use service::{StripedError, StripedFile, StripedOpen, Striper};
use types::{ErrorCode, RequestNumber, Stripe, Timestamp};

/// How often to ask for the units' lengths while a reader follows a file that is being written.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// The addresses of managers for clients.
type Managers = Box<dyn Fn() -> Vec<(String, u16)> + Send + Sync>;

/// Opens striped files with weir's own client.
pub struct StripedFiles {
    to_read: Settings,
    to_write: Settings,
    managers: Managers,
}

impl std::fmt::Debug for StripedFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StripedFiles")
    }
}

impl StripedFiles {
    /// Limits the client's patience, because the server's own client waits meanwhile. `managers`: all that may answer, if another one takes over while a
    /// file is open.
    pub fn new(managers: impl Fn() -> Vec<(String, u16)> + Send + Sync + 'static) -> Self {
        let minute = Duration::from_secs(60);
        let to_write = Settings {
            silence_max: minute,
            recovery_max: minute,
            wait_max: 2 * minute,
            application: "weir-stripe".to_owned(),
            user: "weir".to_owned(),
            credentials: Credentials::only(&[Method::Unix, Method::Host]),
            ..Settings::default()
        };
        // A stock client gives up a silent server after 60 s, and opens the file again by its name. If the file was replaced
        // meanwhile, it would read on in the middle of the new one. So a reader is sent to the manager before that, with the object
        // that it reads: the manager knows what has become of it, and has more patience.
        let second = Duration::from_secs(1);
        let to_read =
            Settings { silence_max: 20 * second, recovery_max: 10 * second, wait_max: 5 * second, ..to_write.clone() };
        Self { to_read, to_write, managers: Box::new(managers) }
    }
}

impl Striper for StripedFiles {
    fn open(&self, open: &StripedOpen) -> Result<Arc<dyn StripedFile>, StripedError> {
        let StripedOpen { manager: (host, port), path, grant, expected_len } = open;
        let path = String::from_utf8(path.as_bytes().to_vec())
            .map_err(|_| StripedError::new(ErrorCode::Unsupported, "the name of a striped file has to be UTF-8"))?;
        let server = Endpoint { host: host.clone(), port: *port };
        let others = (self.managers)().into_iter().map(|(host, port)| Endpoint { host, port });
        let others = others.filter(|other| *other != server).collect();
        let url = Url { tls: false, server, others, user: None, path, opaque: None };
        let mut at = StripedAt { url, stripe: grant.stripe };
        let read = |at: StripedAt| StripedReader::open(at, grant.object, &[], &self.to_read).map_err(told);
        match grant.rights {
            StripedRights::Write { writing, goes_on } => {
                let writing =
                    StripedWriter::open(at, (writing, goes_on), *expected_len, &self.to_write).map_err(told)?;
                Ok(Arc::new(WritableFile(writing)))
            }
            StripedRights::Read { len, is_partial } => {
                if is_partial {
                    at.url.add_words("weir.partial=1");
                }
                Ok(Arc::new(ClosedFile { len, units: read(at)?, manager: open.manager.clone() }))
            }
            StripedRights::Follow => {
                // Each unit is being written, too.
                at.url.add_words("weir.follow=1");
                let units = read(at)?;
                let manager = open.manager.clone();
                let followed = GrowingFile { stripe: grant.stripe, units, len: Mutex::new((0, None)), manager };
                followed.look().map_err(told)?;
                Ok(Arc::new(followed))
            }
        }
    }
}

fn told(error: ClientError) -> StripedError {
    let code = match &error {
        ClientError::Replaced { .. } => ErrorCode::Stale,
        ClientError::Refused { number, .. } => ErrorCode::from(*number),
        _ => ErrorCode::Io,
    };
    StripedError::new(code, format!("a stripe unit of it: {error}"))
}

/// The same for a read. If a unit's server cannot be reached, the manager may know another way, or lets the reader wait.
fn not_read(error: ClientError, manager: &(String, u16)) -> StripedError {
    let ask = matches!(error.kind(), client::Kind::Connection).then(|| manager.clone());
    if ask.is_some() {
        tracing::info!(%error, "a reader of a striped file is sent to the manager");
    }
    StripedError { ask, ..told(error) }
}

fn read_only() -> StripedError {
    StripedError::new(ErrorCode::NotAllowedNow, "it is open for reading")
}

/// A file that nobody writes.
struct ClosedFile {
    len: u64,
    units: StripedReader,
    manager: (String, u16),
}

/// A file that another client writes.
struct GrowingFile {
    stripe: Stripe,
    units: StripedReader,
    /// The length without a gap, and when it was asked for.
    len: Mutex<(u64, Option<Instant>)>,
    manager: (String, u16),
}

impl GrowingFile {
    fn look(&self) -> Result<u64, ClientError> {
        let mut known = self.len.lock();
        if known.1.is_none_or(|asked| asked.elapsed() >= LOOK_EVERY) {
            // A length that was reported once never shrinks.
            known.0 = known.0.max(self.stripe.whole_prefix(&self.units.lens()?));
            known.1 = Some(Instant::now());
        }
        Ok(known.0)
    }
}

/// A file that this client writes.
struct WritableFile(StripedWriter);

impl StripedFile for ClosedFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StripedError> {
        let left = usize::try_from(self.len.saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(into.len());
        let got = self.units.read(offset, &mut into[..wanted]).map_err(|error| not_read(error, &self.manager))?;
        if got < wanted {
            let end = offset.saturating_add(got as u64);
            let text =
                format!("it ends at {end} bytes, and {} were expected: a stripe unit of it is too short", self.len);
            return Err(StripedError::new(ErrorCode::Io, text));
        }
        Ok(got)
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), StripedError> {
        Err(read_only())
    }

    fn truncate(&self, _: u64) -> Result<(), StripedError> {
        Err(read_only())
    }

    fn sync(&self) -> Result<(), StripedError> {
        Ok(())
    }

    fn complete(&self, _: Option<Timestamp>, _: Option<RequestNumber>) -> Result<(), StripedError> {
        Err(read_only())
    }
}

impl StripedFile for GrowingFile {
    fn len(&self) -> u64 {
        match self.look() {
            Ok(len) => len,
            Err(error) => {
                tracing::debug!(%error, "a stripe unit does not say how long it is");
                self.len.lock().0
            }
        }
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StripedError> {
        let left = usize::try_from(self.len().saturating_sub(offset)).unwrap_or(usize::MAX);
        let wanted = left.min(into.len());
        self.units.read(offset, &mut into[..wanted]).map_err(|error| not_read(error, &self.manager))
    }

    fn write(&self, _: u64, _: &[u8]) -> Result<(), StripedError> {
        Err(read_only())
    }

    fn truncate(&self, _: u64) -> Result<(), StripedError> {
        Err(read_only())
    }

    fn sync(&self) -> Result<(), StripedError> {
        Ok(())
    }

    fn complete(&self, _: Option<Timestamp>, _: Option<RequestNumber>) -> Result<(), StripedError> {
        Err(read_only())
    }
}

impl StripedFile for WritableFile {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, StripedError> {
        self.0.read(offset, into).map_err(told)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), StripedError> {
        self.0.write(offset, data).map_err(told)
    }

    fn truncate(&self, len: u64) -> Result<(), StripedError> {
        self.0.truncate(len).map_err(told)
    }

    fn sync(&self) -> Result<(), StripedError> {
        self.0.sync().map_err(told)
    }

    fn complete(&self, mtime: Option<Timestamp>, request: Option<RequestNumber>) -> Result<(), StripedError> {
        self.0.complete(mtime, request).map_err(told)
    }
}
