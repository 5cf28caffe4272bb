//! ACLs as text, as in acl(5), getfacl(1) and setfacl(1): `user:1001:rw-,group:1002:r-x,mask::r-x,default:user::rwx`.
//!
//! The parser also takes what these programs write and accept: one entry a line, comments after `#`, the first letters `u`, `g`, `m`, `o` and `d`,
//! `mask:rwx` with one colon, permissions in any order or as a digit. Names of users and groups are the caller's to look up.

use std::fmt::Write;

use types::PrincipalId;

use crate::tree::acl::{ACL_NAMED_MAX, Acl, AclEntry, AclTag, Named, Permissions};

/// The longest text that the parser reads, in bytes.
const TEXT_MAX: usize = 1 << 16;
/// Both ACLs, each with all its named entries and the four others.
const ENTRIES_MAX: usize = 2 * (ACL_NAMED_MAX + 4);

/// Finds the number of a user (`false`) or group (`true`) by name.
type FindNumber<'a> = &'a dyn Fn(&str, bool) -> Option<PrincipalId>;

/// The entries of a text.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclEntries {
    /// Those of the access ACL.
    pub access: Vec<AclEntry>,
    /// Those of the default ACL.
    pub default: Vec<AclEntry>,
}

/// The users and groups whose entries a text names, to remove them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AclNames {
    /// Of the access ACL.
    pub access: Vec<Named>,
    /// Of the default ACL.
    pub default: Vec<Named>,
}

/// Why a text is no ACL.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AclTextError {
    /// The text is too long.
    #[error("the text of an ACL has at most {TEXT_MAX} bytes, and {ENTRIES_MAX} entries")]
    TooLong,
    /// An entry has another form.
    #[error(
        "`{0}` is no entry of an ACL; write user:NAME:rwx, group:NAME:r-x, user::rwx, group::r-x, mask::rwx or other::r--, with default: in front for a directory's default ACL"
    )]
    Form(String),
    /// The permissions of an entry cannot be read.
    #[error("`{0}`: permissions are letters of `rwx-`, or a digit from 0 to 7")]
    Permissions(String),
    /// An entry to remove names nobody.
    #[error("`{0}` names no user or group to remove; write user:NAME or group:NAME")]
    Nobody(String),
    /// Nobody has this name.
    #[error("no user or group with the name `{0}` is known")]
    UnknownName(String),
}

/// Reads the entries of a text. `find` looks names up; numbers stand for themselves.
///
/// # Errors
/// The text has another form, is too long, or has an unknown name.
pub fn parse_acl(text: &str, find: FindNumber<'_>) -> Result<AclEntries, AclTextError> {
    let mut found = AclEntries::default();
    each_entry(text, &mut |entry| {
        let (list, rest) = match without_default(entry) {
            Some(rest) => (&mut found.default, rest),
            None => (&mut found.access, entry),
        };
        let form = || AclTextError::Form(shown(entry));
        let fields: Vec<&str> = rest.splitn(4, ':').map(str::trim).collect();
        let (kind, name, permissions) = match fields[..] {
            [kind, permissions] if is_one_of(kind, "mask") || is_one_of(kind, "other") => (kind, "", permissions),
            [kind, name, permissions] => (kind, name, permissions),
            _ => return Err(form()),
        };
        let tag = tag(kind, name, find)?.ok_or_else(form)?;
        let permissions = permissions_of(permissions).ok_or_else(|| AclTextError::Permissions(shown(entry)))?;
        list.push(AclEntry { tag, permissions });
        Ok(())
    })?;
    Ok(found)
}

/// Reads users and groups whose entries will be removed: `user:1001,default:group:1002`. A permission after the name is an error.
///
/// # Errors
/// As [`parse_acl`].
pub fn parse_acl_names(text: &str, find: FindNumber<'_>) -> Result<AclNames, AclTextError> {
    let mut found = AclNames::default();
    each_entry(text, &mut |entry| {
        let (list, rest) = match without_default(entry) {
            Some(rest) => (&mut found.default, rest),
            None => (&mut found.access, entry),
        };
        let nobody = || AclTextError::Nobody(shown(entry));
        let (kind, name) = rest.split_once(':').ok_or_else(nobody)?;
        // A colon may follow the name, as where permissions would.
        let name = name.trim().strip_suffix(':').unwrap_or(name).trim();
        list.push(match tag(kind.trim(), name, find)? {
            Some(AclTag::User(id)) => Named::User(id),
            Some(AclTag::Group(id)) => Named::Group(id),
            _ => return Err(nobody()),
        });
        Ok(())
    })?;
    Ok(found)
}

/// An access ACL, and a default ACL if there is one, with commas between the entries. `name_of` gives the name of a user or group. A number stands for one
/// without a name, and for a name that could not be read back.
pub fn acl_text(access: &Acl, default: Option<&Acl>, name_of: &dyn Fn(Named) -> Option<String>) -> String {
    let mut text = String::new();
    let mut put = |prefix: &str, entry: AclEntry| {
        if !text.is_empty() {
            text.push(',');
        }
        let (kind, who) = match entry.tag {
            AclTag::User(id) => ("user", Named::User(id)),
            AclTag::Group(id) => ("group", Named::Group(id)),
            _ => {
                let _ = write!(text, "{prefix}{entry}");
                return;
            }
        };
        let _ = match name_of(who).filter(|name| reads_back(name)) {
            Some(name) => write!(text, "{prefix}{kind}:{name}:{}", entry.permissions),
            None => write!(text, "{prefix}{entry}"),
        };
    };
    access.entries().for_each(|entry| put("", entry));
    default.into_iter().flat_map(Acl::entries).for_each(|entry| put("default:", entry));
    text
}

fn reads_back(name: &str) -> bool {
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit());
    !is_number && !name.contains(|c: char| [':', ',', '#'].contains(&c) || c.is_whitespace() || c.is_control())
}

fn each_entry(text: &str, visit: &mut dyn FnMut(&str) -> Result<(), AclTextError>) -> Result<(), AclTextError> {
    if text.len() > TEXT_MAX {
        return Err(AclTextError::TooLong);
    }
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or(""));
    let entries = lines.flat_map(|line| line.split(',')).map(str::trim).filter(|entry| !entry.is_empty());
    for (number, entry) in entries.enumerate() {
        if number == ENTRIES_MAX {
            return Err(AclTextError::TooLong);
        }
        visit(entry)?;
    }
    Ok(())
}

/// The rest of an entry of the default ACL.
fn without_default(entry: &str) -> Option<&str> {
    let (first, rest) = entry.split_once(':')?;
    is_one_of(first.trim(), "default").then_some(rest)
}

/// Whether it is the word or its first letter.
fn is_one_of(text: &str, word: &str) -> bool {
    text == word || text == &word[..1]
}

fn tag(kind: &str, name: &str, find: FindNumber<'_>) -> Result<Option<AclTag>, AclTextError> {
    Ok(Some(match (kind, name) {
        ("user" | "u", "") => AclTag::Owner,
        ("group" | "g", "") => AclTag::OwningGroup,
        ("mask" | "m", "") => AclTag::Mask,
        ("other" | "o", "") => AclTag::Other,
        ("user" | "u", name) => AclTag::User(number(name, false, find)?),
        ("group" | "g", name) => AclTag::Group(number(name, true, find)?),
        _ => return Ok(None),
    }))
}

fn number(name: &str, is_group: bool, find: FindNumber<'_>) -> Result<PrincipalId, AclTextError> {
    let found = if name.bytes().all(|byte| byte.is_ascii_digit()) {
        name.parse().ok().map(PrincipalId)
    } else {
        find(name, is_group)
    };
    found.ok_or_else(|| AclTextError::UnknownName(shown(name)))
}

fn permissions_of(text: &str) -> Option<Permissions> {
    if let &[digit @ b'0'..=b'7'] = text.as_bytes() {
        return Some(Permissions::from_bits(digit - b'0'));
    }
    if text.is_empty() {
        return None;
    }
    text.bytes().try_fold(Permissions::NONE, |all, letter| {
        let one = match letter {
            b'r' => Permissions::READ,
            b'w' => Permissions::WRITE,
            b'x' => Permissions::PASS,
            b'-' => return Some(all),
            _ => return None,
        };
        // Each letter once.
        (!all.has(one)).then(|| all.or(one))
    })
}

/// An entry for an error's text.
fn shown(entry: &str) -> String {
    entry.chars().take(100).flat_map(char::escape_debug).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: &str, _: bool) -> Option<PrincipalId> {
        None
    }

    fn entry(tag: AclTag, bits: u8) -> AclEntry {
        AclEntry { tag, permissions: Permissions::from_bits(bits) }
    }

    #[test]
    fn forms_of_getfacl_and_setfacl_are_read() {
        let expected = AclEntries {
            access: vec![
                entry(AclTag::Owner, 6),
                entry(AclTag::User(PrincipalId(1001)), 6),
                entry(AclTag::Group(PrincipalId(1002)), 5),
                entry(AclTag::Mask, 5),
                entry(AclTag::Other, 0),
            ],
            default: vec![entry(AclTag::Owner, 7), entry(AclTag::OwningGroup, 5)],
        };
        let short = "u::rw,u:1001:6,g:1002:xr,m:r-x,o::-,d:u::rwx,default:g::5";
        let long = "# file: data\n# owner: 5\n\nuser::rw-\nuser:1001:rw-\t\t#effective:r--\ngroup:1002:r-x\nmask::r-x\nother::---\n \
                    default:user::rwx\ndefault:group::r-x\n";
        assert_eq!(parse_acl(short, &nobody).as_ref(), Ok(&expected));
        assert_eq!(parse_acl(long, &nobody), Ok(expected));
        assert_eq!(parse_acl(" ,\n#", &nobody), Ok(AclEntries::default()));
    }

    #[test]
    fn names_are_looked_up_and_shown_unless_they_could_not_be_read_back() {
        let find = |name: &str, is_group: bool| match (name, is_group) {
            ("ann", false) => Some(PrincipalId(7)),
            ("ann", true) => Some(PrincipalId(70)),
            _ => None,
        };
        let parsed = parse_acl("user:ann:r,group:ann:w,user:8:x,m::7", &find).unwrap();
        let access = crate::Access::new(PrincipalId(1), PrincipalId(1), 0o640);
        let acl = access.acl().edited(&crate::AclEdit::Replace(parsed.access)).unwrap();
        let name_of = |who| match who {
            Named::User(PrincipalId(7)) | Named::Group(PrincipalId(70)) => Some("ann".to_owned()),
            Named::User(_) => Some("7".to_owned()),
            Named::Group(_) => None,
        };
        let text = acl_text(&acl, None, &name_of);
        assert_eq!(text, "user::rw-,user:ann:r--,user:8:--x,group::r--,group:ann:-w-,mask::rwx,other::---");
        let again = parse_acl(&text, &find).unwrap().access;
        assert_eq!(again, acl.entries().collect::<Vec<_>>());
        for odd in ["a:b", "a,b", "a b", "a\n", "a#b", "12", ""] {
            assert!(!reads_back(odd), "{odd:?}");
            let odd = |_| Some(odd.to_owned());
            assert!(acl_text(&acl, None, &odd).contains("user:7:r--"));
        }
        let unknown = parse_acl("user:eve:r", &find).unwrap_err();
        assert_eq!(unknown.to_string(), "no user or group with the name `eve` is known");
    }

    #[test]
    fn each_text_of_an_acl_reads_back() {
        let access = crate::Access::new(PrincipalId(1), PrincipalId(1), 0o640);
        let named = vec![entry(AclTag::User(PrincipalId(u32::MAX)), 0), entry(AclTag::Group(PrincipalId(0)), 7)];
        let acl = access.acl().edited(&crate::AclEdit::Replace(named)).unwrap();
        let text = acl_text(&access.acl(), Some(&acl), &|_| None);
        assert!(
            text.starts_with("user::rw-,group::r--,other::---,default:user::rw-,default:user:4294967295:---,"),
            "{text}"
        );
        let parsed = parse_acl(&text.replace(',', "\n"), &nobody).unwrap();
        assert_eq!(parsed.default, acl.entries().collect::<Vec<_>>());
        assert_eq!(parsed.access, access.acl().entries().collect::<Vec<_>>());
    }

    #[test]
    fn names_to_remove_have_no_permissions() {
        let parsed = parse_acl_names("u:7, group:9:,d:u:7", &nobody).unwrap();
        let (user, group) = (Named::User(PrincipalId(7)), Named::Group(PrincipalId(9)));
        assert_eq!((parsed.access, parsed.default), (vec![user, group], vec![user]));
        for bad in ["user:7:r", "user:", "mask::", "user", "other:", "d:g:"] {
            assert!(parse_acl_names(bad, &nobody).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_texts_are_refused_and_the_error_shows_the_form() {
        for bad in
            ["user", "user:7", "user:7:rwx:x", "::", "u:7:", "x::r", "mask:7:r", "o:1:r", "d:", "default:default:u::r"]
        {
            assert!(parse_acl(bad, &nobody).is_err(), "{bad}");
        }
        for bad in ["u::rr", "u::8", "u::rwxx", "u::q", "u::07", "u::r w"] {
            let error = parse_acl(bad, &nobody).unwrap_err();
            assert_eq!(error, AclTextError::Permissions(bad.into()));
        }
        assert!(parse_acl("u:4294967296:r", &nobody).is_err(), "a number that no principal has");
        assert!(parse_acl("user:7", &nobody).unwrap_err().to_string().contains("write user:NAME:rwx"));
        assert_eq!(parse_acl(&"u::r,".repeat(ENTRIES_MAX + 1), &nobody), Err(AclTextError::TooLong));
        assert_eq!(parse_acl(&" ".repeat(TEXT_MAX + 1), &nobody), Err(AclTextError::TooLong));
        assert!(parse_acl(&format!("u:{}\u{7}:r", "ä".repeat(5_000)), &nobody).unwrap_err().to_string().len() < 500);
    }
}
