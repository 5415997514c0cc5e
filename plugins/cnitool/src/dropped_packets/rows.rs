//! The checks that no packet makes: each is a row with what it finds on an attachment, the reason in words, and what mends it.

use std::cell::OnceCell;
use std::fmt::Display;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::Family;
use netops::link::Link;
use netops::route::{self, Route};

use super::container_interface::{Inside, Looked};
use super::way_to_container::{Bridge, Carrier};
use super::{Level, Reason, Sight};
use crate::doctor::{Kind, Line, Object, Step, advice};
use crate::node_networks::{Attachment, Network};
use crate::shell_words::word;

pub(super) struct Row {
    pub(super) kind: Kind,
    pub(super) level: Level,
    /// Finds the objects that are wrong.
    pub(super) find: fn(&At<'_>) -> Vec<Evidence>,
    /// The reason: `{0}` stands for the first word of the evidence.
    pub(super) why: &'static str,
    /// The same for all attachments that share the fault; empty: `why` fits all.
    pub(super) what: &'static str,
    /// Commands, which take the words as a shell needs them.
    pub(super) commands: &'static str,
    pub(super) advice: &'static str,
}

/// The rows of a module: `KIND LEVEL FINDER: WHY`, with what fits all attachments and with the remedy where they have some.
macro_rules! rows {
    ($($kind:ident $level:ident $find:ident $(($arg:expr))?: $why:literal $(all $what:literal)? $(help $commands:literal)?
        $(advice $advice:literal)?;)*) => {
        pub(super) const ROWS: &[crate::dropped_packets::rows::Row] = &[$(crate::dropped_packets::rows::Row {
            kind: crate::doctor::Kind::$kind,
            level: crate::dropped_packets::Level::$level,
            find: |at| at.$find($($arg)?),
            why: $why,
            what: concat!($($what)?),
            commands: concat!($($commands)?),
            advice: concat!($($advice)?),
        }),*];
    };
}
pub(super) use rows;

/// All rows, in the order in which `explain` names the reasons.
pub(super) const ROWS: [&[Row]; 8] = [
    super::forwarded_ports::ROWS,
    super::host_links::ROWS,
    super::gateways::ROWS,
    super::mtu::ROWS,
    super::container_interface::ROWS,
    super::container_routes::ROWS,
    super::host_routes::ROWS,
    super::same_addresses::ROWS,
];

pub(super) struct Evidence {
    words: Vec<String>,
    steps: Vec<Step>,
    level: Option<Level>,
    object: Option<Object>,
}

pub(super) fn of<const N: usize>(words: [&dyn Display; N]) -> Evidence {
    Evidence { words: words.map(ToString::to_string).into(), steps: Vec::new(), level: None, object: None }
}

impl Evidence {
    pub(super) fn and(mut self, steps: impl IntoIterator<Item = impl Into<Step>>) -> Self {
        self.steps.extend(steps.into_iter().map(Into::into));
        self
    }

    pub(super) fn on_link(self, name: &str) -> Self {
        Self { object: Some(Object::Link(name.to_owned())), ..self }
    }

    pub(super) fn on_setting(self, key: &str) -> Self {
        Self { object: Some(Object::Setting(key.to_owned())), ..self }
    }

    /// Another level than the row's.
    pub(super) fn at(mut self, level: Level) -> Self {
        self.level = Some(level);
        self
    }
}

impl Row {
    pub(super) fn reasons(&self, at: &At<'_>) -> impl Iterator<Item = Reason> {
        (self.find)(at).into_iter().map(|Evidence { words, steps, level, object }| {
            let text = |text: &str| fill(text, &words, str::to_owned);
            let (why, what) = (text(self.why), if self.what.is_empty() { self.why } else { self.what });
            let reason = self.kind.finding(level.unwrap_or(self.level), None, text(what));
            let evidence: Vec<Line> = Some(why).filter(|why| *why != reason.what).map(Line::from).into_iter().collect();
            let commands = self.commands.split("; ").filter(|command| !command.is_empty());
            let own = commands.map(|command| Step::from(fill(command, &words, word)));
            let advised = (!self.advice.is_empty()).then(|| advice(text(self.advice)));
            Reason { object, evidence, ..reason.steps(own.chain(advised).chain(steps)) }
        })
    }
}

/// A text with words in the places of their numbers. A word may have braces itself.
fn fill(text: &str, words: &[String], shown: fn(&str) -> String) -> String {
    let mut parts = text.split('{');
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (number, rest) = part.split_once('}').unwrap_or(("", part));
        let word = number.parse::<usize>().ok().and_then(|number| words.get(number));
        filled.push_str(&word.map_or_else(String::new, |word| shown(word)));
        filled.push_str(rest);
    }
    filled
}

/// An attachment with what its checks share.
pub(super) struct At<'a> {
    pub(super) sight: &'a Sight<'a>,
    pub(super) network: &'a Network,
    pub(super) attachment: &'a Attachment,
    pub(super) carrier: Carrier,
    pub(super) looked: Looked,
    /// The node's routes to the addresses that it does not have itself.
    pub(super) routes: Vec<Routed>,
    /// The routes for what the container sends from them to other networks, where that is a question.
    pub(super) forwarded: OnceCell<Vec<Routed>>,
}

pub(super) type Routed = (IpAddr, netops::error::Result<Route>);

impl<'a> At<'a> {
    pub(super) fn new(sight: &'a Sight<'a>, network: &'a Network, attachment: &'a Attachment) -> Self {
        let carrier = Carrier::of(sight.host, network, attachment);
        let looked = Looked::of(network, attachment, &carrier);
        let is_others = |address: &&IpAddr| !address.is_loopback() && sight.host.owner(**address).is_none();
        let others = attachment.addresses.iter().filter(is_others).filter(|_| carrier.is_routed());
        let routes = sight.host.kernel.iter().flat_map(|kernel| {
            others.clone().map(|address| (*address, route::lookup(kernel, *address))).collect::<Vec<_>>()
        });
        Self { sight, network, attachment, routes: routes.collect(), forwarded: OnceCell::new(), carrier, looked }
    }

    pub(super) fn inside(&self) -> Option<&Inside> {
        match &self.looked {
            Looked::At(inside) => Some(inside),
            _ => None,
        }
    }

    pub(super) fn ends(&self) -> impl Iterator<Item = &'a Link> {
        let host = self.sight.host;
        self.attachment.links.iter().filter_map(|link| host.find(&link.name))
    }

    pub(super) fn bridge(&self) -> Option<(&Bridge, &'a Link)> {
        let bridge = self.carrier.bridge()?;
        Some((bridge, self.sight.host.find(&bridge.name)?))
    }

    /// The links that have, or have to have, the gateways of a network that the node routes.
    pub(super) fn routers(&self) -> Vec<&str> {
        match &self.carrier {
            Carrier::Routed(Some(bridge)) => self.bridge().map(|_| bridge.router.as_str()).into_iter().collect(),
            Carrier::Routed(None) => self.attachment.links.iter().map(|link| link.name.as_str()).collect(),
            _ => Vec::new(),
        }
    }

    /// The gateways of its addresses, with their prefix lengths. The veth of a pair without bridge has them alone.
    pub(super) fn gateways(&self) -> Vec<IpNetwork> {
        let is_alone = matches!(self.carrier, Carrier::Routed(None));
        let of = |ip: &libcni::cni_spec::Ip| {
            let gateway = ip.gateway.filter(|gateway| gateway.is_ipv4() == ip.address.is_ipv4())?;
            if is_alone { Some(gateway.into()) } else { IpNetwork::new(gateway, ip.address.prefix()).ok() }
        };
        self.attachment.result.ips.iter().filter_map(of).collect()
    }

    /// The families of its addresses, as far as the node routes them.
    pub(super) fn routed(&self) -> impl Iterator<Item = Family> {
        Family::BOTH.into_iter().filter(|family| self.carrier.is_routed() && self.has(*family))
    }

    pub(super) fn has(&self, family: Family) -> bool {
        self.attachment.addresses.iter().any(|address| Family::from(*address) == family)
    }

    /// Whether a setting of the node has a value.
    pub(super) fn is(&self, key: &[&str], value: &str) -> bool {
        self.sight.setting(key).as_deref() == Some(value)
    }

    /// The link by which what the node gets for the container, or of it, has to leave or come in.
    pub(super) fn entry(&self) -> Option<&str> {
        self.entries().first().copied()
    }

    pub(super) fn entries(&self) -> Vec<&str> {
        match &self.carrier {
            Carrier::Routed(Some(bridge)) => vec![&bridge.router, &bridge.name],
            Carrier::Routed(None) => {
                self.attachment.links.iter().map(|link| link.master.as_deref().unwrap_or(&link.name)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The gateways that ADD gave the container.
    pub(super) fn given(&self, family: Family) -> impl Iterator<Item = IpAddr> {
        given(self.attachment).filter(move |gateway| Family::from(*gateway) == family)
    }

    /// Whether ADD gave the container a default route of the family. Without its result, a routed network does.
    pub(super) fn has_way_out(&self, family: Family) -> bool {
        let result = &self.attachment.result;
        if result.ips.is_empty() {
            return self.carrier.is_routed();
        }
        let is_of = |address: IpAddr| Family::from(address) == family;
        let is_default = |route: &libcni::cni_spec::Route| route.dst.prefix() == 0 && is_of(route.dst.ip());
        result.routes.iter().any(is_default)
            || self.sets("isDefaultGateway") && result.ips.iter().any(|ip| ip.gateway.is_some_and(is_of))
    }

    /// Whether a plugin of its configuration has a key that is set.
    pub(super) fn sets(&self, key: &str) -> bool {
        self.attachment.conf.as_ref().is_some_and(|conf| super::way_to_container::sets(conf, key))
    }
}

/// The gateways that ADD gave a container.
pub(super) fn given(attachment: &Attachment) -> impl Iterator<Item = IpAddr> {
    let result = &attachment.result;
    let of_routes = result.routes.iter().filter(|route| route.dst.prefix() == 0).filter_map(|route| route.gw);
    of_routes.chain(result.ips.iter().filter_map(|ip| ip.gateway))
}

pub(super) fn name(key: &[&str]) -> String {
    format!("net.{}", key.iter().map(|part| part.replace('.', "/")).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_braces_are_taken_as_they_are_and_quoted_for_a_shell() {
        let words = ["{1}".to_owned(), "e$(x)".to_owned()];
        assert_eq!(fill("link {0} of {1}", &words, str::to_owned), "link {1} of e$(x)");
        assert_eq!(fill("ip link set {1} up", &words, word), "ip link set 'e$(x)' up");
    }
}
