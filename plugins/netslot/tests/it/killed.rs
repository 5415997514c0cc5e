//! A process that is killed at any system call: [`reconcile`] removes what it had, and touches nothing of the living.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use netslot::{Egress, Pool, Port, Protocol, RUN_FOLDER, Spec, reconcile};
use testns::trace::Program;
use testns::{Background, Node};

use crate::{assert_nothing_is_left, node, open, spec};

const CHILD: &str = "NETSLOT_KILLED";

/// The life of a pool with a slot.
fn live() {
    let pool = victim();
    let mut slot = pool.take().unwrap();
    slot.publish(&[Port::new(Protocol::Tcp, 8080, 80)]).unwrap();
    slot.destroy().unwrap();
    drop(pool.take().unwrap());
    pool.close().unwrap();
}

fn victim() -> Pool {
    open(spec("victim").egress(Egress::public()))
}

/// Kills the life of a pool before each of its system calls in turn, and looks at the node after each [`reconcile`].
fn killed_at_each_call(node: &Node, test: &str, look: &dyn Fn(&str)) {
    let executable = &std::env::current_exe().unwrap();
    let arguments = [test, "--exact", "--test-threads=1"].map(str::to_owned);
    let environment = &[(CHILD.to_owned(), "1".to_owned())];
    let deadline = Duration::from_secs(60);
    let program = Program { executable, arguments: &arguments, environment, stdin: "", deadline };
    let mut kills = 0;
    for n in 1.. {
        let hit = program.kill_before(node, n);
        let when = format!("killed before call {n}, {hit:?}");
        let done = reconcile(Path::new(RUN_FOLDER)).unwrap();
        assert!(done.left.is_empty(), "{when}: {done:?}");
        look(&when);
        if hit.is_none() {
            break;
        }
        kills += 1;
    }
    testns::note(&format!("POINTS {test}: {kills}"));
    assert!(kills > 30, "only {kills} points were found");
}

#[expect(clippy::disallowed_methods, reason = "the test starts itself once more and has to recognise itself")]
fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

#[test]
fn reconcile_leaves_nothing_of_a_killed_process() {
    if is_child() {
        return live();
    }
    let (node, _outside) = node();
    // Tables and chains stay.
    live();
    node.remember();
    killed_at_each_call(&node, "killed::reconcile_leaves_nothing_of_a_killed_process", &|when| {
        assert_nothing_is_left(&node, when);
    });
}

#[test]
fn reconcile_touches_no_living_slot() {
    if is_child() {
        return live();
    }
    let (node, _outside) = node();
    let other = open(Spec::new("other", "10.99.0.0/24".parse().unwrap()).egress(Egress::closed()));
    let living = other.take().unwrap();
    live();
    // A slot of the same pool, which a living process has.
    let mut command = Command::new("sleep");
    command.arg("1000");
    let process = Background::with_stdout(command);
    let pool = victim();
    let handed_over = pool.take().unwrap().hand_over(process.id()).unwrap();
    pool.close().unwrap();
    node.remember();
    killed_at_each_call(&node, "killed::reconcile_touches_no_living_slot", &|when| {
        // The kernel's own routes to the IPv6 addresses of links come with their carrier.
        let is_kernels = |line: &&str| line.contains("::") && line.contains(" table 255 ");
        let changes = node.changes();
        let left: Vec<_> = changes.lines().filter(|line| !is_kernels(line)).collect();
        assert!(left.is_empty(), "{when}: {left:#?}");
        living.check().unwrap_or_else(|error| panic!("{when}: {error}"));
    });
    let pool = victim();
    assert_eq!(pool.reclaim().unwrap(), 0);
    let slot = pool.adopt(handed_over).unwrap();
    slot.check().unwrap();
    slot.hand_over(process.id()).unwrap();
    drop(process);
    assert_eq!(pool.reclaim().unwrap(), 1);
    pool.close().unwrap();
    living.destroy().unwrap();
    other.close().unwrap();
    assert!(node.host().links().iter().all(|link| !link.name.starts_with("ns")));
}
