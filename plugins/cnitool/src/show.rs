//! `cnitool show`: the node's networks as a tree or a picture. `cnitool explain`: what becomes of packets.

use crate::args::{Format, Show, State};
use crate::causes::{is_told_to_be_root, refused};
use crate::gc;
use crate::output::{Output, columns, has_colour, say};
use crate::settings::Settings;
use crate::view::drawing::plan::plan;
use crate::view::drawing::{dot, html, svg};
use crate::view::explain::Explanation;
use crate::view::{Attachment, Node, View, json, look, reasons, tree};
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniError, Code};
use libcni::inventory::Life;
use on_node::names::PodName;

pub(crate) mod watch;

pub(crate) fn run(settings: &Settings, words: &Show, output: Output) -> anyhow::Result<()> {
    let view = seen(settings, words)?;
    if output.is_json {
        return output.json(&json::value(&view));
    }
    let picture = match words.format {
        None => return print(&tree::tree(&view, shown(words))),
        Some(Format::Svg) => svg::svg(&plan(&view, PICTURE_WIDTH), &view.title()),
        Some(Format::Html) => html::html(&view),
        Some(Format::Dot) => dot::dot(&view),
    };
    say(picture.as_bytes())
}

/// Pixels: a screen of 1280 shows it whole.
const PICTURE_WIDTH: usize = 1160;

fn shown(words: &Show) -> tree::Shown {
    tree::Shown { is_brief: words.brief }
}

fn seen(settings: &Settings, words: &Show) -> anyhow::Result<View> {
    let (runtime, conf_dir) = (&settings.runtime, settings.conf_dir.as_path());
    let only = words.network.as_ref().or(words.only.as_ref());
    let mut view = reasons::look(Node { runtime, conf_dir, inventory: &gc::node() }, only.map(String::as_str));
    if let Some(name) = only.filter(|_| view.networks.is_empty()) {
        let others = look(Node { runtime, conf_dir, inventory: &gc::node() }, None).networks;
        let others: Vec<&str> = others.iter().map(|network| network.name.as_str()).collect();
        let meant = resembling(name, others.iter().copied());
        let meant = meant.map(|meant| format!("Did you mean {meant}?")).unwrap_or_default();
        let there = if others.is_empty() { String::new() } else { format!("The node has {}.", others.join(", ")) };
        let msg = format!("no network {name}: no file in {} has it, nor the cache, nor the node", conf_dir.display());
        return Err(CniError::new(Code::INVALID_CONFIG, msg).detail(meant).detail(there).into());
    }
    if !words.state.is_empty() {
        for network in &mut view.networks {
            network.attachments.retain(|attachment| words.state.iter().any(|state| is_in(attachment, *state)));
        }
    }
    Ok(view)
}

fn is_in(attachment: &Attachment, state: State) -> bool {
    match state {
        State::Lives => attachment.life == Life::Lives,
        State::Young => attachment.life == Life::Young,
        State::Unknown => attachment.life == Life::Unknown,
        State::Gone => attachment.life == Life::Gone,
        State::Sick => !attachment.is_well(),
    }
}

pub(crate) fn explain(settings: &Settings, name: &str, output: Output) -> anyhow::Result<()> {
    let (runtime, conf_dir) = (&settings.runtime, settings.conf_dir.as_path());
    let (answers, view) = crate::view::explain::explain(Node { runtime, conf_dir, inventory: &gc::node() }, name);
    for what in view.unseen.iter().filter(|_| !is_told_to_be_root()) {
        tracing::warn!("could not be looked at: {what}");
    }
    if answers.is_empty() {
        let msg = format!("nothing on this node is called {name}: no address, pod, container, link or forwarded port");
        let help = format!("{}cnitool show lists what there is.", similar(settings, name));
        return Err(refused(Code::INVALID_ENVIRONMENT, msg, help));
    }
    if output.is_json {
        return output.json(&answers.iter().map(Explanation::json).collect());
    }
    print(&answers.iter().map(Explanation::tree).collect::<Vec<_>>())
}

/// A question about the pod or container that was most likely meant.
pub(crate) fn similar(settings: &Settings, word: &str) -> String {
    let listing = settings.runtime.cache().list(None).unwrap_or_default();
    let names: Vec<String> = listing
        .cached
        .iter()
        .flat_map(|cached| {
            let pod = PodName::find(&cached.attachment.args);
            let of_pod = pod.into_iter().flat_map(|pod| [pod.full_name(), pod.name.to_string()]);
            of_pod.chain([cached.attachment.id.container_id.to_string()]).collect::<Vec<_>>()
        })
        .collect();
    let meant = resembling(word, names.iter().map(String::as_str));
    meant.map(|meant| format!("Did you mean {meant}? ")).unwrap_or_default()
}

pub(crate) fn print(trees: &[tree::Branch]) -> anyhow::Result<()> {
    let text = tree::text_within(columns(), trees);
    say(if has_colour() { text } else { anstream::adapter::strip_str(&text).to_string() }.as_bytes())
}
