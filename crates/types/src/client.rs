//! The identity of a client, as recovery after a lost connection needs it.

use crate::PrincipalId;

/// A client as a writer: the principal that the server knows it to be, and what a stock client says of itself. Two
/// connections of one client process are equal; this is how a server recognises a writer that lost its connection.
/// What the client says proves nothing and grants nothing, so the principal comes first: a
/// client that repeats the words of another principal is another client.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct ClientIdentity {
    /// The principal, as the server knows it; never taken from what the client says.
    pub principal: PrincipalId,
    /// The login name that the client sent (at most 8 bytes in XRootD's login request).
    pub user: String,
    /// The client's process id, as it sent it.
    pub pid: u32,
    /// The address of the connection, without the port.
    pub host: String,
}

/// Shows who it is, for people. The client chooses its name, so it may contain any characters.
impl std::fmt::Display for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { principal, user, pid, host } = self;
        write!(f, "{}.{pid}@{} (principal {principal})", user.escape_debug(), host.escape_debug())
    }
}

/// The kernel's boot (`/proc/sys/kernel/random/boot_id`). Unsynced bytes in this kernel still exist as long as it has
/// not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default, serde::Serialize, serde::Deserialize)]
pub struct BootId(pub u128);

impl BootId {
    /// The boot generation of bytes written through a journal. It differs for every boot, journal (`incarnation`, a
    /// random number) and count of `losses`.
    #[must_use]
    pub const fn of_log(self, incarnation: u64, losses: u64) -> Self {
        let log = (incarnation as u128) << 64;
        Self((self.0 ^ log).wrapping_add(losses as u128))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_boot_journal_and_loss_gives_another_value() {
        let mut seen = std::collections::HashSet::new();
        for boot in [BootId(0), BootId(1), BootId(u128::MAX)] {
            for incarnation in [0, 5, u64::MAX] {
                for losses in [0, 7, 300] {
                    assert!(seen.insert(boot.of_log(incarnation, losses)), "{boot:?} {incarnation} {losses}");
                }
            }
        }
    }
}
