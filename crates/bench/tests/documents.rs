//! The example campaigns in `docs/how-to/bench.md` are valid.

#![allow(clippy::unwrap_used)] // a test may fail this way

use std::path::Path;

use weir_bench::campaign::Campaign;

/// The part that examples leave to the reader: systems that suit all kinds of work.
const SYSTEMS: &str = "
[[system]]
name = \"one more\"
place = \"/mnt/one-more\"
peer = \"192.0.2.8:7070\"
fail = [\"true\"]
restore = [\"true\"]
[[system]]
name = \"and another\"
place = \"root://another//store\"
peer = \"192.0.2.9:7070\"
fail = [\"true\"]
restore = [\"true\"]
";

#[test]
fn every_example_campaign_is_valid() {
    let text =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/how-to/bench.md")).unwrap();
    let mut examples = 0;
    for block in text.split("```toml\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let head = if block.starts_with("name = ") { "" } else { "name = \"example\"\nrepeats = 1\n" };
        let campaign = format!("{head}{block}{SYSTEMS}");
        let parsed = Campaign::parse(&campaign);
        assert!(parsed.is_ok(), "{}\nin:\n{block}", parsed.unwrap_err());
        assert!(!parsed.unwrap().works().is_empty());
        examples += 1;
    }
    assert!(examples >= 6, "{examples}");
}
