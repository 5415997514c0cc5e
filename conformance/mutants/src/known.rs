//! Faults that plugins and runtimes are known to have, and what finds them.

/// A fault, in words, and what finds it.
#[derive(Debug)]
pub struct Fault {
    /// The fault, and its origin.
    pub what: &'static str,
    /// The rule that finds it.
    pub rule: &'static str,
    /// The case of the rule that detects the mutant.
    pub case: &'static str,
    /// Mutants that have it. For rules of runtimes, whose small runtime has a fault for each, there are none.
    pub mutants: &'static [&'static str],
}

const fn fault(
    what: &'static str,
    (rule, case): (&'static str, &'static str),
    mutants: &'static [&'static str],
) -> Fault {
    Fault { what, rule, case, mutants }
}

/// Faults of the reference set and its library, then others, by what they are about.
pub const FAULTS: &[Fault] = &[
    fault(
        "CHECK looks for routes of other tables in the main one",
        ("check.passes-after-add", "route-in-a-table"),
        &["looks-for-routes-in-the-main-table-alone"],
    ),
    fault(
        "dhcp: STATUS does not look for the daemon",
        ("status.not-ready", "daemon-away"),
        &["is-ready-without-its-daemon"],
    ),
    fault(
        "dhcp: a stale socket blocks the daemon's next start",
        ("relied.daemon-starts-again", ""),
        &["starts-where-no-socket-is-only"],
    ),
    fault("dhcp: DEL fails without the daemon", ("del.bears-lost-state", "daemon"), &["wants-its-daemon-to-delete"]),
    fault(
        "portmap, firewall, bandwidth: one chain or link for all attachments of a container",
        ("del.leaves-others-alone", "other-interface-of-a-chain"),
        &["has-one-chain-for-a-container"],
    ),
    fault(
        "host-local: a requested address comes on top of one that is held",
        ("ipam.one-address-for-an-attachment", "requested"),
        &["gives-one-to-each-request"],
    ),
    fault(
        "a requested address is given twice",
        ("ipam.no-address-twice", "requested"),
        &["gives-whatever-is-requested"],
    ),
    fault(
        "firewall: an unknown policy is refused when its rules are in",
        ("add.failed-leaves-nothing", "unknown-value"),
        &["lets-in-before-it-knows-the-policy"],
    ),
    fault(
        "host-device: a device that was up comes home down",
        ("del.hides-nothing", "device-that-was-up"),
        &["brings-its-device-home-down"],
    ),
    fault(
        "tuning: a crash by keys in args",
        ("conventions.args-are-optional", "keys-of-the-config"),
        &["crashes-by-its-keys-in-args"],
    ),
    fault(
        "tuning: CHECK compares hardware addresses by their letters",
        ("check.passes-after-add", "mac-in-capitals"),
        &["compares-macs-by-their-letters"],
    ),
    fault("tap: with owner and group the MTU is lost", ("relied.config-mtu", ""), &["knows-no-mtu-beside-an-owner"]),
    fault(
        "a layer 2 result in 0.2.0 is refused after the work",
        ("add.failed-leaves-nothing", "layer-2-before-0.3.0"),
        &["leaves-its-link-at-layer-2", "leaves-a-link-without-a-result-for-it"],
    ),
    fault("\"text file busy\" is taken for a success", ("answers.busy-executable", ""), &[]),
    fault(
        "results are written in place, and a half one is in the way of DEL",
        ("lifecycle.del-after-a-full-disk", ""),
        &[],
    ),
    fault(
        "dns of prevResult is dropped, or in another order",
        ("add.passes-prev-result-on", "dns"),
        &["drops-dns", "sorts-the-nameservers-of-others"],
    ),
    fault(
        "routes of prevResult are dropped, all or some, or come twice",
        ("add.passes-prev-result-on", "routes"),
        &["drops-routes", "keeps-one-route", "doubles-routes"],
    ),
    fault(
        "attributes of routes of prevResult are dropped",
        ("add.passes-prev-result-on", "routes"),
        &["drops-the-scope-of-routes", "drops-the-table-of-routes", "drops-the-priority-of-routes"],
    ),
    fault("the MTU of an interface of prevResult is dropped", ("add.passes-prev-result-on", "mtus"), &["drops-mtus"]),
    fault(
        "the second address of prevResult, or that of IPv6, is dropped, or addresses come twice",
        ("add.passes-prev-result-on", "ips"),
        &["drops-the-second-address", "drops-addresses-of-ipv6", "doubles-addresses"],
    ),
    fault(
        "the dns of a delegate, or the gateways of its addresses, are dropped",
        ("delegation.result-is-used", "gateway-and-dns"),
        &["drops-the-dns-of-its-delegate", "drops-the-gateway-of-its-delegate"],
    ),
    fault(
        "a container is given the address of the gateway",
        ("ipam.no-address-twice", "gateway"),
        &["gives-the-address-of-the-gateway"],
    ),
    fault(
        "DEL leaves the container's address on the node's lo",
        ("del.hides-nothing", "beside-another"),
        &["leaves-its-address-on-lo"],
    ),
    fault("DEL leaves a file in /tmp", ("del.leaves-nothing", ""), &["leaves-a-file-in-tmp"]),
    fault(
        "DEL leaves a sysctl that the first ADD has set",
        ("del.hides-nothing", "sysctls-of-the-first"),
        &["leaves-a-sysctl-of-the-first"],
    ),
    fault(
        "gateways or indexes of addresses of prevResult are dropped",
        ("add.passes-prev-result-on", "ips"),
        &["drops-gateways", "moves-addresses-to-another-interface"],
    ),
    fault("hardware addresses of prevResult change", ("add.passes-prev-result-on", "macs"), &["makes-up-a-mac"]),
    fault(
        "interfaces of prevResult are dropped",
        ("add.passes-prev-result-on", "interfaces"),
        &["forgets-an-interface"],
    ),
    fault(
        "keys of prevResult that are newer than the plugin are dropped",
        ("add.passes-unknown-keys-on", ""),
        &["drops-what-it-does-not-know"],
    ),
    fault("DEL leaves an entry in a JSON file", ("del.leaves-nothing", ""), &["leaves-an-entry-in-its-registry"]),
    fault(
        "DEL leaves a file in a folder that only the plugin's profile names",
        ("del.leaves-nothing", ""),
        &["leaves-a-file-in-a-folder-of-its-own"],
    ),
    fault("DEL leaves a policy rule (`ip rule`)", ("del.leaves-nothing", ""), &["leaves-a-policy-rule"]),
    fault("DEL leaves a sysctl", ("del.leaves-nothing", ""), &["leaves-a-sysctl"]),
    fault("DEL leaves an element of an nft set", ("del.leaves-nothing", ""), &["leaves-an-element-of-a-set"]),
    fault(
        "DEL takes containers with it whose ID starts as the one's: interface, chained and address plugins",
        ("del.leaves-others-alone", "an-id-that-starts-so"),
        &["deletes-whose-id-starts-so", "closes-ports-of-an-id-that-starts-so", "releases-those-whose-id-starts-so"],
    ),
    fault(
        "GC keeps a stale container with whose ID a valid one's starts",
        ("gc.removes-what-is-stale", "an-id-that-a-valid-one-starts-with"),
        &["keeps-whose-id-starts-a-valid-one"],
    ),
    fault(
        "GC removes a valid container with whose ID a stale one's starts",
        ("gc.keeps-what-is-valid", "an-id-that-a-stale-one-starts-with"),
        &["collects-whose-id-starts-a-stale-one"],
    ),
    fault(
        "GC keeps a stale interface of a valid container",
        ("gc.removes-what-is-stale", "one-interface-of-a-container"),
        &["keeps-all-of-a-valid-container", "keeps-all-of-a-valid-container-with-a-default-route"],
    ),
    fault(
        "GC removes a valid interface beside a stale one",
        ("gc.keeps-what-is-valid", "one-interface-of-a-container"),
        &["collects-a-container-that-lost-an-interface", "collects-a-container-that-lost-one-without-a-default-route"],
    ),
    fault(
        "GC keeps what has a file in place of a namespace",
        ("gc.removes-what-is-stale", "namespace-is-a-plain-file"),
        &["keeps-what-has-a-file-for-a-namespace"],
    ),
    fault(
        "GC after a reboot does nothing",
        ("gc.removes-what-is-stale", "after-a-reboot"),
        &["collects-what-has-a-bridge-only"],
    ),
    fault("GC removes what is another network's", ("gc.keeps-other-networks", ""), &["collects-other-networks"]),
    fault(
        "after GC no packet passes to valid containers",
        ("gc.keeps-what-is-valid", "packets-still-pass"),
        &["cuts-the-gateway-off"],
    ),
    fault("STATUS succeeds with no address left", ("status.not-ready", "addresses-exhausted"), &["is-always-ready"]),
    fault(
        "STATUS succeeds without the delegate",
        ("status.foresees-a-refused-add", "delegate-missing"),
        &["is-ready-without-its-delegate"],
    ),
    fault(
        "STATUS succeeds without the master",
        ("status.foresees-a-refused-add", "master-missing"),
        &["is-ready-without-its-master"],
    ),
    fault(
        "STATUS succeeds though the bridge is none",
        ("status.foresees-a-refused-add", "bridge-is-no-bridge"),
        &["takes-any-link-for-its-bridge"],
    ),
    fault(
        "STATUS succeeds though a delegate says 51",
        ("status.delegate-not-ready", "code-51"),
        &["takes-51-for-a-word-of-its-delegate"],
    ),
];
