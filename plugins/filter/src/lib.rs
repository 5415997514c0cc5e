//! The plugins' rules in the packet filter: masquerade and spoof guard.
//!
//! Start at [`Filter`]. Each object has a comment that identifies its attachment ([`Names`]), so that DEL and GC find
//! it without a result, a namespace or a record of ours. README.md shows the tables.
//!
//! ```
//! use cni_filter::{Backend, Filter, Names, RemovalHints, remove_all};
//! use netops::error::Result;
//!
//! # fn main() -> Result<()> {
//! let eth0 = Names { network: "office", container: "c1", ifname: "eth0" };
//! let addresses = ["10.1.0.5/24".parse::<ipnetwork::IpNetwork>().expect("an address")];
//! // In a namespace that ends with this; a plugin's rules are in the node's.
//! netops::Netns::run_in_new(|| -> Result<()> {
//!     let mut filter = Filter::open("/usr/sbin:/usr/bin")?;
//!     filter.add_masquerade(Backend::Nftables, eth0, &addresses)?;
//!     filter.add_masquerade(Backend::Nftables, eth0, &addresses)?; // repeated, it changes nothing
//!     filter.check_masquerade(Backend::Nftables, eth0, &addresses)?;
//!     assert!(remove_all(eth0, RemovalHints::default()).is_empty());
//!     filter.check_masquerade(Backend::Nftables, eth0, &addresses).expect_err("the rules are gone");
//!     Ok(())
//! })?
//! # }
//! ```

#![warn(missing_docs, clippy::missing_errors_doc)]

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use cni_spec::gc::Sweep;
use netops::error::Result;
use netops::nft::{Family, Nft};
use netops::{Errno, OpError};

pub mod alias;
mod base_chains;
mod egress;
mod names_and_comments;

mod masquerade;
mod nftables_masquerade;
mod shared;
mod spoof_guard;

pub mod iptables;

pub mod rule_words;

mod inventory;
mod retry_when_changed;

#[doc(hidden)]
pub mod fuzzing;

pub use alias::may_live;
pub use egress::of_many::{EgressMember, EgressOfMany};
pub use egress::{Destination, EGRESS_TABLE, Egress, Policy as EgressPolicy, To};
pub use inventory::{AllRules, By, Noted, masquerade_removal, networks};
pub use masquerade::{Backend, Masquerade};
pub use names_and_comments::{Names, OfNetwork, Owner, Stale};
pub use shared::accept::ACCEPT_MARK;
pub use shared::ports::{Port as SharedPort, Ports as SharedPorts};
pub use spoof_guard::Mac;

/// What DEL may know of an attachment. It searches for the rest.
#[derive(Clone, Copy, Default)]
pub struct RemovalHints<'a> {
    /// The attachment's addresses; empty means unknown. Used only for rules that do not name their attachment themselves.
    pub addresses: &'a [IpAddr],
    /// Finds the addresses of the container's other interfaces, which belong to other attachments. `None`, or a result
    /// of `None`: they cannot be known. Called only if nothing else identifies the attachment of a rule.
    pub held: Option<&'a dyn Fn() -> Option<Vec<IpAddr>>>,
    /// Whether an address is of another interface of the container, as an address plugin says. `None`: it cannot be known.
    pub is_others: Option<&'a dyn Fn(IpAddr) -> bool>,
    /// `PATH`, for iptables.
    pub search_path: &'a str,
}

impl fmt::Debug for RemovalHints<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, held: _, is_others: _, search_path } = self;
        let mut known = f.debug_struct("RemovalHints");
        known.field("addresses", addresses).field("search_path", search_path).finish_non_exhaustive()
    }
}

/// The packet filter of the host.
#[derive(Debug)]
pub struct Filter {
    nft: Nft,
    asked: iptables::variant::Asked,
    search_path: String,
}

impl Filter {
    /// Connects to the packet filter of the calling thread's network namespace. Programs of iptables are searched in the folders of
    /// `search_path` (`PATH`) before the system's folders.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
    pub fn open(search_path: &str) -> Result<Self> {
        let (nft, asked) = (Nft::open("the host")?, iptables::variant::Asked::default());
        Ok(Self { nft, asked, search_path: search_path.to_owned() })
    }

    /// Reads the number of the ruleset, which each change raises, whoever makes it.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn generation(&mut self) -> Result<u32> {
        self.nft.generation()
    }

    /// A table of iptables, in the variant that this node uses; `None` if neither the kernel nor a program can have
    /// iptables rules.
    ///
    /// # Errors
    /// The refusal of the kernel or iptables.
    pub fn iptables(&mut self, family: Family, name: iptables::TableName) -> Result<Option<iptables::Table<'_>>> {
        Ok(self.place(family, name)?.map(|place| self.table(place)))
    }

    /// Where [`Filter::iptables`] has that table, for callers that go elsewhere without one.
    ///
    /// # Errors
    /// As [`Filter::iptables`].
    pub fn place(&mut self, family: Family, name: iptables::TableName) -> Result<Option<iptables::TableHome>> {
        iptables::variant::for_new_rules(&mut self.nft, &mut self.asked, &self.search_path, family, name)
    }

    /// The place of a table for the programs that this node calls `iptables`, of whichever variant: for rules with options that only
    /// these programs know ([`iptables::Rule::words`]); `None` if they are not installed.
    ///
    /// # Errors
    /// The error of the program.
    pub fn place_of_programs(&self, family: Family, name: iptables::TableName) -> Result<Option<iptables::TableHome>> {
        iptables::variant::place_of_programs(&self.search_path, family, name)
    }

    /// The table of a place.
    pub fn table(&mut self, place: iptables::TableHome) -> iptables::Table<'_> {
        place.table(&mut self.nft)
    }

    /// Works on one of iptables' tables in each variant that may have rules of it: in nf_tables, then the legacy one, if it
    /// is in use. For DEL and GC: the node may have had the other variant when the rules were made.
    ///
    /// # Errors
    /// The first error of `work`, after all variants; the error of a program.
    pub fn each_iptables(
        &mut self,
        family: Family,
        name: iptables::TableName,
        work: &mut dyn FnMut(&mut iptables::Table<'_>) -> Result<()>,
    ) -> Result<()> {
        let done = work(&mut iptables::variant::in_nftables(&mut self.nft, family, name));
        match iptables::variant::in_legacy(&self.search_path, family, name)? {
            Some(mut legacy) => done.and(work(&mut legacy)),
            None => done,
        }
    }

    /// A table of this suite in nf_tables, where [`Filter::iptables`] has none and the config names no backend. Logs so, once.
    pub fn native_instead(&mut self, table: iptables::NativeTable) -> iptables::Table<'_> {
        iptables::variant::note_native();
        self.native(table)
    }

    /// A table of this suite in nf_tables, which is read and changed in the same way. The table need not exist yet.
    pub fn native(&mut self, table: iptables::NativeTable) -> iptables::Table<'_> {
        iptables::Table::native(&mut self.nft, table)
    }

    /// Connects as [`Filter::open`] does; `None` on a kernel without a packet filter, which has no rules to remove.
    ///
    /// # Errors
    /// Any error except that.
    pub fn find(search_path: &str) -> Result<Option<Self>> {
        match Self::open(search_path) {
            Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Connects as [`Filter::find`] does, does the work, and closes: for DEL and GC. Returns all errors but those of a kernel
    /// without IPv6 or nf_tables, which has no rules of it.
    pub fn sweep(search_path: &str, work: &mut dyn FnMut(&mut Self) -> Vec<OpError>) -> Vec<OpError> {
        let mut filter = match Self::find(search_path) {
            Ok(Some(filter)) => filter,
            Ok(None) => return Vec::new(),
            Err(error) => return vec![error],
        };
        let mut errors = work(&mut filter);
        errors.retain(|error| !matches!(error.os_errno(), Some(Errno::EAFNOSUPPORT | Errno::EOPNOTSUPP)));
        filter.close();
        errors
    }

    /// Closes the connection as [`Nft::close`] does: for DEL and GC, when all else is done.
    pub fn close(self) {
        self.nft.close();
    }

    /// Removes the spoof guard of an attachment, ours or the reference's, if its port is gone. So call this after the
    /// removal of links: a container is guarded as long as it can send.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn remove_spoof_guard(&mut self, attachment: Names<'_>) -> Result<()> {
        spoof_guard::remove(&mut self.nft, attachment)
    }

    /// Drops frames that enter the bridge by `host_veth` unless their source address is `mac`.
    ///
    /// Call it before the container's link is up, so that no other frame ever passes. Repeating it changes nothing.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn add_spoof_guard(&mut self, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof_guard::add(&mut self.nft, attachment, host_veth, mac)
    }

    /// Compares the rules with those that [`Filter::add_spoof_guard`] makes.
    ///
    /// # Errors
    /// The first rule that is missing or different.
    pub fn check_spoof_guard(&mut self, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof_guard::check(&mut self.nft, attachment, host_veth, mac)
    }

    /// Removes the elements of shared masquerade of a network's attachments that are no longer valid.
    ///
    /// # Errors
    /// The kernel's refusal; absence is no error.
    pub fn gc_shared_masquerade(&mut self, stale: &Stale) -> Result<()> {
        shared::masquerade::gc(&mut self.nft, stale)
    }

    /// Returns whether this node supports the spoof guard, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature or a privilege.
    pub fn probe_spoof_guard(&mut self) -> Result<()> {
        let modules = "nf_tables with its bridge family";
        spoof_guard::probe(&mut self.nft).map_err(|error| lacking(error, "guard against spoofing", modules))
    }
}

/// Names a missing kernel feature by the modules that an operator can load.
fn lacking(error: OpError, purpose: &'static str, modules: &str) -> OpError {
    match error.os_errno() {
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EAFNOSUPPORT) => {
            let sentence = format!("the kernel cannot {} {}; load {modules}", error.op, error.object);
            OpError::state(purpose, "with nf_tables", sentence).at(error.place).request(error.request)
        }
        _ => error,
    }
}

/// Removes all objects of an attachment, with a connection of its own. Call it after the removal of links, as
/// [`Filter::remove_spoof_guard`]. A kernel without a packet filter is no error.
pub fn remove_all(attachment: Names<'_>, known: RemovalHints<'_>) -> Vec<OpError> {
    carry_on(known.search_path, |filter| {
        let mut errors = filter.remove_masquerade(attachment, known);
        errors.extend(filter.remove_spoof_guard(attachment).err());
        errors
    })
}

/// Removes the masquerade rules of a network's attachments that GC removes; `search_path` is `PATH`, for iptables.
///
/// Absence and a kernel without a packet filter are no errors. Continues after errors and returns them all.
pub fn gc<'a>(network: &str, sweep: impl Into<Sweep<Names<'a>>>, search_path: &str) -> Vec<OpError> {
    let sweep = sweep.into();
    let stale = Stale::new(network, &sweep);
    carry_on(search_path, |Filter { nft, .. }| {
        let steps = [
            nftables_masquerade::gc(nft, &stale),
            shared::masquerade::gc(nft, &stale),
            iptables::masquerade::gc(nft, search_path, network, &sweep),
        ];
        steps.into_iter().filter_map(Result::err).collect()
    })
}

/// Removes the spoof guards whose ports are gone, of any network, except those of valid attachments.
///
/// Absence and a kernel without a packet filter are no errors.
pub fn gc_spoof_guards(valid: &[Names<'_>]) -> Vec<OpError> {
    // Spoof guards are in nf_tables alone.
    carry_on("", |Filter { nft, .. }| spoof_guard::gc(nft, valid).err().into_iter().collect())
}

fn carry_on(search_path: &str, steps: impl FnOnce(&mut Filter) -> Vec<OpError>) -> Vec<OpError> {
    match Filter::find(search_path) {
        Ok(Some(mut filter)) => steps(&mut filter),
        Ok(None) => Vec::new(),
        Err(error) => vec![error],
    }
}

impl AsFd for Filter {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.nft.as_fd()
    }
}
