//! The path of a container's namespace is led to the node's namespace between two system calls of a call.

use crate::configs::{Attached, bridge};
use crate::shared_objects::stays;
use crate::subjects::node;
use nix::errno::Errno;
use serde_json::{Value, json};
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use testns::trace::{Fate, Syscall};
use testns::{Attachment, Call, Container, Node, Verb};

/// A path that is switched to the node's namespace after a number of system calls.
struct Swap {
    path: PathBuf,
    to: PathBuf,
    after: usize,
}

static SWAP: Mutex<Option<Swap>> = Mutex::new(None);

/// Counts a traced call's system calls, and acts as the attacker between two of them.
fn swap(_: &Syscall) -> Option<Errno> {
    let mut due = SWAP.lock().unwrap_or_else(PoisonError::into_inner);
    match due.as_mut() {
        Some(Swap { after: 0, .. }) => {
            let Swap { path, to, .. } = due.take().expect("it is due");
            lead(&path, &to);
        }
        Some(Swap { after, .. }) => *after -= 1,
        None => {}
    }
    None
}

fn lead(path: &PathBuf, to: &PathBuf) {
    let new = path.with_extension("new");
    symlink(to, &new).expect("make a link");
    std::fs::rename(new, path).expect("put it in the place of the old");
}

/// Repeats a call, with its path switched from `from` to the node after each possible number of system calls. In the
/// last run the path is not switched.
fn at_every_system_call(node: &Node, mut each: impl FnMut(&Node, &str, &dyn Fn(&Call, &Container) -> i32)) {
    let path = PathBuf::from("/run/netns/swapped");
    let mut after = 0;
    loop {
        let call = |call: &Call, from: &Container| {
            if path.is_symlink() {
                std::fs::remove_file(&path).unwrap();
            }
            lead(&path, &from.namespace().path().into());
            *SWAP.lock().unwrap_or_else(PoisonError::into_inner) =
                Some(Swap { path: path.clone(), to: node.host().path().into(), after });
            let traced = call.try_traced(node, Some((1, Fate::FailWhere(swap)))).expect("no call takes that long");
            traced.reply.output.code()
        };
        each(node, path.to_str().unwrap(), &call);
        let done = SWAP.lock().unwrap_or_else(PoisonError::into_inner).take().is_some();
        if done {
            break;
        }
        after += 1;
    }
    assert!(after > 100, "only {after} system calls were seen");
    testns::note(&format!("SWAPPED after 0 to {after} system calls"));
}

fn config() -> Value {
    bridge(json!({"cniVersion": "1.1.0"}))
}

fn at(pod: &Container, netns: &str) -> Attachment {
    Attachment { netns: netns.to_owned(), ..pod.attachment() }
}

/// However the path is changed while ADD runs: ADD makes its objects in the container that was compared with the node,
/// or nowhere. And DEL removes nothing from the node, even where the container's link has no alias.
#[test]
fn a_path_that_is_swapped_during_a_call_does_not_lead_into_the_node() {
    let node = node();
    let [decoy, _] = ["eth0", "eth0-peer"].map(|name| name.to_owned());
    at_every_system_call(&node, |node, path, call| {
        let pod = node.container();
        let add = Call::new(Verb::Add, config(), at(&pod, path));
        let added = call(&add, &pod);
        assert!(node.host().find_link("eth0").is_none(), "ADD plugged in the node");
        assert_eq!(pod.namespace().find_link("eth0").is_some(), added == 0);
        Call::new(Verb::Del, config(), &pod).run(node).ok();
    });
    node.assert_as_before_except(|line| stays(line) || line.contains("/swapped"));
    let other = node.remote("other");
    node.host().add_veth(&decoy, &other, "peer");
    at_every_system_call(&node, |node, path, call| {
        let pod = node.container();
        let attached = Attached::add(node, &config(), &pod);
        node.host().set_alias(attached.host_veth(), "");
        let del = Call::new(Verb::Del, config(), at(&pod, path));
        call(&del, &pod);
        assert!(node.host().find_link(&decoy).is_some(), "DEL took the node's own link");
        if node.host().find_link(attached.host_veth()).is_some() {
            node.host().delete_link(attached.host_veth());
        }
    });
}
