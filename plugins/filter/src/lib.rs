//! What the plugins put into the packet filter: masquerade and spoof guard.
//!
//! Start at [`Filter`]. Everything is told apart by [`Attachment`], noted in a comment of each object, so that DEL
//! and GC find it without a result, a namespace or a record of ours. README.md shows the tables.

use std::net::IpAddr;

use ipnetwork::IpNetwork;
use netops::error::Result;
use netops::nft::{Nft, Transaction};
use netops::{Errno, OpError};

mod owner;

mod masquerade;
mod spoof;

mod iptables;
mod leftovers;
mod nat_chain;

mod executable;
mod race;

#[doc(hidden)]
pub mod fuzzing;

pub use owner::Attachment;
pub use spoof::Mac;

use owner::Stale;

/// Who masquerades: key `ipMasqBackend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// nf_tables over netlink; no executable is needed.
    #[default]
    Nftables,
    /// The rules of the reference's iptables backend, by `iptables-restore`.
    Iptables,
}

/// What DEL may know of an attachment; what it doesn't is searched for.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known<'a> {
    /// Its addresses; empty means unknown.
    pub addresses: &'a [IpAddr],
    /// The host's end of its veth.
    pub host_veth: Option<&'a str>,
}

/// The packet filter of the host.
#[derive(Debug)]
pub struct Filter {
    nft: Nft,
}

impl Filter {
    /// Connects to the packet filter of the calling thread's network namespace.
    ///
    /// # Errors
    /// `EPROTONOSUPPORT`: the kernel has no nfnetlink.
    pub fn open() -> Result<Self> {
        Ok(Self { nft: Nft::open("the host")? })
    }

    /// Masquerades what these addresses (each with its prefix) send to anywhere but their own prefix and
    /// multicast.
    ///
    /// All addresses or none. Done again, it changes nothing. [`remove_all`] takes it back.
    ///
    /// # Errors
    /// What the kernel or iptables refused.
    pub fn add_masquerade(
        &mut self,
        backend: Backend,
        attachment: Attachment<'_>,
        addresses: &[IpNetwork],
    ) -> Result<()> {
        match backend {
            Backend::Nftables => masquerade::add(&mut self.nft, attachment, addresses),
            Backend::Iptables => iptables::add(&mut self.nft, attachment, addresses),
        }
    }

    /// Compares the rules with what [`Filter::add_masquerade`] makes.
    ///
    /// # Errors
    /// The first that is missing or different.
    pub fn check_masquerade(
        &mut self,
        backend: Backend,
        attachment: Attachment<'_>,
        addresses: &[IpNetwork],
    ) -> Result<()> {
        match backend {
            Backend::Nftables => masquerade::check(&mut self.nft, attachment, addresses),
            Backend::Iptables => iptables::check(&mut self.nft, attachment, addresses),
        }
    }

    /// Lets through what enters the bridge by `host_veth` only if its sender is `mac`.
    ///
    /// Before the container's link comes up, so that nothing else ever passes. Done again, it changes nothing.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn add_spoof_guard(&mut self, attachment: Attachment<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof::add(&mut self.nft, attachment, host_veth, mac)
    }

    /// Compares the rules with what [`Filter::add_spoof_guard`] makes.
    ///
    /// # Errors
    /// The first that is missing or different.
    pub fn check_spoof_guard(&mut self, attachment: Attachment<'_>, host_veth: &str, mac: Mac) -> Result<()> {
        spoof::check(&mut self.nft, attachment, host_veth, mac)
    }

    /// Whether this node can masquerade, for STATUS.
    ///
    /// # Errors
    /// What is missing: a part of the kernel, a privilege, or iptables.
    pub fn probe_masquerade(&mut self, backend: Backend) -> Result<()> {
        match backend {
            Backend::Nftables if masquerade::is_set_up(&mut self.nft)? => Ok(()),
            Backend::Nftables => {
                try_out(&mut self.nft, "masquerade", "nft_chain_nat and nft_masq", &masquerade::trial())
            }
            Backend::Iptables => iptables::probe(),
        }
    }

    /// Whether this node can guard against spoofing, for STATUS.
    ///
    /// # Errors
    /// What is missing: a part of the kernel, or a privilege.
    pub fn probe_spoof_guard(&mut self) -> Result<()> {
        if spoof::is_set_up(&mut self.nft)? {
            return Ok(());
        }
        try_out(&mut self.nft, "guard against spoofing", "nf_tables with its bridge family", &spoof::trial())
    }
}

/// Has the kernel try a transaction of ours; an unknown part of it gets a name an operator can use.
fn try_out(nft: &mut Nft, purpose: &'static str, modules: &str, trial: &Transaction) -> Result<()> {
    nft.try_out(trial).map_err(|error| match error.os_errno() {
        Some(Errno::ENOENT | Errno::EOPNOTSUPP | Errno::EINVAL | Errno::EAFNOSUPPORT) => {
            let sentence = format!("the kernel cannot {} {}; load {modules}", error.op, error.object);
            OpError::state(purpose, "with nf_tables", sentence).at(error.place).request(error.request)
        }
        _ => error,
    })
}

/// Removes all there is of an attachment: ours, and the reference plugins', in either backend.
///
/// Content with absence, and with a kernel that has no packet filter. Goes on past errors and returns
/// them all.
pub fn remove_all(attachment: Attachment<'_>, known: Known<'_>) -> Vec<OpError> {
    carry_on(|nft| {
        vec![
            masquerade::remove(nft, attachment, known.addresses),
            spoof::remove(nft, attachment, known.host_veth),
            leftovers::remove_masquerade(nft, attachment),
            iptables::remove(nft, attachment, known.addresses),
            leftovers::remove_spoof(nft, attachment),
        ]
    })
}

/// Removes all there is of a network but for its valid attachments.
///
/// Content with absence, and with a kernel that has no packet filter. Goes on past errors and returns
/// them all.
pub fn gc(network: &str, valid: &[Attachment<'_>]) -> Vec<OpError> {
    let stale = Stale::new(network, valid);
    carry_on(|nft| {
        vec![
            masquerade::gc(nft, &stale),
            spoof::gc(nft, &stale),
            leftovers::gc_masquerade(nft, &stale),
            iptables::gc(nft, network, valid),
        ]
    })
}

fn carry_on(steps: impl FnOnce(&mut Nft) -> Vec<Result<()>>) -> Vec<OpError> {
    match Filter::open() {
        Ok(mut filter) => steps(&mut filter.nft).into_iter().filter_map(Result::err).collect(),
        // No nfnetlink, so nobody can have put anything there.
        Err(error) if error.os_errno() == Some(Errno::EPROTONOSUPPORT) => Vec::new(),
        Err(error) => vec![error],
    }
}

/// The kernel frees what was deleted without anybody of ours waiting for it.
impl Drop for Filter {
    fn drop(&mut self) {
        self.nft.close_in_child();
    }
}
