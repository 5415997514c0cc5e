//! A runtime that is killed in the middle of ADD, and the DEL of the next one, which has only the cache.

use crate::test_folder::{Folder, GOOD, assert_ends, eth0, network, own, wait};
use expect_test::expect;
use libcni::{Cached, RuntimeConf};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::{Pid, mkfifo};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

/// Reads its config, as plugins do before anything else: if its runtime was killed before it wrote the end, that is no JSON.
/// Makes and removes a file, and stops in ADD where a FIFO `at.<name>` exists, in DEL where there is `del.<name>`: it
/// reports there that it has begun, and continues until it is ended.
const STEPPING: &str = r#"
config=$(cat)
count() { printf %s "$config" | tr -dc "$1" | wc -c; }
[ -n "$config" ] && [ "$(count '{')" = "$(count '}')" ] || exit 1
echo "$CNI_COMMAND $name" >> "$dir/log"
stop() {
    [ -p "$dir/$1.$name" ] || return 0
    trap 'echo "SIGTERM $name" >> "$dir/log"; exit 1' TERM
    sleep 1000 & echo $! > "$dir/sleeping"
    echo > "$dir/$1.$name"
    wait
}
case $CNI_COMMAND in
DEL)
    rm -f "$dir/made.$name"
    stop del;;
ADD)
    echo > "$dir/made.$name"
    stop at
    echo '{"cniVersion":"1.0.0"}';;
esac
"#;

/// The runtime that is killed, in a process of its own: the tests below start it in their folder. Elsewhere it does
/// nothing.
#[test]
fn the_runtime_that_is_killed() {
    let dir = std::env::current_dir().unwrap();
    let Ok(netns) = std::fs::read_to_string(dir.join("netns")) else { return };
    let folder = Folder::at(&dir);
    std::fs::read(dir.join("begin")).unwrap();
    let (runtime, net, attachment) = (folder.runtime(), network("1.0.0", &["a", "b"]), eth0().netns(netns));
    wait(runtime.add(&net, &attachment)).unwrap();
    if dir.join("del.b").exists() {
        wait(runtime.del(&net, &attachment)).unwrap();
    }
    // Both block until another process opens the other end.
    std::fs::write(dir.join("end"), "").unwrap();
    std::fs::read(dir.join("never")).unwrap();
}

/// A runtime that was started and waits before its ADD.
struct Killed {
    folder: Folder,
    attachment: RuntimeConf,
    process: Child,
}

/// The value that `work` waits for, if it comes soon.
fn soon<T: Send + 'static>(what: &str, work: impl FnOnce() -> T + Send + 'static) -> T {
    let (send, receive) = std::sync::mpsc::channel();
    std::thread::spawn(move || send.send(work()));
    receive.recv_timeout(Duration::from_secs(30)).unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// A command line of these words that ends in one of the tests below.
fn command(words: &[&str], test: &str) -> Command {
    let executable = std::env::current_exe().unwrap();
    let mut line = words.iter().copied().chain([executable.to_str().unwrap(), "--exact", test]);
    let mut command = Command::new(line.next().unwrap());
    command.args(line);
    command
}

/// PID 1 of the namespace is a shell, which ends last.
const IN_A_PID_NAMESPACE: &[&str] = &[
    "unshare",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
    "sh",
    "-c",
    r#""$@"; result=$?; while [ -p begin ]; do sleep 1000; done; exit $result"#,
    "sh",
];

impl Killed {
    /// With FIFOs of these names besides.
    fn start(fifos: &[&str]) -> Self {
        Self::start_by(fifos, &[])
    }

    /// By a command line before its own.
    fn start_by(fifos: &[&str], words: &[&str]) -> Self {
        let folder = Folder::with(&[("a", STEPPING), ("b", STEPPING)]);
        let attachment = own();
        for fifo in ["begin", "end", "never"].iter().chain(fifos) {
            mkfifo(&folder.path().join(fifo), Mode::S_IRWXU).unwrap();
        }
        std::fs::create_dir_all(folder.path().join("cache/results")).unwrap();
        folder.write("netns", &attachment.netns);
        let process = command(words, "killed::the_runtime_that_is_killed")
            .current_dir(folder.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { folder, attachment, process }
    }

    /// Waits until it is about to ADD; closing the file lets it continue.
    fn ready(&self) -> File {
        let path = self.folder.path().join("begin");
        soon("the runtime begins", move || OpenOptions::new().write(true).open(path).unwrap())
    }

    /// Lets it ADD until all processes have closed the other end of a FIFO.
    fn reach(&self, fifo: &str) {
        drop(self.ready());
        let path = self.folder.path().join(fifo);
        soon(fifo, move || std::fs::read(path).unwrap());
    }

    /// Kills it, and returns the cache's entry at that time.
    fn kill(&mut self) -> Option<Cached> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut listing = self.folder.runtime().cache().list(None).unwrap();
        assert!(listing.passed_over.is_empty(), "{listing:?}");
        listing.cached.pop()
    }

    /// DEL by the next runtime, and what ran since the beginning.
    fn del(&self, cached: &Cached) -> String {
        assert_eq!(cached.attachment.netns, self.attachment.netns);
        wait(self.folder.runtime().del_cached(cached)).unwrap();
        for name in ["made.a", "made.b", "cache/results/net-c1-eth0"] {
            assert!(!self.folder.path().join(name).exists(), "{name} is left");
        }
        self.folder.log()
    }
}

impl Drop for Killed {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[test]
fn before_the_intent_there_is_nothing_to_undo() {
    let mut killed = Killed::start(&[]);
    let _gate = killed.ready();
    assert!(killed.kill().is_none());
    assert!(killed.folder.log().is_empty() && killed.folder.cache_files().is_empty());
}

#[test]
fn after_the_intent() {
    let mut killed = Killed::start(&[]);
    let gate = killed.ready();
    let inotify = Inotify::init(InitFlags::IN_CLOEXEC).unwrap();
    inotify.add_watch(&killed.folder.path().join("cache/results"), AddWatchFlags::IN_MOVED_TO).unwrap();
    // An executable that is open for writing is busy, and the runtime tries again for a while.
    let busy = OpenOptions::new().append(true).open(killed.folder.path().join("a")).unwrap();
    drop(gate);
    soon("the intent", move || inotify.read_events().unwrap());
    let intent = killed.kill().unwrap();
    drop(busy);
    assert!(!intent.is_complete() && killed.folder.log().is_empty());
    expect!["DEL b, DEL a"].assert_eq(&killed.del(&intent));
}

#[test]
fn del_after_a_kill_ends_the_plugin_and_undoes_what_had_begun() {
    for (fifo, is_complete, ran) in [
        ("at.a", false, "ADD a, SIGTERM a, DEL b, DEL a"),
        ("at.b", false, "ADD a, ADD b, SIGTERM b, DEL b, DEL a"),
        ("end", true, "ADD a, ADD b, DEL b, DEL a"),
        // The plugin would otherwise delete what the next ADD makes.
        ("del.b", true, "ADD a, ADD b, DEL b, SIGTERM b, DEL b, DEL a"),
    ] {
        let own = [fifo];
        let mut killed = Killed::start(if fifo == "end" { &[] } else { &own });
        killed.reach(fifo);
        let cached = killed.kill().unwrap();
        assert_eq!(cached.is_complete(), is_complete, "{fifo}");
        std::fs::remove_file(killed.folder.path().join(fifo)).unwrap();
        assert_eq!(killed.del(&cached), ran);
        if fifo != "end" {
            assert_ends(&killed.folder.read("sleeping"));
        }
    }
}

#[test]
fn before_the_complete_entry() {
    let mut killed = Killed::start(&["done.b"]);
    // The last plugin stops the runtime, which then cannot write the entry.
    let opening = r#"[ $CNI_COMMAND = DEL ] || exec 3> "$dir/done.b""#;
    let stopping = r#"
        [ $CNI_COMMAND = DEL ] || kill -STOP $PPID
        until [ $CNI_COMMAND = DEL ] || [ -z "$(grep -L '^State:.T' /proc/$PPID/task/*/status)" ]; do :; done
    "#;
    killed.folder.plugin("b", &format!("{opening}{STEPPING}{stopping}"));
    killed.reach("done.b");
    let intent = killed.kill().unwrap();
    assert!(!intent.is_complete());
    expect!["ADD a, ADD b, DEL b, DEL a"].assert_eq(&killed.del(&intent));
}

/// A writer that is killed leaves its file. GC removes it by its age: the pid in its name may be another process's.
#[test]
fn gc_removes_what_dead_writers_left() {
    let folder = Folder::with(&[("a", GOOD)]);
    let (old, new) = (format!(".unfinished-{}-7", std::process::id()), ".unfinished-999999999-0");
    let hour = Duration::from_secs(3600);
    for (name, age) in [(old.as_str(), hour), (new, Duration::ZERO)] {
        let path = folder.write(&format!("cache/results/{name}"), "{");
        File::options().write(true).open(path).unwrap().set_modified(SystemTime::now() - age).unwrap();
    }
    wait(folder.runtime().gc(&network("1.0.0", &["a"]), &[]).without_inventory()).unwrap();
    assert_eq!(folder.cache_files(), [new]);
}

/// Two runtimes in PID namespaces of their own may have the same pid.
#[test]
fn an_unfinished_file_of_another_process_is_not_written_to() {
    let folder = Folder::with(&[("a", GOOD)]);
    let names: Vec<_> = (0..1000).map(|count| format!(".unfinished-{}-{count}", std::process::id())).collect();
    for name in &names {
        folder.write(&format!("cache/results/{name}"), "another's");
    }
    wait(folder.runtime().add(&network("1.0.0", &["a"]), &eth0())).unwrap();
    for name in &names {
        assert_eq!(folder.read(&format!("cache/results/{name}")), "another's");
    }
}

/// GC and the next ADD first end a plugin that still runs, as DEL of the same attachment does.
#[test]
fn gc_and_add_end_it_too() {
    let mut killed = Killed::start(&["at.a"]);
    killed.reach("at.a");
    killed.kill().unwrap();
    let (runtime, net) = (killed.folder.runtime(), network("1.0.0", &["a", "b"]));
    std::fs::remove_file(killed.folder.path().join("at.a")).unwrap();
    wait(runtime.add(&net, &killed.attachment)).unwrap();
    expect!["ADD a, SIGTERM a, DEL b, DEL a, ADD a, ADD b"].assert_eq(&killed.folder.log());

    let mut killed = Killed::start(&["at.a"]);
    killed.reach("at.a");
    killed.kill().unwrap();
    wait(killed.folder.runtime().gc(&net, &[]).without_inventory()).unwrap();
    expect!["ADD a, SIGTERM a, DEL b, DEL a"].assert_eq(&killed.folder.log());
}

/// The deadline of the operation includes a dead runtime's plugins: the intent stays for another DEL, which kills what ignores
/// SIGTERM.
#[test]
fn a_deadline_ends_the_wait_for_a_plugin_that_the_next_del_kills() {
    let mut killed = Killed::start(&["at.a"]);
    killed.folder.plugin("a", &format!("trap '' TERM\n{}", STEPPING.replace("trap", ": trap")));
    killed.reach("at.a");
    let intent = killed.kill().unwrap();
    let runtime = killed.folder.runtime().until(std::time::Instant::now() + Duration::from_millis(200));
    let error = wait(runtime.del_cached(&intent)).unwrap_err();
    expect!["cannot start DEL: the deadline of the whole operation has passed"].assert_eq(&error.to_string());
    expect!["ADD a"].assert_eq(&killed.folder.log());
    expect!["ADD a, DEL b, DEL a"].assert_eq(&killed.del(&intent));
    assert_ends(&killed.folder.read("sleeping"));
}

/// The identity of a process as the cache records it: pid, start, boot.
fn noted(pid: u32) -> String {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let start = stat.rsplit_once(") ").unwrap().1.split(' ').nth(19).unwrap().to_owned();
    format!("{pid} {start} {}", std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim())
}

/// Writes what a runtime leaves that was killed in the middle of an ADD, with this process as its plugin.
fn write_intent(folder: &Folder, attachment: &RuntimeConf, running: &str) {
    folder.write(
        "cache/results/net-c1-eth0",
        format!(
            r#"{{"kind":"cniCacheV1","containerId":"c1","config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibmV0IiwicGx1Z2lucyI6W3sidHlwZSI6ImEifV19","ifName":"eth0","networkName":"net","netns":"{}","running":"{running}"}}"#,
            attachment.netns
        ),
    );
}

/// Runs DEL of the only attachment with nothing but the cache.
fn del_only(folder: &Folder) {
    let runtime = folder.runtime();
    let [intent] = &runtime.cache().list(None).unwrap().cached[..] else { panic!("one attachment") };
    wait(runtime.del_cached(intent)).unwrap();
}

/// dnsmasq of podman's dnsname is such a daemon: the plugin of the first container starts it, for all.
#[test]
fn a_daemon_that_the_plugin_has_started_lives_on() {
    let mut killed = Killed::start(&["at.a"]);
    // The daemon has left the plugin's group when the plugin goes on.
    let starting = r#"
        [ $CNI_COMMAND = DEL ] || setsid sh -c "echo \$\$ > '$dir/daemon'; exec sleep 1000" >&- 2>&- &
        until [ $CNI_COMMAND = DEL ] || [ -s "$dir/daemon" ]; do :; done
    "#;
    killed.folder.plugin("a", &STEPPING.replace("ADD)", &format!("ADD)\n{starting}")));
    killed.reach("at.a");
    let intent = killed.kill().unwrap();
    expect!["ADD a, SIGTERM a, DEL b, DEL a"].assert_eq(&killed.del(&intent));
    assert_ends(&killed.folder.read("sleeping"));
    let daemon = Pid::from_raw(killed.folder.read("daemon").trim().parse().unwrap());
    let environment = std::fs::read(format!("/proc/{daemon}/environ")).unwrap();
    assert!(String::from_utf8_lossy(&environment).contains("CNI_COMMAND=ADD\0"), "it has the plugin's environment");
    kill(daemon, Signal::SIGKILL).unwrap();
}

fn child(pid: u32) -> u32 {
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    children.split(' ').next().unwrap().parse().unwrap()
}

/// The runtime's pid is another process's here, or none's.
#[test]
fn a_runtime_in_another_pid_namespace_is_waited_for_until_it_is_dead() {
    let mut living = Killed::start_by(&["at.a"], IN_A_PID_NAMESPACE);
    living.reach("at.a");
    let (net, attachment) = (network("1.0.0", &["a", "b"]), living.attachment.clone());
    let hasty = || living.folder.runtime().until(std::time::Instant::now() + Duration::from_millis(1500));
    let error = wait(hasty().del(&net, &attachment)).unwrap_err().to_string();
    assert!(error.starts_with("cannot start DEL of c1/eth0 in network net: another ADD or DEL of it"), "{error}");
    expect!["ADD a"].assert_eq(&living.folder.log());
    // The plugin goes on without its runtime. Another namespace cannot see that, this one can.
    let runtime = child(child(living.process.id()));
    kill(Pid::from_raw(runtime.cast_signed()), Signal::SIGKILL).unwrap();
    assert_ends(&runtime.to_string());
    let blind =
        command(&["unshare", "--pid", "--fork", "--mount-proc"], "killed::the_del_that_does_not_see_the_plugin")
            .current_dir(living.folder.path())
            .output()
            .unwrap();
    assert!(blind.status.success(), "{blind:?}");
    let intent = living.folder.runtime().cache().list(None).unwrap().cached.pop().unwrap();
    expect!["ADD a, SIGTERM a, DEL b, DEL a"].assert_eq(&living.del(&intent));
    assert!(living.kill().is_none());
}

/// See above. Elsewhere it does nothing.
#[test]
fn the_del_that_does_not_see_the_plugin() {
    let dir = std::env::current_dir().unwrap();
    if !dir.join("netns").exists() {
        return;
    }
    let error =
        wait(Folder::at(&dir).runtime().del(&network("1.0.0", &["a", "b"]), &eth0())).unwrap_err().with_causes();
    assert!(error.contains("of another PID namespace may still run for this attachment"), "{error}");
}

/// A process in a group of its own, called as the plugin is.
fn alike(attachment: &RuntimeConf) -> Child {
    let mut alike = Command::new("sh")
        .args(["-c", "echo runs; read word && test $word = go"])
        .process_group(0)
        .envs([("CNI_COMMAND", "ADD"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")])
        .env("CNI_NETNS", &attachment.netns)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    alike.stdout.take().unwrap().read_exact(&mut [0; 5]).unwrap();
    alike
}

/// Neither a process with the plugin's environment, nor one that has got its number, in this boot or in another.
#[test]
fn a_process_that_is_not_the_noted_one_is_not_ended() {
    let folder = Folder::with(&[("a", STEPPING)]);
    let attachment = own();
    let mut alike = alike(&attachment);
    let own = noted(alike.id());
    let mut words = own.split(' ');
    let (pid, start, boot) = (words.next().unwrap(), words.next().unwrap(), words.next().unwrap());
    let earlier = start.parse::<u64>().unwrap() - 1;
    for running in [
        String::new(),
        " ".repeat(68),
        format!("{pid} {earlier} {boot}"),
        format!("{pid} {start} 00000000-0000-4000-8000-000000000000"),
        format!("{pid} {start}"),
        format!("-{own}"),
    ] {
        write_intent(&folder, &attachment, &running);
        del_only(&folder);
    }
    alike.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let status = alike.wait().unwrap();
    assert!(status.success(), "{status}");
}

/// Whether the namespace of a complete entry without a path exists is unknown, so that ADD goes on. The DEL that a killed
/// runtime has left must not delete what it makes.
#[test]
fn add_where_an_earlier_one_may_live_ends_the_noted_process() {
    let folder = Folder::with(&[("a", STEPPING)]);
    let mut alike = alike(&own());
    write_intent(&folder, &eth0().netns(""), &noted(alike.id()));
    let entry = folder.read("cache/results/net-c1-eth0");
    folder.write(
        "cache/results/net-c1-eth0",
        entry.replace(r#","running""#, r#","result":{"cniVersion":"1.0.0"},"running""#),
    );
    wait(folder.runtime().add(&network("1.0.0", &["a"]), &own())).unwrap();
    assert_eq!(alike.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}

/// A runtime that has given its plugin up ends it, and may be in the middle of that.
#[test]
fn the_plugin_of_a_runtime_that_lives_is_not_ended() {
    let folder = Folder::with(&[("a", STEPPING)]);
    let attachment = own();
    let (mut plugin, mut lives) = (alike(&attachment), alike(&attachment));
    write_intent(&folder, &attachment, &format!("{} {}", noted(plugin.id()), noted(lives.id())));
    let hasty = folder.runtime().until(std::time::Instant::now() + Duration::from_millis(300));
    let [intent] = &hasty.cache().list(None).unwrap().cached[..] else { panic!("one attachment") };
    let error = wait(hasty.del_cached(intent)).unwrap_err();
    assert!(matches!(error, libcni::Error::Orphans { .. }) && folder.log().is_empty(), "{error}");
    // The plugin goes on, and ends by itself.
    plugin.stdin.take().unwrap().write_all(b"go\n").unwrap();
    assert!(plugin.wait().unwrap().success());
    del_only(&folder);
    // When the runtime is dead, its plugin is an orphan.
    let mut plugin = alike(&attachment);
    let dead = noted(lives.id());
    lives.kill().unwrap();
    lives.wait().unwrap();
    write_intent(&folder, &attachment, &format!("{} {dead}", noted(plugin.id())));
    del_only(&folder);
    assert_eq!(plugin.wait().unwrap().signal(), Some(Signal::SIGTERM as i32));
}

/// The plugin has ended, and its parent has not waited for it. What it started keeps running, also in its group.
#[test]
fn a_plugin_that_has_ended_is_not_ended_with_its_group() {
    let folder = Folder::with(&[("a", STEPPING)]);
    let mut plugin = Command::new("sh")
        .args(["-c", "sleep 1000 >&- & echo $!; read word"])
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let noted = noted(plugin.id());
    drop(plugin.stdin.take());
    let mut daemon = String::new();
    plugin.stdout.take().unwrap().read_to_string(&mut daemon).unwrap();
    let daemon = Pid::from_raw(daemon.trim().parse().unwrap());
    let id = Id::Pid(Pid::from_raw(plugin.id().try_into().unwrap()));
    waitid(id, WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    write_intent(&folder, &own(), &noted);
    del_only(&folder);
    let stat = std::fs::read_to_string(format!("/proc/{daemon}/stat")).unwrap();
    assert!(!stat.contains(") Z "), "{stat}");
    kill(daemon, Signal::SIGKILL).unwrap();
    plugin.wait().unwrap();
}

/// A plugin that links this library runs for the attachment as well, and must not end itself or who called it.
#[test]
fn who_deletes_is_not_ended() {
    let folder = Folder::with(&[("a", STEPPING)]);
    // A shell that is called as the plugin is, and that starts the process below and waits for it.
    let status = Command::new("/bin/sh")
        .args(["-c", r#""$0" --exact killed::the_plugin_that_deletes; exit $?"#])
        .arg(std::env::current_exe().unwrap())
        .current_dir(folder.path())
        .process_group(0)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    expect!["DEL a"].assert_eq(&folder.log());
}

/// See above. Elsewhere it does nothing.
#[test]
fn the_plugin_that_deletes() {
    let dir = std::env::current_dir().unwrap();
    if dir.join("netns").exists() || !dir.join("a").exists() {
        return;
    }
    let folder = Folder::at(Path::new(&dir));
    write_intent(&folder, &own(), &noted(std::os::unix::process::parent_id()));
    del_only(&folder);
}
