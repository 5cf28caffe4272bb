//! SIGHUP: reads the configuration again. The node adopts what it can change while it runs, and logs what needs a restart. A wrong file
//! changes nothing.

use config::Config;
use config::keys::KEYS;

use crate::cli::ServeArgs;
use crate::client_security::ClientSecurity;
use crate::logging::{self, Logging};
use crate::people::People;
use crate::serve;

/// The inputs for reading the configuration again.
pub struct Reload {
    args: ServeArgs,
    /// The configuration in force.
    in_force: Config,
    logging: Logging,
}

/// What happens to a new configuration, by keys.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Changes {
    taken_over: Vec<&'static str>,
    at_next_start: Vec<&'static str>,
}

impl Reload {
    /// For a node that was started with `args` and uses `in_force`.
    pub fn new(args: ServeArgs, in_force: Config, logging: Logging) -> Self {
        Self { args, in_force, logging }
    }

    /// The configuration in force.
    pub(crate) fn in_force(&self) -> &Config {
        &self.in_force
    }

    /// Reads the file again; the flags of the start still override it. Returns the configuration in force; `None`: the file is wrong and
    /// nothing changed. `people`: those whom nobody else reloads.
    pub(crate) fn again(&mut self, server: &xrootd::Server, people: &People) -> Option<&Config> {
        let loaded = Config::load(self.args.config.as_deref()).map_err(|error| error.to_string());
        let checked = loaded.map(|config| self.args.over(config));
        let checked = checked.and_then(|config| logging::filter(&config.log).map(|filter| (config, filter)));
        let (new, filter) = match checked {
            Ok(good) => good,
            Err(reason) => {
                tracing::error!("SIGHUP: nothing was changed: {reason}");
                return None;
            }
        };
        let mut changes = changes(&self.in_force, &new);
        match server.authenticator() {
            Some(authenticator) => {
                // What a start would refuse, this refuses too.
                let security = ClientSecurity::of(&new).and_then(|security| security.address(&new).map(|_| security));
                let why = match security {
                    Ok(security) if security.asks_clients() => None,
                    Ok(_) => {
                        Some("without `authentication.mechanisms`, everybody would be the administrator".to_owned())
                    }
                    Err(failure) => Some(failure.to_string()),
                };
                if let Some(why) = why {
                    tracing::error!("SIGHUP: nothing was changed: {why}");
                    return None;
                }
                if let Err(error) = authenticator.reload(new.authentication()) {
                    tracing::error!("SIGHUP: nothing was changed: cannot use `authentication`: {error}");
                    return None;
                }
            }
            None => match people.reload_users(&new) {
                // Sessions of clients that have shown nothing would go on.
                Ok(has_rules) => changes.start_authentication_later(has_rules),
                Err(error) => {
                    tracing::error!("SIGHUP: nothing was changed: cannot use [[identity]] for administrators: {error}");
                    return None;
                }
            },
        }
        let in_force = self.in_force.taking_over(&new);
        if in_force.log != self.in_force.log {
            self.logging.set(filter);
        }
        let mut new = xrootd::ServerConfig::new(server.address(), server.service().config().boot);
        serve::set_bounds(&in_force, &mut new);
        server.adjust(&new.limits, new.times);
        server.service().adjust(&new.service.limits, new.service.times);
        self.in_force = in_force;
        tracing::info!("SIGHUP: {}", in_words(&changes));
        Some(&self.in_force)
    }
}

impl Changes {
    /// Clients need not show who they are, which a reload cannot change. `has_rules`: users of this machine have taken over the rules.
    fn start_authentication_later(&mut self, has_rules: bool) {
        let is_of_it = |name: &&str| {
            name.starts_with("authentication.") || *name == "issuer" || name.starts_with("identity") && !has_rules
        };
        let (later, now): (Vec<&str>, Vec<&str>) = std::mem::take(&mut self.taken_over).into_iter().partition(is_of_it);
        self.taken_over = now;
        self.at_next_start.extend(later);
    }
}

fn changes(in_force: &Config, new: &Config) -> Changes {
    let differ = |live: bool| {
        KEYS.iter().filter(|key| key.live == live && !(key.same)(in_force, new)).map(|key| key.name).collect()
    };
    Changes { taken_over: differ(true), at_next_start: differ(false) }
}

fn in_words(changes: &Changes) -> String {
    let list = |keys: &[&str]| keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    match (changes.taken_over.is_empty(), changes.at_next_start.is_empty()) {
        (true, true) => "the configuration is as it was".into(),
        (false, true) => format!("taken over: {}", list(&changes.taken_over)),
        (true, false) => format!("nothing was taken over; {} at the next start only", list(&changes.at_next_start)),
        (false, false) => {
            format!(
                "taken over: {}; {} at the next start only",
                list(&changes.taken_over),
                list(&changes.at_next_start)
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn changes_are_divided_into_live_and_restart() {
        let old = Config::defaults();
        let new = Config { grace: Duration::from_secs(5), cache: 1, connections: 7, ..old.clone() };
        let found = changes(&old, &new);
        assert_eq!(found.taken_over, ["grace_seconds", "limits.connections"]);
        assert_eq!(found.at_next_start, ["index.cache"]);
        assert_eq!(
            in_words(&found),
            "taken over: `grace_seconds`, `limits.connections`; `index.cache` at the next start only"
        );
        let mut of_users = Changes { taken_over: vec!["identity", "issuer"], at_next_start: Vec::new() };
        of_users.start_authentication_later(true);
        assert_eq!((&*of_users.taken_over, &*of_users.at_next_start), (&["identity"][..], &["issuer"][..]));
        of_users.start_authentication_later(false);
        assert_eq!((&*of_users.taken_over, &*of_users.at_next_start), (&[][..], &["issuer", "identity"][..]));
        assert_eq!(in_words(&changes(&old, &old)), "the configuration is as it was");
        // An adopted value is in force and not reported again; a value that needs a restart is.
        assert_eq!(changes(&old.taking_over(&new), &new).taken_over, Vec::<&str>::new());
        assert_eq!(changes(&old.taking_over(&new), &new).at_next_start, ["index.cache"]);
    }
}
