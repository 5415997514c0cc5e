//! An address that a server offers and another station of the link has: found by ARP probes, and declined (RFC 2131, 4.4.1).

use std::net::Ipv4Addr;
use std::time::Duration;

use netops::arp::Arp;
use netops::error::Result as OpResult;
use netops::link::Mac;

use super::{LeaseTask, OpenLink, now, random};
use crate::client::Event;

/// How often an address is probed for, and how long a station has to answer.
const PROBES: u32 = 3;
const PROBE_WAIT: Duration = Duration::from_millis(300);

impl LeaseTask {
    /// The same event, or what it becomes because another station has the new address, which is declined then.
    pub(super) async fn probed(&mut self, event: Event) -> Event {
        let (Event::Bound(lease), Some(exchange)) = (&event, &self.exchange) else { return event };
        let has_it = !self.is_lost && self.last.as_ref().is_some_and(|(last, _)| last.address == lease.address);
        if has_it || !self.subject.extras.detect_conflict {
            return event;
        }
        let address = lease.address.ip();
        let holder = match other_holder(&exchange.open_link, address).await {
            Ok(None) => return event,
            Ok(Some(holder)) => holder,
            Err(error) => {
                self.trouble(error.to_string());
                return event;
            }
        };
        if let Some((to, bytes)) = self.client.decline(now(), random())
            && let Err(why) = self.send(to, &bytes)
        {
            self.trouble(why);
        }
        let why = format!("address {address} is declined, as {holder} has it");
        match self.last.is_some() && !self.is_lost {
            true => Event::Lost { why, is_refused: true },
            false => Event::Unusable { why },
        }
    }
}

/// The station of the link that has an address. RFC 5227 takes seven seconds, for links that do not carry frames at once;
/// this one has just carried the server's.
async fn other_holder(on: &OpenLink, address: Ipv4Addr) -> OpResult<Option<Mac>> {
    let arp = Arp::open(&on.netns, &on.link, address)?;
    for _ in 0..PROBES {
        arp.probe()?;
        if let Ok(holder) = tokio::time::timeout(PROBE_WAIT, arp.other_holder()).await {
            return holder.map(Some);
        }
    }
    Ok(None)
}
