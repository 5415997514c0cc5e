//! The nftables ruleset of a namespace, read raw: enough to see what changed.
//!
//! Attributes are shown by number, as the uapi header counts them; `nft list ruleset` shows more
//! where it is installed.

use std::fmt::Write;

use netlink_packet_core::{NlaBuffer, NlasIterator};
use nix::sys::socket::SockProtocol;

use crate::Namespace;
use crate::must::Must;
use crate::netlink::{Attributes, Message, Socket, netfilter_body, text};

const NFNL_SUBSYS_NFTABLES: u16 = 10 << 8;
const NFT_MSG_GETTABLE: u16 = 1;
const NFT_MSG_DELTABLE: u16 = 2;
const NFT_MSG_GETCHAIN: u16 = 4;
const NFT_MSG_GETRULE: u16 = 7;
const NFT_MSG_GETSET: u16 = 10;
const NFT_MSG_GETSETELEM: u16 = 13;
const NFT_MSG_GETOBJ: u16 = 19;
const NFT_MSG_GETFLOWTABLE: u16 = 23;

const NFGENMSG: usize = 4;

/// A kind of nf_tables object: the request that lists it, and the attributes to skip, which count or number objects and change when
/// other objects come and go.
struct Kind {
    name: &'static str,
    get: u16,
    skip: &'static [u16],
    expressions: Option<u16>,
}

const KINDS: [Kind; 5] = [
    Kind { name: "table", get: NFT_MSG_GETTABLE, skip: &[3, 4], expressions: None },
    Kind { name: "chain", get: NFT_MSG_GETCHAIN, skip: &[2, 6, 8], expressions: None },
    Kind { name: "rule", get: NFT_MSG_GETRULE, skip: &[3, 6], expressions: Some(4) },
    Kind { name: "object", get: NFT_MSG_GETOBJ, skip: &[4, 5, 6], expressions: None },
    Kind { name: "flowtable", get: NFT_MSG_GETFLOWTABLE, skip: &[4, 5], expressions: None },
];

impl Namespace {
    /// The nftables ruleset, a line an object: `nft rule inet ...`.
    #[track_caller]
    pub fn nft(&self) -> Vec<String> {
        self.enter(ruleset)
    }

    /// Deletes the whole nftables ruleset, as `nft flush ruleset` does.
    #[track_caller]
    pub fn flush_nft(&self) {
        self.step_inside("nft flush ruleset");
        let flush = || {
            let mut socket = Socket::open(SockProtocol::NetlinkNetFilter)?;
            // Of no family and without a name: each table of each family.
            socket.change_netfilter(&[(NFNL_SUBSYS_NFTABLES | NFT_MSG_DELTABLE, 0, &[0; NFGENMSG])])
        };
        self.enter(flush).must(format_args!("flush the nftables ruleset in {}", self.path().display()));
    }
}

/// The ruleset of the thread's namespace; empty where the kernel has no nftables.
pub(crate) fn ruleset() -> Vec<String> {
    let Ok(mut socket) = Socket::open(SockProtocol::NetlinkNetFilter) else {
        return Vec::new();
    };
    let mut lines = Vec::new();
    for kind in &KINDS {
        lines.extend(dump(&mut socket, kind.get).iter().map(|message| object(kind, &message.body)));
    }
    for set in dump(&mut socket, NFT_MSG_GETSET) {
        lines.extend(set_lines(&mut socket, &set.body));
    }
    lines
}

fn dump(socket: &mut Socket, get: u16) -> Vec<Message> {
    // Without nftables, or without this kind of object, there is nothing to list.
    socket.dump(NFNL_SUBSYS_NFTABLES | get, &[0; NFGENMSG]).unwrap_or_default()
}

fn object(kind: &Kind, body: &[u8]) -> String {
    let mut line = format!("nft {} {}", kind.name, family(body));
    for (number, value) in Attributes::after(body, NFGENMSG).iter() {
        if kind.expressions == Some(number) {
            line.push_str(&expressions(value));
        } else if !kind.skip.contains(&number) {
            push(&mut line, number, value);
        }
    }
    line
}

fn set_lines(socket: &mut Socket, body: &[u8]) -> Vec<String> {
    let set = Attributes::after(body, NFGENMSG);
    let (table, name) = (set.string(1).unwrap_or_default(), set.string(2).unwrap_or_default());
    let mut lines = vec![format!("nft set {} {table} {name}", family(body))];
    for (number, value) in set.iter().filter(|(number, _)| ![1, 2, 10, 16, 19, 20].contains(number)) {
        push(&mut lines[0], number, value);
    }
    let request = netfilter_body(body.first().copied().unwrap_or_default(), &[text(1, &table), text(2, &name)]);
    let get = NFNL_SUBSYS_NFTABLES | NFT_MSG_GETSETELEM;
    for message in socket.dump(get, &request).unwrap_or_default() {
        let elements = Attributes::after(&message.body, NFGENMSG).nested(3);
        for (_, element) in elements.iter() {
            let mut line = format!("nft element {} {table} {name}", family(body));
            // 5 is the time left.
            for (number, value) in Attributes(element).iter().filter(|(number, _)| *number != 5) {
                push(&mut line, number, value);
            }
            lines.push(line);
        }
    }
    lines
}

/// Expressions of a rule by name, without what counters have counted.
fn expressions(list: &[u8]) -> String {
    let mut text = String::new();
    for (_, expression) in Attributes(list).iter() {
        let expression = Attributes(expression);
        let name = expression.string(1).unwrap_or_default();
        let mut data = String::new();
        if name != "counter" {
            for (number, value) in expression.nested(2).iter() {
                push(&mut data, number, value);
            }
        }
        write!(text, " {name}({})", data.trim_start()).must("write to a string");
    }
    text
}

fn push(line: &mut String, number: u16, value: &[u8]) {
    let value = render(value);
    write!(line, " {number}={value}").must("write to a string");
}

/// A value as text, as nested attributes, or as hex, whichever fits.
fn render(value: &[u8]) -> String {
    let printable = |byte: &u8| (0x20..0x7f).contains(byte);
    if let [text @ .., 0] = value
        && !text.is_empty()
        && text.iter().all(printable)
    {
        return format!("{:?}", String::from_utf8_lossy(text));
    }
    if is_nested(value) {
        let mut inner = String::new();
        for (number, value) in Attributes(value).iter() {
            push(&mut inner, number, value);
        }
        return format!("{{{}}}", inner.trim_start());
    }
    if value.windows(3).any(|three| three.iter().all(printable)) {
        return format!("\"{}\"", without_zeros(value, |byte| byte.escape_ascii().to_string())); // a comment in user data
    }
    without_zeros(value, |byte| format!("{byte:02x}"))
}

/// Bytes as text, with the number of zeros in place of many: structures of iptables are kilobytes of them.
fn without_zeros(value: &[u8], shown: impl Fn(u8) -> String) -> String {
    const MANY: usize = 8;
    let mut text = String::new();
    for run in value.chunk_by(|one, other| (*one == 0) == (*other == 0)) {
        match run {
            [0, ..] if run.len() >= MANY => text.push_str(&format!("[{} zeros]", run.len())),
            run => text.extend(run.iter().map(|byte| shown(*byte))),
        }
    }
    text
}

/// Whether the bytes are attributes to the last one: the kernel does not mark nests here.
fn is_nested(value: &[u8]) -> bool {
    let is_numbered = |attribute: NlaBuffer<&[u8]>| (1..=64).contains(&attribute.kind());
    !value.is_empty() && NlasIterator::new(value).all(|attribute| attribute.is_ok_and(is_numbered))
}

fn family(body: &[u8]) -> &'static str {
    match body.first() {
        Some(1) => "inet",
        Some(2) => "ip",
        Some(3) => "arp",
        Some(5) => "netdev",
        Some(7) => "bridge",
        Some(10) => "ip6",
        _ => "?",
    }
}
