//! `weir bench root-file`: where the data of a ROOT file's branches lies.

use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use bench::rootfile::{Branch, Part, RootFile, Source, Tree, Unpacker};
use console::{Exit, Failure};
use types::units::show_size;

use super::{failed, usage};
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
        writeln!(out, "{text}").map_err(failed)?;
        return Ok(Exit::Done);
    }
    out.write_all(text(path, &found, unpacked).as_bytes()).map_err(failed)?;
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
        let baskets: usize = tree.branches.iter().map(|branch| branch.parts.len()).sum();
        lines.push(format!(
            "{} ({}): {} entries; {} branches with {baskets} parts of {} in all; {} to begin with",
            tree.name,
            serde_json::to_value(tree.kind).ok().and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default(),
            tree.entries,
            tree.branches.len(),
            show_size(tree.bytes()),
            show_size(tree.head.iter().map(|part| u64::from(part.bytes)).sum()),
        ));
        lines.extend(tree.branches.iter().map(line));
    }
    lines.extend(found.notes.iter().map(|note| format!("not read: {note}")));
    if let Some((bytes, took)) = unpacked {
        #[allow(clippy::cast_precision_loss)] // a rate
        let rate = bytes as f64 / took.as_secs_f64().max(1e-9) / 1e6;
        lines.push(format!("unpacked: {} at {rate:.0} MB/s on one core", show_size(bytes)));
    }
    lines.join("\n") + "\n"
}

fn line(branch: &Branch) -> String {
    let sum = |of: fn(&Part) -> u32| show_size(branch.parts.iter().map(|part| u64::from(of(part))).sum());
    let within = match branch.entries_within_the_tree {
        0 => String::new(),
        entries => format!(", {entries} entries within the tree's object"),
    };
    let (bytes, plain) = (sum(|part| part.bytes), sum(|part| part.uncompressed));
    format!("  {}: {} parts, {bytes}, uncompressed {plain}{within}", branch.name, branch.parts.len())
}
