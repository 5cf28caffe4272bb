//! The grid-mapfile.

use identity::{
    DistinguishedName, DistinguishedNameError, GRID_MAP_BYTES_MAX, GRID_MAP_ENTRIES_MAX, GridMap, GridMapError,
    LineProblem,
};
use proptest::prelude::*;

fn account(map: &GridMap, subject: &str) -> Option<(String, usize)> {
    let entry = map.get(&DistinguishedName::parse(subject).unwrap())?;
    Some((entry.account.to_string(), entry.line))
}

#[test]
fn lines_of_all_kinds_are_read() {
    let text = r#"# a comment
"/DC=ch/DC=cern/CN=Ana Lee" ana

   "/DC=ch/CN=Bo"	bo,other,more   # why
/DC=ch/CN=Cy cy
"/O=x/CN=say \"hi\" \\ \x41" quoted
"/O=x/Email=a@b" mail
"/O=caf\xC3\xa9" coffee
/O=th\xC3\xA9 tea
#"/DC=ch/CN=Di" di
"/DC=ch/DC=cern/CN=Ana Lee" second
"/CN=# no comment" hash
"#;
    let map = GridMap::parse(text.replace('\n', "\r\n").as_bytes()).unwrap();
    assert_eq!(map, GridMap::parse(text.as_bytes()).unwrap());
    let found = |subject: &str| account(&map, subject);
    let to = |name: &str, line| Some((name.to_owned(), line));
    assert_eq!(found("/DC=ch/DC=cern/CN=Ana Lee"), to("ana", 2), "the first line counts");
    assert_eq!(found("/DC=ch/CN=Bo"), to("bo", 4), "the first account counts");
    assert_eq!(found("/DC=ch/CN=Cy"), to("cy", 5));
    assert_eq!(found(r#"/O=x/CN=say "hi" \ A"#), to("quoted", 6));
    assert_eq!(found("/O=x/emailAddress=a@b"), to("mail", 7));
    assert_eq!(found("/O=café"), to("coffee", 8));
    assert_eq!(found("/O=thé"), to("tea", 9), "also without quotes");
    assert_eq!(found("/DC=ch/CN=Di"), None);
    assert_eq!(found("/CN=# no comment"), to("hash", 12));
    assert_eq!(found("/DC=ch/DC=cern/CN=ana lee"), None);
    assert_eq!(found("/DC=ch/DC=cern/CN=Ana"), None);
    assert_eq!(map.len(), 8);
    assert!(GridMap::parse(b"").unwrap().is_empty());
}

#[test]
fn a_bad_line_refuses_the_file_and_is_named() {
    let why = |line: &str| match GridMap::parse(format!("/CN=a a\n{line}\n").as_bytes()) {
        Err(GridMapError::Line { line: 2, why }) => why,
        other => panic!("{line}: {other:?}"),
    };
    assert_eq!(why("\"/CN=a ana"), LineProblem::Quote);
    assert_eq!(why("\"/CN=a\\\" ana"), LineProblem::Quote);
    for escape in ["\\n", "\\x4", "\\xg1"] {
        for line in [format!("\"/CN=a{escape}\" ana"), format!("/CN=a{escape} ana")] {
            assert!(matches!(why(&line), LineProblem::Subject(DistinguishedNameError::Escape(_))), "{line}");
        }
    }
    let latin = why("\"/CN=a\\xff\" ana");
    assert!(matches!(latin, LineProblem::Subject(DistinguishedNameError::Utf8(_))), "{latin:?}");
    assert_eq!(why("\"/CN=a\""), LineProblem::NoAccount);
    assert_eq!(why("\"/CN=a\" # ana"), LineProblem::NoAccount);
    assert_eq!(why("/CN=a"), LineProblem::NoAccount);
    assert_eq!(why("\"/CN=a\"ana"), LineProblem::Rest);
    assert_eq!(why("/CN=Ana Lee ana"), LineProblem::Rest);
    assert!(matches!(why("\"/CN=a\\x0a\" ana"), LineProblem::Subject(_)), "a control character");
    assert!(matches!(why("ana /CN=a"), LineProblem::Subject(_)));
    assert!(matches!(why("\"\" ana"), LineProblem::Subject(_)));
    for account in [".pool", "0", "a:b", "é", ",ana", "../x"] {
        assert!(matches!(why(&format!("/CN=a {account}")), LineProblem::Account(_)), "{account}");
    }
    let message = GridMap::parse(b"/CN=a .pool").unwrap_err().to_string();
    assert!(message.starts_with("line 1 of the grid-mapfile") && message.contains("`.pool`"), "{message}");
}

#[test]
fn files_are_bounded() {
    let many = |count: usize| {
        let lines: String = (0..count).map(|number| format!("/CN={number} ana\n")).collect();
        GridMap::parse(lines.as_bytes())
    };
    assert_eq!(many(GRID_MAP_ENTRIES_MAX).unwrap().len(), GRID_MAP_ENTRIES_MAX);
    assert_eq!(many(GRID_MAP_ENTRIES_MAX + 1), Err(GridMapError::TooManyEntries));
    let long = vec![b'\n'; GRID_MAP_BYTES_MAX + 1];
    assert_eq!(GridMap::parse(&long), Err(GridMapError::TooLong(GRID_MAP_BYTES_MAX + 1)));
}

proptest! {
    #[test]
    fn any_subject_is_found_again_when_it_was_quoted(value in "[ -~é]{0,30}") {
        let subject = format!("/DC=ch/CN={value}");
        let quoted = subject.replace('\\', "\\\\").replace('"', "\\\"");
        let map = GridMap::parse(format!("\"{quoted}\" ana\n").as_bytes()).unwrap();
        prop_assert_eq!(account(&map, &subject), Some(("ana".into(), 1)));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop::sample::select(b"\"\\x41/CN= #,\n\xc3".to_vec()), 0..60)) {
        let _ = GridMap::parse(&bytes);
    }
}
