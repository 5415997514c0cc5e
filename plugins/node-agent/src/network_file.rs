//! The network's file: what it should contain, and when it is written.

use crate::ranges::Ranges;
use crate::template::Template;
use anyhow::{Context, ensure};
use cni_spec::NetworkName;
use host_local::inventory::{self, Owner};
use libcni::NetworkConf;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The outcome for the network's file.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file has the wanted content already.
    Unchanged,
    Written,
    /// The file stays with its ranges, as containers have addresses of them.
    Held(Held),
}

/// The addresses for which the file stays.
#[derive(Debug, PartialEq, Eq)]
pub struct Held {
    pub network: String,
    /// An address, and the container that has it as far as its file says.
    pub example: (String, String),
    pub count: usize,
}

impl std::fmt::Display for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { network, example: (address, container), count } = self;
        write!(
            f,
            "addresses in use of the former ranges of network {network}: {count}, such as {address} by {container}"
        )
    }
}

/// A network's file, made from a template.
#[derive(Debug)]
pub struct NetworkFile {
    pub template: PathBuf,
    pub path: PathBuf,
    /// The permissions of the file.
    pub mode: u32,
}

impl NetworkFile {
    /// Makes the file's content that of the template for these ranges, unless containers have addresses of other ranges.
    ///
    /// # Errors
    /// The template cannot be read, or makes no network of these ranges; the file cannot be written. The old file is untouched then.
    pub fn settle(&self, ranges: &Ranges) -> anyhow::Result<Outcome> {
        let wanted = self.content(ranges)?;
        let found = match fs::read(&self.path) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", self.path.display())),
        };
        if let Some(found) = found {
            if found == wanted.as_bytes() {
                self.settle_mode()?;
                return Ok(Outcome::Unchanged);
            }
            if let Some(held) = find_held(&found, wanted.as_bytes())? {
                return Ok(Outcome::Held(held));
            }
        }
        netops::file::replace(&self.path, wanted.as_bytes(), self.mode)
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        Ok(Outcome::Written)
    }

    fn content(&self, ranges: &Ranges) -> anyhow::Result<String> {
        let template = self.template.display();
        let text = fs::read_to_string(&self.template).with_context(|| format!("cannot read template {template}"))?;
        // As compilers print it: FILE:LINE: TEXT.
        let parsed = Template::parse(&text)
            .map_err(|error| anyhow::anyhow!("template {template}:{}: {}", error.line, error.text))?;
        let content = parsed.render(ranges);
        self.validate(&content).with_context(|| format!("template {template} makes no network for {ranges}"))?;
        Ok(content)
    }

    /// Reads the content as a runtime does that finds it under the file's name.
    fn validate(&self, content: &str) -> anyhow::Result<()> {
        let parse = if libcni::conflist::is_list(&self.path) { NetworkConf::parse } else { NetworkConf::parse_single };
        let network = parse(content.as_bytes())?;
        network.network_name()?;
        network.version()?;
        ensure!(!network.plugins.is_empty(), "it has no plugin");
        Ok(())
    }

    fn settle_mode(&self) -> anyhow::Result<()> {
        let now = fs::metadata(&self.path).map(|found| found.permissions().mode() & 0o777);
        if now.is_ok_and(|mode| mode == self.mode) {
            return Ok(());
        }
        fs::set_permissions(&self.path, Permissions::from_mode(self.mode))
            .with_context(|| format!("cannot set the permissions of {}", self.path.display()))
    }
}

/// The `ipam` objects of a file's network, and its name; of a file that is no network there are none.
fn ipam_objects(content: &[u8]) -> (String, Vec<Value>) {
    let network: Value = serde_json::from_slice(content).unwrap_or_default();
    let plugins = network["plugins"].as_array().cloned().unwrap_or_else(|| vec![network.clone()]);
    let name = network["name"].as_str().unwrap_or_default().to_owned();
    (name, plugins.iter().map(|plugin| plugin["ipam"].clone()).collect())
}

fn subnets(ipam: &[Value]) -> BTreeSet<&str> {
    let sets = ipam.iter().flat_map(|ipam| ipam["ranges"].as_array()).flatten();
    let ranges = sets.filter_map(Value::as_array).flatten().chain(ipam);
    ranges.filter_map(|range| range["subnet"].as_str()).collect()
}

/// The reservations because of which a file of other ranges is not replaced; `None`: the ranges are the same, or nothing is reserved.
fn find_held(found: &[u8], wanted: &[u8]) -> anyhow::Result<Option<Held>> {
    let ((network, before), (_, after)) = (ipam_objects(found), ipam_objects(wanted));
    let Ok(name) = NetworkName::parse(&network) else { return Ok(None) };
    if subnets(&before) == subnets(&after) {
        return Ok(None);
    }
    let folders: BTreeSet<_> = before.iter().filter_map(|ipam| inventory::folder(&name, &ipam.to_string())).collect();
    let mut held = Vec::new();
    for folder in &folders {
        held.extend(list_held(folder)?);
    }
    let count = held.len();
    Ok(held.into_iter().next().map(|example| Held { network, example, count }))
}

/// The addresses of a folder that no operator's note holds, with their containers.
fn list_held(folder: &Path) -> anyhow::Result<Vec<(String, String)>> {
    let all = inventory::list_held(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let holder = |held: inventory::Held| match held.owner {
        Owner::Operator => None,
        Owner::Container((container, _)) => Some((held.address.to_string(), container.as_str().to_owned())),
        Owner::Invalid | Owner::Unreadable => Some((held.address.to_string(), "an unknown container".to_owned())),
    };
    Ok(all.into_iter().filter_map(holder).collect())
}
