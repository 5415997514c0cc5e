//! Status: a pod's network from the cache; and whether it still exists, by CHECK.

use crate::error::Error;
use crate::handle::Pods;
use crate::lock::Operation;
use crate::pod::{Dns, PodId};
use crate::pod_attachments::{self, Planned, Position};
use crate::set_up::network_error;
use crate::{loopback, pod_spans};
use cni_spec::{AddResult, IfName, NetworkName, SpecVersion};
use futures::future::join_all;
use libcni::Cached;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// The networks of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    /// In the order of the request.
    pub networks: Vec<NetworkStatus>,
}

/// A network of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkStatus {
    pub network: NetworkName,
    pub ifname: IfName,
    /// Path of the pod's network namespace.
    pub netns: String,
    /// Whether the pod's addresses are this interface's: it is the default network's, or the first if the pod is
    /// not on that.
    pub is_primary: bool,
    /// The result of ADD; `None` when it did not finish.
    pub result: Option<AddResult>,
    /// The capabilities that the pod requests and that no plugin of the network enables, such as `portMappings` in a
    /// chain without portmap: they have no effect. Those that pods get without a request (`dns`, `ipRanges`, `aliases`,
    /// annotations, the cgroup) and those that `CNI_ARGS` carries as well (`mac`, a single address) are not listed.
    pub unserved: Vec<String>,
}

impl Status {
    /// The pod's addresses: those of its primary interface, IPv4 first, as a kubelet reports them.
    ///
    /// An address that the result gives no interface counts for the primary one: networks below version 0.3.0 and some
    /// plugins name none.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses = self.primary().map(NetworkStatus::addresses).unwrap_or_default();
        addresses.sort_by_key(IpAddr::is_ipv6);
        addresses
    }

    /// The DNS settings of the primary interface's network: for the pod's resolv.conf. A domain counts as the search
    /// list where the result has none, as in resolv.conf(5).
    pub fn dns(&self) -> Dns {
        let Some(result) = self.primary().and_then(|network| network.result.as_ref()) else { return Dns::default() };
        let cni_spec::Dns { nameservers: servers, domain, search: mut searches, options, .. } = result.dns.clone();
        if searches.is_empty() {
            searches.extend(Some(domain).filter(|domain| !domain.is_empty()));
        }
        Dns { servers, searches, options }
    }

    fn primary(&self) -> Option<&NetworkStatus> {
        self.networks.iter().find(|network| network.is_primary).or_else(|| self.networks.first())
    }

    /// The requests that have no effect, and addresses of which it is doubtful that they are the pod's: a sentence for each,
    /// without the pod's name.
    pub fn warnings(&self) -> Vec<String> {
        self.networks.iter().flat_map(NetworkStatus::warnings).collect()
    }

    pub(crate) fn of_results(planned: &[Planned<'_>], results: impl Iterator<Item = AddResult>) -> Self {
        let network = |(planned, result): (&Planned<'_>, AddResult)| NetworkStatus {
            network: planned.network.clone(),
            ifname: planned.attachment.id.ifname.clone(),
            netns: planned.attachment.netns.clone(),
            is_primary: Position::find_in(&planned.attachment.capability_args).is_some_and(|place| place.is_primary),
            result: Some(result),
            unserved: pod_attachments::unserved(planned.conf, &planned.attachment.capability_args),
        };
        Self { networks: planned.iter().zip(results).map(network).collect() }
    }

    pub(crate) fn of_cached<'a>(cached: impl Iterator<Item = &'a Cached>) -> Result<Self, Error> {
        Ok(Self { networks: cached.map(NetworkStatus::of_cached).collect::<Result<_, _>>()? })
    }
}

impl NetworkStatus {
    /// The addresses of the interface in the pod, in the order of the result. One that the result gives to none of its
    /// interfaces counts: some plugins have no index, or -1, which meant the same before version 0.3.1.
    pub fn addresses(&self) -> Vec<IpAddr> {
        let Some(result) = &self.result else { return Vec::new() };
        let own = self.place(result);
        let is_own = |ip: &&cni_spec::Ip| self.owner(result, ip).is_none_or(|(index, _)| Some(index) == own);
        result.ips.iter().filter(is_own).map(|ip| ip.address.ip()).collect()
    }

    /// The place of the pod's interface among those of the result.
    fn place(&self, result: &AddResult) -> Option<usize> {
        // Some plugins leave the sandbox out; a link of the node may have the same name.
        let named = |in_sandbox: bool| {
            let is_it = move |interface: &cni_spec::Interface| {
                interface.name == self.ifname.as_str() && interface.sandbox.is_empty() != in_sandbox
            };
            result.interfaces.iter().position(is_it)
        };
        named(true).or_else(|| named(false))
    }

    /// The interface that the result gives an address to.
    fn owner<'a>(&self, result: &'a AddResult, ip: &cni_spec::Ip) -> Option<(usize, &'a cni_spec::Interface)> {
        ip.interface.and_then(|index| Some((index, result.interfaces.get(index)?)))
    }

    fn warnings(&self) -> Vec<String> {
        let names = self.unserved.join(", ");
        let unserved = (!names.is_empty())
            .then(|| format!("network {} has no plugin with capability {names}: it has no effect", self.network));
        unserved.into_iter().chain(self.result.as_ref().and_then(|result| self.doubt(result))).collect()
    }

    /// Doubts about the addresses of a result that names interfaces: older results name none.
    fn doubt(&self, result: &AddResult) -> Option<String> {
        let Self { network, ifname, .. } = self;
        if result.interfaces.is_empty() || result.ips.is_empty() {
            return None;
        }
        let texts = |ips: &mut dyn Iterator<Item = &cni_spec::Ip>| {
            ips.map(|ip| ip.address.ip().to_string()).collect::<Vec<_>>().join(", ")
        };
        if self.addresses().is_empty() {
            let of = |ip| self.owner(result, ip).map(|(_, interface)| interface.name.as_str());
            let owners: BTreeSet<&str> = result.ips.iter().filter_map(of).collect();
            let (all, owners) = (texts(&mut result.ips.iter()), owners.into_iter().collect::<Vec<_>>().join(", "));
            return Some(format!(
                "the result of network {network} gives no address to {ifname}, the pod's interface, but {all} to {owners}: \
                 the pod counts as one without address"
            ));
        }
        let loose = texts(&mut result.ips.iter().filter(|ip| self.owner(result, ip).is_none()));
        (!loose.is_empty()).then(|| {
            format!("the result of network {network} gives {loose} to none of its interfaces: it counts as {ifname}'s")
        })
    }

    fn of_cached(cached: &Cached) -> Result<Self, Error> {
        let conf = cached.network_conf().ok();
        // Results name their version, except the oldest.
        let version = conf.as_ref().and_then(|conf| conf.version().ok()).unwrap_or(SpecVersion::V0_1_0);
        let arguments = &cached.attachment.capability_args;
        let (network, ifname) = (cached.network.clone(), cached.attachment.id.ifname.clone());
        let unusable = |error| network_error(&network, &ifname, libcni::Error::Invalid(error));
        Ok(Self {
            netns: cached.attachment.netns.clone(),
            is_primary: Position::find_in(arguments).is_some_and(|place| place.is_primary),
            unserved: conf.map(|conf| pod_attachments::unserved(&conf, arguments)).unwrap_or_default(),
            result: cached.result(version).map_err(unusable)?,
            network,
            ifname,
        })
    }
}

impl Pods {
    /// The pod's network as its set-up left it: from the cache, so after a restart too. It does not wait for other
    /// operations.
    /// Errors: [`Error::NotUp`] when the cache has no entry of the sandbox; [`Error::Cache`]; [`Error::Network`] for an
    /// unreadable cached result.
    pub async fn status(&self, pod: &PodId) -> Result<Status, Error> {
        Status::of_cached(self.networks_of(pod)?.iter())
    }

    /// CHECK: whether a pod still has what its set-up left, and its status. CHECK of all networks runs at the same
    /// time; those below version 0.4.0 have no CHECK and count as good.
    /// Errors: as [`Pods::status`]; [`Error::Busy`]; [`Error::Unfinished`]; and each network's error of CHECK.
    pub async fn check(&self, pod: &PodId) -> Result<Status, Error> {
        pod_spans::pod(Operation::Check, pod, async { self.check_in_span(pod).await }).await
    }

    async fn check_in_span(&self, pod: &PodId) -> Result<Status, Error> {
        let until = self.deadline();
        let _turn = self.inner.locks.pod(Operation::Check, pod, until).await?;
        let cached = self.networks_of(pod)?;
        let lo: Vec<_> = self.cached(Some(&pod.sandbox))?.into_iter().filter(loopback::is_loopback).collect();
        let runtime = self.runtime(until);
        let check = async |cached: &Cached| {
            let (network, id) = (&cached.network, &cached.attachment.id);
            if !cached.is_complete() {
                return Err(Error::Unfinished { network: network.clone(), ifname: id.ifname.clone() });
            }
            let conf = cached.network_conf().map_err(libcni::Error::Invalid);
            let outcome = match &conf {
                Ok(conf) => Box::pin(runtime.check(conf, &cached.attachment)).await,
                Err(_) => Ok(()),
            };
            match conf.and(outcome) {
                Ok(()) | Err(libcni::Error::NoCheck { .. }) => Ok(()),
                Err(error) => Err(network_error(network, &id.ifname, error)),
            }
        };
        let outcomes = join_all(lo.iter().chain(&cached).map(check)).await;
        Error::all(outcomes.into_iter().filter_map(Result::err).collect())?;
        Status::of_cached(cached.iter())
    }

    /// The cached attachments of a pod, without loopback.
    fn networks_of(&self, pod: &PodId) -> Result<Vec<Cached>, Error> {
        let mut cached = self.cached(Some(&pod.sandbox))?;
        cached.retain(|cached| !loopback::is_loopback(cached));
        if cached.is_empty() {
            return Err(Error::NotUp { pod: pod.clone(), cache: self.settings().cache_dir.clone() });
        }
        Ok(cached)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    /// The status of a pod with two networks, each with a result of its own.
    fn status(first: &str, second: &str, primary: usize) -> Status {
        let network = |(index, result): (usize, &str)| NetworkStatus {
            network: NetworkName::parse("net").unwrap(),
            ifname: IfName::parse(&format!("eth{index}")).unwrap(),
            netns: "/run/netns/c1".into(),
            is_primary: index == primary,
            result: Some(AddResult::from_value(&serde_json::from_str(result).unwrap(), SpecVersion::V1_0_0).unwrap()),
            unserved: Vec::new(),
        };
        Status { networks: [first, second].into_iter().enumerate().map(network).collect() }
    }

    fn check(first: &str, second: &str, primary: usize, expected: &Expect) {
        let status = status(first, second, primary);
        expected.assert_eq(&status.addresses().iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
    }

    const OTHER: &str = r#"{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.1/24"}]}"#;

    #[test]
    fn ipv4_comes_first_and_else_the_results_order() {
        let text = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/run/netns/c1"}],
            "ips":[{"interface":0,"address":"fd00::2/64"},{"interface":0,"address":"10.0.0.3/24"},{"interface":0,"address":"10.0.0.2/24"}]}"#;
        check(text, OTHER, 0, &expect!["10.0.0.3 10.0.0.2 fd00::2"]);
    }

    #[test]
    fn addresses_of_other_interfaces_do_not_count_and_those_of_none_do() {
        let text = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"},{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"}],
            "ips":[{"interface":0,"address":"10.0.0.1/24"},{"interface":1,"address":"10.0.0.2/24"},
                   {"interface":2,"address":"10.0.0.3/24"},{"address":"10.0.0.4/24"}]}"#;
        check(text, OTHER, 0, &expect!["10.0.0.3 10.0.0.4"]);
        // The oldest forms have no interfaces.
        check(
            r#"{"cniVersion":"0.2.0","ip6":{"ip":"fd00::2/64"},"ip4":{"ip":"10.0.0.5/24"}}"#,
            OTHER,
            0,
            &expect!["10.0.0.5 fd00::2"],
        );
    }

    /// Plugins of 2017 wrote -1 for none.
    #[test]
    fn an_address_of_no_interface_is_the_pods_with_a_warning() {
        let text = r#"{"cniVersion":"0.3.1","ips":[{"version":"4","interface":-1,"address":"10.0.0.5/32"}]}"#;
        check(text, OTHER, 0, &expect!["10.0.0.5"]);
        assert_eq!(status(text, OTHER, 0).warnings(), [""; 0], "such a result names no interface at all");
        let text = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"}],"ips":[{"address":"10.0.0.5/32"}]}"#;
        check(text, OTHER, 0, &expect!["10.0.0.5"]);
        expect!["the result of network net gives 10.0.0.5 to none of its interfaces: it counts as eth0's"]
            .assert_eq(&status(text, OTHER, 0).warnings().join("; "));
    }

    #[test]
    fn a_pod_whose_addresses_are_all_the_nodes_has_none_and_a_warning() {
        let text = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0","sandbox":"/run/netns/c1"}],
            "ips":[{"interface":0,"address":"10.0.0.5/24"},{"interface":0,"address":"fd00::5/64"}]}"#;
        check(text, OTHER, 0, &expect![""]);
        expect!["the result of network net gives no address to eth0, the pod's interface, but 10.0.0.5, fd00::5 to veth1: the pod counts as one without address"]
            .assert_eq(&status(text, OTHER, 0).warnings().join("; "));
    }

    #[test]
    fn a_plugin_may_leave_the_sandbox_out() {
        let text = r#"{"cniVersion":"1.0.0","interfaces":[{"name":"veth1"},{"name":"eth0"}],"ips":[{"interface":1,"address":"10.0.0.3/24"}]}"#;
        check(text, OTHER, 0, &expect!["10.0.0.3"]);
    }

    #[test]
    fn they_are_the_primary_interfaces() {
        check(OTHER, r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}"#, 1, &expect!["10.0.0.2"]);
        // Another runtime's cache names no primary one: the first counts.
        check(OTHER, r#"{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2/24"}]}"#, 9, &expect!["192.0.2.1"]);
        check(r#"{"cniVersion":"1.0.0"}"#, OTHER, 0, &expect![""]);
    }
}
