//! SPEC 2, Parameters: what a plugin reads from its environment.

use super::attached::skip;
use crate::rules::prelude::*;
use std::os::unix::fs::symlink;
use testns::Namespace;

pub(super) const CASES: &[Code] = &[
    ("parameters.ifname-is-used-or-refused/longest", |testbed| uses_ifname(testbed, "abcdefghijklmno")),
    ("parameters.ifname-is-used-or-refused/dot", |testbed| uses_ifname(testbed, "eth0.100")),
    ("parameters.ifname-is-used-or-refused/signs", |testbed| uses_ifname(testbed, "a_b-c@d%e")),
    ("parameters.ifname-is-used-or-refused/digits", |testbed| uses_ifname(testbed, "0")),
    ("parameters.netns-is-any-path/proc", takes_a_netns_of_proc),
    ("parameters.netns-is-any-path/symlink", takes_a_link_to_a_netns),
];

fn uses_ifname(testbed: &Testbed, ifname: &str) -> Result<(), Stop> {
    let pod = testbed.pod();
    let before: Vec<_> = pod.namespace().links().into_iter().map(|link| link.name).collect();
    let answer = testbed.make(&testbed.call(Verb::Add, pod.attachment_as(ifname)))?;
    if !answer.is_success() {
        return answer.refuses();
    }
    let after = pod.namespace().links().into_iter().map(|link| link.name);
    let made: Vec<_> = after.filter(|name| !before.contains(name)).collect();
    match made.iter().any(|name| name == ifname) {
        true => Ok(()),
        false if made.is_empty() => Err(skip("its ADD makes no interface in the container")),
        false => Err(Finding::new(format!("an interface {ifname}, or an error"), format!("it made {made:?}")).into()),
    }
}

/// ADD and DEL with another path to the namespace of a new container.
fn takes_netns(testbed: &Testbed, attachment: &Attachment) -> Result<(), Stop> {
    let result = testbed.add(attachment)?;
    testbed.del(attachment, &result)
}

/// The path of a thread of the kit that is in the container, as it would be that of a container's process.
fn takes_a_netns_of_proc(testbed: &Testbed) -> Result<(), Stop> {
    let pod = testbed.pod();
    let host = testbed.node.host();
    pod.namespace().enter(|| {
        let netns = Namespace::of_this_thread().path().display().to_string();
        let attachment = Attachment { netns, ..pod.attachment() };
        host.enter(|| takes_netns(testbed, &attachment))
    })
}

fn takes_a_link_to_a_netns(testbed: &Testbed) -> Result<(), Stop> {
    let attachment = testbed.pod().attachment();
    let link = testbed.node.work_dir().join("namespace");
    symlink(&attachment.netns, &link).unwrap_or_else(|error| panic!("cannot create {}: {error}", link.display()));
    takes_netns(testbed, &Attachment { netns: link.display().to_string(), ..attachment })
}
