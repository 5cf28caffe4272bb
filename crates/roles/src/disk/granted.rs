//! What a client's permission is good for here.

use std::sync::Arc;
use std::time::Duration;

use cluster::server::{Grant, GrantRights, Input, Shows};
use store::{Reader, Verified};
use types::capability::{Capability, CapabilityError, PathMark, Rights, Wanted};
use types::{BodyId, ErrorCode, Ino, NsPath, PieceId, Stripe, Timestamp, WriterToken};

use super::piece::whole_of;
use super::store_shell::StoreShell;
use super::{DiskServer, Permit, Placed, PlacedError};
use crate::grant::{Layout, StripedRights, To};
use crate::message::About;

/// How long after its beginning a server's session may still be on its way; longer than the manager can take it for its own predecessor.
const EARLY: Duration = Duration::from_secs(10);

/// A permission that was found good.
#[derive(Clone)]
pub enum Granted {
    /// To read.
    Read(ReadGrant),
    /// To write.
    Write(WriteGrant),
    /// A striped file, to be put together here.
    Striped(StripedGrant),
}

impl Granted {
    /// Whether it is to write.
    #[must_use]
    pub fn is_to_write(&self) -> bool {
        match self {
            Self::Read(_) => false,
            Self::Write(_) => true,
            Self::Striped(striped) => matches!(striped.rights, StripedRights::Write { .. }),
        }
    }
}

/// A striped file, and what may be done with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripedGrant {
    /// The content.
    pub body: BodyId,
    /// The object that it is the content of, or will be.
    pub ino: Ino,
    /// Its permission bits.
    pub mode: u16,
    /// When it was changed last.
    pub mtime: Timestamp,
    /// How it is dealt out.
    pub stripe: Stripe,
    /// To do what.
    pub rights: StripedRights,
}

#[derive(Clone)]
struct Good {
    server: Arc<DiskServer>,
    shell: Arc<StoreShell>,
    piece: PieceId,
    ino: Ino,
    mode: u16,
    mtime: Timestamp,
    grant: Grant,
}

/// To read a content.
#[derive(Clone)]
pub struct ReadGrant(Good);

/// To write one.
#[derive(Clone)]
pub struct WriteGrant {
    good: Good,
    writer: WriterToken,
    is_new: bool,
}

impl DiskServer {
    /// Reads the permission that a client shows with `path`.
    ///
    /// # Errors
    /// It is good for nothing here (any more): the client is sent to the manager where that helps.
    pub fn granted(
        self: &Arc<Self>,
        capability: &[u8],
        path: &NsPath,
        now: Timestamp,
    ) -> Result<Granted, PlacedError> {
        let keys = self.keys.read();
        let keys = keys.as_ref().ok_or_else(|| self.moved_or_early())?;
        let wanted = Wanted { server: self.settings.node, path: PathMark::of(path), rights: Rights::READ, now };
        let capability = match Capability::check(capability, keys, &wanted) {
            Ok(capability) => capability,
            Err(
                CapabilityError::Expired { .. }
                | CapabilityError::UnknownKey { .. }
                | CapabilityError::OtherServer { .. },
            ) => {
                return Err(self.moved());
            }
            Err(error) => return Err(PlacedError::Permission(error)),
        };
        let Layout { to, ino, mode, mtime } = Layout::decode(&capability.layout).ok_or_else(|| self.moved())?;
        let grant = match to {
            To::Piece(grant) => grant,
            To::Striped(striped) => {
                let (body, rights) = (capability.body, striped.rights);
                let stripe = Stripe::new(u64::from(striped.width), striped.chunk).map_err(|_| self.moved())?;
                return Ok(Granted::Striped(StripedGrant { body, ino, mode, mtime, stripe, rights }));
            }
        };
        let shell = self.stores.get(&grant.store).cloned().ok_or_else(|| self.moved())?;
        let good =
            Good { server: Arc::clone(self), shell, piece: PieceId::first(capability.body), ino, mode, mtime, grant };
        match self.session() {
            Some(session) if session == good.grant.session => {}
            Some(_) => return Err(self.moved()),
            None => return Err(self.moved_or_early()),
        }
        Ok(match good.grant.rights {
            GrantRights::Write { writer, may_make, .. } => {
                Granted::Write(WriteGrant { writer, is_new: may_make, good })
            }
            GrantRights::Read { .. } | GrantRights::Follow | GrantRights::Kept { .. } => Granted::Read(ReadGrant(good)),
        })
    }
}

impl DiskServer {
    /// The client is to ask the manager; but not one that has not heard yet that this server has begun anew: it would send the client back at once, and
    /// again, until that has enough of it.
    fn moved_or_early(&self) -> PlacedError {
        if self.world.now().since(self.began) < EARLY {
            return PlacedError::Wait { seconds: 1, why: "this server has just begun, and is not in session yet" };
        }
        self.moved()
    }
}

impl ReadGrant {
    /// The object that is read, its permission bits, and when it was changed last, as the manager has said.
    #[must_use]
    pub fn attributes(&self) -> (Ino, u16, Timestamp) {
        (self.0.ino, self.0.mode, self.0.mtime)
    }

    /// Opens what is to be read.
    ///
    /// # Errors
    /// It may not be shown here any more, or cannot be read.
    pub fn open(self) -> Result<(Arc<Reader>, Permit), PlacedError> {
        let Good { server, shell, piece, grant, .. } = self.0;
        let permit = Permit::new(Arc::clone(&server), Arc::clone(&shell), piece, grant);
        if let Shows::Whole(whole) = permit.shows()?
            && whole_of(&shell.at, piece)? != Some(whole)
        {
            return Err(server.moved());
        }
        let reader = shell.at.store.open_read(piece)?;
        Ok((reader, permit))
    }

    /// Reads it through, as [`store::Store::verify`] does: what it finds is of what might be shown before and after.
    ///
    /// # Errors
    /// As there, and those of [`ReadGrant::open`].
    pub fn verify(self, progress: &mut dyn FnMut(u64) -> bool) -> Result<Verified, PlacedError> {
        let (store, piece) = (Arc::clone(&self.0.shell.at.store), self.0.piece);
        let (_, permit) = self.open()?;
        let verified = store.verify(piece, progress)?;
        permit.check().map(|()| verified)
    }
}

impl WriteGrant {
    /// Whether it is a new content, and no file that is changed in place.
    #[must_use]
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Becomes the one who orders the changes of the content, or goes on with that. It may wait for the disk. `path` and `expected_len`: what a new
    /// piece is made with.
    ///
    /// # Errors
    /// Somebody else orders them by now, or the store cannot.
    pub fn attach(self, path: &[u8], expected_len: Option<u64>) -> Result<Arc<Placed>, PlacedError> {
        let Self { good: Good { server, shell, piece, ino, grant, .. }, writer, is_new } = self;
        let state = shell.piece(piece);
        state.set_about(About { path: path.to_vec(), expected_len });
        let is_shared = matches!(&grant.rights, GrantRights::Write { participants, .. } if participants.len() > 1);
        let placed = Placed::new(Arc::clone(&server), shell, state, (writer, ino), is_new, is_shared);
        placed.ask(|by| Input::Attach { by, piece, grant })?;
        Ok(Arc::new(placed))
    }

    /// The same, for who ends it: where something else is in its place, the manager is told that nothing of it is kept.
    pub(super) fn attach_to_end(self, path: &[u8], expected_len: Option<u64>) -> Result<Arc<Placed>, PlacedError> {
        let (server, shell) = (Arc::clone(&self.good.server), Arc::clone(&self.good.shell));
        let (piece, grant) = (self.good.piece, self.good.grant.clone());
        let attached = self.attach(path, expected_len);
        if attached.as_ref().is_err_and(|error| error.code() == ErrorCode::Exists) {
            server.step(&shell, Input::NothingKept { piece, grant }, None);
        }
        attached
    }
}
