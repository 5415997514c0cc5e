//! The functions that the usual calls execute: for the linker, which puts them side by side, so that a call has a third of
//! the executable in memory instead of all. `plugins/packages/build-executables` builds with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Folder, Scene, count_all, scenes};

/// Each executable, and a word that is in the names of its functions, if it has any.
const PLUGINS: (&str, &str) = ("cni-plugins", "dispatch");
const CNITOOL: (&str, &str) = ("cnitool", "cnitool");

/// Makes the calls of all scenes under valgrind and writes the functions of each executable to a file of its name in `order`,
/// a name a line: those of a scene's calls behind those of the scenes before it, which are shorter.
pub fn write(folder: &Folder, order: &Path) -> Result<(), String> {
    let (cnitool, plugins): (Vec<Scene>, _) = scenes().into_iter().partition(Scene::is_chain);
    for ((file, word), scenes) in [(PLUGINS, plugins), (CNITOOL, cnitool)] {
        let mut names = Vec::new();
        let mut known = BTreeSet::new();
        for scene in scenes {
            for seen in count_all(folder, scene.name(), true, &|_| true)? {
                names.extend(seen.functions.into_iter().filter(|name| known.insert(name.clone())));
            }
        }
        if !names.iter().any(|name| name.contains(word)) {
            return Err(format!("cannot write {file}: its executable has no names: build it with -C strip=none"));
        }
        let text = names.iter().map(|name| format!("{name}\n")).collect::<String>();
        let path = order.join(file);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}
