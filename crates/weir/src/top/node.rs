//! One node, by its `/metrics`.

use std::time::Instant;

use super::page::{Page, Target};
use super::rates::Rates;
use super::{Seen, Size, Source, screen};
use crate::Failure;
use crate::exit::Exit;

pub(super) struct Node {
    target: Target,
    before: Option<(Page, Instant)>,
}

impl Node {
    pub(super) fn new(target: Target) -> Self {
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
