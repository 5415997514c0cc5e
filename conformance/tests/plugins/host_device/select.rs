//! The keys that select the device. A PCI bus of files stands for the machine's.

use super::{assert_home, config, device, device_and_pod};
use crate::prelude::*;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

fn selected(own: Value) -> Value {
    let mut config = config(json!({}));
    config.as_object_mut().expect("an object").remove("device");
    with(config, own)
}

/// A folder of the node's sysfs with these devices: name, and folder of their interface.
fn bus(folder: &str, id: &str, interface: &str) {
    let status = Command::new("mount").args(["-t", "tmpfs", "tmpfs", folder]).status().expect("run mount");
    assert!(status.success());
    std::fs::create_dir_all(Path::new(folder).join(id).join(interface)).expect("make a device");
}

#[track_caller]
fn goes_and_comes(node: &Node, config: &Value) {
    let pod = node.container();
    let attached = Attached::add(node, config, &pod);
    assert!(node.host().find_link("dev1").is_none());
    attached.check_and_del();
    assert_home(node, &config.to_string());
}

#[test]
fn a_device_by_each_key() {
    let pci = "/sys/bus/pci/devices";
    let (absent, device_id) = ("0000:98:00.0", |id: &str| json!({"deviceID": id}));
    for (folder, id, interface, own) in [
        (pci, "0000:99:00.1", "net/dev1", json!({"pciBusID": "0000:99:00.1"})),
        (pci, "0000:99:00.1", "virtio3/net/dev1", json!({"pciBusID": "0000:99:00.1"})),
        (pci, "0000:99:00.1", "net/dev1", json!({"pciBusID": absent, "runtimeConfig": device_id("0000:99:00.1")})),
        ("/sys/devices/system", "card7", "net/dev1", json!({"kernelpath": "/sys/devices/system/card7"})),
        // A subfunction, which only a device plugin names.
        (
            "/sys/bus",
            "auxiliary/devices/mlx5_core.sf.4",
            "net/dev1",
            json!({"pciBusID": absent, "runtimeConfig": device_id("mlx5_core.sf.4")}),
        ),
    ] {
        let node = node();
        device(&node);
        bus(folder, id, interface);
        goes_and_comes(&node, &selected(own));
    }
    let node = node();
    device(&node);
    goes_and_comes(&node, &selected(json!({"hwaddr": node.host().link("dev1").mac.to_uppercase()})));
    for (key, value, what) in [
        ("pciBusID", absent, "PCI device 0000:98:00.0"),
        ("kernelpath", "/sys/devices/system/card8", "/sys/devices/system/card8"),
    ] {
        let error = node.call(Verb::Add, selected(json!({key: value})), &node.container()).fails();
        assert_eq!(error.msg, format!("cannot find network device of {what} on the host"));
    }
}

/// A function of a card may have several interfaces: representors of ports are not meant, and of others none is taken by chance.
#[test]
fn a_device_with_several_interfaces_is_refused_but_for_representors() {
    let node = node();
    device(&node);
    bus("/sys/bus/pci/devices", "0000:99:00.1", "net/dev1");
    let other = Path::new("/sys/bus/pci/devices/0000:99:00.1/net/dev0");
    std::fs::create_dir(other).expect("make an interface");
    let config = selected(json!({"pciBusID": "0000:99:00.1"}));
    let error = node.call(Verb::Add, &config, &node.container()).fails_with(7);
    assert!(error.msg.ends_with("is not one interface: dev0, dev1"), "{error:?}");
    std::fs::write(other.join("phys_port_name"), "pf0vf0\n").expect("name the port");
    node.call(Verb::Add, &config, &node.container()).ok();
    assert!(node.host().find_link("dev1").is_none());
}

/// The first key that is set selects: the others may name what is not there.
#[test]
fn the_first_key_that_is_set_selects() {
    let node = node();
    device(&node);
    let mac = node.host().link("dev1").mac;
    let all = json!({"device": "dev1", "hwaddr": mac, "kernelpath": "/sys/devices/x", "pciBusID": "0000:98:00.0"});
    goes_and_comes(&node, &selected(all.clone()));
    goes_and_comes(&node, &selected(with(all.clone(), json!({"device": ""}))));
    for (key, own) in [
        ("device dev9", json!({"device": "dev9"})),
        ("device with address 0a:00:00:00:00:99", json!({"device": "", "hwaddr": "0a:00:00:00:00:99"})),
        ("network device of /sys/devices/x", json!({"device": "", "hwaddr": ""})),
    ] {
        let error = node.call(Verb::Add, selected(with(all.clone(), own)), &node.container()).fails();
        assert_eq!(error.msg, format!("cannot find {key} on the host"));
    }
}

#[test]
fn a_device_on_no_bus_is_refused() {
    let node = node();
    let config = selected(json!({"runtimeConfig": {"deviceID": "mlx5_core.sf.4"}}));
    let error = node.call(Verb::Add, config, &node.container()).fails_with(7);
    assert!(error.msg.contains("\"mlx5_core.sf.4\": neither the PCI bus nor the auxiliary bus"), "{error:?}");
}

#[test]
fn keys_that_lead_out_of_sysfs_are_refused() {
    let node = node();
    for (key, value) in [
        ("pciBusID", "../../../tmp"),
        ("kernelpath", "/sys/devices/../../tmp"),
        ("kernelpath", "/tmp"),
        ("hwaddr", "x"),
        ("device", "a/b"),
    ] {
        let error =
            node.call(Verb::Add, with(selected(json!({})), json!({key: value})), &node.container()).fails_with(7);
        assert!(error.msg.contains(key) && error.msg.contains(value), "{error:?}");
    }
    let error = node.call(Verb::Add, selected(json!({})), &node.container()).fails_with(7);
    assert!(error.msg.contains("none of the keys device, hwaddr"), "{error:?}");
    node.assert_as_before();
}

/// Drivers that give the device to a program: addresses are reserved, and nothing is moved.
#[test]
fn a_device_of_a_userspace_driver_is_left_alone() {
    for driver in ["vfio-pci", "uio_pci_generic", "igb_uio"] {
        let (node, pod) = device_and_pod();
        bus("/sys/bus/pci/devices", "0000:99:00.1", "net/dev1");
        let folder = Path::new("/sys/bus/pci/devices/0000:99:00.1");
        symlink(format!("../../drivers/{driver}"), folder.join("driver")).expect("bind a driver");
        let config = selected(json!({"pciBusID": "0000:99:00.1"}));
        let result = node.call(Verb::Add, &config, &pod).ok();
        assert_eq!(result["ips"][0]["address"], "10.7.0.2/24");
        let interface = json!({"name": "eth0", "sandbox": pod.attachment().netns});
        assert_eq!(result["interfaces"], json!([interface]), "as the reference from 1.7.1 on");
        assert_eq!(result["ips"][0]["interface"], 0);
        let layer_2 = node.call(Verb::Add, with(config.clone(), json!({"ipam": {}})), &node.container()).ok();
        assert_eq!(layer_2["interfaces"][0]["name"], "eth0");
        assert!(node.host().find_link("dev1").is_some());
        Call::new(Verb::Check, &config, &pod).prev_result(&result).run(&node).ok();
        node.call(Verb::Del, &config, &pod).ok();
        assert_home(&node, driver);
    }
}
