//! Scripts as plugins.

use super::*;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Instant as Clock;

/// Runs `script` as a plugin.
fn call(script: &str, stdin: &[u8], deadline: Duration) -> Result<Output, CniError> {
    let (_dir, path) = executable(format!("#!/bin/sh\n{script}\n"));
    started(&path, stdin, deadline, async |plugin| plugin.finish().await)
}

fn executable(content: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugin");
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    (dir, path)
}

/// Starts an executable as a plugin.
fn started(
    executable: &Path,
    stdin: &[u8],
    deadline: Duration,
    finish: impl AsyncFnOnce(Started<'_>) -> Result<Output, CniError>,
) -> Result<Output, CniError> {
    let env = CallEnv { container_id: "c1".into(), ifname: "eth0".into(), ..CallEnv::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (command, group, stderr) = (Command::Add, Group::Own, Stderr::To(Box::new(|_| {})));
    let call = Execution { group, stderr, deadline, ..Execution::new(executable, command, &env, stdin) };
    runtime.block_on(async { finish(super::start(call).await?).await })
}

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_plugin_gets_environment_and_config() {
    let output = call("echo \"$CNI_COMMAND $CNI_CONTAINERID ${CNI_NETNS-unset}\"; cat", b"{}", SOON).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ADD c1 \n{}");
    assert_eq!(output.exit, Exit::Code(0));
}

#[test]
fn an_orphan_holding_stdout_does_not_block() {
    let start = Clock::now();
    let output = call("sleep 30 & echo {}", b"", SOON).unwrap();
    assert_eq!(output.stdout, b"{}\n");
    assert!(start.elapsed() < SOON);
}

/// Waits until a process is gone.
#[track_caller]
fn assert_ends(pid: &str) {
    let start = Clock::now();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    while !state().is_empty() && !state().contains(") Z ") {
        assert!(start.elapsed() < SOON, "process {pid} is left: {}", state());
        std::thread::yield_now();
    }
}

#[test]
fn a_plugin_that_does_not_end_is_ended_with_its_children() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!("trap 'exit 0' TERM; sleep 1000 & echo $! > {}; wait", file.path().display());
    let error = call(&script, b"", Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.code, Code::TIMEOUT);
    assert_ends(std::fs::read_to_string(file.path()).unwrap().trim());
}

#[test]
fn an_orphan_holding_stdout_does_not_delay_a_deadline() {
    let start = Clock::now();
    let error = call("setsid sleep 30 & sleep 31", b"", Duration::from_secs(1)).unwrap_err();
    assert_eq!(error.code, Code::TIMEOUT);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

/// Traces the process whose pid is in file `pid`, until its stdin ends: the test below starts this in a process of its own. A
/// process that is traced has not ended for its parent until its tracer knows of that. Elsewhere it does nothing.
#[test]
fn the_tracer() {
    let Ok(pid) = std::fs::read_to_string("pid") else { return };
    nix::sys::ptrace::seize(Pid::from_raw(pid.trim().parse().unwrap()), nix::sys::ptrace::Options::empty()).unwrap();
    std::fs::write("traces", "").unwrap();
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
}

/// A killed plugin may wait for a dead server's file system.
#[test]
fn a_killed_plugin_that_does_not_end_is_left_to_the_kernel() {
    let dir = tempfile::tempdir().unwrap();
    let (pid, traces) = (dir.path().join("pid"), dir.path().join("traces"));
    let script = format!(
        "trap '' TERM; echo $$ > {0}.new; mv {0}.new {0}; until [ -e {1} ]; do :; done; sleep 30",
        pid.display(),
        traces.display()
    );
    let tracer = std::thread::spawn({
        let (pid, folder) = (pid.clone(), dir.path().to_owned());
        move || {
            let start = Clock::now();
            while !pid.exists() {
                assert!(start.elapsed() < SOON);
                std::thread::yield_now();
            }
            std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "exec::tests::the_tracer"])
                .current_dir(folder)
                .stdin(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        }
    });
    let start = Clock::now();
    let (_dir, path) = executable(format!("#!/bin/sh\n{script}\n"));
    let error = started(&path, b"", SOON, async |plugin| {
        let is_traced = async {
            while !traces.exists() {
                tokio::task::yield_now().await;
            }
            CniError::new(Code::TIMEOUT, "the test stops the plugin")
        };
        plugin.finish_or_end(is_traced, Duration::from_millis(100), std::future::pending()).await
    });
    let error = error.unwrap_err();
    assert!(error.details.contains("has not ended"), "{error}");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    let mut tracer = tracer.join().unwrap();
    tracer.kill().unwrap();
    tracer.wait().unwrap();
}

/// The drop is the last thing that the async runtime does: none of its tasks runs any more.
#[test]
fn a_plugin_whose_call_is_dropped_is_terminated() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let (_dir, path) = executable(format!("#!/bin/sh\necho $$ > {}\nexec sleep 1000\n", file.path().display()));
    let env = CallEnv::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let pid = || std::fs::read_to_string(file.path()).unwrap().trim().to_owned();
    runtime.block_on(async {
        let (executable, command, group) = (path.as_path(), Command::Add, Group::Callers);
        let call = Execution { group, deadline: SOON, ..Execution::new(executable, command, &env, b"") };
        let started = async {
            while pid().is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = run(call) => panic!("it ended by itself"),
            () = started => {}
        }
    });
    drop(runtime);
    assert_ends(&pid());
}

#[test]
fn a_config_larger_than_the_pipe_need_not_be_read() {
    let big = vec![b' '; 1 << 20];
    assert_eq!(call("exec <&-; echo ok", &big, SOON).unwrap().stdout, b"ok\n");
    // A plugin that waits with its stdin open and unread is ended all the same.
    let error = call("exec sleep 1000", &big, Duration::from_millis(200)).unwrap_err();
    assert_eq!(error.code, Code::TIMEOUT);
}

#[test]
fn a_config_larger_than_the_pipe_is_read_whole() {
    let output = call("wc -c", &vec![b' '; 1 << 20], SOON).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), (1 << 20).to_string());
}

#[test]
fn a_plugins_failure_is_described() {
    let fail = |script: &str| call(script, b"", SOON).unwrap().into_stdout().unwrap_err().to_string();
    assert!(fail("exit 3").contains("netplugin failed with no error message: exit status 3"));
    assert!(fail("echo why >&2; exit 1").contains("netplugin failed: \"why\""));
    assert!(fail("echo garbage; exit 1").contains("garbage"));
    assert!(fail("kill -9 $$").contains("SIGKILL"));
    assert_eq!(fail(r#"echo '{"code":11,"msg":"later"}'; exit 1"#), "later");
    assert_eq!(fail(r#"echo '{"code":11,"msg":"later"}'; exit 0"#), "later");
}

#[test]
fn the_end_of_stderr_does_not_reach_the_sink() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (reader, writer) = nix::unistd::pipe().unwrap();
        let tail = Tail::new(Stderr::To(Box::new(|bytes| panic!("{bytes:?}"))), KEPT_STDERR_BYTES);
        let reader = tokio::net::unix::pipe::Receiver::from_owned_fd(reader).unwrap();
        let mut tail = Reading::new(Some(reader), tail);
        drop(writer);
        tail.pipe.as_ref().unwrap().readable().await.unwrap();
        tail.drain().unwrap();
    });
}

/// The reference makes six attempts, a second apart.
#[test]
fn a_busy_executable_is_tried_for_five_seconds() {
    let pauses: Vec<_> = busy_pauses().collect();
    assert_eq!(pauses.iter().sum::<Duration>(), Duration::from_secs(5));
    assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(1)), "{pauses:?}");
    assert!(pauses[0] <= Duration::from_millis(5));
}

/// The error of calling a file with this content, without its folder.
fn start(content: &[u8]) -> String {
    let (dir, path) = executable(content);
    let error = started(&path, b"", SOON, async |plugin| plugin.finish().await).unwrap_err();
    error.to_string().replace(dir.path().to_str().unwrap(), "$DIR")
}

#[test]
fn a_script_that_cannot_start_names_its_interpreter() {
    for (line, why) in [
        (
            "#!/bin/sh\r\n",
            r##"its interpreter "/bin/sh\r" does not exist: line 1 ends with a carriage return. Save the file with Unix line ends, so that line 1 is #!/bin/sh (dos2unix)."##,
        ),
        (
            "#! /absent/python -u\n",
            "its interpreter /absent/python does not exist. Install it, or correct line 1 of the file.",
        ),
        (
            "#!/dev/null\n",
            "its interpreter /dev/null cannot be executed. Make it executable, or correct line 1 of the file.",
        ),
        (
            "echo\n",
            "exec format error: it is no ELF file, and no script that begins with #!. Let the first line of a script name its interpreter, such as #!/bin/sh.",
        ),
        ("", "exec format error: the file is empty. Install the plugin anew."),
    ] {
        assert_eq!(start(line.as_bytes()), format!("cannot start plugin $DIR/plugin: {why}"), "{line:?}");
    }
}

#[test]
fn a_file_that_nobody_may_execute_names_the_command_that_allows_it() {
    let (_dir, path) = executable("");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = std::io::Error::from_raw_os_error(nix::errno::Errno::EACCES as i32);
    let remedy = format!("Make it executable: chmod 755 {}", path.display());
    assert_eq!(super::cannot_start(&path, &refused).details, remedy);
}

#[test]
fn a_file_system_without_programs_is_named() {
    use nix::mount::{MsFlags, mount, umount};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("plugin");
    let find = || {
        std::fs::write(&path, "#!/bin/sh\n").unwrap();
        let denied = std::io::Error::from_raw_os_error(nix::errno::Errno::EACCES as i32);
        super::start_error::Unstartable::find(&path, &denied).cause
    };
    assert_eq!(find(), "Permission denied (os error 13)");
    mount(Some("tmpfs"), dir.path(), Some("tmpfs"), MsFlags::MS_NOEXEC, None::<&str>).unwrap();
    assert_eq!(find(), "permission denied: its file system is mounted noexec");
    umount(dir.path()).unwrap();
}

/// An ELF file of 64 bits, little endian, for a machine; with the loader's path as its only segment.
fn elf(machine: u16, loader: &str) -> Vec<u8> {
    let mut head = vec![0; 64 + 56];
    head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    head[16] = 2; // ET_EXEC
    head[18..20].copy_from_slice(&machine.to_le_bytes());
    head[20] = 1; // EV_CURRENT
    for (at, value) in
        [(32, 64), (52, 64), (54, 56), (56, 1), (64, 3), (72, 120), (96, u8::try_from(loader.len()).unwrap() + 1)]
    {
        head[at] = value;
    }
    head.extend(loader.as_bytes());
    head.push(0);
    head
}

#[test]
fn a_program_that_cannot_start_names_its_loader_or_its_architecture() {
    let own = u16::from_le_bytes(std::fs::read("/proc/self/exe").unwrap()[18..20].try_into().unwrap());
    assert_eq!(
        start(&elf(own, "/lib/absent.so.1")),
        "cannot start plugin $DIR/plugin: its ELF interpreter /lib/absent.so.1 does not exist: it is built for another C library. Install the plugin for this node's system, or one that is linked statically."
    );
    let other = start(&elf(22, "/lib/absent.so.1"));
    assert!(other.contains("exec format error: it is built for s390, and this node is "), "{other}");
    let cut = start(&elf(own, "/lib/absent.so.1")[..40]);
    assert!(cut.contains("exec format error: it is an ELF file that is damaged or cut off. "), "{cut}");
}

#[test]
fn an_error_object_without_text_gets_its_code_and_stdout() {
    for printed in [r#"{"code":7}"#, r#"{"code":7,"msg":""}"#, r#"{"code": 7, "msg": null, "details": "more"}"#] {
        let output = call(&format!("echo '{printed}'; exit 1"), b"", SOON).unwrap();
        let error = output.into_stdout().unwrap_err();
        assert_eq!(error.code, Code::INVALID_CONFIG);
        assert_eq!(error.msg, format!("the plugin gives no reason: code 7, stdout {printed:?}"));
    }
}
