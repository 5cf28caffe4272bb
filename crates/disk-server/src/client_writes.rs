//! The open writes of this server's clients. The front end's service knows whether their clients are there.

use node::{Claim, ClaimResult, ClientPresence, FromDisk, LENGTHS_MAX, OpenWriteLength};
use parking_lot::RwLock;
use types::WriterToken;

use super::DiskServer;

/// The open writes of clients, as the front end's service knows them. No call may wait.
pub trait ClientWrites: Send + Sync {
    /// Decides about a claim, and reports the result to [`DiskServer::claimed`], perhaps later.
    fn settle(&self, claim: Claim);
    /// Whether the client of an open write is there.
    fn presence(&self, writer: WriterToken) -> ClientPresence;
    /// The lengths of the files that are being written, at most `limit`.
    fn lengths(&self, limit: usize) -> Vec<OpenWriteLength>;
}

/// The service, while it runs.
#[derive(Default)]
pub(super) struct ClientWritesOfService(RwLock<Option<Box<dyn ClientWrites>>>);

impl DiskServer {
    /// Sets the service whose clients write files. `None` for no service.
    pub fn set_client_writes(&self, writes: Option<Box<dyn ClientWrites>>) {
        *self.client_writes.0.write() = writes;
    }

    /// Handles a claim of the manager.
    pub(super) fn claim(&self, claim: Claim) {
        match &*self.client_writes.0.read() {
            Some(writes) => writes.settle(claim),
            None => self.claimed(claim.number, ClaimResult::Unknown),
        }
    }

    /// Tells the manager what becomes of an open write.
    pub fn claimed(&self, number: u64, found: ClaimResult) {
        self.world.to_manager(FromDisk::Claimed { number, found });
    }

    /// The manager asks whether the client of an open write is there.
    pub(super) fn ask_client(&self, number: u64, writer: WriterToken) {
        let found = match &*self.client_writes.0.read() {
            Some(writes) => writes.presence(writer),
            None => ClientPresence::Unknown,
        };
        self.world.to_manager(FromDisk::Client { number, writer, found });
    }

    /// Tells the manager how long the files are that clients write.
    pub(super) fn report_lengths(&self) {
        let lengths = match &*self.client_writes.0.read() {
            Some(writes) => writes.lengths(LENGTHS_MAX),
            None => return,
        };
        self.world.to_manager(FromDisk::Lengths(lengths));
    }
}
