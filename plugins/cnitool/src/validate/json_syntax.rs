//! Files that are no JSON: the place, and what happened to the file.

use std::ops::Range;

use crate::validate::key_places::Source;

pub(crate) struct Fault {
    pub(crate) span: Range<usize>,
    pub(crate) message: String,
    pub(crate) help: &'static str,
}

impl Fault {
    pub(crate) fn of(source: &Source, error: &serde_json::Error) -> Self {
        let text = source.text.as_str();
        let at = if error.is_eof() { text.len() } else { source.offset(error.line(), error.column()) };
        let end = text[at..].chars().next().map_or(at, |c| at + c.len_utf8());
        let message = error.to_string();
        let message = match encoding(text) {
            Some(encoding) => encoding.to_owned(),
            None => message.split(" at line ").next().unwrap_or_default().to_owned(),
        };
        let help = of_whole(text)
            .or_else(|| of_error(&message, error.is_eof()))
            .unwrap_or_else(|| at_place(&text[..at], &text[at..]));
        Self { span: at..end, message, help }
    }
}

/// The fault of a file that is no plain UTF-8.
fn encoding(text: &str) -> Option<&'static str> {
    match text.starts_with('\u{feff}') {
        true => Some("the file begins with a byte order mark"),
        false => is_utf_16(text).then_some("the file is UTF-16"),
    }
}

/// Each second byte of plain text in UTF-16 is zero.
fn is_utf_16(text: &str) -> bool {
    let zeros = text.chars().filter(|c| *c == '\0').count();
    zeros > 0 && zeros * 4 >= text.chars().count() && text.chars().any(|c| c != '\0')
}

/// The remedy for a file that is something else altogether.
fn of_whole(text: &str) -> Option<&'static str> {
    let content = text.trim_start();
    let has_line = |start: &str| text.lines().any(|line| line.starts_with(start));
    if text.chars().all(|c| c == '\0') {
        return Some("The file has zero bytes only, as after a loss of power: write it anew.");
    }
    if is_utf_16(text) {
        return Some("Save it as UTF-8 without a byte order mark.");
    }
    if has_line("<<<<<<< ") && has_line(">>>>>>> ") {
        return Some("Lines of a merge that was not finished begin with <<<<<<<, ======= and >>>>>>>: resolve it.");
    }
    is_yaml(content).then_some("The file looks like YAML, and runtimes read JSON only.")
}

/// Whether the first line that is no comment is a key of YAML.
fn is_yaml(content: &str) -> bool {
    let mut lines = content.lines().map(str::trim_end).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let is_key = |line: &str| {
        let key = line.split(':').next().unwrap_or_default();
        line.contains(':') && !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    lines.next().is_some_and(|line| line == "---" || is_key(line))
}

/// The remedy for a word that JSON does not have.
const WORDS: &str = "JSON has true, false and null, in small letters.";

/// The remedy that follows from what the parser says.
fn of_error(message: &str, is_eof: bool) -> Option<&'static str> {
    Some(match message {
        "EOF while parsing a string" => "The \" that ends a text is missing.",
        _ if is_eof => "The end is missing: a bracket is not closed, or the file was cut off while it was written.",
        "trailing characters" => "A file has one network: remove what comes behind it, or give it a file of its own.",
        "expected ident" => WORDS,
        "invalid escape" => "Write \\\\ for a backslash; a prefix length comes after /.",
        "expected `,` or `}`" | "expected `,` or `]`" => "A comma is missing before this place, or a bracket.",
        _ if message.starts_with("control character") => "A text ends on its line: is its second \" missing?",
        _ => return None,
    })
}

/// The remedy that follows from the text at the place.
fn at_place(before: &str, rest: &str) -> &'static str {
    const MISSPELT: [&str; 4] = ["True", "False", "None", "NULL"];
    match rest.chars().next() {
        Some('\u{feff}') => "Save it as UTF-8 without one.",
        Some('}' | ']') if before.trim_end().ends_with(',') => "JSON allows no comma after the last entry.",
        Some('/' | '#') => "JSON has no comments.",
        Some('\'') => "JSON has double quotes only.",
        Some('\u{2018}'..='\u{201f}') => "These quotation marks are typographic: write \" in their place.",
        Some('\u{a0}' | '\u{3000}' | '\u{2000}'..='\u{200f}' | '\u{2028}'..='\u{202f}') => {
            "An invisible character is here that is no blank, as from a web page: replace it by a blank."
        }
        Some(_) if MISSPELT.iter().any(|word| rest.starts_with(word)) => WORDS,
        _ => "",
    }
}

/// Whether a value is a placeholder that an installer fills in.
pub(crate) fn is_placeholder(value: &str) -> bool {
    let is_enclosed = |start, end| value.len() > 2 && value.starts_with(start) && value.ends_with(end);
    value.contains("{{") || value.contains("${") || is_enclosed("__", "__") || is_enclosed("<", ">") || {
        let name = value.strip_prefix('$').unwrap_or_default();
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }
}
