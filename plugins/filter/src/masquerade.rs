//! Masquerade: which backend makes, compares and removes its rules. Those of iptables are `iptables/masquerade.rs`'s, those of
//! nf_tables alone `nftables_masquerade.rs`'s.

use ipnetwork::IpNetwork;
use netops::OpError;
use netops::error::Result;
use netops::nft::Family;

use crate::{Filter, Names, RemovalHints, iptables, lacking, nftables_masquerade};

/// The backend of masquerade: key `ipMasqBackend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Backend {
    /// iptables rules, unless this node can only have nf_tables rules.
    #[default]
    Default,
    /// iptables rules: over netlink if iptables is the nf_tables variant, else by its programs.
    Iptables,
    /// nf_tables over netlink; no executable is needed.
    Nftables,
}

impl Filter {
    /// Masquerades packets from these addresses (each with its prefix), unless they are sent to their own prefix or to
    /// multicast.
    ///
    /// All addresses or none. Repeating it changes nothing. [`crate::remove_all`] undoes it.
    ///
    /// # Errors
    /// The refusal of the kernel or iptables.
    pub fn add_masquerade(&mut self, backend: Backend, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
        if backend != Backend::Nftables {
            if iptables::masquerade::add(&mut self.nft, &self.search_path, attachment, addresses)? {
                return Ok(());
            }
            if backend == Backend::Iptables {
                return Err(iptables::variant::none(Family::Ip));
            }
            iptables::variant::note_native();
        }
        nftables_masquerade::add(&mut self.nft, attachment, addresses)
    }

    /// Compares the rules with those that [`Filter::add_masquerade`] makes. Rules of the other backend are accepted:
    /// the config may have changed since ADD, or another program made them.
    ///
    /// # Errors
    /// The first rule that is missing or different.
    pub fn check_masquerade(&mut self, backend: Backend, attachment: Names<'_>, addresses: &[IpNetwork]) -> Result<()> {
        let by_iptables = iptables::masquerade::check(&mut self.nft, &self.search_path, attachment, addresses);
        if by_iptables.is_ok() {
            return by_iptables;
        }
        let by_nftables = nftables_masquerade::check(&mut self.nft, attachment, addresses);
        if backend == Backend::Nftables { by_nftables } else { by_nftables.or(by_iptables) }
    }

    /// Removes the masquerade rules of an attachment, ours and the reference plugins', in either backend.
    ///
    /// Absence is no error. Continues after errors and returns them all. After a deletion, closing the connection waits
    /// for the kernel for 10 to 25 ms: close it after other work, or let a helper process hold it ([`AsFd`](std::os::fd::AsFd)).
    pub fn remove_masquerade(&mut self, attachment: Names<'_>, known: RemovalHints<'_>) -> Vec<OpError> {
        let nft = &mut self.nft;
        // Most attachments have rules of one backend or none, which one send shows.
        let ([both, each_ip, each_ip6], [ip, ip6]) =
            (nftables_masquerade::places(), iptables::masquerade::places(attachment));
        let (own, has_chain) = match nft.find_chains([&both, &each_ip, &each_ip6, &ip, &ip6]) {
            Ok([both, each_ip, each_ip6, ip, ip6]) => (
                nftables_masquerade::remove(
                    nft,
                    attachment,
                    &nftables_masquerade::Places::of([both, each_ip, each_ip6]),
                ),
                [ip, ip6].map(|chain| chain.is_some()),
            ),
            // A single object may be the reason: the others are removed all the same.
            Err(error) => {
                let found = nft.find_chains([&ip, &ip6]);
                (Err(error), found.map_or([false; 2], |found| found.map(|chain| chain.is_some())))
            }
        };
        let steps = [own, iptables::masquerade::remove(nft, attachment, known, has_chain)];
        steps.into_iter().filter_map(Result::err).collect()
    }

    /// Returns whether this node can masquerade, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature, a privilege, or iptables.
    pub fn probe_masquerade(&mut self, backend: Backend) -> Result<()> {
        if backend != Backend::Nftables {
            if iptables::masquerade::probe(&mut self.nft, &self.search_path)? {
                return Ok(());
            }
            if backend == Backend::Iptables {
                return Err(iptables::variant::none(Family::Ip));
            }
        }
        nftables_masquerade::probe(&mut self.nft)
            .map_err(|error| lacking(error, "masquerade", "nft_chain_nat and nft_masq"))
    }
}
