use host_local::address::Address;

use super::runs::*;
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
fn claim_all(keys: &str, size: u32, before: &[(&str, &str)]) -> Vec<String> {
    let conf = conf(keys);
    let set: Vec<Span> = conf.sets[0].ranges().iter().map(|range| range.span()).collect();
    let mut state = State::default();
    for (first, last) in before {
        state = take(&state, "other", span(first, last)).unwrap();
    }
    let mut claimed = Vec::new();
    while let Some((next, run)) = claim(&state, "a", &set, size, &conf.barred) {
        state = next;
        claimed.push(run.to_string());
    }
    assert_eq!(state.runs.len(), claimed.len() + before.len());
    claimed
}

#[test]
fn runs_are_the_next_free_addresses_and_shrink_to_the_last_one() {
    // .1 is the gateway.
    assert_eq!(
        claim_all(r#""subnet":"10.0.0.0/28""#, 5, &[]),
        ["10.0.0.2-10.0.0.5", "10.0.0.6-10.0.0.8", "10.0.0.9-10.0.0.10", "10.0.0.11-10.0.0.12", "10.0.0.13-10.0.0.14"],
        "a node alone takes a quarter of what is left, and two at least"
    );
    assert_eq!(
        claim_all(r#""subnet":"10.0.0.0/28""#, 4, &[("10.0.0.4", "10.0.0.4"), ("10.0.0.9", "10.0.0.10")]),
        ["10.0.0.5-10.0.0.7", "10.0.0.2-10.0.0.3", "10.0.0.11-10.0.0.12", "10.0.0.13-10.0.0.14", "10.0.0.8-10.0.0.8"],
        "a whole run first, then the longest that is left"
    );
    assert_eq!(
        claim_all(r#""subnet":"10.0.0.0/28","exclude":["10.0.0.4-10.0.0.6","10.0.0.14"]"#, 4, &[]),
        ["10.0.0.2-10.0.0.7", "10.0.0.8-10.0.0.9", "10.0.0.10-10.0.0.11", "10.0.0.12-10.0.0.13"],
        "what may not be given does not count"
    );
}

#[test]
fn the_ends_of_the_address_space_can_be_claimed() {
    let all = r#""subnet":"ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffc/126","gateway":"fd00::1""#;
    let last = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:";
    let runs = [format!("{last}fffd-{last}fffe"), format!("{last}ffff-{last}ffff")];
    assert_eq!(claim_all(all, 2, &[]), runs);
}

#[test]
fn held_addresses_become_runs_and_those_of_others_are_named() {
    let state = take(&State::default(), "b", span("10.0.0.5", "10.0.0.6")).unwrap();
    let held = ["10.0.0.3", "10.0.0.2", "10.0.0.5", "10.0.0.9"].map(address);
    let (next, conflicts) = adopt(&state, "a", &held);
    let own: Vec<_> = next.runs.iter().filter(|run| run.node == "a").map(|run| run.span().to_string()).collect();
    assert_eq!(own, ["10.0.0.2-10.0.0.3", "10.0.0.9-10.0.0.9"]);
    assert_eq!(conflicts, [(address("10.0.0.5"), "node b".to_owned())]);
    assert_eq!(adopt(&next, "a", &held[..2]).0, next, "a second time changes nothing");
}

#[test]
fn a_reader_finds_the_faults_of_a_state() {
    let run = |first: &str, last: &str| Run {
        first: first.parse().unwrap(),
        last: last.parse().unwrap(),
        node: "a".to_owned(),
    };
    let runs = vec![run("10.0.0.1", "10.0.0.4"), run("10.0.0.4", "10.0.0.6")];
    let found = faults(&State { runs, ..State::default() });
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].contains("overlap"), "{found:#?}");
}

/// Ten nodes with a hundred containers each, which come in turn, on a range of exactly a thousand addresses.
#[test]
fn ten_nodes_share_a_range_of_exactly_their_containers() {
    let conf =
        conf(r#""subnet":"10.0.0.0/16","gateway":"10.0.255.254","rangeStart":"10.0.0.1","rangeEnd":"10.0.3.232""#);
    let set: Vec<Span> = conf.sets[0].ranges().iter().map(|range| range.span()).collect();
    let mut state = State::default();
    let names: Vec<String> = (0..10).map(|number| format!("n{number}")).collect();
    let mut room = vec![0_u128; names.len()];
    let mut writes = 0;
    for _container in 0..100 {
        for (name, room) in names.iter().zip(&mut room) {
            if *room == 0 {
                let me = Me {
                    is_copy: false,
                    name: name.clone(),
                    store_id: name.clone(),
                    is_known: true,
                    boot: String::new(),
                    macs: BTreeSet::from([name.clone()]),
                    trust_seconds: 60,
                    now: 0,
                };
                state = enter(&state, &me).unwrap().unwrap_or(state);
                let (next, run) = claim(&state, name, &set, 32, &conf.barred).expect("an address is left");
                (state, writes) = (next, writes + 1);
                *room = conf.barred.count_allowed(run);
            }
            *room -= 1;
        }
    }
    assert_eq!(faults(&state), [] as [String; 0]);
    assert!(writes <= 50, "{writes} writes");
    assert_eq!(room.iter().sum::<u128>(), 0, "no address is left over");
}

#[test]
fn a_forgetting_ends_only_what_it_has_begun() {
    let me = |now| Me {
        name: "a".to_owned(),
        store_id: "1".to_owned(),
        is_known: true,
        is_copy: false,
        boot: "1".to_owned(),
        macs: BTreeSet::new(),
        trust_seconds: 60,
        now,
    };
    let recorded = enter(&State::default(), &me(1)).unwrap().unwrap();
    let begun = begin_to_forget(&recorded, "a").unwrap();
    let member = begun.nodes["a"].clone();
    // Another command ends it, the node comes back, and is forgotten again.
    let back = enter(&end_forgetting(&begun, "a", &member).unwrap(), &me(2)).unwrap().unwrap();
    assert_eq!(end_forgetting(&back, "a", &member), None);
    let again = begin_to_forget(&back, "a").unwrap();
    assert_eq!(end_forgetting(&again, "a", &member), None, "the node may trust what it has read since");
}
