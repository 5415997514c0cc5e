//! A policy that any number of containers have, by elements alone: the number of rules does not depend on theirs.
//!
//! ```text
//! table inet cni_egress {
//!     map links { type ifname : verdict; elements = { "ns1" : jump source_KEY, "ns2" : jump source_KEY } }
//!     set members4 { type ifname . ipv4_addr; elements = { "ns1" . 10.88.0.2 comment "…" } }
//!     map sources4 { type ipv4_addr : verdict; elements = { 10.88.0.2 comment "…" : jump policy_KEY } }
//!     chain source_KEY { iifname . ip saddr @members4 return; …; drop }
//! }
//! ```

use std::net::IpAddr;

use netops::OpError;
use netops::error::Result;
use netops::nft::{
    Chain, Change, DataType, Element, Expr, Meta, Name, Register, Set, Side, Transaction, Verdict, load_address_to,
    nfproto_is, octets,
};

use super::{
    Egress, LINKS, NEEDS, PURPOSE, Policy, ROUTED, any, expect_chains, expect_elements, expect_place, guarded, layouts,
    only, padded, sources, text, then,
};
use crate::names_and_comments::Names;
use crate::{Filter, base_chains, lacking, retry_when_changed};

/// The policy of a group of containers.
#[derive(Debug, Clone, Copy)]
pub struct EgressOfMany<'a> {
    /// The group: its key names the chains, and each element has its comment.
    pub group: Names<'a>,
    /// The addresses of the gateways.
    pub gateways: &'a [IpAddr],
    /// The policy.
    pub policy: &'a Policy,
}

/// A container of a group.
#[derive(Debug, Clone)]
pub struct EgressMember {
    /// The host's end of its veth, which is no port of a bridge.
    pub link: String,
    /// The container's addresses.
    pub addresses: Vec<IpAddr>,
}

fn members(is_ipv4: bool) -> Name {
    Name::Borrowed(if is_ipv4 { "members4" } else { "members6" })
}

/// The sets that every group has its elements in.
fn sets() -> [Set; 2] {
    [true, false].map(|is_ipv4| {
        let key = vec![DataType::LinkName, DataType::of(any(is_ipv4))];
        Set { table: ROUTED, name: members(is_ipv4), key, map: None }
    })
}

impl EgressOfMany<'_> {
    fn egress(&self) -> Egress<'_> {
        let Self { group, gateways, policy } = *self;
        let policies = std::slice::from_ref(policy);
        Egress { attachment: group, link: "", is_port: false, addresses: &[], gateways, policies }
    }

    /// The group's chains with their rules.
    fn chains(&self) -> Vec<(Chain, Vec<Vec<Expr>>)> {
        let (egress, chains) = (self.egress(), self.egress().chains());
        let known = [true, false].map(|is_ipv4| {
            let address = load_address_to(Side::Source, any(is_ipv4), Register::R2);
            let pair = [Expr::Meta(Meta::IifName, Register::R1), address, Expr::InSet(members(is_ipv4), Register::R1)];
            then([nfproto_is(any(is_ipv4)).to_vec(), pair.into()].concat(), Verdict::Return)
        });
        let rules = known.into_iter().chain(egress.unrouted_discovery(&ROUTED));
        let source = rules.chain([vec![Expr::Verdict(Verdict::Drop)]]).collect();
        let mut all = egress.policy_chains(&ROUTED, &chains);
        all.push((ROUTED.chain(chains.source), source));
        all
    }

    fn elements(&self, of: &[EgressMember]) -> Vec<Element> {
        let (egress, chains) = (self.egress(), self.egress().chains());
        let mut elements = Vec::new();
        for EgressMember { link, addresses } in of {
            let link = padded(link);
            elements.push(egress.element(ROUTED, LINKS, link.clone(), chains.source.clone()));
            for address in addresses {
                let (is_ipv4, octets) = (address.is_ipv4(), octets(*address));
                let key = [link.as_slice(), &octets].concat();
                let policy = chains.policies[0].clone();
                let by_source = egress.element(ROUTED, sources(is_ipv4), octets, policy);
                elements.push(Element { set: members(is_ipv4), key, data: None, ..by_source.clone() });
                elements.push(by_source);
            }
        }
        elements
    }
}

impl Filter {
    /// Makes a group's policy as it should be, and these containers members of the group. Others remain members.
    ///
    /// # Errors
    /// The kernel's refusal; a link or an address that has another policy.
    pub fn ensure_egress_of_many(&mut self, wanted: EgressOfMany<'_>, members: &[EgressMember]) -> Result<()> {
        let (nft, elements, [layout, _]) = (&mut self.nft, wanted.elements(members), layouts());
        let done = retry_when_changed::retry(|| {
            let generation = nft.generation()?;
            base_chains::wake(nft, &layout.table)?;
            let mut changes: Vec<_> = layout.objects().chain(sets().map(Change::EnsureSet)).collect();
            layout.chains.iter().try_for_each(|(chain, _)| expect_place(nft, chain))?;
            for (chain, rules) in wanted.chains().iter().chain(&layout.chains) {
                changes.push(Change::EnsureChain(chain.clone()));
                changes.extend(only(nft, chain, rules)?);
            }
            for (element, found) in elements.iter().zip(nft.find_elements(&elements)?) {
                match found {
                    Some(found) if found == *element => (),
                    Some(found) => return Err(OpError::state("create", text(&found), "it is of another policy")),
                    None => changes.push(Change::AddElement(element.clone())),
                }
            }
            nft.commit(&guarded(changes, generation))
        });
        done.map_err(|error| lacking(error, PURPOSE, NEEDS))
    }

    /// Compares the ruleset with what [`Filter::ensure_egress_of_many`] makes.
    ///
    /// # Errors
    /// The first element, chain or rule that is missing or different.
    pub fn check_egress_of_many(&mut self, wanted: EgressOfMany<'_>, members: &[EgressMember]) -> Result<()> {
        let [layout, _] = layouts();
        base_chains::expect_awake(&mut self.nft, &layout.table)?;
        layout.chains.iter().try_for_each(|(chain, _)| expect_place(&mut self.nft, chain))?;
        expect_chains(&mut self.nft, wanted.chains().into_iter().chain(layout.chains))?;
        expect_elements(&mut self.nft, &wanted.elements(members))
    }

    /// Removes a group's policy, with all of its members. Lists the elements of all policies.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn remove_egress_of_many(&mut self, group: Names<'_>) -> Result<()> {
        if !self.has_egress_table()? {
            return Ok(());
        }
        let (nft, owner) = (&mut self.nft, group.owner());
        let mut changes = Vec::new();
        for set in [LINKS, sources(true), sources(false), members(true), members(false)] {
            let mut elements = nft.list_elements(&ROUTED, &set)?;
            elements.retain(|element| owner.owns(element.comment.as_deref()));
            changes.extend(elements.into_iter().map(Change::DeleteElement));
        }
        let all = super::Chains::of(&group.key()).all();
        let found = nft.find_chains(all.each_ref())?;
        let found: Vec<_> = all.into_iter().zip(found).filter_map(|(chain, found)| found.map(|_| chain)).collect();
        changes.extend(found.iter().cloned().map(Change::FlushChain));
        changes.extend(found.into_iter().map(Change::DeleteChain));
        nft.commit_in_parts(Transaction::new(changes))
    }
}
