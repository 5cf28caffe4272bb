//! The database of a manager, from its configuration.

use config::{ClusterRole, Config};
use database::DatabaseAddress;
use foundation::DatabaseSettings;

use crate::Failure;
use crate::cli::ServeArgs;
use crate::exit::Exit;

/// The database that the configuration names, if it names one. Reads the password file, if the address has one.
pub(crate) fn of(config: &Config) -> Result<Option<DatabaseSettings>, Failure> {
    let Some(url) = &config.database else { return Ok(None) };
    Ok(Some(DatabaseSettings {
        address: address(url)?,
        connections: usize::try_from(config.database_connections).unwrap_or(usize::MAX),
        patience: config.database_patience,
    }))
}

/// Reads an address.
pub(crate) fn address(url: &config::DatabaseUrl) -> Result<DatabaseAddress, Failure> {
    url.secret().parse().map_err(|error: database::AddressError| Failure::new(Exit::Usage, error))
}

/// Refuses a database on a node that is no manager, and warns of a password that others can see.
pub(crate) fn refuse_elsewhere(args: &ServeArgs, config: &Config) -> Result<(), Failure> {
    if args.database.as_ref().is_some_and(config::DatabaseUrl::has_password) {
        tracing::warn!(
            "all users of this machine can see the password in --database; write `passfile=FILE` into the address, or put the address as `database.url` into the configuration file"
        );
    }
    if config.database.is_none() || config.role == Some(ClusterRole::Manager) {
        return Ok(());
    }
    let key = if args.database.is_some() { "--database" } else { "database.url" };
    let why = match config.role {
        Some(_) => "a disk server has no namespace",
        None => "a single node has its namespace in its data directory",
    };
    Err(Failure::message(Exit::Usage, format!("{key} is for a cluster's manager, and {why}; leave it out")))
}
