//! A reader for DER (X.690), for the structures that `x509-parser` does not know: proxyCertInfo, attribute certificates,
//! and long revocation lists, which are read without a copy of each entry.

use types::Timestamp;

pub(crate) const BOOLEAN: u8 = 0x01;
pub(crate) const INTEGER: u8 = 0x02;
pub(crate) const BIT_STRING: u8 = 0x03;
pub(crate) const OCTET_STRING: u8 = 0x04;
pub(crate) const OID: u8 = 0x06;
pub(crate) const UTC_TIME: u8 = 0x17;
pub(crate) const GENERALIZED_TIME: u8 = 0x18;
pub(crate) const SEQUENCE: u8 = 0x30;
pub(crate) const SET: u8 = 0x31;

/// The bytes are not what the structure demands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// One element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Element<'a> {
    pub tag: u8,
    pub content: &'a [u8],
    /// Tag, length and content.
    pub raw: &'a [u8],
}

impl<'a> Element<'a> {
    /// Reads what the element is made of.
    pub fn inside(self) -> Reader<'a> {
        Reader(self.content)
    }
}

/// Reads elements one after the other. It goes into one only where it is told to, so depth is bounded by the caller.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The tag of the next element.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element. Tags of more than one byte and indefinite lengths occur in none of our structures.
    pub fn next(&mut self) -> Result<Element<'a>, Malformed> {
        let (&tag, rest) = self.0.split_first().ok_or(Malformed)?;
        let (&first, rest) = rest.split_first().ok_or(Malformed)?;
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(Malformed)?;
                let len = digits.iter().fold(0_usize, |len, &digit| len << 8 | usize::from(digit));
                // A length has its shortest form.
                if digits[0] == 0 || len < 0x80 {
                    return Err(Malformed);
                }
                (len, rest)
            }
            _ => return Err(Malformed),
        };
        let (content, after) = rest.split_at_checked(len).ok_or(Malformed)?;
        let raw = &self.0[..self.0.len() - after.len()];
        self.0 = after;
        Ok(Element { tag, content, raw })
    }

    /// The next element, which must have this tag.
    pub fn expect(&mut self, tag: u8) -> Result<Element<'a>, Malformed> {
        let element = self.next()?;
        if element.tag == tag { Ok(element) } else { Err(Malformed) }
    }

    /// The next element if it has this tag.
    pub fn optional(&mut self, tag: u8) -> Result<Option<Element<'a>>, Malformed> {
        if self.peek() == Some(tag) { self.next().map(Some) } else { Ok(None) }
    }

    /// There must be nothing more.
    pub fn end(&self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// The one element that `bytes` are.
pub(crate) fn only(bytes: &[u8], tag: u8) -> Result<Element<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let element = reader.expect(tag)?;
    reader.end()?;
    Ok(element)
}

/// A number that is not negative and not long.
pub(crate) fn small_number(content: &[u8]) -> Result<u32, Malformed> {
    match content {
        [] => Err(Malformed),
        [first, ..] if first & 0x80 != 0 => Err(Malformed),
        [0, second, ..] if second & 0x80 == 0 => Err(Malformed),
        _ if content.len() > 5 => Ok(u32::MAX), // more than any limit
        _ => {
            let number = content.iter().fold(0_u64, |number, &digit| number << 8 | u64::from(digit));
            Ok(u32::try_from(number).unwrap_or(u32::MAX))
        }
    }
}

/// A truth value.
pub(crate) fn boolean(content: &[u8]) -> Result<bool, Malformed> {
    match content {
        [0] => Ok(false),
        [0xff] => Ok(true),
        _ => Err(Malformed),
    }
}

/// The whole bytes of a bit string.
pub(crate) fn bits(content: &[u8]) -> Result<&[u8], Malformed> {
    match content {
        [0, bits @ ..] => Ok(bits),
        _ => Err(Malformed),
    }
}

/// A time in the forms that RFC 5280, section 4.1.2.5, allows: in seconds and UTC.
pub(crate) fn time(element: Element<'_>) -> Result<Timestamp, Malformed> {
    let (year_digits, digits) = match element.tag {
        UTC_TIME => (2, 12),
        GENERALIZED_TIME => (4, 14),
        _ => return Err(Malformed),
    };
    let text = element.content.strip_suffix(b"Z").ok_or(Malformed)?;
    if text.len() != digits || !text.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    let number = |digits: &[u8]| digits.iter().fold(0_i64, |number, digit| number * 10 + i64::from(digit - b'0'));
    let (year, rest) = text.split_at(year_digits);
    let year = match (year_digits, number(year)) {
        (2, year @ 0..50) => 2000 + year,
        (2, year) => 1900 + year,
        (_, year) => year,
    };
    let part = |position: usize| number(&rest[2 * position..2 * position + 2]);
    let (month, day, hour, minute, second) = (part(0), part(1), part(2), part(3), part(4));
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return Err(Malformed);
    }
    // Days since 1970-03-01 in a calendar whose years begin in March.
    let (year, month) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (month * 153 + 2) / 5;
    let days = days + day - 1 - 719_468;
    Ok(Timestamp::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_read_in_their_shortest_form_only() {
        let read = |bytes: &[u8]| Reader::new(bytes).next().map(|element| element.content.len());
        assert_eq!(read(&[2, 1, 5]), Ok(1));
        assert_eq!(read(&[&[4, 0x81, 0x80][..], &[0; 128]].concat()), Ok(128));
        assert_eq!(read(&[4, 0x81, 1, 0]), Err(Malformed), "a short length in a long form");
        assert_eq!(read(&[4, 0x82, 0, 1, 0]), Err(Malformed));
        assert_eq!(read(&[0x30, 0x80, 0, 0]), Err(Malformed), "an indefinite length");
        assert_eq!(read(&[0x1f, 1, 0, 0]), Err(Malformed), "a long tag");
        assert_eq!(read(&[4, 2, 0]), Err(Malformed), "an element that is cut");
        assert_eq!(read(&[4, 0x84, 0xff, 0xff, 0xff, 0xff]), Err(Malformed));
        assert_eq!(read(&[4, 0x85, 1, 0, 0, 0, 0]), Err(Malformed));
        assert_eq!(read(&[]), Err(Malformed));
        assert_eq!(read(&[4]), Err(Malformed));
        let mut two = Reader::new(&[2, 1, 5, 4, 0]);
        assert_eq!(two.optional(OCTET_STRING), Ok(None));
        assert_eq!(two.expect(INTEGER).unwrap().raw, [2, 1, 5]);
        assert_eq!(two.end(), Err(Malformed));
        assert!(only(&[2, 1, 5, 0], INTEGER).is_err());
    }

    #[test]
    fn numbers_are_not_negative() {
        assert_eq!(small_number(&[0]), Ok(0));
        assert_eq!(small_number(&[0, 0xff]), Ok(255));
        assert_eq!(small_number(&[1, 0]), Ok(256));
        assert_eq!(small_number(&[1; 9]), Ok(u32::MAX));
        for wrong in [&[][..], &[0xff], &[0, 1]] {
            assert_eq!(small_number(wrong), Err(Malformed), "{wrong:?}");
        }
    }

    #[test]
    fn times_are_converted() {
        let time = |tag, text: &str| time(Element { tag, content: text.as_bytes(), raw: &[] }).map(Timestamp::secs);
        assert_eq!(time(GENERALIZED_TIME, "19700101000000Z"), Ok(0));
        assert_eq!(time(GENERALIZED_TIME, "20000229235959Z"), Ok(951_868_799));
        assert_eq!(time(GENERALIZED_TIME, "20261129190000Z"), Ok(1_795_978_800));
        assert_eq!(time(UTC_TIME, "261129190000Z"), Ok(1_795_978_800));
        assert_eq!(time(UTC_TIME, "700101000000Z"), Ok(0));
        assert_eq!(time(UTC_TIME, "491231235959Z"), time(GENERALIZED_TIME, "20491231235959Z"));
        for (tag, wrong) in [
            (GENERALIZED_TIME, "20261129190000"),
            (GENERALIZED_TIME, "202611291900Z"),
            (GENERALIZED_TIME, "20261329190000Z"),
            (GENERALIZED_TIME, "20261129190000+0100"),
            (GENERALIZED_TIME, "20261129190000.5Z"),
            (UTC_TIME, "2611291900Z"),
            (INTEGER, "261129190000Z"),
        ] {
            assert_eq!(time(tag, wrong), Err(Malformed), "{wrong}");
        }
    }
}
