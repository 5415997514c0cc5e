//! SPEC 5: what plugins print.

use super::{Bound, Force, Sentence, sentence, unasked};
use Bound::{Both, Plugins};
use Force::{May, Must, Plain, Should};

const SUCCESS: &str = "SPEC 5, Success";
const IPAM: &str = "SPEC 5, Delegated plugins (IPAM)";
const ERROR: &str = "SPEC 5, Error";
const VERSION: &str = "SPEC 5, Version";

pub(super) const SENTENCES: &[Sentence] = &[
    sentence(
        SUCCESS,
        Must,
        Plugins,
        "A plugin that got a prevResult prints it, with its own changes; without any, one that is equivalent.",
        &["add.passes-prev-result-on"],
    ),
    sentence(
        SUCCESS,
        Must,
        Plugins,
        "ADD prints an object with the keys below.",
        &["results.form", "results.known-keys", "add.prints-a-result"],
    ),
    sentence(SUCCESS, Plain, Plugins, "cniVersion is that of the input.", &["results.version"]),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "interfaces has all interfaces that the attachment made, those on the node too, each with its name.",
        &["add.result-has-all-interfaces", "add.result-interfaces-exist", "results.interfaces"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "mac is the hardware address, mtu the MTU, where that applies.",
        &["add.result-mac-is-the-links", "add.result-mtu-is-the-links", "results.interfaces", "results.may-leave-out"],
    ),
    sentence(
        SUCCESS,
        Should,
        Plugins,
        "sandbox is empty for one on the node, and for one in the container what CNI_NETNS says.",
        &["add.result-sandbox-is-the-namespace"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "socketPath is the absolute path of an interface's socket, pciID the name of its PCI device, where that applies.",
        &["results.socket-path-and-pci-id", "results.interfaces"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "ips are addresses with prefix that the attachment assigned.",
        &["add.result-addresses-are-set", "add.result-has-all-addresses", "results.ips"],
    ),
    unasked(
        SUCCESS,
        May,
        Plugins,
        "They may include some that were assigned outside of the container.",
        "a permission; add.result-addresses-are-set looks where their interface says",
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "gateway is the subnet's default gateway; interface the index in interfaces.",
        &["add.result-gateway-is-within-reach", "delegation.result-is-used", "results.ips"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "routes are those that the attachment made, by destination with prefix.",
        &["add.result-routes-are-set", "add.result-has-all-routes", "results.routes"],
    ),
    sentence(
        SUCCESS,
        May,
        Both,
        "A route without gw may take a gateway of the addresses.",
        &["add.result-routes-are-set"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "mtu, advmss, priority, table and scope of a route are the kernel's.",
        &["delegation.route-attributes", "ipam.gives-an-address", "results.routes"],
    ),
    sentence(
        SUCCESS,
        Plain,
        Plugins,
        "dns has nameservers by priority, domain, search and options.",
        &["results.dns", "configuration.dns-is-kept"],
    ),
    sentence(IPAM, May, Plugins, "A delegate may leave out what is irrelevant.", &["results.may-leave-out"]),
    sentence(
        IPAM,
        Must,
        Plugins,
        "An IPAM plugin's result has no interfaces, and no index of them in ips.",
        &["ipam.abbreviated-result"],
    ),
    sentence(
        ERROR,
        Should,
        Plugins,
        "A plugin that fails prints an object with a code, a short msg, and longer details.",
        &["errors.object", "hostile.config-is-answered", "hostile.environment-is-answered"],
    ),
    sentence(ERROR, Plain, Plugins, "Its cniVersion is that of the configuration.", &["errors.version"]),
    sentence(
        ERROR,
        Plain,
        Plugins,
        "Codes below 100 are the specification's, those from 100 on a plugin's own.",
        &["errors.reserved-codes"],
    ),
    sentence(ERROR, Plain, Plugins, "1: a version that the plugin does not speak.", &["errors.1-incompatible-version"]),
    sentence(
        ERROR,
        Must,
        Plugins,
        "2: an unsupported field, of which the message has key and value.",
        &["errors.2-unsupported-field"],
    ),
    sentence(
        ERROR,
        Plain,
        Plugins,
        "3: a container that is unknown, so that the runtime has nothing to clean up.",
        &["errors.3-container-unknown"],
    ),
    sentence(
        ERROR,
        Must,
        Plugins,
        "4: variables that are invalid, which the message names.",
        &["errors.4-names-variables"],
    ),
    sentence(ERROR, Plain, Plugins, "5: something could not be read or written.", &["errors.5-io"]),
    sentence(ERROR, Plain, Plugins, "6: something could not be decoded.", &["errors.6-undecodable"]),
    sentence(ERROR, Plain, Plugins, "7: the configuration is not valid.", &["errors.7-invalid-config"]),
    sentence(ERROR, Plain, Both, "11: the same may succeed later.", &["errors.11-try-again"]),
    sentence(ERROR, May, Plugins, "stderr is free for logs.", &["errors.stderr-is-free"]),
    sentence(
        VERSION,
        Must,
        Plugins,
        "VERSION prints an object with cniVersion, as it was in the input, and supportedVersions, a list.",
        &["version.lists-versions", "version.echoes", "version.same-list-for-any-input"],
    ),
];
