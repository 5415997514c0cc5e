//! Properties that must hold of every decoder, for any bytes: one function a decoder, which panics when they do not.
//!
//! Nothing here generates input. `tests/corpus.rs` gives each function its folder below `corpus/` and some
//! thousand variations of that, on every `cargo test`; `libfuzzer/` gives it what coverage guides to. The README says
//! how to run the latter, and what to do with an input that fails.
//!
//! A function asks for more than the absence of a crash: what is accepted must hold what its type promises, and must
//! survive being written and read again; what is refused must be refused by an error that survives the wire.

mod dhcp;
mod draw;
mod host_local;
mod invariants;
mod json;
mod kit;
mod netlink;
mod nft;
mod plugins;
mod result;
mod runtime;
mod stdin;
mod values;

/// A decoder and what must hold of it.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of the corpus folder, and of the decoder in `FUZZ_TARGET`.
    pub name: &'static str,
    /// Panics if something does not hold for these bytes.
    pub run: fn(&[u8]),
    /// Parts that its input is made of, for variations that a random byte would not find.
    pub tokens: &'static [&'static str],
}

/// Declares [`TARGETS`] and gives each function a public name.
macro_rules! targets {
    ($($module:ident::$name:ident $tokens:expr;)*) => {
        $(pub use $module::$name;)*

        /// Every decoder.
        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name, tokens: $tokens }),*];
    };
}

/// Keys and values of configs and results.
const CONFIG: &[&str] = &[
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[null]",
    "-1",
    "0",
    "1e99",
    "65536",
    "18446744073709551615",
    ",",
    ":",
    "\"cniVersion\":",
    "\"0.1.0\"",
    "\"0.2.0\"",
    "\"0.4.0\"",
    "\"1.0.0\"",
    "\"1.1.0\"",
    "\"name\":",
    "\"type\":",
    "\"ipam\":",
    "\"prevResult\":",
    "\"cni.dev/valid-attachments\":",
    "\"cni.dev/attachments\":",
    "\"containerID\":",
    "\"ifname\":",
    "\"ip4\":",
    "\"ip6\":",
    "\"ips\":",
    "\"interfaces\":",
    "\"routes\":",
    "\"dns\":",
    "\"address\":",
    "\"gateway\":",
    "\"interface\":",
    "\"dst\":",
    "\"gw\":",
    "\"mtu\":",
    "\"table\":",
    "\"10.0.0.1/8\"",
    "\"::ffff:10.0.0.1/120\"",
    "\"fd00::1/64\"",
    "\"10.0.0.1\"",
    "\"..\"",
    "\"a/b\"",
    "\\n",
    "\\u0000",
    "\\ud800",
];

/// Keys and values of plugins' own configs.
const PLUGIN: &[&str] = &[
    "null",
    "true",
    "\"\"",
    "[]",
    "{}",
    "[[{}]]",
    "0",
    "1",
    "4094",
    "4095",
    "-1",
    ",",
    "\"ipam\":",
    "\"ranges\":",
    "\"subnet\":",
    "\"rangeStart\":",
    "\"rangeEnd\":",
    "\"gateway\":",
    "\"exclude\":",
    "\"routes\":",
    "\"dst\":",
    "\"runtimeConfig\":",
    "\"ipRanges\":",
    "\"ips\":",
    "\"10.0.0.0/8\"",
    "\"10.0.0.0/30\"",
    "\"10.0.0.1\"",
    "\"255.255.255.252/30\"",
    "\"fd00::/64\"",
    "\"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126\"",
    "\"::/0\"",
    "\"0.0.0.0/0\"",
    "\"10.0.0.1-10.0.0.9\"",
    "\"bridge\":",
    "\"vlan\":",
    "\"vlanTrunk\":",
    "\"minID\":",
    "\"maxID\":",
    "\"id\":",
    "\"isDefaultGateway\":true",
    "\"ipMasq\":true",
    "\"mac\":",
    "\"prevResult\":",
    "\"address\":",
    "\"cniVersion\":",
    "\"1.0.0\"",
    "\"a/b\"",
    "\"eth0.100.100.100\"",
    "\\n",
];

/// Keys and values of network configurations and cache files.
const NETWORK: &[&str] = &[
    "null",
    "true",
    "\"TRUE\"",
    "\"\"",
    "[]",
    "{}",
    "1",
    "1e999",
    ",",
    ":",
    " ",
    "\n",
    "\\ud800",
    "\"cniVersion\":",
    "\"cniVersions\":",
    "\"1.1.0\"",
    "\"9\"",
    "\"1\"",
    "\"name\":",
    "\"NAME\":",
    "\"plugins\":",
    "\"type\":",
    "\"Type\":",
    "\"disableCheck\":",
    "\"disableGC\":",
    "\"loadOnlyInlinedPlugins\":",
    "\"capabilities\":",
    "\"mac\":",
    "\"runtimeConfig\":",
    "\"prevResult\":",
    "\"cni.dev/attachments\":",
    "\"kind\":\"cniCacheV1\"",
    "\"config\":",
    "\"networkName\":",
    "\"ifName\":",
    "\"containerId\":",
    "\"cniArgs\":",
    "\"capabilityArgs\":",
    "\"result\":",
    "\"netns\":",
    "=",
    "[[\"K\",\"V\"]]",
];

targets! {
    stdin::stdin CONFIG;
    json::tolerance CONFIG;
    result::add_result CONFIG;
    runtime::network_conf NETWORK;
    runtime::cache_entry NETWORK;
    runtime::capability_args NETWORK;
    runtime::version_reply &["\"cniVersion\":", "\"supportedVersions\":", "\"0.2.0\"", "\"1.1.0\"", "\"\"", "[]", "null", ","];
    host_local::host_local_conf PLUGIN;
    host_local::reservation &["\r\n", "\n", " ", "\0", "c1", "eth0", "10.0.0.1", "fd00::1", "::ffff:", "IP=", "/24", "1000 "];
    host_local::resolv_conf &["nameserver ", "domain ", "search ", "options ", "#", ";", "\n", "\r", "\t", "\u{85}", "\u{2028}"];
    host_local::index &["\0", "\u{1}", "\u{7f}", "\u{40}"];
    plugins::bridge_conf PLUGIN;
    plugins::control_file &["\"ReportResult\":", "\"reporterror\":", "\"CmdArgs\":", "{}", "null", "\"\"", "-1", "256", "[]", ","];
    plugins::environment &["\n", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "..", "/", "true", ":"];
    plugins::iptables_save &["-A ", "-s ", "-d ", "-j ", "! ", "--comment ", "\"", "\\", " ", "\n", "\r", ":CNI-30c3d21661b09680d9d23573 "];
    dhcp::dhcp_answer &["c\u{2}Sc", "5\u{1}\u{2}", "5\u{1}\u{5}", "6\u{4}\n\u{8}\0\u{1}", "\u{1}\u{4}\u{7f}\0\0\0", "3\u{4}\0\0\0\u{2}", ":\u{4}\0\0\0\0", ";\u{4}\0\0\0\u{9}", "4\u{1}\u{3}", "y\u{5}\0\n\u{8}\0\u{1}", "w\u{5}\u{1}a\0", "\u{f}\u{3}a\nb", "\0"];
    dhcp::dhcp_ipv6_answer &["\u{7}\0\0\u{5}", "\0\u{1}\0\u{3}\0\u{4}\u{7}", "\0\u{2}\0\u{1}\u{8}", "\0\u{3}\0\u{28}\0\0\0\u{9}\0\0\0\0\0\0\0\0", "\0\u{5}\0\u{18}", "\0\r\0\u{2}\0\u{3}", "\0\u{17}\0\u{10}", "\0\u{18}\0\u{3}\u{1}a\0", "\u{7f}", "\0"];
    dhcp::dhcp_request &["\"cniDhcp\":", "\"verb\":", "\"add\"", "\"gc\"", "\"list\"", "\"names\":", "\"sandbox\":", "\"provide\":", "[[12,[97]]]", "\"extras\":", "null", "[]", "{}", ",", "-1", "256"];
    values::names &[".", "..", "/", ":", "\0", "\n", "\u{a0}", "\u{2028}", "0123456789abcdef"];
    values::version &[".", "0", "1.1.0", "4294967296", "+1", "-", " "];
    values::address &["/", ".", ":", "::", "::ffff:", "%eth0", "0", "00", "/0", "/33", "/129", "/+8", "255.255.255.255"];
    values::cni_args &[";", "=", "IgnoreUnknown=1", "IgnoreUnknown=TRUE", "IP=10.0.0.1", "K8S_POD_NAME="];
    netlink::netlink_read &["\0", "\u{10}\0\0\0", "\u{4}\0", "\u{8}\0", "\u{1}\0\0\0", "\u{7f}"];
    netlink::netlink_objects &["\0", "\u{1}", "\u{7f}"];
    netlink::kernel_values &["/", ".", "..", "\n", "\0", ":", "-", "0a", "->", "FLOCK", " ", "fe:00:12"];
    nft::nft_replies &["\0", "\u{4}\0", "\u{8}\0", "meta\0", "cmp\0", "lookup\0", "bitwise\0", "masq\0", "immediate\0"];
    kit::quantity &["-", "+", ".", "0", "9", "1e9", "E-", "e99999999999", "Ki", "Ei", "n", "u", "m", "k", "00000000000000000000"];
    kit::kit_answer CONFIG;
    kit::kit_config NETWORK;
    kit::kit_mounts &[" ", "\n", "\\040", "\\777", "\\", "rw", "nosuid", ",", "/", " - "];
    values::error_object &["\"code\":", "\"msg\":", "\"details\":", "null", "0", "999", "4294967296", "\"\"", "\\n"];
}
