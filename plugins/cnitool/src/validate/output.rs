//! `cnitool validate`: the files that its words name, and its output and exit status.

use crate::args::Validate;
use crate::doctor;
use crate::output::{Output, count, has_colour, say};
use crate::settings::Settings;
use crate::validate::finding::{Notes, join};
use crate::validate::{Finding, Level, Network, Report, Source, plugin_executables, render, validate, validate_folder};
use anyhow::{Context, bail};
use libcni::cni_spec::json;
use libcni::{aside, conflist};
use std::io;
use std::path::Path;
use tokio::task::yield_now;

pub(crate) async fn run(settings: &Settings, words: &Validate, output: Output) -> anyhow::Result<()> {
    let (own, networks) = (settings.clone(), words.networks.clone());
    // A signal ends the program meanwhile: standard input may be a pipe that never ends.
    let read = aside(move || report(&own, &networks)).await;
    let mut report = read.context("cannot validate")??;
    if !words.offline {
        plugin_executables::look(&mut report, &settings.runtime, crate::keys::ALL, &settings.conf_dir).await;
        let of_node = of_clusters(&report);
        report.extend(of_node);
    }
    if output.is_json {
        output.json(&(0..report.sources.len()).map(|file| render::json(&report, file)).collect())?;
    } else {
        print(&report).await?;
    }
    let (errors, warnings) = (report.count(Level::Error), report.count(Level::Warning));
    if errors > 0 || words.strict && warnings > 0 {
        bail!(
            "{} and {} in {}",
            count(errors, "error"),
            count(warnings, "warning"),
            count(report.sources.len(), "file")
        );
    }
    Ok(())
}

/// What this node has of networks whose addresses nodes share, and for which ADD fails.
fn of_clusters(report: &Report) -> Vec<Finding> {
    let of_network = |network: &Network| {
        let mut notes = Notes::new(network.file, &report.sources);
        let requests = on_node::Requests::of(&network.conf);
        let plugin = network.plugins.iter().find(|plugin| plugin.ipam == "cluster");
        let key = plugin.map(|plugin| join(&plugin.base, "ipam.type")).unwrap_or_default();
        for found in requests.clusters().flat_map(|object| doctor::of_cluster(&network.conf, object)) {
            notes.value(found.level, &key, found.what).help = found.remedy.to_string();
        }
        notes.into_findings()
    };
    report.networks.iter().flat_map(of_network).collect()
}

/// Findings, then a line for each network without errors.
async fn print(report: &Report) -> anyhow::Result<()> {
    let has_colour = has_colour();
    for finding in &report.findings {
        say(format!("{}\n", render::text(&report.sources[finding.file], finding, has_colour)).as_bytes())?;
        yield_now().await;
    }
    for network in &report.networks {
        let has_error = |file| report.of_file(file).any(|finding| finding.level == Level::Error);
        if report.files_of_network(network.file).any(has_error) {
            continue;
        }
        let types: Vec<&str> = network.conf.plugins.iter().map(|plugin| plugin.plugin_type.as_str()).collect();
        let mut capabilities: Vec<&str> =
            network.conf.plugins.iter().flat_map(|plugin| plugin.capabilities.iter().map(String::as_str)).collect();
        capabilities.sort_unstable();
        capabilities.dedup();
        let wants =
            if capabilities.is_empty() { String::new() } else { format!("; capabilities {}", capabilities.join(", ")) };
        let file = &report.sources[network.file].name;
        say(format!("{}: no errors ({file}: {}{wants})\n", network.conf.name, types.join(", ")).as_bytes())?;
    }
    Ok(())
}

/// The findings in the files that are named, or in all of the folder, in the order in which a runtime finds them.
fn report(settings: &Settings, words: &[String]) -> anyhow::Result<Report> {
    let dir = &settings.conf_dir;
    if words.is_empty() {
        return whole(dir);
    }
    if let [folder] = words
        && folder.contains('/')
        && Path::new(folder).is_dir()
    {
        return whole(Path::new(folder));
    }
    let sources = words.iter().map(|word| source(settings, word)).collect::<anyhow::Result<_>>()?;
    Ok(validate(sources, crate::keys::ALL))
}

/// All files of a folder.
fn whole(dir: &Path) -> anyhow::Result<Report> {
    let report = validate_folder(dir, crate::keys::ALL)?;
    if report.sources.is_empty() {
        bail!("no net configurations found in {}", dir.display());
    }
    Ok(report)
}

fn source(settings: &Settings, word: &str) -> anyhow::Result<Source> {
    if word == "-" {
        return Source::read_stream("<stdin>", io::stdin()).context("cannot read standard input");
    }
    if word.contains('/') {
        return read(Path::new(word));
    }
    // Unlike a runtime, this also takes a file that has the name and is otherwise of no use.
    for path in conflist::search_order(&settings.conf_dir)? {
        let source = Source::read_or_explain(&path);
        if name(&source).as_deref() == Some(word) {
            return Ok(source);
        }
    }
    // The name of a file, in the folder of networks or where the caller is.
    let file = settings.conf_dir.join(word);
    if let Some(file) = [file.as_path(), Path::new(word)].into_iter().find(|file| file.is_file()) {
        return read(file);
    }
    settings.network(word).map(|_| ())?;
    bail!("network {word} has no file")
}

fn name(source: &Source) -> Option<String> {
    let value = json::parse(source.text.as_bytes()).ok()?;
    json::find(&value, &["name"]).ok().flatten()
}

fn read(path: &Path) -> anyhow::Result<Source> {
    Source::read(path).with_context(|| format!("cannot read {}", path.display()))
}
