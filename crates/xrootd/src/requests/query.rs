//! query: checksums, configuration, space, statistics.

use std::sync::atomic::Ordering;

use authentication::Mechanism;
use service::{FileKind, FileSums, QuotaSpace, Role};
use types::DigestKind;
use wire::request::{FATTR_NAME_MAX, FATTR_VALUE_MAX, Query, QueryKind};
use wire::response::{ChecksumReply, ConfigReply, SpaceReply, checksum_text};
use wire::{ErrorNumber, PathArg, StreamId};

use super::elsewhere::names_a_handle;
use super::readv::{READV_SEGMENT_MAX, READV_SEGMENTS_MAX};
use crate::batch;
use crate::connection::{Connection, Stop};
use crate::data_streams::STREAMS_MAX;
use crate::from_wire::{Algorithm, MTIME, hex, parse_path};
use crate::front_end::FrontEnd;
use crate::to_wire::RequestError;

impl Connection {
    /// kXR_query.
    #[inline(never)] // see `dispatch`
    pub(crate) fn query(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), RequestError>, Stop> {
        let result = match r.kind {
            QueryKind::Checksum => return self.query_checksum(stream, r),
            QueryKind::Config => {
                let values = r.words().map(|word| self.config_value(word)).collect();
                self.ok(stream, |out| ConfigReply { values }.encode(out))
            }
            QueryKind::Space => self.query_space(stream, r),
            QueryKind::Stats => {
                let text = self.front.statistics();
                self.ok(stream, |out| {
                    out.extend_from_slice(text.as_bytes());
                    out.push(0);
                })
            }
            QueryKind::Prepare => self.query_prepare(stream, r),
            QueryKind::Xattr => self.query_xattr(stream, r),
            // weir has no queries of this kind, but their arguments are still checked.
            QueryKind::Opaque => Err(RequestError::unsupported("A query of the implementation's own kind")),
            QueryKind::OpaqueFile => return self.own_operation(stream, r),
            QueryKind::FsInfo => {
                let known = r.path().map_err(|error| RequestError::of_wire(&error)).and_then(|at| parse_path(&at.path));
                known.and(Err(RequestError::unsupported("A query of the implementation's own kind")))
            }
            QueryKind::OpaqueHandle if r.args.starts_with(b"ofs.tpc cancel") => self.file(r.handle).and_then(|file| {
                file.stop_copying();
                self.ok(stream, |_| ())
            }),
            QueryKind::OpaqueHandle | QueryKind::Visa | QueryKind::FileInfo => {
                let request_error = RequestError::unsupported("A query of the implementation's own kind");
                self.file(r.handle).and(Err(request_error))
            }
            // Cancels a computation of checksums. Others might wait for it, so it continues.
            QueryKind::ChecksumScan => self.ok(stream, |_| ()),
            // as the stock server
            QueryKind::Other(_) => {
                let text = format!("A query of kind {} is not known to this protocol", r.kind.code());
                Err(RequestError::new(ErrorNumber::ARG_INVALID, text))
            }
        };
        Ok(result)
    }

    /// The answer to one word of a config query.
    fn config_value(&self, word: &[u8]) -> Vec<u8> {
        match word {
            // What this session can delegate: a client that reads it does not let this server read the source by a key.
            b"tpcdlg" if self.front.service.copies_by_proxy(&self.session.open) => {
                Mechanism::Gsi.name().as_bytes().to_vec()
            }
            // A batch cannot be signed.
            word => self.front.config_value(word, !self.takes_signed()),
        }
    }

    fn query_checksum(&mut self, stream: StreamId, r: &Query) -> Result<Result<(), RequestError>, Stop> {
        let (service, caller) = (std::sync::Arc::clone(&self.front.service), self.session.open.caller());
        if names_a_handle(r) {
            let file = match self.file(r.handle) {
                Ok(file) => file,
                Err(request_error) => return Ok(Err(request_error)),
            };
            let reply = self.hand_on(stream)?.encoded(|sums: FileSums, out| {
                told("adler32", checksum_text(sums.adler32.0), out);
                Ok(())
            });
            service.checksums_of_file(&caller, &file, reply);
            return Ok(Ok(()));
        }
        let (path, algorithm) = match checksum_target(r, service.digests()) {
            Ok(target) => target,
            Err(request_error) => return Ok(Err(request_error)),
        };
        let (reply, name) = (self.hand_on(stream)?, algorithm.name());
        if let Algorithm::Digest(kind) = algorithm {
            let reply = reply.encoded(move |value: Vec<u8>, out| {
                told(name, hex(&value), out);
                Ok(())
            });
            service.digest(&caller, &path, kind, reply);
        } else {
            let reply = reply.encoded(move |sums: FileSums, out| {
                told(name, algorithm.of(sums).map(checksum_text).unwrap_or_default(), out);
                Ok(())
            });
            service.checksums(&caller, &path, reply);
        }
        Ok(Ok(()))
    }

    /// The space of the node or cluster. Where a quota leaves less, that of the quota.
    fn query_space(&mut self, stream: StreamId, r: &Query) -> Result<(), RequestError> {
        let space = self.front.service.space(&"query the space")?;
        let free = space.free.saturating_sub(space.floor);
        let (mut total, mut used) = (space.total, space.total.saturating_sub(space.free));
        let (mut least, mut limit) = (free, None);
        if let Ok(target) = r.path()
            && let Some(quota) = self.quota_space(&target.path)?
        {
            (total, used, limit) = (quota.limit, quota.used, Some(quota.limit));
            least = free.min(quota.free);
        }
        let name = "public".into();
        let reply = SpaceReply { name, total, free: least, largest_free: least, used, quota: limit };
        self.ok(stream, |out| reply.encode(out))
    }

    /// What quotas leave to the client at a path. An empty path is the root. Clients name other things too, such as a space's name.
    pub(crate) fn quota_space(&self, path: &[u8]) -> Result<Option<QuotaSpace>, RequestError> {
        let path: &[u8] = if path.is_empty() { b"/" } else { path };
        let Ok(path) = parse_path(path) else { return Ok(None) };
        Ok(self.front.service.quota_space(&self.session.open.caller(), &path)?)
    }

    /// The few attributes that the stock server shows.
    fn query_xattr(&mut self, stream: StreamId, r: &Query) -> Result<(), RequestError> {
        let target = r.path().map_err(|error| RequestError::of_wire(&error))?;
        let path = parse_path(&target.path)?;
        let stat = self.front.service.published_stat(&self.session.open.caller(), &"query the attributes of", &path)?;
        let kind = if stat.kind == FileKind::Directory { 'd' } else { 'f' };
        // The client's access: all, read-only, or unknown.
        let may = match (stat.is_readable, stat.is_writable) {
            (true, true) => 'a',
            (true, false) => 'r',
            (false, _) => '?',
        };
        let text = format!(
            "oss.cgroup=public&oss.type={kind}&oss.used={}&oss.mt={}&oss.ct={}&oss.at={}&oss.u=*&oss.g=*&oss.fs=w&ofs.ap={may}\0",
            stat.len,
            stat.mtime.secs(),
            stat.ctime.secs(),
            stat.atime.secs()
        );
        self.ok(stream, |out| out.extend_from_slice(text.as_bytes()))
    }
}

/// The argument is `path` or `path?cks.type=name`; older clients write `name path`.
fn checksum_target(r: &Query, offered: &[DigestKind]) -> Result<(types::NsPath, Algorithm), RequestError> {
    let mut args = r.args.as_slice();
    let mut named = None;
    if !args.starts_with(b"/")
        && let Some(space) = args.iter().position(|&b| b == b' ')
    {
        named = Some(&args[..space]);
        args = &args[space + 1..];
    }
    let target = PathArg::parse(args).map_err(|error| RequestError::of_wire(&error))?;
    let algorithm = Algorithm::named(target.get(b"cks.type").or(named), offered)?;
    Ok((parse_path(&target.path)?, algorithm))
}

fn told(name: &str, value: String, out: &mut Vec<u8>) {
    ChecksumReply { algorithm: name.as_bytes().to_vec(), value: value.into_bytes() }.encode(out);
}

impl FrontEnd {
    /// The answer to one word of a config query. Like the stock server, it repeats an unknown word. `takes_batches`: on this connection.
    fn config_value(&self, word: &[u8], takes_batches: bool) -> Vec<u8> {
        let text = match word {
            b"chksum" => {
                let all = Algorithm::all(self.service.digests()).enumerate();
                all.map(|(number, algorithm)| format!("{number}:{}", algorithm.name())).collect::<Vec<_>>().join(",")
            }
            b"readv_iov_max" => READV_SEGMENTS_MAX.to_string(),
            b"readv_ior_max" => READV_SEGMENT_MAX.to_string(),
            b"bind_max" => STREAMS_MAX.to_string(),
            b"pio_max" => "1".into(),
            b"role" if matches!(self.service.role(), Role::Manager(_)) => "manager".into(),
            b"role" => "server".into(),
            b"sitename" => self.config.site.clone(),
            b"version" => format!("v{} weir", env!("CARGO_PKG_VERSION")),
            // A value of one character would mean "not offered". The line end makes it two characters.
            b"tpc" if self.service.offers_third_party_copies() => "1".into(),
            MTIME => "1".into(),
            word if word == wire::batch::CONFIG_KEY.as_bytes() => match batch::limits(&self.service) {
                Some(limits) if takes_batches => limits.to_text(),
                _ => return word.to_vec(),
            },
            b"fattr" => format!("{FATTR_NAME_MAX} {FATTR_VALUE_MAX}"),
            b"cms" => "none|".into(),
            b"start" => self.service.started().secs().to_string(),
            _ => return word.to_vec(),
        };
        text.into_bytes()
    }

    /// The minimum that monitoring for the stock server reads.
    fn statistics(&self) -> String {
        let figures = self.service.figures();
        let signatures = self.meter.signatures();
        let signed = |name| signatures.iter().find(|(counted, _)| *counted == name).map_or(0, |(_, count)| *count);
        format!(
            "<statistics tod=\"{}\" ver=\"{}\" src=\"{}\" tos=\"{}\" pgm=\"weir\" ins=\"anon\" pid=\"{}\" site=\"{}\">\
             <stats id=\"info\"><host>{}</host><port>{}</port><name>anon</name></stats>\
             <stats id=\"link\"><num>{}</num><tot>{}</tot><in>{}</in><out>{}</out></stats>\
             <stats id=\"xrootd\"><num>{}</num><sig><ok>{}</ok><bad>{}</bad><ign>{}</ign></sig><err>{}</err></stats>\
             <stats id=\"ofs\"><han>{}</han><opw>{}</opw></stats></statistics>",
            types::Timestamp::from(std::time::SystemTime::now()).secs(),
            env!("CARGO_PKG_VERSION"),
            self.address,
            self.service.started().secs(),
            std::process::id(),
            xml(&self.config.site),
            self.address.ip(),
            self.address.port(),
            figures.sessions,
            self.connections.load(Ordering::Relaxed),
            figures.bytes_written,
            figures.bytes_read,
            self.meter.requests().iter().map(|(_, took)| took.count()).sum::<u64>(),
            signed("verified"),
            signed("refused"),
            signed("unneeded"),
            self.meter.errors().iter().map(|(_, count)| count).sum::<u64>(),
            figures.open_files.now,
            figures.writers,
        )
    }
}

fn xml(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}
