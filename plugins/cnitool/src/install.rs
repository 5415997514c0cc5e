//! `cnitool install`: plugins and `cnitool` into a folder, all or none of them.
//!
//! Everything is copied to a hidden folder inside the target, so it is on the same file system; each plugin there has
//! to answer VERSION; only then is one file after the other renamed over its predecessor. So at every moment each name
//! is a complete, working executable, old or new, and a running plugin keeps the file from which it was started. If a
//! step fails, the renames are reverted.

mod folder;
mod source;
mod stage;

use crate::args::Install;
use crate::output::{Output, Table};
use anyhow::bail;
use folder::{Folder, REPLACED, Standing};
use serde_json::json;
use source::Source;
use stage::Stage;

/// A name in the folder, what is there, and what is done with it.
struct Item {
    name: String,
    standing: Standing,
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
            (Action::Install, Standing::Foreign) => "foreign",
        }
    }
}

pub(crate) async fn run(install: &Install, output: Output) -> anyhow::Result<()> {
    let source = Source::find(install.from.as_deref())?;
    let mut names = source.choose(&install.plugins)?;
    names.push(source::CNITOOL.to_owned());
    let folder = Folder::lock(&install.bin_dir)?;
    let mut items =
        names.into_iter().map(|name| folder.examine(name, Action::Install)).collect::<anyhow::Result<Vec<_>>>()?;
    if !install.replace_foreign {
        refuse_foreign(&folder, &items)?;
    }
    if install.plugins.is_empty() {
        items.extend(folder.list_for_tests()?);
    }
    let stage = Stage::fill(&folder, &source, &items, install.link)?;
    stage.check(&items).await?;
    stage.swap(&items)?;
    let mut table = Table::new(&["name", "path", "replaced"]);
    for item in &items {
        table.row([json!(item.name), json!(folder.path(&item.name).display().to_string()), json!(item.before())]);
    }
    output.table(&table)
}

fn refuse_foreign(folder: &Folder, items: &[Item]) -> anyhow::Result<()> {
    let foreign: Vec<&str> =
        items.iter().filter(|item| item.standing == Standing::Foreign).map(|item| item.name.as_str()).collect();
    if foreign.is_empty() {
        return Ok(());
    }
    bail!(
        "cannot install into {}: {} there are not ours; nothing was changed. Choose others with --plugin, or have them \
         replaced with --replace-foreign, which keeps them in {}",
        folder.dir().display(),
        foreign.join(", "),
        folder.path(REPLACED).display(),
    )
}
