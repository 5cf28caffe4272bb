//! Authorities, users and proxies, made as a test needs them.

use grid::{GridError, GridUser, Problem, Trust, TrustFile, TrustMaterial, verify_user};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use types::Timestamp;

use crate::der::*;

/// When all tests take place: 2026-11-29, 19:00 UTC.
pub const NOW: i64 = 1_795_978_800;
pub const DAY: i64 = 86_400;

pub const INHERIT_ALL: &str = "1.3.6.1.5.5.7.21.1";
pub const INDEPENDENT: &str = "1.3.6.1.5.5.7.21.2";
pub const LIMITED: &str = "1.3.6.1.4.1.3536.1.1.1.9";

pub fn now() -> Timestamp {
    Timestamp::from_secs(NOW)
}

/// A key on P-256.
pub struct Key(EcdsaKeyPair);

impl Key {
    pub fn new() -> Self {
        let random = SystemRandom::new();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random).unwrap();
        Self(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8.as_ref(), &random).unwrap())
    }

    pub fn sign(&self, message: &[u8]) -> Vec<u8> {
        self.0.sign(&SystemRandom::new(), message).unwrap().as_ref().to_vec()
    }

    /// SubjectPublicKeyInfo.
    pub fn public(&self) -> Vec<u8> {
        let algorithm = sequence(&[oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")]);
        sequence(&[algorithm, bits(self.0.public_key().as_ref())])
    }
}

/// `/DC=ch/CN=ana` as a name. `//` stands for a slash in a value.
pub fn name(line: &str) -> Vec<u8> {
    let line = line.replace("//", "\0");
    let parts = line.split('/').skip(1).map(|part| {
        let part = part.replace('\0', "/");
        let (attribute, value) = part.split_once('=').unwrap();
        let kind = match attribute {
            "CN" => "2.5.4.3",
            "O" => "2.5.4.10",
            "OU" => "2.5.4.11",
            "C" => "2.5.4.6",
            "DC" => "0.9.2342.19200300.100.1.25",
            "emailAddress" => "1.2.840.113549.1.9.1",
            other => other,
        };
        set(&[sequence(&[oid(kind), utf8(value)])])
    });
    sequence(&parts.collect::<Vec<_>>())
}

pub fn extension(id: &str, critical: bool, value: &[u8]) -> Vec<u8> {
    let mut parts = vec![oid(id)];
    if critical {
        parts.push(boolean(true));
    }
    parts.push(octets(value));
    sequence(&parts)
}

pub fn basic_constraints(ca: bool, path_length: Option<u64>) -> Vec<u8> {
    let mut parts = if ca { vec![boolean(true)] } else { vec![] };
    parts.extend(path_length.map(integer));
    extension("2.5.29.19", true, &sequence(&parts))
}

/// The bits of keyUsage: 0x80 digitalSignature, 0x40 nonRepudiation, 0x20 keyEncipherment, 0x04 keyCertSign, 0x02 cRLSign.
pub fn key_usage(flags: u8) -> Vec<u8> {
    extension("2.5.29.15", true, &element(3, &[u8::try_from(flags.trailing_zeros()).unwrap(), flags]))
}

pub fn extended_key_usage(purposes: &[&str]) -> Vec<u8> {
    let purposes: Vec<_> = purposes.iter().map(|purpose| oid(purpose)).collect();
    extension("2.5.29.37", false, &sequence(&purposes))
}

/// `names` are GeneralNames.
pub fn alternative_names(names: &[Vec<u8>]) -> Vec<u8> {
    extension("2.5.29.17", false, &sequence(names))
}

pub fn proxy_info(language: &str, path_length: Option<u64>) -> Vec<u8> {
    proxy_info_with(language, path_length, None, true)
}

pub fn proxy_info_with(language: &str, path_length: Option<u64>, policy: Option<&[u8]>, critical: bool) -> Vec<u8> {
    let mut parts: Vec<_> = path_length.map(integer).into_iter().collect();
    parts.push(sequence(&[oid(language), policy.map(octets).unwrap_or_default()]));
    extension("1.3.6.1.5.5.7.1.14", critical, &sequence(&parts))
}

/// The signature algorithm of all certificates that say nothing else: ecdsa-with-SHA256.
pub const SIGNED_WITH: &str = "1.2.840.10045.4.3.2";

/// A certificate to be made.
pub struct Plan {
    pub version: u64,
    pub serial: Vec<u8>,
    pub issuer: Vec<u8>,
    pub subject: Vec<u8>,
    pub times: (i64, i64),
    pub extensions: Vec<Vec<u8>>,
    pub inner_algorithm: Vec<u8>,
    pub outer_algorithm: Vec<u8>,
    pub public: Vec<u8>,
}

impl Plan {
    pub fn sign(&self, key: &Key) -> Vec<u8> {
        let (from, to) = self.times;
        let mut parts = vec![
            element(0xa0, &integer(self.version)),
            element(2, &self.serial),
            self.inner_algorithm.clone(),
            self.issuer.clone(),
            sequence(&[time(from), time(to)]),
            self.subject.clone(),
            self.public.clone(),
        ];
        if !self.extensions.is_empty() {
            parts.push(element(0xa3, &sequence(&self.extensions)));
        }
        let tbs = sequence(&parts);
        let signature = bits(&key.sign(&tbs));
        sequence(&[tbs, self.outer_algorithm.clone(), signature])
    }
}

/// Somebody with a certificate and its key.
pub struct Holder {
    pub key: Key,
    pub subject: Vec<u8>,
    pub der: Vec<u8>,
}

impl Holder {
    pub fn authority(line: &str) -> Self {
        Self::self_signed(line, |_| ())
    }

    pub fn self_signed(line: &str, change: impl FnOnce(&mut Plan)) -> Self {
        let key = Key::new();
        let mut plan = plan(&name(line), line, &key);
        plan.extensions = vec![basic_constraints(true, None), key_usage(0x06)];
        change(&mut plan);
        Self { der: plan.sign(&key), subject: plan.subject, key }
    }

    /// Issues a certificate, which `change` may change before.
    pub fn issue(&self, line: &str, change: impl FnOnce(&mut Plan)) -> Self {
        let key = Key::new();
        let mut plan = plan(&self.subject, line, &key);
        change(&mut plan);
        Self { der: plan.sign(&self.key), subject: plan.subject, key }
    }

    pub fn below(&self, line: &str) -> Self {
        self.issue(line, |plan| plan.extensions = vec![basic_constraints(true, None), key_usage(0x06)])
    }

    pub fn user(&self, line: &str) -> Self {
        self.issue(line, |plan| plan.extensions = vec![basic_constraints(false, None), key_usage(0x80)])
    }

    pub fn proxy(&self) -> Self {
        self.proxy_with(|_| ())
    }

    /// A proxy that inherits all rights, which `change` may change before.
    pub fn proxy_with(&self, change: impl FnOnce(&mut Plan)) -> Self {
        self.issue("/CN=unused", |plan| {
            plan.subject = with_common_name(&self.subject, "12345");
            plan.extensions = vec![proxy_info(INHERIT_ALL, None), key_usage(0x80)];
            change(plan);
        })
    }
}

fn plan(issuer: &[u8], line: &str, key: &Key) -> Plan {
    let algorithm = sequence(&[oid(SIGNED_WITH)]);
    Plan {
        version: 2,
        serial: vec![1, 2, 3],
        issuer: issuer.to_vec(),
        subject: name(line),
        times: (NOW - DAY, NOW + DAY),
        extensions: Vec::new(),
        inner_algorithm: algorithm.clone(),
        outer_algorithm: algorithm,
        public: key.public(),
    }
}

/// `name` with one more CN.
pub fn with_common_name(name: &[u8], value: &str) -> Vec<u8> {
    let parts = match name[1] {
        0x81 => &name[3..],
        _ => &name[2..],
    };
    element(0x30, &[parts, &set(&[sequence(&[oid("2.5.4.3"), utf8(value)])])].concat())
}

pub fn file(stem: &str, bytes: &[u8]) -> TrustFile {
    TrustFile { stems: vec![stem.to_owned()], name: format!("{stem}.x"), bytes: bytes.to_vec() }
}

pub fn material(authorities: &[&Holder]) -> TrustMaterial {
    let authorities = authorities.iter().enumerate().map(|(number, holder)| file(&format!("ca{number}"), &holder.der));
    TrustMaterial { authorities: authorities.collect(), ..TrustMaterial::default() }
}

pub fn trust(authorities: &[&Holder]) -> Trust {
    let trust = Trust::new(&material(authorities));
    assert_eq!(trust.problems(), [""; 0]);
    trust
}

pub fn chain(holders: &[&Holder]) -> Vec<Vec<u8>> {
    holders.iter().map(|holder| holder.der.clone()).collect()
}

pub fn verify(holders: &[&Holder], trust: &Trust) -> Result<GridUser, GridError> {
    verify_user(&chain(holders), trust, now())
}

/// The rule that refuses this chain.
pub fn problem(holders: &[&Holder], trust: &Trust) -> Problem {
    match verify(holders, trust) {
        Err(GridError::Certificate { why, .. }) => why,
        other => panic!("another result: {other:?}"),
    }
}

/// A revocation list.
pub struct List {
    pub revoked: Vec<Vec<u8>>,
    pub times: (i64, i64),
    pub entry_extensions: Vec<Vec<u8>>,
    pub extensions: Vec<Vec<u8>>,
    pub algorithm: String,
}

impl List {
    pub fn of(revoked: &[&[u8]]) -> Self {
        Self {
            revoked: revoked.iter().map(|serial| serial.to_vec()).collect(),
            times: (NOW - DAY, NOW + DAY),
            entry_extensions: Vec::new(),
            extensions: Vec::new(),
            algorithm: SIGNED_WITH.to_owned(),
        }
    }

    pub fn sign(&self, authority: &Holder) -> Vec<u8> {
        let entries: Vec<_> = self
            .revoked
            .iter()
            .map(|serial| {
                let mut entry = vec![element(2, serial), time(NOW - DAY)];
                if !self.entry_extensions.is_empty() {
                    entry.push(sequence(&self.entry_extensions));
                }
                sequence(&entry)
            })
            .collect();
        let algorithm = sequence(&[oid(&self.algorithm)]);
        let mut parts =
            vec![integer(1), algorithm.clone(), authority.subject.clone(), time(self.times.0), time(self.times.1)];
        if !entries.is_empty() {
            parts.push(sequence(&entries));
        }
        if !self.extensions.is_empty() {
            parts.push(element(0xa0, &sequence(&self.extensions)));
        }
        let tbs = sequence(&parts);
        sequence(&[tbs.clone(), algorithm, bits(&authority.key.sign(&tbs))])
    }
}

/// A user of an authority that is trusted.
pub struct Here {
    pub trust: Trust,
    pub ana: Holder,
}

pub fn here() -> Here {
    let root = Holder::authority("/O=Root");
    let ana = root.user("/O=x/CN=ana");
    Here { trust: trust(&[&root]), ana }
}
