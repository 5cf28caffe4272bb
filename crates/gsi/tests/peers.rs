//! A server and users for the tests, and random numbers that are the same in each run.

use gsi::{ClientSecret, NoRandom, Random, ServerSecret};

pub const SERVER: &[u8] = include_bytes!("data/server.pem");
pub const SERVER_KEY: &[u8] = include_bytes!("data/server.key");
pub const USER: &[u8] = include_bytes!("data/user.pem");
pub const USER_KEY: &[u8] = include_bytes!("data/user.key");
pub const OTHER: &[u8] = include_bytes!("data/other.pem");
pub const OTHER_KEY: &[u8] = include_bytes!("data/other.key");

/// Numbers that look random, and are the same in each run.
pub struct Numbers(pub u64);

impl Random for Numbers {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), NoRandom> {
        for byte in bytes {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = self.0.to_be_bytes()[0];
        }
        Ok(())
    }
}

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
