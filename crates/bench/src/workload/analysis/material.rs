//! The input of jobs: the files on the system, and their expected contents. The source is a real file, a recording,
//! or nothing.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use glob::Pattern;
use types::Crc32c;

use super::arrange::{Region, arrange, place_of};
use super::recording::Recording;
use super::{AnalysisError, AnalysisSource, AnalysisSpec, Order, SyntheticSpec};
use crate::rootfile::{Kind, Part, RootFile, Source, Tree, Unpacker};
use crate::workload::permutation::Permutation;

/// The unit in which compressing file systems work: the records of ZFS and btrfs.
const RECORD_BYTES: u64 = 128 << 10;
/// The most records of a file that are examined.
const RECORDS_MAX: u64 = 512;
/// The longest recording, as text.
const RECORDING_MAX: u64 = 4 << 30;

/// The input of all jobs.
#[derive(Debug)]
pub(super) struct Material {
    /// The files of one copy.
    pub(super) files: Vec<MaterialFile>,
    /// What the jobs read of them.
    pub(super) reading: JobReads,
    /// A system that compresses can store it in at most nine tenths of the space.
    pub(super) compressible: bool,
}

/// A file.
#[derive(Debug)]
pub(super) struct MaterialFile {
    pub(super) bytes: u64,
    /// The source of its contents; `None`: it is generated, and every byte can be verified.
    pub(super) original: Option<SourceFile>,
}

/// A real file, with the order of its sections.
#[derive(Debug)]
pub(super) struct SourceFile {
    pub(super) path: PathBuf,
    pub(super) regions: Vec<Region>,
}

/// The reads of the jobs.
#[derive(Debug)]
pub(super) enum JobReads {
    Dataset(Dataset),
    Recording(Recording),
}

/// Branches of one file, basket by basket.
#[derive(Debug)]
pub(super) struct Dataset {
    pub(super) entries: u64,
    /// The parts as they are on the system: those of [`Dataset::head`] first, then branch by branch.
    pub(super) parts: Vec<Part>,
    /// The expected checksums of the parts; empty for generated files.
    pub(super) sums: Vec<Sums>,
    /// The parts that every job reads first.
    pub(super) head: Range<u32>,
    /// The parts of each branch.
    pub(super) branches: Vec<Range<u32>>,
    /// The name and the kind of the data set, and the names of the branches; none for generated files.
    pub(super) name: Option<(String, Kind)>,
    pub(super) branch_names: Vec<String>,
}

/// The checksums of a part in the original: as stored, and decompressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Sums {
    pub(super) packed: Crc32c,
    pub(super) plain: Crc32c,
}

impl Material {
    /// Makes the input, and reads the files on this machine that it needs.
    pub(super) fn load(spec: &AnalysisSpec) -> Result<Self, AnalysisError> {
        match &spec.source {
            AnalysisSource::RootFile { path, tree, branches } => {
                let wanted = BranchSelection { path, tree: tree.as_deref(), branches };
                root_file(&wanted, spec.order, spec.seed)
            }
            AnalysisSource::Recording { path } => recording(path),
            AnalysisSource::Synthetic(synthetic) => Ok(made(synthetic, spec.order, spec.seed)),
        }
    }

    /// Returns the bytes of the files of one copy.
    pub(super) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).fold(0, u64::saturating_add)
    }
}

struct BranchSelection<'a> {
    path: &'a Path,
    tree: Option<&'a str>,
    branches: &'a [String],
}

fn root_file(wanted: &BranchSelection<'_>, order: Order, seed: u64) -> Result<Material, AnalysisError> {
    let path = wanted.path;
    let wrong = |what: String| AnalysisError::Source { path: path.display().to_string(), what };
    let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
    let source = Source::file(&file).map_err(|error| wrong(error.to_string()))?;
    let found = RootFile::read(&source).map_err(|error| wrong(error.to_string()))?;
    let tree = tree_of(&found, wanted.tree).map_err(wrong)?;
    let patterns: Result<Vec<Pattern>, _> = wanted.branches.iter().map(|pattern| Pattern::new(pattern)).collect();
    let patterns = patterns.map_err(|error| wrong(format!("branches: {error}")))?;
    let is_chosen = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
    let chosen = tree.branches.iter().filter(|branch| is_chosen(&branch.name));
    // All branches of a small tree may be within its own object. Then no branch can be named.
    let has_any = !tree.branches.is_empty() || tree.head.is_empty();
    let is_idle = |pattern: &&Pattern| !tree.branches.iter().any(|branch| pattern.matches(&branch.name));
    let idle: Vec<String> = patterns.iter().filter(is_idle).map(|pattern| format!("`{pattern}`")).collect();
    if has_any && !idle.is_empty() {
        let names: Vec<&str> = tree.branches.iter().take(5).map(|branch| branch.name.as_str()).collect();
        return Err(wrong(format!(
            "`branches`: {} has no branch that {} {}; it has {} … (`weir bench root-file {}` lists all)",
            tree.name,
            idle.join(" or "),
            if idle.len() == 1 { "matches" } else { "match" },
            names.join(", "),
            path.display(),
        )));
    }
    let mut parts = tree.head.clone();
    let head = 0..request(parts.len());
    let (mut branches, mut branch_names) = (Vec::new(), Vec::new());
    for branch in chosen {
        let begin = request(parts.len());
        parts.extend(&branch.parts);
        branches.push(begin..request(parts.len()));
        branch_names.push(branch.name.clone());
    }
    let sums = sums(&source, &parts).map_err(|error| wrong(error.to_string()))?;
    let all = tree.branches.iter().flat_map(|branch| &branch.parts);
    let regions = match order {
        Order::Ordered => vec![Region { from: 0, len: found.bytes }],
        Order::Unordered => arrange(found.bytes, all, seed).map_err(wrong)?,
    };
    let places = place_of(&regions);
    for part in &mut parts {
        part.offset = places(part.offset).ok_or_else(|| wrong("a part lies outside of the file".to_owned()))?;
    }
    let name = Some((tree.name.clone(), tree.kind));
    let dataset = Dataset { entries: tree.entries, parts, sums, head, branches, name, branch_names };
    let compressible = is_compressible(&file, found.bytes).map_err(|error| wrong(error.to_string()))?;
    let original = Some(SourceFile { path: path.to_owned(), regions });
    let files = vec![MaterialFile { bytes: found.bytes, original }];
    Ok(Material { files, reading: JobReads::Dataset(dataset), compressible })
}

/// Returns the tree with that name, or the largest.
fn tree_of<'a>(found: &'a RootFile, name: Option<&str>) -> Result<&'a Tree, String> {
    let names: Vec<&str> = found.trees.iter().map(|tree| tree.name.as_str()).collect();
    let size = |tree: &&Tree| tree.bytes() + tree.head.iter().map(|part| u64::from(part.bytes)).sum::<u64>();
    let tree = match name {
        Some(name) => found.trees.iter().find(|tree| tree.name == name),
        None => found.trees.iter().max_by_key(size),
    };
    tree.ok_or_else(|| {
        format!("it has no such tree; it has {}", if names.is_empty() { "none".to_owned() } else { names.join(", ") })
    })
}

fn sums(source: &Source<'_>, parts: &[Part]) -> Result<Vec<Sums>, crate::rootfile::RootFileError> {
    let (mut unpacker, mut plain) = (Unpacker::default(), Vec::new());
    let sum = |part: &Part| {
        let record = source.at(part.offset, usize::try_from(part.bytes).unwrap_or(usize::MAX))?;
        unpacker.unpack(part, &record, &mut plain)?;
        Ok(Sums { packed: Crc32c::of(&record), plain: Crc32c::of(&plain) })
    };
    parts.iter().map(sum).collect()
}

/// Whether a compressor saves at least a tenth on single records of the file, as file systems compress them.
fn is_compressible(file: &File, bytes: u64) -> io::Result<bool> {
    // Evenly over the file, including the first and the last record.
    let records = bytes.div_ceil(RECORD_BYTES);
    let looked_at = records.min(RECORDS_MAX);
    let (mut before, mut after) = (0, 0);
    for number in 0..looked_at {
        let at = number * (records - 1) / (looked_at - 1).max(1) * RECORD_BYTES;
        let mut record = vec![0; usize::try_from(RECORD_BYTES.min(bytes - at)).unwrap_or(0)];
        file.read_exact_at(&mut record, at)?;
        before += record.len();
        after += record.len().min(zstd::bulk::compress(&record, 1)?.len());
    }
    Ok(before > 0 && after * 10 <= before * 9)
}

fn recording(path: &Path) -> Result<Material, AnalysisError> {
    let wrong = |what: String| AnalysisError::Source { path: path.display().to_string(), what };
    let bytes = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?.len();
    if bytes > RECORDING_MAX {
        return Err(wrong(format!("a recording of {bytes} bytes; at most {RECORDING_MAX}")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let recording = Recording::parse(&text).map_err(|error| wrong(error.to_string()))?;
    let files = recording.files.iter().map(|(_, bytes)| MaterialFile { bytes: *bytes, original: None }).collect();
    Ok(Material { files, reading: JobReads::Recording(recording), compressible: false })
}

/// Makes baskets of one length, the same number in each branch.
fn made(spec: &SyntheticSpec, order: Order, seed: u64) -> Material {
    let (branches, rounds) = (u64::from(spec.branches), spec.rounds());
    let all = Permutation::new(branches * rounds, seed);
    let mut parts = Vec::new();
    let mut ranges = Vec::new();
    for read in 0..u64::from(spec.read) {
        // Spread over the file.
        let branch = read * branches / u64::from(spec.read.max(1));
        let begin = request(parts.len());
        for round in 0..rounds {
            let place = round * branches + branch;
            let place = if order == Order::Ordered { place } else { all.at(place) };
            let (from, to) = (round * spec.events / rounds, (round + 1) * spec.events / rounds);
            let offset = place * u64::from(spec.basket_bytes);
            parts.push(Part {
                offset,
                bytes: spec.basket_bytes,
                before: 0,
                behind: 0,
                uncompressed: spec.basket_bytes,
                first_entry: from,
                entries: to - from,
            });
        }
        ranges.push(begin..request(parts.len()));
    }
    let bytes = branches * rounds * u64::from(spec.basket_bytes);
    let dataset = Dataset {
        entries: spec.events,
        parts,
        sums: Vec::new(),
        head: 0..0,
        branches: ranges,
        name: None,
        branch_names: Vec::new(),
    };
    let files = vec![MaterialFile { bytes, original: None }];
    Material { files, reading: JobReads::Dataset(dataset), compressible: false }
}

fn request(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
