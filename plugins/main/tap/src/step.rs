//! The tap: made by ADD, compared by CHECK.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use cni_spec::{CniError, Code};
use interface::check::{self, differs};
use interface::plan::Turn;
use interface::sides::Sides;
use interface::undo::Undo;
use interface::{Look, OwnStep, Stage, conf::invalid, failed};
use netops::error::Cause;
use netops::link::tun::{self, Tap, Tun};
use netops::link::{self, Kind, Link, LinkName, Mac, Place, Settings, Target, run_and_get, set};
use netops::{Kernel, OpError, child_process, link_removal};

use crate::conf::Conf;

/// A tap to be made under its final name in the container.
#[derive(Debug, Clone)]
pub struct CreateTap {
    /// The tap's name.
    pub ifname: String,
    pub alias: String,
    /// The tap's Ethernet address, if one is asked for.
    pub mac: Option<Mac>,
    pub conf: Conf,
}

impl fmt::Display for CreateTap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ifname, alias, mac, conf } = self;
        let flag = if conf.multi_queue { " multi_queue" } else { "" };
        let number = |name: &str, id: Option<u32>| id.map(|id| format!(" {name} {id}")).unwrap_or_default();
        writeln!(
            f,
            "ip tuntap add {ifname} mode tap{flag}{}{}",
            number("user", conf.owner),
            number("group", conf.group)
        )?;
        let mac = mac.map(|mac| format!(" address {mac}")).unwrap_or_default();
        let bridge = conf.bridge.as_ref().map(|bridge| format!(" master {bridge}")).unwrap_or_default();
        writeln!(f, "ip link set {ifname} alias {alias}{mac}{}{bridge}", number("mtu", conf.mtu_bytes))
    }
}

impl OwnStep for CreateTap {
    type State = Option<Mac>;

    fn turn(&self) -> Turn {
        Turn::BeforeAddresses
    }

    fn name(&self) -> &'static str {
        "create tap"
    }

    async fn apply(&self, stage: &mut Stage<'_>, _: &mut Option<Mac>) -> Result<(), CniError> {
        let Self { ifname, alias, mac, conf } = self;
        let Sides { netns, container, .. } = stage.sides;
        let name = LinkName::parse(ifname).map_err(|error| invalid(error.to_string()))?;
        let master = conf.bridge.as_ref().map(|bridge| find_bridge(container, bridge)).transpose()?;
        let tap = tun::Tap {
            name: &name,
            multi_queue: conf.multi_queue,
            owner: conf.owner,
            group: conf.group,
            master: master.map(|master| master.index),
            mtu_bytes: conf.mtu_bytes,
            mac: *mac,
            alias: Some(alias),
        };
        let place = Place { netns, kernel: container };
        let link = match &conf.selinux_context {
            None => tun::create_tap(place, &tap).map_err(failed)?,
            Some(context) => create_tap(place, &tap, context, stage.search_path)?,
        };
        stage.txn.push(Undo::ContainerLink(link.clone()));
        stage.set_container(link);
        Ok(())
    }

    fn check(&self, look: &mut Look<'_>, _: &mut Option<Mac>) -> Result<(), CniError> {
        look.compare_kind("tun")?;
        let container = &look.sides.container;
        let conf = &self.conf;
        let link = look.container()?.clone();
        let object = format!("interface {} in {}", link.name, container.place());
        let Kind::Tun(Tun { is_tap, multi_queue, owner, group, .. }) = link.kind else { return Ok(()) };
        let differences = [
            (!is_tap, "it is a tun, not a tap".to_owned()),
            (multi_queue != conf.multi_queue, format!("multiQueue is {multi_queue}")),
            (owner != conf.owner, format!("its owner is {}", words(owner))),
            (group != conf.group, format!("its group is {}", words(group))),
            (
                conf.mtu_bytes.is_some_and(|mtu| !check::has_mtu(&link, mtu, look.entry.mtu)),
                format!("its MTU is {}", link.mtu_bytes),
            ),
        ];
        if let Some((_, how)) = differences.into_iter().find(|(differs, _)| *differs) {
            return Err(differs(object, how));
        }
        let Some(bridge) = &conf.bridge else { return Ok(()) };
        match link.master.map(|master| link::find_index(container, master)).transpose().map_err(failed)?.flatten() {
            Some(master) if master.name == *bridge || master.alt_names.contains(bridge) => Ok(()),
            Some(_) | None => Err(differs(object, format!("it is no port of bridge {bridge}"))),
        }
    }
}

pub(crate) fn words(id: Option<u32>) -> String {
    id.map_or_else(|| "not set".to_owned(), |id| id.to_string())
}

pub fn find_bridge(container: &Kernel, name: &str) -> Result<Link, CniError> {
    let refused = |why: String| CniError::invalid_key("bridge", format_args!("{name:?}"), &why);
    match link::find(container, name).map_err(failed)? {
        Some(link) if link.kind.is_bridge() => Ok(link),
        Some(link) => Err(refused(format!("it is a {} in {}, not a bridge", link.kind, container.place()))),
        None => Err(refused(format!("{} has no such link", container.place()))
            .detail("The bridge is one in the container, which an earlier plugin or the image makes.")),
    }
}

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
pub(crate) fn probe_selinux(search_path: &str) -> Result<(), CniError> {
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
