//! The sysctls below `net` as lines of a snapshot.
//!
//! A link has about 100 in `conf`, and a file each costs more than all else of a snapshot together. So these come from a dump;
//! the others, and those of `all` and `default`, from their files.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;

use crate::must::Must;
use crate::netlink::{Attributes, Socket, i32_at};

const ROOT: &str = "/proc/sys/net";

/// `IPV4_DEVCONF_*` of `include/uapi/linux/ip.h`, from 1 on, by their names in `net/ipv4/conf/LINK`.
#[rustfmt::skip]
const IPV4: &[&str] = &[
    "forwarding", "mc_forwarding", "proxy_arp", "accept_redirects", "secure_redirects", "send_redirects",
    "shared_media", "rp_filter", "accept_source_route", "bootp_relay", "log_martians", "tag", "arp_filter", "medium_id",
    "disable_xfrm", "disable_policy", "force_igmp_version", "arp_announce", "arp_ignore", "promote_secondaries",
    "arp_accept", "arp_notify", "accept_local", "src_valid_mark", "proxy_arp_pvlan", "route_localnet",
    "igmpv2_unsolicited_report_interval", "igmpv3_unsolicited_report_interval", "ignore_routes_with_linkdown",
    "drop_unicast_in_l2_multicast", "drop_gratuitous_arp", "bc_forwarding", "arp_evict_nocarrier",
];

/// `DEVCONF_*` of `include/uapi/linux/ipv6.h`, from 0 on, by their names in `net/ipv6/conf/LINK`.
#[rustfmt::skip]
const IPV6: &[&str] = &[
    "forwarding", "hop_limit", "mtu", "accept_ra", "accept_redirects", "autoconf", "dad_transmits",
    "router_solicitations", "router_solicitation_interval", "router_solicitation_delay", "use_tempaddr",
    "temp_valid_lft", "temp_prefered_lft", "regen_max_retry", "max_desync_factor", "max_addresses",
    "force_mld_version", "accept_ra_defrtr", "accept_ra_pinfo", "accept_ra_rtr_pref", "router_probe_interval",
    "accept_ra_rt_info_max_plen", "proxy_ndp", "optimistic_dad", "accept_source_route", "mc_forwarding",
    "disable_ipv6", "accept_dad", "force_tllao", "ndisc_notify", "mldv1_unsolicited_report_interval",
    "mldv2_unsolicited_report_interval", "suppress_frag_ndisc", "accept_ra_from_local", "use_optimistic",
    "accept_ra_mtu", "stable_secret", "use_oif_addrs_only", "accept_ra_min_hop_limit", "ignore_routes_with_linkdown",
    "drop_unicast_in_l2_multicast", "drop_unsolicited_na", "keep_addr_on_down",
    "router_solicitation_max_interval", "seg6_enabled", "seg6_require_hmac", "enhanced_dad", "addr_gen_mode",
    "disable_policy", "accept_ra_rt_info_min_plen", "ndisc_tclass", "rpl_seg_enabled", "ra_defrtr_metric",
    "ioam6_enabled", "ioam6_id", "ioam6_id_wide", "ndisc_evict_nocarrier", "accept_untracked_na", "accept_ra_min_lft",
    "force_forwarding",
];

/// The first counts. A read of the others spins as long as any process of the machine changes a link
/// (`addrconf_sysctl_addr_gen_mode`, `addrconf_sysctl_stable_secret`); messages have a link's mode, which a secret changes, too.
const LEFT_OUT: [&str; 3] = ["nf_conntrack_count", "addr_gen_mode", "stable_secret"];

/// All of the thread's network namespace that can be changed, each as `sysctl net/KEY = VALUE`. A link's times are in
/// milliseconds, whatever its files say.
pub(crate) fn sysctls() -> Vec<String> {
    let mut lines = Vec::new();
    let links = of_links(&mut lines);
    of_files(&links, &mut lines);
    lines
}

/// Those in `conf`, and the names of the links.
fn of_links(lines: &mut Vec<String>) -> Vec<String> {
    const RTM_GETLINK: u16 = 18;
    const IFINFOMSG: usize = 16;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_AF_SPEC: u16 = 26;
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    const IFLA_INET_CONF: u16 = 1;
    const IFLA_INET6_CONF: u16 = 2;
    const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

    let mut links = Vec::new();
    for message in Socket::route().dump(RTM_GETLINK, &[0; IFINFOMSG]).must("list links") {
        let all = Attributes::after(&message.body, IFINFOMSG);
        let link = all.string(IFLA_IFNAME).unwrap_or_default();
        let families = all.nested(IFLA_AF_SPEC);
        let v6 = families.nested(AF_INET6);
        values(&format!("ipv4/conf/{link}"), IPV4, families.nested(AF_INET).get(IFLA_INET_CONF), lines);
        values(&format!("ipv6/conf/{link}"), IPV6, v6.get(IFLA_INET6_CONF), lines);
        if let Some(mode) = v6.u8(IFLA_INET6_ADDR_GEN_MODE) {
            lines.push(line(&format!("ipv6/conf/{link}/addr_gen_mode"), mode));
        }
        for key in only_files().iter().map(|key| format!("ipv6/conf/{link}/{key}")) {
            if let Ok(text) = fs::read_to_string(format!("{ROOT}/{key}")) {
                lines.push(line(&key, text.trim_end().escape_debug()));
            }
        }
        links.push(link);
    }
    links
}

/// Keys in `net/ipv6/conf/LINK` that no message has: the same for all links.
fn only_files() -> &'static [String] {
    static KEYS: OnceLock<Vec<String>> = OnceLock::new();
    KEYS.get_or_init(|| {
        let files = fs::read_dir(format!("{ROOT}/ipv6/conf/default")).into_iter().flatten().flatten();
        let names = files.filter_map(|file| file.file_name().into_string().ok());
        names.filter(|name| !IPV6.contains(&name.as_str())).collect()
    })
}

/// A kernel may have fewer keys than this file, or more.
fn values(folder: &str, keys: &[&str], array: Option<&[u8]>, lines: &mut Vec<String>) {
    for (place, value) in array.unwrap_or_default().chunks_exact(4).enumerate() {
        let value = i32_at(value, 0);
        match keys.get(place) {
            // Zeros, whatever they are.
            Some(&("stable_secret" | "addr_gen_mode")) => {}
            Some(key) => lines.push(line(&format!("{folder}/{key}"), value)),
            None => lines.push(line(&format!("{folder}/#{place}"), value)),
        }
    }
}

fn line(key: &str, value: impl std::fmt::Display) -> String {
    format!("sysctl net/{key} = {value}")
}

fn of_files(links: &[String], lines: &mut Vec<String>) {
    let folders = folders();
    for folder in &*folders {
        let path = &folder.path;
        match folder.of_links {
            false => folder.read(path, lines),
            true => links.iter().for_each(|link| folder.read(&path.with_file_name(link), lines)),
        }
    }
}

/// Files of one folder that can be read and written. One that is for reading only shows the machine's doing, not a
/// plugin's.
#[derive(Debug, PartialEq, Eq)]
struct Folder {
    path: PathBuf,
    /// Whether `path` is that of `lo`, and each link has such a folder beside it.
    of_links: bool,
    names: Vec<String>,
}

impl Folder {
    /// The way to a file takes longer than what it says: so each is opened from its folder.
    fn read(&self, path: &Path, lines: &mut Vec<String>) {
        // A link may have none, or have gone.
        let Ok(opened) = File::open(path) else {
            return;
        };
        let key = path.strip_prefix(ROOT).unwrap_or(path).to_string_lossy();
        let mut page = [0; 512];
        for name in &self.names {
            if let Some(text) = read_in(&opened, name, &mut page) {
                lines.push(line(&format!("{key}/{name}"), text.trim_end().escape_debug()));
            }
        }
    }
}

/// All folders, but for those of links in `conf`. They are the same in all namespaces of nodes and containers, none of
/// which is the machine's first, and listing them costs half as much as opening them; so they are listed again only when
/// the kernel has other modules.
fn folders() -> Arc<Vec<Folder>> {
    static LISTED: Mutex<Option<(String, Arc<Vec<Folder>>)>> = Mutex::new(None);
    let modules = modules();
    let mut listed = LISTED.lock().unwrap_or_else(PoisonError::into_inner);
    match &*listed {
        Some((of, folders)) if *of == modules => Arc::clone(folders),
        _ => {
            let mut found = Vec::new();
            list(Path::new(ROOT), &mut found);
            let found = Arc::new(found);
            *listed = Some((modules, Arc::clone(&found)));
            found
        }
    }
}

/// Names of the kernel's modules; none where all is built in.
fn modules() -> String {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    text.lines().filter_map(|line| line.split(' ').next()).collect::<Vec<_>>().join(" ")
}

/// Whether a file may be read as well as written.
const fn can_be_changed(mode: u32) -> bool {
    mode & 0o444 != 0 && mode & 0o222 != 0
}

/// Adds a folder and those below it.
fn list(path: &Path, found: &mut Vec<Folder>) {
    let parent = path.parent().and_then(Path::file_name).unwrap_or_default();
    let mut folder = Folder { path: path.to_owned(), of_links: parent == "neigh", names: Vec::new() };
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue; // the kernel has none
        };
        let is_left_out = LEFT_OUT.iter().any(|key| name == *key);
        // One stands for all; those in `conf` are in messages.
        let is_passed_over = match path.file_name() {
            Some(folder) if folder == "conf" => name != "all" && name != "default",
            Some(folder) if folder == "neigh" => name != "lo",
            _ => false,
        };
        match entry.metadata() {
            Ok(about) if about.is_dir() && !is_passed_over => list(&entry.path(), found),
            Ok(about) if about.is_file() && !is_left_out && can_be_changed(about.mode()) => folder.names.push(name),
            _ => {}
        }
    }
    found.push(folder);
}

/// A file of a folder, if it can be read and is text. The kernel clears as much memory as is asked for.
fn read_in(folder: &File, name: &str, page: &mut [u8; 512]) -> Option<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(folder, name, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    loop {
        let count = file.read(page).ok()?;
        bytes.extend_from_slice(page.get(..count)?);
        // A whole page may not be all; less is.
        if count < page.len() {
            return String::from_utf8(bytes).ok();
        }
    }
}
