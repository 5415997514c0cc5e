//! An Ethernet address that config or runtime ask for.

use cni_spec::{CniError, Code};
use netops::link::Mac;

/// Parses a requested address; an empty text asks for none.
///
/// # Errors
/// Code 7 naming where it came from: no Ethernet address, or one that no single interface may have.
pub fn parse_requested(key: &str, text: &str) -> Result<Option<Mac>, CniError> {
    if text.is_empty() {
        return Ok(None);
    }
    let invalid = |why: String| CniError::new(Code::INVALID_CONFIG, format!("cannot use {key} = {text:?}: {why}"));
    let mac: Mac = text.parse().map_err(|error: netops::link::MacError| invalid(error.to_string()))?;
    if mac.0[0] & 1 == 1 {
        return Err(invalid("it is a multicast address".into()));
    }
    if mac.0 == [0; 6] {
        return Err(invalid("it is the address of nobody".into()));
    }
    Ok(Some(mac))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_one_interface() {
        assert_eq!(parse_requested("mac", "").unwrap(), None);
        assert_eq!(parse_requested("mac", "0A:00:00:00:00:05").unwrap(), Some(Mac([10, 0, 0, 0, 0, 5])));
        for bad in ["x", "01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"] {
            let error = parse_requested("runtimeConfig.mac", bad).unwrap_err();
            assert!(error.msg.starts_with(&format!("cannot use runtimeConfig.mac = {bad:?}: ")), "{error}");
        }
    }
}
