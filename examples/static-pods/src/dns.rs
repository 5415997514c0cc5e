//! The settings of a pod's resolvers, by `dnsPolicy` and `dnsConfig`.

use crate::manifest::{DnsPolicy, Manifest};
use pods::pod::Dns;
use std::net::IpAddr;

/// Limits of a kubelet for servers, search domains and their characters.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_CHARS: usize = 2048;

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

/// The text of a resolv.conf(5), with as much as a kubelet lets through. A value that would read as more than one, as
/// it has blanks or line breaks in it, is left out.
pub(crate) fn resolv_conf(dns: &Dns) -> String {
    let is_word = |text: &&str| !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c.is_control());
    let words = |list: &'_ [String]| list.iter().map(String::as_str).filter(is_word).map(str::to_owned).collect();
    let (mut searches, servers, options): (Vec<String>, Vec<String>, Vec<String>) =
        (words(&dns.searches), words(&dns.servers), words(&dns.options));
    searches.truncate(MAX_SEARCHES);
    while searches.join(" ").len() > MAX_SEARCH_CHARS {
        searches.pop();
    }
    let line = |keyword: &str, values: &[String]| match values {
        [] => String::new(),
        values => format!("{keyword} {}\n", values.join(" ")),
    };
    let servers: String = servers.chunks(1).take(MAX_SERVERS).map(|server| line("nameserver", server)).collect();
    line("search", &searches) + &servers + &line("options", &options)
}

impl NodeDns {
    /// The settings of the pod's resolvers that plugins get.
    pub(crate) fn of(&self, manifest: &Manifest) -> Dns {
        with_config(self.of_policy(manifest), manifest)
    }

    /// The resolver settings in the pod: servers, search domains and options each from the result of its network, or
    /// where that has none, from the policy; then the manifest's own. The policy `None` asks for the manifest's alone.
    pub(crate) fn in_pod(&self, manifest: &Manifest, result: &Dns) -> Dns {
        let mut dns = self.of_policy(manifest);
        if manifest.dns_policy != DnsPolicy::None {
            let lists = [
                (&mut dns.servers, &result.servers),
                (&mut dns.searches, &result.searches),
                (&mut dns.options, &result.options),
            ];
            lists.into_iter().filter(|(_, result)| !result.is_empty()).for_each(|(own, result)| own.clone_from(result));
        }
        with_config(dns, manifest)
    }

    fn of_policy(&self, manifest: &Manifest) -> Dns {
        let of_cluster = !self.cluster_servers.is_empty();
        match manifest.dns_policy {
            DnsPolicy::None => Dns::default(),
            DnsPolicy::ClusterFirst if of_cluster && !manifest.host_network => self.cluster(&manifest.key.namespace),
            DnsPolicy::ClusterFirstWithHostNet if of_cluster => self.cluster(&manifest.key.namespace),
            DnsPolicy::Default | DnsPolicy::ClusterFirst | DnsPolicy::ClusterFirstWithHostNet => self.node.clone(),
        }
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

/// What the manifest adds.
fn with_config(mut dns: Dns, manifest: &Manifest) -> Dns {
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

    fn manifest(spec: &str) -> Manifest {
        let text = format!("{{apiVersion: v1, kind: Pod, metadata: {{name: web}}, spec: {{{spec}}}}}");
        crate::manifest::parse(text.as_bytes()).remove(0).unwrap()
    }

    fn node(cluster: &[&str]) -> NodeDns {
        let node = parse_resolv_conf(
            "# the node\ndomain old\nnameserver 192.0.2.53 # first\nsearch example.org corp\noptions ndots:2 edns0\n",
        );
        let cluster_servers = cluster.iter().map(|ip| ip.parse().unwrap()).collect();
        NodeDns { cluster_servers, cluster_domain: "cluster.local".to_owned(), node }
    }

    fn check(cluster: &[&str], spec: &str, expected: Expect) {
        let (manifest, node) = (manifest(spec), node(cluster));
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

    /// `result` is a resolv.conf, too.
    fn check_file(spec: &str, result: &str, expected: Expect) {
        let dns = node(&["10.96.0.10"]).in_pod(&manifest(spec), &parse_resolv_conf(result));
        expected.assert_eq(&resolv_conf(&dns));
    }

    #[test]
    fn a_pods_file_is_the_results_and_what_that_leaves_out_the_policys() {
        let config = "dnsConfig: {nameservers: [192.0.2.1], options: [{name: ndots, value: '3'}]}";
        check_file(
            "",
            "",
            expect![[r#"
                search default.svc.cluster.local svc.cluster.local cluster.local example.org corp
                nameserver 10.96.0.10
                options ndots:5
            "#]],
        );
        check_file(
            config,
            "nameserver 10.88.0.1\nnameserver fd00:88::1\nsearch pods.example\noptions ndots:1 edns0",
            expect![[r#"
                search pods.example
                nameserver 10.88.0.1
                nameserver fd00:88::1
                nameserver 192.0.2.1
                options edns0 ndots:3
            "#]],
        );
        check_file(
            "dnsPolicy: Default",
            "nameserver 10.88.0.1",
            expect![[r#"
                search example.org corp
                nameserver 10.88.0.1
                options ndots:2 edns0
            "#]],
        );
        check_file(
            &format!("dnsPolicy: None, {config}"),
            "nameserver 10.88.0.1\nsearch pods.example",
            expect![[r#"
                nameserver 192.0.2.1
                options ndots:3
            "#]],
        );
    }

    #[test]
    fn a_file_has_no_more_than_a_kubelet_lets_through() {
        let words = |count: usize, text: &str| (0..count).map(|n| format!("{n}.{text}")).collect::<Vec<_>>();
        let text = |servers, searches| resolv_conf(&Dns { servers, searches, options: Vec::new() });
        assert_eq!(text(words(5, "0.0.1"), Vec::new()).lines().count(), 3);
        assert_eq!(text(Vec::new(), words(40, "a")).split_whitespace().count(), 1 + 32);
        assert!(text(Vec::new(), words(30, &"a".repeat(200))).len() <= "search ".len() + 2048 + 1);
        // A value with a line break adds no line.
        assert_eq!(text(vec!["192.0.2.1\noptions debug".to_owned(), String::new()], Vec::new()), "");
    }
}
