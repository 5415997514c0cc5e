//! The versions that noop speaks in a call, and the gate that follows from them.
//!
//! [`skel`]'s own gate knows released versions only; noop speaks any that its control file names.

use cni_spec::version::parse_number;
use cni_spec::{CniError, Code, Command, SpecVersion};
use skel::{Call, NetnsPath};

use crate::control::Control;

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
