//! Opens of files that may be striped: a client that says so is told by the cluster's manager where the units are, and moves their bytes itself.
//!
//! What is still being written is read by way of the server that puts it together: how much of it is whole, that one knows.

use types::direct::{DIRECT_KEY, DirectRights, STRIPED_KEY, StripedFile, UNITS_KEY, UnitAt};
use types::{ObjectId, Stripe, Timestamp};
use wire::request::OpenOptions;
use wire::response::{StatExtra, StatFlags, StatReply};

use crate::fs::Led;
use crate::striped::at_once;
use crate::{Client, ClientError, Reader, RemoteFile, Settings, StripedAt, StripedReader, StripedWriter, Url};

/// What came of an open.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // lives for one call
pub enum Opened {
    /// A file, open at a server.
    File(RemoteFile),
    /// A striped file, whose units are to be opened.
    Units(Units),
}

/// A striped file that may be read or written at the servers of its units.
#[derive(Clone, Debug)]
pub struct Units {
    /// As it was asked for: what stands behind its `?` is for the file.
    url: Url,
    file: StripedFile,
    /// Where the first units can be read, as far as that was said.
    places: Vec<UnitAt>,
    settings: Settings,
}

impl Client {
    /// Opens a file; of a striped one it is only said what it is, so that its units can be opened.
    ///
    /// # Errors
    /// Of the server or of the connection.
    pub fn open_direct(&mut self, url: &Url, options: OpenOptions, mode: u16) -> Result<Opened, ClientError> {
        let mut asked = url.clone();
        asked.add_words(&format!("{DIRECT_KEY}=1"));
        // Such a word is a server's to say.
        let is_said_here = asked.word(STRIPED_KEY).is_some();
        let led = |to: &Url| {
            let file = StripedFile::parse(to.word(STRIPED_KEY).filter(|_| !is_said_here)?)?;
            Some((file, to.word(UNITS_KEY).and_then(UnitAt::parse_all).unwrap_or_default()))
        };
        Ok(match self.open_until((&asked, None), options, mode, &led)? {
            Led::File(file) => Opened::File(file),
            Led::To((file, places)) => {
                Opened::Units(Units { url: url.clone(), file, places, settings: self.settings().clone() })
            }
        })
    }
}

impl Units {
    /// Its attributes.
    #[must_use]
    pub fn stat(&self) -> StatReply {
        let StripedFile { ino, mode, mtime, rights, .. } = self.file;
        let (size, flags) = match rights {
            DirectRights::Read { len, .. } => (len, StatFlags::READABLE),
            DirectRights::Write { .. } => (0, StatFlags::READABLE | StatFlags::WRITABLE),
        };
        let seconds = mtime.0.div_euclid(1_000_000_000);
        let extra = StatExtra { ctime: seconds, atime: seconds, mode, owner: "?".to_owned(), group: "?".to_owned() };
        StatReply { id: ino.0, size, flags, mtime: seconds, extra: Some(extra) }
    }

    /// How it is dealt out.
    #[must_use]
    pub fn stripe(&self) -> Stripe {
        self.file.stripe
    }

    /// The file, as it was asked for.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }

    fn at(&self) -> StripedAt {
        StripedAt { url: Url { opaque: None, ..self.url.clone() }, stripe: self.file.stripe }
    }

    fn to_read(&self) -> Result<(StripedAt, ObjectId), ClientError> {
        let DirectRights::Read { object, is_partial, .. } = self.file.rights else {
            let what = format!("to read {}: it was opened to be written", self.url);
            return Err(ClientError::Unexpected { server: self.url.server.clone(), what });
        };
        let mut at = self.at();
        if is_partial {
            at.url.add_words("weir.partial=1");
        }
        Ok((at, object))
    }

    /// Opens the units that have something of the file for reading, the first ones, each with a connection of its own to a server that has it. What
    /// a reader calls the file is the unit.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open_readers<B>(&self) -> Result<Vec<Reader<B>>, ClientError>
    where
        B: std::ops::DerefMut<Target = [u8]> + Send,
    {
        let (at, object) = self.to_read()?;
        let open = |unit| at.open_to_read(unit, object, &self.places, &self.settings);
        let count = self.file.stripe.units_in(self.stat().size);
        Ok(at_once(0..count, open)?.into_iter().map(Reader::new).collect())
    }

    /// Opens all units to be read as one file.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open_reader(&self) -> Result<StripedReader, ClientError> {
        let (at, object) = self.to_read()?;
        StripedReader::open(at, object, &self.places, &self.settings)
    }

    /// Opens all units for writing. Whoever wrote them before can do so no longer.
    ///
    /// # Errors
    /// One of them cannot be opened.
    pub fn open_writer(&self) -> Result<StripedWriter, ClientError> {
        let DirectRights::Write { writing, goes_on } = self.file.rights else {
            let what = format!("to write {}: it was opened to be read", self.url);
            return Err(ClientError::Unexpected { server: self.url.server.clone(), what });
        };
        let announced = self.url.word("oss.asize").and_then(|len| len.parse().ok());
        StripedWriter::open(self.at(), (writing, goes_on), announced, &self.settings)
    }

    /// The time that whoever asked wants the file to show as that of its last change.
    #[must_use]
    pub fn wanted_mtime(&self) -> Option<Timestamp> {
        self.url.word("weir.mtime")?.parse().ok().map(Timestamp)
    }
}
