//! Tables, and databases that are refused.

use std::time::Duration;

use database::{DatabaseError, Postgres, PostgresConfig, SCHEMA_VERSION, Schema, SchemaState};

use crate::harness::{address, config, database, open, put};

fn refused(url: &str) -> DatabaseError {
    let config = PostgresConfig { patience: Duration::from_millis(200), ..config() };
    match Postgres::open(&address(url), "test", config) {
        Ok(_) => panic!("{url} was not refused"),
        Err(error) => error,
    }
}

#[test]
fn tables_are_made_once_and_an_account_gets_the_rights_that_it_needs() {
    let server = postgres_server::shared();
    let url = server.database();
    assert!(matches!(refused(&url), DatabaseError::Schema(said) if said.contains("weir db init")));
    let name = url.rsplit('/').next().unwrap().to_owned();
    server.psql("postgres", &format!("CREATE ROLE \"user of {name}\" LOGIN PASSWORD 'secret'")).unwrap();
    let mut schema = Schema::connect(&address(&url)).unwrap();
    assert_eq!(schema.init(None).unwrap(), SchemaState::Empty);
    assert_eq!(schema.init(Some(&format!("user of {name}"))).unwrap(), SchemaState::Version(SCHEMA_VERSION));
    let theirs = server.url_of(&format!("user%20of%20{name}"), "secret", &name);
    let kv = open(&theirs);
    put(&kv, "a", "1").unwrap();
    let mut report = Schema::connect(&address(&theirs)).unwrap();
    assert!(report.init(None).is_ok(), "nothing to do");
    let refused = Schema::connect(&address(&theirs)).unwrap().init(Some("postgres"));
    assert!(refused.is_ok() || matches!(refused, Err(DatabaseError::Refused { .. })), "{refused:?}");
    let said = report.report().unwrap();
    assert_eq!((said.state, said.closed, said.is_read_only), (SchemaState::Version(SCHEMA_VERSION), None, false));
    assert!(said.server.contains("PostgreSQL"), "{}", said.server);
    let dropping = server.psql(&theirs, "DROP TABLE weir.entries").unwrap_err();
    assert!(dropping.contains("must be owner"), "{dropping}");
}

#[test]
fn tables_of_another_version_are_refused() {
    let url = database();
    let server = postgres_server::shared();
    server.psql(&url, "UPDATE weir.schema SET version = version + 1").unwrap();
    assert!(matches!(refused(&url), DatabaseError::Schema(said) if said.contains("newer weir")));
    let mut schema = Schema::connect(&address(&url)).unwrap();
    assert!(schema.migrate().is_err() && schema.init(None).is_err());
    server.psql(&url, "UPDATE weir.schema SET version = 0").unwrap();
    assert!(matches!(refused(&url), DatabaseError::Schema(said) if said.contains("weir db migrate")));
}

#[test]
fn what_cannot_be_reached_or_entered_is_refused_with_the_reason() {
    let server = postgres_server::shared();
    let url = database();
    let name = url.rsplit('/').next().unwrap();
    let wrong = server.url_of("postgres", "wrong", name);
    let said = refused(&wrong).to_string();
    assert!(said.contains("password") && !said.contains("wrong@"), "{said}");
    let said = refused(&server.url("nosuch")).to_string();
    assert!(said.contains("does not exist"), "{said}");
    let said = refused("postgres://weir@127.0.0.1:1/weir").to_string();
    assert!(said.contains("127.0.0.1:1") && said.contains("refused"), "{said}");
    // The server of the tests has no TLS.
    let said = refused(&format!("{url}?sslmode=verify-full")).to_string();
    assert!(said.to_lowercase().contains("tls"), "{said}");
    server.psql("postgres", &format!("ALTER DATABASE {name} SET default_transaction_read_only = on")).unwrap();
    let said = refused(&url).to_string();
    assert!(said.contains("accepts no changes") && said.contains("name the primary"), "{said}");
}

/// The first host takes connections and says nothing, as one that was stopped or cut off does.
#[test]
fn a_host_that_says_nothing_does_not_keep_anybody_from_the_next_one() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = database();
    let here = format!("@127.0.0.1:{}/", postgres_server::shared().port());
    let both = url.replace(&here, &format!("@127.0.0.1:{},{}", silent.local_addr().unwrap().port(), &here[1..]));
    assert_ne!(both, url);
    let kv = open(&both);
    put(&kv, "a", "1").unwrap();
}

/// Whoever set this wanted speed. The engine answers only for what is on the disk.
#[test]
fn a_database_that_answers_before_a_commit_is_on_the_disk_is_told_to_wait() {
    let (server, url) = (postgres_server::shared(), database());
    let name = url.rsplit('/').next().unwrap();
    server.psql("postgres", &format!("ALTER DATABASE {name} SET synchronous_commit = off")).unwrap();
    let kv = open(&url);
    let asked = "SELECT count(*) FROM pg_settings WHERE name = 'synchronous_commit' AND setting = 'off'";
    assert_eq!(server.psql(&url, asked).unwrap(), "1", "for others it is so");
    put(&kv, "a", "1").unwrap();
    assert_eq!(kv.synchronous_commit().unwrap(), "on");
}

#[test]
fn a_closed_database_is_refused_with_the_reason() {
    let url = database();
    postgres_server::shared().psql(&url, "UPDATE weir.schema SET closed = 'a copy has not ended'").unwrap();
    assert!(refused(&url).to_string().contains("a copy has not ended"));
}

#[test]
fn tables_of_version_1_are_brought_to_this_version() {
    let (url, server) = (database(), postgres_server::shared());
    let kv = open(&url);
    put(&kv, "a", "1").unwrap();
    drop(kv);
    let as_before = "ALTER TABLE weir.committers DROP COLUMN beat, DROP COLUMN holder;
        UPDATE weir.committers SET process = '\\x0102'; UPDATE weir.schema SET version = 1";
    server.psql(&url, as_before).unwrap();
    let row = "SELECT fence, batch FROM weir.committers";
    let (fence, batch) = (server.psql(&url, row).unwrap(), "1");
    assert!(fence.ends_with(&format!("|{batch}")), "{fence}");
    assert!(matches!(refused(&url), DatabaseError::Schema(said) if said.contains("weir db migrate")));
    let mut schema = Schema::connect(&address(&url)).unwrap();
    assert!(schema.init(None).is_err(), "it changes no tables that are there");
    assert_eq!(schema.migrate().unwrap(), 1);
    assert_eq!(schema.migrate().unwrap(), SCHEMA_VERSION);
    let after = server.psql(&url, "SELECT process, fence, batch, beat, holder FROM weir.committers").unwrap();
    let fence: i64 = fence.split('|').next().unwrap().parse().unwrap();
    assert_eq!(after, format!("\\x|{}|{batch}|0|", fence + 1), "a manager that still runs cannot commit");
    put(&open(&url), "b", "2").unwrap();
}
