//! Keys that a plugin's parser ignores, and that an operator most likely meant for it: keys of other objects and plugins, and
//! names that are longer or shorter than a key's. Keys that differ from a known one by letters are the parser's own finding.
//!
//! Any key may be in a configuration for other programs (SPEC 1), so that a name that resembles nothing gets no word.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;

use cni_spec::json::Ignored;
use cni_spec::{ConfObject, SpecVersion};
use serde_json::{Value, json};

use crate::validate::finding::{Level, Notes, join};
use crate::validate::known_plugins::{KnownPlugin, Role};
use crate::validate::parser_warnings;

/// Keys of the specification and of runtimes, which may be in any plugin's object, and words for readers.
const OF_ALL: [&str; 17] = [
    "cniVersion",
    "cniVersions",
    "name",
    "type",
    "args",
    "ipam",
    "dns",
    "capabilities",
    "runtimeConfig",
    "prevResult",
    "disableCheck",
    "disableGC",
    "loadOnlyInlinedPlugins",
    "log",
    "version",
    "comment",
    "description",
];

/// Objects whose keys are a runtime's.
const OF_RUNTIMES: [&str; 5] = ["args.", "capabilities.", "dns.", "prevResult.", "runtimeConfig."];

/// A key that operators take from macvlan: the plugin that ignores it, the key, what to do.
const ADVICE: (&str, &str, &str) =
    ("bridge", "master", "Put the link of the node into the bridge: ip link set LINK master BRIDGE; or use macvlan.");

const NEXT_HOP: [(&str, &str); 4] = [("gateway", "gw"), ("via", "gw"), ("nextHop", "gw"), ("gw", "gateway")];

/// A key that none of a plugin's objects has.
const UNKNOWN: &str = "zz-unknown";

/// The shortest name that another one may begin or end with.
const COMMON_PART_MIN: usize = 4;

/// Checks the keys that the parser of `plugin` has ignored in the object at `base`, but those of `told`. `beside` is the plugin whose
/// object that is.
pub(crate) fn check(
    base: &str,
    (plugin, beside): (&KnownPlugin, Option<&KnownPlugin>),
    (object, told): (&ConfObject, &[String]),
    known: &[KnownPlugin],
    notes: &mut Notes<'_>,
) {
    let is_ipams = |path: &str| path.starts_with("ipam.");
    let mut by_path: BTreeMap<&str, Vec<&'static str>> = BTreeMap::new();
    let mut names = BTreeMap::new();
    let ignored = object.ignored();
    for one in ignored.iter().filter(|one| is_ipams(&one.path) == (plugin.role == Role::Address)) {
        by_path.entry(&one.path).or_default().extend(one.known);
        names.insert(&*one.path, &*one.key);
    }
    for (path, siblings) in by_path.into_iter().filter(|(path, _)| !told.iter().any(|told| told == path)) {
        let key = names.get(path).copied().unwrap_or_default();
        if is_of_others(path, key) {
            continue;
        }
        let none_of = format!("key {path} is none of {}'s, and is ignored", plugin.name);
        let unknown = format!("key {path} is unknown and is ignored");
        let (text, help) = if (plugin.name, path) == (ADVICE.0, ADVICE.1) {
            (none_of, ADVICE.2.to_owned())
        } else if let Some((_, meant)) = NEXT_HOP.iter().find(|(word, meant)| is(word, key) && siblings.contains(meant))
        {
            (unknown, format!("Did you mean {meant}?"))
        } else if let Some(own) = beside.filter(|own| is_ipams(path) && has_key(own, key)) {
            (none_of, format!("It is a key of {}: write it beside ipam, not in it.", own.name))
        } else if let Some((is_own, help)) = place_elsewhere(key, plugin, known) {
            // Another plugin's key that is turned off says what is so anyway.
            if !is_own && is_off(object.value(), path) {
                continue;
            }
            (none_of, help)
        } else if let Some(meant) = near(key, &siblings) {
            (unknown, format!("Did you mean {meant}?"))
        } else {
            continue;
        };
        notes.key(Level::Warning, &join(base, path), text).help = help;
    }
}

/// Whether the value at a path such as `ipam.routes[0].gw` is what a plugin takes for none.
fn is_off(object: &Value, path: &str) -> bool {
    match object.pointer(&format!("/{}", path.replace(['.', '['], "/").replace(']', ""))) {
        Some(Value::Null | Value::Bool(false)) => true,
        Some(Value::Number(number)) => number.as_f64() == Some(0.0),
        Some(Value::String(text)) => text.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(object)) => object.is_empty(),
        None | Some(Value::Bool(true)) => false,
    }
}

/// Whether a key is for other programs or readers: one of the specification, or a name of a form that plugins' keys do not have.
fn is_of_others(path: &str, key: &str) -> bool {
    key.starts_with('_')
        || key.contains(['.', '/', ':', ' ', '#', '$'])
        || OF_ALL.iter().any(|name| name.eq_ignore_ascii_case(key))
        || OF_RUNTIMES.iter().any(|object| path.starts_with(object))
}

/// The key of the same object whose name is a longer or shorter form of this one.
fn near(key: &str, siblings: &[&'static str]) -> Option<&'static str> {
    let is_key = |name: &&&str| !OF_ALL.contains(name);
    siblings.iter().filter(is_key).find(|name| is_form_of(&key.to_lowercase(), &name.to_lowercase())).copied()
}

fn is(word: &str, key: &str) -> bool {
    word.eq_ignore_ascii_case(key)
}

/// Whether the plugin's own object has this key.
fn has_key(plugin: &KnownPlugin, key: &str) -> bool {
    keys(plugin).iter().any(|(object, name)| object.is_empty() && is(name, key))
}

/// Whether one of two names begins or ends with the other, or the first is an abbreviation of the second.
fn is_form_of(key: &str, name: &str) -> bool {
    let (short, long) = if key.len() < name.len() { (key, name) } else { (name, key) };
    let is_part = long.starts_with(short) || long.ends_with(short);
    short.len() >= COMMON_PART_MIN && (is_part || is_abbreviation(key, name))
}

/// Whether a name has the letters of a longer one in their order, and more than half of them: `isdefaultgw`.
fn is_abbreviation(key: &str, name: &str) -> bool {
    let mut letters = name.chars();
    key.len() * 2 > name.len() && key.get(..3) == name.get(..3) && key.chars().all(|c| letters.any(|of| of == c))
}

/// Whether another object of the plugin has the key, or another plugin of its kind, with the remedy. An interface plugin's objects are
/// also those of the reference's address plugins.
fn place_elsewhere(key: &str, plugin: &KnownPlugin, known: &[KnownPlugin]) -> Option<(bool, String)> {
    let has_ipam = |one: &KnownPlugin| plugin.role == Role::Interface && ["host-local", "static"].contains(&one.name);
    let is_of_kind = |one: &KnownPlugin| (one.role == Role::Address) == (plugin.role == Role::Address);
    let mut others: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for one in known.iter().filter(|one| is_of_kind(one) || has_ipam(one)) {
        for (object, name) in keys(one).into_iter().filter(|(_, name)| name.eq_ignore_ascii_case(key)) {
            let path = join(&object, name);
            if one.name == plugin.name || !is_of_kind(one) {
                return Some((true, format!("Did you mean {path}?")));
            }
            others.entry(path).or_default().push(one.name);
        }
    }
    // The path that most plugins have, and of those the shortest.
    let (path, plugins) = others.into_iter().min_by_key(|(path, plugins)| (Reverse(plugins.len()), path.len()))?;
    Some((false, format!("It is key {path} of {}: write it there, or remove it.", plugins.join(", "))))
}

/// The keys that a plugin's parser has fields for, each with the path of its object. Keys of all plugins are left out.
fn keys(plugin: &KnownPlugin) -> Vec<(String, &'static str)> {
    let ipam = if plugin.role == Role::Address { plugin.name } else { "host-local" };
    let conf = json!({"name": "n", "type": plugin.name, UNKNOWN: 1, "ipam": {"type": ipam, UNKNOWN: 1,
        "ranges": [[{"subnet": "10.9.0.0/24", UNKNOWN: 1}]], "routes": [{"dst": "0.0.0.0/0", UNKNOWN: 1}],
        "addresses": [{"address": "10.9.0.5/24", UNKNOWN: 1}]}});
    let Some(object) = ConfObject::of_value(conf).ok().map(Rc::new) else { return Vec::new() };
    // An error about keys that are missing comes after the objects were read.
    let (_, _) = parser_warnings::listen(|| (plugin.parse)(&object, SpecVersion::LATEST));
    let is_own = |one: &Ignored| one.key == UNKNOWN && one.path.starts_with("ipam.") == (plugin.role == Role::Address);
    let object_of = |one: &Ignored| one.path.trim_end_matches(UNKNOWN).trim_end_matches('.').to_owned();
    let ignored = object.ignored();
    let own = ignored.iter().filter(|one| is_own(one));
    let all = own.flat_map(|one| one.known.iter().map(|name| (object_of(one), *name)));
    all.filter(|(_, name)| !OF_ALL.contains(name)).collect()
}
