//! Input of dhcp: frames and answers of a network that anybody may send to, and the lines on the daemon's socket.

use dhcp::ipv6::{self, Identity, message};
use dhcp::lease::{INFINITE, Lease};
use dhcp::message::Incoming;
use dhcp::rpc::Envelope;
use netops::fuzzing;
use std::net::Ipv4Addr;

/// A server's answer, as bytes and in a frame. A lease that is made of it is one that a client can hold and renew.
pub fn dhcp_answer(data: &[u8]) {
    let frame = fuzzing::datagram(data, 68);
    let claimed = fuzzing::arp_holder(data, Ipv4Addr::new(10, 8, 0, 77));
    assert!(claimed.is_none_or(|mac| data.windows(6).any(|part| part == mac.0)));
    let payload = frame.as_ref().map_or(data, |datagram| &datagram.payload);
    assert!(payload.len() <= data.len());
    let Some(mac) = payload.get(28..34).and_then(|mac| mac.try_into().ok()) else { return };
    let Some(answer) = Incoming::decode(payload, mac) else { return };
    assert_eq!(Incoming::decode(payload, [!mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]]), None, "it is another's");
    let Ok(lease) = Lease::of(&answer) else { return };
    lease_holds(&lease);
    let written = serde_json::to_vec(&lease).expect("it can be written");
    assert_eq!(serde_json::from_slice::<Lease>(&written).expect("what was written can be read"), lease);
}

fn lease_holds(lease: &Lease) {
    let Lease { address, server, seconds, renew_seconds, rebind_seconds, .. } = *lease;
    let is_a_hosts =
        |address: Ipv4Addr| !address.is_unspecified() && !address.is_multicast() && !address.is_broadcast();
    assert!(is_a_hosts(address.ip()) && is_a_hosts(server) && server != address.ip());
    assert!(lease.routers.iter().all(|&router| is_a_hosts(router)));
    assert!(0 < renew_seconds && renew_seconds <= rebind_seconds && rebind_seconds <= seconds);
    assert!(seconds == INFINITE || renew_seconds < seconds);
    let result = lease.result(7);
    assert!(result.ips.len() == 1 && result.routes.iter().all(|route| route.priority == 7));
    let words = result.dns.nameservers.iter().chain([&result.dns.domain]).chain(&result.dns.search);
    assert!(
        words.into_iter().all(|word| !word.contains(char::is_whitespace)),
        "a word of resolv.conf: {:?}",
        result.dns
    );
}

/// A DHCPv6 server's message, as bytes and as the options of one that is for the client.
pub fn dhcp_ipv6_answer(data: &[u8]) {
    let identity = Identity { duid: vec![0, 4, 7], iaid: 9 };
    let mine = [&[7, 0, 0, 5, 0, 1, 0, 3, 0, 4, 7, 0, 2, 0, 1, 8], data].concat();
    for bytes in [data, &mine] {
        let Some(answer) = message::Incoming::decode(bytes, &identity) else { continue };
        assert!(answer.xid < 1 << 24 && !answer.server.is_empty());
        let Ok(lease) = answer.lease() else { continue };
        let ipv6::Lease { address, preferred_seconds, seconds, renew_seconds, rebind_seconds, .. } = lease;
        assert!(!address.is_unspecified() && !address.is_multicast() && !address.is_unicast_link_local());
        assert!(0 < renew_seconds && renew_seconds <= rebind_seconds && rebind_seconds <= seconds);
        assert!(preferred_seconds <= seconds && (seconds == INFINITE || renew_seconds < seconds));
        let mut result = cni_spec::AddResult::default();
        ipv6::Given::Leased(lease.clone()).extend(&mut result, true);
        let words = result.dns.nameservers.iter().chain(&result.dns.search);
        assert!(
            words.into_iter().all(|word| !word.is_empty() && !word.contains(char::is_whitespace)),
            "{:?}",
            result.dns
        );
        let written = serde_json::to_vec(&lease).expect("it can be written");
        assert_eq!(serde_json::from_slice::<ipv6::Lease>(&written).expect("what was written can be read"), lease);
    }
}

/// A request on the daemon's socket. What is read is the same when written and read again.
pub fn dhcp_request(data: &[u8]) {
    let Ok(envelope) = serde_json::from_slice::<Envelope>(data) else { return };
    let written = serde_json::to_vec(&envelope).expect("it can be written");
    assert!(!written.contains(&b'\n'), "it is one line");
    assert_eq!(serde_json::from_slice::<Envelope>(&written).expect("what was written can be read"), envelope);
}
