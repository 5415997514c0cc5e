//! Which stations of a link answer for addresses: ARP and neighbour discovery, for many addresses at once.
//!
//! The requests change no station's table: an ARP probe has no sender's address (RFC 5227); a solicitation has a link-local
//! address of this link's Ethernet address. But a station that is itself probing for an address at that moment takes the ARP
//! probe for a conflict (RFC 5227, 2.1.1).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use nix::libc::{BPF_K, BPF_RET};
use socket2::SockFilter;
use tokio::time::{Instant, timeout_at};

use crate::arp::{ETH_P_ARP, probe};
use crate::error::{OpError, Result};
use crate::link::{Link, Mac};
use crate::netns::Netns;
use crate::packet::Frames;

/// `ETH_P_IPV6` (linux/if_ether.h).
pub(crate) const ETH_P_IPV6: u16 = 0x86dd;
/// Requests that are sent at once, before a [`PAUSE`]: 1,600 in a second.
const AT_ONCE: usize = 32;
const PAUSE: Duration = Duration::from_millis(20);
/// Questions to a silent station: a request may be lost.
const ROUNDS: usize = 3;
/// The time that the last answers may take.
const LAST: Duration = Duration::from_millis(500);
const ICMPV6: u8 = 58;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;

/// The most stations that are reported for one address. A station can answer by any number of Ethernet addresses.
const STATIONS_MAX: usize = 8;

/// The stations that answer for each address.
pub type Stations = BTreeMap<IpAddr, BTreeSet<Mac>>;

/// The time that [`scan`] takes at most, for a number of addresses.
#[must_use]
pub fn duration(addresses: usize) -> Duration {
    let chunks = u32::try_from(addresses.div_ceil(AT_ONCE) + 1).unwrap_or(u32::MAX);
    (PAUSE.saturating_mul(chunks) + LAST).saturating_mul(u32::try_from(ROUNDS).unwrap_or(u32::MAX))
}

/// Asks all stations of a link for addresses, except for its own.
///
/// # Errors
/// `ENETDOWN`: the link is down; `EPERM` without `CAP_NET_RAW` over the namespace; the link has no Ethernet address.
pub async fn scan(netns: &Netns, link: &Link, addresses: &[IpAddr]) -> Result<Stations> {
    let all = [SockFilter::new(u16::try_from(BPF_RET | BPF_K).unwrap_or_default(), 0, 0, u32::MAX)];
    let (arp, ndp) = (Frames::open(netns, link, ETH_P_ARP, &all)?, Frames::open(netns, link, ETH_P_IPV6, &all)?);
    // A station may answer for what it was not asked for, without end.
    let asked: BTreeSet<IpAddr> = addresses.iter().copied().collect();
    let mut found = Stations::new();
    for _ in 0..ROUNDS {
        let silent: Vec<IpAddr> = addresses.iter().copied().filter(|address| !found.contains_key(address)).collect();
        for some in silent.chunks(AT_ONCE) {
            for address in some {
                let (frames, request) = match address {
                    IpAddr::V4(ip) => (&arp, probe(arp.mac, *ip)),
                    IpAddr::V6(ip) => (&ndp, solicitation(ndp.mac, *ip)),
                };
                let failed = |errno| OpError::errno("send", format!("a request for {address}"), errno);
                frames.send(&request).map_err(failed)?;
            }
            listen(&arp, &ndp, PAUSE, (&asked, &mut found)).await?;
        }
        if silent.is_empty() {
            break;
        }
        listen(&arp, &ndp, LAST, (&asked, &mut found)).await?;
    }
    Ok(found)
}

/// Takes what comes within a time.
async fn listen(
    arp: &Frames,
    ndp: &Frames,
    time: Duration,
    (asked, found): (&BTreeSet<IpAddr>, &mut Stations),
) -> Result<()> {
    let end = Instant::now() + time;
    let next = async || {
        tokio::select! {
            answer = arp.receive(arp_answer) => answer,
            answer = ndp.receive(advertisement) => answer,
        }
    };
    while let Ok(answer) = timeout_at(end, next()).await {
        note((asked, found), answer?, arp.mac);
    }
    Ok(())
}

/// Notes an answer of another station to what was asked.
fn note((asked, found): (&BTreeSet<IpAddr>, &mut Stations), (address, mac): (IpAddr, Mac), own: Mac) {
    if mac == own || !asked.contains(&address) {
        return;
    }
    let stations = found.entry(address).or_default();
    if stations.len() < STATIONS_MAX {
        stations.insert(mac);
    }
}

/// The sender of an ARP message, request or reply, which has an address.
pub(crate) fn arp_answer(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let sender = frame.get(28..32)?.first_chunk::<4>().copied()?;
    let mac = crate::arp::holder(frame, sender.into())?;
    (sender != [0; 4]).then_some((IpAddr::from(sender), mac))
}

/// A request for an address (RFC 4861, 4.3) to the multicast address of all stations that may have it.
pub(crate) fn solicitation(mac: Mac, target: Ipv6Addr) -> Vec<u8> {
    let [.., x, y, z] = target.octets();
    let [a, b, c, d, e, g] = mac.0;
    let from = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, g];
    let to = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, x, y, z];
    let mut message = [&[SOLICITATION, 0, 0, 0, 0, 0, 0, 0][..], &target.octets(), &[1, 1], &mac.0].concat();
    let length = u16::try_from(message.len()).unwrap_or_default();
    let pseudo = [&from[..], &to, &u32::from(length).to_be_bytes(), &[0, 0, 0, ICMPV6]].concat();
    let sum = crate::packet::checksum(&[&pseudo, &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let ethernet = [&[0x33, 0x33, 0xff, x, y, z][..], &mac.0, &ETH_P_IPV6.to_be_bytes()].concat();
    let header = [&[0x60, 0, 0, 0][..], &length.to_be_bytes(), &[ICMPV6, 255]].concat();
    [&ethernet[..], &header, &from, &to, &message].concat()
}

/// The address of a neighbour advertisement (RFC 4861, 4.4), and the Ethernet address that it names, or that sent it.
pub(crate) fn advertisement(frame: &[u8]) -> Option<(IpAddr, Mac)> {
    let packet = frame.get(14..)?;
    if packet.first()? >> 4 != 6 || packet.get(6..8)? != [ICMPV6, 255] || *packet.get(40)? != ADVERTISEMENT {
        return None;
    }
    let target = packet.get(48..)?.first_chunk::<16>()?;
    let named = packet.get(64..66).is_some_and(|option| option == [2, 1]).then(|| packet.get(66..)?.first_chunk::<6>());
    let mac = named.flatten().or_else(|| frame.get(6..)?.first_chunk::<6>())?;
    Some((IpAddr::from(*target), Mac(*mac)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAC: Mac = Mac([2, 0, 0, 0, 0, 5]);

    #[test]
    fn a_station_that_answers_without_end_fills_no_memory() {
        let (asked, other) = (IpAddr::from([10, 0, 0, 9]), IpAddr::from([10, 0, 0, 8]));
        let (all, mut found) = (BTreeSet::from([asked]), Stations::new());
        for number in 0..100 {
            let mac = Mac([2, 0, 0, 0, 1, number]);
            note((&all, &mut found), (asked, mac), MAC);
            note((&all, &mut found), (other, mac), MAC);
        }
        note((&all, &mut found), (asked, MAC), MAC);
        let told: Vec<(IpAddr, usize)> = found.iter().map(|(address, macs)| (*address, macs.len())).collect();
        assert_eq!(told, [(asked, STATIONS_MAX)]);
    }

    #[test]
    fn an_answer_names_its_sender_and_a_probe_nobody() {
        let mut frame = probe(MAC, [10, 0, 0, 9].into());
        assert_eq!(arp_answer(&frame), None);
        frame[28..32].copy_from_slice(&[10, 0, 0, 9]);
        assert_eq!(arp_answer(&frame), Some(([10, 0, 0, 9].into(), MAC)));
        for length in 0..42 {
            assert_eq!(arp_answer(&frame[..length]), None);
        }
    }

    #[test]
    fn a_solicitation_becomes_an_advertisement_with_a_right_checksum() {
        let target: Ipv6Addr = "fd01::9".parse().unwrap();
        let mut frame = solicitation(MAC, target);
        assert_eq!(crate::packet::checksum(&[&frame[22..54], &[0, 0, 0, 32, 0, 0, 0, 58], &frame[54..]]), 0);
        assert_eq!(advertisement(&frame), None);
        (frame[54], frame[78]) = (ADVERTISEMENT, 2);
        assert_eq!(advertisement(&frame), Some((target.into(), MAC)));
        for length in 0..78 {
            assert_eq!(advertisement(&frame[..length]), None);
        }
    }
}
