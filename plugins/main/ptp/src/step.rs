//! The steps that only this plugin has: they wait until the gateways' IPv6 addresses answer.

use std::fmt;
use std::net::IpAddr;

use cni_spec::{CniError, Code};
use interface::container::AddressWatch;
use interface::{Look, OwnStep, Side, Stage, failed};

/// The steps that only the ptp plugin has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    /// Subscribes to what the kernel announces of the gateways' addresses, before they are added.
    WatchGateways,
    /// The gateways' IPv6 addresses answer.
    AwaitGateways(Vec<IpAddr>),
}

/// The subscription of an ADD with IPv6.
#[derive(Debug, Default)]
pub struct State(Option<AddressWatch>);

impl OwnStep for Own {
    type State = State;

    fn name(&self) -> &'static str {
        match self {
            Self::WatchGateways => "watch gateways",
            Self::AwaitGateways(_) => "wait for gateways",
        }
    }

    async fn apply(&self, stage: &mut Stage<'_>, state: &mut State) -> Result<(), CniError> {
        match (self, state.0.take()) {
            (Self::WatchGateways, _) => state.0 = Some(AddressWatch::watch().map_err(failed)?),
            (Self::AwaitGateways(addresses), Some(announced)) => {
                announced.settle(stage.link(Side::Host)?, addresses).await.map_err(failed)?;
            }
            (Self::AwaitGateways(_), None) => {
                let link = &stage.names.host;
                let msg = format!("cannot wait for addresses of link {link}: no step before has begun to watch them");
                return Err(CniError::new(Code::INTERNAL, msg));
            }
        }
        Ok(())
    }

    fn is_compared(&self) -> bool {
        false
    }

    fn check(&self, _: &mut Look<'_>, _: &mut State) -> Result<(), CniError> {
        Ok(())
    }
}

impl fmt::Display for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WatchGateways => Ok(()),
            Self::AwaitGateways(addresses) => {
                addresses.iter().try_for_each(|address| writeln!(f, "wait until {address} answers"))
            }
        }
    }
}
