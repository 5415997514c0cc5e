//! New IPv6 addresses of the host's, without duplicate address detection: when they answer.

use std::net::IpAddr;
use std::time::Duration;

use netops::error::{Cause, Result};
use netops::link::Link;
use netops::watch::Watch;

/// How long the kernel may take to join the groups of new addresses.
const DEADLINE: Duration = Duration::from_secs(1);

/// A subscription to the kernel's announcements of new IPv6 addresses on the host, from before they are added.
#[derive(Debug)]
pub struct AddressWatch(Watch);

impl AddressWatch {
    pub fn watch() -> Result<Self> {
        Watch::host().map(Self)
    }

    /// Waits until these addresses answer. ADD does not fail when that takes longer: the addresses are set, and will answer.
    /// Errors: the announcements cannot be read.
    pub async fn settle(mut self, link: &Link, addresses: &[IpAddr]) -> Result<()> {
        match self.0.until_announced(link, addresses, DEADLINE).await {
            Err(error) if matches!(error.cause, Cause::Timeout(_)) => {
                tracing::warn!(%error, "going on");
                Ok(())
            }
            settled => settled,
        }
    }
}
