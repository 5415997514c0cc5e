//! Requests that read nf_tables: single objects by name, key or handle, and dumps.

use nix::errno::Errno;

use super::extension::ExtensionKind;
use super::object::{Chain, Family, Name, Rule, Table};
use super::reply::{Body, ChainInfo, TableInfo, Undecoded, comment_of};
use super::set::Element;
use super::socket::{MAX_CHANGES, Nft};
use super::transaction::{GETCHAIN, GETCOMPAT, GETGEN, GETRULE, GETSETELEM, GETTABLE, NEWRULE};
use super::wire::{RawMessage, Writer};
use crate::error::{OpError, Result};

const GENERATION: &str = "the nft ruleset's generation";

/// An iptables extension: its kind, name and revision.
pub type Wanted<'a> = (ExtensionKind, &'a str, u32);

/// What [`Nft::look`] has found, of one moment as long as the generation is the same.
#[derive(Debug)]
pub struct Look {
    /// The ruleset's generation, for [`super::Transaction::if_still`].
    pub generation: u32,
    /// The chains, in the order in which they were asked for.
    pub chains: Vec<Option<ChainInfo>>,
}

impl Nft {
    /// The ruleset's generation, for [`super::Transaction::if_still`].
    ///
    /// # Errors
    /// `EOPNOTSUPP`, `EPERM` and the like: nf_tables cannot be used.
    pub fn generation(&mut self) -> Result<u32> {
        let mut w = Writer::default();
        let seq = self.write_request(&mut w, GETGEN, 0, Family::Inet, |_| {});
        self.send_requests(w, &GENERATION)?;
        self.receive_generation(seq)
    }

    fn receive_generation(&mut self, seq: u32) -> Result<u32> {
        let found = self.receive_answer(seq, &GENERATION, |body| match body {
            Body::Generation(generation) => Some(generation),
            _ => None,
        })?;
        found.ok_or_else(|| OpError::errno("get", GENERATION, Errno::ENOENT).at(&*self.place))
    }

    /// Finds a table.
    ///
    /// # Errors
    /// Any error except absence.
    pub fn find_table(&mut self, table: &Table) -> Result<Option<TableInfo>> {
        let object = format_args!("nft table {table}");
        self.get(
            GETTABLE,
            table.family,
            &object,
            |w| w.text(1, &table.name),
            |body| match body {
                Body::Table(table) => Some(table),
                _ => None,
            },
        )
    }

    /// Finds a chain.
    ///
    /// # Errors
    /// Any error except absence.
    pub fn find_chain(&mut self, chain: &Chain) -> Result<Option<ChainInfo>> {
        let [found] = self.find_chains([chain])?;
        Ok(found)
    }

    /// Finds several chains, with one send.
    ///
    /// # Errors
    /// The first error except absence.
    pub fn find_chains<const N: usize>(&mut self, chains: [&Chain; N]) -> Result<[Option<ChainInfo>; N]> {
        let mut w = Writer::default();
        let asked = chains.map(|chain| self.write_chain(&mut w, chain));
        self.send_requests(w, &chains.map(object_of).join(", "))?;
        let mut all = [const { None }; N];
        for ((found, chain), seq) in all.iter_mut().zip(chains).zip(asked) {
            *found = self.receive_chain(seq, chain)?;
        }
        Ok(all)
    }

    fn write_chain(&mut self, w: &mut Writer, chain: &Chain) -> u32 {
        self.write_request(w, GETCHAIN, 0, chain.table.family, |w| {
            w.text(1, &chain.table.name);
            w.text(3, &chain.name);
        })
    }

    fn receive_chain(&mut self, seq: u32, chain: &Chain) -> Result<Option<ChainInfo>> {
        self.receive_answer(seq, &object_of(chain), |body| match body {
            Body::Chain(chain) => Some(chain),
            _ => None,
        })
    }

    /// Looks for chains before a change, with one send for all; `None` if rules of one of the families cannot use all of the
    /// extensions.
    ///
    /// # Errors
    /// Any error except absence.
    pub fn look(&mut self, families: &[Family], wanted: &[Wanted<'_>], chains: &[Chain]) -> Result<Option<Look>> {
        let mut w = Writer::default();
        let mut extensions = Vec::new();
        for family in families {
            extensions.extend(wanted.iter().map(|wanted| (self.write_extension(&mut w, *family, *wanted), *wanted)));
        }
        let generation = self.write_request(&mut w, GETGEN, 0, Family::Inet, |_| {});
        let asked: Vec<_> = chains.iter().map(|chain| (self.write_chain(&mut w, chain), chain)).collect();
        self.send_requests(w, &GENERATION)?;
        let mut has_all = true;
        for (seq, wanted) in extensions {
            has_all &= self.receive_extension(seq, wanted)?;
        }
        if !has_all {
            return Ok(None);
        }
        let generation = self.receive_generation(generation)?;
        let chains = asked.into_iter().map(|(seq, chain)| self.receive_chain(seq, chain)).collect::<Result<_>>()?;
        Ok(Some(Look { generation, chains }))
    }

    /// Finds the rule of a chain with this handle. The kernel never reuses handles.
    ///
    /// # Errors
    /// Any error except absence of the rule, chain or table.
    pub fn find_rule(&mut self, chain: &Chain, handle: u64) -> Result<Option<Rule>> {
        let family = chain.table.family;
        let object = format_args!("nft rule {} {} handle {handle}", chain.table, chain.name);
        let ask = |w: &mut Writer| {
            w.text(1, &chain.table.name);
            w.text(2, &chain.name);
            w.attr(3, &handle.to_be_bytes());
        };
        self.get(GETRULE, family, &object, ask, |body| match body {
            Body::Rule(rule) => Some(rule.of(family)),
            _ => None,
        })
    }

    /// Finds elements by their keys, with one send for many; `None` for each that is not there, or whose set is not. The cost does not
    /// depend on how many others there are. Needs a kernel from 4.16 on.
    ///
    /// # Errors
    /// The first error except absence.
    pub fn find_elements(&mut self, wanted: &[Element]) -> Result<Vec<Option<Element>>> {
        let mut all = Vec::with_capacity(wanted.len());
        for part in wanted.chunks(MAX_CHANGES) {
            let mut w = Writer::default();
            let mut asked = Vec::with_capacity(part.len());
            for element in part {
                let ask = |w: &mut Writer| {
                    w.text(1, &element.table.name);
                    element.encode(false, w);
                };
                asked.push((self.write_request(&mut w, GETSETELEM, 0, element.table.family, ask), element));
            }
            self.send_requests(w, &"nft elements")?;
            for (seq, element) in asked {
                all.push(self.receive_answer(seq, &format_args!("nft element {element}"), |body| match body {
                    Body::Elements(found) => found.into_iter().next(),
                    _ => None,
                })?);
            }
        }
        Ok(all)
    }

    /// Lists the elements of a set; empty if the set does not exist.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_elements(&mut self, table: &Table, set: &Name) -> Result<Vec<Element>> {
        let ask = |w: &mut Writer| {
            w.text(1, &table.name);
            w.text(2, set);
        };
        let object = format_args!("elements of nft set {table} {set}");
        let found = self.list(GETSETELEM, table.family, &object, ask, |body| match body {
            Body::Elements(found) => Some(found),
            _ => None,
        })?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Whether nf_tables rules can use this iptables extension on this kernel.
    ///
    /// # Errors
    /// `EPERM` and the like: nf_tables cannot be used.
    pub fn has_extension(&mut self, family: Family, kind: ExtensionKind, name: &str, revision: u32) -> Result<bool> {
        self.has_extensions(family, [(kind, name, revision)])
    }

    /// Whether nf_tables rules can use all of these iptables extensions, each by its name and revision. Asks with one send.
    ///
    /// # Errors
    /// As [`Nft::has_extension`].
    pub fn has_extensions<const N: usize>(&mut self, family: Family, wanted: [Wanted<'_>; N]) -> Result<bool> {
        let mut w = Writer::default();
        let asked = wanted.map(|wanted| (self.write_extension(&mut w, family, wanted), wanted));
        self.send_requests(w, &"iptables extensions")?;
        let mut has_all = true;
        for (seq, wanted) in asked {
            has_all &= self.receive_extension(seq, wanted)?;
        }
        Ok(has_all)
    }

    fn write_extension(&mut self, w: &mut Writer, family: Family, (kind, name, revision): Wanted<'_>) -> u32 {
        self.write_request(w, GETCOMPAT, 0, family, |w| {
            // enum nfnl_compat_attributes.
            w.text(1, name);
            w.be32(2, revision);
            w.be32(3, kind as u32);
        })
    }

    fn receive_extension(&mut self, seq: u32, (_, name, revision): Wanted<'_>) -> Result<bool> {
        let object = format_args!("iptables extension {name} rev {revision}");
        let found = self.receive_answer(seq, &object, |body| match body {
            Body::Other(GETCOMPAT) => Some(()),
            _ => None,
        });
        match found {
            Ok(found) => Ok(found.is_some()),
            // ENOENT and the like: the kernel has no such subsystem, or the revision is too new.
            Err(error)
                if matches!(error.os_errno(), Some(Errno::EINVAL | Errno::EOPNOTSUPP | Errno::EPROTONOSUPPORT)) =>
            {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Lists the chains of a table; empty if the table does not exist.
    ///
    /// # Errors
    /// Any error except absence; a timeout if other processes kept changing the ruleset.
    pub fn list_chains(&mut self, table: &Table) -> Result<Vec<ChainInfo>> {
        let object = format_args!("chains of nft table {table}");
        let ask = |w: &mut Writer| w.text(1, &table.name);
        // Kernels ignore the table here and dump the whole family.
        self.list(GETCHAIN, table.family, &object, ask, |body| match body {
            Body::Chain(chain) if chain.table == table.name => Some(chain),
            _ => None,
        })
    }

    /// Lists the base chains of all tables of a family.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_base_chains(&mut self, family: Family) -> Result<Vec<ChainInfo>> {
        let object = "nft chains";
        self.list(
            GETCHAIN,
            family,
            &object,
            |_| {},
            |body| match body {
                Body::Chain(chain) if chain.base.is_some() => Some(chain),
                _ => None,
            },
        )
    }

    /// Lists the rules of a chain; empty if the chain does not exist.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_rules(&mut self, chain: &Chain) -> Result<Vec<Rule>> {
        self.list_rules_where(chain, |_| true)
    }

    /// Lists the rules of a chain whose comment `is_wanted` accepts; empty if the chain does not exist. The other rules
    /// cost the kernel as much, but are not decoded here.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_rules_where(&mut self, chain: &Chain, is_wanted: impl Fn(Option<&str>) -> bool) -> Result<Vec<Rule>> {
        let is_wanted = |message: RawMessage<'_>| message.kind != NEWRULE || is_wanted(comment_of(message).as_deref());
        self.list_rules_of(chain, is_wanted)
    }

    /// Lists the rules of a chain that `is_wanted` accepts; empty if the chain does not exist. The other rules cost the
    /// kernel as much, but are not decoded here, which costs several times as much.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_rules_by(&mut self, chain: &Chain, is_wanted: impl Fn(Undecoded<'_>) -> bool) -> Result<Vec<Rule>> {
        let is_wanted = |message: RawMessage<'_>| message.kind != NEWRULE || is_wanted(Undecoded::of(message));
        self.list_rules_of(chain, is_wanted)
    }

    /// Lists the rules of all chains of a table; empty if the table does not exist.
    ///
    /// # Errors
    /// As [`Nft::list_chains`].
    pub fn list_all_rules(&mut self, table: &Table) -> Result<Vec<Rule>> {
        let family = table.family;
        let object = format_args!("rules of nft table {table}");
        let ask = |w: &mut Writer| w.text(1, &table.name);
        self.list(GETRULE, family, &object, ask, |body| match body {
            Body::Rule(rule) if rule.table == table.name => Some(rule.of(family)),
            _ => None,
        })
    }

    fn list_rules_of(&mut self, chain: &Chain, is_wanted: impl Fn(RawMessage<'_>) -> bool) -> Result<Vec<Rule>> {
        let family = chain.table.family;
        let object = format_args!("rules of nft chain {} {}", chain.table, chain.name);
        let ask = |w: &mut Writer| {
            w.text(1, &chain.table.name);
            w.text(2, &chain.name);
        };
        self.list_where(GETRULE, family, &object, ask, is_wanted, |body| match body {
            Body::Rule(rule) if rule.table == chain.table.name && rule.chain == chain.name => Some(rule.of(family)),
            _ => None,
        })
    }
}

fn object_of(chain: &Chain) -> String {
    format!("nft chain {} {}", chain.table, chain.name)
}
