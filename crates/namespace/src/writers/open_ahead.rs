//! What an open for writing reads, for engines over a network.

use kv::Prefetch;
use types::Placement;

use crate::ahead::{Ahead, key_ahead, prefix_ahead, writer_ahead};
use crate::{Context, OpenWrite, Resume, WriteMode, keys};

pub(crate) fn ahead(ctx: &Context, request: &OpenWrite) -> Vec<Prefetch> {
    let writer = keys::writer_key(&request.client, request.path.as_bytes());
    let mut path = Ahead::walk(&request.path).record().parent_changes(ctx).parent_usage(&ctx.actor);
    path = path.key(&keys::ended(writer));
    let is_update = request.how == WriteMode::Update;
    if is_update || request.restarted {
        path = path.object().more([prefix_ahead(&keys::writers_of(writer))]);
    } else if request.how == WriteMode::Replace {
        path = path.object();
    }
    if request.mkpath {
        path = path.way(ctx);
    }
    if let Some(Resume::Upload(upload)) = request.resume {
        path = path.key(&keys::upload(upload));
    }
    let units = request.stripe.iter().flat_map(|stripe| &stripe.units);
    let placements = std::iter::once(&request.placement).chain(units);
    let placed = placements.filter(|Placement { in_sync, .. }| !in_sync.is_empty());
    path = path.more(placed.map(|placement| key_ahead(&keys::group(placement.group))));
    let tokens = [request.unit_of, request.only].into_iter().flatten();
    path.more(tokens.flat_map(|token| writer_ahead(&token, None))).list()
}
