//! Revocation lists (RFC 5280, section 5).

use std::collections::HashMap;

use types::Timestamp;
use x509_parser::prelude::FromDer;
use x509_parser::x509::{AlgorithmIdentifier, X509Name};

use crate::certificate::{Certificate, SERIAL_MAX, without_leading_zeros};
use crate::der::{self, Malformed, Reader};
use crate::name::{NameKey, dotted, for_message};
use crate::signature;

/// Most certificates that one list revokes.
const REVOKED_MAX: usize = 4 << 20;

const DELTA: &[u8] = &[0x55, 0x1d, 27];
const DISTRIBUTION_POINT: &[u8] = &[0x55, 0x1d, 28];

/// A serial number, with zeros before it.
type Serial = [u8; SERIAL_MAX];

fn serial(number: &[u8]) -> Option<Serial> {
    let number = without_leading_zeros(number);
    let mut serial = [0; SERIAL_MAX];
    serial[SERIAL_MAX.checked_sub(number.len())?..].copy_from_slice(number);
    Some(serial)
}

/// A list as it was read.
pub(crate) struct RevocationList<'a> {
    tbs: &'a [u8],
    algorithm: AlgorithmIdentifier<'a>,
    signature: &'a [u8],
    issuer: NameKey,
    issuer_for_message: String,
    this_update: Timestamp,
    /// Which part of the authority's certificates the list is about; empty if it is about all.
    part: &'a [u8],
    /// Sorted.
    revoked: Vec<Serial>,
    /// Why it cannot be used.
    unusable: Option<String>,
}

impl<'a> RevocationList<'a> {
    /// Reads a `CertificateList`.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut list = der::only(bytes, der::SEQUENCE)?.inside();
        let tbs = list.expect(der::SEQUENCE)?;
        let algorithm = list.expect(der::SEQUENCE)?;
        let signature = der::bits(list.expect(der::BIT_STRING)?.content)?;
        list.end()?;
        let mut fields = tbs.inside();
        let version = fields.optional(der::INTEGER)?.map_or(Ok(0), |version| der::small_number(version.content))?;
        // RFC 5280, section 5.1.1.2: both places name the same algorithm.
        if version > 1 || fields.expect(der::SEQUENCE)?.raw != algorithm.raw {
            return Err(Malformed);
        }
        let issuer = fields.expect(der::SEQUENCE)?;
        let (_, issuer) = X509Name::from_der(issuer.raw).map_err(|_| Malformed)?;
        let (_, algorithm) = AlgorithmIdentifier::from_der(algorithm.raw).map_err(|_| Malformed)?;
        let this_update = der::time(fields.next()?)?;
        if matches!(fields.peek(), Some(der::UTC_TIME | der::GENERALIZED_TIME)) {
            der::time(fields.next()?)?;
        }
        let mut parsed = Self {
            tbs: tbs.raw,
            algorithm,
            signature,
            issuer: NameKey::new(&issuer),
            issuer_for_message: for_message(&issuer),
            this_update,
            part: &[],
            revoked: Vec::new(),
            unusable: None,
        };
        if let Some(entries) = fields.optional(der::SEQUENCE)? {
            parsed.read_entries(entries.inside())?;
        }
        if let Some(extensions) = fields.optional(0xa0)? {
            parsed.read_extensions(extensions.content)?;
        }
        fields.end()?;
        Ok(parsed)
    }

    fn read_entries(&mut self, mut entries: Reader<'a>) -> Result<(), Malformed> {
        while !entries.is_empty() {
            if self.revoked.len() == REVOKED_MAX {
                self.unusable = Some(format!("it revokes more than {REVOKED_MAX} certificates"));
                return Ok(());
            }
            let mut entry = entries.expect(der::SEQUENCE)?.inside();
            let number = entry.expect(der::INTEGER)?;
            der::time(entry.next()?)?;
            if let Some(extensions) = entry.optional(der::SEQUENCE)? {
                for extension in Extensions(extensions.inside()) {
                    let (oid, critical, _) = extension?;
                    // The list's entries may be about certificates of others (certificateIssuer), or mean something else.
                    if critical {
                        self.unusable = Some(format!("an entry has the critical extension {}", dotted(oid)));
                    }
                }
            }
            entry.end()?;
            match serial(number.content) {
                Some(serial) => self.revoked.push(serial),
                None => self.unusable = Some("a serial number in it has more than 20 bytes".into()),
            }
        }
        self.revoked.sort_unstable();
        self.revoked.shrink_to_fit();
        Ok(())
    }

    fn read_extensions(&mut self, bytes: &'a [u8]) -> Result<(), Malformed> {
        for extension in Extensions(der::only(bytes, der::SEQUENCE)?.inside()) {
            let (oid, critical, value) = extension?;
            match oid {
                DELTA => self.unusable = Some("it has only the changes since another one".into()),
                DISTRIBUTION_POINT => {
                    self.part = value;
                    let mut fields = der::only(value, der::SEQUENCE)?.inside();
                    while !fields.is_empty() {
                        let field = fields.next()?;
                        match (field.tag, field.content) {
                            // Its place; whether it is about users or authorities only.
                            (0xa0, _) | (0x81 | 0x82, _) | (_, [0]) => {}
                            _ => self.unusable = Some("it is indirect, or is about some reasons only".into()),
                        }
                    }
                }
                _ if critical => self.unusable = Some(format!("it has the critical extension {}", dotted(oid))),
                _ => {}
            }
        }
        Ok(())
    }

    pub fn issuer(&self) -> &NameKey {
        &self.issuer
    }

    pub fn issuer_for_message(&self) -> &str {
        &self.issuer_for_message
    }

    /// Why the list must not be used, if that is so, where `authorities` are those of its issuer's name that are known.
    fn signer(&mut self, authorities: &[Certificate<'_>]) -> Option<Vec<u8>> {
        let mut why = None;
        for authority in authorities {
            match signature::check(authority.key(), &self.algorithm, self.tbs, self.signature) {
                Ok(()) if authority.extensions.key_usage.as_ref().is_some_and(|usage| !usage.crl_sign()) => {
                    why = Some("its authority must not sign lists (keyUsage without cRLSign)".to_owned());
                }
                Ok(()) => return Some(authority.key().raw.to_vec()),
                Err(problem) => why = why.or(Some(problem.to_string())),
            }
        }
        if self.unusable.is_none() {
            self.unusable = why;
        }
        None
    }
}

/// Why nobody can tell from this list, in DER, whom its authority has revoked; `None`: one can, if the signature is right.
#[must_use]
pub fn problem_of_revocation_list(bytes: &[u8]) -> Option<String> {
    match RevocationList::parse(bytes) {
        Ok(list) => list.unusable,
        Err(_) => Some("it is malformed".into()),
    }
}

/// Extensions: object identifier, whether critical, value.
struct Extensions<'a>(Reader<'a>);

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<(&'a [u8], bool, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let mut read = || {
            let mut extension = self.0.expect(der::SEQUENCE)?.inside();
            let oid = extension.expect(der::OID)?.content;
            let critical = extension.optional(der::BOOLEAN)?.map_or(Ok(false), |flag| der::boolean(flag.content))?;
            let value = extension.expect(der::OCTET_STRING)?.content;
            extension.end()?;
            Ok((oid, critical, value))
        };
        let extension = read();
        if extension.is_err() {
            self.0 = Reader::new(&[]);
        }
        Some(extension)
    }
}

/// What authorities have revoked.
///
/// A list that has ended still counts, and an authority without a list can revoke nothing: as for TLS, and as stock XRootD
/// decides unless it is configured otherwise. An authority whose only list cannot be used, or is malformed, is not believed at
/// all.
#[derive(Debug, Default)]
pub(crate) struct Revocations(HashMap<NameKey, Vec<Kept>>);

#[derive(Debug)]
struct Kept {
    /// The key that has signed it, as SubjectPublicKeyInfo; `None` if no authority of the name is known, or if it is
    /// unusable.
    key: Option<Vec<u8>>,
    part: Vec<u8>,
    this_update: Timestamp,
    revoked: Result<Vec<Serial>, String>,
}

impl Revocations {
    /// Adds a list from the file `name`; `authorities` are those of its issuer's name that are known. If it cannot be used,
    /// this says why.
    pub fn add(&mut self, mut list: RevocationList<'_>, name: &str, authorities: &[Certificate<'_>]) -> Option<String> {
        let key = list.signer(authorities);
        let unusable = list.unusable.clone();
        let kept = Kept {
            key,
            part: list.part.to_vec(),
            this_update: list.this_update,
            revoked: list.unusable.map_or(Ok(list.revoked), |why| Err(format!("{name}: {why}"))),
        };
        self.keep(list.issuer, kept);
        unusable
    }

    /// Adds the list of `authority` in the file `name`, which cannot even be read.
    pub fn add_malformed(&mut self, authority: &Certificate<'_>, name: &str) {
        let kept = Kept {
            key: Some(authority.key().raw.to_vec()),
            part: Vec::new(),
            this_update: Timestamp(0),
            revoked: Err(format!("{name} is malformed")),
        };
        self.keep(authority.subject.clone(), kept);
    }

    fn keep(&mut self, issuer: NameKey, kept: Kept) {
        let lists = self.0.entry(issuer).or_default();
        match lists.iter_mut().find(|other| other.is_about_the_same(&kept)) {
            Some(other) if other.this_update >= kept.this_update => {}
            Some(other) => *other = kept,
            None => lists.push(kept),
        }
    }

    /// Whether nobody can say what `authority` has revoked.
    pub fn are_unusable(&self, authority: &Certificate<'_>) -> bool {
        matches!(self.check(authority, authority), Err(RevocationProblem::Unusable(_)))
    }

    /// Whether `issuer` has revoked `certificate`.
    pub fn check(&self, certificate: &Certificate<'_>, issuer: &Certificate<'_>) -> Result<(), RevocationProblem> {
        let Some(lists) = self.0.get(&issuer.subject) else { return Ok(()) };
        let of_key = |list: &&Kept| list.key.as_ref().is_none_or(|key| key == issuer.key().raw);
        let number = serial(certificate.serial());
        let mut unusable = None;
        let mut usable = false;
        for list in lists.iter().filter(of_key) {
            match &list.revoked {
                Ok(revoked) if number.is_none_or(|number| revoked.binary_search(&number).is_ok()) => {
                    return Err(RevocationProblem::Revoked);
                }
                Ok(_) => usable = true,
                Err(why) => unusable = Some(why),
            }
        }
        match unusable {
            Some(why) if !usable => Err(RevocationProblem::Unusable(why.clone())),
            _ => Ok(()),
        }
    }
}

impl Kept {
    fn is_about_the_same(&self, other: &Self) -> bool {
        self.revoked.is_ok() == other.revoked.is_ok() && self.key == other.key && self.part == other.part
    }
}

/// Why a certificate is not accepted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum RevocationProblem {
    Revoked,
    Unusable(String),
}
