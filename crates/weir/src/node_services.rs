//! The background work of a running node: the scrub, and the control socket that takes requests.

use std::sync::Arc;
use std::time::Duration;

use config::Config;
use control::{Answers, Caller, Control, ControlRequest, Person, Reply};
use foundation::Foundation;
use kv::JournaledIndex;
use maintenance::scrub::{MarkedFiles, Scrub, ScrubConfig};
use service::Service;
use store::Store;

use crate::exit::Exit;
use crate::health::{Judged, NodeHealth};
use crate::people::People;
use crate::{Failure, admin_api, explain, maintain, quotas};

/// How long a stop waits for unfinished answers.
const ANSWERS_PATIENCE: Duration = Duration::from_millis(500);

/// The scrub, the judgement and the socket.
pub struct NodeServices {
    scrub: Arc<Scrub>,
    health: Arc<NodeHealth>,
    control: Option<Control>,
    for_users: Option<Control>,
}

impl NodeServices {
    /// Starts them. `front` shows what the front end does, `people` finds out who users of this machine are.
    pub fn start(
        foundation: &Foundation,
        config: &Config,
        front: xrootd::Watch,
        people: &Arc<People>,
    ) -> Result<Self, Failure> {
        let scrub = ScrubConfig {
            rate: config.scrub_rate,
            period: config.scrub_period,
            created: u64::try_from(foundation.made.0 / 1_000_000_000).unwrap_or(0),
        };
        let (store, namespace) = (Arc::clone(&foundation.objects.store), Arc::clone(&foundation.names.namespace));
        let findings = Arc::new(MarkedFiles { namespace, store: Arc::clone(&store) });
        let scrub = Scrub::start(Arc::clone(&foundation.disk), store, findings, scrub)
            .map_err(|error| Failure::new(Exit::Failed, error).while_doing("cannot start the scrub"))?;
        let scrub = Arc::new(scrub);
        let service = Arc::clone(front.service());
        let audit = service.config().audit.clone();
        let judged = Judged::Single {
            store: Arc::clone(&foundation.objects.store),
            namespace: Arc::clone(&foundation.names.namespace),
            scrub: Arc::clone(&scrub),
            front,
        };
        let indexes = vec![Arc::clone(&foundation.names.index), Arc::clone(&foundation.objects.index)];
        let health = Arc::new(NodeHealth::new(judged, Arc::clone(&foundation.directory), indexes, audit.clone()));
        let namespace = Arc::clone(&foundation.names.index);
        let store = Arc::clone(&foundation.objects.store);
        let admin_api =
            Arc::new(AdminApi { scrub: Arc::clone(&scrub), health: Arc::clone(&health), namespace, store, service });
        let (owners, people) = (Arc::clone(&admin_api), Arc::clone(people));
        let answers = Answers::new(move |_: &Caller, ask: ControlRequest| admin_api.answer(ask))
            .with_owners(move |person: &Person, ask: ControlRequest| owners.answer_owner(person, &ask))
            .with_users(move |uid| people.user(uid));
        let for_users = People::listen(config, &answers, &audit)?;
        let has_socket = config.data.is_some();
        let control = has_socket.then(|| Control::start(&foundation.directory, answers, audit));
        let control = control.transpose().map_err(|error| Failure::new(Exit::Failed, error))?;
        Ok(Self { scrub, health, control, for_users })
    }

    /// The judgement of the node.
    pub(crate) fn health(&self) -> &Arc<NodeHealth> {
        &self.health
    }

    /// The scrub.
    pub(crate) fn scrub(&self) -> &Arc<Scrub> {
        &self.scrub
    }

    /// Ends the connections at the socket for all users of the machine. Whoever may still act can ask again.
    pub fn cut_users(&self) {
        self.for_users.iter().for_each(Control::cut);
    }

    /// Ends them. Call it before closing the stores and indexes that they use.
    pub fn stop(mut self) {
        self.scrub.stop();
        for control in [&mut self.for_users, &mut self.control].into_iter().flatten() {
            control.stop(ANSWERS_PATIENCE);
        }
    }
}

/// Answers the requests that arrive at the socket.
struct AdminApi {
    scrub: Arc<Scrub>,
    health: Arc<NodeHealth>,
    namespace: Arc<JournaledIndex>,
    store: Arc<Store>,
    service: Arc<Service>,
}

impl AdminApi {
    /// Answers somebody who may own the tree that the request is about. There are no policies here.
    fn answer_owner(&self, person: &Person, ask: &ControlRequest) -> Reply {
        let Person { who, .. } = person;
        match self.service.tree_owner(&who.name, &who.groups, who.rights.clone()) {
            Ok(who) => quotas::answer_owner(&self.service, &who, ask)
                .unwrap_or_else(|| Reply::Refused("this is a single node, with one store: it has no policies".into())),
            Err(error) => Reply::Denied(error.to_string()),
        }
    }

    fn answer(&self, ask: ControlRequest) -> Reply {
        match ask {
            ControlRequest::Status => admin_api::told(self.health.status()),
            ControlRequest::ScrubStatus => self.scrub_status(),
            ControlRequest::ScrubNow { rate } => match self.scrub.now(rate) {
                Ok(()) => self.scrub_status(),
                Err(why) => Reply::Refused(why),
            },
            ControlRequest::ScrubStop => {
                self.scrub.give_up();
                self.scrub_status()
            }
            ControlRequest::ForgetRecent => admin_api::forget_recent(Some(&self.store)),
            ControlRequest::MakeToken { .. }
            | ControlRequest::Tokens
            | ControlRequest::RevokeToken { .. }
            | ControlRequest::AdminInvite { .. }
            | ControlRequest::Admins
            | ControlRequest::AdminRevoke { .. }
            | ControlRequest::Authority
            | ControlRequest::AuthorityRotate
            | ControlRequest::AuthorityRetire { .. }
            | ControlRequest::AdminRenew { .. } => Reply::Refused(
                "this is a single node: run the command on a cluster's manager (`weir serve --role manager`)".into(),
            ),
            ControlRequest::Stores
            | ControlRequest::ClusterStatus
            | ControlRequest::Top
            | ControlRequest::File { .. }
            | ControlRequest::Missing { .. }
            | ControlRequest::PolicySet { .. }
            | ControlRequest::PolicyApply { .. }
            | ControlRequest::PolicyGet { .. }
            | ControlRequest::PolicyRemove { .. }
            | ControlRequest::PolicyList
            | ControlRequest::Drain { .. }
            | ControlRequest::StoreReadOnly { .. }
            | ControlRequest::StoreRemove { .. }
            | ControlRequest::StoreRemoveLost { .. }
            | ControlRequest::NodeRemove { .. }
            | ControlRequest::FsckCluster { .. }
            | ControlRequest::Restored { .. }
            | ControlRequest::Repair => Reply::Refused(
                "this is a single node, with one store: run the command on a cluster's manager (`weir serve --role manager`)".into(),
            ),
            ask @ ControlRequest::Explain { .. } => explain::answer(&self.service, &ask).unwrap_or_else(|| {
                Reply::Refused("this version of weir does not do that".into())
            }),
            ControlRequest::Backup { since } => maintain::back_up(&self.namespace, since),
            ask @ (ControlRequest::TreeCreate { .. }
            | ControlRequest::TreeOwner { .. }
            | ControlRequest::Trees { .. }
            | ControlRequest::QuotaSet { .. }
            | ControlRequest::Quotas { .. }) => quotas::answer(&self.service, &ask)
                .unwrap_or_else(|| Reply::Refused("this version of weir does not do that".into())),
            ask @ (ControlRequest::Principals { .. }
            | ControlRequest::Principal { .. }
            | ControlRequest::PrincipalAdd { .. }
            | ControlRequest::PrincipalRename { .. }) => crate::identities::answer(&self.service, &ask).unwrap_or_else(|| {
                Reply::Refused("this version of weir does not do that".into())
            }),
        }
    }

    fn scrub_status(&self) -> Reply {
        Reply::Done(serde_json::to_value(self.scrub.status()).unwrap_or_default())
    }
}
