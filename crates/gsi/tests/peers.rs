//! A server and users for the tests.

pub use gsi::test_random::Numbers;
use gsi::{ClientSecret, ServerSecret};

pub const SERVER: &[u8] = include_bytes!("data/server.pem");
pub const SERVER_KEY: &[u8] = include_bytes!("data/server.key");
pub const USER: &[u8] = include_bytes!("data/user.pem");
pub const USER_KEY: &[u8] = include_bytes!("data/user.key");
pub const OTHER: &[u8] = include_bytes!("data/other.pem");
pub const OTHER_KEY: &[u8] = include_bytes!("data/other.key");

pub fn server() -> ServerSecret {
    ServerSecret::new(SERVER, SERVER_KEY, &mut Numbers(1)).unwrap()
}

pub fn user() -> ClientSecret {
    ClientSecret::new(USER, USER_KEY).unwrap()
}

/// What a client finds that trusts any server.
pub fn good(_: &[u8]) -> Result<(), String> {
    Ok(())
}
