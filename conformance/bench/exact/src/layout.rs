//! Which functions the usual calls execute, in the order in which they first do: for the linker, which puts them side by
//! side, so that a call has a third of the executable in memory instead of all.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::{Folder, count_all, scenes};

/// Makes the calls of all scenes of plugins under valgrind and writes the functions to `file`, a name a line.
///
/// # Errors
/// A call fails; the executable has no names, or valgrind is not there; `file` cannot be written.
pub fn write(file: &Path, folder: &Folder) -> Result<(), String> {
    let mut names = Vec::new();
    for scene in scenes().iter().filter(|scene| scene.is_of_plugins()) {
        for seen in count_all(folder, scene.name(), true, &|_| true)? {
            names.extend(seen.functions);
        }
    }
    let mut known = BTreeSet::new();
    names.retain(|name| known.insert(name.clone()));
    if !names.iter().any(|name| name.contains("dispatch")) {
        return Err("the executable has no names: build it with CARGO_PROFILE_RELEASE_STRIP=none".to_owned());
    }
    let text = names.iter().map(|name| format!("{name}\n")).collect::<String>();
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}
