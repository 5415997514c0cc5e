//! The findings of CHECK and `cnitool doctor` about objects that a repair makes again.

use super::*;

/// A plugin that is missing, or waits for a lock, has not compared anything: the container may be well.
#[test]
fn a_check_that_could_not_be_run_is_no_fault_of_the_container() {
    let site = Site::new(&bridge());
    let portmap = site.tour.bin_dir.join("portmap");
    let kept = portmap.with_extension("kept");
    std::fs::rename(&portmap, &kept).unwrap();
    // Among the processes of the test: one of them is to hold the lock.
    let find = |kind: &str| {
        let output =
            site.tour.run_among_processes(&site.tour.bin_dir.join("cnitool"), &["doctor", "--check", "--json"]);
        let findings: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
        findings.into_iter().find(|finding| finding["kind"] == kind)
    };
    let expect = || {
        assert_eq!(find("check-fails"), None);
        let finding = find("unseen").expect("a finding about CHECK");
        assert!(finding["what"].as_str().unwrap().ends_with("/eth0 could not be run"), "{finding}");
        assert_eq!(finding["level"], "warning", "{finding}");
        finding["evidence"].to_string()
    };
    let evidence = expect();
    assert!(evidence.contains("failed to find plugin"), "{evidence}");
    let (code, rows) = site.run(&["office", "--dry-run"]);
    assert_eq!((code, &rows[0]["verdict"]), (Some(1), &json!("left")), "{rows:?}");
    std::fs::rename(&kept, &portmap).unwrap();
    let lock = std::fs::File::open("/var/lib/cni/networks/office/lock").unwrap();
    lock.lock().unwrap();
    let evidence = expect();
    // The bound is that of a lock that is held.
    assert!(
        evidence.contains("it did not end within 9") || evidence.contains("it did not end within 10"),
        "{evidence}"
    );
}

/// Where ADD fails, too, a container that is stopped does not come back.
#[test]
fn no_container_is_started_anew_where_its_network_takes_none() {
    let site = Site::new(&bridge());
    sh(site.pod.namespace(), "ip link set eth0 address 02:00:00:00:00:09");
    let (conf, find) = ("/etc/cni/net.d/10-office.conflist", || site.find("check-fails").unwrap()["remedy"].clone());
    assert_eq!(find(), "Start the container anew.");
    let list = std::fs::read_to_string(conf).unwrap();
    std::fs::write(conf, list.replace("\"office0\"", "\"uplink\"")).unwrap();
    assert_eq!(find(), "Start the container anew once this names no fault: cnitool status office");
}

/// CHECK names all that a plugin misses, the first as before.
#[test]
fn check_names_all_differences() {
    let site = Site::new(&bridge());
    let veth = site.veth();
    sh(site.tour.node.host(), "ip link del office0");
    let output = site.check();
    let said = String::from_utf8(output.stderr).unwrap();
    for part in [
        "bridge office0 is not as ADD left it: it is not found",
        &format!("link {veth} is not as ADD left it: it is no port of bridge office0"),
        "interface office0 is not as ADD left it: it is not found",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}

/// The renamed bridge's ports work, and a second bridge would take the containers' gateway from them.
#[test]
fn a_bridge_that_was_renamed_gets_its_name_back_and_no_second_one() {
    let site = Site::new(&bridge());
    let host = site.tour.node.host();
    sh(host, "ip link set office0 down; ip link set office0 name other0; ip link set other0 up");
    let remedy = "ip link set other0 name office0 || (ip link set other0 down && ip link set other0 name office0 && ip link set office0 up)";
    let finding = site.find("link-gone").expect("a finding about the bridge");
    let what = "bridge office0 is called other0 now, and the next ADD makes another one";
    assert_eq!((&finding["what"], &finding["level"]), (&json!(what), &json!("warning")));
    for kind in ["link-gone", "check-fails"] {
        assert_eq!(site.find(kind).unwrap()["remedy"], remedy, "{kind}");
    }
    assert_eq!(site.find("route-elsewhere"), None);
    let (code, rows) = site.run(&["office"]);
    assert_eq!(code, Some(1), "{rows:?}");
    assert!(!host.enter(|| Path::new("/proc/sys/net/ipv4/conf/office0").exists()), "{rows:?}");
    sh(host, remedy);
    assert_eq!(site.find("link-gone"), None);
    // IPv6 addresses of the bridge went when it was set down.
    let (code, rows) = site.run(&["office"]);
    assert_eq!(code, Some(0), "{rows:?}");
    let checked = site.check();
    assert!(checked.status.success(), "{checked:?}");
    assert!(site.gets_out(LONG) && site.gets_in(LONG));
}
