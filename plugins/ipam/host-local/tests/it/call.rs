//! Calling a host-local executable, ours or the reference's, on a data folder.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{LazyLock, Once};

use nix::mount::{MsFlags, mount};
use serde_json::Value;

/// The suite's executable under the plugin's name.
pub(crate) static OURS: LazyLock<String> = LazyLock::new(|| {
    let link = tempfile::tempdir().unwrap().keep().join("host-local");
    std::os::unix::fs::symlink(testns::plugins(), &link).unwrap();
    link.into_os_string().into_string().unwrap()
});

/// The reference's executable; where it is missing, prints that `test` is skipped.
pub(crate) fn reference_or_skip(test: &str) -> Option<&'static str> {
    static REFERENCE: LazyLock<Option<String>> =
        LazyLock::new(|| Some(testns::find_reference()?.join("host-local").display().to_string()));
    testns::reference_or_skip(test)?;
    REFERENCE.as_deref()
}

pub(crate) struct Net {
    pub(crate) data: PathBuf,
    /// What `ipam` has beside type and dataDir.
    pub(crate) keys: String,
    /// Keys beside `ipam`, each with a comma before it.
    pub(crate) more: String,
}

/// What a call printed: addresses of the result, or the error's message.
pub(crate) type Answer = Result<Vec<String>, String>;

impl Net {
    pub(crate) fn new(data: &Path, keys: &str) -> Self {
        // A node's thread has its own.
        static OWN_RUN: Once = Once::new();
        let mounts = |task: &str| fs::read_link(format!("/proc/{task}/ns/mnt")).unwrap();
        if mounts("self") == mounts("thread-self") {
            OWN_RUN.call_once(|| {
                mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
            });
        }
        Self { data: data.to_owned(), keys: keys.to_owned(), more: String::new() }
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.data.join("net")
    }

    pub(crate) fn config(&self) -> String {
        let data = self.data.display();
        format!(
            r#"{{"cniVersion":"1.1.0","name":"net","type":"host-local"{},"ipam":{{"type":"host-local","dataDir":"{data}",{}}}}}"#,
            self.more, self.keys
        )
        .replace("1.1.0", if self.more.contains("cni.dev") { "1.1.0" } else { "1.0.0" })
    }

    pub(crate) fn start(&self, executable: &str, verb: &str, id: &str, args: &str) -> Child {
        let mut child = Command::new(executable)
            .env_clear()
            .env("CNI_COMMAND", verb)
            .env("CNI_CONTAINERID", id)
            .env("CNI_IFNAME", "eth0")
            .env("CNI_NETNS", "/var/run/netns/none")
            .env("CNI_PATH", "/opt/cni/bin")
            .env("CNI_ARGS", args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(self.config().as_bytes()).unwrap();
        child
    }

    pub(crate) fn call(&self, executable: &str, verb: &str, id: &str, args: &str) -> Answer {
        answer(self.start(executable, verb, id, args))
    }

    pub(crate) fn reservations(&self) -> BTreeMap<String, String> {
        let Ok(entries) = fs::read_dir(self.folder()) else { return BTreeMap::new() };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let reserved = names.filter(|name| name.parse::<IpAddr>().is_ok());
        reserved.map(|name| (name.clone(), fs::read_to_string(self.folder().join(name)).unwrap())).collect()
    }

    /// All names in the folder but for the reservations.
    pub(crate) fn others(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder()).into_iter().flatten();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.parse::<IpAddr>().is_err()).collect();
        names.sort();
        names
    }
}

/// What a started call answers in the end.
pub(crate) fn answer(child: Child) -> Answer {
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let json: Value = match text.as_str() {
        "" => Value::Null,
        text => serde_json::from_str(text).unwrap(),
    };
    if !output.status.success() {
        return Err(json["msg"].as_str().unwrap_or(&output.status.to_string()).to_owned());
    }
    let ips = json["ips"].as_array().cloned().unwrap_or_default();
    Ok(ips.iter().map(|ip| format!("{} via {}", ip["address"], ip["gateway"])).collect())
}
