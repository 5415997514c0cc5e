//! The tap plugin: a persistent tap in the container, for a program such as a virtual machine's monitor.
//!
//! [`conf`] has the keys, [`step`] makes the tap; the driver in crate `interface` does the rest. [`redirect`] is the plugin's other form,
//! behind a plugin that made an interface.

use cni_spec::{AddResult, Attachment, CniError};
use interface::container::{Dad, Options};
use interface::plan::Uncompared;
use interface::plugin::OtherForm;
use interface::{AddOrCheck, InterfacePlugin, LinkKind, Step, Verb, conf as keys, status};
use netops::link::Mac;

pub mod conf;
pub mod redirect;
pub mod step;

pub use conf::Conf;
use step::CreateTap;

pub struct Tap;

type Plan = interface::Plan<CreateTap>;

impl InterfacePlugin for Tap {
    const NAME: &'static str = "tap";
    const LINK: LinkKind = LinkKind::ContainerOnly("tun");
    const CHAINED: Option<OtherForm> =
        Some(OtherForm { key: conf::REDIRECT, entry: chained::entry::<redirect::Redirect>() });
    type Conf = Conf;
    type Removal = ();
    type State = Option<Mac>;
    type Step = CreateTap;

    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<Option<Mac>, CniError> {
        match call.verb {
            Verb::Check => Ok(None),
            Verb::Add => {
                if let Some(bridge) = &conf.bridge {
                    step::find_bridge(&call.sides.container, bridge)?;
                }
                Ok(keys::requested_mac(call.raw, conf.requested_mac)?.or(conf.mac))
            }
        }
    }

    fn plan(call: &AddOrCheck<'_>, keys: &Conf, mac: &Option<Mac>, lease: Option<AddResult>) -> Result<Plan, CniError> {
        plan(keys, call.attachment, *mac, lease)
    }

    fn status(conf: &Conf, search_path: &str) -> Result<(), CniError> {
        match &conf.selinux_context {
            Some(_) => step::probe_selinux(search_path),
            None => status::try_out_tap(),
        }
    }
}

fn plan(conf: &Conf, attachment: &Attachment, mac: Option<Mac>, lease: Option<AddResult>) -> Result<Plan, CniError> {
    let has_addresses = lease.is_some();
    let has_ipv6 = lease.iter().flat_map(|lease| &lease.ips).any(|ip| ip.address.is_ipv6());
    // IPAM's dns never counts, as in the reference.
    let mut plan = Plan::new(attachment, lease, conf.dns.clone());
    plan.refuse_mtu(conf.mtu_bytes)?;
    let (ifname, alias) = (plan.names.container.clone(), plan.names.alias.clone());
    plan.push(Step::Own(CreateTap { ifname, alias, mac, conf: conf.clone() }));
    if !has_addresses {
        plan.push(Uncompared::ArpNotify);
    }
    // A tap has no carrier until a program opens it. Until then the kernel cannot look for duplicates of an IPv6 address, and
    // the container could not use it, not even to listen on it.
    let dad = if has_ipv6 { Dad::Never } else { Dad::Kernels };
    plan.push_container(Options { announces: true, dad, ..Options::default() })?;
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cni_spec::{SpecVersion, json};
    use expect_test::expect;

    #[test]
    fn an_ipv6_address_is_used_without_a_carrier() {
        let lease = br#"{"ips":[{"address":"fd07::5/64"}]}"#;
        let lease = AddResult::from_value(&json::parse(lease).unwrap(), SpecVersion::LATEST).unwrap();
        let attachment = Attachment::parse("net", "c1", "tap0").unwrap();
        let plan = plan(&Conf::default(), &attachment, None, Some(lease)).unwrap();
        expect![[r#"
            ip tuntap add tap0 mode tap
            ip link set tap0 alias cni:net/c1/tap0
            sysctl net/ipv6/conf/tap0/accept_dad=0
            sysctl net/ipv6/conf/lo/disable_ipv6=0
            sysctl net/ipv6/conf/tap0/disable_ipv6=0
            sysctl net/ipv6/conf/tap0/keep_addr_on_down=1
            sysctl net/ipv6/conf/tap0/ndisc_notify=1
            sysctl net/ipv4/conf/tap0/arp_notify=1
            ip link set tap0 up
            ip address add fd07::5/64 dev tap0
            wait until no address of tap0 is tentative
        "#]]
        .assert_eq(&plan.to_string());
    }
}
