//! MAC spoof guard in our own table: two elements a port, three rules in all.

use netops::OpError;
use netops::error::Result;
use netops::nft::{
    BaseChain, Chain, ChainType, Change, Element, Expr, Family, Hook, KeyField, KeyType, Meta, Name, Nft, Register,
    Set, Table, Transaction, Verdict, load_ether_saddr,
};

use crate::masquerade::whole_chain;
use crate::owner::{Attachment, Stale};
use crate::race;

const TABLE: Table = Table::new(Family::Bridge, "cni_spoof_guard");
/// The ports whose frames are looked at.
const GUARDED: Set =
    Set { table: TABLE, name: Name::Borrowed("guarded"), key: &[KeyType::IfName], is_verdict_map: true };
/// What each of them may send from.
const ALLOWED: Set =
    Set { table: TABLE, name: Name::Borrowed("allowed"), key: &[KeyType::IfName, KeyType::Mac], is_verdict_map: false };
const PREROUTING: Chain = Chain {
    table: TABLE,
    name: Name::Borrowed("prerouting"),
    // NF_BR_PRI_NAT_DST_BRIDGED: the place where the reference plugins check.
    base: Some(BaseChain { kind: ChainType::Filter, hook: Hook::Prerouting, priority: -300 }),
};
const GUARDED_PORT: &str = "guarded_port";
const GUARDED_PORT_RULES: u32 = 2;

/// A hardware address.
pub type Mac = [u8; 6];

fn prerouting_rules() -> Vec<Vec<Expr>> {
    vec![vec![Expr::Meta(Meta::IifName, Register::R1), Expr::VerdictMap(GUARDED.name, Register::R1)]]
}

fn guarded_port_rules() -> Vec<Vec<Expr>> {
    let is_allowed = vec![
        Expr::Meta(Meta::IifName, Register::R1),
        load_ether_saddr(Register::R2),
        Expr::InSet(ALLOWED.name, Register::R1),
        Expr::Verdict(Verdict::Return),
    ];
    vec![is_allowed, vec![Expr::Verdict(Verdict::Drop)]]
}

fn guarded(host_veth: &str) -> Element {
    let element = GUARDED.element([KeyField::IfName(host_veth.to_owned())]);
    element.verdict(Verdict::Goto(GUARDED_PORT.into()))
}

fn allowed(host_veth: &str, mac: Mac) -> Element {
    ALLOWED.element([KeyField::IfName(host_veth.to_owned()), KeyField::Mac(mac)])
}

/// Lets through what enters the bridge by `host_veth` only if it is sent from `mac`.
///
/// Done again, it changes nothing; what is noted for the port already gives way.
pub(crate) fn add(nft: &mut Nft, attachment: Attachment<'_>, host_veth: &str, mac: Mac) -> Result<()> {
    let comment = attachment.comment(&format!("{MAC_NOTE}{}, ", KeyField::Mac(mac)));
    let wanted = [guarded(host_veth).comment(&*comment), allowed(host_veth, mac).comment(comment)];
    race::retry(|| {
        let mut changes = Vec::new();
        let is_set_up = nft.find_chain(&PREROUTING)?.is_some_and(|chain| chain.uses >= 1)
            && nft.find_chain(&TABLE.chain(GUARDED_PORT))?.is_some_and(|chain| chain.uses >= GUARDED_PORT_RULES);
        if !is_set_up {
            changes.push(Change::EnsureTable(TABLE));
            changes.extend([Change::EnsureSet(GUARDED), Change::EnsureSet(ALLOWED)]);
            changes.extend(whole_chain(TABLE.chain(GUARDED_PORT), guarded_port_rules()));
            changes.extend(whole_chain(PREROUTING, prerouting_rules()));
        }
        let noted = of_port(nft, host_veth)?;
        if noted != wanted {
            changes.extend(noted.into_iter().map(Change::DeleteElement));
            changes.extend(wanted.clone().map(Change::CreateElement));
        }
        nft.commit(&Transaction::new(changes))
    })
}

/// Both sets' elements about a port. The two are written and deleted together, and the port's comment
/// tells the address; only if somebody has written another comment, all addresses are listed.
fn of_port(nft: &mut Nft, host_veth: &str) -> Result<Vec<Element>> {
    let Some(port) = nft.find_element(&GUARDED, &guarded(host_veth))? else { return Ok(Vec::new()) };
    if let Some(mac) = port.comment.as_deref().and_then(noted_mac)
        && let Some(allowed) = nft.find_element(&ALLOWED, &allowed(host_veth, mac))?
    {
        return Ok(vec![port, allowed]);
    }
    let name = port.key.first().cloned();
    let allowed = nft.list_elements(&ALLOWED)?.into_iter().filter(|element| element.key.first() == name.as_ref());
    Ok(std::iter::once(port).chain(allowed).collect())
}

const MAC_NOTE: &str = "mac: ";

fn noted_mac(comment: &str) -> Option<Mac> {
    let text = comment.split(", ").find_map(|part| part.strip_prefix(MAC_NOTE))?;
    let bytes: Vec<u8> = text.split(':').map(|byte| u8::from_str_radix(byte, 16).ok()).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

/// Removes what [`add`] made; with the last port, the table. Looks at every port unless `host_veth`
/// is given and is this attachment's.
pub(crate) fn remove(nft: &mut Nft, attachment: Attachment<'_>, host_veth: Option<&str>) -> Result<()> {
    let owner = attachment.owner();
    let owns = |element: &Element| owner.owns(element.comment.as_deref());
    delete(nft, |nft| {
        let noted = host_veth.map_or(Ok(Vec::new()), |host_veth| of_port(nft, host_veth))?;
        if noted.iter().any(owns) {
            return Ok(noted);
        }
        Ok(list(nft)?.into_iter().filter(owns).collect())
    })
}

/// Removes what attachments of a network left that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, stale: &Stale) -> Result<()> {
    delete(nft, |nft| Ok(list(nft)?.into_iter().filter(|element| stale.has(element.comment.as_deref())).collect()))
}

pub(crate) fn list(nft: &mut Nft) -> Result<Vec<Element>> {
    Ok([nft.list_elements(&GUARDED)?, nft.list_elements(&ALLOWED)?].concat())
}

fn delete(nft: &mut Nft, mut to_go: impl FnMut(&mut Nft) -> Result<Vec<Element>>) -> Result<()> {
    if nft.find_table(&TABLE)?.is_none() {
        return Ok(());
    }
    race::retry(|| {
        let changes = to_go(nft)?.into_iter().map(Change::DeleteElement).collect();
        nft.commit_in_parts(Transaction::new(changes))?;
        sweep(nft)
    })
}

/// Deletes the table when no port is guarded.
fn sweep(nft: &mut Nft) -> Result<()> {
    race::sweep(nft, |nft| {
        let port_chain = nft.find_chain(&TABLE.chain(GUARDED_PORT))?;
        let is_idle = port_chain.is_some_and(|chain| chain.uses <= GUARDED_PORT_RULES);
        Ok(if is_idle { vec![Change::DeleteTable(TABLE)] } else { Vec::new() })
    })
}

/// Compares the ruleset with what [`add`] makes.
///
/// # Errors
/// What is missing or different.
pub(crate) fn check(nft: &mut Nft, attachment: Attachment<'_>, host_veth: &str, mac: Mac) -> Result<()> {
    let owner = attachment.owner();
    for (set, wanted) in [(GUARDED, guarded(host_veth)), (ALLOWED, allowed(host_veth, mac))] {
        let found = nft.find_element(&set, &wanted)?;
        let is_ours = found.as_ref().is_some_and(|element| owner.owns(element.comment.as_deref()));
        if !is_ours {
            let object = format!("nft element {wanted}");
            return Err(OpError::state("find", object, "it was not found, or belongs to another attachment"));
        }
    }
    race::check_rules(nft, &TABLE.chain(GUARDED_PORT), &guarded_port_rules())?;
    race::check_rules(nft, &PREROUTING, &prerouting_rules())
}

/// What a kernel must be able to do for [`add`], as a transaction to try out.
pub(crate) fn trial() -> Transaction {
    let mut changes = vec![Change::EnsureTable(TABLE), Change::EnsureSet(GUARDED), Change::EnsureSet(ALLOWED)];
    changes.extend(whole_chain(TABLE.chain(GUARDED_PORT), guarded_port_rules()));
    changes.extend(whole_chain(PREROUTING, prerouting_rules()));
    Transaction::new(changes)
}

/// Whether [`add`] has worked here before, so that no trial is needed.
pub(crate) fn is_set_up(nft: &mut Nft) -> Result<bool> {
    Ok(nft.find_chain(&PREROUTING)?.is_some())
}
