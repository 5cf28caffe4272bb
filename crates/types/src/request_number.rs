//! The number of a client's request.

use crate::SessionId;
use crate::striping::numbers;

/// The key of a number in a request of weir's own; the value is that of [`RequestNumber::show`].
pub const REQUEST_KEY: &str = "weir.request";

/// The number of a change within a client's session. A retry with the same number gets the first answer and changes
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, serde::Serialize, serde::Deserialize)]
pub struct RequestNumber {
    /// The client's session of numbered requests.
    pub session: SessionId,
    /// Counts up from 1 in each session.
    pub number: u64,
}

impl RequestNumber {
    /// The value for a request: session and number, as 16 hexadecimal digits each.
    #[must_use]
    pub fn show(self) -> String {
        format!("{:016x}.{:016x}", self.session.0, self.number)
    }

    /// Parses the value of [`RequestNumber::show`].
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let [session, number] = numbers(text, [16, 16])?;
        Some(Self { session: SessionId(session), number })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_number_round_trips() {
        let number = RequestNumber { session: SessionId(u64::MAX), number: 18 };
        assert_eq!(number.show(), "ffffffffffffffff.0000000000000012");
        assert_eq!(RequestNumber::parse(&number.show()), Some(number));
        for wrong in ["", "1.2", "ffffffffffffffff", &number.show()[1..], &format!("{}.0", number.show())] {
            assert_eq!(RequestNumber::parse(wrong), None, "{wrong}");
        }
    }
}
