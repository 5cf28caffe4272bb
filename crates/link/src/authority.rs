//! The cluster's own certificate authority. It is made with the cluster, and signs the certificates of all nodes.
//! No other authority counts.
//!
//! Its key can be replaced. From [`Authority::rotate`] on, a new key signs, and both authorities are trusted, until
//! [`Authority::retire`] drops the old one. The old key signs the new authority once and is then forgotten.
//! Each step is in the file before it takes effect.
//!
//! Keys are Ed25519: small, fast, and without parameters to get wrong. [`crate::NodeName`] describes the contents of a
//! certificate.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::{Mutex, RwLock};
use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, PublicKeyData, SanType, SerialNumber, SignatureAlgorithm,
};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use types::{ClusterId, NodeId, Timestamp};

use crate::admin::AdminName;
use crate::authority_set::AuthoritySet;
use crate::issued::{Issued, IssuedAdmin};
use crate::random::{self, RandomError};
use crate::secret_file::{Existing, FileError, SecretFile};
use crate::{NodeName, PeerIdentity, keys};

/// Default validity of a node's certificate. The node renews it when a third of that time is left.
pub const VALIDITY: Duration = Duration::from_secs(90 * 86_400);
/// The authority's certificate outlives any cluster.
const AUTHORITY_VALIDITY: Duration = Duration::from_secs(40 * 365 * 86_400);
/// Certificates are valid from a little earlier, because the clocks of a cluster differ.
const CLOCKS_DIFFER: Duration = Duration::from_secs(3600);
/// The file in the authority's directory.
const FILE: &str = "authority";
const KIND: SecretFile = SecretFile {
    first_line: "weir authority 1",
    hint: "put back the file of a backup: without it no node can join and no certificate be renewed",
};

/// The file while the authority is being replaced.
const REPLACING: SecretFile = SecretFile { first_line: "weir authority 2", ..KIND };
const KEYS: [&str; 3] = ["cluster", "key", "certificate"];
const KEYS_REPLACING: [&str; 7] = ["cluster", "key", "certificate", "voucher", "previous", "began", "renewed"];

/// More nodes were not recorded by weir.
const RENEWED_MAX: u64 = 1 << 20;

/// The SHA-256 of the authority's certificate. It is not secret: tokens carry it, and people can compare it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 32]);

impl Fingerprint {
    /// The fingerprint of a certificate.
    #[must_use]
    pub fn of(certificate: &CertificateDer<'_>) -> Self {
        let mut bytes = [0; 32];
        bytes.copy_from_slice(ring::digest::digest(&ring::digest::SHA256, certificate).as_ref());
        Self(bytes)
    }
}

impl std::str::FromStr for Fingerprint {
    type Err = String;

    /// Reads the form of `Display`: 64 hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "a fingerprint has 64 hexadecimal digits; `weir admin authority` on the manager's machine prints it"
                .to_owned()
        };
        if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
        }
        Ok(Self(bytes))
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The authority cannot be made, read, or used.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// A problem with its file.
    #[error("the cluster's certificate authority: {0}")]
    File(#[from] FileError),
    /// The kernel has no randomness.
    #[error("the cluster's certificate authority: {0}")]
    Random(#[from] RandomError),
    /// A certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The request is malformed, or the sender does not have the private key.
    #[error("the certificate request is refused: {0}")]
    Request(&'static str),
    /// It is being replaced already.
    #[error(
        "the authority is being replaced already, since {since}: `weir admin authority retire` ends that, and then it can be replaced again"
    )]
    IsReplacing {
        /// Since when.
        since: Timestamp,
    },
    /// A peer with a certificate of an authority that was replaced.
    #[error(
        "this connection was opened with a certificate of an authority that the cluster has replaced: the node must connect with its new one, or join again"
    )]
    Retired,
    /// A peer with a certificate of the earlier authority, although it has one of the new authority.
    #[error(
        "node {0} has a certificate of the new authority already, and this connection was opened with one of the old authority. If the node has lost its new certificate, remove it and let it join again"
    )]
    HasMoved(NodeId),
    /// Another manager has sent an authority that this node cannot trust.
    #[error(
        "the active manager sent an authority that this manager cannot verify; remove this manager from the cluster (`weir node remove`) and let it join again"
    )]
    NotOurs,
    /// Another manager has sent an authority that this node has already seen replaced.
    #[error(
        "the active manager sent an authority that this manager has already seen replaced, so one of the two was restored from a backup: remove that one (`weir node remove`) and let it join again"
    )]
    Earlier,
    /// It is not being replaced.
    #[error("there is no earlier authority to retire: `weir admin authority rotate` replaces the present one")]
    IsAlone,
}

/// Signs certificates. Its key leaves memory only for its file.
pub struct Authority {
    folder: PathBuf,
    cluster: ClusterId,
    state: RwLock<Arc<State>>,
    /// Held while the file changes.
    changing: Mutex<()>,
}

/// The authority of one moment.
struct State {
    set: AuthoritySet,
    issuer: Issuer<'static, KeyPair>,
    replacement: Option<Replacement>,
}

/// A replacement that is under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Replacement {
    /// Since when both authorities are trusted.
    pub began: Timestamp,
    /// The nodes that have said that their certificate is of the new authority.
    pub renewed: BTreeSet<NodeId>,
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Authority(of cluster {}, {:?})", self.cluster, self.set())
    }
}

impl State {
    /// The contents of its file.
    fn lines(&self, cluster: ClusterId) -> (SecretFile, Vec<(&'static str, String)>) {
        let (key, set) = (self.issuer.key().serialized_der(), &self.set);
        let mut values = vec![cluster.to_string(), STANDARD.encode(key), STANDARD.encode(set.current())];
        let kind = match (set.predecessor(), &self.replacement) {
            (Some((previous, voucher)), Some(replacement)) => {
                values.extend([STANDARD.encode(voucher), STANDARD.encode(previous)]);
                values.extend([replacement.began.0.to_string(), format!("nodes {}", ranges_of(&replacement.renewed))]);
                REPLACING
            }
            _ => KIND,
        };
        (kind, KEYS_REPLACING.into_iter().zip(values).collect())
    }

    /// Writes the file.
    fn write(&self, folder: &Path, cluster: ClusterId, existing: Existing) -> Result<(), FileError> {
        let (kind, lines) = self.lines(cluster);
        kind.write(&file(folder), &lines, existing)
    }

    /// Reads `bytes`, which are those of the file at `path` or came for it.
    fn parse(path: &Path, bytes: Vec<u8>) -> Result<(ClusterId, Self), AuthorityError> {
        let damaged = |why| KIND.damaged(path, why);
        let decoded = |text: &str, why| STANDARD.decode(text).map_err(|_| damaged(why));
        let certificate = |text: &str| decoded(text, "its certificate is not base64").map(CertificateDer::from);
        let (cluster, key, set, replacement) = if REPLACING.begins(&bytes) {
            let [cluster, key, current, voucher, previous, began, renewed] =
                REPLACING.parse(path, bytes, KEYS_REPLACING)?;
            let set = AuthoritySet::following(certificate(&current)?, certificate(&voucher)?, certificate(&previous)?);
            let began = began.parse().map(Timestamp).map_err(|_| damaged("its time is no number"))?;
            let renewed = nodes_of(&renewed).ok_or_else(|| damaged("its list of nodes is none"))?;
            (cluster, key, set, Some(Replacement { began, renewed }))
        } else {
            let [cluster, key, current] = KIND.parse(path, bytes, KEYS)?;
            (cluster, key, AuthoritySet::only(certificate(&current)?), None)
        };
        let number = u128::from_str_radix(&cluster, 16).map_err(|_| damaged("its cluster is no number"))?;
        let key = decoded(&key, "its key is not base64")?;
        let key = KeyPair::from_pkcs8_der_and_sign_algo(&PrivatePkcs8KeyDer::from(key), &PKCS_ED25519);
        let key = key.map_err(|_| damaged("its key is none"))?;
        let cluster = ClusterId(number);
        Ok((cluster, Self { set, issuer: Issuer::new(params(cluster), key), replacement }))
    }
}

impl State {
    fn sign(
        &self,
        common: &str,
        uri: &dyn fmt::Display,
        uses: Vec<ExtendedKeyUsagePurpose>,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<CertificateDer<'static>, AuthorityError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = called(common);
        params.subject_alt_names = vec![SanType::URI(Ia5String::try_from(uri.to_string())?)];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = uses;
        limit(&mut params, now, validity)?;
        Ok(params.signed_by(&PublicKey(*key), &self.issuer)?.der().clone())
    }
}

impl Authority {
    /// Makes the authority of `cluster` and stores it in the directory `folder`.
    ///
    /// # Errors
    /// An authority already exists there, or the file cannot be made.
    pub fn create(folder: &Path, cluster: ClusterId, now: Timestamp) -> Result<Self, AuthorityError> {
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = params(cluster);
        limit(&mut params, now, AUTHORITY_VALIDITY)?;
        let certificate = params.self_signed(&key)?.der().clone();
        let set = AuthoritySet::only(certificate);
        let state = State { set, issuer: Issuer::new(params, key), replacement: None };
        state.write(folder, cluster, Existing::Keep)?;
        Ok(Self::with(folder, cluster, state))
    }

    fn with(folder: &Path, cluster: ClusterId, state: State) -> Self {
        Self { folder: folder.to_owned(), cluster, state: RwLock::new(Arc::new(state)), changing: Mutex::new(()) }
    }

    /// Reads the authority in the directory `folder`.
    ///
    /// # Errors
    /// The file is missing, damaged, or readable by others.
    pub fn open(folder: &Path) -> Result<Self, AuthorityError> {
        let path = file(folder);
        let (cluster, state) = State::parse(&path, KIND.read_bytes(&path)?)?;
        Ok(Self::with(folder, cluster, state))
    }

    /// The bytes of its file, with the key, for another manager of the cluster: whoever has them is the authority.
    #[must_use]
    pub fn to_secret_bytes(&self) -> Vec<u8> {
        let (kind, lines) = self.state().lines(self.cluster);
        kind.text(&lines).into_bytes()
    }

    /// Stores the authority that another manager has sent ([`Authority::to_secret_bytes`]) in the directory `folder`, which has none. `known`: the
    /// authorities that this node trusts already.
    ///
    /// # Errors
    /// There is one already, it is another cluster's, `known` does not vouch for it, or the file cannot be made.
    pub fn receive(
        folder: &Path,
        cluster: ClusterId,
        known: &AuthoritySet,
        bytes: Vec<u8>,
    ) -> Result<Self, AuthorityError> {
        let (found, state) = State::parse(&file(folder), bytes)?;
        if found != cluster || !(state.set.follows(known) || known.follows(&state.set)) {
            return Err(AuthorityError::NotOurs);
        }
        state.write(folder, cluster, Existing::Keep)?;
        Ok(Self::with(folder, cluster, state))
    }

    /// Takes the state that another manager has sent ([`Authority::to_secret_bytes`]). Durable on return. Returns whether it was news.
    ///
    /// # Errors
    /// It is another cluster's, is earlier than the present one or does not follow it, or the file cannot be written: then nothing has changed.
    pub fn follow(&self, bytes: Vec<u8>) -> Result<bool, AuthorityError> {
        let _changing = self.changing.lock();
        if bytes == self.to_secret_bytes() {
            return Ok(false);
        }
        let (cluster, state) = State::parse(&file(&self.folder), bytes)?;
        let known = self.set();
        if cluster != self.cluster || !state.set.follows(&known) {
            return Err(AuthorityError::NotOurs);
        }
        if known.previous() == Some(state.set.fingerprint()) {
            return Err(AuthorityError::Earlier);
        }
        self.change(state)?;
        Ok(true)
    }

    /// The authority's cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    fn state(&self) -> Arc<State> {
        Arc::clone(&self.state.read())
    }

    /// The authorities to trust now.
    #[must_use]
    pub fn set(&self) -> AuthoritySet {
        self.state().set.clone()
    }

    /// The fingerprint of the certificate of the authority that signs now.
    #[must_use]
    pub fn fingerprint(&self) -> Fingerprint {
        self.state().set.fingerprint()
    }

    /// The replacement that is under way.
    #[must_use]
    pub fn replacement(&self) -> Option<Replacement> {
        self.state().replacement.clone()
    }

    /// Replaces the key: from now on a new one signs, and both authorities are trusted. Durable on return.
    ///
    /// # Errors
    /// It is being replaced already, or the file cannot be written: then nothing has changed.
    pub fn rotate(&self, now: Timestamp) -> Result<(), AuthorityError> {
        let _changing = self.changing.lock();
        let old = self.state();
        if let Some(replacement) = &old.replacement {
            return Err(AuthorityError::IsReplacing { since: replacement.began });
        }
        let key = KeyPair::generate_for(&PKCS_ED25519)?;
        let mut params = params(self.cluster);
        limit(&mut params, now, AUTHORITY_VALIDITY)?;
        let current = params.self_signed(&key)?.der().clone();
        params.serial_number = Some(serial()?);
        let voucher = params.signed_by(&key, &old.issuer)?.der().clone();
        let set = AuthoritySet::following(current, voucher, old.set.current().clone());
        let replacement = Some(Replacement { began: now, renewed: BTreeSet::new() });
        self.change(State { set, issuer: Issuer::new(params, key), replacement })
    }

    /// Records that the certificate of `node` is of the new authority. Durable on return. Does nothing if that is known, or nothing is replaced.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn note_renewed(&self, node: NodeId) -> Result<(), AuthorityError> {
        let is_news = |state: &State| state.replacement.as_ref().is_some_and(|one| !one.renewed.contains(&node));
        if !is_news(&self.state()) {
            return Ok(());
        }
        let _changing = self.changing.lock();
        let now = self.state();
        let Some(replacement) = now.replacement.as_ref().filter(|_| is_news(&now)) else { return Ok(()) };
        let mut replacement = replacement.clone();
        replacement.renewed.insert(node);
        self.change(State { set: now.set.clone(), issuer: again(self.cluster, &now)?, replacement: Some(replacement) })
    }

    /// Ends the replacement: the old authority is not trusted any more. Durable on return.
    ///
    /// # Errors
    /// Nothing is being replaced, or the file cannot be written: then nothing has changed.
    pub fn retire(&self) -> Result<(), AuthorityError> {
        let _changing = self.changing.lock();
        let now = self.state();
        if now.replacement.is_none() {
            return Err(AuthorityError::IsAlone);
        }
        let set = AuthoritySet::only(now.set.current().clone());
        self.change(State { set, issuer: again(self.cluster, &now)?, replacement: None })
    }

    /// The file comes first.
    fn change(&self, state: State) -> Result<(), AuthorityError> {
        state.write(&self.folder, self.cluster, Existing::Replace)?;
        *self.state.write() = Arc::new(state);
        Ok(())
    }

    /// Issues a certificate for `name` (which must be of this cluster) and the holder of the private part of `key`. It
    /// is valid until `validity` after `now`.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn issue(
        &self,
        name: &NodeName,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Issued, AuthorityError> {
        self.issue_by(&self.state(), name, key, now, validity)
    }

    fn issue_by(
        &self,
        state: &State,
        name: &NodeName,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Issued, AuthorityError> {
        if name.cluster != self.cluster {
            return Err(AuthorityError::Request("it is for another cluster"));
        }
        let uses = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = state.sign(&format!("weir node {}", name.node), name, uses, key, now, validity)?;
        Ok(Issued {
            name: *name,
            certificate,
            authority: state.set.clone(),
            expires: Timestamp::from_secs(now.plus(validity).secs()),
        })
    }

    /// Issues a certificate for the administrator `subject` (of this cluster) and the holder of the private part of
    /// `key`. It allows use by clients only.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub(crate) fn issue_admin(
        &self,
        subject: &AdminName,
        key: &[u8; 32],
        now: Timestamp,
        validity: Duration,
    ) -> Result<IssuedAdmin, AuthorityError> {
        if subject.cluster != self.cluster {
            return Err(AuthorityError::Request("it is for another cluster"));
        }
        let uses = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let common = format!("weir administrator {}", subject.id);
        let state = self.state();
        let certificate = state.sign(&common, subject, uses, key, now, validity)?;
        Ok(IssuedAdmin {
            name: *subject,
            certificate,
            authority: state.set.clone(),
            expires: Timestamp::from_secs(now.plus(validity).secs()),
        })
    }

    /// Issues a new certificate for the administrator `subject`. `request` is that of
    /// [`crate::NewKey::admin_renewal`], from a connection on which the administrator has shown the present one. Pass
    /// the result to [`crate::admin::AdminIdentity::renewed`].
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn renew_admin(
        &self,
        subject: &AdminName,
        request: &str,
        now: Timestamp,
        validity: Duration,
    ) -> Result<String, AuthorityError> {
        let key = keys::check_admin_renewal(subject, request).map_err(AuthorityError::Request)?;
        let issued = self.issue_admin(subject, &key, now, validity)?;
        let bytes = crate::message::encode(&issued.to_message());
        bytes.map(|bytes| STANDARD.encode(bytes)).map_err(|_| AuthorityError::Request("the answer cannot be written"))
    }

    /// Issues a new certificate for the node `name`. `request` holds the bytes of [`crate::NewKey::renewal`], from a
    /// connection on which the node has shown its present certificate. Pass the result to [`crate::Identity::renewed`].
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn renew(
        &self,
        name: &NodeName,
        request: &[u8],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Vec<u8>, AuthorityError> {
        let key = keys::check_renewal(name, request).map_err(AuthorityError::Request)?;
        self.issue(name, &key, now, validity)?.to_bytes()
    }

    /// Issues a new certificate, as [`Authority::renew`], for the node at the other end of a connection. The node is judged and the certificate signed by
    /// the authorities of one moment: whoever has the key of an authority that was replaced cannot use a connection of before to get a certificate of
    /// the new one. While the authority is being replaced, a node that has shown a certificate of the new one gets no second one by the old one.
    ///
    /// # Errors
    /// [`AuthorityError`].
    pub fn renew_peer(
        &self,
        peer: &PeerIdentity,
        request: &[u8],
        now: Timestamp,
        validity: Duration,
    ) -> Result<Vec<u8>, AuthorityError> {
        let (name, state) = (&peer.name, self.state());
        let key = keys::check_renewal(name, request).map_err(AuthorityError::Request)?;
        if !peer.is_trusted_by(&state.set) {
            return Err(AuthorityError::Retired);
        }
        let has_moved = state.replacement.as_ref().is_some_and(|one| one.renewed.contains(&name.node));
        if has_moved && peer.authority != Some(state.set.fingerprint()) {
            return Err(AuthorityError::HasMoved(name.node));
        }
        self.issue_by(&state, name, &key, now, validity)?.to_bytes()
    }
}

/// The key and name of this authority, once more: an issuer cannot be copied.
fn again(cluster: ClusterId, state: &State) -> Result<Issuer<'static, KeyPair>, AuthorityError> {
    let key = PrivatePkcs8KeyDer::from(state.issuer.key().serialized_der());
    Ok(Issuer::new(params(cluster), KeyPair::from_pkcs8_der_and_sign_algo(&key, &PKCS_ED25519)?))
}

/// Nodes as `2-5 7`. Nearly all nodes of a cluster renew their certificates, so this stays short however many there are.
fn ranges_of(nodes: &BTreeSet<NodeId>) -> String {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for NodeId(node) in nodes {
        match ranges.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*node) => *last = *node,
            _ => ranges.push((*node, *node)),
        }
    }
    let text = |(first, last): (u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    ranges.into_iter().map(text).collect::<Vec<_>>().join(" ")
}

/// The nodes of `nodes 2-5 7`.
fn nodes_of(text: &str) -> Option<BTreeSet<NodeId>> {
    let mut nodes = BTreeSet::new();
    for range in text.strip_prefix("nodes ")?.split(' ').filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        // No cluster has as many nodes, and they would fill the memory.
        if first > last || last - first >= RENEWED_MAX || nodes.len() as u64 >= RENEWED_MAX {
            return None;
        }
        nodes.extend((first..=last).map(NodeId));
    }
    Some(nodes)
}

fn file(folder: &Path) -> PathBuf {
    folder.join(FILE)
}

fn params(cluster: ClusterId) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = called(&format!("weir cluster {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
}

fn called(name: &str) -> DistinguishedName {
    let mut distinguished_name = DistinguishedName::new();
    distinguished_name.push(DnType::CommonName, name);
    distinguished_name
}

fn limit(params: &mut CertificateParams, now: Timestamp, validity: Duration) -> Result<(), RandomError> {
    let back = i64::try_from(CLOCKS_DIFFER.as_secs()).unwrap_or(0);
    params.not_before = date(now.secs().saturating_sub(back));
    params.not_after = date(now.plus(validity).secs());
    params.serial_number = Some(serial()?);
    Ok(())
}

fn serial() -> Result<SerialNumber, RandomError> {
    let mut bytes: [u8; 16] = random::bytes()?;
    // A positive number of this length.
    bytes[0] = bytes[0] & 0x7f | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

/// Converts seconds since 1970; every [`Timestamp`] is a valid date.
fn date(secs: i64) -> time::OffsetDateTime {
    time::OffsetDateTime::from_unix_timestamp(secs).unwrap_or(time::OffsetDateTime::UNIX_EPOCH)
}

/// The public key of a node or administrator. The authority never sees the private part.
struct PublicKey([u8; 32]);

impl PublicKeyData for PublicKey {
    fn der_bytes(&self) -> &[u8] {
        &self.0
    }

    fn algorithm(&self) -> &'static SignatureAlgorithm {
        &PKCS_ED25519
    }
}
