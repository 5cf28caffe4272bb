//! Who people are that administer without a certificate of the cluster: users of this machine, bearers of tokens, and holders of certificates
//! of the grid. The settings give them roles.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use authentication::{Authenticated, AuthenticationError, Authenticator, SettingsError, SystemClock};
use config::{AdministratorRule, Config};
use control::remote::ShownCertificates;
use control::{Answers, Control, LocalUser, Person, PersonAt, Reply};
use parking_lot::RwLock;

use crate::Failure;
use crate::client_security::ClientSecurity;
use crate::exit::Exit;

/// Finds out who people are.
pub struct People {
    /// The one of the clients, which their front end reloads. `None`: clients need not show who they are, or show it to the manager.
    of_clients: Option<Arc<Authenticator>>,
    /// Where there is none: maps users of this machine, and lets in nobody else.
    of_users: Option<Authenticator>,
    rules: RwLock<Arc<[AdministratorRule]>>,
    /// `administration.certificates`.
    takes_certificates: AtomicBool,
}

/// Why somebody is nobody here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Unknown {
    why: String,
    /// What the log says, and only the log.
    pub(crate) for_log: String,
    /// Nothing was decided: the manager has too much to do at this time.
    pub(crate) is_busy: bool,
}

impl Unknown {
    fn by_settings(why: &str) -> Self {
        Self { why: why.to_owned(), for_log: why.to_owned(), is_busy: false }
    }

    /// What the person is told.
    pub(crate) fn reply(self) -> Reply {
        if self.is_busy { Reply::Refused(self.why) } else { Reply::Denied(self.why) }
    }
}

impl From<AuthenticationError> for Unknown {
    fn from(error: AuthenticationError) -> Self {
        Self { why: error.to_string(), for_log: error.for_log(), is_busy: error.is_busy() }
    }
}

impl People {
    /// Finds out nobody: only the owner of the node administers it.
    #[must_use]
    pub fn nobody() -> Arc<Self> {
        Self::with(None, None, &[], false)
    }

    fn with(
        of_clients: Option<Arc<Authenticator>>,
        of_users: Option<Authenticator>,
        rules: &[AdministratorRule],
        takes_certificates: bool,
    ) -> Arc<Self> {
        let takes_certificates = AtomicBool::new(takes_certificates);
        Arc::new(Self { of_clients, of_users, rules: RwLock::new(Arc::from(rules)), takes_certificates })
    }

    /// Finds out who clients are by `authenticator`, to whom nobody gives a role.
    #[cfg(test)]
    pub(crate) fn clients_of(authenticator: Authenticator, takes_certificates: bool) -> Arc<Self> {
        Self::with(Some(Arc::new(authenticator)), None, &[], takes_certificates)
    }

    /// As the configuration has it.
    ///
    /// # Errors
    /// The rules for users of this machine cannot be used.
    pub(crate) fn of(config: &Config, security: &ClientSecurity) -> Result<Arc<Self>, Failure> {
        Self::found_by(config, security.authenticator())
    }

    /// The same for a disk server. Its clients show to the manager who they are, so nothing else there reloads an authenticator.
    ///
    /// # Errors
    /// The rules for users of this machine cannot be used.
    pub(crate) fn of_disk_server(config: &Config) -> Result<Arc<Self>, Failure> {
        Self::found_by(config, None)
    }

    fn found_by(config: &Config, of_clients: Option<Arc<Authenticator>>) -> Result<Arc<Self>, Failure> {
        let is_asked = of_clients.is_none() && config.administration_socket.is_some();
        let of_users = is_asked.then(|| mapper(config)).transpose()?;
        Ok(Self::with(of_clients, of_users, &config.administrators, config.administration_certificates))
    }

    /// Takes over the rules about users of this machine from a configuration that was read again, where the front end has no authenticator that is
    /// reloaded. Returns whether this did.
    ///
    /// # Errors
    /// The rules cannot be used. Then nothing is changed.
    pub(crate) fn reload_users(&self, config: &Config) -> Result<bool, SettingsError> {
        let reload = |users: &Authenticator| users.reload(mapper_settings(config)).map(|()| true);
        self.of_users.as_ref().map_or(Ok(false), reload)
    }

    /// Takes over the roles of a configuration that was read again, and whether certificates give them.
    pub(crate) fn reload(&self, config: &Config) {
        self.takes_certificates.store(config.administration_certificates, Ordering::Relaxed);
        *self.rules.write() = config.administrators.clone().into();
    }

    fn person(&self, who: Authenticated, at: PersonAt) -> Person {
        Person::new(who, &Arc::clone(&self.rules.read()), at)
    }

    /// The user of this machine with this number.
    ///
    /// # Errors
    /// Nobody, for people.
    pub(crate) fn user(&self, uid: u32) -> Result<Person, String> {
        let unknown = || format!("/etc/passwd does not list the user with the number {uid}; use a token");
        let Some(authenticator) = self.of_users.as_ref().or(self.of_clients.as_deref()) else {
            return Err("only root and the user that weir runs as may do this here: the settings have no `administration.socket`".into());
        };
        let LocalUser { name, groups } = LocalUser::of(uid).ok_or_else(unknown)?;
        let who = authenticator.local_user(&name, &groups).map_err(|error| error.to_string())?;
        Ok(self.person(who, PersonAt::Here(uid)))
    }

    /// The bearer of a token at this address. `again`: it was counted before.
    ///
    /// # Errors
    /// Nobody, or too much to do.
    pub(crate) fn bearer(&self, token: &str, at: SocketAddr, again: bool) -> Result<Person, Unknown> {
        let Some(authenticator) = &self.of_clients else {
            let why = "this manager takes no tokens: its settings have no `authentication.mechanisms`";
            return Err(Unknown::by_settings(why));
        };
        let checked = if again {
            authenticator.token_again(token.as_bytes(), at.ip())
        } else {
            authenticator.token(token.as_bytes(), at.ip())
        };
        Ok(self.person(checked?, PersonAt::Network(at)))
    }

    /// The holder of certificates at this address. `binding`: the value of the connection, which the holder has signed. `again`: it was counted
    /// before, and its signature checked.
    ///
    /// # Errors
    /// Nobody, or too much to do.
    pub(crate) fn holder(
        &self,
        ShownCertificates { chain, signature }: &ShownCertificates,
        binding: &[u8; 32],
        at: SocketAddr,
        again: bool,
    ) -> Result<Person, Unknown> {
        // First, so that whoever has not asked for it spends no time on strangers' certificates.
        if !self.takes_certificates.load(Ordering::Relaxed) {
            let why = "this manager takes no certificates but those of the cluster: its settings have no `administration.certificates = true`; use a token, or an invitation";
            return Err(Unknown::by_settings(why));
        }
        let Some(authenticator) = &self.of_clients else {
            let why = "this manager takes no certificates but those of the cluster: its settings have no `authentication.mechanisms`";
            return Err(Unknown::by_settings(why));
        };
        let checked = if again {
            authenticator.holder_again(chain, at.ip())
        } else {
            authenticator.holder(chain, signature, binding, at.ip())
        };
        Ok(self.person(checked?, PersonAt::Network(at)))
    }

    /// What the settings say about administrators.
    pub(crate) fn rules(&self) -> Arc<[AdministratorRule]> {
        Arc::clone(&self.rules.read())
    }

    /// Opens the socket for all users of this machine, if the configuration has one.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn listen(config: &Config, answers: &Answers, log: &audit::Log) -> Result<Option<Control>, Failure> {
        let open = |path: &Path| {
            let failed = |error| Failure::new(Exit::Failed, error).while_doing("cannot open `administration.socket`");
            let started = Control::start_for_users(path, answers.clone(), log.clone()).map_err(failed)?;
            tracing::info!("users of this machine administer by {}, with the roles that they have", path.display());
            Ok(started)
        };
        config.administration_socket.as_deref().map(open).transpose()
    }
}

/// Says who users of this machine are on a node whose clients need not show who they are.
fn mapper(config: &Config) -> Result<Authenticator, Failure> {
    let made = Authenticator::new(mapper_settings(config), Arc::new(SystemClock::default()));
    made.map_err(|error| Failure::new(Exit::Usage, error).while_doing("cannot use [[identity]] for administrators"))
}

fn mapper_settings(config: &Config) -> authentication::Settings {
    // It takes no tokens, so it keeps no keys.
    authentication::Settings { mechanisms: Default::default(), key_cache: None, ..config.authentication() }
}

#[cfg(test)]
mod tests {
    use link::admin::AdminRole;

    use super::*;

    fn config(rule: &str, role: &str) -> Config {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("weir.toml");
        let text = format!(
            "administration.socket = '/run/weir/administration'\n[[identity]]\nlocal_user = 'root'\n{rule}\n[[administrator]]\nprincipal = 'ana'\nrole = '{role}'\n"
        );
        std::fs::write(&file, text).unwrap();
        Config::load(Some(file.as_path())).unwrap()
    }

    #[test]
    fn a_manager_with_too_much_to_do_denies_nobody() {
        let busy = Unknown::from(AuthenticationError::Busy);
        assert!(busy.is_busy && matches!(busy.reply(), Reply::Refused(why) if why.contains("try again")));
        let wrong = Unknown::from(AuthenticationError::NotOffered(authentication::Mechanism::Gsi));
        assert!(!wrong.is_busy && matches!(wrong.reply(), Reply::Denied(_)));
    }

    #[test]
    fn certificates_count_once_the_settings_say_so_and_a_reload_takes_that_back() {
        let (without, mut with) = (config("principal = 'ana'", "viewer"), config("principal = 'ana'", "viewer"));
        with.administration_certificates = true;
        let people = People::of_disk_server(&without).unwrap();
        let shown = ShownCertificates { chain: Vec::new(), signature: Vec::new() };
        let why = || people.holder(&shown, &[0; 32], "127.0.0.1:9".parse().unwrap(), false).unwrap_err().for_log;
        assert!(why().contains("administration.certificates = true"), "{}", why());
        people.reload(&with);
        assert!(why().contains("authentication.mechanisms"), "{}", why());
        people.reload(&without);
        assert!(why().contains("administration.certificates = true"), "{}", why());
    }

    #[test]
    fn a_reload_takes_over_who_the_users_of_the_machine_are_also_without_an_authenticator_of_clients() {
        let people = People::of_disk_server(&config("principal = 'ana'", "viewer")).unwrap();
        let root = || people.user(0).map(|person| (person.who.name.to_string(), person.role.ok()));
        assert_eq!(root(), Ok(("ana".to_owned(), Some(AdminRole::Viewer))));
        assert!(people.reload_users(&config("principal = 'ben'", "viewer")).unwrap());
        assert_eq!(root(), Ok(("ben".to_owned(), None)));
        people.reload_users(&config("refuse = true", "viewer")).unwrap();
        assert!(root().unwrap_err().contains("refuse = true"));
        let again = config("principal = 'ana'", "admin");
        people.reload_users(&again).unwrap();
        people.reload(&again);
        assert_eq!(root(), Ok(("ana".to_owned(), Some(AdminRole::Admin))));
        // Rules that cannot be used change nothing.
        let mut wrong = again.clone();
        wrong.mapping.identity = vec![Default::default()];
        people.reload_users(&wrong).unwrap_err();
        assert_eq!(root(), Ok(("ana".to_owned(), Some(AdminRole::Admin))));
    }
}
