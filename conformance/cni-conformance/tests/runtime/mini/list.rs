//! The networks of a folder.

use crate::{Result, is};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const VERSIONS: [&str; 7] = ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];
const KEYS: [&str; 7] =
    ["cniVersion", "cniVersions", "name", "plugins", "disableCheck", "disableGC", "loadOnlyInlinedPlugins"];

/// A plugin object; values as they are written, whatever their numbers.
pub(crate) type Plugin = BTreeMap<String, Box<RawValue>>;

/// A network.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct List {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) plugins: Vec<Plugin>,
    keys: BTreeMap<String, Value>,
}

impl List {
    pub(crate) fn flag(&self, key: &str) -> bool {
        self.keys.get(key) == Some(&Value::Bool(true))
    }

    pub(crate) fn is_from(&self, oldest: &str) -> bool {
        rank(&self.version) >= rank(oldest)
    }

    fn parse(text: &str, folder: &Path) -> Result<Self> {
        let as_text = |error: serde_json::Error| error.to_string();
        let raw: Plugin = serde_json::from_str(text).map_err(as_text)?;
        let value = |key: &str| raw.get(key).and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
        let text = |key: &str| value(key).and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default();
        if is("unknown-keys") && raw.keys().any(|key| !KEYS.contains(&key.as_str())) {
            return Err("there is an unknown key".to_owned());
        }
        let mut list = Self {
            name: text("name"),
            version: text("cniVersion"),
            plugins: serde_json::from_str(raw.get("plugins").map_or("[]", |raw| raw.get())).map_err(as_text)?,
            keys: raw.keys().filter_map(|key| Some((key.clone(), value(key)?))).collect(),
        };
        let offered = list.keys.get("cniVersions").and_then(Value::as_array).cloned().unwrap_or_default();
        let offered = offered.iter().filter_map(Value::as_str).filter(|version| rank(version).is_some());
        if let Some(newest) = offered.max_by_key(|version| rank(version)).filter(|_| !is("newest-version")) {
            list.version = newest.to_owned();
        }
        if !is("plugins-aside") && (is("only-inlined") || !list.flag("loadOnlyInlinedPlugins")) {
            for file in files(&folder.join(&list.name), "conf") {
                let text = fs::read_to_string(file).map_err(|error| error.to_string())?;
                let place = if is("aside-come-last") { 0 } else { list.plugins.len() };
                list.plugins.insert(place, serde_json::from_str(&text).map_err(as_text)?);
            }
        } else if list.plugins.is_empty() {
            return Err("there are no plugins".to_owned());
        }
        Ok(list)
    }
}

fn rank(version: &str) -> Option<usize> {
    VERSIONS.iter().position(|known| *known == version)
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<_> = paths.filter(|path| path.extension().is_some_and(|other| other == extension)).collect();
    files.sort();
    files
}

/// The network of a name.
pub(crate) fn find(name: &str) -> Result<List> {
    let folder = Path::new("/etc/cni/net.d");
    for file in files(folder, "conflist") {
        let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
        match List::parse(&text, folder) {
            Err(error) if is("broken-neighbour") || text.contains("plugins") => return Err(error),
            Ok(list) if list.name == name => return Ok(list),
            Ok(_) | Err(_) => {}
        }
    }
    Err(format!("there is no network {name}"))
}
