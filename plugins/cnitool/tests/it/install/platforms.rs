//! `install --platform`: the folders of platforms, below a throwaway root; and Calico's folder.

use crate::fixture::{Ended, Tool};
use crate::install::with_release;
use expect_test::expect;

fn install(tool: &Tool, platform: &str, words: &[&str]) -> Ended {
    let mut command = tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref());
    command.args(["install", "--platform", platform, "--root"]).arg(tool.path("node"));
    command.env("HOME", "/home").arg("--from").arg(tool.path("from/cni-plugins")).args(words);
    tool.ended(&mut command)
}

#[test]
fn the_folders_of_k3s_are_known_and_its_links_are_kept() {
    let tool = with_release();
    expect![[r#"
        1
        stdout: 
        stderr: note: k3s: plugins $DIR/node/var/lib/rancher/k3s/data/cni: no such folder
        note: k3s: plugins $DIR/node/var/lib/rancher/k3s/data/current/bin: no such folder
        note: k3s: networks $DIR/node/var/lib/rancher/k3s/agent/etc/cni/net.d: no configuration
        note: k3s: cache $DIR/node/var/lib/cni: no such folder
        note: k3s: its own plugins are links, which it makes anew at each start: --replace-foreign, and --watch
        error: cannot install for k3s: $DIR/node/var/lib/rancher/k3s/data/cni and $DIR/node/var/lib/rancher/k3s/data/current/bin not found; nothing was changed. Has k3s started on this node? --bin-dir takes any other folder
    "#]]
    .assert_eq(&install(&tool, "k3s", &[]).shown());
    let dir = "node/var/lib/rancher/k3s/data/cni";
    tool.executable(&format!("{dir}/cni"), "theirs");
    std::os::unix::fs::symlink("cni", tool.path(&format!("{dir}/bridge"))).unwrap();
    tool.write("node/var/lib/rancher/k3s/agent/etc/cni/net.d/10-flannel.conflist", "{}");
    expect![[r#"
        0
        stdout: NAME        PATH                                                          REPLACED
        bridge      $DIR/node/var/lib/rancher/k3s/data/cni/bridge      foreign
        host-local  $DIR/node/var/lib/rancher/k3s/data/cni/host-local  -
        cnitool     $DIR/node/var/lib/rancher/k3s/data/cni/cnitool     -

        stderr: note: k3s: plugins $DIR/node/var/lib/rancher/k3s/data/cni: 1 of our names, 0 of these ours
        note: k3s: plugins $DIR/node/var/lib/rancher/k3s/data/current/bin: no such folder
        note: k3s: networks $DIR/node/var/lib/rancher/k3s/agent/etc/cni/net.d: 10-flannel.conflist
        note: k3s: cache $DIR/node/var/lib/cni: no such folder
        note: k3s: its own plugins are links, which it makes anew at each start: --replace-foreign, and --watch
        warning: $DIR/node/var/lib/rancher/k3s/data/cni/.replaced has what was replaced: bridge
    "#]]
    .assert_eq(&install(&tool, "k3s", &["--replace-foreign"]).shown());
    assert_eq!(tool.files(dir), [".replaced", "bridge", "cni", "cnitool", "host-local"]);
}

/// Settings of a platform's runtime, the folders that the node has, and the folder that is installed into with what is said of others.
#[test]
fn the_first_folder_that_settings_name_and_the_node_has_is_used() {
    let containerd = "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.cni]\nbin_dirs = ['/a', '/b/', '/c']\n";
    let crio = "[crio.network]\nplugin_dirs = [\n  \"/a\", # first\n  \"/b\",\n]\n";
    const RKE2: &str = "var/lib/rancher/rke2/agent/etc/containerd/config.toml";
    let (config, more) = ("etc/containerd/config.toml", "etc/containerd/conf.d/x.toml");
    let import: (&str, &str) =
        (config, "imports = ['/etc/containerd/conf.d/*.toml']\n[plugins.cri.cni]\nbin_dir = '/z'\n");
    let before = "plugins are searched before $DIR/node/b in $DIR/node/a\n";
    for (platform, files, dirs, expected, said) in [
        ("containerd", &[(config, containerd)][..], &["b", "c"][..], "b", before),
        ("containerd", &[(config, containerd)], &[], "a", "plugins /a, /b, /c as /etc/containerd/config.toml says\n"),
        (
            "rke2",
            &[(RKE2, "[plugins.cri.cni]\nbin_dir = '/a")],
            &["opt/cni/bin"],
            "opt/cni/bin",
            "config.toml is not TOML",
        ),
        ("kubeadm", &[import, (more, containerd)], &["b", "z"], "b", "as /etc/containerd/conf.d/x.toml says\n"),
        ("cri-o", &[("etc/crio/crio.conf.d/00-default", crio)], &["b"], "b", before),
        ("kind", &[("etc/crio/crio.conf", crio)], &["opt/cni/bin"], "a", ""),
        ("openshift", &[("etc/crio/crio.conf", crio)], &["a"], "a", ""),
        ("nerdctl", &[], &["usr/lib/cni", "opt/cni/bin"], "usr/lib/cni", "in the first of these folders that is there"),
        ("nerdctl", &[("etc/nerdctl/nerdctl.toml", "cni_path = '/a'\n")], &["usr/lib/cni"], "a", ""),
        ("podman", &[("etc/containers/containers.conf", "[network]\ncni_plugin_dirs = ['/a']\n")], &[], "a", ""),
        ("rootless", &[], &["home/opt/cni/bin"], "home/opt/cni/bin", "plugins are searched before"),
        ("rootless", &[("home/.config/nerdctl/nerdctl.toml", "cni_path = '/home/x'")], &[], "home/x", ""),
    ] {
        let tool = with_release();
        files.iter().for_each(|(file, text)| drop(tool.write(&format!("node/{file}"), text)));
        dirs.iter().for_each(|dir| std::fs::create_dir_all(tool.path(&format!("node/{dir}"))).unwrap());
        let ended = install(&tool, platform, &[]);
        assert!(ended.code == 0 && ended.stderr.contains(said), "{platform}: {}", ended.shown());
        assert_eq!(tool.files(&format!("node/{expected}")), ["bridge", "cnitool", "host-local"], "{platform}");
    }
}

#[test]
fn a_folder_that_is_searched_first_and_cannot_be_written_to_is_named_with_its_plugins() {
    use nix::mount::{MsFlags, mount, umount};
    let tool = with_release();
    tool.write("node/etc/crio/crio.conf", "[crio.network]\nplugin_dirs = ['/a', '/b']\n");
    tool.executable("node/a/bridge", "theirs");
    let first = tool.path("node/a");
    mount(Some(&first), &first, None::<&str>, MsFlags::MS_BIND, None::<&str>).unwrap();
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&str>, &first, None::<&str>, flags, None::<&str>).unwrap();
    let ended = install(&tool, "cri-o", &[]);
    umount(&first).unwrap();
    let said = "warning: $DIR/node/a is searched before $DIR/node/b, and has bridge\n";
    assert!(ended.code == 0 && ended.stderr.contains(said), "{}", ended.shown());
    assert_eq!(tool.files("node/b"), ["bridge", "cnitool", "host-local"]);
}

#[test]
fn every_platform_that_needs_no_folder_of_its_own_is_installed_for() {
    let tool = with_release();
    for (platform, dir) in [
        ("bottlerocket", "opt/cni/bin"),
        ("cri-o", "opt/cni/bin"),
        ("fedora", "usr/libexec/cni"),
        ("flatcar", "opt/cni/bin"),
        ("kind", "opt/cni/bin"),
        ("kubeadm", "opt/cni/bin"),
        ("nerdctl", "opt/cni/bin"),
        ("nomad", "opt/cni/bin"),
        ("openshift", "var/lib/cni/bin"),
        ("podman", "usr/local/libexec/cni"),
        ("rhel", "usr/libexec/cni"),
        ("rke2", "opt/cni/bin"),
        ("talos", "opt/cni/bin"),
    ] {
        install(&tool, platform, &[]).ok();
        assert_eq!(tool.files(&format!("node/{dir}")), ["bridge", "cnitool", "host-local"], "{platform}");
        std::fs::remove_dir_all(tool.path("node")).unwrap();
    }
    install(&tool, "rootless", &[]).ok();
    assert_eq!(tool.files("node/home/.local/libexec/cni"), ["bridge", "cnitool", "host-local"]);
    let ended = install(&tool, "solaris", &[]);
    assert!(ended.code == 2 && ended.stderr.contains("microk8s"), "{}", ended.shown());
}

/// Fedora CoreOS and RHEL's image mode have a read-only /usr.
#[test]
fn a_folder_that_cannot_be_written_to_gives_way_to_the_next() {
    use nix::mount::{MsFlags, mount};
    let tool = with_release();
    let usr = tool.path("node/usr");
    std::fs::create_dir_all(&usr).unwrap();
    mount(Some("none"), &usr, Some("tmpfs"), MsFlags::MS_RDONLY, None::<&str>).unwrap();
    let ended = install(&tool, "rhel", &[]);
    assert!(
        ended.stderr.contains("/usr/libexec/cni: no such folder, not writable: Read-only file system"),
        "{}",
        ended.stderr
    );
    ended.ok();
    assert_eq!(tool.files("node/opt/cni/bin"), ["bridge", "cnitool", "host-local"]);
    let opt = tool.path("node/opt");
    mount(Some("none"), &opt, Some("tmpfs"), MsFlags::MS_RDONLY, None::<&str>).unwrap();
    let ended = install(&tool, "rhel", &[]);
    assert!(
        ended.code == 1 && ended.stderr.contains("cannot be written to, Read-only file system; nothing was changed"),
        "{}",
        ended.shown()
    );
    for folder in [usr, opt] {
        nix::mount::umount(&folder).unwrap();
    }
}

/// Calico's installer starts an image with an empty volume, and takes what it finds there afterwards.
#[test]
fn calicos_folder_is_the_variables() {
    let tool = with_release();
    let mut command = tool.on_path(env!("CARGO_BIN_EXE_cnitool").as_ref());
    command.args(["install", "--stage", "--from"]).arg(tool.path("from/cni-plugins"));
    tool.ended(command.env("STAGE_DIR", tool.path("stage"))).ok();
    assert_eq!(tool.files("stage"), ["bridge", "cnitool", "host-local"]);
    let ended = tool.run(&["install"]);
    assert!(ended.code == 2 && ended.stderr.contains("--platform <NAME>"), "{}", ended.shown());
}
