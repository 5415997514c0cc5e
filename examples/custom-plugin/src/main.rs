//! `egress-mtu`: packets that leave by a default route have at most `mtu` bytes; neighbours keep the link's full MTU.

use interface::{check::differs, failed, sides::open_kernel};
use netops::route::{self, Route};
use skel::cni_spec::{AddResult, CniError, ConfObject, FromConf};
use skel::{AddRequest, CheckRequest, DelRequest, Entry, Plugin, Preview, Shown};

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

    async fn add(request: &AddRequest, keys: &Self) -> Result<AddResult, CniError> {
        let plan = Self::preview(request, keys)?;
        let net = open_kernel(&request.netns)?;
        let old = route::list_default(&net, request.attachment.ifname.as_str()).map_err(failed)?;
        let new: Vec<_> = old.iter().map(|it| Route { mtu_bytes: Some(keys.mtu), ..it.clone() }).collect();
        route::replace(&net, &old, &new).map_err(failed)?;
        Ok(plan.unwrap_or_default().result)
    }

    fn preview(request: &AddRequest, keys: &Self) -> Result<Option<Preview>, CniError> {
        let mut plan = Preview { result: request.conf.get_prev_result()?, ..Preview::default() };
        for route in plan.result.routes.iter_mut().filter(|route| route.is_default()) {
            route.mtu = keys.mtu;
            plan.steps.push(Shown::new(format!("ip route change {} mtu {}", route.dst, route.mtu)));
        }
        Ok(Some(plan))
    }

    async fn check(request: &CheckRequest, keys: &Self) -> Result<(), CniError> {
        let mtu = keys.mtu;
        let net = open_kernel(&request.netns)?;
        let routes = route::list_default(&net, request.attachment.ifname.as_str()).map_err(failed)?;
        let wrong = routes.iter().find(|route| route.mtu_bytes != Some(mtu));
        wrong.map_or(Ok(()), |route| Err(differs(format!("route {route}"), format!("its MTU is not {mtu}"))))
    }

    async fn del(_: &DelRequest, _: &()) -> Result<(), CniError> {
        Ok(()) // all that ADD changes are routes of an interface, and the plugin before this one removes that
    }
}

fn main() -> std::process::ExitCode {
    skel::main(const { &Entry::of::<EgressMtu>() }, env!("CARGO_PKG_VERSION"))
}
