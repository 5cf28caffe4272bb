//! Who has a committer's place, as its row says it to other processes.

use serde::{Deserialize, Serialize};

/// The most bytes of a holder's text that anybody reads.
pub(crate) const TEXT_MAX: usize = 1024;

/// The manager that has the place, and where it is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Holder {
    /// The number of its node.
    pub node: u64,
    /// Its address for other nodes, `host:port`.
    pub for_nodes: String,
    /// Its address for clients.
    pub for_clients: String,
}

impl Holder {
    /// As it is in the row. `None`: it is too long.
    pub(crate) fn to_text(&self) -> Option<String> {
        serde_json::to_string(self).ok().filter(|text| text.len() <= TEXT_MAX)
    }

    /// Reads the text of a row. Another program, or a newer weir, may have written it: what cannot be used says nothing.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() > TEXT_MAX {
            return None;
        }
        let holder: Self = serde_json::from_str(text).ok()?;
        // They are shown to people and sent to clients.
        let is_address = |text: &str| text.contains(':') && text.bytes().all(|byte| byte.is_ascii_graphic());
        (is_address(&holder.for_nodes) && is_address(&holder.for_clients)).then_some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_reads_back_and_nothing_else_is_taken_for_one() {
        let holder = Holder { node: 1, for_nodes: "mgr1:1095".into(), for_clients: "[2001:db8::1]:1094".into() };
        let text = holder.to_text().unwrap();
        assert_eq!(
            text, r#"{"node":1,"for_nodes":"mgr1:1095","for_clients":"[2001:db8::1]:1094"}"#,
            "as in formats.md"
        );
        assert_eq!(Holder::parse(&text), Some(holder.clone()));
        assert_eq!(Holder::parse(&text.replace('}', r#","more":2}"#)), Some(holder.clone()), "a newer one's");
        for end in 0..text.len() {
            assert_eq!(Holder::parse(&text[..end]), None, "cut at {end}");
        }
        for wrong in ["mgr1", "mgr 1:5", "mgr1:\\u001b[2J", "", "mgr1:\\n"] {
            assert_eq!(Holder::parse(&text.replace("mgr1:1095", wrong)), None, "{wrong}");
        }
        let long = Holder { for_nodes: format!("{}:1", "m".repeat(TEXT_MAX)), ..holder };
        assert_eq!((long.to_text(), Holder::parse(&serde_json::to_string(&long).unwrap())), (None, None));
    }
}
