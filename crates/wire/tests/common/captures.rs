//! Frames recorded from the stock programs, and the checks of pages.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use types::Crc32c;
use wire::request::QueryKind;
use wire::response::*;
use wire::{Limits, Payload, Request, RequestHeader, Response, ResponseHeader, ResponseStatus, StreamId, page};

use super::{Check, OwnedEvent, same};

/// One line of a `.frames` file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Line {
    Note(String),
    Connection(String),
    /// One message of the client.
    Client(Vec<u8>),
    /// One message of the server, without the data of a status response.
    Server(Vec<u8>),
    /// The length of the file data after the previous message, and the bytes if the recording kept them.
    Data(usize, Option<Vec<u8>>),
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/frames")
}

pub fn names() -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder())
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().to_str().and_then(|name| name.strip_suffix(".frames")).map(Into::into)
        })
        .collect();
    names.sort();
    names
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

pub fn load(name: &str) -> Vec<Line> {
    let text = std::fs::read_to_string(folder().join(format!("{name}.frames"))).unwrap();
    let line = |line: &str| {
        let (kind, rest) = line.split_once(' ').unwrap();
        match kind {
            "#" => Line::Note(rest.into()),
            "connection" => Line::Connection(rest.into()),
            "C" => Line::Client(unhex(rest)),
            "S" => Line::Server(unhex(rest)),
            "D" => {
                let (len, bytes) = rest.split_once(' ').map_or((rest, None), |(len, bytes)| (len, Some(unhex(bytes))));
                Line::Data(len.parse().unwrap(), bytes)
            }
            other => panic!("{name}.frames: unknown line {other}"),
        }
    };
    text.lines().map(line).collect()
}

/// Decodes a recording into readable text. Checks that encoding gives the same bytes again.
pub fn understood(lines: &[Line]) -> Result<String, String> {
    let mut text = String::new();
    let mut asked: HashMap<StreamId, Request> = HashMap::new();
    let mut greeted = false;
    for line in lines {
        match line {
            Line::Note(note) => writeln!(text, "# {note}").unwrap(),
            Line::Connection(number) => {
                asked.clear();
                greeted = false;
                writeln!(text, "\nconnection {number}").unwrap();
            }
            Line::Client(bytes) if bytes.len() == wire::HANDSHAKE_LEN => {
                wire::Handshake::decode(bytes.as_slice().try_into().unwrap()).map_err(|error| error.to_string())?;
                writeln!(text, "C handshake").unwrap();
            }
            Line::Client(bytes) => client(bytes, &mut asked, &mut text)?,
            Line::Server(bytes) if !greeted => {
                greeted = true;
                let bytes = bytes.as_slice().try_into().map_err(|_| "the answer to the handshake is not 16 bytes")?;
                let reply = wire::HandshakeReply::decode(bytes).map_err(|error| error.to_string())?;
                same("the handshake's answer made again", &reply.to_bytes(), bytes)?;
                writeln!(text, "S {reply:x?}").unwrap();
            }
            Line::Server(bytes) => server(bytes, &asked, &mut text)?,
            Line::Data(len, bytes) => {
                writeln!(text, "  {len} bytes of data").unwrap();
                if let Some(bytes) = bytes {
                    data(bytes, &text)?;
                }
            }
        }
    }
    Ok(readable(&text))
}

/// Lists of bytes (`[104, 105]`) as text (`b"hi"`).
fn readable(text: &str) -> String {
    let mut out = String::new();
    let mut left = text;
    while let Some((before, after)) = left.split_once('[') {
        out.push_str(before);
        let list = after.split_once(']').and_then(|(list, rest)| {
            let bytes: Option<Vec<u8>> = list.split(", ").map(|number| number.parse().ok()).collect();
            Some((bytes?, rest))
        });
        match list {
            Some((bytes, rest)) => {
                write!(out, "b\"{}\"", bytes.escape_ascii()).unwrap();
                left = rest;
            }
            None => {
                out.push('[');
                left = after;
            }
        }
    }
    out + left
}

fn client(bytes: &[u8], asked: &mut HashMap<StreamId, Request>, text: &mut String) -> Check {
    let (header, payload) = super::split(bytes);
    match header.payload(&Limits::default()) {
        Err(error) => writeln!(text, "C {} {:?}: {error}", hex(&header.stream.0), header.kind).unwrap(),
        Ok(Payload::Stream(_) | Payload::Buffer(_)) => {
            let request = Request::decode(&header, payload).map_err(|error| format!("{header:?}: {error}"))?;
            writeln!(text, "C {} {request:?}", hex(&header.stream.0)).unwrap();
            let mut again = Vec::new();
            request.encode(header.stream, &mut again).map_err(|error| error.to_string())?;
            same("the client's bytes made again", &hex(&again), &hex(bytes))?;
            asked.insert(header.stream, request);
        }
    }
    Ok(())
}

fn server(bytes: &[u8], asked: &HashMap<StreamId, Request>, text: &mut String) -> Check {
    let (head, body) = bytes.split_first_chunk::<8>().ok_or("no response header")?;
    let header = ResponseHeader::parse(head).map_err(|error| error.to_string())?;
    let response = Response::decode(&header, body).map_err(|error| format!("{}: {error}", hex(bytes)))?;
    let request = match &response {
        Response::Attn(Attn::Response(stream, _)) => asked.get(stream),
        _ => asked.get(&header.stream),
    };
    let inner = match &response {
        Response::Ok(body) => understood_body(request, body)?,
        Response::Attn(Attn::Response(_, inner)) => match &**inner {
            Response::Ok(body) => understood_body(request, body)?,
            _ => None,
        },
        _ => None,
    };
    match inner {
        Some(inner) => writeln!(text, "S {} {:?} {inner}", hex(&header.stream.0), header.status).unwrap(),
        None => writeln!(text, "S {} {response:?}", hex(&header.stream.0)).unwrap(),
    }
    let mut again = Vec::new();
    response.encode(header.stream, &mut again).map_err(|error| error.to_string())?;
    // the stock server leaves 4 bytes of an attn undefined
    same("the server's bytes made again", &hex(&again), &hex(bytes))
}

/// Decodes the body of an `ok` by its request, and encodes it again.
fn understood_body(request: Option<&Request>, body: &[u8]) -> Result<Option<String>, String> {
    macro_rules! both {
        ($reply:expr) => {{
            let reply = $reply.map_err(|error| format!("{}: {error}", hex(body)))?;
            let mut again = Vec::new();
            let _ = reply.encode(&mut again);
            same("a body made again", &hex(&again), &hex(body))?;
            Ok(Some(format!("{reply:?}")))
        }};
    }
    match request {
        Some(Request::Protocol(_)) => both!(ProtocolReply::decode(body)),
        Some(Request::Login(_)) => both!(LoginReply::decode(body)),
        Some(Request::Open(_)) => both!(OpenReply::decode(body)),
        Some(Request::Stat(stat)) if stat.options == wire::request::StatOptions::VFS => both!(VfsReply::decode(body)),
        Some(Request::Stat(_)) => both!(StatReply::decode(body)),
        Some(Request::Locate(_)) => both!(LocateReply::decode(body)),
        Some(Request::Query(query)) => match query.kind {
            QueryKind::Checksum => both!(ChecksumReply::decode(body)),
            QueryKind::Space => both!(SpaceReply::decode(body)),
            QueryKind::Config => both!(ConfigReply::decode(body)),
            _ => Ok(None),
        },
        Some(Request::Dirlist(_)) => {
            let listing = Dirlisting::decode(body).map_err(|error| error.to_string())?;
            let mut again = DirlistBody::new(listing.with_stat);
            for entry in &listing.entries {
                again
                    .push(&entry.name, entry.stat.as_ref(), entry.checksum.as_deref())
                    .map_err(|error| error.to_string())?;
            }
            same("a listing made again", &hex(&again.finish()), &hex(body))?;
            Ok(Some(format!("{listing:?}")))
        }
        Some(Request::Readv(_)) => {
            let segments = ReadvSegment::decode_all(body).map_err(|error| error.to_string())?;
            let again: Vec<u8> = segments
                .iter()
                .flat_map(|(segment, data)| [&ReadvSegment(*segment).to_bytes()[..], data].concat())
                .collect();
            same("segments made again", &hex(&again), &hex(body))?;
            Ok(Some(format!("{segments:?}")))
        }
        Some(Request::Fattr(fattr)) => match &fattr.op {
            wire::request::FattrOp::List { with_values } => both!(FattrList::decode(body, *with_values)),
            op => both!(FattrReply::decode(body, matches!(op, wire::request::FattrOp::Get(_)))),
        },
        _ => Ok(None),
    }
}

/// Checks recorded data: the pages of a pgread, or the bad pages of a pgwrite.
fn data(bytes: &[u8], text: &str) -> Check {
    let message = text.lines().rev().nth(1).unwrap_or_default();
    if message.contains("Pgwrite {") && message.starts_with('S') {
        let bad = BadPages::decode(bytes).map_err(|error| error.to_string())?;
        let mut again = Vec::new();
        bad.encode(&mut again);
        same("bad pages made again", &hex(&again), &hex(bytes))?;
    }
    if let Some((_, offset)) = message.split_once("info: Pgread { offset: ") {
        let offset = offset.split(' ').next().and_then(|number| number.parse().ok()).ok_or("no offset")?;
        same("bad pages", &page::verify(offset, bytes).map_err(|error| error.to_string())?, &BadPages::default())?;
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

/// Compares with the golden text of a recording; `WEIR_BLESS=1` writes a new one.
pub fn golden(name: &str, text: &str) -> Check {
    let path = folder().join(format!("{name}.txt"));
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    match text.lines().zip(kept.lines()).find(|(found, kept)| found != kept) {
        Some((found, kept)) => Err(format!("{name}.txt\n  kept:  {kept}\n  found: {found}")),
        None => same("lines", &text.lines().count(), &kept.lines().count()),
    }
}

/// Decodes the client side of a recording with [`ServerDecoder`], divided into parts of `part` bytes.
pub fn in_parts(lines: &[Line], part: usize) -> Check {
    for connection in lines.split(|line| matches!(line, Line::Connection(_))).skip(1) {
        let mut bytes = Vec::new();
        let mut expected = 0;
        let mut ends = false;
        let mut from_client = false;
        for line in connection {
            match line {
                Line::Client(frame) => {
                    from_client = true;
                    expected += 1;
                    ends |= frame.len() >= 24 && RequestHeader::parse(frame.first_chunk().unwrap()).dlen < 0;
                    bytes.extend_from_slice(frame);
                }
                Line::Server(_) => from_client = false,
                // a long write is shortened to the bytes that arrived before its connection broke
                Line::Data(len, kept) if from_client => match kept {
                    Some(kept) => bytes.extend_from_slice(kept),
                    None => bytes.resize(bytes.len() + len, 7),
                },
                _ => {}
            }
        }
        let cut = connection.iter().any(|line| matches!(line, Line::Note(note) if note.contains("cut here")));
        let lengths = vec![part; bytes.len() / part + 1];
        let seen = super::decode_in_parts(&bytes, &lengths);
        let messages = seen.iter().filter(|seen| !matches!(seen, OwnedEvent::Data(_))).count();
        if !cut {
            same("messages", &messages, &expected)?;
        }
        same("an end", &matches!(seen.last(), Some(OwnedEvent::End(_))), &ends)?;
        if let Some(OwnedEvent::Malformed(header, error)) =
            seen.iter().find(|seen| matches!(seen, OwnedEvent::Malformed(..)))
        {
            return Err(format!("{header:?}: {error}"));
        }
    }
    Ok(())
}

/// The status of each response, for counting.
pub fn status_of(line: &Line) -> Option<ResponseStatus> {
    let Line::Server(bytes) = line else { return None };
    Some(ResponseHeader::parse(bytes.first_chunk()?).ok()?.status)
}

/// Compares the pages with those of the simplest possible loop.
pub fn pages_as_a_plain_loop(offset: u64, len: usize) -> Check {
    let data: Vec<u8> = (0..len).map(|i| (i * 7 % 253) as u8).collect();
    let (mut expected, mut wire, mut at) = (Vec::new(), Vec::new(), 0);
    while at < len {
        let here = offset + at as u64;
        let mut end = at + 1;
        while end < len && !(offset + end as u64).is_multiple_of(4096) {
            end += 1;
        }
        expected.push((here, end - at, wire.len() as u64, at as u64));
        wire.extend_from_slice(&Crc32c::of(&data[at..end]).0.to_be_bytes());
        wire.extend_from_slice(&data[at..end]);
        at = end;
    }
    let layout = page::Layout::of_data(offset, len as u64).map_err(|error| error.to_string())?;
    let pages: Vec<_> = layout.pages().map(|page| (page.offset, page.len, page.wire_at, page.data_at)).collect();
    same("pages", &pages, &expected)?;
    same("count", &layout.count(), &(expected.len() as u64))?;
    same("wire length", &layout.wire_len(), &(wire.len() as u64))?;
    same("from the wire", &page::Layout::of_wire(offset, wire.len() as u64), &Ok(layout))?;
    let mut out = b"before".to_vec();
    page::encode(offset, &data, &mut out).map_err(|error| error.to_string())?;
    same("encoded", &(&out[6..] == wire.as_slice()), &true)?;
    let received: Vec<u8> =
        page::received(offset, &wire).map_err(|error| error.to_string())?.flat_map(|page| page.data.to_vec()).collect();
    same("received", &(received == data), &true)?;
    same("all good", &page::verify(offset, &wire), &Ok(BadPages::default()))
}

/// Checks that one changed bit makes exactly one bad page, the right one.
pub fn changed_bit_is_found(offset: u64, len: usize, place: u64) -> Check {
    let data: Vec<u8> = (0..len).map(|i| (i * 31 % 251) as u8).collect();
    let mut wire = Vec::new();
    page::encode(offset, &data, &mut wire).map_err(|error| error.to_string())?;
    let bit = usize::try_from(place % (wire.len() as u64 * 8)).unwrap();
    wire[bit / 8] ^= 1 << (bit % 8);
    let layout = page::Layout::of_data(offset, len as u64).map_err(|error| error.to_string())?;
    let hit = layout.pages().take_while(|page| page.wire_at <= bit as u64 / 8).last().ok_or("no page")?;
    let len = u16::try_from(hit.len).unwrap();
    let expected = BadPages { first_len: len, last_len: len, offsets: vec![hit.offset] };
    same("bad pages", &page::verify(offset, &wire), &Ok(expected))
}
