//! The tap: made by ADD, compared by CHECK.

use std::fmt;

use cni_spec::CniError;
use interface::check::{self, differs};
use interface::plan::Turn;
use interface::sides::Sides;
use interface::undo::Undo;
use interface::{Look, OwnStep, Stage, conf::invalid, failed};
use netops::Kernel;
use netops::link::tun::{self, Tun};
use netops::link::{self, Kind, Link, LinkName, Mac, Place};

use crate::conf::Conf;
use crate::selinux;

/// A tap to be made under its final name in the container.
#[derive(Debug, Clone)]
pub struct CreateTap {
    /// The tap's name.
    pub ifname: String,
    pub alias: String,
    /// The tap's Ethernet address, if one is asked for.
    pub mac: Option<Mac>,
    pub conf: Conf,
}

impl fmt::Display for CreateTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ifname, alias, mac, conf } = self;
        let flag = if conf.multi_queue { " multi_queue" } else { "" };
        let number = |name: &str, id: Option<u32>| id.map(|id| format!(" {name} {id}")).unwrap_or_default();
        writeln!(
            f,
            "ip tuntap add {ifname} mode tap{flag}{}{}",
            number("user", conf.owner),
            number("group", conf.group)
        )?;
        let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
        let bridge = conf.bridge.as_ref().map(|bridge| format!(" master {bridge}")).unwrap_or_default();
        writeln!(f, "ip link set {ifname} alias {alias}{mac}{}{bridge}", number("mtu", conf.mtu_bytes))
    }
}

impl OwnStep for CreateTap {
    type State = Option<Mac>;

    fn turn(&self) -> Turn {
        Turn::BeforeAddresses
    }

    fn name(&self) -> &'static str {
        "create tap"
    }

    async fn apply(&self, stage: &mut Stage<'_>, _: &mut Option<Mac>) -> Result<(), CniError> {
        let Self { ifname, alias, mac, conf } = self;
        let Sides { netns, container, .. } = stage.sides;
        let name = LinkName::parse(ifname).map_err(|error| invalid(error.to_string()))?;
        let master = conf.bridge.as_ref().map(|bridge| find_bridge(container, bridge)).transpose()?;
        let tap = tun::Tap {
            name: &name,
            multi_queue: conf.multi_queue,
            owner: conf.owner,
            group: conf.group,
            master: master.map(|master| master.index),
            mtu_bytes: conf.mtu_bytes,
            mac: *mac,
            alias: Some(alias),
        };
        let place = Place { netns, kernel: container };
        let link = match &conf.selinux_context {
            None => tun::create_tap(place, &tap).map_err(failed)?,
            Some(context) => selinux::create_tap(place, &tap, context, stage.search_path)?,
        };
        stage.txn.push(Undo::ContainerLink(link.clone()));
        stage.set_container(link);
        Ok(())
    }

    fn check(&self, look: &mut Look<'_>, _: &mut Option<Mac>) -> Result<(), CniError> {
        look.compare_kind("tun")?;
        let container = &look.sides.container;
        let conf = &self.conf;
        let link = look.container()?.clone();
        let object = format!("interface {} in {}", link.name, container.place());
        let Kind::Tun(Tun { is_tap, multi_queue, owner, group, .. }) = link.kind else { return Ok(()) };
        let differences = [
            (!is_tap, "it is a tun, not a tap".to_owned()),
            (multi_queue != conf.multi_queue, format!("multiQueue is {multi_queue}")),
            (owner != conf.owner, format!("its owner is {}", words(owner))),
            (group != conf.group, format!("its group is {}", words(group))),
            (
                conf.mtu_bytes.is_some_and(|mtu| !check::has_mtu(&link, mtu, look.entry.mtu)),
                format!("its MTU is {}", link.mtu_bytes),
            ),
        ];
        if let Some((_, how)) = differences.into_iter().find(|(differs, _)| *differs) {
            return Err(differs(object, how));
        }
        let Some(bridge) = &conf.bridge else { return Ok(()) };
        match link.master.map(|master| link::find_index(container, master)).transpose().map_err(failed)?.flatten() {
            Some(master) if master.name == *bridge || master.alt_names.contains(bridge) => Ok(()),
            Some(_) | None => Err(differs(object, format!("it is no port of bridge {bridge}"))),
        }
    }
}

fn words(id: Option<u32>) -> String {
    id.map_or_else(|| "not set".to_owned(), |id| id.to_string())
}

pub fn find_bridge(container: &Kernel, name: &str) -> Result<Link, CniError> {
    let refused = |why: String| CniError::invalid_key("bridge", format_args!("{name:?}"), &why);
    match link::find(container, name).map_err(failed)? {
        Some(link) if link.kind.is_bridge() => Ok(link),
        Some(link) => Err(refused(format!("it is a {} in {}, not a bridge", link.kind, container.place()))),
        None => Err(refused(format!("{} has no such link", container.place()))
            .detail("The bridge is one in the container, which an earlier plugin or the image makes.")),
    }
}
