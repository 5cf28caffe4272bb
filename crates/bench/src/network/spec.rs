//! What is to be sent.

use std::time::Duration;

/// Who sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// This machine to the other, as data that is written goes.
    Out,
    /// The other to this, as data that is read goes.
    In,
    /// Both at a time.
    Both,
}

/// Flows between two machines.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// Who sends.
    pub direction: Direction,
    /// Flows at a time, in each direction.
    pub flows: u32,
    /// For how long, in seconds.
    pub seconds: u32,
    /// Bytes of each call.
    pub block_bytes: u32,
    /// Bytes of the kernel's buffer of each flow; as the kernel thinks otherwise.
    pub buffer_bytes: Option<u32>,
}

/// A specification that makes no sense.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NetworkError {
    /// Out of bounds.
    #[error("{what} is {value}; give {least} to {most}")]
    Bounds {
        /// What.
        what: &'static str,
        /// What was asked for.
        value: u32,
        /// The least.
        least: u32,
        /// The most.
        most: u32,
    },
}

impl NetworkSpec {
    /// Whether it makes sense; also of what another machine asks for.
    ///
    /// # Errors
    /// What does not.
    pub fn check(&self) -> Result<(), NetworkError> {
        let bounds = [
            ("flows", self.flows, 1, 1024),
            ("seconds", self.seconds, 1, 3600),
            ("block", self.block_bytes, 1, 16 << 20),
            ("buffer", self.buffer_bytes.unwrap_or(4096), 4096, 1 << 30),
        ];
        for (what, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(NetworkError::Bounds { what, value, least, most });
            }
        }
        Ok(())
    }

    /// For how long.
    #[must_use]
    pub fn duration(&self) -> Duration {
        Duration::from_secs(u64::from(self.seconds))
    }
}
