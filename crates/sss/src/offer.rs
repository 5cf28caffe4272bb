//! What a server says of `sss` in its offer: the cipher, a plus for the second version of the protocol, the lifetime of credentials
//! in seconds, and a path of a keytab for its clients (`Load_Server` and `Init_Client` in `XrdSecProtocolsss.cc`).

/// The offer of this server: Blowfish, version 2, [`crate::LIFETIME`], no path.
pub const OFFER: &str = "0.+13:";

/// Why a client cannot use an offer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OfferError {
    /// Not as the protocol has it.
    #[error("the server's parameters are malformed")]
    Malformed,
    /// A cipher that nobody knows.
    #[error("the server wants another encryption than Blowfish, which is not known here")]
    Cipher,
}

/// Checks an offer. Returns whether the server speaks the second version. The path in it does not matter: a server does not choose
/// which secret a client shows.
///
/// # Errors
/// [`OfferError`].
pub fn check_offer(parameters: &[u8]) -> Result<bool, OfferError> {
    let [cipher, b'.', rest @ ..] = parameters else { return Err(OfferError::Malformed) };
    if *cipher != b'0' {
        return Err(OfferError::Cipher);
    }
    let (is_second, rest) = rest.strip_prefix(b"+").map_or((false, rest), |rest| (true, rest));
    let digits = rest.iter().position(|byte| *byte == b':').map(|end| &rest[..end]).ok_or(OfferError::Malformed)?;
    let proper = (1..=9).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    if proper { Ok(is_second) } else { Err(OfferError::Malformed) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_are_those_of_the_stock_server() {
        assert_eq!(check_offer(OFFER.as_bytes()), Ok(true));
        assert_eq!(check_offer(b"0.+013:/etc/keytab"), Ok(true));
        assert_eq!(check_offer(b"0.60:"), Ok(false));
        assert_eq!(check_offer(b"1.+13:"), Err(OfferError::Cipher));
        for wrong in [&b""[..], b"0", b"0.", b"0.+", b"0.+:", b"0.+13", b"0.x:", b"0.+1234567890:", b"013:"] {
            assert_eq!(check_offer(wrong), Err(OfferError::Malformed), "{}", wrong.escape_ascii());
        }
        assert!(OFFER.contains(&crate::LIFETIME.as_secs().to_string()));
    }
}
