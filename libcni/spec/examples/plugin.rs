//! A chained plugin with nothing but these types: it adds a search domain to the result of the plugins before it.
//!
//!     {"cniVersion": "1.1.0", "name": "office", "plugins": [{"type": "bridge", ...}, {"type": "plugin", "domain": "office.example"}]}
//!
//! `skel` does for a plugin what is by hand here, and more: it reads the environment, supports GC, and keeps stdout clean.

#![expect(clippy::disallowed_methods, reason = "what skel does for a plugin is by hand here")]

use std::env;
use std::io::{self, Read, Write};
use std::process::ExitCode;

use cni_spec::{CniError, Code, ConfObject, SpecVersion};
use serde_json::{Value, json};

/// The versions that this plugin's results are written in.
const VERSIONS: [SpecVersion; 2] = [SpecVersion::V1_0_0, SpecVersion::V1_1_0];

fn main() -> ExitCode {
    let (answer, code) = match answer() {
        Ok(answer) => (answer, ExitCode::SUCCESS),
        // An error is an object on stdout, too (SPEC 5, Error).
        Err(error) => (Some(json!({"cniVersion": "1.1.0", "code": error.code, "msg": error.msg})), ExitCode::FAILURE),
    };
    match answer.map_or(Ok(()), |answer| writeln!(io::stdout(), "{answer}")) {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The answer on stdout, if the verb has one.
fn answer() -> Result<Option<Value>, CniError> {
    let command = env::var("CNI_COMMAND").unwrap_or_default();
    if command == "VERSION" {
        let supported = VERSIONS.map(SpecVersion::as_str);
        return Ok(Some(json!({"cniVersion": "1.1.0", "supportedVersions": supported})));
    }
    let mut stdin = Vec::new();
    io::stdin()
        .read_to_end(&mut stdin)
        .map_err(|error| CniError::new(Code::IO, format!("cannot read stdin: {error}")))?;
    let conf = ConfObject::parse(&stdin)?;
    let version = SpecVersion::find(conf.version_text()).filter(|version| VERSIONS.contains(version));
    let version = version.ok_or_else(|| {
        CniError::new(Code::INCOMPATIBLE_VERSION, format!("cniVersion {:?} is not supported", conf.version_text()))
    })?;
    match command.as_str() {
        "ADD" => {
            let mut result = conf.prev_result(version)?.unwrap_or_default();
            let domain: Option<String> = conf.get(&["domain"])?;
            let refused = || CniError::invalid_key("domain", "\"\"", "name the domain, such as \"office.example\"");
            result.dns.search.push(domain.filter(|domain| !domain.is_empty()).ok_or_else(refused)?);
            Ok(Some(result.to_value(version)?))
        }
        // Nothing of the kernel's was changed.
        "DEL" | "CHECK" | "STATUS" | "GC" => Ok(None),
        other => Err(CniError::new(Code::INVALID_ENVIRONMENT, format!("CNI_COMMAND = {other:?} is no verb"))),
    }
}
