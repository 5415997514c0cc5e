//! The findings of `findings.txt`: below the names of files (`== `) each line is a case, and the findings in it (`=> `) follow it.
//! A case has a text for each file, with ` && ` between them; `plugins` before the names says that a text is that of a list's
//! plugins. `«` and `»` enclose the place of a finding. Comments begin with `# `.

use crate::schemas_and_parsers::compare;
use cnitool::validate::{Finding, Level, Source, validate};
use expect_test::expect_file;

/// Signs for characters that no line shows.
const SIGNS: [(char, char); 4] = [('␊', '\n'), ('␀', '\0'), ('⍽', '\u{a0}'), ('⌷', '\u{feff}')];

/// Shows a case with marks at the places of its findings, and with these.
fn found(names: &str, case: &str) -> String {
    let (names, tail) = names.strip_prefix("plugins ").map_or((names, ""), |names| (names, "]}"));
    let head = |file: usize| match tail {
        "" => String::new(),
        _ => format!(r#"{{"cniVersion": "1.0.0", "name": "{}", "plugins": ["#, ["a", "b"][file]),
    };
    let source = |(file, (text, name)): (usize, (&str, &str))| {
        let meant = |c| SIGNS.iter().find(|(sign, _)| *sign == c).map_or(c, |(_, meant)| *meant);
        let text: String = text.chars().filter(|c| !['«', '»'].contains(c)).map(meant).collect();
        Source::file(name, format!("{}{text}{tail}", head(file)).as_bytes())
    };
    let report =
        validate(case.split(" && ").zip(names.split(' ')).enumerate().map(source).collect(), cnitool::keys::ALL);
    let marked = |(file, source): (usize, &Source)| {
        let mut text = source.text.clone();
        let mut places: Vec<_> = report.of_file(file).map(|finding| finding.span.clone()).collect();
        places.dedup();
        for place in places.into_iter().rev() {
            text.insert(place.end, '»');
            text.insert(place.start, '«');
        }
        if source.name.ends_with(".conflist") {
            let errors = report.of_file(file).filter(|finding| finding.level == Level::Error);
            compare(&source.text, &errors.map(|finding| finding.message.as_str()).collect::<Vec<_>>());
        }
        let shown = |c| SIGNS.iter().find(|(_, meant)| *meant == c).map_or(c, |(sign, _)| *sign);
        let text = text.strip_prefix(&head(file)).and_then(|text| text.strip_suffix(tail)).unwrap_or(&text);
        text.chars().map(shown).collect::<String>()
    };
    let line = |finding: &Finding| {
        let help = if finding.help.is_empty() { String::new() } else { format!(" [{}]", finding.help) };
        format!("\n=> {}: {}{help}", finding.level, finding.message)
    };
    let texts: Vec<_> = report.sources.iter().enumerate().map(marked).collect();
    texts.join(" && ") + &report.findings.iter().map(line).collect::<String>()
}

#[test]
fn findings_are_at_their_places() {
    let (mut names, mut shown) = ("", String::new());
    for line in include_str!("findings.txt").lines().filter(|line| !line.starts_with("=> ")) {
        names = line.strip_prefix("== ").unwrap_or(names);
        let is_case = !["== ", "# "].iter().any(|mark| line.starts_with(mark));
        shown += &if is_case { found(names, line) } else { line.to_owned() };
        shown.push('\n');
    }
    expect_file!["findings.txt"].assert_eq(&shown);
}
