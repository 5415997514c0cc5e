//! The small values of the protocol: names, versions, addresses, `CNI_ARGS`, the error object.

use crate::invariants;
use cni_spec::json::{self, parse_cidr, parse_ip};
use cni_spec::version::parse_number;
use cni_spec::{CniArgs, CniError, Command, ContainerId, IfName, NetworkName, PluginPath, PluginType, SpecVersion};
use std::net::IpAddr;
use std::path::Path;

/// The names that become parts of paths, rules and interfaces.
pub fn names(data: &[u8]) {
    let text = &*invariants::text(data);
    let container = ContainerId::parse(text).map(|name| assert_eq!(name.as_str(), text));
    let network = NetworkName::parse(text).map(|name| assert_eq!(name.as_str(), text));
    assert_eq!(container.is_ok(), network.is_ok(), "one rule for both");
    if container.is_ok() {
        invariants::stays_in_its_folder(text);
        assert!(text.as_bytes()[0].is_ascii_alphanumeric(), "not hidden, and no option of a command");
    }
    let ifname = IfName::parse(text);
    if ifname.is_ok() {
        invariants::stays_in_its_folder(text);
        assert!(kernel_takes(text.as_bytes()), "the kernel refuses {text:?}");
    }
    let plugin = PluginType::parse(text);
    if let Ok(plugin) = &plugin {
        invariants::stays_in_its_folder(text);
        invariants::is_sound(&PluginPath::default().find_executable(plugin).expect_err("there are no folders"));
    }
    let errors = [container.err(), network.err(), ifname.err(), plugin.err()];
    errors.iter().flatten().for_each(invariants::is_sound);
    if let Some(command) = Command::find(text) {
        assert_eq!(command.as_str(), text);
    }
    path(text);
}

/// `dev_valid_name` of net/core/dev.c; its `isspace` is lib/ctype.c's, which counts 0xa0 as a space.
fn kernel_takes(name: &[u8]) -> bool {
    let is_space = |byte: &u8| matches!(byte, 9..=13 | b' ' | 0xa0);
    let is_bad = |byte: &u8| matches!(byte, b'/' | b':' | 0) || is_space(byte);
    !name.is_empty() && name.len() < 16 && !matches!(name, b"." | b"..") && !name.iter().any(is_bad)
}

/// `CNI_PATH`: no part of it means the working directory, and it is passed on as it came.
fn path(text: &str) {
    let path = PluginPath::parse(text);
    assert!(path.dirs().iter().all(|dir| dir.as_path() != Path::new("")));
    assert_eq!(PluginPath::parse(&path.to_string()), path);
}

pub fn version(data: &[u8]) {
    let text = &*invariants::text(data);
    let number = match parse_number(text) {
        Ok(number) => number,
        Err(error) => {
            assert_eq!(SpecVersion::find(text), None, "a known version is a number");
            return invariants::is_sound(&error);
        }
    };
    let (major, minor, patch) = number;
    assert_eq!(parse_number(&format!("{major}.{minor}.{patch}")).ok(), Some(number));
    assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'), "{text:?} is no number");
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(0));
    let mut next = || parts.next().unwrap_or(0);
    assert!(text.is_empty() || number == (next(), next(), next()), "{text:?} is not {number:?}");
    let Some(version) = SpecVersion::find(text) else { return };
    for other in SpecVersion::ALL {
        let other_number = parse_number(other.as_str()).expect("a known version is a number");
        assert_eq!(version.cmp(&other), number.cmp(&other_number), "{version} and {other}");
    }
}

/// Addresses: what is accepted is strict, and prints as a text that is read as the same address.
pub fn address(data: &[u8]) {
    let text = &*invariants::text(data);
    if let Ok(ip) = parse_ip(text) {
        assert_eq!(parse_ip(&ip.to_string()), Ok(ip));
        assert!(!is_lax(text), "{text:?} is laxer than Go's rules");
    }
    if let Ok(network) = parse_cidr(text) {
        assert_eq!(parse_cidr(&network.to_string()), Ok(network));
        let (address, prefix) = text.split_once('/').expect("there is a prefix");
        assert!(!is_lax(address), "{text:?} is laxer than Go's rules");
        let address: IpAddr = address.parse().expect("an address is before the prefix");
        // Of an IPv4 address that is written as IPv6 the prefix counts the mapping's 96 bits.
        let mapping_bits = if address.is_ipv6() && network.is_ipv4() { 96 } else { 0 };
        // For Go, too, the prefix may have leading zeros, and nothing else.
        assert!(prefix.bytes().all(|byte| byte.is_ascii_digit()), "{text:?} is laxer than Go's rules");
        assert_eq!(prefix.parse(), Ok(network.prefix() + mapping_bits));
        assert!(network.ip() == address || network.ip() == address.to_canonical(), "host bits are kept");
    }
}

/// Signs, zones, leading zeros in decimal parts, and whatever else is neither a digit nor a mark.
fn is_lax(address: &str) -> bool {
    let dotted = address.rsplit(':').next().filter(|part| part.contains('.')).unwrap_or_default();
    let has_leading_zero = dotted.split('.').any(|part| part.len() > 1 && part.starts_with('0'));
    has_leading_zero || !address.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b'.' | b':'))
}

/// `CNI_ARGS`: printed as it was read.
pub fn cni_args(data: &[u8]) {
    let text = &*invariants::text(data);
    let args = match CniArgs::parse(text) {
        Ok(args) => args,
        Err(error) => return invariants::is_sound(&error),
    };
    assert_eq!(args.to_string(), text);
    let keys: Vec<&str> = args.pairs().iter().map(|(key, _)| key.as_str()).collect();
    for (key, value) in args.pairs() {
        assert!(![key, value].iter().any(|part| part.contains([';', '='])));
        let last = args.pairs().iter().rev().find(|(other, _)| other == key).map(|(_, value)| value.as_str());
        assert_eq!(args.find(key), last, "the last of several counts");
    }
    args.expect_known(&keys).expect("its own keys are known to it");
    if let Err(error) = args.expect_known(&[]) {
        assert!(!args.ignores_unknown());
        invariants::is_sound(&error);
    }
}

/// The error object: what is read as one is one in every version.
pub fn error_object(data: &[u8]) {
    let Some(error) = CniError::find_in(data) else { return };
    let value = json::parse(data).expect("an error object is JSON");
    for (key, read) in [("msg", &error.msg), ("details", &error.details)] {
        let keys = value.as_object().into_iter().flatten().filter(|(name, _)| name.eq_ignore_ascii_case(key));
        let texts: Vec<&str> = keys.filter_map(|(_, value)| value.as_str()).collect();
        assert_eq!(texts.last().copied().unwrap_or_default(), read, "{key} is the text that was sent");
    }
    for version in SpecVersion::ALL {
        assert_eq!(CniError::find_in(error.to_json(version).as_bytes()).as_ref(), Some(&error));
    }
    let joined = CniError::join(vec![error.clone(), error.clone()]).expect("there are two");
    assert_eq!((joined.code, &joined.msg), (error.code, &error.msg));
    assert!(joined.details.starts_with(&error.details) && joined.details.ends_with(&format!("{error}.")));
}
