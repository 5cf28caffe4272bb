//! A client, made of the client half of the wire crate.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::request::{
    Access, CapVer, Close, Dirlist, DirlistOptions, Endsess, Expect, Login, LoginAbility, LoginAbility2, Mkdir,
    MkdirOptions, Mv, Open, OpenOptions, PgFlags, Pgread, Pgwrite, Protocol, ProtocolFlags, Query, QueryKind, Readv,
    Rm, Segment, Stat, StatOptions, Sync, Target, Truncate, Write as WriteRequest,
};
use wire::response::{
    BadPages, DirEntry, Dirlisting, LoginReply, OpenReply, ReadvSegment, ResultKind, StatReply, StatusInfo,
};
use wire::{
    ErrorNumber, FileHandle, HANDSHAKE_REPLY_LEN, Handshake, HandshakeReply, PathArg, RESPONSE_HEADER_LEN, Request,
    Response, ResponseHeader, SessionId, StreamId, page,
};

/// The result of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// All bodies, concatenated.
    Ok(Vec<u8>),
    Error(ErrorNumber, String),
    Wait(u32),
    /// For pgread: the data without checksums. For pgwrite: the pages to send again.
    Pages(Vec<u8>),
    Bad(BadPages),
}

impl Answer {
    pub fn ok(self) -> Vec<u8> {
        match self {
            Answer::Ok(body) | Answer::Pages(body) => body,
            other => panic!("refused: {other:?}"),
        }
    }

    pub fn error(self) -> (ErrorNumber, String) {
        match self {
            Answer::Error(number, text) => (number, text),
            other => panic!("not refused: {other:?}"),
        }
    }

    pub fn number(self) -> ErrorNumber {
        self.error().0
    }
}

pub struct Client {
    pub socket: TcpStream,
    next: u16,
    pub session: SessionId,
    /// Repeats requests that are told to wait.
    pub patient: bool,
}

pub const UPDATE: OpenOptions = OpenOptions::UPDATE;
pub const NEW: OpenOptions = OpenOptions(OpenOptions::NEW.0 | OpenOptions::UPDATE.0);
pub const REPLACE: OpenOptions = OpenOptions(OpenOptions::DELETE.0 | OpenOptions::UPDATE.0);
pub const READ: OpenOptions = OpenOptions::READ;

pub fn arg(path: &str) -> PathArg {
    PathArg::parse(path.as_bytes()).unwrap()
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        Self { socket, next: 1, session: SessionId::default(), patient: true }
    }

    pub fn login(&mut self, user: &str, pid: u32) {
        self.socket.write_all(&Handshake.to_bytes()).unwrap();
        let mut reply = [0; HANDSHAKE_REPLY_LEN];
        self.socket.read_exact(&mut reply).unwrap();
        assert_eq!(HandshakeReply::decode(&reply).unwrap().server_type, 1);
        self.call(&Request::Protocol(Protocol {
            client_version: 0x511,
            flags: ProtocolFlags::NONE,
            expect: Expect::LOGIN,
        }))
        .ok();
        let mut name = [0; 8];
        name[..user.len()].copy_from_slice(user.as_bytes());
        let login = Login {
            pid,
            user: name,
            ability2: LoginAbility2::NONE,
            ability: LoginAbility::FULLURL,
            capver: CapVer::XRDCL5,
            info: Vec::new(),
        };
        let body = self.call(&Request::Login(login)).ok();
        self.session = LoginReply::decode(&body).unwrap().session;
    }

    pub fn send(&mut self, request: &Request, data: &[u8]) -> StreamId {
        self.next = self.next.wrapping_add(1).max(1);
        let stream = StreamId(self.next.to_be_bytes());
        let mut bytes = Vec::new();
        request.encode(stream, &mut bytes).unwrap();
        bytes.extend_from_slice(data);
        self.socket.write_all(&bytes).unwrap();
        stream
    }

    pub fn raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// One frame.
    pub fn frame(&mut self) -> std::io::Result<(StreamId, Response, Vec<u8>)> {
        let mut header = [0; RESPONSE_HEADER_LEN];
        self.socket.read_exact(&mut header)?;
        let header = ResponseHeader::parse(&header).unwrap();
        let mut body = vec![0; header.dlen as usize];
        self.socket.read_exact(&mut body)?;
        let response = Response::decode(&header, &body).unwrap();
        let mut data = Vec::new();
        if let Response::Status(status) = &response {
            data.resize(status.data_len as usize, 0);
            self.socket.read_exact(&mut data)?;
        }
        Ok((header.stream, response, data))
    }

    /// A complete answer to any request.
    pub fn answer(&mut self) -> (StreamId, Answer) {
        let mut so_far = Vec::new();
        loop {
            let (stream, response, data) = self.frame().expect("an answer");
            let answer = match response {
                Response::OkSoFar(body) => {
                    so_far.extend(body);
                    continue;
                }
                Response::Ok(body) => {
                    so_far.extend(body);
                    Answer::Ok(so_far)
                }
                Response::Error { number, text } => Answer::Error(number, String::from_utf8(text).unwrap()),
                Response::Wait { seconds, .. } => Answer::Wait(seconds),
                Response::Status(status) => match status.info {
                    StatusInfo::Pgread { offset } => {
                        for page in page::received(offset, &data).unwrap() {
                            assert!(page.is_good(), "a page with a wrong checksum was sent");
                            so_far.extend_from_slice(page.data);
                        }
                        if status.result == ResultKind::Partial {
                            continue;
                        }
                        Answer::Pages(so_far)
                    }
                    StatusInfo::Pgwrite { .. } => Answer::Bad(BadPages::decode(&data).unwrap()),
                },
                other => panic!("{other:?}"),
            };
            return (stream, answer);
        }
    }

    pub fn call(&mut self, request: &Request) -> Answer {
        self.call_with(request, &[])
    }

    pub fn call_with(&mut self, request: &Request, data: &[u8]) -> Answer {
        loop {
            let sent = self.send(request, data);
            let (stream, answer) = self.answer();
            assert_eq!(stream, sent);
            match answer {
                Answer::Wait(_) if self.patient => std::thread::sleep(Duration::from_millis(100)),
                answer => return answer,
            }
        }
    }

    pub fn try_open(&mut self, path: &str, options: OpenOptions) -> Answer {
        self.call(&Request::Open(Open::plain(Access(0o644), options, arg(path))))
    }

    pub fn open(&mut self, path: &str, options: OpenOptions) -> FileHandle {
        OpenReply::decode(&self.try_open(path, options).ok()).unwrap().handle
    }

    pub fn write(&mut self, handle: FileHandle, offset: u64, data: &[u8]) -> Answer {
        let len = u32::try_from(data.len()).unwrap();
        self.call_with(&Request::Write(WriteRequest { handle, offset, path_id: 0, len }), data)
    }

    pub fn pgwrite_wire(&mut self, handle: FileHandle, offset: u64, wire: &[u8], flags: PgFlags) -> Answer {
        let wire_len = u32::try_from(wire.len()).unwrap();
        self.call_with(&Request::Pgwrite(Pgwrite { handle, offset, path_id: 0, flags, wire_len }), wire)
    }

    pub fn pgwrite(&mut self, handle: FileHandle, offset: u64, data: &[u8]) -> BadPages {
        let mut wire = Vec::new();
        page::encode(offset, data, &mut wire).unwrap();
        match self.pgwrite_wire(handle, offset, &wire, PgFlags::NONE) {
            Answer::Bad(bad) => bad,
            other => panic!("{other:?}"),
        }
    }

    pub fn read(&mut self, handle: FileHandle, offset: u64, len: u32) -> Answer {
        let read = wire::request::Read::new(handle, offset, len);
        self.call(&Request::Read(read))
    }

    pub fn pgread(&mut self, handle: FileHandle, offset: u64, len: u32) -> Answer {
        self.call(&Request::Pgread(Pgread { handle, offset, len, path_id: 0, flags: PgFlags::NONE, given: 0 }))
    }

    pub fn readv(&mut self, segments: &[Segment]) -> Result<Vec<Vec<u8>>, ErrorNumber> {
        match self.call(&Request::Readv(Readv { path_id: 0, segments: segments.to_vec() })) {
            Answer::Ok(body) => {
                let parts = ReadvSegment::decode_all(&body).unwrap();
                assert_eq!(parts.iter().map(|(segment, _)| *segment).collect::<Vec<_>>(), segments);
                Ok(parts.into_iter().map(|(_, data)| data.to_vec()).collect())
            }
            Answer::Error(number, _) => Err(number),
            other => panic!("{other:?}"),
        }
    }

    pub fn close(&mut self, handle: FileHandle) -> Answer {
        self.call(&Request::Close(Close { handle }))
    }

    pub fn sync(&mut self, handle: FileHandle) -> Answer {
        self.call(&Request::Sync(Sync { handle }))
    }

    pub fn stat(&mut self, path: &str) -> Result<StatReply, ErrorNumber> {
        match self.call(&Request::Stat(Stat { options: StatOptions::NONE, target: Target::Path(arg(path)) })) {
            Answer::Ok(body) => Ok(StatReply::decode(&body).unwrap()),
            other => Err(other.number()),
        }
    }

    pub fn stat_handle(&mut self, handle: FileHandle) -> StatReply {
        let stat = Stat { options: StatOptions::NONE, target: Target::Handle(handle) };
        StatReply::decode(&self.call(&Request::Stat(stat)).ok()).unwrap()
    }

    pub fn truncate(&mut self, target: Target, len: u64) -> Answer {
        self.call(&Request::Truncate(Truncate { len, target }))
    }

    pub fn mkdir(&mut self, path: &str, options: MkdirOptions) -> Answer {
        self.call(&Request::Mkdir(Mkdir { options, mode: Access(0o755), target: arg(path) }))
    }

    pub fn rm(&mut self, path: &str) -> Answer {
        self.call(&Request::Rm(Rm { target: arg(path) }))
    }

    pub fn mv(&mut self, from: &str, to: &str) -> Answer {
        self.call(&Request::Mv(Mv { from: arg(from), to: arg(to) }))
    }

    pub fn list(&mut self, path: &str, options: DirlistOptions) -> Vec<DirEntry> {
        let body = self.call(&Request::Dirlist(Dirlist { options, target: arg(path) })).ok();
        Dirlisting::decode(&body).unwrap().entries
    }

    pub fn query(&mut self, kind: QueryKind, args: &str) -> Answer {
        self.call(&Request::Query(Query { kind, handle: FileHandle::default(), args: args.as_bytes().to_vec() }))
    }

    pub fn checksum(&mut self, path: &str) -> Result<String, ErrorNumber> {
        match self.query(QueryKind::Checksum, path) {
            Answer::Ok(body) => Ok(String::from_utf8(body).unwrap().trim_end_matches('\0').to_owned()),
            other => Err(other.number()),
        }
    }

    pub fn endsess(&mut self, session: SessionId) -> Answer {
        self.call(&Request::Endsess(Endsess { session }))
    }

    /// Writes and closes a whole file.
    pub fn put(&mut self, path: &str, options: OpenOptions, data: &[u8]) {
        let handle = self.open(path, options);
        for (n, part) in data.chunks(3 << 20).enumerate() {
            assert_eq!(self.pgwrite(handle, (n * (3 << 20)) as u64, part), BadPages::default());
        }
        self.close(handle).ok();
    }

    /// Reads a whole file.
    pub fn get(&mut self, path: &str) -> Vec<u8> {
        let handle = self.open(path, READ);
        let len = u32::try_from(self.stat_handle(handle).size).unwrap();
        let data = self.pgread(handle, 0, len).ok();
        self.close(handle).ok();
        data
    }

    /// Disconnects without a close.
    pub fn cut(self) {
        let _ = self.socket.shutdown(std::net::Shutdown::Both);
    }
}
