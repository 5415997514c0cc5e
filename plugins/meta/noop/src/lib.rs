//! The noop plugin: a test double that does as a control file says and records how it was called.
//!
//! The control file is named by `DEBUG=<path>` in `CNI_ARGS`, or else by the config's key `debugFile`. Test suites of
//! other projects write it, call noop through a runtime or another plugin, and read it afterwards: its
//! fields, the order of its effects and the bytes it prints are this plugin's interface. See [`control`].
//!
//! The plugin's answers need not make sense, so it is an [`Entry`] with a separate handler and no [`skel::Plugin`]. All
//! verbs do the same.

pub mod control;

use std::io::Write;

use cni_spec::version::parse_number;
use cni_spec::{CniArgs, CniError, Code, Command, ConfObject, SpecVersion};
use control::{CmdArgs, Control};
use serde::Deserialize;
use skel::{Call, Entry, NetnsPath, Reply, Serve};

/// The plugin. It speaks the versions of its control file, else `0.-42.0` and all released ones.
pub const ENTRY: Entry = Entry::new("noop", Serve::Call(answer));

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Conf {
    debug_file: String,
    command_log: String,
}

struct Request<'a> {
    call: &'a Call,
    stdin: &'a [u8],
    object: ConfObject,
    conf: Conf,
}

fn answer(call: &Call) -> Reply {
    let command = call.env.find_command();
    let stdin = match call.env.check(command).and_then(|()| read_stdin(call, command)) {
        Ok(stdin) => stdin,
        Err(error) => return Reply::failure(&error, SpecVersion::LATEST),
    };
    if command == Some(Command::Version) {
        let text = control_file_of_version(call, &stdin).and_then(|path| versions(call, &path));
        return match text {
            Ok(versions) => Reply::success(version_text(&versions)),
            Err(error) => Reply::failure(&error, SpecVersion::LATEST),
        };
    }
    match Request::parse(call, &stdin) {
        Ok(request) => request.answer(command),
        Err(error) => Reply::failure(&error, SpecVersion::LATEST),
    }
}

/// VERSION has a control file of its own to find only if `CNI_ARGS` is set: without, stdin is not waited for.
fn read_stdin(call: &Call, command: Option<Command>) -> Result<Vec<u8>, CniError> {
    if command == Some(Command::Version) && call.env.args.is_empty() {
        return Ok(Vec::new());
    }
    Ok(call.read_stdin()?.to_vec())
}

/// The control file for VERSION, whose stdin need not be a network config.
fn control_file_of_version(call: &Call, stdin: &[u8]) -> Result<String, CniError> {
    let conf = cni_spec::json::parse(stdin).ok().and_then(|value| cni_spec::json::decode(&value).ok());
    control_file(call, &conf.unwrap_or_default())
}

/// The control file's path; empty if there is none.
fn control_file(call: &Call, conf: &Conf) -> Result<String, CniError> {
    let args = CniArgs::parse(&call.env.args)?;
    Ok(args.find("DEBUG").unwrap_or(&conf.debug_file).to_owned())
}

impl<'a> Request<'a> {
    fn parse(call: &'a Call, stdin: &'a [u8]) -> Result<Self, CniError> {
        let object = ConfObject::parse(stdin)?;
        let conf = object.decode()?;
        Ok(Self { call, stdin, object, conf })
    }

    fn answer(&self, command: Option<Command>) -> Reply {
        let version = SpecVersion::find(self.object.version_text()).unwrap_or(SpecVersion::LATEST);
        let outcome = control_file(self.call, &self.conf).and_then(|path| {
            let versions = versions(self.call, &path)?;
            pass(self.call, command, self.object.version_text(), &versions)?;
            self.perform(&path)
        });
        outcome.unwrap_or_else(|error| Reply::failure(&error, version))
    }

    /// Does as the control file says: record, log, stderr, then error or result, and the exit status.
    fn perform(&self, path: &str) -> Result<Reply, CniError> {
        if path.is_empty() {
            say("CNI_ARGS or config empty, no debug behavior\n");
            return Ok(Reply::success("{}"));
        }
        let mut control = Control::read(path)?;
        control.command.clone_from(&self.call.env.command);
        control.cmd_args = CmdArgs::of(&self.call.env, self.stdin);
        control.write(path)?;
        if !self.conf.command_log.is_empty() {
            control.append_to_log(&self.conf.command_log)?;
        }
        say(&control.report_stderr);
        control.error()?;
        Ok(Reply { stdout: self.result(&control)?.into_bytes(), exit: control.exit_status() })
    }

    fn result(&self, control: &Control) -> Result<String, CniError> {
        match control.report_result.as_str() {
            "PASSTHROUGH" => self.prev_result(&[]),
            "INJECT-DNS" => self.prev_result(&["1.2.3.4"]),
            verbatim => Ok(verbatim.to_owned()),
        }
    }

    /// prevResult in the config's version, with these name servers unless there are none.
    fn prev_result(&self, nameservers: &[&str]) -> Result<String, CniError> {
        let text = self.object.version_text();
        let version = SpecVersion::find(text).ok_or_else(|| {
            CniError::new(
                Code::INCOMPATIBLE_VERSION,
                format!("cannot print prevResult: no results of version {text:?}"),
            )
        })?;
        let mut result = self
            .object
            .prev_result(version)?
            .ok_or_else(|| CniError::new(Code::INVALID_CONFIG, "cannot print prevResult: the config has none"))?;
        if !nameservers.is_empty() {
            result.dns.nameservers = nameservers.iter().map(|&server| server.to_owned()).collect();
        }
        result.to_json(version)
    }
}

/// Writes to stderr, which may be closed.
fn say(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).ok();
}

/// The default versions: one that does not exist, by which a test can recognise this list, and all others.
pub(crate) const DEFAULT_VERSIONS: [&str; 8] =
    ["0.-42.0", "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"];

/// The control file's list, which counts only where `CNI_ARGS` is set; else the default.
pub(crate) fn versions(call: &Call, control_file: &str) -> Result<Vec<String>, CniError> {
    let versions = match (call.env.args.as_str(), control_file) {
        ("", _) => None,
        (args, "") => {
            let msg = format!("cannot find the control file: CNI_ARGS is {args:?}, without DEBUG");
            return Err(CniError::new(Code::INVALID_ENVIRONMENT, msg)
                .detail("Name it by DEBUG=<path> there or by the config's key debugFile, or leave CNI_ARGS empty."));
        }
        (_, path) => Control::read(path)?.report_version_support,
    };
    Ok(versions.unwrap_or_else(|| DEFAULT_VERSIONS.map(str::to_owned).to_vec()))
}

pub(crate) fn version_text(versions: &[String]) -> String {
    let quoted: Vec<String> =
        versions.iter().map(|version| serde_json::Value::from(version.as_str()).to_string()).collect();
    format!("{{\"cniVersion\":\"{}\",\"supportedVersions\":[{}]}}\n", SpecVersion::LATEST, quoted.join(","))
}

/// Lets a call through whose verb and version are spoken, and whose namespace is not this process's own.
pub(crate) fn pass(call: &Call, command: Option<Command>, version: &str, versions: &[String]) -> Result<(), CniError> {
    let Some(command) = command else {
        let msg = format!("unknown CNI_COMMAND: {}", call.env.command);
        return Err(CniError::new(Code::INVALID_ENVIRONMENT, msg));
    };
    match command {
        Command::Check => verb(command, version, SpecVersion::V0_4_0, versions)?,
        Command::Gc | Command::Status => verb(command, version, SpecVersion::V1_1_0, versions)?,
        _ => {}
    }
    let version = if version.is_empty() { "0.1.0" } else { version };
    if !versions.iter().any(|spoken| spoken == version) {
        return Err(CniError::new(Code::INCOMPATIBLE_VERSION, "incompatible CNI versions")
            .detail(format!("config is {version:?}, plugin supports {versions:?}")));
    }
    own_netns(call, command)
}

fn verb(command: Command, version: &str, needed: SpecVersion, versions: &[String]) -> Result<(), CniError> {
    let number = parse_number(version)?;
    if number < parse_number(needed.as_str())? {
        return Err(refused(format!("config version does not allow {command}")));
    }
    // A version that is no number, as the first of the default list, is not above any.
    if !versions.iter().any(|spoken| parse_number(spoken).is_ok_and(|spoken| spoken >= number)) {
        return Err(refused(format!("plugin version does not allow {command}")));
    }
    Ok(())
}

fn refused(msg: String) -> CniError {
    CniError::new(Code::INCOMPATIBLE_VERSION, msg)
}

fn own_netns(call: &Call, command: Command) -> Result<(), CniError> {
    // To DEL a path that leads here is one whose namespace is gone.
    let concerned = command == Command::Add && !call.env.overrides_netns();
    if concerned && NetnsPath::open(&call.env.netns).is_some_and(|netns| netns.is_own()) {
        let msg = "plugin's netns and netns from CNI_NETNS should not be the same";
        return Err(CniError::new(Code::INVALID_NETNS, msg));
    }
    Ok(())
}
