//! `cnitool install`: the files that it writes, replaces and leaves alone.

use super::{Tour, netns};

/// The installation has a file for each plugin except noop, and cnitool. A second installation over it works, also over
/// one whose names are hard links of one file.
#[test]
fn install_puts_every_plugin_and_cnitool_there() {
    use std::os::unix::fs::MetadataExt;
    let tour = Tour::new();
    // All but noop, which is for tests.
    let mut names: Vec<&str> =
        cni_plugins::ENTRIES.iter().map(|entry| entry.name).filter(|name| *name != "noop").collect();
    let plugins = u64::try_from(names.len()).unwrap();
    names.push("cnitool");
    names.sort_unstable();
    for (more, links) in [(&["--link", "hard"][..], plugins), (&[], 1), (&[], 1)] {
        let output = tour.install(more);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        // The executable `cluster` is another one, and installed where it was built.
        let mut installed = tour.installed();
        installed.retain(|name| name != "cluster");
        assert_eq!(installed, names);
        assert_eq!(tour.bin_dir.join("bridge").metadata().unwrap().nlink(), links);
    }
}

/// Third-party installers write their own loopback over the existing file.
#[test]
fn a_plugin_that_is_overwritten_changes_no_other() {
    let tour = Tour::new();
    assert!(tour.install(&[]).status.success());
    testns::unshared(|| std::fs::copy("/bin/true", tour.bin_dir.join("loopback"))).unwrap();
    let pod = tour.node.container();
    tour.cnitool(&["add", "office", &netns(&pod)]);
    assert_eq!(pod.namespace().global_addresses("eth0"), [tour.address(2) + "/24"]);
}

/// A foreign file is replaced only on request, and then a copy is kept.
#[test]
fn install_leaves_foreign_files_alone() {
    let tour = Tour::new();
    let foreign = tour.bin_dir.join("bridge");
    std::fs::write(&foreign, "a foreign file").unwrap();
    let refused = tour.install(&[]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("bridge"), "{refused:?}");
    assert_eq!(
        (std::fs::read_to_string(&foreign).unwrap().as_str(), tour.installed()),
        ("a foreign file", vec!["bridge".into()])
    );
    let replaced = tour.install(&["--replace-foreign"]);
    assert!(replaced.status.success(), "{}", String::from_utf8_lossy(&replaced.stderr));
    assert_eq!(std::fs::read_to_string(tour.bin_dir.join(".replaced/bridge")).unwrap(), "a foreign file");
    assert!(tour.cnitool(&["version"]).contains("bridge"));
}
