//! A reader that follows a recording while it grows, with weir's own client. It compares each byte with the recorded one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use client::{Client, ClientError, RemoteFile, Settings, Url};
use wire::request::OpenOptions;

/// Bytes of one read.
const REPLICA: usize = 1 << 20;
/// The pause before another look at a file that has not grown.
const STEP: Duration = Duration::from_millis(50);
/// How long a file may be missing, or not grow.
pub const PATIENCE: Duration = Duration::from_secs(40);

/// The result of a reader that has read the whole file.
#[derive(Clone, Copy, Debug)]
pub struct Followed {
    /// From its first byte to its last.
    pub took: Duration,
    /// The longest time without new bytes.
    pub longest_pause: Duration,
}

/// A running reader.
pub struct Follower {
    thread: Option<JoinHandle<Result<Followed, String>>>,
    has: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl Follower {
    /// Follows the file at `url` until it has as many bytes as `sent`.
    pub fn start(url: &str, sent: Arc<Vec<u8>>) -> io::Result<Self> {
        let url = Url::parse(url).map_err(io::Error::other)?;
        let (has, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let (counter, stopped) = (Arc::clone(&has), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("follower".into())
            .spawn(move || follow(&url, &sent, &counter, &stopped))?;
        Ok(Self { thread: Some(thread), has, stop })
    }

    /// Bytes read so far, all equal to the sent ones.
    #[must_use]
    pub fn has(&self) -> u64 {
        self.has.load(Ordering::Relaxed)
    }

    /// Whether it has ended, well or badly.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits for its end.
    pub fn join(mut self) -> Result<Followed, String> {
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err("the reader ended without a word".into()),
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn follow(url: &Url, sent: &[u8], has: &AtomicU64, stop: &Arc<AtomicBool>) -> Result<Followed, String> {
    let asked = Arc::clone(stop);
    let settings = Settings {
        silence_max: PATIENCE,
        recovery_max: PATIENCE,
        stop: client::Stop::when(move || asked.load(Ordering::Relaxed)),
        ..Settings::default()
    };
    let mut client = Client::new(settings);
    let mut url = url.clone();
    url.add_words("weir.follow=1");
    let url = &url;
    let mut file = open(&mut client, url, stop).map_err(|error| error.to_string())?;
    let mut buffer = vec![0; REPLICA];
    let mut at = 0;
    let mut longest = Duration::ZERO;
    let mut began = None;
    let mut last = Instant::now();
    while at < sent.len() {
        if stop.load(Ordering::Relaxed) {
            return Err("it was stopped".into());
        }
        let got = match file.read_at(at as u64, &mut buffer) {
            Ok(got) => got,
            // The disk server is gone. The client asks the manager for another one, and names the unreachable one.
            Err(error) if error.is_connection() && last.elapsed() < PATIENCE => {
                let mut other = url.clone();
                other.add_words(&format!("tried={}", file.url().server.host));
                file = open(&mut client, &other, stop).map_err(|error| error.to_string())?;
                continue;
            }
            Err(error) => return Err(error.to_string()),
        };
        if got == 0 {
            if last.elapsed() > PATIENCE {
                return Err(format!("nothing new came for {} s after {at} bytes", PATIENCE.as_secs()));
            }
            std::thread::sleep(STEP);
            continue;
        }
        if sent.get(at..at + got) != Some(&buffer[..got]) {
            return Err(format!("the {got} bytes at {at} are not those that were recorded"));
        }
        let now = Instant::now();
        // The wait for the first byte does not count, because the recording had to start.
        if began.is_some() {
            longest = longest.max(now - last);
        }
        began.get_or_insert(now);
        (last, at) = (now, at + got);
        has.store(at as u64, Ordering::Relaxed);
    }
    Ok(Followed { took: began.map_or(Duration::ZERO, |began| last - began), longest_pause: longest })
}

/// The file may not be there yet.
fn open(client: &mut Client, url: &Url, stop: &AtomicBool) -> Result<RemoteFile, ClientError> {
    let begin = Instant::now();
    loop {
        match client.open(url, OpenOptions::READ, 0) {
            Err(_) if begin.elapsed() < PATIENCE && !stop.load(Ordering::Relaxed) => std::thread::sleep(STEP),
            result => return result,
        }
    }
}
