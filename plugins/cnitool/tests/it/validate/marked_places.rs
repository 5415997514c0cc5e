//! Configurations whose texts mark the places of the findings in them.

use crate::schema::schemas_and_parsers::compare;
use cnitool::validate::{Level, Report, Source, validate};
use expect_test::Expect;

/// A file whose text marks the place of each finding: `"mtu": «"big"»`.
fn file(name: &str, marked: &str) -> (Source, Vec<std::ops::Range<usize>>) {
    let (mut text, mut places, mut open) = (String::new(), Vec::new(), Vec::new());
    for c in marked.chars() {
        match c {
            '«' => open.push(text.len()),
            '»' => places.push(open.pop().unwrap()..text.len()),
            c => text.push(c),
        }
    }
    places.sort_by_key(|place| (place.start, place.end));
    (Source::file(name, text.as_bytes()), places)
}

fn shown(report: &Report) -> String {
    let line = |finding: &cnitool::validate::Finding| {
        let help = if finding.help.is_empty() { String::new() } else { format!(" [{}]", finding.help) };
        format!("{}: {}{help}", finding.level, finding.message)
    };
    report.findings.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The findings in some files. Each is at a marked place.
#[track_caller]
pub(super) fn find(files: &[(&str, &str)]) -> String {
    let (sources, places): (Vec<_>, Vec<_>) = files.iter().map(|(name, marked)| file(name, marked)).unzip();
    let report = validate(sources, cnitool::keys::ALL);
    for (file, places) in places.iter().enumerate() {
        let mut found: Vec<_> = report.of_file(file).map(|finding| finding.span.clone()).collect();
        found.dedup();
        assert_eq!(&found, places, "{:?}: {}", files[file], shown(&report));
        if files[file].0.ends_with(".conflist") {
            let errors = report.of_file(file).filter(|finding| finding.level == Level::Error);
            let errors: Vec<&str> = errors.map(|finding| finding.message.as_str()).collect();
            compare(&report.sources[file].text, &errors);
        }
    }
    shown(&report)
}

/// The findings in a file of each text of the table: each line is a text, but for comments (`# `), and the findings in it (`=> `)
/// follow it.
#[track_caller]
pub(super) fn check(name: &str, table: &Expect) {
    check_each(name, str::to_owned, table);
}

/// The findings in a list of the plugins of each line.
#[track_caller]
pub(super) fn check_plugins(table: &Expect) {
    let list = |plugins: &str| format!(r#"{{"cniVersion": "1.0.0", "name": "a", "plugins": [{plugins}]}}"#);
    check_each("x.conflist", list, table);
}

#[track_caller]
fn check_each(name: &str, file: impl Fn(&str) -> String, table: &Expect) {
    let mut shown = Vec::new();
    for line in table.data().lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("=> ")) {
        shown.push(line.to_owned());
        if !line.starts_with("# ") {
            shown.extend(find(&[(name, &file(line))]).lines().map(|finding| format!("=> {finding}")));
        }
    }
    table.assert_eq(&(shown.join("\n") + "\n"));
}
