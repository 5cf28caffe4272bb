//! Who may set the policies and quotas of which directories: the administrator everywhere, an owner in the own trees and nowhere else.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;
use std::time::Duration;

use kv::{Durability, Kv, MemoryKv};
use namespace::{self as ns, Actor, Namespace, NamespaceConfig, NsError, Operation, QuotaOf, TreeOwner};
use types::{ErrorCode, NsPath, PathOperation, PrincipalId, Timestamp};

const ANA: PrincipalId = PrincipalId(10);
const BEN: PrincipalId = PrincipalId(11);
const EVE: PrincipalId = PrincipalId(12);
const CMS: PrincipalId = PrincipalId(20);
const OTHERS: PrincipalId = PrincipalId(21);

/// `yes`, `no` (denied), `none` (there is no such directory, and the actor may know), `file` (it is none).
///
/// `/atlas` is a tree of ana with a tree `/atlas/sub` of ben in it; `/cms` is a tree of the group cms. All directories below have the mode 0700 and
/// belong to the administrator.
const TABLE: &str = "
path                       admin ana  ben  cms  nobody
/                          yes   no   no   no   no
/plain                     yes   no   no   no   no
/atlas                     yes   yes  no   no   no
/atlas/                    yes   yes  no   no   no
/atlas/d                   yes   yes  no   no   no
/atlas/file                file  file no   no   no
/atlas/absent              none  none no   no   no
/atlas/absent/more         none  none no   no   no
/atlas/sub                 yes   yes  yes  no   no
/atlas/sub/d               yes   yes  yes  no   no
/atlas/sub/absent          none  none none no   no
/cms                       yes   no   no   yes  no
/cms/d                     yes   no   no   yes  no
/cms/absent                none  no   no   none no
/atlasx                    none  no   no   no   no
/absent/more               none  no   no   no   no
/atlas/to-cms              yes   no   no   yes  no
/atlas/to-cms/d            yes   no   no   yes  no
/atlas/to-cms/absent       none  no   no   none no
/atlas/up                  yes   no   no   no   no
/atlas/up/cms/d            yes   no   no   yes  no
/atlas/d/to-sub            yes   yes  yes  no   no
/atlas/sub/up              yes   yes  no   no   no
/atlas/sub/up/d            yes   yes  no   no   no
/atlas/loop                loop  no   no   no   no
/cms/to-atlas              yes   yes  no   no   no
/plain/to-atlas/d          yes   yes  no   no   no
";

struct World {
    kv: Arc<dyn Kv>,
    ns: Arc<Namespace>,
}

fn path(text: &str) -> NsPath {
    NsPath::parse(text.as_bytes()).unwrap()
}

fn limit(at: &str, of: QuotaOf) -> ns::SetQuota {
    let [hard_bytes, soft_bytes, hard_files, soft_files] = [None; 4];
    ns::SetQuota { path: path(at), of, hard_bytes, soft_bytes, hard_files, soft_files, grace: None }
}

fn user(id: PrincipalId) -> Actor {
    Actor::new(id, Arc::from([OTHERS]))
}

fn in_cms() -> Actor {
    Actor::new(EVE, Arc::from([OTHERS, CMS]))
}

impl World {
    fn new() -> Self {
        let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
        let ns = Namespace::open(Arc::clone(&kv), Timestamp(1), NamespaceConfig::default()).unwrap();
        let w = Self { kv, ns };
        for (at, is_tree) in [
            ("/plain", false),
            ("/atlas", true),
            ("/atlas/d", false),
            ("/atlas/sub", true),
            ("/atlas/sub/d", false),
            ("/cms", true),
            ("/cms/d", false),
        ] {
            w.change(ns::Mkdir { path: path(at), mode: 0o700, parents: false }).unwrap();
            if is_tree {
                w.change(ns::MakeTree { path: path(at) }).unwrap();
            }
        }
        let how = ns::WriteMode::NewOnly;
        w.change(ns::OpenWrite::new(path("/atlas/file"), how, types::ClientIdentity::default(), types::BootId(1)))
            .unwrap();
        for (at, target) in [
            ("/atlas/to-cms", "/cms"),
            ("/atlas/up", ".."),
            ("/atlas/d/to-sub", "../sub/"),
            ("/atlas/sub/up", "../../atlas"),
            ("/atlas/loop", "loop"),
            ("/cms/to-atlas", "../atlas"),
            ("/plain/to-atlas", "/atlas"),
        ] {
            w.change(ns::Symlink { path: path(at), target: target.as_bytes().to_vec() }).unwrap();
        }
        w.give("/atlas", Some(TreeOwner::User(ANA))).unwrap();
        w.give("/atlas/sub", Some(TreeOwner::User(BEN))).unwrap();
        w.give("/cms", Some(TreeOwner::Group(CMS))).unwrap();
        w
    }

    fn as_who<O: Operation + Send + 'static>(&self, who: &Actor, op: O) -> Result<O::Reply, NsError> {
        let ctx = self.ns.context(Timestamp(1_000), who, None);
        self.ns.change_wait(Durability::Synced, ctx, op)
    }

    fn change<O: Operation + Send + 'static>(&self, op: O) -> Result<O::Reply, NsError> {
        self.as_who(&Actor::admin(), op)
    }

    fn give(&self, at: &str, owner: Option<TreeOwner>) -> Result<(), NsError> {
        self.change(ns::SetTreeOwner { path: path(at), owner })
    }

    fn owner(&self, at: &str) -> Option<TreeOwner> {
        let read = |read: &dyn ns::Read| {
            let tree = ns::tree_of_root(read, &Actor::admin(), &path(at))?;
            Ok(ns::TreeRecord::get(read, tree)?.unwrap().owner)
        };
        self.ns.read(read).unwrap()
    }

    /// Who may set the hard limit of `of` in the tree at `at` from 100 to `to`.
    fn sets(&self, who: &Actor, at: &str, of: QuotaOf, to: Option<u64>) -> bool {
        self.change(ns::SetQuota { hard_bytes: Some(Some(100)), ..limit(at, of) }).unwrap();
        match self.as_who(who, ns::SetQuota { hard_bytes: Some(to), ..limit(at, of) }) {
            Ok(()) => true,
            Err(error) => {
                assert_eq!(error.code(), ErrorCode::Denied, "{error}");
                false
            }
        }
    }
}

fn word<T>(result: Result<T, NsError>) -> &'static str {
    match result.map_err(|error| error.code()) {
        Ok(_) => "yes",
        Err(ErrorCode::Denied) => "no",
        Err(ErrorCode::NotFound) => "none",
        Err(ErrorCode::NotDirectory) => "file",
        Err(ErrorCode::Loop) => "loop",
        Err(other) => panic!("{other:?}"),
    }
}

#[test]
fn an_owner_decides_in_the_own_trees_alone_wherever_links_lead() {
    let w = World::new();
    let who = [Actor::admin(), user(ANA), user(BEN), in_cms(), user(EVE)];
    let mut rows = 0;
    for line in TABLE.trim().lines().skip(1) {
        let mut columns = line.split_whitespace();
        let at = columns.next().unwrap();
        let expected: Vec<&str> = columns.collect();
        let found = |done: &dyn Fn(&Actor) -> &'static str| who.iter().map(done).collect::<Vec<_>>();
        let policy = || types::Policy::default();
        let set = found(&|who| word(w.as_who(who, ns::SetPolicy { path: path(at), policy: policy() })));
        assert_eq!(set, expected, "set the policy of {at}");
        let look = found(&|who| word(w.ns.read(|read| ns::permit_tree_owner(read, who, &path(at)))));
        assert_eq!(look, expected, "look at the policy of {at}");
        let removed = found(&|who| {
            let _ = w.change(ns::SetPolicy { path: path(at), policy: policy() });
            word(w.as_who(who, ns::RemovePolicy { path: path(at) }))
        });
        assert_eq!(removed, expected, "remove the policy of {at}");
        // The quotas of users: of roots of trees only.
        let is_root = ["/", "/atlas", "/atlas/", "/atlas/sub", "/cms"].contains(&at);
        if is_root {
            let set = found(&|who| word(w.as_who(who, limit(at, QuotaOf::User(EVE)))));
            assert_eq!(set, expected, "set a quota in {at}");
        }
        rows += 1;
    }
    assert_eq!(rows, 27);
}

#[test]
fn a_denial_tells_nobody_what_is_there() {
    let w = World::new();
    let said = |at: &str| {
        let set = ns::SetPolicy { path: path(at), policy: types::Policy::default() };
        let why = w.as_who(&user(ANA), set).unwrap_err().to_string();
        why.replace(at, "PATH")
    };
    let absent = said("/plain/absent");
    assert!(absent.contains("only an administrator decides there, or the owner of the tree"), "{absent}");
    for there in [
        "/",
        "/plain",
        "/plain/absent/more",
        "/cms",
        "/cms/d",
        "/cms/absent",
        "/atlas/to-cms/d",
        "/atlas/up/x",
        "/atlas/loop/x",
    ] {
        assert_eq!(said(there), absent, "{there}");
    }
}

#[test]
fn only_the_administrator_loosens_the_limits_of_a_tree_itself() {
    let w = World::new();
    for at in ["/atlas", "/atlas/sub"] {
        for (of, may_raise) in [(QuotaOf::Tree, false), (QuotaOf::User(EVE), true), (QuotaOf::Group(CMS), true)] {
            assert!(w.sets(&user(ANA), at, of, Some(99)) && w.sets(&user(ANA), at, of, Some(100)));
            assert_eq!(w.sets(&user(ANA), at, of, Some(101)), may_raise, "{at} {of:?}");
            assert_eq!(w.sets(&user(ANA), at, of, None), may_raise, "{at} {of:?}");
            assert!(w.sets(&Actor::admin(), at, of, Some(101)) && w.sets(&Actor::admin(), at, of, None));
            assert!(!w.sets(&in_cms(), at, of, Some(1)), "{at} {of:?}");
        }
    }
    // Each limit by itself, and the time above a soft one.
    let day = Duration::from_secs(86_400);
    let given = ns::SetQuota {
        hard_bytes: Some(Some(100)),
        soft_bytes: Some(Some(50)),
        hard_files: Some(Some(100)),
        soft_files: Some(Some(50)),
        grace: Some(day),
        ..limit("/cms", QuotaOf::Tree)
    };
    w.change(given.clone()).unwrap();
    let (more, none, less) = (Some(Some(60)), Some(None), Some(Some(10)));
    let of = || limit("/cms", QuotaOf::Tree);
    for looser in [
        ns::SetQuota { soft_bytes: more, ..of() },
        ns::SetQuota { soft_bytes: none, ..of() },
        ns::SetQuota { soft_files: more, ..of() },
        ns::SetQuota { soft_files: none, ..of() },
        ns::SetQuota { hard_files: Some(Some(101)), ..of() },
        ns::SetQuota { hard_files: none, ..of() },
        ns::SetQuota { grace: Some(day * 2), ..of() },
        ns::SetQuota { soft_bytes: less, soft_files: more, ..of() },
    ] {
        let why = w.as_who(&in_cms(), looser.clone()).unwrap_err();
        assert!(why.to_string().contains("only an administrator raises or removes limits"), "{why} {looser:?}");
    }
    for tighter in
        [ns::SetQuota { soft_bytes: less, ..of() }, ns::SetQuota { soft_files: less, grace: Some(day / 2), ..of() }]
    {
        w.as_who(&in_cms(), tighter).unwrap();
    }
    // A first limit is no loosening. A grace longer than the usual 7 days would be one: it would hold for what the administrator sets later.
    let first = |grace| ns::SetQuota { soft_files: less, grace, ..limit("/atlas", QuotaOf::Tree) };
    for endless in [day * 7 + Duration::from_secs(1), Duration::MAX] {
        let why = w.as_who(&user(ANA), first(Some(endless))).unwrap_err();
        assert!(why.to_string().contains("only an administrator raises or removes limits"), "{why}");
    }
    w.as_who(&user(ANA), first(Some(day * 7))).unwrap();
    w.as_who(&user(ANA), first(None)).unwrap();
}

#[test]
fn only_the_administrator_gives_trees_and_makes_them() {
    let w = World::new();
    for who in [user(ANA), user(BEN), in_cms()] {
        for at in ["/atlas", "/atlas/sub", "/cms", "/"] {
            let owner = Some(TreeOwner::User(who.principal));
            assert_eq!(
                w.as_who(&who, ns::SetTreeOwner { path: path(at), owner }).unwrap_err().code(),
                ErrorCode::Denied
            );
        }
        assert_eq!(w.as_who(&who, ns::MakeTree { path: path("/atlas/d") }).unwrap_err().code(), ErrorCode::Denied);
    }
    assert_eq!(w.give("/atlas/d", None).unwrap_err().code(), ErrorCode::Invalid, "it is no root of a tree");
    assert_eq!(w.owner("/atlas"), Some(TreeOwner::User(ANA)));
    // By a link, the tree is the one that the link leads to.
    w.give("/atlas/to-cms", None).unwrap();
    assert_eq!((w.owner("/cms"), w.owner("/atlas")), (None, Some(TreeOwner::User(ANA))));
    assert_eq!(word(w.as_who(&in_cms(), limit("/cms", QuotaOf::User(EVE)))), "no");
    // A user and a group of one number are two owners.
    w.give("/cms", Some(TreeOwner::Group(ANA))).unwrap();
    assert_eq!(word(w.as_who(&user(ANA), limit("/cms", QuotaOf::User(EVE)))), "no");
    // Whoever gets the root gets all trees.
    w.give("/", Some(TreeOwner::User(BEN))).unwrap();
    assert_eq!(word(w.as_who(&user(BEN), limit("/cms", QuotaOf::User(EVE)))), "yes");
}

#[test]
fn an_owner_stays_when_the_namespace_opens_again_and_the_root_moves() {
    let w = World::new();
    w.change(ns::Rename { from: path("/atlas"), to: path("/moved"), replace: false }).unwrap();
    let ns = Namespace::open(Arc::clone(&w.kv), Timestamp(2), NamespaceConfig::default()).unwrap();
    let again = World { kv: Arc::clone(&w.kv), ns };
    assert_eq!(again.owner("/moved"), Some(TreeOwner::User(ANA)));
    assert_eq!(word(again.as_who(&user(ANA), limit("/moved/sub", QuotaOf::User(EVE)))), "yes");
    // A new tree of the same name has nobody's.
    again.change(ns::Mkdir { path: path("/gone"), mode: 0o700, parents: false }).unwrap();
    again.change(ns::MakeTree { path: path("/gone") }).unwrap();
    again.give("/gone", Some(TreeOwner::User(ANA))).unwrap();
    again.change(ns::Rmdir { path: path("/gone") }).unwrap();
    again.change(ns::Mkdir { path: path("/gone"), mode: 0o700, parents: false }).unwrap();
    assert_eq!(word(again.as_who(&user(ANA), limit("/gone", QuotaOf::User(EVE)))), "no");
    again.change(ns::MakeTree { path: path("/gone") }).unwrap();
    assert_eq!(again.owner("/gone"), None);
}

/// The credential is for what is in this directory alone, as that of an issuer whose part begins there.
#[derive(Debug)]
struct Below(&'static str);

impl ns::PathLimits for Below {
    fn permit(&self, operation: PathOperation, at: &NsPath) -> Result<(), String> {
        let is_below = at.to_string().strip_prefix(self.0).is_some_and(|rest| rest.starts_with('/'));
        if is_below && operation == PathOperation::ModifyDirectory { Ok(()) } else { Err("limited".into()) }
    }
}

#[test]
fn the_limits_of_a_credential_hold_also_behind_links() {
    let w = World::new();
    let limited = user(ANA).with_limits(Arc::new(Below("/atlas/d")));
    let set = |at: &str| word(w.as_who(&limited, ns::SetPolicy { path: path(at), policy: types::Policy::default() }));
    assert_eq!(["/atlas/d", "/atlas", "/atlas/sub", "/atlas/d/to-sub"].map(set), ["yes", "no", "no", "no"]);
}
