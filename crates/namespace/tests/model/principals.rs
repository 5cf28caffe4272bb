//! The model's users and groups, and the steps that name and rename them.

use std::collections::BTreeMap;

use kv::Read;
use namespace as ns;
use rand::Rng;
use types::{ErrorCode, PrincipalId, PrincipalKind, PrincipalName};

use super::harness::{Checked, World, same};
use super::{Res, Who};

/// A user or a group.
type Named = (PrincipalKind, String);

#[derive(Clone, Debug, Default)]
pub struct Principals {
    /// The numbers by kind and name.
    numbers: BTreeMap<Named, u32>,
    /// How many numbers have been given.
    given: u32,
}

impl Principals {
    fn number(&self, named: &Named) -> Option<u32> {
        if named.1 == "admin" { Some(0) } else { self.numbers.get(named).copied() }
    }

    /// Everything, in the order of kinds and names.
    pub fn listed(&self) -> Vec<(PrincipalKind, String, u32)> {
        self.numbers.iter().map(|((kind, name), number)| (*kind, name.clone(), *number)).collect()
    }

    pub fn name(&mut self, who: &Who, names: &[Named]) -> Res<Vec<u32>> {
        if who.id != 0 {
            return Err(ErrorCode::Denied);
        }
        if names.iter().any(|(kind, name)| *kind == PrincipalKind::User && name.contains('/')) {
            return Err(ErrorCode::Invalid);
        }
        let mut found = Vec::new();
        for named in names {
            let number = self.number(named).unwrap_or_else(|| {
                self.given += 1;
                let number = (1 << 20) - 1 + self.given;
                self.numbers.insert(named.clone(), number);
                number
            });
            found.push(number);
        }
        Ok(found)
    }

    pub fn rename(&mut self, who: &Who, from: &Named, to: &Named) -> Res<()> {
        if who.id != 0 {
            return Err(ErrorCode::Denied);
        }
        if from.1 == "admin" || (to.0 == PrincipalKind::User && to.1.contains('/')) {
            return Err(ErrorCode::Invalid);
        }
        let number = self.number(from).ok_or(ErrorCode::NotFound)?;
        if self.number(to).is_some() {
            return Err(ErrorCode::Exists);
        }
        self.numbers.remove(from);
        self.numbers.insert(to.clone(), number);
        Ok(())
    }
}

/// The real table, in pages of `page`, after a look at both directions.
pub fn listed(read: &dyn Read, page: usize) -> Vec<(PrincipalKind, String, u32)> {
    let mut all = Vec::new();
    for kind in PrincipalKind::ALL {
        let mut after: Option<PrincipalName> = None;
        loop {
            let part = ns::principals(read, kind, after.as_ref(), page).unwrap();
            assert!(part.len() <= page);
            let Some((last, _)) = part.last() else { break };
            after = Some(last.clone());
            for (name, id) in part {
                assert_eq!(ns::number_of(read, kind, &name).unwrap(), Some(id));
                assert_eq!(ns::name_of(read, id).unwrap(), Some((kind, name.clone())));
                all.push((kind, name.to_string(), id.0));
            }
        }
    }
    all
}

impl World {
    /// A user or a group. Some users get a name that only groups may have.
    fn any_principal(&mut self, kind: PrincipalKind) -> Named {
        let names = ["ann", "bob", "eve", "atlas", "cms", "lhcb", "ann@cern.ch", "admin", "atlas/prod"];
        (kind, names[self.rng.random_range(0..names.len())].to_owned())
    }

    fn any_kind(&mut self) -> PrincipalKind {
        PrincipalKind::ALL[self.rng.random_range(0..2)]
    }

    /// Names or renames users and groups, on both sides.
    pub(super) fn change_principals(&mut self) -> Checked {
        let user = self.user();
        // The type lets a caller use the name of a group for a user.
        let parsed = |named: &Named| PrincipalName::parse(PrincipalKind::Group, &named.1).unwrap();
        if self.rng.random_ratio(1, 3) {
            let kind = self.any_kind();
            let (mut from, to) = (self.any_principal(kind), self.any_principal(kind));
            // Somebody who has a name, more often than chance would.
            let there: Vec<&Named> = self.model.principals.numbers.keys().filter(|named| named.0 == kind).collect();
            if !there.is_empty() && self.rng.random_ratio(2, 3) {
                from = there[self.rng.random_range(0..there.len())].clone();
            }
            self.say(format!("user {} renames {from:?} to {to:?}", user.id));
            let real = self.change(&user, ns::RenamePrincipal { kind, from: parsed(&from), to: parsed(&to) })?;
            let model = self.model.principals.rename(&user, &from, &to);
            self.renamed_principals += u64::from(self.agree(real, model)?.is_some());
            return Ok(());
        }
        let count = self.rng.random_range(0..3);
        let mut names = Vec::new();
        for _ in 0..count {
            let kind = self.any_kind();
            names.push(self.any_principal(kind));
        }
        self.say(format!("user {} names {names:?}", user.id));
        let of_request: Vec<_> = names.iter().map(|named| (named.0, parsed(named))).collect();
        let before = ns::numbers_of(&*self.kv.snapshot(), &of_request).map_err(|error| error.to_string())?;
        let all: Option<Vec<u32>> = names.iter().map(|named| self.model.principals.number(named)).collect();
        same("known numbers", before.map(plain), all)?;
        let real = self.change(&user, ns::NamePrincipals { names: of_request })?;
        let model = self.model.principals.name(&user, &names);
        if let Some((real, model)) = self.agree(real, model)? {
            same("numbers", plain(real), model)?;
        }
        Ok(())
    }
}

fn plain(numbers: Vec<PrincipalId>) -> Vec<u32> {
    numbers.into_iter().map(|id| id.0).collect()
}
