//! The features of the kernel under test, and the reports of skipped tests.

use std::fmt;
use std::fs::{self, File};
use std::io::Write;
use std::sync::{Once, OnceLock};
use std::thread;

use netlink_packet_route::link::{InfoBridge, InfoData, InfoKind, InfoVlan, InfoVrf};
use nix::sched::CloneFlags;

use crate::tc::try_qdisc;
use crate::topology::try_link;

/// Something that a kernel may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// VLAN links, module 8021q.
    Vlan,
    /// VLAN filtering on bridges, `CONFIG_BRIDGE_VLAN_FILTERING`.
    BridgeVlanFiltering,
    Ipvlan,
    Macvlan,
    Dummy,
    Vrf,
    Ifb,
    /// tun and tap links: `/dev/net/tun` is there and may be opened.
    Tun,
    /// Queues of kind `fq_codel`.
    FqCodel,
    /// SELinux, chosen when the kernel started.
    Selinux,
}

impl Feature {
    pub const ALL: [Self; 10] = [
        Self::Vlan,
        Self::BridgeVlanFiltering,
        Self::Ipvlan,
        Self::Macvlan,
        Self::Dummy,
        Self::Vrf,
        Self::Ifb,
        Self::Tun,
        Self::FqCodel,
        Self::Selinux,
    ];

    /// Returns whether this kernel has the feature, tested in a namespace of its own.
    pub fn is_here(self) -> bool {
        static HERE: OnceLock<Vec<Feature>> = OnceLock::new();
        let here = HERE.get_or_init(|| {
            let all = Self::ALL.into_iter();
            all.filter(|feature| feature.try_out()).collect()
        });
        here.contains(&self)
    }

    /// Returns whether this kernel has the feature; if not, prints that the calling test is skipped.
    ///
    /// ```no_run
    /// # use testns::Feature;
    /// if !Feature::Vlan.or_skip() {
    ///     return;
    /// }
    /// ```
    pub fn or_skip(self) -> bool {
        if !self.is_here() {
            let thread = thread::current();
            skip(thread.name().unwrap_or("test"), &format!("the kernel has no {self}"));
        }
        self.is_here()
    }

    fn try_out(self) -> bool {
        let attempt = thread::spawn(move || nix::sched::unshare(CloneFlags::CLONE_NEWNET).is_ok() && self.try_here());
        attempt.join().unwrap_or(false)
    }

    fn try_here(self) -> bool {
        let veth = || try_link(InfoKind::Veth, None, None).then_some("t-veth");
        let with_parent = |kind, data| veth().is_some_and(|veth| try_link(kind, Some(veth), data));
        let filtering = InfoData::Bridge(vec![InfoBridge::VlanFiltering(true)]);
        match self {
            Self::Vlan => with_parent(InfoKind::Vlan, Some(InfoData::Vlan(vec![InfoVlan::Id(1)]))),
            Self::BridgeVlanFiltering => try_link(InfoKind::Bridge, None, Some(filtering)),
            Self::Ipvlan => with_parent(InfoKind::IpVlan, None),
            Self::Macvlan => with_parent(InfoKind::MacVlan, None),
            Self::Dummy => try_link(InfoKind::Dummy, None, None),
            Self::Vrf => try_link(InfoKind::Vrf, None, Some(InfoData::Vrf(vec![InfoVrf::TableId(1)]))),
            Self::Ifb => try_link(InfoKind::Ifb, None, None),
            Self::Tun => File::options().read(true).write(true).open("/dev/net/tun").is_ok(),
            Self::FqCodel => try_qdisc("fq_codel"),
            Self::Selinux => fs::read_to_string("/proc/filesystems").is_ok_and(|text| text.contains("selinuxfs")),
        }
    }
}

impl fmt::Display for Feature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Vlan => "8021q",
            Self::BridgeVlanFiltering => "bridge VLAN filtering",
            Self::Ipvlan => "ipvlan",
            Self::Macvlan => "macvlan",
            Self::Dummy => "dummy",
            Self::Vrf => "vrf",
            Self::Ifb => "ifb",
            Self::Tun => "tun",
            Self::FqCodel => "fq_codel",
            Self::Selinux => "SELinux",
        })
    }
}

/// Prints that a test was skipped and why, as [`note`] does.
///
/// The line is `SKIP name: why`, for CI to list: a skip is no pass.
pub fn skip(name: &str, why: &str) {
    note(&format!("SKIP {name}: {why}"));
}

/// Writes each panic as [`note`] does, too: the harness shows what it has captured only when all tests have ended.
pub fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            note(&format!("PANIC {}: {info}", std::thread::current().name().unwrap_or_default()));
            before(info);
        }));
    });
}

/// Writes a line to stderr, past the capture of the test harness.
pub fn note(line: &str) {
    // Write once, so that lines of parallel tests stay whole. If stderr is closed, the error cannot be reported.
    std::io::stderr().write_all(format!("{line}\n").as_bytes()).ok();
}
