//! The features of the systems that study A compared, and of those that weir is compared with. Unknown features are
//! not guessed.

/// The features that study A lists.
pub const FEATURES: [&str; 10] = [
    "POSIX",
    "open source",
    "metadata server",
    "RDMA",
    "striping",
    "failover, metadata",
    "failover, data",
    "quota",
    "snapshots",
    "data movers",
];

const UNKNOWN: &str = "not known";

/// The features of a system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Features {
    /// The system.
    pub system: &'static str,
    /// The values, in the order of [`FEATURES`].
    pub values: [&'static str; 10],
}

/// The note on sources; `docs/how-to/bench.md` has the addresses.
pub const SOURCES: &str = "The sources are listed in docs/how-to/bench.md.";

const KNOWN: [Features; 11] = [
    Features {
        system: "Lustre",
        values: ["yes", "yes", "needed", "yes", "yes", "yes", "yes", "yes", "on ZFS", "yes (HSM)"],
    },
    Features {
        system: "BeeGFS",
        values: [
            "yes",
            "client; servers' source is open to read",
            "needed",
            "yes",
            "yes",
            "mirroring",
            "mirroring",
            "yes",
            UNKNOWN,
            "since 8",
        ],
    },
    Features {
        system: "GlusterFS",
        values: [
            "FUSE",
            "yes",
            "none",
            "until 7",
            "shards",
            "no metadata server",
            "replicas",
            "yes",
            "yes (LVM)",
            UNKNOWN,
        ],
    },
    Features {
        system: "GPFS",
        values: ["yes", "no", "none", "yes", "yes", "yes", "yes", "yes", "yes", "yes (policies)"],
    },
    Features {
        system: "MooseFS",
        values: [
            "FUSE",
            "yes",
            "needed",
            UNKNOWN,
            "chunks of 64 MiB",
            "not in 3, community",
            "copies",
            "yes",
            "yes",
            "storage classes",
        ],
    },
    Features {
        system: "XtreemFS",
        values: ["FUSE", "yes", "needed", UNKNOWN, "yes", "replicas", "replicas", UNKNOWN, "yes", UNKNOWN],
    },
    Features {
        system: "XRootD",
        values: [
            "no (FUSE exists)",
            "yes",
            "none; redirectors",
            UNKNOWN,
            "no",
            "redirectors",
            "by what holds the data",
            UNKNOWN,
            "no",
            "third-party copy",
        ],
    },
    Features {
        system: "EOS",
        values: ["FUSE beside", "yes", "needed", UNKNOWN, "yes (RAIN)", "yes", "replicas, RAIN", "yes", UNKNOWN, "yes"],
    },
    Features {
        system: "NFS",
        values: [
            "yes, but for its caches",
            "yes",
            "none",
            "by its transport",
            "pNFS only",
            "by the server",
            "by the server",
            "by the server",
            "by the server",
            "no",
        ],
    },
    Features {
        system: "weir-cluster",
        values: [
            "no",
            "yes",
            "needed (one manager)",
            "no",
            "yes",
            "no; a restarted one goes on",
            "replicas",
            "no",
            "no",
            "third-party copy",
        ],
    },
    Features {
        system: "weir",
        values: [
            "no",
            "yes",
            "none besides the node",
            "no",
            "in a cluster",
            "no",
            "in a cluster",
            "no",
            "no; incremental backup",
            "third-party copy",
        ],
    },
];

/// Returns the features of a system by the name of a target: `xrootd-http` is XRootD.
#[must_use]
pub fn features_of(target: &str) -> Option<&'static Features> {
    let lower = target.to_ascii_lowercase();
    KNOWN.iter().find(|known| {
        let rest = lower.strip_prefix(&known.system.to_ascii_lowercase());
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphabetic()))
    })
}

/// Returns a table of all targets' features.
#[must_use]
pub fn features_text(targets: &[String]) -> String {
    let of = |target: &String| features_of(target).map_or([UNKNOWN; 10], |known| known.values);
    let columns: Vec<[&str; 10]> = targets.iter().map(of).collect();
    let mut lines = vec![[vec![String::new()], targets.to_vec()].concat()];
    for (number, feature) in FEATURES.iter().enumerate() {
        let values = columns.iter().map(|values| values.get(number).copied().unwrap_or(UNKNOWN).to_owned());
        lines.push([vec![(*feature).to_owned()], values.collect()].concat());
    }
    format!("{}{SOURCES}\n", super::table::aligned(&lines))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_known_by_the_names_of_their_targets() {
        assert_eq!(features_of("xrootd-http").unwrap().system, "XRootD");
        assert_eq!(features_of("EOS 2").unwrap().system, "EOS");
        assert!(features_of("eosphere").is_none() && features_of("disk").is_none());
        assert_eq!(features_of("weir").unwrap().system, "weir");
        assert_eq!(features_of("weir-http").unwrap().system, "weir");
        // A cluster can do more than a single node.
        let of_cluster = features_of("weir-cluster-replica2").unwrap();
        for (feature, value) in [("striping", "yes"), ("failover, data", "replicas")] {
            let at = FEATURES.iter().position(|known| *known == feature).unwrap();
            assert_eq!(of_cluster.values[at], value);
        }
        let text = features_text(&["glusterfs".to_owned(), "disk".to_owned()]);
        assert!(text.contains("shards") && text.contains("not known") && text.lines().count() == 12, "{text}");
    }
}
