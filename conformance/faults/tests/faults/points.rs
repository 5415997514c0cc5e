//! ADD of a plugin with rules of the packet filter, failing or killed at each point.

use crate::subjects::node;
use nix::errno::Errno;
use testns::trace::{Syscall, Traced};
use testns::{Call, Container, Node, Verb};

/// DEL without result, and without namespace every second time.
pub(crate) fn del(node: &Node, call: Call, n: usize) {
    let bare = call.with_config(|config| {
        config.as_object_mut().unwrap().retain(|key, _| !["prevResult", "runtimeConfig"].contains(&key.as_str()));
    });
    if n.is_multiple_of(2) { bare } else { bare.without("CNI_NETNS") }.run(node).ok();
}

/// Nothing is left where ADD that failed is rolled back, and after DEL at the latest.
pub(crate) fn at_each_point(
    call: impl Fn(Verb, &Container) -> Call,
    left: impl Fn(&Node) -> Vec<String>,
    fails: impl Fn(&Call, &Node, usize) -> Traced,
    is_rolled_back: bool,
) {
    let node = node();
    for n in 1.. {
        let pod = node.container();
        let Traced { reply, hit, .. } = fails(&call(Verb::Add, &pod), &node, n);
        let point = format!("{n}: {:?}\n{reply}", hit.as_ref().map(ToString::to_string));
        let is_reply = hit.as_ref().is_some_and(|hit| hit.name().starts_with("write") && hit.arguments[0] == 1);
        if is_rolled_back && hit.is_some() && reply.output.code() != 0 && !is_reply {
            assert_eq!(left(&node), [""; 0], "{point}");
        }
        del(&node, call(Verb::Del, &pod), n);
        assert_eq!(left(&node), [""; 0], "after DEL: {point}");
        if hit.is_none() {
            reply.ok();
            assert!(n > 3, "only {} points", n - 1);
            break;
        }
    }
}

/// Fails any system call, as the kernel might.
pub(crate) fn fail_step(call: &Call, node: &Node, n: usize) -> Traced {
    fn errno(call: &Syscall) -> Errno {
        match call.name().as_str() {
            "recvfrom" | "recvmsg" => Errno::ENOBUFS,
            "sendto" | "sendmsg" => Errno::ENOMEM,
            "open" | "openat" | "write" => Errno::ENOSPC,
            _ => Errno::EBUSY,
        }
    }
    call.fail_step(node, n, errno)
}
