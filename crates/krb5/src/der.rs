//! Reads DER. Kerberos gives each field of a sequence a tag with a number of its own, in rising order (RFC 4120, section 5 and
//! appendix A).

use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};

use crate::Malformed;

const SEQUENCE: u32 = 16;

/// Reads one value; nothing may stand behind it.
fn whole<'a>(bytes: &'a [u8], what: Malformed) -> Result<Any<'a>, Malformed> {
    match Any::from_der(bytes) {
        Ok(([], any)) => Ok(any),
        _ => Err(what),
    }
}

/// The fields of a sequence.
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
    what: Malformed,
}

impl<'a> Fields<'a> {
    /// The fields of the message with the number `application`.
    pub(crate) fn of_message(bytes: &'a [u8], application: u32, what: Malformed) -> Result<Self, Malformed> {
        Self::of_inner_message(&whole(bytes, what)?, application, what)
    }

    /// The same for a message within another one.
    pub(crate) fn of_inner_message(any: &Any<'a>, application: u32, what: Malformed) -> Result<Self, Malformed> {
        if any.class() != Class::Application || any.tag() != Tag(application) || !any.header.is_constructed() {
            return Err(what);
        }
        Self::of(&whole(any.data, what)?, what)
    }

    /// The fields of a sequence.
    pub(crate) fn of(any: &Any<'a>, what: Malformed) -> Result<Self, Malformed> {
        if any.class() == Class::Universal && any.tag() == Tag(SEQUENCE) && any.header.is_constructed() {
            Ok(Self { rest: any.data, what })
        } else {
            Err(what)
        }
    }

    /// The field with this number. `None`: the sequence does not have it.
    pub(crate) fn optional(&mut self, number: u32) -> Result<Option<Any<'a>>, Malformed> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let (rest, field) = Any::from_der(self.rest).map_err(|_| self.what)?;
        if field.class() != Class::ContextSpecific || !field.header.is_constructed() {
            return Err(self.what);
        }
        if field.tag() != Tag(number) {
            return Ok(None);
        }
        self.rest = rest;
        whole(field.data, self.what).map(Some)
    }

    /// The field with this number.
    pub(crate) fn required(&mut self, number: u32) -> Result<Any<'a>, Malformed> {
        self.optional(number)?.ok_or(self.what)
    }

    /// Nothing may follow.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.what) }
    }
}

/// The elements of a list, at most `count_max`.
pub(crate) fn elements<'a>(list: &Any<'a>, count_max: usize, what: Malformed) -> Result<Vec<Any<'a>>, Malformed> {
    let mut rest = Fields::of(list, what)?.rest;
    let mut elements = Vec::new();
    while !rest.is_empty() {
        let (behind, element) = Any::from_der(rest).map_err(|_| what)?;
        if elements.len() >= count_max {
            return Err(what);
        }
        elements.push(element);
        rest = behind;
    }
    Ok(elements)
}

fn content<'a>(any: &Any<'a>, tag: Tag, what: Malformed) -> Result<&'a [u8], Malformed> {
    let is_right = any.class() == Class::Universal && any.tag() == tag && !any.header.is_constructed();
    if is_right { Ok(any.data) } else { Err(what) }
}

/// A whole number of at most 64 bits.
pub(crate) fn number(any: &Any<'_>, what: Malformed) -> Result<i64, Malformed> {
    let bytes = content(any, Tag::Integer, what)?;
    let first = *bytes.first().ok_or(what)?;
    if bytes.len() > 8 {
        return Err(what);
    }
    let sign = if first >= 0x80 { -1 } else { 0 };
    Ok(bytes.iter().fold(sign, |number, byte| number << 8 | i64::from(*byte)))
}

/// Bytes.
pub(crate) fn octets<'a>(any: &Any<'a>, what: Malformed) -> Result<&'a [u8], Malformed> {
    content(any, Tag::OctetString, what)
}

/// The first 32 flags; the first one is the highest bit. Flags that are missing are not set.
pub(crate) fn flags(any: &Any<'_>, what: Malformed) -> Result<u32, Malformed> {
    // The first byte says how many bits of the last one do not count.
    let bytes = content(any, Tag::BitString, what)?.get(1..).ok_or(what)?;
    Ok((0..4).fold(0, |flags, at| flags << 8 | u32::from(bytes.get(at).copied().unwrap_or(0))))
}

/// A text: a `GeneralString`, which peers write in UTF-8.
pub(crate) fn text<'a>(any: &Any<'a>, len_max: usize, what: Malformed) -> Result<&'a str, Malformed> {
    let bytes = content(any, Tag::GeneralString, what)?;
    std::str::from_utf8(bytes).ok().filter(|text| text.len() <= len_max).ok_or(what)
}

/// A time, as it is written.
pub(crate) fn time<'a>(any: &Any<'a>, what: Malformed) -> Result<&'a [u8], Malformed> {
    content(any, Tag::GeneralizedTime, what)
}
