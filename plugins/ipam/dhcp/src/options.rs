//! DHCP options by name and number (RFC 2132), and those that a network's config provides and requests.

use cni_spec::{Attachment, CniArgs, CniError, Code};
use serde::Deserialize;

/// Longest value of a provided option, in bytes, as in the reference.
pub const VALUE_BYTES_MAX: usize = 255;

/// Longest client identifier behind its type byte, in bytes.
const CLIENT_ID_BYTES_MAX: usize = 254;

/// Numbers of the options that this plugin reads or writes.
pub mod code {
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTERS: u8 = 3;
    pub const NAME_SERVERS: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN: u8 = 15;
    pub const MTU: u8 = 26;
    pub const STATIC_ROUTES: u8 = 33;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_SECONDS: u8 = 51;
    /// Option overload: `file`, `sname` or both hold options, too.
    pub const OVERLOAD: u8 = 52;
    pub const MESSAGE_TYPE: u8 = 53;
    pub const SERVER: u8 = 54;
    /// The options that the client asks for.
    pub const REQUEST_LIST: u8 = 55;
    /// Why a server refuses.
    pub const MESSAGE: u8 = 56;
    /// Largest message that the client takes.
    pub const MESSAGE_BYTES_MAX: u8 = 57;
    pub const RENEW_SECONDS: u8 = 58;
    pub const REBIND_SECONDS: u8 = 59;
    pub const VENDOR_CLASS: u8 = 60;
    pub const CLIENT_ID: u8 = 61;
    pub const USER_CLASS: u8 = 77;
    /// Domain search list (RFC 3397).
    pub const DOMAIN_SEARCH: u8 = 119;
    /// Classless static routes (RFC 3442).
    pub const CLASSLESS_ROUTES: u8 = 121;
}

/// The names that the reference knows. Any other option is a number.
const NAMES: [(&str, u8); 6] = [
    ("dhcp-client-identifier", code::CLIENT_ID),
    ("subnet-mask", code::SUBNET_MASK),
    ("routers", code::ROUTERS),
    ("host-name", code::HOST_NAME),
    ("user-class", code::USER_CLASS),
    ("vendor-class-identifier", code::VENDOR_CLASS),
];

/// The options requested unless an entry of `request` says `skipDefault`. The reference requests the first two.
const REQUESTED: [u8; 5] = [code::ROUTERS, code::SUBNET_MASK, code::NAME_SERVERS, code::DOMAIN, code::DOMAIN_SEARCH];

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Provided {
    pub option: String,
    pub value: String,
    /// The key of `CNI_ARGS` that has its value, if `value` is empty.
    pub from_arg: String,
}

#[derive(Debug, Clone, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Requested {
    pub option: String,
    /// Only what `request` names is requested.
    pub skip_default: bool,
}

pub fn number(key: &str, text: &str) -> Result<u8, CniError> {
    if let Some((_, number)) = NAMES.iter().find(|(name, _)| *name == text) {
        return Ok(*number);
    }
    let known: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
    text.parse().ok().filter(|number| (1..=254).contains(number)).ok_or_else(|| {
        CniError::new(Code::INVALID_CONFIG, format!("cannot use key {key} = {text:?}: it is no DHCP option"))
            .at_key(key)
            .detail(format!("Use a number from 1 to 254, or one of {}.", known.join(", ")))
    })
}

/// The options of `provide` with their values. A key that `CNI_ARGS` has comes before a value; an option with neither is left
/// out, as in the reference.
pub fn provided(provide: &[Provided], args: &CniArgs) -> Result<Vec<(u8, Vec<u8>)>, CniError> {
    provide
        .iter()
        .filter_map(|entry| {
            let given = Some(&*entry.value).filter(|value| !value.is_empty());
            let of_args = || args.find(&entry.from_arg).filter(|_| !entry.from_arg.is_empty());
            Some((entry, of_args().or(given)?))
        })
        .map(|(entry, value)| {
            let number = number("ipam.provide.option", &entry.option)?;
            if value.len() > VALUE_BYTES_MAX {
                let msg = format!(
                    "cannot provide DHCP option {}: its value has {} bytes, at most {VALUE_BYTES_MAX} are possible",
                    entry.option,
                    value.len()
                );
                return Err(CniError::new(Code::INVALID_CONFIG, msg));
            }
            Ok((number, value.as_bytes().to_vec()))
        })
        .collect()
}

pub fn requested(request: &[Requested]) -> Result<Vec<u8>, CniError> {
    let skips = request.iter().any(|entry| entry.skip_default);
    let mut numbers = if skips { Vec::new() } else { REQUESTED.to_vec() };
    for entry in request.iter().filter(|entry| !entry.option.is_empty()) {
        let number = number("ipam.request.option", &entry.option)?;
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// The client identifier of an attachment, with its type byte 0 (RFC 2132, 9.14): servers know the lease by it.
pub(crate) fn client_id(attachment: &Attachment) -> Vec<u8> {
    let text = format!("{}/{}/{}", attachment.container_id, attachment.network, attachment.ifname);
    let text = &text.as_bytes()[..text.len().min(CLIENT_ID_BYTES_MAX)];
    [&[0], text].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_is_a_name_or_a_number() {
        assert_eq!(number("k", "routers").unwrap(), 3);
        assert_eq!(number("k", "121").unwrap(), 121);
        for bad in ["", "0", "255", "256", "-1", "gateway"] {
            let error = number("ipam.request.option", bad).unwrap_err();
            assert!(error.msg.starts_with(&format!("cannot use key ipam.request.option = {bad:?}: ")), "{error}");
        }
    }

    #[test]
    fn client_identifier_has_254_bytes_at_most() {
        let attachment = Attachment::parse("net", "c1", "eth0").unwrap();
        assert_eq!(client_id(&attachment), b"\0c1/net/eth0");
        let long = Attachment::parse("net", &"c".repeat(255), "eth0").unwrap();
        assert_eq!(client_id(&long).len(), 255);
    }
}
