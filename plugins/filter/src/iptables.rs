//! Masquerade as the reference's iptables backend has it, for `ipMasqBackend: iptables`; and the
//! removal of it, whoever made it.
//!
//! Writing is one restore a family. Reading and removing needs no child process where iptables is the nft variant:
//! its rules are in table `nat` of nf_tables. The legacy variant's are out of netlink's reach.

use std::fs;
use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::OpError;
use netops::error::Result;
use netops::nft::{Chain, Change, Family, Nft, Rule, Table, Transaction};

use crate::executable::{self, LOCK_WAIT_SECONDS};
use crate::nat_chain::{self, NatChain, NatRule, Removal};
use crate::owner::Attachment;
use crate::race;

/// `struct xt_comment_info`: 256 bytes with the final NUL.
const COMMENT_MAX: usize = 255;

/// What differs between iptables and ip6tables.
#[derive(Debug, Clone, Copy)]
struct Tool {
    family: Family,
    restore: &'static str,
    legacy_save: [&'static str; 2],
    legacy_restore: [&'static str; 2],
    legacy_tables: &'static str,
    multicast: &'static str,
}

// thread-self, as a thread may be in another namespace than the process.
const TOOLS: [Tool; 2] = [
    Tool {
        family: Family::Ip,
        restore: "iptables-restore",
        legacy_save: ["iptables-legacy-save", "iptables-save"],
        legacy_restore: ["iptables-legacy-restore", "iptables-restore"],
        legacy_tables: "/proc/thread-self/net/ip_tables_names",
        multicast: "224.0.0.0/4",
    },
    Tool {
        family: Family::Ip6,
        restore: "ip6tables-restore",
        legacy_save: ["ip6tables-legacy-save", "ip6tables-save"],
        legacy_restore: ["ip6tables-legacy-restore", "ip6tables-restore"],
        legacy_tables: "/proc/thread-self/net/ip6_tables_names",
        multicast: "ff00::/8",
    },
];

impl Tool {
    fn is_for(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self.family == Family::Ip)
    }

    fn nat(self) -> Table {
        Table::new(self.family, "nat")
    }

    /// The chain as iptables-nft has it.
    fn read_nft(self, nft: &mut Nft, name: &str) -> Result<Option<NatChain<Rule>>> {
        let chain = self.nat().chain(name.to_owned());
        if nft.find_chain(&chain)?.is_none() {
            return Ok(None);
        }
        let rules = nft.list_rules(&chain)?.into_iter().map(nat_chain::from_nft).collect();
        let postrouting = nft.list_rules(&self.nat().chain("POSTROUTING"))?;
        let jumps = postrouting.into_iter().filter(|rule| rule.goes_to() == Some(name));
        Ok(Some(NatChain { rules, jumps: jumps.map(nat_chain::from_nft).collect() }))
    }

    /// The chains as the legacy variant saves them; `None` if it is not in use, or not installed.
    fn read_legacy(self) -> Result<Option<String>> {
        // Absent without the module; there is no error that would mean "in use".
        let tables = fs::read_to_string(self.legacy_tables).unwrap_or_default();
        if !tables.lines().any(|table| table == "nat") {
            return Ok(None);
        }
        let Some(save) = executable::find(&self.legacy_save) else {
            tracing::warn!("legacy iptables rules are in use, but {} is not installed", self.legacy_save[0]);
            return Ok(None);
        };
        executable::run(&save, &["-t", "nat"], "").map(Some)
    }

    fn restore_legacy(self, lines: &str) -> Result<()> {
        let program = self.legacy_restore;
        let Some(restore) = executable::find(&program) else {
            return Err(OpError::state("run", program[0], "it was not found in the system's folders"));
        };
        executable::run(&restore, &["--noflush", "-w", LOCK_WAIT_SECONDS], lines).map(drop)
    }
}

/// Writes the reference's rules for these addresses.
pub(crate) fn add(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpNetwork]) -> Result<()> {
    let ips: Vec<_> = addresses.iter().map(IpNetwork::ip).collect();
    for tool in TOOLS {
        let own: Vec<_> = addresses.iter().filter(|address| tool.is_for(address.ip())).copied().collect();
        if own.is_empty() {
            continue;
        }
        // An ADD repeated, or cut off.
        remove_with(tool, nft, attachment, &ips)?;
        let chain = attachment.iptables_chain();
        let is_shared = tool.read_nft(nft, &chain)?.is_some()
            || tool.read_legacy()?.is_some_and(|text| nat_chain::from_save(&text, &chain).is_some());
        let Some(restore) = executable::find(&[tool.restore]) else {
            let sentence = "it was not found in the system's folders; install iptables, or remove \
                            ipMasqBackend from the network's configuration";
            return Err(OpError::state("run", tool.restore, sentence));
        };
        let lines = restore_lines(attachment, &own, tool.multicast, is_shared);
        executable::run(&restore, &["--noflush", "-w", LOCK_WAIT_SECONDS], &lines)?;
    }
    Ok(())
}

fn restore_lines(attachment: Attachment<'_>, addresses: &[IpNetwork], multicast: &str, is_shared: bool) -> String {
    let Attachment { network, container, ifname } = attachment;
    let chain = attachment.iptables_chain();
    let reference = format!("name: \"{network}\" id: \"{container}\"");
    let comment = quoted(&reference);
    let mut lines = "*nat\n".to_owned();
    if !is_shared {
        // Restore would empty a chain that is there.
        lines += &format!(":{chain} - [0:0]\n-A {chain} ! -d {multicast} {comment} -j MASQUERADE\n");
    }
    for address in addresses {
        let own = quoted(&(reference.clone() + &nat_chain::note(ifname, address.ip())));
        lines += &format!("-I {chain} 1 -d {}/{} {own} -j ACCEPT\n", address.network(), address.prefix());
        lines += &format!("-A POSTROUTING -s {} {comment} -j {chain}\n", address.ip());
    }
    lines + "COMMIT\n"
}

/// A comment as restore reads it: cut to what fits, and without a way out of the quotes.
pub(crate) fn quoted(comment: &str) -> String {
    let end = comment.floor_char_boundary(COMMENT_MAX);
    let text = comment.get(..end).unwrap_or_default().replace(char::is_control, " ");
    format!("-m comment --comment \"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Removes the rules of an attachment, whether this program or the reference plugin wrote them; the
/// chain stays while another attachment of the container uses it.
pub(crate) fn remove(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpAddr]) -> Result<()> {
    let [ipv4, ipv6] = TOOLS.map(|tool| remove_with(tool, nft, attachment, addresses));
    ipv4.and(ipv6)
}

fn remove_with(tool: Tool, nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpAddr]) -> Result<()> {
    let name = attachment.iptables_chain();
    race::retry(|| {
        let Some(chain) = tool.read_nft(nft, &name)? else { return Ok(()) };
        delete_nft(nft, tool.nat().chain(name.clone()), chain.removal(attachment, addresses))
    })?;
    let Some(text) = tool.read_legacy()? else { return Ok(()) };
    let Some(chain) = nat_chain::from_save(&text, &name) else { return Ok(()) };
    delete_legacy(tool, &name, chain.removal(attachment, addresses))
}

fn delete_nft(nft: &mut Nft, chain: Chain, removal: Removal<Rule>) -> Result<()> {
    let changes = match removal {
        Removal::Rules(rules) => rules.into_iter().map(Change::DeleteRule).collect(),
        Removal::Chain(jumps) => {
            let mut changes: Vec<_> = jumps.into_iter().map(Change::DeleteRule).collect();
            changes.extend([Change::FlushChain(chain.clone()), Change::DeleteChain(chain)]);
            changes
        }
    };
    nft.commit(&Transaction::new(changes))
}

fn delete_legacy(tool: Tool, chain: &str, removal: Removal<String>) -> Result<()> {
    let (rules, end) = match removal {
        Removal::Rules(rules) if rules.is_empty() => return Ok(()),
        Removal::Rules(rules) => (rules, String::new()),
        Removal::Chain(jumps) => (jumps, format!("-F {chain}\n-X {chain}\n")),
    };
    let rules: String = rules.iter().map(|rule| format!("-D {rule}\n")).collect();
    tool.restore_legacy(&format!("*nat\n{rules}{end}COMMIT\n"))
}

/// Removes the chains of a network's containers that have no valid attachment, and from the chains of
/// the others what is noted for interfaces that are no longer valid.
pub(crate) fn gc(nft: &mut Nft, network: &str, valid: &[Attachment<'_>]) -> Result<()> {
    let [ipv4, ipv6] = TOOLS.map(|tool| gc_with(tool, nft, network, valid));
    ipv4.and(ipv6)
}

fn gc_with(tool: Tool, nft: &mut Nft, network: &str, valid: &[Attachment<'_>]) -> Result<()> {
    let names = nft.list_chains(&tool.nat())?.into_iter().map(|chain| chain.name);
    for name in names.filter(|name| is_container_chain(name)) {
        race::retry(|| {
            let Some(chain) = tool.read_nft(nft, &name)? else { return Ok(()) };
            let removal = stale(&chain, &name, network, valid);
            removal.map_or(Ok(()), |removal| delete_nft(nft, tool.nat().chain(name.clone()), removal))
        })?;
    }
    let Some(text) = tool.read_legacy()? else { return Ok(()) };
    let declared = text.lines().filter_map(|line| line.strip_prefix(':')?.split(' ').next());
    for name in declared.filter(|name| is_container_chain(name)) {
        let Some(chain) = nat_chain::from_save(&text, name) else { continue };
        if let Some(removal) = stale(&chain, name, network, valid) {
            delete_legacy(tool, name, removal)?;
        }
    }
    Ok(())
}

/// What of a chain is a network's and nobody's.
fn stale<T: Clone>(chain: &NatChain<T>, name: &str, network: &str, valid: &[Attachment<'_>]) -> Option<Removal<T>> {
    if !is_of_network(chain, network) {
        return None;
    }
    let of_chain: Vec<_> = valid.iter().filter(|attachment| attachment.iptables_chain() == name).collect();
    if of_chain.is_empty() {
        return Some(Removal::Chain(chain.jumps.iter().map(|rule| rule.id.clone()).collect()));
    }
    let is_valid = |ifname: &str| of_chain.iter().any(|attachment| attachment.ifname == ifname);
    Some(Removal::Rules(chain.noted_for(|ifname| !is_valid(ifname))))
}

/// `CNI-` and 24 digits: other plugins' chains have a further word.
fn is_container_chain(name: &str) -> bool {
    let digits = name.strip_prefix("CNI-").unwrap_or_default();
    digits.len() == 24 && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_of_network<T>(chain: &NatChain<T>, network: &str) -> bool {
    let start = format!("name: \"{network}\" id: ");
    let says_so = |rule: &NatRule<T>| rule.comment.as_ref().is_some_and(|comment| comment.starts_with(&start));
    chain.rules.iter().chain(&chain.jumps).any(says_so)
}

/// Compares the rules with what [`add`] writes.
///
/// # Errors
/// What is missing.
pub(crate) fn check(nft: &mut Nft, attachment: Attachment<'_>, addresses: &[IpNetwork]) -> Result<()> {
    let name = attachment.iptables_chain();
    for address in addresses {
        let Some(tool) = TOOLS.into_iter().find(|tool| tool.is_for(address.ip())) else { continue };
        let nft_lacks = tool.read_nft(nft, &name)?.map(|chain| chain.lacks(*address));
        let lacks = match nft_lacks {
            Some(lacks) => lacks,
            None => match tool.read_legacy()?.and_then(|text| nat_chain::from_save(&text, &name)) {
                Some(chain) => chain.lacks(*address),
                None => Some("the chain was not found"),
            },
        };
        if let Some(sentence) = lacks {
            let object = format!("masquerade of {} in iptables chain {name}", address.ip());
            return Err(OpError::state("find", object, sentence));
        }
    }
    Ok(())
}

/// Whether [`add`] could write at all.
///
/// # Errors
/// iptables is not installed.
pub(crate) fn probe() -> Result<()> {
    for tool in TOOLS {
        if executable::find(&[tool.restore]).is_none() {
            return Err(OpError::state("find", tool.restore, "it was not found in the system's folders"));
        }
    }
    Ok(())
}
