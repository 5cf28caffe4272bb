//! The steps of a client in the mixture. They are a pure function of the seed, so anyone can tell afterwards which
//! files must exist, and in which generation.

use crate::splitmix;

/// The relative frequency of each operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Mix {
    /// Create a file.
    pub create: u32,
    /// Replace a file's contents.
    pub rewrite: u32,
    /// Read a whole file.
    pub read: u32,
    /// Ask for the length of a file.
    pub stat: u32,
    /// List a whole directory.
    pub list: u32,
    /// Remove a file.
    pub remove: u32,
}

impl Default for Mix {
    /// Like jobs of many tools that pass files to each other: most files are read, some are rewritten, and few
    /// directories are listed.
    fn default() -> Self {
        Self { create: 20, rewrite: 10, read: 40, stat: 19, list: 1, remove: 10 }
    }
}

impl Mix {
    /// Returns the sum of all weights.
    #[must_use]
    pub fn sum(&self) -> u64 {
        [self.create, self.rewrite, self.read, self.stat, self.list, self.remove].into_iter().map(u64::from).sum()
    }
}

/// The range of file sizes. Equally many sizes are between each power of two and the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    /// The smallest size in bytes.
    pub least: u32,
    /// The largest size in bytes.
    pub most: u32,
}

impl Sizes {
    /// Returns the size of a generation of a file in bytes. The same arguments give the same size.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a size by chance
    pub fn of(&self, file: u64, generation: u32, seed: u64) -> u32 {
        let chance = splitmix::next(seed ^ splitmix::next(file ^ splitmix::next(u64::from(generation))));
        let share = (chance >> 11) as f64 / (1_u64 << 53) as f64;
        let (least, most) = (f64::from(self.least.max(1)), f64::from(self.most.max(1)));
        let size = least * (most / least).powf(share);
        (size.round() as u32).clamp(self.least, self.most.max(self.least))
    }
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Create the missing file `slot` in its `generation`.
    Create {
        /// The client's file.
        slot: u32,
        /// How often it was written before.
        generation: u32,
    },
    /// Replace the file's contents.
    Rewrite {
        /// The client's file.
        slot: u32,
        /// How often it was written before.
        generation: u32,
    },
    /// Read the whole file.
    Read {
        /// The client's file.
        slot: u32,
        /// The expected generation.
        generation: u32,
    },
    /// Ask for the file's length.
    Stat {
        /// The client's file.
        slot: u32,
        /// The expected generation.
        generation: u32,
    },
    /// List the client's directory.
    List,
    /// Remove the file.
    Remove {
        /// The client's file.
        slot: u32,
    },
}

/// A client's files: which exist, and in which generation.
#[derive(Clone, Debug)]
pub struct Files {
    /// How often each was written.
    written: Vec<u32>,
    /// All slots: those of existing files first.
    order: Vec<u32>,
    /// The number of existing files.
    there: usize,
}

impl Files {
    /// Returns `slots` files, none of which exists.
    #[must_use]
    pub fn none(slots: u32) -> Self {
        Self { written: vec![0; slots as usize], order: (0..slots).collect(), there: 0 }
    }

    /// Returns `slots` files that all exist in their first generation.
    #[must_use]
    pub fn all(slots: u32) -> Self {
        Self { written: vec![1; slots as usize], order: (0..slots).collect(), there: slots as usize }
    }

    /// Returns the number of existing files.
    #[must_use]
    pub fn count(&self) -> usize {
        self.there
    }

    /// Returns the existing files with their generations.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        self.order.iter().take(self.there).map(|slot| (*slot, self.generation(*slot)))
    }

    fn generation(&self, slot: u32) -> u32 {
        self.written.get(slot as usize).map_or(0, |written| written.saturating_sub(1))
    }

    /// Picks an existing file, or a missing one.
    fn pick(&self, there: bool, chance: u64) -> Option<usize> {
        let range = if there { 0..self.there } else { self.there..self.order.len() };
        let count = (range.end - range.start) as u64;
        (count > 0).then(|| range.start + usize::try_from(chance % count).unwrap_or(0))
    }

    fn write(&mut self, slot: u32) -> u32 {
        if let Some(written) = self.written.get_mut(slot as usize) {
            *written += 1;
        }
        self.generation(slot)
    }

    /// Moves the slot at `place` across the border between existing and missing files.
    fn cross(&mut self, place: usize) {
        if place < self.there {
            self.there -= 1;
            self.order.swap(place, self.there);
        } else {
            self.order.swap(place, self.there);
            self.there += 1;
        }
    }
}

/// The steps of one client.
#[derive(Clone, Debug)]
pub struct Plan {
    files: Files,
    mix: Mix,
    state: u64,
    left: u64,
}

impl Plan {
    /// Plans `operations` steps on `files`. The number of existing files stays near half of all, if possible.
    #[must_use]
    pub fn new(files: Files, mix: Mix, operations: u64, seed: u64) -> Self {
        Self { files, mix, state: seed, left: operations }
    }

    /// Returns the files as they must be after the steps so far.
    #[must_use]
    pub fn files(&self) -> &Files {
        &self.files
    }

    fn chance(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        splitmix::finalize(self.state)
    }

    /// Chooses an operation by the weights, whether or not it is possible.
    fn wish(&mut self) -> NextStep {
        let mix = self.mix;
        let mut number = self.chance() % mix.sum().max(1);
        for (wish, weight) in [
            (NextStep::Create, mix.create),
            (NextStep::Rewrite, mix.rewrite),
            (NextStep::Read, mix.read),
            (NextStep::Stat, mix.stat),
            (NextStep::List, mix.list),
        ] {
            if number < u64::from(weight) {
                return wish;
            }
            number -= u64::from(weight);
        }
        NextStep::Remove
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Create,
    Rewrite,
    Read,
    Stat,
    List,
    Remove,
}

impl Iterator for Plan {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        self.left = self.left.checked_sub(1)?;
        let wish = match self.wish() {
            // Without files, none can be read or removed. If all exist, none can be created.
            NextStep::Rewrite | NextStep::Read | NextStep::Stat | NextStep::Remove if self.files.there == 0 => {
                NextStep::Create
            }
            NextStep::Create if self.files.there == self.files.order.len() => NextStep::Remove,
            wish => wish,
        };
        if wish == NextStep::List {
            return Some(Step::List);
        }
        let chance = self.chance();
        // There is such a file, because the wish was replaced otherwise. Without any slots, only listing is
        // possible.
        let Some(place) = self.files.pick(wish != NextStep::Create, chance) else { return Some(Step::List) };
        let slot = self.files.order.get(place).copied()?;
        Some(match wish {
            NextStep::Create => {
                self.files.cross(place);
                Step::Create { slot, generation: self.files.write(slot) }
            }
            NextStep::Rewrite => Step::Rewrite { slot, generation: self.files.write(slot) },
            NextStep::Read => Step::Read { slot, generation: self.files.generation(slot) },
            NextStep::Stat => Step::Stat { slot, generation: self.files.generation(slot) },
            NextStep::Remove | NextStep::List => {
                self.files.cross(place);
                Step::Remove { slot }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the files after the steps, by a model that does not use the plan's state.
    fn after(plan: &mut Plan, mut there: BTreeMap<u32, u32>) -> (BTreeMap<u32, u32>, BTreeMap<u32, u32>) {
        let mut newest = there.clone();
        for step in plan {
            match step {
                Step::Create { slot, generation } => {
                    assert_eq!(there.insert(slot, generation), None);
                    assert_eq!(newest.insert(slot, generation).map_or(0, |before| before + 1), generation);
                }
                Step::Rewrite { slot, generation } => {
                    assert_eq!(there.insert(slot, generation), Some(generation - 1));
                    newest.insert(slot, generation);
                }
                Step::Read { slot, generation } | Step::Stat { slot, generation } => {
                    assert_eq!(there.get(&slot), Some(&generation));
                }
                Step::Remove { slot } => assert!(there.remove(&slot).is_some()),
                Step::List => {}
            }
        }
        (there, newest)
    }

    #[test]
    fn each_step_fits_the_state_after_the_earlier_steps() {
        for seed in 0..50 {
            for (files, model) in [
                (Files::none(40), BTreeMap::new()),
                (Files::all(40), (0..40).map(|slot| (slot, 0)).collect()),
                (Files::none(1), BTreeMap::new()),
                (Files::none(0), BTreeMap::new()),
            ] {
                let mut plan = Plan::new(files, Mix::default(), 2000, seed);
                let (there, _) = after(&mut plan, model);
                assert_eq!(plan.files().iter().collect::<BTreeMap<_, _>>(), there);
            }
        }
    }

    #[test]
    fn the_mixture_has_the_requested_frequencies() {
        let plan = Plan::new(Files::all(1000), Mix { create: 20, ..Mix::default() }, 10_000, 7);
        let reads = plan.clone().filter(|step| matches!(step, Step::Read { .. })).count();
        let lists = plan.clone().filter(|step| matches!(step, Step::List)).count();
        assert!((3700..4300).contains(&reads) && (60..150).contains(&lists), "{reads} {lists}");
        assert_eq!(plan.clone().collect::<Vec<_>>(), plan.collect::<Vec<_>>());
    }

    #[test]
    fn sizes_cover_the_whole_range() {
        let sizes = Sizes { least: 100, most: 10_000_000 };
        let mut all: Vec<u32> = (0..10_000).map(|file| sizes.of(file, 0, 3)).collect();
        all.sort_unstable();
        assert!(all[0] >= 100 && all[0] < 110 && all[9999] <= 10_000_000 && all[9999] > 9_000_000);
        // Half of them are below the geometric mean, 31,623.
        assert!((25_000..40_000).contains(&all[5000]), "{}", all[5000]);
        assert_ne!(sizes.of(1, 0, 3), sizes.of(1, 1, 3));
        assert_eq!(Sizes { least: 0, most: 0 }.of(1, 1, 1), 0);
        assert_eq!(Sizes { least: 7, most: 7 }.of(1, 1, 1), 7);
    }
}
