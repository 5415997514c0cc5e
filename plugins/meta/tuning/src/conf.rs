//! The tuning plugin's keys.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use chained::invalid;
use cni_spec::{CniError, ConfObject, FromAnyConf, FromConf, IfName};
use interface::conf::{args_mac, parse_mac};
use netops::link::{Mac, Settings};
use netops::sysctl::Key;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use skel::Call;

use chained::skel;

/// The reference's folder of records.
pub const DATA_DIR: &str = "/run/cni/tuning";

/// The plugin's config, what `args.cni` overrides included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conf {
    pub sysctls: Sysctls,
    pub data_dir: DataDir,
    strong_mac: Option<Mac>,
    weak_mac: Option<Mac>,
    others: Settings,
    /// Features of the interface, by the kernel's names, that are to be on or off.
    pub offloads: BTreeMap<String, bool>,
}

/// Sysctls with their values, as they are written, in their order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sysctls(pub Vec<(String, String)>);

/// The folder of records, key `dataDir`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataDir(pub PathBuf);

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    sysctl: Sysctls,
    mac: String,
    promisc: bool,
    mtu: u32,
    allmulti: Option<bool>,
    #[serde(rename = "txQLen")]
    tx_queue_len: Option<u32>,
    offloads: BTreeMap<String, bool>,
    data_dir: String,
    args: Args,
    runtime_config: RuntimeConfig,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Tunable {
    sysctl: Sysctls,
    mac: Option<String>,
    promisc: Option<bool>,
    mtu: Option<u32>,
    allmulti: Option<bool>,
    #[serde(rename = "txQLen")]
    tx_queue_len: Option<u32>,
    offloads: BTreeMap<String, bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Args {
    cni: Tunable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RuntimeConfig {
    mac: String,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let own: Wire = object.decode()?;
        let cni = own.args.cni;
        let of_args = parse_mac("args.cni.mac", &cni.mac.unwrap_or_default())?;
        let of_runtime = parse_mac("runtimeConfig.mac", &own.runtime_config.mac)?;
        let conf = Self {
            sysctls: own.sysctl.overridden_by(cni.sysctl)?,
            data_dir: DataDir::parse(&own.data_dir)?,
            strong_mac: of_args.or(of_runtime),
            weak_mac: parse_mac("mac", &own.mac)?,
            others: Settings {
                promisc: cni.promisc.unwrap_or(own.promisc).then_some(true),
                // Some links can have more than those that plugins make.
                mtu_bytes: Some(cni.mtu.unwrap_or(own.mtu)).filter(|bytes| *bytes != 0),
                allmulti: cni.allmulti.or(own.allmulti),
                tx_queue_len: cni.tx_queue_len.or(own.tx_queue_len),
                ..Settings::default()
            },
            offloads: own.offloads.into_iter().chain(cni.offloads).collect(),
        };
        conf.keys("IFNAME")?;
        Ok(conf)
    }
}

impl Conf {
    /// The settings of the interface that a call asks for: those of `args.cni` before `runtimeConfig`, `CNI_ARGS`, and the
    /// network's keys.
    pub fn wanted(&self, raw: &Call) -> Result<Settings, CniError> {
        let of_call = args_mac(raw)?;
        Ok(Settings { mac: self.strong_mac.or(of_call).or(self.weak_mac), ..self.others.clone() })
    }

    /// The sysctls of one attachment: `IFNAME` in a key, once, is its interface.
    pub fn sysctls(&self, ifname: &IfName) -> Result<Vec<(Key, String)>, CniError> {
        self.keys(ifname.as_str())
    }

    fn keys(&self, ifname: &str) -> Result<Vec<(Key, String)>, CniError> {
        let mut keys: Vec<(Key, String)> = Vec::new();
        for (name, value) in &self.sysctls.0 {
            let key = parse_key(name, ifname)?;
            // Two spellings of one sysctl: the reference writes both, in any order.
            match keys.iter_mut().find(|(other, _)| *other == key) {
                Some((_, earlier)) if earlier != value => {
                    tracing::warn!(%key, value, earlier, "the config has this sysctl in two spellings: the last value counts");
                    value.clone_into(earlier);
                }
                Some(_) => {}
                None => keys.push((key, value.clone())),
            }
        }
        Ok(keys)
    }
}

/// The parts of a key. As for sysctl(8), the separator is the one that comes first; dots and slashes change places where
/// that is the dot, so that `net.ipv4.conf.eth0/100.x` is of link `eth0.100`. As a path below /proc/sys in the reference, it may
/// have separators too many, and `.` between slashes.
fn parts(name: &str) -> Vec<String> {
    let name = name.trim_matches('/');
    let is_one = |part: &&str| !part.is_empty();
    match name.find(['.', '/']).and_then(|place| name.get(place..=place)) {
        Some(".") => name.split('.').filter(is_one).map(|part| part.replace('/', ".")).collect(),
        _ => name.split('/').filter(is_one).filter(|part| *part != ".").map(str::to_owned).collect(),
    }
}

fn parse_key(name: &str, ifname: &str) -> Result<Key, CniError> {
    let refused = |why: &str| invalid(format_args!("key sysctl.{name:?}: {why}")).at_key(format!("sysctl.{name:?}"));
    let mut parts = parts(name);
    if let Some(part) = parts.iter_mut().find(|part| part.contains("IFNAME")) {
        *part = part.replacen("IFNAME", ifname, 1);
    }
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    match parts.as_slice() {
        ["net", below @ ..] if !below.is_empty() => Key::new(below).map_err(|error| refused(&error.cause.to_string())),
        _ => Err(refused("only sysctls below net are the container's own, such as net.core.somaxconn")),
    }
}

impl Sysctls {
    /// These settings with the values of `others`, which may be written with the other separator.
    fn overridden_by(mut self, others: Self) -> Result<Self, CniError> {
        for (name, value) in others.0 {
            let key = parse_key(&name, "IFNAME")?;
            let mut own = self.0.iter_mut();
            match own.find(|(own, _)| parse_key(own, "IFNAME").is_ok_and(|own| own == key)) {
                Some(entry) => entry.1 = value,
                None => self.0.push((name, value)),
            }
        }
        Ok(self)
    }
}

impl<'de> Deserialize<'de> for Sysctls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Ordered;
        impl<'de> Visitor<'de> for Ordered {
            type Value = Sysctls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Sysctls, A::Error> {
                let mut all = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    all.push(entry);
                }
                Ok(Sysctls(all))
            }

            fn visit_unit<E>(self) -> Result<Sysctls, E> {
                Ok(Sysctls::default())
            }
        }
        deserializer.deserialize_map(Ordered)
    }
}

impl DataDir {
    fn parse(text: &str) -> Result<Self, CniError> {
        match text {
            "" => Ok(Self(DATA_DIR.into())),
            path if path.starts_with('/') => Ok(Self(path.into())),
            path => Err(CniError::invalid_key("dataDir", format_args!("{path:?}"), "it is no absolute path")),
        }
    }
}

impl FromAnyConf for DataDir {
    fn from_any_conf(object: &ConfObject) -> Self {
        let text: String = object.find(&["dataDir"]).unwrap_or_default();
        object.unless_unread(Self::parse(&text)).unwrap_or_else(|| Self(DATA_DIR.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn conf(own: &Value) -> Result<Conf, CniError> {
        let mut all = json!({"name": "n"});
        all.as_object_mut().unwrap().extend(own.as_object().unwrap().clone());
        Conf::from_conf(&ConfObject::parse(all.to_string().as_bytes()).unwrap())
    }

    fn sysctls(own: &Value, ifname: &str) -> String {
        match conf(own).and_then(|conf| conf.sysctls(&IfName::parse(ifname).unwrap())) {
            Ok(all) => all.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" "),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn keys_have_dots_or_slashes_and_the_name_of_the_interface() {
        for (own, ifname, expected) in [
            (json!({"net.core.somaxconn": "5"}), "eth0", "sysctl net/core/somaxconn=5"),
            (json!({"net/ipv4/conf/IFNAME/x": "5"}), "eth0.7", "sysctl net/ipv4/conf/eth0.7/x=5"),
            (json!({"/net/core/x": "5"}), "eth0", "sysctl net/core/x=5"),
            (json!({"net.ipv4.conf.IFNAME.x": "5"}), "eth0.7", "sysctl net/ipv4/conf/eth0.7/x=5"),
            (json!({"net.ipv4.conf.a/7.x": "5"}), "eth0", "sysctl net/ipv4/conf/a.7/x=5"),
            (json!({"//net//core/./x/": "5"}), "eth0", "sysctl net/core/x=5"),
            (json!({".net..core.x.": "5"}), "eth0", "sysctl net/core/x=5"),
            (json!({"net.core.x/": "5"}), "eth0", "sysctl net/core/x=5"),
        ] {
            assert_eq!(sysctls(&json!({"sysctl": own}), ifname), expected);
        }
    }

    #[test]
    fn only_keys_of_the_containers_network_are_taken_and_each_once() {
        let bad = [
            "kernel.hostname",
            "net",
            "",
            "net/../kernel/hostname",
            "net/core/../../kernel/hostname",
            "net/.",
            "net..",
            "net/./../x",
            "net.//.x",
            "net.core.x\0",
        ];
        for name in bad {
            let text = sysctls(&json!({"sysctl": {name: "1"}}), "eth0");
            assert!(text.starts_with("cannot use network config: key sysctl."), "{name}: {text}");
        }
    }

    #[test]
    fn of_two_spellings_of_a_sysctl_the_last_value_counts() {
        let spelled = json!({"sysctl": {"net.core.x": "1", "net/core/x": "2"}});
        assert_eq!(sysctls(&spelled, "eth0"), "sysctl net/core/x=2");
        // What IFNAME is, is known with the attachment.
        let spelled = json!({"sysctl": {"net.ipv4.conf.IFNAME.x": "1", "net.ipv4.conf.eth0.x": "2"}});
        assert_eq!(sysctls(&spelled, "eth0"), "sysctl net/ipv4/conf/eth0/x=2");
    }

    #[test]
    fn args_override_the_networks_keys() {
        let own = json!({"mtu": 1400, "promisc": true, "txQLen": 7, "sysctl": {"net.core.x": "1"},
                         "args": {"cni": {"mtu": 1300, "promisc": false, "sysctl": {"net/core/x": "2", "net.core.y": "3"}}}});
        let all = conf(&own).unwrap();
        assert_eq!((all.others.mtu_bytes, all.others.promisc, all.others.tx_queue_len), (Some(1300), None, Some(7)));
        assert_eq!(sysctls(&own, "eth0"), "sysctl net/core/x=2 sysctl net/core/y=3");
        let own = json!({"offloads": {"a": true, "b": true}, "args": {"cni": {"offloads": {"b": false, "c": true}}}});
        let expected = [("a", true), ("b", false), ("c", true)].map(|(name, on)| (name.to_owned(), on));
        assert_eq!(conf(&own).unwrap().offloads, expected.into());
        // The reference crashes on this.
        assert_eq!(sysctls(&json!({"args": {"cni": {"sysctl": {"net.core.y": "3"}}}}), "eth0"), "sysctl net/core/y=3");
    }

    #[test]
    fn values_of_other_types_are_refused() {
        for own in [
            json!({"sysctl": {"net.core.x": 5}}),
            json!({"offloads": {"a": "off"}}),
            json!({"mtu": -1}),
            json!({"mac": "x"}),
            json!({"txQLen": -1}),
        ] {
            assert!(conf(&own).is_err(), "{own}");
        }
        assert!(conf(&json!({"sysctl": null, "mac": null, "allmulti": null})).is_ok());
        assert!(conf(&json!({"dataDir": "here"})).is_err());
    }
}
