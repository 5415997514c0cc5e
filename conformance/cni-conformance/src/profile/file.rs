//! Profiles that the author of a plugin writes: a JSON file. PROFILES.md explains its keys.

use super::{Pool, Profile, Role, Stage, given};
use crate::subject::{self, Subject};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// A profile as it is written. Paths are relative to the file's folder.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Written {
    /// The profile's name in reports; if absent, the name of the file.
    name: Option<String>,
    command: Option<PathBuf>,
    folder: Option<PathBuf>,
    #[serde(default)]
    also: Vec<PathBuf>,
    role: Option<Role>,
    config: Value,
    stage: Option<Vec<Stage>>,
    #[serde(default)]
    prev_result: Map<String, Value>,
    delegate: Option<String>,
    daemon: Option<Daemon>,
    pool: Option<Pool>,
    #[serde(default)]
    capabilities: Map<String, Value>,
    #[serde(default)]
    writes: Vec<PathBuf>,
    #[serde(default)]
    files: BTreeMap<PathBuf, String>,
    #[serde(default)]
    needs: Vec<String>,
    oldest: Option<String>,
    #[serde(default)]
    unbound: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Daemon {
    command: Vec<String>,
    socket: String,
}

/// A profile file, and the folder of executables that it names.
#[derive(Debug)]
pub struct ProfileFile {
    pub profile: Profile,
    /// The subject that has the executable, if the file names one.
    pub subject: Option<Subject>,
}

impl From<Profile> for ProfileFile {
    fn from(profile: Profile) -> Self {
        Self { profile, subject: None }
    }
}

impl ProfileFile {
    /// Reads the file.
    /// Errors: a message that says what is wrong with the file: `FILE, line N, key "KEY": what`.
    pub fn read(file: &Path) -> Result<Self, String> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        Self::parse(file, &text).map_err(|error| format!("{}, {error}", file.display()))
    }

    fn parse(file: &Path, text: &str) -> Result<Self, At> {
        let written: Written = serde_json::from_str(text).map_err(|error| At::of_json(text, &error))?;
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = written.name.clone().unwrap_or(stem);
        let at = |key: &str, what: String| At::key(text, key, what);
        let mut profile =
            given::of_config(&name, &written.config, written.role).map_err(|error| at("config", error))?;
        check(&written, &profile, at)?;
        profile.delegate = written.delegate.or(profile.delegate);
        if let Some(stage) = written.stage {
            profile.stage = stage;
        }
        for path in written.writes.iter().rev() {
            profile.stage.insert(0, Stage::Folder { path: path.clone() });
        }
        profile.stage.extend(written.files.into_iter().map(|(path, text)| Stage::File { path, text }));
        if let Some(Daemon { command, socket }) = written.daemon {
            let [executable, arguments @ ..] = command.as_slice() else {
                return Err(at("daemon", "its command is empty".to_owned()));
            };
            let (executable, arguments) = (executable.clone(), arguments.to_vec());
            profile.stage.push(Stage::Daemon { executable, arguments, socket });
        }
        for capability in written.capabilities.keys() {
            for plugin in &mut profile.plugins {
                plugin["capabilities"][capability] = json!(true);
            }
        }
        profile.samples = written.capabilities;
        profile.prev_result = written.prev_result;
        profile.pool = written.pool;
        profile.needs.extend(written.needs);
        profile.oldest = written.oldest.or(profile.oldest);
        profile.unbound = written.unbound;

        let base = file.parent().unwrap_or(Path::new(""));
        let also: Result<Vec<_>, _> = written.also.iter().map(|dir| subject::folder(&base.join(dir))).collect();
        let also = also.map_err(|error| at("also", error))?;
        let bin_dir = match (&written.command, &written.folder) {
            (Some(_), Some(_)) => return Err(at("folder", "there is a command already: one of both".to_owned())),
            (Some(command), None) => {
                let path = base.join(command);
                let file_name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if file_name != profile.executable {
                    let key = if profile.role == Role::Ipam { "ipam.type" } else { "type" };
                    let said =
                        format!("the config's {key} is {:?}, but the executable {file_name:?}", profile.executable);
                    return Err(at("command", said));
                }
                path.parent().map(Path::to_owned)
            }
            (None, Some(folder)) => Some(base.join(folder)),
            (None, None) => None,
        };
        let key = if written.command.is_some() { "command" } else { "folder" };
        let subject = bin_dir.map(|dir| {
            let dir = if dir.as_os_str().is_empty() { Path::new(".").to_owned() } else { dir };
            let bin_dir = subject::folder(&dir).map_err(|error| at(key, error))?;
            let subject = Subject { label: label(&profile, &name), bin_dir, also };
            match subject.find(&profile.executable) {
                Some(_) => Ok(subject),
                None => Err(at(key, format!("{}/{} is no executable file", dir.display(), profile.executable))),
            }
        });
        Ok(Self { profile, subject: subject.transpose()? })
    }
}

/// The name of a profile's subject in tables: its plugin, or the list.
fn label(profile: &Profile, name: &str) -> String {
    if profile.role == Role::List { name.to_owned() } else { profile.executable.clone() }
}

/// Refuses keys whose values cannot be, whatever the executable is.
fn check(written: &Written, profile: &Profile, at: impl Fn(&str, String) -> At) -> Result<(), At> {
    if let Some(feature) =
        written.needs.iter().find(|need| !testns::Feature::ALL.iter().any(|one| one.to_string() == **need))
    {
        let known: Vec<_> = testns::Feature::ALL.iter().map(ToString::to_string).collect();
        return Err(at("needs", format!("there is no feature {feature:?}, but {}", known.join(", "))));
    }
    if let Some(oldest) = written.oldest.as_deref().filter(|oldest| !crate::spec_version::VERSIONS.contains(oldest)) {
        return Err(at("oldest", format!("{oldest:?} is no version of the specification")));
    }
    if !written.prev_result.is_empty() && profile.role != Role::Chained {
        return Err(at("prevResult", "only a plugin of role \"chained\" gets one on ADD".to_owned()));
    }
    if let Some(pointer) = written.pool.iter().flat_map(Pool::pointers).find(|pointer| !pointer.starts_with('/')) {
        return Err(at(pointer, "the key of a pool is a JSON pointer, as \"/ipam/subnet\"".to_owned()));
    }
    if let Some(size) = written.pool.iter().flat_map(|pool| pool.sizes.keys()).find(|size| !is_size(size)) {
        return Err(at(size, "the size of a pool is a number from 1 on, or \"any\"".to_owned()));
    }
    if written.pool.as_ref().is_some_and(|pool| pool.addresses == Some(0)) {
        return Err(at("addresses", "a pool has an address at least, or the profile names no pool".to_owned()));
    }
    let leads = |pointer: &&String| {
        let above = pointer.rsplit_once('/').map_or("", |(above, _)| above);
        profile.plugins.iter().any(|plugin| plugin.pointer(above).is_some_and(Value::is_object))
    };
    if let Some(pointer) = written.pool.iter().flat_map(Pool::pointers).find(|pointer| !leads(pointer)) {
        return Err(at(
            pointer,
            "the config has no object for this key, so that it would not change the pool".to_owned(),
        ));
    }
    let all = crate::rules::all().chain(crate::stress::rules());
    let all = all.map(|rule| (rule.id, rule.cases.iter().map(|case| case.name).collect()));
    if let Some((name, ids)) = crate::rule::misspelt(&written.unbound, all) {
        return Err(at(name, crate::cli::unknown("rule or case", name, &ids)));
    }
    if let Some(pointer) = &written.delegate
        && !profile.plugins.iter().any(|plugin| plugin.pointer(pointer).is_some_and(|one| one["type"].is_string()))
    {
        let what = format!("the config has no object with a type at {pointer:?}, a JSON pointer as \"/ipam\"");
        return Err(at("delegate", what));
    }
    let relative = |path: &&PathBuf| !path.is_absolute();
    for (key, path) in
        [("files", written.files.keys().find(relative)), ("writes", written.writes.iter().find(relative))]
    {
        if let Some(path) = path {
            return Err(at(key, format!("{} is no absolute path", path.display())));
        }
    }
    Ok(())
}

impl Pool {
    fn pointers(&self) -> impl Iterator<Item = &String> {
        self.sizes.values().flat_map(|keys| keys.keys())
    }
}

fn is_size(size: &str) -> bool {
    size == "any" || size.parse::<u32>().is_ok_and(|size| size > 0)
}

/// The place of an error, and what is wrong.
struct At {
    line: usize,
    key: Option<String>,
    what: String,
}

impl At {
    /// An error at the first place of a key.
    fn key(text: &str, key: &str, what: String) -> Self {
        let quoted = json!(key).to_string();
        let line = text.lines().position(|line| line.contains(&quoted)).map_or(1, |index| index + 1);
        Self { line, key: Some(key.to_owned()), what }
    }

    fn of_json(text: &str, error: &serde_json::Error) -> Self {
        let line = error.line().max(1);
        let said = error.to_string();
        let what = said.split(" at line ").next().unwrap_or(&said).to_owned();
        // The last key before the place.
        let before = text.lines().take(line - 1).map(str::len).sum::<usize>() + line - 1 + error.column();
        let before = &text[..text.floor_char_boundary(before.min(text.len()))];
        let named = what.split('`').nth(1).filter(|_| what.contains(" field `")).map(str::to_owned);
        let last = || {
            let (start, _value) = before.rsplit_once("\":")?;
            start.rsplit_once('"').map(|(_, key)| key.to_owned())
        };
        Self { line, key: named.or_else(last), what }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.key {
            Some(key) => write!(f, "line {}, key {key:?}: {}", self.line, self.what),
            None => write!(f, "line {}: {}", self.line, self.what),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::ProfileFile;
    use std::path::Path;

    fn parse(text: &str) -> Result<ProfileFile, String> {
        ProfileFile::parse(Path::new("/nowhere/mine.json"), text).map_err(|at| at.to_string())
    }

    #[test]
    fn an_error_names_line_and_key() {
        let bad = |text: &str| parse(text).unwrap_err();
        let error = bad("{\n \"config\": { \"type\": \"mine\" },\n \"roll\": \"ipam\"\n}");
        assert!(error.starts_with("line 3, key \"roll\": unknown field"), "{error}");
        let error = bad("{\n \"config\": { \"type\": \"mine\" },\n \"role\": 7\n}");
        assert!(error.starts_with("line 3, key \"role\": "), "{error}");
        for (text, place) in [
            ("{\"role\": \"interface\"}", "line 1, key \"config\": missing field"),
            ("{\n\"config\": {} }", "line 2, key \"config\": it has no ipam.type"),
            ("{\"config\": {\"type\":\"m\"},\n\"needs\": [\"wings\"] }", "line 2, key \"needs\": there is no feature"),
            ("{\"config\": {\"type\":\"m\"},\n\"writes\": [\"here\"] }", "line 2, key \"writes\": here is no absolute"),
            ("{\"config\": {\"type\":\"m\"},\n\"command\": \"./x\" }", "line 2, key \"command\": the config's type"),
            ("{\"config\": {\"type\":\"m\"},\n\"folder\": \"x\" }", "line 2, key \"folder\": /nowhere/x"),
            ("{\"config\": {\"type\":\"m\"},\n\"oldest\": \"9\" }", "line 2, key \"oldest\": "),
            ("{\"config\": {\"type\":\"m\"},\n\"prevResult\": {\"dns\":{}} }", "line 2, key \"prevResult\": only a"),
            (
                "{\"config\": {\"type\":\"m\"},\n\"pool\": {\n\"sizes\": {\"few\": {\"/ipam\": 1}}}}",
                "line 3, key \"few\"",
            ),
            (
                "{\"config\": {\"type\":\"m\"},\n\"pool\": {\n\"sizes\": {\"1\": {\"ipam\": 1}}}}",
                "line 3, key \"ipam\"",
            ),
            (
                "{\"config\": {\"type\":\"m\"},\n\"pool\": {\n\"sizes\": {\"1\": {\"/ipam/size\": 1}}}}",
                "line 3, key \"/ipam/size\"",
            ),
            ("{\"config\": {\"type\":\"m\"},\n\"pool\": {\"addresses\": 0}}", "line 2, key \"addresses\""),
            ("{\n\"config\": ", "line 2, key \"config\": EOF"),
        ] {
            let error = bad(text);
            assert!(error.starts_with(place), "{error}\nnot {place}");
        }
    }
}
