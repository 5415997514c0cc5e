//! A network's file, parsed once for all checks: what a runtime reads, and what the object of each plugin says.

use std::cell::OnceCell;
use std::fs;
use std::net::IpAddr;

use cni_spec::json::{self, parse_ip};
use cni_spec::{ConfObject, PluginType};
use host_local::range::{Range, RawRange};
use ipnetwork::IpNetwork;
use libcni::NetworkConf;
use on_node::plugin_of;
use serde_json::{Map, Value};

#[derive(Debug, Clone)]
pub struct Network {
    /// The file's place in [`Report::sources`](crate::validate::Report::sources).
    pub file: usize,
    pub conf: NetworkConf,
    pub(crate) plugins: Vec<Plugin>,
    called: OnceCell<Vec<Plugin>>,
}

impl Network {
    /// Decodes the plugins' objects. `is_single`: the whole file is the object of one plugin.
    pub(crate) fn decode(file: usize, conf: NetworkConf, is_single: bool) -> Self {
        let path = |index| if is_single { String::new() } else { format!("plugins[{index}]") };
        let object = |index| conf.plugin_conf(index).and_then(|bytes| json::parse(&bytes).ok()).unwrap_or_default();
        let plugins = (0..conf.plugins.len()).map(|index| Plugin::decode(path(index), object(index))).collect();
        Self { file, conf, plugins, called: OnceCell::new() }
    }

    /// The plugins, in place of flannel's and Multus' those that these call.
    pub(crate) fn called(&self) -> &[Plugin] {
        self.called.get_or_init(|| self.plugins.iter().flat_map(by).collect())
    }
}

impl From<NetworkConf> for Network {
    /// A list that is in no report.
    fn from(conf: NetworkConf) -> Self {
        Self::decode(0, conf, false)
    }
}

/// A plugin's object, and what checks ask of it.
#[derive(Debug, Clone)]
pub(crate) struct Plugin {
    /// The object's path in its file, `plugins[0]`; empty if it is the whole file.
    pub(crate) base: String,
    /// The plugin's input, without what a runtime adds for an attachment.
    pub(crate) object: Value,
    /// The plugin of key `type`, as [`plugin_of`] has it; may be empty.
    pub(crate) plugin_type: String,
    /// The plugin of key `ipam.type`; may be empty.
    pub(crate) ipam: String,
    /// The bridge that a plugin `bridge` uses.
    pub(crate) bridge: Option<String>,
    pub(crate) is_gateway: bool,
    /// The link that gets the gateways; `None`: each container's veth.
    pub(crate) link: Option<String>,
    /// Key `mtu`; `None` if it is 0.
    pub(crate) mtu_bytes: Option<u64>,
    /// What host-local would give: the objects below `ipam` that have a subnet.
    pub(crate) ranges: Vec<Pool>,
    /// What static would give.
    pub(crate) addresses: Vec<Pool>,
    /// The elements of `ipam.routes`.
    pub(crate) routes: Vec<Route>,
}

impl Plugin {
    pub(crate) fn decode(base: String, object: Value) -> Self {
        let plugin_type = plugin_of(text(&object, "type")).to_owned();
        let ipam = json::member(&object, "ipam").unwrap_or(&Value::Null);
        let name = Some(text(&object, "bridge")).filter(|name| !name.is_empty()).unwrap_or("cni0");
        let bridge = (plugin_type == "bridge").then(|| name.to_owned());
        let number = |key| json::member(&object, key).and_then(Value::as_u64).filter(|number| *number > 0);
        let is_set = |key| is_set(&object, key);
        let link = bridge.clone().map(|name| match number("vlan") {
            Some(vlan) => format!("{name}.{vlan}"),
            None => name,
        });
        Self {
            base,
            ipam: plugin_of(text(ipam, "type")).to_owned(),
            bridge,
            is_gateway: is_set("isGateway") || is_set("isDefaultGateway"),
            link,
            mtu_bytes: number("mtu"),
            ranges: ranges(ipam),
            addresses: list(ipam, "addresses").iter().enumerate().filter_map(Pool::of_static).collect(),
            routes: list(ipam, "routes").iter().map(Route::decode).collect(),
            plugin_type,
            object,
        }
    }

    /// The object for a parser of keys, which notes what it reads. `None`: the network's name cannot be used.
    pub(crate) fn conf_object(&self) -> Option<ConfObject> {
        ConfObject::of_value(self.object.clone()).ok()
    }

    pub(crate) fn is_set(&self, key: &str) -> bool {
        is_set(&self.object, key)
    }

    /// The address plugin, if a file can have the name.
    pub(crate) fn ipam_type(&self) -> Option<PluginType> {
        PluginType::parse(text(json::member(&self.object, "ipam")?, "type")).ok()
    }

    /// What the address plugin gives, if that is host-local or static.
    pub(crate) fn pools(&self) -> Option<&[Pool]> {
        match &*self.ipam {
            "host-local" => Some(&self.ranges),
            "static" => Some(&self.addresses),
            _ => None,
        }
    }

    /// Whether the plugin routes packets of its containers through the node.
    pub(crate) fn is_router(&self) -> bool {
        self.plugin_type == "ptp" || self.bridge.is_some() && self.is_gateway
    }

    /// The gateways of ranges, and those of static addresses, of which one that names none has the first of its subnet. Each
    /// with its subnet's prefix length.
    pub(crate) fn gateways(&self) -> Vec<IpNetwork> {
        let of_ranges = self.ranges.iter().map(|range| (range, range.taken));
        let of_addresses = self.addresses.iter().map(|address| (address, address.gateway.or(address.first())));
        let of = |(pool, gateway): (&Pool, Option<IpAddr>)| IpNetwork::new(gateway?, pool.net.prefix()).ok();
        of_ranges.chain(of_addresses).filter_map(of).collect()
    }
}

/// Addresses that containers get: a range of host-local's, or an address of static's.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    /// The object's path in the plugin's: `ipam`, `ipam.ranges[0][0]`, `ipam.addresses[0]`.
    pub(crate) path: String,
    pub(crate) net: IpNetwork,
    pub(crate) start: Option<IpAddr>,
    pub(crate) end: Option<IpAddr>,
    pub(crate) gateway: Option<IpAddr>,
    /// The gateway that host-local takes; `None`: it refuses the range, or the address is static's.
    pub(crate) taken: Option<IpAddr>,
}

impl Pool {
    fn decode(path: String, object: &Value, key: &str) -> Option<Self> {
        let net = text(object, key).parse().ok()?;
        let address = |key| parse_ip(text(object, key)).ok();
        let (start, end, gateway) = (address("rangeStart"), address("rangeEnd"), address("gateway"));
        Some(Self { path, net, start, end, gateway, taken: None })
    }

    fn of_host_local(path: String, range: &Value) -> Option<Self> {
        let pool = Self::decode(path, range, "subnet")?;
        let Self { net, start, end, gateway, .. } = pool;
        let taken = Range::new(&RawRange { subnet: Some(net), start, end, gateway }).ok();
        Some(Self { net: pool.subnet(), taken: taken.map(|range| range.gateway.ip()), ..pool })
    }

    fn of_static((index, entry): (usize, &Value)) -> Option<Self> {
        // static refuses an address without prefix length.
        text(entry, "address").contains('/').then_some(())?;
        Self::decode(format!("ipam.addresses[{index}]"), entry, "address")
    }

    /// The address after the subnet's own.
    fn first(&self) -> Option<IpAddr> {
        match self.net {
            IpNetwork::V4(net) => u32::from(net.network()).checked_add(1).map(|ip| ip.to_be_bytes().into()),
            IpNetwork::V6(net) => u128::from(net.network()).checked_add(1).map(|ip| ip.to_be_bytes().into()),
        }
    }

    /// The subnet, without the address in it.
    pub(crate) fn subnet(&self) -> IpNetwork {
        IpNetwork::new(self.net.network(), self.net.prefix()).unwrap_or(self.net)
    }
}

/// A route, as far as it can be read.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) dst: Option<IpNetwork>,
    pub(crate) gw: Option<IpAddr>,
    pub(crate) scope: Option<u64>,
}

impl Route {
    fn decode(route: &Value) -> Self {
        let scope = json::member(route, "scope").and_then(Value::as_u64);
        Self { dst: text(route, "dst").parse().ok(), gw: parse_ip(text(route, "gw")).ok(), scope }
    }
}

fn ranges(ipam: &Value) -> Vec<Pool> {
    let of_set = |(outer, set): (usize, &Value)| -> Vec<Pool> {
        let set = set.as_array().map(Vec::as_slice).unwrap_or_default().iter().enumerate();
        set.filter_map(|(inner, range)| Pool::of_host_local(format!("ipam.ranges[{outer}][{inner}]"), range)).collect()
    };
    let whole = Pool::of_host_local("ipam".to_owned(), ipam);
    whole.into_iter().chain(list(ipam, "ranges").iter().enumerate().flat_map(of_set)).collect()
}

/// A key's text; empty if it has none.
pub(crate) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    json::member(value, key).and_then(Value::as_str).unwrap_or_default()
}

fn is_set(value: &Value, key: &str) -> bool {
    json::member(value, key).and_then(Value::as_bool).unwrap_or_default()
}

/// The elements of a list; none if the key has no list.
fn list<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    json::member(value, key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The file that flannel's daemon writes, where key `subnetFile` names no other.
pub(crate) const FLANNEL_FILE: &str = "/run/flannel/subnet.env";

/// The plugins that one of a list stands for.
fn by(plugin: &Plugin) -> Vec<Plugin> {
    let decode = |object| Plugin::decode(String::new(), object);
    let found: Vec<Plugin> = match plugin.plugin_type.as_str() {
        "flannel" => delegate_of_flannel(&plugin.object).map(decode).into_iter().collect(),
        "multus" | "multus-shim" => delegates(&plugin.object).flat_map(|object| by(&decode(object.clone()))).collect(),
        _ => Vec::new(),
    };
    if found.is_empty() { vec![plugin.clone()] } else { found }
}

/// The plugins of Multus' networks.
pub(crate) fn delegates(plugin: &Value) -> impl Iterator<Item = &Value> {
    list(plugin, "delegates").iter().flat_map(|network| match json::member(network, "plugins") {
        Some(_) => list(network, "plugins"),
        None => std::slice::from_ref(network),
    })
}

/// The bridge that flannel calls, by its key `delegate` and the file of its daemon.
fn delegate_of_flannel(plugin: &Value) -> Option<Value> {
    let file = Some(text(plugin, "subnetFile")).filter(|file| !file.is_empty()).unwrap_or(FLANNEL_FILE);
    let Subnets { subnets, mtu_bytes } = Subnets::parse(&fs::read_to_string(file).ok()?);
    let mut object: Map<String, Value> =
        json::member(plugin, "delegate").and_then(Value::as_object).cloned().unwrap_or_default();
    object.entry("type").or_insert_with(|| serde_json::json!("bridge"));
    if !object.contains_key("isDefaultGateway") {
        object.entry("isGateway").or_insert_with(|| serde_json::json!(true));
    }
    if let Some(mtu) = mtu_bytes {
        object.entry("mtu").or_insert_with(|| serde_json::json!(mtu));
    }
    let ranges: Vec<Value> = subnets.iter().map(|net| serde_json::json!([{"subnet": net.to_string()}])).collect();
    object.insert("ipam".to_owned(), serde_json::json!({"type": "host-local", "ranges": ranges}));
    Some(Value::Object(object))
}

/// The contents of flannel's file.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct Subnets {
    /// The node's subnets.
    pub(crate) subnets: Vec<IpNetwork>,
    pub(crate) mtu_bytes: Option<u64>,
}

impl Subnets {
    pub(crate) fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            match key {
                "FLANNEL_SUBNET" | "FLANNEL_IPV6_SUBNET" => found.subnets.extend(value.parse::<IpNetwork>().map(whole)),
                "FLANNEL_MTU" => found.mtu_bytes = value.parse().ok(),
                _ => {}
            }
        }
        found
    }
}

fn whole(net: IpNetwork) -> IpNetwork {
    let network: IpAddr = net.network();
    IpNetwork::new(network, net.prefix()).unwrap_or(net)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_gateway_of_a_range_is_the_one_that_host_local_takes() {
        let plugin = |ipam: Value| Plugin::decode(String::new(), json!({"ipam": ipam}));
        let of = |ipam| plugin(ipam).gateways().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(of(json!({"type": "host-local", "subnet": "10.1.0.0/31"})), ["10.1.0.0/31"]);
        assert_eq!(of(json!({"type": "host-local", "ranges": [[{"subnet": "fd00::/127"}]]})), ["fd00::/127"]);
        assert_eq!(of(json!({"type": "host-local", "subnet": "10.1.0.0/24"})), ["10.1.0.1/24"]);
        assert_eq!(of(json!({"type": "static", "addresses": [{"address": "10.1.0.5/24"}]})), ["10.1.0.1/24"]);
    }
}
