//! The authenticator.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;

use gsi::{BINDING_LEN, CERTIFICATES_MAX, HandshakeError, SessionKey};
use identity::{
    Credential, DelegatedProxy, HostName, Issuers, LoginName, Mapped, MappingQuestion, MappingRules, MatchedBy,
    Refusal, SecretCredential, TokenRights, UnverifiedToken,
};
use parking_lot::RwLock;
use sss::{Keytab, read_keytab};
use types::{IpNetwork, PrincipalName, Timestamp};

use crate::counters::{Counters, Snapshot};
use crate::grid_map_file::GridMapFile;
use crate::gsi_files::GsiFiles;
use crate::gsi_login::{GsiLogin, Requests};
use crate::issuer_keys::{IssuerKeys, authorities};
use crate::kerberos::{Kerberos, SeenTickets};
use crate::key_files::KeyFiles;
use crate::mapping_service::{MappingCounters, MappingService};
use crate::proxy_keys::ProxyKeys;
use crate::report::{self, Report, Trace};
use crate::secrets::SeenSecrets;
use crate::settings::Checked;
use crate::turns::{Turn, Turns};
use crate::{AuthenticationError, Clock, Mechanism, Mechanisms, Settings, SettingsError, SigningLevel};

/// Most groups that a client of `unix` can name.
pub const GROUPS_CLAIMED_MAX: usize = 64;
/// How often the keys of all issuers are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// A client that was let in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Authenticated {
    /// Its principal.
    pub name: PrincipalName,
    /// The groups. The first one becomes the group of new files.
    pub groups: Vec<PrincipalName>,
    /// What its token allows; `None` for other credentials. The permissions of the principal apply as well.
    pub rights: Option<TokenRights>,
    /// The credential, for logs and audit lines. It lets nobody in.
    pub credential: String,
    /// How it authenticated.
    pub mechanism: Mechanism,
    /// The rule that gave the principal.
    pub by: MatchedBy,
    /// From when on the credential does not count any more: the session must end, or get a new one.
    pub expires: Option<Timestamp>,
    /// What it signs requests with; `None`: its mechanism gives no key.
    pub session_key: Option<SessionKey>,
    /// A proxy with which this node can act as the client elsewhere, if the client has delegated one.
    pub delegated: Option<DelegatedProxy>,
    /// It has shown a limited proxy, or one that a limited one has signed. Storage takes these; they are handed to jobs.
    pub is_limited_proxy: bool,
    /// How many proxies its chain of certificates has. With more than one, the client is perhaps somebody to whom the user has delegated a proxy.
    pub proxies: usize,
}

/// The settings in use.
struct Current {
    mechanisms: Mechanisms,
    signing: SigningLevel,
    trusted_networks: Vec<IpNetwork>,
    issuers: Issuers,
    rules: MappingRules,
    grid_map: Option<GridMapFile>,
    keytab: Option<Keytab>,
    kerberos: Option<Kerberos>,
    mapping_service: Option<MappingService>,
    gsi: Option<Arc<GsiFiles>>,
}

struct Shared {
    clock: Arc<dyn Clock>,
    current: RwLock<Arc<Current>>,
    keys: Arc<IssuerKeys>,
    counters: Counters,
    seen_secrets: SeenSecrets,
    seen_tickets: SeenTickets,
    mapping_counters: Arc<MappingCounters>,
    turns: Turns,
    proxy_keys: ProxyKeys,
}

/// Turns what clients present into principals. Clones are the same authenticator.
#[derive(Clone)]
pub struct Authenticator(Arc<Shared>);

impl std::fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authenticator(..)")
    }
}

/// Keeps the keys of the issuers fresh until it is dropped.
#[derive(Debug)]
pub struct Refresher {
    _stop: Sender<()>,
}

impl Current {
    fn new(
        settings: Settings,
        Checked { issuers, rules }: Checked,
        clock: &Arc<dyn Clock>,
        counters: &Arc<MappingCounters>,
    ) -> Result<Self, SettingsError> {
        let Settings {
            mechanisms,
            signing,
            trusted_networks,
            grid_map,
            keytab,
            kerberos,
            mapping_service,
            gsi,
            trust,
            ..
        } = settings;
        let grid_map = grid_map.map(|path| GridMapFile::open(&path, clock.steady())).transpose()?;
        // The files of a mechanism that is not offered need not be there.
        let keytab = keytab.filter(|_| mechanisms.contains(Mechanism::Sss));
        let keytab = keytab.map(|path| read_keytab(&path)).transpose()?;
        let kerberos = kerberos.filter(|_| mechanisms.contains(Mechanism::Krb5));
        let kerberos = kerberos.map(|kerberos| Kerberos::open(&kerberos)).transpose()?;
        let gsi = gsi.filter(|_| mechanisms.contains(Mechanism::Gsi));
        let gsi = gsi.map(|gsi| GsiFiles::open(gsi, clock.steady()).map(Arc::new)).transpose()?;
        let service = mapping_service
            .map(|service| MappingService::new(&service, &trust, Arc::clone(clock), Arc::clone(counters)))
            .transpose()?;
        Ok(Self {
            mechanisms,
            signing,
            trusted_networks,
            issuers,
            rules,
            grid_map,
            keytab,
            kerberos,
            mapping_service: service,
            gsi,
        })
    }

    fn check_offered(&self, mechanism: Mechanism) -> Result<(), AuthenticationError> {
        if self.mechanisms.contains(mechanism) { Ok(()) } else { Err(AuthenticationError::NotOffered(mechanism)) }
    }

    /// Refuses clients of which nothing is known but what they say, unless they are on this machine or a trusted network.
    fn check_peer(&self, mechanism: Mechanism, peer: IpAddr) -> Result<(), AuthenticationError> {
        let peer = peer.to_canonical();
        let trusted = peer.is_loopback() || self.trusted_networks.iter().any(|network| network.contains(peer));
        if trusted { Ok(()) } else { Err(AuthenticationError::Peer { mechanism, peer }) }
    }
}

impl Authenticator {
    /// Checks the settings. Fetches nothing: see [`Self::keep_keys_fresh`].
    ///
    /// # Errors
    ///
    /// [`SettingsError`], which says what to change.
    pub fn new(settings: Settings, clock: Arc<dyn Clock>) -> Result<Self, SettingsError> {
        let checked = settings.check()?;
        let files = settings.key_cache.as_deref().map(KeyFiles::open).transpose()?;
        let authorities = authorities(settings.trust.clone(), &checked.issuers)?;
        let (times, fetch, seen_secrets) = (settings.times, settings.fetch, settings.seen_secrets.clone());
        let seen_tickets = settings.seen_tickets.clone();
        let mapping_counters = Arc::default();
        let current = Current::new(settings, checked, &clock, &mapping_counters)?;
        let keys = IssuerKeys::new(Arc::clone(&clock), times, fetch, files, &current.issuers, authorities)?;
        let current = RwLock::new(Arc::new(current));
        let seen_secrets = SeenSecrets::new(seen_secrets, &*clock);
        let seen_tickets = SeenTickets::new(seen_tickets, &*clock);
        let counters = Counters::default();
        Ok(Self(Arc::new(Shared {
            clock,
            current,
            keys,
            counters,
            seen_secrets,
            seen_tickets,
            mapping_counters,
            turns: Turns::new(),
            proxy_keys: ProxyKeys::new(),
        })))
    }

    /// Takes over changed settings, all or none of them. The keys of issuers that stay are kept. `key_cache` and the times
    /// stay as they are.
    ///
    /// # Errors
    ///
    /// [`SettingsError`]; the settings of before stay in use.
    pub fn reload(&self, settings: Settings) -> Result<(), SettingsError> {
        let checked = settings.check()?;
        let authorities = authorities(settings.trust.clone(), &checked.issuers)?;
        let new = Arc::new(Current::new(settings, checked, &self.0.clock, &self.0.mapping_counters)?);
        // Both under one lock: of two reloads, one wins in both.
        let mut current = self.0.current.write();
        self.0.keys.set_issuers(&new.issuers, authorities);
        *current = new;
        Ok(())
    }

    /// Fetches the keys of all issuers, and again before they are too old, on a thread that ends when the result is dropped.
    /// Without this, the first token of an issuer waits for its keys, and each refresh begins with a token. The thread also reads
    /// the files of `gsi` again.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub fn keep_keys_fresh(&self) -> io::Result<Refresher> {
        let (stop, stopped) = mpsc::channel();
        let authenticator = self.clone();
        let look = move || loop {
            authenticator.fetch_due_keys();
            if let Some(gsi) = &authenticator.current().gsi {
                gsi.refresh(authenticator.steady());
                if gsi.get().delegation {
                    authenticator.proxy_keys().refill();
                }
            }
            if stopped.recv_timeout(LOOK_EVERY) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        };
        std::thread::Builder::new().name("keys-refresher".into()).spawn(look)?;
        Ok(Refresher { _stop: stop })
    }

    /// Begins to fetch the keys that are due, as [`Self::keep_keys_fresh`] does every 10 seconds. It does not wait.
    pub fn fetch_due_keys(&self) {
        self.0.keys.fetch_due();
    }

    /// The mechanisms that are offered, in their order.
    #[must_use]
    pub fn mechanisms(&self) -> Mechanisms {
        self.current().mechanisms.clone()
    }

    /// Which requests clients must sign that have a key.
    #[must_use]
    pub fn signing(&self) -> SigningLevel {
        self.current().signing
    }

    /// Whether a client at `peer` may authenticate by `mechanism`. Offer it no other.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError::NotOffered`] and [`AuthenticationError::Peer`].
    pub fn check_mechanism(&self, mechanism: Mechanism, peer: IpAddr) -> Result<(), AuthenticationError> {
        let current = self.current();
        current.check_offered(mechanism)?;
        if mechanism.is_proof() { Ok(()) } else { current.check_peer(mechanism, peer) }
    }

    /// A client at `peer` with a bearer token: its text, without `Bearer ` before it. The caller takes tokens over TLS only. If
    /// the issuer's key is not known yet, this waits for it, up to [`FetchTimes::wait`](crate::FetchTimes::wait).
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn token(&self, text: &[u8], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let result = self.verify_token(text, Some(peer), Trace(None));
        self.counted(Mechanism::Ztn, result)
    }

    /// What [`Self::token`] does with a token, step by step. It does not count as a login. A mapping service may want to know
    /// where the client is.
    #[must_use]
    pub fn explain_token(&self, text: &[u8], peer: Option<IpAddr>) -> Report {
        let mut steps = Vec::new();
        let result = self.verify_token(text, peer, Trace(Some(&mut steps)));
        Report { steps, result }
    }

    /// A client that says it is the local user `login`, with these groups. Nothing of this is proved, so it must be on this
    /// machine or in a trusted network. The groups count where a rule has `{groups}`.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn unix(&self, login: &str, groups: &[&str], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let login = || {
            let current = self.current();
            current.check_offered(Mechanism::Unix)?;
            current.check_peer(Mechanism::Unix, peer)?;
            if groups.len() > GROUPS_CLAIMED_MAX {
                return Err(AuthenticationError::TooManyGroups(groups.len()));
            }
            let groups = groups.iter().map(|group| LoginName::parse(group)).collect::<Result<_, _>>()?;
            let credential = Credential::LocalUser { name: LoginName::parse(login)?, groups };
            self.admit(&current, Mechanism::Unix, &credential, Some(peer), &mut Trace(None))
        };
        self.counted(Mechanism::Unix, login())
    }

    /// The user `login` of this machine, in these groups, as the kernel and this machine's files say. Unlike [`Self::unix`] this is proved, so it needs no
    /// mechanism that is offered. It does not count as a login. A group whose name cannot be one here, such as one with a blank, does not count.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn local_user(&self, login: &str, groups: &[String]) -> Result<Authenticated, AuthenticationError> {
        let groups = groups.iter().filter_map(|group| LoginName::parse(group).ok()).collect();
        let credential = Credential::LocalUser { name: LoginName::parse(login)?, groups };
        self.admit(&self.current(), Mechanism::Unix, &credential, None, &mut Trace(None))
    }

    /// Like [`Self::token`], again for the same client. It does not count as another login.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn token_again(&self, text: &[u8], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        self.verify_token(text, Some(peer), Trace(None))
    }

    /// A client at `peer` that shows by a credential of `sss` that it has a shared secret.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule. It does not say which secrets there are.
    pub fn secret(&self, credential: &[u8], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let login = || {
            let current = self.current();
            current.check_offered(Mechanism::Sss)?;
            let keytab = current.keytab.as_ref().ok_or(AuthenticationError::NotOffered(Mechanism::Sss))?;
            let shown = self.0.seen_secrets.verify(keytab, credential, peer, &*self.0.clock)?;
            let authenticated =
                self.admit(&current, Mechanism::Sss, &shown.credential, Some(peer), &mut Trace(None))?;
            self.0.seen_secrets.note(shown, &*self.0.clock)?;
            Ok(authenticated)
        };
        self.counted(Mechanism::Sss, login())
    }

    /// A client at `peer` that shows by a credential of `krb5` that it has a Kerberos ticket for this node.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn ticket(&self, credential: &[u8], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let login = || {
            let current = self.current();
            let kerberos = current.kerberos.as_ref().ok_or(AuthenticationError::NotOffered(Mechanism::Krb5))?;
            // The turn ends before a mapping service is asked.
            let shown = {
                let _turn = self.turn()?;
                kerberos.verify(credential, peer, self.wall())?
            };
            let credential = &shown.credential;
            let mut authenticated = self.admit(&current, Mechanism::Krb5, credential, Some(peer), &mut Trace(None))?;
            authenticated.expires = Some(shown.expires);
            self.0.seen_tickets.note(shown, &*self.0.clock)?;
            Ok(authenticated)
        };
        self.counted(Mechanism::Krb5, login())
    }

    /// The principal of this node in Kerberos, which clients of `krb5` need a ticket for; `None`: the mechanism is not offered.
    #[must_use]
    pub fn kerberos_service(&self) -> Option<String> {
        Some(self.current().kerberos.as_ref()?.service())
    }

    /// A client at `peer`, which must be on this machine or in a trusted network. `name` is the name of its host if the caller
    /// has looked it up, never what the client says; without one, its address stands for the host.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn host(&self, name: Option<&str>, peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let login = || {
            let current = self.current();
            current.check_offered(Mechanism::Host)?;
            current.check_peer(Mechanism::Host, peer)?;
            let address = peer.to_canonical().to_string();
            let credential = Credential::Host(HostName::parse(name.unwrap_or(&address))?);
            self.admit(&current, Mechanism::Host, &credential, Some(peer), &mut Trace(None))
        };
        self.counted(Mechanism::Host, login())
    }

    /// What the offer of `gsi` to a client says, behind `&P=gsi,`; `None`: it is not offered.
    #[must_use]
    pub fn gsi_parameters(&self) -> Option<String> {
        let current = self.current();
        Some(current.gsi.as_ref()?.get().secret.parameters())
    }

    /// The login of a client at `peer` with a certificate, which takes several rounds. `requests`: those after it.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError::NotOffered`].
    pub fn gsi(&self, peer: IpAddr, requests: Requests) -> Result<GsiLogin, AuthenticationError> {
        let gsi = self.current().gsi.clone().ok_or(AuthenticationError::NotOffered(Mechanism::Gsi))?;
        Ok(GsiLogin::new(self.clone(), gsi.get(), self.steady(), (peer, requests)))
    }

    /// A client at `peer` that shows certificates on a connection of TLS, and with `signature` that it has the key of the first one. `binding`: the
    /// value that both ends of the connection know, and nobody else. What counts is as in [`Self::gsi`], in one step.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn holder(
        &self,
        certificates: &[Vec<u8>],
        signature: &[u8],
        binding: &[u8; BINDING_LEN],
        peer: IpAddr,
    ) -> Result<Authenticated, AuthenticationError> {
        let check = || -> Result<Authenticated, AuthenticationError> {
            if self.current().gsi.is_none() {
                return Err(AuthenticationError::NotOffered(Mechanism::Gsi));
            }
            let first = certificates.first().ok_or(HandshakeError::Certificates(0))?;
            if certificates.len() > CERTIFICATES_MAX {
                return Err(HandshakeError::Certificates(certificates.len()).into());
            }
            {
                let _turn = self.turn()?;
                gsi::check_possession(first, binding, signature)?;
            }
            self.holder_again(certificates, peer)
        };
        self.counted(Mechanism::Gsi, check())
    }

    /// The client that [`Self::holder`] has let in with these certificates, again: the signature is not checked once more, but what may have
    /// changed since is. It does not count as another login.
    ///
    /// # Errors
    ///
    /// [`AuthenticationError`], which says by what rule.
    pub fn holder_again(&self, certificates: &[Vec<u8>], peer: IpAddr) -> Result<Authenticated, AuthenticationError> {
        let gsi = self.current().gsi.clone().ok_or(AuthenticationError::NotOffered(Mechanism::Gsi))?;
        self.certificates(certificates, &gsi.get().trust, peer)
    }

    /// The end of a [`GsiLogin`]: the client holds the key of the first certificate.
    pub(crate) fn certificates(
        &self,
        certificates: &[Vec<u8>],
        trust: &grid::Trust,
        peer: IpAddr,
    ) -> Result<Authenticated, AuthenticationError> {
        self.verify_certificates(certificates, trust, Some(peer), Trace(None))
    }

    /// What a login with these certificates does (in PEM form, as in the file of a proxy), step by step. Whether the client
    /// holds the key is not looked at. It does not count as a login. `peer`: where from, if that is known.
    #[must_use]
    pub fn explain_certificates(&self, text: &[u8], peer: Option<IpAddr>) -> Report {
        let mut steps = Vec::new();
        let mut trace = Trace(Some(&mut steps));
        let gsi = self.current().gsi.clone().ok_or(AuthenticationError::NotOffered(Mechanism::Gsi));
        let gsi = trace.step("mechanism", gsi, |_| "certificates are accepted (gsi)".into());
        let result = gsi.and_then(|gsi| {
            let files = gsi.get();
            let certificates = grid::certificates_from_pem(text)?;
            self.verify_certificates(&certificates, &files.trust, peer, trace)
        });
        Report { steps, result }
    }

    pub(crate) fn wall(&self) -> Timestamp {
        self.0.clock.wall()
    }

    /// Waits until the caller may compute with keys for a stranger.
    pub(crate) fn turn(&self) -> Result<Turn<'_>, AuthenticationError> {
        self.0.turns.take().ok_or(AuthenticationError::Busy)
    }

    /// The keys for delegated proxies.
    pub(crate) fn proxy_keys(&self) -> &ProxyKeys {
        &self.0.proxy_keys
    }

    pub(crate) fn steady(&self) -> Duration {
        self.0.clock.steady()
    }

    fn verify_certificates(
        &self,
        certificates: &[Vec<u8>],
        trust: &grid::Trust,
        peer: Option<IpAddr>,
        mut trace: Trace<'_>,
    ) -> Result<Authenticated, AuthenticationError> {
        let current = self.current();
        // The turn ends before a mapping service is asked.
        let verified = {
            let _turn = self.turn()?;
            grid::verify_user(certificates, trust, self.wall())
        };
        let user = trace.step("chain", verified, report::grid_user)?;
        for problem in &user.refused_attributes {
            tracing::warn!(subject = %user.subject, "a VOMS attribute does not count: {problem}");
        }
        let (expires, is_limited_proxy, proxies) = (user.not_after, user.limited, user.proxies);
        let credential = Credential::Certificate { subject: user.subject, attributes: user.fqans };
        let mut authenticated = self.admit(&current, Mechanism::Gsi, &credential, peer, &mut trace)?;
        authenticated.expires = Some(expires);
        (authenticated.is_limited_proxy, authenticated.proxies) = (is_limited_proxy, proxies);
        Ok(authenticated)
    }

    /// What happened so far.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        let mapping_service = self.current().mapping_service.is_some().then(|| self.0.mapping_counters.status());
        let takes_secrets = self.current().mechanisms.contains(Mechanism::Sss);
        let gsi = self.current().gsi.clone();
        Snapshot {
            unusable_authorities: gsi.map(|gsi| gsi.get().unusable_authorities),
            unusable_tls_authorities: self.unusable_tls_authorities(),
            logins: self.0.counters.logins(),
            issuers: self.0.keys.status(),
            mapping_service,
            too_many_failures: takes_secrets.then(|| self.0.seen_secrets.too_many_failures()),
        }
    }

    /// Those for issuers and for the mapping service are the same, read at different times.
    fn unusable_tls_authorities(&self) -> usize {
        let of_service = self.current().mapping_service.as_ref().map_or(0, MappingService::unusable_authorities);
        self.0.keys.unusable_authorities().max(of_service)
    }

    fn current(&self) -> Arc<Current> {
        Arc::clone(&self.0.current.read())
    }

    pub(crate) fn counted(
        &self,
        mechanism: Mechanism,
        result: Result<Authenticated, AuthenticationError>,
    ) -> Result<Authenticated, AuthenticationError> {
        self.0.counters.count(mechanism, result.is_ok());
        result
    }

    fn verify_token(
        &self,
        text: &[u8],
        peer: Option<IpAddr>,
        mut trace: Trace<'_>,
    ) -> Result<Authenticated, AuthenticationError> {
        let current = self.current();
        trace.step("mechanism", current.check_offered(Mechanism::Ztn), |()| "tokens are accepted (ztn)".into())?;
        let token = trace.step("token", UnverifiedToken::parse(text), report::claims)?;
        let issuer =
            trace.step("issuer", token.issuer(&current.issuers), |issuer| format!("{}, trusted", issuer.url()))?;
        let keys = trace.step("key", self.0.keys.get(issuer.url(), token.key_id()), |keys| {
            format!("one of {} that the issuer published {} s ago", keys.keys.keys().len(), keys.age.as_secs())
        })?;
        // After the wait for the keys: the token may have expired meanwhile.
        let verified = token.verify(issuer, &keys.keys, self.0.clock.wall());
        let credential = Credential::Token(Box::new(trace.verified(&token, verified)?));
        self.admit(&current, Mechanism::Ztn, &credential, peer, &mut trace)
    }

    /// The principal of a client that has shown who it is.
    fn admit(
        &self,
        current: &Current,
        mechanism: Mechanism,
        credential: &Credential,
        peer: Option<IpAddr>,
        trace: &mut Trace<'_>,
    ) -> Result<Authenticated, AuthenticationError> {
        let mapped = self.map(current, credential, peer, trace)?;
        let (rights, expires) = match credential {
            Credential::Token(token) => (Some(token.rights.clone()), Some(token.expires)),
            Credential::Secret(SecretCredential { expires, .. }) => (None, *expires),
            _ => (None, None),
        };
        let rights = trace.step("rights", Ok::<_, AuthenticationError>(rights), report::rights)?;
        Ok(Authenticated {
            name: mapped.principal,
            groups: mapped.groups,
            rights,
            credential: report::credential(credential),
            mechanism,
            by: mapped.by,
            expires,
            session_key: None,
            delegated: None,
            is_limited_proxy: false,
            proxies: 0,
        })
    }

    /// Who a credential stands for: the rules say it, and for what they do not know the mapping service. So what is in the rules
    /// holds whatever the service says, and also while it is away.
    fn map(
        &self,
        current: &Current,
        credential: &Credential,
        peer: Option<IpAddr>,
        trace: &mut Trace<'_>,
    ) -> Result<Mapped, AuthenticationError> {
        let grid_map = current.grid_map.as_ref().map(|file| file.get(self.0.clock.steady()));
        let by_rule = current.rules.map(credential, grid_map.as_deref());
        let unknown = matches!(by_rule, Err(Refusal::NoRule { .. }));
        let question = MappingQuestion::new(credential, peer).filter(|_| unknown);
        let (Some(service), Some(question)) = (&current.mapping_service, question) else {
            return trace.step("identity", by_rule, report::mapped);
        };
        trace.step("identity", Ok::<_, AuthenticationError>(()), |()| {
            "no [[identity]] matches: the mapping service is asked".into()
        })?;
        let answer = match service.ask(&question, peer) {
            Ok(Ok(mapped)) => Ok(mapped),
            Ok(Err(reason)) => {
                Err(AuthenticationError::RefusedByService { credential: credential.to_string(), reason })
            }
            Err(error) => Err(error.into()),
        };
        trace.step("service", answer, report::mapped)
    }
}
