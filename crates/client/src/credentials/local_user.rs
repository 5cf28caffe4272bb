//! The names of the user and the group that run this program, as the system has them.

use std::fs::File;
use std::io::Read as _;

/// The longest read part of a list of users or groups.
const LIST_LEN_MAX: u64 = 16 << 20;
/// The longest name. The stock client's are no longer.
const NAME_LEN_MAX: usize = 255;

/// Returns `user group`. Without a name of the user it is `*`, as at the stock client.
pub(super) fn names() -> String {
    let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // The lists lack users of a directory service. The environment has their names.
    let known =
        || ["USER", "LOGNAME"].into_iter().find_map(|name| std::env::var(name).ok().filter(|name| is_name(name)));
    let user = name_in(&list("/etc/passwd"), user).or_else(known).unwrap_or_else(|| "*".to_owned());
    match name_in(&list("/etc/group"), group) {
        Some(group) => format!("{user} {group}"),
        None => user,
    }
}

fn list(path: &str) -> String {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LIST_LEN_MAX).read_to_end(&mut bytes));
    if read.is_ok() { String::from_utf8_lossy(&bytes).into_owned() } else { String::new() }
}

/// Finds the name of a number in lines of `name:…:number:…`.
fn name_in(list: &str, number: u32) -> Option<String> {
    list.lines().find_map(|line| {
        let mut words = line.split(':');
        let (name, found) = (words.next()?, words.nth(1)?);
        (found.parse() == Ok(number) && is_name(name)).then(|| name.to_owned())
    })
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= NAME_LEN_MAX && !name.contains(|c: char| c.is_whitespace() || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_names() {
        let list =
            "root:x:0:0:root:/root:/bin/sh\n#\n\nana:x:1000:100::/home/ana:/bin/sh\nbad name:x:5:5\neve:x:1000:1\n";
        assert_eq!(name_in(list, 0).as_deref(), Some("root"));
        assert_eq!(name_in(list, 1000).as_deref(), Some("ana"));
        assert_eq!((name_in(list, 100), name_in(list, 5), name_in("", 0)), (None, None, None));
        assert!(!names().is_empty() && !names().contains('\0'));
    }
}
