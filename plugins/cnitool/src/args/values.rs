//! Values of options and words, with errors that say what is wanted.

use clap::builder::{OsStringValueParser, TypedValueParser};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

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

/// Parses a number of lines.
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

/// Parses an address of the loopback: other hosts are not to see the page.
pub(super) fn loopback(word: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr =
        word.parse().map_err(|_err| "it is an address and a port, such as 127.0.0.1:9990".to_owned())?;
    match address.ip().is_loopback() {
        true => Ok(address),
        false => Err("it is no loopback address; use a proxy that knows its clients".to_owned()),
    }
}
