//! Fills a directory of a new data directory with empty files as a server would: an object in the store, an open and a commit in the
//! namespace for each. Unlike a server, it does not wait until each file is durable. Use it to measure listings.
//!
//!     fill_directory DATA /DIRECTORY FILES

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::{SystemTime, UNIX_EPOCH};

use config::Config;
use foundation::{DataDir, Foundation, IfNew, Purpose};
use namespace::{
    Actor, Commit, Committed, Completion, Durability, Mkdir, Namespace, NsError, OpenWrite, OpenedWrite, Sums,
    WriteMode,
};
use store::{NewReplica, Store};
use types::{BootId, ClientIdentity, NsPath, Timestamp};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Files in progress at a time.
const OUTSTANDING: u64 = 256;

fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX))
}

struct Filler {
    namespace: Arc<Namespace>,
    store: Arc<Store>,
    directory: String,
    next: AtomicU64,
    files: u64,
}

impl Filler {
    fn open(&self, number: u64) -> Result<OpenWrite, Failure> {
        let path = format!("{}/event-{number:08}.root", self.directory);
        Ok(OpenWrite::new(
            NsPath::parse(path.as_bytes())?,
            WriteMode::NewOnly,
            ClientIdentity { principal: types::PrincipalId(0), user: "fill".into(), pid: 1, host: "[::1]".into() },
            BootId(1),
        ))
    }

    /// Makes the next file, then the one after it. Sends on `done` when no file is left, or what went wrong.
    fn go_on(self: &Arc<Self>, done: Sender<Result<(), Failure>>) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        if number >= self.files {
            let _ = done.send(Ok(())); // nobody waits any more if another one failed
            return;
        }
        let op = match self.open(number) {
            Ok(op) => op,
            Err(failure) => return drop(done.send(Err(failure))),
        };
        let filler = Arc::clone(self);
        let ctx = self.namespace.context(now(), &Actor::admin(), None);
        self.namespace.change(Durability::Written, ctx, op, move |opened| {
            if let Err(failure) = filler.commit(opened, done.clone()) {
                let _ = done.send(Err(failure));
            }
        });
    }

    fn commit(
        self: &Arc<Self>,
        opened: Result<OpenedWrite, NsError>,
        done: Sender<Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let opened = opened?;
        let incarnation = self.namespace.incarnation();
        let replica =
            self.store.create(opened.replica, NewReplica { path_hint: b"", expected_len: None, incarnation })?;
        let completed = replica.complete()?;
        let sums = Some(Sums { adler32: completed.adler32, crc32c: completed.crc32c });
        let content = Committed { len: completed.len, sums, mtime: None };
        let op = Commit { writer: opened.writer, content, completion: Completion::ByClient };
        let filler = Arc::clone(self);
        let ctx = self.namespace.context(now(), &Actor::admin(), None);
        self.namespace.change(Durability::Written, ctx, op, move |committed| match committed {
            Ok(_) => filler.go_on(done),
            Err(error) => drop(done.send(Err(error.into()))),
        });
        Ok(())
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [data, directory, files] = arguments.as_slice() else {
        return Err("usage: fill_directory DATA /DIRECTORY FILES".into());
    };
    let data = DataDir::open(Path::new(data), IfNew::Make, now())?;
    let foundation = Foundation::open(&data, &Config::defaults().foundation(), Purpose::Serve, now())?;
    let namespace = Arc::clone(&foundation.names.namespace);
    let made = Mkdir { path: NsPath::parse(directory.as_bytes())?, mode: 0o755, parents: true };
    namespace.change_wait(Durability::Written, namespace.context(now(), &Actor::admin(), None), made)?;
    let filler = Arc::new(Filler {
        namespace,
        store: Arc::clone(&foundation.objects.store),
        directory: directory.clone(),
        next: AtomicU64::new(0),
        files: files.parse()?,
    });
    let (done, ends) = channel();
    for _ in 0..OUTSTANDING {
        filler.go_on(done.clone());
    }
    for _ in 0..OUTSTANDING {
        ends.recv()??;
    }
    foundation.journal.sync_to(foundation.journal.appended())?;
    foundation.close()?;
    Ok(())
}
