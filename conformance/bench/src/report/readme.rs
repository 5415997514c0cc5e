//! This crate's README with the newest figures.

use std::fs;
use std::path::Path;

use super::{Report, tables, write_charts};

const BEGIN: &str = "<!-- what `--write-readme` writes begins here -->";
const END: &str = "<!-- and ends here -->";

/// Puts tables and charts into the README of the sources that this was built from.
///
/// # Errors
/// The sources are not there, or the README has no place for figures.
pub(crate) fn rewrite(report: &Report) -> Result<(), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let file = folder.join("README.md");
    let text = fs::read_to_string(&file).map_err(|error| format!("cannot read {}: {error}", file.display()))?;
    write_charts(report, folder)?;
    let text = replaced(&text, report).ok_or_else(|| format!("{} has no marks for figures", file.display()))?;
    fs::write(&file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

fn replaced(text: &str, report: &Report) -> Option<String> {
    let (before, rest) = text.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    let mut figures = Vec::new();
    tables(report, &mut figures).ok()?;
    let figures = String::from_utf8(figures).ok()?;
    let chart = |about: &str, name: &str, is_there: bool| {
        if is_there { format!("![{about}]({name})\n\n") } else { String::new() }
    };
    let charts = chart("What one call takes, by subject", "latency.svg", !report.rows.is_empty())
        + &chart("What a call takes while something grows", "growth.svg", !report.growth.is_empty());
    Some(format!("{before}{BEGIN}\n\n{charts}{figures}\n{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::super::made_up;
    use super::{BEGIN, END, replaced};

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        let text = format!("before\n{BEGIN}\nold\n{END}\nafter\n");
        let once = replaced(&text, &made_up::report()).unwrap();
        assert!(once.starts_with("before\n") && once.ends_with("after\n") && !once.contains("old"), "{once}");
        assert!(
            once.contains("![What one call takes, by subject](latency.svg)") && once.contains("| bridge ADD"),
            "{once}"
        );
        assert_eq!(replaced(&once, &made_up::report()), Some(once));
        assert_eq!(replaced("no marks", &made_up::report()), None);
    }

    #[test]
    fn this_readme_has_the_marks() {
        assert!(replaced(include_str!("../../README.md"), &made_up::report()).is_some());
    }
}
