//! `weir top`: the present activity of a node, read from its `/metrics`, or of all nodes of a cluster, from its manager.

mod cluster;

use monitor::{Node, ShowOptions, Source, Target};

use crate::Failure;
use crate::cli::TopArgs;
use crate::exit::Exit;

/// Shows the activity once, or until a signal stops it.
pub fn run(args: &TopArgs) -> Result<Exit, Failure> {
    let mut source: Box<dyn Source> = match &args.node {
        None => Box::new(cluster::Cluster::new(&args.data)),
        Some(node) => {
            let target = Target::parse(node);
            Box::new(Node::new(target.map_err(|error| Failure::new(Exit::Usage, error))?))
        }
    };
    monitor::show(&mut *source, &ShowOptions { once: args.once, json: args.json, interval: args.interval })
}
