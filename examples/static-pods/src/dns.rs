//! What resolvers in a pod are told, by `dnsPolicy` and `dnsConfig`.

use crate::manifest::{DnsPolicy, Manifest};
use pods::pod::Dns;
use std::net::IpAddr;

/// The node's side of it.
#[derive(Debug, Clone, Default)]
pub(crate) struct NodeDns {
    /// The cluster's servers; without any, `ClusterFirst` is as `Default`, as in a kubelet.
    pub(crate) cluster_servers: Vec<IpAddr>,
    /// The cluster's domain, if it has one.
    pub(crate) cluster_domain: String,
    /// The node's own settings.
    pub(crate) node: Dns,
}

/// resolv.conf(5): the last `search` counts, servers and options add up, and what is unknown is skipped.
pub(crate) fn parse_resolv_conf(text: &str) -> Dns {
    let mut dns = Dns::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let keyword = words.next();
        let values = words.map(str::to_owned);
        match keyword {
            Some("nameserver") => dns.servers.extend(values.take(1)),
            Some("search" | "domain") => dns.searches = values.collect(),
            Some("options") => dns.options.extend(values),
            _ => (),
        }
    }
    dns
}

impl NodeDns {
    /// What the pod's resolvers are told.
    pub(crate) fn of(&self, manifest: &Manifest) -> Dns {
        let of_cluster = !self.cluster_servers.is_empty();
        let mut dns = match manifest.dns_policy {
            DnsPolicy::None => Dns::default(),
            DnsPolicy::ClusterFirst if of_cluster && !manifest.host_network => self.cluster(&manifest.key.namespace),
            DnsPolicy::ClusterFirstWithHostNet if of_cluster => self.cluster(&manifest.key.namespace),
            DnsPolicy::Default | DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => self.node.clone(),
        };
        let config = &manifest.dns_config;
        add(&mut dns.servers, config.nameservers.iter().map(ToString::to_string));
        add(&mut dns.searches, config.searches.iter().cloned());
        for option in &config.options {
            // The pod's value of an option goes before the node's.
            dns.options.retain(|other| other.split(':').next() != Some(option.name.as_str()));
            let value = option.value.as_deref().filter(|value| !value.is_empty());
            dns.options.push(value.map_or_else(|| option.name.clone(), |value| format!("{}:{value}", option.name)));
        }
        dns
    }

    fn cluster(&self, namespace: &str) -> Dns {
        let domain = &self.cluster_domain;
        let mut searches = Vec::new();
        if !domain.is_empty() {
            searches.extend([format!("{namespace}.svc.{domain}"), format!("svc.{domain}"), domain.clone()]);
        }
        add(&mut searches, self.node.searches.iter().cloned());
        let servers = self.cluster_servers.iter().map(ToString::to_string).collect();
        Dns { servers, searches, options: vec!["ndots:5".to_owned()] }
    }
}

/// Adds what is not there yet.
fn add(list: &mut Vec<String>, more: impl Iterator<Item = String>) {
    for value in more {
        if !list.contains(&value) {
            list.push(value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};

    fn check(cluster: &[&str], spec: &str, expected: Expect) {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{{spec}}}}}");
        let manifest = crate::manifest::parse(text.as_bytes()).remove(0).unwrap();
        let node = parse_resolv_conf(
            "# the node\ndomain old\nnameserver 192.0.2.53 # first\nsearch example.org corp\noptions ndots:2 edns0\n",
        );
        let cluster_servers = cluster.iter().map(|ip| ip.parse().unwrap()).collect();
        let node = NodeDns { cluster_servers, cluster_domain: "cluster.local".to_owned(), node };
        let Dns { servers, searches, options } = node.of(&manifest);
        expected.assert_eq(&format!("{servers:?} {searches:?} {options:?}"));
    }

    #[test]
    fn a_policy_is_a_kubelets() {
        let config = "dnsConfig: {nameservers: [192.0.2.1], searches: [corp, a.b], options: [{name: ndots, value: '3'}, {name: debug}]}";
        check(
            &["10.96.0.10"],
            "",
            expect![[
                r#"["10.96.0.10"] ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "corp"] ["ndots:5"]"#
            ]],
        );
        check(&[], "", expect![[r#"["192.0.2.53"] ["example.org", "corp"] ["ndots:2", "edns0"]"#]]);
        check(
            &["10.96.0.10"],
            "hostNetwork: true",
            expect![[r#"["192.0.2.53"] ["example.org", "corp"] ["ndots:2", "edns0"]"#]],
        );
        check(
            &["10.96.0.10"],
            "hostNetwork: true, dnsPolicy: ClusterFirstWithHostNet",
            expect![[
                r#"["10.96.0.10"] ["default.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.org", "corp"] ["ndots:5"]"#
            ]],
        );
        check(
            &["10.96.0.10"],
            &format!("dnsPolicy: Default, {config}"),
            expect![[r#"["192.0.2.53", "192.0.2.1"] ["example.org", "corp", "a.b"] ["edns0", "ndots:3", "debug"]"#]],
        );
        check(
            &["10.96.0.10"],
            &format!("dnsPolicy: None, {config}"),
            expect![[r#"["192.0.2.1"] ["corp", "a.b"] ["ndots:3", "debug"]"#]],
        );
    }
}
