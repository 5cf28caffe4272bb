//! Who people are that administer without a certificate of the cluster: users of this machine, and bearers of tokens. The settings give them roles.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use authentication::{Authenticated, AuthenticationError, Authenticator, SystemClock};
use config::{AdministratorRule, Config};
use control::{Answers, Control, LocalUser, Person, PersonAt};
use parking_lot::RwLock;

use crate::Failure;
use crate::client_security::ClientSecurity;
use crate::exit::Exit;

/// Finds out who people are.
pub struct People {
    /// The one of the clients. `None`: clients need not show who they are.
    of_clients: Option<Arc<Authenticator>>,
    /// Maps users of this machine: the one of the clients, or one that lets in nobody else.
    of_users: Option<Arc<Authenticator>>,
    rules: RwLock<Arc<[AdministratorRule]>>,
}

impl People {
    /// Finds out nobody: only the owner of the node administers it.
    #[must_use]
    pub fn nobody() -> Arc<Self> {
        Arc::new(Self { of_clients: None, of_users: None, rules: RwLock::new(Arc::from([])) })
    }

    /// As the configuration has it.
    ///
    /// # Errors
    /// The rules for users of this machine cannot be used.
    pub(crate) fn of(config: &Config, security: &ClientSecurity) -> Result<Arc<Self>, Failure> {
        let of_clients = security.authenticator();
        let of_users = match &of_clients {
            Some(authenticator) => Some(Arc::clone(authenticator)),
            None if config.administration_socket.is_some() => Some(Arc::new(mapper(config)?)),
            None => None,
        };
        Ok(Arc::new(Self { of_clients, of_users, rules: RwLock::new(config.administrators.clone().into()) }))
    }

    /// Takes over the roles of a configuration that was read again. Authentication is reloaded with the front end.
    pub(crate) fn reload(&self, config: &Config) {
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
        let Some(authenticator) = &self.of_users else {
            return Err("only root and the user that weir runs as may do this here: the settings have no `administration.socket`".into());
        };
        let LocalUser { name, groups } = LocalUser::of(uid).ok_or_else(unknown)?;
        let who = authenticator.local_user(&name, &groups).map_err(|error| error.to_string())?;
        Ok(self.person(who, PersonAt::Here(uid)))
    }

    /// The bearer of a token at this address. `again`: it was counted before.
    ///
    /// # Errors
    /// Nobody, for people; and for the log.
    pub(crate) fn bearer(&self, token: &str, at: SocketAddr, again: bool) -> Result<Person, (String, String)> {
        let Some(authenticator) = &self.of_clients else {
            let why = "this manager takes no tokens: its settings have no `authentication.mechanisms`".to_owned();
            return Err((why.clone(), why));
        };
        let checked = if again {
            authenticator.token_again(token.as_bytes(), at.ip())
        } else {
            authenticator.token(token.as_bytes(), at.ip())
        };
        let who = checked.map_err(|error: AuthenticationError| (error.to_string(), error.for_log()))?;
        Ok(self.person(who, PersonAt::Network(at)))
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
    let settings = authentication::Settings { mechanisms: Default::default(), ..config.authentication() };
    let made = Authenticator::new(settings, Arc::new(SystemClock::default()));
    made.map_err(|error| Failure::new(Exit::Usage, error).while_doing("cannot use [[identity]] for administrators"))
}
