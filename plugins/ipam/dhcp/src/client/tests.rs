use super::*;

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 5];
const SERVER: u8 = 1;

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn client() -> Client {
    let identity = Identity {
        mac: MAC,
        client_id: b"\0c/n/eth0".to_vec(),
        options: Vec::new(),
        request: vec![3, 1],
        broadcast: false,
    };
    Client::new(identity, Timing::default(), 7, at(0))
}

/// The kind of what is sent, where to, and its number.
fn sent(actions: &Actions) -> Option<(u8, To, u32)> {
    let (to, bytes) = actions.send.as_ref()?;
    let kind = bytes.windows(3).find(|option| option[..2] == [53, 1])?[2];
    Some((kind, *to, u32::from_be_bytes(bytes[4..8].try_into().unwrap())))
}

/// A message of the server 10.0.0.`server` for 10.0.0.`address`: a lease of 100 s.
fn said(kind: MessageType, server: u8, address: u8, xid: u32) -> Incoming {
    let mut bytes = vec![0; 240];
    bytes[..4].copy_from_slice(&[2, 1, 6, 0]);
    bytes[4..8].copy_from_slice(&xid.to_be_bytes());
    bytes[16..20].copy_from_slice(&[10, 0, 0, address]);
    bytes[28..34].copy_from_slice(&MAC);
    bytes[236..].copy_from_slice(&[99, 130, 83, 99]);
    bytes.extend([53, 1, u8::from(kind), 54, 4, 10, 0, 0, server, 51, 4, 0, 0, 0, 100, 1, 4, 255, 255, 255, 0]);
    bytes.extend([56, 4, b'b', b'u', b's', b'y', 255]);
    Incoming::decode(&bytes, MAC).unwrap()
}

/// A client that is bound to 10.0.0.9 since second 0.
fn bound() -> Client {
    let mut client = client();
    let (_, _, xid) = sent(&client.wake(at(0), 0).unwrap()).unwrap();
    client.receive(&said(MessageType::Offer, SERVER, 9, xid), at(0), 0).unwrap();
    let done = client.receive(&said(MessageType::Ack, SERVER, 9, xid), at(0), 0).unwrap();
    assert!(matches!(done.event, Some(Event::Bound(_))), "{done:?}");
    client
}

#[test]
fn silent_servers_are_asked_quickly_then_ever_more_slowly() {
    let mut client = client();
    let mut pauses = Vec::new();
    let mut now = at(0);
    for _ in 0..12 {
        client.wake(now, 1000).unwrap(); // a jitter of zero
        pauses.push((client.wakes() - now).as_millis());
        now = client.wakes();
    }
    let expected = [300, 700, 2000, 2000, 2000, 2000, 4000, 8000, 16000, 32000, 62000, 62000];
    assert_eq!(pauses, expected);
}

#[test]
fn offer_that_is_not_acknowledged_is_given_up_after_the_timeout() {
    let mut client = client();
    let (_, _, xid) = sent(&client.wake(at(0), 1000).unwrap()).unwrap();
    client.receive(&said(MessageType::Offer, SERVER, 9, xid), at(0), 1000).unwrap();
    let mut kinds = Vec::new();
    while client.wakes() <= at(10) {
        kinds.extend(sent(&client.wake(client.wakes(), 1000).unwrap()).map(|(kind, _, _)| kind));
    }
    assert!(kinds.starts_with(&[3, 3, 3]) && kinds.contains(&1), "{kinds:?}");
}

#[test]
fn infinite_lease_needs_no_renewal() {
    let mut client = client();
    let (_, _, xid) = sent(&client.wake(at(0), 0).unwrap()).unwrap();
    client.receive(&said(MessageType::Offer, SERVER, 9, xid), at(0), 0).unwrap();
    let mut ack = said(MessageType::Ack, SERVER, 9, xid);
    ack.set(code::LEASE_SECONDS, vec![0xff; 4]);
    client.receive(&ack, at(0), 0).unwrap();
    assert!(client.wakes() > at(1 << 40));
}

#[test]
fn overdue_renewals_are_spread_over_ten_seconds_or_a_tenth_of_what_is_left() {
    let lease = |seconds: u32| Lease { seconds, ..bound().held().unwrap().0.clone() };
    let wakes = |seconds: u32, now: Duration, random: u32| {
        let Client { identity, timing, .. } = client();
        Client::resume(identity, timing, 7, lease(seconds), at(0)).spread(now, random).wakes()
    };
    let latest = u32::MAX;
    for random in [0, latest] {
        assert_eq!(wakes(100, at(20), random), at(50), "not overdue");
        assert_eq!(wakes(100, at(100), random), at(100), "ended");
        assert_eq!(wakes(100, at(500), random), at(500), "ended");
    }
    assert_eq!((wakes(100, at(60), 0), wakes(100, at(60), latest)), (at(60), at(64)));
    assert_eq!((wakes(7200, at(60), 0), wakes(7200, at(60), latest)), (at(60), at(70)));
    assert_eq!((wakes(INFINITE, at(60), 0), wakes(INFINITE, at(60), latest)), (at(60), at(70)));
    let middle = wakes(7200, at(60), latest / 2).as_millis();
    assert!((64_900..65_100).contains(&middle), "{middle}");
    // A client whose lease was lost before asks for a new one.
    let lost = |random| Client { wakes: at(60), ..client() }.spread(at(60), random).wakes();
    assert_eq!((lost(0), lost(latest)), (at(60), at(70)));
}
