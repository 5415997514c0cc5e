//! The tap plugin's keys.

use std::{fmt, fs};

use cni_spec::{CniError, ConfObject, Dns, FromConf};
use interface::conf::{self, ArgsKey, DnsKey, MacKey, parse_mac};
use netops::link::{AnyName, LinkName, Mac};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Conf {
    /// Several programs or threads may each have a queue.
    pub multi_queue: bool,
    /// MTU in bytes; `None` is the kernel's default.
    pub mtu_bytes: Option<u32>,
    /// Key `mac`, the weakest wish.
    pub mac: Option<Mac>,
    /// `args.cni.mac`, or `runtimeConfig.mac`, which is stronger.
    pub requested_mac: Option<Mac>,
    /// The user who may open the tap without being root.
    pub owner: Option<u32>,
    pub group: Option<u32>,
    /// The label of SELinux that the tap is made under.
    pub selinux_context: Option<String>,
    /// The bridge in the container that the tap becomes a port of.
    pub bridge: Option<String>,
    /// Key `dns`, in place of IPAM's.
    pub dns: Option<Dns>,
    /// Whether the tap is beside the interface that an earlier plugin made, in whose place a virtual machine is.
    pub redirect: bool,
    /// With `redirect`: the tap's name.
    pub tap_name: Option<LinkName>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Wire {
    multi_queue: bool,
    mtu: u16,
    mac: String,
    owner: Option<Id>,
    group: Option<Id>,
    selinux_context: String,
    bridge: String,
    dns: DnsKey,
    redirect: bool,
    tap_name: String,
    args: ArgsKey,
    runtime_config: MacKey,
}

impl FromConf for Conf {
    fn from_conf(object: &ConfObject) -> Result<Self, CniError> {
        let wire: Wire = object.decode()?;
        let text = |text: String| (!text.is_empty()).then_some(text);
        if wire.redirect {
            // The tap is like the interface, which has addresses already.
            let set = |key: &&&str| object.value().get(**key).is_some_and(|value| !value.is_null());
            if let Some(key) = ["bridge", "dns", "ipam", "mac", "mtu", "selinuxContext"].iter().find(set) {
                let why = "with key redirect the tap is as the interface before it";
                return Err(CniError::invalid_key(key, &object.value()[key], why));
            }
        }
        Ok(Self {
            multi_queue: wire.multi_queue,
            mtu_bytes: conf::mtu(wire.mtu),
            mac: parse_mac("mac", &wire.mac)?,
            requested_mac: conf::mac(&wire.args, &wire.runtime_config)?,
            owner: wire.owner.map(Id::user).transpose()?,
            group: wire.group.map(Id::group).transpose()?,
            selinux_context: text(wire.selinux_context),
            bridge: text(wire.bridge).map(bridge).transpose()?,
            dns: wire.dns.into_dns(),
            redirect: wire.redirect,
            tap_name: text(wire.tap_name).map(name).transpose()?,
        })
    }
}

/// The key that makes the plugin a chained one, whatever the rest of the config says.
pub const REDIRECT: &str = "redirect";

fn name(text: String) -> Result<LinkName, CniError> {
    LinkName::parse(&text)
        .map_err(|error| CniError::invalid_key("tapName", format_args!("{text:?}"), &error.to_string()))
}

fn bridge(text: String) -> Result<String, CniError> {
    match AnyName::parse(&text) {
        Ok(_) => Ok(text),
        Err(error) => Err(CniError::invalid_key("bridge", format_args!("{text:?}"), &error.to_string())),
    }
}

/// A user or group: a number, as in the reference, or a name of the node's.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Id {
    Number(u32),
    Name(String),
}

impl Id {
    fn user(self) -> Result<u32, CniError> {
        self.number("owner", "user", "/etc/passwd")
    }

    fn group(self) -> Result<u32, CniError> {
        self.number("group", "group", "/etc/group")
    }

    /// The user's number by the node's own file: libc's search loads modules of the node (NSS), which a static executable cannot do safely.
    fn number(self, key: &str, what: &str, file: &str) -> Result<u32, CniError> {
        let name = match self {
            Self::Number(number) => return Ok(number),
            Self::Name(name) => name,
        };
        let absent = |why: String| CniError::invalid_key(key, format_args!("{name:?}"), &why);
        let text = fs::read_to_string(file).map_err(|error| absent(format!("cannot read {file}: {error}")))?;
        let number = text.lines().find_map(|line| number_of(line, &name));
        number.ok_or_else(|| absent(format!("the node has no {what} of that name in {file}; use its number")))
    }
}

/// The third field of a line of passwd(5) or group(5), if the first is this name.
fn number_of(line: &str, name: &str) -> Option<u32> {
    let mut fields = line.split(':');
    (fields.next()? == name).then(|| fields.nth(1)?.parse().ok())?
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl Visitor<'_> for Either {
            type Value = Id;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number from 0 to 4294967294, or a name")
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Id, E> {
                // The last number stands for no user at all.
                let id = u32::try_from(number).ok().filter(|id| *id != u32::MAX);
                id.map(Id::Number).ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(number), &self))
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Id, E> {
                Ok(Id::Name(name.to_owned()))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(own: &str) -> Result<Conf, CniError> {
        let text = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"tap"{own}}}"#);
        Conf::from_conf(&ConfObject::parse(text.as_bytes()).unwrap())
    }

    #[test]
    fn owner_and_group_are_numbers_or_names_of_the_node() {
        let conf = parse(r#","owner":107,"group":0"#).unwrap();
        assert_eq!((conf.owner, conf.group), (Some(107), Some(0)));
        assert_eq!(parse(r#","owner":"root""#).unwrap().owner, Some(0));
        let error = parse(r#","owner":"no-such-user""#).unwrap_err();
        assert!(
            error.msg.contains(
                r#"key owner = "no-such-user": the node has no user of that name in /etc/passwd; use its number"#
            ),
            "{error}"
        );
        for bad in [r#","owner":-1"#, r#","owner":4294967295"#, r#","group":true"#] {
            assert!(parse(bad).unwrap_err().to_string().contains("a number from 0 to 4294967294, or a name"), "{bad}");
        }
    }

    #[test]
    fn a_bridge_is_a_links_name() {
        assert!(parse(r#","bridge":"a/b""#).unwrap_err().msg.contains("key bridge"));
        assert_eq!(parse(r#","bridge":"""#).unwrap().bridge, None);
    }
}
