//! The administrator's list of sysctls that networks may set. Without the file they may set any below net.

use std::io::ErrorKind;

use cni_spec::{CniError, Code};
use regex_lite::Regex;

use crate::conf::Sysctls;

/// The reference's file: a regular expression a line, that a key has to match anywhere.
pub const PATH: &str = "/etc/cni/tuning/allowlist.conf";

/// Refuses sysctls that the list does not allow.
///
/// # Errors
/// Code 7 with the key, as it is in the config; code 5: the list cannot be read, or has a line that is no expression.
pub fn require(sysctls: &Sysctls) -> Result<(), CniError> {
    if sysctls.0.is_empty() {
        return Ok(());
    }
    match std::fs::read_to_string(PATH) {
        Ok(text) => require_in(&text, sysctls),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(CniError::new(Code::IO, format!("cannot read {PATH}: {error}"))),
    }
}

fn require_in(text: &str, sysctls: &Sysctls) -> Result<(), CniError> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let compiled: Result<Vec<Regex>, CniError> = lines.map(compile).collect();
    let allowed = compiled?;
    match sysctls.0.iter().find(|(name, _)| !allowed.iter().any(|line| line.is_match(name))) {
        None => Ok(()),
        Some((name, _)) => {
            let msg = format!("cannot use network config: key sysctl.{name:?}: {PATH} does not allow it");
            let lines: Vec<&str> = allowed.iter().map(Regex::as_str).collect();
            Err(CniError::new(Code::INVALID_CONFIG, msg).detail(format!("It allows: {}.", lines.join(", "))))
        }
    }
}

fn compile(line: &str) -> Result<Regex, CniError> {
    Regex::new(line).map_err(|error| {
        CniError::new(Code::IO, format!("cannot use {PATH}: line {line:?} is no regular expression: {error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sysctl_matches_one_of_the_lines() {
        let of = |names: &[&str]| Sysctls(names.iter().map(|name| ((*name).to_owned(), "1".to_owned())).collect());
        let list = "^net\\.ipv4\\.conf\\.IFNAME\\.[a-z_]*$\n\n  somaxconn\n";
        require_in(list, &of(&["net.ipv4.conf.IFNAME.arp_notify", "net/core/somaxconn"])).unwrap();
        let error = require_in(list, &of(&["net/core/somaxconn", "net.ipv4.ip_forward"])).unwrap_err();
        assert!(error.msg.contains(r#"sysctl."net.ipv4.ip_forward""#), "{error}");
        assert!(require_in("", &of(&["net.core.somaxconn"])).is_err());
        let error = require_in("a(", &of(&["net.core.somaxconn"])).unwrap_err();
        assert!(error.msg.contains(r#"line "a(""#), "{error}");
    }
}
