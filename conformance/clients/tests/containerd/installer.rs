//! `cnitool install` in a container, as the image of a release runs it: into the mounted folder from which containerd takes plugins.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};

use clients::Image;
use clients::containerd::runtime_v1::PodSandboxConfig;
use clients::containerd::{Cri, Daemon};
use testns::Subject;

use crate::cri::with_network;

/// Two releases as images: the same plugins with another last word.
const RELEASES: [&str; 2] = ["first", "second"];

fn image_name(release: &str) -> String {
    format!("localhost/cni-plugins-rust:{release}")
}

fn import(daemon: &Daemon, release: &str) {
    let image = Image::filled(daemon, &image_name(release), &["cnitool"], |root| {
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("host/bin")).unwrap();
        fs::copy(testns::cnitool(), root.join("bin/cnitool")).unwrap();
        let plugins = root.join("bin/cni-plugins");
        fs::copy(testns::plugins(), &plugins).unwrap();
        fs::File::options().append(true).open(plugins).unwrap().write_all(release.as_bytes()).unwrap();
    });
    daemon.import("default", &image);
}

/// Starts an installation. Links, as an executable of the tests is ten times as large as one of a release.
fn begin(daemon: &Daemon, release: &str) -> Child {
    let mount = format!("type=bind,src={},dst=/host/bin,options=rbind:rw", daemon.plugin_dir().display());
    let mut ctr = daemon.ctr(&["run", "--rm", "--mount", &mount, &image_name(release), "installer"]);
    ctr.args(["cnitool", "install", "--link", "hard", "--bin-dir", "/host/bin"]);
    ctr.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap()
}

fn install(daemon: &Daemon, release: &str) {
    let status = begin(daemon, release).wait().unwrap();
    assert!(status.success(), "{status}");
}

fn pod_comes_and_goes(daemon: &Daemon, cri: &Cri<'_>, name: &str) {
    let pod = cri.run_pod(PodSandboxConfig::named(daemon, name));
    assert_eq!(cri.addresses(&pod).len(), 2);
    cri.stop(&pod);
    cri.remove(&pod);
}

/// The release of each plugin in the folder; every one has to be there, and whole.
fn releases(daemon: &Daemon) -> Vec<&'static str> {
    let length = testns::plugins().metadata().unwrap().len();
    let names = Subject::ours().executables().into_iter().map(|(name, _)| name).filter(|name| name != "noop");
    let release = |name: String| {
        let bytes = fs::read(daemon.plugin_dir().join(&name)).unwrap();
        let end = bytes.get(usize::try_from(length).unwrap()..).unwrap_or_default();
        RELEASES.into_iter().find(|release| release.as_bytes() == end).unwrap_or_else(|| panic!("{name} is cut"))
    };
    names.map(release).collect()
}

#[test]
fn pods_start_with_what_an_image_installs() {
    let Some(daemon) = Daemon::start() else { return };
    let cri = with_network(&daemon);
    for release in RELEASES {
        import(&daemon, release);
    }
    fs::remove_dir_all(daemon.plugin_dir()).unwrap();
    fs::create_dir(daemon.plugin_dir()).unwrap();
    install(&daemon, "first");
    assert!(releases(&daemon).iter().all(|release| *release == "first"));
    pod_comes_and_goes(&daemon, &cri, "before");
    // Pods come and go until the newer release is there, and one more does afterwards.
    let mut installer = begin(&daemon, "second");
    let mut pods = 0;
    loop {
        let ended = installer.try_wait().unwrap();
        pod_comes_and_goes(&daemon, &cri, &format!("pod-{pods}"));
        pods += 1;
        if let Some(status) = ended {
            assert!(status.success(), "{status}");
            break;
        }
    }
    assert!(releases(&daemon).iter().all(|release| *release == "second"));
    assert!(pods > 1, "no pod came while the newer release was installed");
}
