//! SPEC 2, DEL: what it leaves to other attachments.

use super::attached::{Attached, again, lay_network, nothing_lost, pod_of_before, with_key, with_kit_ipam};
use crate::bench::Bench;
use crate::finding::{Finding, Stop};
use crate::profile::Role;
use crate::rule::{Rule, newest, spec};
use testns::{Attachment, Verb};

pub(super) const RULES: &[Rule] = &[spec("del.leaves-others-alone", &["execution/attachment"], Role::ALL)
    .says("DEL is of one attachment, which is a container and an interface name: others stay as they are.")
    .by(&[
        newest("other-container", leaves_other_containers)
            .does("ADD and DEL of a container beside another, of which nothing may go or change."),
        newest("an-id-that-starts-so", leaves_the_longer_id).does("ADD and DEL of web-1 beside web-10."),
        newest("other-interface", leaves_other_interfaces)
            .does("ADD as eth0 and net1, DEL of eth0; what came with net1 has to be there."),
        newest("other-interface-of-a-chain", leaves_the_other_interface_of_a_chain)
            .does("ADD and DEL of net1 beside eth0 of the same container, whose links the kit lays."),
        newest("other-network", leaves_other_networks)
            .does("ADD and DEL in one network beside a container of another."),
    ])];

fn leaves_other_containers(bench: &Bench) -> Result<(), Stop> {
    let (first, second) = (bench.pod(), pod_of_before(bench)?);
    bench.add(&first)?;
    bench.remember();
    again(Attached::add_to(bench, second))?.dels()?;
    nothing_lost(bench, "the other container as it was")
}

fn leaves_the_longer_id(bench: &Bench) -> Result<(), Stop> {
    let shorter = Attached::add_to(bench, bench.pod_named("web-1"))?;
    shorter.dels()?;
    bench.add(&bench.pod_named("web-10"))?;
    bench.remember();
    again(Attached::add_to(bench, shorter.pod))?.dels()?;
    nothing_lost(bench, "the container as it was whose ID starts as the other's")
}

/// Adds a container under two names, and takes the older one away.
fn leaves_other_interfaces(bench: &Bench) -> Result<(), Stop> {
    let attached = Attached::add(bench)?;
    if bench.profile.role != Role::Ipam {
        attached.interface()?;
    }
    let again = attached.pod.attachment_as("net1");
    let before = lines(bench, &attached);
    let answer = bench.make(&bench.call(Verb::Add, &again))?;
    Stop::skip_if(!answer.is_success(), "its config serves a container once")?;
    let result = answer.succeeds()?;
    // Lines that came with the second one, but for those shared with the first: a default route of both, for example.
    let came: Vec<_> = lines(bench, &attached).into_iter().filter(|line| !before.contains(line)).collect();
    let came: Vec<_> = came.into_iter().filter(|line| !line.contains("eth0")).collect();
    attached.dels()?;
    let after = lines(bench, &attached);
    let lost: String = came.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}\n")).collect();
    if !lost.is_empty() {
        return Err(Finding::new("the other attachment as it was", "something is missing").with_diff(lost).into());
    }
    bench.make(&bench.call(Verb::Del, &again).prev_result(&result))?.succeeds().map(drop)
}

/// The same of a chained plugin, whose interfaces the kit makes.
fn leaves_the_other_interface_of_a_chain(bench: &Bench) -> Result<(), Stop> {
    Stop::skip_if(!bench.profile.is_chained(), "shown by other-interface")?;
    lay_network(bench)?;
    let pod = bench.pod();
    let second = bench.second_attachment(&pod, "net1");
    bench.add(&pod)?;
    bench.remember();
    let answer = bench.make(&bench.call(Verb::Add, &second))?;
    Stop::skip_if(!answer.is_success(), "its config serves a container once")?;
    let result = answer.succeeds()?;
    bench.make(&bench.call(Verb::Del, &second).prev_result(&result))?.succeeds()?;
    // Lines about net1 belong to the second attachment.
    let lost = |line: &&str| line.starts_with('-') && !line.contains("net1");
    let lost: String = bench.left_behind().lines().filter(lost).map(|line| format!("{line}\n")).collect();
    Finding::unless_differs(lost, "the other attachment as it was", "something is missing")
}

/// The node and the container, without what the kernel does by itself; of files only their names, as they may keep
/// books.
fn lines(bench: &Bench, attached: &Attached<'_>) -> Vec<String> {
    let (node, pod) = (bench.node.snapshot(), attached.pod.namespace().snapshot());
    let all = node.lines().iter().chain(pod.lines()).filter(|line| !line.contains(" fe80:"));
    all.map(|line| match line.strip_prefix("file ").and_then(|rest| rest.split_once(' ')) {
        Some((path, _content)) => format!("file {path}"),
        None => line.clone(),
    })
    .collect()
}

fn leaves_other_networks(bench: &Bench) -> Result<(), Stop> {
    Stop::skip_if(bench.profile.role == Role::List, "shown by the plugins of the list, one by one")?;
    let (here, there) = (bench.pod().attachment(), bench.pod().attachment());
    let call = |verb, attachment: &Attachment, network: &str| {
        // From their own IPAM plugin both networks would get the same address.
        let config = with_kit_ipam(bench, verb, attachment, &[]).unwrap_or_else(|_| bench.config_for(verb, attachment));
        bench.call_with(verb, with_key(config, "name", network.into()), attachment)
    };
    let come_and_go = || -> Result<(), Stop> {
        let result = again(bench.make(&call(Verb::Add, &there, "there"))?.succeeds())?;
        bench.make(&call(Verb::Del, &there, "there").prev_result(&result))?.succeeds().map(drop)
    };
    come_and_go()?;
    bench.make(&call(Verb::Add, &here, "here"))?.succeeds()?;
    bench.remember();
    come_and_go()?;
    nothing_lost(bench, "the other network as it was")
}
