//! A fault: its level, its place, what to do.

use std::fmt;
use std::ops::Range;

use cni_spec::CniError;
use cni_spec::json::resembling;

use crate::validate::key_places::{Part, Source, Tree};
use crate::validate::one_file::is_placeholder;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Something that may be as meant.
    Note,
    /// Something that is most likely not meant.
    Warning,
    /// No container can be attached.
    Error,
}

impl Level {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    pub level: Level,
    /// The file's place among the sources.
    pub file: usize,
    /// The finding's bytes in the text.
    pub span: Range<usize>,
    /// The key that it is about, `plugins[0].ipam`; may be empty.
    pub key: String,
    /// The fault, on one line.
    pub message: String,
    pub help: String,
}

/// The findings of a network while its files are read: its own, and those of [`Source::plugin_files`].
pub(crate) struct Notes<'a> {
    file: usize,
    tree: Tree<'a>,
    plugin_files: Vec<Tree<'a>>,
    found: Vec<Finding>,
}

impl<'a> Notes<'a> {
    /// `file` is a network's own file, and the sources of its plugins follow.
    pub(crate) fn new(file: usize, sources: &'a [Source]) -> Self {
        let plugin_files = sources.iter().skip(file + 1).take_while(|source| source.is_plugin_file);
        let plugin_files = plugin_files.map(Source::tree).collect();
        Self { file, tree: sources[file].tree(), plugin_files, found: Vec::new() }
    }

    /// The file that has a key, its tree, and the key there. A runtime counts the plugins of the folder after those of the list:
    /// behind two in the list, `plugins[2].mtu` is key `mtu` of the first file.
    fn home<'key>(&self, key: &'key str) -> (usize, &Tree<'a>, &'key str) {
        let index = || {
            let (index, rest) = key.strip_prefix("plugins[")?.split_once(']')?;
            let place = index.parse::<usize>().ok()?.checked_sub(self.tree.count("plugins"))?;
            Some((place, self.plugin_files.get(place)?, rest.strip_prefix('.').unwrap_or(rest)))
        };
        match index() {
            Some((place, tree, key)) => (self.file + 1 + place, tree, key),
            None => (self.file, &self.tree, key),
        }
    }

    pub(crate) fn place(&self, key: &str) -> (usize, String) {
        let (file, _, key) = self.home(key);
        (file, key.to_owned())
    }

    pub(crate) fn tree(&self) -> &Tree<'a> {
        &self.tree
    }

    pub(crate) fn value(&mut self, level: Level, key: &str, message: impl Into<String>) -> &mut Finding {
        self.find(level, key, Part::Value, message)
    }

    /// A finding about a key's name.
    pub(crate) fn key(&mut self, level: Level, key: &str, message: impl Into<String>) -> &mut Finding {
        self.find(level, key, Part::Key, message)
    }

    fn find(&mut self, level: Level, key: &str, part: Part, message: impl Into<String>) -> &mut Finding {
        let (file, tree, key) = self.home(key);
        let span = tree.find(key, part);
        self.push(Finding { level, file, span, key: key.to_owned(), message: message.into(), help: String::new() })
    }

    /// A finding at a place of the network's own file.
    pub(crate) fn at(
        &mut self,
        level: Level,
        span: Range<usize>,
        key: &str,
        message: impl Into<String>,
    ) -> &mut Finding {
        let (file, message) = (self.file, message.into());
        self.push(Finding { level, file, span, key: key.to_owned(), message, help: String::new() })
    }

    pub(crate) fn push(&mut self, finding: Finding) -> &mut Finding {
        self.found.push(finding);
        self.found.last_mut().unwrap_or_else(|| unreachable!("it was pushed"))
    }

    /// An error of a parser. `base` is the object whose keys it names, such as `plugins[0]`; `part` what of it the error is
    /// about if it names none, such as `ipam`.
    pub(crate) fn error(&mut self, base: &str, part: &str, error: &CniError) -> &mut Finding {
        let text = error.msg.strip_prefix("cannot use network config: ").unwrap_or(&error.msg);
        let key = error.key().unwrap_or(part);
        // A list's own parser puts the plugin before the key.
        let (base, text) = match text.split_once(": ") {
            Some((plugin, rest)) if plugin.starts_with("plugins[") && plugin.ends_with(']') => (plugin, rest),
            _ => (base, text),
        };
        // The finding has the place.
        let text = text.split(" at line ").next().unwrap_or(text);
        let misspelt = self.misspelt(base, text);
        let finding = self.value(Level::Error, &join(base, key), text);
        finding.help.clone_from(&error.details);
        if let Some((span, help)) = misspelt {
            (finding.span, finding.help) = (span, help);
        } else if let Some(help) = text.split_once(" = ").and_then(|(_, rest)| {
            let (value, reason) = rest
                .split_once(": ")
                .filter(|(value, _)| !value.starts_with('{'))
                .unwrap_or_else(|| rest.rsplit_once(": ").unwrap_or((rest, "")));
            of_value(value, reason)
        }) {
            finding.help = help;
        }
        finding
    }

    /// The key that was most likely meant by a `type` that is missing, and what to do. Parsers report other misspelt keys.
    fn misspelt(&self, base: &str, text: &str) -> Option<(Range<usize>, String)> {
        let missing = text.strip_prefix("key ")?.split_once(" is missing")?.0;
        let object = match missing.strip_suffix("type")? {
            "" => base.to_owned(),
            object => join(base, object.strip_suffix('.')?),
        };
        let (_, tree, object) = self.home(&object);
        let (key, span) = tree.keys_of(object).into_iter().find(|(key, _)| resembling(key, ["type"]).is_some())?;
        Some((span, format!("Did you mean type? The key is \"{key}\".")))
    }

    pub(crate) fn into_findings(self) -> Vec<Finding> {
        self.found
    }
}

/// The remedy for a value that a plugin refuses, where the value itself shows what was meant. Both are as the error has them.
pub(crate) fn of_value(value: &str, reason: &str) -> Option<String> {
    let reason = reason.strip_suffix('.').unwrap_or(reason);
    let is_list_wanted = reason.starts_with("expected a list");
    let Some(text) = value.strip_prefix('"').and_then(|rest| rest.split('"').next()) else {
        let is_range = value.starts_with('{') && is_list_wanted;
        return is_range.then(|| format!("Each set of ranges is a list of its own: write [[{value}]]."));
    };
    let words = || reason.split([' ', ',', ':']).filter(|word| word.starts_with(|c: char| c.is_ascii_alphabetic()));
    let is_choice =
        ["it is none of", "expected", "the backend is unknown"].iter().any(|begin| reason.starts_with(begin));
    let is_unquoted = text.parse::<u64>().is_ok() && reason.contains("number") || ["true", "false"].contains(&text);
    match text {
        "usePodCidr" => {
            Some("calico and flannel replace this word, and other plugins do not: write the subnet.".to_owned())
        }
        "default" => Some("Write 0.0.0.0/0 for all of IPv4, ::/0 for all of IPv6.".to_owned()),
        _ if is_placeholder(text) => {
            Some("Nothing has filled in this placeholder: see the program that writes the file.".to_owned())
        }
        _ if is_choice && is_unquoted => Some(format!("Write {text} without quotes.")),
        _ if is_choice => resembling(text, words()).map(|meant| format!("Did you mean {meant}?")),
        _ => None,
    }
}

/// The path of a key in an object.
pub(crate) fn join(base: &str, key: &str) -> String {
    match (base, key) {
        ("", key) => key.to_owned(),
        (base, "") => base.to_owned(),
        (base, key) => format!("{base}.{key}"),
    }
}
