//! `cnitool show`: the node's networks as a tree, as a picture, or for programs.

use crate::args::{Format, Show, State};
use crate::dropped_packets;
use crate::node_networks::{Attachment, View, look};
use crate::output::{Output, say};
use crate::settings::Settings;
use crate::tree_text::print;
use libcni::cni_spec::json::resembling;
use libcni::cni_spec::{CniError, Code};
use libcni::inventory::Life;
use picture::layout::plan;
use picture::{dot, html, svg};

pub(crate) mod json;
pub(crate) mod picture;
pub mod tree;
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
    let only = words.network.as_ref().or(words.only.as_ref());
    let mut view = dropped_packets::look(settings.node(), only.map(String::as_str));
    if let Some(name) = only.filter(|_| view.networks.is_empty()) {
        let others = look(settings.node(), None).networks;
        let others: Vec<&str> = others.iter().map(|network| network.name.as_str()).collect();
        let meant = resembling(name, others.iter().copied());
        let meant = meant.map(|meant| format!("Did you mean {meant}?")).unwrap_or_default();
        let there = if others.is_empty() { String::new() } else { format!("The node has {}.", others.join(", ")) };
        let msg = format!(
            "no network {name}: no file in {} has it, nor the cache, nor the node",
            settings.conf_dir.display()
        );
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
