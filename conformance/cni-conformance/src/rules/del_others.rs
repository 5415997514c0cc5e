//! SPEC 2, DEL: what it leaves to other attachments.

use super::attached::{Attached, again, lay_network, nothing_lost, with_key, with_kit_ipam};
use crate::profile::Role;
use crate::rules::prelude::*;

pub(super) const CASES: &[Code] = &[
    ("del.leaves-others-alone/other-interface", leaves_other_interfaces),
    ("del.leaves-others-alone/other-interface-of-a-chain", leaves_the_other_interface_of_a_chain),
    ("del.leaves-others-alone/other-network", leaves_other_networks),
];

/// Adds a container under two names, and takes the older one away.
fn leaves_other_interfaces(testbed: &Testbed) -> Result<(), Stop> {
    let attached = Attached::add(testbed)?;
    if testbed.profile.role != Role::Ipam {
        attached.interface()?;
    }
    let again = attached.pod.attachment_as("net1");
    let before = lines(testbed, &attached);
    let answer = testbed.make(&testbed.call(Verb::Add, &again))?;
    Stop::skip_if(!answer.is_success(), "its config serves a container once")?;
    let result = answer.succeeds()?;
    // Lines that came with the second one, but for those shared with the first: a default route of both, for example.
    let came: Vec<_> = lines(testbed, &attached).into_iter().filter(|line| !before.contains(line)).collect();
    let came: Vec<_> = came.into_iter().filter(|line| !line.contains("eth0")).collect();
    attached.dels()?;
    let after = lines(testbed, &attached);
    let lost: String = came.iter().filter(|line| !after.contains(line)).map(|line| format!("- {line}\n")).collect();
    if !lost.is_empty() {
        return Err(Finding::new("the other attachment as it was", "something is missing").with_diff(lost).into());
    }
    testbed.make(&testbed.call(Verb::Del, &again).prev_result(&result))?.succeeds().map(drop)
}

/// The same of a chained plugin, whose interfaces the kit makes.
fn leaves_the_other_interface_of_a_chain(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(!testbed.profile.is_chained(), "shown by other-interface")?;
    lay_network(testbed)?;
    let pod = testbed.pod();
    let second = testbed.second_attachment(&pod, "net1");
    testbed.add(&pod)?;
    testbed.remember();
    let answer = testbed.make(&testbed.call(Verb::Add, &second))?;
    Stop::skip_if(!answer.is_success(), "its config serves a container once")?;
    let result = answer.succeeds()?;
    testbed.make(&testbed.call(Verb::Del, &second).prev_result(&result))?.succeeds()?;
    // Lines about net1 belong to the second attachment.
    let lost = |line: &&str| line.starts_with('-') && !line.contains("net1");
    let lost: String = testbed.left_behind().lines().filter(lost).map(|line| format!("{line}\n")).collect();
    Finding::unless_differs(lost, "the other attachment as it was", "something is missing")
}

/// The node and the container, without what the kernel does by itself; of files only their names, as they may keep
/// books.
fn lines(testbed: &Testbed, attached: &Attached<'_>) -> Vec<String> {
    let (node, pod) = (testbed.node.snapshot(), attached.pod.namespace().snapshot());
    let all = node.lines().iter().chain(pod.lines()).filter(|line| !line.contains(" fe80:"));
    all.map(|line| match line.strip_prefix("file ").and_then(|rest| rest.split_once(' ')) {
        Some((path, _content)) => format!("file {path}"),
        None => line.clone(),
    })
    .collect()
}

fn leaves_other_networks(testbed: &Testbed) -> Result<(), Stop> {
    Stop::skip_if(testbed.profile.role == Role::List, "shown by the plugins of the list, one by one")?;
    let (here, there) = (testbed.pod().attachment(), testbed.pod().attachment());
    let call = |verb, attachment: &Attachment, network: &str| {
        // From their own IPAM plugin both networks would get the same address.
        let config =
            with_kit_ipam(testbed, verb, attachment, &[]).unwrap_or_else(|_| testbed.config_for(verb, attachment));
        testbed.call_with(verb, with_key(config, "name", network.into()), attachment)
    };
    let come_and_go = || -> Result<(), Stop> {
        let result = again(testbed.make(&call(Verb::Add, &there, "there"))?.succeeds())?;
        testbed.make(&call(Verb::Del, &there, "there").prev_result(&result))?.succeeds().map(drop)
    };
    come_and_go()?;
    testbed.make(&call(Verb::Add, &here, "here"))?.succeeds()?;
    testbed.remember();
    come_and_go()?;
    nothing_lost(testbed, "the other network as it was")
}
