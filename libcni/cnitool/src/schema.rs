//! `cnitool schema`: what editors and other validators check configurations by.

use crate::output::say;
use anyhow::Context;
use libcni::schemas::{self, NAMES};

pub(crate) fn print(name: &str) -> anyhow::Result<()> {
    let schema = schemas::find(name).with_context(|| {
        format!("cannot print schema {name}: there is none of this name. Schemas are {}", NAMES.join(", "))
    })?;
    say(format!("{schema:#}\n").as_bytes())
}
