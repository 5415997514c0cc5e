//! Findings as text, with the line and a caret, as compilers print them; and as JSON.

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level as Title, Renderer, Snippet};
use serde_json::{Value, json};

use crate::{Finding, Level, Report, Source};

/// Columns of a line: a longer source line is cut around the place.
const COLUMNS: usize = 80;

/// A finding as lines of text, with a newline at the end.
#[must_use]
pub fn text(source: &Source, finding: &Finding, has_colour: bool) -> String {
    let title = match finding.level {
        Level::Error => Title::ERROR,
        Level::Warning => Title::WARNING,
        Level::Note => Title::NOTE,
    };
    let span = finding.span.start.min(source.text.len())..finding.span.end.min(source.text.len());
    // A file may come from anywhere: nothing of it may act on a terminal.
    let (text, name) = (displayable(&source.text), visible(&source.name));
    let (message, help) = (visible(&finding.message), visible(&finding.help));
    let snippet = Snippet::source(text.as_str()).path(name.as_str()).fold(true);
    let mut groups = vec![
        Group::with_title(title.primary_title(message.as_str()))
            .element(snippet.annotation(AnnotationKind::Primary.span(span))),
    ];
    if !help.is_empty() {
        groups.push(Group::with_title(Title::HELP.secondary_title(help.as_str())));
    }
    let renderer = if has_colour { Renderer::styled() } else { Renderer::plain() };
    format!("{}\n", renderer.term_width(COLUMNS).decor_style(DecorStyle::Ascii).render(&groups))
}

/// Whether a terminal may act on it: controls, marks of direction, and what has no width.
fn acts(c: char) -> bool {
    let marks = ['\u{ad}', '\u{61c}', '\u{180e}', '\u{feff}'];
    let is_mark = matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}');
    c.is_control() || is_mark || marks.contains(&c)
}

/// One line of text, in which all that a terminal may act on is escaped.
#[must_use]
pub fn visible(text: &str) -> String {
    text.chars().map(|c| if acts(c) { c.escape_default().to_string() } else { c.to_string() }).collect()
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
#[must_use]
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
    use crate::validate;

    #[test]
    fn nothing_of_a_file_acts_on_a_terminal() {
        let json = "{\"name\": \"\\u001b]0;x\\u0007\\u009b2J\\u202e\", \"plugins\": [{\"type\": \"\u{9b}\u{202e}\u{1b}[2J\"}]}";
        let report = validate(vec![Source::file("a\u{1b}b.conflist", json.as_bytes())], &[]);
        assert!(!report.findings.is_empty());
        for finding in &report.findings {
            let text = text(&report.sources[0], finding, false);
            assert!(!text.chars().any(|c| c != '\n' && acts(c)), "{text:?}");
        }
        let raw = Source::stream("-", "{\"name\": \"a\u{9b}b\u{202e}\u{feff}c\", \"plugins\": 1}".as_bytes());
        let report = validate(vec![raw], &[]);
        let text = text(&report.sources[0], &report.findings[0], false);
        assert!(!text.chars().any(|c| c != '\n' && acts(c)), "{text:?}");
    }
}
