//! A real etcd: three members at one address, which verify the nodes' certificates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::must::Must;

/// An authority, another one, a certificate of the members and two of clients.
const CERTIFICATES: &str = r#"set -e
new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -x509"
for name in ca other; do $new -subj "/CN=$name" -keyout $name.key -out $name.pem; done
for name in member root node stranger; do
    $new -CA ca.pem -CAkey ca.key -subj "/CN=$name" -addext subjectAltName=IP:$0 -addext basicConstraints=critical,CA:FALSE -keyout $name.key -out $name.pem
done
chmod 600 *.key"#;

/// Three members, children of this process in the network namespace of the thread that started them; they end with this value.
#[derive(Debug)]
pub struct Etcd {
    members: Vec<Child>,
    folder: PathBuf,
    host: String,
    options: &'static [&'static str],
}

impl Etcd {
    /// Starts three members in a folder, whose clients reach them at an IPv4 address of this namespace. They may take a second or
    /// two until they answer. An error names the program that is missing, and its package.
    ///
    /// The folder gets `ca.pem`, and certificates and keys of the users `root`, `node` and `stranger`, `node.pem` and `node.key`.
    pub fn start(folder: &Path, host: &str) -> Result<Self, String> {
        for program in [["etcd", "--version"], ["etcdctl", "version"], ["openssl", "version"]] {
            if Command::new(program[0]).arg(program[1]).stdout(Stdio::null()).status().is_err() {
                return Err(format!(
                    "there is no {}: packages etcd-server, etcd-client, openssl; unpacked, in a folder of PATH, they do",
                    program[0]
                ));
            }
        }
        let made =
            Command::new("sh").args(["-c", CERTIFICATES, host]).current_dir(folder).stderr(Stdio::null()).status();
        assert!(made.must("start sh").success(), "openssl made no certificates");
        let mut etcd = Self { members: Vec::new(), folder: folder.to_owned(), host: host.to_owned(), options: &[] };
        etcd.members = (0..3).map(|at| etcd.member(at, "new")).collect();
        Ok(etcd)
    }

    /// The key `store` of plugin `cluster`, for the user `node`.
    pub fn store(&self) -> Value {
        let of = |name: &str| self.folder.join(name);
        json!({
            "endpoints": (0..3).map(|at| self.endpoint(at)).collect::<Vec<_>>(),
            "caFile": of("ca.pem"), "certFile": of("node.pem"), "keyFile": of("node.key"),
            "prefix": "/cni", "timeoutSeconds": 20,
        })
    }

    /// Whether the user `node` can read a key within 20 s: a leader is elected.
    pub fn is_ready(&self, key: &str) -> bool {
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(20) {
            if self
                .command("node", &["get", key, "--command-timeout=2s"])
                .output()
                .must("start etcdctl")
                .status
                .success()
            {
                return true;
            }
        }
        false
    }

    fn endpoint(&self, at: usize) -> String {
        format!("https://{}:{}", self.host, 2379 + 10 * at)
    }

    /// Kills a member, of 0 to 2.
    pub fn kill(&mut self, at: usize) {
        self.members[at].kill().must("kill a member");
        self.members[at].wait().must("wait for a member");
    }

    /// Starts a killed member again, with its data.
    pub fn restart(&mut self, at: usize) {
        self.members[at] = self.member(at, "existing");
    }

    /// Saves a snapshot of the first member.
    pub fn save(&self, snapshot: &str) {
        let output =
            self.client("root", &self.endpoint(0), &["snapshot", "save", snapshot]).output().must("start etcdctl");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Kills all members, and starts them with the data of a snapshot, a file that `snapshot save` has made.
    pub fn restore(&mut self, snapshot: &str) {
        for at in 0..3 {
            self.kill(at);
            let name = format!("m{at}");
            fs::remove_dir_all(self.folder.join(&name)).must("remove a member's data");
            let all: Vec<_> = (0..3).map(|at| format!("m{at}={}", peer(at))).collect();
            let mut command = self.command("root", &["snapshot", "restore", snapshot, "--name", &name]);
            command.args(["--data-dir", &name, "--initial-cluster", &all.join(",")]);
            command.args(["--initial-advertise-peer-urls", &peer(at)]).current_dir(&self.folder);
            let output = command.output().must("start etcdctl");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        (0..3).for_each(|at| self.restart(at));
    }

    /// Starts all members anew with a quota that their data has reached: they take no writes (alarm NOSPACE).
    pub fn fill(&mut self) {
        for at in 0..3 {
            self.kill(at);
        }
        self.options = &["--quota-backend-bytes", "1"];
        (0..3).for_each(|at| self.restart(at));
    }

    /// The number of the leader among the members.
    pub fn leader(&self) -> usize {
        let text = self.ctl("root", &["endpoint", "status", "--cluster", "--write-out=json"]);
        let all: Value = serde_json::from_str(&text).must("read etcdctl's answer");
        let is_leader = |one: &&Value| one["Status"]["leader"] == one["Status"]["header"]["member_id"];
        let leader = all.as_array().into_iter().flatten().find(is_leader).must("find a leader");
        let endpoint = leader["Endpoint"].as_str().unwrap_or_default().to_owned();
        (0..3).find(|at| self.endpoint(*at) == endpoint).must("find the leader's number")
    }

    /// Allows the user `node` a key, or as `--prefix` says all below it, and the user `stranger` none.
    pub fn enable_auth(&self, key: &[&str]) {
        let grant = [&["role", "grant-permission", "cluster", "readwrite"], key].concat();
        for words in [
            &["user", "add", "root", "--no-password"][..],
            &["user", "grant-role", "root", "root"],
            &["role", "add", "cluster"],
            &grant,
            &["user", "add", "node", "--no-password"],
            &["user", "grant-role", "node", "cluster"],
            &["user", "add", "stranger", "--no-password"],
            &["auth", "enable"],
        ] {
            self.ctl("node", words);
        }
    }

    /// `etcdctl` as the user of a certificate; its output.
    pub fn ctl(&self, user: &str, words: &[&str]) -> String {
        let output = self.command(user, words).output().must("start etcdctl");
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn command(&self, user: &str, words: &[&str]) -> Command {
        let endpoints: Vec<_> = (0..3).map(|at| self.endpoint(at)).collect();
        self.client(user, &endpoints.join(","), words)
    }

    fn client(&self, user: &str, endpoints: &str, words: &[&str]) -> Command {
        let of = |name: String| self.folder.join(name);
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg(format!("--endpoints={endpoints}"));
        command.arg("--cacert").arg(of("ca.pem".to_owned()));
        command.arg("--cert").arg(of(format!("{user}.pem"))).arg("--key").arg(of(format!("{user}.key")));
        command.args(words);
        command
    }

    fn member(&self, at: usize, state: &str) -> Child {
        let all: Vec<_> = (0..3).map(|at| format!("m{at}={}", peer(at))).collect();
        let log = fs::File::create(self.folder.join(format!("m{at}.log"))).must("create a member's log");
        let mut command = Command::new("etcd");
        command.current_dir(&self.folder).args(["--name", &format!("m{at}"), "--data-dir", &format!("m{at}")]);
        command.args(["--listen-client-urls", &self.endpoint(at), "--advertise-client-urls", &self.endpoint(at)]);
        command.args(["--listen-peer-urls", &peer(at), "--initial-advertise-peer-urls", &peer(at)]);
        command.args(["--initial-cluster", &all.join(","), "--initial-cluster-state", state]);
        command.args(["--client-cert-auth", "--trusted-ca-file", "ca.pem"]);
        command.args(["--cert-file", "member.pem", "--key-file", "member.key"]);
        command.args(self.options).stdout(Stdio::null()).stderr(log).spawn().must("start etcd")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for member in &mut self.members {
            member.kill().ok();
            member.wait().ok();
        }
    }
}

fn peer(at: usize) -> String {
    format!("http://127.0.0.1:{}", 2380 + 10 * at)
}
