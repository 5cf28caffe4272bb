//! Why an object was not placed, and what would help.

use types::{ErrorCode, Spread, StoreClass, StoreId};

/// Why a list of stores is not a valid map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// The list names a store twice.
    #[error("store {0} is there twice; two nodes cannot serve the same store")]
    Twice(StoreId),
    /// More stores than placement supports.
    #[error("{0} stores; {max} is the limit", max = super::STORES_MAX)]
    TooMany(usize),
}

/// Why an object was not placed. Nothing is placed against a policy's demands.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// The cluster has no stores.
    #[error("there is no store in the cluster yet; start a disk server with one")]
    NoStores,
    /// There are stores, but none takes new objects.
    #[error(
        "none of the {stores} stores takes new objects ({out_of_reach} suspect or lost, {closed} draining or \
         read-only, {full} full); bring stores back, free space or add stores"
    )]
    NoneTakesNew {
        /// All stores of the cluster.
        stores: usize,
        /// Suspect and lost stores.
        out_of_reach: usize,
        /// Draining and read-only stores.
        closed: usize,
        /// Stores with no free space above their reserve.
        full: usize,
    },
    /// There are fewer failure domains than replicas.
    #[error(
        "replica({needed}) spread={spread} needs stores that take new objects on {needed} different {spread}s, and \
         there are {found}; ask for fewer replicas{smaller}, or add a store on another {spread}", smaller = smaller(*.spread)
    )]
    TooFewLocations {
        /// The failure domain.
        spread: Spread,
        /// The number of replicas.
        needed: usize,
        /// The number of domains with stores that take new objects.
        found: usize,
    },
    /// The policy demands replicas on stores of a class, and there are fewer failure domains with such stores.
    #[error(
        "class={class}:{needed} needs stores of class {class} that take new objects on {where_}, and there are \
         {found}; ask for fewer, or add a store of that class on another {spread}",
        where_ = different(*.needed, *.spread)
    )]
    TooFewOfClass {
        /// The class.
        class: StoreClass,
        /// The failure domain.
        spread: Spread,
        /// The number of replicas on stores of that class.
        needed: usize,
        /// The number of domains with such stores.
        found: usize,
    },
    /// Each demand alone can be met, but not all together.
    #[error(
        "no {replicas} stores on different {spread}s are of the classes that the policy demands; ask for a smaller \
         spread or fewer replicas by class, or add stores of these classes on other {spread}s"
    )]
    Together {
        /// The failure domain.
        spread: Spread,
        /// The number of replicas.
        replicas: usize,
    },
    /// There is no room for the announced length.
    #[error(
        "no group of stores that the policy allows has room for {bytes} bytes more on each; free space or add stores"
    )]
    NoRoom {
        /// Bytes on each store.
        bytes: u64,
    },
    /// No store that the policy allows is left to replace a lost member.
    #[error(
        "no store can replace store {lost}: what takes new objects{class} is on a {spread} that has a replica \
         already; add a store{class} on another {spread}", class = of_class(.class.as_ref())
    )]
    NoReplacement {
        /// The lost member.
        lost: StoreId,
        /// The failure domain.
        spread: Spread,
        /// The class that the replacement must have.
        class: Option<StoreClass>,
    },
}

impl PlacementError {
    /// Returns the code for the client: space is missing, or stores are.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            PlacementError::NoRoom { .. } => ErrorCode::NoSpace,
            PlacementError::NoneTakesNew { out_of_reach: 0, full, .. } if *full > 0 => ErrorCode::NoSpace,
            _ => ErrorCode::Unavailable,
        }
    }
}

fn different(needed: usize, spread: Spread) -> String {
    if needed == 1 { format!("one {spread}") } else { format!("{needed} different {spread}s") }
}

fn smaller(spread: Spread) -> &'static str {
    match spread {
        Spread::Site => " or a smaller spread (rack, host)",
        Spread::Rack => " or a smaller spread (host)",
        Spread::Host => "",
    }
}

fn of_class(class: Option<&StoreClass>) -> String {
    class.map(|class| format!(" of class {class}")).unwrap_or_default()
}
