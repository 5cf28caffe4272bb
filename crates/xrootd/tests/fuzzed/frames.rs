//! Requests, mostly valid, and the changes that make them invalid. Layouts: XProtocol.hh of XRootD 5.

use super::{Choices, TOP};

pub const OK: u16 = 0;
pub const OKSOFAR: u16 = 4000;
pub const ERROR: u16 = 4003;
pub const STATUS: u16 = 4007;
/// The length of the answer to a handshake, in bytes.
pub const HANDSHAKE_REPLY: usize = 16;

/// The statuses: ok, and 4000 to 4007 (oksofar, attn, authmore, error, redirect, wait, waitresp, status).
pub fn is_status(status: u16) -> bool {
    status == OK || (OKSOFAR..=STATUS).contains(&status)
}

const AUTH: u16 = 3000;
const QUERY: u16 = 3001;
const CHMOD: u16 = 3002;
const CLOSE: u16 = 3003;
const DIRLIST: u16 = 3004;
const GPFILE: u16 = 3005;
const PROTOCOL: u16 = 3006;
const LOGIN: u16 = 3007;
const MKDIR: u16 = 3008;
const MV: u16 = 3009;
const OPEN: u16 = 3010;
const PING: u16 = 3011;
const CHKPOINT: u16 = 3012;
const READ: u16 = 3013;
const RM: u16 = 3014;
const RMDIR: u16 = 3015;
const SYNC: u16 = 3016;
const STAT: u16 = 3017;
const SET: u16 = 3018;
const WRITE: u16 = 3019;
const FATTR: u16 = 3020;
const PREPARE: u16 = 3021;
const STATX: u16 = 3022;
const ENDSESS: u16 = 3023;
const BIND: u16 = 3024;
const READV: u16 = 3025;
const PGWRITE: u16 = 3026;
const LOCATE: u16 = 3027;
const TRUNCATE: u16 = 3028;
const SIGVER: u16 = 3029;
const PGREAD: u16 = 3030;
const WRITEV: u16 = 3031;
const BATCH: u16 = 0x7765;
const EXECUTE: u8 = 4;

/// A request to send.
#[derive(Clone)]
pub struct Frame {
    code: u16,
    params: [u8; 16],
    /// The length in the header, if it is wrong.
    said: Option<i32>,
    data: Vec<u8>,
}

impl Frame {
    fn new(code: u16, params: &[u8], data: Vec<u8>) -> Self {
        let mut all = [0; 16];
        all[..params.len()].copy_from_slice(params);
        Self { code, params: all, said: None, data }
    }

    /// A request whose parameters are right-aligned in their 16 bytes.
    fn at_end(code: u16, params: &[u8], data: Vec<u8>) -> Self {
        let mut all = [0; 16];
        all[16 - params.len()..].copy_from_slice(params);
        Self { code, params: all, said: None, data }
    }

    pub fn opens(&self) -> bool {
        self.code == OPEN
    }

    /// Whether the request may affect that folder.
    pub fn names(&self, folder: &str) -> bool {
        self.data.windows(folder.len()).any(|window| window == folder.as_bytes())
    }

    pub fn bytes(&self, stream: u16) -> Vec<u8> {
        let said = self.said.unwrap_or(self.data.len() as i32);
        let mut bytes = Vec::with_capacity(24 + self.data.len());
        bytes.extend_from_slice(&stream.to_be_bytes());
        bytes.extend_from_slice(&self.code.to_be_bytes());
        bytes.extend_from_slice(&self.params);
        bytes.extend_from_slice(&said.to_be_bytes());
        bytes.extend_from_slice(&self.data);
        bytes
    }

    /// Wraps the request in a chkpoint: its header is the payload, and its data follows.
    fn under_checkpoint(self) -> Self {
        let inner = self.bytes(0);
        let mut params = [0; 16];
        params[15] = EXECUTE;
        Self { code: CHKPOINT, params, said: Some(24), data: inner }
    }

    /// Leaves five of six frames unchanged. Returns whether it changed this one.
    pub fn change(&mut self, c: &mut Choices<'_>) -> bool {
        match c.below(48) {
            0 => self.said = Some(c.of(&[-1, i32::MIN, i32::MAX, 0, 1, 24, 65_536, 1 << 24])),
            1 => self.said = Some((self.data.len() as i32 + c.below(64) as i32 - 32).max(0)),
            2 => self.params[c.below(16)] ^= 1 << c.below(8),
            3 => self.params = c.array(),
            4 if !self.data.is_empty() => {
                let at = c.below(self.data.len());
                self.data[at] = c.byte();
            }
            5 if !self.data.is_empty() => self.data.truncate(c.below(self.data.len())),
            6 => self.data.extend_from_slice(c.bytes(40)),
            7 => self.code = 2990 + c.below(60) as u16,
            _ => return false,
        }
        true
    }
}

pub fn handshake() -> Vec<u8> {
    [0i32, 0, 0, 4, 2012].iter().flat_map(|n| n.to_be_bytes()).collect()
}

pub fn login(c: &mut Choices<'_>) -> Frame {
    let mut params = [0; 16];
    params[3] = c.byte(); // the process id
    params[4..8].copy_from_slice(b"fuzz");
    params[14] = 5;
    Frame::new(LOGIN, &params, Vec::new())
}

pub fn bind(session: [u8; 16]) -> Frame {
    Frame::new(BIND, &session, Vec::new())
}

const NAMES: [&str; 10] = ["", "/a", "/b", "/c", "/d", "/d/e", "/d/e/f", "/d/g", "/file", "/a/b"];
/// The number of names. An abandoned file stays reserved for its writer during the grace period, so with few names
/// most opens would be refused as busy.
const VARIANTS: usize = 16;
const OPAQUE: [&str; 12] = [
    "?oss.asize=100000",
    "?oss.asize=5",
    "?weir.partial=1",
    "?weir.resume=1",
    "?weir.upload=1",
    "?cks.type=crc32c",
    "?tried=a&triedrc=enoent",
    "?tpc.key=0123456789abcdef&tpc.dst=127.0.0.1&tpc.stage=copy&tpc.ttl=1",
    "?tpc.key=0123456789abcdef&tpc.org=fuzz.1@localhost&tpc.stage=copy",
    "?tpc.src=127.0.0.1:1&tpc.key=k&tpc.lfn=/x&tpc.stage=copy",
    "?tpc.src=fuzz.1@127.0.0.1:PORT&tpc.key=0123456789abcdef&tpc.lfn=/fuzz/a&tpc.stage=copy",
    "?&&==&a=&=b&?x",
];
const OFFSETS: [u64; 18] = [
    0,
    0,
    1,
    100,
    4095,
    4096,
    4097,
    65_535,
    65_536,
    70_000,
    200_000,
    1 << 20,
    (1 << 20) + 5,
    i64::MAX as u64 - 5,
    i64::MAX as u64,
    u64::MAX,
    1 << 63,
    1 << 62,
];
const LENGTHS: [usize; 10] = [0, 1, 10, 100, 4095, 4096, 4097, 9000, 66_000, 200_000];

fn path(c: &mut Choices<'_>, port: u16) -> Vec<u8> {
    let name = c.of(&NAMES);
    let variant = if name.is_empty() { String::new() } else { c.below(VARIANTS).to_string() };
    let mut path = format!("{TOP}{name}{variant}").into_bytes();
    if c.one_in(6) {
        path.extend_from_slice(c.of(&OPAQUE).replace("PORT", &port.to_string()).as_bytes());
    }
    if c.one_in(40) {
        path.extend_from_slice(c.bytes(20));
    }
    path
}

fn offset(c: &mut Choices<'_>) -> [u8; 8] {
    c.of(&OFFSETS).to_be_bytes()
}

fn data(c: &mut Choices<'_>) -> Vec<u8> {
    vec![c.byte(); c.of(&LENGTHS)]
}

fn place(handle: [u8; 4], c: &mut Choices<'_>) -> Vec<u8> {
    [&handle[..], &offset(c)].concat()
}

/// A request of any kind.
pub fn any(c: &mut Choices<'_>, handle: [u8; 4], session: [u8; 16], port: u16) -> Frame {
    match c.below(65) {
        0..=11 => {
            // Read, update, new, delete, and combinations; then the mode.
            let how = c.of(&[0x10u16, 0x20, 0x28, 0x22, 0x28, 0x22, 0x08, 0x02, 0x200, 0x30]);
            let hints = c.of(&[0u16, 0x100, 0x400, 0x1000, 0x04, 0x80, 0x2000, 0x4000, 0x8000, 0x140]);
            let params = [&0o644u16.to_be_bytes()[..], &(how | hints).to_be_bytes()].concat();
            Frame::new(OPEN, &params, path(c, port))
        }
        12..=21 => changing(c, handle),
        22..=25 => changing(c, handle).under_checkpoint(),
        26..=29 => Frame::at_end(CHKPOINT, &[&handle[..], &[0; 11], &[c.below(6) as u8]].concat(), Vec::new()),
        30..=34 => {
            let len = c.of(&[0u32, 1, 4096, 10_000, 70_000, 1 << 21, i32::MAX as u32, u32::MAX]);
            let code = c.of(&[READ, PGREAD]);
            Frame::new(code, &[&place(handle, c)[..], &len.to_be_bytes()].concat(), c.bytes(8).to_vec())
        }
        35..=37 => Frame::new(READV, &[], segments(c, handle)),
        38..=40 => Frame::new(CLOSE, &handle, Vec::new()),
        41 => Frame::new(SYNC, &handle, Vec::new()),
        42 => Frame::at_end(STAT, &handle, Vec::new()),
        43 => Frame::new(STAT, &[c.byte()], path(c, port)),
        44 => Frame::at_end(DIRLIST, &[c.byte()], path(c, port)),
        45 | 46 => Frame::new(MKDIR, &[&[c.byte()][..], &[0; 13], &[1, 0xed]].concat(), path(c, port)),
        47 => Frame::new(c.of(&[RM, RMDIR]), &[], path(c, port)),
        48 => {
            let old = path(c, port);
            let len = (old.len() as u16).to_be_bytes();
            Frame::at_end(MV, &len, [&old[..], b" ", &path(c, port)].concat())
        }
        49 => Frame::at_end(CHMOD, &[c.byte() & 1, c.byte()], path(c, port)),
        50 => Frame::new(TRUNCATE, &[&[0; 4][..], &offset(c)].concat(), path(c, port)),
        51 => Frame::new(c.of(&[LOCATE, STATX, SET]), &[c.byte(), c.byte()], path(c, port)),
        52 | 53 => {
            let kind = c.of(&[0u16, 1, 2, 3, 3, 3, 4, 5, 6, 7, 8, 16, 32, 64, 999]);
            let about = [&kind.to_be_bytes()[..], &[0; 2], &handle].concat();
            let words = c.of(&["", "role readv_iov_max chksum version tpc", "a", "0"]);
            let text = if c.one_in(3) { words.as_bytes().to_vec() } else { path(c, port) };
            Frame::new(QUERY, &about, text)
        }
        54 | 55 => attributes(c, handle, port),
        56 => Frame::new(
            PREPARE,
            &[c.byte(), c.byte(), 0, 0, c.byte(), c.byte()],
            [&path(c, port)[..], b"\n", c.bytes(40)].concat(),
        ),
        57 => {
            Frame::new(SIGVER, &[&[0x0b, 0xc2, 0, c.byte()][..], &c.array::<8>(), &[1]].concat(), c.bytes(40).to_vec())
        }
        58 => Frame::new(BIND, &session, Vec::new()),
        59 => Frame::new(ENDSESS, &if c.one_in(2) { session } else { c.array() }, Vec::new()),
        60 => login(c),
        61 => Frame::new(c.of(&[AUTH, GPFILE]), &c.array::<16>(), c.bytes(40).to_vec()),
        62 => Frame::new(PROTOCOL, &c.array::<8>(), Vec::new()),
        63 => batch(c, port),
        _ => Frame::new(PING, &[], Vec::new()),
    }
}

/// A request that changes an open file.
fn changing(c: &mut Choices<'_>, handle: [u8; 4]) -> Frame {
    match c.below(8) {
        0..=3 => Frame::new(WRITE, &place(handle, c), data(c)),
        4 | 5 => {
            let at = offset(c);
            let mut pages = Vec::new();
            let _ = wire::page::encode(u64::from_be_bytes(at), &data(c), &mut pages);
            if c.one_in(3) && !pages.is_empty() {
                let wrong = c.below(pages.len());
                pages[wrong] ^= 1;
            }
            let flags = [0, u8::from(c.one_in(4))]; // the second one means a repetition
            Frame::new(PGWRITE, &[&handle[..], &at, &flags].concat(), pages)
        }
        6 => {
            let listed = segments(c, handle);
            let mut frame = Frame::new(WRITEV, &[c.byte() & 1], listed.clone());
            frame.said = Some(listed.len() as i32);
            for segment in listed.chunks_exact(16) {
                let len = u32::from_be_bytes(segment[4..8].try_into().unwrap()).min(100_000) as usize;
                frame.data.resize(frame.data.len() + len, c.byte());
            }
            frame
        }
        _ => Frame::new(TRUNCATE, &place(handle, c), Vec::new()),
    }
}

fn segments(c: &mut Choices<'_>, handle: [u8; 4]) -> Vec<u8> {
    let mut listed = Vec::new();
    for _ in 0..c.below(6) {
        let len = if c.one_in(12) { u32::from_be_bytes(c.array()) } else { c.of(&LENGTHS) as u32 };
        listed.extend_from_slice(&handle);
        listed.extend_from_slice(&len.to_be_bytes());
        listed.extend_from_slice(&offset(c));
    }
    listed
}

/// Several entries in one frame; sometimes with a wrong checksum.
fn batch(c: &mut Choices<'_>, port: u16) -> Frame {
    let (mut list, mut contents) = (wire::batch::List::default(), Vec::new());
    for _ in 0..=c.below(6) {
        let content = if c.one_in(3) { Vec::new() } else { data(c) };
        let sum = types::Crc32c::of(&content).0 ^ u32::from(c.one_in(8));
        let create = wire::batch::Op::Create { replace: c.one_in(2), mode: 0o644, crc32c: sum };
        let open = wire::batch::Op::Open { replace: c.one_in(2), mode: 0o644, len: sum };
        let op =
            c.of(&[create, create, wire::batch::Op::Stat, wire::batch::Op::Remove, open, wire::batch::Op::Unknown(9)]);
        let content = if op == create { content } else { Vec::new() };
        if list.push(op, &path(c, port), content.len()).is_ok() {
            contents.extend_from_slice(&content);
        }
    }
    let numbers = list.request();
    let params =
        [&[wire::batch::VERSION, 0, 0, 0][..], &numbers.entries.to_be_bytes(), &numbers.list_len.to_be_bytes()]
            .concat();
    Frame::new(BATCH, &params, [list.bytes(), &contents].concat())
}

fn attributes(c: &mut Choices<'_>, handle: [u8; 4], port: u16) -> Frame {
    let (which, count) = (c.below(5) as u8, c.below(4));
    let mut text = if c.one_in(4) { Vec::new() } else { path(c, port) };
    text.push(0);
    for _ in 0..count {
        text.extend_from_slice(b"\0\0");
        text.extend_from_slice(c.of(&["U.one", "U.two", "x", ""]).as_bytes());
        text.push(0);
    }
    if which == 3 {
        for _ in 0..count {
            let value = c.bytes(30);
            text.extend_from_slice(&(value.len() as u32).to_be_bytes());
            text.extend_from_slice(value);
        }
    }
    let handle = if text[0] == 0 { handle } else { [0; 4] };
    let options = if c.one_in(4) { c.byte() } else { c.of(&[0, 1, 0x10]) };
    Frame::new(FATTR, &[&handle[..], &[which, count as u8, options]].concat(), text)
}
