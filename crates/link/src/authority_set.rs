//! The authorities that a node trusts: one, and while that is being replaced also its predecessor.
//!
//! The predecessor has signed the new authority's key. With this *voucher* in a chain, whoever trusts only the predecessor also accepts certificates of
//! the new authority. So nodes, contexts and tokens can move to the new one at any time and in any order.

use rustls::pki_types::CertificateDer;

use crate::Fingerprint;

/// A longer certificate is not one of an authority.
const CERTIFICATE_BYTES_MAX: usize = 4096;

/// The authorities of a cluster, by their certificates.
#[derive(Clone, PartialEq, Eq)]
pub struct AuthoritySet {
    current: CertificateDer<'static>,
    succession: Option<Succession>,
}

/// How the current authority follows an earlier one.
#[derive(Clone, PartialEq, Eq)]
struct Succession {
    /// The key of the current authority, signed by the previous one.
    voucher: CertificateDer<'static>,
    previous: CertificateDer<'static>,
}

impl std::fmt::Debug for AuthoritySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AuthoritySet({}", self.fingerprint())?;
        match self.previous() {
            Some(previous) => write!(f, " after {previous})"),
            None => f.write_str(")"),
        }
    }
}

impl AuthoritySet {
    /// One authority alone.
    #[must_use]
    pub fn only(current: CertificateDer<'static>) -> Self {
        Self { current, succession: None }
    }

    pub(crate) fn following(
        current: CertificateDer<'static>,
        voucher: CertificateDer<'static>,
        previous: CertificateDer<'static>,
    ) -> Self {
        Self { current, succession: Some(Succession { voucher, previous }) }
    }

    /// The authority that signs certificates now.
    #[must_use]
    pub fn current(&self) -> &CertificateDer<'static> {
        &self.current
    }

    /// Its fingerprint.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of(&self.current)
    }

    /// The fingerprint of the authority that it replaces, as long as that one is trusted too.
    #[must_use]
    pub fn previous(&self) -> Option<Fingerprint> {
        self.succession.as_ref().map(|succession| Fingerprint::of(&succession.previous))
    }

    /// Whether this authority is trusted.
    #[must_use]
    pub fn trusts(&self, authority: &Fingerprint) -> bool {
        self.fingerprint() == *authority || self.previous() == Some(*authority)
    }

    /// Whether somebody who trusts `known` may trust these instead: nothing in it is new, or a known authority vouches for the new one. Whoever calls
    /// this must also check a certificate with the voucher ([`AuthoritySet::predecessor`]).
    #[must_use]
    pub fn follows(&self, known: &Self) -> bool {
        match self.previous() {
            Some(previous) => known.trusts(&previous),
            None => known.trusts(&self.fingerprint()),
        }
    }

    /// These without the predecessor, if somebody who trusts `known` has dropped it already: it does not come back when a manager is restored from a
    /// backup that still has it.
    #[must_use]
    pub fn without_dropped(self, known: &Self) -> Self {
        match known.current == self.current && known.succession.is_none() {
            true => known.clone(),
            false => self,
        }
    }

    /// The trusted authorities.
    pub(crate) fn anchors(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        std::iter::once(&self.current).chain(self.succession.as_ref().map(|succession| &succession.previous))
    }

    /// The predecessor and its voucher.
    pub(crate) fn predecessor(&self) -> Option<(&CertificateDer<'static>, &CertificateDer<'static>)> {
        self.succession.as_ref().map(|succession| (&succession.previous, &succession.voucher))
    }

    /// What follows a certificate of the current authority in a chain. A peer that knows an authority only by its fingerprint finds it here.
    pub(crate) fn chain(&self) -> impl Iterator<Item = &CertificateDer<'static>> {
        let succession = self.succession.iter().flat_map(|succession| [&succession.voucher, &succession.previous]);
        std::iter::once(&self.current).chain(succession)
    }

    /// The certificates one after the other: the current authority, and during a replacement the voucher and the previous authority.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        self.chain().flat_map(|certificate| certificate.iter().copied()).collect()
    }

    /// Reads [`AuthoritySet::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (current, rest) = first_certificate(bytes)?;
        if rest.is_empty() {
            return Some(Self::only(current));
        }
        let (voucher, rest) = first_certificate(rest)?;
        let (previous, rest) = first_certificate(rest)?;
        rest.is_empty().then(|| Self::following(current, voucher, previous))
    }
}

/// Splits off the first of several DER sequences. Certificates have at least 256 bytes and below 64 KiB, so their length has two bytes.
fn first_certificate(bytes: &[u8]) -> Option<(CertificateDer<'static>, &[u8])> {
    let [0x30, 0x82, high, low, ..] = bytes else { return None };
    let length = 4 + usize::from(u16::from_be_bytes([*high, *low]));
    if length > CERTIFICATE_BYTES_MAX {
        return None;
    }
    let (certificate, rest) = bytes.split_at_checked(length)?;
    Some((certificate.to_vec().into(), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(fill: u8) -> CertificateDer<'static> {
        [&[0x30, 0x82, 1, 0][..], &[fill; 256]].concat().into()
    }

    fn sets() -> [AuthoritySet; 2] {
        let one = AuthoritySet::only(certificate(1));
        [one, AuthoritySet::following(certificate(2), certificate(3), certificate(1))]
    }

    #[test]
    fn the_bytes_are_read_back_and_nothing_else_is() {
        for set in sets() {
            let bytes = set.to_bytes();
            assert_eq!(AuthoritySet::from_bytes(&bytes), Some(set.clone()));
            for cut in 0..bytes.len() {
                let read = AuthoritySet::from_bytes(&bytes[..cut]);
                assert!(read.is_none() || cut == 260 && read.unwrap().previous().is_none(), "{cut}");
            }
            assert_eq!(AuthoritySet::from_bytes(&[&bytes[..], &[0x30]].concat()), None);
        }
        let many: Vec<u8> = (1..=4).flat_map(|fill| certificate(fill).to_vec()).collect();
        assert_eq!(AuthoritySet::from_bytes(&many), None);
        assert_eq!(AuthoritySet::from_bytes(&[&[0x30, 0x82, 0xff, 0xff][..], &[0; 65_535]].concat()), None);
    }

    #[test]
    fn only_a_known_authority_makes_others_trusted() {
        let [one, both] = sets();
        let new = AuthoritySet::only(certificate(2));
        let strange = AuthoritySet::following(certificate(2), certificate(3), certificate(9));
        assert!(both.follows(&one), "the rotation");
        assert!(new.follows(&both) && one.follows(&both), "its end, or the way back to a restored state");
        assert!(one.follows(&one) && both.follows(&both));
        assert!(!new.follows(&one) && !one.follows(&new), "nobody vouches for it");
        assert!(!both.follows(&new), "the old one does not come back after it was dropped");
        assert_eq!(both.clone().without_dropped(&new), new);
        for known in [&one, &both, &strange] {
            assert_eq!(both.clone().without_dropped(known), both);
        }
        assert_eq!(strange.clone().without_dropped(&one), strange);
        assert!(!strange.follows(&one) && !strange.follows(&both) && !strange.follows(&new), "no stranger comes in");
    }
}
