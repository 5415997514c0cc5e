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
fn first_offer_is_requested_of_its_server() {
    let mut client = client();
    let (kind, to, xid) = sent(&client.wake(at(0), 0).unwrap()).unwrap();
    assert_eq!((kind, to), (1, To::Anyone));
    let requested = client.receive(&said(MessageType::Offer, SERVER, 9, xid), at(0), 0).unwrap();
    assert_eq!(sent(&requested), Some((3, To::Anyone, xid)));
    // A second offer, an acknowledgement of another server and one to another exchange change nothing.
    for ignored in [
        said(MessageType::Offer, 2, 10, xid),
        said(MessageType::Ack, 2, 10, xid),
        said(MessageType::Nak, 2, 10, xid),
        said(MessageType::Ack, SERVER, 9, xid + 1),
    ] {
        assert_eq!(client.receive(&ignored, at(0), 0).unwrap(), Actions::default());
    }
    let done = client.receive(&said(MessageType::Ack, SERVER, 9, xid), at(1), 0).unwrap();
    assert!(matches!(done.event, Some(Event::Bound(_))));
    assert_eq!(client.wakes(), at(50), "it counts from the request, not from the answer");
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
fn lease_is_renewed_with_its_server_then_with_any() {
    let mut client = bound();
    let (from, server) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
    let (kind, to, xid) = sent(&client.wake(at(50), 0).unwrap()).unwrap();
    assert_eq!((kind, to), (3, To::Server { from, server }));
    let (_, to, later) = sent(&client.wake(at(85), 0).unwrap()).unwrap();
    assert_eq!(to, To::Everyone(from));
    assert_ne!(xid, later);
    let done = client.receive(&said(MessageType::Ack, 2, 9, later), at(86), 0).unwrap();
    assert!(matches!(done.event, Some(Event::Bound(_))));
    assert_eq!(client.wakes(), at(135));
}

#[test]
fn lease_ends_and_is_looked_for_again() {
    let mut client = bound();
    client.wake(at(50), 0).unwrap();
    let lost = client.wake(at(100), 1000).unwrap();
    assert!(matches!(lost, Actions { send: None, event: Some(Event::Lost { is_refused: false, .. }) }), "{lost:?}");
    assert_eq!(client.wakes(), at(102));
    let again = client.wake(at(102), 0).unwrap();
    let (_, bytes) = again.send.as_ref().unwrap();
    assert_eq!(sent(&again).map(|(kind, _, _)| kind), Some(1));
    assert!(bytes.windows(6).any(|option| option == [50, 4, 10, 0, 0, 9]), "it asks for the same address");
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
