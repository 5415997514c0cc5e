//! The clock that leases end by.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

/// The longest time until the clock is looked at again: tokio's stands still while the machine sleeps.
const LONGEST_NAP: Duration = Duration::from_secs(60 * 60);

/// Time since the boot, suspension included: leases end whether or not the machine sleeps.
pub(crate) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

/// Waits for the time since the boot, or less long.
pub(super) async fn sleep_until(until: Duration) {
    tokio::time::sleep_until(Instant::now() + until.saturating_sub(now()).min(LONGEST_NAP)).await;
}
