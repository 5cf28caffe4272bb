//! ACLs as text: changes of the ACLs of a directory, one after the other, and what is kept of them. The input is texts with zero bytes between
//! them; the first byte of each says what is done with it.
#![no_main]

use std::sync::Arc;

use kv::{Durability, Kv, MemoryKv};
use libfuzzer_sys::fuzz_target;
use namespace::{
    Access, AclEdit, AclEntry, Actor, Mkdir, Namespace, NamespaceConfig, SetAcl, acl_text, parse_acl, parse_acl_names,
    stat,
};
use types::{NsPath, PrincipalId, Timestamp};

/// A few names are known.
fn find(name: &str, is_group: bool) -> Option<PrincipalId> {
    matches!(name, "ana" | "atlas").then_some(PrincipalId(if is_group { 900 } else { 901 }))
}

fn edit(how: u8, entries: Vec<AclEntry>) -> Option<AclEdit> {
    match how {
        b'r' => (!entries.is_empty()).then_some(AclEdit::Replace(entries)),
        b'c' => Some(AclEdit::Clear),
        _ => (!entries.is_empty()).then_some(AclEdit::Modify(entries)),
    }
}

fn change(how: u8, text: &str, path: &NsPath) -> Option<SetAcl> {
    if how == b'x' {
        let names = parse_acl_names(text, &find).map_err(|why| assert!(why.to_string().len() < 2000)).ok()?;
        let remove = |names: Vec<_>| (!names.is_empty()).then_some(AclEdit::Remove(names));
        return Some(SetAcl { path: path.clone(), access: remove(names.access), default: remove(names.default) });
    }
    let entries = parse_acl(text, &find).map_err(|why| assert!(why.to_string().len() < 2000)).ok()?;
    Some(SetAcl { path: path.clone(), access: edit(how, entries.access), default: edit(how, entries.default) })
}

fuzz_target!(|bytes: &[u8]| {
    let kv: Arc<dyn Kv> = Arc::new(MemoryKv::new());
    let names = Namespace::open(kv, Timestamp(1), NamespaceConfig::default()).unwrap();
    let (admin, path) = (Actor::admin(), NsPath::parse(b"/d").unwrap());
    let context = || names.context(Timestamp(5), &admin, None);
    names
        .change_wait(Durability::Written, context(), Mkdir { path: path.clone(), mode: 0o750, parents: false })
        .unwrap();
    let shown = || {
        let inode = names.read(|read| stat(read, &admin, &path)).unwrap();
        let access: Access = inode.access.clone();
        (access.mode & 0o7000, acl_text(&access.acl(), inode.default_acl(), &|_| None))
    };
    for part in bytes.split(|byte| *byte == 0).take(16) {
        let Some((how, text)) = part.split_first() else { continue };
        let Ok(text) = std::str::from_utf8(text) else { continue };
        let Some(asked) = change(*how, text, &path) else { continue };
        let before = shown();
        if names.change_wait(Durability::Written, context(), asked).is_err() {
            assert_eq!(shown(), before, "a refused change changes nothing");
        }
        // What is kept can be read, written down and set again.
        let (special, kept) = shown();
        let again = parse_acl(&kept, &|_, _| None).unwrap_or_else(|why| panic!("{kept}: {why}"));
        let default = if again.default.is_empty() { AclEdit::Clear } else { AclEdit::Replace(again.default) };
        let set = SetAcl { path: path.clone(), access: Some(AclEdit::Replace(again.access)), default: Some(default) };
        names.change_wait(Durability::Written, context(), set).unwrap_or_else(|why| panic!("{kept}: {why}"));
        assert_eq!(shown(), (special, kept));
    }
});
