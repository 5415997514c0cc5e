//! `cnitool verify`: a folder's files beside the manifests of releases, which name each file's SHA-256.

use crate::OWN_NAME;
use crate::args::Verify;
use crate::error_remedies::{Remedy, refused};
use crate::output::{Output, Table};
use crate::validate::plugin_executables::is_of_this_suite;
use anyhow::Context;
use libcni::cni_spec::Code;
use netops::file::read_plain;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// The manifests of this suite's packages, each with the folder of its files.
const INSTALLED: [(&str, &str); 2] = [
    ("/usr/share/kubernetes-cni-rust/manifest.json", libcni::DEFAULT_PLUGIN_DIR),
    ("/usr/share/cni-plugins-rust/manifest.json", "/usr/libexec/cni"),
];

/// A manifest is some kilobytes long.
const BYTES_MAX: u64 = 1 << 20;

const NAMED: &str = "Each release has one: manifest-linux-ARCH-vVERSION.json.";

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
        let bytes = fs::read(path).with_context(failed).if_absent(|| NAMED.to_owned())?;
        let manifest: Self = serde_json::from_slice(&bytes).with_context(failed).remedy(|| NAMED.to_owned())?;
        match manifest.files.is_empty() {
            true => Err(refused(Code::INVALID_ENVIRONMENT, format!("{}: it names no file", failed()), NAMED)),
            false => Ok(manifest),
        }
    }

    /// The manifest of an unpacked release, above the folder of one of its executables. A plain file of the executable's owner
    /// alone counts: in a folder such as `/tmp` anybody may have put one there.
    fn above(executable: &Path) -> Option<Self> {
        let path = executable.parent()?.parent()?.join("manifest.json");
        let owner = |path: &Path| path.symlink_metadata().ok().map(|about| about.uid());
        let bytes = (owner(&path)? == owner(executable)?).then(|| read_plain(&path, BYTES_MAX).ok()).flatten()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn digest(&self, name: &str) -> Option<&String> {
        self.files.get(name).or_else(|| self.optional.get(name))
    }
}

enum Finding<'a> {
    /// The file is as a release has it under this name.
    Released(&'a str),
    /// An executable of this suite, but in no manifest under this name.
    Changed,
    Foreign,
    /// A file without a byte.
    Empty,
}

/// Names the fault in the mode of a file or folder that root calls. Files of others need not be executable.
fn mode_fault(path: &Path, is_plugin: bool) -> Option<&'static str> {
    let about = fs::metadata(path).ok()?;
    let by_group = about.gid() != 0 && about.mode() & 0o020 != 0;
    // In a folder with the sticky bit only a file's owner replaces it.
    let is_sticky = about.is_dir() && about.mode() & 0o1000 != 0;
    match about.mode() {
        mode if (mode & 0o002 != 0 || by_group) && !is_sticky => Some("writable by others"),
        mode if is_plugin && mode & 0o111 == 0 => Some("not executable"),
        _ => None,
    }
}

/// Prints each file of the folder, and each that is missing.
/// Errors: a file of the release is missing, changed or foreign; or a file cannot be read.
pub(crate) fn run(words: &Verify, output: Output) -> anyhow::Result<()> {
    let manifests = manifests(&words.manifests)?;
    let newest = manifests.first().context("no manifest")?;
    let dir = words.dir.clone().unwrap_or_else(usual);
    let failed = || format!("cannot list {}", dir.display());
    let entries = fs::read_dir(&dir).with_context(failed).if_absent(|| "Name the plugins' folder.".to_owned())?;
    let entries = entries.collect::<io::Result<Vec<_>>>().with_context(failed)?;
    // What begins with a dot is an installation's, and no runtime calls it.
    let is_called = |name: &String| !name.starts_with('.');
    let names: BTreeSet<String> =
        entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).filter(is_called).collect();

    let mut table = Table::new(&["name", "state", "release"]);
    let mut faults = Vec::new();
    if let Some(fault) = mode_fault(&dir, false) {
        table.row([json!("."), json!(fault), json!(null)]);
        faults.push(format!("the folder itself: {fault}"));
    }
    for name in newest.files.keys().chain(&names).collect::<BTreeSet<_>>() {
        let is_of_release = manifests.iter().any(|manifest| manifest.digest(name).is_some());
        let (mut state, release) = if !names.contains(name) {
            ("missing".to_owned(), None)
        } else {
            let (state, release) = match examine(&dir.join(name), name, &manifests)? {
                Finding::Released(release) => ("as released", Some(release)),
                Finding::Changed => ("changed", None),
                Finding::Foreign => ("foreign", None),
                Finding::Empty => ("empty", None),
            };
            (state.to_owned(), release)
        };
        let fault = mode_fault(&dir.join(name), is_of_release || state == "changed");
        if let Some(fault) = fault {
            state = format!("{state}, {fault}");
        }
        if fault.is_some() || release.is_none() && (is_of_release || state == "changed") {
            faults.push(format!("{name}: {state}"));
        }
        table.row([json!(name), json!(state), json!(release)]);
    }
    output.table(&table)?;
    if faults.is_empty() {
        return Ok(());
    }
    let (dir, release) = (dir.display(), &newest.release);
    let msg = format!("{dir} is not as release {release} has it: {}", faults.join("; "));
    let help = format!(
        "Its package puts them back, or `{OWN_NAME} install --bin-dir {dir}`, with --replace-foreign also over foreign files. A \
         mode is mended by chmod 755."
    );
    Err(refused(Code::STATE, msg, help))
}

/// The folder of the first package that is on this node, or the one that runtimes know.
fn usual() -> PathBuf {
    let installed = INSTALLED.iter().find(|(manifest, _)| Path::new(manifest).exists());
    installed.map_or(libcni::DEFAULT_PLUGIN_DIR, |(_, dir)| dir).into()
}

/// The requested manifests, or those of the packages on this node.
fn manifests(named: &[PathBuf]) -> anyhow::Result<Vec<Manifest>> {
    let installed = INSTALLED.iter().map(|(manifest, _)| PathBuf::from(manifest)).filter(|path| path.exists());
    let paths: Vec<PathBuf> = if named.is_empty() { installed.collect() } else { named.to_vec() };
    if paths.is_empty() {
        let manifests = INSTALLED.map(|(manifest, _)| manifest).join(", nor ");
        let msg = format!("no package of this suite is on this node: there is no {manifests}");
        return Err(refused(Code::INVALID_ENVIRONMENT, msg, format!("Name a manifest by --manifest. {NAMED}")));
    }
    paths.iter().map(|path| Manifest::read(path)).collect()
}

/// Refuses an executable that is not as the manifest beside its folder has it under this name: the full tarball has one there.
pub(crate) fn refuse_damaged(name: &str, path: &Path) -> anyhow::Result<()> {
    let Some(manifest) = Manifest::above(path) else { return Ok(()) };
    match manifest.digest(name) {
        Some(known) if *known != digest(path).with_context(|| format!("cannot read {}", path.display()))? => {
            let msg =
                format!("cannot install from {}: it is not as release {} has it", path.display(), manifest.release);
            Err(refused(
                Code::INVALID_ENVIRONMENT,
                msg,
                "Unpack the release again, and compare its tarball with SHA256SUMS.",
            ))
        }
        _ => Ok(()),
    }
}

/// The SHA-256 of a file, in hex digits.
fn digest(path: &Path) -> io::Result<String> {
    Ok(Sha256::digest(fs::read(path)?).iter().map(|byte| format!("{byte:02x}")).collect())
}

fn examine<'a>(path: &Path, name: &str, manifests: &'a [Manifest]) -> anyhow::Result<Finding<'a>> {
    let failed = || format!("cannot read {}", path.display());
    // Also of a link that leads nowhere.
    if !path.is_file() {
        return Ok(Finding::Foreign);
    }
    if path.metadata().with_context(failed)?.len() == 0 {
        return Ok(Finding::Empty);
    }
    let digest = digest(path).with_context(failed)?;
    let released = manifests.iter().find(|manifest| manifest.digest(name).is_some_and(|known| *known == digest));
    Ok(match released {
        Some(manifest) => Finding::Released(&manifest.release),
        None if is_of_this_suite(path).with_context(failed)? => Finding::Changed,
        None => Finding::Foreign,
    })
}
