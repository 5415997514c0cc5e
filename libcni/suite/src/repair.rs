//! Repair, an extension of CHECK: a key of ours in the config has CHECK report all differences, and write what is missing on
//! the node anew.
//!
//! Plugins of others do not know the key, so their CHECK is the usual one, prints nothing, and changes nothing.

use cni_spec::{CniError, Code, ConfObject, json};
use serde::{Deserialize, Serialize};

/// The key, with one of the words of [`Repair`].
pub const REPAIR: &str = "cni-plugins/repair";

/// How far a repair goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Only reports what would be repaired.
    Show,
    /// Writes what is missing.
    Write,
}

impl Repair {
    /// The key's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Show => "show",
            Self::Write => "write",
        }
    }

    /// The repair that CHECK is asked for by this config; `None`: it only compares.
    ///
    /// # Errors
    /// Code 7: another word.
    pub fn find_in(conf: &ConfObject) -> Result<Option<Self>, CniError> {
        let Some(word) = conf.get::<String>(&[REPAIR])? else { return Ok(None) };
        match [Self::Show, Self::Write].into_iter().find(|repair| repair.as_str() == word) {
            Some(repair) => Ok(Some(repair)),
            None => Err(CniError::invalid_key(REPAIR, format!("{word:?}"), "want show or write")),
        }
    }
}

/// What a plugin prints: how the node differs from what ADD left, a sentence each.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Repaired {
    /// The differences that were repaired, or that would be.
    pub repaired: Vec<String>,
    /// The differences that stay, each with the reason if that is not the same for all: what is in the container is never
    /// changed.
    pub left: Vec<String>,
}

impl Repaired {
    /// The report as JSON text.
    #[must_use]
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }

    /// Reads what a plugin printed; `None`: it printed nothing, so it does not know the key.
    ///
    /// # Errors
    /// Code 108: it printed something else.
    pub fn parse(stdout: &[u8]) -> Result<Option<Self>, CniError> {
        if stdout.trim_ascii().is_empty() {
            return Ok(None);
        }
        let unusable = |why: &str| CniError::new(Code::DELEGATE, format!("cannot use the report of a repair: {why}"));
        let value = json::parse(stdout).map_err(|error| unusable(&error.msg))?;
        json::decode(&value).map(Some).map_err(|error| unusable(&error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_has_two_words() {
        let conf = |key: &str| ConfObject::parse(format!(r#"{{"name":"n"{key}}}"#).as_bytes()).unwrap();
        let repair = |key: &str| Repair::find_in(&conf(key));
        assert_eq!(repair("").unwrap(), None);
        for word in [Repair::Show, Repair::Write] {
            assert_eq!(repair(&format!(r#","cni-plugins/repair":"{}""#, word.as_str())).unwrap(), Some(word));
        }
        for other in [r#""all""#, "true", "[]"] {
            let key = format!(r#","cni-plugins/repair":{other}"#);
            assert_eq!(repair(&key).unwrap_err().code, Code::INVALID_CONFIG, "{other}");
        }
    }

    #[test]
    fn a_report_survives_the_wire_and_silence_is_none() {
        let report = Repaired { repaired: vec!["a".to_owned()], left: vec!["b".to_owned()] };
        assert_eq!(Repaired::parse(report.to_json().as_bytes()).unwrap(), Some(report));
        assert_eq!(Repaired::parse(b" \n").unwrap(), None);
        assert_eq!(Repaired::parse(b"hello").unwrap_err().code, Code::DELEGATE);
    }
}
