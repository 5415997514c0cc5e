//! `cnitool schema`: what editors and other validators check configurations by.

use crate::keys::schemas;
use crate::output::say;
use anyhow::Context;

pub(crate) fn print(name: &str) -> anyhow::Result<()> {
    let schema = schemas::find(name).with_context(|| {
        let known: Vec<&str> = schemas::names().collect();
        format!("cannot print schema {name}: there is none of this name. Schemas are {}", known.join(", "))
    })?;
    say(format!("{schema:#}\n").as_bytes())
}
