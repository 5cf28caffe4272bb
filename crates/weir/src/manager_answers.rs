//! What the active manager answers at its control socket, and to administrators on other machines.

use std::sync::Arc;
use std::time::Duration;

use config::ClusterRole;
use control::validity::{Limited, ValidityError};
use control::{Caller, ControlRequest, Person, Reply};
use kv::JournaledIndex;
use link::{Authority, Roles};
use maintenance::backup::BACKUP_OF_DATABASE;
use manager::Manager;
use manager::administrators::{Administrators, Invite, RevokeAdminError};
use manager::tokens::{RevokeTokenError, Tokens};
use types::PrincipalKind;

use crate::admin::{Administrator, OfSettings};
use crate::authority::AuthorityKeeper;
use crate::cluster_node::now;
use crate::health::NodeHealth;
use crate::open_connections::OpenConnections;
use crate::people::People;
use crate::{acting, admin_api, explain, identities, maintain, manager_addresses};

/// Why a manager cannot get a token.
const NO_SECOND_MANAGER: &str = "the namespace of this cluster is in its manager's data directory, so it has one manager, and tokens are for disk servers; several managers need a database (docs/how-to/several-managers.md)";

/// Answers the requests that arrive at the control socket, and those of administrators.
pub(crate) struct ManagerAnswers {
    pub(crate) tokens: Tokens,
    pub(crate) administrators: Arc<Administrators>,
    pub(crate) open: Arc<OpenConnections>,
    pub(crate) address: String,
    pub(crate) authority: Arc<Authority>,
    pub(crate) keeper: AuthorityKeeper,
    pub(crate) manager: Arc<Manager>,
    pub(crate) service: Arc<service::Service>,
    pub(crate) health: Arc<NodeHealth>,
    /// The index of the namespace, or the address of the database that has the namespace.
    pub(crate) backup_from: Result<Arc<JournaledIndex>, String>,
    pub(crate) people: Arc<People>,
}

impl ManagerAnswers {
    fn revoke_admin(&self, name: &str) -> Reply {
        let revoked = self.administrators.revoke(name, now());
        match &revoked {
            // It holds as long as this manager runs, even if it could not be kept.
            Ok(ids) | Err(RevokeAdminError::Keep { ids, .. }) => self.open.cut(ids),
            Err(RevokeAdminError::Unknown(_)) => {}
        }
        match revoked {
            Ok(_) => self.listed_administrators(),
            Err(error @ RevokeAdminError::Unknown(_)) => Reply::Absent(error.to_string()),
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    /// Those with certificates, and those of the settings.
    fn listed_administrators(&self) -> Reply {
        let with_certificates = self.administrators.list(now()).into_iter().map(Administrator::Certificate);
        let rules = self.people.rules();
        let of_settings = rules.iter().map(|rule| {
            let of = OfSettings { name: rule.name.to_string(), role: rule.role };
            match rule.kind {
                PrincipalKind::User => Administrator::User(of),
                PrincipalKind::Group => Administrator::Group(of),
            }
        });
        Reply::long(&with_certificates.chain(of_settings).collect::<Vec<_>>())
    }

    /// Answers somebody who may own the tree that the request is about.
    pub(crate) fn answer_owner(&self, person: &Person, ask: &ControlRequest) -> Reply {
        let Person { who, .. } = person;
        match self.service.tree_owner(&who.name, &who.groups, who.rights.clone()) {
            Ok(who) => crate::quotas::answer_owner(&self.service, &who, ask)
                .or_else(|| admin_api::answer_owner(&self.manager, &who, ask))
                .unwrap_or_else(|| Reply::Denied("owners of trees cannot do this".into())),
            Err(error) => Reply::Denied(error.to_string()),
        }
    }

    /// Answers the requests about the cluster's authority.
    fn answer_authority(&self, caller: &Caller, ask: &ControlRequest) -> Option<Reply> {
        let reply = self.keeper.answer(ask)?;
        if matches!(ask, ControlRequest::AuthorityRetire { .. }) {
            // Whoever has asked gets the answer: nothing more is read from that connection.
            let spared = match caller {
                Caller::Remote { peer, .. } => Some(*peer),
                _ => None,
            };
            self.open.cut_strangers(&self.authority.set(), spared);
        }
        Some(reply)
    }

    fn renew_admin(&self, caller: &Caller, request: &str) -> Reply {
        let Caller::Remote { id, name, .. } = caller else {
            return Reply::Refused("on the manager's machine no certificate is needed".into());
        };
        let subject = link::admin::AdminName { cluster: self.authority.cluster(), id: *id };
        let renewed = self.administrators.renew(*id, now()).map_err(|error| error.to_string()).and_then(|grant| {
            self.authority.renew_admin(&subject, request, now(), grant.validity).map_err(|error| error.to_string())
        });
        match renewed {
            Ok(certificate) => {
                tracing::info!(name, "an administrator's certificate was renewed");
                Reply::Done(serde_json::json!({ "certificate": certificate }))
            }
            Err(why) => Reply::Refused(why),
        }
    }

    /// The addresses of all managers for nodes and commands.
    pub(crate) fn addresses(&self) -> Vec<String> {
        let all = self.manager.managers();
        manager_addresses::all(&self.address, all.iter().map(|manager| manager.nodes_at.as_str()))
    }

    fn listed(&self) -> Reply {
        match self.tokens.list(now()) {
            Ok(tokens) => Reply::long(&tokens),
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    pub(crate) fn answer(&self, caller: &Caller, ask: &ControlRequest) -> Reply {
        acting::answer(|| self.manager.may_grant(), ask, || self.answer_any(caller, ask))
    }

    fn answer_any(&self, caller: &Caller, ask: &ControlRequest) -> Reply {
        match ask {
            ControlRequest::AdminInvite { name, role, valid_millis, access_millis } => {
                let (name, role, by) = (name.clone(), *role, caller.with_credential());
                let (valid, access) = match invited_for(*valid_millis, *access_millis) {
                    Ok(times) => times,
                    Err(error) => return Reply::Refused(error.to_string()),
                };
                let invite = Invite { name, role, valid, access, by };
                let authority = self.authority.fingerprint();
                match self.administrators.invite(invite, self.addresses(), authority, now()) {
                    Ok(invitation) => Reply::Done(serde_json::json!({ "invitation": invitation })),
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
            ControlRequest::Admins => self.listed_administrators(),
            ControlRequest::AdminRevoke { name } => self.revoke_admin(name),
            ControlRequest::AdminRenew { request } => self.renew_admin(caller, request),
            ControlRequest::Status => admin_api::told(self.health.status()),
            ControlRequest::MakeToken { role, valid_millis, uses } => {
                let roles = match role {
                    // Its holder could impersonate the manager at every disk server, and the token would have no other use.
                    ClusterRole::Manager if self.backup_from.is_ok() => return Reply::Refused(NO_SECOND_MANAGER.into()),
                    ClusterRole::Manager => Roles::MANAGER,
                    ClusterRole::Disk => Roles::DISK,
                };
                let valid = match Limited::Token.check(Duration::from_millis(*valid_millis)) {
                    Ok(valid) => valid,
                    Err(error) => return Reply::Refused(error.to_string()),
                };
                let fingerprint = self.authority.fingerprint();
                match self.tokens.make(self.addresses(), fingerprint, roles, *uses, valid, now()) {
                    Ok(token) => {
                        tracing::info!(role = %roles, uses, "a token to join with was made");
                        Reply::Done(serde_json::json!({ "token": token }))
                    }
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
            ControlRequest::ScrubStatus => admin_api::told(self.manager.damage_view()),
            ControlRequest::ScrubNow { .. } | ControlRequest::ScrubStop => Reply::Refused(
                "this is a cluster's manager, and its disk servers read their stores: run the command on a disk server, \
                 with its --data; without --now, --rate and --stop it lists the damage here"
                    .into(),
            ),
            ControlRequest::ForgetRecent => {
                Reply::Refused("this is a cluster's manager, which has no data: run the command on a disk server, with its --data".into())
            }
            ControlRequest::Backup { since } => match &self.backup_from {
                Ok(index) => maintain::back_up(index, *since),
                Err(address) => Reply::Refused(format!(
                    "the namespace of this manager is in the database {address}; {BACKUP_OF_DATABASE} (docs/how-to/database.md)"
                )),
            },
            ControlRequest::Tokens => self.listed(),
            ControlRequest::RevokeToken { id } => match self.tokens.revoke(id, now()) {
                Ok(()) => {
                    tracing::info!(id, "a token was revoked");
                    self.listed()
                }
                Err(error @ RevokeTokenError::Unknown(_)) => Reply::Absent(error.to_string()),
                Err(error) => Reply::Refused(error.to_string()),
            },
            ask => identities::answer(&self.service, ask)
                .or_else(|| self.answer_authority(caller, ask))
                .or_else(|| explain::answer(&self.service, ask))
                .or_else(|| crate::quotas::answer(&self.service, ask))
                .or_else(|| admin_api::answer(&self.manager, ask))
                .unwrap_or_else(|| Reply::Refused("this is a cluster's manager, which does not do that yet".into())),
        }
    }
}

/// How long an invitation and the access are valid.
fn invited_for(valid: u64, access: Option<u64>) -> Result<(Duration, Option<Duration>), ValidityError> {
    let valid = Limited::Invitation.check(Duration::from_millis(valid))?;
    let access = access.map(|access| Limited::Access.check(Duration::from_millis(access))).transpose()?;
    Ok((valid, access))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_held_to_the_limits_that_the_command_says() {
        const DAY: u64 = 86_400_000;
        let time = Duration::from_millis;
        assert_eq!(invited_for(30 * DAY, None), Ok((time(30 * DAY), None)));
        assert_eq!(invited_for(1000, Some(3650 * DAY)), Ok((time(1000), Some(time(3650 * DAY)))));
        for (valid, access) in
            [(30 * DAY + 1, None), (999, None), (u64::MAX, None), (DAY, Some(0)), (DAY, Some(3650 * DAY + 1))]
        {
            assert!(invited_for(valid, access).is_err(), "{valid} {access:?}");
        }
    }
}
