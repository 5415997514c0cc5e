//! The page in a real browser, where one is installed.

use crate::made_up;
use cni_conformance::report::Format;
use roxmltree::{Node, ParsingOptions};
use std::process::{Command, Stdio};

/// The page after its script has run, opened with `address` behind its name. `None` without a browser.
fn opened(name: &str, address: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    std::fs::write(&page, Format::Html.text(&made_up::run())).unwrap();
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000"]);
    command.arg(format!("--user-data-dir={}", folder.path().join("profile").display()));
    command.arg(format!("file://{}{address}", page.display())).env("HOME", folder.path()).stdin(Stdio::null());
    match command.output() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("SKIP {name}: chromium is not installed");
            None
        }
        output => {
            let output = output.unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(String::from_utf8(output.stdout).unwrap())
        }
    }
}

/// Attributes of the row of a rule and of the one with its details, as the browser has them.
fn rows(page: &str) -> Vec<(String, bool, bool)> {
    // The browser writes elements without end as HTML has them.
    let body = page.find("<main>").zip(page.find("</main>")).map(|(from, to)| page[from..to + 7].to_owned()).unwrap();
    let body = body.replace("&nbsp;", " ").replace("<wbr>", "");
    let from = body.find("<table class=\"matrix").unwrap();
    let to = body[from..].find("<p class=\"nothing\"").unwrap() + from;
    let table = body[from..to].trim_end().trim_end_matches("</div>").trim_end();
    let table = table.replace(" hidden=\"\"", " hidden=\"true\"");
    let tree = roxmltree::Document::parse_with_options(&table, ParsingOptions::default()).unwrap();
    let is_rule =
        |node: &Node<'_, '_>| node.attribute("class").is_some_and(|class| class.split(' ').any(|one| one == "rule"));
    let rules = tree.descendants().filter(is_rule).map(|row| {
        let more = row.next_sibling_element().unwrap();
        let is_open = more.attribute("class").unwrap().split(' ').any(|class| class == "open");
        let is_told = row.descendants().any(|node| node.attribute("aria-expanded") == Some("true"));
        assert!(!is_open || is_told, "{:?}", row.attribute("id"));
        (row.attribute("id").unwrap().to_owned(), row.attribute("hidden").is_none(), is_open)
    });
    rules.collect()
}

fn shown(page: &str) -> Vec<String> {
    rows(page).into_iter().filter(|(_, is_shown, _)| *is_shown).map(|(id, ..)| id).collect()
}

#[test]
fn an_address_with_a_rule_opens_its_details() {
    let Some(page) = opened("an_address_with_a_rule_opens_its_details", "#del.leaves-nothing") else { return };
    let open: Vec<_> = rows(&page).into_iter().filter(|(.., is_open)| *is_open).map(|(id, ..)| id).collect();
    assert_eq!(open, ["del.leaves-nothing"]);
    assert!(page.contains(">7 of 7 rules<"), "the script counted nothing");
}

#[test]
fn an_address_with_filters_narrows_the_matrix() {
    let name = "an_address_with_filters_narrows_the_matrix";
    for (address, expected) in [
        ("?only=failures", vec!["del.leaves-nothing", "check.sees-missing-link", "errors.code-of-bad-key"]),
        ("?only=differences&level=must", vec!["del.leaves-nothing", "check.sees-missing-link"]),
        ("?profile=bridge&only=failures", vec!["check.sees-missing-link", "errors.code-of-bad-key"]),
        ("?text=jump+cni-abc", vec!["del.leaves-nothing"]),
        ("?level=convention", vec!["chain.passes-on"]),
        // A link to a rule wins over filters that hide it.
        ("?level=convention#gc.keeps-valid", vec!["add.prints-a-result"; 0]),
    ] {
        let Some(page) = opened(name, address) else { return };
        let shown = shown(&page);
        if expected.is_empty() {
            assert_eq!(shown.len(), 7, "{address}");
        } else {
            assert_eq!(shown, expected, "{address}");
        }
    }
}
