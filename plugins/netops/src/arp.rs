//! ARP on one link: whether another station has an IPv4 address (RFC 5227).

use std::net::Ipv4Addr;

use nix::libc::{BPF_ABS, BPF_JEQ, BPF_JMP, BPF_K, BPF_LD, BPF_RET, BPF_W};
use socket2::SockFilter;

use crate::error::{OpError, Result};
use crate::link::{Link, Mac};
use crate::netns::Netns;
use crate::packet::Frames;

/// `ETH_P_ARP` (linux/if_ether.h).
pub(crate) const ETH_P_ARP: u16 = 0x0806;
/// Ethernet, IPv4, and the lengths of their addresses (RFC 826).
const ETHERNET_AND_IPV4: [u8; 6] = [0, 1, 8, 0, 6, 4];
const REQUEST: [u8; 2] = [0, 1];

/// A socket for ARP about one address on one link.
#[derive(Debug)]
pub struct Arp {
    frames: Frames,
    address: Ipv4Addr,
}

impl Arp {
    /// Opens a socket on `link` in its namespace. The kernel drops what is about other addresses.
    ///
    /// # Errors
    /// `ENODEV`: the link is gone; `EPERM` without `CAP_NET_RAW` over the namespace; `ENETDOWN`.
    pub fn open(netns: &Netns, link: &Link, address: Ipv4Addr) -> Result<Self> {
        Ok(Self { frames: Frames::open(netns, link, ETH_P_ARP, &about(address))?, address })
    }

    /// Asks all stations of the link for the address without claiming it.
    ///
    /// # Errors
    /// `ENETDOWN`: the link is down; `ENXIO`: it is gone; `ENOBUFS`.
    pub fn probe(&self) -> Result<()> {
        let failed = |errno| OpError::errno("send", format!("an ARP probe for {}", self.address), errno);
        self.frames.send(&probe(self.frames.mac, self.address)).map_err(failed)
    }

    /// Waits for another station that has the address, or that probes for it, too.
    ///
    /// # Errors
    /// `ENETDOWN`: the link went down or is gone.
    pub async fn other_holder(&self) -> Result<Mac> {
        self.frames.receive(|frame| holder(frame, self.address).filter(|&mac| mac != self.frames.mac)).await
    }
}

pub(crate) fn probe(mac: Mac, address: Ipv4Addr) -> Vec<u8> {
    let ethernet = [&[0xff; 6][..], &mac.0, &ETH_P_ARP.to_be_bytes()].concat();
    let unspecified = Ipv4Addr::UNSPECIFIED.octets();
    [&ethernet, &ETHERNET_AND_IPV4[..], &REQUEST, &mac.0, &unspecified, &[0; 6], &address.octets()].concat()
}

/// Whether an ARP message answers a request.
pub(crate) fn is_reply(frame: &[u8]) -> bool {
    frame.get(20..22) == Some(&[0, 2])
}

/// The sender of an ARP message that has the address, or probes for it (RFC 5227, 2.1.1).
pub(crate) fn holder(frame: &[u8], address: Ipv4Addr) -> Option<Mac> {
    let message = frame.get(14..42)?;
    let (kind, operation) = message.split_at(6);
    if kind != ETHERNET_AND_IPV4 {
        return None;
    }
    let part = |at: usize| message.get(at..)?.first_chunk::<4>().copied().map(Ipv4Addr::from);
    let (sender, target) = (part(14)?, part(24)?);
    let is_probe = operation.starts_with(&REQUEST) && sender.is_unspecified();
    let holds = sender == address || (is_probe && target == address);
    holds.then(|| message.get(8..)?.first_chunk::<6>().copied().map(Mac)).flatten()
}

/// A program for the kernel (linux/filter.h): ARP whose sender or target has the address.
#[expect(clippy::cast_possible_truncation, reason = "operation codes have less than 16 bits")]
fn about(address: Ipv4Addr) -> [SockFilter; 6] {
    let statement = |code: u32, k: u32| SockFilter::new(code as u16, 0, 0, k);
    let jump = |jt: u8, jf: u8| SockFilter::new((BPF_JMP | BPF_JEQ | BPF_K) as u16, jt, jf, address.to_bits());
    [
        statement(BPF_LD | BPF_W | BPF_ABS, 28), // the sender's
        jump(2, 0),
        statement(BPF_LD | BPF_W | BPF_ABS, 38), // the target's
        jump(0, 1),
        statement(BPF_RET | BPF_K, u32::MAX),
        statement(BPF_RET | BPF_K, 0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 9);
    const MAC: Mac = Mac([2, 0, 0, 0, 0, 5]);

    #[test]
    fn a_station_that_probes_or_has_the_address_holds_it() {
        let bytes = probe(MAC, ADDRESS);
        assert_eq!(holder(&bytes, ADDRESS), Some(MAC));
        assert_eq!(holder(&bytes, Ipv4Addr::new(10, 0, 0, 8)), None);
        assert_eq!(holder(&bytes, Ipv4Addr::UNSPECIFIED), Some(MAC), "the sender's address of a probe");
        let mut reply = bytes.clone();
        reply[21] = 2;
        assert_eq!(holder(&reply, ADDRESS), None, "an answer about the address is not of its holder");
        reply[28..32].copy_from_slice(&ADDRESS.octets());
        assert_eq!(holder(&reply, ADDRESS), Some(MAC));
        for length in 0..bytes.len() {
            assert_eq!(holder(&bytes[..length], ADDRESS), None);
        }
    }
}
