//! The rule that has decided about an access, in words, and a witness of all decisions about an actor.
//!
//! The words come from the decision itself ([`decide`]): nothing here decides again.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use parking_lot::Mutex;
use types::PrincipalId;

use crate::tree::acl::{AclEntry, AclTag, Permissions};
use crate::tree::permission::decide;
use crate::{Access, AccessKind, Actor, Read};

/// Most entries of an ACL that a rule shows.
const SHOWN_MAX: usize = 4;
/// Most decisions that a witness keeps.
const STEPS_MAX: usize = 1024;
/// Stands before and after the number of a principal in a rule, where its name belongs. Paths have it only escaped.
const MARK: char = '\u{1}';

/// What has decided.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// Who the administrator is.
    Administrator,
    /// Who the owner is, and the owner's bits.
    Owner,
    /// The ACL's entry of a user.
    NamedUser,
    /// The bits of the owning group, or the ACL's entries of the actor's groups.
    Groups,
    /// The bits or the entry of all others.
    Others,
}

/// A decision about an actor.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// What it is about.
    pub place: String,
    /// What is needed there: `r`, `w`, `x`, or words.
    pub needs: &'static str,
    /// Whether the actor has that.
    pub allowed: bool,
    /// The rule that has decided. [`named`] gives the principals in it their names.
    pub rule: String,
}

/// Keeps the decisions about an actor in their order.
#[derive(Debug, Default)]
pub struct Witness(Mutex<Vec<Step>>);

impl Witness {
    /// A witness that has seen nothing yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What was decided, from the first decision on.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        self.0.lock().clone()
    }

    pub(crate) fn saw(&self, step: Step) {
        let mut steps = self.0.lock();
        // An operation looks at some things twice.
        if steps.len() < STEPS_MAX && !steps.contains(&step) {
            steps.push(step);
        }
    }
}

/// Witnesses are equal if they are the same one.
impl PartialEq for Witness {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}
impl Eq for Witness {}

/// The number of a principal, marked so that its name can take its place.
pub(crate) struct Marked(pub(crate) PrincipalId);

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{MARK}{}{MARK}", self.0)
    }
}

/// A rule with the numbers of principals.
pub(crate) fn numbered(rule: &str) -> String {
    rule.replace(MARK, "")
}

/// A rule with the names of the principals that have one.
#[must_use]
pub fn named(read: &dyn Read, rule: &str) -> String {
    let mut shown = String::with_capacity(rule.len());
    for (at, part) in rule.split(MARK).enumerate() {
        // Each second part is a number. One that is none, or has no name, stays.
        let id = part.parse().ok().filter(|_| at % 2 == 1).map(PrincipalId);
        match id.and_then(|id| crate::name_of(read, id).ok().flatten()) {
            Some((_, name)) => shown.push_str(name.as_str()),
            None => shown.push_str(part),
        }
    }
    shown
}

/// The decision, and the rule that made it, in words.
#[cold]
pub(crate) fn rule_of(actor: &Actor, access: &Access, want: AccessKind) -> (bool, String) {
    let mut entries = Vec::new();
    let (allowed, by) = decide(actor, access, want, &mut |entry| entries.push(entry));
    let you = Marked(actor.principal);
    let no = if allowed { "" } else { "no " };
    let rule = match (want.permission(), by) {
        (_, By::Administrator) => "the administrator may do everything".into(),
        (None, _) if allowed => format!("the owner ({}) may, and you are {you}", Marked(access.owner)),
        (None, _) => format!("only its owner ({}) may, you are {you}", Marked(access.owner)),
        (Some(wanted), by) => {
            if by == By::NamedUser {
                // It alone decides.
                entries.drain(..entries.len().saturating_sub(1));
            }
            match entries.is_empty() {
                false => rule_of_acl(actor, access, &entries, (wanted, allowed)),
                true => {
                    let class = match by {
                        By::Owner | By::Administrator | By::NamedUser => "owner",
                        By::Groups => "group",
                        By::Others => "others",
                    };
                    let (mode, owner, group) = (access.mode, Marked(access.owner), Marked(access.group));
                    let letter = letter(wanted);
                    format!(
                        "mode {mode:04o} of owner {owner} group {group} gives {class} {no}{letter}, and you are {you}"
                    )
                }
            }
        }
    };
    (allowed, rule)
}

/// Names the entries that decided, and the mask where it counts.
fn rule_of_acl(actor: &Actor, access: &Access, entries: &[AclEntry], (wanted, allowed): (Permissions, bool)) -> String {
    let mut rule = String::from(if entries.len() == 1 { "the ACL's entry " } else { "the ACL's entries " });
    for (number, entry) in entries.iter().take(SHOWN_MAX).enumerate() {
        let between = if number == 0 { "" } else { ", " };
        let _ = match entry.tag {
            AclTag::User(id) => write!(rule, "{between}user:{}:{}", Marked(id), entry.permissions),
            AclTag::Group(id) => write!(rule, "{between}group:{}:{}", Marked(id), entry.permissions),
            _ => write!(rule, "{between}{entry}"),
        };
    }
    if entries.len() > SHOWN_MAX {
        let _ = write!(rule, " and {} more", entries.len() - SHOWN_MAX);
    }
    let is_masked = entries.iter().any(|entry| entry.tag != AclTag::Other && entry.permissions.has(wanted));
    if is_masked {
        let _ = write!(rule, " and the mask {}", Permissions::of_mode(access.mode, 3));
    }
    let verb = if entries.len() == 1 && !is_masked { "gives" } else { "give" };
    let no = if allowed { "" } else { "no " };
    let _ = write!(rule, " {verb} {no}{}, and you are {}", letter(wanted), Marked(actor.principal));
    rule
}

/// The rule about the removal from a sticky directory.
#[cold]
pub(crate) fn rule_of_sticky(actor: &Actor, owner: PrincipalId, entry_owner: PrincipalId) -> String {
    if actor.is_admin() {
        return "the administrator may do everything".into();
    }
    if actor.principal == owner || actor.principal == entry_owner {
        let what = if actor.principal == owner { "it" } else { "the entry" };
        return format!("the directory is sticky, and {what} is yours");
    }
    format!("the directory is sticky, and neither it nor the entry (owner {}) is yours", Marked(entry_owner))
}

fn letter(wanted: Permissions) -> &'static str {
    match wanted {
        Permissions::READ => "r",
        Permissions::WRITE => "w",
        _ => "x",
    }
}
