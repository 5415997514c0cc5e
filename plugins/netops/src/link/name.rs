//! The rules for link names.

use std::fmt;

use super::Link;

/// The longest link name (`IFNAMSIZ` less the final NUL).
pub const NAME_BYTES_MAX: usize = 15;
/// The longest alternative name (`ALTIFNAMSIZ` less the final NUL).
const ALT_NAME_BYTES_MAX: usize = 127;

/// Whether a link can have this name (`dev_valid_name`, with the kernel's `isspace`). `%` is not allowed: the kernel
/// treats it as a pattern and replaces it by a number.
#[must_use]
pub fn is_name(text: &str) -> bool {
    text.len() <= NAME_BYTES_MAX && is_any_name(text)
}

/// Whether a link can be found by this text: by its name, or by a longer alternative one.
pub(super) fn is_any_name(text: &str) -> bool {
    let is_part = |byte: u8| !matches!(byte, 0 | b'/' | b':' | b'%' | b'\t'..=b'\r' | b' ' | 0xa0);
    (1..=ALT_NAME_BYTES_MAX).contains(&text.len()) && !matches!(text, "." | "..") && text.bytes().all(is_part)
}

/// A name that a link can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkName(String);

/// A text that cannot be a link's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be a link's name: 1 to 15 bytes without white space, /, : and %, and not . or ..")]
pub struct NameError(String);

impl LinkName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`NameError`]; see [`is_name`].
    pub fn parse(text: &str) -> Result<Self, NameError> {
        match is_name(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(NameError(text.chars().take(2 * NAME_BYTES_MAX).collect())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A name by which a link is found that exists: its own, or an alternative one (`ip link property add altname`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnyName(String);

/// A text by which no link is found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be a link's name: 1 to 127 bytes without white space, /, : and %, and not . or ..")]
pub struct AnyNameError(String);

impl AnyName {
    /// Reads a name.
    ///
    /// # Errors
    /// [`AnyNameError`]: neither a name nor an alternative name is such a text.
    pub fn parse(text: &str) -> Result<Self, AnyNameError> {
        match is_any_name(text) {
            true => Ok(Self(text.to_owned())),
            false => Err(AnyNameError(text.chars().take(2 * NAME_BYTES_MAX).collect())),
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the link has the name.
    #[must_use]
    pub fn is_of(&self, link: &Link) -> bool {
        link.name == self.0 || link.alt_names.contains(&self.0)
    }
}

impl fmt::Display for AnyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Display for LinkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
