//! Watches the space of a disk and keeps its ballast.

use std::sync::Arc;

use config::units::show_size;
use journal::Ballast;
use store::{Space, Store};

/// Takes the ballast again when there is room. Only the journal gives it back, for a delete that finds no other room. If the watch gave it
/// back, any other writer could take the space first.
pub(crate) struct SpaceWatch<'a> {
    space: Box<dyn Fn() -> Result<Space, String> + 'a>,
    ballast_file: &'a Ballast,
    ballast: u64,
    full: bool,
    held: bool,
}

impl<'a> SpaceWatch<'a> {
    /// Watches the disk of a store.
    pub(crate) fn of_store(store: Arc<Store>, ballast_file: &'a Ballast, ballast: u64) -> Self {
        Self::new(Box::new(move || store.space().map_err(|error| error.to_string())), ballast_file, ballast)
    }

    /// Watches a disk whose space `space` reports.
    pub(crate) fn new(
        space: Box<dyn Fn() -> Result<Space, String> + 'a>,
        ballast_file: &'a Ballast,
        ballast: u64,
    ) -> Self {
        Self { space, ballast_file, ballast, full: false, held: false }
    }

    pub(crate) fn look(&mut self) {
        let space = match (self.space)() {
            Ok(space) => space,
            Err(error) => return tracing::error!("cannot read the free space: {error}"),
        };
        if space.floor_reached && !self.full {
            tracing::warn!(
                "{} free of {}: new data is refused until more than {} are free; reading and deleting continue",
                show_size(space.free),
                show_size(space.total),
                show_size(space.floor)
            );
        }
        if !space.floor_reached && self.full {
            tracing::info!("{} free: new data is taken again", show_size(space.free));
        }
        self.full = space.floor_reached;
        match self.ballast_file.held() {
            Ok(0) if self.held => {
                self.held = false;
                tracing::warn!("the ballast of {} was given back to the full disk", show_size(self.ballast));
            }
            Ok(held) if held == self.ballast => self.held = true,
            Ok(_) if space.free > space.floor.saturating_add(self.ballast.saturating_mul(2)) => {
                match self.ballast_file.ensure(self.ballast) {
                    Ok(()) => self.held = true,
                    Err(error) => {
                        tracing::warn!("cannot hold {} back as ballast: {error}", show_size(self.ballast));
                    }
                }
            }
            Ok(_) => {}
            Err(error) => tracing::error!("cannot look at the ballast: {error}"),
        }
    }
}
