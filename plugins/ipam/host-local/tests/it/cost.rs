//! What calls cost beside other containers' reservations: the table of the README. A measurement decides no test.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::call::{Net, OURS, reference_or_skip};

/// Prints the README's table: best wall-clock time of a call, process start included, store in memory.
/// `cargo test --release -p host-local --test it -- --ignored --nocapture measure`
#[test]
#[ignore = "a measurement, not a check"]
fn measure() {
    let reference = reference_or_skip("measure");
    let header = "| Reservations | ADD | CHECK | DEL | DEL again | ADD of the reference |\n|---|---|---|---|---|---|";
    eprintln!("{header}");
    for count in [0, 1_000, 10_000, 60_000] {
        let data = tempfile::tempdir_in("/dev/shm").unwrap();
        let net = Net::new(data.path(), r#""subnet":"10.0.0.0/8""#);
        fill(&net.folder(), count);
        // The first call reads the folder and builds the index.
        net.call(&OURS, "ADD", "first", "").unwrap();
        let ours = best(&net, &OURS, &["ADD", "CHECK", "DEL", "DEL"], 40);
        let theirs = reference.map_or(f64::NAN, |reference| best(&net, reference, &["ADD", "DEL"], 5)[0]);
        let ours: Vec<String> = ours.iter().map(|millis| format!("{millis:.1}")).collect();
        eprintln!("| {count} | {} | {theirs:.0} |", ours.join(" | "));
    }
}

/// Reservations of other containers, in one run from the range's second address on.
fn fill(folder: &Path, count: u32) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..count {
        let address = std::net::Ipv4Addr::from_bits(0x0a00_0002 + number);
        fs::write(folder.join(address.to_string()), format!("other{number}\r\neth0")).unwrap();
    }
}

/// The best of `rounds` times for each verb, in milliseconds.
fn best(net: &Net, executable: &str, verbs: &[&str], rounds: usize) -> Vec<f64> {
    let mut best = vec![f64::INFINITY; verbs.len()];
    for round in 0..rounds {
        // The search starts before the whole run of reserved addresses. Written in place: the folder does not change.
        fs::write(net.folder().join("last_reserved_ip.0"), "10.0.0.1").unwrap();
        for (verb, best) in verbs.iter().zip(&mut best) {
            let start = Instant::now();
            net.call(executable, verb, &format!("c{round}"), "").unwrap();
            *best = best.min(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    best
}
