//! Values of options and words, with errors that say what is wanted.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::SystemTime;

/// Parses a path that may be empty, as a variable can be: it counts as absent then, as with the reference.
pub(super) fn maybe_empty() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// Parses a time. In no time a plugin does nothing, nor does a rollback.
pub(super) fn seconds(word: &str) -> Result<u64, String> {
    match word.parse::<u64>() {
        Ok(0) => Err("a plugin needs at least a second".to_owned()),
        parsed => parsed.map_err(|_err| "it is a number of seconds, such as 30".to_owned()),
    }
}

pub(super) fn count(word: &str) -> Result<usize, String> {
    word.parse().map_err(|_err| "it is a number, such as 20".to_owned())
}

/// Parses an address as network files have it.
pub(super) fn address(word: &str) -> Result<IpAddr, String> {
    libcni::cni_spec::json::parse_ip(word).map_err(|_err| {
        let has_prefix = word.split_once('/').is_some_and(|(address, _)| address.parse::<IpAddr>().is_ok());
        match has_prefix {
            true => "it is an address without a prefix length, such as 10.1.0.7".to_owned(),
            false => "it is an IP address, such as 10.1.0.7".to_owned(),
        }
    })
}

/// Parses an address, or a container's name, which has letters that addresses do not have or none of their marks.
pub(super) fn address_or_name(word: &str) -> Result<String, String> {
    let has_mark = word.contains(['.', ':']) && word.chars().all(|c| c.is_ascii_hexdigit() || ".:/".contains(c));
    if has_mark { address(word).map(|address| address.to_string()) } else { Ok(word.to_owned()) }
}

/// Parses a time, or how long ago it was.
pub(super) fn since(word: &str) -> Result<SystemTime, String> {
    let ago = humantime::parse_duration(word).ok().and_then(|ago| SystemTime::now().checked_sub(ago));
    let at =
        || humantime::parse_rfc3339_weak(word).or_else(|_| humantime::parse_rfc3339_weak(&format!("{word} 00:00:00")));
    ago.or_else(|| at().ok()).ok_or_else(|| "it is a time, such as 10m or 2026-03-01T12:00:00Z".to_owned())
}

/// Parses an address of the loopback: other hosts are not to see the page.
pub(super) fn loopback(word: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        word.parse().map_err(|_err| "it is an address and a port, such as 127.0.0.1:9990".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("it is no loopback address; use a proxy that knows its clients".to_owned()),
    }
}
