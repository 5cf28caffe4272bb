//! Who a manager is: the cluster's authority and the manager's own identity, in its data directory.

use std::path::Path;
use std::sync::Arc;

use foundation::{DataDir, ManagerFoundation};
use link::{Authority, Identity, Roles, VALIDITY};
use namespace::{Actor, Durability, FIRST_NODE, FoundCluster};
use types::{ClusterId, ErrorCode, NodeId};

use crate::Failure;
use crate::cluster_node::{host_name, in_words, now};
use crate::database_start::was_removed;
use crate::exit::Exit;
use crate::manager_join::identity_file;
use crate::not_active::{Cause, NotActive};

/// The folder in the data directory that makes the node this cluster's manager.
pub(crate) const CLUSTER_DIR: &str = "cluster";
/// The identity of the manager that has made the cluster.
pub(crate) const IDENTITY_FILE: &str = "cluster/identity";
pub(crate) const ADMINISTRATORS_FILE: &str = "cluster/administrators";
pub(crate) const NODES_UNREADABLE: &str = "cannot read the nodes of the cluster";

/// The failure because of the namespace.
pub(crate) fn names_failed(error: namespace::NsError, what: &str) -> NotActive {
    let exit = if error.code() == ErrorCode::NoSpace { Exit::NoSpace } else { Exit::Failed };
    let cause = Cause::of_names(&error);
    NotActive::new(Failure::new(exit, error).while_doing(what), cause)
}

pub(crate) fn no_identity(error: link::IdentityError) -> Failure {
    Failure::new(Exit::DataDirectory, error)
}

/// The number of the manager whose data directory is `held`.
pub(crate) fn own_node(held: &Path) -> Result<NodeId, Failure> {
    match identity_file(held) {
        IDENTITY_FILE => Ok(FIRST_NODE),
        joined => Ok(Identity::read(&held.join(joined)).map_err(no_identity)?.name().node),
    }
}

/// The authority and the manager's own identity: made with the cluster or when the manager joined, then read.
pub(crate) fn who_we_are(
    data: &DataDir,
    foundation: &ManagerFoundation,
) -> Result<(Arc<Authority>, Identity), NotActive> {
    let folder = data.held().join(CLUSTER_DIR);
    let cluster = ClusterId(data.format.cluster);
    let members = foundation.names.namespace.read(namespace::members);
    let members = members.map_err(|error| names_failed(error, NODES_UNREADABLE))?;
    let has_joined = identity_file(&data.held()) != IDENTITY_FILE;
    let unusable = |error: link::AuthorityError| Failure::new(Exit::DataDirectory, error);
    // Made before there are members: after a crash in between, the next start finds the authority.
    let authority = match Authority::open(&folder) {
        Err(link::AuthorityError::File(link::FileError::Missing { .. })) if members.is_empty() && !has_joined => {
            Authority::create(&folder, cluster, now()).map_err(unusable)?
        }
        other => other.map_err(unusable)?,
    };
    let own = own_node(&data.held())?;
    let identity = own_identity(data, &authority, own)?;
    if let Some(failure) = was_removed(own, &members) {
        return Err(failure.into());
    }
    if !has_joined {
        // The manager did not join with a key, so it has no key to record.
        let founded = FoundCluster { roles: Roles::MANAGER.bits(), name: host_name(), key: [0; 32] };
        let ctx = foundation.names.namespace.context(now(), &Actor::admin(), None);
        let founded = foundation.names.namespace.change_wait(Durability::Synced, ctx, founded);
        founded.map_err(|error| names_failed(error, "cannot record that this node is the cluster's manager"))?;
    }
    Ok((Arc::new(authority), identity))
}

/// The identity of the manager `own`. With the authority, the manager can get a new one.
fn own_identity(data: &DataDir, authority: &Authority, own: NodeId) -> Result<Identity, Failure> {
    let (folder, file) = (data.held().join(CLUSTER_DIR), data.held().join(identity_file(&data.held())));
    let cluster = ClusterId(data.format.cluster);
    if authority.cluster() != cluster {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "{} is the authority of cluster {}, and the data directory of cluster {cluster}; nothing was changed. Put back the one that belongs to it",
                folder.display(),
                authority.cluster()
            ),
        ));
    }
    let issue = || -> Result<Identity, link::IdentityError> {
        let identity = Identity::issue(authority, own, Roles::MANAGER, now(), VALIDITY)?;
        identity.write(&file)?;
        Ok(identity)
    };
    let identity = match Identity::read(&file) {
        Err(link::IdentityError::File(link::FileError::Missing { .. })) => issue().map_err(no_identity)?,
        other => other.map_err(no_identity)?,
    };
    let (trusted, known) = (authority.set(), identity.authority());
    let is_of_it = trusted.follows(known) || known.follows(&trusted);
    if identity.name().cluster != cluster || !is_of_it {
        return Err(Failure::message(
            Exit::DataDirectory,
            format!(
                "{} is of another cluster's authority than the one beside it; nothing was changed. Move it away: a new one is made then",
                file.display()
            ),
        ));
    }
    // The authority was replaced, or comes from a backup, and the manager stopped before it had a certificate of it.
    if *known == trusted { Ok(identity) } else { issue().map_err(no_identity) }
}

/// The authority and the identity of the manager that has made the cluster, while another one may be active.
pub(crate) fn founder(data: &DataDir) -> Result<(Arc<Authority>, Identity), Failure> {
    let held = data.held();
    let authority = Authority::open(&held.join(CLUSTER_DIR)).map_err(|error| {
        in_words(data, &Failure::new(Exit::DataDirectory, error).while_doing(
            "another manager is active on this database, and this one has not joined its cluster; make a token there with `weir token create --role manager`, and start this one with it",
        ))
    })?;
    let identity = own_identity(data, &authority, FIRST_NODE).map_err(|failure| in_words(data, &failure))?;
    Ok((Arc::new(authority), identity))
}
