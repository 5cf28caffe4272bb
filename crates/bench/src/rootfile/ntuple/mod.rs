//! `RNTuple`s: from the anchor to the pages of each field (ROOT's `BinaryFormatSpecification.md`, version 1).

mod envelope;
mod pages;
mod schema;
#[cfg(test)]
mod tests;

use self::envelope::{Envelope, Kind as Of, Locator};
use self::schema::Schema;
use super::block::Unpacker;
use super::bytes::Bytes;
use super::key::Key;
use super::{Branch, Kind, PART_MAX, Part, RootFileError, Source, Tree};

/// The class name of anchors.
pub(super) const CLASS: &str = "ROOT::RNTuple";
/// The anchor's object: a byte count and a version, four 16-bit and seven 64-bit numbers, a checksum.
const ANCHOR_MAX: u32 = 4096;
const EPOCH: u16 = 1;
/// The most bytes of the names of all fields.
const NAMES_MAX: usize = 64 << 20;

/// Reads the ntuple of an anchor. It takes its pages from `pages_left`.
pub(super) fn read(source: &Source<'_>, key: &Key, pages_left: &mut usize) -> Result<Tree, RootFileError> {
    let anchor = Anchor::read(source, key)?;
    let mut reader = Reader { source, unpacker: Unpacker::default(), head: vec![key.part] };
    let header = reader.envelope(anchor.header, Of::Header)?;
    let footer = reader.envelope(anchor.footer, Of::Footer)?;
    let mut schema = Schema::default();
    let header_sum = header.sum();
    schema.read_header(&mut header.frame()?)?;
    let groups = schema::read_footer(&mut schema, &mut footer.frame()?, header_sum)?;
    let mut columns = vec![Vec::new(); schema.columns.len()];
    let mut entries = 0;
    for group in groups {
        let list = reader.envelope(group.link, Of::PageList)?;
        entries = pages::read(&mut list.frame()?, &schema, header_sum, &mut columns, pages_left)?.max(entries);
    }
    let branches = branches(&schema, columns)?;
    Ok(Tree { name: key.name.clone(), kind: Kind::Ntuple, entries, head: reader.head, branches })
}

/// Combines the columns of each field.
fn branches(schema: &Schema, columns: Vec<Vec<Part>>) -> Result<Vec<Branch>, RootFileError> {
    let mut fields: Vec<Vec<Part>> = vec![Vec::new(); schema.fields.len()];
    for (column, parts) in schema.columns.iter().zip(columns) {
        if let Some(field) = fields.get_mut(column.field) {
            field.extend(parts);
        }
    }
    let (mut branches, mut names) = (Vec::new(), 0);
    for (number, mut parts) in fields.into_iter().enumerate() {
        if !parts.is_empty() {
            // The sort keeps the order of columns within a cluster.
            parts.sort_by_key(|part| part.first_entry);
            let name = schema.path(number)?;
            names += name.len();
            if names > NAMES_MAX {
                return Err(RootFileError::malformed(0, format!("names of fields of more than {NAMES_MAX} bytes")));
            }
            branches.push(Branch { name, entries_within_the_tree: 0, parts });
        }
    }
    Ok(branches)
}

/// The locations of header and footer.
struct Anchor {
    header: Link,
    footer: Link,
}

/// The location of an envelope, and its uncompressed length.
#[derive(Clone, Copy, Debug)]
struct Link {
    at: Locator,
    uncompressed: u64,
}

impl Anchor {
    fn read(source: &Source<'_>, key: &Key) -> Result<Self, RootFileError> {
        let part = key.part;
        if part.bytes > ANCHOR_MAX || part.uncompressed > ANCHOR_MAX {
            return Err(RootFileError::malformed(part.offset, "an anchor of more bytes than any has"));
        }
        let mut object = Vec::new();
        let record = source.at(part.offset, usize::try_from(part.bytes).unwrap_or(usize::MAX))?;
        Unpacker::default().unpack(&part, &record, &mut object)?;
        let mut bytes = Bytes::new(&object, part.offset);
        // Byte count and version of the class, then the format's version.
        bytes.take(4 + 2)?;
        let epoch = bytes.be_u16()?;
        if epoch != EPOCH {
            return Err(RootFileError::unsupported(format!("an RNTuple of format {epoch}; this reads format {EPOCH}")));
        }
        bytes.take(3 * 2)?;
        let mut link = || -> Result<Link, RootFileError> {
            let (offset, len, uncompressed) = (bytes.be_u64()?, bytes.be_u64()?, bytes.be_u64()?);
            Ok(Link { at: Locator { offset, len }, uncompressed })
        };
        let (header, footer) = (link()?, link()?);
        // Writers that never divide data store 0.
        let key_max = bytes.be_u64()?;
        if key_max > 0 && [header, footer].iter().any(|link| link.at.len > key_max) {
            return Err(RootFileError::unsupported("an RNTuple whose header or footer is spread over several records"));
        }
        Ok(Self { header, footer })
    }
}

/// Reads envelopes, and keeps their locations.
struct Reader<'a> {
    source: &'a Source<'a>,
    unpacker: Unpacker,
    head: Vec<Part>,
}

impl Reader<'_> {
    fn envelope(&mut self, link: Link, kind: Of) -> Result<Envelope, RootFileError> {
        let Link { at, uncompressed } = link;
        let fits = |len: u64| u32::try_from(len).ok().filter(|len| *len <= PART_MAX);
        let (Some(bytes), Some(uncompressed)) = (fits(at.len), fits(uncompressed)) else {
            return Err(RootFileError::malformed(at.offset, format!("an envelope of more than {PART_MAX} bytes")));
        };
        let part = Part { offset: at.offset, bytes, before: 0, behind: 0, uncompressed, first_entry: 0, entries: 0 };
        let record = self.source.at(part.offset, usize::try_from(bytes).unwrap_or(usize::MAX))?;
        let mut plain = Vec::new();
        self.unpacker.unpack(&part, &record, &mut plain)?;
        self.head.push(part);
        Envelope::open(plain, at.offset, kind)
    }
}
