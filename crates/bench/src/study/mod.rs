//! The five studies that weir was built after, as campaigns that are shipped with it: scaled to what a machine can do, on the systems that are
//! named, with the table that the study itself would print.

mod features;
mod scale;
mod table;

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

pub use features::{FEATURES, Features, SOURCES, features_of, features_text};
pub use scale::{Scaled, scale};
pub use table::table;

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

/// What a study says of itself.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    /// Its name.
    pub title: String,
    /// Bytes a second that the study itself needs.
    #[serde(default, deserialize_with = "size")]
    pub demand: Option<u64>,
    /// What is divided to scale it: keys as `SECTION.KEY`, or `repeats`.
    pub scaled: Vec<String>,
    /// Columns of its table: the title, the work (`*` at the end: all that begin so), and the phase.
    pub columns: Vec<[String; 3]>,
    /// The work and the phase that a rate is asked of.
    pub rated: Option<[String; 2]>,
    /// Whether the systems' features belong to it.
    pub features: bool,
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    types::units::parse_size(&text).map(Some).map_err(serde::de::Error::custom)
}

/// A study cannot be done as asked.
#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    /// The scale.
    #[error("a scale of {0}; give at least 1: everything is divided by it")]
    Scale(f64),
    /// The shipped file.
    #[error("the shipped campaign of study {study}: {why}")]
    Shipped {
        /// Which.
        study: Study,
        /// What is wrong with it.
        why: String,
    },
    /// A ROOT file for a study that reads none.
    #[error("study {0} reads no ROOT files; study B does")]
    NoRootFile(Study),
    /// The targets.
    #[error(transparent)]
    Campaign(#[from] CampaignError),
}

/// A study, ready to be done.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// What it says of itself.
    pub about: About,
    /// The campaign as it will be done.
    pub campaign: Campaign,
    /// Its text.
    pub source: String,
    /// The campaign as the study did it.
    pub full: Campaign,
    /// What was divided.
    pub scaled: Vec<Scaled>,
}

impl Study {
    /// All that there are.
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

    /// On these systems, names and places, with everything divided by `by`; of a ROOT file in the place of what is made up.
    ///
    /// # Errors
    /// [`StudyError`].
    pub fn prepare(
        self,
        systems: &[(String, String)],
        by: f64,
        root_file: Option<&Path>,
    ) -> Result<Prepared, StudyError> {
        if !(by.is_finite() && by >= 1.0) {
            return Err(StudyError::Scale(by));
        }
        let shipped = |why: String| StudyError::Shipped { study: self, why };
        let mut table: Table = self.source().parse().map_err(|error: toml::de::Error| shipped(error.to_string()))?;
        let about = table.remove("study").ok_or_else(|| shipped("no [study]".to_owned()))?;
        let about: About = about.try_into().map_err(|error: toml::de::Error| shipped(error.to_string()))?;
        let system = |(name, place): &(String, String)| {
            let pairs = [("name", name), ("place", place)];
            Value::Table(pairs.map(|(key, text)| (key.to_owned(), Value::String(text.clone()))).into_iter().collect())
        };
        table.insert("system".to_owned(), Value::Array(systems.iter().map(system).collect()));
        if let Some(path) = root_file {
            let analyses =
                table.get_mut("analysis").and_then(Value::as_array_mut).ok_or(StudyError::NoRootFile(self))?;
            for analysis in analyses.iter_mut().filter_map(Value::as_table_mut) {
                analysis.remove("synthetic");
                analysis.insert("root_file".to_owned(), Value::String(path.display().to_string()));
            }
        }
        let text = |table: &Table| toml::to_string(table).map_err(|error| shipped(error.to_string()));
        let full = Campaign::parse(&text(&table)?)?;
        let scaled = scale(&mut table, &about.scaled, by).map_err(shipped)?;
        let source = text(&table)?;
        let campaign = Campaign::parse(&source)?;
        Ok(Prepared { about, campaign, source, full, scaled })
    }
}

impl fmt::Display for Study {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn systems() -> Vec<(String, String)> {
        vec![("disk".to_owned(), "/d".to_owned()), ("server".to_owned(), "root://h//d".to_owned())]
    }

    #[test]
    fn the_shipped_campaigns_have_the_studies_parameters() {
        let a = Study::A.prepare(&systems(), 1.0, None).unwrap();
        let matrix = a.campaign.works().iter().filter(|work| work.name == "sizes, streams and chunks").count();
        // Eight systems were compared.
        assert_eq!((matrix, matrix * 8, a.about.demand), (48, 384, Some(130_000_000_000 / 8)));
        let copies: Vec<u64> = a
            .campaign
            .works()
            .iter()
            .filter(|work| work.name.starts_with("copies"))
            .map(crate::campaign::Work::room)
            .collect();
        assert_eq!(copies, [30, 300, 300, 300].map(|gb| gb * 1_000_000_000));
        let c = Study::C.prepare(&systems(), 1.0, None).unwrap();
        assert_eq!((c.campaign.repeats, c.campaign.works().len()), (20, 9));
        let e = Study::E.prepare(&systems(), 1.0, None).unwrap();
        assert_eq!(e.campaign.works().iter().map(crate::campaign::Work::room).max(), Some(20_000_000_000_000));
    }

    #[test]
    fn columns_and_scaled_keys_are_those_of_the_work() {
        for study in Study::ALL {
            let prepared = study.prepare(&systems(), 7.0, None).unwrap();
            let works = prepared.campaign.works();
            for [title, work, _] in &prepared.about.columns {
                let fits = |name: &str| work.strip_suffix('*').map_or(name == work, |start| name.starts_with(start));
                assert!(works.iter().any(|known| fits(&known.name)), "{study}: {title}");
            }
            assert_eq!(prepared.scaled.len(), prepared.about.scaled.len(), "{study}");
            assert!(prepared.scaled.iter().all(|scaled| !scaled.was.is_empty() && scaled.was != scaled.is), "{study}");
            let room = |campaign: &Campaign| campaign.works().iter().map(crate::campaign::Work::room).max();
            assert!(room(&prepared.campaign) < room(&prepared.full), "{study}");
        }
    }

    #[test]
    fn what_cannot_be_is_said() {
        assert!(Study::A.prepare(&systems(), 0.5, None).unwrap_err().to_string().contains("at least 1"));
        assert!(Study::A.prepare(&systems(), f64::NAN, None).is_err());
        let file = Some(Path::new("/x.root"));
        assert!(Study::A.prepare(&systems(), 1.0, file).unwrap_err().to_string().contains("study B"));
        let b = Study::B.prepare(&systems(), 1.0, file).unwrap();
        assert!(b.source.contains("/x.root") && !b.source.contains("synthetic"));
        assert!(Study::A.prepare(&[], 1.0, None).unwrap_err().to_string().contains("system"));
    }
}
