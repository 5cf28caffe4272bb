//! The parameters of a network test.

use serde::{Deserialize, Serialize};

/// The protocol of the flows.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, with loss and order counted.
    Udp,
}

/// The direction of the bytes, as seen from the client.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// To the system.
    To,
    /// From the system.
    From,
    /// Both at once, with equally many flows each.
    Both,
}

/// The processes that move the bytes on each side.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Processes {
    /// One process, with a thread for each flow.
    One,
    /// A process for each flow.
    Each,
}

/// Flows between a client and a network-test server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkSpec {
    /// The protocol.
    pub protocol: Protocol,
    /// The direction.
    pub direction: Direction,
    /// The number of flows in each direction.
    pub flows: u32,
    /// The processes that move the bytes.
    pub processes: Processes,
    /// Whether all systems are tested at once, not one after the other.
    pub at_once: bool,
    /// How long the flows send, in seconds.
    pub seconds: u32,
    /// The bytes of each TCP call, or of each UDP datagram.
    pub block_bytes: u32,
    /// The rate of each flow in bytes a second; `None`: as fast as possible.
    pub rate: Option<u64>,
}

/// The parameters are not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpecError {
    /// A value is out of bounds.
    #[error("{what} is {value}; give {least} to {most}")]
    Bounds {
        /// Its name.
        what: &'static str,
        /// The value.
        value: u64,
        /// The smallest allowed value.
        least: u64,
        /// The largest allowed value.
        most: u64,
    },
    /// The flow is so slow that it would look broken.
    #[error(
        "at {rate} bytes a second a block of {block} takes longer than {PERIOD_SECONDS_MAX} s; give a higher rate, or smaller blocks"
    )]
    Slow {
        /// The rate.
        rate: u64,
        /// The block.
        block: u32,
    },
}

/// The most flows of each direction.
pub const FLOWS_MAX: u32 = 256;
/// The most bytes of a datagram over IPv4.
const DATAGRAM_MAX: u32 = 65_507;
const BLOCK_MAX: u32 = 64 << 20;
const DAY: u32 = 86_400;
/// If a flow moves nothing for longer than this, it looks broken.
const PERIOD_SECONDS_MAX: u64 = 2;

impl NetworkSpec {
    /// Checks the parameters.
    ///
    /// # Errors
    /// The first invalid one.
    pub fn check(&self) -> Result<(), SpecError> {
        let (block, least, most) = match self.protocol {
            Protocol::Tcp => ("block", 1, BLOCK_MAX),
            Protocol::Udp => ("datagram", 64, DATAGRAM_MAX),
        };
        let bounds = [
            ("flows", self.flows, 1, FLOWS_MAX),
            ("seconds", self.seconds, 1, DAY),
            (block, self.block_bytes, least, most),
        ];
        for (what, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                let [value, least, most] = [value, least, most].map(u64::from);
                return Err(SpecError::Bounds { what, value, least, most });
            }
        }
        match self.rate {
            Some(rate) if rate.saturating_mul(PERIOD_SECONDS_MAX) < u64::from(self.block_bytes) => {
                Err(SpecError::Slow { rate, block: self.block_bytes })
            }
            _ => Ok(()),
        }
    }

    /// A description for the user who runs the server.
    pub(super) fn words(&self) -> String {
        let protocol = match self.protocol {
            Protocol::Tcp => "TCP",
            Protocol::Udp => "UDP",
        };
        let direction = match self.direction {
            Direction::To => "to here",
            Direction::From => "from here",
            Direction::Both => "each way",
        };
        format!("{} flows of {protocol} {direction}, for {} s", self.flows, self.seconds)
    }

    /// Returns all flows with their numbers; `true` for those to the server.
    pub fn all_flows(&self) -> impl Iterator<Item = (u32, bool)> + use<> {
        let (to, from) = match self.direction {
            Direction::To => (self.flows, 0),
            Direction::From => (0, self.flows),
            Direction::Both => (self.flows, self.flows),
        };
        (0..to).map(|number| (number, true)).chain((to..to.saturating_add(from)).map(|number| (number, false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_parameters_are_refused() {
        let right = NetworkSpec {
            protocol: Protocol::Tcp,
            direction: Direction::Both,
            flows: 2,
            processes: Processes::One,
            at_once: false,
            seconds: 1,
            block_bytes: 1 << 17,
            rate: Some(1 << 17),
        };
        assert_eq!(right.check(), Ok(()));
        assert_eq!(right.all_flows().collect::<Vec<_>>(), [(0, true), (1, true), (2, false), (3, false)]);
        let from = NetworkSpec { direction: Direction::From, ..right.clone() };
        assert_eq!(from.all_flows().collect::<Vec<_>>(), [(0, false), (1, false)]);
        for (wrong, text) in [
            (NetworkSpec { flows: 0, ..right.clone() }, "flows is 0; give 1 to 256"),
            (NetworkSpec { flows: 257, ..right.clone() }, "flows is 257"),
            (NetworkSpec { seconds: 0, ..right.clone() }, "seconds is 0"),
            (NetworkSpec { block_bytes: 0, ..right.clone() }, "block is 0"),
            (NetworkSpec { block_bytes: u32::MAX, ..right.clone() }, "block is"),
            (NetworkSpec { protocol: Protocol::Udp, ..right.clone() }, "datagram is 131072; give 64 to 65507"),
            (NetworkSpec { rate: Some(10), ..right.clone() }, "a higher rate"),
        ] {
            let said = wrong.check().unwrap_err().to_string();
            assert!(said.contains(text), "{said}");
        }
    }
}
