//! `cnitool schema`: what editors and other validators check configurations by.

use crate::causes::refused;
use crate::keys::schemas;
use crate::output::say;
use libcni::cni_spec::Code;
use libcni::cni_spec::json::resembling;

pub(crate) fn print(name: &str) -> anyhow::Result<()> {
    let schema = schemas::find(name).ok_or_else(|| {
        let known: Vec<&str> = schemas::names().collect();
        let meant = resembling(name, known.iter().copied()).map(|meant| format!("Did you mean {meant}? "));
        let help = format!("{}Schemas are {}.", meant.unwrap_or_default(), known.join(", "));
        refused(Code::INVALID_ENVIRONMENT, format!("cannot print schema {name}: there is none of this name"), help)
    })?;
    say(format!("{schema:#}\n").as_bytes())
}
