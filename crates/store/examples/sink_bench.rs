//! Measures the upper limit for streams over sockets to the disk: a sink that receives, computes CRC32C and writes past
//! the page cache, and its sender. The parts can also run alone, for comparison with iperf3 and fio.
//!
//!     sink_bench receive STREAMS BYTES FOLDER    prints its port, accepts STREAMS connections of BYTES each; `-`: stores nothing
//!     sink_bench send PORT BYTES SOURCE          sends a file and waits until the sink has it on the disk; `-`: bytes from memory
//!     sink_bench write STREAMS BYTES FOLDER      only writes, without sockets and checksums; prints the rate as JSON
//!
//! Each connection of the sink has a thread and a buffer of 8 MiB. Its file is allocated at once and synced at the end.

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use disk::{Access, AlignedBuf, Disk, DiskFile, OpenOptions, RealDisk};
use types::Crc32c;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const BUFFER: usize = 8 << 20;
const SENT_AT_ONCE: usize = 1 << 20;

fn say(line: &str) {
    #[allow(clippy::print_stdout)] // the output of a benchmark
    {
        println!("{line}");
    }
}

/// The file that receives a stream.
fn target(folder: &Path, number: usize, bytes: u64) -> Result<Arc<dyn DiskFile>, Failure> {
    let file = RealDisk::open(folder)?
        .open(&format!("stream-{number}"), OpenOptions { access: Access::CreateNew, direct: true })?;
    file.allocate(0, bytes)?;
    Ok(file)
}

/// Receives one connection's bytes.
fn receive(mut from: TcpStream, file: Option<&dyn DiskFile>, bytes: u64) -> Result<(), Failure> {
    let mut buffer = AlignedBuf::new(BUFFER);
    let (mut at, mut sum) = (0, Crc32c::EMPTY);
    while at < bytes {
        let step = usize::try_from(bytes - at)?.min(BUFFER);
        from.read_exact(&mut buffer[..step])?;
        if let Some(file) = file {
            sum = sum.combine(Crc32c::of(&buffer[..step]), step as u64);
            // The last part is padded for direct writes, and the file truncated.
            let whole = step.next_multiple_of(disk::ALIGNMENT);
            file.write_at(&buffer[..whole], at)?;
        }
        at += step as u64;
    }
    if let Some(file) = file {
        file.set_len(bytes)?;
        file.sync_data()?;
    }
    std::hint::black_box(sum);
    Ok(from.write_all(b"!")?)
}

fn sink(streams: usize, bytes: u64, folder: Option<&Path>) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    say(&listener.local_addr()?.port().to_string());
    let mut threads = Vec::new();
    for number in 0..streams {
        let (from, _) = listener.accept()?;
        let folder = folder.map(Path::to_owned);
        threads.push(std::thread::spawn(move || {
            let file = folder.map(|folder| target(&folder, number, bytes)).transpose()?;
            receive(from, file.as_deref(), bytes)
        }));
    }
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)
}

fn send(port: u16, bytes: u64, source: Option<&str>) -> Result<(), Failure> {
    let mut to = TcpStream::connect(("127.0.0.1", port))?;
    let mut source = source.map(File::open).transpose()?;
    let mut buffer = vec![7; SENT_AT_ONCE];
    let mut left = bytes;
    while left > 0 {
        let step = usize::try_from(left)?.min(SENT_AT_ONCE);
        if let Some(source) = &mut source {
            source.read_exact(&mut buffer[..step])?;
        }
        to.write_all(&buffer[..step])?;
        left -= step as u64;
    }
    to.shutdown(Shutdown::Write)?;
    Ok(to.read_exact(&mut [0])?)
}

fn write(streams: usize, bytes: u64, folder: &Path) -> Result<(), Failure> {
    let begun = Instant::now();
    let threads: Vec<_> = (0..streams)
        .map(|number| {
            let folder = folder.to_owned();
            std::thread::spawn(move || -> Result<(), Failure> {
                let mut buffer = AlignedBuf::new(BUFFER);
                buffer.fill(7);
                let file = target(&folder, number, bytes)?;
                for at in (0..bytes).step_by(BUFFER) {
                    file.write_at(&buffer, at)?;
                }
                Ok(file.sync_data()?)
            })
        })
        .collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked")?)?;
    let rate = (streams as u64 * bytes) as f64 / begun.elapsed().as_secs_f64() / 1e6;
    say(&serde_json::json!({ "bench": "write", "mb_per_second": rate }).to_string());
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["receive", streams, bytes, "-"] => sink(streams.parse()?, bytes.parse()?, None),
        ["receive", streams, bytes, folder] => sink(streams.parse()?, bytes.parse()?, Some(Path::new(folder))),
        ["send", port, bytes, "-"] => send(port.parse()?, bytes.parse()?, None),
        ["send", port, bytes, source] => send(port.parse()?, bytes.parse()?, Some(source)),
        ["write", streams, bytes, folder] => write(streams.parse()?, bytes.parse()?, Path::new(folder)),
        _ => Err("usage: sink_bench receive|write STREAMS BYTES FOLDER, or send PORT BYTES SOURCE".into()),
    }
}
