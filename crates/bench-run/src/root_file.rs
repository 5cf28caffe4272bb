//! `weir bench root-file`: where the data of a ROOT file's branches lies.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bench::rootfile::{Branch, Kind, Part, RootFile, Source, Tree, Unpacker};
use bench::units::counted;
use console::{Exit, Failure};
use types::units::show_size;

use super::{failed, printed, usage};
use crate::options::RootFileOptions;

pub(super) fn run(args: &RootFileOptions) -> Result<Exit, Failure> {
    let path = &args.file;
    let doing = |failure: Failure| failure.while_doing(path.display().to_string());
    let file = std::fs::File::open(path)
        .map_err(|error| Failure::message(Exit::NotFound, format!("cannot open {}: {error}", path.display())))?;
    let source = Source::file(&file).map_err(|error| doing(failed(error)))?;
    let found = RootFile::read(&source).map_err(|error| doing(usage(error)))?;
    let unpacked = if args.unpack { Some(unpack(&source, &found).map_err(doing)?) } else { None };
    let mut out = std::io::stdout().lock();
    if args.json {
        let text = serde_json::to_string(&found).map_err(failed)?;
        printed(writeln!(out, "{text}"))?;
        return Ok(Exit::Done);
    }
    printed(out.write_all(text(path, &found, unpacked).as_bytes()).and_then(|()| out.flush()))?;
    Ok(Exit::Done)
}

/// Decompresses everything; returns the resulting bytes and the time.
fn unpack(source: &Source<'_>, found: &RootFile) -> Result<(u64, Duration), Failure> {
    let (mut unpacker, mut plain) = (Unpacker::default(), Vec::new());
    let (mut bytes, mut took) = (0, Duration::ZERO);
    for part in found.trees.iter().flat_map(parts) {
        let record = source.at(part.offset, part.bytes as usize).map_err(failed)?;
        let begun = Instant::now();
        unpacker.unpack(part, &record, &mut plain).map_err(failed)?;
        took += begun.elapsed();
        bytes += plain.len() as u64;
    }
    Ok((bytes, took))
}

fn parts(tree: &Tree) -> impl Iterator<Item = &Part> {
    tree.head.iter().chain(tree.branches.iter().flat_map(|branch| &branch.parts))
}

fn text(path: &Path, found: &RootFile, unpacked: Option<(u64, Duration)>) -> String {
    let mut lines = vec![format!("{}: {}", path.display(), show_size(found.bytes))];
    for tree in &found.trees {
        let all: usize = tree.branches.iter().map(|branch| branch.parts.len()).sum();
        let branches = match tree.kind {
            Kind::Tree => counted(tree.branches.len() as u64, "branch", "branches"),
            Kind::Ntuple => counted(tree.branches.len() as u64, "field", "fields"),
        };
        lines.push(format!(
            "{} ({}): {}; {branches} with {} of {} in all; {} of metadata to begin with",
            tree.name,
            serde_json::to_value(tree.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default(),
            counted(tree.entries, "entry", "entries"),
            counted_parts(tree.kind, all),
            show_size(tree.bytes()),
            show_size(tree.head.iter().map(|part| u64::from(part.bytes)).sum()),
        ));
        lines.extend(tree.branches.iter().map(|branch| line(tree.kind, branch)));
    }
    lines.extend(found.notes.iter().map(|note| format!("not read: {note}")));
    if let Some((bytes, took)) = unpacked {
        #[allow(clippy::cast_precision_loss)] // a rate
        let rate = bytes as f64 / took.as_secs_f64().max(1e-9) / 1e6;
        lines.push(format!("unpacked: {} at {rate:.0} MB/s on one core", show_size(bytes)));
    }
    lines.join("\n") + "\n"
}

/// A number of baskets of a tree, or of pages of an ntuple.
fn counted_parts(kind: Kind, parts: usize) -> String {
    match kind {
        Kind::Tree => counted(parts as u64, "basket", "baskets"),
        Kind::Ntuple => counted(parts as u64, "page", "pages"),
    }
}

fn line(kind: Kind, branch: &Branch) -> String {
    let sum = |of: fn(&Part) -> u32| show_size(branch.parts.iter().map(|part| u64::from(of(part))).sum());
    let within = match branch.entries_within_the_tree {
        0 => String::new(),
        entries => format!(", {} within the tree's object", counted(entries, "entry", "entries")),
    };
    let (bytes, plain) = (sum(|part| part.bytes), sum(|part| part.uncompressed));
    format!("  {}: {}, {bytes}, uncompressed {plain}{within}", branch.name, counted_parts(kind, branch.parts.len()))
}
