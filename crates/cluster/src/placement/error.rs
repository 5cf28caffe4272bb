//! Why nothing was placed, and what would help.

use types::{ErrorCode, Spread, StoreClass, StoreId};

/// Why a list of stores is not a map.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MapError {
    /// The same store twice.
    #[error("store {0} is there twice; two nodes cannot serve the same store")]
    Twice(StoreId),
    /// More stores than placement is made for.
    #[error("{0} stores; {max} is the limit", max = super::STORES_MAX)]
    TooMany(usize),
}

/// Why nothing was placed. Nothing is placed against a policy's demands.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlacementError {
    /// There are no stores at all.
    #[error("there is no store in the cluster yet; start a disk server with one")]
    NoStores,
    /// There are stores, and none takes anything new.
    #[error(
        "none of the {stores} stores takes new objects ({out_of_reach} suspect or lost, {closed} draining or \
         read-only, {full} full); bring stores back, free space or add stores"
    )]
    NoneTakesNew {
        /// All stores of the cluster.
        stores: usize,
        /// Suspect or lost ones.
        out_of_reach: usize,
        /// Draining and read-only ones.
        closed: usize,
        /// Those with no free space above their reserve.
        full: usize,
    },
    /// Fewer places than copies.
    #[error(
        "replica({needed}) spread={spread} needs stores that take new objects on {needed} different {spread}s, and \
         there are {found}; ask for fewer replicas{smaller}, or add a store on another {spread}", smaller = smaller(*.spread)
    )]
    TooFewLocations {
        /// How far copies must be apart.
        spread: Spread,
        /// Copies.
        needed: usize,
        /// Different places that have stores that take new contents.
        found: usize,
    },
    /// Fewer places with stores of a class than the policy demands copies there.
    #[error(
        "class={class}:{needed} needs stores of class {class} that take new objects on {where_}, and there are \
         {found}; ask for fewer, or add a store of that class on another {spread}",
        where_ = different(*.needed, *.spread)
    )]
    TooFewOfClass {
        /// The class.
        class: StoreClass,
        /// How far copies must be apart.
        spread: Spread,
        /// Copies on stores of that class.
        needed: usize,
        /// Different places that have such stores.
        found: usize,
    },
    /// Each demand alone can be met, all together cannot.
    #[error(
        "no {replicas} stores on different {spread}s are of the classes that the policy demands; ask for a smaller \
         spread or fewer replicas by class, or add stores of these classes on other {spread}s"
    )]
    Together {
        /// How far copies must be apart.
        spread: Spread,
        /// Copies.
        replicas: usize,
    },
    /// The length that was announced has no room.
    #[error(
        "no group of stores that the policy allows has room for {bytes} bytes more on each; free space or add stores"
    )]
    NoRoom {
        /// Bytes on each store.
        bytes: u64,
    },
    /// Nobody is left or right to take a lost member's place.
    #[error(
        "no store can replace store {lost}: what takes new objects{class} is on a {spread} that has a replica \
         already; add a store{class} on another {spread}", class = of_class(.class.as_ref())
    )]
    NoReplacement {
        /// The lost member.
        lost: StoreId,
        /// How far copies must be apart.
        spread: Spread,
        /// The class that it must be of.
        class: Option<StoreClass>,
    },
}

impl PlacementError {
    /// What is told to whoever wanted to write: space is missing, or stores are.
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
