//! Writes DER, proper or not.

pub fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let len = content.len();
    let mut bytes = vec![tag];
    match len {
        0..=0x7f => bytes.push(u8::try_from(len).unwrap()),
        0x80..=0xff => bytes.extend([0x81, u8::try_from(len).unwrap()]),
        _ => {
            let digits = u32::try_from(len).unwrap().to_be_bytes();
            let digits = &digits[digits.iter().position(|&digit| digit != 0).unwrap()..];
            bytes.push(0x80 | u8::try_from(digits.len()).unwrap());
            bytes.extend(digits);
        }
    }
    bytes.extend(content);
    bytes
}

pub fn sequence(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x30, &parts.concat())
}

pub fn set(parts: &[Vec<u8>]) -> Vec<u8> {
    element(0x31, &parts.concat())
}

pub fn integer(number: u64) -> Vec<u8> {
    let digits = number.to_be_bytes();
    let start = digits.iter().position(|&digit| digit != 0).unwrap_or(7);
    let mut digits = digits[start..].to_vec();
    if digits[0] & 0x80 != 0 {
        digits.insert(0, 0);
    }
    element(2, &digits)
}

pub fn oid(text: &str) -> Vec<u8> {
    let numbers: Vec<u64> = text.split('.').map(|number| number.parse().unwrap()).collect();
    let mut bytes = vec![u8::try_from(numbers[0] * 40 + numbers[1]).unwrap()];
    for &number in &numbers[2..] {
        let mut digits = vec![u8::try_from(number & 0x7f).unwrap()];
        let mut rest = number >> 7;
        while rest > 0 {
            digits.insert(0, 0x80 | u8::try_from(rest & 0x7f).unwrap());
            rest >>= 7;
        }
        bytes.extend(digits);
    }
    element(6, &bytes)
}

pub fn octets(content: &[u8]) -> Vec<u8> {
    element(4, content)
}

pub fn bits(content: &[u8]) -> Vec<u8> {
    element(3, &[&[0], content].concat())
}

pub fn utf8(text: &str) -> Vec<u8> {
    element(0x0c, text.as_bytes())
}

pub fn boolean(value: bool) -> Vec<u8> {
    element(1, &[if value { 0xff } else { 0 }])
}

/// A GeneralizedTime.
pub fn time(secs: i64) -> Vec<u8> {
    let date = time::OffsetDateTime::from_unix_timestamp(secs).unwrap();
    let (year, month, day) = date.to_calendar_date();
    let (hour, minute, second) = date.to_hms();
    let text = format!("{year:04}{:02}{day:02}{hour:02}{minute:02}{second:02}Z", u8::from(month));
    element(0x18, text.as_bytes())
}
