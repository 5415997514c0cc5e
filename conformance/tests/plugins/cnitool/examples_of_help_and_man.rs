//! Every example of `--help` and of the man pages, run as it is printed: those of the verbs one after the other on one node, those
//! of plugins by `validate`.

use crate::subjects::ours;
use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};
use testns::Subject;

/// The node, and what an example finds there that others have changed. Arguments: the three executables, a folder, the examples.
const NODE: &str = r#"
set -e
mount -t tmpfs tmpfs /dev/shm
touch /dev/shm/cnitool /dev/shm/cni-plugins
mount --bind "$1" /dev/shm/cnitool; mount --bind "$2" /dev/shm/cni-plugins
for dir in /run /etc /usr/local /usr/libexec /usr/share /var/lib /var/log /srv /mnt; do mount -t tmpfs tmpfs $dir; done
if [ -e "$3" ]; then touch /dev/shm/cluster; mount --bind "$3" /dev/shm/cluster; fi
mount --bind "$4" /opt
shift 4
mkdir -p /run/netns /etc/cni/net.d /mnt/path /usr/local/share/man /usr/share/cni-plugins-rust /var/lib/prometheus/node-exporter
mkdir -m 700 -p /var/log/cni
shared='"ipam":{"type":"cluster","subnet":"10.9.0.0/24","store":{"path":"/srv/store"}'
echo file > /etc/cni/log
ln -s /dev/shm/cnitool /mnt/path/cnitool
PATH=/mnt/path:/usr/sbin:/usr/bin:/sbin:/bin
cnitool install --link hard --bin-dir /opt/cni/bin > /dev/null
cnitool install --link hard --bin-dir /usr/libexec/cni > /dev/null
echo '{"cniVersion":"1.1.0","name":"pods","plugins":[{"type":"bridge","isGateway":true,"ipMasq":true,
  "ipam":{"type":"host-local","subnet":"10.1.0.0/16"}},{"type":"portmap","capabilities":{"portMappings":true}}]}' \
  > /etc/cni/net.d/10-pods.conflist
cd /srv
cp /etc/cni/net.d/10-pods.conflist new.conflist
files=$(cd /usr/libexec/cni; sha256sum * | sed 's/\([^ ]*\)  \(.*\)/"\2":"\1"/' | paste -sd ,)
echo "{\"release\":\"0.9.0\",\"files\":{$files}}" | tee manifest-linux-amd64-v0.9.0.json > /usr/share/cni-plugins-rust/manifest.json
namespace() { : > /run/netns/$1; unshare --net=/run/netns/$1 true; }
namespace c1
# Addresses of the loopback can be listened on.
echo '{"cniVersion":"1.1.0","name":"lo","type":"loopback"}' | CNI_COMMAND=ADD CNI_CONTAINERID=node CNI_IFNAME=lo \
  CNI_NETNS=/proc/self/ns/net CNI_NETNS_OVERRIDE=1 CNI_PATH=/opt/cni/bin /opt/cni/bin/loopback > /dev/null
free() { cnitool del pods c1; }
# What an example needs that others before it do not leave.
before() {
  case $1 in
    "cnitool check pods "*) free; cnitool add pods c1 > /dev/null ;;
    "cnitool plan "*) free ;;
    "cnitool add "*--cap-args*) free ;;
    "cnitool add "*) cnitool del pods c1 -i eth1 ;;
    "cnitool "*shop/web-0*) free; cnitool add pods c1 --args 'IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0' > /dev/null ;;
    # The namespace has ended, and the addresses were removed by hand.
    "cnitool del "*--forget) free; cnitool add pods c1 --container-id 4f5e6d7c > /dev/null; umount /run/netns/c1
      while grep -q veth /proc/net/dev; do :; done; rm -f /var/lib/cni/networks/pods/10.*
      nft flush ruleset 2> /dev/null || true; namespace c1 ;;
    "cnitool install "*k3s*) mkdir -p /var/lib/rancher/k3s/data/cni ;;
    # A network whose addresses another node has, too.
    "cnitool cluster "*) mkdir -p /srv/store; cp /dev/shm/cluster /opt/cni/bin/cluster
      echo '{"cniVersion":"1.1.0","name":"lan","type":"macvlan",'"$shared}}" | /opt/cni/bin/cluster init - > /dev/null
      echo '{"cniVersion":"1.1.0","name":"lan","type":"macvlan",'"$shared,\"dataDir\":\"/srv/node7\",\"node\":\"node7\"}}" |
        CNI_COMMAND=ADD CNI_CONTAINERID=far CNI_IFNAME=eth0 CNI_NETNS=/none CNI_PATH=/opt/cni/bin /opt/cni/bin/cluster > /dev/null || :
      # Nothing was heard of that node for long.
      sed -i 's/"heardAt": *[0-9]*/"heardAt":1700000000/' /srv/store/lan/nodes/node7/*
      echo '{"cniVersion":"1.1.0","name":"lan","plugins":[{"type":"macvlan",'"$shared,\"node\":\"node1\"}}]}" > /etc/cni/net.d/20-lan.conflist ;;
    "cnitool repair"*) free; cnitool add pods c1 > /dev/null ;;
    # By the package, whose files are in another folder than a runtime's.
    "cnitool verify") rm -r /opt/cni/bin; cp -r /usr/libexec/cni /opt/cni/bin ;;
  esac
}
for line in "$@"; do
  before "$line" 2> /dev/null
  status=0
  case $line in
    *--watch|*--listen*|*" -f "*)
      # Until a signal: after the first line.
      : > /mnt/out
      eval "exec $line" > /mnt/out 2> /mnt/err & pid=$!
      while [ ! -s /mnt/out ] && kill -0 $pid; do :; done
      kill -TERM $pid || :; wait $pid || status=$?
      [ $status != 143 ] || status=0 ;;
    *) ( eval "$line" ) > /mnt/out 2> /mnt/err < /dev/null || status=$? ;;
  esac
  # doctor: warnings, errors.
  case "$line $status" in "cnitool doctor"*" 3"|"cnitool doctor"*" 4"|"cnitool doctor"*" 5") status=0 ;; esac
  [ $status = 0 ] || { echo "$line"; echo "=> $status"; cat /mnt/err; }
done
echo "ran $#"
"#;

const OF_HELP: &str = "Examples:\n";
const OF_PAGE: &str = ".SH EXAMPLES\n.nf\n";

/// The examples in the text of `--help` or of a page, below this heading, a command each.
fn examples(heading: &str, text: &str) -> Vec<String> {
    let Some((_, below)) = text.split_once(heading) else { return Vec::new() };
    let mut commands: Vec<String> = Vec::new();
    for line in below.lines().take_while(|line| line.starts_with("  ")) {
        let goes_on = |command: &String| command.ends_with('\\') || command.matches('\'').count() % 2 == 1;
        match commands.last_mut().filter(|command| goes_on(command)) {
            Some(command) => *command += &format!("\n{}", line.trim()),
            None if line.trim().starts_with('#') => {}
            None => commands.push(line.trim().to_owned()),
        }
    }
    commands
}

/// The characters that a page in the language of man(7) shows.
fn shown(page: &str) -> String {
    page.replace(r"\*(Aq", "'").replace(r"\-", "-").replace(r"\\", r"\")
}

fn cnitool(words: &[&str]) -> String {
    let output = Command::new(testns::cnitool()).args(words).output().unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The verbs, in the order of the help of the whole program: those that look after those that add.
fn verbs() -> Vec<String> {
    let help = cnitool(&["--help"]);
    let verb = |line: &str| line.strip_prefix("  ").and_then(|line| line.split(' ').next()).map(str::to_owned);
    let verbs = help.lines().take_while(|line| *line != "Options:").filter_map(verb);
    verbs.filter(|verb| verb.chars().all(|c| c.is_ascii_lowercase()) && !verb.is_empty() && verb != "help").collect()
}

fn pages() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    cnitool(&["generate", "man", dir.path().to_str().unwrap()]);
    dir
}

#[test]
fn every_example_of_help_and_man_pages_works_as_printed() {
    let Subject::Multicall(plugins) = ours() else { panic!("ours is one executable") };
    let (pages, opt) = (pages(), tempfile::tempdir().unwrap());
    let mut commands = examples(OF_HELP, &cnitool(&["--help"]));
    for verb in verbs().into_iter().chain(["cluster forget".to_owned()]) {
        let words: Vec<&str> = verb.split(' ').chain(["--help"]).collect();
        let of_help = examples(OF_HELP, &cnitool(&words));
        let page = format!("man1/cnitool-{}.1", verb.replace(' ', "-"));
        let page = fs::read_to_string(pages.path().join(page)).unwrap();
        assert_eq!(examples(OF_PAGE, &shown(&page)), of_help, "{verb}");
        assert!(!of_help.is_empty(), "{verb} has no example");
        commands.extend(of_help);
    }
    let mut seen = BTreeSet::new();
    commands.retain(|command| seen.insert(command.clone()));
    // `cargo test` without --workspace does not build it.
    let cluster = testns::cnitool().with_file_name("cluster");
    if !cluster.exists() {
        crate::subjects::skip("examples of cnitool cluster: the plugin is not built (cargo build -p cni-cluster)");
        commands.retain(|command| !command.starts_with("cnitool cluster "));
    }
    let mut sh = Command::new("unshare");
    sh.args([
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--mount-proc",
        "--propagation",
        "private",
        "sh",
        "-c",
        NODE,
        "sh",
    ]);
    sh.args([testns::cnitool(), plugins.as_path(), &cluster, opt.path()]).args(&commands);
    let output = sh.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said, format!("ran {}\n", commands.len()), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(commands.len() > 35, "{}", commands.len());
}

#[test]
fn every_network_of_the_man_pages_is_valid() {
    let pages = pages();
    let mut count = 0;
    for section in ["man5", "man8"] {
        for page in fs::read_dir(pages.path().join(section)).unwrap() {
            let text = shown(&fs::read_to_string(page.unwrap().path()).unwrap());
            let example = text.split_once(".SH EXAMPLES\n").unwrap().1.split_once(".RS 2\n").unwrap().1;
            let example = example.split_once("\n.RE\n").unwrap().0;
            let is_list = example.contains("\"plugins\"");
            let file = pages.path().join(if is_list { "example.conflist" } else { "example.conf" });
            fs::write(&file, example).unwrap();
            cnitool(&["validate", "--offline", &file.display().to_string()]);
            count += 1;
        }
    }
    // Of network files, and of `cluster`, which is an executable of its own.
    assert_eq!(count, 2 + cni_plugins::ENTRIES.iter().filter(|entry| entry.name != "noop").count());
}
