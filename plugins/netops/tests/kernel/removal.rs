//! The kernel removes links in its own time: each call returns when they are gone.

use super::{bridge, on_node, veth};
use netops::link::{self, Link, Target, Veth};
use netops::probe::Outside;
use netops::{Errno, Kernel, Netns, link_removal};
use nix::sys::wait::waitpid;
use nix::unistd::Pid;
use std::time::Instant;

fn on_node_with_run(test: impl FnOnce(&Kernel, &Netns)) {
    let container = Netns::create().unwrap();
    let _node = testns::Node::with_folders(std::iter::empty());
    test(&Kernel::host().unwrap(), &container);
}

#[test]
fn removal_returns_when_the_kernel_announces_it() {
    on_node_with_run(|net, container| {
        let br0 = bridge(net, "br0");
        let host = veth(net, container, &br0);
        let start = Instant::now();
        link_removal::remove(&host, None).unwrap();
        eprintln!("removal took {:?}", start.elapsed());
        assert_eq!(link::find(net, "vethx").unwrap(), None);
        let inside = Kernel::in_netns(container).unwrap();
        assert_eq!(link::find(&inside, "eth0").unwrap(), None);
        link_removal::remove(&host, None).unwrap();
    });
}

/// Children of this process, which no other process waits for: as on a node whose PID 1 does not.
#[test]
fn no_second_helper_starts_before_the_first_is_reaped_and_then_each_removal_starts_one() {
    on_node_with_run(|net, container| {
        let br0 = bridge(net, "br0");
        let noted = || {
            let folder: Vec<_> = std::fs::read_dir("/run/cni").unwrap().collect();
            let [Ok(note)] = &folder[..] else { panic!("{folder:?}") };
            assert_eq!(std::os::unix::fs::MetadataExt::mode(&note.metadata().unwrap()) & 0o777, 0o600);
            let text = std::fs::read_to_string(note.path()).unwrap();
            Pid::from_raw(text.trim_end().rsplit_once('\n').unwrap().1.split_once(' ').unwrap().0.parse().unwrap())
        };
        let remove = || {
            link_removal::remove(&veth(net, container, &br0), None).unwrap();
            assert_eq!(link::find(net, "vethx").unwrap(), None);
            noted()
        };
        let first = remove();
        for _ in 0..3 {
            assert_eq!(remove(), first);
        }
        waitpid(first, None).unwrap();
        let more = [remove(), remove(), remove()];
        assert!(!more.contains(&first) && more[0] != more[1] && more[1] != more[2], "{more:?}");
        for helper in more {
            waitpid(helper, None).unwrap();
        }
    });
}

#[test]
fn removal_of_several_links_reports_the_refused_one_and_removes_the_rest() {
    on_node(|net, _| {
        let br0 = bridge(net, "br0");
        let br1 = bridge(net, "br1");
        let gone = bridge(net, "br2");
        net.run(link_removal::request(&(&gone).into())).unwrap();
        let lo = link::get(net, &Target::named("lo")).unwrap();
        let left = link_removal::remove_all(&[br0, gone, lo.clone(), br1]);
        let [link_removal::Left { link, error }] = &left[..] else { panic!("{left:?}") };
        assert_eq!((link.index, error.object.as_str()), (lo.index, "link lo"));
        assert_eq!(error.os_errno(), Some(Errno::EOPNOTSUPP));
        assert_eq!(link::list(net, None).unwrap().len(), 1);
    });
}

#[test]
fn a_way_in_by_each_of_two_links_is_gone_when_its_value_is() {
    on_node(|net, _| {
        let links = ["br0", "br1"].map(|name| bridge(net, name));
        for _ in 0..3 {
            let ways_in = match links.each_ref().map(|link| Outside::new(net, link)) {
                [Ok(first), Ok(second)] => [first, second],
                refused => return testns::skip("a_way_in_by_each_of_two_links", &format!("{refused:?}")),
            };
            assert_eq!(link::list(net, None).unwrap().len(), 5);
            drop(ways_in);
            assert_eq!(link::list(net, None).unwrap().len(), 3);
        }
    });
}

/// With a grace period for each, 700 would take 20 s; the kernel takes 1 ms for each all the same.
fn removal_of(number: usize) {
    on_node(|net, container| {
        let mut pairs = Vec::new();
        for n in 0..number {
            // A bridge has 1023 ports at most.
            let master = match n % 1000 {
                0 => bridge(net, &format!("br{}", n / 1000)).index,
                _ => pairs.last().and_then(|last: &Link| last.master).unwrap(),
            };
            let (name, peer) = (format!("veth{n}"), format!("eth{n}"));
            let veth = Veth { master: Some(master), peer_netns: Some(container), ..Veth::new(&name, &peer) };
            pairs.push(link::create_veth(net, &veth).unwrap());
        }
        let kept = pairs.pop().unwrap();
        let start = Instant::now();
        assert_eq!(link_removal::remove_all(&pairs), []);
        eprintln!("removal of {} took {:?}", pairs.len(), start.elapsed());
        assert_eq!(link::list(net, kept.master).unwrap(), [kept]);
        let inside = Kernel::in_netns(container).unwrap();
        assert_eq!(link::list(&inside, None).unwrap().len(), 2);
    });
}

#[test]
fn removal_of_many_shares_the_grace_periods_and_touches_no_other_link() {
    removal_of(700);
}

#[test]
#[ignore = "takes half a minute"]
fn removal_of_ten_thousand_ends() {
    removal_of(10_000);
}
