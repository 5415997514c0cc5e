//! A call of a plugin.

use crate::list::{List, Plugin};
use crate::{REPEATS, Request, Result, is, is_old};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The longest time that a plugin may take.
const DEADLINE: Duration = Duration::from_secs(6);

pub(crate) fn plugin(request: &Request, list: &List, plugin: &Plugin, previous: Option<&Value>) -> Result<Value> {
    let kind: String = plugin.get("type").and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    let Some(executable) = find(&kind)? else {
        return if is("missing-executable") { Ok(json!({})) } else { Err(format!("there is no plugin {kind}")) };
    };
    let config = derive(request, list, plugin, previous)?;
    answer(request, run(request, executable, &config)?)
}

#[expect(clippy::disallowed_methods, reason = "a runtime reads its own environment")]
fn bin_dirs() -> Vec<PathBuf> {
    let mut dirs: Vec<_> = std::env::split_paths(&std::env::var_os("CNI_PATH").unwrap_or_default()).collect();
    if is("search-order") {
        dirs.reverse();
    }
    dirs
}

fn find(kind: &str) -> Result<Option<PathBuf>> {
    if (kind.is_empty() || kind.contains('/')) && !is("type-is-no-path") && !is("aside-is-validated") {
        return Err(format!("type {kind:?} names no executable"));
    }
    Ok(bin_dirs().into_iter().map(|dir| dir.join(kind)).find(|path| path.is_file()))
}

fn derive(request: &Request, list: &List, plugin: &Plugin, previous: Option<&Value>) -> Result<String> {
    let raw = |value: &Value| to_raw_value(value).map_err(|error| error.to_string());
    let mut config = plugin.clone();
    let capabilities: Value =
        config.get("capabilities").and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    if !is("capabilities-removed") {
        config.remove("capabilities");
    }
    let is_enabled = |name: &str| {
        let is_lax = is("runtime-config") && capabilities.is_object() || is_old("runtime-config-in-0.4.0", list);
        capabilities.get(name) == Some(&Value::Bool(true)) || is_lax
    };
    let given = request.capabilities.as_object().cloned().unwrap_or_default();
    let given: serde_json::Map<_, _> = given.into_iter().filter(|(name, _)| is_enabled(name)).collect();
    // Only ADD keeps the key: one fault more of the same rule.
    let is_dropped = is("runtime-config") && request.verb != "ADD";
    if !given.is_empty() && !is_dropped {
        config.insert("runtimeConfig".to_owned(), raw(&Value::Object(given))?);
    }
    let is_kept = is("name-and-version") || is("name-and-version-to-1.0.0") && !list.is_from("1.1.0");
    if !(is_kept && config.contains_key("name")) {
        config.insert("name".to_owned(), raw(&json!(list.name))?);
        config.insert("cniVersion".to_owned(), raw(&json!(list.version))?);
    }
    if let Some(previous) = previous {
        config.insert("prevResult".to_owned(), raw(previous)?);
    }
    if request.verb == "GC" {
        config.insert("cni.dev/valid-attachments".to_owned(), raw(&valid(request))?);
    }
    if is("keys-pass") || is("long-numbers-pass") {
        config.values_mut().for_each(|value| *value = rounded(value));
    }
    if is(REPEATS) {
        config.insert("cni.dev/runtime".to_owned(), raw(&json!("mini"))?);
        config.entry("runtimeConfig".to_owned()).or_insert(raw(&json!({}))?);
    }
    let text = serde_json::to_string(&config).map_err(|error| error.to_string())?;
    // Twice, as of a runtime that retries a write.
    let is_twice = is_old("stdin-in-0.4.0", list) || is("one-object") && request.verb == "STATUS";
    Ok(if is_twice { format!("{text}\n{text}") } else { text })
}

/// As a decoder does that has numbers only of one kind.
fn rounded(raw: &RawValue) -> Box<RawValue> {
    let mut value: Value = serde_json::from_str(raw.get()).unwrap_or_default();
    if let Some(number) = value.as_f64().filter(|_| is("keys-pass")) {
        value = json!(number);
    }
    to_raw_value(&value).unwrap_or_else(|_| raw.to_owned())
}

fn valid(request: &Request) -> Value {
    let mut keep = request.keep.clone();
    if is("gc-names-valid-attachments") {
        keep.push("stranger/eth0".to_owned());
    }
    let entry = |text: &String| {
        let (container, ifname) = text.split_once('/').unwrap_or((text, ""));
        json!({ "containerID": container, "ifname": ifname })
    };
    keep.iter().map(entry).collect()
}

/// The ending of a plugin, and what it printed.
struct Ended {
    is_success: bool,
    code: Option<i32>,
    stdout: String,
}

fn command(request: &Request, executable: &PathBuf) -> Command {
    let verb = request.verb.as_str();
    let mut command = Command::new(executable);
    if is("in-own-namespace") && verb == "DEL" {
        command = Command::new("unshare");
        command.arg("--net").arg(executable);
    }
    if is("no-other-files") {
        command = Command::new("sh");
        command.args(["-c", "exec 9</dev/null; exec \"$0\""]).arg(executable);
    }
    if is("same-environment-in-0.4.0") && executable.to_string_lossy().ends_with("-b") {
        command.env("PLACE", "second");
    }
    if is("no-arguments") {
        command.arg("--config=/dev/stdin");
    }
    command.env(
        "CNI_COMMAND",
        match verb {
            "STATUS" if is("command-of-status") => "CHECK",
            "GC" if is("command") => "STATUS",
            verb => verb,
        },
    );
    if ["GC", "STATUS"].contains(&verb) {
        if !is("nothing-stale") {
            for name in ["CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS"] {
                command.env_remove(name);
            }
        }
        if is("path") && verb == "GC" {
            command.env_remove("CNI_PATH");
        }
        return command;
    }
    let wrong = |fault: &str| is(fault) && verb == "CHECK";
    command.env("CNI_CONTAINERID", if wrong("container-id") { "another" } else { &request.container });
    let is_wrong = wrong("netns") || (is("netns-of-del") && verb == "DEL");
    command.env("CNI_NETNS", if is_wrong { "/proc/self/ns/net" } else { &request.netns });
    command.env("CNI_IFNAME", if wrong("ifname") { "eth9" } else { &request.ifname });
    command.env(
        "CNI_ARGS",
        match verb {
            _ if is("args") => request.args.replace(';', ","),
            "CHECK" if is("args-of-check") => "IgnoreUnknown=1".to_owned(),
            "DEL" if is("args-of-del") => String::new(),
            _ => request.args.clone(),
        },
    );
    command
}

fn run(request: &Request, executable: PathBuf, config: &str) -> Result<Ended> {
    let as_text = |error: std::io::Error| error.to_string();
    // A file, not a pipe: no process that holds it is waited for.
    let place = format!("{}/stdout-{}", crate::state::FOLDER, std::process::id());
    let by_pipe = is("a-child-holds-stdout");
    let mut command = command(request, &executable);
    command.stdin(Stdio::piped());
    command.stdout(if by_pipe { Stdio::piped() } else { Stdio::from(File::create(&place).map_err(as_text)?) });
    command.stderr(match () {
        () if is("stderr-is-passed") => Stdio::null(),
        () if is("much-stderr") => Stdio::piped(),
        () => Stdio::inherit(),
    });
    let child = command.spawn();
    if is("busy-executable") && child.as_ref().is_err_and(|error| error.kind() == ErrorKind::ExecutableFileBusy) {
        return Ok(Ended { is_success: true, code: Some(0), stdout: "{}".to_owned() });
    }
    let mut child = child.map_err(as_text)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(config.as_bytes()).ok(); // the plugin may end without reading
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let pid = Pid::from_raw(child.id().cast_signed());
    let (end, ends) = channel();
    std::thread::spawn(move || end.send(child.wait()));
    let patience = if is("plugin-hangs") { Duration::MAX } else { DEADLINE };
    let status = ends.recv_timeout(patience).map_err(|_late| {
        kill(pid, Signal::SIGKILL).ok();
        format!("{} did not end in time", executable.display())
    })?;
    let status = status.map_err(as_text)?;
    let mut text = String::new();
    match stdout {
        Some(mut pipe) => drop(pipe.read_to_string(&mut text)),
        None => text = fs::read_to_string(&place).map_err(as_text)?,
    }
    if let Some(mut pipe) = stderr {
        let mut log = String::new();
        pipe.read_to_string(&mut log).ok();
        write!(std::io::stderr(), "{log}").ok();
    }
    let is_success = status.success() && status.signal().is_none();
    Ok(Ended { is_success, code: status.code(), stdout: text })
}

fn answer(request: &Request, ended: Ended) -> Result<Value> {
    let printed: Option<Value> = serde_json::from_str(&ended.stdout).ok().filter(Value::is_object);
    let is_error = printed.as_ref().is_some_and(|value| value.get("code").is_some());
    let failed = || format!("plugin failed with {:?}: {}", ended.code, ended.stdout);
    if !ended.is_success {
        let is_believed = is("status-counts") && printed.is_some() && !is_error;
        return printed.filter(|_| is_believed).ok_or_else(failed);
    }
    if request.verb != "ADD" {
        let is_wrong = is("del-prints-what-it-likes") && !ended.stdout.is_empty() && printed.is_none();
        return if is_wrong { Err(failed()) } else { Ok(json!({})) };
    }
    match printed {
        Some(_) if is_error && !is("error-with-status-0") => Err(failed()),
        Some(result) => Ok(result),
        None if is("no-result") => Ok(json!({})),
        None => Err(failed()),
    }
}
