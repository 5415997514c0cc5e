//! Containers whose packets the node forwards, by shared rules.
//!
//! ```text
//! set accept_addresses { type ipv4_addr; elements = { 10.1.0.5 comment "…" } }
//! map accept_index { type ifname . ifname . mark : ipv4_addr }
//! chain accept_mark {
//!     type filter hook forward priority filter - 1
//!     meta mark set meta mark & 0xffffefff
//!     ip saddr @accept_addresses meta mark set meta mark | 0x00001000
//!     ct state established,related ip daddr @accept_addresses meta mark set meta mark | 0x00001000
//! }
//! chain accept_unmark { type filter hook forward priority filter + 1; meta mark set meta mark & 0xffffefff }
//! ```
//!
//! No table lets pass what another one drops. So the packets get a mark, and one rule of iptables accepts what has it. The mark is cleared
//! before and behind, so that no other program's packets pass by it, and none sees it.

use std::net::IpAddr;

use netops::error::Result;
use netops::nft::{
    BaseChain, Chain, Cmp, DataType, Element, Expr, Family, Hook, Meta, Name, Register, Set, Side, load_address, octets,
};

use super::{Entry, FAMILIES, Kind, Layout, Wanted, address_at, probe, table, unspecified};
use crate::iptables::rule::Masked;
use crate::names_and_comments::{Names, Stale};
use crate::{Filter, lacking};

const ADDRESSES: Name = Name::Borrowed("accept_addresses");
static KIND: Kind = Kind {
    index: Name::Borrowed("accept_index"),
    is_attached: true,
    sets: &[ADDRESSES],
    keys: |_family, entry| vec![(ADDRESSES, entry.to_vec())],
    address,
    text: |element| address(element).map_or_else(String::new, |address| format!("accepting packets of {address}")),
};
const PURPOSE: &str = "accept packets by shared rules";
/// The parts of the kernel that they need.
const NEEDS: &str = "nf_tables with sets and nft_ct (Linux 4.18)";
/// Connection states of nf_tables: `NF_CT_STATE_BIT` of established and related.
const ESTABLISHED_OR_RELATED: u32 = 0b110;

/// The bit of marks that says: forward this packet.
pub const ACCEPT_MARK: Masked = Masked { value: 0x1000, mask: 0x1000 };

fn address(element: &Element) -> Option<IpAddr> {
    address_at(element.table.family, &element.key)
}

/// The statement that sets or clears the mark.
fn set_mark(is_set: bool) -> [Expr; 3] {
    let kept = (!ACCEPT_MARK.mask).to_ne_bytes().into();
    let change = match is_set {
        true => Expr::MaskXor(Register::R1, kept, ACCEPT_MARK.value.to_ne_bytes().into()),
        false => Expr::Mask(Register::R1, kept),
    };
    [Expr::Meta(Meta::Mark, Register::R1), change, Expr::SetMark(Register::R1)]
}

fn base(family: Family, name: &'static str, priority: i32) -> Chain {
    Chain { base: Some(BaseChain { priority, ..BaseChain::filter(Hook::Forward) }), ..table(family).chain(name) }
}

/// The base chain that shows whether the table has been made.
fn marking(family: Family) -> Chain {
    base(family, "accept_mark", -1)
}

fn layout(family: Family) -> Layout {
    let (table, any) = (table(family), unspecified(family));
    let key = vec![DataType::of(any)];
    let sets =
        vec![Set { table: table.clone(), name: ADDRESSES, key: key.clone(), map: None }, KIND.index(&table, key)];
    let is_known = |side| [load_address(side, any), Expr::InSet(ADDRESSES, Register::R1)];
    let is_answer = [
        Expr::CtState(Register::R1),
        Expr::Mask(Register::R1, ESTABLISHED_OR_RELATED.to_ne_bytes().into()),
        Expr::Cmp(Cmp::Neq, Register::R1, vec![0; 4]),
    ];
    let (unmark, mark) = (set_mark(false).to_vec(), set_mark(true));
    let of_container = [is_known(Side::Source).as_slice(), &mark].concat();
    let of_answer = [is_answer.as_slice(), &is_known(Side::Destination), &mark].concat();
    let chains = vec![
        (marking(family), vec![unmark.clone(), of_container, of_answer]),
        (base(family, "accept_unmark", 1), vec![unmark]),
    ];
    Layout { table, sets, chains }
}

fn wanted(addresses: &[IpAddr]) -> Wanted {
    let of = |family| addresses.iter().copied().filter(move |address| Family::of(*address) == family);
    let entries = |family| of(family).map(|address| Entry { key: octets(address), data: vec![None] }).collect();
    Wanted {
        layouts: FAMILIES.into_iter().filter(|family| of(*family).next().is_some()).map(layout).collect(),
        entries: FAMILIES.map(|family| (family, &KIND, entries(family))).into(),
    }
}

impl Filter {
    /// Marks forwarded packets from these addresses, and answers to them, with [`ACCEPT_MARK`]. Returns whether the attachment had none before.
    ///
    /// # Errors
    /// The kernel's refusal; an address that another attachment has.
    pub fn add_accepted(&mut self, attachment: Names<'_>, addresses: &[IpAddr]) -> Result<bool> {
        let added = wanted(addresses).add(&mut self.nft, attachment);
        added.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }

    /// Compares the ruleset with what [`Filter::add_accepted`] makes.
    ///
    /// # Errors
    /// The first element or rule that is missing or different.
    pub fn check_accepted(&mut self, attachment: Names<'_>, addresses: &[IpAddr]) -> Result<()> {
        wanted(addresses).check(&mut self.nft, attachment)
    }

    /// Removes an attachment's addresses.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn remove_accepted(&mut self, attachment: Names<'_>) -> Result<()> {
        let found = self.nft.find_chains(FAMILIES.map(marking).each_ref())?;
        for (family, _) in FAMILIES.into_iter().zip(found).filter(|(_, found)| found.is_some()) {
            KIND.remove(&mut self.nft, family, attachment)?;
        }
        Ok(())
    }

    /// Removes the addresses of a network's attachments that are no longer valid.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn gc_accepted(&mut self, stale: &Stale) -> Result<()> {
        KIND.gc(&mut self.nft, stale).map(drop)
    }

    /// Lists the addresses of all attachments, each with its comment.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn list_accepted(&mut self) -> Result<Vec<(IpAddr, String)>> {
        let elements = KIND.list(&mut self.nft)?.into_iter();
        Ok(elements.filter_map(|element| Some((address(&element)?, element.comment?))).collect())
    }

    /// Returns whether this node can mark packets by shared rules, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature or a privilege.
    pub fn probe_accepted(&mut self) -> Result<()> {
        let tried = probe(&mut self.nft, "shared-accept", &marking(Family::Ip), || FAMILIES.map(layout).into());
        tried.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }
}
