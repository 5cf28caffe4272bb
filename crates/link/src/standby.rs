//! What a manager says that is not the active one of its cluster: the reason for a refusal, the same to nodes, to machines that join and to commands.
//! They understand it: it is no failure, and it may say where the active manager is.

/// The beginning of the reason.
const STANDBY: &str = "this manager is a standby";
/// What follows if the active manager is known, before its address.
const ACTIVE: &str = "; the active one is ";
/// The longest address of a manager, as in a token.
const ADDRESS_MAX: usize = 255;

/// The reason. `active`: the address of the active manager for nodes and commands, `host:port`, if it is known.
#[must_use]
pub fn standby_reason(active: Option<&str>) -> String {
    match active {
        Some(address) => format!("{STANDBY}{ACTIVE}{address}"),
        None => format!("{STANDBY}; it does not know the active one"),
    }
}

/// Whether a refusal has this reason. A refusal that only mentions it, for example in a path that it names, is another one.
#[must_use]
pub fn is_of_standby(reason: &str) -> bool {
    reason.starts_with(STANDBY)
}

/// The address of the active manager that the reason names. It comes from a peer: whoever uses it must still check who is there.
#[must_use]
pub fn active_manager(reason: &str) -> Option<&str> {
    let address = reason.strip_prefix(STANDBY)?.strip_prefix(ACTIVE)?;
    let end = |byte: char| byte.is_whitespace() || matches!(byte, ';' | ',' | ')' | '(');
    let address = address.split(end).next().unwrap_or_default();
    let (host, port) = address.rsplit_once(':')?;
    let is_address = !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0);
    (is_address && address.len() <= ADDRESS_MAX).then_some(address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_understood_whatever_follows() {
        for active in [Some("mgr2.example.org:1095"), Some("[::1]:2"), None] {
            let reason = standby_reason(active);
            for said in [reason.clone(), format!("{reason} (asked at mgr1:1095)"), format!("{reason}; x:1")] {
                assert!(is_of_standby(&said), "{said}");
                assert_eq!(active_manager(&said), active, "{said}");
            }
            let mentioned = format!("cannot remove /{reason}");
            assert!(!is_of_standby(&mentioned) && active_manager(&mentioned).is_none(), "{mentioned}");
        }
    }

    #[test]
    fn other_texts_name_no_active_manager() {
        let long = format!("{}:1", "a".repeat(ADDRESS_MAX));
        for text in ["", "refused", "the active one is a:1", "mgr2:1095"] {
            assert!(!is_of_standby(text), "{text}");
            assert_eq!(active_manager(text), None, "{text}");
        }
        for address in ["", "mgr2", "mgr2:", "mgr2:0", ":1", "mgr2:x", "mgr2:70000", &long] {
            assert_eq!(active_manager(&standby_reason(Some(address))), None, "{address}");
        }
    }
}
