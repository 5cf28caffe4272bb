//! What the tests have in common.

use std::time::Duration;

use types::{ClusterId, Timestamp};
use weir_foundation::Settings;

pub const NOW: Timestamp = Timestamp(1_700_000_000_000_000_000);
pub const CLUSTER: ClusterId = ClusterId(77);

pub fn small() -> Settings {
    Settings {
        segment_bytes: 1 << 20,
        ballast: 1 << 20,
        overlay: 32 << 20,
        cache: 32 << 20,
        floor: Some(0),
        uploads_kept: Duration::from_secs(86_400),
        recent: None,
    }
}
