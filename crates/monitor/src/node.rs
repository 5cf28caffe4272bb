//! One node, by its `/metrics`.

use std::time::Instant;

use console::{Exit, Failure};

use crate::page::{Page, Target};
use crate::rates::Rates;
use crate::screen;
use crate::show::{Seen, Size, Source};

/// Reads one node.
pub struct Node {
    target: Target,
    before: Option<(Page, Instant)>,
}

impl Node {
    /// The node whose metrics are at `target`.
    #[must_use]
    pub fn new(target: Target) -> Self {
        Self { target, before: None }
    }
}

impl Source for Node {
    fn look(&mut self) -> Result<Option<Box<dyn Seen>>, Failure> {
        let page = Page::fetch(&self.target).map_err(|error| Failure::new(Exit::Failed, error))?;
        let now = (page, Instant::now());
        let before = self.before.replace(now.clone());
        Ok(before.map(|before| {
            let rates = Rates::between(&before.0, &now.0, now.1.duration_since(before.1));
            Box::new(SeenNode { node: self.target.shown(), rates }) as Box<dyn Seen>
        }))
    }
}

struct SeenNode {
    node: String,
    rates: Rates,
}

impl Seen for SeenNode {
    fn json(&self) -> String {
        self.rates.json()
    }

    fn lines(&self, size: Option<Size>) -> Vec<String> {
        screen::lines(&self.node, &self.rates, size)
    }
}
