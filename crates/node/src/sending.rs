//! Sends messages to other nodes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use link::{MessageError, Outgoing, Room, SharedBytes};
use types::NodeId;

use crate::bulk::BulkBytes;
use crate::links::Links;
use crate::message::Message;

/// Passes messages to connections. It never waits.
pub struct Sending {
    /// The connections.
    pub links: Arc<Links>,
    /// Whether an oversized message was already logged.
    has_complained: AtomicBool,
}

impl Sending {
    /// Sends over these connections.
    #[must_use]
    pub fn new(links: &Arc<Links>) -> Self {
        Self { links: Arc::clone(links), has_complained: AtomicBool::new(false) }
    }

    /// Sends a message, with `bulk` behind it. Returns whether a connection accepted it. Nobody reports whether it arrives.
    pub fn tell(&self, to: NodeId, message: &Message, bulk: Option<Arc<BulkBytes>>) -> bool {
        let bytes = match link::encode(message) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.complain(to, &error);
                return false;
            }
        };
        let outgoing = match bulk {
            Some(bulk) => Outgoing::new(bytes).with_bulk(bulk as SharedBytes),
            None => Outgoing::new(bytes),
        };
        let sent = self.links.tell(to, outgoing, Room::Try);
        if let Err(error) = &sent {
            tracing::debug!(node = %to, %error, "a message was not sent");
        }
        sent.is_ok()
    }

    /// An oversized message is a bug in this program, not a network problem. It would repeat, so it is logged once.
    fn complain(&self, to: NodeId, error: &MessageError) {
        if self.has_complained.swap(true, Ordering::Relaxed) {
            tracing::debug!(node = %to, %error, "a message cannot be sent");
        } else {
            tracing::error!(node = %to, %error, "a message cannot be sent, and will not be repeated; please report this");
        }
    }
}
