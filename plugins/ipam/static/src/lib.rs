//! The static address plugin: the addresses, routes and name servers that the config or the runtime gives.
//!
//! The plugin keeps nothing on the node: DEL, GC and STATUS have nothing to do.

mod conf;

use cni_spec::{AddResult, CniError, Code, Ip, Route};
use skel::{AddRequest, CheckRequest, DelRequest, EventLoop, GcRequest, Plugin, StatusRequest};

pub use conf::{Conf, StaticAddress};

#[derive(Debug)]
pub struct Static;

impl Plugin for Static {
    const NAME: &'static str = "static";
    const DELEGATES: bool = false;
    const EVENT_LOOP: EventLoop = EventLoop::WhenWaiting;
    type Conf = Conf;
    type Removal = ();

    async fn add(request: &AddRequest, keys: &Conf) -> Result<AddResult, CniError> {
        preview(request, keys)
    }

    async fn del(_: &DelRequest, _: &()) -> Result<(), CniError> {
        Ok(())
    }

    /// Compares addresses, gateways and routes with prevResult. A gateway or a next hop that the config leaves to the
    /// interface plugin may be anything there.
    async fn check(request: &CheckRequest, keys: &Conf) -> Result<(), CniError> {
        let conf = keys;
        let addresses = conf.addresses(&request.raw.parse_args()?)?;
        let prev = request.conf.get_prev_result()?;
        for wanted in addresses {
            let mut same = prev.ips.iter().filter(|ip| ip.address == wanted.address).peekable();
            if same.peek().is_none() {
                return Err(differs(format!("address {} is not found", wanted.address)));
            }
            // The reference does not set the gateway of `CNI_ARGS` for configured addresses, and may have made this one.
            let is_optional = conf.leaves_gateway_of(&wanted.address);
            let is_as_wanted = |ip: &Ip| ip.gateway == wanted.gateway || is_optional && ip.gateway.is_none();
            if wanted.gateway.is_some() && !same.any(is_as_wanted) {
                let gateway = wanted.gateway.map(|gateway| gateway.to_string()).unwrap_or_default();
                return Err(differs(format!("address {} does not have gateway {gateway}", wanted.address)));
            }
        }
        match conf.routes.iter().find(|wanted| !prev.routes.iter().any(|route| is_same(wanted, route))) {
            None => Ok(()),
            Some(missing) => Err(differs(format!("a route to {} as configured is not found", missing.dst))),
        }
    }

    async fn gc(_: &GcRequest, _: &()) -> Result<(), CniError> {
        Ok(())
    }

    async fn status(_: &StatusRequest, _: &Conf) -> Result<(), CniError> {
        Ok(())
    }
}

/// What ADD gives, which depends on nothing but the request.
pub fn preview(request: &AddRequest, keys: &Conf) -> Result<AddResult, CniError> {
    let conf = keys;
    let ips = conf.addresses(&request.raw.parse_args()?)?.into_iter().map(StaticAddress::into_ip).collect();
    Ok(AddResult::of_addresses(ips, conf.routes.clone(), conf.dns.clone()))
}

fn is_same(wanted: &Route, found: &Route) -> bool {
    let mut wanted = wanted.clone();
    wanted.gw = wanted.gw.or(found.gw);
    wanted == *found
}

fn differs(how: String) -> CniError {
    CniError::new(Code::CHECK_FAILED, format!("prevResult is not as the static addresses are configured: {how}"))
}
