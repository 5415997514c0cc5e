//! The plugins under test.

use std::path::PathBuf;

/// Names of all plugins of the suite; a multicall executable answers to each.
const PLUGINS: [&str; 19] = [
    "bandwidth",
    "bridge",
    "dhcp",
    "dummy",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "noop",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tap",
    "tuning",
    "vlan",
    "vrf",
];

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// An executable that acts by the name it is called by. It is run without `PATH`: it must
    /// need no other program.
    Multicall(PathBuf),
    /// A folder with an executable for each plugin, run with the usual `PATH`.
    Folder(PathBuf),
}

impl Subject {
    pub fn ours() -> Self {
        Self::Multicall(crate::plugins().to_owned())
    }

    pub fn reference_or_skip(test: &str) -> Option<Self> {
        crate::reference_or_skip(test).map(|folder| Self::Folder(folder.into()))
    }

    /// The executable of each plugin, with the plugin's name.
    pub fn executables(&self) -> Vec<(String, PathBuf)> {
        match self {
            Self::Multicall(executable) => {
                PLUGINS.iter().map(|name| ((*name).to_owned(), executable.clone())).collect()
            }
            Self::Folder(folder) => {
                let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
                entries.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path())).collect()
            }
        }
    }

    pub(crate) fn executable(&self, name: &str) -> Option<PathBuf> {
        match self {
            Self::Multicall(executable) => Some(executable.clone()),
            Self::Folder(folder) => Some(folder.join(name)).filter(|path| path.exists()),
        }
    }

    /// `PATH` for the plugin's process, if it may look for programs.
    pub(crate) fn search_path(&self) -> Option<&'static str> {
        match self {
            Self::Multicall(_) => None,
            Self::Folder(_) => Some("/usr/sbin:/usr/bin:/sbin:/bin"),
        }
    }
}
