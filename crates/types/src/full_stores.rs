//! Reports that a store has no room for a new file.
//!
//! The manager chooses stores by what they have last reported. A disk server that finds less room than a new file needs
//! redirects its client back to the manager, which might choose the same store again. The disk server therefore names
//! the store in its redirect. The client's software passes such keys on, and so tells the manager.

use crate::StoreId;
use crate::striping::numbers;

/// The key in a redirect to the manager, and in the following open. The value is a list of stores, separated by commas.
pub const FULL_STORES_KEY: &str = "weir.full";

/// The most stores in the list. No client follows more redirects.
const STORES_MAX: usize = 16;

/// The value for the redirect.
#[must_use]
pub fn show_full_stores(stores: &[StoreId]) -> String {
    let shown: Vec<String> = stores.iter().take(STORES_MAX).map(|store| format!("{:016x}", store.0)).collect();
    shown.join(",")
}

/// Parses the value of [`show_full_stores`]. Ignores invalid items, and all beyond the maximum.
#[must_use]
pub fn parse_full_stores(text: &str) -> Vec<StoreId> {
    let one = |text| numbers(text, [16]).map(|[store]| StoreId(store));
    text.split(',').take(STORES_MAX).filter_map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_stores_round_trip() {
        let stores = [StoreId(1), StoreId(u64::MAX)];
        assert_eq!(parse_full_stores(&show_full_stores(&stores)), stores);
        for wrong in ["", ",", "x", "1", "0.0"] {
            assert_eq!(parse_full_stores(wrong), [], "{wrong}");
        }
        let many: Vec<StoreId> = (0..100).map(StoreId).collect();
        assert_eq!(parse_full_stores(&show_full_stores(&many)).len(), STORES_MAX);
    }
}
