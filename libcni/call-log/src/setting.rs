//! Where a setting comes from: the environment, one file of the node, or the network's configuration, in this order.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use nix::libc::{O_NOCTTY, O_NONBLOCK};
use nix::sys::stat::SFlag;

use crate::Sink;
use crate::sink::refuse_others;

/// The file with the node's setting: one word, or an absolute path.
pub const NODE_FILE: &str = "/etc/cni/log";

/// Where `file` writes to.
pub const DEFAULT_FILE: &str = "/var/log/cni/calls.log";

/// The words for sinks, which are all that a network's configuration may have.
pub const WORDS: [&str; 4] = ["journal", "file", "stderr", "off"];

/// The most that is read of [`NODE_FILE`]: a path of the kernel's greatest length.
const SETTING_BYTES_MAX: usize = 4096;

impl Sink {
    /// The sink in the value of `CNI_LOG`, as [`Sink::of_words`]. A word that is neither a sink nor a level is named in the log.
    pub fn of_variable(value: &str) -> Option<Self> {
        let (words, _) = split(value);
        for word in words.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            if !WORDS.contains(&word) && word.parse::<tracing::Level>().is_err() {
                let why = "is ignored: it is no level (error, warn, info, debug, trace), none of journal, file, stderr, off, and no absolute path";
                warn("CNI_LOG", &[word, " ", why].concat());
            }
        }
        Self::of_words(value)
    }

    /// The sink in words with commas between them, of which others, such as a level, are ignored; a path is the last, and may
    /// contain commas.
    pub fn of_words(value: &str) -> Option<Self> {
        let (words, path) = split(value);
        path.map(|path| Self::File(PathBuf::from(path)))
            .or_else(|| words.split(',').find_map(|word| Self::of_word(word.trim())))
    }

    /// The sink of the node, if [`NODE_FILE`] names one. The file is opened at each call, so that a change counts at once.
    pub fn of_node() -> Option<Self> {
        Self::of_file(Path::new(NODE_FILE))
    }

    /// The sink in the key `log` of a configuration. A path is refused: in some clusters users write configurations, and would
    /// choose where root writes.
    pub fn of_network(value: &str) -> Option<Self> {
        let sink = Self::of_word(value);
        if sink.is_none() {
            warn("key log", "it is ignored, as it is none of journal, file, stderr, off");
        }
        sink
    }

    /// The sink that a word means: one of [`WORDS`].
    pub fn of_word(word: &str) -> Option<Self> {
        match word {
            "off" => Some(Self::Off),
            "journal" => Some(Self::Journal),
            "stderr" => Some(Self::Stderr),
            "file" => Some(Self::File(PathBuf::from(DEFAULT_FILE))),
            _ => None,
        }
    }

    fn of_file(path: &Path) -> Option<Self> {
        // If it is a pipe, neither the open nor the read waits.
        let mut file = OpenOptions::new().read(true).custom_flags(O_NONBLOCK | O_NOCTTY).open(path).ok()?;
        if let Err(why) = refuse_others(&file, SFlag::S_IFREG) {
            warn(NODE_FILE, &["it is ignored, as it ", why].concat());
            return None;
        }
        let mut bytes = [0; SETTING_BYTES_MAX];
        let count = file.read(&mut bytes).unwrap_or_default();
        let text = std::str::from_utf8(&bytes[..count]).unwrap_or_default().trim_ascii();
        let sink = match text.starts_with('/') {
            true => Some(Self::File(PathBuf::from(text))),
            false => Self::of_word(text),
        };
        if sink.is_none() {
            warn(NODE_FILE, "it is ignored, as it is none of journal, file, stderr, off, and no absolute path");
        }
        sink
    }
}

/// The words, and the absolute path after them.
fn split(value: &str) -> (&str, Option<&str>) {
    let begins = |at: &usize| value[..*at].trim_end().ends_with(',') || value[..*at].trim().is_empty();
    match value.find('/').filter(begins) {
        Some(at) => (&value[..at], Some(&value[at..])),
        None => (value, None),
    }
}

/// Tells of an administrator's mistake, once until there is another: a runtime has many calls.
pub(crate) fn warn(what: &str, why: &str) {
    static LAST: Mutex<String> = Mutex::new(String::new());
    let text = format!("the log of calls: {what}: {why}");
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if *last != text {
        tracing::warn!("{text}");
        *last = text;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> Option<Sink> {
        Some(Sink::File(PathBuf::from(path)))
    }

    #[test]
    fn the_variable_has_a_level_and_a_sink_in_any_order_and_a_path_last() {
        assert_eq!(Sink::of_variable("debug,journal"), Some(Sink::Journal));
        assert_eq!(Sink::of_variable("stderr, debug"), Some(Sink::Stderr));
        assert_eq!(Sink::of_variable("/a/b,c"), file("/a/b,c"));
        assert_eq!(Sink::of_variable("info,/var/log/x"), file("/var/log/x"));
        assert_eq!(Sink::of_variable("file"), file(DEFAULT_FILE));
        for other in ["", "debug", "a/b", "journal2", ","] {
            assert_eq!(Sink::of_variable(other), None, "{other}");
        }
    }

    #[test]
    fn the_configuration_names_no_path() {
        assert!(WORDS.iter().all(|word| Sink::of_network(word).is_some()));
        assert_eq!(Sink::of_network("journal"), Some(Sink::Journal));
        assert_eq!(Sink::of_network("/etc/nologin"), None);
        assert_eq!(Sink::of_network("debug,journal"), None);
    }

    #[test]
    fn the_nodes_file_has_one_word_or_a_path() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(Sink::of_file(&path), None);
        for (text, sink) in
            [("journal\n", Some(Sink::Journal)), ("/x y\n", file("/x y")), ("\u{0}", None), ("x", None), ("", None)]
        {
            std::fs::write(&path, text).unwrap();
            assert_eq!(Sink::of_file(&path), sink, "{text:?}");
        }
        // A file that another user can write to does not count.
        std::fs::write(&path, "journal").unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(Sink::of_file(&path), None);
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(Sink::of_file(&path), None);
    }
}
