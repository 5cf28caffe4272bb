//! The sections of a campaign that define work. Each kind of work has a file, from its keys to all combinations of
//! their values.

mod analysis;
mod churn;
mod client;
mod daq;
mod failure;
mod network;
mod placement;
mod small;
mod streams;

pub use analysis::{Analysis, Synthetic};
pub use churn::{Repeat, Robust};
pub use client::ClientAlone;
pub use daq::Daq;
pub use failure::Failure;
pub use network::Network;
pub use placement::Placement;
pub use small::Small;
pub use streams::Streams;

use super::file::CampaignError;
use super::trial::Work;
use super::value::{OneOrMany, Rate, Size};
use crate::target::Window;

/// A section of a campaign.
pub(super) trait Section {
    /// Returns the number of works without making them. Lists multiply, so it can be huge.
    fn combinations(&self) -> u64;

    /// Returns all works; `seed` is the campaign's.
    fn works(&self, seed: u64) -> Vec<Work>;

    /// Returns the sizes of files that were given.
    fn file_sizes(&self) -> Vec<Size> {
        Vec::new()
    }

    /// Checks what the checks of single works do not see.
    ///
    /// # Errors
    /// [`CampaignError`].
    fn check(&self) -> Result<(), CampaignError> {
        Ok(())
    }
}

/// The number of combinations of lists with these lengths.
fn product<const N: usize>(counts: [u64; N]) -> u64 {
    counts.into_iter().fold(1, u64::saturating_mul)
}

/// Combines each of `points` with each of `values`.
fn each<P: Clone, V: Clone>(points: Vec<P>, values: &OneOrMany<V>, set: impl Fn(&mut P, V)) -> Vec<P> {
    let values = values.all();
    let with = |point: &P, value: &V| {
        let mut point = point.clone();
        set(&mut point, value.clone());
        point
    };
    points.iter().flat_map(|point| values.iter().map(|value| with(point, value)).collect::<Vec<_>>()).collect()
}

/// Shows one of the sizes that were `given`, in its unit.
fn size(bytes: u64, given: &OneOrMany<Size>) -> String {
    let found = given.all().into_iter().find(|size| size.bytes == bytes);
    found.unwrap_or_else(|| Size::of(bytes)).to_string()
}

/// Shows one of the rates that were `given`, in its unit.
fn rate(bytes: Option<u64>, given: &OneOrMany<Rate>) -> String {
    let Some(bytes) = bytes else { return "flat out".to_owned() };
    let found = given.all().into_iter().filter_map(|rate| rate.0).find(|size| size.bytes == bytes);
    format!("{}/s each", found.unwrap_or_else(|| Size::of(bytes)))
}

fn named<const N: usize>(parameters: [(&str, String); N]) -> Vec<(String, String)> {
    parameters.map(|(name, value)| (name.to_owned(), value)).to_vec()
}

/// A number that does not fit becomes the largest one, which the checks refuse.
fn request(bytes: u64) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

fn one() -> OneOrMany<u32> {
    OneOrMany::One(1)
}

fn one_request() -> OneOrMany<Window> {
    OneOrMany::One(Window::default())
}

fn yes() -> bool {
    true
}
