//! The key that both sides compute: Diffie-Hellman in a finite field, with the public part as `XrdCryptosslCipher::Public` writes it:
//! the group in PEM form (`DH PARAMETERS`, PKCS #3), then `---BPUB---`, the number in hexadecimal digits, and `---EPUB---`.
//!
//! A server here uses the group ffdhe3072 of RFC 7919. Stock clients take the group from the server, and OpenSSL knows this one by its
//! number, so that they need not test whether it is safe. A client here takes the server's group if it has a proper size. It does not test
//! whether the modulus is a safe prime, which takes seconds: the server has signed it, and could as well give the key away.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize as _};
use x509_parser::asn1_rs::{FromDer as _, Integer, Sequence};

use crate::der::{integer, sequence, trimmed};
use crate::{AgreementError, HandshakeError, Random, pem};

/// The modulus of ffdhe3072, RFC 7919, appendix A.2. The generator is 2.
const FFDHE3072: &str = "\
    FFFFFFFFFFFFFFFFADF85458A2BB4A9AAFDC5620273D3CF1D8B9C583CE2D3695A9E13641146433FBCC939DCE249B3EF9\
    7D2FE363630C75D8F681B202AEC4617AD3DF1ED5D5FD65612433F51F5F066ED0856365553DED1AF3B557135E7F57C935\
    984F0C70E0E68B77E2A689DAF3EFE8721DF158A136ADE73530ACCA4F483A797ABC0AB182B324FB61D108A94BB2C8E3FB\
    B96ADAB760D7F4681D4F42A3DE394DF4AE56EDE76372BB190B07A7C8EE0A6D709E02FCE1CDF7E2ECC03404CD28342F61\
    9172FE9CE98583FF8E4F1232EEF28183C3FE3B1B4C6FAD733BB5FCBC2EC22005C58EF1837D1683B2C6F34A26C1B2EFFA\
    886B4238611FCFDCDE355B3B6519035BBC34F4DEF99C023861B46FC9D6E6C9077AD91D2691F7F7EE598CB0FAC186D91C\
    AEFE130985139270B4130C93BC437944F4FD4452E2D74DD364F2E21E71F54BFF5CAE82AB9C9DF69EE86D2BC522363A0D\
    ABC521979B0DEADA1DBF9A42D5C4484E0ABCD06BFA53DDEF3C1B20EE3FD59D7C25E41D2B66C62E37FFFFFFFFFFFFFFFF\
    ";

/// The length of a secret exponent. RFC 7919 demands 275 bits for ffdhe3072.
const EXPONENT_BYTES: usize = 40;
/// The exponent for a group of the peer, which may need all bits.
const FOREIGN_EXPONENT_BYTES: usize = 64;
/// The shortest and the longest modulus that is used. Servers of XRootD 5.5 have one of 512 bits, so a client here must take that. Whoever
/// breaks it can read the client's certificates, which are no secret. That the public parts are signed does not keep somebody on the path
/// of a stock server out: such a server signs a tag of any length, so it signs a public part of anybody's choice. TLS keeps them out.
const MODULUS_BITS: std::ops::RangeInclusive<u32> = 512..=4096;
/// So many bits a public number may be shorter than the modulus. A random one is shorter with a probability of two to the power of minus
/// this. One whose logarithm can be guessed is small.
const SHORTER_BITS_MAX: u32 = 128;
/// The longest public part that is read.
const PUBLIC_BYTES_MAX: usize = 8 << 10;

const LABEL: &str = "DH PARAMETERS";
const BEGIN: &str = "---BPUB---";
const END: &str = "---EPUB---";

/// A group.
#[derive(Clone)]
pub(crate) struct Group {
    params: BoxedMontyParams,
    generator: BoxedUint,
    pem: String,
    exponent_bytes: usize,
}

/// A secret key of a group, and its public part.
pub(crate) struct SecretExponent {
    exponent: BoxedUint,
    /// The public part as it is sent.
    pub(crate) text: String,
}

impl Group {
    /// ffdhe3072.
    pub(crate) fn ffdhe3072() -> Result<Self, AgreementError> {
        let modulus: Option<BoxedUint> = BoxedUint::from_be_hex(FFDHE3072, 3072).into();
        let modulus = modulus.ok_or(AgreementError::Malformed)?;
        Self::new(&modulus.to_be_bytes(), &[2], EXPONENT_BYTES)
    }

    fn new(modulus: &[u8], generator: &[u8], exponent_bytes: usize) -> Result<Self, AgreementError> {
        let pem = pem::encode(LABEL, &sequence(&[integer(modulus), integer(generator)]));
        if is_all_ones(modulus) {
            return Err(AgreementError::Group);
        }
        let modulus = BoxedUint::from_be_slice_vartime(modulus);
        let bits = modulus.bit_width_vartime();
        if !MODULUS_BITS.contains(&bits) {
            return Err(AgreementError::Group);
        }
        let modulus = modulus.resize(bits.next_multiple_of(64));
        let odd: Option<Odd<BoxedUint>> = Odd::new(modulus.clone()).into();
        let params = BoxedMontyParams::new_vartime(odd.ok_or(AgreementError::Group)?);
        let group = Self { params, generator: BoxedUint::one(), pem, exponent_bytes };
        let generator = group.element(generator)?;
        Ok(Self { generator, ..group })
    }

    /// A number from 2 to two less than the modulus.
    fn element(&self, bytes: &[u8]) -> Result<BoxedUint, AgreementError> {
        let precision = self.params.bits_precision();
        let number = BoxedUint::from_be_slice(bytes, precision).map_err(|_| AgreementError::Public)?;
        let one = BoxedUint::one_with_precision(precision);
        let last = self.params.modulus().as_ref().wrapping_sub(&one);
        if number > one && number < last { Ok(number) } else { Err(AgreementError::Public) }
    }

    /// A new secret key.
    pub(crate) fn secret(&self, random: &mut dyn Random) -> Result<SecretExponent, HandshakeError> {
        let mut bytes = vec![0; self.exponent_bytes];
        random.fill(&mut bytes)?;
        // Its length is that of the bytes, whatever they are.
        bytes[0] |= 0x80;
        let exponent = BoxedUint::from_be_slice_vartime(&bytes);
        let public = self.power(&self.generator, &exponent);
        // An even number of digits, as OpenSSL writes them.
        let digits = hex(&public.to_be_bytes_trimmed_vartime());
        let text = format!("{}{BEGIN}{digits}{END}", self.pem);
        Ok(SecretExponent { exponent, text })
    }

    fn power(&self, base: &BoxedUint, exponent: &BoxedUint) -> BoxedUint {
        BoxedMontyForm::new(base.clone(), &self.params).pow(exponent).retrieve()
    }

    /// What both sides know: as many bytes as the modulus has, or without the zeros at its beginning, as peers before OpenSSL 1.1
    /// compute it.
    pub(crate) fn shared(
        &self,
        secret: &SecretExponent,
        peer: &Public,
        is_padded: bool,
    ) -> Result<Vec<u8>, AgreementError> {
        let bits = self.params.modulus().as_ref().bit_width_vartime();
        let public = self.element(&peer.number)?;
        if public.bit_width_vartime() + SHORTER_BITS_MAX < bits {
            return Err(AgreementError::Public);
        }
        let number = self.power(&public, &secret.exponent);
        let bytes = number.to_be_bytes();
        let len = bits.div_ceil(8) as usize;
        let bytes = &bytes[bytes.len() - len..];
        let zeros = if is_padded { 0 } else { bytes.iter().take_while(|byte| **byte == 0).count() };
        Ok(bytes[zeros..].to_vec())
    }

    /// Whether `public` is of this group.
    pub(crate) fn check_same(&self, public: &Public) -> Result<(), AgreementError> {
        let (modulus, generator) = public.parameters()?;
        let own = |number: &BoxedUint| number.to_be_bytes_trimmed_vartime();
        let is_same = *modulus == *own(self.params.modulus().as_ref()) && *generator == *own(&self.generator);
        if is_same { Ok(()) } else { Err(AgreementError::OtherGroup) }
    }

    /// What every public part of this group begins with.
    pub(crate) fn beginning(&self) -> String {
        format!("{}{BEGIN}", self.pem)
    }
}

/// A public part.
pub(crate) struct Public {
    group: Vec<u8>,
    number: Vec<u8>,
}

impl Public {
    /// Reads a public part. Nothing may stand before the group or behind the number.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, AgreementError> {
        let malformed = AgreementError::Malformed;
        let text = std::str::from_utf8(text).map_err(|_| malformed)?;
        if text.len() > PUBLIC_BYTES_MAX {
            return Err(malformed);
        }
        let (group, rest) = text.split_once(BEGIN).ok_or(malformed)?;
        let digits = rest.strip_suffix(END).ok_or(malformed)?;
        if !group.starts_with(&format!("-----BEGIN {LABEL}-----\n"))
            || !group.ends_with(&format!("-----END {LABEL}-----\n"))
        {
            return Err(malformed);
        }
        let number = unhex(digits).ok_or(malformed)?;
        Ok(Self { group: group.as_bytes().to_vec(), number })
    }

    /// Its group.
    pub(crate) fn group(&self) -> Result<Group, AgreementError> {
        let (modulus, generator) = self.parameters()?;
        Group::new(&modulus, &generator, FOREIGN_EXPONENT_BYTES)
    }

    /// The modulus and the generator of its group, without zeros at their beginning.
    fn parameters(&self) -> Result<(Vec<u8>, Vec<u8>), AgreementError> {
        let malformed = AgreementError::Malformed;
        let blocks = pem::blocks(&self.group);
        let [block] = blocks.as_slice() else { return Err(malformed) };
        if block.label != LABEL {
            return Err(malformed);
        }
        let (_, sequence) = Sequence::from_der(&block.der).map_err(|_| malformed)?;
        let (rest, modulus) = Integer::from_der(&sequence.content).map_err(|_| malformed)?;
        let (_, generator) = Integer::from_der(rest).map_err(|_| malformed)?;
        let is_negative = |number: &Integer<'_>| number.as_ref().first().is_none_or(|byte| *byte >= 0x80);
        if is_negative(&modulus) || is_negative(&generator) {
            return Err(AgreementError::Group);
        }
        Ok((trimmed(modulus.as_ref()).to_vec(), trimmed(generator.as_ref()).to_vec()))
    }
}

/// Whether a number is one less than a power of two. Modulo such a number, logarithms to the base two are read off.
fn is_all_ones(bytes: &[u8]) -> bool {
    let bytes = trimmed(bytes);
    let rest = bytes.get(1..).unwrap_or_default();
    bytes.first().is_none_or(|first| (u16::from(*first) + 1).is_power_of_two()) && rest.iter().all(|byte| *byte == 0xff)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = digits.bytes().map(digit).collect::<Option<_>>()?;
    if digits.is_empty() {
        return None;
    }
    // The first byte may have one digit.
    Some(digits.rchunks(2).rev().map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Counting(u8);

    impl Random for Counting {
        fn fill(&mut self, bytes: &mut [u8]) -> Result<(), crate::NoRandom> {
            for byte in bytes {
                self.0 = self.0.wrapping_mul(37).wrapping_add(11);
                *byte = self.0;
            }
            Ok(())
        }
    }

    /// As `openssl genpkey -genparam -algorithm DH -pkeyopt group:ffdhe3072` writes it.
    const PEM: &str = "\
-----BEGIN DH PARAMETERS-----\n\
MIIBiAKCAYEA//////////+t+FRYortKmq/cViAnPTzx2LnFg84tNpWp4TZBFGQz\n\
+8yTnc4kmz75fS/jY2MMddj2gbICrsRhetPfHtXV/WVhJDP1H18GbtCFY2VVPe0a\n\
87VXE15/V8k1mE8McODmi3fipona8+/och3xWKE2rec1MKzKT0g6eXq8CrGCsyT7\n\
YdEIqUuyyOP7uWrat2DX9GgdT0Kj3jlN9K5W7edjcrsZCwenyO4KbXCeAvzhzffi\n\
7MA0BM0oNC9hkXL+nOmFg/+OTxIy7vKBg8P+OxtMb61zO7X8vC7CIAXFjvGDfRaD\n\
ssbzSibBsu/6iGtCOGEfz9zeNVs7ZRkDW7w09N75nAI4YbRvydbmyQd62R0mkff3\n\
7lmMsPrBhtkcrv4TCYUTknC0EwyTvEN5RPT9RFLi103TZPLiHnH1S/9croKrnJ32\n\
nuhtK8UiNjoNq8Uhl5sN6todv5pC1cRITgq80Gv6U93vPBsg7j/VnXwl5B0rZsYu\n\
N///////////AgEC\n\
-----END DH PARAMETERS-----\n\
";

    #[test]
    fn the_group_is_written_as_openssl_writes_it() {
        assert_eq!(Group::ffdhe3072().unwrap().beginning(), format!("{PEM}---BPUB---"));
    }

    #[test]
    fn both_sides_compute_the_same() {
        let ours = Group::ffdhe3072().unwrap();
        let server = ours.secret(&mut Counting(1)).unwrap();
        let public = Public::parse(server.text.as_bytes()).unwrap();
        let theirs = public.group().unwrap();
        let client = theirs.secret(&mut Counting(2)).unwrap();
        let at_client = theirs.shared(&client, &public, true).unwrap();
        let at_server = ours.shared(&server, &Public::parse(client.text.as_bytes()).unwrap(), true).unwrap();
        assert_eq!(at_client, at_server);
        assert_eq!(at_client.len(), 384);
        assert_ne!(server.text, client.text);
    }

    #[test]
    fn numbers_that_give_the_key_away_are_refused() {
        let group = Group::ffdhe3072().unwrap();
        let secret = group.secret(&mut Counting(1)).unwrap();
        let public = |digits: &str| Public::parse(format!("{PEM}---BPUB---{digits}---EPUB---").as_bytes()).unwrap();
        let below = |less: u8| {
            let mut bytes = unhex(FFDHE3072).unwrap();
            *bytes.last_mut().unwrap() -= less;
            hex(&bytes)
        };
        let long = "8".repeat(2 * 384 - 32);
        for good in [&long, &below(2)] {
            assert!(group.shared(&secret, &public(good), true).is_ok(), "{good}");
        }
        // Two and four are powers of the generator that anybody knows; so may be any short number.
        for bad in ["0", "1", "0001", "2", "04", &long[1..], &below(1), &below(0), &format!("1{FFDHE3072}")] {
            assert_eq!(group.shared(&secret, &public(bad), true), Err(AgreementError::Public), "{bad}");
        }
        // Two to the power of nothing small: zeros at the beginning stay or go.
        let small = SecretExponent { exponent: BoxedUint::one(), text: String::new() };
        let short = format!("01{}", "02".repeat(375));
        assert_eq!(group.shared(&small, &public(&short), false).unwrap(), unhex(&short).unwrap());
        assert_eq!(group.shared(&small, &public(&short), true).unwrap().len(), 384);
    }

    #[test]
    fn groups_of_a_wrong_size_and_malformed_texts_are_refused() {
        for (modulus, generator) in [
            (vec![0xff; 63], vec![2]),
            (vec![0xff; 513], vec![2]),
            (vec![0xfe; 384], vec![2]),
            (vec![0xff; 384], vec![2]),
            ([&[0, 0x7f][..], &[0xff; 383]].concat(), vec![2]),
            (unhex(FFDHE3072).unwrap(), vec![1]),
            (unhex(FFDHE3072).unwrap(), Vec::new()),
            (unhex(FFDHE3072).unwrap(), unhex(&FFDHE3072.replace("37FFFFFFFFFFFFFFFF", "37FFFFFFFFFFFFFFFE")).unwrap()),
            (vec![0xff; 384], vec![1]),
            (vec![0xff; 384], vec![0]),
            (vec![0xff; 384], vec![0xff; 384]),
        ] {
            assert!(Group::new(&modulus, &generator, 40).is_err());
        }
        for text in ["", "---BPUB---1---EPUB---", "x---BPUB---g---EPUB---", "---BPUB------EPUB---", "---BPUB---12"] {
            assert!(Public::parse(text.as_bytes()).and_then(|public| public.group().map(|_| ())).is_err(), "{text}");
        }
        let good = format!("{PEM}---BPUB---12---EPUB---");
        assert!(Public::parse(good.as_bytes()).is_ok());
        for text in [format!("{good}x"), format!("x{good}"), format!("{good}---EPUB---"), good.replace("---B", "x---B")]
        {
            assert!(Public::parse(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_public_part_of_another_group_is_told_from_ours() {
        let ours = Group::ffdhe3072().unwrap();
        let group = |modulus: &[u8], generator: &[u8]| {
            let pem = pem::encode(LABEL, &sequence(&[integer(modulus), integer(generator)]));
            ours.check_same(&Public::parse(format!("{pem}---BPUB---12---EPUB---").as_bytes()).unwrap())
        };
        let modulus = unhex(FFDHE3072).unwrap();
        let mut other = modulus.clone();
        other[7] ^= 2;
        assert_eq!(group(&modulus, &[2]), Ok(()));
        assert_eq!(group(&modulus, &[0, 2]), Ok(()));
        for (modulus, generator) in [(&modulus[..], 3), (&other, 2), (&modulus[1..], 2)] {
            assert_eq!(group(modulus, &[generator]), Err(AgreementError::OtherGroup));
        }
    }
}
