//! What the plugins put into the packet filter: masquerade and spoof guard.
//!
//! Start at [`Filter`]. Everything is told apart by [`Names`], noted in a comment of each object, so that DEL
//! and GC find it without a result, a namespace or a record of ours. README.md shows the tables.

use std::fmt;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::nft::{Family, Nft};
use netops::{Errno, OpError};

mod base;
mod owner;

mod masquerade;
mod rules;
mod spoof;

pub mod iptables;

mod inventory;
mod race;

#[doc(hidden)]
pub mod fuzzing;

pub use inventory::{Noted, list};
pub use owner::{Names, Owner, Stale};
pub use spoof::Mac;

/// Who masquerades: key `ipMasqBackend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// The rules of iptables, unless this node can only have those of nf_tables.
    #[default]
    Default,
    /// The rules of iptables: over netlink where iptables is the nf_tables variant, else by its programs.
    Iptables,
    /// nf_tables over netlink; no executable is needed.
    Nftables,
}

/// What DEL may know of an attachment; what it doesn't is searched for.
#[derive(Clone, Copy, Default)]
pub struct Known<'a> {
    /// Its addresses; empty means unknown. They only help where a rule itself does not say whose it is.
    pub addresses: &'a [IpAddr],
    /// Finds the addresses of the container's other interfaces, which are not the attachment's; `None`, or an answer of
    /// `None`, if they cannot be known. Asked only where nothing else tells attachments apart.
    pub held: Option<&'a dyn Fn() -> Option<Vec<IpAddr>>>,
    /// `PATH`, for iptables.
    pub search_path: &'a str,
}

impl fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { addresses, held: _, search_path } = self;
        let mut known = f.debug_struct("Known");
        known.field("addresses", addresses).field("search_path", search_path).finish_non_exhaustive()
    }
}

/// The packet filter of the host.
#[derive(Debug)]
pub struct Filter {
    nft: Nft,
    search_path: String,
}

impl Filter {
    /// Connects to the packet filter of the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
    pub fn open() -> Result<Self> {
        Ok(Self { nft: Nft::open("the host")?, search_path: String::new() })
    }

    /// The same, which finds iptables in these folders (`PATH`) before the system's.
    #[must_use]
    pub fn searching(mut self, search_path: &str) -> Self {
        search_path.clone_into(&mut self.search_path);
        self
    }

    /// One of iptables' tables, where this node has it; `None` if neither the kernel nor a program can have iptables rules.
    ///
    /// # Errors
    /// What the kernel or iptables refused.
    pub fn iptables(&mut self, family: Family, name: iptables::TableName) -> Result<Option<iptables::Table<'_>>> {
        iptables::world::for_new_rules(&mut self.nft, &self.search_path, family, name)
    }

    /// The same, changed by the programs that this node calls `iptables`, of whichever variant: for rules with words that
    /// only these know ([`iptables::Rule::words`]); `None` if they are not installed.
    ///
    /// # Errors
    /// What the program says.
    pub fn iptables_by_program(
        &mut self,
        family: Family,
        name: iptables::TableName,
    ) -> Result<Option<iptables::Table<'static>>> {
        iptables::world::by_program(&self.search_path, family, name)
    }

    /// A table of nf_tables of our own, which is read and changed in the same way; it need not be there yet.
    pub fn native(&mut self, table: iptables::NativeTable) -> iptables::Table<'_> {
        iptables::Table::native(&mut self.nft, table)
    }

    /// Connects as [`Filter::open`] does; `None` on a kernel without a packet filter, where there can be nothing in it.
    ///
    /// # Errors
    /// Any but that.
    pub fn find() -> Result<Option<Self>> {
        match Self::open() {
            Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// Removes the masquerade of an attachment: ours, and the reference plugins', in either backend.
    ///
    /// Content with absence. Goes on past errors and returns them all. What was deleted makes closing the connection wait
    /// for the kernel, 10 to 25 ms from then: close it after other work, or have a helper hold it ([`AsFd`]).
    pub fn remove_masquerade(&mut self, attachment: Names<'_>, known: Known<'_>) -> Vec<OpError> {
        let nft = &mut self.nft;
        let steps = [masquerade::remove(nft, attachment), iptables::masquerade::remove(nft, attachment, known)];
        steps.into_iter().filter_map(Result::err).collect()
    }

    /// Removes the spoof guard of an attachment, ours or the reference's, if its port is gone. So this comes behind
    /// the removal of links: a container is guarded as long as it can send.
    ///
    /// # Errors
    /// What the kernel refused; absence is none.
    pub fn remove_spoof_guard(&mut self, attachment: Names<'_>) -> Result<()> {
        spoof::remove(&mut self.nft, attachment)
    }

    /// Masquerades what these addresses (each with its prefix) send to anywhere but their own prefix and
    /// multicast.
    ///
    /// All addresses or none. Done again, it changes nothing. [`remove_all`] takes it back.
    ///
    /// # Errors
    /// What the kernel or iptables refused.
    pub fn add_masquerade(&mut self, backend: Backend, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
        if backend != Backend::Nftables {
            if iptables::masquerade::add(&mut self.nft, &self.search_path, attachment, addresses)? {
                return Ok(());
            }
            if backend == Backend::Iptables {
                return Err(iptables::world::none(Family::Ip));
            }
            tracing::debug!("this node cannot have iptables rules: masquerade in nf_tables");
        }
        masquerade::add(&mut self.nft, attachment, addresses)
    }

    /// Compares the rules with what [`Filter::add_masquerade`] makes. Those of the other backend do as well: they may be
    /// from before the config was changed, or another make's.
    ///
    /// # Errors
    /// The first that is missing or different.
    pub fn check_masquerade(&mut self, backend: Backend, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
        let by_iptables = iptables::masquerade::check(&mut self.nft, &self.search_path, attachment, addresses);
        if by_iptables.is_ok() {
            return by_iptables;
        }
        let by_nftables = masquerade::check(&mut self.nft, attachment, addresses);
        if backend == Backend::Nftables { by_nftables } else { by_nftables.or(by_iptables) }
    }

    /// Lets through what enters the bridge by `host_veth` only if its sender is `mac`.
    ///
    /// Before the container's link comes up, so that nothing else ever passes. Done again, it changes nothing.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn add_spoof_guard(&mut self, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof::add(&mut self.nft, attachment, host_veth, mac)
    }

    /// Compares the rules with what [`Filter::add_spoof_guard`] makes.
    ///
    /// # Errors
    /// The first that is missing or different.
    pub fn check_spoof_guard(&mut self, attachment: Names<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof::check(&mut self.nft, attachment, host_veth, mac)
    }

    /// Whether this node can masquerade, for STATUS.
    ///
    /// # Errors
    /// What is missing: a part of the kernel, a privilege, or iptables.
    pub fn probe_masquerade(&mut self, backend: Backend) -> Result<()> {
        if backend != Backend::Nftables {
            if iptables::masquerade::probe(&mut self.nft, &self.search_path)? {
                return Ok(());
            }
            if backend == Backend::Iptables {
                return Err(iptables::world::none(Family::Ip));
            }
        }
        masquerade::probe(&mut self.nft).map_err(|error| lacking(error, "masquerade", "nft_chain_nat and nft_masq"))
    }

    /// Whether this node can guard against spoofing, for STATUS.
    ///
    /// # Errors
    /// What is missing: a part of the kernel, or a privilege.
    pub fn probe_spoof_guard(&mut self) -> Result<()> {
        let modules = "nf_tables with its bridge family";
        spoof::probe(&mut self.nft).map_err(|error| lacking(error, "guard against spoofing", modules))
    }
}

/// Gives an unknown part of the kernel a name that an operator can use.
fn lacking(error: OpError, purpose: &'static str, modules: &str) -> OpError {
    match error.os_errno() {
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EAFNOSUPPORT) => {
            let sentence = format!("the kernel cannot {} {}; load {modules}", error.op, error.object);
            OpError::state(purpose, "with nf_tables", sentence).at(error.place).request(error.request)
        }
        _ => error,
    }
}

/// Removes all there is of an attachment, with a connection of its own; after its links, as [`Filter::remove_spoof_guard`].
/// Content with a kernel that has no packet filter.
pub fn remove_all(attachment: Names<'_>, known: Known<'_>) -> Vec<OpError> {
    carry_on(|filter| {
        let mut errors = filter.remove_masquerade(attachment, known);
        errors.extend(filter.remove_spoof_guard(attachment).err());
        errors
    })
}

/// Removes the masquerade of a network but for its valid attachments; `search_path` is `PATH`, for iptables.
///
/// Content with absence, and with a kernel that has no packet filter. Goes on past errors and returns
/// them all.
pub fn gc(network: &str, valid: &[Names<'_>], search_path: &str) -> Vec<OpError> {
    let stale = Stale::new(network, valid);
    carry_on(|Filter { nft, .. }| {
        let steps = [masquerade::gc(nft, &stale), iptables::masquerade::gc(nft, search_path, network, valid)];
        steps.into_iter().filter_map(Result::err).collect()
    })
}

/// Removes the spoof guards whose ports are gone, whatever their network, but for those of valid attachments.
///
/// Content with absence, and with a kernel that has no packet filter.
pub fn gc_spoof_guards(valid: &[Names<'_>]) -> Vec<OpError> {
    carry_on(|Filter { nft, .. }| spoof::gc(nft, valid).err().into_iter().collect())
}

fn carry_on(steps: impl FnOnce(&mut Filter) -> Vec<OpError>) -> Vec<OpError> {
    match Filter::find() {
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
