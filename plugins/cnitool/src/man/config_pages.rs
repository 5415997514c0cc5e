//! Pages of network files and of plugins, from the schemas and the plugins' pages in Markdown.

use super::titled;
use crate::keys::ALL;
use crate::schema;
use crate::validate::{KnownPlugin, Role};
use roff::{Inline, Roff, bold, italic, roman};
use serde_json::Value;

const SPECIFICATION: &str = "https://www.cni.dev/docs/spec/";

pub(super) fn plugin_page(plugin: &KnownPlugin) -> String {
    let mut page = begin(&format!("cni-{}", plugin.name), "8", &summary(plugin));
    page.control("SH", ["SYNOPSIS"]);
    code(&mut page, &synopsis(plugin));
    page.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut page, &introduction(plugin.readme));
    page.control("SH", ["KEYS"]);
    let mut keys = Vec::new();
    flatten("", &schema::find(plugin.name).unwrap_or_default(), &mut keys);
    match keys.is_empty() {
        true => drop(page.text([roman("It has no keys of its own.")])),
        false => entries(&mut page, &keys),
    }
    let versions: Vec<&str> = plugin.versions.iter().map(|version| version.as_str()).collect();
    page.control("SH", ["VERSIONS"]);
    page.text([roman(format!("Versions of the specification: {}.", versions.join(", ")))]);
    page.control("SH", ["EXAMPLES"]);
    code(&mut page, example(plugin.readme));
    see_also(&mut page, &["cni-conflist(5)", "cnitool-validate(1)", "cnitool-plan(1)", "cnitool-schema(1)"]);
    titled(&page.render(), &format!("cni-{}", plugin.name), "8")
}

pub(super) fn conflist_page() -> String {
    let mut page = begin("cni-conflist", "5", "networks of containers, for the plugins of CNI");
    page.control("SH", ["SYNOPSIS"]);
    page.text([roman("/etc/cni/net.d/NAME.conflist")]);
    page.control("SH", ["DESCRIPTION"]);
    paragraphs(&mut page, &[
        "A network is a file of JSON: its name, and the plugins that are called for each container, in this order. A file `*.conflist` has a \
         list of plugins. A file `*.conf` or `*.json` has one plugin, with the keys of the network beside its own.".to_owned(),
        "Container runtimes read the files in the order of their names, whatever the extension, and give a container the first network by \
         default. `cnitool validate` reads a file as they do, and shows the place of each fault.".to_owned(),
    ]);
    for (title, schema) in [("KEYS OF A NETWORK", "conflist"), ("KEYS OF EACH PLUGIN", "plugin")] {
        page.control("SH", [title]);
        let mut keys = Vec::new();
        flatten("", &schema::find(schema).unwrap_or_default(), &mut keys);
        entries(&mut page, &keys);
    }
    page.control("SH", ["PLUGINS"]);
    for plugin in ALL {
        page.control("TP", []);
        page.text([bold(plugin.name)]);
        page.text([roman(format!("{} See cni-{}(8).", summary(plugin), plugin.name))]);
    }
    page.control("SH", ["EXAMPLES"]);
    code(
        &mut page,
        ALL.iter().find(|plugin| plugin.role == Role::Interface).map_or("", |plugin| example(plugin.readme)),
    );
    page.control("SH", ["FILES"]);
    page.control("TP", []);
    page.text([roman("/etc/cni/net.d")]);
    page.text([roman("The folder of networks that runtimes read, unless they are set up otherwise.")]);
    page.control("TP", []);
    page.text([roman("/opt/cni/bin")]);
    page.text([roman("The plugins, likewise: a file for each, whose name is its type.")]);
    see_also(&mut page, &["cnitool-validate(1)", "cnitool-plan(1)", "cnitool-schema(1)"]);
    titled(&page.render(), "cni-conflist", "5")
}

fn begin(name: &str, section: &str, summary: &str) -> Roff {
    let mut page = Roff::new();
    page.control("TH", [name, section]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{name} - {}", summary.trim_end_matches('.')))]);
    page
}

fn see_also(page: &mut Roff, pages: &[&str]) {
    page.control("SH", ["SEE ALSO"]);
    page.text([roman(format!("{}, {SPECIFICATION}", pages.join(", ")))]);
}

/// How a network names the plugin.
fn synopsis(plugin: &KnownPlugin) -> String {
    match plugin.role {
        Role::Address => format!("\"ipam\": {{ \"type\": \"{}\", ... }}", plugin.name),
        Role::Interface | Role::Chained | Role::Any => {
            format!("\"plugins\": [ {{ \"type\": \"{}\", ... }} ]", plugin.name)
        }
    }
}

/// The paragraphs of a page in Markdown before its first example, without its title, lists and tables.
fn introduction(readme: &str) -> Vec<String> {
    let before = readme.split("```").next().unwrap_or_default();
    let before = before.split("\n## ").next().unwrap_or_default();
    let is_text = |part: &&str| !part.is_empty() && !part.starts_with(['#', '|', '-']);
    before.split("\n\n").map(str::trim).filter(is_text).map(|part| part.replace('\n', " ")).collect()
}

fn summary(plugin: &KnownPlugin) -> String {
    let first = introduction(plugin.readme).into_iter().next().unwrap_or_default();
    let end = first.find(". ").or_else(|| first.find(": ")).unwrap_or(first.len());
    let sentence = plain(first[..end].trim_end_matches(['.', ':']));
    format!("{sentence}.")
}

/// The first example of a page in Markdown.
fn example(readme: &str) -> &str {
    let from = readme.split_once("```json\n").map_or("", |(_, from)| from);
    from.split("```").next().unwrap_or_default()
}

/// A key: its path from the plugin's object, which values it has, and what it means.
struct Key {
    path: String,
    values: String,
    meaning: String,
}

fn flatten(before: &str, schema: &Value, keys: &mut Vec<Key>) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{before}{name}");
        let meaning = property["description"].as_str().unwrap_or_default().to_owned();
        keys.push(Key { path: path.clone(), values: values(property), meaning });
        let (mut below, mut path) = (property, path);
        while below["items"].is_object() {
            below = &below["items"];
            path += "[]";
        }
        flatten(&format!("{path}."), below, keys);
    }
}

/// The values that a schema takes, in words.
fn values(schema: &Value) -> String {
    if let Some(words) = schema["enum"].as_array() {
        let words = words.iter().filter_map(Value::as_str).filter(|word| !word.is_empty());
        return words.map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ");
    }
    let types: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).filter(|one| *one != "null").collect(),
        _ => Vec::new(),
    };
    let words = types.into_iter().map(|one| match one {
        "boolean" => "true, false".to_owned(),
        "integer" => match (schema["minimum"].as_u64(), schema["maximum"].as_u64()) {
            (Some(first), Some(last)) => format!("{first} to {last}"),
            _ => "number".to_owned(),
        },
        "array" => match values(&schema["items"]).as_str() {
            "" => "list".to_owned(),
            items => format!("list: {items}"),
        },
        "string" => "text".to_owned(),
        other => other.to_owned(),
    });
    words.collect::<Vec<_>>().join(" or ")
}

fn entries(page: &mut Roff, keys: &[Key]) {
    for key in keys {
        page.control("TP", []);
        let values = if key.values.is_empty() { Vec::new() } else { vec![roman("  "), italic(&key.values)] };
        page.text([vec![bold(&key.path)], values].concat());
        page.text(inlines(&meaning(key, keys)));
    }
}

/// What a key means: that of a table, or that of a key with its name elsewhere, or the key that it is part of.
fn meaning(key: &Key, keys: &[Key]) -> String {
    if !key.meaning.is_empty() {
        return key.meaning.clone();
    }
    let (parent, name) = key.path.rsplit_once('.').unwrap_or(("", &key.path));
    let is_same = |other: &&Key| !other.meaning.is_empty() && other.path.rsplit('.').next() == Some(name);
    match (keys.iter().find(is_same), parent) {
        (Some(same), _) => format!("As `{}`.", same.path),
        (None, "") => "An object of the keys that follow.".to_owned(),
        (None, parent) => format!("A part of `{}`.", parent.trim_end_matches("[]")),
    }
}

fn paragraphs(page: &mut Roff, paragraphs: &[String]) {
    for paragraph in paragraphs {
        page.control("PP", []);
        page.text(inlines(paragraph));
    }
}

fn code(page: &mut Roff, text: &str) {
    page.control("PP", []);
    page.control("nf", []);
    page.control("RS", ["2"]);
    page.text([roman(text.trim_end())]);
    page.control("RE", []);
    page.control("fi", []);
}

/// Text of Markdown: what is in backquotes is bold, and of a link its words stay.
fn inlines(text: &str) -> Vec<Inline> {
    let parts = text.split('`').enumerate();
    let inline = |(place, part): (usize, &str)| if place % 2 == 1 { bold(part) } else { roman(unlinked(part)) };
    parts.filter(|(_, part)| !part.is_empty()).map(inline).collect()
}

fn plain(text: &str) -> String {
    unlinked(&text.replace('`', ""))
}

/// The text with the words of its links alone.
fn unlinked(text: &str) -> String {
    let mut shown = String::new();
    let mut rest = text;
    while let Some((before, from)) = rest.split_once('[') {
        let Some((words, (_, after))) =
            from.split_once("](").and_then(|(words, to)| Some((words, to.split_once(')')?)))
        else {
            break;
        };
        shown += before;
        shown += words;
        rest = after;
    }
    shown + &rest.replace("**", "")
}
