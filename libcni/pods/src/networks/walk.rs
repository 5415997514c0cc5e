//! The dependencies of a reading: every folder and name on the way to a file, with links followed step by step.
//!
//! The kernel announces changes of the entries of a watched folder, not of a path. So each path is resolved component
//! by component as the kernel does (path_resolution(7)), and each component is recorded with the folder in which it is
//! looked up. A change of any of them, a link or a parent included, is then a change of a recorded name.

use nix::sys::statfs::{PROC_SUPER_MAGIC, statfs};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

/// The maximum number of links in one path (path_resolution(7)).
const LINKS_MAX: u32 = 40;

/// The names that are recorded in one folder.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Names {
    exact: HashSet<OsString>,
    /// Every name with one of these extensions matters.
    extensions: Vec<&'static str>,
    /// The files' contents matter too, not only their identity.
    pub(super) are_read: bool,
}

impl Names {
    pub(super) fn contain(&self, name: &OsStr) -> bool {
        self.exact.contains(name)
            || Path::new(name).extension().is_some_and(|have| self.extensions.iter().any(|want| have == *want))
    }

    pub(super) fn join(&mut self, other: &Self) {
        self.exact.extend(other.exact.iter().cloned());
        self.extensions.extend(&other.extensions);
        self.are_read |= other.are_read;
    }
}

/// The dependencies of a reading, in the order of discovery: a folder comes after the folders that lead to it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Needs {
    pub(super) dirs: Vec<(PathBuf, Names)>,
    /// The files themselves: one that has other names, or is mounted here, may be written without an event in a watched
    /// folder.
    pub(super) files: Vec<PathBuf>,
    places: HashMap<PathBuf, usize>,
}

impl Needs {
    /// Follows `path` and records every step. `None`: it does not exist; the missing name is recorded too.
    pub(super) fn walk(&mut self, path: &Path) -> Option<PathBuf> {
        self.walk_in(PathBuf::from("/"), &std::path::absolute(path).ok()?)
    }

    /// Follows `path` from the folder `at`, itself the result of a walk.
    pub(super) fn walk_in(&mut self, mut at: PathBuf, path: &Path) -> Option<PathBuf> {
        let mut rest = Vec::new();
        push(&mut rest, path);
        let mut links = 0;
        while let Some(step) = rest.pop() {
            let name = match step {
                Step::Root => {
                    at = PathBuf::from("/");
                    continue;
                }
                Step::Parent => {
                    at.pop();
                    continue;
                }
                Step::Name(name) => name,
            };
            let next = at.join(&name);
            self.names(&at).exact.insert(name);
            let meta = next.symlink_metadata().ok()?;
            // The links of /proc lead to the object that they represent, whatever their text is.
            if !meta.is_symlink() || statfs(&at).is_ok_and(|at| at.filesystem_type() == PROC_SUPER_MAGIC) {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return None;
            }
            push(&mut rest, &next.read_link().ok()?);
        }
        Some(at)
    }

    /// Records that `dir`, the result of a walk, is listed for names with these extensions.
    pub(super) fn list(&mut self, dir: &Path, extensions: &[&'static str]) {
        let names = self.names(dir);
        for extension in extensions.iter().filter(|extension| !names.extensions.contains(extension)).collect::<Vec<_>>()
        {
            names.extensions.push(extension);
        }
        names.are_read = true;
    }

    /// Follows the path of a file that is read, or executed, from the folder `at`.
    pub(super) fn file_in(&mut self, at: PathBuf, path: &Path) -> Option<PathBuf> {
        let file = self.walk_in(at, path)?;
        if let Some(dir) = file.parent() {
            self.names(dir).are_read = true;
        }
        if file.is_file() {
            self.files.push(file.clone());
        }
        Some(file)
    }

    fn names(&mut self, dir: &Path) -> &mut Names {
        let place = match self.places.get(dir) {
            Some(place) => *place,
            None => {
                self.places.insert(dir.to_owned(), self.dirs.len());
                self.dirs.push((dir.to_owned(), Names::default()));
                self.dirs.len() - 1
            }
        };
        &mut self.dirs[place].1
    }
}

/// A step of a path.
enum Step {
    Root,
    Parent,
    Name(OsString),
}

/// Puts the steps of `path` before the others; the last element is the next step.
fn push(rest: &mut Vec<Step>, path: &Path) {
    rest.extend(path.components().rev().filter_map(|component| match component {
        Component::RootDir => Some(Step::Root),
        Component::ParentDir => Some(Step::Parent),
        Component::Normal(name) => Some(Step::Name(name.to_owned())),
        Component::CurDir | Component::Prefix(_) => None,
    }));
}
