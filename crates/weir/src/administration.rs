//! A manager's connections of administrators, and of people with tokens and certificates of the grid: that each may still act, and has a place.

use std::sync::Arc;
use std::time::Duration;

use control::remote::{CertificateRequest, ShownCertificates, TokenRequest};
use control::{Answers, Caller, Person, Reply, gate};
use link::admin::{AdminError, AdminHandler, AdminName, AdminStream};
use link::{Authority, UnidentifiedConnection};
use manager::administrators::Administrators;

use crate::cluster_node::now;
use crate::open_connections::{Holder, OpenConnections};
use crate::people::{People, Unknown};

/// Short, because a program writes a request as one line at once.
const REQUEST_TIME: Duration = Duration::from_secs(5);

/// Serves administrators' connections.
pub(crate) struct Administration {
    pub(crate) authority: Arc<Authority>,
    pub(crate) administrators: Arc<Administrators>,
    pub(crate) people: Arc<People>,
    pub(crate) open: Arc<OpenConnections>,
    pub(crate) answers: Answers,
    /// Takes the lines about changes, and about those that are not let in.
    pub(crate) log: audit::Log,
}

impl AdminHandler for Administration {
    fn serve(&self, who: AdminName, mut stream: AdminStream, stranger: UnidentifiedConnection) {
        let peer = stream.address();
        let shown = stream.shown();
        let admitted = || {
            // The certificate was valid when the connection was opened, and the authority may have been retired since.
            let is_trusted = shown.as_ref().is_some_and(|shown| shown.is_trusted_by(&self.authority.set()));
            if !is_trusted {
                return Err(AdminError::OldAuthority);
            }
            self.administrators.admit(who.id, now())
        };
        let refused = |error: &AdminError, held_back: u64| {
            tracing::warn!(id = %who.id, %peer, %error, held_back, "somebody with an administrator's certificate was refused");
            self.log.write(audit::Record {
                event: audit::Event::Login,
                operation: "login".into(),
                result: audit::Outcome::Denied,
                reason: Some(error.to_string().into()),
                mechanism: Some("administrator's certificate".into()),
                credential: Some(format!("certificate of {}", who.id).into()),
                address: Some(peer.to_string().into()),
                ..audit::Record::default()
            });
        };
        // Asked first, so that somebody whose access has ended takes nobody's place. Such a connection stays a stranger's until it has ended, and
        // shares the lines of strangers in the log: the certificate alone lets its holder come as often as they like.
        if let Err(error) = admitted() {
            if let Some(held_back) = stranger.may_be_logged() {
                refused(&error, held_back);
            }
            let _ = gate::say(&mut stream, &Reply::Denied(error.to_string()));
            stream.end();
            return;
        }
        let Some(_counted) = self.open.enter(Holder::Administrator(who.id), stream.cutter()) else {
            let _ = gate::say(&mut stream, &Reply::Refused(gate::TOO_MANY.into()));
            stream.end();
            return;
        };
        // Counted there from now on.
        drop(stranger);
        stream.read_within(REQUEST_TIME);
        // Asked again when the request is here, and the connection is in the list that a revocation ends: none slips through.
        let caller = || match admitted() {
            Ok(record) => Ok(Caller::Remote { id: who.id, name: record.name, role: record.role, peer }),
            Err(error) => {
                refused(&error, 0);
                Err(Reply::Denied(error.to_string()))
            }
        };
        let served =
            gate::read(&mut stream).and_then(|line| gate::serve(&line, &mut stream, caller, &self.answers, &self.log));
        match served {
            Ok(()) => stream.end(),
            Err(error) => tracing::debug!(%peer, "an administrator's connection ended: {error}"),
        }
    }

    fn serve_with_token(&self, stream: AdminStream, stranger: UnidentifiedConnection) {
        let peer = stream.address();
        let read = |line: &[u8]| TokenRequest::of_line(line).map(|asked| (asked.request_line(), asked.token));
        let person = |token: &String, again| self.people.bearer(token, peer, again);
        self.serve_person(stream, stranger, Shows { what: "a token", mechanism: "ztn" }, read, person);
    }

    fn serve_with_certificate(&self, stream: AdminStream, stranger: UnidentifiedConnection) {
        let peer = stream.address();
        let binding = match stream.binding() {
            Ok(binding) => binding,
            Err(error) => return tracing::debug!(%peer, "a connection with a certificate ended: {error}"),
        };
        let read = |line: &[u8]| CertificateRequest::of_line(line).map(|(shown, request)| (request, shown));
        let person = |shown: &ShownCertificates, again| self.people.holder(shown, &binding, peer, again);
        self.serve_person(stream, stranger, Shows { what: "a certificate", mechanism: "gsi" }, read, person);
    }
}

/// How a person shows who it is, for texts and for the audit log.
#[derive(Clone, Copy)]
struct Shows {
    what: &'static str,
    mechanism: &'static str,
}

impl Administration {
    /// Serves a person. `read` takes the line of the request and the credential from the line that was sent, and `person` finds out whose credential it
    /// is. It is told whether it has done that before.
    fn serve_person<C>(
        &self,
        mut stream: AdminStream,
        stranger: UnidentifiedConnection,
        Shows { what, mechanism }: Shows,
        read: impl Fn(&[u8]) -> Option<(Vec<u8>, C)>,
        person: impl Fn(&C, bool) -> Result<Person, Unknown>,
    ) {
        let peer = stream.address();
        stream.read_within(REQUEST_TIME);
        let (request, credential) = match gate::read(&mut stream).map(|line| read(&line)) {
            Ok(Some(asked)) => asked,
            Ok(None) => {
                let why = format!(
                    "the manager does not understand this request with {what}; is the command of the same version?"
                );
                let _ = gate::say(&mut stream, &Reply::Refused(why));
                return stream.end();
            }
            Err(error) => return tracing::debug!(%peer, "a connection with {what} ended: {error}"),
        };
        let refused = |unknown: &Unknown, held_back: u64| {
            let why = unknown.for_log.as_str();
            tracing::warn!(%peer, reason = why, held_back, "somebody with {what} was refused");
            // Nobody was denied anything who is to come again.
            if unknown.is_busy {
                return;
            }
            self.log.write(audit::Record {
                event: audit::Event::Login,
                operation: "login".into(),
                result: audit::Outcome::Denied,
                reason: Some(why.to_owned().into()),
                mechanism: Some(mechanism.into()),
                address: Some(peer.to_string().into()),
                ..audit::Record::default()
            });
        };
        // A stranger until the credential is accepted. Strangers share their lines in the log.
        let known = match person(&credential, false) {
            Ok(known) => known,
            Err(unknown) => {
                if let Some(held_back) = stranger.may_be_logged() {
                    refused(&unknown, held_back);
                }
                let _ = gate::say(&mut stream, &unknown.reply());
                return stream.end();
            }
        };
        let Some(_counted) = self.open.enter(Holder::of(&known), stream.cutter()) else {
            let _ = gate::say(&mut stream, &Reply::Refused(gate::TOO_MANY.into()));
            return stream.end();
        };
        drop(stranger);
        // Asked again now that the connection is in the list that a reload ends: no role that was taken away slips through.
        let caller = || match person(&credential, true) {
            Ok(person) => Ok(Caller::Person(Box::new(person))),
            Err(unknown) => {
                refused(&unknown, 0);
                Err(unknown.reply())
            }
        };
        match gate::serve(&request, &mut stream, caller, &self.answers, &self.log) {
            Ok(()) => stream.end(),
            Err(error) => tracing::debug!(%peer, "the connection of a person with {what} ended: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;
    use std::thread::JoinHandle;
    use std::time::Instant;

    use ::client::{CertificateSource, UserCertificate};
    use authentication::{Authenticator, SystemClock};
    use control::ControlRequest;
    use control::client::AskError;
    use control::remote::{Certificates, ask_with_certificates};

    use link::admin::{
        AdminId, AdminIdentity, AdminRecord, AdminRole, AdminService, TrustedCluster, connect_admin,
        connect_with_certificate,
    };
    use link::{
        Credentials, Identity, IncomingHeader, Listener, LocalNode, OtherServices, Peer, PeerIdentity, Received, Roles,
        Settings,
    };
    use types::{ClusterId, NodeId};

    use super::*;
    use crate::open_connections::{
        OF_ONE_MAX, OF_ONE_WITH_ROLE_MAX, OF_ONE_WITHOUT_ROLE_MAX, WITH_CERTIFICATE_MAX, WITH_ROLE_MAX,
        WITHOUT_ROLE_MAX,
    };

    const DAY: Duration = Duration::from_secs(86_400);
    const SOON: Duration = Duration::from_secs(20);

    /// No node comes here.
    struct NoNodes;

    impl link::Handler for NoNodes {
        type Buffer = Vec<u8>;

        fn buffer(&self, _: &PeerIdentity, _: &IncomingHeader<'_>) -> Option<Vec<u8>> {
            None
        }

        fn received(&self, _: &Peer<Vec<u8>>, _: Received<Vec<u8>>) {}
    }

    /// A manager with two administrators: one who may act, and one who was revoked.
    struct Site {
        folder: tempfile::TempDir,
        authority: Arc<Authority>,
        listener: Arc<Listener>,
        open: Arc<OpenConnections>,
        thread: Option<JoinHandle<()>>,
    }

    /// Takes certificates of the authority in the data of the tests of `gsi`.
    fn people(folder: &Path, takes_certificates: bool) -> Arc<People> {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsi/tests/data");
        let keep = |name: &str, from: &str, mode| {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, fs::read(data.join(from)).unwrap()).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            path.display().to_string()
        };
        let (certificate, key) = (keep("host.pem", "server.pem", 0o644), keep("host.key", "server.key", 0o600));
        keep("authorities/e93ab527.0", "ca.pem", 0o644);
        let authorities = folder.join("authorities");
        let file = folder.join("weir.toml");
        let text = format!(
            "tls.certificate = '{certificate}'\ntls.key = '{key}'\nauthentication.mechanisms = ['gsi']\nauthentication.gsi_authorities = '{}'\n[[identity]]\ncertificate = '/DC=org/DC=example/CN=ana'\nprincipal = 'ana'\n",
            authorities.display()
        );
        fs::write(&file, text).unwrap();
        let config = config::Config::load(Some(file.as_path())).unwrap();
        let settings = authentication::Settings { key_cache: None, ..config.authentication() };
        let authenticator = Authenticator::new(settings, Arc::new(SystemClock::default())).unwrap();
        People::clients_of(authenticator, takes_certificates)
    }

    const ACTIVE: AdminId = AdminId([1; 16]);
    const REVOKED: AdminId = AdminId([2; 16]);

    impl Site {
        fn new() -> Self {
            Self::with(|_| People::nobody())
        }

        fn with(people: impl FnOnce(&Path) -> Arc<People>) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let authority = Arc::new(Authority::create(folder.path(), ClusterId(1), now()).unwrap());
            let record = |id, revoked| AdminRecord {
                id,
                name: "alice".into(),
                role: AdminRole::Viewer,
                invited: now(),
                invited_by: "root".into(),
                hash: [0; 32],
                invitation_ends: now().plus(DAY),
                access_ends: None,
                key: Some([0; 32]),
                certificate_ends: Some(now().plus(DAY)),
                revoked,
            };
            let records = vec![record(ACTIVE, None), record(REVOKED, Some(now()))];
            let administrators = Arc::new(Administrators::new(records, Box::new(|_| Ok(()))));
            let open = Arc::new(OpenConnections::default());
            let administration = Administration {
                authority: Arc::clone(&authority),
                administrators: Arc::clone(&administrators),
                open: Arc::clone(&open),
                people: people(folder.path()),
                answers: Answers::new(|_, _| Reply::Done(serde_json::json!("done"))),
                log: audit::Log::off(),
            };
            let service = AdminService {
                authority: Arc::clone(&authority),
                store: administrators,
                handler: Arc::new(administration),
                on_admission: Arc::new(|_| ()),
            };
            let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
            let identity = Identity::issue(&authority, NodeId(1), Roles::MANAGER, now(), DAY).unwrap();
            let us = LocalNode::new(Arc::new(Credentials::new(&identity).unwrap()), Settings::default());
            let (others, serving) =
                (OtherServices { join: None, admin: Some(Arc::new(service)) }, Arc::clone(&listener));
            let thread = std::thread::spawn(move || serving.serve(&us, &Arc::new(NoNodes), &others));
            Self { folder, authority, listener, open, thread: Some(thread) }
        }

        fn connect(&self, id: AdminId) -> AdminStream {
            let address = self.listener.address().to_string();
            let subject = AdminName { cluster: ClusterId(1), id };
            let identity = AdminIdentity::issue(&self.authority, subject, vec![address.clone()], now(), DAY).unwrap();
            connect_admin(&identity, &address, &Settings::default(), SOON).unwrap()
        }
    }

    impl Drop for Site {
        fn drop(&mut self) {
            self.listener.stop();
            self.thread.take().unwrap().join().unwrap();
        }
    }

    #[test]
    fn who_may_not_act_stays_a_stranger_until_the_end() {
        let site = Site::new();
        // The manager waits for its end, but not long: on a slow machine it may be over before anybody looks.
        let is_seen = (0..5).any(|_| {
            let mut stream = site.connect(REVOKED);
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            assert!(said.contains("was revoked") && said.contains("\"denied\":true"), "{said}");
            site.listener.unidentified() == 1
        });
        assert!(is_seen, "nothing counts the connections of somebody who was revoked");
    }

    /// Somebody who signs another connection than this one, if there is one.
    struct Signer(UserCertificate, Option<[u8; 32]>);

    impl Certificates for Signer {
        fn chain(&self) -> &[Vec<u8>] {
            self.0.chain()
        }

        fn sign(&self, binding: &[u8; 32]) -> Result<Vec<u8>, String> {
            self.0.sign(&self.1.unwrap_or(*binding))
        }
    }

    #[test]
    fn a_certificate_counts_on_the_connection_that_its_holder_has_signed() {
        let site = Site::with(|folder| people(folder, true));
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsi/tests/data");
        let key = site.folder.path().join("user.key");
        fs::copy(data.join("user.key"), &key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let source = CertificateSource::Certificate { certificate: data.join("user.pem"), key };
        let user = UserCertificate::of(&source).unwrap();
        let address = site.listener.address().to_string();
        let cluster = TrustedCluster { authority: site.authority.fingerprint(), managers: vec![address.clone()] };
        let elsewhere = connect_with_certificate(&cluster, &address, &Settings::default(), SOON).unwrap();
        let ask = |signed| {
            let signer = Signer(user.clone(), signed);
            let asked = ask_with_certificates("lab", &cluster, &signer, &ControlRequest::Stores, "a hint");
            asked.map(drop).map_err(|error| match error {
                AskError::Denied(why) => why,
                other => panic!("{other}"),
            })
        };
        // Here it counts: she is known, and has no role.
        let why = ask(None).unwrap_err();
        assert!(why.contains("ana has no role") && why.ends_with("; a hint"), "{why}");
        for wrong in [elsewhere.binding().unwrap(), [0; 32]] {
            let why = ask(Some(wrong)).unwrap_err();
            assert!(why.contains("has not signed this connection"), "{why}");
        }
    }

    #[test]
    fn a_manager_that_takes_no_certificates_names_the_setting() {
        let site = Site::with(|folder| people(folder, false));
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../gsi/tests/data");
        let key = site.folder.path().join("user.key");
        fs::copy(data.join("user.key"), &key).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
        let source = CertificateSource::Certificate { certificate: data.join("user.pem"), key };
        let signer = Signer(UserCertificate::of(&source).unwrap(), None);
        let address = site.listener.address().to_string();
        let cluster = TrustedCluster { authority: site.authority.fingerprint(), managers: vec![address] };
        let why = ask_with_certificates("lab", &cluster, &signer, &ControlRequest::Stores, "").err().unwrap();
        assert!(matches!(&why, AskError::Denied(why) if why.contains("administration.certificates = true")), "{why}");
    }

    #[test]
    fn people_without_a_role_take_no_place_of_administrators() {
        let site = Site::new();
        let stream = site.connect(ACTIVE);
        let enter = |holder: &Holder| site.open.enter(holder.clone(), stream.cutter());
        let person = |number: usize, has_role| Holder::Person(format!("p{number}"), has_role);
        let without: Vec<_> = (0..100).filter_map(|number| enter(&person(number % 50, false))).collect();
        assert_eq!(without.len(), WITHOUT_ROLE_MAX);
        drop(without);
        let of_one: Vec<_> = (0..100).filter_map(|_| enter(&person(1, false))).collect();
        assert_eq!(of_one.len(), OF_ONE_WITHOUT_ROLE_MAX);
        let with: Vec<_> = (0..100).filter_map(|_| enter(&person(1, true))).collect();
        assert_eq!(with.len(), OF_ONE_WITH_ROLE_MAX, "they are others than the same person without the role");
        drop((of_one, with));
        // Those with a role leave the places of administrators with certificates free.
        let with: Vec<_> = (0..100).filter_map(|number| enter(&person(number, true))).collect();
        assert_eq!(with.len(), WITH_ROLE_MAX);
        let certificate = |number: u8| enter(&Holder::Administrator(AdminId([number; 16])));
        let of_one: Vec<_> = (0..100).filter_map(|_| certificate(9)).collect();
        assert_eq!(of_one.len(), OF_ONE_MAX);
        let all: Vec<_> = (10..100).filter_map(certificate).collect();
        // The connection of the test itself is one of an administrator; the manager may not have seen it yet.
        let places = of_one.len() + all.len();
        assert!((WITH_CERTIFICATE_MAX - 1..=WITH_CERTIFICATE_MAX).contains(&places), "{places}");
    }

    #[test]
    fn a_manager_that_takes_no_tokens_says_so() {
        let site = Site::new();
        let address = site.listener.address().to_string();
        let trusted = link::admin::TrustedCluster { authority: site.authority.fingerprint(), managers: vec![address] };
        for line in ["{\"token\":\"a.b.c\",\"request\":{\"ask\":\"stores\"}}\n", "{\"ask\":\"stores\"}\n", "\n"] {
            let settings = Settings::default();
            let mut stream = link::admin::connect_with_token(&trusted, &trusted.managers[0], &settings, SOON).unwrap();
            stream.write_all(line.as_bytes()).unwrap();
            let mut said = String::new();
            stream.read_to_string(&mut said).unwrap();
            let expected = if line.contains("token") { "takes no tokens" } else { "does not understand" };
            assert!(said.contains(expected) && !said.contains("a.b.c"), "{said}");
        }
    }

    #[test]
    fn a_connection_from_before_the_authority_was_retired_gets_no_answer_after_that() {
        let site = Site::new();
        let ask = |mut stream: AdminStream| {
            let sent = stream.write_all(b"{\"ask\":\"stores\"}\n");
            let mut said = String::new();
            sent.and_then(|()| stream.read_to_string(&mut said)).map(|_| said)
        };
        let are_there = |count: usize| {
            let began = Instant::now();
            while site.open.0.lock().1.len() != count {
                assert!(began.elapsed() < REQUEST_TIME, "{} are there", site.open.0.lock().1.len());
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        let [early, late, waiting] = [(); 3].map(|()| site.connect(ACTIVE));
        are_there(3);
        site.authority.rotate(now()).unwrap();
        assert_eq!(ask(early).unwrap(), "{\"ok\":\"done\"}\n", "both authorities are trusted");
        are_there(2);
        site.authority.retire().unwrap();
        let said = ask(late).unwrap();
        assert!(said.contains("has replaced") && said.contains("\"denied\":true"), "{said}");
        // Those that wait are cut, and whoever has retired it gets the answer.
        are_there(1);
        let address = site.open.0.lock().1[0].cutter.address();
        site.open.cut_strangers(&site.authority.set(), Some(address));
        assert_eq!(site.open.0.lock().1.len(), 1);
        site.open.cut_strangers(&site.authority.set(), None);
        assert!(ask(waiting).is_err());
        are_there(0);
    }

    #[test]
    fn an_administrator_is_no_stranger_any_more() {
        let site = Site::new();
        let mut stream = site.connect(ACTIVE);
        let began = Instant::now();
        while (site.listener.unidentified(), site.open.0.lock().1.len()) != (0, 1) {
            assert!(began.elapsed() < REQUEST_TIME, "{} strangers", site.listener.unidentified());
            std::thread::sleep(Duration::from_millis(5));
        }
        stream.write_all(b"{\"ask\":\"stores\"}\n").unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        assert_eq!(said, "{\"ok\":\"done\"}\n");
    }
}
