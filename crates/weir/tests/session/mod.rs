//! One connection to a node, request by request. It sends what a stock client sends, without its retries.
#![allow(clippy::unwrap_used, clippy::panic, dead_code)] // a test may fail this way; not every test uses everything

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use wire::request::{
    Access, CapVer, Close, Login, LoginAbility, LoginAbility2, Mkdir, MkdirOptions, Mv, Open, OpenOptions,
    Read as ReadRequest, Rm, Rmdir, Stat, StatOptions, Sync, Target, Truncate,
};
use wire::response::OpenReply;
use wire::{
    FileHandle, HANDSHAKE_REPLY_LEN, Handshake, PathArg, RESPONSE_HEADER_LEN, Request, Response, ResponseHeader,
    StreamId,
};

pub struct Session {
    socket: TcpStream,
}

impl Session {
    /// Connects and logs in as process `pid`.
    pub fn open(address: SocketAddr, pid: u32) -> Self {
        let socket = TcpStream::connect(address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut session = Self { socket };
        session.socket.write_all(&Handshake.to_bytes()).unwrap();
        let mut reply = [0; HANDSHAKE_REPLY_LEN];
        session.socket.read_exact(&mut reply).unwrap();
        session.ask(&Request::Login(Login {
            pid,
            user: *b"tester\0\0",
            ability2: LoginAbility2(0),
            ability: LoginAbility(0),
            capver: CapVer(5),
            info: Vec::new(),
        }));
        session
    }

    /// Sends `request`; `None` if the connection ends without an answer.
    pub fn try_send(&mut self, request: &Request) -> Option<Response> {
        let mut bytes = Vec::new();
        request.encode(StreamId([0, 1]), &mut bytes).unwrap();
        self.socket.write_all(&bytes).ok()?;
        let mut header = [0; RESPONSE_HEADER_LEN];
        self.socket.read_exact(&mut header).ok()?;
        let header = ResponseHeader::parse(&header).unwrap();
        let mut body = vec![0; header.dlen as usize];
        self.socket.read_exact(&mut body).ok()?;
        Some(Response::decode(&header, &body).unwrap())
    }

    /// Sends `request` and `data`, and returns the answer.
    pub fn send(&mut self, request: &Request, data: &[u8]) -> Response {
        let mut bytes = Vec::new();
        request.encode(StreamId([0, 1]), &mut bytes).unwrap();
        bytes.extend_from_slice(data);
        self.socket.write_all(&bytes).unwrap();
        let mut header = [0; RESPONSE_HEADER_LEN];
        self.socket.read_exact(&mut header).unwrap();
        let header = ResponseHeader::parse(&header).unwrap();
        let mut body = vec![0; header.dlen as usize];
        self.socket.read_exact(&mut body).unwrap();
        Response::decode(&header, &body).unwrap()
    }

    /// Sends a request that must succeed; returns the body of the answer.
    pub fn ask(&mut self, request: &Request) -> Vec<u8> {
        self.ask_with(request, &[])
    }

    pub fn ask_with(&mut self, request: &Request, data: &[u8]) -> Vec<u8> {
        match self.send(request, data) {
            Response::Ok(body) => body,
            other => panic!("{request:?} was answered {other:?}"),
        }
    }

    pub fn open_file(&mut self, path: &str, options: OpenOptions) -> FileHandle {
        let open = Open::plain(Access(0o644), options, PathArg::plain(path.as_bytes()));
        OpenReply::decode(&self.ask(&Request::Open(open))).unwrap().handle
    }

    pub fn create(&mut self, path: &str) -> FileHandle {
        self.open_file(path, OpenOptions::NEW | OpenOptions::UPDATE | OpenOptions::MKPATH)
    }

    pub fn write(&mut self, handle: FileHandle, offset: u64, data: &[u8]) {
        let len = u32::try_from(data.len()).unwrap();
        let write = wire::request::Write { handle, offset, path_id: 0, len };
        self.ask_with(&Request::Write(write), data);
    }

    pub fn read(&mut self, handle: FileHandle, offset: u64, len: u32) -> Vec<u8> {
        let read = ReadRequest::new(handle, offset, len);
        self.ask(&Request::Read(read))
    }

    pub fn sync(&mut self, handle: FileHandle) {
        self.ask(&Request::Sync(Sync { handle }));
    }

    pub fn close(&mut self, handle: FileHandle) {
        self.ask(&Request::Close(Close { handle }));
    }

    pub fn put(&mut self, path: &str, data: &[u8]) {
        let handle = self.create(path);
        for (number, chunk) in data.chunks(1 << 20).enumerate() {
            self.write(handle, (number as u64) << 20, chunk);
        }
        self.close(handle);
    }

    pub fn mkdir(&mut self, path: &str) {
        let target = PathArg::plain(path.as_bytes());
        self.ask(&Request::Mkdir(Mkdir { options: MkdirOptions(0), mode: Access(0o755), target }));
    }

    pub fn rmdir(&mut self, path: &str) {
        self.ask(&Request::Rmdir(Rmdir { target: PathArg::plain(path.as_bytes()) }));
    }

    pub fn rm(&mut self, path: &str) {
        self.ask(&Request::Rm(Rm { target: PathArg::plain(path.as_bytes()) }));
    }

    pub fn mv(&mut self, from: &str, to: &str) {
        self.ask(&Request::Mv(Mv { from: PathArg::plain(from.as_bytes()), to: PathArg::plain(to.as_bytes()) }));
    }

    pub fn chmod(&mut self, path: &str, mode: u16) {
        let target = PathArg::plain(path.as_bytes());
        self.ask(&Request::Chmod(wire::request::Chmod { mode: Access(mode), target }));
    }

    pub fn truncate(&mut self, path: &str, len: u64) {
        let target = Target::Path(PathArg::plain(path.as_bytes()));
        self.ask(&Request::Truncate(Truncate { target, len }));
    }

    pub fn stat(&mut self, path: &str) -> Vec<u8> {
        let target = Target::Path(PathArg::plain(path.as_bytes()));
        self.ask(&Request::Stat(Stat { options: StatOptions(0), target }))
    }
}
