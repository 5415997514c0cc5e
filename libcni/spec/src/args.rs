//! `CNI_ARGS`: `K=V;K=V` (CONVENTIONS, "CNI_ARGS", deprecated there; runtimes still send it).

use crate::error::{CniError, Code};

/// The pairs of `CNI_ARGS`, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CniArgs(Vec<(String, String)>);

impl CniArgs {
    /// Parses `K=V;K=V`; empty text means no pairs. Every part has exactly one `=`, so a trailing `;` is an error.
    ///
    /// # Errors
    /// Code 4 naming the part.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        if text.is_empty() {
            return Ok(Self::default());
        }
        text.split(';').map(parse_pair).collect::<Result<_, _>>().map(Self)
    }

    /// The pairs for a call.
    #[must_use]
    pub fn from_pairs(pairs: Vec<(String, String)>) -> Self {
        Self(pairs)
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// Code 4 if key or value has a `;` or `=`, which would read as another pair, or the key is empty.
    pub fn push(&mut self, key: &str, value: &str) -> Result<(), CniError> {
        if key.is_empty() || [key, value].iter().any(|text| text.contains([';', '=', '\0'])) {
            return Err(CniError::new(
                Code::INVALID_ENVIRONMENT,
                format!("cannot put {key:?} = {value:?} into CNI_ARGS: a pair has no other = and no ; in it"),
            ));
        }
        self.0.push((key.to_owned(), value.to_owned()));
        Ok(())
    }

    /// All pairs, in order.
    #[must_use]
    pub fn pairs(&self) -> &[(String, String)] {
        &self.0
    }

    /// The value of `key`, which is exact-case; the last of several.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&str> {
        self.0.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether `IgnoreUnknown` is `1` or `true` in any case, anywhere in the list.
    #[must_use]
    pub fn ignores_unknown(&self) -> bool {
        self.find("IgnoreUnknown").is_some_and(|value| value == "1" || value.eq_ignore_ascii_case("true"))
    }

    /// Checks that every key is one of `known`, unless `IgnoreUnknown` is set.
    ///
    /// # Errors
    /// Code 4 naming the first unknown key.
    pub fn expect_known(&self, known: &[&str]) -> Result<(), CniError> {
        let is_known = |key: &str| key == "IgnoreUnknown" || known.contains(&key);
        match self.0.iter().find(|(key, _)| !is_known(key)) {
            Some((key, value)) if !self.ignores_unknown() => Err(CniError::new(
                Code::INVALID_ENVIRONMENT,
                format!("cannot use CNI_ARGS: unknown key {key:?} (value {value:?})"),
            )
            .detail(format!("Known keys: {}. Add IgnoreUnknown=1 to have others ignored.", known.join(", ")))),
            Some(_) | None => Ok(()),
        }
    }
}

fn parse_pair(part: &str) -> Result<(String, String), CniError> {
    match part.split_once('=') {
        Some((key, value)) if !value.contains('=') => Ok((key.to_owned(), value.to_owned())),
        Some(_) | None => {
            Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("cannot parse CNI_ARGS: {part:?} is no KEY=VALUE"))
                .detail("Pairs are separated by ; and have one = each."))
        }
    }
}

impl std::fmt::Display for CniArgs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let pairs: Vec<String> = self.0.iter().map(|(key, value)| format!("{key}={value}")).collect();
        f.write_str(&pairs.join(";"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_read_and_written() {
        let args = CniArgs::parse("IgnoreUnknown=TRUE;IP=10.0.0.1;K8S_POD_NAME=").unwrap();
        assert_eq!(args.find("IP"), Some("10.0.0.1"));
        assert_eq!(args.find("ip"), None);
        assert_eq!(args.to_string(), "IgnoreUnknown=TRUE;IP=10.0.0.1;K8S_POD_NAME=");
        assert!(args.expect_known(&["IP"]).is_ok());
    }

    #[test]
    fn a_value_cannot_smuggle_in_another_pair() {
        let mut args = CniArgs::default();
        args.push("K8S_POD_NAME", "web").unwrap();
        for (key, value) in [("A", "b;IP=10.0.0.1"), ("A", "b=c"), ("A;B", "c"), ("", "x")] {
            assert!(args.push(key, value).is_err(), "{key}={value}");
        }
        assert_eq!(args.to_string(), "K8S_POD_NAME=web");
    }

    #[test]
    fn what_is_no_pair_is_an_error() {
        for bad in ["a", "a=b;", ";", "a=b=c", "a=b;;c=d"] {
            assert!(CniArgs::parse(bad).is_err(), "{bad}");
        }
        assert!(CniArgs::parse("X=1").unwrap().expect_known(&["IP"]).is_err());
    }
}
