//! The server starts, keeps what was committed over stops and kills, and is gone afterwards.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::io::Read;
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use postgres_server::{PostgresServer, StopMode, shared};

/// The directory of a server.
fn home_of(server: &PostgresServer) -> PathBuf {
    PathBuf::from(server.psql("postgres", "SHOW data_directory").unwrap()).parent().unwrap().to_owned()
}

fn takes_connections(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

#[test]
fn each_test_gets_a_database_of_its_own() {
    let (one, other) = (shared().database(), shared().database());
    assert_ne!(one, other);
    shared().psql(&one, "CREATE TABLE t (k bytea)").unwrap();
    assert_eq!(shared().psql(&one, "SELECT count(*) FROM t").unwrap(), "0");
    assert!(shared().psql(&other, "SELECT count(*) FROM t").unwrap_err().contains("does not exist"));
}

#[test]
fn it_outlives_the_thread_that_started_it() {
    std::thread::spawn(|| shared().database()).join().unwrap();
    sleep(Duration::from_millis(200));
    assert_eq!(shared().psql("postgres", "SELECT 1").unwrap(), "1");
}

#[test]
fn it_is_durable_and_asks_for_the_password() {
    let own = PostgresServer::start().unwrap();
    for name in ["fsync", "synchronous_commit", "full_page_writes"] {
        assert_eq!(own.psql("postgres", &format!("SHOW {name}")).unwrap(), "on");
    }
    let wrong = shared().url_of("postgres", "wrong", "postgres");
    assert!(shared().psql(&wrong, "SELECT 1").unwrap_err().contains("password authentication failed"));
}

#[test]
fn committed_data_survives() {
    let server = PostgresServer::start_with(&[("max_connections", "10")]).unwrap();
    assert_eq!(server.psql("postgres", "SHOW max_connections").unwrap(), "10");
    let database = server.database();
    server.psql(&database, "CREATE TABLE t (n int)").unwrap();
    let ends: [&dyn Fn() -> Result<(), String>; 3] =
        [&|| server.kill(), &|| server.stop(StopMode::Immediate), &|| server.stop(StopMode::Fast)];
    for (number, end) in (1..).zip(ends) {
        server.psql(&database, "INSERT INTO t VALUES (1)").unwrap();
        end().unwrap();
        assert!(!takes_connections(server.port()));
        server.start_again().unwrap();
        assert_eq!(server.psql(&database, "SELECT count(*) FROM t").unwrap(), number.to_string());
    }
    let (home, port) = (home_of(&server), server.port());
    drop(server);
    assert!(!home.exists() && !takes_connections(port));
}

#[test]
fn a_failed_start_says_why() {
    let why = PostgresServer::start_with(&[("weir", "1")]).unwrap_err();
    assert!(why.contains("unrecognized configuration parameter \"weir\""), "{why}");
}

/// Not a test of its own: [`it_ends_with_a_killed_program`] runs it in another process.
#[test]
#[ignore = "another test runs it, and kills it"]
fn starts_and_waits() {
    let server = PostgresServer::start().unwrap();
    std::fs::write(std::env::var_os("WEIR_TEST_TOLD").unwrap(), format!("{}\n", home_of(&server).display())).unwrap();
    sleep(Duration::from_secs(60));
}

#[test]
fn it_ends_with_a_killed_program() {
    let told = tempfile::NamedTempFile::new().unwrap();
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "starts_and_waits"])
        .env("WEIR_TEST_TOLD", told.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let end = Instant::now() + Duration::from_secs(60);
    let mut text = String::new();
    while !text.ends_with('\n') {
        assert!(Instant::now() < end && program.try_wait().unwrap().is_none(), "it has not started");
        sleep(Duration::from_millis(20));
        text.clear();
        told.reopen().unwrap().read_to_string(&mut text).unwrap();
    }
    let home = PathBuf::from(text.trim());
    let lines = std::fs::read_to_string(home.join("data/postmaster.pid")).unwrap();
    let port: u16 = lines.lines().nth(3).unwrap().parse().unwrap();
    assert!(takes_connections(port));
    program.kill().unwrap();
    program.wait().unwrap();
    while home.exists() {
        assert!(Instant::now() < end, "{} is still there", home.display());
        sleep(Duration::from_millis(20));
    }
    assert!(!takes_connections(port));
}
