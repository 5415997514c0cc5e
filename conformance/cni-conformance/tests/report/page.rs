//! The page: well-formed, and nothing that a plugin printed is more than text in it.

use crate::made_up::{self, HOSTILE, long};
use cni_conformance::report::{Document, Format};
use expect_test::expect_file;
use roxmltree::{Node, ParsingOptions};

/// The page without its own style and script, which are no XML.
fn markup(document: &Document) -> String {
    let mut page = Format::Html.text(document);
    for (start, end) in [("<style>", "</style>"), ("<script>", "</script>"), ("<script>", "</script>")] {
        let from = page.find(start).expect("it has its style and scripts");
        let to = page[from..].find(end).expect("which end") + from + end.len();
        page.replace_range(from..to, "");
    }
    page
}

fn with_tree<T>(text: &str, see: impl Fn(Node<'_, '_>) -> T) -> T {
    let options = ParsingOptions { allow_dtd: true, ..ParsingOptions::default() };
    let tree = roxmltree::Document::parse_with_options(text, options).unwrap_or_else(|error| panic!("{error}\n{text}"));
    see(tree.root_element())
}

#[test]
fn is_as_expected() {
    expect_file!["expected/page.html"].assert_eq(&markup(&made_up::run()));
}

#[test]
fn is_well_formed_and_its_own() {
    let page = markup(&made_up::run());
    assert!(!page.contains("<script") && !page.contains("<style") && !page.contains("<img"));
    with_tree(&page, |root| {
        let mut ids = std::collections::BTreeSet::new();
        for node in root.descendants().filter(Node::is_element) {
            assert!(node.attributes().all(|attribute| !attribute.name().starts_with("on")), "{node:?}");
            let outside = |name| node.attribute(name).is_some_and(|value| !value.starts_with('#'));
            assert!(!outside("href") && !outside("src"), "{node:?} needs something from outside");
            assert!(node.attribute("id").is_none_or(|id| ids.insert(id.to_owned())), "{node:?} is there twice");
        }
        // Every link leads somewhere.
        for link in root.descendants().filter_map(|node| node.attribute("href")) {
            assert!(ids.contains(&link[1..]), "{link}");
        }
    });
    assert!(!Format::Html.text(&made_up::run()).contains("http"));
}

#[test]
fn says_verdicts_in_words_as_well() {
    with_tree(&markup(&made_up::run()), |root| {
        let marks =
            root.descendants().filter(|node| node.attribute("class").is_some_and(|class| class.starts_with("mark ")));
        let mut classes = std::collections::BTreeSet::new();
        for mark in marks {
            classes.insert(mark.attribute("class").unwrap().to_owned());
            let heard = mark.descendants().find(|node| node.attribute("class") == Some("heard")).unwrap();
            assert!(!heard.text().unwrap_or_default().is_empty());
        }
        assert_eq!(classes.len(), 6, "{classes:?}");
    });
}

#[test]
fn shows_what_was_printed_as_text() {
    with_tree(&markup(&made_up::run()), |root| {
        let texts: Vec<_> = root.descendants().filter_map(|node| node.text()).collect();
        let shown = "</script></pre><img src=x onerror=alert(1)>]]>&amp;\"'\u{241b}[31m\u{240d}\u{2400}\u{2421}\\u{9b}\\u{202e}\u{fffd}\\u{ffff}\nnot ok 1";
        assert!(texts.iter().any(|text| text.starts_with(shown)), "{HOSTILE:?}");
        let note = format!("of {} bytes left out here", long().trim_end_matches('\n').len());
        assert!(texts.iter().any(|text| text.contains(&note)), "{note}");
        assert!(texts.iter().all(|text| text.len() < 20_000));
    });
}
