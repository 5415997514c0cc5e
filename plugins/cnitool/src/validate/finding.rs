//! A fault: its level, its place, what to do.

use std::fmt;
use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level as Title, Origin, Renderer, Snippet};
use cni_spec::CniError;
use cni_spec::json::resembling;
use cni_suite::text::{acts, visible};
use serde_json::{Value, json};

use crate::validate::Report;
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

/// Columns of a line: a longer source line is cut around the place.
const COLUMNS: usize = 80;

/// Bytes of a line that are rendered on either side of the place. More of them than columns: some have no width.
const AROUND_BYTES: usize = 8 * COLUMNS;

/// A finding as lines of text, with a newline at the end.
pub fn text(source: &Source, finding: &Finding, has_colour: bool) -> String {
    let title = match finding.level {
        Level::Error => Title::ERROR,
        Level::Warning => Title::WARNING,
        Level::Note => Title::NOTE,
    };
    let Excerpt { text, span, line, is_cut } = Excerpt::of(source, &finding.span);
    let name = visible(&source.name);
    let (message, help) = (visible(&finding.message), visible(&finding.help));
    let renderer = if has_colour { Renderer::styled() } else { Renderer::plain() };
    let renderer = renderer.term_width(COLUMNS).decor_style(DecorStyle::Ascii);
    let helps = (!help.is_empty()).then(|| Group::with_title(Title::HELP.secondary_title(help.as_str())));
    if source.text.is_empty() {
        // No line has the place.
        let file = Group::with_title(title.primary_title(message.as_str())).element(Origin::path(name.as_str()));
        let groups: Vec<Group<'_>> = std::iter::once(file).chain(helps).collect();
        return format!("{}\n", renderer.render(&groups));
    }
    let column = text[..span.start].chars().count() + 1;
    let snippet = Snippet::source(text.as_str()).line_start(line).path(name.as_str()).fold(true);
    let placed = Group::with_title(title.primary_title(message.as_str()))
        .element(snippet.annotation(AnnotationKind::Primary.span(span)));
    let groups: Vec<Group<'_>> = std::iter::once(placed).chain(helps).collect();
    let rendered = renderer.render(&groups);
    match rendered.split_once('\n').filter(|_| is_cut) {
        // The renderer counts the column in what it was given.
        Some((title, rest)) => {
            let whole = source.position(finding.span.start).1;
            let rest = rest.replacen(&format!("{name}:{line}:{column}"), &format!("{name}:{line}:{whole}"), 1);
            format!("{title}\n{rest}\n")
        }
        None => format!("{rendered}\n"),
    }
}

/// The line of a place, or the part of a long one that is shown: the cost of a finding does not grow with the file.
struct Excerpt {
    /// A file may come from anywhere: nothing of it may act on a terminal.
    text: String,
    span: Range<usize>,
    line: usize,
    /// Whether the line begins before it.
    is_cut: bool,
}

impl Excerpt {
    fn of(source: &Source, span: &Range<usize>) -> Self {
        let text = &source.text;
        // The place behind the last line is shown at that line's end.
        let last = text.strip_suffix('\n').map_or(text.len(), str::len);
        let start = text.floor_char_boundary(span.start.min(last));
        let near = text.ceil_char_boundary(start.saturating_sub(AROUND_BYTES));
        let (from, is_cut) = match text[near..start].rfind('\n') {
            Some(newline) => (near + newline + 1, false),
            None => (near, near > 0),
        };
        let far = text.floor_char_boundary(start.saturating_add(AROUND_BYTES));
        let to = text[start..far].find('\n').map_or(far, |newline| start + newline);
        let end = text.floor_char_boundary(span.end.clamp(start, to));
        let line = source.position(start).0;
        Self { text: displayable(&text[from..to]), span: start - from..end - from, line, is_cut }
    }
}

/// Text of the same length in bytes, in which what acts is replaced, but for what the renderer replaces itself.
fn displayable(text: &str) -> String {
    let replace = |c: char| match c.len_utf8() {
        2 if acts(c) => '·',
        3 if acts(c) => char::REPLACEMENT_CHARACTER,
        _ => c,
    };
    text.chars().map(replace).collect()
}

/// A file with its network and its findings.
pub fn json(report: &Report, file: usize) -> Value {
    let source = &report.sources[file];
    let finding = |one: &Finding| {
        let (line, column) = source.position(one.span.start);
        let (end_line, end_column) = source.position(one.span.end);
        json!({"level": one.level.as_str(), "line": line, "column": column, "endLine": end_line, "endColumn": end_column,
            "key": one.key, "message": one.message, "help": one.help})
    };
    let network = report.networks.iter().find(|network| network.file == file).map(|network| &network.conf);
    let types = network.map(|conf| conf.plugins.iter().map(|plugin| plugin.plugin_type.as_str()).collect::<Vec<_>>());
    let capabilities = network.map(|conf| {
        let all = conf.plugins.iter().flat_map(|plugin| plugin.capabilities.iter().cloned());
        all.collect::<std::collections::BTreeSet<_>>()
    });
    json!({"file": source.name, "network": network.map(|conf| &conf.name), "cniVersion": network.map(|conf| &conf.cni_version),
        "plugins": types, "capabilities": capabilities, "findings": report.of_file(file).map(finding).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::validate;
    use std::time::Duration;

    fn processor_time() -> Duration {
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID).unwrap().into()
    }

    /// The processor's time for a list of so many plugins in one line, each with a finding, all rendered.
    fn cost(plugins: usize) -> Duration {
        let plugins = vec![r#"{"type":"strange","é":1}"#; plugins].join(",");
        let list = format!(r#"{{"cniVersion":"1.0.0","name":"n","plugins":[{plugins}]}}"#);
        let begin = processor_time();
        let report = validate(vec![Source::stream("-", list.as_bytes())], &[]);
        let rendered: Vec<String> =
            report.findings.iter().map(|finding| text(&report.sources[0], finding, false)).collect();
        assert!(rendered.last().unwrap().contains(&format!(":1:{}", list.chars().count() - 17)), "{rendered:?}");
        assert!(json(&report, 0).is_object());
        processor_time() - begin
    }

    #[test]
    fn the_cost_grows_with_the_file_and_not_with_its_square() {
        let (small, large) = (cost(100), cost(1600));
        assert!(large < small * 64, "100 plugins took {small:?}, 1600 took {large:?}");
    }

    #[test]
    fn the_part_of_a_long_line_that_is_shown_is_around_the_place() {
        let list = |keys: &str| format!(r#"{{"name":"n",{keys}"plugin":[],{keys}"plugins":[]}}"#);
        for keys in [r#""x":1,"#.repeat(500), r#""é\u202e":1,"#.repeat(500), String::new()] {
            let list = list(&keys);
            let report = validate(vec![Source::file("a.conflist", list.as_bytes())], &[]);
            let finding = report.findings.iter().find(|finding| finding.key == "plugin").unwrap();
            let shown = text(&report.sources[0], finding, false);
            let column = list.find("\"plugin\"").map(|at| list[..at].chars().count() + 1).unwrap();
            assert!(shown.contains(&format!("--> a.conflist:1:{column}\n")), "{shown}");
            let lines: Vec<&str> = shown.lines().collect();
            let caret = lines[4].find('^').unwrap();
            let place = lines[3].char_indices().nth(lines[4][..caret].chars().count()).unwrap().0;
            assert!(lines[3][place..].starts_with("\"plugin\""), "{shown}");
        }
    }
}
