//! The encoding that all values share: a format version byte, fixed fields (big-endian), then tagged fields.
//!
//! A tagged field is `tag u8, length u16, bytes`. Tags ascend. A reader that does not know a tag below 0x80 keeps the field when it rewrites the
//! record. A reader that does not know a tag of 0x80 or above refuses the record.

use types::{BootId, ClientIdentity, NAME_MAX, PATH_MAX, PrincipalId};

use crate::NsError;

/// The format version of every value. Version 1 had no principals of writers, no snapshot epochs and no shards.
pub(crate) const VERSION: u8 = 2;

/// The first tag that a reader must understand.
const MUST_UNDERSTAND: u8 = 0x80;

/// Builds a value.
pub(crate) struct Encoder(pub(crate) Vec<u8>);

impl Encoder {
    /// Starts a value with the version byte.
    pub(crate) fn new(capacity: usize) -> Self {
        let mut bytes = Vec::with_capacity(capacity);
        bytes.push(VERSION);
        Self(bytes)
    }
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }
    pub(crate) fn u16(&mut self, n: u16) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }
    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }
    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }
    pub(crate) fn u128(&mut self, n: u128) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }
    pub(crate) fn i64(&mut self, n: i64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }
    /// Writes the length as u16, then the bytes. Callers have limited the length, so nothing is cut.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let len = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
        self.u16(len);
        self.0.extend_from_slice(&bytes[..usize::from(len)]);
    }
    pub(crate) fn client(&mut self, client: &ClientIdentity) {
        self.u32(client.principal.0);
        self.bytes(cut(client.user.as_bytes(), 255));
        self.u32(client.pid);
        self.bytes(cut(client.host.as_bytes(), 255));
    }
    pub(crate) fn tag(&mut self, tag: u8, bytes: &[u8]) {
        self.u8(tag);
        self.bytes(bytes);
    }
    pub(crate) fn tag_u64(&mut self, tag: u8, n: u64) {
        self.tag(tag, &n.to_be_bytes());
    }
    pub(crate) fn tag_u32(&mut self, tag: u8, n: u32) {
        self.tag(tag, &n.to_be_bytes());
    }
    /// Writes tagged fields of a later version, exactly as they were read.
    pub(crate) fn extra(&mut self, extra: &[u8]) {
        self.0.extend_from_slice(extra);
    }
}

fn cut(bytes: &[u8], bound: usize) -> &[u8] {
    &bytes[..bytes.len().min(bound)]
}

/// Why a value cannot be decoded. The caller that knows the key adds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadValue {
    Damaged(&'static str),
    Newer(&'static str, u64),
    /// An earlier version of the format wrote the value.
    Older(&'static str, u8),
}

impl BadValue {
    /// Adds the key of the value.
    pub(crate) fn at(self, key: &[u8]) -> NsError {
        match self {
            BadValue::Damaged(why) => NsError::Damaged { key: key.escape_ascii().to_string(), why },
            BadValue::Newer(what, feature) => NsError::Newer { what, feature },
            BadValue::Older(what, version) => NsError::Older { what, version },
        }
    }
}

/// Decodes a value and checks every length.
pub(crate) struct Decoder<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Decoder<'a> {
    /// Checks the version byte.
    pub(crate) fn new(value: &'a [u8], what: &'static str) -> Result<Self, BadValue> {
        match value.split_first() {
            Some((&VERSION, rest)) => Ok(Self { rest, what }),
            Some((&0, _)) | None => Err(BadValue::Damaged("there is no format version")),
            Some((&version, _)) if version < VERSION => Err(BadValue::Older(what, version)),
            Some((&version, _)) => Err(BadValue::Newer(what, u64::from(version))),
        }
    }
    /// Decodes bytes without a version byte: a part of another value.
    pub(crate) fn part(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }
    /// Returns the remaining bytes.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.rest
    }
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], BadValue> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(BadValue::Damaged("it is too short"))?;
        self.rest = rest;
        Ok(taken)
    }
    fn array<const N: usize>(&mut self) -> Result<[u8; N], BadValue> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or(BadValue::Damaged("it is too short"))?;
        self.rest = rest;
        Ok(*taken)
    }
    pub(crate) fn u8(&mut self) -> Result<u8, BadValue> {
        self.array::<1>().map(|[n]| n)
    }
    pub(crate) fn u16(&mut self) -> Result<u16, BadValue> {
        self.array().map(u16::from_be_bytes)
    }
    pub(crate) fn u32(&mut self) -> Result<u32, BadValue> {
        self.array().map(u32::from_be_bytes)
    }
    pub(crate) fn u64(&mut self) -> Result<u64, BadValue> {
        self.array().map(u64::from_be_bytes)
    }
    pub(crate) fn u128(&mut self) -> Result<u128, BadValue> {
        self.array().map(u128::from_be_bytes)
    }
    pub(crate) fn i64(&mut self) -> Result<i64, BadValue> {
        self.array().map(i64::from_be_bytes)
    }
    pub(crate) fn bytes(&mut self, bound: usize) -> Result<&'a [u8], BadValue> {
        let len = usize::from(self.u16()?);
        if len > bound {
            return Err(BadValue::Damaged("a length in it is over the limit"));
        }
        self.take(len)
    }
    pub(crate) fn name(&mut self) -> Result<&'a [u8], BadValue> {
        self.bytes(NAME_MAX)
    }
    pub(crate) fn path(&mut self) -> Result<&'a [u8], BadValue> {
        self.bytes(PATH_MAX)
    }
    pub(crate) fn client(&mut self) -> Result<ClientIdentity, BadValue> {
        let principal = PrincipalId(self.u32()?);
        let user = String::from_utf8_lossy(self.bytes(255)?).into_owned();
        let pid = self.u32()?;
        let host = String::from_utf8_lossy(self.bytes(255)?).into_owned();
        Ok(ClientIdentity { principal, user, pid, host })
    }
    pub(crate) fn boot(&mut self) -> Result<BootId, BadValue> {
        self.u128().map(BootId)
    }
    /// Reads the tagged fields to the end. `visit` returns whether it knows the tag. Unknown fields that may be ignored are returned, so that the
    /// caller can keep them.
    pub(crate) fn tags(
        self,
        mut visit: impl FnMut(u8, &'a [u8]) -> Result<bool, BadValue>,
    ) -> Result<Vec<u8>, BadValue> {
        self.tags_with_rest(|tag, field, _| visit(tag, field))
    }
    /// Like [`Self::tags`]. `visit` also gets the number of bytes that follow the field, which tells where the field lies.
    pub(crate) fn tags_with_rest(
        mut self,
        mut visit: impl FnMut(u8, &'a [u8], usize) -> Result<bool, BadValue>,
    ) -> Result<Vec<u8>, BadValue> {
        let (mut extra, mut last) = (Vec::new(), None);
        while let Some((&tag, _)) = self.rest.split_first() {
            let whole = self.rest;
            self.u8()?;
            if last.replace(tag).is_some_and(|last| last >= tag) {
                return Err(BadValue::Damaged("its tagged fields are not in ascending order"));
            }
            let field = self.bytes(usize::from(u16::MAX))?;
            if !visit(tag, field, self.rest.len())? {
                if tag >= MUST_UNDERSTAND {
                    return Err(BadValue::Newer(self.what, u64::from(tag)));
                }
                extra.extend_from_slice(&whole[..whole.len() - self.rest.len()]);
            }
        }
        Ok(extra)
    }
    /// Requires that only ignorable tagged fields follow, and drops them. For values that are replaced, not changed.
    pub(crate) fn end(self) -> Result<(), BadValue> {
        self.tags(|_, _| Ok(false)).map(drop)
    }
}

/// Decodes a tagged field that must be a u64.
pub(crate) fn field_u64(field: &[u8]) -> Result<u64, BadValue> {
    field.try_into().map(u64::from_be_bytes).map_err(|_| BadValue::Damaged("a tagged field has a wrong length"))
}

/// Decodes a tagged field that must be a u32.
pub(crate) fn field_u32(field: &[u8]) -> Result<u32, BadValue> {
    field.try_into().map(u32::from_be_bytes).map_err(|_| BadValue::Damaged("a tagged field has a wrong length"))
}
