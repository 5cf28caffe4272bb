//! Fields and columns, from the header and the footer's additions.

use super::Link;
use crate::rootfile::RootFileError;
use crate::rootfile::bytes::Bytes;

/// The deepest nesting of fields, and their longest path.
const DEPTH_MAX: usize = 64;
const PATH_MAX: usize = 4096;

/// The fields, columns and groups of an ntuple.
#[derive(Debug, Default)]
pub(super) struct Schema {
    pub(super) fields: Vec<Field>,
    pub(super) columns: Vec<Column>,
}

/// A field.
#[derive(Debug)]
pub(super) struct Field {
    /// The parent field; a top field is its own parent.
    parent: usize,
    name: String,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    /// The bits of an element.
    pub(super) bits: u16,
    /// Its field.
    pub(super) field: usize,
}

/// Clusters in one page list.
pub(super) struct Group {
    pub(super) link: Link,
}

impl Schema {
    pub(super) fn read_header(&mut self, bytes: &mut Bytes<'_>) -> Result<(), RootFileError> {
        bytes.no_features()?;
        // Name, description, writer.
        for _ in 0..3 {
            bytes.text()?;
        }
        self.read_more(bytes)
    }

    /// Reads the lists of fields, columns, alias columns and further types. The last two have no pages.
    fn read_more(&mut self, bytes: &mut Bytes<'_>) -> Result<(), RootFileError> {
        let (count, mut fields) = bytes.list()?;
        for _ in 0..count {
            let mut field = fields.record()?;
            // Versions of the field and its type.
            field.take(4 + 4)?;
            let parent = number(field.le_u32()?);
            // Role and flags.
            field.take(2 + 2)?;
            self.fields.push(Field { parent, name: field.text()? });
        }
        let (count, mut columns) = bytes.list()?;
        for _ in 0..count {
            let mut column = columns.record()?;
            column.le_u16()?;
            let bits = column.le_u16()?;
            let field = number(column.le_u32()?);
            if field >= self.fields.len() {
                return Err(column.error(format!("a column of field {field}, and there are {}", self.fields.len())));
            }
            self.columns.push(Column { bits, field });
        }
        bytes.list()?;
        bytes.list()?;
        Ok(())
    }

    /// Returns a field's name with those of its parents.
    pub(super) fn path(&self, field: usize) -> Result<String, RootFileError> {
        let wrong = || RootFileError::malformed(0, format!("field {field} has invalid parents"));
        let mut path = String::new();
        let mut at = field;
        for _ in 0..DEPTH_MAX {
            let Field { parent, name } = self.fields.get(at).ok_or_else(wrong)?;
            if path.len() + name.len() >= PATH_MAX {
                return Err(wrong());
            }
            path = if path.is_empty() { name.clone() } else { format!("{name}.{path}") };
            if *parent == at {
                return Ok(path);
            }
            at = *parent;
        }
        Err(wrong())
    }
}

/// Adds the footer's additions to the schema, and returns the locations of the page lists.
pub(super) fn read_footer(
    schema: &mut Schema,
    bytes: &mut Bytes<'_>,
    header_sum: u64,
) -> Result<Vec<Group>, RootFileError> {
    bytes.no_features()?;
    if bytes.le_u64()? != header_sum {
        return Err(bytes.error("a footer of another header"));
    }
    let mut more = bytes.record()?;
    if more.left() > 0 {
        schema.read_more(&mut more)?;
    }
    let (count, mut list) = bytes.list()?;
    let mut groups = Vec::new();
    for _ in 0..count {
        let mut group = list.record()?;
        // First entry, entries, clusters: the page list has them, too.
        group.take(8 + 8 + 4)?;
        let uncompressed = group.le_u64()?;
        groups.push(Group { link: Link { at: group.locator()?, uncompressed } });
    }
    Ok(groups)
}

fn number(n: u32) -> usize {
    usize::try_from(n).unwrap_or(usize::MAX)
}
