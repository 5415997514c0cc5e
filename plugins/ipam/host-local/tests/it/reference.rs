//! Beside the reference: the same answers on folders of their own, and no address twice on one folder.

use std::collections::HashSet;
use std::fs;

use crate::call::{Answer, Net, OURS, answer, reference_or_skip};

/// Numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// Range sets that are soon full, wrap, have several ranges, gateways in odd places and both families.
const SHAPES: [&str; 5] = [
    r#""subnet":"10.0.0.0/28""#,
    r#""ranges":[[{"subnet":"10.0.0.0/29","rangeStart":"10.0.0.2","rangeEnd":"10.0.0.5","gateway":"10.0.0.4"},{"subnet":"10.1.0.0/29"}]]"#,
    r#""ranges":[[{"subnet":"10.0.0.0/28"}],[{"subnet":"fd00::/124"},{"subnet":"fd01::/125","gateway":"fd01::5"}]]"#,
    r#""subnet":"10.5.0.0/24","rangeStart":"10.5.0.1","rangeEnd":"10.5.0.9","ranges":[[{"subnet":"fd00::/64"}]]"#,
    r#""ranges":[[{"subnet":"10.0.0.0/28"}],[{"subnet":"fd00::/126"}]]"#, // the second is used up first
];

/// A step: verb, container, `CNI_ARGS`.
fn step(numbers: &mut Numbers) -> (&'static str, String, String) {
    let verb = ["ADD", "ADD", "ADD", "DEL", "DEL", "CHECK"][usize::try_from(numbers.below(6)).unwrap()];
    let id = format!("c{}", numbers.below(14));
    let args = match numbers.below(8) {
        0 if verb == "ADD" => format!("IP=10.0.0.{}", numbers.below(18)),
        _ => String::new(),
    };
    (verb, id, args)
}

/// The one intended difference on folders of their own: there, a request skips the duplicate test.
fn is_duplicate_request(args: &str, answer: &Answer) -> bool {
    !args.is_empty() && matches!(answer, Err(msg) if msg.contains("duplicate allocation"))
}

#[test]
fn any_calls_have_the_references_answers_and_leave_its_files() {
    let Some(reference) = reference_or_skip("any_calls_have_the_references_answers_and_leave_its_files") else {
        return;
    };
    for (seed, keys) in (1..).zip(SHAPES) {
        let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (ours, theirs) = (Net::new(here.path(), keys), Net::new(there.path(), keys));
        let mut numbers = Numbers(seed * 0x9e37_79b9);
        for count in 0..150 {
            let (verb, id, args) = step(&mut numbers);
            let answer = ours.call(&OURS, verb, &id, &args);
            if is_duplicate_request(&args, &answer) {
                continue;
            }
            let label = format!("{keys}: step {count}: {verb} {id} {args}");
            assert_eq!(answer, theirs.call(reference, verb, &id, &args), "{label}");
            assert_eq!(ours.reservations(), theirs.reservations(), "{label}");
            for set in 0..2 {
                let last = |net: &Net| fs::read_to_string(net.folder().join(format!("last_reserved_ip.{set}"))).ok();
                assert_eq!(last(&ours), last(&theirs), "{label}");
            }
        }
    }
}

/// In a range with just enough room, every call gets an address, from either implementation.
#[test]
fn parallel_adds_of_both_plugins_fill_the_range() {
    let Some(reference) = reference_or_skip("parallel_adds_of_both_plugins_fill_the_range") else { return };
    let data = tempfile::tempdir().unwrap();
    let net = Net::new(data.path(), r#""subnet":"10.0.0.0/26""#);
    let start = |number: usize| net.start([OURS.as_str(), reference][number % 2], "ADD", &format!("c{number}"), "");
    let children: Vec<_> = (0..61).map(start).collect();
    let addresses: Vec<String> = children.into_iter().flat_map(|child| answer(child).unwrap()).collect();
    assert_eq!(addresses.iter().collect::<HashSet<_>>().len(), 61);
    let full = "failed to allocate for range 0: no IP addresses available in range set: 10.0.0.1-10.0.0.62";
    for executable in [OURS.as_str(), reference] {
        assert_eq!(net.call(executable, "ADD", "more", "").unwrap_err(), full);
    }
}

/// Every file that holds an address holds it for the reference, too; and the reference's DEL finds its own.
#[test]
fn what_holds_an_address_there_holds_it_here() {
    let Some(reference) = reference_or_skip("what_holds_an_address_there_holds_it_here") else { return };
    let long = "c".repeat(300);
    for held in [
        format!("{long}\r\neth0"),
        long.clone(),
        "default_pod:abc".to_owned(),
        "for the printer\n".to_owned(),
        " \n".to_owned(),
    ] {
        for executable in [OURS.as_str(), reference] {
            let data = tempfile::tempdir().unwrap();
            let net = Net::new(data.path(), r#""subnet":"10.0.0.0/29""#);
            fs::create_dir(net.folder()).unwrap();
            fs::write(net.folder().join("10.0.0.2"), &held).unwrap();
            assert_eq!(net.call(executable, "ADD", "a", "").unwrap(), [r#""10.0.0.3/29" via "10.0.0.1""#], "{held}");
            net.call(executable, "DEL", &long, "").unwrap();
            assert_eq!(net.reservations().contains_key("10.0.0.2"), !held.starts_with(&long), "{executable}: {held}");
        }
    }
}
