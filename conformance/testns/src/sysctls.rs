//! The sysctls below `net` as lines of a snapshot.
//!
//! A link has about 100 in `conf` and 30 in `neigh`, and a file each costs more than all else of a snapshot together. So these
//! come from dumps; the others, and those of `all` and `default`, from their files.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;

use crate::link::{IFINFOMSG, Names};
use crate::must::Must;
use crate::netlink::{Attributes, Message, Socket, i32_at, u32_at, u64_at};

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

/// `nf_conntrack_count` is a counter. A read of the other two spins as long as any process of the machine changes a link
/// (`addrconf_sysctl_addr_gen_mode`, `addrconf_sysctl_stable_secret`); messages have a link's mode, which a secret changes, too.
const LEFT_OUT: [&str; 3] = ["nf_conntrack_count", "addr_gen_mode", "stable_secret"];

/// `NDTPA_*` of `include/uapi/linux/neighbour.h` by their names in `net/FAMILY/neigh/LINK`, where two of the times have two names each.
const NEIGHBOURS: &[(u16, &str)] = &[
    (4, "base_reachable_time_ms"),
    (4, "base_reachable_time"),
    (5, "retrans_time_ms"),
    (5, "retrans_time"),
    (6, "gc_stale_time"),
    (7, "delay_first_probe_time"),
    (8, "unres_qlen"),
    (9, "app_solicit"),
    (10, "ucast_solicit"),
    (11, "mcast_solicit"),
    (12, "anycast_delay"),
    (13, "proxy_delay"),
    (14, "proxy_qlen"),
    (15, "locktime"),
    (16, "unres_qlen_bytes"),
    (17, "mcast_resolicit"),
    (19, "interval_probe_time_ms"),
];

/// Lists the sysctls of the thread's network namespace that can be changed, each as `sysctl net/KEY = VALUE`; `links` and
/// `names` are its links. A link's times are in milliseconds, whatever its files say.
pub(crate) fn sysctls(links: &[Message], names: &Names) -> Vec<String> {
    let mut lines = Vec::new();
    links.iter().for_each(|link| of_link(link, names, &mut lines));
    of_neighbours(names, &mut lines);
    of_files(&mut lines);
    lines
}

fn of_link(message: &Message, names: &Names, lines: &mut Vec<String>) {
    const IFLA_AF_SPEC: u16 = 26;
    const AF_INET: u16 = 2;
    const AF_INET6: u16 = 10;
    const IFLA_INET_CONF: u16 = 1;
    const IFLA_INET6_CONF: u16 = 2;
    const IFLA_INET6_ADDR_GEN_MODE: u16 = 8;

    let all = Attributes::after(&message.body, IFINFOMSG);
    let link = names.get(u32_at(&message.body, 4));
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
}

fn of_neighbours(names: &Names, lines: &mut Vec<String>) {
    const RTM_GETNEIGHTBL: u16 = 66;
    const NDTMSG: usize = 4;
    const NDTA_PARMS: u16 = 6;
    const NDTPA_IFINDEX: u16 = 1;

    let mut socket = Socket::route();
    for (family, name) in [(2, "ipv4"), (10, "ipv6")] {
        // Of a kernel without IPv6 this is an empty list.
        for message in socket.dump(RTM_GETNEIGHTBL, &[family, 0, 0, 0]).must("list settings of neighbours") {
            let all = Attributes::after(&message.body, NDTMSG).nested(NDTA_PARMS);
            // The settings for new links have no index, and a file in the machine's first namespace only.
            let Some(index) = all.u32(NDTPA_IFINDEX) else {
                continue;
            };
            let folder = format!("{name}/neigh/{}", names.get(index));
            for (kind, key) in NEIGHBOURS {
                let Some(value) = all.get(*kind) else {
                    continue;
                };
                let value = if value.len() == 8 { u64_at(value, 0) } else { u64::from(u32_at(value, 0)) };
                lines.push(line(&format!("{folder}/{key}"), value));
            }
        }
    }
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

/// Adds the files that no message stands for.
fn of_files(lines: &mut Vec<String>) {
    let mut page = [0; 512];
    for folder in folders().iter() {
        folder.open(|key, file| {
            if let Some(text) = text(&file, &mut page) {
                lines.push(line(&key, text.trim_end().escape_debug()));
            }
        });
    }
}

/// Files of a folder that can be read and written. Plugins cannot change the others.
#[derive(Debug, PartialEq, Eq)]
struct Folder {
    path: PathBuf,
    names: Vec<String>,
}

impl Folder {
    /// Opens one file after another, each from the folder, so that its path is not looked up as often as it has files.
    fn open(&self, mut take: impl FnMut(String, File)) {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
        let Some(opened) = opened(open(&self.path, flags, Mode::empty())) else {
            return;
        };
        let folder = self.path.strip_prefix(ROOT).unwrap_or(&self.path).to_string_lossy();
        for name in &self.names {
            if let Some(file) = self::opened(openat(&opened, name.as_str(), flags, Mode::empty())) {
                take(format!("{folder}/{name}"), File::from(file));
            }
        }
    }
}

/// A namespace may lack a file, and forbid another; but that a process has too many says nothing of the file.
fn opened(file: nix::Result<OwnedFd>) -> Option<OwnedFd> {
    match file {
        Err(errno @ (Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM)) => panic!("cannot open a sysctl: {errno}"),
        file => file.ok(),
    }
}

/// All folders, but for those of links. They are the same in all namespaces of nodes and containers, none of
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

fn list(path: &Path, found: &mut Vec<Folder>) {
    let mut folder = Folder { path: path.to_owned(), names: Vec::new() };
    for entry in fs::read_dir(path).into_iter().flatten().flatten() {
        let Ok(name) = entry.file_name().into_string() else {
            continue; // the kernel has none
        };
        let is_left_out = LEFT_OUT.iter().any(|key| name == *key);
        // The sysctls of links are in messages.
        let is_passed_over = match path.file_name() {
            Some(folder) if folder == "conf" => name != "all" && name != "default",
            Some(folder) if folder == "neigh" => name != "default",
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

/// The present content of a file, if it can be read and is text. The kernel clears as much memory as is asked for.
fn text(file: &File, page: &mut [u8; 512]) -> Option<String> {
    let mut bytes = Vec::new();
    loop {
        let at = u64::try_from(bytes.len()).ok()?;
        let count = file.read_at(page, at).ok()?;
        bytes.extend_from_slice(page.get(..count)?);
        // A whole page may not be all; less is.
        if count < page.len() {
            return String::from_utf8(bytes).ok();
        }
    }
}
