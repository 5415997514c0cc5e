//! Edits that plugins have in common: add chains and rules if they are missing, delete an owner's rules.

use netops::error::Result;

use super::rule::Rule;
use super::table::{Edit, FoundRule, NewRule, Table};

impl Table<'_> {
    /// Creates a chain if it is missing.
    ///
    /// # Errors
    /// The refusal of the kernel. Also if the chain that is there is of another kind, as [`Table::expect_base`].
    pub fn create_chain_once(&mut self, chain: &str) -> Result<Vec<Edit>> {
        Ok(if self.has_usable_chain(chain)? { Vec::new() } else { vec![Edit::CreateChain(chain.to_owned())] })
    }

    /// Appends a rule to its chain, unless the chain contains an equivalent one: at any place, made by any program,
    /// with any note. If the rule is several rules natively, only the missing ones are added.
    ///
    /// # Errors
    /// The refusal of the kernel. Also if packets do not reach the base chain that the rule is in, as
    /// [`Table::expect_base`].
    pub fn append_once(&mut self, new: NewRule) -> Result<Vec<Edit>> {
        Ok(self.missing(new)?.into_iter().map(Edit::Append).collect())
    }

    /// Creates a chain with these rules, as far as chain and rules are missing; also returns the rules that are there, so that
    /// the chain is read once.
    ///
    /// # Errors
    /// As [`Table::append_once`].
    pub fn create_filled_once(&mut self, chain: &str, rules: Vec<Rule>) -> Result<(Vec<Edit>, Vec<FoundRule>)> {
        let found = self.list(chain)?;
        let mut edits = match &found {
            Some(_) => self.expect_base(chain).map(|()| Vec::new())?,
            None => vec![Edit::CreateChain(chain.to_owned())],
        };
        let found = found.unwrap_or_default();
        for rule in rules {
            let new = NewRule { chain: chain.to_owned(), rule, note: None };
            edits.extend(self.missing_among(&found, &new).into_iter().map(Edit::Append));
        }
        Ok((edits, found))
    }

    /// Deletes the rules of a chain that `is_meant` selects, such as an owner's. No edits if the chain does not exist.
    ///
    /// # Errors
    /// The refusal of the kernel.
    pub fn delete_where(&mut self, chain: &str, is_meant: impl Fn(&FoundRule) -> bool) -> Result<Vec<Edit>> {
        Ok(self.list(chain)?.unwrap_or_default().into_iter().filter(is_meant).map(Edit::Delete).collect())
    }

    /// Whether a chain has a rule, and receives packets if it is a base chain. CHECK needs this.
    ///
    /// # Errors
    /// As [`Table::expect_packets`].
    pub fn has(&mut self, chain: &str, rule: &Rule) -> Result<bool> {
        let new = NewRule { chain: chain.to_owned(), rule: rule.clone(), note: None };
        let is_there = self.missing(new)?.is_empty();
        if is_there {
            self.expect_packets(chain)?;
        }
        Ok(is_there)
    }

    fn missing(&mut self, new: NewRule) -> Result<Vec<NewRule>> {
        let found = self.list(&new.chain)?.unwrap_or_default();
        let missing = self.missing_among(&found, &new);
        if missing.is_empty() {
            // Adding a rule checks its base chain. For an existing rule, check it here.
            self.expect_base(&new.chain)?;
        }
        Ok(missing)
    }

    fn missing_among(&self, found: &[FoundRule], new: &NewRule) -> Vec<NewRule> {
        // A rule that cannot be encoded here is refused with the reason when it is added.
        let spelled = self.spelled(&new.rule).unwrap_or_else(|_| vec![new.rule.clone()]);
        let is_there = |wanted: &Rule| found.iter().any(|found| found.rule.as_ref() == Some(wanted));
        let missing = spelled.into_iter().filter(|rule| !is_there(rule));
        missing.map(|rule| NewRule { rule, ..new.clone() }).collect()
    }
}
