//! The model's ACLs, written from acl(5).

use std::collections::BTreeMap;

use types::ErrorCode;

use super::{Kind, Model, Node, Res, Who};

/// Whom an entry is for, in the order in which entries are listed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum For {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Other,
}

/// All entries of an ACL.
pub type Entries = BTreeMap<For, u16>;

#[derive(Clone, Debug)]
pub enum Edit {
    Replace(Vec<(For, u16)>),
    Modify(Vec<(For, u16)>),
    Remove(Vec<For>),
    Clear,
}

fn is_named(of: &For) -> bool {
    matches!(of, For::User(_) | For::Group(_))
}

fn finish(mut entries: Entries, given: &[(For, u16)]) -> Entries {
    entries.remove(&For::Mask);
    let mask = given.iter().find(|(of, _)| *of == For::Mask).map(|(_, bits)| *bits);
    let in_class = |of: &For| is_named(of) || *of == For::OwningGroup;
    let all = entries.iter().filter(|(of, _)| in_class(of)).fold(0, |all, (_, bits)| all | bits);
    if let Some(mask) = mask {
        entries.insert(For::Mask, mask);
    } else if entries.keys().any(is_named) {
        entries.insert(For::Mask, all);
    }
    entries
}

pub fn edited(before: &Entries, edit: &Edit) -> Entries {
    let mut entries = before.clone();
    match edit {
        Edit::Replace(given) => {
            entries.retain(|of, _| !is_named(of));
            entries.extend(given.iter().copied());
            finish(entries, given)
        }
        Edit::Modify(given) => {
            entries.extend(given.iter().copied());
            finish(entries, given)
        }
        Edit::Remove(names) => {
            entries.retain(|of, _| !names.contains(of));
            finish(entries, &[])
        }
        Edit::Clear => {
            let mask = entries.remove(&For::Mask).unwrap_or(7);
            entries.retain(|of, _| !is_named(of));
            *entries.get_mut(&For::OwningGroup).unwrap() &= mask;
            entries
        }
    }
}

pub fn show(entries: &Entries, prefix: &str) -> Vec<String> {
    let bits = |bits: u16| {
        let letter = |bit, letter| if bits & bit == 0 { '-' } else { letter };
        format!("{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x'))
    };
    let one = |(of, granted): (&For, &u16)| {
        let who = match of {
            For::Owner => "user:".to_owned(),
            For::User(id) => format!("user:{id}"),
            For::OwningGroup => "group:".to_owned(),
            For::Group(id) => format!("group:{id}"),
            For::Mask => "mask:".to_owned(),
            For::Other => "other:".to_owned(),
        };
        format!("{prefix}{who}:{}", bits(*granted))
    };
    entries.iter().map(one).collect()
}

impl Node {
    /// The access ACL: from the mode alone, or with the further entries. Then the mode's group bits are the mask.
    pub fn entries(&self) -> Entries {
        let (owner, middle, other) = (self.mode >> 6 & 7, self.mode >> 3 & 7, self.mode & 7);
        match &self.further {
            None => Entries::from([(For::Owner, owner), (For::OwningGroup, middle), (For::Other, other)]),
            Some(further) => {
                let mut entries = further.clone();
                entries.extend([(For::Owner, owner), (For::Mask, middle), (For::Other, other)]);
                entries
            }
        }
    }

    pub fn set_entries(&mut self, mut entries: Entries) {
        let (owner, other) = (entries.remove(&For::Owner).unwrap(), entries.remove(&For::Other).unwrap());
        let mask = entries.remove(&For::Mask);
        let middle = mask.unwrap_or_else(|| entries[&For::OwningGroup]);
        self.mode = self.mode & !0o777 | owner << 6 | middle << 3 | other;
        self.further = mask.map(|_| entries);
    }

    /// What `who` gets: acl(5), "access check algorithm".
    pub fn grants(&self, who: &Who, bit: u16) -> bool {
        let entries = self.entries();
        let mask = entries.get(&For::Mask).copied().unwrap_or(7);
        if who.id == self.owner {
            return entries[&For::Owner] & bit != 0;
        }
        if let Some(bits) = entries.get(&For::User(who.id)) {
            return bits & mask & bit != 0;
        }
        let mut mine: Vec<u16> = Vec::new();
        if who.groups.contains(&self.group) {
            mine.push(entries[&For::OwningGroup]);
        }
        mine.extend(who.groups.iter().filter_map(|group| entries.get(&For::Group(*group))));
        if mine.is_empty() {
            return entries[&For::Other] & bit != 0;
        }
        mine.into_iter().any(|bits| bits & mask & bit != 0)
    }

    /// acl(5), "object creation and default ACLs".
    pub fn inherit(&mut self, default: Option<&Entries>) {
        let Some(default) = default else { return };
        let mut entries = default.clone();
        let (owner, middle, other) = (self.mode >> 6 & 7, self.mode >> 3 & 7, self.mode & 7);
        let limiting = if entries.contains_key(&For::Mask) { For::Mask } else { For::OwningGroup };
        for (of, limit) in [(For::Owner, owner), (limiting, middle), (For::Other, other)] {
            *entries.get_mut(&of).unwrap() &= limit;
        }
        self.set_entries(entries);
        if matches!(self.kind, Kind::Dir { .. }) {
            self.default = Some(default.clone());
        }
    }

    pub fn drop_set_id(&mut self) {
        self.mode &= !0o4000;
        if self.mode & 0o010 != 0 {
            self.mode &= !0o2000;
        }
    }

    pub fn keep_setgid_for(&mut self, who: &Who) {
        if who.id != 0 && !who.groups.contains(&self.group) {
            self.mode &= !0o2000;
        }
    }
}

impl Model {
    pub fn set_acl(&mut self, who: &Who, path: &[u8], access: Option<&Edit>, default: Option<&Edit>) -> Res<()> {
        let (_, ino) = self.to_modify(who, path, true)?;
        self.owns(who, ino)?;
        let now = self.now;
        let is_dir = self.is_dir(ino);
        if !is_dir && default.is_some_and(|edit| !matches!(edit, Edit::Clear)) {
            return Err(ErrorCode::Invalid);
        }
        let node = self.node_mut(ino);
        if let Some(edit) = access {
            node.set_entries(edited(&node.entries(), edit));
            node.keep_setgid_for(who);
        }
        match default {
            None => {}
            Some(Edit::Clear) => node.default = None,
            Some(Edit::Remove(_)) if node.default.is_none() => {}
            Some(edit) => {
                let before = node.default.clone().unwrap_or_else(|| {
                    let mut entries = node.entries();
                    entries.retain(|of, _| !is_named(of) && *of != For::Mask);
                    entries
                });
                node.default = Some(edited(&before, edit));
            }
        }
        node.ctime = now;
        Ok(())
    }
}
