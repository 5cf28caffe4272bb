//! The driver for `root://`: any server of the protocol, through weir's own client.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{
    BatchWriter, Chunk, Client, ClientError, DirlistOptions, Endpoint, OpenOptions, Reader, RemoteFile, Settings,
    SmallFile, StatFlags, Url, Writer,
};

use super::{
    CreatedFile, DelayedTarget, Done, Durability, Entry, IoOptions, NewFile, OpenFile, Purpose, RelName, RoundTrips,
    Session, Span, SystemSpace, Target, TargetError,
};
use crate::delay::DelayProxy;
use crate::memory::Memory;

/// The most requests under way. Stock servers take as many without a queue that grows too long.
const WINDOW_MAX: usize = 64;
const FILE_MODE: u16 = 0o644;
const DIRECTORY_MODE: u16 = 0o755;

/// A directory on a server, and the run's own folder in it.
#[derive(Debug)]
pub(super) struct RootTarget {
    home: Url,
    settings: Settings,
}

impl RootTarget {
    pub(super) fn new(home: Url, settings: Settings) -> Self {
        Self { home, settings }
    }
}

impl Target for RootTarget {
    fn location(&self) -> Option<String> {
        Some(self.home.to_string())
    }

    fn delayed(&self, round_trip: Duration) -> Result<DelayedTarget, TargetError> {
        let server = &self.home.server;
        let proxy = DelayProxy::start(&server.host, server.port, round_trip)
            .map_err(|source| TargetError::path(format!("start a proxy that delays the path to {server}"), source))?;
        let address = proxy.address();
        let near = Endpoint { host: address.ip().to_string(), port: address.port() };
        let home = Url { server: near, ..self.home.clone() };
        let target = Arc::new(Self::new(home, self.settings.clone()));
        Ok(DelayedTarget::new(target, proxy, server.to_string()))
    }

    fn window_max(&self) -> usize {
        WINDOW_MAX
    }

    fn session(&self) -> Result<Box<dyn Session>, TargetError> {
        let client = Client::new(self.settings.clone());
        Ok(Box::new(RootSession { home: self.home.clone(), client, closed: Closed::default() }))
    }
}

/// The connections of closed files. The next operation uses one of them, like a client that stays connected.
type Closed = Arc<Mutex<Vec<client::Session>>>;

struct RootSession {
    home: Url,
    client: Client,
    closed: Closed,
}

impl RootSession {
    fn client(&mut self) -> &mut Client {
        for session in self.closed.lock().map_or_else(|_| Vec::new(), |mut closed| std::mem::take(&mut *closed)) {
            self.client.give_back(session, &self.home);
        }
        &mut self.client
    }

    fn at(&self, name: &RelName) -> Url {
        if *name == RelName::HOME { self.home.clone() } else { self.home.join(name.as_str()) }
    }
}

impl Session for RootSession {
    fn make_home(&mut self) -> Result<(), TargetError> {
        let home = self.home.clone();
        Ok(self.client().mkdir(&home, DIRECTORY_MODE, false)?)
    }

    fn remove_home(&mut self) -> Result<(), TargetError> {
        let home = self.home.clone();
        Ok(self.client().rmdir(&home)?)
    }

    fn open(
        &mut self,
        name: &RelName,
        purpose: Purpose,
        io_options: IoOptions,
    ) -> Result<Box<dyn OpenFile>, TargetError> {
        let options = match purpose {
            Purpose::Create { .. } => OpenOptions::NEW | OpenOptions::UPDATE,
            Purpose::Read => OpenOptions::READ,
            Purpose::Update => OpenOptions::UPDATE,
            Purpose::Replace { .. } => OpenOptions::DELETE | OpenOptions::UPDATE,
        };
        let mut at = self.at(name);
        if purpose == Purpose::Read {
            // A reader may follow a recorder. It means nothing for a complete file, or to another server.
            at.add_words("weir.follow=1");
        }
        let window = io_options.window.most(WINDOW_MAX);
        let file = self.client().open(&at, options, FILE_MODE)?.with_window(window);
        let server = file.url().server.to_string();
        let durability = if purpose == Purpose::Read { Durability::None } else { io_options.durability };
        let way = match purpose {
            Purpose::Create { .. } | Purpose::Replace { .. } => {
                // The workload waits for an answer when its window is full, and this must not be earlier.
                OpenMode::Write(Writer::new(file.with_window(window + 1)))
            }
            Purpose::Read => OpenMode::Read(Reader::growing(file)),
            Purpose::Update => OpenMode::Update(Box::new(file)),
        };
        let closed = Arc::clone(&self.closed);
        Ok(Box::new(RootFile { way, server, durability, started: VecDeque::new(), ready: VecDeque::new(), closed }))
    }

    fn make_in_batches(
        &mut self,
        next: &mut dyn FnMut() -> Option<NewFile>,
        made: &mut dyn FnMut(CreatedFile),
    ) -> Result<(), TargetError> {
        let home = self.home.clone();
        let Some(limits) = self.client().batch_limits(&home)? else {
            return Err(TargetError::Unsupported { what: "making files in batches", by: "this server" });
        };
        let session = self.client().take_session(&home)?;
        let settings = self.client().settings().clone();
        let mut writer = BatchWriter::new(session, limits, &settings, &home);
        loop {
            while writer.has_room() {
                let Some(NewFile { name, content, number }) = next() else { break };
                writer.put(SmallFile::new(self.at(&name).path, FILE_MODE, content, (number, Instant::now())))?;
            }
            let Some(written) = writer.wait()? else { break };
            let (number, since) = written.file.tag;
            made(CreatedFile { number, took: since.elapsed(), result: written.result.map_err(TargetError::from) });
        }
        self.client().give_back(writer.into_session(), &home);
        Ok(())
    }

    fn make_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        let at = self.at(name);
        Ok(self.client().mkdir(&at, DIRECTORY_MODE, false)?)
    }

    fn len_of(&mut self, name: &RelName) -> Result<Option<u64>, TargetError> {
        let at = self.at(name);
        Ok(self.client().look(&at)?.map(|stat| stat.size))
    }

    fn list(&mut self, name: &RelName, each: &mut dyn FnMut(Entry)) -> Result<(), TargetError> {
        let at = self.at(name);
        self.client().list::<ClientError>(&at, DirlistOptions::NONE, |entry| {
            let len = entry.stat.as_ref().filter(|stat| !stat.flags.has(StatFlags::IS_DIR)).map(|stat| stat.size);
            each(Entry { name: entry.name, len });
            Ok(())
        })?;
        Ok(())
    }

    fn remove(&mut self, name: &RelName) -> Result<(), TargetError> {
        let at = self.at(name);
        Ok(self.client().rm(&at)?)
    }

    fn remove_directory(&mut self, name: &RelName) -> Result<(), TargetError> {
        let at = self.at(name);
        Ok(self.client().rmdir(&at)?)
    }

    fn room(&mut self) -> Result<Option<SystemSpace>, TargetError> {
        let place = self.home.parent().unwrap_or_else(|| self.home.clone());
        let space = self.client().space(&place)?;
        Ok(Some(SystemSpace { free: space.free, total: space.total }))
    }
}

/// By the purpose of the open: a reader or a writer has several requests under way; a file opened for both has one.
enum OpenMode {
    Read(Reader<Memory>),
    Write(Writer<Memory>),
    Update(Box<RemoteFile>),
}

struct RootFile {
    way: OpenMode,
    server: String,
    durability: Durability,
    /// The offsets and start times of the requests under way.
    started: VecDeque<(u64, Instant)>,
    /// Requests that completed while another was started.
    ready: VecDeque<Done>,
    closed: Closed,
}

impl RootFile {
    fn finished(&mut self, chunk: Chunk<Memory>) -> Done {
        let Chunk { offset, len, buffer: mut memory } = chunk;
        let place = self.started.iter().position(|(at, _)| *at == offset);
        let took =
            place.and_then(|place| self.started.remove(place)).map(|(_, since)| since.elapsed()).unwrap_or_default();
        memory.cut(len);
        Done { offset, memory, took }
    }
}

impl OpenFile for RootFile {
    fn window_for(&self, len: usize) -> usize {
        match &self.way {
            OpenMode::Read(reader) => reader.file().window_for(len),
            OpenMode::Write(writer) => writer.file().window_for(len),
            OpenMode::Update(_) => 1,
        }
    }

    fn write(&mut self, offset: u64, memory: Memory) -> Result<(), TargetError> {
        let since = Instant::now();
        let each_write = self.durability == Durability::Write;
        match &mut self.way {
            OpenMode::Read(_) => {
                return Err(TargetError::Unsupported {
                    what: "writing into a file that is open for reading",
                    by: "root://",
                });
            }
            OpenMode::Write(writer) => {
                self.started.push_back((offset, since));
                let sent = writer.put(Chunk { offset, len: memory.len(), buffer: memory })?;
                if each_write {
                    // The protocol has no durable write. So each write is followed by a sync, and that cost counts.
                    writer.sync()?;
                }
                if let Some(chunk) = sent {
                    let done = self.finished(chunk);
                    self.ready.push_back(done);
                }
            }
            OpenMode::Update(file) => {
                file.write_at(offset, &memory)?;
                if each_write {
                    file.sync()?;
                }
                self.ready.push_back(Done { offset, memory, took: since.elapsed() });
            }
        }
        Ok(())
    }

    fn read(&mut self, offset: u64, mut memory: Memory) -> Result<(), TargetError> {
        let since = Instant::now();
        match &mut self.way {
            OpenMode::Write(_) => {
                return Err(TargetError::Unsupported { what: "reading from a file in the making", by: "root://" });
            }
            OpenMode::Read(reader) => {
                self.started.push_back((offset, since));
                reader.ask(offset, memory.len(), memory)?;
            }
            OpenMode::Update(file) => {
                let got = file.read_at(offset, &mut memory)?;
                memory.cut(got);
                self.ready.push_back(Done { offset, memory, took: since.elapsed() });
            }
        }
        Ok(())
    }

    fn done(&mut self) -> Result<Option<Done>, TargetError> {
        if let Some(done) = self.ready.pop_front() {
            return Ok(Some(done));
        }
        let chunk = match &mut self.way {
            OpenMode::Read(reader) => reader.wait()?,
            OpenMode::Write(writer) => writer.answered()?,
            OpenMode::Update(_) => return Ok(None),
        };
        Ok(chunk.map(|chunk| self.finished(chunk)))
    }

    fn done_until(&mut self, end: Instant) -> Result<Option<Done>, TargetError> {
        if let Some(done) = self.ready.pop_front() {
            return Ok(Some(done));
        }
        let chunk = match &mut self.way {
            OpenMode::Read(reader) => reader.wait_until(end)?,
            OpenMode::Write(writer) => writer.answered_until(end)?,
            OpenMode::Update(_) => return Ok(None),
        };
        Ok(chunk.map(|chunk| self.finished(chunk)))
    }

    fn server(&self) -> Option<String> {
        Some(self.server.clone())
    }

    fn read_spans(&mut self, spans: &[Span], into: &mut [u8]) -> Result<RoundTrips, TargetError> {
        let file = match &mut self.way {
            OpenMode::Read(reader) => reader.file_mut(),
            OpenMode::Update(file) => Some(&mut **file),
            OpenMode::Write(_) => None,
        };
        let what = "reading many places while something else is under way";
        Ok(file.ok_or(TargetError::Unsupported { what, by: "root://" })?.read_spans(spans, into)?)
    }

    fn sync(&mut self) -> Result<(), TargetError> {
        match &mut self.way {
            OpenMode::Read(_) => Ok(()),
            OpenMode::Write(writer) => Ok(writer.sync()?),
            OpenMode::Update(file) => Ok(file.sync()?),
        }
    }

    fn close(mut self: Box<Self>) -> Result<(), TargetError> {
        if self.durability == Durability::Close {
            self.sync()?;
        }
        let session = match self.way {
            OpenMode::Read(reader) => reader.close(),
            OpenMode::Write(writer) => writer.finish(),
            OpenMode::Update(file) => file.close(),
        }?;
        if let Ok(mut closed) = self.closed.lock() {
            closed.push(session);
        }
        Ok(())
    }
}
