//! The keys, and which of the sources of addresses counts: `ipam.addresses` with those of `CNI_ARGS` behind them; in their
//! place `args.cni.ips`; in place of all `runtimeConfig.ips`.

use std::net::IpAddr;

use cni_spec::version::Family;
use cni_spec::{CniArgs, CniError, Code, ConfObject, Dns, FromConf, Ip, Route, SpecVersion, json};
use ipnetwork::IpNetwork;
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    addresses: Addresses,
    pub routes: Vec<Route>,
    pub dns: Dns,
    /// Results have room for one address of a family only.
    one_of_a_family: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Addresses {
    /// `ipam.addresses`: `CNI_ARGS` adds to them.
    Config(Vec<StaticAddress>),
    /// `args.cni.ips` or `runtimeConfig.ips`: they are all.
    Runtime(Vec<StaticAddress>),
}

/// An address, and the gateway of its subnet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticAddress {
    /// Address with prefix length, host bits kept.
    pub address: IpNetwork,
    /// Any address: hosters' gateways are outside the /32 they belong to.
    pub gateway: Option<IpAddr>,
}

impl StaticAddress {
    pub(crate) fn into_ip(self) -> Ip {
        Ip::new(self.address, self.gateway)
    }
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Net {
    ipam: Option<Ipam>,
    args: Args,
    runtime_config: Ips,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ipam {
    // Known here so that it does not look misspelt; the base reads it.
    #[serde(rename = "type")]
    _plugin: String,
    addresses: Vec<AddressKeys>,
    routes: Vec<Route>,
    dns: Dns,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct AddressKeys {
    address: String,
    #[serde(with = "json::optional_ip")]
    gateway: Option<IpAddr>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Args {
    cni: Ips,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Ips {
    ips: Vec<String>,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let net: Net = object.decode()?;
        let missing = || CniError::new(Code::INVALID_CONFIG, "IPAM config missing 'ipam' key");
        let ipam = net.ipam.ok_or_else(|| object.hint(missing()))?;
        let configured = ipam.addresses.iter().enumerate().map(|(index, keys)| {
            let address = parse(&format!("ipam.addresses[{index}].address"), &keys.address)?;
            refuse_mix(&format!("ipam.addresses[{index}].gateway"), keys.gateway, "address", address)?;
            Ok(StaticAddress { address, gateway: keys.gateway })
        });
        // A list that does not count is refused all the same when it is broken, as by the reference.
        let by_args = parse_all("args.cni.ips", &net.args.cni.ips)?;
        let by_runtime = parse_all("runtimeConfig.ips", &net.runtime_config.ips)?;
        let addresses = match (by_args.is_empty(), by_runtime.is_empty()) {
            (true, true) => {
                Addresses::Config(configured.collect::<Result<_, _>>().map_err(|error| object.hint(error))?)
            }
            (false, true) => Addresses::Runtime(by_args),
            (_, false) => Addresses::Runtime(by_runtime),
        };
        for (index, route) in ipam.routes.iter().enumerate() {
            refuse_mix(&format!("ipam.routes[{index}].gw"), route.gw, "dst", route.dst)?;
        }
        let version = object.version_text();
        let is_old = version.is_empty() || SpecVersion::find(version).is_some_and(|it| it.family() == Family::V02);
        let one_of_a_family = is_old.then(|| if version.is_empty() { "0.1.0" } else { version }.to_owned());
        let conf = Self { addresses, routes: ipam.routes, dns: ipam.dns, one_of_a_family };
        conf.addresses(&CniArgs::default()).map(|_| conf)
    }
}

fn parse_all(key: &str, ips: &[String]) -> Result<Vec<StaticAddress>, CniError> {
    let address = |(index, text): (usize, &String)| {
        let address = parse(&format!("{key}[{index}]"), text)?;
        Ok(StaticAddress { address, gateway: None })
    };
    ips.iter().enumerate().map(address).collect()
}

fn parse(key: &str, text: &str) -> Result<IpNetwork, CniError> {
    let parsed = json::parse_cidr(text);
    parsed.map_err(|_parse_error| {
        CniError::invalid_key(key, format_args!("{text:?}"), "expected an address with prefix, a/n")
    })
}

fn refuse_mix(key: &str, gateway: Option<IpAddr>, of: &str, network: IpNetwork) -> Result<(), CniError> {
    match gateway.filter(|gateway| gateway.is_ipv4() != network.is_ipv4()) {
        None => Ok(()),
        Some(gateway) => {
            let why = format!("{of} {network} is of the other family");
            Err(CniError::invalid_key(key, format_args!("\"{gateway}\""), &why))
        }
    }
}

impl Conf {
    /// All addresses, those of `CNI_ARGS` included: `IP=a/n,b/n` adds addresses to those of the config, `GATEWAY=g,h` sets the
    /// gateway of each address of either whose prefix contains it.
    pub(crate) fn addresses(&self, args: &CniArgs) -> Result<Vec<StaticAddress>, CniError> {
        args.expect_known(&["IP", "GATEWAY"])?;
        let parse_ip = |item| json::parse_cidr(item).map_err(|error| invalid_args("IP", &error));
        let added: Vec<IpNetwork> = items(args, "IP").map(parse_ip).collect::<Result<_, _>>()?;
        let parse_gateway = |item| json::parse_ip(item).map_err(|error| invalid_args("GATEWAY", &error));
        let gateways: Vec<IpAddr> = items(args, "GATEWAY").map(parse_gateway).collect::<Result<_, _>>()?;
        let addresses = match &self.addresses {
            Addresses::Runtime(all) => all.clone(),
            Addresses::Config(configured) => {
                let mut all = configured.clone();
                all.extend(added.into_iter().map(|address| StaticAddress { address, gateway: None }));
                for gateway in gateways {
                    let of_gateway = all.iter_mut().filter(|it| it.address.contains(gateway));
                    of_gateway.for_each(|address| address.gateway = Some(gateway));
                }
                all
            }
        };
        let count = |ipv6| addresses.iter().filter(|it| it.address.is_ipv6() == ipv6).count();
        match &self.one_of_a_family {
            Some(version) if count(false) > 1 || count(true) > 1 => {
                let msg = format!("CNI version {version} does not support more than 1 address per family");
                Err(CniError::new(Code::INVALID_CONFIG, msg))
            }
            Some(_) | None => Ok(addresses),
        }
    }
}

impl Conf {
    pub(crate) fn leaves_gateway_of(&self, address: &IpNetwork) -> bool {
        let Addresses::Config(configured) = &self.addresses else { return false };
        configured.iter().any(|it| it.address == *address && it.gateway.is_none())
    }
}

/// The parts of a list in `CNI_ARGS`; an empty value is as good as none.
fn items<'a>(args: &'a CniArgs, key: &str) -> impl Iterator<Item = &'a str> {
    let text = args.find(key).filter(|text| !text.is_empty());
    text.into_iter().flat_map(|text| text.split(',')).map(str::trim)
}

fn invalid_args(key: &str, error: &str) -> CniError {
    CniError::new(Code::INVALID_ENVIRONMENT, format!("cannot use CNI_ARGS: key {key}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// The addresses, or the error, of each config and value of `CNI_ARGS`.
    fn check(cases: &[(&str, &str)], expected: &Expect) {
        let show = |(keys, args): &(&str, &str)| {
            let text = format!(r#"{{"cniVersion": "1.0.0", "name": "n", "type": "t", {keys}}}"#);
            let object = ConfObject::parse(text.as_bytes()).unwrap();
            let addresses = Conf::from_conf(&object).and_then(|conf| conf.addresses(&CniArgs::parse(args)?));
            match addresses {
                Err(error) => format!("{} {}", error.code.0, error.msg),
                Ok(addresses) => addresses
                    .iter()
                    .map(|it| format!("{}{}", it.address, it.gateway.map(|it| format!(" by {it}")).unwrap_or_default()))
                    .collect::<Vec<_>>()
                    .join(", "),
            }
        };
        expected.assert_eq(&cases.iter().map(show).collect::<Vec<_>>().join("\n"));
    }

    const TWO: &str = r#""ipam": {"type": "static", "addresses": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"},
        {"address": "fd00::2/64"}]}"#;

    #[test]
    fn the_runtimes_addresses_replace_those_of_args_and_these_the_configs() {
        check(
            &[(TWO, ""), (TWO, "IP=10.0.0.3/24, 10.8.0.3/16")],
            &expect![[r#"
            10.0.0.2/24 by 10.0.0.1, fd00::2/64
            10.0.0.2/24 by 10.0.0.1, fd00::2/64, 10.0.0.3/24, 10.8.0.3/16"#]],
        );
        let args = format!(r#"{TWO}, "args": {{"cni": {{"ips": ["10.7.0.1/24"]}}}}"#);
        check(
            &[
                (&args, "IP=10.0.0.3/24"),
                (&format!(r#"{args}, "runtimeConfig": {{"ips": ["10.9.0.1/24"]}}"#), "IP=10.0.0.3/24"),
                (&format!(r#"{TWO}, "runtimeConfig": {{"ips": []}}"#), ""),
                (r#""ipam": {}"#, ""),
            ],
            &expect![[r#"
                10.7.0.1/24
                10.9.0.1/24
                10.0.0.2/24 by 10.0.0.1, fd00::2/64
            "#]],
        );
    }

    #[test]
    fn a_gateway_of_cni_args_is_that_of_each_address_whose_prefix_has_it() {
        check(
            &[(TWO, "GATEWAY=fd00::1"), (TWO, "IP=10.8.0.2/16;GATEWAY=10.0.0.9,10.8.0.1"), (TWO, "GATEWAY=172.16.0.1")],
            &expect![[r#"
                10.0.0.2/24 by 10.0.0.1, fd00::2/64 by fd00::1
                10.0.0.2/24 by 10.0.0.9, fd00::2/64, 10.8.0.2/16 by 10.8.0.1
                10.0.0.2/24 by 10.0.0.1, fd00::2/64"#]],
        );
    }

    #[test]
    fn what_cannot_be_used_is_named() {
        let one = |address: &str| format!(r#""ipam": {{"addresses": [{{"address": "{address}"}}]}}"#);
        check(
            &[
                (&one("10.0.0.2"), ""),
                (&one(""), ""),
                (r#""ipam": {}, "runtimeConfig": {"ips": ["10.0.0.2"]}"#, ""),
                (
                    r#""ipam": {}, "args": {"cni": {"ips": ["10.0.0.2"]}}, "runtimeConfig": {"ips": ["10.0.0.3/24"]}"#,
                    "",
                ),
                (
                    r#""ipam": {"addresses": [{"address": "10.0.0.2/24"}, {"address": "10.0.0.3/24", "gateway": "fd00::1"}]}"#,
                    "",
                ),
                (
                    r#""ipam": {"addresses": [{"address": "10.0.0.2/24"}], "routes": [{"dst": "::/0", "gw": "10.0.0.1"}]}"#,
                    "",
                ),
                (r#""ipam": {"addresses": [{"address": "10.0.0.2/24", "gateway": "x"}]}"#, ""),
                (r#""bridge": "b""#, ""),
                (TWO, "IP=10.0.0.2"),
                (TWO, "GATEWAY=x"),
                (TWO, "FOO=1"),
            ],
            &expect![[r#"
                7 cannot use network config: key ipam.addresses[0].address = "10.0.0.2": expected an address with prefix, a/n
                7 cannot use network config: key ipam.addresses[0].address = "": expected an address with prefix, a/n
                7 cannot use network config: key runtimeConfig.ips[0] = "10.0.0.2": expected an address with prefix, a/n
                7 cannot use network config: key args.cni.ips[0] = "10.0.0.2": expected an address with prefix, a/n
                7 cannot use network config: key ipam.addresses[1].gateway = "fd00::1": address 10.0.0.3/24 is of the other family
                7 cannot use network config: key ipam.routes[0].gw = "10.0.0.1": dst ::/0 is of the other family
                7 cannot use network config: key ipam.addresses[0].gateway = "x": "x" is no IP address (invalid IP address syntax)
                7 IPAM config missing 'ipam' key
                4 cannot use CNI_ARGS: key IP: "10.0.0.2" is no address with prefix, such as 10.1.0.5/24 or fd00::5/64
                4 cannot use CNI_ARGS: key GATEWAY: "x" is no IP address (invalid IP address syntax)
                4 cannot use CNI_ARGS: unknown key "FOO" (value "1")"#]],
        );
    }
}
