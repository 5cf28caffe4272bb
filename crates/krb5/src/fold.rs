//! The n-fold of RFC 3961, section 5.1: a text of any length becomes one of 128 bits.

/// The length of the result in bits.
const BITS: usize = 128;

/// Folds `text`: copies of it, each rotated to the right by 13 bits more than the one before, are added in parts of 128 bits with an
/// end-around carry.
pub(crate) fn fold(text: &[u8]) -> [u8; 16] {
    let len = 8 * text.len();
    if len == 0 {
        return [0; 16];
    }
    let total = len / common(len, BITS) * BITS;
    let bit = |at: usize| {
        let (copy, place) = (at / len, at % len);
        let from = (place + len - 13 * copy % len) % len;
        u128::from(text[from / 8] >> (7 - from % 8) & 1)
    };
    let mut sum = 0_u128;
    for part in 0..total / BITS {
        let number = (0..BITS).fold(0, |number, place| number << 1 | bit(part * BITS + place));
        let (added, carries) = sum.overflowing_add(number);
        // A sum that carries is smaller than the largest number.
        sum = added + u128::from(carries);
    }
    sum.to_be_bytes()
}

/// The greatest common divisor.
fn common(one: usize, other: usize) -> usize {
    if other == 0 { one } else { common(other, one % other) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_folded_as_in_the_specification() {
        // RFC 3961, appendix A.1.
        assert_eq!(fold(b"kerberos"), 0x6b65_7262_6572_6f73_7b9b_5b2b_9313_2b93_u128.to_be_bytes());
        assert_eq!(fold(&[7; 16]), [7; 16]);
        assert_eq!(fold(b""), [0; 16]);
    }
}
