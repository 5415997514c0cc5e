//! One page that needs nothing else: no other file, no network, and to be read no script.
//!
//! A row of the matrix is a rule, a column a subject (of a single subject, a profile); the row below it has the details.
//! Verdicts differ in shape and word, not only in colour. Texts of plugins are escaped where they enter.

mod details;
mod head;
mod matrix;

use super::document::Document;
use super::tally::{Column, Mark};
use super::text;

/// The page.
pub(super) fn text(document: &Document) -> String {
    let columns = columns(document);
    let title = format!("CNI conformance: {}", labels(document).join(", "));
    // A wide table is printed across.
    let paper = if columns.len() > 7 { "@page { size: A4 landscape }" } else { "@page { size: A4 }" };
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <title>{}</title>\n<style>\n{}{paper}\n</style>\n<script>document.documentElement.classList.add(\"js\")</script>\n\
         </head>\n<body>\n{}{}<main>\n{}{}</main>\n{}<script>\n{}</script>\n</body>\n</html>\n",
        escaped(&title),
        include_str!("page/style.css"),
        include_str!("page/shapes.svg"),
        head::header(document),
        matrix::filters(document),
        matrix::matrix(document, &columns),
        head::footer(document),
        include_str!("page/script.js"),
    )
}

/// A column for each subject, or for each profile of a single one.
fn columns(document: &Document) -> Vec<Column> {
    match document.subjects.len() {
        1 => Column::by_profile(document),
        _ => Column::by_subject(document),
    }
}

fn labels(document: &Document) -> Vec<String> {
    document.subjects.iter().map(|subject| subject.label.clone()).collect()
}

/// Text of others, for an element or an attribute.
fn escaped(text: &str) -> String {
    let text = text::visible(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    text.replace('"', "&quot;").replace('\'', "&#39;")
}

/// The class of a mark.
fn class(mark: Mark) -> &'static str {
    match mark {
        Mark::Fail => "fail",
        Mark::Broken => "broken",
        Mark::Pass => "pass",
        Mark::Skip => "skip",
        Mark::Untestable => "untestable",
        Mark::Absent => "absent",
    }
}

/// A mark as a shape, with words beside it; readers of the screen hear what the shape means.
fn shape(mark: Mark, words: &str) -> String {
    let (class, word) = (class(mark), mark.word());
    let words =
        if words.is_empty() { String::new() } else { format!(" <span class=\"count\">{}</span>", escaped(words)) };
    format!(
        "<span class=\"mark {class}\"><svg aria-hidden=\"true\"><use href=\"#shape-{class}\"/></svg>\
         <span class=\"heard\">{word}</span>{words}</span>"
    )
}
