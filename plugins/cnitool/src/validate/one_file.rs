//! A single file: syntax, the list's keys, each plugin's keys.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;

use call_log::Sink;
use cni_spec::conf::Misspelt;
use cni_spec::{CniError, ConfObject, SpecVersion, json};
use libcni::NetworkConf;
use libcni::conflist::NO_PLUGINS;
use serde::de::IgnoredAny;
use serde_json::Value;

use crate::parsed_network::{Network, Plugin};
use crate::validate::finding::{Finding, Level, Notes, join, of_value};
use crate::validate::key_places::{Form, Source, Unreadable};
use crate::validate::known_plugins::{self, KnownPlugin, Role};
use crate::validate::parser_warnings::{self, Warning};
use crate::validate::{ignored_keys, plugins_of_one_list, refused_by_add, unreachable_gateways, unusable_values};

const LIST_KEYS: [&str; 8] =
    ["cniVersion", "cniVersions", "name", "disableCheck", "disableGC", "loadOnlyInlinedPlugins", "log", "plugins"];

/// Reads a file as a runtime does. `None`: it has no network that a runtime could use.
///
/// `sources` are the network's own file, at place `file`, and those of its plugins.
pub(crate) fn read(file: usize, sources: &[Source], known: &[KnownPlugin], notes: &mut Notes<'_>) -> Option<Network> {
    let (source, plugin_files) = sources.split_first()?;
    let mut is_json = true;
    for (place, source) in (file..).zip(sources) {
        if let Some(finding) = not_json(place, source) {
            is_json = false;
            notes.push(finding);
        }
    }
    if !is_json {
        return None;
    }
    repeated(notes);
    let has = |notes: &Notes<'_>, key: &str| notes.tree().keys().iter().any(|(have, _)| *have == key);
    if has(notes, "version") && !has(notes, "cniVersion") && !has(notes, "cniVersions") {
        notes
            .key(Level::Warning, "version", "key version is unknown and is ignored: the network is of version 0.1.0")
            .help = "Did you mean cniVersion?".to_owned();
    }
    let bytes = source.text.as_bytes();
    let parsed = match source.is_single() {
        true => NetworkConf::parse_single(bytes),
        false if plugin_files.is_empty() => NetworkConf::parse(bytes),
        false => NetworkConf::parse(with_plugins(bytes, plugin_files).as_bytes()),
    };
    if !source.is_single() {
        misspelt_in_list(notes);
        if let Some(value) = json::parse(bytes).unwrap_or_default().get("log") {
            log(value, "log", notes);
        }
    }
    let network = match parsed {
        Ok(network) => network,
        Err(error) => {
            let part = if error.msg.ends_with(NO_PLUGINS) { "plugins" } else { "" };
            let is_object_of_cluster = ["apiVersion", "kind", "spec"].iter().all(|key| has(notes, key));
            let finding = notes.error("", part, &error);
            if is_object_of_cluster {
                "This is an object of a cluster, for kubectl. A runtime's file has what is the text of its spec.config."
                    .clone_into(&mut finding.help);
            }
            return None;
        }
    };
    if source.form == Form::List && plugin_files.is_empty() && !has(notes, "plugins") && has(notes, "type") {
        notes.value(Level::Error, "", "key plugins is missing").help =
            "Call the file *.conf if it is a single plugin's.".to_owned();
        return None;
    }
    if !source.is_single() && network.plugins.len() == plugin_files.len() {
        let (level, text) = match source.is_without_plugins {
            true => {
                (Level::Error, "key plugins is missing, and no folder beside the file, of the network's name, has any")
            }
            false => (
                Level::Warning,
                "key plugins is missing: only plugins of a folder beside the file, of the network's name, are called",
            ),
        };
        notes.value(level, "", text);
    }
    if has(notes, "plugins") && has(notes, "type") {
        let (key, text, help) = match source.form {
            Form::Single => (
                "plugins",
                "key plugins is ignored by runtimes: a file of this name is the one plugin of key type",
                "Call the file *.conflist, and remove type.",
            ),
            _ => ("type", "key type is ignored: the plugins of the file are those of key plugins", "Remove it."),
        };
        notes.key(Level::Warning, key, text).help = help.to_owned();
    }
    name(source, &network, notes);
    // As CRI-O calls it.
    let network = match source.name.rsplit('/').next() {
        Some(file) if source.form == Form::Single && network.name.is_empty() => network.named(file),
        _ => network,
    };
    let network = Network::decode(file, network, source.is_single());
    match network.conf.version() {
        Ok(version) => plugins(&network, version, known, notes),
        Err(error) => {
            let key = if has(notes, "cniVersions") { "cniVersions" } else { "cniVersion" };
            notes.value(Level::Error, key, &error.msg).help.clone_from(&error.details);
        }
    }
    plugins_of_one_list::compare(&network, known, notes);
    refused_by_add::chained(&network, notes);
    Some(network)
}

/// Why a file is no JSON at all, if it is none.
fn not_json(file: usize, source: &Source) -> Option<Finding> {
    let error = |span, message: &str, help: &str| {
        let (key, message, help) = (String::new(), message.to_owned(), help.to_owned());
        Some(Finding { level: Level::Error, file, span, key, message, help })
    };
    if let Some(Unreadable { reason, remedy }) = &source.unreadable {
        return error(0..0, reason, remedy);
    }
    if source.text.trim().is_empty() {
        let part = if source.is_plugin_file { "plugin" } else { "network" };
        return error(0..0, "the file is empty", &format!("Remove it, or write a {part} into it."));
    }
    let syntax = serde_json::from_str::<IgnoredAny>(&source.text).err()?;
    let Fault { span, message, help } = Fault::of(source, &syntax);
    error(span, &message, help)
}

/// A list with the plugins of other files after its own, as a runtime reads it.
fn with_plugins(list: &[u8], plugin_files: &[Source]) -> String {
    let mut list = json::parse(list).unwrap_or_default();
    let more = plugin_files.iter().map(|source| json::parse(source.text.as_bytes()).unwrap_or_default());
    if let Some(plugins) =
        list.as_object_mut().map(|list| list.entry("plugins").or_insert_with(|| Value::Array(Vec::new())))
        && let Some(plugins) = plugins.as_array_mut()
    {
        plugins.extend(more);
    }
    list.to_string()
}

/// The network's name. CRI-O calls a network without one by its file's name, and long installed such a file for lo.
fn name(source: &Source, network: &NetworkConf, notes: &mut Notes<'_>) {
    let Err(error) = network.network_name() else { return };
    let is_nameless = source.is_single() && network.name.is_empty();
    let level = if is_nameless && is_loopback(network) { Level::Note } else { Level::Error };
    let finding = notes.value(level, "name", &error.msg);
    finding.help = match level {
        Level::Note => {
            "Remove the file: runtimes set lo up without it. CRI-O calls such a network by its file's name.".to_owned()
        }
        _ if is_nameless => {
            "Add key name: CRI-O takes the file's name in its place, other runtimes refuse the network.".to_owned()
        }
        _ => format!(
            "{:?} is no name: write letters, digits and _ . -, of which the first is a letter or digit.",
            network.name
        ),
    };
}

/// Whether the network has no plugin but loopback.
pub(crate) fn is_loopback(network: &NetworkConf) -> bool {
    !network.plugins.is_empty()
        && network.plugins.iter().all(|plugin| on_node::plugin_of(plugin.plugin_type.as_str()) == "loopback")
}

/// Keys that an object has more than once.
fn repeated(notes: &mut Notes<'_>) {
    let repeated = notes.tree().repeated();
    let repeated: Vec<_> = repeated.into_iter().map(|(key, path, span)| (key.to_owned(), path, span)).collect();
    for (key, path, span) in repeated {
        let text =
            format!("key {key} is in this object twice: the last value counts, and the one before it is ignored");
        notes.at(Level::Warning, span, &path, text).help = "Remove one of both.".to_owned();
    }
}

/// A list's keys are read in this case only.
fn misspelt_in_list(notes: &mut Notes<'_>) {
    let keys: BTreeSet<String> = notes.tree().keys().iter().map(|(key, _)| (*key).to_owned()).collect();
    for key in keys.iter().filter(|key| !LIST_KEYS.contains(&key.as_str())) {
        if let Some(meant) = json::resembling(key, LIST_KEYS) {
            notes.key(Level::Warning, key, format!("key {key} is unknown and is ignored")).help =
                format!("Did you mean {meant}?");
        }
    }
}

/// The key by which a network asks for a log of its calls. No call fails for it, so a value that is ignored is no error.
fn log(value: &Value, key: &str, notes: &mut Notes<'_>) {
    let ignored = |why: &str| format!("key log = {value} is ignored: {why}");
    let Some(word) = value.as_str() else {
        if !value.is_null() {
            notes.value(Level::Warning, key, ignored("expected a string")).help = log_help(None);
        }
        return;
    };
    if Sink::of_word(word).is_some() {
        return;
    }
    let why = match word {
        path if path.starts_with('/') => "a network cannot choose the file",
        path if path.contains('/') => "it is a relative path, and a network cannot choose the file",
        _ => "it is an unknown destination",
    };
    notes.value(Level::Warning, key, ignored(why)).help = log_help(Some(word));
}

fn log_help(word: Option<&str>) -> String {
    match word.map(|word| (word, json::resembling(word, call_log::WORDS))) {
        Some((word, _)) if word.contains('/') => {
            format!("Write \"file\" for {}, or the absolute path into {}.", call_log::DEFAULT_FILE, call_log::NODE_FILE)
        }
        Some((_, Some(meant))) => format!("Did you mean {meant}?"),
        Some((_, None)) | None => format!("Write one of {}.", call_log::WORDS.join(", ")),
    }
}

/// Each plugin's own keys, and those of its address plugin.
fn plugins(network: &Network, version: SpecVersion, known: &[KnownPlugin], notes: &mut Notes<'_>) {
    for (plugin, written) in network.plugins.iter().zip(&network.conf.plugins) {
        let (base, name) = (&*plugin.base, &*plugin.plugin_type);
        let Some(own) = known_plugins::find(known, name) else {
            // An unknown plugin may give its address plugin another config than it has here.
            stranger(&join(base, "type"), name, known, notes);
            continue;
        };
        // A name that cannot be used has its finding already.
        if network.conf.network_name().is_err() {
            continue;
        }
        let has_more = !written.capabilities.is_empty();
        keys(plugin, version, (own, has_more), known, notes);
        if let Some(value) = json::member(&plugin.object, "log") {
            log(value, &join(base, "log"), notes);
        }
        let Some(ipam) = plugin.ipam_type() else { continue };
        let key = join(base, "ipam.type");
        match known_plugins::find(known, ipam.as_str()) {
            Some(ipam) if ipam.role == Role::Address => {
                keys(plugin, version, (ipam, has_more), known, notes);
                if own.role == Role::Interface {
                    unusable_values::check(plugin, notes);
                    refused_by_add::check(plugin, has_more, notes);
                    if !has_more {
                        unreachable_gateways::check(plugin, notes);
                    }
                }
            }
            Some(other) => {
                let text = format!("{} is no address plugin", other.name);
                notes.value(Level::Error, &key, text).help = names(known, Role::Address);
            }
            None => stranger(&key, ipam.as_str(), known, notes),
        }
    }
}

fn names(known: &[KnownPlugin], role: Role) -> String {
    let names: Vec<&str> = known.iter().filter(|one| one.role == role).map(|one| one.name).collect();
    format!("Address plugins are {}.", names.join(", "))
}

/// `has_more`: a runtime adds what the plugin's capabilities ask for, so that something that is missing may be there then.
fn keys(
    written: &Plugin,
    version: SpecVersion,
    (plugin, has_more): (&KnownPlugin, bool),
    known: &[KnownPlugin],
    notes: &mut Notes<'_>,
) {
    let base = &*written.base;
    let part = if plugin.role == Role::Address { "ipam" } else { "" };
    let mut rest = written.object.clone();
    // A parser ends at the first value that it refuses: it is called again without that, as long as it names one.
    let (mut errors, mut removed): (Vec<CniError>, Vec<String>) = (Vec::new(), Vec::new());
    let (object, warnings) = loop {
        let Some(object) = ConfObject::of_value(rest.clone()).ok().map(Rc::new) else { return };
        let (parsed, warnings) = parser_warnings::listen(|| (plugin.parse)(&object, version));
        let Err(error) = parsed else { break (object, warnings) };
        let name = error.key().and_then(|key| remove(&mut rest, key));
        // What is missing may be what was removed.
        if errors.is_empty() || name.is_some() && !removed.iter().any(|removed| error.msg.contains(removed)) {
            errors.push(error);
        }
        match name {
            Some(name) => removed.push(format!("key {name}")),
            None => break (object, warnings),
        }
    };
    for Warning { message, key, value } in warnings {
        let meant = of_value(&value, &message);
        let text = format!("key {key} = {value}: {message}");
        notes.value(Level::Warning, &join(base, &key), text).help = meant.unwrap_or_default();
    }
    let misspelt = object.misspelt();
    let mut errors = errors.into_iter();
    refused(base, part, (errors.next(), &misspelt), has_more, notes);
    for error in errors {
        refused(base, part, (Some(without_misspelt(error, &misspelt)), &[]), has_more, notes);
    }
    let told: Vec<String> = misspelt.into_iter().map(|one| one.path).collect();
    let beside = known_plugins::find(known, &written.plugin_type);
    ignored_keys::check(base, (plugin, beside), (&object, &told), known, notes);
}

/// Removes the value at a path such as `ipam.subnet`; of one in a list, the whole list, so that no element gets another's place. Returns the
/// name of the key that went.
fn remove(value: &mut Value, path: &str) -> Option<String> {
    let object = value.as_object_mut()?;
    let rest = |name: &str| {
        let (head, rest) = path.split_at_checked(name.len())?;
        let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
        (head.eq_ignore_ascii_case(name) && is_whole && !name.is_empty()).then_some(rest)
    };
    // Of keys that contain dots, such as a sysctl's, the longest.
    let name = object.keys().filter(|name| rest(name).is_some()).max_by_key(|name| name.len())?.clone();
    match (rest(&name)?.strip_prefix('.'), object.get_mut(&name)) {
        (Some(rest), Some(below)) => remove(below, rest),
        _ => object.shift_remove(&name).map(|_| name),
    }
}

/// An error without what it says of misspelt keys, which have findings of their own.
fn without_misspelt(mut error: CniError, misspelt: &[Misspelt]) -> CniError {
    for misspelt in misspelt {
        error.details = error.details.replace(&misspelt.to_string(), "").trim().to_owned();
    }
    error
}

/// What a parser says of a plugin's object: the error with which it refuses it, and the misspelt keys.
pub(crate) fn refused(
    base: &str,
    part: &str,
    (error, misspelt): (Option<CniError>, &[Misspelt]),
    has_more: bool,
    notes: &mut Notes<'_>,
) {
    if let Some(error) = error {
        let error = without_misspelt(error, misspelt);
        // The parsers name the key of each value that they refuse, and none where something is missing.
        let is_missing = error.key().is_none();
        let finding = notes.error(base, part, &error);
        if has_more && is_missing {
            finding.level = Level::Note;
            finding.message = format!("{}, unless a runtime gives it", finding.message);
        }
    }
    for misspelt in misspelt {
        let text = format!("key {} is unknown and is ignored", misspelt.path);
        notes.key(Level::Warning, &join(base, &misspelt.path), text).help = format!("Did you mean {}?", misspelt.meant);
    }
}

/// Whether a finding of [`stranger`] is of no use once the executable has been asked.
pub(crate) fn is_guess(finding: &Finding) -> bool {
    let text = &finding.message;
    text.starts_with("plugin ") && (text.ends_with(UNKNOWN) || text.ends_with(NOT_CHECKED))
}

/// The endings of messages of [`stranger`], by which its findings are known.
const UNKNOWN: &str = " is unknown";
const NOT_CHECKED: &str = " is not part of this suite: its keys are not checked";

/// A plugin of another suite: only its executable knows whether its keys are right.
fn stranger(key: &str, name: &str, known: &[KnownPlugin], notes: &mut Notes<'_>) {
    match json::resembling(name, known.iter().map(|one| one.name)) {
        Some(meant) => {
            notes.value(Level::Warning, key, format!("plugin {name}{UNKNOWN}")).help = format!("Did you mean {meant}?");
        }
        None => {
            notes.value(Level::Note, key, format!("plugin {name}{NOT_CHECKED}"));
        }
    }
}

pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

impl Fault {
    pub(crate) fn of(source: &Source, error: &serde_json::Error) -> Self {
        let text = source.text.as_str();
        let at = if error.is_eof() { text.len() } else { source.offset(error.line(), error.column()) };
        let end = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
        let message = error.to_string();
        let message = match encoding(text) {
            Some(encoding) => encoding.to_owned(),
            None => message.split(" at line ").next().unwrap_or_default().to_owned(),
        };
        let help = of_whole(text)
            .or_else(|| of_error(&message, error.is_eof()))
            .unwrap_or_else(|| at_place(&text[..at], &text[at..]));
        Self { span: at..end, message, help }
    }
}

/// The fault of a file that is no plain UTF-8.
fn encoding(text: &str) -> Option<&'static str> {
    match text.starts_with('\u{feff}') {
        true => Some("the file begins with a byte order mark"),
        false => is_utf_16(text).then_some("the file is UTF-16"),
    }
}

/// Each second byte of plain text in UTF-16 is zero.
fn is_utf_16(text: &str) -> bool {
    let zeros = text.chars().filter(|c| *c == '\0').count();
    zeros > 0 && zeros * 4 >= text.chars().count() && text.chars().any(|c| c != '\0')
}

/// The remedy for a file that is something else altogether.
fn of_whole(text: &str) -> Option<&'static str> {
    let content = text.trim_start();
    let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
    if text.chars().all(|c| c == '\0') {
        return Some("The file has zero bytes only, as after a loss of power: write it anew.");
    }
    if is_utf_16(text) {
        return Some("Save it as UTF-8 without a byte order mark.");
    }
    if has_line("<<<<<<< ") && has_line(">>>>>>> ") {
        return Some("Lines of a merge that was not finished begin with <<<<<<<, ======= and >>>>>>>: resolve it.");
    }
    is_yaml(content).then_some("The file looks like YAML, and runtimes read JSON only.")
}

/// Whether the first line that is no comment is a key of YAML.
fn is_yaml(content: &str) -> bool {
    let mut lines = content.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_key = |line: &str| {
        let key = line.split(':').next().unwrap_or_default();
        line.contains(':') && !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    lines.next().is_some_and(|line| line == "---" || is_key(line))
}

/// The remedy for a word that JSON does not have.
const WORDS: &str = "JSON has true, false and null, in small letters.";

/// The remedy that follows from what the parser says.
fn of_error(message: &str, is_eof: bool) -> Option<&'static str> {
    Some(match message {
        "EOF while parsing a string" => "The \" that ends a text is missing.",
        _ if is_eof => "The end is missing: a bracket is not closed, or the file was cut off while it was written.",
        "trailing characters" => "A file has one network: remove what comes behind it, or give it a file of its own.",
        "expected ident" => WORDS,
        "invalid escape" => "Write \\\\ for a backslash; a prefix length comes after /.",
        "expected `,` or `}`" | "expected `,` or `]`" => "A comma is missing before this place, or a bracket.",
        _ if message.starts_with("control character") => "A text ends on its line: is its second \" missing?",
        _ => return None,
    })
}

/// The remedy that follows from the text at the place.
fn at_place(before: &str, rest: &str) -> &'static str {
    const MISSPELT: [&str; 4] = ["True", "False", "None", "NULL"];
    match rest.chars().next() {
        Some('\u{feff}') => "Save it as UTF-8 without one.",
        Some('}' | ']') if before.trim_end().ends_with(',') => "JSON allows no comma after the last entry.",
        Some('/' | '#') => "JSON has no comments.",
        Some('\'') => "JSON has double quotes only.",
        Some('\u{2018}'..='\u{201f}') => "These quotation marks are typographic: write \" in their place.",
        Some('\u{a0}' | '\u{3000}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}') => {
            "An invisible character is here that is no blank, as from a web page: replace it by a blank."
        }
        Some(_) if MISSPELT.iter().any(|word| rest.starts_with(word)) => WORDS,
        _ => "",
    }
}

/// Whether a value is a placeholder that an installer fills in.
pub(crate) fn is_placeholder(value: &str) -> bool {
    let is_enclosed = |start, end| value.len() > 2 && value.starts_with(start) && value.ends_with(end);
    value.contains("{{") || value.contains("${") || is_enclosed("__", "__") || is_enclosed("<", ">") || {
        let name = value.strip_prefix('$').unwrap_or_default();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}
