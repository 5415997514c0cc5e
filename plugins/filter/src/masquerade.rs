//! Masquerade in our own table: an element a container address, three rules a prefix.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::OpError;
use netops::error::Result;
use netops::nft::{
    BaseChain, Chain, ChainType, Change, Element, Expr, Family, Hook, KeyField, KeyType, Name, Nft, Register, Set,
    Side, Table, Transaction, Verdict, address_in, load_address, nfproto_is,
};

use crate::owner::{Attachment, Stale};
use crate::race;

const TABLE: Table = Table::new(Family::Inet, "cni_masquerade");
const SOURCES4: Set =
    Set { table: TABLE, name: Name::Borrowed("sources4"), key: &[KeyType::Ip4], is_verdict_map: true };
const SOURCES6: Set =
    Set { table: TABLE, name: Name::Borrowed("sources6"), key: &[KeyType::Ip6], is_verdict_map: true };
const SOURCES: [Set; 2] = [SOURCES4, SOURCES6];
const POSTROUTING: Chain = Chain {
    table: TABLE,
    name: Name::Borrowed("postrouting"),
    // NF_IP_PRI_NAT_SRC, nft's `srcnat`.
    base: Some(BaseChain { kind: ChainType::Nat, hook: Hook::Postrouting, priority: 100 }),
};

/// Masquerades what these addresses send to anywhere but their own prefix and multicast.
///
/// Done again, it changes nothing; an address that is noted for another attachment is taken over,
/// since IPAM gives an address to one attachment at a time.
pub(crate) fn add(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpNetwork]) -> Result<()> {
    race::retry(|| {
        let changes = plan(attachment, &observe(nft, addresses)?);
        nft.commit(&Transaction::new(changes))
    })
}

/// What of the ruleset [`plan`] depends on.
struct Seen {
    has_postrouting: bool,
    sources: Vec<SeenSource>,
}

struct SeenSource {
    address: IpNetwork,
    has_prefix_chain: bool,
    element: Option<Element>,
}

fn observe(nft: &mut Nft, addresses: &[IpNetwork]) -> Result<Seen> {
    let mut has = |chain: &Chain, rules: &[Vec<Expr>]| {
        let found = nft.find_chain(chain)?;
        // A chain that lost its rules is made anew: its uses are its rules and what goes there.
        Ok::<_, OpError>(found.is_some_and(|found| usize::try_from(found.uses).is_ok_and(|uses| uses >= rules.len())))
    };
    let has_postrouting = has(&POSTROUTING, &postrouting_rules())?;
    let sources = addresses.iter().map(|address| {
        let has_prefix_chain = has(&prefix_chain(*address), &prefix_rules(*address))?;
        Ok(SeenSource { address: *address, has_prefix_chain, element: None })
    });
    let mut sources = sources.collect::<Result<Vec<_>>>()?;
    for source in &mut sources {
        source.element = find_element(nft, source.address.ip())?;
    }
    Ok(Seen { has_postrouting, sources })
}

fn plan(attachment: Attachment<'_>, seen: &Seen) -> Vec<Change> {
    let mut changes = Vec::new();
    if !seen.has_postrouting {
        changes.push(Change::EnsureTable(TABLE));
        changes.extend(SOURCES.map(Change::EnsureSet));
        changes.extend(whole_chain(POSTROUTING, postrouting_rules()));
    }
    let mut made = Vec::new();
    for source in &seen.sources {
        let chain = prefix_chain(source.address);
        if !source.has_prefix_chain && !made.contains(&chain.name) {
            made.push(chain.name.clone());
            changes.extend(whole_chain(chain, prefix_rules(source.address)));
        }
        let wanted = element(attachment, source.address);
        if source.element.as_ref() == Some(&wanted) {
            continue;
        }
        changes.extend(source.element.clone().map(Change::DeleteElement));
        changes.push(Change::CreateElement(wanted));
    }
    changes
}

/// A chain with exactly these rules. Whoever is second to create it flushes what the first wrote
/// and writes the same: nobody is refused, and no packet sees it empty.
pub(crate) fn whole_chain(chain: Chain, rules: Vec<Vec<Expr>>) -> Vec<Change> {
    let mut changes = vec![Change::EnsureChain(chain.clone()), Change::FlushChain(chain.clone())];
    changes.extend(rules.into_iter().map(|exprs| Change::AppendRule(chain.rule(exprs))));
    changes
}

fn postrouting_rules() -> Vec<Vec<Expr>> {
    let multicast = MULTICAST.map(|prefix| {
        let mut rule = address_in(Side::Destination, prefix);
        rule.push(Expr::Verdict(Verdict::Return));
        rule
    });
    let lookups = SOURCES.into_iter().zip(MULTICAST).map(|(set, of_family)| {
        let mut rule = nfproto_is(of_family.ip()).to_vec();
        rule.push(load_address(Side::Source, of_family.ip()));
        rule.push(Expr::VerdictMap(set.name, Register::R1));
        rule
    });
    multicast.into_iter().chain(lookups).collect()
}

/// RFC 5771 and RFC 4291: 224.0.0.0/4 and ff00::/8.
const MULTICAST: [IpNetwork; 2] = [
    IpNetwork::V4(match ipnetwork::Ipv4Network::new_checked(std::net::Ipv4Addr::new(224, 0, 0, 0), 4) {
        Some(prefix) => prefix,
        None => panic!("a constant prefix"),
    }),
    IpNetwork::V6(match ipnetwork::Ipv6Network::new_checked(std::net::Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8) {
        Some(prefix) => prefix,
        None => panic!("a constant prefix"),
    }),
];

/// What starts the name of a chain for one prefix.
const PREFIX_CHAIN: &str = "from_";

/// nft(8) has no `:` in names: `from_fd00--/64` is for fd00::/64.
fn prefix_chain(address: IpNetwork) -> Chain {
    let prefix = format!("{PREFIX_CHAIN}{}/{}", address.network(), address.prefix());
    TABLE.chain(prefix.replace(':', "-"))
}

fn prefix_rules(address: IpNetwork) -> Vec<Vec<Expr>> {
    let mut stays_inside = address_in(Side::Destination, address);
    stays_inside.push(Expr::Verdict(Verdict::Return));
    vec![stays_inside, vec![Expr::Masquerade]]
}

fn sources_for(address: IpAddr) -> Set {
    if address.is_ipv4() { SOURCES4 } else { SOURCES6 }
}

fn key_element(address: IpAddr) -> Element {
    sources_for(address).element([KeyField::Ip(address)])
}

fn element(attachment: Attachment<'_>, address: IpNetwork) -> Element {
    let goto = Verdict::Goto(prefix_chain(address).name);
    key_element(address.ip()).verdict(goto).comment(attachment.comment(""))
}

fn find_element(nft: &mut Nft, address: IpAddr) -> Result<Option<Element>> {
    nft.find_element(&sources_for(address), &key_element(address))
}

/// Removes what [`add`] made, and with the last element of a prefix or of all, the chain or the
/// table. Looks at every element when it isn't told the addresses.
pub(crate) fn remove(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpAddr]) -> Result<()> {
    if nft.find_table(&TABLE)?.is_none() {
        return Ok(());
    }
    let owner = attachment.owner();
    race::retry(|| {
        let found = if addresses.is_empty() { list_elements(nft)? } else { find_elements(nft, addresses)? };
        // An address may be somebody else's by now.
        let mine = found.into_iter().filter(|element| owner.owns(element.comment.as_deref()));
        delete(nft, mine.collect())
    })
}

/// Removes what attachments of a network left that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, stale: &Stale) -> Result<()> {
    race::retry(|| {
        let found = list_elements(nft)?;
        delete(nft, found.into_iter().filter(|element| stale.has(element.comment.as_deref())).collect())
    })
}

pub(crate) fn list_elements(nft: &mut Nft) -> Result<Vec<Element>> {
    let mut found = nft.list_elements(&SOURCES4)?;
    found.extend(nft.list_elements(&SOURCES6)?);
    Ok(found)
}

fn find_elements(nft: &mut Nft, addresses: &[IpAddr]) -> Result<Vec<Element>> {
    let found = addresses.iter().filter_map(|address| find_element(nft, *address).transpose());
    found.collect()
}

fn delete(nft: &mut Nft, elements: Vec<Element>) -> Result<()> {
    let chains: Vec<Chain> = elements
        .iter()
        .filter_map(|element| element.verdict.as_ref()?.chain().map(|name| TABLE.chain(name.to_owned())))
        .collect();
    let changes = elements.into_iter().map(Change::DeleteElement).collect();
    nft.commit_in_parts(Transaction::new(changes))?;
    // The usual end, at the cost of one question: others still use the chain.
    for chain in &chains {
        if nft.find_chain(chain)?.is_some_and(|chain| chain.uses <= PREFIX_CHAIN_RULES) {
            return sweep(nft);
        }
    }
    // Nothing of ours: an earlier DEL may have been killed before it swept.
    if chains.is_empty() { sweep(nft) } else { Ok(()) }
}

const PREFIX_CHAIN_RULES: u32 = 2;

/// Deletes the prefix chains that no element goes to, or the table when that is all of them.
fn sweep(nft: &mut Nft) -> Result<()> {
    race::sweep(nft, |nft| {
        let chains = nft.list_chains(&TABLE)?;
        let (prefixes, others): (Vec<_>, Vec<_>) =
            chains.into_iter().partition(|chain| chain.name.starts_with(PREFIX_CHAIN));
        let idle: Vec<_> = prefixes.iter().filter(|chain| chain.uses <= PREFIX_CHAIN_RULES).collect();
        let is_ours_alone = others.iter().all(|chain| chain.name == POSTROUTING.name);
        if idle.len() == prefixes.len() && is_ours_alone && !others.is_empty() {
            return Ok(vec![Change::DeleteTable(TABLE)]);
        }
        Ok(idle.into_iter().map(|chain| Change::DeleteChain(TABLE.chain(chain.name.clone()))).collect())
    })
}

/// Compares the ruleset with what [`add`] makes.
///
/// # Errors
/// What is missing or different.
pub(crate) fn check(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpNetwork]) -> Result<()> {
    let owner = attachment.owner();
    for address in addresses {
        let object = format!("masquerade of {} in nft map {} {}", address.ip(), TABLE, sources_for(address.ip()).name);
        let lacks = |sentence: &str| Err(OpError::state("find", object.clone(), sentence));
        match find_element(nft, address.ip())? {
            None => return lacks("the element was not found"),
            Some(found) if !owner.owns(found.comment.as_deref()) => {
                return lacks("the element belongs to another attachment");
            }
            Some(found) if found.verdict != element(attachment, *address).verdict => {
                return lacks("the element goes to another prefix's chain");
            }
            Some(_) => {}
        }
        race::check_rules(nft, &prefix_chain(*address), &prefix_rules(*address))?;
    }
    if addresses.is_empty() {
        return Ok(());
    }
    race::check_rules(nft, &POSTROUTING, &postrouting_rules())
}

/// What a kernel must be able to do for [`add`], as a transaction to try out.
pub(crate) fn trial() -> Transaction {
    let seen = Seen { has_postrouting: false, sources: Vec::new() };
    let nobody = Attachment { network: "", container: "", ifname: "" };
    let mut changes = plan(nobody, &seen);
    changes.extend(whole_chain(TABLE.chain("trial"), prefix_rules(MULTICAST[0])));
    Transaction::new(changes)
}

/// Whether [`add`] has worked here before, so that no trial is needed.
pub(crate) fn is_set_up(nft: &mut Nft) -> Result<bool> {
    Ok(nft.find_chain(&POSTROUTING)?.is_some())
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    const POD: Attachment<'_> = Attachment { network: "office", container: "c1", ifname: "eth0" };

    fn check(seen: &Seen, expect: &Expect) {
        expect.assert_eq(&Transaction::new(plan(POD, seen)).to_string());
    }

    fn source(address: &str, has_prefix_chain: bool, element: Option<Element>) -> SeenSource {
        SeenSource { address: address.parse().unwrap(), has_prefix_chain, element }
    }

    #[test]
    fn plans() {
        let fresh = Seen {
            has_postrouting: false,
            sources: vec![source("10.1.0.5/24", false, None), source("10.1.0.6/24", false, None)],
        };
        check(
            &fresh,
            &expect![[r#"
            create nft table inet cni_masquerade
            create nft map inet cni_masquerade sources4
            create nft map inet cni_masquerade sources6
            create nft chain inet cni_masquerade postrouting
            flush nft chain inet cni_masquerade postrouting
            create nft rule inet cni_masquerade postrouting [ meta load nfproto => reg 1 ] [ cmp eq reg 1 0x00000002 ] [ payload load 4b @ network header + 16 => reg 1 ] [ bitwise reg 1 = ( reg 1 & 0x000000f0 ) ^ 0x00000000 ] [ cmp eq reg 1 0x000000e0 ] [ immediate reg 0 return ]
            create nft rule inet cni_masquerade postrouting [ meta load nfproto => reg 1 ] [ cmp eq reg 1 0x0000000a ] [ payload load 16b @ network header + 24 => reg 1 ] [ bitwise reg 1 = ( reg 1 & 0x000000ff 0x00000000 0x00000000 0x00000000 ) ^ 0x00000000 0x00000000 0x00000000 0x00000000 ] [ cmp eq reg 1 0x000000ff 0x00000000 0x00000000 0x00000000 ] [ immediate reg 0 return ]
            create nft rule inet cni_masquerade postrouting [ meta load nfproto => reg 1 ] [ cmp eq reg 1 0x00000002 ] [ payload load 4b @ network header + 12 => reg 1 ] [ lookup reg 1 set sources4 dreg 0 ]
            create nft rule inet cni_masquerade postrouting [ meta load nfproto => reg 1 ] [ cmp eq reg 1 0x0000000a ] [ payload load 16b @ network header + 8 => reg 1 ] [ lookup reg 1 set sources6 dreg 0 ]
            create nft chain inet cni_masquerade from_10.1.0.0/24
            flush nft chain inet cni_masquerade from_10.1.0.0/24
            create nft rule inet cni_masquerade from_10.1.0.0/24 [ meta load nfproto => reg 1 ] [ cmp eq reg 1 0x00000002 ] [ payload load 4b @ network header + 16 => reg 1 ] [ bitwise reg 1 = ( reg 1 & 0x00ffffff ) ^ 0x00000000 ] [ cmp eq reg 1 0x0000010a ] [ immediate reg 0 return ]
            create nft rule inet cni_masquerade from_10.1.0.0/24 [ masq ]
            create nft element inet cni_masquerade sources4 { 10.1.0.5 comment "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1" : goto -> from_10.1.0.0/24 }
            create nft element inet cni_masquerade sources4 { 10.1.0.6 comment "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1" : goto -> from_10.1.0.0/24 }
        "#]],
        );
        let usual = Seen { has_postrouting: true, sources: vec![source("fd00::5/64", true, None)] };
        check(
            &usual,
            &expect![[r#"
            create nft element inet cni_masquerade sources6 { fd00::5 comment "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1" : goto -> from_fd00--/64 }
        "#]],
        );
        let other = Attachment { container: "c0", ..POD };
        let address = "10.1.0.5/24".parse().unwrap();
        let stale = source("10.1.0.5/24", true, Some(element(other, address)));
        check(
            &Seen { has_postrouting: true, sources: vec![stale] },
            &expect![[r#"
            delete nft element inet cni_masquerade sources4 { 10.1.0.5 comment "f358a8caf95e1889-2a0d3e57a9666b18, net: office, if: eth0, id: c0" : goto -> from_10.1.0.0/24 }
            create nft element inet cni_masquerade sources4 { 10.1.0.5 comment "f358a8caf95e1889-f4d01f2ef4b92245, net: office, if: eth0, id: c1" : goto -> from_10.1.0.0/24 }
        "#]],
        );
        let same = source("10.1.0.5/24", true, Some(element(POD, address)));
        check(&Seen { has_postrouting: true, sources: vec![same] }, &expect![[""]]);
    }
}
