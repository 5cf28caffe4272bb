//! `weir checksum`: checksums of whole files, from servers or computed here.

use std::collections::BTreeSet;

use client::{Algorithm, Endpoint};
use serde_json::json;
use transfer::tree::Tree;
use transfer::{CopyPath, TransferError, read_all};

use super::errors::Errors;
use super::names::places;
use super::output::Output;
use super::show::printable;
use crate::cli::ChecksumArgs;

/// Shows checksums of whole files. All of one run are of the same algorithms, so that they can be compared.
pub fn checksum(
    tree: &mut Tree,
    args: &ChecksumArgs,
    out: &mut Output,
    errors: &mut Errors,
) -> Result<(), TransferError> {
    let places = places(&args.places)?;
    let algorithms = match &args.algorithm[..] {
        [] => vec![common(tree, &places)?],
        named => named.iter().cloned().map(Some).collect(),
    };
    let pairs = places.iter().flat_map(|at| algorithms.iter().map(move |algorithm| (at, algorithm.as_deref())));
    errors.each(pairs, |_, (at, algorithm)| {
        let (algorithm, value) = of(tree, at, algorithm)?;
        if args.json {
            out.json(&json!({ "path": at.to_string(), "algorithm": algorithm, "value": value }))
        } else {
            out.line(&format!("{algorithm}:{value}  {}", printable(&at.to_string())))
        }
    })
}

/// The checksum of one file. Without an algorithm the server chooses it.
fn of(tree: &mut Tree, at: &CopyPath, algorithm: Option<&str>) -> Result<(String, String), TransferError> {
    if let CopyPath::Remote(url) = at {
        return Ok(tree.client.checksum(url, algorithm)?);
    }
    let name = algorithm.unwrap_or(Algorithm::Crc32c.name());
    let Some(algorithm) = Algorithm::parse(name) else {
        return Err(TransferError::NoSuchChecksum { name: name.to_owned() });
    };
    let mut sum = algorithm.of_nothing();
    read_all(&mut tree.client, at, &mut |part| {
        sum = sum.combine(algorithm.of(part), part.len() as u64);
        Ok(())
    })?;
    Ok((name.to_owned(), format!("{:08x}", sum.value)))
}

/// The algorithm for all places: the one that a single server prefers, or the best that all of them have. `None`:
/// the server chooses.
fn common(tree: &mut Tree, places: &[CopyPath]) -> Result<Option<String>, TransferError> {
    let mut seen: BTreeSet<&Endpoint> = BTreeSet::new();
    let is_here = places.iter().any(|place| !matches!(place, CopyPath::Remote(_)));
    let mut lists = Vec::new();
    for place in places {
        let CopyPath::Remote(url) = place else { continue };
        if seen.insert(&url.server) {
            lists.push((url.server.to_string(), url));
        }
    }
    if usize::from(is_here) + lists.len() <= 1 {
        return Ok(None);
    }
    let mut offered = Vec::new();
    for (server, url) in lists {
        let answer = tree.client.config(url, &["chksum"])?;
        offered.push((server, answer.first().cloned().unwrap_or_default()));
    }
    if let Some(best) = best(&offered) {
        return Ok(Some(best.name().to_owned()));
    }
    let offered = offered.iter().map(|(server, list)| format!("{server}: {list}")).collect::<Vec<_>>().join("; ");
    Err(TransferError::NoCommonChecksum { offered })
}

/// The best algorithm that all servers have and that can be computed here.
fn best(offered: &[(String, String)]) -> Option<Algorithm> {
    let all_have = |algorithm: &Algorithm| offered.iter().all(|(_, list)| algorithm.is_in(list));
    Algorithm::ALL.into_iter().find(all_have)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_servers_have_the_chosen_algorithm() {
        let best =
            |lists: &[&str]| best(&lists.iter().map(|list| ("s".to_owned(), (*list).to_owned())).collect::<Vec<_>>());
        assert_eq!(best(&["0:adler32,1:crc32c", "crc32c"]), Some(Algorithm::Crc32c));
        assert_eq!(best(&["0:adler32,1:crc32c", "0:adler32"]), Some(Algorithm::Adler32));
        assert_eq!(best(&["crc32c", "adler32"]), None);
        assert_eq!(best(&["md5"]), None);
    }
}
