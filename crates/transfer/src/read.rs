//! Reads one file from beginning to end, wherever it is.

use client::{BEGINNING_KIB_MAX, Client, OpenedToRead, Units};

use crate::error::TransferError;
use crate::place::CopyPath;

/// Bytes of one read.
const PART: usize = 1 << 20;

/// Reads a whole file and gives each part to `each`. A file that is being written is read up to its present end.
///
/// # Errors
/// What keeps it from being read, or the error of `each`.
pub fn read_all(
    client: &mut Client,
    at: &CopyPath,
    each: &mut dyn FnMut(&[u8]) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    use std::io::Read as _;
    let mut buffer = vec![0; PART];
    match at {
        CopyPath::Remote(url) => {
            let mut offset = 0;
            match client.open_with_units(url, BEGINNING_KIB_MAX, Units::open_reader)? {
                OpenedToRead::File(mut file) => {
                    let beginning = file.take_beginning();
                    if !beginning.is_empty() {
                        each(&beginning)?;
                        offset = beginning.len() as u64;
                    }
                    // That a file is empty, only a read tells: some files have no length.
                    if offset == 0 || offset != file.stat().size {
                        loop {
                            let got = file.read_at(offset, &mut buffer)?;
                            if got == 0 {
                                break;
                            }
                            each(&buffer[..got])?;
                            offset += got as u64;
                        }
                    }
                    client.give_back(file.close()?, url);
                }
                OpenedToRead::Units(units, reader) => {
                    // A part of each unit at a time.
                    buffer.resize(PART * usize::from(units.stripe().width()), 0);
                    let end = units.stat().size;
                    while offset < end {
                        let wanted = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
                        let got = reader.read(offset, &mut buffer[..wanted])?;
                        if got == 0 {
                            return Err(TransferError::Changed { from: at.to_string(), expected: end, found: offset });
                        }
                        each(&buffer[..got])?;
                        offset += got as u64;
                    }
                }
            }
            Ok(())
        }
        CopyPath::Local(path) => {
            let mut file = std::fs::File::open(path).map_err(TransferError::local("open", path))?;
            loop {
                match file.read(&mut buffer).map_err(TransferError::local("read", path))? {
                    0 => return Ok(()),
                    got => each(&buffer[..got])?,
                }
            }
        }
        CopyPath::Standard => {
            let mut input = std::io::stdin().lock();
            loop {
                let failed = |source| TransferError::Local { what: "read", path: "standard input".into(), source };
                match input.read(&mut buffer).map_err(failed)? {
                    0 => return Ok(()),
                    got => each(&buffer[..got])?,
                }
            }
        }
    }
}
