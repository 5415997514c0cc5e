//! `cnitool show`: the node's networks as a tree.

use crate::args::Show;
use crate::gc;
use crate::output::{Output, say};
use crate::settings::Settings;
use anyhow::bail;
use std::io;
use view::{Node, json, look, tree};

pub(crate) fn run(settings: &Settings, words: &Show, output: Output) -> anyhow::Result<()> {
    let (runtime, conf_dir) = (&settings.runtime, settings.conf_dir.as_path());
    let view = look(Node { runtime, conf_dir, inventory: &gc::node() }, words.network.as_deref());
    if let Some(name) = words.network.as_ref().filter(|_| view.networks.is_empty()) {
        bail!("no network {name}: neither a file in {}, nor the cache or the node knows it", conf_dir.display());
    }
    if output.is_json {
        return output.json(&json::value(&view));
    }
    let text = tree::text(&tree::tree(&view));
    say(if has_colour() { text } else { anstream::adapter::strip_str(&text).to_string() }.as_bytes())
}

fn has_colour() -> bool {
    anstream::AutoStream::choice(&io::stdout()) != anstream::ColorChoice::Never
}
