//! Members of JSON objects of which only a text is of use. Anything else is skipped and not built: before the signature of a
//! token is checked, a few bytes of it must not become many bytes of memory.

use std::fmt;

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// A member of an object.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) enum Member {
    /// There is none.
    #[default]
    Absent,
    /// A text.
    Text(String),
    /// Something else, also `null`.
    Other,
}

impl<'de> Deserialize<'de> for Member {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(MemberVisitor)
    }
}

struct MemberVisitor;

impl<'de> Visitor<'de> for MemberVisitor {
    type Value = Member;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_str<E>(self, text: &str) -> Result<Member, E> {
        Ok(Member::Text(text.into()))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_unit<E>(self) -> Result<Member, E> {
        Ok(Member::Other)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Member, A::Error> {
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Member, A::Error> {
        while members.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Member::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_are_kept() {
        let read = |json: &str| serde_json::from_str::<Member>(json).unwrap();
        assert_eq!(read(r#""a\u0041""#), Member::Text("aA".into()));
        for other in ["null", "true", "1", "-1", "1.5", "1e300", "[]", r#"[[1, {"a": []}], "x"]"#, r#"{"a": {"b": 1}}"#]
        {
            assert_eq!(read(other), Member::Other, "{other}");
        }
        for wrong in ["", "[1", r#"{"a"}"#, "nul", r#""\x""#, "1 2"] {
            assert!(serde_json::from_str::<Member>(wrong).is_err(), "{wrong}");
        }
    }
}
