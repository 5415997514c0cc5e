//! The dummy plugin: a link in the container that drops all that it is given, with addresses from IPAM.
//!
//! The plan is all there is to it; the driver in crate `interface` makes it so, compares, and removes.

use cni_spec::{AddResult, Attachment, CniError};
use interface::container::Options;
use interface::plan::{Compared, Create};
use interface::{AddOrCheck, InterfacePlugin, Ipam, LinkKind, NoStep, Plan, status};
use netops::link::Kind;

pub struct Dummy;

impl InterfacePlugin for Dummy {
    const NAME: &'static str = "dummy";
    const LINK: LinkKind = LinkKind::ContainerOnly("dummy");
    const IPAM: Ipam = Ipam::Required;
    type Conf = ();
    type Removal = ();
    type State = ();
    type Step = NoStep;

    fn observe(_: &AddOrCheck<'_>, _: &()) -> Result<(), CniError> {
        Ok(())
    }

    fn plan(call: &AddOrCheck<'_>, _: &(), _: &(), lease: Option<AddResult>) -> Result<Plan<NoStep>, CniError> {
        plan(call.attachment, lease)
    }

    fn status(_: &(), _: &str) -> Result<(), CniError> {
        status::probe_kind(Kind::Dummy)
    }
}

fn plan(attachment: &Attachment, lease: Option<AddResult>) -> Result<Plan<NoStep>, CniError> {
    let mut plan = Plan::new(attachment, lease, None);
    plan.push(Compared::Create(Box::new(Create::new(Kind::Dummy))));
    plan.push_container(Options::default())?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{SpecVersion, json};
    use expect_test::expect;

    #[test]
    fn a_link_with_addresses_and_routes() {
        let lease = br#"{"ips":[{"address":"10.1.0.5/24","gateway":"10.1.0.1"},{"address":"fd00::5/64"}],
            "routes":[{"dst":"10.9.0.0/16"}]}"#;
        let lease = AddResult::from_value(&json::parse(lease).unwrap(), SpecVersion::LATEST).unwrap();
        let plan = plan(&Attachment::parse("net", "c1", "eth0").unwrap(), Some(lease)).unwrap();
        expect![[r#"
            ip link add eth0 type dummy
            ip link set eth0 alias cni:net/c1/eth0
            sysctl net/ipv6/conf/lo/disable_ipv6=0
            sysctl net/ipv6/conf/eth0/disable_ipv6=0
            sysctl net/ipv6/conf/eth0/keep_addr_on_down=1
            ip address add 10.1.0.5/24 dev eth0
            ip link set eth0 up
            ip address add fd00::5/64 dev eth0
            ip route add 10.9.0.0/16 via 10.1.0.1 dev eth0
            wait until no address of eth0 is tentative
        "#]]
        .assert_eq(&plan.to_string());
    }
}
