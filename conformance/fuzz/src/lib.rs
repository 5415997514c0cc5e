//! Properties that must hold of every decoder, for any bytes: one function a decoder, which panics when they do not.
//!
//! Nothing here generates input. `tests/corpus.rs` gives each function its folder below `corpus/` and some
//! thousand variations of that, on every `cargo test`; `libfuzzer/` gives it what coverage guides to. The README says
//! how to run the latter, and what to do with an input that fails.
//!
//! A function asks for more than the absence of a crash: what is accepted must hold what its type promises, and must
//! survive being written and read again; what is refused must be refused by an error that survives the wire.

mod dhcp;
mod host_local;
mod invariants;
mod json;
mod kit;
mod netlink;
mod plugins;
mod result;
mod runtime;
mod values;

#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// The name of the corpus folder, and of the decoder in `FUZZ_TARGET`.
    pub name: &'static str,
    /// Panics if something does not hold for these bytes.
    pub run: fn(&[u8]),
    /// Parts that its input is made of, for variations that a random byte would not find.
    pub tokens: Tokens,
}

#[derive(Debug, Clone, Copy)]
pub enum Tokens {
    Each(&'static [&'static str]),
    Lines(&'static str),
}

impl Tokens {
    pub fn list(self) -> Vec<&'static str> {
        match self {
            Tokens::Each(tokens) => tokens.to_vec(),
            Tokens::Lines(text) => text.lines().collect(),
        }
    }
}

/// Declares [`TARGETS`] and gives each function a public name.
macro_rules! targets {
    ($($module:ident::$name:ident $tokens:expr;)*) => {
        $(pub use $module::$name;)*

        pub const TARGETS: &[Target] = &[$(Target { name: stringify!($name), run: $name, tokens: $tokens }),*];
    };
}

/// Keys and values of configs and results.
const CONFIG: Tokens = Tokens::Lines(include_str!("../tokens/config"));

/// Keys and values of plugins' own configs.
const PLUGIN: Tokens = Tokens::Lines(include_str!("../tokens/plugin"));

/// Keys and values of network configurations and cache files.
const NETWORK: Tokens = Tokens::Lines(include_str!("../tokens/network"));

targets! {
    json::stdin CONFIG;
    json::tolerance CONFIG;
    result::add_result CONFIG;
    runtime::network_conf NETWORK;
    runtime::cache_entry NETWORK;
    runtime::capability_args NETWORK;
    runtime::version_reply Tokens::Each(&["\"cniVersion\":", "\"supportedVersions\":", "\"0.2.0\"", "\"1.1.0\"", "\"\"", "[]", "null", ","]);
    host_local::host_local_conf PLUGIN;
    host_local::reservation Tokens::Each(&["\r\n", "\n", " ", "\0", "c1", "eth0", "10.0.0.1", "fd00::1", "::ffff:", "IP=", "/24", "1000 "]);
    host_local::resolv_conf Tokens::Each(&["nameserver ", "domain ", "search ", "options ", "#", ";", "\n", "\r", "\t", "\u{85}", "\u{2028}"]);
    host_local::index Tokens::Each(&["\0", "\u{1}", "\u{7f}", "\u{40}"]);
    plugins::bridge_conf PLUGIN;
    plugins::control_file Tokens::Each(&["\"ReportResult\":", "\"reporterror\":", "\"CmdArgs\":", "{}", "null", "\"\"", "-1", "256", "[]", ","]);
    plugins::environment Tokens::Each(&["\n", "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION", "..", "/", "true", ":"]);
    plugins::iptables_save Tokens::Each(&["-A ", "-s ", "-d ", "-j ", "! ", "--comment ", "\"", "\\", " ", "\n", "\r", ":CNI-30c3d21661b09680d9d23573 "]);
    dhcp::dhcp_answer Tokens::Each(&["c\u{2}Sc", "5\u{1}\u{2}", "5\u{1}\u{5}", "6\u{4}\n\u{8}\0\u{1}", "\u{1}\u{4}\u{7f}\0\0\0", "3\u{4}\0\0\0\u{2}", ":\u{4}\0\0\0\0", ";\u{4}\0\0\0\u{9}", "4\u{1}\u{3}", "y\u{5}\0\n\u{8}\0\u{1}", "w\u{5}\u{1}a\0", "\u{f}\u{3}a\nb", "\0"]);
    dhcp::dhcp_ipv6_answer Tokens::Each(&["\u{7}\0\0\u{5}", "\0\u{1}\0\u{3}\0\u{4}\u{7}", "\0\u{2}\0\u{1}\u{8}", "\0\u{3}\0\u{28}\0\0\0\u{9}\0\0\0\0\0\0\0\0", "\0\u{5}\0\u{18}", "\0\r\0\u{2}\0\u{3}", "\0\u{17}\0\u{10}", "\0\u{18}\0\u{3}\u{1}a\0", "\u{7f}", "\0"]);
    dhcp::dhcp_request Tokens::Each(&["\"cniDhcp\":", "\"verb\":", "\"add\"", "\"gc\"", "\"list\"", "\"names\":", "\"sandbox\":", "\"provide\":", "[[12,[97]]]", "\"extras\":", "null", "[]", "{}", ",", "-1", "256"]);
    values::names Tokens::Each(&[".", "..", "/", ":", "\0", "\n", "\u{a0}", "\u{2028}", "0123456789abcdef"]);
    values::version Tokens::Each(&[".", "0", "1.1.0", "4294967296", "+1", "-", " "]);
    values::address Tokens::Each(&["/", ".", ":", "::", "::ffff:", "%eth0", "0", "00", "/0", "/33", "/129", "/+8", "255.255.255.255"]);
    values::cni_args Tokens::Each(&[";", "=", "IgnoreUnknown=1", "IgnoreUnknown=TRUE", "IP=10.0.0.1", "K8S_POD_NAME="]);
    netlink::netlink_read Tokens::Each(&["\0", "\u{10}\0\0\0", "\u{4}\0", "\u{8}\0", "\u{1}\0\0\0", "\u{7f}"]);
    netlink::netlink_objects Tokens::Each(&["\0", "\u{1}", "\u{7f}"]);
    netlink::kernel_values Tokens::Each(&["/", ".", "..", "\n", "\0", ":", "-", "0a", "->", "FLOCK", " ", "fe:00:12"]);
    netlink::nft_replies Tokens::Each(&["\0", "\u{4}\0", "\u{8}\0", "meta\0", "cmp\0", "lookup\0", "bitwise\0", "masq\0", "immediate\0"]);
    kit::kit_answer CONFIG;
    kit::kit_config NETWORK;
    kit::kit_mounts Tokens::Each(&[" ", "\n", "\\040", "\\777", "\\", "rw", "nosuid", ",", "/", " - "]);
    values::error_object Tokens::Each(&["\"code\":", "\"msg\":", "\"details\":", "null", "0", "999", "4294967296", "\"\"", "\\n"]);
}
