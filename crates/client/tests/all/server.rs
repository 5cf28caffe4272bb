//! A small server for tests: it takes every login, and answers all other requests as it is told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use weir_client::Url;

pub const OK: u16 = 0;
pub const REDIRECT: u16 = 4004;
pub const OPEN: u16 = 3010;
pub const READ: u16 = 3013;

/// A server's answers to any request after the login, by its kind, its header and its data: status and body of each frame.
pub type AllAnswers = dyn Fn(u16, &[u8; 24], &[u8]) -> Vec<(u16, Vec<u8>)> + Send + Sync;

/// A server that answers like this. Returns the address of a file there.
pub fn answering(answers: impl Fn(u16, &[u8; 24], &[u8]) -> Vec<(u16, Vec<u8>)> + Send + Sync + 'static) -> Url {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = Url::parse(&format!("root://127.0.0.1:{}//file", listener.local_addr().unwrap().port())).unwrap();
    let answers: Arc<AllAnswers> = Arc::new(answers);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let answers = Arc::clone(&answers);
            // The client may close the connection at any time.
            std::thread::spawn(move || serve(connection.unwrap(), &*answers).ok());
        }
    });
    url
}

/// Serves one connection.
pub fn serve(mut socket: TcpStream, answers: &AllAnswers) -> std::io::Result<()> {
    socket.read_exact(&mut [0; 20])?;
    socket.write_all(&[0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 5, 0x20, 0, 0, 0, 1])?;
    loop {
        let mut head = [0; 24];
        socket.read_exact(&mut head)?;
        let mut data = vec![0; u32::from_be_bytes(head[20..24].try_into().unwrap()) as usize];
        socket.read_exact(&mut data)?;
        let frames = match u16::from_be_bytes([head[2], head[3]]) {
            // protocol, login
            3006 => vec![(OK, vec![0, 0, 5, 0x20, 0, 0, 0, 1])],
            3007 => vec![(OK, vec![7; 16])],
            kind => answers(kind, &head, &data),
        };
        for (status, body) in frames {
            let len = u32::try_from(body.len()).unwrap().to_be_bytes();
            socket.write_all(&[&head[..2], &status.to_be_bytes(), &len, &body].concat())?;
        }
    }
}
