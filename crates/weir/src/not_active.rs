//! Why a manager has not become active, and whether it can try again later as a standby.

use database::DatabaseError;
use foundation::OpenError;
use kv::KvError;
use manager::ManagerError;
use namespace::NsError;
use service::StartError;
use xrootd::ServerError;

use crate::Failure;

/// See the module.
pub(crate) struct NotActive {
    pub(crate) failure: Failure,
    pub(crate) cause: Cause,
}

/// What a manager that has not become active does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Cause {
    /// Another manager has the place in the database, or was faster: it is a standby.
    Taken,
    /// The database was away or busy. That may pass, so a manager that has served before is a standby again. At the first start the settings may be wrong.
    Passing,
    /// A person must do something: the process ends.
    Lasting,
}

impl From<Failure> for NotActive {
    fn from(failure: Failure) -> Self {
        Self { failure, cause: Cause::Lasting }
    }
}

impl NotActive {
    pub(crate) fn new(failure: Failure, cause: Cause) -> Self {
        Self { failure, cause }
    }
}

impl Cause {
    pub(crate) fn of_opening(error: &OpenError) -> Self {
        match error {
            OpenError::PlaceTaken { .. } => Self::Taken,
            OpenError::Database(error) => Self::of_database(error),
            OpenError::Namespace(error) => Self::of_names(error),
            OpenError::Index { source, .. } => Self::of_changes(source),
            _ => Self::Lasting,
        }
    }

    fn of_database(error: &DatabaseError) -> Self {
        match error {
            DatabaseError::InUse(_) | DatabaseError::TakenOver(_) => Self::Taken,
            DatabaseError::Unavailable { .. }
            | DatabaseError::Full { .. }
            | DatabaseError::Timeout(_)
            | DatabaseError::Conflict(_) => Self::Passing,
            _ => Self::Lasting,
        }
    }

    pub(crate) fn of_names(error: &NsError) -> Self {
        match error {
            NsError::Kv(error) => Self::of_changes(error),
            _ => Self::Lasting,
        }
    }

    /// An engine that has stopped is one whose place another manager has taken. If it was something that lasts, the next look at the database shows it.
    fn of_changes(error: &KvError) -> Self {
        match error {
            KvError::Unavailable(_) | KvError::Conflict { .. } | KvError::MaybeCommitted | KvError::Stopped { .. } => {
                Self::Passing
            }
            _ => Self::Lasting,
        }
    }

    pub(crate) fn of_manager(error: &ManagerError) -> Self {
        match error {
            ManagerError::Namespace(error) => Self::of_names(error),
            ManagerError::Start(_) => Self::Lasting,
        }
    }

    pub(crate) fn of_server(error: &ServerError) -> Self {
        match error {
            ServerError::Service(StartError::Writers(error)) => Self::of_names(error),
            _ => Self::Lasting,
        }
    }

    /// Whether the manager is a standby. `has_served`: it was ready before, active or as a standby.
    pub(crate) fn stands_down(self, has_served: bool) -> bool {
        match self {
            Self::Taken => true,
            Self::Passing => has_served,
            Self::Lasting => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_leaves_a_standby() {
        let why = || "why".to_owned();
        let address = why;
        let opening = |error| Cause::of_opening(&error);
        let database = |error: DatabaseError| opening(OpenError::Database(error));
        assert_eq!(opening(OpenError::PlaceTaken { address: address() }), Cause::Taken);
        assert_eq!(database(DatabaseError::InUse(why())), Cause::Taken);
        assert_eq!(database(DatabaseError::TakenOver(why())), Cause::Taken);
        let passing = [
            DatabaseError::Unavailable { address: address(), reason: why() },
            DatabaseError::Full { address: address(), reason: why() },
            DatabaseError::Timeout(why()),
            DatabaseError::Conflict(why()),
        ];
        for error in passing {
            let shown = error.to_string();
            assert_eq!(database(error.clone()), Cause::Passing, "{shown}");
            // The same while the namespace is opened, and when it is read and changed afterwards.
            let index = OpenError::Index { which: "namespace", source: error.clone().into() };
            assert_eq!(opening(index), Cause::Passing, "{shown}");
            assert_eq!(opening(OpenError::Namespace(NsError::Kv(error.clone().into()))), Cause::Passing, "{shown}");
            let manager = ManagerError::Namespace(NsError::Kv(error.clone().into()));
            assert_eq!(Cause::of_manager(&manager), Cause::Passing, "{shown}");
            let server = ServerError::Service(StartError::Writers(NsError::Kv(error.into())));
            assert_eq!(Cause::of_server(&server), Cause::Passing, "{shown}");
        }
        for error in [KvError::MaybeCommitted, KvError::Stopped { reason: why() }] {
            assert_eq!(Cause::of_names(&NsError::Kv(error)), Cause::Passing);
        }
        for error in [DatabaseError::LostTransactions(why()), DatabaseError::NoSpace(why())] {
            assert_eq!(database(error.clone()), Cause::Lasting, "{error}");
            assert_eq!(Cause::of_names(&NsError::Kv(error.into())), Cause::Lasting);
        }
        let refused = DatabaseError::Refused { address: address(), reason: why() };
        assert_eq!(database(refused), Cause::Lasting);
        assert_eq!(Cause::of_names(&NsError::Elsewhere), Cause::Lasting);
        assert_eq!(opening(OpenError::InDatabase { address: address() }), Cause::Lasting);
    }

    #[test]
    fn a_first_start_tells_what_is_wrong() {
        for has_served in [true, false] {
            assert!(Cause::Taken.stands_down(has_served) && !Cause::Lasting.stands_down(has_served));
            assert_eq!(Cause::Passing.stands_down(has_served), has_served);
        }
    }
}
