//! The control file and the command log.

use std::{fs, io};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cni_spec::{CniError, Code, json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use skel::env::Environment;

/// The control file: what noop is to do, and, rewritten at each call, how it was called.
///
/// Keys are read in any case and written as here. Unknown ones are dropped.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Control {
    /// Text for stdout. `PASSTHROUGH` stands for prevResult in the config's version, `INJECT-DNS` for the same with
    /// name server 1.2.3.4.
    pub report_result: String,
    /// Message of an error to fail with; empty for none.
    pub report_error: String,
    /// Code of that error; 0 for 999.
    pub report_error_code: u32,
    pub report_stderr: String,
    pub report_version_support: Option<Vec<String>>,
    /// Exit status at the end, if above 0.
    pub exit_with_code: i32,
    pub command: String,
    pub cmd_args: CmdArgs,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct CmdArgs {
    #[serde(rename = "ContainerID")]
    pub container_id: String,
    pub netns: String,
    pub if_name: String,
    pub args: String,
    pub path: String,
    pub netns_override: String,
    /// stdin in base64.
    pub stdin_data: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct LogEntry<'a> {
    command: &'a str,
    cmd_args: &'a CmdArgs,
}

impl CmdArgs {
    /// The call with these variables and this stdin.
    pub fn of(env: &Environment, stdin: &[u8]) -> Self {
        Self {
            container_id: env.container_id.clone(),
            netns: env.netns.clone(),
            if_name: env.ifname.clone(),
            args: env.args.clone(),
            path: env.path.clone(),
            netns_override: env.netns_override.clone(),
            stdin_data: STANDARD.encode(stdin),
        }
    }
}

impl Control {
    pub fn read(path: &str) -> Result<Self, CniError> {
        let bytes = fs::read(path).map_err(|error| failed("read", path, &error))?;
        Self::parse(path, &bytes)
    }

    pub fn parse(path: &str, bytes: &[u8]) -> Result<Self, CniError> {
        let undecodable =
            |why: String| CniError::new(Code::DECODING, format!("cannot read control file {path}: {why}"));
        let value = json::parse(bytes).map_err(|error| undecodable(error.msg))?;
        json::decode(&value).map_err(|error| undecodable(error.to_string()))
    }

    /// Writes the control file, in place: a test may hold it open.
    pub fn write(&self, path: &str) -> Result<(), CniError> {
        write_json(self, path)
    }

    /// Appends the recorded call to the JSON array in `path`, which must be there and may be empty.
    pub fn append_to_log(&self, path: &str) -> Result<(), CniError> {
        let bytes = fs::read(path).map_err(|error| failed("read", path, &error))?;
        let no_array = |why: &str| CniError::new(Code::DECODING, format!("cannot append to command log {path}: {why}"));
        let mut log = match bytes.as_slice() {
            [] => Vec::new(),
            bytes => match json::parse(bytes).map_err(|error| no_array(&error.msg))? {
                Value::Array(entries) => entries,
                Value::Null => Vec::new(),
                _ => return Err(no_array("it is no JSON array")),
            },
        };
        let entry = LogEntry { command: &self.command, cmd_args: &self.cmd_args };
        log.push(serde_json::to_value(entry).map_err(|error| no_array(&error.to_string()))?);
        write_json(&log, path)
    }

    /// Fails if the control file wants that.
    pub fn error(&self) -> Result<(), CniError> {
        let code = match self.report_error_code {
            0 => Code::INTERNAL,
            code => Code(code),
        };
        match self.report_error.as_str() {
            "" => Ok(()),
            msg => Err(CniError::new(code, msg)),
        }
    }

    /// Exit status after everything else: the low eight bits, as the kernel passes them on.
    pub fn exit_status(&self) -> u8 {
        let [low, ..] = self.exit_with_code.max(0).to_le_bytes();
        low
    }
}

fn write_json(value: &impl Serialize, path: &str) -> Result<(), CniError> {
    let text = serde_json::to_vec(value).map_err(|error| failed("write", path, &error.into()))?;
    fs::write(path, text).map_err(|error| failed("write", path, &error))
}

fn failed(verb: &str, path: &str, error: &io::Error) -> CniError {
    CniError::new(Code::IO, format!("cannot {verb} file {path}: {error}"))
}
