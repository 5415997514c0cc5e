//! The folders in which runtimes look for plugins, by their own settings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use libcni::NetworkConf;

use crate::doctor::{Finding, Kind, Level};

/// Settings of runtimes: the runtime, the file, the keys of plugins' folders.
const SETTINGS: [(&str, &str, &[&str]); 4] = [
    ("containerd", "/etc/containerd/config.toml", &["bin_dir", "bin_dirs"]),
    ("k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml", &["bin_dir", "bin_dirs"]),
    ("RKE2", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml", &["bin_dir", "bin_dirs"]),
    ("CRI-O", "/etc/crio/crio.conf", &["plugin_dirs"]),
];

/// The folder of networks of a runtime whose settings name none.
const USUAL: &str = "/etc/cni/net.d";

/// Looks for plugins of the networks that a runtime which reads `conf_dir` does not find.
pub(crate) fn look(conf_dir: &Path, networks: &[NetworkConf], findings: &mut Vec<Finding>) {
    for (runtime, file, keys) in SETTINGS {
        let read = libcni::plain_file::read(Path::new(file)).ok();
        let Some(text) = read.and_then(|bytes| String::from_utf8(bytes).ok()) else { continue };
        let reads = ["conf_dir", "network_dir"].iter().flat_map(|key| values(&text, key)).next().unwrap_or(USUAL);
        if Path::new(reads) == conf_dir {
            let dirs: Vec<PathBuf> = keys.iter().flat_map(|key| values(&text, key)).map(PathBuf::from).collect();
            findings.extend(missing(runtime, file, &dirs, networks));
        }
    }
}

/// The finding that plugins of the networks are in none of the folders that a runtime's settings name.
fn missing(runtime: &str, file: &str, dirs: &[PathBuf], networks: &[NetworkConf]) -> Option<Finding> {
    let names: BTreeSet<&str> = networks.iter().flat_map(|it| &it.plugins).map(|it| it.plugin_type.as_str()).collect();
    let absent: Vec<&str> = names.into_iter().filter(|name| dirs.iter().all(|dir| !dir.join(name).exists())).collect();
    if dirs.is_empty() || absent.is_empty() {
        return None;
    }
    let shown: Vec<String> = dirs.iter().map(|dir| dir.display().to_string()).collect();
    let what = format!("{runtime} looks for plugins in {}, and has no {} there", shown.join(", "), absent.join(", "));
    let mut finding = Kind::NotReady.finding(Level::Error, None, what);
    finding.evidence = vec![format!("by {file}")];
    finding.remedy = format!("Install the plugins there, or name their folder in {file} and restart {runtime}.");
    Some(finding)
}

/// The strings that lines of TOML give a key, in any table: one, or those of a list.
fn values<'a>(text: &'a str, key: &str) -> Vec<&'a str> {
    let is_key = |line: &str| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| rest.trim_start().starts_with('='))
    };
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if is_key(line) {
            let value = text[at..].split_once('=').map_or("", |(_, value)| value.trim_start());
            let end = if value.starts_with('[') { value.find(']') } else { value.find('\n') };
            let value = &value[..end.unwrap_or(value.len())];
            let value = value.split('#').next().unwrap_or_default();
            return value.split(['"', '\'']).skip(1).step_by(2).filter(|one| !one.is_empty()).collect();
        }
        at += line.len();
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_is_one_string_or_a_list() {
        let text =
            "[a]\n bin_dir = \"/usr/lib/cni\" # \"/x\"\n#plugin_dirs = ['/y']\nplugin_dirs = [\n '/a',\n \"/b\",\n]\n";
        assert_eq!(values(text, "bin_dir"), ["/usr/lib/cni"]);
        assert_eq!(values(text, "plugin_dirs"), ["/a", "/b"]);
        assert_eq!(values(text, "conf_dir"), [""; 0]);
    }

    #[test]
    fn plugins_that_a_runtime_does_not_find_are_named() {
        let list = br#"{"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "sh"}, {"type": "no-such-plugin"}]}"#;
        let networks = [NetworkConf::parse(list).unwrap()];
        let finding = missing("containerd", "/etc/x", &["/bin".into()], &networks).unwrap();
        assert_eq!(finding.what, "containerd looks for plugins in /bin, and has no no-such-plugin there");
        assert_eq!(missing("containerd", "/etc/x", &[], &networks), None);
    }
}
