//! Which programs a node needs: none, or the legacy variant's where that has rules.

use std::path::Path;
use std::process::Command;

use filter::iptables::rule::{Rule, Target};
use filter::iptables::{Edit, NewRule, TableName};
use filter::{Attachment, Backend, Filter, Known, gc, remove_all};
use netops::nft::Family;

use crate::node::{ETH0, has, in_netns};
use crate::{add, check, network};

/// Runs a test with folders of the system that have no programs in them, but for one that PATH has.
#[expect(clippy::disallowed_methods, reason = "a mount namespace of the test's own, on a thread that ends there")]
fn without_programs(test: impl FnOnce() + Send + 'static) {
    in_netns(|| {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        for folder in ["/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/sbin", "/usr/local/bin"] {
            if Path::new(folder).is_dir() {
                let none = None::<&str>;
                nix::mount::mount(Some("none"), folder, Some("tmpfs"), nix::mount::MsFlags::empty(), none).unwrap();
            }
        }
        test();
    });
}

/// An empty root, and images with nothing but a runtime.
#[test]
fn the_default_needs_no_executable() {
    without_programs(|| {
        assert!(Command::new("/usr/sbin/iptables").output().is_err());
        add(ETH0, "10.1.0.5/24");
        add(ETH0, "fd00::5/64");
        check(ETH0, "fd00::5/64");
        Filter::open().unwrap().probe_masquerade(Backend::Default).unwrap();
        assert_eq!(remove_all(ETH0, Known::default()), []);
    });
}

/// The legacy variant's programs in a folder of their own, under the names that every node has; `None` where there are
/// none, or the kernel has no legacy tables.
fn legacy_folder(test: &str) -> Option<String> {
    let program = "/usr/sbin/xtables-legacy-multi";
    if !has(test, program) {
        return None;
    }
    let usable = Command::new(program).args(["iptables", "-t", "nat", "-L"]).output().unwrap();
    if !usable.status.success() {
        testns::skip(
            test,
            &format!("the kernel has no legacy iptables: {}", String::from_utf8_lossy(&usable.stderr).trim_end()),
        );
        return None;
    }
    let folder = format!("/tmp/legacy-{}-{test}", std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(program, format!("{folder}/multi")).unwrap();
    for name in ["iptables-save", "iptables-restore", "ip6tables-save", "ip6tables-restore"] {
        let link = format!("{folder}/{name}");
        std::fs::remove_file(&link).ok();
        std::os::unix::fs::symlink("multi", link).unwrap();
    }
    Some(folder)
}

fn run(folder: &str, program: &str, args: &str) -> String {
    let program = format!("{folder}/{program}");
    let output = Command::new(&program).args(args.split_whitespace()).output().unwrap();
    assert!(output.status.success(), "{program} {args}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Where the node's iptables is the legacy variant and has rules, ours are there, too: by PATH alone, as on k3s and
/// NixOS.
#[test]
fn rules_go_where_the_legacy_variant_in_path_has_rules() {
    without_programs_but_legacy("rules_go_where_the_legacy_variant_in_path_has_rules", |folder| {
        let load = |lines: &str| {
            let mut filter = Filter::open().unwrap().searching(folder);
            let mut table = filter.iptables(Family::Ip, TableName::Nat).unwrap().unwrap();
            let rule = Rule { target: Target::Return, comment: Some(lines.to_owned()), ..Rule::default() };
            let new = NewRule { chain: "POSTROUTING".to_owned(), rule, note: None };
            table.change(|_| Ok(vec![Edit::Append(new.clone())])).unwrap();
        };
        let save = || run(folder, "iptables-save", "-t nat");
        let rules = || -> Vec<String> {
            save()
                .lines()
                .filter(|line| line.starts_with("-A") || line.starts_with(":CNI"))
                .map(str::to_owned)
                .collect()
        };
        assert_eq!(rules(), [""; 0]);
        // The tables are loaded, but without rules: nobody uses them.
        load("over netlink");
        assert_eq!(rules(), [""; 0]);
        // Any table tells which variant the node's iptables is.
        std::fs::write(format!("{folder}/lines"), "*filter\n-A FORWARD -s 192.0.2.9/32 -j RETURN\nCOMMIT\n").unwrap();
        run(folder, "iptables-restore", &format!("--noflush {folder}/lines"));
        load("by the program");
        let others = rules();
        assert_eq!(others.len(), 1);

        let filter = || Filter::open().unwrap().searching(folder);
        let net1 = Attachment { ifname: "net1", ..ETH0 };
        for (attachment, address) in [(ETH0, "10.1.0.5/24"), (net1, "10.2.0.5/24")] {
            for _ in 0..2 {
                filter().add_masquerade(Backend::Default, attachment, &network(address)).unwrap();
            }
            filter().check_masquerade(Backend::Default, attachment, &network(address)).unwrap();
        }
        let chain = "CNI-4e371bc82e61f4bf8cb929e6"; // network "office", container "c1"
        let whose = r#"-m comment --comment "name: \"office\" id: \"c1\"""#;
        let mut both = others.clone();
        both.insert(0, format!(":{chain} - [0:0]"));
        both.extend([
            format!("-A POSTROUTING -s 10.1.0.5/32 {whose} -j {chain}"),
            format!("-A POSTROUTING -s 10.2.0.5/32 {whose} -j {chain}"),
            format!("-A {chain} -d 10.2.0.0/24 {whose} -j ACCEPT"),
            format!("-A {chain} -d 10.1.0.0/24 {whose} -j ACCEPT"),
            format!("-A {chain} ! -d 224.0.0.0/4 {whose} -j MASQUERADE"),
        ]);
        assert_eq!(rules(), both);
        let addresses = ["10.2.0.5".parse().unwrap()];
        let known = |addresses| Known { addresses, search_path: folder, ..Known::default() };
        assert_eq!(remove_all(net1, known(&addresses)), []);
        assert_eq!(rules().len(), both.len() - 2);
        filter().check_masquerade(Backend::Default, ETH0, &network("10.1.0.5/24")).unwrap();
        assert_eq!(remove_all(ETH0, known(&[])), []);
        assert_eq!(rules(), others);
        filter().add_masquerade(Backend::Default, ETH0, &network("10.1.0.5/24")).unwrap();
        assert_eq!(gc("office", &[], folder), []);
        assert_eq!(rules(), others);
    });
}

/// The same with the legacy variant in a folder for PATH.
fn without_programs_but_legacy(test: &'static str, body: impl FnOnce(&str) + Send + 'static) {
    let Some(folder) = legacy_folder(test) else { return };
    let place = folder.clone();
    without_programs(move || {
        // The lock of the legacy variant.
        let none = None::<&str>;
        nix::mount::mount(Some("none"), "/run", Some("tmpfs"), nix::mount::MsFlags::empty(), none).unwrap();
        body(&place);
    });
    std::fs::remove_dir_all(folder).unwrap();
}
