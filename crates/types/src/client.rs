//! Who is at the other end, as far as recovery after a lost connection needs to know.

/// What a stock client says of itself, and where it comes from. Two connections of one client process are equal;
/// this is how a writer that lost its connection is recognised (`design`: a file's life). It proves nothing about
/// identity and grants nothing.
#[derive(Clone, PartialEq, Eq, Debug, Hash, Default)]
pub struct ClientIdentity {
    /// The login name that the client gave (at most 8 bytes in XRootD's login request).
    pub user: String,
    /// The client's process id, as it gave it.
    pub pid: u32,
    /// The address that the connection comes from, without the port.
    pub host: String,
}

/// The kernel's boot (`/proc/sys/kernel/random/boot_id`): bytes that reached this kernel and were not synced are
/// still there as long as this has not changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, Default)]
pub struct BootId(pub u128);
