//! Taps under another label of SELinux. The kernel labels a tap as the process that makes it, and a process gets another label
//! by starting a program: `ip`, as in the reference, whose policies allow that one.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cni_spec::{CniError, Code};
use interface::{conf::invalid, failed};
use netops::error::Cause;
use netops::link::tun::Tap;
use netops::link::{Link, Place, Settings, Target, run_and_get, set};
use netops::{OpError, child_process, link_removal};

/// How long `ip` may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// The label of the next program that this thread starts.
const NEXT_LABEL: &str = "/proc/thread-self/attr/exec";

/// Where `ip` is looked for behind `PATH`.
const FOLDERS: [&str; 4] = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"];

/// Makes the tap as a process of this label does.
pub(crate) fn create_tap(place: Place<'_>, tap: &Tap<'_>, label: &str, search_path: &str) -> Result<Link, CniError> {
    let program = find(search_path)?;
    let mut command = Command::new(&program);
    command.args(["tuntap", "add", "dev", tap.name.as_str(), "mode", "tap"]);
    command.args(tap.multi_queue.then_some("multi_queue"));
    for (word, id) in [("user", tap.owner), ("group", tap.group)] {
        if let Some(id) = id {
            command.args([word, &id.to_string()]);
        }
    }
    let object = format!("{} for tap {}", program.display(), tap.name);
    place.netns.run(|| run(&mut command, label, &object)).map_err(failed)??;
    let settings = Settings {
        master: tap.master,
        mtu_bytes: tap.mtu_bytes,
        mac: tap.mac,
        alias: tap.alias.map(str::to_owned),
        ..Settings::default()
    };
    let target = Target::named(tap.name.as_str());
    run_and_get(place.kernel, vec![set(&target, &settings)], &target).map_err(|error| {
        let removed = place.kernel.run(link_removal::request(&target));
        failed(error).detail(removed.err().map(|left| left.to_string()).unwrap_or_default())
    })
}

/// Whether the node could make one.
pub(crate) fn probe(search_path: &str) -> Result<(), CniError> {
    find(search_path).map(drop)?;
    // Where SELinux is in use the kernel knows its filesystem, whether or not the caller has it mounted.
    match std::fs::read_to_string("/proc/filesystems").is_ok_and(|known| known.contains("selinuxfs")) {
        true => Ok(()),
        false => Err(without_selinux("this node has no SELinux")),
    }
}

fn without_selinux(why: &str) -> CniError {
    invalid(format_args!("key selinuxContext: {why}"))
        .at_key("selinuxContext")
        .detail("Leave the key out on nodes without SELinux.")
}

fn find(search_path: &str) -> Result<PathBuf, CniError> {
    let folders = search_path.split(':').chain(FOLDERS).filter(|folder| folder.starts_with('/'));
    let found = folders.map(|folder| Path::new(folder).join("ip")).find(|path| path.is_file());
    found.ok_or_else(|| {
        CniError::new(Code::KERNEL, "cannot use key selinuxContext: the node has no program ip")
            .detail("Install iproute2: only a program started under that label can make the tap.")
    })
}

fn run(command: &mut Command, label: &str, object: &str) -> Result<(), CniError> {
    std::fs::write(NEXT_LABEL, label)
        .map_err(|error| without_selinux(&format!("cannot take the label {label:?}: {error}")))?;
    let spawned = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    // The label is for this one program.
    let reset = std::fs::write(NEXT_LABEL, "");
    let io = |error: &std::io::Error| failed(OpError::io("run", object, error));
    let mut child = spawned.map_err(|error| io(&error))?;
    let output = child_process::finish(&mut child, b"", DEADLINE).map_err(|error| io(&error))?;
    let Some(output) = output else {
        child.kill().ok();
        child.wait().ok();
        return Err(failed(OpError::new("run", object, Cause::Timeout(DEADLINE))));
    };
    let Output { status, stderr, .. } = output;
    reset.map_err(|error| io(&error))?;
    match status.success() {
        true => Ok(()),
        false => {
            let words = String::from_utf8_lossy(&stderr).trim().replace('\n', "; ");
            Err(failed(OpError::state("run", object, format!("{status}: {words}"))))
        }
    }
}
