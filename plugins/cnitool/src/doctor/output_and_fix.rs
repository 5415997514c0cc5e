//! `cnitool doctor`: the findings as text and JSON, the exit status, and what `--fix` removes.

use super::{Checks, Examined, Finding, Fix, Level, Node, Subject, examine};
use crate::args::{Doctor, Gc};
use crate::gc;
use crate::output::{Output, say};
use crate::settings::Settings;
use cni_suite::text::visible;
use libcni::conflist;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::ExitCode;

/// Exit codes, for monitoring.
const WARNINGS: u8 = 3;
const ERRORS: u8 = 4;
/// No fault was found, and not all that may drop packets was examined.
const UNEXAMINED: u8 = 5;

/// Lines of evidence that are shown to people; JSON has all.
const EVIDENCE_MAX: usize = 5;

pub(crate) async fn run(settings: &Settings, words: &Doctor, output: Output) -> anyhow::Result<ExitCode> {
    let checks = match (words.no_check, words.check) {
        (true, _) => Checks::No,
        (false, false) => Checks::Unexplained,
        (false, true) => Checks::All,
    };
    let mut examined = look(settings, checks, !words.no_probe).await;
    let findings = &examined.findings;
    if words.fix && findings.iter().any(|finding| finding.fix.is_some()) {
        if !output.is_json {
            print(findings, &[])?;
        }
        mend(settings, findings, output).await?;
        examined = look(settings, checks, !words.no_probe).await;
    }
    let Examined { findings, beyond, unexamined } = examined;
    match output.is_json {
        true => {
            output.json(&findings.iter().map(to_json).collect())?;
            tracing::info!("{}", not_looked_at(checks, &beyond).trim_end());
        }
        false => {
            print(&findings, &unexamined)?;
            if words.fix {
                say(unfixed(&findings).as_bytes())?;
            }
            say(not_looked_at(checks, &beyond).as_bytes())?;
            say(default(settings).as_bytes())?;
        }
    }
    Ok(match findings.iter().map(|finding| finding.level).max() {
        Some(Level::Error) => ERRORS.into(),
        Some(Level::Warning) => WARNINGS.into(),
        Some(Level::Note) | None if !unexamined.is_empty() => UNEXAMINED.into(),
        Some(Level::Note) | None => ExitCode::SUCCESS,
    })
}

pub(crate) async fn look(settings: &Settings, checks: Checks, probes: bool) -> Examined {
    let (runtime, conf_dir) = (&settings.runtime.unlogged(), settings.conf_dir.as_path());
    let node = Node { runtime, conf_dir, known: crate::keys::ALL, inventory: &settings.inventory, probes, checks };
    let mut examined = examine(node).await;
    for finding in &mut examined.findings {
        finding.remedy.with_options(&settings.folders);
    }
    examined
}

/// The folder's default network, as a line; empty if there is no choice.
fn default(settings: &Settings) -> String {
    let found = conflist::default_network(&settings.conf_dir).ok().flatten().filter(|found| found.files > 1);
    found.map_or(String::new(), |found| {
        let (name, file) = (&found.network.name, found.network.path().unwrap_or(&settings.conf_dir).display());
        let whose = match &found.blocked_by {
            Some(broken) => {
                format!("CRI-O and kubelets; containerd has none, for {} comes before it", broken.display())
            }
            None => "containerd, CRI-O and kubelets: the first file by name".to_owned(),
        };
        visible(&format!("network {name} ({file}) is the default of {whose}")) + "\n"
    })
}

/// Mends each network once. One that fails is reported, and hides no other.
async fn mend(settings: &Settings, findings: &[Finding], output: Output) -> anyhow::Result<()> {
    let fixes = findings.iter().filter_map(|finding| finding.fix.as_ref());
    let networks: BTreeSet<&String> = fixes.map(|Fix::Collect { network }| network).collect();
    for network in networks {
        let network = Some(network.clone());
        let words = Gc { network, _netns: None, keep: Vec::new(), all: false, force: false, dry_run: false };
        // As JSON, its table would be a second value.
        let table = Some(output).filter(|output| !output.is_json);
        if let Err(error) = gc::run(settings, &words, table).await {
            output.error(&error);
        }
    }
    Ok(())
}

/// The report's end: what a node may suffer from all the same.
fn not_looked_at(checks: Checks, beyond: &[String]) -> String {
    let checks = (checks == Checks::No).then_some("what only CHECK compares (--no-check)");
    let items: Vec<&str> = checks.into_iter().chain(beyond.iter().map(String::as_str)).collect();
    visible(&format!("not looked at: {}", items.join("; "))) + "\n"
}

/// Why `--fix` left each of these findings as it was, a line each.
fn unfixed(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let (kind, place) = (finding.kind.as_str(), finding.network.as_deref().unwrap_or("the node"));
        let why = match &finding.fix {
            None => "only an operator can decide on it".to_owned(),
            Some(Fix::Collect { network }) => format!(
                "garbage collection keeps what may belong to a container that lives: cnitool gc {network} --dry-run says why"
            ),
        };
        visible(&format!("not fixed: {kind} of {place}: {why}")) + "\n"
    });
    lines.collect()
}

fn print(findings: &[Finding], unexamined: &[String]) -> anyhow::Result<()> {
    match (findings, unexamined) {
        ([], []) => return say(b"no faults found\n"),
        ([], _) => say(b"no faults found in what was looked at\n")?,
        _ => {}
    }
    if !unexamined.is_empty() {
        let text = visible(&format!("not examined, and may drop packets: {}", unexamined.join("; "))) + "\n";
        say(text.as_bytes())?;
    }
    for finding in findings {
        let place = finding.network.as_ref().map_or(String::new(), |network| format!(" network {network}:"));
        let mut lines = vec![format!("{}[{}]:{place} {}", finding.level, finding.kind.as_str(), finding.what)];
        lines.extend(finding.lines().take(EVIDENCE_MAX).map(|line| format!("  | {line}")));
        if let Some(more) = finding.evidence.len().checked_sub(EVIDENCE_MAX).filter(|more| *more > 0) {
            lines.push(format!("  | and {more} more; --json has all"));
        }
        lines.push(format!("  {}", finding.consequence()));
        if !finding.remedy.0.is_empty() {
            lines.push(format!("  help: {}", finding.remedy));
        }
        // Names of files and text of plugins: nothing of them may act on a terminal.
        say(lines.iter().map(|line| visible(line) + "\n").collect::<String>().as_bytes())?;
    }
    Ok(())
}

fn to_json(finding: &Finding) -> Value {
    let subjects: BTreeSet<_> = finding.subjects().collect();
    json!({
        "kind": finding.kind.as_str(), "level": finding.level.as_str(), "network": finding.network, "what": finding.what,
        "attachments": subjects.into_iter().map(Subject::to_json).collect::<Vec<_>>(),
        "evidence": finding.lines().collect::<Vec<_>>(), "consequence": finding.consequence(),
        "remedy": finding.remedy.to_string(), "commands": finding.remedy.commands().collect::<Vec<_>>(),
        "fixable": finding.fix.is_some(),
    })
}
