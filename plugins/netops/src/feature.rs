//! Features that a kernel may lack, each with its module and its config option.

/// A feature that not every kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Bridges.
    Bridge,
    /// VLAN filtering on bridges.
    BridgeVlanFiltering,
    /// veth pairs.
    Veth,
    /// Links with their own Ethernet address on top of another link.
    Macvlan,
    /// Links that share the Ethernet address of another link.
    Ipvlan,
    /// VLANs of another link.
    Vlan,
    /// Links that drop everything sent to them.
    Dummy,
    /// Links with a routing table of their own (VRF).
    Vrf,
    /// Links that only shape the traffic sent through them.
    Ifb,
    /// Links to a userspace program: tun and tap.
    Tun,
    /// Token bucket filters.
    Tbf,
    /// A queue for each flow, which drops what has waited for too long.
    FqCodel,
    /// Token buckets for some of a link's packets.
    Htb,
    /// Filters for incoming packets.
    Ingress,
    /// Filters that match fields of the packet (u32) and redirect it to another link (mirred).
    Redirect,
    /// Offloads of links, by netlink.
    EthtoolNetlink,
}

impl Feature {
    /// The module to load. `None`: the feature is an option of another module and cannot be loaded on its own.
    #[must_use]
    pub fn module(self) -> Option<&'static str> {
        match self {
            Self::Bridge => Some("bridge"),
            Self::BridgeVlanFiltering => None,
            Self::Veth => Some("veth"),
            Self::Macvlan => Some("macvlan"),
            Self::Ipvlan => Some("ipvlan"),
            Self::Vlan => Some("8021q"),
            Self::Dummy => Some("dummy"),
            Self::Vrf => Some("vrf"),
            Self::Ifb => Some("ifb"),
            Self::Tun => Some("tun"),
            Self::Tbf => Some("sch_tbf"),
            Self::FqCodel => Some("sch_fq_codel"),
            Self::Htb => Some("sch_htb"),
            Self::Ingress => Some("sch_ingress"),
            Self::Redirect => Some("cls_u32 and act_mirred"),
            Self::EthtoolNetlink => None,
        }
    }

    /// The kernel's config option.
    #[must_use]
    pub fn option(self) -> &'static str {
        match self {
            Self::Bridge => "CONFIG_BRIDGE",
            Self::BridgeVlanFiltering => "CONFIG_BRIDGE_VLAN_FILTERING",
            Self::Veth => "CONFIG_VETH",
            Self::Macvlan => "CONFIG_MACVLAN",
            Self::Ipvlan => "CONFIG_IPVLAN",
            Self::Vlan => "CONFIG_VLAN_8021Q",
            Self::Dummy => "CONFIG_DUMMY",
            Self::Vrf => "CONFIG_NET_VRF",
            Self::Ifb => "CONFIG_IFB",
            Self::Tun => "CONFIG_TUN",
            Self::Tbf => "CONFIG_NET_SCH_TBF",
            Self::FqCodel => "CONFIG_NET_SCH_FQ_CODEL",
            Self::Htb => "CONFIG_NET_SCH_HTB",
            Self::Ingress => "CONFIG_NET_SCH_INGRESS",
            Self::Redirect => "CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED",
            Self::EthtoolNetlink => "CONFIG_ETHTOOL_NETLINK",
        }
    }
}
