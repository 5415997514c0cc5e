//! The page in a real browser, where one is installed.

use crate::made_up;
use cni_conformance::report::{Document, Format};
use roxmltree::{Node, ParsingOptions};
use std::process::{Command, Stdio};

/// `outer.html`, or the page itself if that is empty, after its scripts have run. `None` without a browser.
///
/// The page is `page.html` beside it.
fn opened(name: &str, document: &Document, outer: &str, address: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("page.html"), Format::Html.text(document)).unwrap();
    std::fs::write(path("outer.html"), outer).unwrap();
    let file = if outer.is_empty() { "page.html" } else { "outer.html" };
    let mut command = Command::new("chromium");
    command.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", "--virtual-time-budget=5000"]);
    command.args(["--allow-file-access-from-files", "--window-size=1280,900"]);
    command.arg(format!("--user-data-dir={}", path("profile"))).arg(format!("file://{}{address}", path(file)));
    match command.env("HOME", folder.path()).stdin(Stdio::null()).output() {
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

/// What a script says that works on the page, which is `page`, in a frame of that width.
fn asked(name: &str, document: &Document, width: u32, script: &str) -> Option<serde_json::Value> {
    let outer = format!(
        "<!DOCTYPE html><iframe src=page.html style=width:{width}px;height:800px;border:0></iframe><pre></pre><script>onload = () => {{\n\
         const page = document.querySelector('iframe').contentDocument;\nconst all = (selector) => [...page.querySelectorAll(selector)];\n\
         document.querySelector('pre').textContent = JSON.stringify((() => {{ {script} }})());\n}}</script>"
    );
    let text = opened(name, document, &outer, "")?;
    let said = text.split_once("<pre>").and_then(|(_, rest)| rest.split_once("</pre>")).map(|(said, _)| said);
    Some(serde_json::from_str(said.unwrap()).unwrap_or_else(|error| panic!("{error}: {text}")))
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
    let Some(page) = opened("an_address_with_a_rule_opens_its_details", &made_up::run(), "", "#del.leaves-nothing")
    else {
        return;
    };
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
        let Some(page) = opened(name, &made_up::run(), "", address) else { return };
        let shown = shown(&page);
        if expected.is_empty() {
            assert_eq!(shown.len(), 7, "{address}");
        } else {
            assert_eq!(shown, expected, "{address}");
        }
    }
}

#[test]
fn clicks_open_details_and_narrow_the_matrix() {
    let script = r#"
        const shown = () => all('tr.rule:not([hidden])').map((row) => row.id);
        const open = () => all('tr.more.open').map((row) => row.id);
        const told = [];
        page.querySelector('[id="del.leaves-nothing"] button').click();
        told.push(open());
        page.querySelector('[id="gc.keeps-valid"] td').click();
        page.querySelector('[id="del.leaves-nothing"] th').click();
        told.push(open());
        page.querySelector('[value=differences]').click();
        told.push(shown(), open());
        const profile = page.querySelector('[name=profile]');
        profile.value = 'bridge';
        profile.dispatchEvent(new Event('input', { bubbles: true }));
        told.push(shown(), all('[id="errors.code-of-bad-key"] > td .mark').map((mark) => mark.textContent.trim()));
        page.querySelector('[name=text]').value = 'no such thing';
        profile.dispatchEvent(new Event('input', { bubbles: true }));
        told.push(shown(), page.querySelector('.nothing').hidden);
        page.querySelector('.nothing button').click();
        told.push(shown().length, all('[id="errors.code-of-bad-key"] > td .mark').map((mark) => mark.textContent.trim()));
        return told;
    "#;
    let name = "clicks_open_details_and_narrow_the_matrix";
    let Some(told) = asked(name, &made_up::run(), 1280, script) else { return };
    let expected = serde_json::json!([
        ["more-del.leaves-nothing"],
        ["more-gc.keeps-valid"],
        ["del.leaves-nothing", "check.sees-missing-link", "errors.code-of-bad-key"],
        [],
        ["check.sees-missing-link", "errors.code-of-bad-key"],
        ["pass", "fail"],
        [],
        false,
        7,
        ["pass", "fail 2/2"],
    ]);
    assert_eq!(told, expected);
}

/// The matrix scrolls in its box, with the rules in sight; the page does not.
#[test]
fn nothing_makes_the_page_wider_than_a_phone() {
    let profiles =
        ["bridge", "bridge-dual-stack", "ptp", "macvlan", "ipvlan", "vlan", "host-device", "dummy", "tap", "vrf"];
    let mut many = made_up::run();
    let of_bridge: Vec<_> = many.trials.iter().filter(|trial| trial.profile == "bridge").cloned().collect();
    many.subjects.truncate(1);
    let used = many.profiles[0].clone();
    many.profiles =
        profiles.map(|name| cni_conformance::report::Use { name: name.to_owned(), ..used.clone() }).to_vec();
    let each = |name: &str| {
        let rename = |trial: &cni_conformance::report::Tried| {
            let (subject, profile) = ("ours".to_owned(), name.to_owned());
            cni_conformance::report::Tried { subject, profile, ..trial.clone() }
        };
        of_bridge.iter().map(rename).collect::<Vec<_>>()
    };
    many.trials = profiles.iter().flat_map(|name| each(name)).collect();
    let script = r#"
        all('tr.rule button').forEach((button) => button.click());
        all('details').forEach((one) => { one.open = true; });
        const box = page.querySelector('.box');
        box.scrollLeft = 150;
        const rule = page.querySelector('tr.rule > th').getBoundingClientRect();
        const details = page.querySelector('tr.more.open .in').getBoundingClientRect();
        return [page.documentElement.scrollWidth <= page.documentElement.clientWidth, box.scrollWidth > box.clientWidth,
            rule.left < 30, details.width <= box.clientWidth];
    "#;
    for (document, scrolls) in [(made_up::run(), false), (many, true)] {
        let name = "nothing_makes_the_page_wider_than_a_phone";
        let Some(told) = asked(name, &document, 390, script) else { return };
        assert_eq!(told, serde_json::json!([true, scrolls, true, true]), "{} profiles", document.profiles.len());
    }
}
