//! `[[analysis]]`.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use super::super::file::CampaignError;
use super::super::trial::{Phase, Work};
use super::super::value::{OneOrMany, Size};
use super::{Section, each, named, one, product, request, size};
use crate::workload::{
    AnalysisError, AnalysisPhase, AnalysisSource, AnalysisSpec, DEFAULT_PYTHON, Gaps, JobTool, Mode, Order, Shared,
    SyntheticSpec, Tried, UprootSpec, UprootWith, WorkError,
};

/// Analysis jobs, in all combinations of their parameters.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Analysis {
    /// Its name in results.
    pub name: String,
    /// A ROOT file on this machine whose branches the jobs read.
    pub root_file: Option<PathBuf>,
    /// The tree or ntuple in it. The default is the largest.
    pub tree: Option<String>,
    /// Patterns of the branches or fields that the jobs read. The default is all.
    pub branches: Option<Vec<String>>,
    /// A recording of XRootD's recorder plug-in, which the jobs replay.
    pub recording: Option<PathBuf>,
    /// A synthetic file.
    pub synthetic: Option<Synthetic>,
    /// The number of copies of the files on the system. The jobs are spread over them.
    #[serde(default = "one_copy")]
    pub copies: u32,
    /// Jobs at a time.
    #[serde(default = "one")]
    pub jobs: OneOrMany<u32>,
    /// `all`, or a share of the events at random, such as `1%`.
    #[serde(default = "all_events")]
    pub events: OneOrMany<Share>,
    /// The order of the baskets in the file.
    #[serde(default = "as_it_is")]
    pub order: OneOrMany<Order>,
    /// How jobs read.
    #[serde(default = "direct")]
    pub mode: OneOrMany<Mode>,
    /// The bytes read at once (`vector`) or ahead (`read-ahead`).
    #[serde(default = "cache")]
    pub cache: OneOrMany<Size>,
    /// A delay before each answer arrives.
    #[serde(default = "no_time")]
    pub added_round_trip: OneOrMany<Time>,
    /// The round trip of a proxy on this machine that delays the path to the system. The default is no proxy.
    pub round_trip: Option<OneOrMany<Time>>,
    /// Whether jobs decompress. The default is yes if the data are compressed.
    pub decompress: Option<OneOrMany<bool>>,
    /// The CPU seconds that jobs spend on each MB in addition.
    #[serde(default = "nothing")]
    pub compute: OneOrMany<CpuSeconds>,
    /// What a replayed job does between the recorded reads.
    #[serde(default = "skip")]
    pub gaps: OneOrMany<Gaps>,
    /// The directory on this machine that files are copied to (`copy-in`).
    pub scratch: Option<PathBuf>,
    /// Other tools on the same files.
    #[serde(default)]
    pub beside: Vec<JobTool>,
    /// The Python package with which uproot opens `root://` addresses.
    pub uproot_with: Option<OneOrMany<UprootWith>>,
    /// The Python interpreter that has uproot.
    pub python: Option<PathBuf>,
}

/// A synthetic file.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Synthetic {
    /// The largest size of the file, in bytes.
    pub file: Size,
    /// The number of events in it.
    pub events: u64,
    /// The number of branches. All have the same number of baskets.
    pub branches: u32,
    /// How many of them jobs read. The default is all.
    pub read: Option<u32>,
    /// The size of each basket in bytes.
    pub basket: Size,
}

/// A share of events, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share(pub u32);

const ALL: u32 = 1_000_000;

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "all" {
            return Ok(Self(ALL));
        }
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| (0.0001..=100.0).contains(percent));
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within bounds, as was just seen
        percent
            .map(|percent| Self((percent * 10_000.0).round() as u32))
            .ok_or_else(|| serde::de::Error::custom(format!("`{text}`: give `all`, or a share from 0.0001% to 100%")))
    }
}

/// A time in the form `12ms`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Time(pub Duration);

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        types::units::parse_duration(&text).map(Self).map_err(serde::de::Error::custom)
    }
}

/// CPU seconds for each MB.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct CpuSeconds(pub f64);

impl<'de> Deserialize<'de> for CpuSeconds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        if (0.0..=100.0).contains(&seconds) {
            return Ok(Self(seconds));
        }
        Err(serde::de::Error::custom(format!("{seconds} CPU seconds for each MB; give 0 to 100")))
    }
}

fn one_copy() -> u32 {
    1
}

fn all_events() -> OneOrMany<Share> {
    OneOrMany::One(Share(ALL))
}

fn as_it_is() -> OneOrMany<Order> {
    OneOrMany::One(Order::Ordered)
}

fn direct() -> OneOrMany<Mode> {
    OneOrMany::One(Mode::Direct)
}

fn cache() -> OneOrMany<Size> {
    OneOrMany::One(Size::of(20_000_000))
}

fn no_time() -> OneOrMany<Time> {
    OneOrMany::One(Time(Duration::ZERO))
}

fn nothing() -> OneOrMany<CpuSeconds> {
    OneOrMany::One(CpuSeconds(0.0))
}

fn skip() -> OneOrMany<Gaps> {
    OneOrMany::One(Gaps::Skip)
}

/// Whether the cache size has any effect.
fn has_cache(mode: Mode) -> bool {
    matches!(mode, Mode::Vector | Mode::ReadAhead)
}

impl Analysis {
    fn source(&self) -> Result<AnalysisSource, AnalysisError> {
        let (tree, branches) = (self.tree.clone(), self.branches.clone());
        let is_bare = tree.is_none() && branches.is_none();
        match (&self.root_file, &self.recording, &self.synthetic) {
            (Some(path), None, None) => {
                let branches = branches.unwrap_or_else(|| vec!["*".to_owned()]);
                Ok(AnalysisSource::RootFile { path: path.clone(), tree, branches })
            }
            (None, Some(path), None) if is_bare => Ok(AnalysisSource::Recording { path: path.clone() }),
            (None, None, Some(made)) if is_bare => Ok(AnalysisSource::Synthetic(SyntheticSpec {
                file_bytes: made.file.bytes,
                events: made.events,
                branches: made.branches,
                read: made.read.unwrap_or(made.branches),
                basket_bytes: request(made.basket.bytes),
            })),
            _ => Err(AnalysisError::OneSource),
        }
    }

    fn round_trips(&self) -> OneOrMany<Time> {
        self.round_trip.clone().unwrap_or_else(no_time)
    }

    /// The ways in which uproot opens files, if it runs.
    fn openers(&self) -> Vec<UprootWith> {
        match &self.uproot_with {
            Some(with) if !self.beside.is_empty() => with.all(),
            _ => vec![UprootWith::default()],
        }
    }

    fn decompress(&self) -> OneOrMany<bool> {
        self.decompress.clone().unwrap_or(OneOrMany::One(self.root_file.is_some()))
    }

    /// All modes, those with a cache combined with each cache size.
    fn modes(&self) -> Vec<(Mode, u64)> {
        let caches = self.cache.all();
        let with = |mode: Mode| {
            let taken = if has_cache(mode) { caches.len() } else { 1 };
            caches.iter().take(taken).map(move |cache| (mode, cache.bytes)).collect::<Vec<_>>()
        };
        self.mode.all().into_iter().flat_map(with).collect()
    }

    fn points(&self, source: &AnalysisSource, seed: u64) -> Vec<AnalysisSpec> {
        let first = AnalysisSpec {
            phase: AnalysisPhase::Put,
            source: source.clone(),
            copies: self.copies,
            order: Order::Ordered,
            jobs: 0,
            events_millionths: ALL,
            mode: Mode::Direct,
            cache_bytes: 0,
            added_round_trip_us: 0,
            round_trip_us: 0,
            decompress: false,
            compute_us_per_mb: 0,
            gaps: Gaps::Skip,
            scratch: self.scratch.clone().unwrap_or_else(std::env::temp_dir),
            seed,
            shared: Shared::default(),
        };
        // The requests derived from the source depend only on the order.
        let specs = each(vec![first], &self.order, |spec, order| {
            (spec.order, spec.shared) = (order, Shared::default());
        });
        let specs = each(specs, &self.jobs, |spec, jobs| spec.jobs = jobs);
        let specs = each(specs, &self.events, |spec, share| spec.events_millionths = share.0);
        let modes = OneOrMany::All(self.modes());
        let specs = each(specs, &modes, |spec, (mode, cache)| (spec.mode, spec.cache_bytes) = (mode, cache));
        let specs = each(specs, &self.added_round_trip, |spec, added| {
            spec.added_round_trip_us = u64::try_from(added.0.as_micros()).unwrap_or(u64::MAX);
        });
        let specs = each(specs, &self.round_trips(), |spec, time| {
            spec.round_trip_us = u64::try_from(time.0.as_micros()).unwrap_or(u64::MAX);
        });
        let specs = each(specs, &self.decompress(), |spec, decompress| spec.decompress = decompress);
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // within the bounds that were checked when it was parsed
        let specs =
            each(specs, &self.compute, |spec, compute| spec.compute_us_per_mb = (compute.0 * 1e6).round() as u32);
        each(specs, &self.gaps, |spec, gaps| spec.gaps = gaps)
    }

    fn work(&self, spec: AnalysisSpec, with: UprootWith, tried: &Tried, only_root: bool) -> Work {
        let events = match spec.events_millionths {
            ALL => "all".to_owned(),
            share => format!("{} %", f64::from(share) / 1e4),
        };
        let word = |value: serde_json::Result<serde_json::Value>| {
            value.ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
        };
        let source = match &spec.source {
            AnalysisSource::RootFile { path, branches, .. } => format!("{} ({})", file_name(path), branches.join(" ")),
            AnalysisSource::Recording { path } => format!("recording {}", file_name(path)),
            AnalysisSource::Synthetic(made) => {
                format!(
                    "synthetic ({} of {} branches, baskets of {})",
                    made.read,
                    made.branches,
                    self.synthetic.as_ref().map_or_else(|| Size::of(made.basket_bytes.into()), |given| given.basket)
                )
            }
        };
        let added = Duration::from_micros(spec.added_round_trip_us);
        let mut parameters = named([
            ("source", source),
            ("jobs", spec.jobs.to_string()),
            ("events", events),
            ("order", word(serde_json::to_value(spec.order))),
            ("mode", word(serde_json::to_value(spec.mode))),
            ("cache", if has_cache(spec.mode) { size(spec.cache_bytes, &self.cache) } else { "none".to_owned() }),
            ("added round trip", types::units::show_duration(added)),
            ("decompress", if spec.decompress { "yes" } else { "no" }.to_owned()),
            ("compute", format!("{} s/MB", f64::from(spec.compute_us_per_mb) / 1e6)),
        ]);
        if self.recording.is_some() {
            parameters.extend(named([("gaps", word(serde_json::to_value(spec.gaps)))]));
        }
        if self.round_trip.is_some() {
            let time = Duration::from_micros(spec.round_trip_us);
            parameters.extend(named([("round trip", types::units::show_duration(time))]));
        }
        if self.uproot_with.is_some() && !self.beside.is_empty() {
            parameters.extend(named([("uproot with", word(serde_json::to_value(with)))]));
        }
        let read = AnalysisSpec { phase: AnalysisPhase::Analyse, ..spec.clone() };
        let by = |tool: &JobTool| match tool {
            JobTool::Uproot => Phase::Uproot(UprootSpec {
                work: read.clone(),
                with,
                python: self.python.clone().unwrap_or_else(|| DEFAULT_PYTHON.into()),
                tried: tried.clone(),
            }),
        };
        let beside: Vec<Phase> = self.beside.iter().map(by).collect();
        let phases = [Phase::Analysis(spec), Phase::Analysis(read)].into_iter().chain(beside).collect();
        Work { parameters, phases, only_root, ..Work::new(&self.name) }
    }
}

fn file_name(path: &std::path::Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

impl Section for Analysis {
    fn combinations(&self) -> u64 {
        let lists = [
            self.order.count(),
            self.jobs.count(),
            self.events.count(),
            self.modes().len() as u64,
            self.added_round_trip.count(),
            self.round_trips().count(),
            self.openers().len() as u64,
            self.decompress().count(),
            self.compute.count(),
            self.gaps.count(),
        ];
        product(lists)
    }

    fn file_sizes(&self) -> Vec<Size> {
        self.synthetic.iter().map(|made| made.file).collect()
    }

    fn works(&self, seed: u64) -> Vec<Work> {
        let Ok(source) = self.source() else { return Vec::new() };
        let points = self.points(&source, seed);
        let of = |(number, with): (usize, UprootWith)| {
            // Each way needs other packages.
            let tried = Tried::default();
            // uproot opens paths itself, so there all ways are the same.
            points.iter().map(|spec| self.work(spec.clone(), with, &tried, number > 0)).collect::<Vec<_>>()
        };
        self.openers().into_iter().enumerate().flat_map(of).collect()
    }

    fn check(&self) -> Result<(), CampaignError> {
        let wrong = |source: AnalysisError| CampaignError::Work {
            name: self.name.clone(),
            source: WorkError::Analysis(source),
        };
        self.source().map(drop).map_err(wrong)
    }
}
