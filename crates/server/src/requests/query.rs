//! query: checksums, configuration, space, statistics.

use std::sync::atomic::Ordering;

use manager::Unsummed;
use namespace::{FileState, Inode, Sums};
use types::NsPath;
use wire::request::{FATTR_NAME_MAX, FATTR_VALUE_MAX, Query, QueryKind};
use wire::response::{ChecksumReply, ConfigReply, SpaceReply, StatFlags, checksum_text};
use wire::{ErrorNumber, FileHandle, StreamId};

use crate::answer::Reply;
use crate::checksums::{Asker, Question};
use crate::connection::{Connection, Stop};
use crate::data_streams::STREAMS_MAX;
use crate::node::{Node, Role};
use crate::refusal::Refusal;
use crate::requests::read::{READV_SEGMENT_MAX, READV_SEGMENTS_MAX};
use crate::requests::{own, parse_path};

pub use namespace::{CONTENT_OF, DAMAGED_MARK};

/// The checksums that weir keeps of every complete file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Algorithm {
    Adler32,
    Crc32c,
}

impl Algorithm {
    /// The one that a request names; adler32 if it names none.
    pub(crate) fn named(name: Option<&[u8]>) -> Result<Self, Refusal> {
        let Some(name) = name else { return Ok(Self::Adler32) };
        // gfal2 writes names as its user does
        match name.to_ascii_lowercase().as_slice() {
            b"adler32" => Ok(Self::Adler32),
            b"crc32c" => Ok(Self::Crc32c),
            _ => {
                let text = format!("The checksum {} is not kept here; adler32 and crc32c are", name.escape_ascii());
                Err(Refusal::new(ErrorNumber::UNSUPPORTED, text))
            }
        }
    }

    /// As listings show it, `adler32:0a1b2c3d`; `none` of what has none.
    pub(crate) fn shown(self, sums: Option<Sums>) -> String {
        let (name, value) = match self {
            Self::Adler32 => ("adler32", sums.map(|sums| sums.adler32.0)),
            Self::Crc32c => ("crc32c", sums.map(|sums| sums.crc32c.0)),
        };
        format!("{name}:{}", value.map_or_else(|| "none".to_owned(), checksum_text))
    }

    fn reply(self, adler32: types::Adler32, crc32c: types::Crc32c) -> ChecksumReply {
        let (algorithm, value) = match self {
            Self::Adler32 => (b"adler32".to_vec(), adler32.0),
            Self::Crc32c => (b"crc32c".to_vec(), crc32c.0),
        };
        ChecksumReply { algorithm, value: checksum_text(value).into_bytes() }
    }
}

impl Connection {
    /// kXR_query.
    #[inline(never)] // see `dispatch`
    pub(crate) fn query(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), Refusal>, Stop> {
        let result = match r.kind {
            QueryKind::Checksum => return self.query_checksum(stream, r),
            QueryKind::Config => {
                let values = r.words().map(|word| self.node.config_value(word)).collect();
                self.ok(stream, |out| ConfigReply { values }.encode(out))
            }
            QueryKind::Space => self.query_space(stream, r),
            QueryKind::Stats => {
                let text = self.node.statistics();
                self.ok(stream, |out| {
                    out.extend_from_slice(text.as_bytes());
                    out.push(0);
                })
            }
            QueryKind::Prepare => self.query_prepare(stream, r),
            QueryKind::Xattr => self.query_xattr(stream, r),
            // Nothing of weir's own is asked in this way. What is asked about has to be right all the same.
            QueryKind::Opaque => Err(Refusal::unsupported("A query of the implementation's own kind")),
            QueryKind::OpaqueFile => return self.own_operation(stream, r),
            QueryKind::FsInfo => {
                let known = r.path().map_err(|error| Refusal::of_wire(&error)).and_then(|at| parse_path(&at.path));
                known.and(Err(Refusal::unsupported("A query of the implementation's own kind")))
            }
            QueryKind::OpaqueHandle if r.args.starts_with(b"ofs.tpc cancel") => self.file(r.handle).and_then(|file| {
                file.stop_copying();
                self.ok(stream, |_| ())
            }),
            QueryKind::OpaqueHandle | QueryKind::Visa | QueryKind::FileInfo => {
                let refusal = Refusal::unsupported("A query of the implementation's own kind");
                self.file(r.handle).and(Err(refusal))
            }
            // Cancels what is being computed, which nothing is that others might not wait for.
            QueryKind::ChecksumScan => self.ok(stream, |_| ()),
            // as the stock server
            QueryKind::Other(_) => {
                let text = format!("A query of kind {} is not known to this protocol", r.kind.code());
                Err(Refusal::new(ErrorNumber::ARG_INVALID, text))
            }
        };
        Ok(result)
    }

    fn query_checksum(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), Refusal>, Stop> {
        let (path, inode, algorithm) = match self.checksum_target(r) {
            Ok(found) => found,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let Some(content) = inode.content() else {
            let text = "Cannot give a checksum: it is not a file";
            return Ok(Err(Refusal::new(ErrorNumber::IS_DIRECTORY, text)));
        };
        if let Some(refusal) = self.damaged(&inode, content.object) {
            return Ok(Err(refusal));
        }
        match (content.state, content.sums) {
            (FileState::Complete, Some(sums)) => {
                let reply = algorithm.reply(sums.adler32, sums.crc32c);
                return Ok(self.ok(stream, |out| reply.encode(out)));
            }
            (FileState::Complete, None) => {}
            (FileState::Interrupted(_), _) => {
                let text = "Cannot give a checksum: the file's writer went away, so the file may be incomplete";
                return Ok(Err(Refusal::new(ErrorNumber::IN_PROGRESS, text)));
            }
            (FileState::Open(_) | FileState::Updating(_), _) => {
                let text = "Cannot give a checksum: the file is being written; ask again when it is closed";
                return Ok(Err(Refusal::new(ErrorNumber::IN_PROGRESS, text)));
            }
        }
        // Lost by an interrupted update in place: the file is read for it.
        let reply = self.hand_on(stream)?;
        let tell = Box::new(move |reply: Reply, sums: Sums| {
            let sums = algorithm.reply(sums.adler32, sums.crc32c);
            reply.ok(|out| sums.encode(out));
        });
        let question = Question { ino: inode.ino, object: content.object, generation: content.generation };
        let file = Unsummed {
            open_request: self.open_request(&path, &wire::PathArg::default()),
            path,
            object: content.object,
        };
        self.node.checksums.ask(question, file, Asker { reply, tell });
        Ok(Ok(()))
    }

    /// What was found damaged has no checksum that means anything: the one it had is of bytes that are gone. The mark counts for
    /// the content that it was set for, not for a later one.
    fn damaged(&self, inode: &Inode, object: types::ObjectId) -> Option<Refusal> {
        if inode.xattrs == 0 {
            return None;
        }
        let mark = match self.node.read_names(|read| namespace::xattr_of(read, inode.ino, DAMAGED_MARK)) {
            Ok(mark) => String::from_utf8_lossy(&mark?).into_owned(),
            Err(error) => return Some(Refusal::of_namespace(&"checksum", &error)),
        };
        let (what, of) = mark.rsplit_once(CONTENT_OF).unwrap_or((&mark, ""));
        if !of.is_empty() && of != object.to_string() {
            return None;
        }
        let text = format!(
            "Cannot give a checksum: this file is marked as damaged (weir.damaged: {what}); write it again from its source"
        );
        Some(Refusal::new(ErrorNumber::CHECKSUM, text))
    }

    fn checksum_target(&self, r: &Query) -> Result<(NsPath, Inode, Algorithm), Refusal> {
        if r.args.is_empty() && r.handle != FileHandle::default() {
            let file = self.file(r.handle)?;
            let inode = self
                .node
                .read_names(|read| namespace::stat_ino(read, file.ino))
                .map_err(|error| Refusal::of_namespace(&"checksum", &error))?;
            return Ok((file.path.clone(), inode, Algorithm::Adler32));
        }
        // "path", "path?cks.type=name"; older clients write "name path".
        let mut args = r.args.as_slice();
        let mut named = None;
        if !args.starts_with(b"/")
            && let Some(space) = args.iter().position(|&b| b == b' ')
        {
            named = Some(&args[..space]);
            args = &args[space + 1..];
        }
        let target = wire::PathArg::parse(args).map_err(|error| Refusal::of_wire(&error))?;
        let named = target.get(b"cks.type").or(named);
        let algorithm = Algorithm::named(named)?;
        let path = parse_path(&target.path)?;
        let inode = self.node.stat(&"checksum", &path)?;
        Ok((path, inode, algorithm))
    }

    fn query_space(&mut self, stream: StreamId, _r: &Query) -> Result<(), Refusal> {
        let space = self.node.space(&"query the space")?;
        let free = space.free.saturating_sub(space.floor);
        let reply = SpaceReply {
            name: "public".into(),
            total: space.total,
            free,
            largest_free: free,
            used: space.total.saturating_sub(space.free),
            quota: None,
        };
        self.ok(stream, |out| reply.encode(out))
    }

    /// The handful of attributes that the stock server shows.
    fn query_xattr(&mut self, stream: StreamId, r: &Query) -> Result<(), Refusal> {
        let target = r.path().map_err(|error| Refusal::of_wire(&error))?;
        let path = parse_path(&target.path)?;
        let inode = self.node.stat(&"query the attributes of", &path)?;
        let shown = self.node.show(&inode);
        let kind = if inode.is_dir() { 'd' } else { 'f' };
        let extra = shown.extra.clone().unwrap_or_default();
        // What the client may do: all, read, or what can be said of neither.
        let may = match (shown.flags.has(StatFlags::READABLE), shown.flags.has(StatFlags::WRITABLE)) {
            (true, true) => 'a',
            (true, false) => 'r',
            (false, _) => '?',
        };
        let text = format!(
            "oss.cgroup=public&oss.type={kind}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}&oss.u=*&oss.g=*&oss.fs=w&ofs.ap={may}\0",
            shown.size, shown.mtime, extra.ctime, extra.atime
        );
        self.ok(stream, |out| out.extend_from_slice(text.as_bytes()))
    }
}

impl Node {
    /// The answer to one word of a config query; what is not known is echoed, as the stock server does.
    fn config_value(&self, word: &[u8]) -> Vec<u8> {
        let text = match word {
            b"chksum" => "0:adler32,1:crc32c".into(),
            b"readv_iov_max" => READV_SEGMENTS_MAX.to_string(),
            b"readv_ior_max" => READV_SEGMENT_MAX.to_string(),
            b"bind_max" => STREAMS_MAX.to_string(),
            b"pio_max" => "1".into(),
            b"role" if matches!(self.role, Role::Manager(_)) => "manager".into(),
            b"role" => "server".into(),
            b"sitename" => self.config.site.clone(),
            b"version" => format!("v{} weir", env!("CARGO_PKG_VERSION")),
            // A value of one character would say that it is not offered; the line end makes two of it.
            b"tpc" if self.pulls.is_offered() => "1".into(),
            own::MTIME => "1".into(),
            word if word == wire::batch::CONFIG_KEY.as_bytes() => match self.batch_limits() {
                Some(limits) => limits.to_text(),
                None => return word.to_vec(),
            },
            b"fattr" => format!("{FATTR_NAME_MAX} {FATTR_VALUE_MAX}"),
            b"cms" => "none|".into(),
            b"start" => self.started.secs().to_string(),
            _ => return word.to_vec(),
        };
        text.into_bytes()
    }

    /// The least that monitoring of the stock server's kind reads.
    fn statistics(&self) -> String {
        let counters = &self.counters;
        let get = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        format!(
            "<statistics tod=\"{}\" ver=\"{}\" src=\"{}\" tos=\"{}\" pgm=\"weir\" ins=\"anon\" pid=\"{}\" site=\"{}\">\
             <stats id=\"info\"><host>{}</host><port>{}</port><name>anon</name></stats>\
             <stats id=\"link\"><num>{}</num><tot>{}</tot><in>{}</in><out>{}</out></stats>\
             <stats id=\"xrootd\"><num>{}</num><err>{}</err></stats><stats id=\"ofs\"><han>{}</han><opw>{}</opw></stats></statistics>",
            crate::node::wall_clock().secs(),
            env!("CARGO_PKG_VERSION"),
            self.address,
            self.started.secs(),
            std::process::id(),
            xml(&self.config.site),
            self.address.ip(),
            self.address.port(),
            self.sessions.lock().len(),
            get(&counters.connections),
            get(&counters.bytes_written),
            get(&counters.bytes_read),
            self.meter.requests().iter().map(|(_, took)| took.count()).sum::<u64>(),
            self.meter.errors().iter().map(|(_, count)| count).sum::<u64>(),
            self.handle_shares.taken(),
            self.writers.lock().len(),
        )
    }
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
