use super::*;

fn address(text: &str) -> Address {
    Address::from_file_name(text).unwrap()
}

fn span(first: &str, last: &str) -> Span {
    Span { first: address(first), last: address(last) }
}

fn conf(keys: &str) -> host_local::conf::Conf {
    let text = format!(r#"{{"cniVersion":"1.1.0","name":"n","type":"x","ipam":{{"type":"host-local",{keys}}}}}"#);
    let object = cni_spec::ConfObject::parse(text.as_bytes()).unwrap();
    cni_spec::FromConf::from_conf(&object).unwrap()
}

/// Claims until nothing is left; the runs in the order in which they were claimed.
fn claim_all(keys: &str, most: u32, before: &[(&str, &str)]) -> Vec<String> {
    let conf = conf(keys);
    let set: Vec<Span> = conf.sets[0].ranges().iter().map(|range| range.span()).collect();
    let base = base_of(set[0].first);
    let mut shard = Shard::default();
    before.iter().for_each(|(first, last)| shard.take(span(first, last), "claim/other").unwrap());
    let mut claimed = Vec::new();
    loop {
        let room = room(base, &shard, &set, most.into(), &conf.barred);
        let Some((_, best)) = room.best else { return claimed };
        let run = cut(best, size(room.left, 1, most).max(1), &conf.barred).unwrap();
        shard.take(run, "a").unwrap();
        claimed.push(run.to_string());
    }
}

#[test]
fn runs_are_the_next_free_addresses_and_shrink_to_the_last_one() {
    // .1 is the gateway.
    let ones =
        |numbers: &[u8]| numbers.iter().map(|number| format!("10.0.0.{number}-10.0.0.{number}")).collect::<Vec<_>>();
    let all = claim_all(r#""subnet":"10.0.0.0/27""#, 5, &[]);
    let first = ["10.0.0.2-10.0.0.6", "10.0.0.7-10.0.0.11", "10.0.0.12-10.0.0.15"];
    assert_eq!(all[..3], first, "a node alone takes a quarter of what is left");
    assert_eq!(all[3..], ones(&(16..31).collect::<Vec<u8>>())[..]);
    assert_eq!(
        claim_all(r#""subnet":"10.0.0.0/27""#, 4, &[("10.0.0.4", "10.0.0.4"), ("10.0.0.9", "10.0.0.10")])[0],
        "10.0.0.5-10.0.0.8",
        "of the first row that is long enough"
    );
    assert_eq!(
        claim_all(r#""subnet":"10.0.0.0/27","exclude":["10.0.0.3-10.0.0.6","10.0.0.14"]"#, 4, &[])[0],
        "10.0.0.2-10.0.0.9",
        "what may not be given does not count"
    );
}

#[test]
fn the_ends_of_the_address_space_can_be_claimed() {
    let all = r#""subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126","gateway":"fd00::1""#;
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:";
    assert_eq!(claim_all(all, 2, &[]), ["d", "e", "f"].map(|end| format!("{last}fff{end}-{last}fff{end}")));
}

#[test]
fn a_shard_is_stored_and_read_and_its_runs_are_cut_and_joined() {
    let base = address("10.0.0.0");
    let mut shard = Shard::default();
    shard.take(span("10.0.0.2", "10.0.0.9"), "a").unwrap();
    shard.take(span("10.0.0.255", "10.0.0.255"), "claim/shop/db").unwrap();
    assert_eq!(shard.take(span("10.0.0.9", "10.0.0.12"), "b").unwrap_err().owner, "a");
    shard.release(span("10.0.0.4", "10.0.0.5"), "a");
    shard.release(span("10.0.0.7", "10.0.0.7"), "b");
    let runs: Vec<_> = shard.runs.iter().map(|run| run.span.to_string()).collect();
    assert_eq!(runs, ["10.0.0.2-10.0.0.3", "10.0.0.6-10.0.0.9", "10.0.0.255-10.0.0.255"]);
    let text = shard.encode(base).unwrap();
    assert_eq!(text, r#"{"writes":0,"runs":{"a":[[2,3],[6,9]],"claim/shop/db":[[255,255]]}}"#);
    assert_eq!(Shard::decode(base, text.as_bytes()).unwrap(), shard);
    shard.take(span("10.0.0.4", "10.0.0.5"), "a").unwrap();
    shard.take(span("10.0.0.10", "10.0.0.10"), "b").unwrap();
    assert_eq!(shard.runs[0].span, span("10.0.0.2", "10.0.0.9"));
}

/// With an owner for each address, whose name has 230 characters.
#[test]
fn no_record_of_runs_is_longer_than_etcd_and_a_node_bear() {
    let base = address("10.0.0.0");
    let mut shard = Shard::default();
    for number in 0..256_u128 {
        let one = Address { bits: base.bits + number, ..base };
        shard.take(Span { first: one, last: one }, &format!("claim/{number:0230x}")).unwrap();
    }
    let length = shard.encode(base).unwrap().len();
    assert!(length < 64 << 10, "{length}");
}

#[test]
fn the_shards_of_a_set_are_gone_through_once_from_a_place_of_each_node() {
    let set = [span("10.0.0.0", "10.0.255.255"), span("10.9.0.10", "10.9.7.3")];
    let starts: BTreeSet<Address> =
        (0..50).map(|node| Shards::new(&set, &node.to_string(), None).next().unwrap()).collect();
    assert!(starts.len() > 20, "{starts:?}");
    let all: Vec<Address> = Shards::new(&set, "a", Some(address("10.9.4.0"))).collect();
    assert_eq!((all[0], all.len(), all.iter().collect::<BTreeSet<_>>().len()), (address("10.9.4.0"), 264, 264));
    let wide = [span("fd00::", "fd00::ffff:ffff:ffff:ffff")];
    assert_eq!(Shards::new(&wide, "a", None).take(3).count(), 3);
}

#[test]
fn held_addresses_become_runs_and_those_of_others_are_named() {
    let mut draft = Draft::default();
    draft.load(Key::Runs(address("10.0.0.0")), 0, None);
    draft.take(span("10.0.0.5", "10.0.0.6"), "b").unwrap();
    let held = ["10.0.0.3", "10.0.0.2", "10.0.0.5", "10.0.0.9"].map(address);
    let conflicts = adopt(&mut draft, "a", &held);
    let own: Vec<_> = draft.shard(address("10.0.0.0")).of("a").map(|run| run.to_string()).collect();
    assert_eq!(own, ["10.0.0.2-10.0.0.3", "10.0.0.9-10.0.0.9"]);
    assert_eq!(conflicts, [(address("10.0.0.5"), "node b".to_owned())]);
    let before = draft.clone();
    adopt(&mut draft, "a", &held[..2]);
    assert_eq!(draft, before, "a second time changes nothing");
}

#[test]
fn keys_are_read_as_they_are_displayed_and_ordered_as_they_are_written() {
    let keys = ["network", "claims/shop/db-0", "runs/10.0.4.0", "runs/fd00::100", "wants/a", "nodes/a"];
    let parsed: Vec<Key> = keys.iter().map(|key| Key::parse(key).unwrap()).collect();
    assert!(parsed.is_sorted());
    assert_eq!(parsed.iter().map(Key::to_string).collect::<Vec<_>>(), keys);
    assert_eq!(["runs/x", "other/a", "nodes"].map(Key::parse), [None, None, None]);
}
