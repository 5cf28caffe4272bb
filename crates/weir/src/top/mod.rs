//! `weir top`: what a node does just now, read from its `/metrics`, or all nodes of a cluster, as its manager knows them.

mod cluster;

use monitor::{Node, ShowOptions, Source, Target};

use crate::Failure;
use crate::cli::TopArgs;
use crate::exit::Exit;

/// Shows what is seen until it is told to stop, or once.
pub fn run(args: &TopArgs) -> Result<Exit, Failure> {
    let mut source: Box<dyn Source> = match (&args.node, &args.data) {
        (_, Some(data)) => Box::new(cluster::Cluster::new(data)),
        (node, None) => {
            let target = Target::parse(node.as_deref().unwrap_or_default());
            Box::new(Node::new(target.map_err(|error| Failure::new(Exit::Usage, error))?))
        }
    };
    monitor::show(&mut *source, &ShowOptions { once: args.once, json: args.json, interval: args.interval })
}
