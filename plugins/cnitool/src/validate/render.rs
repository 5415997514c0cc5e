//! Findings as text, with the line and a caret, as compilers print them; and as JSON.

use std::ops::Range;

use annotate_snippets::renderer::DecorStyle;
use annotate_snippets::{AnnotationKind, Group, Level as Title, Origin, Renderer, Snippet};
use serde_json::{Value, json};

use crate::validate::{Finding, Level, Report, Source};

use cni_suite::text::acts;
use cni_suite::text::visible;

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
