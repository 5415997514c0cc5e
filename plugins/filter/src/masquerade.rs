//! Masquerade: which backend makes, compares and removes its rules. Those of iptables are `iptables/masquerade.rs`'s, those of
//! nf_tables alone `nftables_masquerade.rs`'s, shared ones `shared/masquerade.rs`'s.

use ipnetwork::IpNetwork;
use netops::OpError;
use netops::error::Result;
use netops::nft::{Family, Nft};

use crate::{Filter, Names, RemovalHints, iptables, lacking, nftables_masquerade, shared};

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
    /// Key `rules`: elements in sets of nf_tables; no rule is made for a container.
    Shared,
}

/// The packets that are masqueraded.
#[derive(Debug, Clone, Copy)]
pub struct Masquerade<'a> {
    /// The sources, each with its prefix, to which packets are not masqueraded.
    pub addresses: &'a [IpNetwork],
    /// Destinations to which packets are not masqueraded either. Not with [`Backend::Shared`].
    pub spared: &'a [IpNetwork],
}

impl<'a, T: AsRef<[IpNetwork]> + ?Sized> From<&'a T> for Masquerade<'a> {
    fn from(addresses: &'a T) -> Self {
        Self { addresses: addresses.as_ref(), spared: &[] }
    }
}

impl Masquerade<'_> {
    /// The spared destinations of the address's family.
    pub(crate) fn spared(&self, address: IpNetwork) -> impl Iterator<Item = IpNetwork> {
        self.spared.iter().copied().filter(move |spared| spared.is_ipv4() == address.is_ipv4())
    }
}

/// The parts of the kernel that shared rules need.
const SHARED_NEEDS: &str = "nf_tables with sets, nft_chain_nat and nft_masq (Linux 4.18)";

impl Filter {
    /// Masquerades packets from these addresses, unless they are sent to their own prefix, to multicast or to what is spared.
    ///
    /// All addresses or none. Repeating it changes nothing. [`crate::remove_all`] undoes it.
    ///
    /// # Errors
    /// The refusal of the kernel or iptables.
    pub fn add_masquerade<'a>(
        &mut self,
        backend: Backend,
        attachment: Names<'_>,
        of: impl Into<Masquerade<'a>>,
    ) -> Result<()> {
        let of = of.into();
        if backend == Backend::Shared {
            let added = shared::masquerade::add(&mut self.nft, attachment, of.addresses);
            return added.map_err(|error| lacking(error, "masquerade by shared rules", SHARED_NEEDS));
        }
        if backend != Backend::Nftables {
            if iptables::masquerade::add(&mut self.nft, &self.search_path, attachment, of)? {
                return Ok(());
            }
            if backend == Backend::Iptables {
                return Err(iptables::variant::none(Family::Ip));
            }
            iptables::variant::note_native();
        }
        nftables_masquerade::add(&mut self.nft, attachment, of)
    }

    /// Compares the rules with those that [`Filter::add_masquerade`] makes. Rules of another backend are accepted:
    /// the config may have changed since ADD, or another program made them.
    ///
    /// # Errors
    /// The first rule that is missing or different.
    pub fn check_masquerade<'a>(
        &mut self,
        backend: Backend,
        attachment: Names<'_>,
        of: impl Into<Masquerade<'a>>,
    ) -> Result<()> {
        let of = of.into();
        let by_shared = |nft: &mut Nft| shared::masquerade::check(nft, attachment, of.addresses);
        if backend == Backend::Shared && by_shared(&mut self.nft).is_ok() {
            return Ok(());
        }
        let by_iptables = iptables::masquerade::check(&mut self.nft, &self.search_path, attachment, of);
        if by_iptables.is_ok() {
            return by_iptables;
        }
        let by_nftables = nftables_masquerade::check(&mut self.nft, attachment, of);
        if by_nftables.is_ok() {
            return by_nftables;
        }
        match (backend, by_shared(&mut self.nft)) {
            (Backend::Shared, by_shared) => by_shared,
            (_, Ok(())) if of.spared.is_empty() => Ok(()),
            (Backend::Nftables, _) => by_nftables,
            (Backend::Default | Backend::Iptables, _) => by_iptables,
        }
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
        let shared = shared::FAMILIES.map(|family| (family, shared::masquerade::postrouting(family)));
        let [(_, shared_ip), (_, shared_ip6)] = &shared;
        let (own, has_chain, has_shared) =
            match nft.find_chains([&both, &each_ip, &each_ip6, &ip, &ip6, shared_ip, shared_ip6]) {
                Ok([both, each_ip, each_ip6, ip, ip6, shared_ip, shared_ip6]) => (
                    nftables_masquerade::remove(
                        nft,
                        attachment,
                        &nftables_masquerade::Places::of([both, each_ip, each_ip6]),
                    ),
                    [ip, ip6].map(|chain| chain.is_some()),
                    [shared_ip, shared_ip6].map(|chain| chain.is_some()),
                ),
                // A single object may be the reason: the others are removed all the same.
                Err(error) => {
                    let found = nft.find_chains([&ip, &ip6]);
                    (Err(error), found.map_or([false; 2], |found| found.map(|chain| chain.is_some())), [true; 2])
                }
            };
        let mut steps = vec![own, iptables::masquerade::remove(nft, attachment, known, has_chain)];
        for ((family, _), _) in shared.iter().zip(has_shared).filter(|(_, has)| *has) {
            steps.push(shared::masquerade::remove(nft, *family, attachment));
        }
        steps.into_iter().filter_map(Result::err).collect()
    }

    /// Returns whether this node can masquerade, for STATUS.
    ///
    /// # Errors
    /// The missing part: a kernel feature, a privilege, or iptables.
    pub fn probe_masquerade(&mut self, backend: Backend) -> Result<()> {
        if backend == Backend::Shared {
            let tried = shared::masquerade::probe(&mut self.nft);
            return tried.map_err(|error| lacking(error, "masquerade by shared rules", SHARED_NEEDS));
        }
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
