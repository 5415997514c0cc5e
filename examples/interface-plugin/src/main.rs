//! `pair`: a container and the node, joined by a veth without a bridge. The node's end has the gateways' addresses, and
//! a route leads to each address of the container.

use interface::container::Options;
use interface::plan::{Compared, Uncompared, Veth};
use interface::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, NoStep, Plan, Side, conf};
use ipnetwork::IpNetwork;
use netops::addr::Address;
use netops::route::Route;
use skel::cni_spec::{AddResult, CniError, ConfObject, FromConf};

struct Pair;

#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Conf {
    mtu: u16, // bytes; 0 is the kernel's default
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        object.decode()
    }
}

impl InterfacePlugin for Pair {
    const NAME: &'static str = "pair";
    const LINK: LinkKind = LinkKind::Veth; // found by its mark: DEL and GC need no code here
    const IPAM: Ipam = Ipam::Required;
    type Conf = Conf;
    type Removal = ();
    type State = ();
    type Step = NoStep;

    fn observe(_: &AddOrCheck<'_>, _: &Conf) -> Result<(), CniError> {
        Ok(())
    }

    fn plan(call: &AddOrCheck<'_>, keys: &Conf, _: &(), lease: Option<AddResult>) -> Result<Plan<NoStep>, CniError> {
        let mut plan = Plan::new(call.attachment, lease, None);
        let ips = &plan.lease.ips;
        let gateways = ips.iter().filter_map(|ip| ip.gateway);
        let mut gateways: Vec<_> = gateways.map(|ip| Address::from(IpNetwork::from(ip))).collect();
        gateways.dedup();
        let routes = ips.iter().map(|ip| Route::new(IpNetwork::from(ip.address.ip()), None, None)).collect();
        plan.push(Compared::Veth(Veth { mtu_bytes: conf::mtu(keys.mtu), ..Veth::default() }));
        plan.push_refuse_advertisements();
        plan.push(Compared::Addresses(Side::Host, gateways));
        plan.push(Compared::Up(Side::Host));
        plan.push(Compared::Routes(Side::Host, routes));
        plan.push_container(Options { await_up: true, ..Options::default() })?;
        plan.push(Uncompared::AwaitUp(Side::Host));
        Ok(plan)
    }
}

fn main() -> std::process::ExitCode {
    skel::main(const { &interface::entry::<Pair>() }, env!("CARGO_PKG_VERSION"))
}
