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
    let snippet = Snippet::source(source.text.as_str()).path(source.name.as_str()).fold(true);
    let mut groups = vec![
        Group::with_title(title.primary_title(finding.message.as_str()))
            .element(snippet.annotation(AnnotationKind::Primary.span(span))),
    ];
    if !finding.help.is_empty() {
        groups.push(Group::with_title(Title::HELP.secondary_title(finding.help.as_str())));
    }
    let renderer = if has_colour { Renderer::styled() } else { Renderer::plain() };
    format!("{}\n", renderer.term_width(COLUMNS).decor_style(DecorStyle::Ascii).render(&groups))
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
