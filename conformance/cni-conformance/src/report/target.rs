//! The targets of reports.

use super::{Document, Format};
use clap::ValueEnum;
use std::fs;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A report to be written: `FORMAT` or `FORMAT=FILE`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    format: Format,
    file: Option<PathBuf>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, file) = match text.split_once('=') {
            Some((_, "")) => return Err("no file after =".to_owned()),
            Some((name, file)) => (name, Some(PathBuf::from(file))),
            None => (text, None),
        };
        let format = Format::from_str(name, false).map_err(|_unknown| {
            let names = Format::value_variants().iter().filter_map(ValueEnum::to_possible_value);
            let names: Vec<_> = names.map(|name| name.get_name().to_owned()).collect();
            format!("there is no format {name:?}, but {}", names.join(", "))
        })?;
        Ok(Self { format, file })
    }
}

/// Checks that the reports' folders exist, before the work that they report is done.
pub fn can_be_delivered(targets: &[Target]) -> Result<(), String> {
    let files = targets.iter().filter_map(|target| target.file.as_deref());
    let folder = |file: &Path| file.parent().filter(|folder| !folder.as_os_str().is_empty()).map(Path::to_owned);
    let missing = files.filter_map(folder).find(|folder| !folder.is_dir());
    missing.map_or(Ok(()), |folder| Err(format!("there is no folder {} for a report", folder.display())))
}

/// Writes reports. If all of them go into files, the summary comes to stdout beside them.
pub fn deliver(document: &Document, targets: &[Target]) -> Result<(), String> {
    let beside = Target { format: Format::Summary, file: None };
    let is_silent = targets.iter().all(|target| target.file.is_some());
    let all = targets.iter().chain(is_silent.then_some(&beside));
    let failed: Vec<_> = all.filter_map(|target| target.write(document).err()).collect();
    if failed.is_empty() { Ok(()) } else { Err(failed.join("; ")) }
}

impl Target {
    fn write(&self, document: &Document) -> Result<(), String> {
        match &self.file {
            Some(file) => {
                let text = self.format.text(document);
                replace(file, text.as_bytes()).map_err(|error| format!("cannot write {}: {error}", file.display()))
            }
            None => match self.print(document) {
                // The reader has seen enough: `head`, or a pager that was left.
                Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
                printed => printed.map_err(|error| format!("cannot write to stdout: {error}")),
            },
        }
    }

    fn print(&self, document: &Document) -> io::Result<()> {
        let stdout = io::stdout();
        let text = match (self.format, columns(&stdout)) {
            (Format::Summary | Format::Terminal, Some(columns)) => self.format.for_terminal(document, columns),
            _ => self.format.text(document),
        };
        // Colours only for a terminal whose user wants them: NO_COLOR, CLICOLOR, TERM.
        let mut out = match self.format {
            Format::Summary | Format::Terminal => anstream::AutoStream::auto(stdout),
            _ => anstream::AutoStream::always_ansi(stdout),
        };
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

/// The width of the terminal that stdout is.
fn columns(stdout: &io::Stdout) -> Option<usize> {
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(stdout).ok())??;
    // 0: a terminal that does not know.
    Some(if size.ws_col == 0 { 80 } else { usize::from(size.ws_col).max(40) })
}

/// Writes a file under another name and puts it in place whole. A device or pipe is written as it is.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if file.metadata().is_ok_and(|about| !about.is_file()) {
        return fs::write(file, bytes);
    }
    let mut name = file.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}", std::process::id()));
    let temporary = file.with_file_name(name);
    let written = fs::write(&temporary, bytes).and_then(|()| fs::rename(&temporary, file));
    if written.is_err() {
        fs::remove_file(&temporary).ok();
    }
    written
}

#[cfg(test)]
mod tests {
    use super::replace;

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("out.tap");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(replace(&folder.path().join("none/out.tap"), b"x").is_err());
        assert!(replace(folder.path(), b"x").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
