//! `egress-mtu`: packets that leave by a default route have at most `mtu` bytes; neighbours keep the link's full MTU.

use interface::{check::differs, failed, pod::open_kernel};
use netops::route::{self, Route};
use skel::cni_spec::{AddResult, CniError, ConfObject, FromConf};
use skel::{AddRequest, CheckRequest, DelRequest, Plugin};

#[derive(serde::Deserialize)]
struct EgressMtu {
    mtu: u32, // IPv6 asks at least 1280 of every link
}

impl FromConf for EgressMtu {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        match object.decode()? {
            conf @ Self { mtu: 1280..=65535 } => Ok(conf),
            Self { mtu } => Err(CniError::invalid_key("mtu", mtu, "expected a whole number from 1280 to 65535")),
        }
    }
}

impl Plugin for EgressMtu {
    const NAME: &'static str = "egress-mtu";
    type Conf = Self;
    type Removal = ();

    async fn add(request: &AddRequest<Self>) -> Result<AddResult, CniError> {
        let mtu = request.conf.own.mtu;
        let mut result = request.conf.get_prev_result()?;
        let net = open_kernel(&request.netns)?;
        let old = route::list_default(&net, request.attachment.ifname.as_str()).map_err(failed)?;
        let new: Vec<Route> = old.iter().map(|old| Route { mtu_bytes: Some(mtu), ..old.clone() }).collect();
        route::replace(&net, &old, &new).map_err(failed)?;
        result.routes.iter_mut().filter(|route| route.is_default()).for_each(|route| route.mtu = mtu);
        Ok(result)
    }

    async fn check(request: &CheckRequest<Self>) -> Result<(), CniError> {
        let mtu = request.conf.own.mtu;
        let net = open_kernel(&request.netns)?;
        let routes = route::list_default(&net, request.attachment.ifname.as_str()).map_err(failed)?;
        let wrong = routes.iter().find(|route| route.mtu_bytes != Some(mtu));
        wrong.map_or(Ok(()), |route| Err(differs(format!("route {route}"), format!("its MTU is not {mtu}"))))
    }

    // The routes end with the interface, which the plugin before this one removes. Nothing else is kept: GC and
    // STATUS have their default bodies.
    async fn del(_: &DelRequest<()>) -> Result<(), CniError> {
        Ok(())
    }
}

fn main() -> std::process::ExitCode {
    skel::main::<EgressMtu>(env!("CARGO_PKG_VERSION"))
}
