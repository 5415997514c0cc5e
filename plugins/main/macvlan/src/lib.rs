//! The macvlan plugin: a link in the container with an Ethernet address of its own on an interface of the node.
//!
//! The link is made in the container at once, from the node's namespace, under its final name; the driver in crate
//! `interface` does the rest.

use cni_spec::{AddResult, CniError, ConfObject, Dns, FromConf};
use interface::conf::{self, ArgsKey, DnsKey, MacKey, Macs};
use interface::container::Options;
use interface::plan::{Compared, Create};
use interface::stacked::{self, MasterFrom, Wanted};
use interface::{AddOrCheck, InterfacePlugin, LinkKind, NoStep, Plan, Verb, failed};
use netops::Kernel;
use netops::link::macvlan::{Macvlan as Settings, Mode};
use netops::link::{self, Kind, Link, Mac, Target};
use serde::Deserialize;

pub struct Macvlan;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    /// The interface that the link is on.
    pub master: Wanted,
    pub settings: Settings,
    /// MTU in bytes; `None` is the master's.
    pub mtu_bytes: Option<u32>,
    /// The Ethernet addresses that the config asks for.
    pub macs: Macs,
    /// Key `dns`, in place of IPAM's.
    pub dns: Option<Dns>,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wire {
    master: String,
    master_from: Option<MasterFrom>,
    mode: String,
    mtu: u16,
    mac: String,
    link_in_container: bool,
    bcqueuelen: u32,
    dns: DnsKey,
    args: ArgsKey,
    runtime_config: MacKey,
}

const MODES: [(&str, Mode); 4] =
    [("bridge", Mode::Bridge), ("private", Mode::Private), ("vepa", Mode::Vepa), ("passthru", Mode::Passthru)];

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        let bc_queue_len = (wire.bcqueuelen != 0).then_some(wire.bcqueuelen);
        let mode = stacked::keyword("mode", &wire.mode, &MODES)?;
        Ok(Self {
            master: Wanted::parse(&wire.master, wire.master_from, wire.link_in_container)?,
            settings: Settings { mode, bc_queue_len, ..Settings::default() },
            mtu_bytes: conf::mtu(wire.mtu),
            macs: Macs::parse(&wire.mac, &wire.args, &wire.runtime_config)?,
            dns: wire.dns.into_dns(),
        })
    }
}

/// What the node has and the call asks for.
#[derive(Debug, Clone, Default)]
pub struct State {
    master: Option<Link>,
    mac: Option<Mac>,
}

impl InterfacePlugin for Macvlan {
    const NAME: &'static str = "macvlan";
    const LINK: LinkKind = LinkKind::ContainerOnly("macvlan");
    type Conf = Conf;
    type Removal = ();
    type State = State;
    type Step = NoStep<State>;

    fn observe(call: &AddOrCheck<'_>, conf: &Conf) -> Result<State, CniError> {
        let master = conf.master.find(call)?;
        if call.verb == Verb::Check {
            return Ok(State { master, mac: None });
        }
        if let Some(master) = &master {
            stacked::refuse_mtu_above(&master.name, master.mtu_bytes, conf.mtu_bytes)?;
        }
        let mac = conf.macs.requested(call.raw)?;
        if let (Some(mac), Mode::Passthru) = (mac, conf.settings.mode) {
            tracing::warn!(%mac, "not used: in mode passthru the interface has its master's address");
        }
        Ok(State { master, mac: mac.filter(|_| conf.settings.mode != Mode::Passthru) })
    }

    fn plan(
        call: &AddOrCheck<'_>,
        keys: &Conf,
        state: &State,
        lease: Option<AddResult>,
    ) -> Result<Plan<Self::Step>, CniError> {
        let mut plan = Plan::new(call.attachment, lease, keys.dns.clone());
        let lower = state.master.clone().map(|master| (keys.master.side, master));
        let (kind, mtu_bytes, mac) = (Kind::Macvlan(keys.settings), keys.mtu_bytes, state.mac);
        plan.push(Compared::Create(Box::new(Create { kind, lower, mtu_bytes, mac })));
        plan.refuse_mtu(keys.mtu_bytes)?;
        plan.push_container(Options { announces: true, ..Options::default() })?;
        Ok(plan)
    }

    fn status(conf: &Conf, _: &str) -> Result<(), CniError> {
        let Some(master) = conf.master.status(&Kind::Macvlan(conf.settings))? else { return Ok(()) };
        stacked::refuse_mtu_above(&master.name, master.mtu_bytes, conf.mtu_bytes)?;
        // A macvlan in mode passthru has its master promiscuous.
        if !master.promisc && conf.settings.mode != Mode::Passthru {
            return Ok(());
        }
        let host = Kernel::host().map_err(failed)?;
        let master = link::get(&host, &Target::named(master.name)).map_err(failed)?;
        stacked::refuse_occupied(&master, conf.settings)
    }
}
