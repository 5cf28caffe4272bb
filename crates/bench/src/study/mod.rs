//! The five studies after which weir was built, as campaigns that are shipped with it. They are scaled to the
//! machine, run on the given systems, and print the table of the study.

mod features;
mod scale;
mod table;
mod uproot;

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

pub use features::{FEATURES, Features, SOURCES, features_of, features_text};
pub use scale::{Scaled, scale};
pub use table::table;
pub(crate) use table::{best, fits};
pub use uproot::{UprootRequest, made_file};

use crate::campaign::{Campaign, CampaignError};

/// A study.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Study {
    /// Write-intensive recording.
    A,
    /// Analysis reading.
    B,
    /// The simple shared volume.
    C,
    /// Federation.
    D,
    /// A storage element.
    E,
}

/// The description of a study.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StudyDescription {
    /// Its name.
    pub title: String,
    /// The bytes a second that the study itself needs.
    #[serde(default, deserialize_with = "size")]
    pub demand: Option<u64>,
    /// The keys that scaling divides: `SECTION.KEY`, or `repeats`.
    pub scaled: Vec<String>,
    /// The columns of its table: the title, the work (`*` at the end: all names with this beginning), and the
    /// phase.
    pub columns: Vec<[String; 3]>,
    /// The work and the phase for which a rate can be requested.
    pub rated: Option<[String; 2]>,
    /// Whether its table includes the systems' features.
    pub features: bool,
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    types::units::parse_size(&text).map(Some).map_err(serde::de::Error::custom)
}

/// Why a study cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The scale is not valid.
    #[error("the scale is {0}; give at least 1, because it divides everything")]
    Scale(f64),
    /// The scale leaves too little of something.
    #[error("the scale {scale} is too large for study {study}, which takes at most {most}: {source}")]
    ScaleTooLarge {
        /// The study.
        study: Study,
        /// The scale.
        scale: f64,
        /// The largest whole number that is valid.
        most: u64,
        /// What is too small with the given scale.
        source: CampaignError,
    },
    /// A shipped file is not valid.
    #[error("the shipped campaign of study {study}: {why}")]
    Shipped {
        /// The study.
        study: Study,
        /// What is wrong.
        why: String,
    },
    /// The file with systems is not valid.
    #[error("the file of systems: {0}; it takes `[[system]]` tables and nothing else")]
    Systems(String),
    /// The study reads no ROOT file.
    #[error("study {0} reads no ROOT files; only study B does")]
    NoRootFile(Study),
    /// The study has no analysis jobs.
    #[error("study {0} has no analysis jobs that uproot could do; only study B has")]
    NoUproot(Study),
    /// The resulting campaign is not valid.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
}

/// The systems and the scale of a study.
#[derive(Clone, Debug)]
pub struct StudyRequest<'a> {
    /// The systems in the form of a campaign.
    pub systems: Vec<Table>,
    /// The divisor of sizes, counts and times, at least 1.
    pub scale: f64,
    /// The number of repeats, instead of the scaled one.
    pub repeats: Option<u32>,
    /// A ROOT file that replaces the synthetic one.
    pub root_file: Option<&'a Path>,
    /// How uproot does the jobs of study B, too; `None`: it does not.
    pub uproot: Option<&'a UprootRequest>,
}

/// Returns a system that has only a name and a directory.
#[must_use]
pub fn system(name: &str, place: &str) -> Table {
    [("name", name), ("place", place)]
        .map(|(key, text)| (key.to_owned(), Value::String(text.to_owned())))
        .into_iter()
        .collect()
}

/// Returns the `[[system]]` tables of a file that has nothing else, as `weir bench testbed up` prints it.
///
/// # Errors
/// [`StudyError::Systems`].
pub fn systems_of(text: &str) -> Result<Vec<Table>, StudyError> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        system: Vec<Table>,
    }
    let file: File = toml::from_str(text).map_err(|error| StudyError::Systems(error.to_string().trim().to_owned()))?;
    Ok(file.system)
}

/// A study that is ready to run.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// Its description.
    pub about: StudyDescription,
    /// The scaled campaign.
    pub campaign: Campaign,
    /// Its text.
    pub source: String,
    /// The campaign as the study did it.
    pub full: Campaign,
    /// The scaled values.
    pub scaled: Vec<Scaled>,
}

impl Study {
    /// All studies.
    pub const ALL: [Self; 5] = [Self::A, Self::B, Self::C, Self::D, Self::E];

    fn source(self) -> &'static str {
        match self {
            Self::A => include_str!("../../studies/a.toml"),
            Self::B => include_str!("../../studies/b.toml"),
            Self::C => include_str!("../../studies/c.toml"),
            Self::D => include_str!("../../studies/d.toml"),
            Self::E => include_str!("../../studies/e.toml"),
        }
    }

    /// Returns its description.
    ///
    /// # Errors
    /// [`StudyError::Shipped`].
    pub fn about(self) -> Result<StudyDescription, StudyError> {
        self.parsed().map(|(about, _)| about)
    }

    /// Returns the study of a campaign by the name that all campaigns of a study have.
    #[must_use]
    pub fn of_campaign(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|study| name == format!("study {study}"))
    }

    /// Returns the values in which a campaign of this study differs from the full one.
    #[must_use]
    pub fn scaled(self, campaign: &str) -> Vec<Scaled> {
        let (Ok((about, full)), Ok(made)) = (self.parsed(), campaign.parse::<Table>()) else { return Vec::new() };
        let keys: Vec<String> = about.scaled.into_iter().chain(["repeats".to_owned()]).collect();
        scale::differing(&full, &made, &keys)
    }

    /// Returns its description and its campaign without systems.
    fn parsed(self) -> Result<(StudyDescription, Table), StudyError> {
        let shipped = |why: String| StudyError::Shipped { study: self, why };
        let mut table: Table = self.source().parse().map_err(|error: toml::de::Error| shipped(error.to_string()))?;
        let about = table.remove("study").ok_or_else(|| shipped("no [study]".to_owned()))?;
        Ok((about.try_into().map_err(|error: toml::de::Error| shipped(error.to_string()))?, table))
    }

    /// Prepares it for these systems, with everything divided by the scale.
    ///
    /// # Errors
    /// [`StudyError`].
    pub fn prepare(self, asked: &StudyRequest<'_>) -> Result<Prepared, StudyError> {
        if !(asked.scale.is_finite() && asked.scale >= 1.0) {
            return Err(StudyError::Scale(asked.scale));
        }
        let shipped = |why: String| StudyError::Shipped { study: self, why };
        let (mut about, mut table) = self.parsed()?;
        let systems = asked.systems.iter().cloned().map(Value::Table).collect();
        table.insert("system".to_owned(), Value::Array(systems));
        let peers = asked.systems.iter().filter(|system| system.contains_key("peer")).count();
        let networks = table.get_mut("network").and_then(Value::as_array_mut).into_iter().flatten();
        if peers < 2 {
            // Testing all systems at once needs at least two.
            networks.filter_map(Value::as_table_mut).for_each(|network| _ = network.remove("at_once"));
        }
        if peers == 0 {
            // No system has a network-test server.
            table.remove("network");
            about.scaled.retain(|key| !key.starts_with("network."));
        }
        let removed = uproot::settle(&mut table, asked.uproot);
        if asked.uproot.is_some() && !table.contains_key("analysis") {
            return Err(StudyError::NoUproot(self));
        }
        about.columns.retain(|[_, work, _]| !removed.contains(work));
        if let Some(path) = asked.root_file {
            let analyses =
                table.get_mut("analysis").and_then(Value::as_array_mut).ok_or(StudyError::NoRootFile(self))?;
            for analysis in analyses.iter_mut().filter_map(Value::as_table_mut) {
                analysis.remove("synthetic");
                analysis.insert("root_file".to_owned(), Value::String(path.display().to_string()));
            }
        }
        let text = |table: &Table| toml::to_string(table).map_err(|error| shipped(error.to_string()));
        let full = Campaign::parse(&text(&table)?)?;
        let unscaled = table.clone();
        let mut scaled = scale(&mut table, &about.scaled, asked.scale).map_err(shipped)?;
        Campaign::parse(&text(&table)?).map_err(|source| StudyError::ScaleTooLarge {
            study: self,
            scale: asked.scale,
            most: largest_scale(&unscaled, &about.scaled, asked.scale),
            source,
        })?;
        if let Some(repeats) = asked.repeats {
            table.insert("repeats".to_owned(), Value::Integer(repeats.into()));
            let (key, was) = ("repeats".to_owned(), vec![full.repeats.to_string()]);
            scaled.push(Scaled { key, was, is: vec![repeats.to_string()] });
        }
        let source = text(&table)?;
        let campaign = Campaign::parse(&source)?;
        scaled.extend(asked.uproot.filter(|uproot| uproot.is_made).map(|_| uproot::scaled_file(asked.scale)));
        Ok(Prepared { about, campaign, source, full, scaled })
    }
}

/// Returns the largest whole number by which a campaign can be scaled. It is valid as it is, and too small with the
/// scale `invalid`.
#[allow(clippy::cast_possible_truncation, clippy::cast_precision_loss, clippy::cast_sign_loss)] // a search
fn largest_scale(campaign: &Table, keys: &[String], invalid: f64) -> u64 {
    let is_valid = |by: u64| {
        let mut table = campaign.clone();
        let text = scale(&mut table, keys, by as f64).ok().and_then(|_| toml::to_string(&table).ok());
        text.is_some_and(|text| Campaign::parse(&text).is_ok())
    };
    let (mut valid, mut invalid) = (1, invalid.ceil() as u64);
    while valid + 1 < invalid {
        let middle = valid + (invalid - valid) / 2;
        if is_valid(middle) { valid = middle } else { invalid = middle }
    }
    valid
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(scale: f64) -> StudyRequest<'static> {
        let systems = vec![system("disk", "/d"), system("server", "root://h//d")];
        StudyRequest { systems, scale, repeats: None, root_file: None, uproot: None }
    }

    #[test]
    fn systems_from_a_file_keep_all_their_keys() {
        let text = "# weir: up\n[[system]]\nname = \"weir\"\nplace = \"root://h//\"\nprocesses = [\"weir\"]\n";
        let mut systems = systems_of(text).unwrap();
        systems.push(system("disk", "/d"));
        let prepared = Study::E.prepare(&StudyRequest { systems, repeats: Some(3), ..asked(1000.0) }).unwrap();
        let found = &prepared.campaign.systems;
        assert_eq!((found[0].processes.as_slice(), found[1].name.as_str()), (&["weir".to_owned()][..], "disk"));
        assert_eq!((prepared.campaign.repeats, prepared.full.repeats), (3, 6));
        assert!(!prepared.source.contains("network"));
        let mut server = system("server", "root://h//");
        server.insert("peer".to_owned(), Value::String("127.0.0.1:7070".to_owned()));
        let with_peer = Study::A.prepare(&StudyRequest { systems: vec![server], ..asked(10.0) }).unwrap();
        assert!(
            with_peer.source.contains("[[network]]") && with_peer.scaled.iter().any(|one| one.key == "network.seconds")
        );
        for wrong in ["", "repeats = 3\n[[system]]\nname = \"a\"", "system = 3", "[[system]"] {
            assert!(systems_of(wrong).unwrap_err().to_string().contains("[[system]]"), "{wrong}");
        }
    }

    #[test]
    fn the_shipped_campaigns_have_the_studies_parameters() {
        let a = Study::A.prepare(&asked(1.0)).unwrap();
        let matrix = a.campaign.works().iter().filter(|work| work.name == "sizes, streams and chunks").count();
        // The study compared eight systems.
        assert_eq!((matrix, matrix * 8, a.about.demand), (48, 384, Some(130_000_000_000 / 8)));
        let copies: Vec<u64> = a
            .campaign
            .works()
            .iter()
            .filter(|work| work.name.starts_with("copies"))
            .map(crate::campaign::Work::room)
            .collect();
        assert_eq!(copies, [30, 300, 300, 300].map(|gb| gb * 1_000_000_000));
        let c = Study::C.prepare(&asked(1.0)).unwrap();
        assert_eq!((c.campaign.repeats, c.campaign.works().len()), (20, 9));
        let e = Study::E.prepare(&asked(1.0)).unwrap();
        assert_eq!(e.campaign.works().iter().map(crate::campaign::Work::room).max(), Some(20_000_000_000_000));
    }

    #[test]
    fn columns_and_scaled_keys_are_those_of_the_work() {
        for study in Study::ALL {
            let prepared = study.prepare(&asked(7.0)).unwrap();
            let works = prepared.campaign.works();
            for [title, work, _] in &prepared.about.columns {
                let fits = |name: &str| work.strip_suffix('*').map_or(name == work, |start| name.starts_with(start));
                assert!(works.iter().any(|known| fits(&known.name)), "{study}: {title}");
            }
            assert_eq!(Study::of_campaign(&prepared.campaign.name), Some(study));
            let all = study.about().unwrap().columns;
            assert!(prepared.about.columns.iter().all(|column| all.contains(column)), "{study}");
            let keys =
                |scaled: &[Scaled]| scaled.iter().map(|one| (one.key.clone(), one.is.clone())).collect::<Vec<_>>();
            assert_eq!(keys(&study.scaled(&prepared.source)), keys(&prepared.scaled), "{study}");
            assert_eq!(prepared.scaled.len(), prepared.about.scaled.len(), "{study}");
            assert!(prepared.scaled.iter().all(|scaled| !scaled.was.is_empty() && scaled.was != scaled.is), "{study}");
            let room = |campaign: &Campaign| campaign.works().iter().map(crate::campaign::Work::room).max();
            assert!(room(&prepared.campaign) < room(&prepared.full), "{study}");
        }
    }

    #[test]
    fn uproot_does_jobs_of_study_b_on_request() {
        let by_uproot = |text: &str| text.matches("beside = [\"uproot\"]").count();
        let without = Study::B.prepare(&asked(1000.0)).unwrap();
        assert!(
            by_uproot(&without.source) == 0
                && !without.about.columns.iter().any(|[title, ..]| title.contains("uproot"))
        );
        let uproot = UprootRequest {
            file: "/made.root".into(),
            is_made: true,
            with: Some(crate::workload::UprootWith::FsspecXrootd),
            python: Some("/opt/python".into()),
            round_trip: Some(std::time::Duration::from_millis(30)),
        };
        let with = Study::B.prepare(&StudyRequest { uproot: Some(&uproot), ..asked(1000.0) }).unwrap();
        assert_eq!((by_uproot(&with.source), with.source.matches("round_trip = \"30ms\"").count()), (2, 1));
        assert_eq!(with.about.columns, Study::B.about().unwrap().columns);
        assert_eq!(with.campaign.works().len(), without.campaign.works().len() + 4);
        for work in with.campaign.works().iter().filter(|work| work.name.starts_with("beside uproot")) {
            let phases: Vec<String> = work.phases.iter().map(|phase| phase.workload().title()).collect();
            assert_eq!(phases, ["put", "analyse", "analyse by uproot"]);
            assert!(work.parameters.contains(&("uproot with".to_owned(), "fsspec-xrootd".to_owned())), "{work:?}");
            assert!(work.title().contains("b005 b017"), "{}", work.title());
        }
        let elsewhere = Study::A.prepare(&StudyRequest { uproot: Some(&uproot), ..asked(1.0) }).unwrap_err();
        assert!(elsewhere.to_string().contains("only study B"), "{elsewhere}");
        let made = with.scaled.last().unwrap();
        assert!(made.key.contains("uproot makes") && made.was == ["16 GB"] && made.is == ["17.1 MB"], "{made:?}");
        assert!(made_file(Path::new("/x"), 1000.0).clusters < made_file(Path::new("/x"), 10.0).clusters);
    }

    #[test]
    fn impossible_requests_are_refused() {
        assert!(Study::A.prepare(&asked(0.5)).unwrap_err().to_string().contains("at least 1"));
        assert!(Study::A.prepare(&asked(f64::NAN)).is_err());
        let too_large = Study::B.prepare(&asked(5000.0)).unwrap_err().to_string();
        assert!(
            too_large.contains("the scale 5000 is too large for study B, which takes at most 1907:"),
            "{too_large}"
        );
        assert!(Study::B.prepare(&asked(1907.0)).is_ok() && Study::B.prepare(&asked(1908.0)).is_err());
        let of_file = StudyRequest { root_file: Some(Path::new("/x.root")), ..asked(1.0) };
        assert!(Study::A.prepare(&of_file).unwrap_err().to_string().contains("study B"));
        let b = Study::B.prepare(&of_file).unwrap();
        assert!(b.source.contains("/x.root") && !b.source.contains("synthetic"));
        assert!(
            Study::A
                .prepare(&StudyRequest { systems: Vec::new(), ..asked(1.0) })
                .unwrap_err()
                .to_string()
                .contains("system")
        );
    }
}
