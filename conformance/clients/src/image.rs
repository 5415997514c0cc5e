//! An image made by hand, so that no test needs a registry.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest, Sha256};
use testns::run;

use crate::{DEADLINE, RuntimeNode};

const BUSYBOX: &str = "/bin/busybox";

/// Programs that the tests run in a container.
const APPLETS: [&str; 9] = ["cat", "echo", "hostname", "ip", "nc", "ping", "sh", "sleep", "wget"];

/// An image archive in the layout of `docker save`, which every runtime reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The image's name, with registry and tag.
    pub name: String,
    pub archive: PathBuf,
}

impl Image {
    /// Debian's static busybox under the names of some applets, with the command to run when none is given.
    pub fn busybox(node: &RuntimeNode, name: &str, command: &[&str]) -> Self {
        Self::filled(node, name, command, fill)
    }

    /// The files that `fill` puts into the folder `/`; executables are looked for in `/bin`.
    pub fn filled(node: &RuntimeNode, name: &str, command: &[&str], fill: impl FnOnce(&Path)) -> Self {
        let folder = node.work_dir().join(name.replace(['/', ':'], "_"));
        let (root, content) = (folder.join("root"), folder.join("content"));
        let layer = content.join("layer.tar");
        fs::create_dir_all(&content).unwrap();
        fill(&root);
        tar(&root, &layer);
        let digest = Sha256::digest(fs::read(&layer).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        let config = json!({
            "architecture": architecture(), "os": "linux",
            "config": {"Env": ["PATH=/bin"], "Cmd": command},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        });
        let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
        fs::write(content.join("config.json"), config.to_string()).unwrap();
        fs::write(content.join("manifest.json"), manifest.to_string()).unwrap();
        let archive = folder.join("image.tar");
        tar(&content, &archive);
        Self { name: name.to_owned(), archive }
    }
}

fn fill(root: &Path) {
    for folder in ["bin", "etc", "proc", "sys", "dev", "tmp"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::copy(BUSYBOX, root.join("bin/busybox")).unwrap();
    for applet in APPLETS {
        symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
}

fn tar(folder: &Path, archive: &Path) {
    let mut command = Command::new("tar");
    command.arg("--create").arg("--file").arg(archive).arg("--directory").arg(folder).arg(".");
    let output = run(command, b"", DEADLINE);
    assert_eq!(output.code(), 0, "tar: {}", output.stderr);
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}
