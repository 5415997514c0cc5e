//! `exact FOLDER`: counts what the executables of a folder do and compares with the limits. README.md shows the options.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use exact::limits::{self, Limits};
use exact::{Folder, Metric, count_all, layout, table};

const USAGE: &str = "usage: exact [--only SCENE] [--quick] [--syscalls] [--table | --update | --layout] FOLDER";

#[derive(Default)]
struct Options {
    folder: PathBuf,
    only: String,
    /// Without instructions, which take nine tenths of the time.
    is_quick: bool,
    syscalls: bool,
    /// Compares nothing.
    table: bool,
    update: bool,
    /// Only writes the functions that are used.
    layout: bool,
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(sentences) if sentences.is_empty() => ExitCode::SUCCESS,
        Ok(sentences) => {
            eprintln!("{}", sentences.join("\n"));
            let is_above = |metric: Metric| {
                sentences.iter().any(|sentence| sentence.contains(metric.words()) && sentence.contains("more than"))
            };
            if is_above(Metric::Faults) || is_above(Metric::PeakKib) {
                eprintln!(
                    "Page faults and memory: perhaps functions have new names; exact/README.md, \"The order of functions\""
                );
            }
            eprintln!("Where that is meant, write limits.json anew: exact --update FOLDER");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("exact: {error}");
            ExitCode::FAILURE
        }
    }
}

fn options(mut words: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options::default();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--only" => options.only = words.next().ok_or(USAGE)?,
            "--quick" => options.is_quick = true,
            "--syscalls" => options.syscalls = true,
            "--table" => options.table = true,
            "--update" => options.update = true,
            "--layout" => options.layout = true,
            folder if !folder.starts_with('-') && options.folder.as_os_str().is_empty() => {
                // Nodes have folders of their own in place of some.
                let found = PathBuf::from(folder).canonicalize();
                options.folder = found.map_err(|error| format!("cannot find {folder}: {error}"))?;
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    match options.folder.as_os_str().is_empty() {
        true => Err(USAGE.to_owned()),
        false => Ok(options),
    }
}

/// Prints the table; returns what is not as its limit says.
fn run(options: &Options) -> Result<Vec<String>, String> {
    let folder = Folder { plugins: options.folder.join("cni-plugins"), cnitool: options.folder.join("cnitool") };
    if options.layout {
        return layout::write(&folder).map(|()| Vec::new());
    }
    let sizes = limits::sizes(&folder)?;
    let (path, limits) = (limits::path(), Limits::read(&limits::path())?);
    let is_enough = |seen: &[exact::Seen]| options.table || (!options.update && !limits.are_exceeded(seen, |_| true));
    let all = count_all(&folder, &options.only, !options.is_quick, &is_enough)?;
    let mut text = table::table(&all);
    sizes.iter().for_each(|(name, size)| text.push_str(&format!("{name}: {size} bytes\n")));
    if options.syscalls {
        text.push_str(&table::system_calls(&all));
    }
    // Who reads no further has what was wanted.
    write!(std::io::stdout(), "{text}").ok();
    if options.table {
        return Ok(Vec::new());
    }
    if options.update {
        let written = std::fs::write(&path, limits.updated(&all, &sizes).text());
        written.map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        return Ok(Vec::new());
    }
    Ok([limits.compare_sizes(&sizes), limits.compare(&all, |_| true)].concat())
}
