//! The names of the protocol. Each becomes part of a path, a rule or an interface, so each is checked once here.

use crate::error::{CniError, Code};
use std::fmt;
use std::path::{Path, PathBuf};

/// Declares a name: a `String` that only its `parse` can make.
macro_rules! name {
    ($(#[$doc:meta])* $Name:ident) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $Name(String);

        impl $Name {
            /// The name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $Name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl AsRef<str> for $Name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }
    };
}

name! {
    /// `CNI_CONTAINERID`: starts alphanumeric, then alphanumeric, `_`, `.`, `-` (SPEC 2, Parameters). Of any length, as
    /// in the reference: what was added under a long one must be deleted under it.
    ContainerId
}
name! {
    /// `name` of a network config: the same characters as a container ID (SPEC 1, Configuration format).
    NetworkName
}
name! {
    /// `CNI_IFNAME`: 1 to 15 bytes, as the kernel's `dev_valid_name` allows, and no `:`.
    IfName
}
name! {
    /// `type` of a plugin: a file name, never a path.
    PluginType
}

/// A network's name becomes a folder's name, whose length is limited by `NAME_MAX` (linux/limits.h).
const NAME_BYTES_MAX: usize = 255;

/// `^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`
fn is_plain(text: &str) -> bool {
    text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'-'))
}

impl ContainerId {
    /// # Errors
    /// Code 4 `invalid characters in containerID`, details = the value.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        match text {
            "" => Err(CniError::new(Code::INVALID_ENVIRONMENT, "missing containerID")),
            _ if is_plain(text) => Ok(Self(text.to_owned())),
            _ => Err(CniError::new(Code::INVALID_ENVIRONMENT, "invalid characters in containerID").detail(text)),
        }
    }
}

impl NetworkName {
    /// # Errors
    /// Code 7 `missing network name` or `invalid characters found in network name`, details = the value.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        match text {
            "" => Err(CniError::new(Code::INVALID_CONFIG, "missing network name")),
            _ if text.len() > NAME_BYTES_MAX => {
                Err(CniError::new(Code::INVALID_CONFIG, "network name is too long: at most 255 bytes").detail(text))
            }
            _ if is_plain(text) => Ok(Self(text.to_owned())),
            _ => Err(CniError::new(Code::INVALID_CONFIG, "invalid characters found in network name").detail(text)),
        }
    }
}

impl IfName {
    /// The kernel's `IFNAMSIZ` less the final zero byte (linux/if.h).
    pub const MAX_BYTES: usize = 15;

    /// # Errors
    /// Code 4 with the rule that was broken, details = the value.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let rule = match text {
            "" => "interface name is empty",
            _ if text.len() > Self::MAX_BYTES => "interface name is too long: at most 15 bytes",
            "." | ".." => "interface name is . or ..",
            _ if text.contains(['/', ':']) => "interface name contains / or :",
            _ if text.contains(char::is_whitespace) => "interface name contains white space",
            _ if text.contains('\0') => "interface name contains a zero byte",
            // The kernel checks bytes, and this one is a space in its table (lib/ctype.c).
            _ if text.as_bytes().contains(&0xa0) => {
                "interface name contains a character that the kernel takes for a space"
            }
            _ => return Ok(Self(text.to_owned())),
        };
        Err(CniError::new(Code::INVALID_ENVIRONMENT, rule).detail(text))
    }
}

impl PluginType {
    /// # Errors
    /// Code 7 if it is empty, a path, or names a folder.
    pub fn parse(text: &str) -> Result<Self, CniError> {
        let rule = match text {
            "" => "no plugin type: set \"type\" to the file name of an executable in CNI_PATH",
            "." | ".." => "invalid plugin type: it names a folder",
            _ if text.contains(['/', '\0']) => "invalid plugin type: a file name, not a path, is looked up in CNI_PATH",
            _ if text.contains(char::is_control) => "invalid plugin type: it contains control characters",
            _ => return Ok(Self(text.to_owned())),
        };
        Err(CniError::new(Code::INVALID_CONFIG, rule).detail(text))
    }
}

/// `CNI_PATH`: the folders in which executables are looked up, and nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PluginPath(Vec<PathBuf>);

impl PluginPath {
    /// The folders of a colon-separated list; empty parts are dropped, as they would mean the working directory.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self(text.split(':').filter(|part| !part.is_empty()).map(PathBuf::from).collect())
    }

    /// The list of these folders.
    #[must_use]
    pub fn from_dirs(dirs: Vec<PathBuf>) -> Self {
        Self(dirs)
    }

    /// The folders, in the order of the search.
    #[must_use]
    pub fn dirs(&self) -> &[PathBuf] {
        &self.0
    }

    /// Finds the executable of a plugin: the first regular file `<dir>/<type>`, links followed (SPEC 3).
    ///
    /// # Errors
    /// Code 108 naming the folders that were searched, in the words of the reference's library, which guides quote.
    pub fn find_executable(&self, plugin: &PluginType) -> Result<PathBuf, CniError> {
        if self.0.is_empty() {
            return Err(CniError::new(
                Code::INVALID_ENVIRONMENT,
                format!("cannot find plugin {plugin}: CNI_PATH names no folder"),
            ));
        }
        let is_file = |path: &PathBuf| Path::new(path).metadata().is_ok_and(|meta| meta.is_file());
        self.0.iter().map(|dir| dir.join(plugin.as_str())).find(is_file).ok_or_else(|| {
            let dirs: Vec<_> = self.0.iter().map(|dir| dir.to_string_lossy()).collect();
            let msg = format!("failed to find plugin {:?} in path [{}]", plugin.as_str(), dirs.join(" "));
            let in_its_place = self.0.iter().filter_map(|dir| no_file(&dir.join(plugin.as_str())));
            let error = in_its_place.fold(CniError::new(Code::DELEGATE, msg), CniError::detail);
            let meant = self.find_resembling(plugin).map(|meant| format!("Did you mean {meant}?"));
            error
                .detail(meant.unwrap_or_default())
                .detail(format!("Install {plugin} into one of these folders, or correct the type."))
        })
    }

    /// The file in these folders that was most likely meant.
    fn find_resembling(&self, plugin: &PluginType) -> Option<String> {
        let entries = self.0.iter().filter_map(|dir| dir.read_dir().ok()).flatten().flatten();
        let files = entries.filter(|entry| entry.path().is_file());
        let names: Vec<String> = files.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        crate::json::resembling(plugin.as_str(), names.iter().map(String::as_str)).map(str::to_owned)
    }
}

/// A sentence about what is at a path, if that is no file.
fn no_file(path: &Path) -> Option<String> {
    let about = path.symlink_metadata().ok()?;
    let shown = path.display();
    Some(match path.read_link() {
        Ok(target) if !path.exists() => format!("{shown} is a link to {}, which does not exist.", target.display()),
        _ if path.is_dir() => format!("{shown} is a folder."),
        _ if !about.is_file() => format!("{shown} is no regular file."),
        _ => return None,
    })
}

impl fmt::Display for PluginPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dirs: Vec<_> = self.0.iter().map(|dir| dir.to_string_lossy()).collect();
        f.write_str(&dirs.join(":"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_names_stay_in_their_folder() {
        for good in ["a", "0", "a-b_c.d", "A..b"] {
            assert!(ContainerId::parse(good).is_ok() && NetworkName::parse(good).is_ok(), "{good}");
        }
        let (longest, too_long) = ("a".repeat(255), "a".repeat(256));
        assert!(NetworkName::parse(&longest).is_ok() && NetworkName::parse(&too_long).is_err());
        assert!(ContainerId::parse(&too_long).is_ok());
        for bad in ["", ".", "..", "../a", "-a", "_a", "a/b", "a b", "ä", "a\n", "a\0"] {
            assert!(ContainerId::parse(bad).is_err() && NetworkName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn interface_names_are_the_kernels() {
        for good in ["eth0", "a.b", "0123456789abcde", "…"] {
            assert!(IfName::parse(good).is_ok(), "{good}");
        }
        for bad in ["", ".", "..", "a/b", "a:1", "a b", "a\t", "0123456789abcdef", "a\0b", "à"] {
            assert!(IfName::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_plugin_type_is_a_file_name() {
        for bad in ["", ".", "..", "../x", "/bin/sh", "a/b", "a\nb"] {
            assert_eq!(PluginType::parse(bad).map_err(|e| e.code), Err(Code::INVALID_CONFIG), "{bad}");
        }
    }

    #[test]
    fn a_missing_executable_is_reported_in_the_words_that_guides_quote() {
        let plugin = PluginType::parse("absent").unwrap();
        let error = PluginPath::parse("/none/a:/none/b").find_executable(&plugin).unwrap_err();
        assert_eq!(error.msg, r#"failed to find plugin "absent" in path [/none/a /none/b]"#);
        assert_eq!(error.details, "Install absent into one of these folders, or correct the type.");
    }

    #[test]
    fn empty_path_parts_do_not_mean_the_working_directory() {
        assert_eq!(PluginPath::parse(":/a::/b:").dirs(), [PathBuf::from("/a"), PathBuf::from("/b")]);
    }
}
