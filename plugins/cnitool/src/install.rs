//! `cnitool install`: plugins and `cnitool` into a folder, all or none of them.
//!
//! Everything is copied to a hidden folder inside the target, so it is on the same file system; each plugin there has
//! to answer VERSION; only then is one file after the other renamed over its predecessor. So at every moment each name
//! is a complete, working executable, old or new, and a running plugin keeps the file from which it was started. If a
//! step fails, the renames are reverted.

mod executables;
pub(crate) mod platforms;
mod swap;
mod target_folder;
mod watch;

use crate::args::Install;
use crate::error_remedies::{Remedy, refused};
use crate::output::{Output, Table};
use anyhow::bail;
use executables::Source;
use libcni::Cancellation;
use libcni::cni_spec::Code;
use platforms::Platform;
use serde_json::json;
use std::path::{Path, PathBuf};
use swap::Stage;
use target_folder::Busy;
use target_folder::{Folder, Identity, REPLACED, Standing};

/// Where Calico's installer has its volume, if it sets no variable.
const STAGE_DIR: &str = "/stage";

/// A name in the folder, what is there, and what is done with it.
struct Item {
    name: String,
    standing: Standing,
    found: Option<Identity>,
    action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Install,
    /// A plugin for tests that an earlier release installed without being asked.
    Remove,
}

impl Item {
    /// The table's text about the file that was there.
    fn before(&self) -> &'static str {
        match (self.action, self.standing) {
            (Action::Remove, _) => "removed",
            (Action::Install, Standing::Absent) => "",
            (Action::Install, Standing::Ours) => "ours",
            (Action::Install, Standing::Foreign | Standing::Written) => "foreign",
        }
    }
}

pub(crate) async fn run(install: &Install, output: Output, cancellation: &Cancellation) -> anyhow::Result<()> {
    let source = Source::find(install.from.as_deref())?;
    let mut names = source.choose(&install.plugins)?;
    names.push(executables::CNITOOL.to_owned());
    let dir = target(install, &source, output)?;
    if install.watch && source.is_in(&dir) {
        bail!(
            "cannot watch {}: the executables to put back are in it. Use cnitool and --from of another folder; nothing was \
             changed",
            dir.display(),
        );
    }
    let Some(items) = put(install, &dir, &source, &names, cancellation).await? else { return Ok(()) };
    let mut table = Table::new(&["name", "path", "replaced"]);
    for item in items {
        table.row([json!(item.name), json!(dir.join(&item.name).display().to_string()), json!(item.before())]);
    }
    output.table(&table)?;
    if !install.watch {
        return Ok(());
    }
    watch::run(install, &dir, &source, &names, output, cancellation).await
}

fn target(install: &Install, source: &Source, output: Output) -> anyhow::Result<PathBuf> {
    if let Some(dir) = &install.bin_dir {
        return Ok(dir.clone());
    }
    if let Some(platform) = install.platform.as_deref().and_then(Platform::find) {
        return platform.target(install.root.as_deref().unwrap_or(Path::new("/")), source, output);
    }
    let named = install.stage_dir.as_deref().filter(|dir| !dir.is_empty());
    Ok(named.map_or_else(|| STAGE_DIR.into(), PathBuf::from))
}

/// Installs these names, all or none of them; `None`: cancelled. Who watches the folder waits for others that work in it.
async fn put(
    install: &Install,
    dir: &Path,
    source: &Source,
    names: &[String],
    cancellation: &Cancellation,
) -> anyhow::Result<Option<Vec<Item>>> {
    loop {
        let done = match Folder::lock(dir) {
            Ok(folder) => put_all(install, &folder, source, names).await,
            Err(error) => Err(error),
        };
        let error = match done {
            Err(error) if install.watch && Busy::is(&error) => error,
            done => return done.map(Some),
        };
        if target_folder::wait(&error, dir, cancellation).await.is_none() {
            return Ok(None);
        }
    }
}

/// Installs these names, and removes plugins for tests unless the names were chosen.
async fn put_all(install: &Install, folder: &Folder, source: &Source, names: &[String]) -> anyhow::Result<Vec<Item>> {
    let mut items = examine(folder, source, names)?;
    refuse_written(folder, &items)?;
    if !install.replace_foreign {
        refuse_foreign(folder, &items)?;
    }
    if install.plugins.is_empty() {
        items.extend(folder.list_for_tests()?);
    }
    let foreign = names_of(items.iter().filter(|item| item.standing == Standing::Foreign));
    let earlier = names_of(items.iter().filter(|item| folder.has_kept(item)));
    swap(install, folder, source, &items).await?;
    let kept = folder.path(REPLACED);
    if !foreign.is_empty() {
        tracing::warn!("{} has what was replaced: {}", kept.display(), foreign.join(", "));
    }
    if !earlier.is_empty() {
        tracing::warn!("{} had another {}: overwritten", kept.display(), earlier.join(", another "));
    }
    Ok(items)
}

fn examine(folder: &Folder, source: &Source, names: &[String]) -> anyhow::Result<Vec<Item>> {
    names.iter().map(|name| folder.examine(name.clone(), Action::Install, Some(source.of(name)))).collect()
}

async fn swap(install: &Install, folder: &Folder, source: &Source, items: &[Item]) -> anyhow::Result<()> {
    let stage = Stage::fill(folder, source, items, install.link).remedy(|| "Nothing was changed.".to_owned())?;
    stage.check(items).await?;
    folder.refuse_changed(items)?;
    stage.swap(items)?;
    if folder.is_new() {
        tracing::warn!("{} did not exist and was made", folder.dir().display());
    }
    Ok(())
}

/// Refuses files that another program is just writing: what they will be is not known yet.
fn refuse_written(folder: &Folder, items: &[Item]) -> anyhow::Result<()> {
    let written = items.iter().find(|item| item.standing == Standing::Written);
    written.map_or(Ok(()), |item| Err(Busy::writer(&folder.path(&item.name))))
}

fn names_of<'a>(items: impl Iterator<Item = &'a Item>) -> Vec<&'a str> {
    items.map(|item| item.name.as_str()).collect()
}

fn refuse_foreign(folder: &Folder, items: &[Item]) -> anyhow::Result<()> {
    let foreign = names_of(items.iter().filter(|item| item.standing == Standing::Foreign));
    if foreign.is_empty() {
        return Ok(());
    }
    let (dir, kept) = (folder.dir().display(), folder.path(REPLACED));
    let msg =
        format!("cannot install into {dir}: files that are not of this suite are in the way: {}", foreign.join(", "));
    let help = format!(
        "Nothing was changed. --plugin chooses others; --replace-foreign replaces them and keeps them in {}.",
        kept.display()
    );
    Err(refused(Code::EXISTS, msg, help))
}
