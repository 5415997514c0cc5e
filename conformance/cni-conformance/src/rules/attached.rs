//! An attachment that a case looks at: what ADD reported, what it made, and whether CHECK and DEL see it.

use crate::rules::prelude::*;
use crate::testbed::ErrorObject;
use crate::{kit_ipam, result_conversion};
use testns::Link;

pub(super) struct Attached<'a> {
    pub(super) testbed: &'a Testbed,
    pub(super) pod: Container,
    pub(super) attachment: Attachment,
    pub(super) result: Value,
    /// The same, whatever its version.
    pub(super) parsed: Parsed,
    node_before: Vec<u32>,
    pod_before: Vec<u32>,
}

impl<'a> Attached<'a> {
    /// ADD of a new container; has to succeed.
    pub(super) fn add(testbed: &'a Testbed) -> Result<Self, Stop> {
        Self::add_to(testbed, testbed.pod())
    }

    pub(super) fn add_to(testbed: &'a Testbed, pod: Container) -> Result<Self, Stop> {
        Self::of(testbed, pod, |pod| testbed.add(pod))
    }

    pub(super) fn of(
        testbed: &'a Testbed,
        pod: Container,
        add: impl FnOnce(&Container) -> Result<Value, Stop>,
    ) -> Result<Self, Stop> {
        let (node_before, pod_before) = (indices(testbed.node.host()), indices(pod.namespace()));
        let attachment = pod.attachment();
        let result = add(&pod)?;
        let parsed = Parsed::by(&result_conversion::in_one_notation(result.clone()));
        Ok(Self { testbed, pod, attachment, result, parsed, node_before, pod_before })
    }

    /// Links that ADD made on the node: one with another name than before is none.
    pub(super) fn made_on_node(&self) -> Vec<Link> {
        self.testbed.node.host().links().into_iter().filter(|link| !self.node_before.contains(&link.index)).collect()
    }

    /// Links that ADD made in the container.
    pub(super) fn made_in_pod(&self) -> Vec<Link> {
        self.pod.namespace().links().into_iter().filter(|link| !self.pod_before.contains(&link.index)).collect()
    }

    /// The interface that ADD made in the container. Skips if it made none.
    pub(super) fn interface(&self) -> Result<Link, Stop> {
        let made = self.made_in_pod();
        let wanted = &self.attachment.ifname;
        match made.iter().find(|link| link.name == *wanted) {
            Some(link) => Ok(link.clone()),
            None if made.is_empty() => Err(skip("its ADD makes no interface in the container")),
            None => {
                let seen: Vec<_> = made.iter().map(|link| link.name.as_str()).collect();
                let finding =
                    Finding::new(format!("an interface {wanted} in the container"), format!("it made {seen:?}"));
                Err(finding.based_on("add.makes-the-interface").into())
            }
        }
    }

    /// The name of the container's interface, made by ADD or not. Skips if there is none.
    pub(super) fn interface_name(&self) -> Result<String, Stop> {
        let in_container = self.parsed.interfaces.iter().find(|interface| interface.sandbox.is_some());
        let name = in_container.map_or(&self.attachment.ifname, |interface| &interface.name);
        let found = self.pod.namespace().find_link(name);
        found.map(|link| link.name).ok_or_else(|| skip("it has no interface in the container"))
    }

    /// Addresses of the result that belong to the container's interface.
    pub(super) fn addresses(&self) -> Vec<&Ip> {
        self.parsed.in_container()
    }

    pub(super) fn checks(&self) -> Result<(), Stop> {
        self.testbed.check(&self.attachment, &self.result)
    }

    /// The same, before something else is asked: skips if it fails, which is `check.passes-after-add`'s.
    pub(super) fn has_to_check(&self) -> Result<(), Stop> {
        self.checks().map_err(|_failed| skip("its CHECK does not pass right after ADD, so that it shows nothing"))
    }

    /// CHECK with the result of ADD; one of the plugins has to object.
    pub(super) fn check_objects(&self, reason: &str) -> Result<ErrorObject, Stop> {
        self.check_objects_to(Some(&self.result), reason)
    }

    /// The same with another prevResult or none.
    pub(super) fn check_objects_to(&self, result: Option<&Value>, reason: &str) -> Result<ErrorObject, Stop> {
        for index in 0..self.testbed.plugin_count() {
            let call = self.testbed.call_plugin(index, Verb::Check, &self.attachment, result);
            let answer = self.testbed.make(&call)?;
            if !answer.is_success() {
                return answer.fails();
            }
        }
        Err(Finding::new(format!("an error, as {reason}"), "CHECK succeeded").into())
    }

    pub(super) fn dels(&self) -> Result<(), Stop> {
        self.testbed.del(&self.attachment, &self.result)
    }
}

fn indices(namespace: &testns::Namespace) -> Vec<u32> {
    namespace.links().into_iter().map(|link| link.index).collect()
}

/// The namespace in which an entry of interfaces says that it is.
pub(super) fn namespace_of(entry: &Value) -> Option<&str> {
    entry["sandbox"].as_str().filter(|sandbox| sandbox.contains('/'))
}

/// Whether the sandbox of an entry of interfaces is no path: an ID, as of a virtual machine (SPEC 0.4.0, Result).
fn is_elsewhere(entry: &Value) -> bool {
    entry["sandbox"].as_str().is_some_and(|sandbox| !sandbox.is_empty() && !sandbox.contains('/'))
}

/// A result of any version.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    pub(super) interfaces: Vec<Interface>,
    pub(super) ips: Vec<Ip>,
    pub(super) routes: Vec<Route>,
}

#[derive(Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    pub(super) mac: Option<String>,
    pub(super) mtu: Option<u64>,
    /// The path of a namespace; `None` for one of the node.
    pub(super) sandbox: Option<String>,
    /// Whether the sandbox is an ID, as that of a virtual machine, in which the kit does not look.
    pub(super) elsewhere: bool,
}

#[derive(Debug)]
pub(super) struct Ip {
    pub(super) address: String,
    pub(super) gateway: Option<String>,
    pub(super) interface: Option<usize>,
}

#[derive(Debug)]
pub(super) struct Route {
    pub(super) dst: String,
    pub(super) gw: Option<String>,
    pub(super) table: Option<u64>,
}

/// Addresses of a result that belong to interfaces of the container, without their prefixes. SPEC 5 permits others.
pub(super) fn addresses_in_container(result: &Value) -> Vec<String> {
    let parsed = Parsed::by(&result_conversion::in_one_notation(result.clone()));
    let plain = |ip: &Ip| ip.address.split('/').next().unwrap_or_default().to_owned();
    parsed.in_container().into_iter().map(plain).collect()
}

impl Parsed {
    /// Addresses of the container's interfaces; all, if the result names no interfaces.
    fn in_container(&self) -> Vec<&Ip> {
        let is_in_container = |ip: &&Ip| match ip.interface {
            Some(index) => self.interfaces.get(index).is_some_and(|interface| interface.sandbox.is_some()),
            None => self.interfaces.is_empty(),
        };
        self.ips.iter().filter(is_in_container).collect()
    }

    /// Reads what is readable: other rules ask for the form.
    fn by(result: &Value) -> Self {
        let mut parsed = Self::default();
        for entry in list(result, "interfaces") {
            let name = text(entry, "name").unwrap_or_default();
            let (mac, mtu) = (text(entry, "mac"), entry["mtu"].as_u64().filter(|mtu| *mtu > 0));
            let (sandbox, elsewhere) = (namespace_of(entry).map(str::to_owned), is_elsewhere(entry));
            parsed.interfaces.push(Interface { name, mac, mtu, sandbox, elsewhere });
        }
        for (entry, address) in
            list(result, "ips").map(|ip| (ip, "address")).chain(by_family(result).map(|ip| (ip, "ip")))
        {
            let interface = entry["interface"].as_u64().and_then(|index| usize::try_from(index).ok());
            let address = text(entry, address).unwrap_or_default();
            parsed.ips.push(Ip { address, gateway: text(entry, "gateway"), interface });
        }
        let routes = list(result, "routes").chain(by_family(result).flat_map(|ip| list(ip, "routes")));
        parsed.routes.extend(routes.map(|entry| {
            let dst = text(entry, "dst").unwrap_or_default();
            Route { dst, gw: text(entry, "gw"), table: entry["table"].as_u64() }
        }));
        parsed
    }
}

/// 0.1.0 and 0.2.0 have an object for each family.
fn by_family(result: &Value) -> impl Iterator<Item = &Value> {
    ["ip4", "ip6"].into_iter().filter_map(|key| result.get(key))
}

fn list<'a>(object: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn text(object: &Value, key: &str) -> Option<String> {
    object.get(key).and_then(Value::as_str).filter(|text| !text.is_empty()).map(str::to_owned)
}

pub(super) fn skip(why: &str) -> Stop {
    Stop::Skips(why.to_owned())
}

/// A first container comes and goes, so that what a network has once (a bridge, chains) is there.
pub(super) fn lay_network(testbed: &Testbed) -> Result<(), Stop> {
    Attached::add(testbed)?.dels()
}

/// A container that came and went. Whether that left something is asked by one rule, and is no matter of the others.
pub(super) fn pod_of_before(testbed: &Testbed) -> Result<Container, Stop> {
    let attached = Attached::add(testbed)?;
    attached.dels()?;
    Ok(attached.pod)
}

/// The outcome of ADD of [`pod_of_before`]: skips if it fails, which is `add.follows-del`'s.
pub(super) fn again<T>(added: Result<T, Stop>) -> Result<T, Stop> {
    added.map_err(|_failed| skip("its ADD fails for a container that came and went before"))
}

/// The same of a container whose addresses are the kit's, with what its ADD is called with. Skips if the plugin does not
/// delegate.
pub(super) fn pod_with_kit_ipam(testbed: &Testbed) -> Result<(Attachment, Value), Stop> {
    let attachment = testbed.pod().attachment();
    let config = with_kit_ipam(testbed, Verb::Add, &attachment, &[])?;
    let result = testbed.make(&testbed.call_with(Verb::Add, &config, &attachment))?.succeeds()?;
    testbed.make(&testbed.call_with(Verb::Del, &config, &attachment).prev_result(&result))?.succeeds()?;
    Ok((attachment, config))
}

/// The reason why these containers could not be served at once: `stop`, unless they cannot be served one after the
/// other either, as a pool that is smaller than its profile says, or a handful of devices, has no room for them.
pub(super) fn room_for(testbed: &Testbed, pods: &[Container], stop: Stop) -> Stop {
    // Addresses of those that came before may not be free yet.
    if testbed.profile.capacity().is_some_and(|addresses| addresses >= testbed.pods().len()) {
        return stop;
    }
    for pod in pods {
        testbed.del_blindly(pod).ok(); // as far as it goes: what matters is whether ADD succeeds then
    }
    let served = pods.iter().take_while(|pod| testbed.add(*pod).is_ok()).count();
    match served < pods.len() {
        true => skip(&format!("it has room for {served} containers only, also when they come one after the other")),
        false => stop,
    }
}

/// Checks that nothing differs from what was remembered.
pub(super) fn unchanged(testbed: &Testbed, expected: &str) -> Result<(), Stop> {
    Finding::unless_differs(testbed.left_behind(), expected, "something is not")
}

/// Checks that nothing has gone or changed since it was remembered. What has come does no harm to what was there, and is
/// asked for by rules of its own.
pub(super) fn nothing_lost(testbed: &Testbed, expected: &str) -> Result<(), Stop> {
    let left = testbed.left_behind();
    match left.lines().any(|line| line.starts_with('-')) {
        false => Ok(()),
        true => Err(Finding::new(expected, "something is missing").with_diff(left).into()),
    }
}

/// Checks that nothing has come since the testbed was remembered; what has gone may have.
pub(super) fn nothing_left(testbed: &Testbed) -> Result<(), Stop> {
    let left = testbed.left_behind();
    let left: String = left.lines().filter(|line| line.starts_with('+')).map(|line| format!("{line}\n")).collect();
    Finding::unless_differs(left, "nothing of the attachment on the node", "something is left")
}

/// A config of the tested plugin for a verb with the kit's IPAM plugin, and keys of `ipam` if wanted. Skips if the
/// plugin does not delegate.
pub(super) fn with_kit_ipam(
    testbed: &Testbed,
    verb: Verb,
    attachment: &Attachment,
    ipam: &[(&str, Value)],
) -> Result<Value, Stop> {
    let mut config = testbed.config_for(verb, attachment);
    testbed.config_with_kit_ipam().ok_or_else(|| skip("it delegates to no IPAM plugin"))?;
    Stop::skip_if(!ipam.is_empty() && testbed.profile.delegate.is_some(), "its delegate is no IPAM plugin")?;
    if let Some(delegate) = testbed.profile.delegate_of(&mut config) {
        *delegate = kit_ipam::in_place_of(delegate);
    }
    for (key, value) in ipam {
        config["ipam"][*key] = value.clone();
    }
    Ok(config)
}

/// An object of a config with one key more.
pub(super) fn with_key(mut config: Value, key: &str, value: Value) -> Value {
    config[key] = value;
    config
}

/// A foreign interface with an address, as a later plugin of the chain may have made it, in the form of a version.
pub(super) fn foreign_result(attachment: &Attachment, version: &str) -> Value {
    let newest = json!({
        "cniVersion": "1.1.0",
        "interfaces": [{ "name": "foreign0", "mac": "0a:00:00:00:00:99", "sandbox": attachment.netns }],
        "ips": [{ "address": "192.0.2.199/28", "interface": 0 }],
    });
    result_conversion::in_version(&newest, version)
}
