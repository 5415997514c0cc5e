//! The programs that a node needs: none, or the legacy variant's where that has rules.

use std::path::Path;
use std::process::Command;

use cni_filter::iptables::rule::{Rule, Target};
use cni_filter::iptables::{Edit, NewRule, TableName};
use cni_filter::{Backend, Filter, Names, RemovalHints, gc, remove_all};
use netops::nft::{ExtensionKind, Family, Nft, Table};

use super::{add, check, network, saved};
use crate::node::{ETH0, has, in_netns};

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
        Filter::open("").unwrap().probe_masquerade(Backend::Default).unwrap();
        assert_eq!(remove_all(ETH0, RemovalHints::default()), []);
    });
}

/// Really without the module: conformance/full-kernel runs it before it loads that.
#[test]
fn without_nft_compat_rules_are_those_of_nftables_or_an_error_says_what_is_missing() {
    without_programs(|| {
        let mut nft = Nft::open("the host").unwrap();
        if nft.has_extension(Family::Ip, ExtensionKind::Match, "comment", 0).unwrap() {
            return testns::skip("without_nft_compat", "this kernel has it");
        }
        // The names of iptables lead to the variant that needs the same extensions.
        let folder = format!("/tmp/nft-variant-{}", std::process::id());
        std::fs::create_dir_all(&folder).unwrap();
        for name in ["iptables-save", "iptables-restore"] {
            let link = format!("{folder}/{name}");
            std::fs::remove_file(&link).ok();
            std::os::unix::fs::symlink("xtables-nft-multi", link).unwrap();
        }
        std::fs::write(format!("{folder}/xtables-nft-multi"), "").unwrap();
        let filter = || Filter::open(&folder).unwrap();
        let address = network("10.1.0.5/24");
        filter().probe_masquerade(Backend::Default).unwrap();
        filter().add_masquerade(Backend::Default, ETH0, &address).unwrap();
        filter().check_masquerade(Backend::Default, ETH0, &address).unwrap();
        assert!(nft.find_table(&Table::new(Family::Inet, "cni_plugins_masquerade")).unwrap().is_some());
        let probed = filter().probe_masquerade(Backend::Iptables).unwrap_err().to_string();
        let added = filter().add_masquerade(Backend::Iptables, ETH0, &address).unwrap_err().to_string();
        for error in [probed, added] {
            assert!(error.contains("load nft_compat and xt_MASQUERADE, install iptables"), "{error}");
        }
        assert_eq!(nft.find_table(&Table::new(Family::Ip, "nat")).unwrap(), None);
        assert_eq!(remove_all(ETH0, RemovalHints::default()), []);
        filter().check_masquerade(Backend::Default, ETH0, &address).unwrap_err();
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
    testns::unshared(|| std::fs::copy(program, format!("{folder}/multi"))).unwrap();
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
            let mut filter = Filter::open(folder).unwrap();
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
        // The tables are loaded, but without rules: they are not in use.
        load("over netlink");
        assert_eq!(rules(), [""; 0]);
        // Any table shows which variant the node's iptables is.
        std::fs::write(format!("{folder}/lines"), "*filter\n-A FORWARD -s 192.0.2.9/32 -j RETURN\nCOMMIT\n").unwrap();
        run(folder, "iptables-restore", &format!("--noflush {folder}/lines"));
        load("by the program");
        let others = rules();
        assert_eq!(others.len(), 1);

        let filter = || Filter::open(folder).unwrap();
        let net1 = Names { ifname: "net1", ..ETH0 };
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
        let known = |addresses| RemovalHints { addresses, search_path: folder, ..RemovalHints::default() };
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

/// The alternative that an administrator chose shows the variant before any rule exists; iptables-nft shows nothing of it.
#[test]
fn rules_go_where_iptables_is_the_legacy_variant_by_name() {
    without_programs_but_legacy("rules_go_where_iptables_is_the_legacy_variant_by_name", |folder| {
        std::fs::rename(format!("{folder}/multi"), format!("{folder}/xtables-legacy-multi")).unwrap();
        // As update-alternatives does it: a link to a link to the file.
        for name in ["iptables-save", "iptables-restore", "ip6tables-save", "ip6tables-restore"] {
            let (link, alternative) = (format!("{folder}/{name}"), format!("{folder}/alternatives-{name}"));
            std::fs::remove_file(&link).unwrap();
            std::os::unix::fs::symlink("xtables-legacy-multi", &alternative).unwrap();
            std::os::unix::fs::symlink(&alternative, link).unwrap();
        }
        let filter = || Filter::open(folder).unwrap();
        let addresses = [network("10.1.0.5/24"), network("fd00::5/64")].concat();
        filter().probe_masquerade(Backend::Default).unwrap();
        filter().add_masquerade(Backend::Default, ETH0, &addresses).unwrap();
        for program in ["iptables-save", "ip6tables-save"] {
            assert_eq!(run(folder, program, "-t nat").matches("-A POSTROUTING").count(), 1, "{program}");
        }
        assert_eq!(Nft::open("the host").unwrap().find_table(&Table::new(Family::Ip, "nat")).unwrap(), None);
        filter().check_masquerade(Backend::Default, ETH0, &addresses).unwrap();
        let known = RemovalHints { search_path: folder, ..RemovalHints::default() };
        assert_eq!(remove_all(ETH0, known), []);
        for program in ["iptables-save", "ip6tables-save"] {
            assert!(!run(folder, program, "-t nat").contains("-A "), "{program}");
        }
    });
}

/// A folder with programs that print what those of the legacy variant do while another process holds their lock.
fn locked_folder() -> String {
    let folder = format!("/tmp/locked-{}", std::process::id());
    std::fs::create_dir_all(&folder).unwrap();
    let script = "#!/bin/sh\ncase $0 in\n*save) printf '# Generated by iptables-save v1.8.9\\n*nat\\n\
                  :POSTROUTING ACCEPT [0:0]\\nCOMMIT\\n' ;;\n*) echo called >>$0.calls\necho 'Another app is \
                  currently holding the xtables lock. Stopped waiting after 20s.' >&2; exit 4 ;;\nesac\n";
    let file = format!("{folder}/xtables-legacy-multi");
    testns::write_executable(file, script).unwrap();
    for name in ["iptables-save", "iptables-restore"] {
        std::os::unix::fs::symlink("xtables-legacy-multi", format!("{folder}/{name}")).unwrap();
    }
    folder
}

/// The legacy variant's programs wait for their lock themselves: once, and the error says what they waited for.
#[test]
fn a_lock_that_another_process_holds_is_named() {
    in_netns(|| {
        let folder = locked_folder();
        let mut filter = Filter::open(&folder).unwrap();
        let error = filter.add_masquerade(Backend::Default, ETH0, &network("10.1.0.5/24")).unwrap_err().to_string();
        let calls = std::fs::read_to_string(format!("{folder}/iptables-restore.calls")).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(calls, "called\n");
        assert!(error.contains("cannot take the xtables lock") && error.contains("another process"), "{error}");
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

/// Conditions that only iptables knows are written by its programs, and refused over netlink before anything is changed.
#[test]
fn options_that_only_iptables_knows_are_written_by_its_programs() {
    in_netns(|| {
        testns::needs!(has("options_that_only_iptables_knows_are_written_by_its_programs", "iptables-nft"));
        assert_eq!(Rule::parse("-s 10.1.0.0/24 -p tcp -j CNI-B").unwrap().goes_to(), Some("CNI-B"));
        assert_eq!(Rule::parse("-m ttl --ttl-gt 3 -j CNI-B"), None);
        let words = ["-m", "ttl", "!", "--ttl-eq", "3", "-m", "comment", "--comment", "a \"b\""].map(str::to_owned);
        let rule = Rule { words: words.to_vec(), ..Rule::jump("CNI-B") };
        let new = NewRule { chain: "CNI-A".to_owned(), rule, note: None };
        let edits = ["CNI-B", "CNI-A"].map(|chain| Edit::CreateChain(chain.to_owned())).to_vec();
        let edits = [edits, vec![Edit::Append(new)]].concat();
        let mut filter = Filter::open("").unwrap();
        let mut over_netlink = filter.iptables(Family::Ip, TableName::Nat).unwrap().unwrap();
        let error = over_netlink.change(|_| Ok(edits.clone())).unwrap_err().to_string();
        assert!(error.contains("install iptables, or leave them out"), "{error}");
        assert!(over_netlink.list_chains().unwrap().is_empty());
        let place = filter.place_of_programs(Family::Ip, TableName::Nat).unwrap().unwrap();
        let mut table = filter.table(place);
        table.change(|_| Ok(edits.clone())).unwrap();
        let line = "-A CNI-A -m ttl ! --ttl-eq 3 -m comment --comment \"a \\\"b\\\"\" -j CNI-B";
        assert!(saved().iter().any(|saved| saved == line), "{:?}", saved());
    });
}
