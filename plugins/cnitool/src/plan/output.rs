//! `cnitool plan`: what ADD would do, as a tree.

use super::{NetworkPlan, Outcome, PluginPlan, Preview, Shown};
use crate::args::Target;
use crate::output::Output;
use crate::settings::Settings;
use crate::tree_text::{Branch, Tone, print};
use crate::{FAILED, add};
use libcni::RuntimeConf;
use libcni::cni_spec::{AddResult, CniError, PluginType, SpecVersion};
use serde_json::{Value, json};
use std::process::ExitCode;

pub(crate) async fn run(settings: &Settings, target: &Target, output: Output) -> anyhow::Result<ExitCode> {
    let (network, attachment, _) = settings.target(target)?;
    settings.refuse_unnamed("plan", target, &attachment)?;
    let version = network.version()?;
    add::warn_of_unused(&network, &attachment);
    let plan = super::plan(&settings.runtime, &network, &attachment).await?;
    match output.is_json {
        true => output.json(&json(&network.name, &attachment, &plan, version)?)?,
        false => print(&[tree(&network.name, &attachment, &plan)])?,
    }
    Ok(if plan.failure().is_some() || !plan.refused.is_empty() { ExitCode::from(FAILED) } else { ExitCode::SUCCESS })
}

fn tree(network: &str, attachment: &RuntimeConf, plan: &NetworkPlan) -> Branch {
    let head = format!("{}/{} in {}", attachment.id.container_id, attachment.id.ifname, attachment.netns);
    let end = match (plan.failure(), &plan.result) {
        (Some((plugin, _)), _) => Branch::new(Tone::Bad, format!("ADD would fail at plugin {}", plugin.plugin)),
        (None, _) if !plan.refused.is_empty() => {
            Branch::new(Tone::Bad, "ADD would fail").with(plan.refused.iter().map(Branch::plain))
        }
        (None, Some(result)) => of_result(result),
        (None, None) => Branch::new(Tone::Warning, "the result is not known before"),
    };
    let legend =
        "nothing was changed; + is what ADD would make, = what is so already; CHECK compares all but what is marked";
    Branch::new(Tone::Name, network)
        .and(Tone::Plain, head)
        .with(plan.plugins.iter().map(of_plugin))
        .with([end, Branch::new(Tone::Faint, legend)])
}

fn of_plugin(plan: &PluginPlan) -> Branch {
    let branch = Branch::new(Tone::Name, &plan.plugin).and(Tone::Faint, plan.executable.display());
    branch.with(match &plan.outcome {
        Outcome::Steps(preview) => of_preview(preview),
        Outcome::Fails(error) => of_error(error),
        Outcome::OtherMake => {
            vec![Branch::new(Tone::Warning, "not part of this suite, and it does not say what it would do")]
        }
        Outcome::Silent => vec![Branch::new(Tone::Warning, "it does not say what it would do")],
        Outcome::NotReached => vec![Branch::new(Tone::Warning, "depends on the plugins before it")],
    })
}

fn of_preview(preview: &Preview) -> Vec<Branch> {
    let Preview { steps, unknown, .. } = preview;
    if steps.is_empty() && unknown.is_empty() {
        return vec![Branch::new(Tone::Faint, "nothing to do")];
    }
    let unknown = unknown.iter().map(|what| Branch::new(Tone::Warning, format!("not known before: {what}")));
    steps.iter().map(of_step).chain(unknown).collect()
}

fn of_step(step: &Shown) -> Branch {
    let (tone, mark) = if step.is_so { (Tone::Good, "=") } else { (Tone::Plain, "+") };
    let branch = Branch::new(tone, format!("{mark} {}", step.text));
    if step.is_compared { branch } else { branch.and(Tone::Faint, "(not compared)") }
}

fn of_error(error: &CniError) -> Vec<Branch> {
    let details = (!error.details.is_empty()).then(|| Branch::plain(&error.details));
    vec![Branch::new(Tone::Bad, format!("{} (code {})", error.msg, error.code)).with(details)]
}

fn of_result(result: &AddResult) -> Branch {
    let address = |ip: &libcni::cni_spec::Ip| {
        let gateway = ip.gateway.map(|gateway| format!(", gateway {gateway}")).unwrap_or_default();
        Branch::plain(format!("address {}{gateway}", ip.address))
    };
    let route = |route: &libcni::cni_spec::Route| {
        let gw = route.gw.map(|gw| format!(" by {gw}")).unwrap_or_default();
        Branch::plain(format!("route to {}{gw}", route.dst))
    };
    let dns = (!result.dns.nameservers.is_empty())
        .then(|| Branch::plain(format!("name servers {}", result.dns.nameservers.join(" "))));
    Branch::plain("result").with(result.ips.iter().map(address)).with(result.routes.iter().map(route)).with(dns)
}

fn json(network: &str, attachment: &RuntimeConf, plan: &NetworkPlan, version: SpecVersion) -> anyhow::Result<Value> {
    let plugins = plan.plugins.iter().map(|PluginPlan { plugin, executable, outcome }| {
        let mut value = json!({ "type": PluginType::as_str(plugin), "path": executable });
        let (key, said) = match outcome {
            Outcome::Steps(preview) => {
                let Preview { steps, unknown, .. } = &**preview;
                value["unknown"] = json!(unknown);
                ("steps", steps.iter().map(Shown::to_value).collect())
            }
            Outcome::Fails(error) => {
                ("error", json!({ "code": error.code.0, "msg": error.msg, "details": error.details }))
            }
            Outcome::OtherMake => ("notKnown", json!("not part of this suite")),
            Outcome::Silent => ("notKnown", json!("it does not say")),
            Outcome::NotReached => ("notKnown", json!("depends on the plugins before it")),
        };
        value[key] = said;
        value
    });
    let result = plan.result.as_ref().map(|result| result.to_value(version)).transpose()?;
    Ok(json!({
        "network": network,
        "containerID": attachment.id.container_id.as_str(),
        "ifname": attachment.id.ifname.as_str(),
        "netns": attachment.netns,
        "plugins": plugins.collect::<Value>(),
        "result": result,
        "refused": plan.refused,
    }))
}
