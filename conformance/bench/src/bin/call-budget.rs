//! `call-budget FOLDER`: counts what the executables of a folder do and compares with the limits. README.md shows the options.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use bench::call_budget::limits::{self, Limits};
use bench::call_budget::{Folder, Metric, count_all, system_calls, table, write_order};
use clap::Parser;

/// Counts what the executables of a folder do and compares with the limits
#[derive(Debug, Parser)]
#[command(name = "call-budget")]
struct Options {
    /// Only calls whose name has this text
    #[arg(long, value_name = "SCENE", default_value = "", hide_default_value = true)]
    only: String,
    /// Without instructions, which take nine tenths of the time
    #[arg(long)]
    quick: bool,
    /// Shows how often each call made each system call
    #[arg(long)]
    syscalls: bool,
    /// Compares nothing
    #[arg(long)]
    table: bool,
    /// Writes limits.json anew
    #[arg(long)]
    update: bool,
    /// Only writes the functions that are used, to this folder
    #[arg(long, value_name = "FOLDER", value_parser = canonical)]
    order: Option<PathBuf>,
    /// The folder with `cni-plugins` and `cnitool`
    #[arg(value_name = "FOLDER", value_parser = canonical)]
    folder: PathBuf,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(sentences) if sentences.is_empty() => ExitCode::SUCCESS,
        Ok(sentences) => {
            eprintln!("{}", sentences.join("\n"));
            eprintln!("Where that is meant, write limits.json anew: call-budget --update FOLDER");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("call-budget: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A node has its own mounts in place of some folders, so a path must not depend on them.
fn canonical(folder: &str) -> Result<PathBuf, String> {
    PathBuf::from(folder).canonicalize().map_err(|error| format!("cannot find {folder}: {error}"))
}

fn run(options: &Options) -> Result<Vec<String>, String> {
    let folder = Folder { plugins: options.folder.join("cni-plugins"), cnitool: options.folder.join("cnitool") };
    if let Some(order) = &options.order {
        return write_order(&folder, order).map(|()| Vec::new());
    }
    let plugins_bytes = limits::size(&folder.plugins)?;
    let (path, limits) = (limits::path(), Limits::read(&limits::path())?);
    let is_enough = |seen: &[bench::call_budget::CountedCall]| {
        options.table || (!options.update && limits.compare(seen, Metric::has_limit).is_empty())
    };
    let all = count_all(&folder, &options.only, !options.quick, &is_enough)?;
    let mut text = table(&all);
    text.push_str(&format!("cni-plugins: {plugins_bytes} bytes\ncnitool: {} bytes\n", limits::size(&folder.cnitool)?));
    if options.syscalls {
        text.push_str(&system_calls(&all));
    }
    // A reader that has closed its end has what it wanted.
    write!(std::io::stdout(), "{text}").ok();
    if options.table {
        return Ok(Vec::new());
    }
    if options.update {
        let written = std::fs::write(&path, limits.updated(&all).text());
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        return Ok(Vec::new());
    }
    let mut sentences = limits.compare(&all, Metric::has_limit);
    sentences
        .extend(limits::compare_size(plugins_bytes, testns::Subject::Multicall(folder.plugins).executables().len()));
    Ok(sentences)
}
