//! The invitation of a new cluster's first administrator.

use std::time::Duration;

use foundation::DataDir;
use link::Authority;
use link::admin::AdminRole;
use manager::administrators::{Administrators, Invite};
use types::Timestamp;

use crate::init::replace_text;

/// Where the invitation is, in the manager's data directory.
const FIRST_INVITATION_FILE: &str = "cluster/first-invitation";
/// The name of the first administrator.
const NAME: &str = "admin";
/// How long the invitation is valid. Whoever can read the file can also read the key of the cluster beside it.
const VALID: Duration = Duration::from_secs(30 * 86_400);

/// Invites the first administrator and writes the invitation to a file that only the user that weir runs as can read. The
/// cluster works without it, so an error is only logged: whoever is that user or root there can invite administrators.
pub(crate) fn invite(
    data: &DataDir,
    administrators: &Administrators,
    address: &str,
    authority: &Authority,
    now: Timestamp,
) {
    let invite =
        Invite { name: NAME.into(), role: AdminRole::Admin, valid: VALID, access: None, by: "the first start".into() };
    let invited = administrators
        .invite(invite, vec![address.to_owned()], authority.fingerprint(), now)
        .map_err(|error| error.to_string())
        .and_then(|text| {
            let file = data.held().join(FIRST_INVITATION_FILE);
            replace_text(&file, &format!("{text}\n"), true, 0o600, None).map_err(|error| error.to_string())
        });
    match invited {
        Ok(()) => tracing::info!(
            "the invitation of the first administrator is in {}: redeem it with `weir context add NAME --invite-file FILE`, \
             then remove it",
            data.path.join(FIRST_INVITATION_FILE).display()
        ),
        Err(error) => {
            // The name stays free for another invitation.
            let _ = administrators.revoke(NAME, now);
            tracing::warn!(
                "the first administrator cannot be invited: {error}; `weir admin invite {NAME} --role admin` does that"
            );
        }
    }
}
