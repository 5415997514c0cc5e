//! The driver of a runtime: command lines and variables with placeholders, as data.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

/// The driver of a runtime. `--driver FILE` reads one as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Driver {
    /// The runtime's name in reports.
    pub name: String,
    /// By verb, the arguments after the command. A verb that is not here is one that the runtime has not got.
    ///
    /// A word may have the placeholders that RUNTIMES.md lists; one with `{keep}` is repeated for each attachment that
    /// GC is to keep.
    pub verbs: BTreeMap<String, Vec<String>>,
    /// The runtime's environment, with the same placeholders, beside PATH and HOME. A variable whose value comes out empty
    /// is not set.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Whether ADD prints the result.
    #[serde(default)]
    pub prints_result: bool,
    /// The oldest version of the specification that it speaks.
    #[serde(default = "oldest")]
    pub oldest: String,
    /// The newest.
    #[serde(default = "newest")]
    pub newest: String,
    /// Folders of the machine that it writes to, whatever its options are: empty ones of its own lie over them.
    #[serde(default)]
    pub folders: Vec<String>,
    /// Files that it needs, by path, with their text: placeholders in both.
    #[serde(default)]
    pub files: BTreeMap<String, String>,
    /// Symbolic links that it needs, by path, with what they lead to: placeholders in both.
    #[serde(default)]
    pub links: BTreeMap<String, String>,
    /// Whether the runtime makes containers of a root folder: `{root}` then is one, whose `/pause` prints a line and then
    /// does nothing until it is ended; SIGTERM is enough.
    #[serde(default)]
    pub needs_root: bool,
    /// Programs that have to be installed beside the command itself.
    #[serde(default)]
    pub programs: Vec<String>,
    /// A daemon that it needs, as arguments with placeholders: started before, and waited for as sd_notify(3) has it.
    #[serde(default)]
    pub daemon: Vec<String>,
    /// Whether ADD lasts as long as the container: it is done when `/pause` prints its line, and DEL, which ends the
    /// container, is done when that run of ADD has ended.
    #[serde(default)]
    pub stays: bool,
    /// Rules, starts of their names, or `RULE/CASE`, that do not bind it, and why: what a tool leaves to its caller.
    #[serde(default)]
    pub unbound: BTreeMap<String, String>,
}

/// The placeholders stand for: name of the network, path of the namespace, interface name, container ID, `CNI_ARGS`,
/// capability arguments as JSON, folder of configs, folders of plugins, attachment to keep as `CONTAINER/IFNAME`; the
/// first folder of plugins and the second, a name for a container whose ID the runtime chooses, a folder for its own
/// files, a root folder for containers.
const PLACEHOLDERS: [&str; 14] = [
    "network",
    "netns",
    "ifname",
    "container",
    "args",
    "capabilities",
    "conf_dir",
    "bin_dir",
    "keep",
    "first_bin_dir",
    "second_bin_dir",
    "name",
    "work_dir",
    "root",
];

fn oldest() -> String {
    crate::spec_version::VERSIONS[0].to_owned()
}

fn newest() -> String {
    crate::spec_version::VERSIONS[crate::spec_version::VERSIONS.len() - 1].to_owned()
}

/// The driver of the suite's cnitool.
const CNITOOL: &str = include_str!("cnitool.json");

impl Driver {
    /// The built-in driver for a command of that name, `cnitool`, with the GC of the suite's or of the reference's.
    pub fn built_in(command: &str, gc_keeps: bool) -> Option<Self> {
        let mut driver =
            Self::parse(CNITOOL).ok().filter(|_| Path::new(command).file_name() == Some("cnitool".as_ref()))?;
        if !gc_keeps {
            // The reference's is given a namespace and passes no list of what is valid.
            driver.verbs.insert("GC".to_owned(), ["gc", "{network}", "{netns}"].map(str::to_owned).to_vec());
        }
        Some(driver)
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        let driver: Self = serde_json::from_str(text).map_err(|error| format!("it is no driver: {error}"))?;
        if let Some(verb) = driver.verbs.keys().find(|verb| !VERBS.contains(&verb.as_str())) {
            return Err(format!("there is no verb {verb:?}: write one of {}", VERBS.join(", ")));
        }
        if !["ADD", "DEL"].iter().all(|verb| driver.verbs.contains_key(*verb)) {
            return Err("a runtime has ADD and DEL at least".to_owned());
        }
        for version in [&driver.oldest, &driver.newest] {
            crate::spec_version::rank(version).ok_or_else(|| format!("there is no version {version:?}"))?;
        }
        let all = super::rules::all().map(|rule| (rule.id, rule.cases.iter().map(|case| case.name).collect()));
        if let Some((name, ids)) = crate::rule::misspelt(&driver.unbound, all) {
            return Err(format!("unbound: {}", crate::cli::unknown("rule or case", name, &ids)));
        }
        let arguments = driver.verbs.values().flatten().chain(&driver.daemon);
        let links = driver.links.iter().flat_map(|(link, target)| [link, target]);
        for text in arguments.chain(links).chain(driver.environment.values()).chain(driver.files.keys()) {
            if let Some(name) = placeholders(text).find(|name| !PLACEHOLDERS.contains(name)) {
                return Err(format!("there is no placeholder {{{name}}}: write one of {}", PLACEHOLDERS.join(", ")));
            }
        }
        Ok(driver)
    }

    pub fn versions(&self) -> Vec<String> {
        let within = |version: &&str| {
            crate::spec_version::is_from(version, &self.oldest) && crate::spec_version::is_from(&self.newest, version)
        };
        crate::spec_version::VERSIONS.iter().copied().filter(within).map(str::to_owned).collect()
    }

    /// Whether the kit chooses what a placeholder stands for; else the runtime does.
    pub fn gives(&self, placeholder: &str) -> bool {
        // Folders of plugins may be said one by one, too.
        let sought = if placeholder == "bin_dir" { "bin_dir}" } else { &format!("{{{placeholder}}}") };
        self.verbs
            .values()
            .flatten()
            .chain(self.environment.values())
            .chain(self.files.values())
            .any(|text| text.contains(sought))
    }

    /// The reason why a case of a rule does not bind the runtime, if so.
    pub fn unbound(&self, rule: &str, case: &str) -> Option<&str> {
        crate::rule::unbound(&self.unbound, rule, case)
    }
}

/// The verbs that a runtime may have.
const VERBS: [&str; 5] = ["ADD", "CHECK", "DEL", "GC", "STATUS"];

/// Names in braces that could be meant as placeholders.
fn placeholders(text: &str) -> impl Iterator<Item = &str> {
    let names = text.split('{').skip(1).filter_map(|rest| rest.split_once('}').map(|(name, _)| name));
    names.filter(|name| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
}

#[cfg(test)]
mod tests {
    use super::Driver;

    fn parse(text: &str) -> Result<Driver, String> {
        Driver::parse(text)
    }

    #[test]
    fn a_driver_is_read_and_checked() {
        let driver = parse(r#"{"name":"x","verbs":{"ADD":["up","{container}"],"DEL":["down"]},"newest":"1.0.0"}"#);
        let driver = driver.unwrap();
        assert!(driver.gives("container") && !driver.gives("netns"));
        assert_eq!(driver.versions().last().map(String::as_str), Some("1.0.0"));
        for wrong in [
            "",
            "{}",
            r#"{"name":"x","verbs":{"ADD":[]}}"#,
            r#"{"name":"x","verbs":{"ADD":[],"DEL":[],"UP":[]}}"#,
            r#"{"name":"x","verbs":{"ADD":["{contaner}"],"DEL":[]}}"#,
            r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"daemon":["{contaner}"]}"#,
            r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"links":{"{work_dri}":""}}"#,
            r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"newest":"2"}"#,
            r#"{"name":"x","verbs":{"ADD":[],"DEL":[]},"odd":1}"#,
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
