//! Errors of the runtime library.

use crate::attachment::AttachmentId;
use crate::conflist::PassedOver;
use cni_spec::{CniError, Code, Command, NetworkName, json};
use cni_suite::text::without_numbers;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// An operation that failed.
///
/// The text is one line. A plugin's error keeps its code: see [`Error::code`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The folder holds no network configuration at all.
    #[error("no net configurations found in {}", dir.display())]
    NoConfig {
        /// The folder.
        dir: PathBuf,
    },
    /// The folder holds network configurations, but none of this name.
    #[error("{}{}{}", no_network(dir, name), there_are(name, names, "; "), PassedOver::list(passed_over))]
    NoNetwork {
        /// The folder.
        dir: PathBuf,
        /// The name that was looked for.
        name: String,
        /// The networks that there are, in the order of their files.
        names: Vec<String>,
        /// The files that could not be used; the network may be in one of them.
        passed_over: Vec<PassedOver>,
    },
    /// A file or folder of configuration could not be read.
    #[error("cannot read {}", path.display())]
    ReadConfig {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A network configuration is invalid.
    #[error("{}{error}", prefix(path.as_deref()))]
    Config {
        /// The file, if it came from one.
        path: Option<PathBuf>,
        /// Code 6 or 7, and the reason.
        error: CniError,
    },
    /// A name, an argument or a version cannot be used; no plugin has run.
    #[error("{0}")]
    Invalid(CniError),
    /// The network's version has no CHECK.
    #[error("configuration version {version:?} of network {network} does not support the CHECK command")]
    NoCheck {
        /// The network.
        network: String,
        /// The network's version.
        version: String,
    },
    /// A plugin failed, or could not be run.
    #[error(transparent)]
    Plugin(Box<PluginError>),
    /// The cache could not be read or written.
    #[error("cannot {verb} cache {}", path.display())]
    Cache {
        /// "read", "write", "remove", "list" or "lock".
        verb: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        source: io::Error,
        /// After a failed ADD, what was rolled back and what was left; otherwise empty.
        details: String,
    },
    /// The cache file of this attachment's name belongs to another attachment; no plugin has run.
    #[error("{0}; {DEL_OTHER}")]
    Clash(Box<Clash>),
    /// A cached result is invalid in the network's version.
    #[error("cannot use cached result {}: {error}", path.display())]
    CachedResult {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: CniError,
    },
    /// The network configuration that ADD left in the cache cannot be used; no plugin has run.
    #[error("cannot use cached network config {}: {error}", path.display())]
    CachedConf {
        /// The file.
        path: PathBuf,
        /// The reason.
        error: CniError,
    },
    /// The attachment's ADD was begun and not finished, so there is nothing to check.
    #[error("{}; {DEL_THEN_ADD}", incomplete(network, id))]
    Incomplete {
        /// The network.
        network: NetworkName,
        /// The attachment.
        id: AttachmentId,
    },
    /// The attachment is there from an earlier ADD, and its namespace exists; no plugin has run.
    #[error("{}; {DEL_FIRST}", attached(network, id, netns, *is_complete))]
    Attached {
        /// The network.
        network: NetworkName,
        /// The attachment.
        id: AttachmentId,
        /// The namespace that it is in.
        netns: Box<str>,
        /// Whether the earlier ADD was finished.
        is_complete: bool,
    },
    /// The attachment is not forgotten: the node has something of it.
    #[error("{}; {DEL_OR_GC}", on_node(network, id, objects))]
    OnNode {
        /// The network.
        network: NetworkName,
        /// The attachment.
        id: AttachmentId,
        /// Links, addresses and rules, as text for people.
        objects: Vec<String>,
    },
    /// Plugins that a runtime left running for the attachment could not be ended; no plugin has run.
    #[error("{error}")]
    Orphans {
        /// Code 11, 104, 109 or 5, and the process.
        error: CniError,
    },
    /// Another operation holds the network's lock, which keeps GC apart from ADD and DEL, or the attachment's; no plugin has
    /// run.
    #[error("{error}")]
    Locked {
        /// Code 11, 104 or 109, and a process that holds it.
        error: CniError,
    },
    /// A caller without an event loop cannot have one ([`crate::blocking`]).
    #[error("{0}")]
    NoEventLoop(CniError),
    /// Several errors of one operation that continues after errors.
    #[error("{}", Error::lines(errors))]
    Several {
        /// At least two, in the order they happened.
        errors: Vec<Error>,
    },
}

/// Two attachments whose cache files would have the same name, as all parts of the name may contain `-`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot add {}/{} to network {network}: its cache file {} is that of {}/{} in network {other_network}",
    id.container_id, id.ifname, path.display(), other.container_id, other.ifname
)]
pub struct Clash {
    /// The file.
    pub path: PathBuf,
    /// The network of the ADD.
    pub network: NetworkName,
    /// The attachment of the ADD.
    pub id: AttachmentId,
    /// The network of the attachment that has the file.
    pub other_network: NetworkName,
    /// The attachment that has the file.
    pub other: AttachmentId,
}

/// A plugin's failure, with the plugin's type and name.
///
/// The error as text: `plugin type="bridge" failed (add): msg; details`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginError {
    /// `type` of the plugin.
    pub plugin: String,
    /// `name` in the plugin's own object, if it has one.
    pub name: Option<String>,
    /// The verb.
    pub command: Command,
    /// The plugin's own text. After a failed ADD, the details end with what was rolled back and what was left.
    pub error: CniError,
}

impl PluginError {
    /// The plugin and the verb: the start of the text.
    fn origin(&self) -> String {
        let name = self.name.as_ref().map(|name| format!(" name={name:?}")).unwrap_or_default();
        let verb = match self.command {
            Command::Add => "add",
            Command::Del => "delete",
            Command::Check => "check",
            Command::Gc => "gc",
            Command::Status => "status",
            Command::Version => "version",
            other => other.as_str(),
        };
        format!("plugin type={:?}{name} failed ({verb}): ", self.plugin)
    }
}

impl fmt::Display for PluginError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.origin(), self.error)
    }
}

impl std::error::Error for PluginError {}

/// Names of networks that an error shows.
const NAMES_MAX: usize = 20;

const DEL_THEN_ADD: &str = "run DEL, then ADD again";
const DEL_OR_GC: &str = "remove it with del or gc";
const DEL_FIRST: &str = "nothing was changed: call DEL first";
const DEL_OTHER: &str = "DEL that attachment first, or choose another container ID";

/// What an operator can do about a cache that cannot be written; empty where that depends.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::FileTooLarge => "The limit of a file's size is reached: raise RLIMIT_FSIZE (ulimit -f).",
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "The file system of the cache is full: make room.",
        io::ErrorKind::ReadOnlyFilesystem => "The file system of the cache is read-only: mount it writable.",
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotADirectory => {
            "A file, or a link that leads nowhere, has the place of a folder of the cache: remove it, or use another folder."
        }
        _ => "",
    }
}

/// Why a file cannot be read.
pub(crate) fn why_unread(path: &Path, source: &io::Error) -> String {
    match path.read_link().ok().filter(|_| source.kind() == io::ErrorKind::NotFound) {
        Some(target) => format!("it is a link to {}, which does not exist", target.display()),
        None => source.to_string(),
    }
}

fn no_network(dir: &Path, name: &str) -> String {
    format!("no net configuration with name {name:?} in {}", dir.display())
}

/// The networks that there are, the one that was most likely meant first; empty if there are none.
fn there_are(name: &str, names: &[String], before: &str) -> String {
    let mut others: Vec<&str> = names.iter().map(String::as_str).filter(|other| !other.is_empty()).collect();
    others.dedup();
    let shown = others.iter().take(NAMES_MAX).copied().collect::<Vec<_>>().join(", ");
    let more = others.len().checked_sub(NAMES_MAX).filter(|more| *more > 0);
    let more = more.map(|more| format!(" and {more} more")).unwrap_or_default();
    match json::resembling(name, others.iter().copied()) {
        _ if others.is_empty() => String::new(),
        Some(meant) => format!("{before}did you mean {meant}? The folder has {shown}{more}"),
        None => format!("{before}the folder has {shown}{more}"),
    }
}

fn incomplete(network: &NetworkName, id: &AttachmentId) -> String {
    format!("cannot check {}/{} in network {network}: its ADD was not finished", id.container_id, id.ifname)
}

fn attached(network: &NetworkName, id: &AttachmentId, netns: &str, is_complete: bool) -> String {
    let AttachmentId { container_id, ifname } = id;
    let is = if is_complete { "it is attached already" } else { "an earlier ADD of it was not finished" };
    format!("cannot add {container_id}/{ifname} to network {network}: {is}, in {netns}")
}

fn on_node(network: &NetworkName, AttachmentId { container_id, ifname }: &AttachmentId, objects: &[String]) -> String {
    format!("cannot forget {container_id}/{ifname} in network {network}: the node still has {}", objects.join(", "))
}

fn prefix(path: Option<&Path>) -> String {
    path.map(|path| format!("{}: ", path.display())).unwrap_or_default()
}

impl Error {
    /// The code of the plugin's error, or of the reason why no plugin ran, from the table in [`Code`]; of several
    /// errors, the first one's. `None` if [`Error::Several`] is empty.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        match self {
            Error::Several { errors } => errors.iter().find_map(Error::code),
            one => Some(one.to_cni_error().code),
        }
    }

    /// The error object behind this error; of several, the first one's.
    #[must_use]
    pub fn cni_error(&self) -> Option<&CniError> {
        match self {
            Error::Plugin(plugin) => Some(&plugin.error),
            Error::Config { error, .. }
            | Error::Invalid(error)
            | Error::CachedResult { error, .. }
            | Error::CachedConf { error, .. }
            | Error::Orphans { error }
            | Error::Locked { error }
            | Error::NoEventLoop(error) => Some(error),
            Error::Several { errors } => errors.iter().find_map(Error::cni_error),
            Error::NoConfig { .. }
            | Error::NoNetwork { .. }
            | Error::ReadConfig { .. }
            | Error::NoCheck { .. }
            | Error::Incomplete { .. }
            | Error::Attached { .. }
            | Error::OnNode { .. }
            | Error::Clash(_)
            | Error::Cache { .. } => None,
        }
    }

    /// This error as an error object: code, message with its causes, and the details apart.
    #[must_use]
    pub fn to_cni_error(&self) -> CniError {
        let new = CniError::new;
        let of = |prefix: String, error: &CniError| CniError { msg: format!("{prefix}{}", error.msg), ..error.clone() };
        match self {
            // A configuration that does not exist counts as an invalid one.
            Error::NoConfig { dir } => new(Code::INVALID_CONFIG, self.to_string()).detail(match dir.exists() {
                true => {
                    "The folder has no *.conflist, *.conf or *.json: put a network's file there, or use another folder."
                }
                false => "There is no such folder: make it, or use another one.",
            }),
            Error::NoNetwork { dir, name, names, passed_over } => {
                let others = there_are(name, names, "");
                let (first, rest) = others.split_at(others.len().min(1));
                let others = match first {
                    "" => String::new(),
                    first => format!("{}{rest}.", first.to_uppercase()),
                };
                let file = dir.join(name);
                let file = if file.is_file() {
                    format!("{} is a file: name the network in it.", file.display())
                } else {
                    String::new()
                };
                let error = new(Code::INVALID_CONFIG, no_network(dir, name)).detail(file).detail(others);
                passed_over.iter().fold(error, |error, file| error.detail(format!("{file}.")))
            }
            Error::ReadConfig { path, source } => new(Code::IO, format!("{self}: {}", why_unread(path, source))),
            Error::Config { path, error } => of(prefix(path.as_deref()), error),
            Error::Invalid(error) | Error::Orphans { error } | Error::Locked { error } | Error::NoEventLoop(error) => {
                error.clone()
            }
            Error::NoCheck { .. } => new(Code::INCOMPATIBLE_VERSION, self.to_string()),
            Error::Plugin(plugin) => of(plugin.origin(), &plugin.error),
            Error::Cache { source, details, .. } => {
                new(Code::IO, format!("{self}: {source}")).detail(remedy(source)).detail(details)
            }
            Error::Clash(clash) => new(Code::EXISTS, clash.to_string()).detail(format!("{DEL_OTHER}.")),
            Error::CachedResult { path, error } => of(format!("cannot use cached result {}: ", path.display()), error),
            Error::CachedConf { path, error } => {
                of(format!("cannot use cached network config {}: ", path.display()), error)
            }
            Error::Incomplete { network, id } => {
                new(Code::CHECK_FAILED, incomplete(network, id)).detail(format!("{DEL_THEN_ADD}."))
            }
            Error::Attached { network, id, netns, is_complete } => {
                new(Code::EXISTS, attached(network, id, netns, *is_complete))
                    .detail("Nothing was changed: call DEL first.")
            }
            Error::OnNode { network, id, objects } => {
                new(Code::EXISTS, on_node(network, id, objects)).detail(format!("R{}.", &DEL_OR_GC[1..]))
            }
            Error::Several { errors } => CniError::join(errors.iter().map(Error::to_cni_error).collect())
                .unwrap_or_else(|| new(Code::INTERNAL, "no error".to_owned())),
        }
    }

    /// Whether a plugin, or this library on its behalf, reports that it cannot use the configuration.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Error::CachedConf { .. } | Error::Invalid(_) | Error::Config { .. } => true,
            // The reference's plugins refuse a configuration with their code for everything.
            Error::Plugin(plugin) => plugin.error.code.is_refusal() || plugin.error.code == Code::INTERNAL,
            Error::Several { errors } => errors.iter().any(Error::is_refusal),
            Error::NoConfig { .. }
            | Error::NoNetwork { .. }
            | Error::ReadConfig { .. }
            | Error::NoCheck { .. }
            | Error::Incomplete { .. }
            | Error::Attached { .. }
            | Error::OnNode { .. }
            | Error::CachedResult { .. }
            | Error::Clash(_)
            | Error::Orphans { .. }
            | Error::Locked { .. }
            | Error::NoEventLoop(_)
            | Error::Cache { .. } => false,
        }
    }

    /// Joins any number of errors into one; `None` if there are none.
    #[must_use]
    pub fn join(mut errors: Vec<Error>) -> Option<Self> {
        match errors.len() {
            0 | 1 => errors.pop(),
            _ => Some(Error::Several { errors }),
        }
    }

    /// The error, its causes and its details on one line.
    #[must_use]
    pub fn with_causes(&self) -> String {
        let text = match self {
            Error::ReadConfig { .. } | Error::Cache { .. } => self.to_cni_error().to_string(),
            whole => whole.to_string(),
        };
        without_numbers(&text)
    }

    fn lines(errors: &[Error]) -> String {
        errors.iter().map(Error::with_causes).collect::<Vec<_>>().join("\n")
    }
}

/// What a caller gets from the types of `cni_spec`: a name, an argument or a version that cannot be used.
impl From<CniError> for Error {
    fn from(error: CniError) -> Self {
        Self::Invalid(error)
    }
}

impl From<PluginError> for Error {
    fn from(error: PluginError) -> Self {
        Error::Plugin(Box::new(error))
    }
}
