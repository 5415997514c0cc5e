//! The owner of a link in a container's namespace: the one rule for DEL of all plugins, of those that make links and of
//! those that change them.
//!
//! | Evidence | Owner |
//! |---|---|
//! | a mark at the host's end of a veth | the mark's |
//! | a mark of another attachment on a link in the container alone, which may write any | the attachment's only with Ethernet address and an address of the result |
//! | no mark, an address that host-local has reserved for another attachment | that one's |
//! | no mark, the Ethernet address or an address of the result | the attachment's |
//! | no mark, a result with others | another's |
//! | no mark, no result, a namespace found by a process, whose number may be another container's | another's |
//! | no mark, no result, no address, down, and no packet ever, of a kind that ADD makes: ADD was killed before it set the mark, or is the reference's and failed | the attachment's |
//! | no mark, no result, addresses of the network's ranges that nobody has reserved: the reference's ADD failed, and has freed them | the attachment's |
//! | no mark, no result, no reservation of the attachment where the network has host-local | another's |
//! | no mark, no result, a mounted namespace | the attachment's |

use std::net::IpAddr;

use cni_spec::{AddResult, Attachment};
use netops::error::Result;
use netops::link::{self, Kind, Link};
use netops::{Kernel, Netns, addr, veth_peer};

use crate::owner_by_reservation::{Holder, Reserved};
use crate::{alias, container_only, detach, host_veth, veth};

/// The evidence for a link's owner, besides the link. None of it is needed, and none is trusted.
#[derive(Debug, Clone, Copy)]
pub struct Evidence<'a> {
    pub attachment: &'a Attachment,
    /// The result of ADD and of the plugins after it.
    pub prev: Option<&'a AddResult>,
    pub netns: &'a Netns,
    pub reserved: &'a Reserved,
    /// See [`crate::Detaching::holds_none`].
    pub holds_none: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    Own,
    /// Another's, or nothing shows that it is the attachment's: what shows so.
    Anothers(&'static str),
}

impl Whose {
    /// Whether the link is the attachment's. A link that is not is named in a warning.
    pub fn or_warn(self, link: &Link, netns: &Netns) -> bool {
        match self {
            Self::Own => true,
            Self::Anothers(why) => {
                let (link, alias, netns) = (&link.name, &link.alias, netns.path().display());
                tracing::warn!(link, alias, %netns, "left alone: {why}");
                false
            }
        }
    }
}

impl Evidence<'_> {
    /// The owner of the link. `end` is the host's end of a veth.
    /// Errors: the link's addresses cannot be read.
    pub fn whose(self, inside: &Kernel, link: &Link, end: Option<&Link>) -> Result<Whose> {
        const ITS_MARK: &str = "its mark names another attachment";
        match end {
            Some(end) if host_veth::is_of(self.attachment, end) => return Ok(Whose::Own),
            Some(end) if alias::is_marked(end) => return Ok(Whose::Anothers(ITS_MARK)),
            _ if link.kind == Kind::Veth => {}
            Some(_) | None if link.alias.as_deref() == Some(&*alias::of(self.attachment)) => {
                return Ok(Whose::Own);
            }
            Some(_) | None if container_only::has_mark_of_another(self.attachment, link) => {
                let found = self.look(inside, link)?;
                let is_own = found.has_mac && found.has_address && !found.is_reserved_for_another();
                return Ok(if is_own { Whose::Own } else { Whose::Anothers("its alias names another attachment") });
            }
            Some(_) | None => {}
        }
        self.of_unmarked(inside, link)
    }

    /// The owner of a link without a mark.
    /// Errors: the link's addresses cannot be read.
    pub fn of_unmarked(self, inside: &Kernel, link: &Link) -> Result<Whose> {
        let found = self.look(inside, link)?;
        let is_shown = found.has_mac || found.has_address || found.holders.contains(&Holder::Own);
        let whose = match () {
            () if found.is_reserved_for_another() => {
                Whose::Anothers("host-local has its address reserved for another attachment")
            }
            () if is_shown => Whose::Own,
            () if found.is_of_other_network() => {
                Whose::Anothers("host-local has its address reserved for an attachment to another network")
            }
            () if found.is_another => Whose::Anothers("the result shows another link"),
            () if !matches!(self.netns.is_by_process(), Ok(false)) => {
                Whose::Anothers("nothing shows that it is this container's")
            }
            () if found.is_unfinished || found.is_freed => Whose::Own,
            () if self.holds_none => Whose::Anothers("this attachment has no address, and no result shows its link"),
            () => Whose::Own,
        };
        Ok(whose)
    }

    fn look(self, inside: &Kernel, link: &Link) -> Result<Signs> {
        let Self { attachment, prev, reserved, .. } = self;
        let addresses: Vec<IpAddr> = addr::list(inside, link)?.into_iter().map(|address| address.net.ip()).collect();
        let addresses: Vec<IpAddr> = addresses.into_iter().filter(|ip| veth_peer::is_of_one(*ip)).collect();
        let listed = prev.map(|prev| detach::addresses_of(prev, attachment)).unwrap_or_default();
        let has_address = addresses.iter().any(|ip| listed.contains(ip));
        let has_same_mac = veth::is_of_result(attachment, prev, link);
        // All links on one master have its Ethernet address.
        let is_shared = matches!(link.kind, Kind::Ipvlan(_) | Kind::Vlan(_));
        let has_other_mac = !has_same_mac && veth::mac_of_result(attachment, prev).is_some();
        // No `_`: a new kind has to be decided here.
        let is_of_kind_made = match link.kind {
            Kind::Veth | Kind::Macvlan(_) | Kind::Ipvlan(_) | Kind::Vlan(_) | Kind::Dummy => true,
            Kind::None | Kind::Bridge(_) | Kind::Vrf(_) | Kind::Ifb | Kind::Tun(_) | Kind::Other(_) => false,
        };
        let is_unnamed = is_of_kind_made && link.alias.is_none();
        let holders: Vec<Holder> = addresses.iter().filter_map(|ip| reserved.holder(attachment, *ip)).collect();
        let has_others = !listed.is_empty() && !addresses.is_empty() && !has_address;
        Ok(Signs {
            has_mac: has_same_mac && (!is_shared || has_address),
            has_address,
            is_another: has_other_mac || has_others,
            is_unfinished: is_unnamed && !link.up && addresses.is_empty() && !link::has_carried(inside, link)?,
            is_freed: is_unnamed && !addresses.is_empty() && holders.is_empty() && reserved.may_have_given(&addresses),
            holders,
        })
    }
}

/// The signs by which a link's owner is told.
struct Signs {
    /// The link has the Ethernet address of the result, and no other link has.
    has_mac: bool,
    /// The link has an address of the result.
    has_address: bool,
    /// The result shows another Ethernet address, or other addresses.
    is_another: bool,
    /// The link is as ADD makes it, before it has mark and addresses and is up: nothing uses it.
    is_unfinished: bool,
    /// The link has addresses of the network's ranges, and nobody has reserved one: a failed ADD has freed them.
    is_freed: bool,
    /// The owners of the link's addresses.
    holders: Vec<Holder>,
}

impl Signs {
    fn is_reserved_for_another(&self) -> bool {
        let is_another = |holder: &Holder| matches!(holder, Holder::OtherInterface | Holder::OtherContainer);
        !self.holders.contains(&Holder::Own) && self.holders.iter().any(is_another)
    }

    fn is_of_other_network(&self) -> bool {
        self.holders.contains(&Holder::OtherNetwork)
    }
}
