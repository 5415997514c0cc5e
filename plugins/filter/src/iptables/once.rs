//! What the looks of plugins have in common: chains and rules that are made unless they are there, and an owner's rules.

use netops::error::Result;

use super::rule::Rule;
use super::table::{Edit, Found, NewRule, Table};

impl Table<'_> {
    /// Makes a chain unless it is there.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn create_chain_once(&mut self, chain: &str) -> Result<Vec<Edit>> {
        Ok(if self.list(chain)?.is_some() { Vec::new() } else { vec![Edit::CreateChain(chain.to_owned())] })
    }

    /// Adds a rule at the end of its chain, unless one that does the same is in it already, wherever, whoever made it and
    /// whatever its note is. Of a rule that natively is several, those that are missing.
    ///
    /// # Errors
    /// What the kernel refused; packets do not come to the base chain that it is in, as [`Table::expect_base`].
    pub fn append_once(&mut self, new: NewRule) -> Result<Vec<Edit>> {
        Ok(self.missing(new)?.into_iter().map(Edit::Append).collect())
    }

    /// The same at the start of its chain: `-I CHAIN 1`, if `-C` finds none.
    ///
    /// # Errors
    /// As [`Table::append_once`].
    pub fn prepend_once(&mut self, new: NewRule) -> Result<Vec<Edit>> {
        // The last of them is the first in the end.
        Ok(self.missing(new)?.into_iter().rev().map(Edit::Prepend).collect())
    }

    /// Deletes the rules of a chain that are meant, such as an owner's; none if there is no such chain.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn delete_where(&mut self, chain: &str, is_meant: impl Fn(&Found) -> bool) -> Result<Vec<Edit>> {
        Ok(self.list(chain)?.unwrap_or_default().into_iter().filter(is_meant).map(Edit::Delete).collect())
    }

    /// Deletes a chain and its rules, if it is there. The rules that go to it have to go in an edit before this one.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn delete_chain_if_there(&mut self, chain: &str) -> Result<Vec<Edit>> {
        Ok(if self.list(chain)?.is_some() { vec![Edit::DeleteChain(chain.to_owned())] } else { Vec::new() })
    }

    /// Whether a chain has a rule, and packets come to it if it is a base chain: what CHECK asks.
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
        // What cannot be written here is refused with reasons when it is.
        let spelled = self.spelled(&new.rule).unwrap_or_else(|_| vec![new.rule.clone()]);
        let is_there = |wanted: &Rule| found.iter().any(|found| found.rule.as_ref() == Some(wanted));
        let missing: Vec<_> = spelled.into_iter().filter(|rule| !is_there(rule)).collect();
        if missing.is_empty() {
            // Adding a rule looks at its base chain; one that is there needs the same look.
            self.expect_base(&new.chain)?;
        }
        Ok(missing.into_iter().map(|rule| NewRule { rule, ..new.clone() }).collect())
    }
}
