//! Network configs as a runtime derives them, and an attachment from ADD to DEL.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};

use serde_json::{Value, json};
use testns::{Attachment, Call, Node, Reply, Verb};

pub const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// `base` with the keys of `own`, which replace keys of the same name.
pub fn with(base: Value, own: Value) -> Value {
    let (Value::Object(mut all), Value::Object(own)) = (base, own) else {
        panic!("a config is a JSON object");
    };
    all.extend(own);
    Value::Object(all)
}

/// Network `net` on bridge `br0`, with the addresses of [`v4`]; `own` adds keys or replaces them.
pub fn bridge(own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0", "ipam": v4()});
    with(base, own)
}

/// Network `net` on bridge `br0` without addresses.
pub fn layer2(own: Value) -> Value {
    let base = json!({"cniVersion": "1.0.0", "name": "net", "type": "bridge", "bridge": "br0"});
    with(base, own)
}

pub fn v4() -> Value {
    json!({"type": "host-local", "subnet": "10.7.0.0/24"})
}

pub fn v6() -> Value {
    json!({"type": "host-local", "subnet": "fd07::/64"})
}

pub fn dual() -> Value {
    json!({"type": "host-local", "ranges": [[{"subnet": "10.7.0.0/24"}], [{"subnet": "fd07::/64"}]]})
}

/// A subnet of each family in which no other test has an address. GC, portmap and DEL look for an address in every
/// namespace that they can enter, and so in those of the tests beside.
#[derive(Debug)]
pub struct Unshared(u16);

/// Returns subnets in which no other test has an address, new ones with each call.
pub fn unshared() -> Unshared {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    Unshared(NEXT.fetch_add(1, Ordering::Relaxed))
}

impl Unshared {
    /// Addresses of the IPv4 subnet, a /24, from host-local.
    pub fn v4(&self) -> Value {
        json!({"type": "host-local", "subnet": format!("{}/24", self.address(0))})
    }

    /// An address of each family from host-local.
    pub fn dual(&self) -> Value {
        let ranges = [format!("{}/24", self.address(0)), format!("fd64:{:x}::/64", self.0)];
        json!({"type": "host-local", "ranges": ranges.map(|subnet| [json!({"subnet": subnet})])})
    }

    pub fn address(&self, last: u8) -> String {
        let [high, low] = self.0.to_be_bytes();
        format!("10.{}.{low}.{last}", 100 + high)
    }
}

/// A call of host-local itself, for network `net`, with these keys in `ipam`.
pub fn host_local(ipam: Value) -> Value {
    let ipam = with(json!({"type": "host-local"}), ipam);
    json!({"cniVersion": "1.0.0", "name": "net", "type": "host-local", "ipam": ipam})
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub fn addresses(result: &Value) -> Vec<String> {
    let ips = result["ips"].as_array().map(Vec::as_slice).unwrap_or_default();
    ips.iter().map(|ip| ip["address"].as_str().expect("an address").to_owned()).collect()
}

pub fn first_ip(result: &Value) -> IpAddr {
    let all = addresses(result);
    let text = all.first().expect("an address in the result");
    ip(text.split('/').next().unwrap_or_default())
}

pub struct Attached<'a> {
    node: &'a Node,
    pub config: Value,
    pub attachment: Attachment,
    pub result: Value,
}

impl<'a> Attached<'a> {
    #[track_caller]
    pub fn add(node: &'a Node, config: &Value, attachment: impl Into<Attachment>) -> Self {
        let attachment = attachment.into();
        let result = node.call(Verb::Add, config, &attachment).ok();
        Self { node, config: config.clone(), attachment, result }
    }

    /// A call with ADD's parameters and result, as a runtime makes it.
    pub fn call(&self, verb: Verb) -> Call {
        Call::new(verb, &self.config, &self.attachment).prev_result(&self.result)
    }

    #[track_caller]
    pub fn check(&self) -> Reply {
        self.call(Verb::Check).run(self.node)
    }

    #[track_caller]
    pub fn del(&self) -> Reply {
        self.call(Verb::Del).run(self.node)
    }

    #[track_caller]
    pub fn check_and_del(&self) {
        self.check().ok();
        self.del().ok();
    }

    #[track_caller]
    pub fn host_veth(&self) -> &str {
        let all = self.result["interfaces"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut names =
            all.iter().filter(|entry| entry["sandbox"].is_null()).filter_map(|entry| entry["name"].as_str());
        names.find(|name| name.starts_with("veth")).expect("a host veth in the result")
    }
}

/// Removes an empty `dns`: from 1.0.0 on it may be left out, and before it has no meaning.
pub fn drop_empty_dns(result: &mut Value) {
    if let Some(object) = result.as_object_mut()
        && object.get("dns").is_some_and(|dns| *dns == json!({}))
    {
        object.remove("dns");
    }
}

/// A result without values that change from one ADD to the next (hardware addresses, names of host veths and
/// containers), and without `mtu`, which the reference plugins of Debian 12 do not know.
pub fn normalised(result: &Value) -> Value {
    match result {
        Value::String(text) => Value::String(normalised_text(text)),
        Value::Array(all) => all.iter().map(normalised).collect(),
        Value::Object(all) => {
            let rest = all.iter().filter(|(key, _)| *key != "mtu");
            rest.map(|(key, value)| (key.clone(), normalised(value))).collect()
        }
        other => other.clone(),
    }
}

pub fn normalised_text(text: &str) -> String {
    let is_hex = |text: &str| text.chars().all(|digit| digit.is_ascii_hexdigit());
    if text.len() == 17 && text.split(':').all(|byte| byte.len() == 2 && is_hex(byte)) {
        return "MAC".to_owned();
    }
    if text.strip_prefix("veth").is_some_and(|digits| digits.len() == 8 && is_hex(digits)) {
        return "VETH".to_owned();
    }
    if text.starts_with("/run/netns/") { "/run/netns/POD".to_owned() } else { text.to_owned() }
}
