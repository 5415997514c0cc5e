//! A file, and the place of each key in it.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::FileType;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use cni_spec::json;
use jsonc_parser::ast::{ObjectProp, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use libcni::conflist::{self, NO_PLUGINS};
use libcni::{Error, NetworkConf};

use crate::validate::finding::join;

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// A list of plugins: `*.conflist`.
    List,
    /// A single plugin: `*.conf` and `*.json`.
    Single,
    /// The one of both that it looks like: a stream has no name.
    Either,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The file's path, for people.
    pub name: String,
    pub text: String,
    pub form: Form,
    /// Why the file cannot be read; it then has no text.
    pub unreadable: Option<Unreadable>,
    /// The files of the folder beside a list, each a plugin that follows those in the list: see
    /// [`libcni::conflist::plugin_files`]. In a [`Report`](crate::validate::Report) they follow their list's source.
    pub(crate) plugin_files: Vec<Source>,
    pub(crate) is_plugin_file: bool,
    /// Whether a runtime finds no plugin: neither in this file, nor in the folder beside it that has the network's name.
    pub(crate) is_without_plugins: bool,
    /// Whether the file is a single plugin's config.
    is_single: bool,
    /// The places at which the pieces of the text begin, so that [`Source::position`] counts in one piece only.
    pieces: Vec<TextPosition>,
}

/// Why a file cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    pub reason: String,
    pub remedy: String,
}

impl Unreadable {
    /// The reason behind an error of [`Source::read`].
    fn find(path: &Path, error: &io::Error) -> Self {
        let link = std::fs::read_link(path).ok().map(|target| target.display().to_string());
        let kind = std::fs::metadata(path).ok().map(|about| about.file_type());
        let is = |test: fn(&FileType) -> bool| kind.as_ref().is_some_and(test);
        let (reason, remedy) = match link {
            Some(target) if error.kind() == io::ErrorKind::NotFound => (
                format!("the link leads to {target}, which does not exist"),
                "Remove the link, or create the file that it leads to.",
            ),
            Some(target) if is(FileType::is_dir) => {
                (format!("the link leads to {target}, which is a folder"), "Remove the link: only files have networks.")
            }
            _ if is(FileType::is_fifo) => (
                "it is a named pipe, and no file".to_owned(),
                "Remove it: a runtime that opens it waits until a process writes to it.",
            ),
            _ if is(FileType::is_socket) => ("it is a socket, and no file".to_owned(), "Remove it."),
            _ if is(|kind| kind.is_block_device() || kind.is_char_device()) => {
                ("it is a device, and no file".to_owned(), "Remove it.")
            }
            _ if error.kind() == io::ErrorKind::PermissionDenied => {
                (format!("cannot read it: {error}"), "Run this as root; runtimes read it as root.")
            }
            _ => (format!("cannot read it: {error}"), "Remove it, or put a file in its place."),
        };
        Self { reason, remedy: remedy.to_owned() }
    }
}

/// A place in a text: its offset in bytes, and its line and column, both from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TextPosition {
    at: usize,
    line: usize,
    column: usize,
}

impl TextPosition {
    /// The place behind `text`, which begins here.
    fn after(self, text: &str) -> Self {
        let at = self.at + text.len();
        match text.rfind('\n') {
            Some(newline) => {
                let column = text[newline + 1..].chars().count() + 1;
                Self { at, line: self.line + text.matches('\n').count(), column }
            }
            None => Self { at, line: self.line, column: self.column + text.chars().count() },
        }
    }
}

/// The size of a piece, but for a character that is not cut in two.
const PIECE_BYTES: usize = 1 << 10;

fn pieces(text: &str) -> Vec<TextPosition> {
    let mut place = TextPosition { at: 0, line: 1, column: 1 };
    let mut pieces = vec![place];
    while text.len() - place.at > PIECE_BYTES {
        place = place.after(&text[place.at..text.floor_char_boundary(place.at + PIECE_BYTES)]);
        pieces.push(place);
    }
    pieces
}

/// A config is a few kilobytes; a stream that never ends is none.
const BYTES_MAX: u64 = 16 << 20;

fn bytes(stream: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Source {
    pub fn read(path: &Path) -> io::Result<Self> {
        let bytes = libcni::plain_file::read(path)?;
        let is_without_plugins = matches!(NetworkConf::read(path),
            Err(Error::Config { error, .. }) if error.msg.ends_with(NO_PLUGINS));
        let plugin_files = conflist::plugin_files(path, &bytes).map_err(io::Error::other)?;
        let plugin_file = |path: &PathBuf| {
            let read = libcni::plain_file::read(path).map(|bytes| Self::file(&path.display().to_string(), &bytes));
            Self { is_plugin_file: true, ..read.unwrap_or_else(|error| Self::unreadable(path, &error)) }
        };
        let plugin_files = plugin_files.iter().map(plugin_file).collect();
        Ok(Self { is_without_plugins, plugin_files, ..Self::file(&path.display().to_string(), &bytes) })
    }

    /// Reads a file of a folder. One that cannot be read hides no other: it is a source without text, and a finding.
    pub fn read_or_explain(path: &Path) -> Self {
        Self::read(path).unwrap_or_else(|error| Self::unreadable(path, &error))
    }

    fn unreadable(path: &Path, error: &io::Error) -> Self {
        Self { unreadable: Some(Unreadable::find(path, error)), ..Self::file(&path.display().to_string(), b"") }
    }

    /// Reads a stream, at most 16 MiB of it.
    /// Errors: as `read(2)`.
    pub fn read_stream(name: &str, stream: impl Read) -> io::Result<Self> {
        Ok(Self::stream(name, &bytes(stream)?))
    }

    /// A file of this name and content; its form follows from the name.
    pub fn file(name: &str, bytes: &[u8]) -> Self {
        let form = if libcni::conflist::is_list(name.as_ref()) { Form::List } else { Form::Single };
        Self::of_form(form, name, bytes)
    }

    /// A content without a file name.
    pub fn stream(name: &str, bytes: &[u8]) -> Self {
        Self::of_form(Form::Either, name, bytes)
    }

    fn of_form(form: Form, name: &str, bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes).into_owned();
        let is_single = match form {
            Form::List => false,
            Form::Single => true,
            Form::Either => {
                let value = json::parse(bytes).unwrap_or_default();
                value.get("plugins").is_none() && json::member(&value, "type").is_some()
            }
        };
        Self {
            name: name.to_owned(),
            pieces: pieces(&text),
            text,
            form,
            unreadable: None,
            plugin_files: Vec::new(),
            is_plugin_file: false,
            is_without_plugins: false,
            is_single,
        }
    }

    /// Whether the whole file is a single plugin's config.
    pub(crate) fn is_single(&self) -> bool {
        self.is_single
    }

    /// Line and column of a place, both from 1; the column counts characters.
    pub fn position(&self, at: usize) -> (usize, usize) {
        let at = self.text.floor_char_boundary(at);
        let piece = self.pieces.partition_point(|piece| piece.at <= at) - 1;
        let TextPosition { line, column, .. } = self.pieces[piece].after(&self.text[self.pieces[piece].at..at]);
        (line, column)
    }

    /// The place of a line and a column in bytes, both from 1, as serde_json counts them.
    pub(crate) fn offset(&self, line: usize, column: usize) -> usize {
        let starts = std::iter::once(0).chain(self.text.match_indices('\n').map(|(newline, _)| newline + 1));
        let start = starts.take(line.max(1)).last().unwrap_or(0);
        let offset = (start + column.saturating_sub(1)).min(self.text.len());
        (0..=offset).rfind(|at| self.text.is_char_boundary(*at)).unwrap_or(0)
    }

    pub(crate) fn tree(&self) -> Tree<'_> {
        let strict = ParseOptions {
            allow_comments: false,
            allow_loose_object_property_names: false,
            allow_trailing_commas: false,
            allow_missing_commas: false,
            allow_single_quoted_strings: false,
            allow_hexadecimal_numbers: false,
            allow_unary_plus_numbers: false,
            ..ParseOptions::default()
        };
        let parsed = parse_to_ast(&self.text, &CollectOptions::default(), &strict);
        Tree(parsed.ok().and_then(|parsed| parsed.value))
    }
}

/// A part of a key's entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Key,
    Value,
}

pub(crate) struct Tree<'a>(Option<Value<'a>>);

impl Tree<'_> {
    /// The place of `plugins[1].ipam.subnet`, or of the innermost object on the way to it that exists: a missing key has no
    /// place of its own. Keys are found as plugins find them, in any case, the last of equal ones.
    pub(crate) fn find(&self, path: &str, part: Part) -> Range<usize> {
        let Some(root) = &self.0 else { return 0..0 };
        let (mut node, mut found, mut rest) = (root, opening(root), path);
        while let Some((key, value, after)) = step(node, rest) {
            found = match (part, key) {
                (Part::Key, Some(key)) => key,
                (Part::Key | Part::Value, _) => place(value),
            };
            (node, rest) = (value, after.strip_prefix('.').unwrap_or(after));
        }
        found
    }

    /// The number of elements of the list of a key of the whole object; 0 if it has none.
    pub(crate) fn count(&self, key: &str) -> usize {
        match self.0.as_ref().and_then(|root| step(root, key)) {
            Some((_, Value::Array(array), "")) => array.elements.len(),
            _ => 0,
        }
    }

    /// The keys of the whole object, and their places.
    pub(crate) fn keys(&self) -> Vec<(&str, Range<usize>)> {
        self.keys_of("")
    }

    /// The keys of the object at a path, and their places; none if there is no such object.
    pub(crate) fn keys_of(&self, path: &str) -> Vec<(&str, Range<usize>)> {
        let (mut node, mut rest) = (self.0.as_ref(), path);
        while let Some((_, value, after)) = node.and_then(|node| step(node, rest)) {
            (node, rest) = (Some(value), after.strip_prefix('.').unwrap_or(after));
        }
        match node {
            Some(Value::Object(object)) if rest.is_empty() => {
                object.properties.iter().map(|property| (property.name.as_str(), range(&property.name))).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The keys that an object has more than once, exactly so spelled: of each but the first the name, path and place.
    pub(crate) fn repeated(&self) -> Vec<(&str, String, Range<usize>)> {
        let mut found = Vec::new();
        let mut nodes: Vec<(String, &Value<'_>)> = self.0.iter().map(|root| (String::new(), root)).collect();
        while let Some((path, node)) = nodes.pop() {
            match node {
                Value::Object(object) => {
                    let mut names = HashSet::new();
                    for property in &object.properties {
                        let name = property.name.as_str();
                        let path = join(&path, name);
                        if !names.insert(name) {
                            found.push((name, path.clone(), range(&property.name)));
                        }
                        nodes.push((path, &property.value));
                    }
                }
                Value::Array(array) => {
                    let elements = array.elements.iter().enumerate();
                    nodes.extend(elements.map(|(index, element)| (format!("{path}[{index}]"), element)));
                }
                _ => (),
            }
        }
        found
    }
}

/// A step along a path: the place of the key, if it is a key's; the value; the rest of the path. Of keys that contain
/// dots, such as a sysctl's, the longest counts.
fn step<'a, 'b, 'c>(node: &'b Value<'a>, path: &'c str) -> Option<(Option<Range<usize>>, &'b Value<'a>, &'c str)> {
    match node {
        Value::Object(object) => {
            let rest = |property: &ObjectProp<'_>| {
                let quoted = path.strip_prefix('"').unwrap_or(path);
                let name = property.name.as_str();
                let (head, rest) = quoted.split_at_checked(name.len())?;
                let rest = rest.strip_prefix('"').unwrap_or(rest);
                let is_whole = rest.is_empty() || rest.starts_with(['.', '[']);
                (head.eq_ignore_ascii_case(name) && is_whole && !name.is_empty()).then_some(rest)
            };
            let named = object.properties.iter().filter_map(|property| Some((property, rest(property)?)));
            let (property, rest) = named.min_by_key(|(property, rest)| (rest.len(), Reverse(property.start())))?;
            Some((Some(range(&property.name)), &property.value, rest))
        }
        Value::Array(array) => {
            let (index, rest) = path.strip_prefix('[')?.split_once(']')?;
            Some((None, array.elements.get(index.parse::<usize>().ok()?)?, rest))
        }
        _ => None,
    }
}

fn range(node: &impl Ranged) -> Range<usize> {
    node.start()..node.end()
}

/// A value's place: of objects and lists, which may have many lines, that of the opening bracket.
fn place(value: &Value<'_>) -> Range<usize> {
    match value {
        Value::Object(_) | Value::Array(_) => opening(value),
        _ => range(value),
    }
}

fn opening(value: &Value<'_>) -> Range<usize> {
    value.start()..value.start() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_any_case_and_the_last_of_equal_ones() {
        let text = r#"{"a": {"B": [1, {"c": "first", "C": "é"}]}}"#;
        let source = Source::file("x.conflist", text.as_bytes());
        let tree = source.tree();
        let shown = |path: &str, part| &text[tree.find(path, part)];
        assert_eq!(shown("a.b[1].c", Part::Value), "\"é\"");
        assert_eq!(shown("a.b[1].c", Part::Key), "\"C\"");
        assert_eq!(shown("a.b[0]", Part::Value), "1");
        assert_eq!(shown("a.b", Part::Value), "[");
    }

    #[test]
    fn a_missing_key_is_placed_in_its_object() {
        let text = r#"{"plugins": [{"type": "bridge"}]}"#;
        let source = Source::file("x.conflist", text.as_bytes());
        assert_eq!(source.tree().find("plugins[0].ipam.subnet", Part::Value), 13..14);
        assert_eq!(source.tree().find("nothing", Part::Key), 0..1);
        assert_eq!(Source::file("x.conflist", b"{").tree().find("a", Part::Key), 0..0);
    }

    #[test]
    fn keys_may_contain_dots() {
        let text = r#"{"sysctl": {"net": 1, "net.ipv4.x": {"y": 2}}}"#;
        let source = Source::file("x.conflist", text.as_bytes());
        for path in ["sysctl.net.ipv4.x.y", r#"sysctl."net.ipv4.x".y"#] {
            assert_eq!(&text[source.tree().find(path, Part::Value)], "2", "{path}");
        }
        assert_eq!(&text[source.tree().find("sysctl.net", Part::Value)], "1");
    }

    #[test]
    fn positions_count_characters_and_offsets_bytes() {
        let source = Source::stream("-", "é\nüb".as_bytes());
        assert_eq!(source.position(0), (1, 1));
        assert_eq!(source.position(5), (2, 2));
        assert_eq!(source.offset(2, 3), 5);
        assert_eq!(source.offset(9, 9), 6);
        let long = "é\nüb, ".repeat(1000);
        let source = Source::stream("-", long.as_bytes());
        for at in [0, 5, PIECE_BYTES - 1, PIECE_BYTES, 3 * PIECE_BYTES + 1, long.len()] {
            let before = &long[..long.floor_char_boundary(at)];
            let column = before.rsplit('\n').next().unwrap().chars().count() + 1;
            assert_eq!(source.position(at), (before.matches('\n').count() + 1, column), "{at}");
        }
    }
}
