//! The error object, and the one table of codes (SPEC 2, Error; SPEC 5, Error).

use crate::version::SpecVersion;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A numeric error code. 0 to 99 are the specification's, 100 and up are the plugin's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Code(pub u32);

impl Code {
    /// The plugin does not support the config's version.
    pub const INCOMPATIBLE_VERSION: Code = Code(1);
    /// The network config has a field or value that this plugin does not support.
    pub const UNSUPPORTED_FIELD: Code = Code(2);
    /// The container is unknown; the runtime need not clean up.
    pub const UNKNOWN_CONTAINER: Code = Code(3);
    /// A `CNI_*` variable is missing or malformed.
    pub const INVALID_ENVIRONMENT: Code = Code(4);
    /// Reading or writing failed.
    pub const IO: Code = Code(5);
    /// Some input could not be decoded.
    pub const DECODING: Code = Code(6);
    /// The network config is invalid.
    pub const INVALID_CONFIG: Code = Code(7);
    /// The network namespace is the plugin's own, or none (the reference's code).
    pub const INVALID_NETNS: Code = Code(8);
    /// A transient condition: the runtime should try again later.
    pub const TRY_AGAIN: Code = Code(11);
    /// STATUS: ADD cannot be served.
    pub const NOT_AVAILABLE: Code = Code(50);
    /// STATUS: ADD cannot be served, and existing containers may have limited connectivity.
    pub const LIMITED_CONNECTIVITY: Code = Code(51);

    /// The kernel refused an operation; details have request and errno.
    pub const KERNEL: Code = Code(100);
    /// The kernel lacks a feature that the config needs.
    pub const KERNEL_FEATURE: Code = Code(101);
    /// The plugin lacks a privilege, such as `CAP_NET_ADMIN`.
    pub const PERMISSION: Code = Code(102);
    /// A name or address that is to be created is taken.
    pub const EXISTS: Code = Code(103);
    /// An event did not happen within its deadline.
    pub const TIMEOUT: Code = Code(104);
    /// No address is free in a range set.
    pub const NO_ADDRESS: Code = Code(105);
    /// A file below the plugin's state folder could not be read or written.
    pub const STATE: Code = Code(106);
    /// CHECK: the node differs from what ADD left.
    pub const CHECK_FAILED: Code = Code(107);
    /// A delegated or chained executable is missing, crashed, or printed an invalid result.
    pub const DELEGATE: Code = Code(108);
    /// A signal interrupted the operation, and it was rolled back.
    pub const INTERRUPTED: Code = Code(109);
    /// A result or lease cannot be used with this config.
    pub const UNUSABLE_RESULT: Code = Code(110);
    /// A bug in the plugin. The reference's code for any untyped error.
    pub const INTERNAL: Code = Code(999);

    /// Whether the code means that the plugin cannot use its input: version, configuration or variables. The plugin has then
    /// done nothing (SPEC 5, Error), and repeating the call with the same input is useless.
    #[must_use]
    pub fn is_refusal(self) -> bool {
        [
            Self::INCOMPATIBLE_VERSION,
            Self::UNSUPPORTED_FIELD,
            Self::INVALID_ENVIRONMENT,
            Self::DECODING,
            Self::INVALID_CONFIG,
        ]
        .contains(&self)
    }
}

/// The words by which host-local, the reference's and ours, refuses a second address of a range set to an attachment. The reference has no code
/// for it.
pub const DUPLICATE_ALLOCATION: &str = "duplicate allocation is not allowed";

/// The error object of a plugin.
///
/// `msg` is one line, `cannot VERB OBJECT WHERE: cause`; `details` is everything else that an operator needs: the
/// request, errno, the kernel's error message, the remedy, what was undone or left behind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct CniError {
    /// The kind of failure.
    pub code: Code,
    /// The message: one line, lower case, no full stop.
    pub msg: String,
    /// Details; may be empty.
    pub details: String,
    /// The path of the key that the error is about, `ipam.ranges[0][0].subnet`; `None` if it is about none, or was read from a
    /// plugin's output, which has only the text.
    pub key: Option<Box<str>>,
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The message and the details on one line. Details that are whole sentences follow a full stop; others follow a semicolon, as in
/// the reference's library.
impl fmt::Display for CniError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.msg)?;
        match self.details.chars().next() {
            None => Ok(()),
            Some(first) if first.is_uppercase() => write!(f, ". {}", self.details),
            Some(_) => write!(f, "; {}", self.details),
        }
    }
}

/// The word before each further error of several.
const ALSO: &str = "Also: ";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorObject<'a> {
    cni_version: &'a str,
    code: Code,
    msg: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    details: &'a str,
}

impl CniError {
    /// An error without details.
    #[must_use]
    pub fn new(code: Code, msg: impl Into<String>) -> Self {
        Self { code, msg: msg.into(), details: String::new(), key: None }
    }

    /// Code 7 for a key whose value the plugin cannot use, with the text of a decoding error.
    #[must_use]
    pub fn invalid_key(key: &str, value: impl fmt::Display, why: &str) -> Self {
        Self::new(Code::INVALID_CONFIG, format!("cannot use network config: key {key} = {value}: {why}")).at_key(key)
    }

    /// Says which key the error is about, by its path from the config's root, such as `ipam.ranges[0][0].subnet`.
    #[must_use]
    pub fn at_key(self, path: impl Into<String>) -> Self {
        Self { key: Some(path.into().into_boxed_str()), ..self }
    }

    /// The key that the error is about, as text.
    #[must_use]
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Appends a sentence to the details. Of one that ends with another error's sentence, the second full stop is left out.
    #[must_use]
    pub fn detail(mut self, text: impl AsRef<str>) -> Self {
        let text = text.as_ref();
        let text = text
            .strip_suffix('.')
            .filter(|rest| rest.contains(' ') && rest.ends_with('.') && !rest.ends_with(".."))
            .unwrap_or(text);
        if !text.is_empty() {
            if !self.details.is_empty() {
                self.details.push(' ');
            }
            self.details.push_str(text);
        }
        self
    }

    /// Joins several errors of a verb that continues after errors: code and message of the first, the others in its
    /// details. `None` if there are none.
    #[must_use]
    pub fn join(errors: Vec<CniError>) -> Option<Self> {
        let mut errors = errors.into_iter();
        let first = errors.next()?;
        Some(errors.fold(first, |first, next| first.detail(format!("{ALSO}{next}."))))
    }

    /// The errors that [`CniError::join`] has joined, a text each.
    #[must_use]
    pub fn joined(&self) -> Vec<String> {
        let mut parts = self.details.split(ALSO).map(str::trim_end);
        let own = parts.next().unwrap_or_default().to_owned();
        let others = parts.map(|other| other.strip_suffix('.').unwrap_or(other).to_owned());
        [CniError { details: own, ..self.clone() }.to_string()].into_iter().chain(others).collect()
    }

    /// The error object as JSON text, indented by four spaces as the reference does.
    #[must_use]
    pub fn to_json(&self, version: SpecVersion) -> String {
        let object =
            ErrorObject { cni_version: version.as_str(), code: self.code, msg: &self.msg, details: &self.details };
        crate::json::to_text(&object)
    }

    /// Parses an error object; `None` when `bytes` is not one (no `code`, or code 0 and no message).
    ///
    /// Keys are matched in any case. A missing `cniVersion` is accepted: the reference never prints it.
    #[must_use]
    pub fn find_in(bytes: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Wire {
            code: Option<u32>,
            msg: Option<String>,
            details: Option<String>,
        }
        let value = crate::json::parse(bytes).ok()?;
        let wire: Wire = crate::json::decode(&value).ok()?;
        let code = Code(wire.code?);
        let msg = wire.msg.unwrap_or_default();
        if code == Code(0) && msg.is_empty() {
            return None;
        }
        Some(Self { code, msg, details: wire.details.unwrap_or_default(), key: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_object_survives_the_wire() {
        let error = CniError::new(Code::INVALID_CONFIG, "missing network name").detail("one").detail("two");
        assert_eq!(CniError::find_in(error.to_json(SpecVersion::V1_1_0).as_bytes()), Some(error));
    }

    #[test]
    fn a_sentence_in_a_sentence_ends_with_one_full_stop() {
        let left = CniError::new(Code::IO, "b").detail("Make room.");
        let error = CniError::new(Code::KERNEL, "a").detail(format!("Left: {left}.")).detail("It goes on...");
        assert_eq!(error.details, "Left: b. Make room. It goes on...");
    }

    #[test]
    fn joined_errors_come_apart_again() {
        let one = CniError::new(Code::KERNEL, "a").detail("It is so.");
        let all = [one.clone(), CniError::new(Code::IO, "b"), CniError::new(Code::IO, "c")];
        assert_eq!(one.joined(), ["a. It is so."]);
        assert_eq!(CniError::join(all.to_vec()).unwrap().joined(), ["a. It is so.", "b", "c"]);
        assert_eq!(CniError::new(Code::IO, "a").detail("in b").to_string(), "a; in b");
    }

    #[test]
    fn an_invalid_key_reads_like_one_that_does_not_decode_and_both_can_be_found() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it does not decode")]
        struct A {
            b: Vec<u8>,
        }
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "it does not decode")]
        struct Conf {
            a: A,
        }
        let refused = CniError::invalid_key("a.b[0]", 0, "expected a whole number from 1 to 9000").detail("So it is.");
        let conf = crate::ConfObject::parse(br#"{"name":"n","a":{"b":[-1]}}"#).unwrap();
        let undecodable = conf.decode::<Conf>().unwrap_err();
        for error in [&refused, &undecodable] {
            assert_eq!((error.code, error.key()), (Code::INVALID_CONFIG, Some("a.b[0]")));
        }
        assert_eq!(refused.msg, "cannot use network config: key a.b[0] = 0: expected a whole number from 1 to 9000");
        assert_eq!(
            undecodable.msg,
            "cannot use network config: key a.b[0] = -1: expected a whole number from 0 to 255"
        );
        assert_eq!(CniError::new(Code::INVALID_CONFIG, "plugin ptp needs key ipam").key(), None);
    }

    #[test]
    fn a_code_is_shown_as_its_number() {
        assert_eq!(format!("{:>4}", Code::CHECK_FAILED), " 107");
    }

    #[test]
    fn a_result_is_no_error_object() {
        assert_eq!(CniError::find_in(br#"{"cniVersion":"1.0.0","ips":[]}"#), None);
        assert_eq!(CniError::find_in(b"null"), None);
        assert_eq!(CniError::find_in(b"garbage"), None);
    }
}
