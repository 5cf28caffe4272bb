//! The invitation of a new cluster's first administrator.

use std::time::Duration;

use foundation::DataDir;
use link::Authority;
use link::admin::AdminRole;
use manager::administrators::{AdminState, AdminView, Administrators, Invite};
use types::Timestamp;

use crate::init::replace_text;
use crate::manager_identity::ADMINISTRATORS_FILE;

/// Where the invitation is, in the manager's data directory.
const FIRST_INVITATION_FILE: &str = "cluster/first-invitation";
/// The name of the first administrator.
const NAME: &str = "first-admin";
/// How long the invitation is valid. Whoever can read the file can also read the key of the cluster beside it.
const VALID: Duration = Duration::from_secs(30 * 86_400);

/// Who has invited the first administrator.
const BY: &str = "the first start";
/// Stands in the file before there is an invitation. Found at a start: the one before ended in between.
const BEGUN: &str = "the manager is making this invitation\n";

/// Whether the first administrator must be invited. An invitation is made in three steps: the file says that it has begun,
/// the list has the invitation, and then the file. So a file that is missing later was removed by somebody.
fn must_invite(has_begun: bool, has_list: bool, is_new: bool, administrators: &[AdminView]) -> bool {
    let is_ours = |view: &AdminView| view.invited_by == BY && view.state != AdminState::Active;
    if has_begun { administrators.iter().all(is_ours) } else { is_new && !has_list }
}

/// Invites the first administrator of a cluster that is new and had none, and writes the invitation to a file that only the
/// user that weir runs as can read. The cluster works without it, so an error is only logged: whoever is that user or root
/// there can invite administrators.
pub(crate) fn invite_if_none(
    data: &DataDir,
    administrators: &Administrators,
    address: &str,
    authority: &Authority,
    (is_new, now): (bool, Timestamp),
) {
    let file = data.held().join(FIRST_INVITATION_FILE);
    let has_begun = std::fs::read(&file).is_ok_and(|text| text == BEGUN.as_bytes());
    let has_list = data.held().join(ADMINISTRATORS_FILE).exists();
    if !must_invite(has_begun, has_list, is_new, &administrators.list(now)) {
        return;
    }
    let write = |text: &str| replace_text(&file, text, true, 0o600, None).map_err(|error| error.to_string());
    let invite = || {
        write(BEGUN)?;
        // Nobody has seen one that was made before.
        let _ = administrators.revoke(NAME, now);
        let invite = Invite { name: NAME.into(), role: AdminRole::Admin, valid: VALID, access: None, by: BY.into() };
        let invited = administrators.invite(invite, vec![address.to_owned()], authority.fingerprint(), now);
        write(&format!("{}\n", invited.map_err(|error| error.to_string())?))
    };
    match invite() {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn view(invited_by: &str, state: AdminState) -> AdminView {
        let (name, id, invited_by) = (NAME.into(), "00".into(), invited_by.into());
        AdminView { name, id, role: AdminRole::Admin, state, invited_by, invited: 0, until: 0 }
    }

    #[test]
    fn only_a_new_cluster_without_administrators_invites_one() {
        assert!(must_invite(false, false, true, &[]), "also after a crash before the first step");
        assert!(!must_invite(false, false, false, &[]), "a cluster that was restored, or had disk servers before");
        // The operator has removed the file, whatever became of the invitation.
        for state in [AdminState::Invited, AdminState::Active, AdminState::Revoked, AdminState::Expired] {
            assert!(!must_invite(false, true, true, &[view(BY, state)]), "{state:?}");
        }
        // A crash between the steps: nobody has seen the invitation.
        assert!(must_invite(true, false, false, &[]));
        assert!(must_invite(true, true, false, &[view(BY, AdminState::Invited)]));
        assert!(!must_invite(true, true, true, &[view(BY, AdminState::Active)]));
        assert!(!must_invite(true, true, true, &[view("root", AdminState::Invited)]), "there is another way in");
    }
}
