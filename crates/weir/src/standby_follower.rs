//! Keeps a standby manager current: it registers with the active one, and fetches the files that all managers have, again and again.

use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use foundation::DataDir;
use link::{Authority, Credentials, Identity, ManagerFiles};
use manager::administrators::Administrators;
use node::links::{Links, Peer};
use node::registration::{self, Registration};
use node::renewal::{Move, Renewal};
use types::NodeId;

use crate::Failure;
use crate::cluster_node::start_renewal;
use crate::exit::Exit;
use crate::manager_join::identity_file;
use crate::manager_process::Sockets;
use crate::standby::Known;

/// How often it asks the active manager whether the files have changed.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// The thread. It ends when this is dropped; stop the connections before, or it may wait for an answer.
pub(crate) struct Follower {
    known: Arc<Known>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

struct Following {
    known: Arc<Known>,
    links: Arc<Links>,
    authority: Arc<Authority>,
    administrators: Arc<Administrators>,
    registration: Registration,
    /// The connection on which it has registered.
    registered: Option<Peer>,
}

impl Follower {
    pub(crate) fn start(
        known: &Arc<Known>,
        links: &Arc<Links>,
        authority: &Arc<Authority>,
        administrators: Arc<Administrators>,
        sockets: &Sockets,
    ) -> Result<Self, Failure> {
        let registration = Registration {
            run: rand::random(),
            for_nodes: vec![sockets.for_nodes.clone()],
            for_clients: vec![sockets.for_clients.clone()],
            stores: Vec::new(),
        };
        let mut following = Following {
            known: Arc::clone(known),
            links: Arc::clone(links),
            authority: Arc::clone(authority),
            administrators,
            registration,
            registered: None,
        };
        let (stop, stopped) = channel::<()>();
        let follow = move || {
            loop {
                following.look();
                if stopped.recv_timeout(ASK_EVERY) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("follower".into()).spawn(follow);
        let thread = thread
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot follow the active manager"))?;
        Ok(Self { known: Arc::clone(known), stop: Some(stop), thread: Some(thread) })
    }

    /// Renews the certificate of this node: the active manager signs it, once the authority is here that it is of.
    pub(crate) fn renew(
        &self,
        identity: Identity,
        data: &DataDir,
        credentials: Arc<Credentials>,
        links: &Arc<Links>,
        authority: &Arc<Authority>,
    ) -> Result<Renewal, Failure> {
        let (known, signing, asking) = (Arc::clone(&self.known), Arc::clone(links), Arc::clone(links));
        let (moving, authority) = (Arc::clone(links), Arc::clone(authority));
        let active = move || known.holder().map(|holder| NodeId(holder.node)).filter(|node| asking.is_up(*node));
        let sign = move |request: &[u8]| {
            let active = active().ok_or("there is no connection with the active manager")?;
            registration::renew(&signing, active, request).map_err(|error| error.to_string())
        };
        let moved = move |one: Move| match one {
            Move::Joined => moving.reopen("this node shows its certificate of the cluster's new authority"),
            Move::Alone(_) => {
                moving.cut_strangers();
            }
        };
        let file = identity_file(&data.held());
        let trusted = move || Ok(Some(authority.set()));
        start_renewal(identity, (data, file), credentials, Box::new(sign), Box::new(trusted), Box::new(moved))
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that follows the active manager had panicked");
        }
    }
}

impl Following {
    fn look(&mut self) {
        let Some(holder) = self.known.holder() else { return };
        self.links.keep_managers(&[(holder.for_nodes.clone(), Some(NodeId(holder.node)))]);
        let active = NodeId(holder.node);
        // Without a connection, the state of the manager says so.
        let Some(peer) = self.links.peer(active) else { return };
        let trouble = self.follow(active, &peer).err();
        self.known.set_trouble(trouble);
    }

    fn follow(&mut self, active: NodeId, peer: &Peer) -> Result<(), String> {
        let is_registered = self.registered.as_ref().is_some_and(|registered| registered.is_same_connection(peer));
        if !is_registered {
            registration::register(&self.links, active, &self.registration).map_err(|error| error.to_string())?;
            self.registered = Some(peer.clone());
        }
        let Some(ManagerFiles { authority, administrators }) = self.ask(active)? else { return Ok(()) };
        if self.authority.follow(authority).map_err(|error| error.to_string())? {
            tracing::info!(authority = %self.authority.fingerprint(), "the cluster's authority has changed, and this manager has it");
        }
        if self.administrators.follow(administrators)? {
            tracing::info!("the cluster's administrators have changed, and this manager has them");
        }
        // It learns that they are stored here, without waiting for the next turn.
        self.ask(active).map(drop)
    }

    /// Tells the active manager which files are stored here. It answers with its own, if they are others.
    fn ask(&self, active: NodeId) -> Result<Option<ManagerFiles>, String> {
        let known = self.administrators.files(&self.authority).digest().unwrap_or_default();
        registration::manager_files(&self.links, active, known).map_err(|error| error.to_string())
    }
}
