//! `cnitool version`: the release of each plugin, by its about text, and the versions that it supports.

use crate::OWN_NAME;
use crate::error_remedies::refused;
use crate::output::{Output, Table};
use crate::settings::Settings;
use libcni::Error;
use libcni::cni_spec::exec::Child;
use libcni::cni_spec::{CniError, Code, PluginType};
use nix::unistd::{AccessFlags, access};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::time::timeout;

/// How long a plugin may take to print its about text.
const ABOUT_DEADLINE: Duration = Duration::from_secs(2);
/// The bytes of stderr that are read.
const ABOUT_MAX_BYTES: u64 = 4 << 10;

/// Asks plugins for their versions. A failure is reported in the plugin's line, and at the end.
pub(crate) async fn run(settings: &Settings, plugins: &[String], output: Output) -> anyhow::Result<()> {
    let names = if plugins.is_empty() { executables(settings)? } else { plugins.iter().cloned().collect() };
    if names.is_empty() {
        let folders = settings.runtime.plugin_path();
        output.note(&format!("no executable is in {folders}: cnitool install puts the plugins there"));
    }
    let mut table = Table::new(&["plugin", "path", "release", "versions"]);
    let mut errors = Vec::new();
    for name in names {
        let plugin = PluginType::parse(&name).map_err(|error| {
            let msg = format!("cannot ask {name} for its version: {}", error.msg);
            CniError::new(error.code, msg).detail("Name its folder by --cni-path, and the plugin by its file's name.")
        })?;
        let path = settings.runtime.plugin_path().find_executable(&plugin);
        match settings.runtime.version(&plugin).await {
            Ok(info) => {
                let release = match &path {
                    Ok(path) => release(path).await,
                    Err(_) => None,
                };
                let path = path.map(|path| path.display().to_string()).unwrap_or_default();
                table.row([json!(name), json!(path), json!(release.unwrap_or_default()), json!(info.supported)]);
            }
            // Not every file in the folder is a plugin; only those named by the caller must answer.
            Err(error) if plugins.is_empty() && error.code() != Some(Code::INTERRUPTED) => {
                tracing::warn!("{}", error.with_causes());
            }
            Err(error) => errors.push(error),
        }
    }
    output.table(&table)?;
    Error::join(errors).map_or(Ok(()), |error| Err(error.into()))
}

/// The file that plugins are links to. By its own name it is none.
const LINKED: &str = "cni-plugins";

/// The names of all executables in the plugin folders, without hidden files, this program, and the file that plugins are links to.
/// Errors: no folder exists.
fn executables(settings: &Settings) -> anyhow::Result<BTreeSet<String>> {
    let dirs = settings.runtime.plugin_path().dirs();
    let (mut paths, mut failed) = (Vec::new(), Vec::new());
    for dir in dirs {
        match std::fs::read_dir(dir) {
            Ok(entries) => paths.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path()))),
            Err(error) => failed.push(format!("cannot list plugins in {}: {error}", dir.display())),
        }
    }
    if failed.len() == dirs.len() {
        let help = "Name the folder of the plugins by --cni-path (CNI_PATH).";
        return Err(refused(Code::INVALID_ENVIRONMENT, failed.join("; "), help));
    }
    failed.iter().for_each(|reason| tracing::warn!("{reason}"));
    let names = paths
        .iter()
        .filter(|path| path.is_file() && access(path.as_path(), AccessFlags::X_OK).is_ok())
        .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
        .filter(|name| !name.starts_with('.') && ![OWN_NAME, LINKED].contains(&name.as_str()));
    Ok(names.collect())
}

/// The release in a plugin's about text, which it prints when it is called without `CNI_COMMAND` (`CNI bridge plugin v1.9.1`), in the form of the plugin; none if there is no such text. Only for files that
/// have answered VERSION, as any other program may do anything when it is started without arguments.
async fn release(executable: &Path) -> Option<String> {
    let mut command = Command::new(executable);
    command.env_clear().stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Child::spawn(&mut command).ok()?;
    let stderr = Receiver::from_owned_fd(child.process.stderr.take()?.into()).ok()?;
    let mut text = Vec::new();
    let read = timeout(ABOUT_DEADLINE, stderr.take(ABOUT_MAX_BYTES).read_to_end(&mut text)).await;
    child.process.kill().ok();
    read.ok()?.ok()?;
    parse(&String::from_utf8_lossy(&text)).map(str::to_owned)
}

/// The last word of the line `CNI NAME plugin RELEASE`.
fn parse(text: &str) -> Option<&str> {
    text.lines().find_map(|line| match line.split_whitespace().collect::<Vec<_>>()[..] {
        ["CNI", _, "plugin", release] => Some(release),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_the_last_word_of_the_about_line() {
        let text = "CNI bridge plugin v1.9.1+rust.0.1.0\nCNI protocol versions supported: 0.1.0, 1.1.0\n";
        assert_eq!(parse(text), Some("v1.9.1+rust.0.1.0"));
        assert_eq!(parse("CNI plugin\nCNI static plugin version unknown\n"), None);
    }
}
