//! What a kernel may lack, with the module that has it and the option that it is built by.

/// Something that not every kernel has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    /// Bridges.
    Bridge,
    /// VLAN filtering on bridges.
    BridgeVlanFiltering,
    /// Pairs of links.
    Veth,
    /// Links with their own address on another link.
    Macvlan,
    /// Links that share another link's address.
    Ipvlan,
    /// VLANs of another link.
    Vlan,
    /// Links that drop what they are given.
    Dummy,
    /// Links that are routing tables of their own.
    Vrf,
    /// Links that only shape what passes.
    Ifb,
    /// Links to a program: tun and tap.
    Tun,
    /// Token buckets.
    Tbf,
    /// Filters for what comes in.
    Ingress,
    /// Filters that match by words of the packet and send it elsewhere.
    Redirect,
}

impl Feature {
    /// The module to load; `None` for what is a part of another one, and only there if the kernel was built with it.
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
            Self::Ingress => Some("sch_ingress"),
            Self::Redirect => Some("cls_u32 and act_mirred"),
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
            Self::Ingress => "CONFIG_NET_SCH_INGRESS",
            Self::Redirect => "CONFIG_NET_CLS_U32, CONFIG_NET_ACT_MIRRED",
        }
    }
}
