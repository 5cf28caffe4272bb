//! Changes of the files that all managers have: a manager that may not act makes none, because another one may be active, whose files replace these.

use std::sync::Arc;

use control::{ControlRequest, Reply};
use link::admin::{AdminError, AdminGrant, AdminStore, PresentedInvitation};
use types::Timestamp;

const LOST_TOUCH: &str = "this manager has lost touch with its database; ask again in a moment";

/// Whether this manager may act ([`manager::Manager::may_grant`]).
pub(crate) type MayAct = dyn Fn() -> bool + Send + Sync;

/// Whether a request changes the files.
fn changes_files(ask: &ControlRequest) -> bool {
    matches!(
        ask,
        ControlRequest::AdminInvite { .. }
            | ControlRequest::AdminRevoke { .. }
            | ControlRequest::AdminRenew { .. }
            | ControlRequest::AuthorityRotate
            | ControlRequest::AuthorityRetire { .. }
    )
}

/// The answer to a request, if this manager may act before and after, as far as the request needs that.
pub(crate) fn answer(may_act: impl Fn() -> bool, ask: &ControlRequest, answer: impl FnOnce() -> Reply) -> Reply {
    if !changes_files(ask) {
        return answer();
    }
    if !may_act() {
        return Reply::Refused(LOST_TOUCH.into());
    }
    match answer() {
        // It may have been changed too late, and be replaced by the files of the manager that is active now.
        Reply::Done(_) | Reply::Stream(..) | Reply::Late(..) if !may_act() => Reply::Refused(LOST_TOUCH.into()),
        reply => reply,
    }
}

/// Records redeemed invitations while this manager may act.
pub(crate) struct WhileActive {
    pub(crate) store: Arc<dyn AdminStore>,
    pub(crate) may_act: Box<MayAct>,
}

impl WhileActive {
    fn check(&self) -> Result<(), AdminError> {
        if (self.may_act)() { Ok(()) } else { Err(AdminError::Failed(LOST_TOUCH.into())) }
    }
}

impl AdminStore for WhileActive {
    fn redeem(
        &self,
        presented: &PresentedInvitation,
        key: &[u8; 32],
        now: Timestamp,
    ) -> Result<AdminGrant, AdminError> {
        self.check()?;
        let grant = self.store.redeem(presented, key, now)?;
        self.check()?;
        Ok(grant)
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    /// May act for the first `count` questions.
    fn for_questions(count: u32) -> Box<MayAct> {
        let asked = AtomicU32::new(0);
        Box::new(move || asked.fetch_add(1, Ordering::Relaxed) < count)
    }

    #[test]
    fn a_manager_without_a_lease_changes_no_files() {
        let revoke = ControlRequest::AdminRevoke { name: "ana".into() };
        let retire = ControlRequest::AuthorityRetire { force: true };
        let renew = ControlRequest::AdminRenew { request: String::new() };
        for ask in [revoke, retire, renew, ControlRequest::AuthorityRotate] {
            for (questions, is_changed, is_acknowledged) in [(0, false, false), (1, true, false), (2, true, true)] {
                let changed = Cell::new(false);
                let change = || {
                    changed.set(true);
                    Reply::Done(serde_json::json!("done"))
                };
                let reply = answer(for_questions(questions), &ask, change);
                assert_eq!(changed.get(), is_changed, "{ask:?} {questions}");
                assert_eq!(matches!(reply, Reply::Done(_)), is_acknowledged, "{ask:?} {questions}");
                assert!(is_acknowledged || matches!(reply, Reply::Refused(why) if why == LOST_TOUCH));
            }
        }
        let shown = answer(for_questions(0), &ControlRequest::Admins, || Reply::Done(serde_json::json!([])));
        assert!(matches!(shown, Reply::Done(_)), "who only looks is answered");
        let refused = answer(for_questions(1), &ControlRequest::AuthorityRotate, || Reply::Refused("why".into()));
        assert!(matches!(refused, Reply::Refused(why) if why == "why"));
    }
}
