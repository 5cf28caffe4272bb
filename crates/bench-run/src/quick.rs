//! `weir bench quick`: a campaign that characterises most systems in three minutes.

use bench::campaign::Campaign;
use bench::target::TargetDir;
use client::{Client, Settings};
use console::{Exit, Failure};

use crate::campaign::{default_folder, do_campaign};
use crate::options::{MeasureOptions, QuickOptions};
use crate::{failed, usage};

/// The mode of a directory that is made at a server.
const DIRECTORY_MODE: u16 = 0o755;

/// The work. Repeats are as many as the time allows.
const WORK: &str = r#"
repeats = 30

[[streams]]
name = "large files"
phases = ["write", "read", "reread"]
file = "256MiB"
block = "1MiB"
streams = [1, 4]
window = 4
durability = "close"

[[streams]]
name = "random access"
phases = ["write", "random-read"]
file = "64MiB"
block = "16KiB"
window = 4

[[small]]
name = "small files"
clients = 8
files = 100
file = "4KiB"
"#;

pub(super) fn run(args: &QuickOptions) -> Result<Exit, Failure> {
    let mut source = String::from("name = \"quick\"\n");
    source.push_str(WORK);
    for (number, place) in args.places.iter().enumerate() {
        // For places, a JSON string is also a TOML string.
        let place = serde_json::to_string(place).map_err(usage)?;
        let name = serde_json::to_string(&name(&args.places, number)).map_err(usage)?;
        source.push_str(&format!("\n[[system]]\nname = {name}\nplace = {place}\n"));
    }
    let campaign = Campaign::parse(&source).map_err(usage)?;
    args.places.iter().try_for_each(|place| make(place))?;
    // Each time a run of its own: figures of another day, or with other settings, are no repeats of these.
    let folder = || default_folder(&format!("quick {}", jiff::Timestamp::now().strftime("%Y%m%dT%H%M%SZ")));
    let how = MeasureOptions { results: Some(args.how.results.clone().unwrap_or_else(folder)), ..args.how.clone() };
    do_campaign(&campaign, &source, &how, Some(args.time))
}

/// Makes the directory that the user named, if it is not there. A campaign does not: there, a missing directory is a mount that is missing.
fn make(place: &str) -> Result<(), Failure> {
    let doing = |failure: Failure| failure.while_doing(format!("make the directory {place}"));
    match TargetDir::parse(place).map_err(usage)? {
        TargetDir::Path(path) => std::fs::create_dir_all(path).map_err(|error| doing(failed(error))),
        TargetDir::Root(url) => {
            let made = Client::new(Settings::default()).mkdir(&url, DIRECTORY_MODE, true);
            made.map_err(|error| doing(failed(error)))
        }
        TargetDir::Http(_) => Ok(()),
    }
}

/// The name of a place in the table: its last part, or all of it if its last part is ambiguous.
pub(super) fn name(places: &[String], number: usize) -> String {
    let short = |place: &str| place.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_owned();
    let name = short(&places[number]);
    let alike = places.iter().filter(|place| short(place) == name).count();
    if name.is_empty() || alike > 1 { format!("{} ({})", places[number], number + 1) } else { name }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_distinct_names() {
        let places = ["/mnt/a", "root://h//a", "/mnt/b/", "/"].map(str::to_owned);
        let names: Vec<_> = (0..4).map(|number| name(&places, number)).collect();
        assert_eq!(names, ["/mnt/a (1)", "root://h//a (2)", "b", "/ (4)"]);
    }

    #[test]
    fn the_work_is_a_campaign() {
        let source = format!("name = \"quick\"\n{WORK}\n[[system]]\nname = \"a\"\nplace = \"/a\"\n");
        assert_eq!(Campaign::parse(&source).unwrap().works().len(), 4);
    }
}
