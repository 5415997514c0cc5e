//! A table of iptables, read and changed in the variant that this node uses: in nf_tables over netlink, or by the
//! programs of the legacy variant.

pub(crate) mod at_once;
mod edit;
mod put_back;

pub use edit::{Edit, NewRule, PutBack};
pub use put_back::Before;

use std::fmt;
use std::time::{Duration, Instant};

use netops::error::{Cause, Result};
use netops::nft::{self, BaseChain, Family, Hook, Nft, Transaction};
use netops::{Errno, OpError};

use super::executable::{self, Program};
use super::native::{self, NativeTable, NotNative};
use super::rule::Rule;
use super::{parse, variant, xt};
use crate::iptables::decode;
use crate::{base_chains, retry_when_changed};
use edit::{line, missing_base_chains, nft_changes};

/// How long a change is tried again if other processes keep changing the ruleset in between.
const DEADLINE: Duration = Duration::from_secs(10);
/// The number of handles behind a chain's that may be the jump's to it: two chains and some rules.
const JUMP_HANDLES: usize = 12;
/// How often a change by the legacy variant's programs is tried: each attempt starts two processes.
const PROGRAM_TRIES: usize = 5;

/// A built-in table of iptables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableName {
    /// Filters packets.
    Filter,
    /// Chooses a connection's translation at its first packet.
    Nat,
}

/// A table of one family.
#[derive(Debug)]
pub struct Table<'a> {
    table: nft::Table,
    dialect: Dialect,
    world: World<'a>,
}

/// How rules are encoded, and which base chains there are. Reading accepts any encoding.
#[derive(Debug, Clone, Copy)]
enum Dialect {
    /// iptables' encoding.
    Iptables(TableName),
    /// nft(8)'s encoding.
    Native(&'static [(&'static str, BaseChain)]),
}

/// The variant that has the table.
#[derive(Debug)]
pub(crate) enum World<'a> {
    /// nf_tables.
    Netlink(&'a mut Nft),
    /// The legacy variant, by its programs.
    Program {
        /// The program that reads the table.
        save: Program,
        /// The program that changes the table.
        restore: Program,
        /// The output of the last read.
        text: String,
    },
}

impl TableName {
    /// The name in iptables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Filter => "filter",
            Self::Nat => "nat",
        }
    }

    /// The built-in chain of iptables with this name.
    fn built_in(self, name: &str) -> Option<BaseChain> {
        Some(match (self, name) {
            (Self::Filter, "INPUT") => BaseChain::filter(Hook::Input),
            (Self::Filter, "FORWARD") => BaseChain::filter(Hook::Forward),
            (Self::Filter, "OUTPUT") => BaseChain::filter(Hook::Output),
            (Self::Nat, "PREROUTING") => BaseChain::dstnat(Hook::Prerouting),
            (Self::Nat, "INPUT") => BaseChain::srcnat(Hook::Input),
            (Self::Nat, "OUTPUT") => BaseChain::dstnat(Hook::Output),
            (Self::Nat, "POSTROUTING") => BaseChain::srcnat(Hook::Postrouting),
            _ => return None,
        })
    }
}

impl<'a> Table<'a> {
    pub(crate) fn new(name: TableName, family: Family, world: World<'a>) -> Self {
        Self { table: nft::Table::new(family, name.as_str()), dialect: Dialect::Iptables(name), world }
    }

    pub(crate) fn native(nft: &'a mut Nft, NativeTable { table, base_chains }: NativeTable) -> Self {
        Self { table, dialect: Dialect::Native(base_chains), world: World::Netlink(nft) }
    }

    /// A table of our own over the same connection: read in [`Table::change`], it is of the same moment. `None` if this
    /// table is changed by programs.
    pub fn native_beside(&mut self, table: NativeTable) -> Option<Table<'_>> {
        match &mut self.world {
            World::Netlink(nft) => Some(Table::native(nft, table)),
            World::Program { .. } => None,
        }
    }

    /// The same for one of iptables' tables in nf_tables.
    pub fn iptables_beside(&mut self, name: TableName) -> Option<Table<'_>> {
        let family = self.table.family;
        match &mut self.world {
            World::Netlink(nft) => Some(Table::new(name, family, World::Netlink(nft))),
            World::Program { .. } => None,
        }
    }

    /// Whether programs of the legacy variant work on it.
    pub(crate) fn is_of_legacy(&self) -> bool {
        match &self.world {
            World::Netlink(_) => false,
            World::Program { text, .. } => variant::is_legacy(text),
        }
    }

    /// The rules that [`Table::list`] returns after this one was written: in a [`NativeTable`], one for each of its
    /// ports.
    ///
    /// # Errors
    /// The reason why the rule cannot be written to this table.
    pub fn spelled(&self, rule: &Rule) -> std::result::Result<Vec<Rule>, NotNative> {
        match self.dialect {
            Dialect::Iptables(_) => Ok(vec![native::spelled_by_iptables(rule)]),
            Dialect::Native(_) => native::spelled(rule, self.table.family),
        }
    }

    fn nft_chain(&self, name: &str) -> nft::Chain {
        self.table.chain(name.to_owned())
    }

    /// Lists a chain's rules; `None` if the chain does not exist.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn list(&mut self, chain: &str) -> Result<Option<Vec<FoundRule>>> {
        let place = self.nft_chain(chain);
        match &mut self.world {
            World::Netlink(nft) => match nft.find_chain(&place)? {
                Some(_) => Ok(Some(nft.list_rules(&place)?.into_iter().map(FoundRule::from_nft).collect())),
                None => Ok(None),
            },
            World::Program { text, .. } => Ok(parse::chain(text, chain).map(|rules| {
                rules.into_iter().map(|(words, rule)| FoundRule { rule, note: None, id: Id::Words(words) }).collect()
            })),
        }
    }

    /// Lists the rules of a chain that jump to `target`, or have one of these ports in a list of ports. All other rules with
    /// a list of ports are left out, before they are decoded: a chain may have a rule for each container of the node.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn list_ports(&mut self, chain: &str, target: &str, ports: &[u16]) -> Result<Vec<FoundRule>> {
        let place = self.nft_chain(chain);
        match &mut self.world {
            World::Netlink(nft) => {
                let is_wanted = |rule: nft::Undecoded<'_>| {
                    let listed = rule.find_match("multiport");
                    listed.is_none_or(|info| xt::has_port(info, ports)) || rule.jumps_to(target)
                };
                Ok(nft.list_rules_by(&place, is_wanted)?.into_iter().map(FoundRule::from_nft).collect())
            }
            World::Program { .. } => Ok(self.list(chain)?.unwrap_or_default()),
        }
    }

    /// Whether rules keep their notes: the legacy variant's do not.
    #[must_use]
    pub fn keeps_notes(&self) -> bool {
        matches!(self.world, World::Netlink(_))
    }

    /// Whether a chain exists. Costs the same however many rules it has.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn has_chain(&mut self, chain: &str) -> Result<bool> {
        let place = self.nft_chain(chain);
        match &mut self.world {
            World::Netlink(nft) => Ok(nft.find_chain(&place)?.is_some()),
            World::Program { text, .. } => Ok(parse::chain(text, chain).is_some()),
        }
    }

    /// The same, if the chain is of the kind that is needed, as [`Table::expect_base`].
    pub(super) fn has_usable_chain(&mut self, chain: &str) -> Result<bool> {
        let place = nft::Chain { base: self.dialect.base(chain), ..self.nft_chain(chain) };
        match &mut self.world {
            World::Netlink(nft) => Ok(base_chains::find(nft, &place)?.is_some()),
            World::Program { .. } => self.has_chain(chain),
        }
    }

    /// Checks that an existing base chain receives packets, and that rules can jump to any other. The legacy variant has no
    /// chains of which that is not so.
    ///
    /// # Errors
    /// Another kind of chain has its name; the error says what to do.
    pub fn expect_base(&mut self, chain: &str) -> Result<()> {
        let place = nft::Chain { base: self.dialect.base(chain), ..self.nft_chain(chain) };
        match &mut self.world {
            World::Netlink(nft) => base_chains::find(nft, &place).map(drop),
            World::Program { .. } => Ok(()),
        }
    }

    /// As [`Table::expect_base`]; also checks that the table is not dormant, which an administrator may have made it.
    /// For CHECK and STATUS, which can report it. ADD leaves such a table as it is, except for a plugin's own table,
    /// which it can wake.
    ///
    /// # Errors
    /// The error that keeps packets from the chain, with its remedy.
    pub fn expect_packets(&mut self, chain: &str) -> Result<()> {
        self.expect_base(chain)?;
        match &mut self.world {
            World::Netlink(nft) => base_chains::expect_awake(nft, &self.table),
            World::Program { .. } => Ok(()),
        }
    }

    /// Lists the names of all chains.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn list_chains(&mut self) -> Result<Vec<String>> {
        match &mut self.world {
            World::Netlink(nft) => Ok(nft.list_chains(&self.table)?.into_iter().map(|chain| chain.name).collect()),
            World::Program { text, .. } => Ok(parse::chains(text).map(str::to_owned).collect()),
        }
    }

    /// Lists the rules in `from` that jump to `chain`, which has the rules `rules`.
    ///
    /// The kernel counts the jumps to a chain, and its handles of chains and rules increase. So the jumps are usually
    /// the rules with the handles after those of the chain's own rules, and not all of `from` has to be read.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn list_jumps(&mut self, from: &str, chain: &str, rules: &[FoundRule]) -> Result<Vec<FoundRule>> {
        let (place, from_place) = (self.nft_chain(chain), self.nft_chain(from));
        let is_jump = |found: &FoundRule| found.goes_to() == Some(chain);
        if let World::Netlink(nft) = &mut self.world {
            let Some(info) = nft.find_chain(&place)? else { return Ok(Vec::new()) };
            let expected = usize::try_from(info.uses).unwrap_or(usize::MAX).saturating_sub(rules.len());
            let mut near = Vec::new();
            let last = rules.iter().filter_map(FoundRule::handle).max().unwrap_or(info.handle);
            // Try a handle more than expected: iptables may have created the built-in chain in between.
            for handle in (last + 1..).take(expected.min(8) + 1) {
                let found = nft.find_rule(&from_place, handle)?.map(FoundRule::from_nft);
                near.extend(found.filter(is_jump));
                if near.len() == expected {
                    return Ok(near);
                }
            }
            if expected == 0 {
                return Ok(near);
            }
        }
        Ok(self.list(from)?.unwrap_or_default().into_iter().filter(is_jump).collect())
    }

    /// Whether `from` has a rule that jumps to `chain` and is meant. It is looked for behind the chain's own handle first, as
    /// its maker usually makes the jump right after the chain: not all of `from` has to be read, which may be long, and which
    /// other programs may change faster than it is read.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn has_jump(&mut self, from: &str, chain: &str, is_meant: impl Fn(&FoundRule) -> bool) -> Result<bool> {
        let (place, from_place) = (self.nft_chain(chain), self.nft_chain(from));
        let is_it = |found: &FoundRule| found.goes_to() == Some(chain) && is_meant(found);
        if let World::Netlink(nft) = &mut self.world {
            let Some(info) = nft.find_chain(&place)?.filter(|info| info.uses > 0) else { return Ok(false) };
            for handle in (info.handle + 1..).take(JUMP_HANDLES) {
                if nft.find_rule(&from_place, handle)?.map(FoundRule::from_nft).is_some_and(|found| is_it(&found)) {
                    return Ok(true);
                }
            }
        }
        Ok(self.list(from)?.unwrap_or_default().iter().any(is_it))
    }

    /// Counts a chain's rules and the rules anywhere in the table that jump to it.
    pub(crate) fn count_uses(&mut self, chain: &str) -> Result<usize> {
        let place = self.nft_chain(chain);
        match &mut self.world {
            World::Netlink(nft) => {
                Ok(nft.find_chain(&place)?.map_or(0, |info| usize::try_from(info.uses).unwrap_or(usize::MAX)))
            }
            World::Program { text, .. } => Ok(parse::count_uses(text, chain)),
        }
    }

    /// Reads and changes until no other process has changed the ruleset in between. All edits of one attempt are made,
    /// or none.
    ///
    /// # Errors
    /// The refusal of the kernel or iptables; a timeout if other processes kept changing the ruleset.
    pub fn change(&mut self, mut look: impl FnMut(&mut Self) -> Result<Vec<Edit>>) -> Result<()> {
        self.until_not_overtaken(&mut look, true)
    }

    /// The same for edits that only delete unused objects. Other processes may change the rest of the ruleset
    /// meanwhile.
    ///
    /// # Errors
    /// As [`Table::change`].
    pub fn sweep(&mut self, mut look: impl FnMut(&mut Self) -> Result<Vec<Edit>>) -> Result<()> {
        self.until_not_overtaken(&mut look, false)
    }

    /// An edit as a command, for programs that show what a change would be.
    #[must_use]
    pub fn command(&self, edit: &Edit) -> String {
        let words = edit::words(edit);
        match (self.dialect, self.table.family) {
            (Dialect::Iptables(name), Family::Ip6) => format!("ip6tables -t {} {words}", name.as_str()),
            (Dialect::Iptables(name), _) => format!("iptables -t {} {words}", name.as_str()),
            (Dialect::Native(_), _) => format!("nft table {self}: {words}"),
        }
    }

    fn until_not_overtaken(
        &mut self,
        look: &mut dyn FnMut(&mut Self) -> Result<Vec<Edit>>,
        is_guarded: bool,
    ) -> Result<()> {
        let _turn = is_guarded.then(retry_when_changed::queue);
        let start = Instant::now();
        for tries in 1.. {
            let generation = self.begin(tries, is_guarded)?;
            let edits = look(self)?;
            if edits.is_empty() {
                return Ok(());
            }
            match self.commit(edits, generation) {
                Err(error) if self.is_overtaken(&error, tries, is_guarded) => {
                    if start.elapsed() > DEADLINE {
                        let object = format!("table {self}, which others keep changing");
                        return Err(OpError::new("change", object, Cause::Timeout(DEADLINE)));
                    }
                }
                done => return done,
            }
        }
        Ok(())
    }

    /// What an attempt starts from: the ruleset's generation, or a new read if the attempt before was outdated.
    fn begin(&mut self, tries: usize, is_guarded: bool) -> Result<Option<u32>> {
        match &mut self.world {
            World::Netlink(nft) => is_guarded.then(|| nft.generation()).transpose(),
            World::Program { save, text, .. } => {
                if tries > 1 {
                    *text = executable::save(save, &self.table.name)?;
                }
                Ok(None)
            }
        }
    }

    fn is_overtaken(&self, error: &OpError, tries: usize, is_guarded: bool) -> bool {
        match self.world {
            World::Netlink(_) if is_guarded => error.os_errno() == Some(Errno::ERESTART),
            World::Netlink(_) => retry_when_changed::is_overtaken(error),
            World::Program { .. } => tries < PROGRAM_TRIES && !matches!(error.cause, Cause::Timeout(_)),
        }
    }

    fn commit(&mut self, edits: Vec<Edit>, generation: Option<u32>) -> Result<()> {
        let (table, dialect) = (&self.table, self.dialect);
        match &mut self.world {
            World::Netlink(nft) => {
                let mut changes = missing_base_chains(nft, table, dialect, &edits)?;
                for edit in edits {
                    changes.extend(nft_changes(table, dialect, edit)?);
                }
                let transaction = Transaction::new(changes);
                nft.commit(&match generation {
                    Some(generation) => transaction.if_still(generation),
                    None => transaction,
                })
            }
            World::Program { restore, .. } => {
                let lines: String = edits.iter().map(line).collect();
                executable::restore(restore, &format!("*{}\n{lines}COMMIT\n", table.name))
            }
        }
    }
}

impl fmt::Display for Table<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.table.fmt(f)
    }
}

impl Dialect {
    fn base(self, name: &str) -> Option<BaseChain> {
        match self {
            Self::Iptables(table) => table.built_in(name),
            Self::Native(chains) => chains.iter().find(|(found, _)| *found == name).map(|(_, base)| *base),
        }
    }

    /// The rule in nf_tables' form: natively, perhaps several rules.
    fn encode(self, table: &nft::Table, new: NewRule) -> Result<Vec<nft::Rule>> {
        match self {
            Self::Iptables(_) if !new.rule.words.is_empty() => Err(OpError::state(
                "write",
                format!("rule \"{}\" in nft table {table}", new.rule.to_string().trim()),
                "only the programs of iptables know all of its words; install iptables, or leave them out",
            )),
            Self::Iptables(_) => {
                let rule = table.chain(new.chain).rule(xt::expressions(&new.rule, table.family));
                // iptables passes the protocol to its extensions, even if there is none.
                let extension_protocol = Some(new.rule.protocol.map_or(0, |protocol| protocol as u8));
                Ok(vec![nft::Rule { note: new.note, extension_protocol, ..rule }])
            }
            Self::Native(_) => native::encoded(&new, table).map_err(|why| {
                let words = new.rule.to_string();
                OpError::state("write", format!("rule \"{}\" in nft table {table}", words.trim()), why.to_string())
            }),
        }
    }
}

/// A rule in a table.
#[derive(Debug, Clone)]
pub struct FoundRule {
    /// The decoded rule; `None` if it contains anything that our rules do not have.
    pub rule: Option<Rule>,
    /// The private note of its creator. iptables does not show it; the legacy variant cannot store it.
    pub note: Option<String>,
    id: Id,
}

/// A rule as its variant names it.
#[derive(Debug, Clone)]
enum Id {
    Handle(nft::Rule),
    /// The text after `-A`.
    Words(String),
}

impl FoundRule {
    fn from_nft(rule: nft::Rule) -> Self {
        Self { rule: decode::rule(&rule), note: rule.note.clone(), id: Id::Handle(rule) }
    }

    /// The chain it jumps to, whatever its conditions.
    #[must_use]
    pub fn goes_to(&self) -> Option<&str> {
        match &self.id {
            Id::Handle(rule) => rule.goes_to(),
            Id::Words(words) => parse::jump(words).or_else(|| parse::goes_on(words)),
        }
    }

    /// The rule's comment, whatever its conditions.
    #[must_use]
    pub fn comment(&self) -> Option<String> {
        match &self.id {
            Id::Handle(rule) => decode::comment(rule),
            Id::Words(words) => parse::comment(words),
        }
    }
}
