//! Opens of files that may be striped. If a client says that it can move the bytes of stripe units itself, the
//! cluster's manager tells it where the units are.
//!
//! A file that is still being written is read through the server that assembles it, because only that server knows
//! how much of it is complete.

use types::direct::{DIRECT_KEY, DirectRights, STRIPED_KEY, StripedFile, UNITS_KEY, UnitAddress};
use types::{ObjectId, Stripe, Timestamp};
use wire::request::{Access, Open, OpenOptions};
use wire::response::{StatExtra, StatFlags, StatReply};

use crate::fs::OpenResult;
use crate::striped::at_once;
use crate::{Client, ClientError, Reader, RemoteFile, Settings, StripedAt, StripedReader, StripedWriter, Url};

/// How often a striped file is opened again that was replaced before its units were open.
const OPENED_AGAIN_MAX: u32 = 3;

/// The result of an open.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // lives for one call
pub enum Opened {
    /// A file that is open at a server.
    File(RemoteFile),
    /// A striped file whose units the client opens.
    Units(Units),
}

/// A file that is open for reading, wherever its bytes are.
#[derive(Debug)]
#[allow(clippy::large_enum_variant)] // lives for one call
pub enum OpenedToRead<R> {
    /// A file that is open at a server.
    File(RemoteFile),
    /// A striped file, and its open units.
    Units(Units, R),
}

/// A striped file that can be read or written at the servers of its units.
#[derive(Clone, Debug)]
pub struct Units {
    /// The URL as requested. The words behind its `?` belong to the file.
    url: Url,
    file: StripedFile,
    /// Where the first units can be read, as far as the server has said.
    places: Vec<UnitAddress>,
    settings: Settings,
}

impl Client {
    /// Opens a file. For a striped file it returns only a description, with which the caller opens the units.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_direct(&mut self, url: &Url, options: OpenOptions, mode: u16) -> Result<Opened, ClientError> {
        self.open_direct_with(url, Open::plain(Access(mode), options, url.target()))
    }

    /// The same to read it. If the file is not striped, up to `kib` KiB of its beginning come in the same round trip, as
    /// with [`Client::open_to_read`].
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_direct_to_read(&mut self, url: &Url, kib: u8) -> Result<Opened, ClientError> {
        let open = Open::plain(Access::NONE, OpenOptions::READ, url.target());
        self.open_direct_with(url, Open { beginning_kib: kib, ..open })
    }

    /// The same, and opens the units of a striped file with `open`. If the file is replaced before its units are open, this
    /// opens the file that has its name then.
    ///
    /// # Errors
    /// The server refuses, or the connection fails.
    pub fn open_with_units<R>(
        &mut self,
        url: &Url,
        kib: u8,
        open: impl Fn(&Units) -> Result<R, ClientError>,
    ) -> Result<OpenedToRead<R>, ClientError> {
        let mut again = 0;
        loop {
            let units = match self.open_direct_to_read(url, kib)? {
                Opened::File(file) => return Ok(OpenedToRead::File(file)),
                Opened::Units(units) => units,
            };
            match open(&units) {
                // A file that is replaced all the time cannot keep this here.
                Err(error) if error.is_replaced() && again < OPENED_AGAIN_MAX => again += 1,
                opened => return Ok(OpenedToRead::Units(units, opened?)),
            }
        }
    }

    fn open_direct_with(&mut self, url: &Url, open: Open) -> Result<Opened, ClientError> {
        let mut asked = url.clone();
        asked.add_words(&format!("{DIRECT_KEY}=1"));
        // Only a server may set this word.
        let is_said_here = asked.word(STRIPED_KEY).is_some();
        let led = |to: &Url| {
            let file = StripedFile::parse(to.word(STRIPED_KEY).filter(|_| !is_said_here)?)?;
            Some((file, to.word(UNITS_KEY).and_then(UnitAddress::parse_all).unwrap_or_default()))
        };
        Ok(match self.open_until((&asked, None), Open { target: asked.target(), ..open }, &led)? {
            OpenResult::File(file) => Opened::File(file),
            OpenResult::Redirected((file, places)) => {
                Opened::Units(Units { url: url.clone(), file, places, settings: self.settings().clone() })
            }
        })
    }
}

impl Units {
    /// Returns its attributes.
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

    /// Returns how its bytes are divided among the units.
    #[must_use]
    pub fn stripe(&self) -> Stripe {
        self.file.stripe
    }

    /// Returns the URL as requested.
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

    /// Opens for reading the first units, those that hold bytes of the file. Each has its own connection to a
    /// server that holds it. A reader treats its unit as a file.
    ///
    /// # Errors
    /// A unit cannot be opened.
    pub fn open_readers<B>(&self) -> Result<Vec<Reader<B>>, ClientError>
    where
        B: std::ops::DerefMut<Target = [u8]> + Send,
    {
        let (at, object) = self.to_read()?;
        let open = |unit| at.open_to_read(unit, object, &self.places, &self.settings);
        let count = self.file.stripe.units_in(self.stat().size);
        Ok(at_once(0..count, open)?.into_iter().map(Reader::new).collect())
    }

    /// Opens the first units, those that hold bytes of the file, to read them as one file. Each has its own
    /// connection.
    ///
    /// # Errors
    /// A unit cannot be opened.
    pub fn open_reader(&self) -> Result<StripedReader, ClientError> {
        let (at, object) = self.to_read()?;
        let count = self.file.stripe.units_in(self.stat().size);
        StripedReader::open_first(at, object, &self.places, &self.settings, count)
    }

    /// Whether `other`, which was opened for reading as well, has the same bytes: the same version of the same file.
    #[must_use]
    pub fn is_same_version(&self, other: &Self) -> bool {
        let of = |units: &Self| (units.file.ino, units.file.stripe, units.file.mtime, units.file.rights);
        matches!(self.file.rights, DirectRights::Read { .. }) && of(self) == of(other)
    }

    /// Opens all units for writing. An earlier writer of them can no longer write.
    ///
    /// # Errors
    /// A unit cannot be opened.
    pub fn open_writer(&self) -> Result<StripedWriter, ClientError> {
        let DirectRights::Write { writing, goes_on } = self.file.rights else {
            let what = format!("to write {}: it was opened to be read", self.url);
            return Err(ClientError::Unexpected { server: self.url.server.clone(), what });
        };
        let announced = self.url.word("oss.asize").and_then(|len| len.parse().ok());
        StripedWriter::open(self.at(), (writing, goes_on), announced, &self.settings)
    }

    /// Returns the modification time that the opener wants the file to have.
    #[must_use]
    pub fn wanted_mtime(&self) -> Option<Timestamp> {
        self.url.word("weir.mtime")?.parse().ok().map(Timestamp)
    }
}
