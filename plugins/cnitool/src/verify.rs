//! `cnitool verify`: a folder's files beside the manifests of releases, which name each file's SHA-256.

use crate::args::Verify;
use crate::attachments::OWN_NAME;
use crate::output::{Output, Table};
use crate::validate::executables::is_of_this_suite;
use anyhow::{Context, bail};
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Where packages of this suite have the manifest of their files.
const INSTALLED: [&str; 2] =
    ["/usr/share/kubernetes-cni-rust/manifest.json", "/usr/share/cni-plugins-rust/manifest.json"];

/// A manifest's file, as `plugins/packages/manifest` writes it.
#[derive(Debug, Deserialize)]
struct Manifest {
    release: String,
    /// Each plugin with the SHA-256 of its file, in hex digits.
    files: BTreeMap<String, String>,
    /// Files that may be beside the plugins.
    #[serde(default)]
    optional: BTreeMap<String, String>,
}

impl Manifest {
    fn read(path: &Path) -> anyhow::Result<Self> {
        let failed = || format!("cannot read manifest {}", path.display());
        let manifest: Self = serde_json::from_slice(&fs::read(path).with_context(failed)?).with_context(failed)?;
        if manifest.files.is_empty() {
            bail!("{}: it names no file", failed());
        }
        Ok(manifest)
    }

    fn digest(&self, name: &str) -> Option<&String> {
        self.files.get(name).or_else(|| self.optional.get(name))
    }
}

/// What a file is.
enum Finding<'a> {
    /// As a release has it under this name.
    Released(&'a str),
    /// An executable of this suite, but in no manifest under this name.
    Changed,
    Foreign,
}

/// Prints each file of the folder, and each that is missing.
///
/// # Errors
/// A file of the release is missing, changed or foreign; or a file cannot be read.
pub(crate) fn run(words: &Verify, output: Output) -> anyhow::Result<()> {
    let manifests = manifests(&words.manifests)?;
    let newest = manifests.first().context("no manifest")?;
    let failed = || format!("cannot read {}", words.dir.display());
    let entries =
        fs::read_dir(&words.dir).with_context(failed)?.collect::<io::Result<Vec<_>>>().with_context(failed)?;
    // What begins with a dot is an installation's, and no runtime calls it.
    let is_called = |name: &String| !name.starts_with('.');
    let names: BTreeSet<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_called).collect();

    let mut table = Table::new(&["name", "state", "release"]);
    let mut faults = 0;
    for name in newest.files.keys().chain(&names).collect::<BTreeSet<_>>() {
        let is_of_release = manifests.iter().any(|manifest| manifest.digest(name).is_some());
        let (state, release) = if !names.contains(name) {
            ("missing", None)
        } else {
            match examine(&words.dir.join(name), name, &manifests)? {
                Finding::Released(release) => ("as released", Some(release)),
                Finding::Changed => ("changed", None),
                Finding::Foreign => ("foreign", None),
            }
        };
        faults += usize::from(release.is_none() && (is_of_release || state == "changed"));
        table.row([json!(name), json!(state), json!(release)]);
    }
    output.table(&table)?;
    if faults == 0 {
        return Ok(());
    }
    bail!(
        "{faults} files in {} are not as release {} has them. Its package puts them back, or `{OWN_NAME} install --bin-dir {}`, \
         with --replace-foreign also over foreign files",
        words.dir.display(),
        newest.release,
        words.dir.display(),
    )
}

/// The requested manifests, or those of the packages on this node.
fn manifests(named: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let installed = INSTALLED.iter().map(PathBuf::from).filter(|path| path.exists());
    let paths: Vec<PathBuf> = if named.is_empty() { installed.collect() } else { named.to_vec() };
    if paths.is_empty() {
        bail!(
            "no package of this suite has left a manifest in {}. Name that of a release with --manifest: each release has a file \
             manifest-linux-ARCH-vVERSION.json",
            INSTALLED.join(" or "),
        );
    }
    paths.iter().map(|path| Manifest::read(path)).collect()
}

fn examine<'a>(path: &Path, name: &str, manifests: &'a [Manifest]) -> anyhow::Result<Finding<'a>> {
    let failed = || format!("cannot read {}", path.display());
    if path.is_dir() {
        return Ok(Finding::Foreign);
    }
    let digest = Sha256::digest(fs::read(path).with_context(failed)?);
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let released = manifests.iter().find(|manifest| manifest.digest(name).is_some_and(|known| *known == digest));
    Ok(match released {
        Some(manifest) => Finding::Released(&manifest.release),
        None if is_of_this_suite(path).with_context(failed)? => Finding::Changed,
        None => Finding::Foreign,
    })
}
